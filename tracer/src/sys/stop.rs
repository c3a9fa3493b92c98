//! The wish to stop: set by SIGINT, SIGTERM or by code, asked by everything that waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A flag that all threads of a command share. Cheap to clone, never unset.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Flag>);

#[derive(Debug, Default)]
struct Flag {
    is_set: AtomicBool,
    /// Whoever stops this one's whole stops this one too.
    whole: Option<Stop>,
}

impl Stop {
    /// A wish to stop a part alone; who asks the whole to stop asks the part, not the other way round.
    pub fn part(&self) -> Stop {
        Stop(Arc::new(Flag { is_set: AtomicBool::new(false), whole: Some(self.clone()) }))
    }

    /// Asks everyone to stop.
    pub fn request(&self) {
        self.0.is_set.store(true, Ordering::Release);
    }

    /// Whether someone asked.
    pub fn is_requested(&self) -> bool {
        self.0.is_set.load(Ordering::Acquire)
            || self.0.whole.as_ref().is_some_and(Stop::is_requested)
    }

    /// Waits for `duration`, or less if asked to stop. True if it waited to the end.
    pub fn wait(&self, duration: Duration) -> bool {
        let end = Instant::now() + duration;
        while !self.is_requested() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            thread::sleep(left.min(Duration::from_millis(20)));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_stops_alone_or_with_the_whole() {
        let whole = Stop::default();
        let (one, other) = (whole.part(), whole.part());
        one.request();
        assert!(one.is_requested() && !other.is_requested() && !whole.is_requested());
        whole.request();
        assert!(other.is_requested());
        assert!(!other.wait(Duration::from_secs(60)));
    }
}
