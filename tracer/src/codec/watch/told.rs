//! What objects tell, and when it happened.

use std::net::SocketAddr;
use std::time::Duration;

use super::super::stamp::Stamp;
use crate::model::{ClusterEvent, EndpointChange, RolloutChange, WallNs};

/// What an object told, in the order of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// What happened.
    pub change: Change,
    /// When.
    pub when: When,
    /// The write that told it, as etcd counts all writes of a cluster; none for what only the end of the stream
    /// tells. Within one stream it only grows. Kubernetes promises that it can be compared within one kind of
    /// object (since 1.35), and in fact it can be across all that lie in one etcd.
    pub revision: Option<u64>,
    /// The line at which the object begins.
    pub line: u64,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// What the model has a word for.
    Cluster(ClusterEvent),
    /// An endpoint changed. An EndpointSlice does not say what address its Service has: see [`Endpoint::at`].
    Endpoint(Endpoint),
    /// A Service has these addresses.
    Service(Service),
    /// The last rollout before what the stream tells: a Deployment that was complete when first seen says since
    /// when, its ReplicaSets when it began. May be long ago; of use if it lies within a recording.
    EarlierRollout {
        /// The Deployment.
        deployment: String,
        /// Its beginning or end.
        change: RolloutChange,
    },
    /// An Event object: a remark of some component, not a change.
    Remark(Remark),
    /// The watch broke off: what happened until it went on is not known.
    Gap {
        /// What the API server said.
        message: String,
    },
}

/// A change of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its Service, with its namespace unless that is `default`.
    pub service: String,
    /// The Service's name for the port; empty if it has only one.
    pub port: String,
    /// The endpoint's address and port.
    pub backend: SocketAddr,
    /// What happened.
    pub change: EndpointChange,
}

impl Endpoint {
    /// The event, for a Service that has this address and port in front of NAT: from a [`Service`], or where the
    /// recording has none, from the conntrack entries whose reply comes from this backend.
    pub fn at(self, frontend: SocketAddr) -> ClusterEvent {
        let Endpoint { service, backend, change, .. } = self;
        ClusterEvent::Endpoint { service, frontend, backend, change }
    }
}

/// A Service's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name, with its namespace unless that is `default`.
    pub service: String,
    /// Each TCP port's name, as [`Endpoint::port`] has it, with each of the Service's addresses.
    pub frontends: Vec<(String, SocketAddr)>,
}

/// What some component remarked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Kind and name of the object that it is about.
    pub about: String,
    /// A word: `Killing`, `ScalingReplicaSet`.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

/// When something happened, as far as the objects tell.
///
/// Objects have no time of arrival, only times that some component wrote into them, cut to whole seconds: what
/// is stated as 02:13:32 happened somewhere in that second. And several clocks wrote them: the API server's
/// (creation, deletion, managedFields), the controller manager's (conditions of Deployments) and the kubelets'
/// (conditions and containers of pods), none of which need be the clock of the packets. So both ends are kept,
/// and [`When::between`] makes of them what may be set beside packets: with the recording's own ends where one
/// is missing, and the difference that the clocks can have on both sides. Evidence that needs this change to
/// come first must hold with the later end, evidence that needs it to come last with the earlier one; and two
/// changes whose ranges overlap are ordered by the stream alone, if they come from the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct When {
    /// The earliest moment that is left; none if nothing tells.
    pub from: Option<WallNs>,
    /// The latest; none if nothing tells.
    pub to: Option<WallNs>,
}

impl When {
    /// Somewhere in what the stamp leaves open.
    pub(super) fn at(stamp: Option<Stamp>) -> When {
        When { from: stamp.map(|stamp| stamp.at), to: stamp.map(Stamp::end) }
    }

    /// Between two stamps. If the clocks that wrote them contradict each other, both are taken for possible.
    pub(super) fn from_to(from: Option<Stamp>, to: Option<Stamp>) -> When {
        match (from, to) {
            (Some(from), Some(to)) => {
                When { from: Some(from.at.min(to.at)), to: Some(from.at.max(to.end())) }
            }
            (from, to) => When { from: from.map(|from| from.at), to: to.map(Stamp::end) },
        }
    }

    /// The first and the last moment at which it can have happened, for a recording from `began` to `ended` whose
    /// clock may differ from the cluster's by `apart`. The last is never before the first.
    pub fn between(self, began: WallNs, ended: WallNs, apart: Duration) -> (WallNs, WallNs) {
        let apart = i64::try_from(apart.as_nanos()).unwrap_or(i64::MAX);
        let from = self.from.map_or(began, |from| WallNs(from.0.saturating_sub(apart)));
        let to = self.to.map_or(ended, |to| WallNs(to.0.saturating_add(apart)));
        (from, to.max(from))
    }
}
