//! What the Deployment controller does next in a rolling update. Pure.

use super::plan::Node;

/// A Deployment's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// How many pods there are to be.
    pub replicas: usize,
    /// How many more there may be during a rollout.
    pub max_surge: usize,
    /// How many fewer may be available during a rollout.
    pub max_unavailable: usize,
}

/// The pods of a Deployment that are not terminating, as a ReplicaSet counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Of the old template.
    pub(crate) old: usize,
    /// Those of them that are ready.
    pub(crate) old_ready: usize,
    /// Of the new template.
    pub(crate) new: usize,
    /// Those of them that are ready.
    pub(crate) new_ready: usize,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Make a pod of the new template.
    Create,
    /// Delete a pod of the old one.
    DeleteOld,
    /// Wait for a pod to become ready.
    Wait,
    /// Nothing: `kubectl rollout status` would return.
    Complete,
}

impl Deployment {
    /// The controller's order (pkg/controller/deployment/rolling.go): first scale the new ReplicaSet up as
    /// far as the surge allows, then the old one down as far as the available pods allow.
    ///
    /// Complete is what `kubectl rollout status` waits for (polymorphichelpers/rollout_status.go): every
    /// replica updated, no old one left, the new ones available. A terminating pod is counted no more.
    pub(crate) fn next(self, counts: Counts) -> Step {
        let total = counts.old + counts.new;
        let available = counts.old_ready + counts.new_ready;
        if counts.new < self.replicas && total < self.replicas + self.max_surge {
            Step::Create
        } else if counts.old > 0 && available + self.max_unavailable > self.replicas {
            Step::DeleteOld
        } else if counts.old == 0 && counts.new_ready >= self.replicas {
            Step::Complete
        } else {
            Step::Wait
        }
    }
}

/// Which old pod goes: one on the node that has most pods of the Deployment, and of those the first made.
/// (The ReplicaSet controller ranks by pods on the same node, too; where it then goes by age in coarse steps
/// and by uid, this goes by age, so that a run can be repeated.)
pub(crate) fn victim(old: &[Node], new: &[Node]) -> Option<usize> {
    let on = |node: Node| old.iter().chain(new).filter(|other| **other == node).count();
    (0..old.len()).max_by_key(|place| (on(old[*place]), std::cmp::Reverse(*place)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    /// Plays a rollout in which each new pod becomes ready when the controller waits for it.
    fn play(deployment: Deployment) -> String {
        let replicas = deployment.replicas;
        let mut counts = Counts { old: replicas, old_ready: replicas, ..Counts::default() };
        let mut story = Vec::new();
        loop {
            let step = deployment.next(counts);
            match step {
                Step::Create => counts.new += 1,
                Step::DeleteOld => {
                    counts.old -= 1;
                    counts.old_ready -= 1;
                }
                Step::Wait => {
                    assert!(counts.new_ready < counts.new, "waits for nothing: {counts:?}");
                    counts.new_ready += 1;
                }
                Step::Complete => break,
            }
            let available = counts.old_ready + counts.new_ready;
            assert!(available + deployment.max_unavailable >= replicas, "too few: {counts:?}");
            assert!(
                counts.old + counts.new <= replicas + deployment.max_surge,
                "too many: {counts:?}"
            );
            story.push(format!("{step:?}"));
        }
        story.join(" ")
    }

    #[test]
    fn one_extra_pod_at_a_time_and_none_taken_away_early() {
        expect!["Create Wait DeleteOld Create Wait DeleteOld Create Wait DeleteOld"]
            .assert_eq(&play(Deployment { replicas: 3, max_surge: 1, max_unavailable: 0 }));
    }

    #[test]
    fn with_one_allowed_to_be_unavailable_an_old_pod_goes_first() {
        expect!["DeleteOld Create Wait DeleteOld Create Wait"].assert_eq(&play(Deployment {
            replicas: 2,
            max_surge: 0,
            max_unavailable: 1,
        }));
    }

    #[test]
    fn a_terminating_pod_does_not_hold_the_rollout_up() {
        let deployment = Deployment { replicas: 3, max_surge: 1, max_unavailable: 0 };
        let counts = Counts { new: 3, new_ready: 3, ..Counts::default() };
        assert_eq!(deployment.next(counts), Step::Complete);
    }

    #[test]
    fn the_fuller_node_loses_its_oldest_pod() {
        let [a, b] = [Node(0), Node(1)];
        assert_eq!(victim(&[a, b, a], &[b]), Some(0));
        assert_eq!(victim(&[b, a], &[b, a, a]), Some(1));
        assert_eq!(victim(&[], &[a]), None);
    }
}
