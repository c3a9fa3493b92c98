//! Pods of ours on a cluster's nodes: made, followed, and removed again, whatever happens. A pod that nobody follows
//! any more ends by itself, and the next run of anybody removes it.
//!
//! Deliberately absent: what is in the bytes that a pod sends.

mod follow;
mod leftover;
mod nodes;
mod plan;
mod trouble;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use tokio::time::{Instant, sleep, timeout};

use super::{Access, ClusterError};

pub use follow::{Cut, Followed};
pub use nodes::Node;
pub use plan::{FOLDER, PodPlan, Rights, Role};
pub use trouble::{Deed, PodError};

/// How often a pod is looked at while it starts.
const LOOK: Duration = Duration::from_millis(500);
/// How long the API may take to answer one question.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a pod of ours may take to end before it is removed by force, in seconds.
const GRACE: u32 = 5;

/// Our pods in one namespace of a cluster.
#[derive(Clone)]
pub struct NodePods {
    client: Client,
    namespace: String,
    made: Made,
}

/// The names of the pods that were made and not yet removed; shared with whoever must clean up in a hurry.
#[derive(Clone, Debug, Default)]
pub struct Made(Arc<Mutex<BTreeSet<String>>>);

impl Made {
    /// The names.
    pub fn names(&self) -> Vec<String> {
        self.locked().iter().cloned().collect()
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodePods {
    /// Connects; whether the account may do anything shows when it is done.
    ///
    /// # Errors
    /// If there is no cluster, or its configuration can't be used.
    pub async fn connect(
        access: &Access,
        namespace: &str,
        made: Made,
    ) -> Result<NodePods, ClusterError> {
        let (client, _, _) = super::client(access).await?;
        Ok(NodePods { client, namespace: namespace.to_owned(), made })
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Makes a pod. Its name is known to [`Made`] before the API is asked, since an answer may be lost.
    ///
    /// # Errors
    /// [`PodError`]; then there is no pod.
    pub async fn create(&self, plan: &PodPlan) -> Result<String, PodError> {
        let pod = plan.pod(&self.namespace);
        let name = pod.metadata.name.clone().unwrap_or_default();
        self.made.locked().insert(name.clone());
        let deed = Deed::Create { namespace: self.namespace.clone() };
        let made = asked(&deed, self.pods().create(&PostParams::default(), &pod)).await;
        if let Err(error) = made {
            // No answer is no proof that there is no pod.
            if matches!(error, PodError::Silent { .. } | PodError::Api { .. }) {
                self.remove(&name).await?;
            }
            self.made.locked().remove(&name);
            return Err(error);
        }
        Ok(name)
    }

    /// Waits until a pod runs, or has run.
    ///
    /// # Errors
    /// If it can't, or does not within this time.
    pub async fn started(&self, name: &str, within: Duration) -> Result<(), PodError> {
        let end = Instant::now() + within;
        loop {
            let pod = self.look(name).await?;
            if trouble::has_started(name, &pod)? {
                return Ok(());
            }
            if Instant::now() >= end {
                let said = trouble::waits_for(&pod);
                return Err(PodError::Late { pod: name.to_owned(), within, said });
            }
            sleep(LOOK).await;
        }
    }

    /// How a pod ended: none while it runs, else whether well, and its last words.
    ///
    /// # Errors
    /// [`PodError`].
    pub async fn ended(&self, name: &str) -> Result<Option<Result<(), String>>, PodError> {
        Ok(trouble::end(&self.look(name).await?))
    }

    async fn look(&self, name: &str) -> Result<Pod, PodError> {
        let deed = Deed::Look { what: format!("the pod {name}") };
        asked(&deed, self.pods().get(name)).await
    }

    /// Removes a pod that we made, and waits until the API no longer knows it or is sure to forget it. One that is not
    /// there is as good.
    ///
    /// # Errors
    /// [`PodError`]; it stays among [`Made`] then.
    pub async fn remove(&self, name: &str) -> Result<(), PodError> {
        let deed = Deed::Remove { pod: name.to_owned() };
        let options = DeleteParams::default().grace_period(GRACE);
        match asked(&deed, self.pods().delete(name, &options)).await {
            Ok(_) | Err(PodError::Unknown { .. }) => {
                self.made.locked().remove(name);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Removes every pod that was made and is still there; what went wrong, if something did.
    pub async fn remove_all(&self) -> Vec<PodError> {
        let mut errors = Vec::new();
        for name in self.made.names() {
            errors.extend(self.remove(&name).await.err());
        }
        errors
    }

    /// Removes what runs left that ended without doing so, of whoever it was: pods that have ended by themselves, and
    /// pods of processes of this machine that are no more. Gives their names.
    ///
    /// # Errors
    /// [`PodError`].
    pub async fn sweep(&self) -> Result<Vec<String>, PodError> {
        let options = ListParams::default().labels(plan::LABEL);
        let deed = Deed::List { what: "pods", namespace: Some(self.namespace.clone()) };
        let pods = asked(&deed, self.pods().list(&options)).await?;
        let mut removed = Vec::new();
        for pod in pods.items.iter().filter(|pod| leftover::is_left(pod)) {
            let name = pod.metadata.name.clone().unwrap_or_default();
            self.remove(&name).await?;
            removed.push(name);
        }
        Ok(removed)
    }
}

/// Removes these pods, at an exit that can't wait for anything else: with a connection of its own, and not for long.
pub fn remove_now(access: &Access, namespace: &str, made: &Made) {
    if made.names().is_empty() {
        return;
    }
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return;
    };
    let removing = async {
        let pods = NodePods::connect(access, namespace, made.clone()).await;
        match pods {
            Ok(pods) => pods.remove_all().await.iter().for_each(|error| log::warn!("{error}")),
            Err(error) => log::warn!("{error}"),
        }
    };
    // What is left then ends by itself, and goes with the next run.
    let _ = runtime.block_on(async { timeout(PATIENCE, removing).await });
}

/// Asks the API, not for ever, and says in our words what it says.
async fn asked<T>(
    deed: &Deed,
    question: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, PodError> {
    match timeout(PATIENCE, question).await {
        Err(_) => Err(PodError::Silent { deed: deed.clone(), seconds: PATIENCE.as_secs() }),
        Ok(Err(error)) => Err(PodError::of(deed, error)),
        Ok(Ok(answer)) => Ok(answer),
    }
}
