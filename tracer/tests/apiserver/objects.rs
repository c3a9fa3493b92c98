//! The objects, their versions, and what happened to them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A kind of objects that the server keeps.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Its API group and version, as `apiVersion` has them.
    pub(crate) api_version: &'static str,
    /// Its plural in paths.
    pub(crate) resource: &'static str,
    /// Its name.
    pub(crate) kind: &'static str,
    /// Whether its objects live in namespaces.
    pub(crate) is_namespaced: bool,
}

const fn kind(api_version: &'static str, resource: &'static str, kind: &'static str) -> Kind {
    Kind { api_version, resource, kind, is_namespaced: true }
}

/// All kinds.
pub(crate) const KINDS: [Kind; 13] = [
    kind("v1", "pods", "Pod"),
    kind("v1", "services", "Service"),
    kind("v1", "events", "Event"),
    kind("v1", "configmaps", "ConfigMap"),
    kind("v1", "serviceaccounts", "ServiceAccount"),
    Kind { is_namespaced: false, ..kind("v1", "namespaces", "Namespace") },
    Kind { is_namespaced: false, ..kind("v1", "nodes", "Node") },
    kind("apps/v1", "deployments", "Deployment"),
    kind("apps/v1", "replicasets", "ReplicaSet"),
    kind("apps/v1", "daemonsets", "DaemonSet"),
    kind("batch/v1", "jobs", "Job"),
    kind("discovery.k8s.io/v1", "endpointslices", "EndpointSlice"),
    kind("events.k8s.io/v1", "events", "Event"),
];

impl Kind {
    /// The kind of a path.
    pub(crate) fn of_path(api_version: &str, resource: &str) -> Option<&'static Kind> {
        KINDS.iter().find(|kind| kind.api_version == api_version && kind.resource == resource)
    }

    /// The kind of an object.
    pub(crate) fn of(object: &Value) -> &'static Kind {
        let name = object["kind"].as_str().unwrap_or_default();
        let version = object["apiVersion"].as_str();
        let found = KINDS.iter().find(|kind| {
            kind.kind == name && version.is_none_or(|version| version == kind.api_version)
        });
        found.unwrap_or_else(|| {
            panic!("an object of a kind that the server does not keep: {object}")
        })
    }
}

/// Something that happened to an object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The version that it made.
    pub(crate) version: u64,
    /// `ADDED`, `MODIFIED`, `DELETED`.
    pub(crate) event: &'static str,
    /// Which kind of object.
    pub(crate) resource: &'static str,
    /// The object after it, or when it went.
    pub(crate) object: Value,
}

/// By resource, namespace and name.
type Key = (&'static str, String, String);

/// All objects, and what happened to them since the last [`Objects::compact`].
#[derive(Debug, Default)]
pub(crate) struct Objects {
    objects: BTreeMap<Key, Value>,
    version: u64,
    changes: Vec<Change>,
    /// Of what happened until here nothing is known any more.
    compacted: u64,
    made: u64,
}

impl Objects {
    /// The latest version.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// What happened after a version; none if it is no longer known.
    pub(crate) fn since(&self, version: u64) -> Option<&[Change]> {
        if version < self.compacted {
            return None;
        }
        let from = self.changes.partition_point(|change| change.version <= version);
        Some(&self.changes[from..])
    }

    /// The objects of a resource.
    pub(crate) fn all(&self, resource: &str) -> impl Iterator<Item = &Value> {
        let of_it = self.objects.iter().filter(move |((of, ..), _)| *of == resource);
        of_it.map(|(_, object)| object)
    }

    /// One object.
    pub(crate) fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<&Value> {
        let found = self.objects.iter().find(|((of, within, own), _)| {
            (*of, within.as_str(), own.as_str()) == (resource, namespace, name)
        });
        found.map(|(_, object)| object)
    }

    /// Adds or replaces an object; its version.
    pub(crate) fn apply(&mut self, mut object: Value) -> u64 {
        let kind = Kind::of(&object);
        let own = object["metadata"]["resourceVersion"].as_str().and_then(|own| own.parse().ok());
        self.version = match own {
            Some(own) if own > self.version => own,
            _ => self.version + 1,
        };
        let version = self.version;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = version.to_string().into();
        if kind.is_namespaced && metadata["namespace"].is_null() {
            metadata["namespace"] = "default".into();
        }
        if metadata["name"].is_null() {
            self.made += 1;
            let prefix = metadata["generateName"].as_str().unwrap_or("unnamed-");
            metadata["name"] = format!("{prefix}{:05}", self.made).into();
        }
        // Who replaces an object need not know what the server gave it.
        let before = self.objects.get(&key(kind, &object)).map(|before| before["metadata"].clone());
        let metadata = &mut object["metadata"];
        for field in ["uid", "creationTimestamp"] {
            if let Some(before) = &before
                && metadata[field].is_null()
            {
                metadata[field] = before[field].clone();
            }
        }
        if metadata["uid"].is_null() {
            self.made += 1;
            metadata["uid"] = format!("00000000-0000-4000-8000-{:012x}", self.made).into();
        }
        if metadata["creationTimestamp"].is_null() {
            metadata["creationTimestamp"] = now(0).into();
        }
        let key = key(kind, &object);
        let event = if self.objects.contains_key(&key) { "MODIFIED" } else { "ADDED" };
        self.objects.insert(key, object.clone());
        self.changes.push(Change { version, event, resource: kind.resource, object });
        version
    }

    /// Deletes an object; the version that this makes.
    pub(crate) fn remove(&mut self, resource: &str, namespace: &str, name: &str) -> Option<u64> {
        let object = self.get(resource, namespace, name)?.clone();
        self.objects.remove(&key(Kind::of(&object), &object));
        self.version += 1;
        let version = self.version;
        self.gone(object, version);
        Some(version)
    }

    /// An object was deleted in this state, which has the version that its deletion made.
    pub(crate) fn deleted(&mut self, object: Value) {
        self.objects.remove(&key(Kind::of(&object), &object));
        let own = object["metadata"]["resourceVersion"].as_str().and_then(|own| own.parse().ok());
        self.version = own.filter(|own| *own > self.version).unwrap_or(self.version + 1);
        self.gone(object, self.version);
    }

    fn gone(&mut self, mut object: Value, version: u64) {
        let resource = Kind::of(&object).resource;
        object["metadata"]["resourceVersion"] = version.to_string().into();
        self.changes.push(Change { version, event: "DELETED", resource, object });
    }

    /// Forgets what happened.
    pub(crate) fn compact(&mut self) {
        // A version of its own, so that whoever has seen everything is behind too.
        self.version += 1;
        self.compacted = self.version;
        self.changes.clear();
    }
}

fn key(kind: &'static Kind, object: &Value) -> Key {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (kind.resource, text("namespace"), text("name"))
}

/// A time of the API, in whole seconds.
pub(crate) fn now(after_seconds: i64) -> String {
    let second = jiff::Timestamp::now().as_second() + after_seconds;
    jiff::Timestamp::from_second(second).expect("a time of this age").to_string()
}

/// What an error is told by.
pub(crate) fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    })
}
