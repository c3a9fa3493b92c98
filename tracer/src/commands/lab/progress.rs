//! What is going on, on standard error: a bar on a terminal, nothing elsewhere.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::model::RequestEnded;

/// Requests so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    total: u64,
    failed: u64,
}

impl Counts {
    pub(super) fn count(&mut self, ended: &RequestEnded) {
        self.total += 1;
        self.failed += u64::from(ended.outcome.symptom().is_some());
    }
}

/// Whom a run tells how far it is.
pub(super) trait Watch {
    /// Something that takes a moment is done now.
    fn say(&self, what: &'static str);
    /// So long the load has lasted.
    fn beat(&self, elapsed: Duration, counts: &Counts);
    /// The terminal is for something else from now on.
    fn hide(&self);
    /// It is over.
    fn end(&self);
}

/// A bar for one run.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(super) fn new(duration: Duration) -> Progress {
        Progress { bar: bar(duration) }
    }
}

impl Watch for Progress {
    fn say(&self, what: &'static str) {
        self.bar.set_message(what);
    }

    fn beat(&self, elapsed: Duration, counts: &Counts) {
        self.bar.set_position(elapsed.as_secs());
        self.bar.set_message(format!("{} requests, {} failed", counts.total, counts.failed));
    }

    fn hide(&self) {
        self.bar.finish_and_clear();
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// One bar for many runs, some of them at once.
pub(super) struct Common {
    bar: ProgressBar,
    parts: Mutex<Vec<State>>,
}

/// How far one of them is.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    elapsed: Duration,
    counts: Counts,
    is_over: bool,
}

impl Common {
    /// For so many runs, each of this length.
    pub(super) fn new(runs: usize, each: Duration) -> Common {
        let whole = each.saturating_mul(u32::try_from(runs).unwrap_or(u32::MAX));
        Common { bar: bar(whole), parts: Mutex::new(vec![State::default(); runs]) }
    }

    /// That of the run with this number, counted from 0, each of which lasts so long.
    pub(super) fn part(&self, number: usize, each: Duration) -> Part<'_> {
        Part { common: self, number, each }
    }

    /// They are all over.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<State>> {
        // A state is written in one piece, so a panic elsewhere can't leave it half done.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, number: usize, change: impl FnOnce(&mut State)) {
        let mut parts = self.lock();
        change(&mut parts[number]);
        let (elapsed, said) = summary(&parts);
        self.bar.set_position(elapsed.as_secs());
        self.bar.set_message(said);
    }
}

/// How long all have lasted together, and the rest in words.
fn summary(parts: &[State]) -> (Duration, String) {
    let elapsed = parts.iter().map(|part| part.elapsed).sum();
    let over = parts.iter().filter(|part| part.is_over).count();
    let total: u64 = parts.iter().map(|part| part.counts.total).sum();
    let failed: u64 = parts.iter().map(|part| part.counts.failed).sum();
    let said =
        format!("{over} of {} runs are over; {total} requests, {failed} failed", parts.len());
    (elapsed, said)
}

/// One run's part of a common bar.
pub(super) struct Part<'a> {
    common: &'a Common,
    number: usize,
    each: Duration,
}

impl Watch for Part<'_> {
    // Building and taking down are short, and others go on meanwhile.
    fn say(&self, _what: &'static str) {}

    // A live view has one run.
    fn hide(&self) {}

    fn beat(&self, elapsed: Duration, counts: &Counts) {
        self.common.update(self.number, |state| {
            state.elapsed = elapsed.min(self.each);
            state.counts = *counts;
        });
    }

    fn end(&self) {
        self.common.update(self.number, |state| {
            state.elapsed = self.each;
            state.is_over = true;
        });
    }
}

fn bar(duration: Duration) -> ProgressBar {
    let bar = if io::stderr().is_terminal() {
        ProgressBar::new(duration.as_secs())
    } else {
        ProgressBar::hidden()
    };
    let style = ProgressStyle::with_template("{bar:30} {pos:>3}/{len} s  {msg}")
        .expect("the template is a constant");
    bar.set_style(style);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_runs_have_done_is_added_up_and_one_that_failed_counts_as_over() {
        let each = Duration::from_secs(50);
        let common = Common::new(3, each);
        let counts = Counts { total: 100, failed: 2 };
        common.part(0, each).beat(Duration::from_secs(10), &counts);
        common.part(2, each).beat(Duration::from_secs(53), &counts);
        common.part(1, each).end();
        let (elapsed, said) = summary(&common.lock());
        assert_eq!(elapsed, Duration::from_secs(10 + 50 + 50));
        assert_eq!(said, "1 of 3 runs are over; 200 requests, 4 failed");
    }
}
