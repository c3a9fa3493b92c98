//! A real capture of a rollout, from its bytes to the entries behind its packets. What must come out was counted
//! by hand: examples/kubernetes-1.36-readiness/README.md.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::net::IpAddr;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use tracer::codec::pcap::{Decoder, Step};
use tracer::correlate::{Correlator, Found};
use tracer::infer::{Inference, SYN_SENT_DEFAULT, Settings};
use tracer::model::{
    Captured, ClockAnchor, ClusterEvent, EntryLife, Event, EventKind, MonoNs, NetnsId, Origin,
    PodChange, Segment, Seq, TraceHeader, WallNs,
};

const CAPTURE: &str = "../examples/kubernetes-1.36-readiness/syn-rst.pcap.zst";
/// 5 s after the rollout was complete.
const LATE: u64 = 1_796_091_223_760_000_000;
const SERVICE: &str = "10.96.0.10:80";

fn packets() -> Vec<Captured> {
    static PACKETS: OnceLock<Vec<Captured>> = OnceLock::new();
    PACKETS.get_or_init(read).clone()
}

fn read() -> Vec<Captured> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(CAPTURE);
    let bytes = zstd::stream::decode_all(File::open(path).unwrap()).unwrap();
    let mut decoder = Decoder::new();
    let mut chunks = bytes.chunks(10_007);
    let mut packets = Vec::new();
    loop {
        match decoder.step().unwrap() {
            Step::Packet(packet) => packets.push(packet),
            Step::More => match chunks.next() {
                Some(chunk) => decoder.feed(chunk),
                None => decoder.close(),
            },
            Step::Lost(loss) => panic!("{loss:?}"),
            Step::End => {
                // As many as `tcpdump -r` prints.
                assert_eq!((packets.len(), decoder.counts().packets), (114_708, 114_708));
                return packets;
            }
        }
    }
}

fn settings() -> Settings {
    // The events' clock is the capture's.
    let anchor = ClockAnchor { mono: MonoNs(0), wall: WallNs(0), error_ns: 0 };
    Settings { netns: NetnsId(1), anchor, syn_sent: None, silence: true }
}

fn infer(packets: &[Captured]) -> (Vec<Event>, Inference) {
    let mut inference = Inference::new(settings());
    let mut events = Vec::new();
    for packet in packets {
        inference.apply(packet);
        events.extend(inference.by_ref());
    }
    inference.finish();
    events.extend(inference.by_ref());
    (events, inference)
}

/// A connect to the Service: its first SYN with the entry's age, and whether anything came back.
#[derive(Debug)]
struct Connect {
    time: MonoNs,
    backend: IpAddr,
    age: Option<Duration>,
    answered: bool,
    reset: bool,
}

fn connects(events: &[Event]) -> Vec<Connect> {
    let mut connects: Vec<Connect> = Vec::new();
    let mut by_isn: HashMap<(u16, u32), usize> = HashMap::new();
    for event in events {
        let EventKind::Packet(packet) = &event.kind else { continue };
        let (Some(lookup), Segment::Tcp { flags, seq, ack }) = (packet.lookup, packet.segment)
        else {
            continue;
        };
        assert_eq!(lookup.orig.dst.to_string(), SERVICE);
        let port = lookup.orig.src.port();
        if flags.is_syn() {
            by_isn.entry((port, seq)).or_insert_with(|| {
                let age = match lookup.life {
                    EntryLife::Remaining(left) => Some(SYN_SENT_DEFAULT - left),
                    _ => None,
                };
                let backend = lookup.reply.src.ip();
                let time = event.time;
                connects.push(Connect { time, backend, age, answered: false, reset: false });
                connects.len() - 1
            });
        } else if let Some(index) = by_isn.get(&(port, ack.wrapping_sub(1))) {
            connects[*index].answered |= flags.is_syn_ack();
            connects[*index].reset |= flags.is_rst();
        }
    }
    connects
}

/// What the README counted.
fn addresses(of: &[&str]) -> BTreeSet<IpAddr> {
    of.iter().map(|address| address.parse().unwrap()).collect()
}

#[test]
fn the_capture_alone_shows_the_51_late_connects_that_met_an_older_entry() {
    let (events, inference) = infer(&packets());
    let connects = connects(&events);
    let unanswered = |connect: &&Connect| !connect.answered && !connect.reset;
    let (early, late): (Vec<&Connect>, Vec<&Connect>) =
        connects.iter().filter(unanswered).partition(|connect| connect.time.0 < LATE);
    let gone = addresses(&["10.244.1.20", "10.244.2.6", "10.244.2.7"]);

    assert_eq!(early.len(), 27);
    assert!(early.iter().all(|connect| connect.age == Some(Duration::ZERO)));
    assert_eq!(early.iter().map(|connect| connect.backend).collect::<BTreeSet<_>>(), gone);

    assert_eq!(late.len(), 51);
    assert!(late.iter().all(|connect| connect.age.unwrap() > Duration::from_secs(1)), "{late:?}");
    assert_eq!(late.iter().map(|connect| connect.backend).collect::<BTreeSet<_>>(), gone);

    // Nobody else met an entry, and nobody who met one was answered.
    let met = |connect: &&Connect| connect.age.is_some_and(|age| !age.is_zero());
    assert_eq!(connects.iter().filter(met).count(), 51);
    let summary = inference.summary();
    // The first to each of six backends: nothing is known of them before.
    assert_eq!(
        (summary.met_unreplied, summary.met_replied, summary.unsure, summary.ended_early),
        (51, 0, 6, 0)
    );
    assert_eq!(connects.iter().filter(|connect| connect.reset).count(), 9);
    // The other 13 requests were not captured.
    assert_eq!(connects.len(), 28_472);
}

#[test]
fn the_backends_that_fell_silent_are_the_three_that_were_deleted() {
    let (events, _) = infer(&packets());
    let silent: BTreeMap<String, f64> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Cluster {
                change: ClusterEvent::Pod { name, change: PodChange::Silent { since }, .. },
                ..
            } => Some((name.clone(), (since.0 - 1_796_091_210_095_000_000) as f64 / 1e9)),
            _ => None,
        })
        .collect();
    let names: BTreeSet<IpAddr> = silent.keys().map(|name| name.parse().unwrap()).collect();
    assert_eq!(names, addresses(&["10.244.1.20", "10.244.2.6", "10.244.2.7"]), "{silent:?}");
    // All within the rollout, or a moment after it: the address dies a little after the API says so.
    assert!(silent.values().all(|since| (0.0..9.0).contains(since)), "{silent:?}");
}

#[test]
fn syns_whose_times_are_shuffled_between_ports_met_nothing() {
    let mut packets = packets();
    // Each connect to the Service keeps its packets and its backend, and gets another one's port.
    let ports: Vec<u16> = packets
        .iter()
        .filter(|packet| packet.tuple.dst.to_string() == SERVICE)
        .map(|packet| packet.tuple.src.port())
        .collect::<HashSet<_>>()
        .into_iter()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let mut number = 0;
    let mut new_port: HashMap<u32, u16> = HashMap::new();
    for packet in &mut packets {
        let Segment::Tcp { flags, seq, ack } = packet.segment else { continue };
        let from_client = flags.is_syn();
        let isn = if from_client { seq } else { ack.wrapping_sub(1) };
        let port = *new_port.entry(isn).or_insert_with(|| {
            number += 1;
            ports[number * 7919 % ports.len()]
        });
        let end = if from_client { &mut packet.tuple.src } else { &mut packet.tuple.dst };
        end.set_port(port);
    }
    let (_, inference) = infer(&packets);
    let summary = inference.summary();
    // Where a port came round to an unanswered connect's, the new one went elsewhere: the entries don't fit.
    assert!(summary.ended_early > summary.met_unreplied, "{summary:?}");
}

#[test]
fn with_the_race_window_cut_out_nothing_is_said_of_the_late_connects() {
    let packets: Vec<Captured> = packets()
        .into_iter()
        .filter(|packet| {
            let since = packet.time.0 - 1_796_091_210_095_000_000;
            !(2_000_000_000..12_000_000_000).contains(&since)
        })
        .collect();
    let (events, inference) = infer(&packets);
    let late: Vec<Connect> = connects(&events)
        .into_iter()
        .filter(|connect| connect.time.0 >= LATE && !connect.answered && !connect.reset)
        .collect();
    assert_eq!(late.len(), 51);
    // Of none it is said that its entry was its own, and of none how old it was.
    assert!(late.iter().all(|connect| connect.age.is_none()), "{late:?}");
    assert!(inference.notes().iter().any(|note| note.contains("falls still")));
}

#[test]
fn the_correlator_takes_the_events_as_if_they_had_been_traced() {
    let (events, _) = infer(&packets());
    let mut header = TraceHeader {
        tracer: String::new(),
        origin: Origin::Record { command: String::new() },
        kernel: String::new(),
        node: String::new(),
        hz: None,
        began: events[0].time,
        anchor: settings().anchor,
        hooks: Vec::new(),
        netns: Vec::new(),
        sysctls: Vec::new(),
        services: Vec::new(),
        drop_reasons: BTreeMap::new(),
        notes: Vec::new(),
    };
    settings().describe(&mut header);
    assert!(header.sees_syns());
    assert_eq!(
        header.notes,
        [
            "the node's net.netfilter.nf_conntrack_tcp_timeout_syn_sent is not known: Linux's default of 120 s is \
          assumed"
        ]
    );
    let mut correlator = Correlator::new(&header);
    for (seq, event) in events.iter().enumerate() {
        correlator.apply(Seq(seq as u64), event);
    }
    let timeline = correlator.finish();
    let met: Vec<_> = timeline
        .meetings
        .iter()
        .filter(|meeting| matches!(&meeting.attempt.found, Found::Older(older) if !older.replied))
        .collect();
    assert_eq!(met.len(), 51);
    // The backend of each was gone, by its silence, before the port came round.
    for meeting in met {
        let backend = meeting.attempt.backend().unwrap().ip();
        let pod = timeline.pods.owner(backend, meeting.attempt.first.time).unwrap();
        assert!(pod.gone().unwrap() < meeting.attempt.first.time, "{pod:?}");
    }
}
