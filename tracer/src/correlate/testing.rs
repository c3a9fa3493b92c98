//! Test support: a small readable trace, one thing a line, turned into events. Times count from the trace's
//! beginning. Lines may stand in any order; events are sorted by time.
//!
//! ```text
//! ipv6                                        the client and the Service have IPv6 addresses
//! no roles | no hook | no pods …              changes of the header, see `Scene::option`
//! 1s    pod a 10.0.1.7 added                  added, ready, asked, deleted; on n2, of web
//! 5s    rollout started
//! 0s    load until 40s to b                   a request each second, answered at once by pod b
//! 10s   connect 40002 isn 1 to a              a request: SYN, SYN-ACK, answered after 50 ms
//! 10s   blackhole 40002 isn 1 left 120s to a  a request with three SYNs and no answer, over after 3 s
//! 10s   syn 40002 isn 1 left 120s to a        a single packet; also `unconfirmed`, `left ?`, `replied STATE`
//! 10s   request 7 40002 connect-timeout 3s    a request that starts then and takes that long; on a kept
//!                                             connection `nth 4`, after a question for its name `name 2s`,
//!                                             or `name 3s unanswered`; `received 9` bytes of an answer
//! 10s   connect 40002 isn 1 to a keep         a request that makes a connection which stays for more
//! 10s   socket 40002 3s fails 110              a connect of curl that took 3 s; or `connects`, `is-reset`
//! 20s   flush 40000+ 40002-                   stale entries, deleted or left, with 100 s to live
//! 20s   timeout 120s 10s                      the SYN_SENT timer is changed on purpose
//! ```

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::{Correlator, SYN_SENT, Timeline};
use crate::model::{
    ClockAnchor, ClusterEvent, ConnectEnd, ConnectEvent, CtInfo, CtState, CtStatus, DropReason,
    EndpointChange, EntryLife, Event, EventKind, FlushedEntry, Hook, HookStatus, IfIndex,
    Intervention, Lookup, LossSource, MonoNs, NameError, Netns, NetnsId, NetnsRole, Origin,
    Outcome, PacketEvent, PodChange, Process, RequestEnded, RequestId, RequestStarted, Resolution,
    Reuse, RolloutChange, Segment, Seq, SockState, Symptom, Sysctl, TcpFlags, TcpStateEvent,
    TraceHeader, Tuple, WallNs,
};

/// The client's node, the other node, the client's pod, pod b, and a router between the nodes, as namespaces.
pub(crate) const CLIENT_NODE: NetnsId = NetnsId(1);
const OTHER_NODE: NetnsId = NetnsId(2);
const CLIENT: NetnsId = NetnsId(3);
const POD: NetnsId = NetnsId(4);
const ROUTER: NetnsId = NetnsId(5);
const BEGAN: MonoNs = MonoNs(1_000_000_000_000);

/// A trace in memory.
pub(crate) struct Scene {
    pub(crate) header: TraceHeader,
    pub(crate) events: Vec<Event>,
    pods: HashMap<String, IpAddr>,
    client: IpAddr,
    service: SocketAddr,
    next_request: u64,
}

/// Reads a scene.
///
/// # Panics
/// If a line can't be read: the test is wrong.
pub(crate) fn scene(text: &str) -> Scene {
    let mut scene = Scene::new();
    let lines =
        || text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    // Pods first: other lines name them.
    for line in lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [_, "pod", name, address, ..] = words[..]
            && address != "-"
        {
            let address = address.parse().unwrap_or_else(|_| panic!("address in {line:?}"));
            scene.pods.insert(name.to_owned(), address);
        }
        if words == ["ipv6"] {
            scene.client = "fd00::5".parse().expect("an address");
            scene.service = "[fd00:96::1]:80".parse().expect("an address");
            scene.header.services = vec![scene.service];
        }
    }
    for line in lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words[0].starts_with(|first: char| first.is_ascii_digit()) {
            scene.event(BEGAN + duration(words[0]), &words[1..], line);
        } else {
            scene.option(&words, line);
        }
    }
    scene.events.sort_by_key(|event| event.time);
    scene
}

/// The timeline of a scene.
pub(crate) fn timeline(scene: &Scene) -> Timeline {
    let mut correlator = Correlator::new(&scene.header);
    for (seq, event) in scene.events.iter().enumerate() {
        correlator.apply(Seq(seq as u64), event);
    }
    correlator.finish()
}

impl Scene {
    fn new() -> Scene {
        let netns = |id, name: &str, role| Netns { id, name: name.to_owned(), role };
        let service = "10.96.0.1:80".parse().expect("an address");
        Scene {
            header: TraceHeader {
                tracer: "0.1.0".to_owned(),
                origin: Origin::Record { command: "tracer record".to_owned() },
                kernel: "6.18.0 x86_64".to_owned(),
                node: "host".to_owned(),
                hz: Some(250),
                began: BEGAN,
                anchor: ClockAnchor { mono: BEGAN, wall: WallNs(0), error_ns: 1000 },
                hooks: Hook::ALL
                    .iter()
                    .map(|&hook| HookStatus { hook, attached: true, note: None })
                    .collect(),
                netns: vec![
                    netns(CLIENT_NODE, "n1", NetnsRole::ClientNode),
                    netns(OTHER_NODE, "n2", NetnsRole::Node),
                    netns(CLIENT, "client", NetnsRole::Client),
                    netns(POD, "b", NetnsRole::Other),
                    netns(ROUTER, "router", NetnsRole::Other),
                ],
                sysctls: vec![Sysctl {
                    netns: CLIENT_NODE,
                    name: SYN_SENT.to_owned(),
                    value: "120".to_owned(),
                }],
                services: vec![service],
                drop_reasons: BTreeMap::from([(7, "NETFILTER_DROP".to_owned())]),
                notes: Vec::new(),
            },
            events: Vec::new(),
            pods: HashMap::new(),
            client: "10.0.0.5".parse().expect("an address"),
            service,
            next_request: 1000,
        }
    }

    fn option(&mut self, words: &[&str], line: &str) {
        match words {
            ["ipv6"] => {}
            ["no", "roles"] => self.header.netns.clear(),
            ["no", "timer"] => self.header.sysctls.clear(),
            ["no", "hook"] => self.header.hooks.clear(),
            ["timer", value] => (*value).clone_into(&mut self.header.sysctls[0].value),
            _ => panic!("can't read {line:?}"),
        }
    }

    fn event(&mut self, at: MonoNs, words: &[&str], line: &str) {
        let bad = || -> ! { panic!("can't read {line:?}") };
        match words {
            ["pod", name, address, change, rest @ ..] => {
                let change = match *change {
                    "added" => PodChange::Added,
                    "ready" => PodChange::Ready,
                    "asked" => PodChange::Asked { grace: Duration::from_secs(30) },
                    "deleted" => PodChange::Deleted,
                    _ => bad(),
                };
                let word = |name| {
                    rest.iter().position(|word| *word == name).map(|at| rest[at + 1].to_owned())
                };
                self.cluster(
                    at,
                    ClusterEvent::Pod {
                        name: (*name).to_owned(),
                        app: word("of").unwrap_or("web".to_owned()),
                        node: word("on").unwrap_or("n2".to_owned()),
                        address: address.parse().ok(),
                        change,
                    },
                );
            }
            ["rollout", change, rest @ ..] => self.cluster(
                at,
                ClusterEvent::Rollout {
                    deployment: rest.first().unwrap_or(&"web").to_string(),
                    change: match *change {
                        "started" => RolloutChange::Started,
                        "finished" => RolloutChange::Finished,
                        _ => bad(),
                    },
                },
            ),
            ["endpoint", pod, change] => {
                let ready = *change == "ready";
                let event = ClusterEvent::Endpoint {
                    service: "web".to_owned(),
                    frontend: self.service,
                    backend: self.backend(pod),
                    change: match *change {
                        "removed" => EndpointChange::Removed,
                        _ => EndpointChange::Listed { ready, serving: ready, terminating: !ready },
                    },
                };
                self.cluster(at, event);
            }
            ["lost", count, what, "since", since] => {
                let source = match *what {
                    "xmit" => LossSource::Ring(Hook::NetDevStartXmit),
                    "state" => LossSource::Ring(Hook::InetSockSetState),
                    "requests" => LossSource::Requests,
                    "cluster" => LossSource::Cluster,
                    "ordering" => LossSource::Ordering,
                    _ => bad(),
                };
                let since = BEGAN + duration(since);
                self.push(at, EventKind::Lost { source, count: number(count), since });
            }
            ["sysctl", value] => self.push(
                at,
                EventKind::SysctlSet {
                    netns: CLIENT_NODE,
                    name: SYN_SENT.to_owned(),
                    value: (*value).to_owned(),
                },
            ),
            ["flush", ports @ ..] => {
                let entries = ports.iter().map(|port| {
                    let treated = port.ends_with('+');
                    let source = self.source(port.trim_end_matches(['+', '-']));
                    FlushedEntry {
                        orig: Tuple::new(source, self.service),
                        backend: self.service,
                        left: Duration::from_secs(100),
                        treated,
                    }
                });
                let entries = entries.collect();
                let what = Intervention::Flush { netns: CLIENT_NODE, entries };
                self.push(at, EventKind::Intervention(what));
            }
            ["timeout", before, after] => {
                let (before, after) = (duration(before), duration(after));
                let what = Intervention::Timeout { netns: CLIENT_NODE, before, after };
                self.push(at, EventKind::Intervention(what));
            }
            ["ports", first, last, order] => {
                let (first, last) = (number(first) as u16, number(last) as u16);
                let what =
                    Intervention::Ports { netns: CLIENT, first, last, again: *order == "again" };
                self.push(at, EventKind::Intervention(what));
            }
            ["load", "until", until, "to", pod] => {
                let end = BEGAN + duration(until);
                let mut time = at;
                let mut port = 50_000 + (at.0 / 1_000_000_000 % 1000) as u32 * 2;
                while time < end {
                    let (port_text, isn) = (port.to_string(), port.to_string());
                    self.event(time, &["connect", &port_text, "isn", &isn, "to", pod], line);
                    time = time + Duration::from_secs(1);
                    port += 2;
                }
            }
            ["connect", port, "isn", isn, "to", pod, rest @ ..] => {
                let nth = if *rest == ["keep"] { &["nth", "0"][..] } else { rest };
                self.request(at, None, port, "ok", ms(50), nth);
                self.syn(at + ms(1), port, isn, &["left", "120s", "to", pod], line);
                self.answer(at + ms(2), port, isn, pod, CLIENT_NODE);
            }
            ["blackhole", port, "isn", isn, "left", left, "to", pod, rest @ ..] => {
                let id =
                    rest.iter().position(|word| *word == "request").map(|at| number(rest[at + 1]));
                self.request(at, id, port, "connect-timeout", Duration::from_secs(3), &[]);
                for second in 0..3 {
                    let after = Duration::from_secs(second) + ms(1);
                    let left = duration(left).saturating_sub(Duration::from_secs(second));
                    let left = format!("{}ms", left.as_millis());
                    self.syn(at + after, port, isn, &["left", &left, "to", pod], line);
                }
            }
            ["request", id, port, outcome, total, rest @ ..] => {
                self.request(at, Some(number(id)), port, outcome, duration(total), rest);
            }
            ["end", id, port, outcome, total] => {
                let kind = self.ended(number(id), port, outcome, duration(total), &[]);
                self.push(at, kind);
            }
            ["syn", port, "isn", isn, rest @ ..] => self.syn(at, port, isn, rest, line),
            ["hop", port, "isn", isn, "to", pod] => {
                let tuple = Tuple::new(self.source(port), self.backend(pod));
                let lookup = lookup(tuple, tuple.reversed(), life("120s"), CtState::SynSent);
                self.packet(at, OTHER_NODE, tuple, (TcpFlags::SYN, number(isn), 0), Some(lookup));
            }
            ["synack", port, "isn", isn, "from", pod] => {
                self.answer(at, port, isn, pod, CLIENT_NODE);
            }
            ["synack", port, "isn", isn, "from", pod, "at-pod"] => {
                self.answer(at, port, isn, pod, OTHER_NODE);
            }
            ["rst", port, "isn", isn, "from", pod] => {
                let orig = Tuple::new(self.source(port), self.service);
                let reply = Tuple::new(self.backend(pod), orig.src);
                let mut lookup = lookup(orig, reply, life("119s"), CtState::SynSent);
                lookup.ctinfo = CtInfo(CtInfo::IS_REPLY);
                let ack = number(isn) + 1;
                let flags = TcpFlags::RST | TcpFlags::ACK;
                self.packet(at, CLIENT_NODE, orig.reversed(), (flags, 0, ack), Some(lookup));
            }
            ["client-rst", port, "to", pod] => {
                let orig = Tuple::new(self.source(port), self.service);
                let reply = Tuple::new(self.backend(pod), orig.src);
                let lookup = lookup(orig, reply, life("10s"), CtState::Close);
                let tuple = reply.reversed();
                self.packet(at, CLIENT_NODE, tuple, (TcpFlags::RST, 0, 0), Some(lookup));
            }
            ["send-reset", port, "isn", isn, "by", pod] => {
                let tuple = Tuple::new(self.source(port), self.backend(pod));
                self.packet(at, POD, tuple, (TcpFlags::SYN, number(isn), 0), None);
                self.hook(Hook::TcpSendReset);
            }
            ["recv-reset", port] => {
                let tuple = Tuple::new(self.source(port), self.service);
                self.packet(at, CLIENT, tuple, (TcpFlags::RST, 0, 0), None);
                self.hook(Hook::TcpReceiveReset);
            }
            ["icmp", port, kind, code, "from", from, "to", pod] => {
                let to = if *pod == "service" { self.service } else { self.backend(pod) };
                let tuple = Tuple::new(self.source(port), to);
                let segment = Segment::IcmpError {
                    kind: number(kind) as u8,
                    code: number(code) as u8,
                    from: from.parse().unwrap_or_else(|_| bad()),
                };
                self.packet(at, CLIENT_NODE, tuple, (0, 0, 0), None);
                self.segment(segment);
            }
            ["drop", port, "isn", isn, "at", place, rest @ ..] => {
                let netns = match *place {
                    "node" => CLIENT_NODE,
                    "pod" => POD,
                    "router" => ROUTER,
                    _ => bad(),
                };
                let orig = Tuple::new(self.source(port), self.service);
                let lookup = match rest {
                    ["to", pod] => {
                        let reply = Tuple::new(self.backend(pod), orig.src);
                        Some(lookup(orig, reply, life("unconfirmed"), CtState::None))
                    }
                    _ => None,
                };
                self.packet(at, netns, orig, (TcpFlags::SYN, number(isn), 0), lookup);
                self.hook(Hook::KfreeSkb);
                self.reason(DropReason(7));
            }
            ["socket", port, took, end @ ..] => {
                let end = match end {
                    ["connects"] => ConnectEnd::Established,
                    ["fails", errno] => ConnectEnd::Failed { errno: number(errno) as i32 },
                    ["is-reset"] => ConnectEnd::Reset { errno: 104 },
                    _ => bad(),
                };
                let connect = ConnectEvent {
                    netns: CLIENT,
                    tuple: Tuple::new(self.source(port), self.service),
                    started: Some(at - duration(took)),
                    end,
                    by: Some(Process { pid: 7, name: "curl".to_owned(), cgroup: 3 }),
                };
                self.push(at, EventKind::Connect(connect));
            }
            ["state", port, old, new] => {
                let state = |name: &str| match name {
                    "syn-sent" => SockState::SynSent,
                    "established" => SockState::Established,
                    "fin-wait" => SockState::FinWait1,
                    "close-wait" => SockState::CloseWait,
                    "close" => SockState::Close,
                    _ => bad(),
                };
                let tuple = Tuple::new(self.source(port), self.service);
                let (old, new) = (state(old), state(new));
                self.push(
                    at,
                    EventKind::TcpState(TcpStateEvent { netns: CLIENT, tuple, old, new }),
                );
            }
            _ => bad(),
        }
    }

    fn syn(&mut self, at: MonoNs, port: &str, isn: &str, rest: &[&str], line: &str) {
        let orig = Tuple::new(self.source(port), self.service);
        let word = |name: &str| {
            rest.iter().position(|word| *word == name).and_then(|at| rest.get(at + 1)).copied()
        };
        let backend = match word("to") {
            Some("service") => self.service,
            Some(pod) => self.backend(pod),
            None => panic!("where to in {line:?}"),
        };
        let reply =
            Tuple::new(backend, word("masquerade").map_or(orig.src, |it| address(it, line)));
        let life = word("left").map_or(EntryLife::Unconfirmed(Duration::from_secs(120)), life);
        let mut lookup = lookup(orig, reply, life, CtState::SynSent);
        if let Some(state) = word("replied") {
            lookup.status = CtStatus(lookup.status.0 | CtStatus::SEEN_REPLY);
            lookup.ctinfo = CtInfo(CtInfo::ESTABLISHED);
            lookup.state = Some(match state {
                "ESTABLISHED" => CtState::Established,
                "FIN_WAIT" => CtState::FinWait,
                "CLOSE" => CtState::Close,
                _ => panic!("state in {line:?}"),
            });
        }
        let netns = word("in").map_or(CLIENT_NODE, |it| NetnsId(number(it) as u32));
        let tuple = Tuple::new(reply.dst, backend);
        self.packet(at, netns, tuple, (TcpFlags::SYN, number(isn), 0), Some(lookup));
    }

    fn answer(&mut self, at: MonoNs, port: &str, isn: &str, pod: &str, netns: NetnsId) {
        let orig = Tuple::new(self.source(port), self.service);
        let backend = self.backend(pod);
        let flags = TcpFlags::SYN | TcpFlags::ACK;
        let segment = (flags, 1, number(isn) + 1);
        let reply = Tuple::new(backend, orig.src);
        let (orig, tuple) =
            if netns == CLIENT_NODE { (orig, orig.reversed()) } else { (reply.reversed(), reply) };
        let mut lookup = lookup(orig, reply, life("60s"), CtState::SynRecv);
        lookup.ctinfo = CtInfo(CtInfo::IS_REPLY);
        lookup.status = CtStatus(lookup.status.0 | CtStatus::SEEN_REPLY);
        self.packet(at, netns, tuple, segment, Some(lookup));
    }

    fn request(
        &mut self,
        at: MonoNs,
        id: Option<u64>,
        port: &str,
        outcome: &str,
        total: Duration,
        more: &[&str],
    ) {
        let id = id.unwrap_or_else(|| {
            self.next_request += 1;
            self.next_request
        });
        let started = RequestStarted { id: RequestId(id), worker: 0 };
        self.push(at, EventKind::RequestStarted(started));
        let kind = self.ended(id, port, outcome, total, more);
        self.push(at + total, kind);
    }

    fn ended(
        &self,
        id: u64,
        port: &str,
        outcome: &str,
        total: Duration,
        more: &[&str],
    ) -> EventKind {
        let word = |name: &str, nth: usize| {
            more.iter().position(|it| *it == name).and_then(|at| more.get(at + nth))
        };
        let resolution = word("name", 1).map(|took| Resolution {
            took: duration(took),
            failed: word("name", 2)
                .and_then(|name| NameError::ALL.into_iter().find(|error| error.name() == *name)),
        });
        let outcome = match Symptom::ALL.into_iter().find(|symptom| symptom.name() == outcome) {
            Some(symptom) => Outcome::Failed { symptom, errno: None, status: None },
            None if outcome == "ok" => Outcome::Answered { status: 200 },
            None => panic!("no outcome {outcome:?}"),
        };
        EventKind::RequestEnded(RequestEnded {
            id: RequestId(id),
            source: (port != "-").then(|| self.source(port)),
            target: resolution.is_none_or(|it| it.failed.is_none()).then_some(self.service),
            reuse: word("nth", 1)
                .map_or(Reuse::Fresh, |nth| Reuse::KeepAlive { nth: number(nth) as u32 }),
            outcome,
            resolution,
            connect: None,
            received: word("received", 1).map_or(0, |bytes| number(bytes)),
            total,
            pod: None,
        })
    }

    fn packet(
        &mut self,
        at: MonoNs,
        netns: NetnsId,
        tuple: Tuple,
        (flags, seq, ack): (u8, u64, u64),
        lookup: Option<Lookup>,
    ) {
        let packet = PacketEvent {
            hook: Hook::NetDevStartXmit,
            netns,
            ifindex: IfIndex(1),
            tuple,
            segment: Segment::Tcp { flags: TcpFlags(flags), seq: seq as u32, ack: ack as u32 },
            lookup,
            drop: None,
        };
        self.push(at, EventKind::Packet(packet));
    }

    fn last_packet(&mut self) -> &mut PacketEvent {
        match self.events.last_mut().map(|event| &mut event.kind) {
            Some(EventKind::Packet(packet)) => packet,
            _ => panic!("the last event is no packet"),
        }
    }

    fn hook(&mut self, hook: Hook) {
        self.last_packet().hook = hook;
    }

    fn segment(&mut self, segment: Segment) {
        self.last_packet().segment = segment;
    }

    fn reason(&mut self, reason: DropReason) {
        self.last_packet().drop = Some(reason);
    }

    fn cluster(&mut self, at: MonoNs, change: ClusterEvent) {
        self.push(at, EventKind::Cluster { change, since: at });
    }

    fn push(&mut self, time: MonoNs, kind: EventKind) {
        self.events.push(Event { time, kind });
    }

    fn source(&self, port: &str) -> SocketAddr {
        SocketAddr::new(self.client, number(port) as u16)
    }

    fn backend(&self, pod: &str) -> SocketAddr {
        let address = self.pods.get(pod).copied().or_else(|| pod.parse().ok());
        SocketAddr::new(address.unwrap_or_else(|| panic!("no pod {pod:?}")), 8080)
    }
}

fn lookup(orig: Tuple, reply: Tuple, life: EntryLife, state: CtState) -> Lookup {
    let confirmed = !matches!(life, EntryLife::Unconfirmed(_));
    Lookup {
        orig,
        reply,
        zone: 0,
        status: CtStatus(if confirmed { CtStatus::CONFIRMED } else { 0 } | CtStatus::DST_NAT),
        ctinfo: CtInfo(CtInfo::NEW),
        state: Some(state),
        life,
    }
}

fn life(text: &str) -> EntryLife {
    match text {
        "?" => EntryLife::Unknown,
        "unconfirmed" => EntryLife::Unconfirmed(Duration::from_secs(120)),
        "expired" => EntryLife::Expired,
        _ => EntryLife::Remaining(duration(text)),
    }
}

fn duration(text: &str) -> Duration {
    let seconds = match text.strip_suffix("ms") {
        Some(millis) => millis.parse().map(|millis: f64| millis / 1e3),
        None => text.strip_suffix('s').unwrap_or(text).parse(),
    };
    // Whole microseconds, so that sums of readable times are what they look like.
    let micros = seconds.unwrap_or_else(|_| panic!("no duration {text:?}")) * 1e6;
    Duration::from_micros(micros.round() as u64)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("no number {text:?}"))
}

fn address(text: &str, line: &str) -> SocketAddr {
    text.parse().unwrap_or_else(|_| panic!("address in {line:?}"))
}

/// A rollout in which pod `a` goes and `b` stays, with a connect each second to `b`, and room for more.
pub(crate) fn rollout(more: &str) -> String {
    format!(
        "0s     pod a 10.0.1.7 added
         0s     pod b 10.0.1.8 added
         0s     load until 150s to b
         5s     rollout started
         9.9s   connect 40000 isn 9 to a
         10s    pod a 10.0.1.7 asked
         10.9s  pod a 10.0.1.7 deleted
         12s    rollout finished
         {more}"
    )
}
