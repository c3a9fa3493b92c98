//! Long traces of a made-up cluster: a client that opens a connection for every request, and rollout after
//! rollout, in the mix of events that the hooks give in a real one. What must come out is counted while it is
//! made. The same settings give the same trace.

#[path = "generator/flow.rs"]
mod flow;
#[path = "generator/header.rs"]
mod header;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tracer::model::{
    ClusterEvent, EndpointChange, Event, EventKind, MonoNs, PodChange, RolloutChange, Seq,
};
use tracer::stream::Ordering;

use flow::{Entry, Flow, Way};
pub(crate) use header::header;

/// The trace's beginning.
const BEGAN: MonoNs = MonoNs(1_000_000_000_000);
/// `net.netfilter.nf_conntrack_tcp_timeout_syn_sent`, the kernel's default.
const SYN_SENT: Duration = Duration::from_secs(120);
/// `net.ipv4.ip_local_port_range`, the kernel's default.
const PORTS: (u16, u16) = (32_768, 60_999);
/// A request is late if it starts this long after the rollout was complete; the default of `--late-after`.
const LATE_AFTER: Duration = Duration::from_secs(5);

/// How long and how busy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// At least so many events: a rollout that has begun is finished, and so is every request.
    pub(crate) events: u64,
    /// Where all random choices come from.
    pub(crate) seed: u64,
    /// Requests a second, on average.
    pub(crate) rate: f64,
    /// From the beginning of a rollout to that of the next.
    pub(crate) rollout_every: Duration,
}

impl Settings {
    /// As busy as a lab, with a rollout every five minutes.
    pub(crate) fn new(events: u64, seed: u64) -> Settings {
        Settings { events, seed, rate: 200.0, rollout_every: Duration::from_secs(300) }
    }
}

/// What is in the trace, and what a report must say of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Truth {
    /// Events.
    pub(crate) events: u64,
    /// Rollouts, all of them complete.
    pub(crate) rollouts: u64,
    /// Requests, all of them ended.
    pub(crate) requests: u64,
    /// Requests whose fresh entry pointed at a pod that was gone: the rules still named it.
    pub(crate) stale_rules: u64,
    /// Requests that a pod refused which was still there and had stopped listening.
    pub(crate) refused: u64,
    /// Late requests that met the entry of an earlier one, to a pod that was gone.
    pub(crate) late: u64,
    /// The same before late began.
    pub(crate) early: u64,
}

/// Makes a trace. Hands over its events in order and says what is in them; the first error of the sink ends it.
pub(crate) fn generate<E>(
    settings: &Settings,
    sink: &mut dyn FnMut(&Event) -> Result<(), E>,
) -> Result<Truth, E> {
    let mut world = World::new(settings);
    let mut result = Ok(());
    let mut events = 0;
    let mut pass = |_: Seq, event: Event| {
        events += 1;
        if result.is_ok() {
            result = sink(&event);
        }
        events
    };
    let mut so_far = 0;
    while so_far < settings.events || world.rollout.is_some() {
        let now = world.step();
        world.ordering.release(now, &mut |seq, event| so_far = pass(seq, event));
    }
    world.ordering.flush(&mut |seq, event| so_far = pass(seq, event));
    result?;
    Ok(Truth { events, ..world.truth })
}

/// A pod, and what happens to it.
#[derive(Clone, Debug)]
struct Pod {
    name: String,
    address: Ipv4Addr,
    /// The device to it on its node.
    device: u32,
    /// On the client's node or on the other.
    is_near: bool,
    /// When the client's node knows of it.
    listed: MonoNs,
    /// When it stops listening: its deletion is asked for.
    asked: MonoNs,
    /// When its address is dead.
    dead: MonoNs,
    /// When the client's node knows of that.
    unlisted: MonoNs,
}

impl Pod {
    fn backend(&self) -> SocketAddr {
        SocketAddr::new(self.address.into(), 8080)
    }

    fn way(&self) -> Way {
        Way { backend: self.backend(), device: self.device, is_near: self.is_near }
    }
}

/// A rollout that is under way: what is still to be replaced, and when.
#[derive(Debug)]
struct Rollout {
    old: VecDeque<String>,
    next: MonoNs,
}

struct World {
    settings: Settings,
    rng: ChaCha8Rng,
    ordering: Ordering,
    now: MonoNs,
    port: u16,
    /// The pods that the client's rules name.
    listed: Vec<Pod>,
    pods_made: u32,
    /// Entries that were never answered, by their source port.
    stale: HashMap<u16, Entry>,
    rollout: Option<Rollout>,
    next_rollout: MonoNs,
    /// When the last rollout was complete.
    complete: Option<MonoNs>,
    truth: Truth,
}

impl World {
    fn new(settings: &Settings) -> World {
        let mut world = World {
            settings: *settings,
            rng: ChaCha8Rng::seed_from_u64(settings.seed),
            ordering: Ordering::new(Duration::ZERO),
            now: BEGAN,
            port: PORTS.0,
            listed: Vec::new(),
            pods_made: 0,
            stale: HashMap::new(),
            rollout: None,
            next_rollout: BEGAN + Duration::from_secs(10),
            complete: None,
            truth: Truth::default(),
        };
        for _ in 0..3 {
            world.add_pod(BEGAN, Duration::ZERO);
        }
        world
    }

    /// Lets time pass until the next request and whatever comes before it. Nothing before the time that is
    /// returned comes any more.
    fn step(&mut self) -> MonoNs {
        // Exponential gaps: connects of many independent users.
        let gap = -(1.0 - self.rng.random::<f64>()).ln() / self.settings.rate;
        self.now = self.now + Duration::from_secs_f64(gap);
        self.roll();
        self.request();
        self.now
    }

    /// Moves the rollouts on: each pod is replaced when the one before has been ready for three seconds.
    fn roll(&mut self) {
        let second = Duration::from_secs(1);
        if self.rollout.is_none() && self.now >= self.next_rollout {
            let old = self.listed.iter().map(|pod| pod.name.clone()).collect();
            self.tell_rollout(self.now, RolloutChange::Started);
            self.rollout = Some(Rollout { old, next: self.now });
            self.next_rollout = self.now + self.settings.rollout_every;
        }
        while let Some(rollout) = &mut self.rollout
            && rollout.next <= self.now
        {
            let at = self.now;
            rollout.next = at + 3 * second;
            match rollout.old.pop_front() {
                Some(name) => {
                    self.add_pod(at, Duration::from_millis(500));
                    self.ask_to_go(&name, at + second);
                }
                None => {
                    self.tell_rollout(at, RolloutChange::Finished);
                    self.complete = Some(at);
                    self.truth.rollouts += 1;
                    self.rollout = None;
                }
            }
        }
        let now = self.now;
        self.listed.retain(|pod| pod.unlisted > now);
    }

    /// A new pod, which is ready that long after. Addresses come round, as they do with the usual address
    /// management of a node.
    fn add_pod(&mut self, at: MonoNs, ready_after: Duration) {
        let number = self.pods_made;
        self.pods_made += 1;
        let is_near = number.is_multiple_of(3);
        let last = 20 + (number % 200) as u8;
        let ready = at + ready_after + Duration::from_micros(100);
        let pod = Pod {
            name: format!("web-{number}"),
            address: Ipv4Addr::new(10, 100, if is_near { 1 } else { 2 }, last),
            device: 4 + number % 1000,
            is_near,
            listed: ready + Duration::from_micros(50),
            asked: MonoNs(u64::MAX),
            dead: MonoNs(u64::MAX),
            unlisted: MonoNs(u64::MAX),
        };
        self.tell_pod(&pod, at, PodChange::Added);
        self.tell_pod(&pod, ready, PodChange::Ready);
        self.tell_endpoint(
            &pod,
            ready + Duration::from_micros(30),
            EndpointChange::Listed { ready: true, serving: true, terminating: false },
        );
        self.listed.push(pod);
    }

    /// A pod without a preStop hook: it stops listening at once, its address is dead soon after, and the
    /// client's node sends it connects until it knows.
    fn ask_to_go(&mut self, name: &str, at: MonoNs) {
        let Some(index) = self.listed.iter().position(|pod| pod.name == name) else { return };
        let lag = Duration::from_millis(self.rng.random_range(200..1200));
        let pod = &mut self.listed[index];
        pod.asked = at;
        pod.dead = at + Duration::from_millis(30);
        pod.unlisted = at + lag;
        let pod = pod.clone();
        self.tell_pod(&pod, at, PodChange::Asked { grace: Duration::from_secs(30) });
        self.tell_endpoint(
            &pod,
            at + Duration::from_micros(20),
            EndpointChange::Listed { ready: false, serving: true, terminating: true },
        );
        let deleted = at + Duration::from_millis(120);
        self.tell_endpoint(&pod, deleted, EndpointChange::Removed);
        self.tell_pod(&pod, deleted + Duration::from_micros(10), PodChange::Deleted);
    }

    /// The next source port, as Linux chooses it for a connect: even ones, in order, and with some noise
    /// (`__inet_hash_connect`).
    fn next_port(&mut self) -> u16 {
        let step = if self.rng.random_range(0..16) == 0 { 4 } else { 2 };
        self.port = self.port.checked_add(step).filter(|port| *port <= PORTS.1).unwrap_or(PORTS.0);
        self.port
    }

    /// One request, from its start to its end.
    fn request(&mut self) {
        let port = self.next_port();
        let isn = self.rng.random();
        let start = self.now;
        let flow = Flow::new(self.truth.requests, port, isn, start);
        self.truth.requests += 1;
        let events = match self.stale.get(&port).filter(|entry| entry.expires > start) {
            Some(entry) => {
                let is_late = self.rollout.is_none()
                    && self.complete.is_some_and(|complete| complete + LATE_AFTER < start);
                if is_late {
                    self.truth.late += 1;
                } else {
                    self.truth.early += 1;
                }
                flow.unanswered(entry)
            }
            None => {
                // A SYN leaves some microseconds after its request began, and meets the pod as it is then.
                let syn = start + Flow::SYN_AFTER;
                let pod = self.choose();
                if syn < pod.asked {
                    let total = Duration::from_micros(self.rng.random_range(50_900..52_500));
                    flow.answered(pod.way(), &pod.name, total)
                } else if syn < pod.dead {
                    self.truth.refused += 1;
                    flow.refused(pod.way())
                } else {
                    self.truth.stale_rules += 1;
                    let entry = Entry::new(pod.backend(), syn);
                    let events = flow.unanswered(&entry);
                    self.stale.insert(port, entry);
                    events
                }
            }
        };
        for event in events {
            self.ordering.push(event);
        }
        // Once in a while, so that the map holds what lives and nothing else.
        if self.truth.requests.is_multiple_of(4096) {
            self.stale.retain(|_, entry| entry.expires > start);
        }
    }

    /// The pod that the client's rules choose: any that they name, at random (`statistic mode random`).
    fn choose(&mut self) -> Pod {
        let now = self.now.max(BEGAN + Duration::from_millis(1));
        let named: Vec<&Pod> = self.listed.iter().filter(|pod| pod.listed <= now).collect();
        named[self.rng.random_range(0..named.len())].clone()
    }

    fn tell_pod(&mut self, pod: &Pod, at: MonoNs, change: PodChange) {
        self.cluster(
            at,
            ClusterEvent::Pod {
                name: pod.name.clone(),
                app: "web".to_owned(),
                node: if pod.is_near { "n1" } else { "n2" }.to_owned(),
                address: Some(IpAddr::V4(pod.address)),
                change,
            },
        );
    }

    fn tell_endpoint(&mut self, pod: &Pod, at: MonoNs, change: EndpointChange) {
        let (service, frontend) = ("web".to_owned(), header::service());
        let backend = pod.backend();
        self.cluster(at, ClusterEvent::Endpoint { service, frontend, backend, change });
    }

    fn tell_rollout(&mut self, at: MonoNs, change: RolloutChange) {
        self.cluster(at, ClusterEvent::Rollout { deployment: "web".to_owned(), change });
    }

    fn cluster(&mut self, time: MonoNs, change: ClusterEvent) {
        self.ordering.push(Event { time, kind: EventKind::Cluster { change, since: time } });
    }
}
