//! The tracer on the running kernel: real packets through namespaces of our own. Needs root, iptables and a
//! build with BPF programs; what is left out says so by name.

mod net;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use net::{Family, Net};
use nix::unistd::geteuid;
use tracer::kernel::{Settings, Tracer, has_programs};
use tracer::model::{
    CtState, CtStatus, Direction, EntryLife, Event, EventKind, Hook, Lookup, LossSource, MonoNs,
    PacketEvent, Segment, SockState, TcpFlags, TcpStateEvent,
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
        ..Settings::new(vec![
            net.swallowed_service(),
            net.refusing_service(),
            net.rejected_service(),
            net.answering_service(),
        ])
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
        tcp_states(events).iter().any(|change| change.new == SockState::Close)
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

    let changes = tcp_states(&events);
    let states: Vec<_> = changes.iter().map(|change| (change.old, change.new)).collect();
    assert_eq!(
        states,
        [(SockState::Close, SockState::SynSent), (SockState::SynSent, SockState::Close)]
    );
    for change in changes {
        assert_eq!(change.netns, net.client_netns());
        assert_eq!((change.tuple.src, change.tuple.dst), (from, net.refusing_service()));
    }
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

fn tcp_states(events: &[Event]) -> Vec<&TcpStateEvent> {
    events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::TcpState(change) => Some(change),
            _ => None,
        })
        .collect()
}

fn a_rejected_connect_is_seen_by_its_icmp_error(family: Family) {
    let net = Net::new(family);
    let mut tracer = attach(&net, 1 << 20);
    // The kernel chooses the port, which is not known before it has and given back before the socket closes.
    let refused = net.connect(0, net.rejected_service(), Duration::from_secs(2));
    assert_eq!(refused.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionRefused));
    let closed =
        |events: &[Event]| tcp_states(events).iter().any(|change| change.new == SockState::Close);
    let events = drain(&mut tracer, closed);

    // One for each SYN: an error that comes while connect() still holds the socket ends nothing (tcp_v4_err),
    // and only the retransmission's does.
    let errors = packets(&events, Hook::NetDevStartXmit);
    let (kind, code) = if family == Family::V4 { (3, 3) } else { (1, 4) };
    for (_, error) in &errors {
        assert_eq!(error.segment, Segment::IcmpError { kind, code, from: net.gateway() });
        assert_eq!(error.netns, net.node_netns());
        assert_eq!((error.tuple.src.ip(), error.tuple.dst), (net.client(), net.rejected_service()));
        let lookup = error.lookup.expect("it is related to the SYN's entry");
        assert_eq!(lookup.orig, error.tuple);
        assert!(!lookup.is_translated());
        // The entry was never confirmed: its SYN went nowhere.
        assert!(matches!(lookup.life, EntryLife::Unconfirmed(_)), "{lookup:?}");
    }
    let (_, error) = errors.first().expect("there is one at least");

    let changes = tcp_states(&events);
    assert_eq!(changes[0].tuple.src.port(), 0);
    assert_eq!(changes.last().expect("it closed").tuple, error.tuple);
}

#[test]
fn a_rejected_connect_is_seen_by_its_icmp_error_on_ipv4() {
    let Some(_alone) = allowed("a_rejected_connect_is_seen_by_its_icmp_error_on_ipv4") else {
        return;
    };
    a_rejected_connect_is_seen_by_its_icmp_error(Family::V4);
}

#[test]
fn a_rejected_connect_is_seen_by_its_icmp_error_on_ipv6() {
    let Some(_alone) = allowed("a_rejected_connect_is_seen_by_its_icmp_error_on_ipv6") else {
        return;
    };
    a_rejected_connect_is_seen_by_its_icmp_error(Family::V6);
}

fn an_answered_connect_is_seen_on_both_nodes(family: Family) {
    const PORT: u16 = 40_005;
    let net = Net::new(family);
    net.track_in_pods();
    let _listener = net.listen(net.answering_backend());
    let mut tracer = attach(&net, 1 << 20);
    net.connect(PORT, net.answering_service(), Duration::from_secs(2)).expect("it is answered");
    let ended = |events: &[Event]| {
        tcp_states(events).iter().any(|change| change.new == SockState::FinWait1)
    };
    let events = drain(&mut tracer, ended);

    let from: SocketAddr = (net.client(), PORT).into();
    let crossing: Vec<_> = packets(&events, Hook::NetDevStartXmit)
        .into_iter()
        .map(|(_, packet)| {
            let Segment::Tcp { flags, seq, ack } = packet.segment else { panic!("{packet:?}") };
            (packet.netns, flags, seq, ack, packet.lookup.expect("without one it is not recorded"))
        })
        .collect();
    let [syn, pod_answer, answer] = crossing.as_slice() else { panic!("three, not {crossing:?}") };
    assert!(syn.1.is_syn() && pod_answer.1.is_syn_ack() && answer.1.is_syn_ack());
    assert_eq!(
        (syn.0, pod_answer.0, answer.0),
        (net.node_netns(), net.pods_netns(), net.node_netns())
    );
    assert_eq!((pod_answer.3, answer.3), (syn.2.wrapping_add(1), syn.2.wrapping_add(1)));
    assert_eq!(syn.4.direction(), Direction::Original);
    assert_eq!(answer.4.direction(), Direction::Reply);
    assert!(answer.4.is_translated());
    assert!(answer.4.status.has(CtStatus::SEEN_REPLY));
    assert_eq!(answer.4.state, Some(CtState::SynRecv));
    // The pod's own node has an entry of its own, without translation.
    assert!(!pod_answer.4.is_translated());
    assert_eq!((pod_answer.4.orig.src, pod_answer.4.orig.dst), (from, net.answering_backend()));

    let states: Vec<_> =
        tcp_states(&events).iter().map(|change| (change.old, change.new)).collect();
    assert_eq!(
        states,
        [
            (SockState::Close, SockState::SynSent),
            (SockState::SynSent, SockState::Established),
            (SockState::Established, SockState::FinWait1),
        ]
    );
}

#[test]
fn an_answered_connect_is_seen_on_both_nodes_on_ipv4() {
    let Some(_alone) = allowed("an_answered_connect_is_seen_on_both_nodes_on_ipv4") else { return };
    an_answered_connect_is_seen_on_both_nodes(Family::V4);
}

#[test]
fn an_answered_connect_is_seen_on_both_nodes_on_ipv6() {
    let Some(_alone) = allowed("an_answered_connect_is_seen_on_both_nodes_on_ipv6") else { return };
    an_answered_connect_is_seen_on_both_nodes(Family::V6);
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
    // One that ends between being listed and being looked at is an error, and not ours.
    aya::programs::loaded_programs().filter_map(|program| Some(program.ok()?.id())).collect()
}
