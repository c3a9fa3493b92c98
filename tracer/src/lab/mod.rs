//! The built-in cluster: network namespaces with the shape of a kind cluster, real processes as pods, and a
//! rolling update as the Deployment controller, the kubelet and kube-proxy do it.
//!
//! Everything happens inside the lab's own namespaces. Deliberately absent: the load and the tracer; whoever
//! builds a lab runs them in it and beside it.

mod deed;
mod deployment;
mod dns;
mod error;
mod held;
mod intervention;
mod lag;
mod listening;
mod network;
mod plan;
mod pod;
mod probe;
mod proxy;
mod rollout;
mod rules;
mod settings;
mod setup;
mod slice;
pub mod truth;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::model::{self, ClusterEvent, EndpointChange, Event, EventKind, NetnsRole, PodChange};
use crate::sys::clock;
use crate::sys::netns::{Netns, NetnsError};
use crate::sys::owner::Owner;
use crate::sys::stop::Stop;
use crate::sys::tool::{CONNTRACK, IP};

pub use deed::DeadAddress;
pub use deployment::Deployment;
pub use error::LabError;
pub use held::HeldState;
pub use plan::Family;
pub use rules::{ProxyMode, TrafficPolicy};
pub use settings::{Dns, LabSettings, Way};
pub use setup::{OnSigterm, SETUPS, Setup, USUAL, UnknownSetup};

use dns::DnsServer;
use held::HeldSocket;
use network::Network;
use plan::{Node, Plan};
use pod::{Pod, PodSpec};
use proxy::Proxy;
use rules::Service;
use slice::{Conditions, Slice};
use truth::{Names, PodMoment, Recorder, Truth, Watcher};

/// The name of the app, of its Service and of its Deployment.
pub const APP: &str = "web";

/// How long a wait goes on before it looks whether someone asked to stop.
const ATTENTION: Duration = Duration::from_millis(50);

/// Where the lab's events go, at the moment they happen.
pub type Sink<'a> = &'a (dyn Fn(Event) + Sync);

/// A lab that stands. Dropping it takes it down.
#[derive(Debug)]
pub struct Lab {
    settings: LabSettings,
    plan: Plan,
    target: SocketAddr,
    network: Network,
    recorder: Arc<Recorder>,
    cluster: Mutex<Cluster>,
    held: Mutex<Vec<HeldSocket>>,
    // Ended before their namespaces go, in this order.
    dns: Mutex<Option<DnsServer>>,
    watcher: Mutex<Option<Watcher>>,
    proxies: Mutex<Vec<Proxy>>,
    owner: Mutex<Option<Owner>>,
}

/// What the API server of this cluster knows.
#[derive(Debug, Default)]
struct Cluster {
    /// Those that are not deleted, in the order in which they were made.
    pods: Vec<Listed>,
    slice: Slice,
    /// How many changes the slice has seen.
    changes: u64,
    /// How many pods each node has had.
    made: BTreeMap<Node, u32>,
    /// The addresses whose pods are deleted, in that order.
    free: Vec<(Node, IpAddr)>,
    /// Those that run although the Deployment does not count them: of another app, or deleted on a node that
    /// nobody reaches.
    apart: Vec<Arc<Pod>>,
}

/// Whether an endpoint comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comes {
    In,
    Out,
}

/// A pod and what the API server says of it.
#[derive(Clone, Debug)]
struct Listed {
    pod: Arc<Pod>,
    revision: u32,
    is_ready: bool,
    is_terminating: bool,
}

impl Lab {
    /// Clears what dead labs left, then builds one: namespaces, rules, and the first pods, ready and in the
    /// rules. Takes about 4 s with a usual pod.
    ///
    /// # Errors
    /// [`LabError`]; what was built by then is taken down.
    pub fn build(settings: &LabSettings, stop: &Stop) -> Result<Lab, LabError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(LabError::NotRoot);
        }
        for tool in [IP, settings.proxy_mode.tool(settings.family), CONNTRACK] {
            tool.find()?;
        }
        let owner = Owner::claim(settings.index)?;
        let plan = Plan::new(owner.index(), settings.family);
        let (client, target) = match settings.way {
            Way::Pod => (plan.client(), plan.service()),
            Way::Host => (plan.node(Node(0)), plan.service()),
            Way::NodePort(_) => (plan.outside(), plan.node_port(Node(0))),
        };
        let network = Network::build(&owner, plan, settings).inspect_err(|_| {
            // The error that led here is the one to report; what this leaves, the next lab finds.
            let _ = owner.sweep();
        })?;
        let lab = Lab {
            settings: settings.clone(),
            plan,
            network,
            target,
            recorder: Arc::new(Recorder::new(settings, client, target)),
            cluster: Mutex::default(),
            dns: Mutex::default(),
            held: Mutex::default(),
            watcher: Mutex::default(),
            proxies: Mutex::default(),
            owner: Mutex::new(Some(owner)),
        };
        // From here on an early return drops the lab, which takes it down.
        lab.start(stop)?;
        Ok(lab)
    }

    fn start(&self, stop: &Stop) -> Result<(), LabError> {
        for node in Node::all() {
            let service = Service {
                name: APP.to_owned(),
                plan: self.plan,
                node,
                node_port: match self.settings.way {
                    Way::NodePort(policy) => Some(policy),
                    Way::Pod | Way::Host => None,
                },
            };
            let netns = Netns::open(self.network.node(node).name())?;
            let proxy = Proxy::start(
                self.settings.proxy_mode,
                netns,
                service,
                Arc::clone(&self.recorder),
                self.settings.clears_entries,
            )?;
            proxy.tell(Instant::now(), Default::default());
            self.proxies().push(proxy);
        }
        let node = self.network.node(Node(0));
        let watcher =
            Watcher::start(node, self.settings.snapshot_period, Arc::clone(&self.recorder))?;
        *lock(&self.watcher) = Some(watcher);
        if let (Some(dns), Some(netns)) = (self.settings.dns, self.network.dns()) {
            let address = match self.settings.way {
                Way::Pod | Way::Host => self.plan.dns(),
                Way::NodePort(_) => self.plan.dns_outside(),
            };
            let address = SocketAddr::new(address, plan::DNS_PORT);
            let service = self.target.ip();
            let server = DnsServer::start(netns, address, service, dns, &self.settings, stop)?;
            *lock(&self.dns) = Some(server);
        }
        self.create_first(stop)?;
        for proxy in self.proxies().iter() {
            proxy.settle(stop)?;
        }
        Ok(())
    }

    /// The Service as the client asks for it: its ClusterIP and port, or a node's address and port.
    pub fn service(&self) -> SocketAddr {
        self.target
    }

    /// The Service's name, and the DNS server that knows it; none if the client is to use the address.
    pub fn name(&self) -> Option<(String, SocketAddr)> {
        let dns = lock(&self.dns);
        dns.as_ref().map(|server| (dns::service_name(), server.address()))
    }

    /// The seed of the lab's random choices.
    pub fn seed(&self) -> u64 {
        self.settings.seed
    }

    /// The source ports that the kernel chooses from for the client.
    pub fn ports(&self) -> &RangeInclusive<u16> {
        &self.settings.ports
    }

    /// The index that the lab's names and addresses follow from.
    pub fn index(&self) -> u8 {
        self.plan.index()
    }

    /// The client's network namespace.
    pub fn client_netns(&self) -> &Netns {
        self.network.client()
    }

    /// The network namespace of a second client, if there is one.
    pub fn second_client(&self) -> Option<&Netns> {
        self.network.second_client()
    }

    /// Runs `work` inside the client's pod, on a thread of its own. Its sockets and threads are born there.
    ///
    /// # Errors
    /// [`NetnsError`] at once, or from the thread if it could not enter.
    pub fn in_client<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<Result<T, NetnsError>>, NetnsError> {
        self.network.client().spawn(work)
    }

    /// The namespaces that there are now, and what they are.
    pub fn netns(&self) -> Vec<model::Netns> {
        let mut all = self.network.netns();
        all.extend(self.cluster().pods.iter().map(|listed| listed.pod.netns()));
        all
    }

    /// The namespace of one role; the first if there are several.
    pub fn netns_of(&self, role: NetnsRole) -> Option<model::Netns> {
        self.netns().into_iter().find(|netns| netns.role == role)
    }

    /// The sysctls that matter, as they are now.
    ///
    /// # Errors
    /// [`LabError::Netns`].
    pub fn sysctls(&self) -> Result<Vec<model::Sysctl>, LabError> {
        self.network.sysctls()
    }

    /// What a reader of the report must know of this lab, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        self.settings.notes()
    }

    /// The pods and endpoints as they are now, as events of this moment: for a trace's beginning.
    pub fn initial_events(&self) -> Vec<Event> {
        let cluster = self.cluster();
        let mut events = Vec::new();
        for listed in &cluster.pods {
            events.push(pod_event(&listed.pod, PodChange::Added));
            if listed.is_ready {
                events.push(pod_event(&listed.pod, PodChange::Ready));
                events.push(self.endpoint_event(&listed.pod, listing(Conditions::READY)));
            }
        }
        events
    }

    /// What the lab itself knows of what happened up to now, by other means than the tracer's.
    pub fn truth(&self) -> Truth {
        self.recorder.truth()
    }

    /// Takes one more look at the conntrack table, ends the looking, and says what the lab knows.
    ///
    /// # Errors
    /// [`LabError::Tool`] if a look failed: then the truth has a gap. What can't be had of the DNS server.
    pub fn finish_truth(&self) -> Result<Truth, LabError> {
        if let (Some(dns), Some(server)) = (self.settings.dns, lock(&self.dns).as_ref()) {
            let questions = server.questions()?;
            let server = Some(server.address());
            self.recorder.names(Names { server, delay: dns.delay, questions });
        }
        if let Some(watcher) = lock(&self.watcher).take() {
            watcher.finish()?;
        }
        Ok(self.truth())
    }

    /// Takes everything down: pods, rules, namespaces, the owner file. Done once, a second call does nothing.
    ///
    /// # Errors
    /// [`LabError::Owner`] with the first thing that could not be removed; all others are.
    pub fn teardown(&self) -> Result<(), LabError> {
        drop(lock(&self.dns).take());
        drop(lock(&self.watcher).take());
        self.proxies().clear();
        let pods = {
            let mut cluster = self.cluster();
            let mut pods = std::mem::take(&mut cluster.apart);
            pods.extend(std::mem::take(&mut cluster.pods).into_iter().map(|listed| listed.pod));
            pods
        };
        let mut result = Ok(());
        for pod in pods {
            result = result.and(pod.kill());
        }
        if let Some(owner) = lock(&self.owner).take() {
            result = result.and(owner.sweep().map_err(LabError::from));
        }
        result
    }

    fn cluster(&self) -> MutexGuard<'_, Cluster> {
        lock(&self.cluster)
    }

    fn proxies(&self) -> MutexGuard<'_, Vec<Proxy>> {
        lock(&self.proxies)
    }

    /// Names a pod of this revision and gives it a place: nodes take turns.
    fn next_pod(&self, revision: u32) -> Result<PodSpec, LabError> {
        let owner = lock(&self.owner);
        // A lab that was taken down has no names any more.
        let owner = owner.as_ref().ok_or(LabError::Stopped)?;
        let mut cluster = self.cluster();
        let total: u32 = cluster.made.values().sum();
        let node =
            Node(u8::try_from(total % u32::from(plan::NODES)).expect("below the number of nodes"));
        let nth = cluster.made.entry(node).or_default();
        let address = self.plan.pod(node, *nth);
        *nth += 1;
        let name = format!("{APP}-{revision}-{}", total + 1);
        Ok(PodSpec { netns: owner.name(&name), name, app: APP, node, address })
    }

    /// Changes the EndpointSlice and tells the proxies, each after a lag of its own.
    ///
    /// In a rollout a pod that is ready comes first, and finds the proxies quiet: they follow at once. The pod that goes
    /// for it comes right after, and must wait for their next sync. (A pod that goes without such a one before it waits
    /// here as long, so that there is something to be seen.)
    fn change_slice(&self, cluster: &mut Cluster, comes: Comes, change: impl FnOnce(&mut Slice)) {
        change(&mut cluster.slice);
        cluster.changes += 1;
        let now = Instant::now();
        for (node, proxy) in Node::all().zip(self.proxies().iter()) {
            let lag =
                lag::draw(self.settings.seed, cluster.changes, node, &self.settings.rules_lag);
            let prompt =
                self.settings.prompt_lag.filter(|_| comes == Comes::In && proxy.is_quiet());
            let lag = prompt.map_or(lag, |prompt| prompt.min(lag));
            proxy.tell(now + lag, cluster.slice.usable());
        }
    }

    fn endpoint_event(&self, pod: &Pod, change: EndpointChange) -> Event {
        cluster_event(ClusterEvent::Endpoint {
            service: APP.to_owned(),
            frontend: self.target,
            backend: pod.address,
            change,
        })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = self.teardown() {
            log::error!("cannot take the lab down: {error}; the next lab tries again");
        }
    }
}

fn listing(conditions: Conditions) -> EndpointChange {
    let Conditions { ready, serving, terminating } = conditions;
    EndpointChange::Listed { ready, serving, terminating }
}

fn pod_event(pod: &Pod, change: PodChange) -> Event {
    cluster_event(ClusterEvent::Pod {
        name: pod.name.clone(),
        app: pod.app.to_owned(),
        node: pod.node.name(),
        address: Some(pod.address.ip()),
        change,
    })
}

fn cluster_event(event: ClusterEvent) -> Event {
    let now = clock::now();
    Event { time: now, kind: EventKind::Cluster { change: event, since: now } }
}

/// Locks, whatever became of a thread that held it: what these mutexes guard is never left half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
