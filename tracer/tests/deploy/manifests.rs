//! Single manifests: known to the API, of this version, and as narrow as they say.

use serde_json::Value;

use crate::round_trip::unknown;
use crate::{deploy, files, list, read, text};

/// All objects that lie in deploy/, with where: patches, kustomizations and what is not Kubernetes' left out.
fn objects() -> Vec<(String, Value)> {
    let mut objects = Vec::new();
    for path in files("yaml") {
        for object in read(&path) {
            let version = text(&object, "/apiVersion");
            let foreign = ["kustomize.config.k8s.io/", "kind.x-k8s.io/"];
            if !version.is_empty() && !foreign.iter().any(|group| version.starts_with(group)) {
                objects.push((path.display().to_string(), object));
            }
        }
    }
    objects
}

/// The pod specs of all workloads.
fn pods() -> Vec<(String, Value)> {
    let workloads = objects()
        .into_iter()
        .filter_map(|(path, object)| Some((path, object.pointer("/spec/template/spec")?.clone())));
    workloads.collect()
}

#[test]
fn every_manifest_is_known_to_the_api_field_by_field() {
    let objects = objects();
    for (path, object) in &objects {
        assert_eq!(unknown(object), Ok(Vec::new()), "{path}");
    }
    assert!(objects.len() >= 16, "only {} objects", objects.len());
}

#[test]
fn every_pod_runs_the_image_of_this_version_with_arguments_that_it_takes() {
    let image = format!("tracer:{}", env!("CARGO_PKG_VERSION"));
    let pods = pods();
    assert_eq!(pods.len(), 3, "the monitor, the demo app, the load");
    for (path, pod) in pods {
        for container in list(&pod, "/containers") {
            assert_eq!(text(container, "/image"), image, "{path}");
            assert!(container.get("command").is_none(), "{path}: the image has its entry point");
            let arguments = list(container, "/args").iter();
            let arguments: Vec<String> =
                arguments.map(|one| one.as_str().expect("a string").to_owned()).collect();
            assert_eq!(tracer::cli::accepts(&arguments), Ok(()), "{path}");
        }
    }
}

#[test]
fn no_pod_may_more_than_it_needs() {
    for (path, pod) in pods() {
        let monitor = path.ends_with("daemonset.yaml");
        let added = if monitor { vec!["BPF", "PERFMON"] } else { Vec::new() };
        assert_eq!(text(&pod, "/securityContext/seccompProfile/type"), "RuntimeDefault", "{path}");
        assert_eq!(pod.get("hostNetwork").is_some(), monitor, "{path}");
        for never in ["hostPID", "hostIPC"] {
            assert!(pod.get(never).is_none(), "{path}: {never}");
        }
        for volume in list(&pod, "/volumes") {
            assert!(volume.get("hostPath").is_none(), "{path}: hostPath");
        }
        for container in list(&pod, "/containers") {
            let security = &container["securityContext"];
            assert_eq!(security["allowPrivilegeEscalation"], false, "{path}");
            assert_eq!(security["readOnlyRootFilesystem"], true, "{path}");
            assert!(security.get("privileged").is_none(), "{path}");
            assert_eq!(list(security, "/capabilities/drop"), ["ALL"], "{path}");
            let capabilities: Vec<&str> =
                list(security, "/capabilities/add").iter().filter_map(Value::as_str).collect();
            assert_eq!(capabilities, added, "{path}");
            assert!(container.pointer("/resources/limits/memory").is_some(), "{path}");
        }
    }
}

#[test]
fn nothing_names_an_architecture() {
    for path in files("yaml").into_iter().chain(files("json")) {
        let text = std::fs::read_to_string(&path).expect("a file can be read");
        for word in ["amd64", "arm64", "x86", "aarch64", "kubernetes.io/arch"] {
            assert!(!text.contains(word), "{}: {word}", path.display());
        }
    }
}

#[test]
fn the_roles_let_no_one_write_but_where_it_is_said() {
    let may_write = |role: &str| match role {
        "tracer-record" | "tracer-attach-look" => Vec::new(),
        "tracer-attach" => vec!["pods", "pods/exec"],
        "tracer-roll" => vec!["deployments"],
        "tracer-events" => vec!["events"],
        other => panic!("a role that no test knows: {other}"),
    };
    let mut roles = 0;
    for (path, object) in objects() {
        if !text(&object, "/kind").ends_with("Role") {
            continue;
        }
        roles += 1;
        let role = text(&object, "/metadata/name");
        for rule in list(&object, "/rules") {
            let words = |field: &str| -> Vec<&str> {
                list(rule, field).iter().filter_map(Value::as_str).collect()
            };
            assert!(rule.get("nonResourceURLs").is_none(), "{path}");
            for word in ["/apiGroups", "/resources", "/verbs"].into_iter().flat_map(words) {
                assert!(!word.contains('*') && word != "secrets", "{path}: {word}");
            }
            let reads = words("/verbs").iter().all(|verb| ["get", "list", "watch"].contains(verb));
            if !reads {
                assert_eq!(
                    words("/resources").iter().filter(|of| !may_write(role).contains(*of)).count(),
                    0,
                    "{path}: {role} may write {rule}"
                );
            }
        }
    }
    assert_eq!(roles, 5);
}

#[test]
fn bindings_name_roles_and_accounts_that_are_there() {
    let all = objects();
    let there = |kind: &str, name: &str| {
        all.iter().any(|(_, object)| {
            text(object, "/kind") == kind && text(object, "/metadata/name") == name
        })
    };
    for (path, object) in &all {
        if text(object, "/kind") == "ClusterRoleBinding" {
            assert!(there(text(object, "/roleRef/kind"), text(object, "/roleRef/name")), "{path}");
            for subject in list(object, "/subjects") {
                assert!(there(text(subject, "/kind"), text(subject, "/name")), "{path}");
                assert_eq!(text(subject, "/namespace"), "tracer", "{path}");
            }
        }
        if let Some(account) = object.pointer("/spec/template/spec/serviceAccountName") {
            assert!(there("ServiceAccount", account.as_str().expect("a name")), "{path}");
        }
    }
}

/// kind's types are not in a library here: its few fields by hand (kind.sigs.k8s.io/docs/user/configuration).
#[test]
fn the_kind_cluster_has_one_control_plane_and_two_workers() {
    let [cluster] = read(&deploy().join("kind/cluster.yaml")).try_into().expect("one document");
    let expected = serde_json::json!({
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": "tracer",
        "networking": { "kubeProxyMode": "iptables" },
        "nodes": [{ "role": "control-plane" }, { "role": "worker" }, { "role": "worker" }],
    });
    assert_eq!(cluster, expected);
}
