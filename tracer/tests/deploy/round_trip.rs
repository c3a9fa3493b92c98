//! Objects against the API's own types: what a type does not know is lost on the way through it, and so found.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::text;

/// What of an object the API would drop, or read otherwise: paths; or why it would not take it at all.
pub(crate) fn unknown(object: &Value) -> Result<Vec<String>, String> {
    match (text(object, "/apiVersion"), text(object, "/kind")) {
        ("v1", "Namespace") => through::<Namespace>(object),
        ("v1", "Pod") => through::<Pod>(object),
        ("v1", "Service") => through::<Service>(object),
        ("v1", "ServiceAccount") => through::<ServiceAccount>(object),
        ("apps/v1", "DaemonSet") => through::<DaemonSet>(object),
        ("apps/v1", "Deployment") => through::<Deployment>(object),
        ("batch/v1", "Job") => through::<Job>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => through::<ClusterRole>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => {
            through::<ClusterRoleBinding>(object)
        }
        ("rbac.authorization.k8s.io/v1", "Role") => through::<Role>(object),
        ("rbac.authorization.k8s.io/v1", "RoleBinding") => through::<RoleBinding>(object),
        (version, kind) => Err(format!("no type for {version} {kind}")),
    }
}

fn through<T: DeserializeOwned + Serialize>(object: &Value) -> Result<Vec<String>, String> {
    let typed: T = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
    let back = serde_json::to_value(typed).map_err(|error| error.to_string())?;
    let mut lost = Vec::new();
    compare("", object, &back, &mut lost);
    Ok(lost)
}

fn compare(path: &str, given: &Value, back: &Value, lost: &mut Vec<String>) {
    match (given, back) {
        (Value::Object(given), Value::Object(back)) => {
            for (name, value) in given {
                let path = format!("{path}/{name}");
                match back.get(name) {
                    Some(back) => compare(&path, value, back, lost),
                    None => lost.push(path),
                }
            }
        }
        (Value::Array(given), Value::Array(back)) if given.len() == back.len() => {
            for (index, (given, back)) in given.iter().zip(back).enumerate() {
                compare(&format!("{path}/{index}"), given, back, lost);
            }
        }
        _ if given == back => {}
        _ => lost.push(path.to_owned()),
    }
}

#[test]
fn a_misspelt_field_and_a_wrong_type_are_found() {
    let pod = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "x", "lables": {} },
        "spec": { "containers": [{ "name": "x", "securityContext": { "priviledged": true } }] },
    });
    let lost = vec!["/metadata/lables", "/spec/containers/0/securityContext/priviledged"];
    assert_eq!(unknown(&pod), Ok(lost.into_iter().map(str::to_owned).collect()));
    let mut wrong = pod;
    wrong["spec"]["hostNetwork"] = "yes".into();
    assert!(unknown(&wrong).is_err());
}
