//! The wish to stop: set by SIGINT, SIGTERM or by code, asked by everything that waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A flag that all threads of a command share. Cheap to clone, never unset.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks everyone to stop.
    pub fn request(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether someone asked.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
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
