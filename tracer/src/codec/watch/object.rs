//! The few fields of Kubernetes objects that are read, by their names in the API. All may be missing, and what
//! else there is does not matter.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;

use super::super::stamp::{Stamp, rfc3339};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) uid: Option<String>,
    pub(super) resource_version: Option<String>,
    pub(super) generation: Option<i64>,
    pub(super) creation_timestamp: Option<Time>,
    pub(super) deletion_timestamp: Option<Time>,
    pub(super) deletion_grace_period_seconds: Option<u64>,
    pub(super) labels: Option<BTreeMap<String, String>>,
    pub(super) annotations: Option<BTreeMap<String, String>>,
    pub(super) owner_references: Option<Vec<Owner>>,
    pub(super) finalizers: Option<Vec<String>>,
    pub(super) managed_fields: Option<Vec<ManagedFields>>,
}

/// A time of the API: RFC 3339, in whole seconds nearly everywhere.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Time(String);

impl Time {
    pub(super) fn stamp(&self) -> Option<Stamp> {
        rfc3339(&self.0)
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Owner {
    pub(super) kind: Option<String>,
    pub(super) name: Option<String>,
    pub(super) controller: Option<bool>,
}

/// Who wrote which fields, and when last: the time of a write where a manager changed a value.
#[derive(Debug, Deserialize)]
pub(super) struct ManagedFields {
    pub(super) subresource: Option<String>,
    pub(super) time: Option<Time>,
}

impl Metadata {
    /// The name by which a report speaks of it: with its namespace, unless that is `default`.
    pub(super) fn told_name(&self) -> String {
        in_namespace(self.namespace.as_deref(), &self.name)
    }

    /// What tells it from all others, also from one that had the same name before.
    pub(super) fn identity(&self) -> String {
        self.uid.clone().unwrap_or_else(|| self.told_name())
    }

    /// The place of its last write among all writes of its cluster, as etcd counts them.
    pub(super) fn revision(&self) -> Option<u64> {
        self.resource_version.as_ref()?.parse().ok()
    }

    pub(super) fn created(&self) -> Option<Stamp> {
        self.creation_timestamp.as_ref()?.stamp()
    }

    /// When its deletion is due: when it was asked for, plus the grace period.
    pub(super) fn deletion_due(&self) -> Option<Stamp> {
        self.deletion_timestamp.as_ref()?.stamp()
    }

    /// The latest write of a subresource; none: of the object itself.
    pub(super) fn written(&self, subresource: Option<&str>) -> Option<Stamp> {
        let managers = self.managed_fields.iter().flatten();
        managers
            .filter(|manager| manager.subresource.as_deref() == subresource)
            .filter_map(|manager| manager.time.as_ref()?.stamp())
            .max()
    }

    pub(super) fn label(&self, name: &str) -> Option<&String> {
        self.labels.as_ref()?.get(name)
    }

    pub(super) fn annotation(&self, name: &str) -> Option<&String> {
        self.annotations.as_ref()?.get(name)
    }

    pub(super) fn controller(&self) -> Option<&Owner> {
        self.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
    }
}

pub(super) fn in_namespace(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        None | Some("default" | "") => name.to_owned(),
        Some(namespace) => format!("{namespace}/{name}"),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) reason: Option<String>,
    pub(super) last_transition_time: Option<Time>,
    pub(super) last_update_time: Option<Time>,
}

impl Condition {
    pub(super) fn is_true(&self) -> bool {
        self.status == "True"
    }

    /// When its status last turned.
    pub(super) fn turned(&self) -> Option<Stamp> {
        self.last_transition_time.as_ref()?.stamp()
    }

    /// When it was last written.
    pub(super) fn updated(&self) -> Option<Stamp> {
        self.last_update_time.as_ref()?.stamp()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    pub(super) metadata: Metadata,
    pub(super) spec: PodSpec,
    pub(super) status: PodStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    pub(super) node_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    #[serde(rename = "podIP")]
    pub(super) pod_ip: Option<String>,
    pub(super) conditions: Option<Vec<Condition>>,
    pub(super) container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerStatus {
    pub(super) state: ContainerState,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerState {
    pub(super) running: Option<Ran>,
    pub(super) terminated: Option<Ran>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Ran {
    pub(super) started_at: Option<Time>,
    pub(super) finished_at: Option<Time>,
}

impl Pod {
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.status.pod_ip.as_ref()?.parse().ok()
    }

    pub(super) fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().flatten().find(|condition| condition.kind == kind)
    }

    /// Its containers' runs, the last of each.
    pub(super) fn runs(&self) -> impl Iterator<Item = &Ran> {
        let containers = self.status.container_statuses.iter().flatten();
        containers.filter_map(|container| {
            container.state.running.as_ref().or(container.state.terminated.as_ref())
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Deployment {
    pub(super) metadata: Metadata,
    pub(super) spec: DeploymentSpec,
    pub(super) status: DeploymentStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DeploymentSpec {
    pub(super) replicas: Option<i64>,
    pub(super) template: serde_json::Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DeploymentStatus {
    pub(super) observed_generation: i64,
    pub(super) replicas: i64,
    pub(super) updated_replicas: i64,
    pub(super) available_replicas: i64,
    pub(super) conditions: Option<Vec<Condition>>,
}

impl Deployment {
    pub(super) fn progressing(&self) -> Option<&Condition> {
        self.status.conditions.iter().flatten().find(|condition| condition.kind == "Progressing")
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReplicaSet {
    pub(super) metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EndpointSlice {
    pub(super) metadata: Metadata,
    pub(super) endpoints: Option<Vec<Endpoint>>,
    pub(super) ports: Option<Vec<Port>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Endpoint {
    pub(super) addresses: Vec<String>,
    pub(super) conditions: EndpointConditions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EndpointConditions {
    pub(super) ready: Option<bool>,
    pub(super) serving: Option<bool>,
    pub(super) terminating: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Port {
    pub(super) name: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) protocol: Option<String>,
}

impl Port {
    /// TCP is what the API leaves out.
    pub(super) fn is_tcp(&self) -> bool {
        self.protocol.as_deref().is_none_or(|protocol| protocol == "TCP")
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Service {
    pub(super) metadata: Metadata,
    pub(super) spec: ServiceSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ServiceSpec {
    #[serde(rename = "clusterIP")]
    pub(super) cluster_ip: Option<String>,
    #[serde(rename = "clusterIPs")]
    pub(super) cluster_ips: Option<Vec<String>>,
    pub(super) ports: Option<Vec<Port>>,
}

/// `v1` and `events.k8s.io/v1` name the same fields differently.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Event {
    pub(super) metadata: Metadata,
    pub(super) reason: Option<String>,
    #[serde(alias = "note")]
    pub(super) message: Option<String>,
    #[serde(alias = "regarding")]
    pub(super) involved_object: Reference,
    pub(super) event_time: Option<Time>,
    #[serde(alias = "deprecatedFirstTimestamp")]
    pub(super) first_timestamp: Option<Time>,
    #[serde(alias = "deprecatedLastTimestamp")]
    pub(super) last_timestamp: Option<Time>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Reference {
    pub(super) kind: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) message: Option<String>,
}
