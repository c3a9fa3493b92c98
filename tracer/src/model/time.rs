//! Time: the node's monotonic clock, and how it relates to the wall clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Nanoseconds of the node's `CLOCK_MONOTONIC`, the clock of `bpf_ktime_get_ns` and of every event.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MonoNs(pub u64);

impl MonoNs {
    /// The time from `earlier` to `self`; zero if `earlier` is the later of the two.
    pub fn since(self, earlier: MonoNs) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Seconds from `origin` to `self`, negative before it.
    pub fn seconds_from(self, origin: MonoNs) -> f64 {
        if self.0 >= origin.0 {
            (self.0 - origin.0) as f64 / 1e9
        } else {
            -((origin.0 - self.0) as f64 / 1e9)
        }
    }
}

impl Add<Duration> for MonoNs {
    type Output = MonoNs;
    fn add(self, after: Duration) -> MonoNs {
        MonoNs(self.0.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for MonoNs {
    type Output = MonoNs;
    fn sub(self, before: Duration) -> MonoNs {
        MonoNs(self.0.saturating_sub(u64::try_from(before.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for MonoNs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}s", self.0 as f64 / 1e9)
    }
}

/// Nanoseconds since the Unix epoch, by the node's wall clock.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct WallNs(pub i64);

/// One moment read on both clocks, with the largest error that reading them one after the other can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockAnchor {
    /// The moment on the monotonic clock.
    pub mono: MonoNs,
    /// The same moment on the wall clock.
    pub wall: WallNs,
    /// How far the two readings may be apart, in nanoseconds.
    pub error_ns: u64,
}

impl ClockAnchor {
    /// The wall clock at a moment of the monotonic one.
    pub fn wall(&self, time: MonoNs) -> WallNs {
        let wall = i128::from(self.wall.0) + i128::from(time.0) - i128::from(self.mono.0);
        WallNs(i64::try_from(wall).unwrap_or(if wall < 0 { i64::MIN } else { i64::MAX }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_never_wraps() {
        assert_eq!(MonoNs(3).since(MonoNs(5)), Duration::ZERO);
        assert_eq!(MonoNs(3) - Duration::from_secs(1), MonoNs(0));
        assert_eq!(MonoNs(0).seconds_from(MonoNs(1_500_000_000)), -1.5);
    }

    #[test]
    fn the_wall_clock_goes_with_the_anchor_in_both_directions() {
        let anchor = ClockAnchor { mono: MonoNs(100), wall: WallNs(1_000), error_ns: 0 };
        assert_eq!(anchor.wall(MonoNs(130)), WallNs(1_030));
        assert_eq!(anchor.wall(MonoNs(40)), WallNs(940));
        assert_eq!(anchor.wall(MonoNs(u64::MAX)), WallNs(i64::MAX));
    }
}
