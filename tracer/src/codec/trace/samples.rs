//! Events to test with: any there can be, and such as a traced node really has.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::model::*;

/// A header with something in every field.
pub(crate) fn header() -> TraceHeader {
    let netns = NetnsId(4_026_532_281);
    TraceHeader {
        tracer: "0.1.0".to_owned(),
        origin: Origin::Lab { command: "tracer lab --quick".to_owned(), seed: 7 },
        kernel: "6.18.0 x86_64".to_owned(),
        node: "node-1".to_owned(),
        hz: Some(250),
        began: MonoNs(1_000_000_000),
        anchor: ClockAnchor {
            mono: MonoNs(1_000_000_000),
            wall: WallNs(1_700_000_000_000_000_000),
            error_ns: 60,
        },
        hooks: vec![HookStatus {
            hook: Hook::KfreeSkb,
            attached: false,
            note: Some("no reasons on this kernel".to_owned()),
        }],
        netns: vec![Netns { id: netns, name: "client".to_owned(), role: NetnsRole::Client }],
        sysctls: vec![Sysctl {
            netns,
            name: "net.ipv4.ip_local_port_range".to_owned(),
            value: "32768 60999".to_owned(),
        }],
        services: vec!["10.96.0.1:80".parse().expect("an address")],
        drop_reasons: [(2, "NOT_SPECIFIED".to_owned())].into(),
        notes: vec!["timers were shortened".to_owned()],
    }
}

/// Any event.
pub(crate) fn any_event() -> impl Strategy<Value = Event> {
    (time(), kind()).prop_map(|(time, kind)| Event { time, kind })
}

fn time() -> impl Strategy<Value = MonoNs> {
    prop_oneof![(0..10_000_000_000_u64), any::<u64>()].prop_map(MonoNs)
}

fn kind() -> impl Strategy<Value = EventKind> {
    prop_oneof![
        // Boxed, for unboxed their size overflows the stack of a test's thread.
        packet().prop_map(EventKind::Packet),
        (any::<u32>(), tuple(), any::<u8>(), any::<u8>()).prop_map(|(netns, tuple, old, new)| {
            EventKind::TcpState(TcpStateEvent {
                netns: NetnsId(netns),
                tuple,
                old: SockState::from_number(old),
                new: SockState::from_number(new),
            })
        }),
        (cluster(), time()).prop_map(|(change, since)| EventKind::Cluster { change, since }),
        (any::<u64>(), any::<u32>()).prop_map(|(id, worker)| {
            EventKind::RequestStarted(RequestStarted { id: RequestId(id), worker })
        }),
        request_ended().prop_map(EventKind::RequestEnded),
        (any::<u32>(), any::<String>(), any::<String>()).prop_map(|(netns, name, value)| {
            EventKind::SysctlSet { netns: NetnsId(netns), name, value }
        }),
        (loss_source(), any::<u64>(), time()).prop_map(|(source, count, since)| EventKind::Lost {
            source,
            count,
            since
        }),
        intervention().prop_map(EventKind::Intervention),
        conntrack().prop_map(EventKind::Conntrack),
        Just(EventKind::Ended),
        connect().prop_map(EventKind::Connect),
        (any::<u64>(), any::<String>(), any::<Option<String>>(), any::<Option<String>>()).prop_map(
            |(cgroup, path, container, pod)| EventKind::Workload(Workload {
                cgroup,
                path,
                container,
                pod
            })
        ),
    ]
}

fn connect() -> impl Strategy<Value = ConnectEvent> {
    let end = (0..3_u8, any::<i32>()).prop_map(|(end, errno)| match end {
        0 => ConnectEnd::Established,
        1 => ConnectEnd::Failed { errno },
        _ => ConnectEnd::Reset { errno },
    });
    let by = (any::<u32>(), any::<String>(), any::<u64>())
        .prop_map(|(pid, name, cgroup)| Process { pid, name, cgroup });
    let started = proptest::option::of(time());
    (any::<u32>(), tuple(), started, end, proptest::option::of(by)).prop_map(
        |(netns, tuple, started, end, by)| ConnectEvent {
            netns: NetnsId(netns),
            tuple,
            started,
            end,
            by,
        },
    )
}

fn conntrack() -> impl Strategy<Value = ConntrackEvent> {
    let change = proptest::sample::select(vec![
        EntryChange::New,
        EntryChange::Updated,
        EntryChange::Destroyed,
        EntryChange::Deleted,
    ]);
    let state = proptest::option::of(any::<u8>().prop_map(CtState::from_number));
    let left = proptest::option::of(duration());
    (any::<u32>(), change, tuple(), tuple(), any::<u16>(), state, any::<bool>(), left).prop_map(
        |(netns, change, orig, reply, zone, state, unreplied, remaining)| ConntrackEvent {
            netns: NetnsId(netns),
            change,
            orig,
            reply,
            zone,
            state,
            unreplied,
            remaining,
        },
    )
}

fn intervention() -> impl Strategy<Value = Intervention> {
    let entry = (tuple(), address(), duration(), any::<bool>())
        .prop_map(|(orig, backend, left, treated)| FlushedEntry { orig, backend, left, treated });
    let netns = || any::<u32>().prop_map(NetnsId);
    prop_oneof![
        (netns(), proptest::collection::vec(entry, 0..4))
            .prop_map(|(netns, entries)| Intervention::Flush { netns, entries }),
        (netns(), duration(), duration())
            .prop_map(|(netns, before, after)| Intervention::Timeout { netns, before, after }),
        (netns(), any::<(u16, u16, bool)>()).prop_map(|(netns, (first, last, again))| {
            Intervention::Ports { netns, first, last, again }
        }),
    ]
}

/// An address without flow label and scope, as events have them.
fn address() -> impl Strategy<Value = SocketAddr> {
    any::<(IpAddr, u16)>().prop_map(SocketAddr::from)
}

fn tuple() -> impl Strategy<Value = Tuple> {
    (address(), address()).prop_map(|(src, dst)| Tuple { src, dst })
}

fn duration() -> impl Strategy<Value = Duration> {
    (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos))
}

fn hook() -> impl Strategy<Value = Hook> {
    prop_oneof![proptest::sample::select(&Hook::ALL[..]), Just(Hook::Capture)]
}

fn packet() -> BoxedStrategy<PacketEvent> {
    let segment = prop_oneof![
        (any::<u8>(), any::<u32>(), any::<u32>()).prop_map(|(flags, seq, ack)| Segment::Tcp {
            flags: TcpFlags(flags),
            seq,
            ack
        }),
        (any::<u8>(), any::<u8>(), any::<IpAddr>())
            .prop_map(|(kind, code, from)| Segment::IcmpError { kind, code, from }),
    ];
    let life = prop_oneof![
        duration().prop_map(EntryLife::Unconfirmed),
        duration().prop_map(EntryLife::Remaining),
        Just(EntryLife::Expired),
        Just(EntryLife::Unknown),
    ];
    let state = proptest::option::of(any::<u8>().prop_map(CtState::from_number));
    let lookup = (tuple(), tuple(), any::<u16>(), any::<u32>(), any::<u8>(), state, life)
        .prop_map(|(orig, reply, zone, status, ctinfo, state, life)| Lookup {
            orig,
            reply,
            zone,
            status: CtStatus(status),
            ctinfo: CtInfo(ctinfo),
            state,
            life,
        })
        .boxed();
    (
        hook(),
        any::<u32>(),
        any::<u32>(),
        tuple(),
        segment,
        proptest::option::of(lookup),
        proptest::option::of(any::<u32>()),
    )
        .prop_map(|(hook, netns, ifindex, tuple, segment, lookup, drop)| PacketEvent {
            hook,
            netns: NetnsId(netns),
            ifindex: IfIndex(ifindex),
            tuple,
            segment,
            lookup,
            drop: drop.map(DropReason),
        })
        .boxed()
}

fn cluster() -> BoxedStrategy<ClusterEvent> {
    let pod_change = prop_oneof![
        Just(PodChange::Added),
        Just(PodChange::Ready),
        Just(PodChange::NotReady),
        duration().prop_map(|grace| PodChange::Asked { grace }),
        Just(PodChange::Deleted),
        time().prop_map(|since| PodChange::Silent { since }),
    ];
    let endpoint_change = prop_oneof![
        any::<(bool, bool, bool)>().prop_map(|(ready, serving, terminating)| {
            EndpointChange::Listed { ready, serving, terminating }
        }),
        Just(EndpointChange::Removed),
    ];
    let text = any::<String>;
    prop_oneof![
        (text(), text(), text(), any::<Option<IpAddr>>(), pod_change).prop_map(
            |(name, app, node, address, change)| ClusterEvent::Pod {
                name,
                app,
                node,
                address,
                change
            }
        ),
        (text(), address(), address(), endpoint_change).prop_map(
            |(service, frontend, backend, change)| ClusterEvent::Endpoint {
                service,
                frontend,
                backend,
                change
            }
        ),
        (text(), any::<bool>()).prop_map(|(deployment, finished)| ClusterEvent::Rollout {
            deployment,
            change: if finished { RolloutChange::Finished } else { RolloutChange::Started },
        }),
    ]
    .boxed()
}

fn request_ended() -> BoxedStrategy<RequestEnded> {
    let outcome = prop_oneof![
        any::<u16>().prop_map(|status| Outcome::Answered { status }),
        (proptest::sample::select(&Symptom::ALL[..]), any::<Option<i32>>(), any::<Option<u16>>())
            .prop_map(|(symptom, errno, status)| Outcome::Failed { symptom, errno, status }),
    ];
    let reuse =
        prop_oneof![Just(Reuse::Fresh), any::<u32>().prop_map(|nth| Reuse::KeepAlive { nth })];
    (
        any::<u64>(),
        proptest::option::of(address()),
        proptest::option::of(address()),
        reuse,
        outcome,
        proptest::option::of(resolution()),
        proptest::option::of(duration()),
        (any::<u64>(), duration()),
        any::<Option<String>>(),
    )
        .prop_map(
            |(id, source, target, reuse, outcome, resolution, connect, (received, total), pod)| {
                RequestEnded {
                    id: RequestId(id),
                    source,
                    target,
                    reuse,
                    outcome,
                    resolution,
                    connect,
                    received,
                    total,
                    pod,
                }
            },
        )
        .boxed()
}

fn resolution() -> impl Strategy<Value = Resolution> {
    (duration(), proptest::option::of(proptest::sample::select(&NameError::ALL[..])))
        .prop_map(|(took, failed)| Resolution { took, failed })
}

fn loss_source() -> impl Strategy<Value = LossSource> {
    prop_oneof![
        hook().prop_map(LossSource::Ring),
        Just(LossSource::Codec),
        Just(LossSource::Ordering),
        Just(LossSource::Requests),
        Just(LossSource::Cluster),
        Just(LossSource::TraceFile),
        Just(LossSource::Capture),
        Just(LossSource::Window),
    ]
}

/// What a node sees of requests through a Service, one every `gap` on average: each a start, the socket's
/// changes, the SYN and the SYN-ACK on the ways before and after NAT, and an end. Ports, sequence numbers,
/// delays and backends vary as they do on a real node.
pub(crate) fn realistic(seed: u64, requests: u64, gap: Duration) -> Vec<Event> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let service = SocketAddr::from(([10, 96, 12, 7], 80));
    let client = IpAddr::from(Ipv4Addr::new(10, 244, 1, 5));
    let (client_ns, node_ns) = (NetnsId(4_026_532_281), NetnsId(4_026_531_840));
    let mut events = Vec::new();
    let mut start = 5_000_000_000_u64;
    let mut port = 32_768_u16;
    for id in 0..requests {
        start += rng.random_range(0..=2 * gap.as_nanos() as u64);
        port += 2 * rng.random_range(1..=8_u16);
        if port > 60_999 {
            port = 32_768;
        }
        let src = SocketAddr::new(client, port);
        let pod = rng.random_range(0..3_u8);
        let backend = SocketAddr::from(([10, 244, 2, 10 + pod], 8080));
        let (isn, answer_isn) = (rng.random::<u32>(), rng.random::<u32>());
        let asked = Tuple::new(src, service);
        let sent = Tuple::new(src, backend);
        let lookup = |status, ctinfo, state, life| {
            Some(Lookup {
                orig: asked,
                reply: sent.reversed(),
                zone: 0,
                status: CtStatus(status),
                ctinfo: CtInfo(ctinfo),
                state: Some(state),
                life,
            })
        };
        let mut time = start;
        let mut push = |rng: &mut ChaCha8Rng, kind, after_us: u64| {
            time += rng.random_range(after_us * 500..=after_us * 2_000);
            events.push(Event { time: MonoNs(time), kind });
        };
        let packet = |netns, ifindex, tuple, flags, seq, ack, lookup| {
            EventKind::Packet(PacketEvent {
                hook: Hook::NetDevStartXmit,
                netns,
                ifindex: IfIndex(ifindex),
                tuple,
                segment: Segment::Tcp { flags: TcpFlags(flags), seq, ack },
                lookup,
                drop: None,
            })
        };
        let state = |old, new| {
            EventKind::TcpState(TcpStateEvent { netns: client_ns, tuple: asked, old, new })
        };
        let worker = rng.random_range(0..10);
        push(&mut rng, EventKind::RequestStarted(RequestStarted { id: RequestId(id), worker }), 1);
        push(&mut rng, state(SockState::Close, SockState::SynSent), 20);
        push(&mut rng, packet(client_ns, 2, asked, TcpFlags::SYN, isn, 0, None), 3);
        let fresh = EntryLife::Unconfirmed(Duration::from_secs(120));
        let new = lookup(CtStatus::DST_NAT | 1 << 8, CtInfo::NEW, CtState::SynSent, fresh);
        push(&mut rng, packet(node_ns, 4, sent, TcpFlags::SYN, isn, 0, new), 9);
        let flags = TcpFlags::SYN | TcpFlags::ACK;
        let ack = isn.wrapping_add(1);
        let confirmed = CtStatus::DST_NAT | CtStatus::CONFIRMED | CtStatus::SEEN_REPLY | 1 << 8;
        let life =
            EntryLife::Remaining(Duration::from_millis(4 * rng.random_range(14_999..=15_000)));
        let reply = lookup(confirmed, CtInfo::IS_REPLY, CtState::SynRecv, life);
        push(&mut rng, packet(node_ns, 7, asked.reversed(), flags, answer_isn, ack, reply), 60);
        push(&mut rng, state(SockState::SynSent, SockState::Established), 7);
        let total = Duration::from_nanos(rng.random_range(50_900_000..52_500_000));
        time = start;
        events.push(Event {
            time: MonoNs(time) + total,
            kind: EventKind::RequestEnded(RequestEnded {
                id: RequestId(id),
                source: Some(src),
                target: Some(service),
                reuse: Reuse::Fresh,
                outcome: Outcome::Answered { status: 200 },
                resolution: None,
                connect: Some(Duration::from_nanos(rng.random_range(100_000..900_000))),
                received: 187,
                total,
                pod: Some(format!("web-7c5ddbdf54-x{pod}k2p")),
            }),
        });
    }
    events.sort_by_key(|event| event.time);
    events
}

/// Each kind of event once, and every variant that one can have.
pub(crate) fn each_kind() -> Vec<Event> {
    let v4: SocketAddr = "10.96.0.1:80".parse().expect("an address");
    let v6: SocketAddr = "[fd00::5]:40002".parse().expect("an address");
    let netns = NetnsId(4_026_532_281);
    let lookup = |state, life| Lookup {
        orig: Tuple::new(v6, v4),
        reply: Tuple::new(v4, v6),
        zone: 3,
        status: CtStatus(CtStatus::DST_NAT),
        ctinfo: CtInfo(CtInfo::NEW),
        state,
        life,
    };
    let tcp = Segment::Tcp { flags: TcpFlags(TcpFlags::SYN), seq: u32::MAX, ack: 0 };
    let icmp = Segment::IcmpError { kind: 3, code: 1, from: v6.ip() };
    let second = Duration::from_secs(1);
    let packet = |hook, segment, lookup, drop: Option<u32>| {
        EventKind::Packet(PacketEvent {
            hook,
            netns,
            ifindex: IfIndex(2),
            tuple: Tuple::new(v6, v4),
            segment,
            lookup,
            drop: drop.map(DropReason),
        })
    };
    let ended = |reuse, outcome, connect: Option<Duration>, pod: Option<&str>| {
        EventKind::RequestEnded(RequestEnded {
            id: RequestId(9),
            source: connect.map(|_| v6),
            target: Some(v4),
            reuse,
            outcome,
            resolution: None,
            connect,
            received: 187,
            total: 3 * second,
            pod: pod.map(str::to_owned),
        })
    };
    let cluster = |change| EventKind::Cluster { change, since: MonoNs(1_000_000_000) };
    let pod = |change, address| {
        cluster(ClusterEvent::Pod {
            name: "web-a".to_owned(),
            app: "web".to_owned(),
            node: "node-1".to_owned(),
            address,
            change,
        })
    };
    let endpoint = |change| {
        cluster(ClusterEvent::Endpoint {
            service: "web".to_owned(),
            frontend: v4,
            backend: v6,
            change,
        })
    };
    let rollout = |change| cluster(ClusterEvent::Rollout { deployment: "web".to_owned(), change });
    let lost = |source| EventKind::Lost { source, count: 7, since: MonoNs(1) };
    let mut kinds = vec![
        EventKind::RequestStarted(RequestStarted { id: RequestId(9), worker: 1 }),
        packet(Hook::ALL[0], icmp, None, Some(2)),
        packet(Hook::ALL[0], tcp, Some(lookup(None, EntryLife::Unconfirmed(second))), None),
        packet(Hook::ALL[0], tcp, Some(lookup(None, EntryLife::Remaining(second))), None),
        packet(Hook::ALL[0], tcp, Some(lookup(None, EntryLife::Expired)), None),
        packet(Hook::ALL[0], tcp, Some(lookup(None, EntryLife::Unknown)), None),
        ended(Reuse::Fresh, Outcome::Answered { status: 200 }, Some(second), Some("web-a")),
        ended(Reuse::KeepAlive { nth: 4 }, Outcome::Answered { status: 404 }, None, None),
        pod(PodChange::Added, Some(v6.ip())),
        pod(PodChange::Ready, Some(v4.ip())),
        pod(PodChange::NotReady, None),
        pod(PodChange::Asked { grace: 30 * second }, None),
        pod(PodChange::Deleted, None),
        pod(PodChange::Silent { since: MonoNs(1) }, Some(v4.ip())),
        endpoint(EndpointChange::Listed { ready: true, serving: true, terminating: false }),
        endpoint(EndpointChange::Removed),
        rollout(RolloutChange::Started),
        rollout(RolloutChange::Finished),
        EventKind::SysctlSet { netns, name: "a.b".to_owned(), value: "1".to_owned() },
        lost(LossSource::Codec),
        lost(LossSource::Ordering),
        lost(LossSource::Requests),
        lost(LossSource::Cluster),
        lost(LossSource::Capture),
        lost(LossSource::Window),
        packet(Hook::Capture, tcp, Some(lookup(None, EntryLife::Remaining(second))), None),
    ];
    for hook in Hook::ALL {
        kinds.push(packet(hook, tcp, None, None));
        kinds.push(lost(LossSource::Ring(hook)));
    }
    for number in 0..=12 {
        let state = CtState::from_number(number);
        kinds.push(packet(Hook::ALL[0], tcp, Some(lookup(Some(state), EntryLife::Unknown)), None));
        kinds.push(EventKind::TcpState(TcpStateEvent {
            netns,
            tuple: Tuple::new(v6, v4),
            old: SockState::from_number(number),
            new: SockState::from_number(number + 1),
        }));
    }
    for symptom in Symptom::ALL {
        let outcome = Outcome::Failed { symptom, errno: Some(111), status: Some(503) };
        kinds.push(ended(Reuse::Fresh, outcome, None, None));
    }
    for failed in NameError::ALL.map(Some).into_iter().chain([None]) {
        let resolution = Some(Resolution { took: second, failed });
        let outcome = Outcome::Failed { symptom: Symptom::Local, errno: None, status: None };
        let mut kind = ended(Reuse::Fresh, outcome, None, None);
        if let EventKind::RequestEnded(ended) = &mut kind {
            ended.resolution = resolution;
            ended.target = failed.map_or(Some(v4), |_| None);
        }
        kinds.push(kind);
    }
    let [orig, reply] = [Tuple::new(v6, v4), Tuple::new(v4, v6)];
    let flushed = |treated| FlushedEntry { orig, backend: v4, left: 7 * second, treated };
    let entries = vec![flushed(true), flushed(false)];
    kinds.push(EventKind::Intervention(Intervention::Flush { netns, entries }));
    let (before, after) = (120 * second, 20 * second);
    kinds.push(EventKind::Intervention(Intervention::Timeout { netns, before, after }));
    let ports = |again| Intervention::Ports { netns, first: 1_024, last: 32_767, again };
    kinds.extend([false, true].map(ports).map(EventKind::Intervention));
    for change in
        [EntryChange::New, EntryChange::Updated, EntryChange::Destroyed, EntryChange::Deleted]
    {
        let is_new = change == EntryChange::New;
        kinds.push(EventKind::Conntrack(ConntrackEvent {
            netns,
            change,
            orig,
            reply,
            zone: 3,
            state: is_new.then_some(CtState::SynSent),
            unreplied: is_new,
            remaining: is_new.then_some(120 * second),
        }));
    }
    kinds.push(EventKind::Ended);
    let by = Process { pid: 4711, name: "curl".to_owned(), cgroup: 77 };
    for (end, started, by) in [
        (ConnectEnd::Established, Some(MonoNs(1)), Some(by)),
        (ConnectEnd::Failed { errno: 110 }, Some(MonoNs(1)), None),
        (ConnectEnd::Reset { errno: 104 }, None, None),
    ] {
        kinds.push(EventKind::Connect(ConnectEvent { netns, tuple: orig, started, end, by }));
    }
    kinds.push(EventKind::Workload(Workload {
        cgroup: 77,
        path: "/kubepods/besteffort/pod1/2".to_owned(),
        container: Some("2".to_owned()),
        pod: Some("shop/client".to_owned()),
    }));
    kinds
        .into_iter()
        .enumerate()
        .map(|(number, kind)| Event { time: MonoNs(2_000_000_000 - 7 * number as u64), kind })
        .collect()
}
