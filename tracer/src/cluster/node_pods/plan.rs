//! What a pod of ours is to be.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::leftover;

/// The label that all our pods have.
pub(super) const LABEL: &str = "app.kubernetes.io/managed-by=tracer-attach";
/// Who made a pod; see [`leftover`].
pub(super) const OWNER: &str = "tracer/owner";
/// The folder in a pod that its trace is in.
pub const FOLDER: &str = "/trace";

/// What a pod is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It traces its node.
    Trace(Rights),
    /// It is a client.
    Load,
}

/// What a pod that traces may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// CAP_BPF and CAP_PERFMON.
    Named,
    /// Everything: what kernels before 5.11 need.
    Privileged,
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPlan {
    /// What it is for.
    pub role: Role,
    /// The node that it runs on.
    pub node: String,
    /// The image.
    pub image: String,
    /// Its program's arguments.
    pub arguments: Vec<String>,
    /// The account that it asks the API as; none where it asks nothing.
    pub account: Option<String>,
    /// After this time it is ended by the kubelet, whatever it does.
    pub at_most: Option<Duration>,
}

impl PodPlan {
    /// The object.
    pub(super) fn pod(&self, namespace: &str) -> Pod {
        let traces = matches!(self.role, Role::Trace(_));
        let name = format!("tracer-{}-{}", if traces { "node" } else { "load" }, random());
        let security = match self.role {
            Role::Trace(Rights::Privileged) => json!({ "privileged": true, "runAsUser": 0 }),
            Role::Trace(Rights::Named) => json!({
                "runAsUser": 0,
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": { "drop": ["ALL"], "add": ["BPF", "PERFMON"] },
            }),
            Role::Load => json!({
                "runAsUser": 65534,
                "runAsNonRoot": true,
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": { "drop": ["ALL"] },
            }),
        };
        let mut spec = json!({
            // Straight to the node, past the scheduler: a node that is cordoned is traced as well.
            "nodeName": self.node,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": super::GRACE,
            "tolerations": [{ "operator": "Exists" }],
            "automountServiceAccountToken": self.account.is_some(),
            "securityContext": { "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "tracer",
                "image": self.image,
                "imagePullPolicy": "IfNotPresent",
                "args": self.arguments,
                // The last words of a program that fails, without a right to read logs.
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "securityContext": security,
                "resources": {
                    "requests": { "cpu": "50m", "memory": "64Mi" },
                    "limits": { "memory": "512Mi" },
                },
            }],
        });
        if traces {
            // The conntrack timers that an entry's age is read from are those of the node's own namespace.
            spec["hostNetwork"] = true.into();
            spec["dnsPolicy"] = "ClusterFirstWithHostNet".into();
            spec["volumes"] = json!([{ "name": "trace", "emptyDir": { "sizeLimit": "2Gi" } }]);
            spec["containers"][0]["volumeMounts"] =
                json!([{ "name": "trace", "mountPath": FOLDER }]);
        }
        if let Role::Trace(Rights::Privileged) = self.role {
            spec["securityContext"] = json!({});
        }
        if let Some(account) = &self.account {
            spec["serviceAccountName"] = account.as_str().into();
        }
        if let Some(at_most) = self.at_most {
            spec["activeDeadlineSeconds"] = at_most.as_secs().max(1).into();
        }
        let object = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {
                    "app.kubernetes.io/name": "tracer",
                    "app.kubernetes.io/managed-by": "tracer-attach",
                },
                "annotations": { OWNER: leftover::owner() },
            },
            "spec": spec,
        });
        serde_json::from_value(object).expect("a pod as the API knows it")
    }
}

/// Five letters that no other pod has, as the API's own generateName makes them. Not left to it: the name must be
/// known before the pod is there, so that it can be removed even if the answer is lost.
fn random() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    use rand::RngExt;
    let mut rng = rand::rng();
    (0..8).map(|_| char::from(LETTERS[rng.random_range(0..LETTERS.len())])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(role: Role) -> PodPlan {
        PodPlan {
            role,
            node: "worker".to_owned(),
            image: "tracer:1".to_owned(),
            arguments: vec!["node".to_owned()],
            account: None,
            at_most: None,
        }
    }

    #[test]
    fn a_pod_that_traces_has_two_capabilities_and_one_that_loads_none() {
        let added = |role| {
            let pod = plan(role).pod("tracer");
            let spec = pod.spec.expect("it has one");
            let security = spec.containers[0].security_context.clone().expect("it has one");
            assert_eq!(security.allow_privilege_escalation, Some(false));
            assert_eq!(spec.host_pid, None);
            (spec.host_network, security.capabilities.and_then(|both| both.add))
        };
        let two = vec!["BPF".to_owned(), "PERFMON".to_owned()];
        assert_eq!(added(Role::Trace(Rights::Named)), (Some(true), Some(two)));
        assert_eq!(added(Role::Load), (None, None));
    }

    /// The API ignores what it does not know, and so do its types.
    #[test]
    fn nothing_of_the_plan_is_lost_on_the_way_to_the_api() {
        for role in [Role::Trace(Rights::Named), Role::Trace(Rights::Privileged), Role::Load] {
            let text = serde_json::to_string(&plan(role).pod("tracer")).expect("it is JSON");
            for word in
                ["seccompProfile", "FallbackToLogsOnError", "resources", "tolerations", OWNER]
            {
                assert!(
                    text.contains(word) || role == Role::Trace(Rights::Privileged),
                    "{word} got lost: {text}"
                );
            }
        }
    }
}
