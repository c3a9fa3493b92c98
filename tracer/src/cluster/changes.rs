//! States of objects to updates: events at their times, and addresses to trace. Told everything, the time included.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use serde_json::{Value, json};

use super::clock::Bounds;
use super::{Addresses, PodNames, Scope, Update};
use crate::codec::watch::{Change, Live, Told, When};
use crate::model::{
    ClockAnchor, ClusterEvent, EndpointChange, Event, EventKind, LossSource, MonoNs, WallNs,
};

/// How far before its arrival an event may be placed, so that the stream can still put it in order.
const BACK: Duration = Duration::from_millis(400);

/// The kinds of objects that are watched, in the order in which their first lists are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Service,
    Pod,
    EndpointSlice,
    ReplicaSet,
    Deployment,
}

impl Kind {
    pub(super) const ALL: [Kind; 5] =
        [Kind::Service, Kind::Pod, Kind::EndpointSlice, Kind::ReplicaSet, Kind::Deployment];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Service => "Service",
            Kind::Pod => "Pod",
            Kind::EndpointSlice => "EndpointSlice",
            Kind::ReplicaSet => "ReplicaSet",
            Kind::Deployment => "Deployment",
        }
    }

    /// As a sentence names them, and RBAC.
    pub(super) fn plural(self) -> &'static str {
        match self {
            Kind::Service => "services",
            Kind::Pod => "pods",
            Kind::EndpointSlice => "endpointslices",
            Kind::ReplicaSet => "replicasets",
            Kind::Deployment => "deployments",
        }
    }

    /// What is not known where it may not be watched.
    pub(super) fn cost(self) -> &'static str {
        match self {
            Kind::Service => "no address is known",
            Kind::Pod => "which pod had an address, and when it was gone, is not known",
            Kind::EndpointSlice => "when a Service had no endpoints is not known",
            Kind::ReplicaSet => "nothing that a verdict rests on",
            Kind::Deployment => "when a rollout began and was complete is not known",
        }
    }
}

/// One kind in one place: what is listed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Source {
    pub(super) kind: Kind,
    /// The number of the place (a namespace, or all).
    pub(super) place: usize,
}

/// When a state came, and what is known of the clocks then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// When it came.
    pub(super) arrived: MonoNs,
    /// The node's clocks.
    pub(super) anchor: ClockAnchor,
    /// The API server's clock less the node's.
    pub(super) bounds: Option<Bounds>,
}

impl Moment {
    fn mono(&self, wall: WallNs) -> MonoNs {
        let mono =
            i128::from(self.anchor.mono.0) + i128::from(wall.0) - i128::from(self.anchor.wall.0);
        MonoNs(u64::try_from(mono.max(0)).unwrap_or(u64::MAX))
    }

    /// The first and the last moment at which something can have happened that has come now.
    fn between(&self, when: When) -> (MonoNs, MonoNs) {
        let Some(bounds) = self.bounds else { return (MonoNs(0), self.arrived) };
        let to = when.to.map_or(self.arrived, |to| self.mono(bounds.latest(to)));
        let to = to.min(self.arrived).max(self.arrived - BACK);
        let from = when.from.map_or(MonoNs(0), |from| self.mono(bounds.earliest(from)));
        (from.min(to), to)
    }
}

/// All that is known of the cluster.
pub(super) struct Changes {
    scope: Scope,
    node_addresses: Vec<IpAddr>,
    names: Arc<PodNames>,
    live: Live,
    /// By source and identity, what must be known of an object if it is gone when all are listed again.
    known: HashMap<(Source, String), String, FixedState>,
    /// Of a list that is under way, what it has shown.
    listed: HashMap<Source, BTreeSet<String>, FixedState>,
    fronts: BTreeMap<(String, String), Vec<SocketAddr>>,
    selectors: BTreeMap<String, BTreeMap<String, String>>,
    endpoints: BTreeMap<(String, String, SocketAddr), EndpointChange>,
    headless: BTreeSet<String>,
    services_told: BTreeSet<SocketAddr>,
    backends_told: BTreeSet<SocketAddr>,
}

impl Changes {
    pub(super) fn new(scope: Scope, node_addresses: Vec<IpAddr>, names: Arc<PodNames>) -> Changes {
        Changes {
            scope,
            node_addresses,
            names,
            live: Live::default(),
            known: HashMap::default(),
            listed: HashMap::default(),
            fronts: BTreeMap::new(),
            selectors: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            headless: BTreeSet::new(),
            services_told: BTreeSet::new(),
            backends_told: BTreeSet::new(),
        }
    }

    /// Services of the scope without an address of their own.
    pub(super) fn headless(&self) -> Vec<String> {
        self.headless.iter().cloned().collect()
    }

    /// A list begins.
    pub(super) fn list_begins(&mut self, source: Source) {
        self.listed.insert(source, BTreeSet::new());
    }

    /// A list is over: what it has not shown is gone, at some time since it was last heard of.
    pub(super) fn list_ends(&mut self, source: Source, at: &Moment) -> Vec<Update> {
        let listed = self.listed.remove(&source).unwrap_or_default();
        let gone: Vec<(Source, String)> = self
            .known
            .keys()
            .filter(|(of, identity)| *of == source && !listed.contains(identity))
            .cloned()
            .collect();
        let mut updates = Vec::new();
        for key in gone {
            let Some(last) = self.known.remove(&key) else { continue };
            self.names.forget(&key.1);
            let told = self.live.take(source.kind.name(), &last, true).unwrap_or_default();
            // No state tells when: only that it is over by now.
            let told =
                told.into_iter().map(|told| Told { when: When { to: None, ..told.when }, ..told });
            for told in told.collect::<Vec<_>>() {
                self.told(told, at, &mut updates);
            }
        }
        updates
    }

    /// A state of an object; its last one, if it was deleted.
    pub(super) fn state(
        &mut self,
        source: Source,
        object: Value,
        deleted: bool,
        at: &Moment,
    ) -> Vec<Update> {
        let mut updates = Vec::new();
        let kind = source.kind;
        let object = slim(object);
        if let Some(listed) = self.listed.get_mut(&source) {
            listed.insert(identity(&object));
        }
        if kind == Kind::Service {
            self.service(&object, deleted);
        }
        if kind == Kind::Deployment && !self.is_behind_a_service(&object) {
            return updates;
        }
        if kind == Kind::Pod && !deleted {
            self.names.learn(identity(&object), told_name(&object));
        }
        let text = object.to_string();
        match self.live.take(kind.name(), &text, deleted) {
            Ok(told) => {
                for told in told {
                    self.told(told, at, &mut updates);
                }
            }
            Err(why) => {
                updates.push(Update::Event(Box::new(lost(at.arrived, at.arrived, 1))));
                updates.push(Update::Note(format!("one of {} is not read: {why}", kind.plural())));
            }
        }
        if kind == Kind::Service && !deleted {
            self.new_addresses(&mut updates, at);
        }
        let key = (source, identity(&object));
        if deleted {
            self.names.forget(&key.1);
            self.known.remove(&key);
        } else {
            self.known.insert(key, text);
        }
        updates
    }

    fn told(&mut self, told: Told, at: &Moment, updates: &mut Vec<Update>) {
        let (since, time) = at.between(told.when);
        let mut event = |change| {
            let kind = EventKind::Cluster { change, since };
            updates.push(Update::Event(Box::new(Event { time, kind })));
        };
        match told.change {
            Change::Cluster(change) => event(change),
            Change::Endpoint(endpoint) => {
                let key = (endpoint.service.clone(), endpoint.port.clone());
                let fronts = self.fronts.get(&key).cloned().unwrap_or_default();
                let listed = (key.0, key.1, endpoint.backend);
                match endpoint.change {
                    EndpointChange::Removed => self.endpoints.remove(&listed),
                    change => self.endpoints.insert(listed, change),
                };
                let backend = endpoint.backend;
                for front in fronts.iter().filter(|front| is_of_family(front, &backend)) {
                    event(endpoint.clone().at(*front));
                }
                if !fronts.is_empty() && self.backends_told.insert(backend) {
                    let addresses = Addresses { services: Vec::new(), backends: vec![backend] };
                    updates.push(Update::Addresses(addresses));
                }
            }
            // Told by all addresses of the Service, elsewhere; what was before and what is remarked do not matter live.
            Change::Service(_) | Change::EarlierRollout { .. } | Change::Remark(_) => {}
            Change::Gap { message } => {
                updates.push(Update::Event(Box::new(lost(at.arrived, at.arrived, 1))));
                updates.push(Update::Note(format!("the API server said: {message}")));
            }
        }
    }

    /// Takes a Service's addresses: its own, those that are routed to it from outside, and where it has ports on the
    /// nodes, those on this one.
    fn service(&mut self, object: &Value, deleted: bool) {
        let name = told_name(object);
        self.fronts.retain(|(service, _), _| *service != name);
        self.selectors.remove(&name);
        self.headless.remove(&name);
        if deleted {
            return;
        }
        let spec = &object["spec"];
        let selector = spec["selector"].as_object();
        let selector = selector.into_iter().flatten();
        let selector =
            selector.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        self.selectors.insert(name.clone(), selector.collect());
        let parsed = |value: &Value| value.as_str()?.parse::<IpAddr>().ok();
        let listed = |value: &Value| -> Vec<IpAddr> {
            value.as_array().into_iter().flatten().filter_map(parsed).collect()
        };
        let mut own = listed(&spec["clusterIPs"]);
        own.extend(parsed(&spec["clusterIP"]).filter(|address| !own.contains(address)));
        if own.is_empty() {
            self.headless.insert(name);
            return;
        }
        let mut outside = listed(&spec["externalIPs"]);
        let ingress = object["status"]["loadBalancer"]["ingress"].as_array();
        outside.extend(ingress.into_iter().flatten().filter_map(|one| parsed(&one["ip"])));
        for port in spec["ports"].as_array().into_iter().flatten() {
            if port["protocol"].as_str().is_some_and(|protocol| protocol != "TCP") {
                continue;
            }
            let number =
                |field: &str| port[field].as_u64().and_then(|port| u16::try_from(port).ok());
            let label = port["name"].as_str().unwrap_or_default().to_owned();
            let fronts = self.fronts.entry((name.clone(), label)).or_default();
            if let Some(number) = number("port") {
                let all = own.iter().chain(&outside);
                fronts.extend(all.map(|address| SocketAddr::new(*address, number)));
            }
            if let Some(number) = number("nodePort").filter(|number| *number != 0) {
                let all = self.node_addresses.iter();
                fronts.extend(all.map(|address| SocketAddr::new(*address, number)));
            }
        }
    }

    /// Tells addresses that are new, and for them what endpoints there are.
    fn new_addresses(&mut self, updates: &mut Vec<Update>, at: &Moment) {
        let mut new = Addresses::default();
        for ((service, port), fronts) in &self.fronts {
            for front in fronts {
                if !self.services_told.insert(*front) {
                    continue;
                }
                new.services.push(*front);
                for ((of, by, backend), change) in &self.endpoints {
                    if of != service || by != port || !is_of_family(front, backend) {
                        continue;
                    }
                    if self.backends_told.insert(*backend) {
                        new.backends.push(*backend);
                    }
                    let change = ClusterEvent::Endpoint {
                        service: service.clone(),
                        frontend: *front,
                        backend: *backend,
                        change: *change,
                    };
                    let kind = EventKind::Cluster { change, since: at.arrived };
                    updates.push(Update::Event(Box::new(Event { time: at.arrived, kind })));
                }
            }
        }
        if new != Addresses::default() {
            updates.push(Update::Addresses(new));
        }
    }

    /// Whether a Deployment's pods are those of a watched Service. Where whole namespaces are watched, all are.
    fn is_behind_a_service(&self, deployment: &Value) -> bool {
        if !matches!(self.scope, Scope::Service { .. }) {
            return true;
        }
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        self.selectors.values().any(|selector| {
            !selector.is_empty()
                && selector.iter().all(|(key, value)| labels[key.as_str()] == value.as_str())
        })
    }
}

/// A loss of what the cluster's changes are.
pub(super) fn lost(since: MonoNs, time: MonoNs, count: u64) -> Event {
    Event { time, kind: EventKind::Lost { source: LossSource::Cluster, count, since } }
}

fn is_of_family(front: &SocketAddr, backend: &SocketAddr) -> bool {
    front.is_ipv4() == backend.is_ipv4()
}

/// Identity of an object: another one of the same name is another one.
fn identity(object: &Value) -> String {
    let metadata = &object["metadata"];
    metadata["uid"].as_str().map_or_else(|| told_name(object), str::to_owned)
}

/// As `codec::watch` names it.
fn told_name(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    match object["metadata"]["namespace"].as_str() {
        None | Some("default" | "") => name.to_owned(),
        Some(namespace) => format!("{namespace}/{name}"),
    }
}

/// Takes out what is large and tells nothing: of managedFields the fields themselves, of a pod all but where it runs.
fn slim(mut object: Value) -> Value {
    if let Some(managers) = object["metadata"]["managedFields"].as_array_mut() {
        for manager in managers {
            *manager = json!({ "subresource": manager["subresource"], "time": manager["time"] });
        }
    }
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|name, _| !name.starts_with("kubectl.kubernetes.io/last-applied"));
    }
    if object["spec"]["containers"].is_array() {
        object["spec"] = json!({ "nodeName": object["spec"]["nodeName"] });
    }
    object
}
