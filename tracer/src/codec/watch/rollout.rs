//! Rollouts, from the states of a Deployment.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::super::stamp::Stamp;
use super::object::{Deployment, ReplicaSet};
use super::told::{Change, When};
use crate::model::{ClusterEvent, RolloutChange};

/// What `kubectl rollout status` looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeploymentState {
    /// `metadata.generation`
    pub generation: i64,
    /// `status.observedGeneration`
    pub observed_generation: i64,
    /// `spec.replicas`
    pub wanted: Option<i64>,
    /// `status.replicas`: without those that are terminating.
    pub replicas: i64,
    /// `status.updatedReplicas`
    pub updated: i64,
    /// `status.availableReplicas`
    pub available: i64,
    /// Whether the condition Progressing has the reason ProgressDeadlineExceeded.
    pub deadline_exceeded: bool,
}

/// What `kubectl rollout status` would say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutStatus {
    /// The controller has not seen the spec yet.
    NotObserved,
    /// It gives up.
    DeadlineExceeded,
    /// Not all replicas are of the new template.
    NotUpdated,
    /// Old replicas are still counted.
    OldRemain,
    /// Not all new replicas are available.
    NotAvailable,
    /// It returns.
    Complete,
}

impl DeploymentState {
    /// The conditions of kubectl's `DeploymentStatusViewer` (polymorphichelpers/rollout_status.go), in its order.
    pub fn rollout_status(&self) -> RolloutStatus {
        if self.generation > self.observed_generation {
            RolloutStatus::NotObserved
        } else if self.deadline_exceeded {
            RolloutStatus::DeadlineExceeded
        } else if self.wanted.is_some_and(|wanted| self.updated < wanted) {
            RolloutStatus::NotUpdated
        } else if self.replicas > self.updated {
            RolloutStatus::OldRemain
        } else if self.available < self.updated {
            RolloutStatus::NotAvailable
        } else {
            RolloutStatus::Complete
        }
    }
}

impl From<&Deployment> for DeploymentState {
    fn from(deployment: &Deployment) -> DeploymentState {
        let status = &deployment.status;
        let reason = deployment.progressing().and_then(|progressing| progressing.reason.as_deref());
        DeploymentState {
            generation: deployment.metadata.generation.unwrap_or(0),
            observed_generation: status.observed_generation,
            wanted: deployment.spec.replicas,
            replicas: status.replicas,
            updated: status.updated_replicas,
            available: status.available_replicas,
            deadline_exceeded: reason == Some("ProgressDeadlineExceeded"),
        }
    }
}

/// The Deployments and ReplicaSets of a stream.
#[derive(Debug, Default)]
pub(super) struct Rollouts {
    deployments: HashMap<String, Known, FixedState>,
    /// By Deployment, the ReplicaSet of its highest revision.
    newest: HashMap<String, Newest, FixedState>,
}

#[derive(Debug)]
struct Known {
    name: String,
    template: serde_json::Value,
    /// A rollout is under way.
    open: bool,
    /// Its beginning, while nothing tells when it was.
    begun: Option<Begun>,
    /// The latest that a condition was updated.
    updated: Option<Stamp>,
    /// When it became complete, of one that was when first seen, until a rollout is seen.
    complete_since: Option<When>,
}

#[derive(Debug)]
struct Begun {
    after: Option<Stamp>,
}

#[derive(Debug)]
struct Newest {
    revision: u64,
    created: Stamp,
    /// The latest creation of any ReplicaSet of the Deployment: later than `created` after a roll back.
    last_created: Stamp,
    /// How many ReplicaSets were seen.
    count: u32,
}

impl Rollouts {
    /// What this state tells that the ones before did not.
    pub(super) fn take(&mut self, deployment: &Deployment, deleted: bool) -> Vec<(Change, When)> {
        let identity = deployment.metadata.identity();
        if deleted {
            self.deployments.remove(&identity);
            return Vec::new();
        }
        let is_complete =
            DeploymentState::from(deployment).rollout_status() == RolloutStatus::Complete;
        let updated = deployment.progressing().and_then(|progressing| progressing.updated());
        let mut told = Vec::new();
        let known = match self.deployments.get_mut(&identity) {
            Some(known) => {
                if known.template != deployment.spec.template {
                    known.template = deployment.spec.template.clone();
                    known.open = true;
                    known.complete_since = None;
                    // Without managedFields nothing says when: kubectl leaves them out unless it prints events.
                    match deployment.metadata.written(None) {
                        Some(written) => {
                            told.push((RolloutChange::Started, When::at(Some(written))))
                        }
                        None => known.begun = Some(Begun { after: known.updated }),
                    }
                }
                known
            }
            None => {
                let known = Known::first(deployment, is_complete);
                if known.open {
                    let created = deployment.metadata.created();
                    let written = deployment.metadata.written(None);
                    told.push((
                        RolloutChange::Started,
                        When::from_to(created, written.or(updated)),
                    ));
                }
                self.deployments.entry(identity).or_insert(known)
            }
        };
        // The controller's first word after the change: by then the change had been made.
        if known.begun.is_some()
            && updated.is_some_and(|updated| known.updated.is_none_or(|before| updated > before))
            && let Some(begun) = known.begun.take()
        {
            told.push((RolloutChange::Started, When::from_to(begun.after, updated)));
        }
        if known.open && is_complete {
            known.open = false;
            // In order, even if nothing told the beginning's time.
            if let Some(begun) = known.begun.take() {
                told.push((RolloutChange::Started, When::from_to(begun.after, updated)));
            }
            told.push((RolloutChange::Finished, complete(deployment)));
        }
        known.updated = known.updated.max(updated);
        let name = &known.name;
        let event =
            |change| Change::Cluster(ClusterEvent::Rollout { deployment: name.clone(), change });
        told.into_iter().map(|(change, when)| (event(change), when)).collect()
    }

    /// A ReplicaSet, of which only its making matters.
    pub(super) fn replica_set(&mut self, set: &ReplicaSet) {
        let owner =
            set.metadata.controller().filter(|owner| owner.kind.as_deref() == Some("Deployment"));
        let owner = owner.and_then(|owner| owner.name.as_deref());
        let revision = set.metadata.annotation("deployment.kubernetes.io/revision");
        let revision = revision.and_then(|revision| revision.parse().ok());
        let (Some(owner), Some(revision), Some(created)) =
            (owner, revision, set.metadata.created())
        else {
            return;
        };
        let name = super::object::in_namespace(set.metadata.namespace.as_deref(), owner);
        let newest = self.newest.entry(name).or_insert(Newest {
            revision,
            created,
            last_created: created,
            count: 0,
        });
        newest.last_created = newest.last_created.max(created);
        newest.count = newest.count.saturating_add(1);
        if revision > newest.revision {
            (newest.revision, newest.created) = (revision, created);
        }
    }

    /// What the end of the stream tells.
    pub(super) fn finish(&mut self) -> Vec<(Change, When)> {
        let mut told = Vec::new();
        for (_, known) in std::mem::take(&mut self.deployments) {
            if let Some(begun) = known.begun {
                let when = When::from_to(begun.after, None);
                let change = RolloutChange::Started;
                told.push((
                    Change::Cluster(ClusterEvent::Rollout { deployment: known.name, change }),
                    when,
                ));
            } else if let Some(when) = known.complete_since {
                let change = RolloutChange::Finished;
                told.push((Change::EarlierRollout { deployment: known.name, change }, when));
            }
        }
        for (deployment, newest) in std::mem::take(&mut self.newest) {
            // The first ReplicaSet is no rollout, and one that came back tells only when it was made.
            if newest.count > 1 && newest.created == newest.last_created {
                let change = RolloutChange::Started;
                let when = When::at(Some(newest.created));
                told.push((Change::EarlierRollout { deployment, change }, when));
            }
        }
        told.sort_by(|(a, at), (b, bt)| (at.from, name(a)).cmp(&(bt.from, name(b))));
        told
    }
}

fn name(change: &Change) -> &str {
    match change {
        Change::EarlierRollout { deployment, .. }
        | Change::Cluster(ClusterEvent::Rollout { deployment, .. }) => deployment,
        _ => "",
    }
}

impl Known {
    fn first(deployment: &Deployment, is_complete: bool) -> Known {
        let progressing = deployment.progressing();
        // One that has settled and lost a pod since is not rolling out.
        let has_settled = progressing.is_some_and(|progressing| {
            progressing.reason.as_deref() == Some("NewReplicaSetAvailable")
        }) && deployment.metadata.generation.unwrap_or(0)
            <= deployment.status.observed_generation;
        Known {
            name: deployment.metadata.told_name(),
            template: deployment.spec.template.clone(),
            open: !is_complete && !has_settled,
            begun: None,
            updated: None,
            complete_since: is_complete.then(|| complete_by_condition(deployment)),
        }
    }
}

/// When the state that says so was written: the controller writes the status and its condition at once.
fn complete(deployment: &Deployment) -> When {
    match deployment.metadata.written(Some("status")) {
        Some(written) => When::at(Some(written)),
        None => complete_by_condition(deployment),
    }
}

/// The controller updates Progressing when it finds the Deployment complete, by the same counts as kubectl, and
/// leaves it alone from then on. Without the condition (no deadline) only the earliest time is known.
fn complete_by_condition(deployment: &Deployment) -> When {
    match deployment.progressing() {
        Some(progressing) if progressing.reason.as_deref() == Some("NewReplicaSetAvailable") => {
            When::at(progressing.updated())
        }
        _ => {
            let conditions = deployment.status.conditions.iter().flatten();
            When::from_to(conditions.filter_map(|condition| condition.updated()).max(), None)
        }
    }
}
