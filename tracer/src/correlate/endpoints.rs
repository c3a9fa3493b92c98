//! When a Service had endpoints that traffic may go to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::model::{EndpointChange, MonoNs};

/// The Services' endpoints, as a history of having any or none.
#[derive(Clone, Debug, Default)]
pub struct Endpoints {
    services: BTreeMap<SocketAddr, Service>,
}

#[derive(Clone, Debug, Default)]
struct Service {
    usable: BTreeSet<SocketAddr>,
    /// Each change between some and none.
    changes: Vec<(MonoNs, bool)>,
}

impl Endpoints {
    /// Whether the Service had no endpoint at `time`; none if nothing was told of it by then.
    pub fn is_empty(&self, service: SocketAddr, time: MonoNs) -> Option<bool> {
        let changes = &self.services.get(&service)?.changes;
        changes.iter().rev().find(|(since, _)| *since <= time).map(|(_, some)| !some)
    }

    pub(super) fn is_service(&self, address: SocketAddr) -> bool {
        self.services.contains_key(&address)
    }

    pub(super) fn apply(
        &mut self,
        at: MonoNs,
        service: SocketAddr,
        backend: SocketAddr,
        change: EndpointChange,
    ) {
        let service = self.services.entry(service).or_default();
        // A terminating endpoint that serves is used when no ready one is there (kube-proxy 1.28 on).
        if matches!(
            change,
            EndpointChange::Listed { ready: true, .. }
                | EndpointChange::Listed { serving: true, .. }
        ) {
            service.usable.insert(backend);
        } else {
            service.usable.remove(&backend);
        }
        let some = !service.usable.is_empty();
        if service.changes.last().is_none_or(|(_, before)| *before != some) {
            service.changes.push((at, some));
        }
    }
}
