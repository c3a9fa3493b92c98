//! Which rollouts there are, and when each can be judged: when the last entry that it may have left is gone.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::MonoNs;

/// What came before a rollout that its verdict needs: the ports' last owners, and how things went without one.
pub(super) const BEFORE: Duration = Duration::from_secs(15);
/// A rollout that goes on for longer is judged as far as it came: it is stuck.
const STUCK: Duration = Duration::from_secs(3600);

/// A rollout that can be judged now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The Deployment.
    pub deployment: String,
    /// From when on events matter to it.
    pub from: MonoNs,
}

/// The rollouts that are not judged yet.
#[derive(Debug)]
pub struct Rollouts {
    /// From a rollout's end until the last entry that it may have left is gone, and a little longer.
    after: Duration,
    open: BTreeMap<String, Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    started: MonoNs,
    finished: Option<MonoNs>,
}

impl Rollouts {
    /// None yet. Each is judged so long after its end.
    pub fn new(after: Duration) -> Rollouts {
        Rollouts { after, open: BTreeMap::new() }
    }

    /// A rollout of this Deployment starts. One that was not judged yet is judged together with it.
    pub fn start(&mut self, deployment: &str, now: MonoNs) {
        let open = Open { started: now, finished: None };
        self.open.entry(deployment.to_owned()).or_insert(open).finished = None;
    }

    /// It is complete. One whose start nobody saw began now at the latest.
    pub fn finish(&mut self, deployment: &str, now: MonoNs) {
        let open = Open { started: now, finished: None };
        self.open.entry(deployment.to_owned()).or_insert(open).finished = Some(now);
    }

    /// How many are not judged yet.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Those that can be judged now; they are no longer open.
    pub fn due(&mut self, now: MonoNs) -> Vec<Due> {
        let after = self.after;
        let due = self.open.extract_if(.., |_, open| match open.finished {
            Some(finished) => now.since(finished) >= after,
            None => now.since(open.started) >= STUCK,
        });
        due.map(|(deployment, open)| Due { deployment, from: open.started - BEFORE }).collect()
    }

    /// Everything that is open, at the end of all.
    pub fn all(&mut self) -> Vec<Due> {
        let open = std::mem::take(&mut self.open);
        open.into_iter()
            .map(|(deployment, open)| Due { deployment, from: open.started - BEFORE })
            .collect()
    }

    /// From when on events may still be asked for.
    pub fn needed_from(&self, now: MonoNs) -> MonoNs {
        let first = self.open.values().map(|open| open.started).min();
        first.unwrap_or(now) - BEFORE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn one_is_judged_when_its_entries_are_gone() {
        let mut rollouts = Rollouts::new(Duration::from_secs(130));
        rollouts.start("web", MonoNs(100 * S));
        assert_eq!(rollouts.due(MonoNs(300 * S)), [], "it goes on");
        rollouts.finish("web", MonoNs(110 * S));
        assert_eq!(rollouts.due(MonoNs(239 * S)), []);
        assert_eq!(rollouts.needed_from(MonoNs(239 * S)), MonoNs(85 * S));
        let due = Due { deployment: "web".to_owned(), from: MonoNs(85 * S) };
        assert_eq!(rollouts.due(MonoNs(240 * S)), [due]);
        assert_eq!(rollouts.due(MonoNs(241 * S)), [], "once");
        assert_eq!(rollouts.needed_from(MonoNs(241 * S)), MonoNs(226 * S));
    }

    #[test]
    fn one_that_follows_at_once_is_judged_with_it() {
        let mut rollouts = Rollouts::new(Duration::from_secs(130));
        rollouts.start("web", MonoNs(100 * S));
        rollouts.finish("web", MonoNs(110 * S));
        rollouts.start("web", MonoNs(150 * S));
        rollouts.finish("web", MonoNs(160 * S));
        assert_eq!(rollouts.due(MonoNs(250 * S)), []);
        let due = rollouts.due(MonoNs(290 * S));
        assert_eq!(due[0].from, MonoNs(85 * S));
    }

    #[test]
    fn one_that_never_ends_is_judged_some_time() {
        let mut rollouts = Rollouts::new(Duration::from_secs(130));
        rollouts.start("web", MonoNs(100 * S));
        assert_eq!(rollouts.due(MonoNs(3_699 * S)), []);
        assert_eq!(rollouts.due(MonoNs(3_700 * S)).len(), 1);
    }
}
