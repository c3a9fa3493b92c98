//! A pod's life, from the states of its object.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::FixedState;

use super::super::stamp::{SECOND, Stamp};
use super::object::Pod;
use super::told::When;
use crate::model::{ClusterEvent, PodChange};

/// The pods of a stream.
#[derive(Debug, Default)]
pub(super) struct Pods {
    known: HashMap<String, Known, FixedState>,
}

/// What was told of a pod so far.
#[derive(Debug, Default)]
struct Known {
    added: bool,
    ready: Option<bool>,
    asked: bool,
    deleted: bool,
}

impl Pods {
    /// What this state tells that the ones before did not.
    pub(super) fn take(&mut self, pod: &Pod, deleted: bool) -> Vec<(ClusterEvent, When)> {
        let identity = pod.metadata.identity();
        let known = self.known.entry(identity.clone()).or_default();
        let mut told = Vec::new();
        if pod.address().is_some() && !std::mem::replace(&mut known.added, true) {
            told.push((PodChange::Added, has_address(pod)));
        }
        if let Some(ready) = pod.condition("Ready") {
            let before = known.ready.replace(ready.is_true());
            let change = if ready.is_true() { PodChange::Ready } else { PodChange::NotReady };
            // A pod that is not ready yet has lost nothing.
            if before.unwrap_or(false) != ready.is_true() {
                let when = ready
                    .turned()
                    .map_or(When::from_to(pod.metadata.created(), None), |at| When::at(Some(at)));
                told.push((change, when));
            }
        }
        if let Some(due) = pod.metadata.deletion_due()
            && !std::mem::replace(&mut known.asked, true)
        {
            let grace = Duration::from_secs(grace(pod));
            told.push((PodChange::Asked { grace }, asked(pod, due)));
        }
        // kubectl prints what was deleted like any other state, if it is not asked for the events' types. But the
        // kubelet's last deletion, with no grace, removes the object at once unless finalizers hold it.
        let is_last = pod.metadata.deletion_timestamp.is_some()
            && grace(pod) == 0
            && pod.metadata.finalizers.iter().flatten().next().is_none();
        if (deleted || is_last) && !std::mem::replace(&mut known.deleted, true) {
            told.push((PodChange::Deleted, removed(pod)));
        }
        if deleted {
            self.known.remove(&identity);
        }
        let event = |change| ClusterEvent::Pod {
            name: pod.metadata.told_name(),
            app: app(pod),
            node: pod.spec.node_name.clone().unwrap_or_default(),
            address: pod.address(),
            change,
        };
        told.into_iter().map(|(change, when)| (event(change), when)).collect()
    }
}

fn grace(pod: &Pod) -> u64 {
    pod.metadata.deletion_grace_period_seconds.unwrap_or(0)
}

/// Its address is there when its sandbox is, and before anything that needs the sandbox.
fn has_address(pod: &Pod) -> When {
    let sandbox = pod.condition("PodReadyToStartContainers").filter(|sandbox| sandbox.is_true());
    let from = sandbox.and_then(|sandbox| sandbox.turned()).or(pod.metadata.created());
    let ready = pod.condition("Ready").filter(|ready| ready.is_true());
    let started = pod.runs().filter_map(|run| run.started_at.as_ref()?.stamp()).min();
    let seen =
        [ready.and_then(|ready| ready.turned()), started, pod.metadata.written(Some("status"))];
    When::from_to(from, seen.into_iter().flatten().min())
}

/// The time at which its deletion was asked for: what is due, less the grace period (apiserver,
/// registry/rest/delete.go). Without a grace period that is the last of perhaps several requests.
fn asked(pod: &Pod, due: Stamp) -> When {
    if grace(pod) == 0 {
        return When::from_to(pod.metadata.created(), Some(due));
    }
    let grace = i64::try_from(grace(pod).saturating_mul(SECOND)).unwrap_or(i64::MAX);
    When::at(Some(Stamp { at: crate::model::WallNs(due.at.0.saturating_sub(grace)), ..due }))
}

/// The removal follows the last deletion within the same request; but the second may turn in between. Where
/// finalizers hold it, or the deletion is another one, nothing says when.
fn removed(pod: &Pod) -> When {
    let due = pod.metadata.deletion_due();
    if grace(pod) == 0 && pod.metadata.finalizers.iter().flatten().next().is_none() {
        return When::at(
            due.map(|due| Stamp { step_ns: due.step_ns.saturating_add(SECOND), ..due }),
        );
    }
    let finished = pod.runs().filter_map(|run| run.finished_at.as_ref()?.stamp()).max();
    let asked = due.and_then(|due| asked(pod, due).from);
    let from = [finished.map(|finished| finished.at), asked].into_iter().flatten().max();
    When { from: from.or(pod.metadata.created().map(|created| created.at)), to: None }
}

/// The app: by the labels that are used for it, or else the name of what controls the pod.
fn app(pod: &Pod) -> String {
    let metadata = &pod.metadata;
    let labels = ["app.kubernetes.io/name", "app", "k8s-app"];
    if let Some(app) = labels.iter().find_map(|name| metadata.label(name)) {
        return app.clone();
    }
    let Some(owner) = metadata.controller().and_then(|owner| owner.name.clone()) else {
        return String::new();
    };
    let hash = metadata.label("pod-template-hash").map(|hash| format!("-{hash}"));
    hash.and_then(|hash| owner.strip_suffix(&hash).map(str::to_owned)).unwrap_or(owner)
}
