//! What the cluster says of itself: pods, endpoints, rollouts. An event's time is its arrival on the node, or
//! the last moment at which it can have happened.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::MonoNs;

/// A change in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClusterEvent {
    /// A pod changed.
    Pod {
        /// Its name; with its namespace as `namespace/name` where it is not the only one.
        name: String,
        /// The app it belongs to: what may rightly answer for the Service.
        app: String,
        /// The node it runs on.
        node: String,
        /// Its address, once it has one.
        address: Option<IpAddr>,
        /// What happened.
        change: PodChange,
    },
    /// An endpoint of a Service changed (EndpointSlice).
    Endpoint {
        /// The Service's name.
        service: String,
        /// Its address and port in front of NAT.
        frontend: SocketAddr,
        /// The endpoint's address and port.
        backend: SocketAddr,
        /// What happened.
        change: EndpointChange,
    },
    /// A rollout started or is complete.
    Rollout {
        /// The Deployment.
        deployment: String,
        /// What happened.
        change: RolloutChange,
    },
}

/// What happened to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodChange {
    /// It exists and has its address.
    Added,
    /// Its readiness turned true.
    Ready,
    /// Its readiness turned false.
    NotReady,
    /// Its deletion was asked for: it is terminating.
    Asked {
        /// The grace period.
        grace: Duration,
    },
    /// The object was deleted: its processes and its network are gone.
    Deleted,
    /// Inferred from packets, where nothing tells of the pod itself: connects to its address go unanswered, and it
    /// has answered nobody since. Said some time after it began. An answer that comes after all takes it back.
    Silent {
        /// Its last answer, or the first connect of the capture that it did not answer.
        since: MonoNs,
    },
}

/// What an EndpointSlice says of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndpointChange {
    /// It is listed with these conditions.
    Listed {
        /// `conditions.ready`
        ready: bool,
        /// `conditions.serving`
        serving: bool,
        /// `conditions.terminating`
        terminating: bool,
    },
    /// It is no longer listed.
    Removed,
}

/// Where a rollout stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RolloutChange {
    /// The pod template changed.
    Started,
    /// Complete, as `kubectl rollout status` has it: it would return now.
    Finished,
}
