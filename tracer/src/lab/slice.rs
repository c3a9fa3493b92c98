//! The Service's EndpointSlice, and which of its endpoints a proxy uses. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// The conditions of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conditions {
    /// Its pod is ready and not terminating.
    pub(crate) ready: bool,
    /// Its pod is ready, terminating or not.
    pub(crate) serving: bool,
    /// Its pod's deletion was asked for.
    pub(crate) terminating: bool,
}

impl Conditions {
    /// Of a pod that is ready.
    pub(crate) const READY: Conditions =
        Conditions { ready: true, serving: true, terminating: false };
    /// Of a pod whose node does not report any more.
    pub(crate) const UNKNOWN: Conditions =
        Conditions { ready: false, serving: false, terminating: false };
    /// Of a ready pod whose deletion was asked for.
    pub(crate) const TERMINATING: Conditions =
        Conditions { ready: false, serving: true, terminating: true };
}

/// The endpoints of the Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slice(BTreeMap<SocketAddr, Conditions>);

impl Slice {
    /// Lists an endpoint, or changes its conditions.
    pub(crate) fn list(&mut self, endpoint: SocketAddr, conditions: Conditions) {
        self.0.insert(endpoint, conditions);
    }

    /// Lists an endpoint no longer.
    pub(crate) fn remove(&mut self, endpoint: SocketAddr) {
        self.0.remove(&endpoint);
    }

    /// The endpoints that a proxy sends new connections to: the ready ones, and if there are none, those that
    /// are terminating and still serve (KEP-1669, ProxyTerminatingEndpoints).
    pub(crate) fn usable(&self) -> BTreeSet<SocketAddr> {
        let which = |wanted: fn(&Conditions) -> bool| {
            let of = self.0.iter().filter(|(_, conditions)| wanted(conditions));
            of.map(|(endpoint, _)| *endpoint).collect::<BTreeSet<_>>()
        };
        let ready = which(|conditions| conditions.ready);
        if ready.is_empty() {
            which(|conditions| conditions.serving && conditions.terminating)
        } else {
            ready
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 100, 1, last], 8080))
    }

    #[test]
    fn a_terminating_endpoint_is_used_only_while_no_other_is_ready() {
        let mut slice = Slice::default();
        assert!(slice.usable().is_empty());
        slice.list(endpoint(20), Conditions::READY);
        slice.list(endpoint(21), Conditions::READY);
        slice.list(endpoint(20), Conditions::TERMINATING);
        assert_eq!(slice.usable(), BTreeSet::from([endpoint(21)]));
        slice.list(endpoint(21), Conditions::TERMINATING);
        assert_eq!(slice.usable(), BTreeSet::from([endpoint(20), endpoint(21)]));
        slice.remove(endpoint(20));
        assert_eq!(slice.usable(), BTreeSet::from([endpoint(21)]));
    }
}
