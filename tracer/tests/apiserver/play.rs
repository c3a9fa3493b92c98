//! Plays the lab's cluster through the API: what the lab's controllers and kubelets do becomes the objects that a real
//! API server would have, at the moment it happens.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;

use serde_json::{Value, json};
use tracer::model::{ClusterEvent, EndpointChange, Event, EventKind, PodChange, RolloutChange};

use super::Server;
use super::objects::now;

/// The lab's Service as the API has it, in a namespace.
pub(crate) struct Played<'a> {
    server: &'a Server,
    namespace: String,
    endpoints: Mutex<BTreeMap<SocketAddr, EndpointChange>>,
}

impl<'a> Played<'a> {
    /// The Service `web`, its Deployment, and the pods and endpoints of the lab's first events.
    pub(crate) fn new(
        server: &'a Server,
        namespace: &str,
        service: SocketAddr,
        first: Vec<Event>,
    ) -> Played<'a> {
        let namespace = namespace.to_owned();
        let played = Played { server, namespace, endpoints: Mutex::default() };
        server.apply(json!({
            "kind": "Service",
            "apiVersion": "v1",
            "metadata": { "name": "web", "namespace": played.namespace },
            "spec": {
                "clusterIP": service.ip(),
                "clusterIPs": [service.ip()],
                "selector": { "app": "web" },
                "ports": [{ "port": service.port(), "targetPort": 8080, "protocol": "TCP" }],
            },
        }));
        server.apply(played.deployment(1, 1));
        for event in first {
            played.see(&event);
        }
        played
    }

    /// Something happened in the lab.
    pub(crate) fn see(&self, event: &Event) {
        match &event.kind {
            EventKind::Cluster {
                change: ClusterEvent::Pod { name, node, address, change, .. },
                ..
            } => {
                self.pod(name, node, address.map(|address| address.to_string()), *change);
            }
            EventKind::Cluster {
                change: ClusterEvent::Endpoint { backend, change, .. }, ..
            } => {
                let mut endpoints = self.endpoints.lock().expect("no holder panics");
                match change {
                    EndpointChange::Removed => endpoints.remove(backend),
                    change => endpoints.insert(*backend, *change),
                };
                self.server.apply(self.slice(&endpoints));
            }
            EventKind::Cluster { change: ClusterEvent::Rollout { change, .. }, .. } => {
                let observed = if *change == RolloutChange::Started { 1 } else { 2 };
                self.server.apply(self.deployment(2, observed));
            }
            _ => {}
        }
    }

    fn pod(&self, name: &str, node: &str, address: Option<String>, change: PodChange) {
        let ready = |is_ready: bool| {
            let status = if is_ready { "True" } else { "False" };
            json!([{ "type": "Ready", "status": status, "lastTransitionTime": now(0) }])
        };
        let edit = |edit: &dyn Fn(&mut Value)| {
            let edited = self.server.edit("pods", &self.namespace, name, edit);
            assert!(edited.is_some(), "{name} is not there");
        };
        match change {
            PodChange::Added => {
                _ = self.server.apply(json!({
                    "kind": "Pod",
                    "apiVersion": "v1",
                    "metadata": {
                        "name": name,
                        "namespace": self.namespace,
                        "labels": { "app": "web" },
                    },
                    "spec": { "nodeName": node, "containers": [] },
                    "status": { "podIP": address, "phase": "Running", "conditions": ready(false) },
                }))
            }
            PodChange::Ready => edit(&|pod| pod["status"]["conditions"] = ready(true)),
            PodChange::NotReady => edit(&|pod| pod["status"]["conditions"] = ready(false)),
            PodChange::Asked { grace } => edit(&|pod| {
                let grace = i64::try_from(grace.as_secs()).expect("a grace period");
                pod["metadata"]["deletionTimestamp"] = now(grace).into();
                pod["metadata"]["deletionGracePeriodSeconds"] = grace.into();
            }),
            PodChange::Deleted => {
                // As the kubelet does it: once more without grace, and then the object is gone.
                edit(&|pod| {
                    pod["metadata"]["deletionTimestamp"] = now(0).into();
                    pod["metadata"]["deletionGracePeriodSeconds"] = 0.into();
                });
                self.server.remove("pods", &self.namespace, name);
            }
            PodChange::Silent { .. } => {}
        }
    }

    fn slice(&self, endpoints: &BTreeMap<SocketAddr, EndpointChange>) -> Value {
        let port = endpoints.keys().next().map_or(8080, SocketAddr::port);
        let listed = endpoints.iter().map(|(backend, change)| {
            let EndpointChange::Listed { ready, serving, terminating } = change else {
                unreachable!("what is removed is not kept")
            };
            json!({
                "addresses": [backend.ip()],
                "conditions": { "ready": ready, "serving": serving, "terminating": terminating },
            })
        });
        json!({
            "kind": "EndpointSlice",
            "apiVersion": "discovery.k8s.io/v1",
            "metadata": {
                "name": "web-abcde",
                "namespace": self.namespace,
                "labels": { "kubernetes.io/service-name": "web" },
                "managedFields": [{ "manager": "kube-controller-manager", "time": now(0) }],
            },
            "addressType": "IPv4",
            "endpoints": listed.collect::<Vec<_>>(),
            "ports": [{ "port": port, "protocol": "TCP" }],
        })
    }

    fn deployment(&self, revision: i64, observed: i64) -> Value {
        let written = |subresource: Option<&str>| json!({ "manager": "m", "subresource": subresource, "time": now(0) });
        json!({
            "kind": "Deployment",
            "apiVersion": "apps/v1",
            "metadata": {
                "name": "web",
                "namespace": self.namespace,
                "generation": revision,
                "managedFields": [written(None), written(Some("status"))],
            },
            "spec": {
                "replicas": 3,
                "selector": { "matchLabels": { "app": "web" } },
                "template": {
                    "metadata": { "labels": { "app": "web" }, "annotations": { "revision": revision.to_string() } },
                    "spec": { "containers": [] },
                },
            },
            "status": {
                "observedGeneration": observed,
                "replicas": 3,
                "updatedReplicas": 3,
                "readyReplicas": 3,
                "availableReplicas": 3,
            },
        })
    }
}
