//! Random events: nothing panics, and the counts add up.

use std::net::SocketAddr;
use std::time::Duration;

use proptest::prelude::*;

use crate::correlate::Correlator;
use crate::correlate::testing::scene;
use crate::model::*;
use crate::report::{html, view};
use crate::verdict::{Settings, assess};

const SERVICE: &str = "10.96.0.1:80";

fn client(port: u16) -> SocketAddr {
    SocketAddr::new("10.0.0.5".parse().expect("an address"), 40_000 + port)
}

fn pod(number: u8) -> SocketAddr {
    SocketAddr::new(format!("10.0.1.{number}").parse().expect("an address"), 8080)
}

fn service() -> SocketAddr {
    SERVICE.parse().expect("an address")
}

fn life() -> impl Strategy<Value = EntryLife> {
    prop_oneof![
        (0..130_000_u64).prop_map(|ms| EntryLife::Remaining(Duration::from_millis(ms))),
        Just(EntryLife::Remaining(Duration::from_secs(120))),
        Just(EntryLife::Unconfirmed(Duration::from_secs(120))),
        Just(EntryLife::Expired),
        Just(EntryLife::Unknown),
        any::<u64>().prop_map(|ns| EntryLife::Remaining(Duration::from_nanos(ns))),
    ]
}

fn packet() -> impl Strategy<Value = EventKind> {
    let lookup = (0..4_u8, life(), 0..6_u8, 0..10_u8, 0..8_u32);
    (0..5_usize, 0..4_u32, 0..6_u16, 0..4_u32, 0..4_u8, proptest::option::of(lookup), any::<u8>())
        .prop_map(|(hook, netns, port, isn, flags, found, other)| {
            let orig = Tuple::new(client(port), service());
            let found = found.map(|(number, life, info, state, status)| Lookup {
                orig,
                reply: Tuple::new(if number == 0 { service() } else { pod(number) }, orig.src),
                zone: 0,
                status: CtStatus(status << 1),
                ctinfo: CtInfo(info),
                state: Some(CtState::from_number(state)),
                life,
            });
            let kinds = [TcpFlags::SYN, TcpFlags::SYN | TcpFlags::ACK, TcpFlags::RST, other];
            let answer = other % 2 == 1;
            let segment = if other % 16 == 0 {
                Segment::IcmpError { kind: 3, code: other % 5, from: pod(9).ip() }
            } else {
                let flags = TcpFlags(kinds[usize::from(flags)]);
                Segment::Tcp { flags, seq: isn, ack: isn + 1 }
            };
            let there = Tuple::new(client(port), if other % 3 == 0 { pod(1) } else { service() });
            EventKind::Packet(PacketEvent {
                hook: Hook::ALL[hook],
                netns: NetnsId(netns),
                ifindex: IfIndex(1),
                tuple: if answer { there.reversed() } else { there },
                segment,
                lookup: found,
                drop: (other % 5 == 0).then_some(DropReason(u32::from(other))),
            })
        })
}

fn cluster() -> impl Strategy<Value = EventKind> {
    let pods = (0..5_u8, 0..4_u8, 0..5_u8).prop_map(|(name, address, change)| ClusterEvent::Pod {
        name: format!("web-{name}"),
        app: "web".to_owned(),
        node: "n2".to_owned(),
        address: (address > 0).then(|| pod(address).ip()),
        change: [
            PodChange::Added,
            PodChange::Ready,
            PodChange::NotReady,
            PodChange::Asked { grace: Duration::from_secs(30) },
            PodChange::Deleted,
        ][usize::from(change)],
    });
    let rollouts = any::<bool>().prop_map(|started| ClusterEvent::Rollout {
        deployment: "web".to_owned(),
        change: if started { RolloutChange::Started } else { RolloutChange::Finished },
    });
    let endpoints = (1..4_u8, any::<bool>()).prop_map(|(number, there)| ClusterEvent::Endpoint {
        service: "web".to_owned(),
        frontend: service(),
        backend: pod(number),
        change: if there {
            EndpointChange::Listed { ready: true, serving: true, terminating: false }
        } else {
            EndpointChange::Removed
        },
    });
    let changes = prop_oneof![4 => pods, 1 => rollouts, 1 => endpoints];
    (changes, any::<u64>())
        .prop_map(|(change, since)| EventKind::Cluster { change, since: MonoNs(since) })
}

fn request() -> impl Strategy<Value = EventKind> {
    let started = (0..40_u64)
        .prop_map(|id| EventKind::RequestStarted(RequestStarted { id: RequestId(id), worker: 0 }));
    let ended = (0..40_u64, 0..6_u16, 0..10_usize, any::<bool>(), 0..10_000_u64).prop_map(
        |(id, port, symptom, fresh, total)| {
            EventKind::RequestEnded(RequestEnded {
                id: RequestId(id),
                source: (port > 0).then(|| client(port)),
                target: Some(service()),
                reuse: if fresh { Reuse::Fresh } else { Reuse::KeepAlive { nth: 2 } },
                outcome: match Symptom::ALL.get(symptom) {
                    Some(&symptom) => Outcome::Failed { symptom, errno: None, status: None },
                    None => Outcome::Answered { status: 200 },
                },
                resolution: None,
                connect: None,
                received: 0,
                total: Duration::from_millis(total),
                pod: None,
            })
        },
    );
    prop_oneof![started, ended]
}

fn other() -> impl Strategy<Value = EventKind> {
    let states = (0..6_u16, 0..12_u8, 0..12_u8).prop_map(|(port, old, new)| {
        EventKind::TcpState(TcpStateEvent {
            netns: NetnsId(3),
            tuple: Tuple::new(client(port), service()),
            old: SockState::from_number(old),
            new: SockState::from_number(new),
        })
    });
    let lost = (0..5_u64, any::<u64>()).prop_map(|(count, since)| EventKind::Lost {
        source: LossSource::Ring(Hook::NetDevStartXmit),
        count,
        since: MonoNs(since),
    });
    let sysctl = ".{0,4}|20|120".prop_map(|value| EventKind::SysctlSet {
        netns: NetnsId(1),
        name: crate::correlate::SYN_SENT.to_owned(),
        value,
    });
    prop_oneof![8 => states, 1 => lost, 1 => sysctl]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let kind = prop_oneof![6 => packet(), 2 => cluster(), 4 => request(), 1 => other()];
    // Steps forward, now and then one back.
    proptest::collection::vec((kind, -200..2_000_i64), 0..150).prop_map(|kinds| {
        let mut now = 1_000_000_i64;
        kinds
            .into_iter()
            .map(|(kind, step)| {
                now += step;
                Event { time: MonoNs(now.unsigned_abs() * 1_000_000), kind }
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics_and_counts_add_up(events in events(), extreme in any::<u64>()) {
        let header = scene("").header;
        let mut correlator = Correlator::new(&header);
        let ended = events.iter().filter(|it| matches!(it.kind, EventKind::RequestEnded(_))).count();
        for (seq, event) in events.iter().enumerate() {
            correlator.apply(Seq(seq as u64), event);
        }
        if let Some(event) = events.first() {
            let event = Event { time: MonoNs(extreme), ..event.clone() };
            correlator.apply(Seq(events.len() as u64), &event);
        }
        let timeline = correlator.finish();
        let verdict = assess(&header, &timeline, &Settings::default());
        let report = view::build(&header, &timeline, &verdict);
        let again = usize::from(matches!(
            events.first().map(|event| &event.kind),
            Some(EventKind::RequestEnded(_))
        ));
        prop_assert_eq!(report.requests.total, (ended + again) as u64);
        prop_assert_eq!(report.requests.failed, report.failed.len() as u64);
        let causes = report.failures.early.values().chain(report.failures.late.values());
        prop_assert_eq!(causes.sum::<u64>(), report.requests.failed);
        let symptoms = report.symptoms.early.values().chain(report.symptoms.late.values());
        prop_assert_eq!(symptoms.sum::<u64>(), report.requests.failed);
        // Every failed connect with a port has its mark, and none lies outside the picture.
        let page = html::render(&report);
        let kept = &report.pictures.kept;
        let connects = report.failed.iter().enumerate().filter(|(index, _)| !kept.contains(index));
        let with_port = connects.filter(|(_, failure)| failure.source.is_some()).count();
        prop_assert_eq!(page.matches("data-late=").count(), 2 * with_port);
        for outside in ["NaN", "cx=\"-", "cy=\"-", "width=\"-", "height=\"-"] {
            prop_assert!(!page.contains(outside), "{}", outside);
        }
        let exposure = report.exposure;
        prop_assert_eq!(exposure.attempts, exposure.failed + report.survived.len() as u64);
        let ok: u64 = report.bins.iter().map(|bin| bin.ok).sum();
        prop_assert_eq!(ok + report.requests.failed, report.requests.total);
        for row in &report.failed {
            prop_assert!(!row.evidence.is_empty());
            prop_assert!(!row.why.is_empty());
        }
        prop_assert!(serde_json::to_string(&report.counters).is_ok());
    }
}
