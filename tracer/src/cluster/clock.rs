//! How far the API server's clock is from this node's: from the `Date` of its answers, which it writes between
//! the moment that a request is sent and the moment that its answer comes.

use std::sync::Mutex;
use std::time::Duration;

use crate::model::WallNs;

const SECOND: i64 = 1_000_000_000;

/// Between which values the server's clock less the node's lies, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// At least.
    pub from: i64,
    /// At most.
    pub to: i64,
}

/// The server's clock, as far as its answers tell. Shared by all requests.
#[derive(Debug, Default)]
pub struct ApiClock {
    known: Mutex<Known>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    bounds: Option<Bounds>,
    answers: u64,
}

impl ApiClock {
    /// An answer with this `Date` (whole seconds, cut off) to a request that was sent and answered at these
    /// times of the node's wall clock.
    pub fn answered(&self, sent: WallNs, date_seconds: i64, received: WallNs) {
        let date = date_seconds.saturating_mul(SECOND);
        // It was written between `sent` and `received`, at a moment that the server calls `date` to `date` + 1 s.
        let told = Bounds {
            from: date.saturating_sub(received.0),
            to: date.saturating_add(SECOND).saturating_sub(sent.0),
        };
        let mut known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        known.answers += 1;
        let narrowed = known
            .bounds
            .map(|bounds| Bounds { from: bounds.from.max(told.from), to: bounds.to.min(told.to) });
        known.bounds = match narrowed {
            Some(narrowed) if narrowed.from <= narrowed.to => Some(narrowed),
            // One of the clocks was set, or they drift: what was said last is true now.
            _ => Some(told),
        };
    }

    /// What is known.
    pub fn bounds(&self) -> Option<Bounds> {
        self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner).bounds
    }

    /// In words.
    pub fn text(&self) -> String {
        let known = *self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let seconds = |ns: i64| ns as f64 / 1e9;
        match known.bounds {
            Some(bounds) => format!(
                "the API server's clock less this node's is between {:+.2} s and {:+.2} s, by the dates of {} \
                 answers; times that objects state are taken with that",
                seconds(bounds.from),
                seconds(bounds.to),
                known.answers,
            ),
            None => "the API server's answers have no date: the times that objects state are not used, only \
                     the arrival of their changes"
                .to_owned(),
        }
    }
}

impl Bounds {
    /// The node's time at the earliest, when the server's clock showed this.
    pub fn earliest(self, server: WallNs) -> WallNs {
        WallNs(server.0.saturating_sub(self.to))
    }

    /// The node's time at the latest, when the server's clock showed this.
    pub fn latest(self, server: WallNs) -> WallNs {
        WallNs(server.0.saturating_sub(self.from))
    }

    /// How much the bounds leave open.
    pub fn width(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.to.saturating_sub(self.from)).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn ms(ms: i64) -> WallNs {
        WallNs(ms * MS)
    }

    #[test]
    fn answers_narrow_the_difference_of_the_clocks() {
        // The server is 300 ms ahead.
        let clock = ApiClock::default();
        assert_eq!(clock.bounds(), None);
        // 10.300 there.
        clock.answered(ms(9_990), 10, ms(10_010));
        assert_eq!(clock.bounds(), Some(Bounds { from: -10 * MS, to: 1_010 * MS }));
        // 10.990 there, and 11.010.
        clock.answered(ms(10_680), 10, ms(10_700));
        clock.answered(ms(10_700), 11, ms(10_720));
        assert_eq!(clock.bounds(), Some(Bounds { from: 280 * MS, to: 320 * MS }));
    }

    #[test]
    fn a_clock_that_was_set_is_believed_anew() {
        let clock = ApiClock::default();
        clock.answered(ms(10_000), 10, ms(10_010));
        clock.answered(ms(11_000), 500, ms(11_010));
        assert_eq!(
            clock.bounds(),
            Some(Bounds { from: 488_990 * MS, to: 490_000 * MS }),
            "{}",
            clock.text()
        );
    }

    #[test]
    fn a_time_of_the_server_lies_between_two_of_the_node() {
        let bounds = Bounds { from: -20 * MS, to: 50 * MS };
        assert_eq!(bounds.earliest(ms(1_000)), ms(950));
        assert_eq!(bounds.latest(ms(1_000)), ms(1_020));
        assert_eq!(bounds.width(), Duration::from_millis(70));
    }
}
