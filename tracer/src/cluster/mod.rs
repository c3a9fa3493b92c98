//! A cluster, watched through its API: pods, EndpointSlices, Deployments, ReplicaSets and Services, as events of the
//! node's clock. Survives expired versions, broken connections and slow servers; what it could not see becomes a
//! loss in the stream.
//!
//! How it is used: [`Cluster::watch`] connects and gives what is there ([`First`]: events for the trace's beginning,
//! and the addresses that the kernel's filter needs); then [`Cluster::next`] gives updates (events for the stream, new
//! addresses, sentences for people) for as long as somebody fetches them, and [`Cluster::finish`] the last ones. One
//! Service or the Services of namespaces: [`Scope`]. [`Cluster::voice`] makes an Event object on a Deployment.
//!
//! Deliberately absent: reading objects (`codec::watch`, which reads kubectl's files as well), and judging.

mod api;
mod changes;
mod clock;
pub mod node_pods;
mod remark;
mod watch;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use foldhash::fast::FixedState;
use kube::Client;

use crate::model::{Event, MonoNs};
use crate::sys::stop::Stop;

pub use api::{Access, client};
pub use clock::{ApiClock, Bounds};
pub use remark::{Remark, RemarkError, Voice};

/// What a pod of ours says last when its recording failed; the line before says why.
pub const RECORDING_FAILED: &str = "the recording failed";

/// What of a cluster is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One Service, the pods, and the Deployments behind it.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// All Services of these namespaces, their pods and Deployments; none: of all namespaces.
    Namespaces(Vec<String>),
}

/// How a cluster is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How to reach it.
    pub access: Access,
    /// What is watched.
    pub scope: Scope,
    /// How long a watch may last before it is renewed. A server that says nothing for five seconds longer counts as
    /// stalled.
    pub renew: Duration,
    /// How long a list may take.
    pub patience: Duration,
}

/// Why a cluster can't be watched.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Nothing says where it is.
    #[error(
        "no cluster: neither a kubeconfig (KUBECONFIG, ~/.kube/config) nor a pod's service account was found: {why}"
    )]
    NoCluster {
        /// What was looked for.
        why: String,
    },
    /// The context that was asked for is not there, or incomplete.
    #[error("the kubeconfig can't be used: {why}")]
    Kubeconfig {
        /// What is wrong.
        why: String,
    },
    /// The API server does not answer, or not in a way that can be believed.
    #[error("cannot reach the API server at {url}: {why}")]
    Unreachable {
        /// Where it should be.
        url: String,
        /// What happened.
        why: String,
    },
    /// It does not know who we are.
    #[error("the API server does not accept this account's credentials (401): are they expired?")]
    Unauthorized,
    /// RBAC.
    #[error(
        "not allowed to {what}: bind the role of deploy/ for `record` to this account ({said})"
    )]
    Forbidden {
        /// The deed.
        what: String,
        /// The server's own words.
        said: String,
    },
    /// There is no such Service.
    #[error("there is no Service {name} in the namespace {namespace}")]
    NoService {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The Service has no address that conntrack could translate.
    #[error(
        "the Service {name} is headless: clients connect to pods themselves, so no entry is translated"
    )]
    Headless {
        /// Its name.
        name: String,
    },
    /// Someone asked to stop before the first lists were there.
    #[error("interrupted before the cluster was known")]
    Stopped,
    /// The thread or its runtime could not be had.
    #[error("starting to watch the cluster")]
    Start(#[source] std::io::Error),
}

/// What a watched cluster tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Something happened, or was not seen.
    Event(Box<Event>),
    /// There are addresses to trace that were not told before.
    Addresses(Addresses),
    /// A sentence for whoever reads along.
    Note(String),
}

/// What the tracer's filter must know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// In front of NAT.
    pub services: Vec<SocketAddr>,
    /// Behind it.
    pub backends: Vec<SocketAddr>,
}

/// What was there when all kinds had been listed for the first time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct First {
    /// Pods, endpoints and rollouts, as events whose times are still to be set: to the trace's beginning.
    pub events: Vec<Event>,
    /// The addresses to trace.
    pub addresses: Addresses,
    /// What a reader of the trace must know: what may not be watched, and how far the clocks are apart.
    pub notes: Vec<String>,
    /// Services of the scope that have no address of their own.
    pub headless: Vec<String>,
}

/// The pods that there are, by their uid: what a cgroup's path names.
#[derive(Debug, Default)]
struct PodNames(Mutex<HashMap<String, String, FixedState>>);

impl PodNames {
    fn known(&self) -> MutexGuard<'_, HashMap<String, String, FixedState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self, uid: String, name: String) {
        self.known().insert(uid, name);
    }

    fn forget(&self, uid: &str) {
        self.known().remove(uid);
    }
}

/// A cluster that is being watched. Ends when it is dropped, or with its `stop`.
pub struct Cluster {
    updates: Receiver<Update>,
    client: Client,
    runtime: tokio::runtime::Handle,
    names: Arc<PodNames>,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

/// What the watching thread says first.
type Begun = Result<(First, Client, tokio::runtime::Handle), ClusterError>;

impl Cluster {
    /// Connects, and waits until everything has been listed once. `waiting` is told about once a second what is
    /// still waited for.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub fn watch(
        settings: Settings,
        stop: &Stop,
        mut waiting: impl FnMut(&str),
    ) -> Result<(Cluster, First), ClusterError> {
        let (updates_in, updates) = mpsc::sync_channel(1 << 12);
        let (begun_in, begun) = mpsc::sync_channel::<Begun>(1);
        let own_stop = Stop::default();
        let names = Arc::new(PodNames::default());
        let watching = watch::Watching {
            settings,
            updates: updates_in,
            names: Arc::clone(&names),
            stop: vec![stop.clone(), own_stop.clone()],
        };
        let thread = thread::Builder::new()
            .name("cluster".to_owned())
            .spawn(move || watching.run(begun_in))
            .map_err(ClusterError::Start)?;
        let mut thread = Some(thread);
        let (first, client, runtime) = loop {
            match begun.recv_timeout(Duration::from_secs(1)) {
                Ok(Ok(begun)) => break begun,
                Ok(Err(error)) => return Err(error),
                Err(RecvTimeoutError::Timeout) if stop.is_requested() => {
                    own_stop.request();
                    join(&mut thread);
                    return Err(ClusterError::Stopped);
                }
                Err(RecvTimeoutError::Timeout) => waiting("waiting for the API server's lists"),
                Err(RecvTimeoutError::Disconnected) => return Err(ClusterError::Stopped),
            }
        };
        Ok((Cluster { updates, client, runtime, names, stop: own_stop, thread }, first))
    }

    /// The next update, if there is one.
    pub fn next(&self) -> Option<Update> {
        self.updates.try_recv().ok()
    }

    /// The name of the pod with this uid, with its namespace unless that is `default`; none if there is none now.
    pub fn pod_name(&self, uid: &str) -> Option<String> {
        self.names.known().get(uid).cloned()
    }

    /// Who can say something on an object of the cluster, while it is watched.
    pub fn voice(&self) -> Voice {
        Voice { client: self.client.clone(), runtime: self.runtime.clone() }
    }

    /// Stops watching. What had not been fetched, and what could not be seen at the end, is handed out.
    pub fn finish(mut self) -> Vec<Update> {
        self.stop.request();
        let mut left: Vec<Update> = Vec::new();
        // The thread may wait for room in the channel: taking what there is comes before joining.
        while let Ok(update) = self.updates.recv_timeout(Duration::from_secs(5)) {
            left.push(update);
        }
        join(&mut self.thread);
        left
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.request();
        while self.updates.recv_timeout(Duration::from_secs(5)).is_ok() {}
        join(&mut self.thread);
    }
}

fn join(thread: &mut Option<JoinHandle<()>>) {
    if let Some(thread) = thread.take() {
        // A panic there has been printed; here there is nothing more to do about it.
        let _ = thread.join();
    }
}

impl First {
    /// The first events at the trace's beginning: what was so before it is so from its beginning on.
    pub fn at(&self, began: MonoNs) -> impl Iterator<Item = Event> {
        self.events.iter().cloned().map(move |mut event| {
            event.time = began;
            if let crate::model::EventKind::Cluster { since, .. } = &mut event.kind {
                *since = (*since).min(began);
            }
            event
        })
    }
}
