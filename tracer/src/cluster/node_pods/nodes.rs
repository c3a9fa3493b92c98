//! Nodes, and what else attach looks at before it makes a pod.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node as ApiNode, Pod, Service};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use super::trouble::{Deed, PodError};
use super::{NodePods, asked};

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Which boot of which kernel it runs on: the nodes of kind share one.
    pub boot: String,
}

impl Node {
    fn of(node: ApiNode) -> Node {
        let info = node.status.and_then(|status| status.node_info);
        let name = node.metadata.name.unwrap_or_default();
        let boot = info.map(|info| info.boot_id).filter(|boot| !boot.is_empty());
        Node { boot: boot.unwrap_or_else(|| name.clone()), name }
    }
}

impl NodePods {
    /// A node.
    ///
    /// # Errors
    /// [`PodError`]; [`PodError::Unknown`] if there is none of this name.
    pub async fn node(&self, name: &str) -> Result<Node, PodError> {
        let deed = Deed::Look { what: format!("the node {name}") };
        let nodes: Api<ApiNode> = Api::all(self.client.clone());
        asked(&deed, nodes.get(name)).await.map(Node::of)
    }

    /// All nodes that run Linux, by name.
    ///
    /// # Errors
    /// [`PodError`].
    pub async fn nodes(&self) -> Result<Vec<Node>, PodError> {
        let deed = Deed::List { what: "nodes", namespace: None };
        let nodes: Api<ApiNode> = Api::all(self.client.clone());
        let options = ListParams::default().labels("kubernetes.io/os=linux");
        let mut nodes: Vec<Node> =
            asked(&deed, nodes.list(&options)).await?.items.into_iter().map(Node::of).collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(nodes)
    }

    /// The node that a pod is on.
    ///
    /// # Errors
    /// [`PodError`]; also if it is on none yet.
    pub async fn node_of(&self, namespace: &str, pod: &str) -> Result<Node, PodError> {
        let deed = Deed::Look { what: format!("the pod {namespace}/{pod}") };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let spec = asked(&deed, pods.get(pod)).await?.spec;
        match spec.and_then(|spec| spec.node_name) {
            Some(name) => self.node(&name).await,
            None => {
                let said = format!("the pod {namespace}/{pod} is on no node yet");
                Err(PodError::Unknown { said, hint: "" })
            }
        }
    }

    /// Where a Service is asked: its cluster address and first TCP port.
    ///
    /// # Errors
    /// [`PodError`]; also if it has no address of its own.
    pub async fn service(&self, namespace: &str, name: &str) -> Result<String, PodError> {
        let deed = Deed::Look { what: format!("the Service {namespace}/{name}") };
        let services: Api<Service> = Api::namespaced(self.client.clone(), namespace);
        let spec = asked(&deed, services.get(name)).await?.spec.unwrap_or_default();
        let address = spec.cluster_ip.as_deref().and_then(|address| address.parse().ok());
        let ports = spec.ports.unwrap_or_default();
        let port = ports.iter().find(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP");
        let port = port.and_then(|port| u16::try_from(port.port).ok());
        match (address, port) {
            (Some(address), Some(port)) => Ok(std::net::SocketAddr::new(address, port).to_string()),
            _ => {
                let said = format!(
                    "the Service {namespace}/{name} has no cluster address with a TCP port"
                );
                Err(PodError::Unknown { said, hint: "" })
            }
        }
    }

    /// Whether a Deployment is there and can be restarted.
    ///
    /// # Errors
    /// [`PodError`].
    pub async fn can_roll(&self, namespace: &str, name: &str) -> Result<(), PodError> {
        let deed = Deed::Look { what: format!("the Deployment {namespace}/{name}") };
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let spec = asked(&deed, deployments.get(name)).await?.spec;
        match spec.and_then(|spec| spec.paused) {
            Some(true) => Err(PodError::Paused { deployment: format!("{namespace}/{name}") }),
            _ => Ok(()),
        }
    }

    /// Restarts a Deployment as `kubectl rollout restart` does: by an annotation of its pod template
    /// (kubectl polymorphichelpers/objectrestarter.go). `now` is in RFC 3339.
    ///
    /// # Errors
    /// [`PodError`].
    pub async fn roll(&self, namespace: &str, name: &str, now: &str) -> Result<(), PodError> {
        self.can_roll(namespace, name).await?;
        let deed = Deed::Roll { deployment: format!("{namespace}/{name}") };
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let annotations = json!({ "kubectl.kubernetes.io/restartedAt": now });
        let patch =
            json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } });
        let patch = Patch::Strategic(patch);
        asked(&deed, deployments.patch(name, &PatchParams::default(), &patch)).await.map(drop)
    }
}
