//! What the lab knows of a run by other means than the tracer: its own record of each pod's life and of each
//! change of the rules, and looks at the client node's conntrack table through conntrack's own tool.
//!
//! Deliberately absent: anything of `kernel`, `codec` or `correlate`. What is judged here must be able to
//! contradict them.

mod entries;
mod judge;
mod judged;
mod names;
mod table;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::deed::DeadAddress;
use super::lock;
use super::plan::Node;
use super::settings::LabSettings;
use crate::model::MonoNs;
use crate::sys::clock;

pub use judge::judge;
pub use judged::{ClientEnd, ClientRow, Judged, Judgement, Span};
pub use names::{NameQuestion, Names};
pub(crate) use table::Watcher;
pub use table::{Look, Row, State};

/// What the lab knows. Times are on the node's monotonic clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// The seed of the lab's random choices.
    pub seed: u64,
    /// The node that the client runs on.
    pub client_node: String,
    /// The client's address.
    pub client: IpAddr,
    /// The Service, as the client asks for it.
    pub service: SocketAddr,
    /// How long an entry lives that sees nothing but SYNs, as the client's node has it.
    pub syn_sent_timeout: Duration,
    /// What becomes of packets to an address whose pod is gone.
    pub dead_address: DeadAddress,
    /// How long the app takes to answer.
    pub pod_delay: Duration,
    /// The source ports whose SYNs the client's node drops, and from when on.
    pub dropping: Option<Dropping>,
    /// What the DNS server did, if there was one.
    pub names: Option<Names>,
    /// The node that the network lost, and when.
    pub outage: Option<Outage>,
    /// The pods that were stopped, and live on without answering.
    #[serde(default)]
    pub frozen: Vec<Frozen>,
    /// Connections besides the client's requests, whose entries were left behind.
    #[serde(default)]
    pub held: Vec<Held>,
    /// When the last rollout started.
    pub rollout_started: Option<MonoNs>,
    /// When it was complete.
    pub rollout_finished: Option<MonoNs>,
    /// Every pod there was.
    pub pods: Vec<PodLife>,
    /// Every change of a node's rules.
    pub rules: Vec<RulesChange>,
    /// Every entry of the client's that the lab deleted on purpose.
    pub deleted: Vec<Deleted>,
    /// Every look at the client node's conntrack table.
    pub looks: Vec<Look>,
}

/// SYNs that the client's node drops.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dropping {
    /// The source ports.
    pub ports: BTreeSet<u16>,
    /// Why.
    pub how: HowDropped,
    /// Just before the rule was set.
    pub since: MonoNs,
    /// Just after.
    pub set: MonoNs,
}

/// Why SYNs are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HowDropped {
    /// By a rule that names their ports.
    Rule,
    /// Because they are such that conntrack gives them no entry.
    Invalid,
}

/// A node that the network lost: nothing reaches it from the client's node, and nothing comes back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outage {
    /// The node.
    pub node: String,
    /// From just before until just after it was lost.
    pub lost: Span,
}

/// A pod whose process was stopped (SIGSTOP): its kernel takes connections until nobody can wait in the backlog any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frozen {
    /// The pod's address.
    pub address: SocketAddr,
    /// From just before until just after.
    pub since: Span,
}

/// A connection that the lab made from the client's address, and whose socket went without a word, so that its entry stays
/// as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The source port.
    pub port: u16,
    /// When it was made.
    pub made: Span,
}

/// An entry that the lab deleted on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deleted {
    /// The client's port.
    pub port: u16,
    /// Where it pointed.
    pub backend: SocketAddr,
    /// When.
    pub when: Span,
}

/// A pod's life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PodLife {
    /// Its name.
    pub name: String,
    /// Its app.
    pub app: String,
    /// Its node.
    pub node: String,
    /// Where it served.
    pub address: SocketAddr,
    /// Its network was there.
    pub added: MonoNs,
    /// Its process ran from then on.
    pub started: Option<MonoNs>,
    /// It was found ready; without a readiness probe, as soon as its process ran.
    pub ready: Option<MonoNs>,
    /// Where there is no readiness probe: its process was seen to listen. Until then its address refuses.
    pub listening: Option<MonoNs>,
    /// Its deletion was asked for.
    pub asked: Option<MonoNs>,
    /// Just before the signal was sent that ended it: SIGTERM, or SIGKILL where it ignores that.
    pub terminated: Option<MonoNs>,
    /// Its process was seen to have ended: until its network goes, its address refuses.
    pub exited: Option<MonoNs>,
    /// Just before its network was taken down.
    pub disconnecting: Option<MonoNs>,
    /// Just after: from now on its address is silent.
    pub disconnected: Option<MonoNs>,
    /// The API said that it was gone.
    pub deleted: Option<MonoNs>,
}

/// A change of the rules on a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RulesChange {
    /// The node.
    pub node: String,
    /// Just before the new rules were given to the kernel.
    pub before: MonoNs,
    /// Just after.
    pub after: MonoNs,
    /// The endpoints that they name.
    pub endpoints: BTreeSet<SocketAddr>,
}

/// A moment of a pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodMoment {
    Started,
    Ready,
    Listening,
    Asked,
    Terminated,
    Exited,
    Disconnecting,
    Disconnected,
    Deleted,
}

/// Collects the truth, from all threads of a lab.
#[derive(Debug)]
pub(crate) struct Recorder(Mutex<Truth>);

impl Recorder {
    pub(crate) fn new(settings: &LabSettings, client: IpAddr, service: SocketAddr) -> Recorder {
        Recorder(Mutex::new(Truth {
            seed: settings.seed,
            dead_address: settings.dead_address,
            pod_delay: settings.pod_delay,
            dropping: None,
            names: None,
            outage: None,
            frozen: Vec::new(),
            held: Vec::new(),
            client_node: Node(0).name(),
            client,
            service,
            syn_sent_timeout: Duration::ZERO,
            rollout_started: None,
            rollout_finished: None,
            pods: Vec::new(),
            rules: Vec::new(),
            deleted: Vec::new(),
            looks: Vec::new(),
        }))
    }

    pub(crate) fn truth(&self) -> Truth {
        lock(&self.0).clone()
    }

    pub(crate) fn pod_added(&self, name: &str, app: &str, node: &str, address: SocketAddr) {
        lock(&self.0).pods.push(PodLife {
            name: name.to_owned(),
            app: app.to_owned(),
            added: clock::now(),
            node: node.to_owned(),
            address,
            started: None,
            ready: None,
            listening: None,
            asked: None,
            terminated: None,
            exited: None,
            disconnecting: None,
            disconnected: None,
            deleted: None,
        });
    }

    pub(crate) fn pod(&self, name: &str, moment: PodMoment, time: MonoNs) {
        let mut truth = lock(&self.0);
        let pod = truth.pods.iter_mut().rfind(|pod| pod.name == name);
        let pod = pod.expect("a pod is added before anything else happens to it");
        let place = match moment {
            PodMoment::Started => &mut pod.started,
            PodMoment::Ready => &mut pod.ready,
            PodMoment::Listening => &mut pod.listening,
            PodMoment::Asked => &mut pod.asked,
            PodMoment::Terminated => &mut pod.terminated,
            PodMoment::Exited => &mut pod.exited,
            PodMoment::Disconnecting => &mut pod.disconnecting,
            PodMoment::Disconnected => &mut pod.disconnected,
            PodMoment::Deleted => &mut pod.deleted,
        };
        *place = Some(time);
    }

    pub(crate) fn rules_changed(
        &self,
        node: &str,
        before: MonoNs,
        after: MonoNs,
        endpoints: &BTreeSet<SocketAddr>,
    ) {
        let endpoints = endpoints.clone();
        lock(&self.0).rules.push(RulesChange { node: node.to_owned(), before, after, endpoints });
    }

    pub(crate) fn rollout(&self, is_finished: bool, time: MonoNs) {
        let mut truth = lock(&self.0);
        if is_finished {
            truth.rollout_finished = Some(time);
        } else {
            truth.rollout_started = Some(time);
            truth.rollout_finished = None;
        }
    }

    /// The timer that entries made from now on get. The truth knows one at a time: it must be changed while
    /// no entry without an answer is there.
    pub(crate) fn timeout(&self, syn_sent: Duration) {
        lock(&self.0).syn_sent_timeout = syn_sent;
    }

    pub(crate) fn dropping(&self, ports: BTreeSet<u16>, how: HowDropped, since: MonoNs) {
        lock(&self.0).dropping = Some(Dropping { ports, how, since, set: clock::now() });
    }

    pub(crate) fn outage(&self, node: &str, since: MonoNs) {
        let lost = Span { from: since, to: clock::now() };
        lock(&self.0).outage = Some(Outage { node: node.to_owned(), lost });
    }

    pub(crate) fn frozen(&self, address: SocketAddr, since: MonoNs) {
        let since = Span { from: since, to: clock::now() };
        lock(&self.0).frozen.push(Frozen { address, since });
    }

    pub(crate) fn held(&self, port: u16, made: Span) {
        lock(&self.0).held.push(Held { port, made });
    }

    pub(crate) fn names(&self, names: Names) {
        lock(&self.0).names = Some(names);
    }

    pub(crate) fn deleted(&self, port: u16, backend: SocketAddr, when: Span) {
        lock(&self.0).deleted.push(Deleted { port, backend, when });
    }

    fn look(&self, look: Look) {
        lock(&self.0).looks.push(look);
    }

    fn endpoints(&self) -> (IpAddr, SocketAddr) {
        let truth = lock(&self.0);
        (truth.client, truth.service)
    }
}
