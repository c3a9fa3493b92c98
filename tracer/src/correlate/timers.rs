//! Which SYN_SENT timer was in force when, per network namespace, and what that says of an entry's age.

use std::time::Duration;

use crate::model::{MonoNs, NetnsId, TraceHeader};

/// The sysctl's dotted name.
pub const SYN_SENT: &str = "net.netfilter.nf_conntrack_tcp_timeout_syn_sent";

/// The history of the SYN_SENT timers. An entry keeps the timer that was in force when it was made
/// (`nf_conntrack_tcp_packet` reads the table when it sets a timeout, never later).
#[derive(Clone, Debug, Default)]
pub struct Timers {
    spans: Vec<Span>,
}

#[derive(Clone, Debug)]
struct Span {
    netns: NetnsId,
    from: MonoNs,
    timer: Duration,
}

/// What the timers say of when an entry was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// At this time, by the only timer that fits.
    At(MonoNs),
    /// Two timers fit, and so do two times.
    Ambiguous,
    /// No timer is known for the namespace, or none fits.
    Unknown,
}

impl Timers {
    /// The timers at the start.
    pub fn new(header: &TraceHeader) -> Timers {
        let spans = header
            .sysctls
            .iter()
            .filter(|sysctl| sysctl.name == SYN_SENT)
            .filter_map(|sysctl| {
                let timer = seconds(&sysctl.value)?;
                Some(Span { netns: sysctl.netns, from: MonoNs(0), timer })
            })
            .collect();
        Timers { spans }
    }

    /// The timer was changed.
    pub fn set(&mut self, netns: NetnsId, at: MonoNs, value: &str) {
        if let Some(timer) = seconds(value) {
            self.spans.push(Span { netns, from: at, timer });
            self.spans.sort_by_key(|span| span.from);
        }
    }

    /// The longest timer known, or conntrack's default of 120 s if that is longer.
    pub(super) fn longest(&self) -> Duration {
        self.spans.iter().map(|span| span.timer).fold(Duration::from_secs(120), Duration::max)
    }

    /// When the entry was made that has `remaining` to live at `now`, if it was never renewed. `slack` is
    /// how exactly the remaining life is known.
    pub fn made(&self, netns: NetnsId, now: MonoNs, remaining: Duration, slack: Duration) -> Made {
        let expires = now + remaining;
        let mut spans = self.spans.iter().filter(|span| span.netns == netns).peekable();
        let mut found = Made::Unknown;
        while let Some(span) = spans.next() {
            let until = spans.peek().map_or(MonoNs(u64::MAX), |next| next.from);
            if expires.0 < u64::try_from(span.timer.as_nanos()).unwrap_or(u64::MAX) {
                continue;
            }
            let made = expires - span.timer;
            if made + slack < span.from || made > until + slack || made > now + slack {
                continue;
            }
            let made = made.min(now);
            // What may have been made right now is taken as made now: a fresh entry is the claim that
            // speaks against the leading hypothesis.
            if now.since(made) <= slack {
                return Made::At(made);
            }
            found = match found {
                Made::Unknown => Made::At(made),
                _ => Made::Ambiguous,
            };
        }
        found
    }
}

/// How exactly an entry's remaining life is known in a trace with this header: it is counted in ticks and read
/// between two of them; the rest is for a tick that came late and for the way from the table to the device.
pub fn slack(header: &TraceHeader) -> Duration {
    let tick = header.hz.filter(|hz| *hz > 0).map_or(10, |hz| 1000_u64.div_ceil(u64::from(hz)));
    Duration::from_millis(2 * tick + 20)
}

fn seconds(value: &str) -> Option<Duration> {
    value.trim().parse().ok().map(Duration::from_secs)
}
