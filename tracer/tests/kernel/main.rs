//! The tracer on the running kernel: real packets through namespaces of our own. Needs root, iptables and a
//! build with BPF programs; what is left out says so by name.

mod net;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use net::{Family, Net};
use nix::unistd::geteuid;
use tracer::kernel::{Settings, Tracer, has_programs};
use tracer::model::{
    CtState, CtStatus, EntryLife, Event, EventKind, Hook, Lookup, LossSource, MonoNs, PacketEvent,
    Segment, SockState, TcpFlags,
};

/// One test at a time: what is left of a tracer is looked for in the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// The lock under which a test runs, or none if this machine does not allow it; then the reason is printed.
fn allowed(test: &str) -> Option<MutexGuard<'static, ()>> {
    let reason = if !geteuid().is_root() {
        "needs root"
    } else if !has_programs() {
        "built without BPF programs: cargo xtask build"
    } else if !["ip", "iptables-restore", "ip6tables-restore"].iter().all(|tool| in_path(tool)) {
        "needs iproute2 and iptables"
    } else {
        return Some(ALONE.lock().unwrap_or_else(PoisonError::into_inner));
    };
    // Not eprintln!: the test harness would swallow it, and a test that is left out must be heard of.
    let _ = writeln!(io::stderr(), "left out: {test}: {reason}");
    None
}

fn in_path(tool: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(tool).is_file()))
}

const CONNECT_TIMEOUT: Duration = Duration::from_millis(300);

fn attach(net: &Net, ring_bytes: u32) -> Tracer {
    let settings = Settings {
        netns: net.all_netns(),
        ring_bytes,
        ..Settings::new(vec![net.swallowed_service(), net.refusing_service()])
    };
    let tracer = Tracer::attach(&settings).unwrap_or_else(|error| panic!("{error:?}"));
    for status in tracer.hooks() {
        assert!(status.attached, "{status:?}");
    }
    tracer
}

/// Drains until `enough` says so or five seconds have passed.
fn drain(tracer: &mut Tracer, enough: impl Fn(&[Event]) -> bool) -> Vec<Event> {
    let end = Instant::now() + Duration::from_secs(5);
    let mut events = Vec::new();
    while !enough(&events) && Instant::now() < end {
        tracer
            .drain(Duration::from_millis(50), &mut |event| events.push(event))
            .expect("draining works");
    }
    events
}

fn packets(events: &[Event], hook: Hook) -> Vec<(MonoNs, &PacketEvent)> {
    events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Packet(packet) if packet.hook == hook => Some((event.time, packet)),
            _ => None,
        })
        .collect()
}

fn syns(events: &[Event]) -> Vec<(MonoNs, u32, Lookup)> {
    packets(events, Hook::NetDevStartXmit)
        .into_iter()
        .filter_map(|(time, packet)| match packet.segment {
            Segment::Tcp { flags, seq, .. } if flags.is_syn() => Some((time, seq, packet.lookup?)),
            _ => None,
        })
        .collect()
}

fn remaining(lookup: &Lookup) -> Duration {
    match lookup.life {
        EntryLife::Remaining(left) => left,
        ref other => panic!("a confirmed entry with time left, not {other:?}"),
    }
}

/// Two ticks at the slowest usual rate: the kernel rounds, and the hook runs a little after the entry is made.
const TICKS: Duration = Duration::from_millis(25);

fn assert_close(what: &str, left: Duration, right: Duration) {
    assert!(left.abs_diff(right) < TICKS, "{what}: {left:?} is not about {right:?}");
}

fn a_reused_port_meets_the_older_entry(family: Family) {
    const TIMER: Duration = Duration::from_secs(77);
    const PORT: u16 = 40_001;
    let net = Net::new(family);
    net.set_syn_sent_timer(TIMER.as_secs() as u32);
    let mut tracer = attach(&net, 1 << 20);

    let failed = net.connect(PORT, net.swallowed_service(), CONNECT_TIMEOUT);
    assert_eq!(failed.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
    let mut events = drain(&mut tracer, |events| !syns(events).is_empty());
    // The gap is whatever it turns out to be: the events' own times are compared.
    let failed = net.connect(PORT, net.swallowed_service(), CONNECT_TIMEOUT);
    assert_eq!(failed.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
    events.extend(drain(&mut tracer, |events| !syns(events).is_empty()));

    let syns = syns(&events);
    let [(first_time, first_isn, first), (second_time, second_isn, second)] = syns.as_slice()
    else {
        panic!("two SYNs, not {syns:?}");
    };
    for lookup in [first, second] {
        assert_eq!(lookup.orig.src, (net.client(), PORT).into());
        assert_eq!(lookup.orig.dst, net.swallowed_service());
        assert_eq!(lookup.reply.src, net.swallowed_backend());
        assert_eq!(lookup.reply.dst, lookup.orig.src);
        assert_eq!(lookup.state, Some(CtState::SynSent));
        assert!(lookup.status.has(CtStatus::CONFIRMED | CtStatus::DST_NAT));
        assert!(!lookup.status.has(CtStatus::SEEN_REPLY));
        assert_eq!(lookup.zone, 0);
    }
    assert_ne!(first_isn, second_isn);
    assert_close("a fresh entry's life", remaining(first), TIMER);
    let gap = second_time.since(*first_time);
    assert!(gap > CONNECT_TIMEOUT - TICKS, "{gap:?}");
    assert_close("a reused entry's life", remaining(second), TIMER - gap);

    let (_, packet) = packets(&events, Hook::NetDevStartXmit)[0];
    assert_eq!(packet.netns, net.node_netns());
    assert_ne!(packet.ifindex.0, 0);
    assert_eq!(packet.tuple.dst, net.swallowed_backend());

    // The swallowed SYNs are seen where they are dropped: no entry there, only the learned backend.
    let dropped = packets(&events, Hook::KfreeSkb);
    assert!(
        dropped.iter().any(|(_, packet)| packet.netns == net.pods_netns()
            && packet.tuple.dst == net.swallowed_backend()),
        "{dropped:?}"
    );
    let names = tracer.drop_reasons();
    for (_, packet) in dropped {
        if let Some(reason) = packet.drop {
            assert!(names.contains_key(&reason.0), "{reason:?} has no name");
        }
    }
}

#[test]
fn a_reused_port_meets_the_older_entry_on_ipv4() {
    let Some(_alone) = allowed("a_reused_port_meets_the_older_entry_on_ipv4") else { return };
    a_reused_port_meets_the_older_entry(Family::V4);
}

#[test]
fn a_reused_port_meets_the_older_entry_on_ipv6() {
    let Some(_alone) = allowed("a_reused_port_meets_the_older_entry_on_ipv6") else { return };
    a_reused_port_meets_the_older_entry(Family::V6);
}

fn a_refused_connect_is_seen_at_every_hook(family: Family) {
    const PORT: u16 = 40_003;
    let net = Net::new(family);
    let mut tracer = attach(&net, 1 << 20);
    let refused = net.connect(PORT, net.refusing_service(), Duration::from_secs(2));
    assert_eq!(refused.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionRefused));
    let events = drain(&mut tracer, |events| {
        events.iter().any(|event| matches!(&event.kind, EventKind::TcpState(change) if change.new == SockState::Close))
    });

    let from = (net.client(), PORT).into();
    let sent = packets(&events, Hook::TcpSendReset);
    let [(_, sent)] = sent.as_slice() else { panic!("one RST sent, not {sent:?}") };
    assert_eq!(sent.netns, net.pods_netns());
    assert_eq!((sent.tuple.src, sent.tuple.dst), (from, net.refusing_backend()));
    assert!(matches!(sent.segment, Segment::Tcp { flags, .. } if flags.is_syn()));

    let crossing: Vec<_> = packets(&events, Hook::NetDevStartXmit)
        .into_iter()
        .filter(
            |(_, packet)| matches!(packet.segment, Segment::Tcp { flags, .. } if flags.is_rst()),
        )
        .collect();
    let [(_, crossing)] = crossing.as_slice() else { panic!("one RST crossing, not {crossing:?}") };
    assert_eq!(crossing.netns, net.node_netns());
    assert_eq!((crossing.tuple.src, crossing.tuple.dst), (net.refusing_service(), from));

    let received = packets(&events, Hook::TcpReceiveReset);
    let [(_, received)] = received.as_slice() else { panic!("one RST received, not {received:?}") };
    assert_eq!(received.netns, net.client_netns());
    assert_eq!((received.tuple.src, received.tuple.dst), (from, net.refusing_service()));
    assert!(matches!(received.segment, Segment::Tcp { flags: TcpFlags(TcpFlags::RST), .. }));

    let changes: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::TcpState(change) => Some(*change),
            _ => None,
        })
        .collect();
    let states: Vec<_> = changes.iter().map(|change| (change.old, change.new)).collect();
    assert_eq!(
        states,
        [(SockState::Close, SockState::SynSent), (SockState::SynSent, SockState::Close)]
    );
    for change in changes {
        assert_eq!(change.netns, net.client_netns());
        assert_eq!((change.tuple.src, change.tuple.dst), (from, net.refusing_service()));
    }
    assert!(events.is_sorted_by_key(|event| event.time));
}

#[test]
fn a_refused_connect_is_seen_at_every_hook_on_ipv4() {
    let Some(_alone) = allowed("a_refused_connect_is_seen_at_every_hook_on_ipv4") else { return };
    a_refused_connect_is_seen_at_every_hook(Family::V4);
}

#[test]
fn a_refused_connect_is_seen_at_every_hook_on_ipv6() {
    let Some(_alone) = allowed("a_refused_connect_is_seen_at_every_hook_on_ipv6") else { return };
    a_refused_connect_is_seen_at_every_hook(Family::V6);
}

#[test]
fn a_full_ring_buffer_is_counted_by_hook() {
    let Some(_alone) = allowed("a_full_ring_buffer_is_counted_by_hook") else { return };
    let net = Net::new(Family::V4);
    let mut tracer = attach(&net, 4096);
    // Each refused connect makes six records or more; one page holds some thirty.
    for port in 41_000..41_060 {
        let refused = net.connect(port, net.refusing_service(), Duration::from_secs(2));
        assert_eq!(refused.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionRefused));
    }
    let mut events = Vec::new();
    tracer.drain(Duration::ZERO, &mut |event| events.push(event)).expect("draining works");
    tracer.finish(&mut |event| events.push(event)).expect("draining works");

    let mut lost = std::collections::BTreeMap::new();
    for event in &events {
        if let EventKind::Lost { source, count, since } = event.kind {
            assert!(since <= event.time);
            *lost.entry(source).or_insert(0) += count;
        }
    }
    let seen = |hook| packets(&events, hook).len() as u64;
    for hook in [Hook::TcpSendReset, Hook::TcpReceiveReset] {
        // One of each for every connect, seen or lost: none is missing and none is counted twice.
        assert_eq!(
            seen(hook) + lost.get(&LossSource::Ring(hook)).copied().unwrap_or(0),
            60,
            "{hook:?}"
        );
    }
    assert!(lost.contains_key(&LossSource::Ring(Hook::NetDevStartXmit)), "{lost:?}");
}

#[test]
fn a_namespace_that_is_not_asked_for_is_not_recorded() {
    let Some(_alone) = allowed("a_namespace_that_is_not_asked_for_is_not_recorded") else { return };
    let net = Net::new(Family::V4);
    let settings =
        Settings { netns: vec![net.client_netns()], ..Settings::new(vec![net.refusing_service()]) };
    let tracer = Tracer::attach(&settings).unwrap_or_else(|error| panic!("{error:?}"));
    let refused = net.connect(42_000, net.refusing_service(), Duration::from_secs(2));
    assert_eq!(refused.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionRefused));
    let mut events = Vec::new();
    tracer.finish(&mut |event| events.push(event)).expect("draining works");
    assert_eq!(packets(&events, Hook::TcpReceiveReset).len(), 1);
    assert_eq!(packets(&events, Hook::NetDevStartXmit), []);
    assert_eq!(packets(&events, Hook::TcpSendReset), []);
}

#[test]
fn nothing_is_left_loaded_after_the_tracer_is_dropped() {
    let Some(_alone) = allowed("nothing_is_left_loaded_after_the_tracer_is_dropped") else {
        return;
    };
    let net = Net::new(Family::V4);
    let tracer = attach(&net, 1 << 20);
    let ours = own_programs();
    assert_eq!(ours.len(), Hook::ALL.len());
    assert!(ours.is_subset(&loaded_programs()));
    drop(tracer);
    assert_eq!(own_programs(), BTreeSet::new());
    // The kernel frees a program after a grace period.
    let end = Instant::now() + Duration::from_secs(5);
    while !ours.is_disjoint(&loaded_programs()) {
        assert!(Instant::now() < end, "still loaded");
        std::thread::yield_now();
    }
}

/// The ids of the programs that this process holds open.
fn own_programs() -> BTreeSet<u32> {
    fs::read_dir("/proc/self/fdinfo")
        .expect("/proc is there")
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok())
        .filter_map(|info| {
            info.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok())
        })
        .collect()
}

fn loaded_programs() -> BTreeSet<u32> {
    aya::programs::loaded_programs()
        .map(|program| program.expect("the kernel lists its programs").id())
        .collect()
}
