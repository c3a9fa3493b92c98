//! What continuous tracing counts, in the OpenMetrics text format.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicI64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::model::{ClusterEvent, Event, EventKind};
use crate::monitor::Judged;
use crate::report::words;

/// The media type of what [`Metrics::text`] writes.
pub(super) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRollout {
    namespace: String,
    deployment: String,
    outcome: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFailures {
    namespace: String,
    service: String,
    cause: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfSyns {
    namespace: String,
    service: String,
    pod: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLoss {
    source: String,
}

/// The counters, and what they are called.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    judged: Family<OfRollout, Counter>,
    late_failures: Family<OfFailures, Counter>,
    stale_syns: Family<OfSyns, Counter>,
    events: Counter,
    lost: Family<OfLoss, Counter>,
    buffer: Gauge<i64, AtomicI64>,
    open: Gauge,
    /// What the Services are called, by their address.
    names: Mutex<BTreeMap<SocketAddr, String>>,
}

impl Metrics {
    pub(super) fn new() -> Metrics {
        let mut metrics = Metrics {
            registry: Registry::with_prefix("tracer"),
            judged: Family::default(),
            late_failures: Family::default(),
            stale_syns: Family::default(),
            events: Counter::default(),
            lost: Family::default(),
            buffer: Gauge::default(),
            open: Gauge::default(),
            names: Mutex::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("rollouts_judged", "Rollouts that were judged", metrics.judged.clone());
        registry.register(
            "late_failures",
            "Connects that failed when the rollout was over, by cause, in the rollouts that were judged",
            metrics.late_failures.clone(),
        );
        registry.register(
            "stale_syns",
            "Connects that met a conntrack entry to a pod that was gone, in the rollouts that were judged",
            metrics.stale_syns.clone(),
        );
        registry.register("events", "Events traced", metrics.events.clone());
        registry.register("events_lost", "Events lost, by where", metrics.lost.clone());
        registry.register_with_unit(
            "buffer",
            "Memory that holds the events of the last while",
            Unit::Bytes,
            metrics.buffer.clone(),
        );
        registry.register(
            "rollouts_open",
            "Rollouts that go on, or whose entries have not expired",
            metrics.open.clone(),
        );
        metrics
    }

    /// Counts an event on its way.
    pub(super) fn event(&self, event: &Event) {
        self.events.inc();
        match &event.kind {
            EventKind::Lost { source, count, .. } => {
                self.lost.get_or_create(&OfLoss { source: source.name() }).inc_by(*count);
            }
            EventKind::Cluster {
                change: ClusterEvent::Endpoint { service, frontend, .. }, ..
            } => {
                self.names().insert(*frontend, service.clone());
            }
            _ => {}
        }
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, String>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a Service is called, without its namespace; its address where no event told.
    fn service(&self, address: SocketAddr) -> String {
        let name = self.names().get(&address).cloned().unwrap_or_else(|| address.to_string());
        name.rsplit_once('/').map_or(name.clone(), |(_, name)| name.to_owned())
    }

    /// How things stand.
    pub(super) fn state(&self, bytes: usize, open: usize) {
        self.buffer.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.open.set(i64::try_from(open).unwrap_or(i64::MAX));
    }

    /// Counts what a verdict says.
    pub(super) fn judged(&self, Judged { deployment, report, header, .. }: &Judged) {
        let (namespace, deployment) = deployment.split_once('/').unwrap_or(("default", deployment));
        let namespace = namespace.to_owned();
        let outcome = words::outcome_name(report.hypothesis.outcome).to_owned();
        let (of, name) = (namespace.clone(), deployment.to_owned());
        self.judged.get_or_create(&OfRollout { namespace: of, deployment: name, outcome }).inc();
        // A Deployment behind more than one Service: a failed connect does not say which it asked.
        let services: Vec<String> = header.services.iter().map(|it| self.service(*it)).collect();
        for (cause, count) in &report.failures.late {
            let of = OfFailures {
                namespace: namespace.clone(),
                service: services.join(","),
                cause: cause.name().to_owned(),
            };
            self.late_failures.get_or_create(&of).inc_by(*count);
        }
        for entry in &report.entries.list {
            let pointing = report.entries.pointing_at.iter();
            let pod =
                pointing.filter(|at| at.backend == entry.backend).find_map(|at| at.pod.clone());
            let of = OfSyns {
                namespace: namespace.clone(),
                service: self.service(entry.service),
                pod: pod.unwrap_or_else(|| entry.backend.to_string()),
            };
            self.stale_syns.get_or_create(&of).inc_by(entry.met);
        }
    }

    /// All of it, as text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes everything");
        text
    }
}
