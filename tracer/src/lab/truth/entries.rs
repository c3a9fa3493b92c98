//! The unreplied entries that the looks at the table show, and when each was made.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::Truth;
use super::judge::{RETRANSMITTED, TICK};
use super::judged::{ClientEnd, ClientRow, Span};
use super::table::State;
use crate::model::{MonoNs, Symptom};

/// From the start of a request until its SYN is out, at most: a socket is made and a route looked up.
const UNTIL_SYN: Duration = Duration::from_millis(200);

/// An entry in SYN_SENT that has seen no reply. On kernels since 5.14 no later SYN renews it, so its remaining
/// seconds tell when it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stale {
    /// Where it points.
    pub(super) backend: SocketAddr,
    /// When it was made.
    pub(super) made: Span,
    /// When it expires.
    pub(super) expires: Span,
    /// It was surely still there.
    pub(super) seen_last: MonoNs,
}

/// The entries by the client's port, in the order in which they were made. `rows` are the client's, by port
/// and in order: an entry is made by an attempt, so the attempts tell better than the looks when that was.
pub(super) fn stale(
    truth: &Truth,
    rows: &BTreeMap<u16, Vec<&ClientRow>>,
) -> BTreeMap<u16, Vec<Stale>> {
    let mut all = BTreeMap::<u16, Vec<Stale>>::new();
    for look in &truth.looks {
        for row in look.rows.iter().filter(|row| row.is_unreplied && row.state == State::SynSent) {
            // It has between `left` and one second more, at some moment of the look.
            let left = Duration::from_secs(u64::from(row.left));
            let age = truth.syn_sent_timeout.saturating_sub(left);
            let made = Span {
                from: look.before - age - TICK,
                to: (look.after - age + Duration::from_secs(1) + TICK).min(look.after),
            };
            let entries = all.entry(row.port).or_default();
            let same = entries.iter_mut().rfind(|entry| entry.backend == row.backend);
            match same.and_then(|entry| Some((entry.made.and(made)?, entry))) {
                Some((made, entry)) => {
                    entry.made = made;
                    entry.seen_last = look.before;
                }
                None => {
                    let expires = made;
                    entries.push(Stale {
                        backend: row.backend,
                        made,
                        expires,
                        seen_last: look.before,
                    });
                }
            }
        }
    }
    for (port, entries) in &mut all {
        for entry in entries {
            if let Some(made) = maker(entry, rows.get(port).map_or(&[], Vec::as_slice)) {
                entry.made = made;
            }
            let life = truth.syn_sent_timeout;
            entry.expires =
                Span { from: entry.made.from + life - TICK, to: entry.made.to + life + TICK };
        }
    }
    all
}

/// When the entry was made by the only attempt whose first SYN was not answered that can have made it.
fn maker(entry: &Stale, rows: &[&ClientRow]) -> Option<Span> {
    let mut spans = rows.iter().filter(|row| is_unanswered(row)).filter_map(|row| {
        let syn = Span { from: row.start, to: row.start + UNTIL_SYN };
        entry.made.and(syn)
    });
    let made = spans.next()?;
    spans.next().is_none().then_some(made)
}

fn is_unanswered(row: &ClientRow) -> bool {
    if let Some(connected) = row.connected {
        return connected >= RETRANSMITTED;
    }
    match row.end {
        ClientEnd::Failed(Symptom::ConnectTimeout | Symptom::Unreachable) => true,
        // Its first SYN was not answered, and a later one was refused.
        ClientEnd::Failed(Symptom::Refused) => row.total >= RETRANSMITTED,
        ClientEnd::Failed(_) | ClientEnd::Answered => false,
    }
}
