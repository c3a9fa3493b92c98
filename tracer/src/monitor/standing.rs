//! What the cluster was before the window: the pods that are still there, and their endpoints.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::model::{ClusterEvent, EndpointChange, Event, EventKind, MonoNs, PodChange};

/// The cluster as the events left it that the window has forgotten. Bounded by what the cluster holds.
#[derive(Debug, Default)]
pub struct Standing {
    /// The latest of each kind of change of a pod, by its name.
    pods: BTreeMap<String, Vec<ClusterEvent>>,
    endpoints: BTreeMap<(SocketAddr, SocketAddr), ClusterEvent>,
}

impl Standing {
    /// Takes an event that leaves the window.
    pub fn apply(&mut self, event: &Event) {
        let EventKind::Cluster { change, .. } = &event.kind else { return };
        match change {
            ClusterEvent::Pod { name, change: PodChange::Deleted, .. } => {
                self.pods.remove(name);
            }
            ClusterEvent::Pod { name, change: kind, .. } => {
                let changes = self.pods.entry(name.clone()).or_default();
                let is_alike = |known: &ClusterEvent| match known {
                    ClusterEvent::Pod { change: known, .. } => {
                        std::mem::discriminant(known) == std::mem::discriminant(kind)
                    }
                    _ => false,
                };
                changes.retain(|known| !is_alike(known));
                changes.push(change.clone());
            }
            ClusterEvent::Endpoint { frontend, backend, change: kind, .. } => match kind {
                EndpointChange::Removed => {
                    self.endpoints.remove(&(*frontend, *backend));
                }
                EndpointChange::Listed { .. } => {
                    self.endpoints.insert((*frontend, *backend), change.clone());
                }
            },
            // What was over before the window began is not asked for.
            ClusterEvent::Rollout { .. } => {}
        }
    }

    /// Shows all of it, as if it had happened at one moment.
    pub fn replay(&self, at: MonoNs, sink: &mut dyn FnMut(&Event)) {
        let pods = self.pods.values().flatten();
        for change in pods.chain(self.endpoints.values()) {
            let kind = EventKind::Cluster { change: change.clone(), since: at };
            sink(&Event { time: at, kind });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn pod(name: &str, change: PodChange) -> Event {
        let change = ClusterEvent::Pod {
            name: name.to_owned(),
            app: "web".to_owned(),
            node: "n1".to_owned(),
            address: "10.0.0.7".parse().ok(),
            change,
        };
        Event { time: MonoNs(1), kind: EventKind::Cluster { change, since: MonoNs(1) } }
    }

    #[test]
    fn a_pod_stands_until_it_is_deleted() {
        let mut standing = Standing::default();
        let asked = PodChange::Asked { grace: Duration::from_secs(30) };
        for change in [PodChange::Added, PodChange::Ready, PodChange::NotReady, PodChange::Ready] {
            standing.apply(&pod("a", change));
            standing.apply(&pod("b", change));
        }
        standing.apply(&pod("b", asked));
        standing.apply(&pod("b", PodChange::Deleted));
        let mut said = Vec::new();
        standing.replay(MonoNs(9), &mut |event| said.push(event.clone()));
        let expected = [PodChange::Added, PodChange::NotReady, PodChange::Ready].map(|change| {
            let Event { kind: EventKind::Cluster { change, .. }, .. } = pod("a", change) else {
                unreachable!("it is one")
            };
            Event { time: MonoNs(9), kind: EventKind::Cluster { change, since: MonoNs(9) } }
        });
        assert_eq!(said, expected);
    }
}
