//! Endpoints of Services, from the states of EndpointSlices.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::super::stamp::{Stamp, rfc3339};
use super::object::{EndpointConditions, EndpointSlice, Service as ServiceObject};
use super::told::{Endpoint, Service, When};
use crate::model::EndpointChange;

/// The slices of a stream.
#[derive(Debug, Default)]
pub(super) struct Slices {
    /// By Service, port name and backend: what each slice that lists it says.
    listed: BTreeMap<(String, String, SocketAddr), BTreeMap<String, EndpointChange>>,
    /// The slices that were seen, with the keys that each lists.
    slices: BTreeMap<String, Vec<(String, String, SocketAddr)>>,
}

impl Slices {
    /// What this state tells that the ones before did not.
    pub(super) fn take(&mut self, slice: &EndpointSlice, deleted: bool) -> Vec<(Endpoint, When)> {
        let Some(service) = slice.metadata.label("kubernetes.io/service-name") else {
            return Vec::new();
        };
        let service = super::object::in_namespace(slice.metadata.namespace.as_deref(), service);
        let identity = slice.metadata.identity();
        let before = self.slices.remove(&identity);
        let when = when(slice, before.is_none(), deleted);
        let before = before.unwrap_or_default();
        let now = if deleted { Vec::new() } else { listing(slice, &service) };
        let mut told = Vec::new();
        let gone = before.into_iter().filter(|key| now.iter().all(|(listed, _)| listed != key));
        for key in gone {
            if let Some(slices) = self.listed.get_mut(&key) {
                slices.remove(&identity);
                // While Kubernetes moves an endpoint to another slice, both may list it.
                if slices.is_empty() {
                    self.listed.remove(&key);
                    told.push(endpoint(&key, EndpointChange::Removed));
                }
            }
        }
        for (key, change) in &now {
            let slices = self.listed.entry(key.clone()).or_default();
            let is_news = slices.values().all(|known| known != change);
            slices.insert(identity.clone(), *change);
            if is_news {
                told.push(endpoint(key, *change));
            }
        }
        if !deleted {
            self.slices.insert(identity, now.into_iter().map(|(key, _)| key).collect());
        }
        told.into_iter().map(|told| (told, when)).collect()
    }
}

type Key = (String, String, SocketAddr);

fn endpoint(key: &Key, change: EndpointChange) -> Endpoint {
    let (service, port, backend) = key.clone();
    Endpoint { service, port, backend, change }
}

fn listing(slice: &EndpointSlice, service: &str) -> Vec<(Key, EndpointChange)> {
    let mut listing = Vec::new();
    let ports = slice.ports.iter().flatten().filter(|port| port.is_tcp());
    for (name, port) in ports.filter_map(|port| Some((port.name.clone(), port.port?))) {
        let name = name.unwrap_or_default();
        for endpoint in slice.endpoints.iter().flatten() {
            let addresses = endpoint.addresses.iter().filter_map(|text| text.parse().ok());
            for address in addresses.collect::<Vec<IpAddr>>() {
                let key = (service.to_owned(), name.clone(), SocketAddr::new(address, port));
                listing.push((key, conditions(&endpoint.conditions)));
            }
        }
    }
    listing
}

/// What is left out means ready, serving as much as ready, and not terminating (discovery/v1 EndpointConditions).
fn conditions(conditions: &EndpointConditions) -> EndpointChange {
    let ready = conditions.ready.unwrap_or(true);
    EndpointChange::Listed {
        ready,
        serving: conditions.serving.unwrap_or(ready),
        terminating: conditions.terminating.unwrap_or(false),
    }
}

/// When the slice was written. What it lists when first seen may have been there since its creation. The time of
/// what triggered the write is the earliest, where there is none of the write.
fn when(slice: &EndpointSlice, is_first: bool, deleted: bool) -> When {
    let metadata = &slice.metadata;
    let written = metadata.written(None);
    let triggered = metadata.annotation("endpoints.kubernetes.io/last-change-trigger-time");
    let triggered: Option<Stamp> = triggered.and_then(|text| rfc3339(text));
    match (deleted, is_first) {
        (true, _) => When::from_to(metadata.deletion_due().or(written), None),
        (false, true) => When::from_to(metadata.created(), written),
        (false, false) if written.is_some() => When::at(written),
        (false, false) => When::from_to(triggered.or(metadata.created()), None),
    }
}

/// The addresses of a Service, if it has any.
pub(super) fn frontends(service: &ServiceObject) -> Option<Service> {
    let spec = &service.spec;
    let addresses = spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip);
    let mut frontends: Vec<(String, SocketAddr)> = Vec::new();
    // A headless one has `None` for its address, which is none.
    for address in addresses.filter_map(|text| text.parse::<IpAddr>().ok()) {
        for port in spec.ports.iter().flatten().filter(|port| port.is_tcp()) {
            let Some(number) = port.port else { continue };
            let frontend =
                (port.name.clone().unwrap_or_default(), SocketAddr::new(address, number));
            if !frontends.contains(&frontend) {
                frontends.push(frontend);
            }
        }
    }
    let service = service.metadata.told_name();
    (!frontends.is_empty()).then_some(Service { service, frontends })
}
