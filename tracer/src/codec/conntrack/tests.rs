use std::fmt::Write;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

/// Reads bytes in pieces, as a file is read.
fn read(form: Form, bytes: &[u8], chunk: usize) -> (Vec<Flow>, Counts) {
    let mut reader = Reader::new(form);
    let mut chunks = bytes.chunks(chunk);
    let mut flows = Vec::new();
    loop {
        match reader.step() {
            Step::Item(flow) => flows.push(flow),
            Step::More => match chunks.next() {
                Some(chunk) => reader.feed(chunk),
                None => reader.close(),
            },
            Step::End => return (flows, reader.counts().clone()),
        }
    }
}

/// A flow in a line, with what is not plain only.
fn line(flow: &Flow) -> String {
    let mut line = format!("{:?}", flow.kind);
    let time = |time| match time {
        FlowTime::Wall(stamp) => format!("{:.6}", stamp.at.0 as f64 / 1e9),
        FlowTime::Local(stamp) => format!("{} local", stamp.at.0 / 1_000_000_000),
    };
    if let Some(at) = flow.time {
        write!(line, " at {}", time(at)).unwrap();
    }
    if flow.protocol != TCP {
        write!(line, " protocol {}", flow.protocol).unwrap();
    }
    if let Some(state) = flow.state {
        write!(line, " {}", state.name()).unwrap();
    }
    if let Some(remaining) = flow.remaining {
        write!(line, " {}s", remaining.as_secs()).unwrap();
    }
    write!(line, " {} reply {}", flow.orig, flow.reply).unwrap();
    for (is, word) in [
        (flow.unreplied, "unreplied"),
        (flow.assured, "assured"),
        (flow.offloaded, "offloaded"),
        (flow.by_process, "by process"),
    ] {
        if is {
            write!(line, " {word}").unwrap();
        }
    }
    if (flow.zone, flow.reply_zone) != (0, 0) {
        write!(line, " zone {}/{}", flow.zone, flow.reply_zone).unwrap();
    }
    if let Some(mark) = flow.mark {
        write!(line, " mark {mark}").unwrap();
    }
    if let Some(id) = flow.id {
        write!(line, " id {id}").unwrap();
    }
    if let Some(made) = flow.made {
        write!(line, " made {}", time(made)).unwrap();
    }
    line
}

fn words((flows, counts): &(Vec<Flow>, Counts)) -> String {
    let mut words: String = flows.iter().map(|flow| line(flow) + "\n").collect();
    for (reason, passed) in counts.unread.reasons() {
        writeln!(words, "unread: {reason} {}x, first in line {}", passed.count, passed.line)
            .unwrap();
    }
    if counts.other_protocols > 0 {
        writeln!(words, "other protocols: {}", counts.other_protocols).unwrap();
    }
    if let Some(trailer) = counts.trailer {
        writeln!(words, "trailer: {trailer:?}").unwrap();
    }
    words
}

fn check(text: &str, expected: Expect) {
    let form = form_of(text.as_bytes()).expect("it is conntrack's");
    let read_whole = read(form, text.as_bytes(), usize::MAX);
    expected.assert_eq(&words(&read_whole));
    for chunk in [1, 7, 64] {
        assert_eq!(read(form, text.as_bytes(), chunk), read_whole, "in pieces of {chunk}");
    }
}

#[test]
fn listings_in_all_their_forms() {
    check(
        "
tcp      6 89 SYN_SENT src=192.0.2.16 dst=198.51.100.10 sport=60914 dport=80 [UNREPLIED] src=203.0.113.20 dst=192.0.2.16 sport=8080 dport=60914 mark=0 use=1
tcp 6 48 SYN_SENT src=192.0.2.78 dst=198.51.100.22 sport=63302 dport=80 [UNREPLIED] src=198.51.100.22 dst=192.0.2.78 sport=80 dport=63302 mark=0 use=1
tcp\t6   119 SYN_SENT src=192.0.2.1 dst=198.51.100.10 sport=60000 dport=80 [UNREPLIED] src=203.0.113.3 dst=192.0.2.2 sport=80 dport=45815 mark=0 use=1
ipv4     2 tcp      6 7 CLOSE src=192.0.2.68 dst=198.51.100.233 sport=870 dport=2049 src=203.0.113.129 dst=192.0.2.68 sport=2049 dport=870 [ASSURED] mark=0 zone=0 use=2
ipv6     10 tcp      6 119 TIME_WAIT src=0000:0000:0000:0000:0000:0000:0000:0001 dst=0000:0000:0000:0000:0000:0000:0000:0001 sport=40546 dport=8080 packets=6 bytes=554 src=0000:0000:0000:0000:0000:0000:0000:0001 dst=0000:0000:0000:0000:0000:0000:0000:0001 sport=8080 dport=40546 packets=6 bytes=1501 [ASSURED] mark=0 zone=0 delta-time=0 use=2
ipv4     2 tcp      6 431999 ESTABLISHED src=192.0.2.1 dst=198.51.100.10 sport=40002 dport=80 packets=6 bytes=436 src=203.0.113.3 dst=192.0.2.1 sport=8080 dport=40002 packets=6 bytes=1381 [ASSURED] mark=7 secctx=system_u:object_r:unlabeled_t:s0 delta-time=0 [start=Tue Dec  1 04:47:52 2026] use=1 id=239415521
tcp      6 src=192.0.2.1 dst=198.51.100.10 sport=40004 dport=80 src=203.0.113.3 dst=192.0.2.1 sport=8080 dport=40004 [OFFLOAD] mark=0 zone=3 use=2
tcp      6 300 ESTABLISHED src=192.0.2.1 dst=198.51.100.10 sport=40006 dport=80 zone-orig=4 src=203.0.113.3 dst=192.0.2.1 sport=8080 dport=40006 zone-reply=5 [HW_OFFLOAD] mark=0 use=2
udp      17 29 src=192.0.2.1 dst=198.51.100.53 sport=56398 dport=53 [UNREPLIED] src=203.0.113.9 dst=192.0.2.1 sport=53 dport=56398 mark=0 use=1
icmp     1 29 src=192.0.2.1 dst=198.51.100.53 type=8 code=0 id=32354 src=198.51.100.53 dst=192.0.2.1 type=0 code=0 id=32354 mark=0 use=1
conntrack v1.4.4 (conntrack-tools): 48 flow entries have been shown.
",
        expect![[r#"
            Listed SYN_SENT 89s 192.0.2.16:60914 > 198.51.100.10:80 reply 203.0.113.20:8080 > 192.0.2.16:60914 unreplied mark 0
            Listed SYN_SENT 48s 192.0.2.78:63302 > 198.51.100.22:80 reply 198.51.100.22:80 > 192.0.2.78:63302 unreplied mark 0
            Listed SYN_SENT 119s 192.0.2.1:60000 > 198.51.100.10:80 reply 203.0.113.3:80 > 192.0.2.2:45815 unreplied mark 0
            Listed CLOSE 7s 192.0.2.68:870 > 198.51.100.233:2049 reply 203.0.113.129:2049 > 192.0.2.68:870 assured mark 0
            Listed TIME_WAIT 119s [::1]:40546 > [::1]:8080 reply [::1]:8080 > [::1]:40546 assured mark 0
            Listed ESTABLISHED 431999s 192.0.2.1:40002 > 198.51.100.10:80 reply 203.0.113.3:8080 > 192.0.2.1:40002 assured mark 7 id 239415521 made 1796100472 local
            Listed 192.0.2.1:40004 > 198.51.100.10:80 reply 203.0.113.3:8080 > 192.0.2.1:40004 offloaded zone 3/3 mark 0
            Listed ESTABLISHED 300s 192.0.2.1:40006 > 198.51.100.10:80 reply 203.0.113.3:8080 > 192.0.2.1:40006 offloaded zone 4/5 mark 0
            Listed protocol 17 29s 192.0.2.1:56398 > 198.51.100.53:53 reply 203.0.113.9:53 > 192.0.2.1:56398 unreplied mark 0
            other protocols: 1
            trailer: Trailer { count: 48, deleted: false }
        "#]],
    );
}

#[test]
fn events_in_all_their_forms() {
    // The three forms of a DESTROY are here: seconds and state, state only, neither.
    check(
        "[1796091212.856558]\t    [NEW] tcp      6 120 SYN_SENT src=192.0.2.16 dst=198.51.100.10 sport=60604 dport=80 [UNREPLIED] src=203.0.113.20 dst=192.0.2.16 sport=8080 dport=60604
[1796091362.055494]\t [UPDATE] tcp      6 60 SYN_RECV src=192.0.2.16 dst=198.51.100.10 sport=60604 dport=80 src=203.0.113.22 dst=192.0.2.16 sport=8080 dport=60604
[1796091362.055473]\t[DESTROY] tcp      6 SYN_SENT src=192.0.2.16 dst=198.51.100.10 sport=60604 dport=80 [UNREPLIED] src=203.0.113.20 dst=192.0.2.16 sport=8080 dport=60604
[1796091208.922767]\t[DESTROY] tcp      6 118 TIME_WAIT src=192.0.2.16 dst=198.51.100.10 sport=53786 dport=80 src=203.0.113.20 dst=192.0.2.16 sport=8080 dport=53786 [ASSURED]
[DESTROY] tcp      6 src=192.0.2.38 dst=192.0.2.38 sport=60082 dport=18080 src=203.0.113.70 dst=192.0.2.39 sport=80 dport=41338 [ASSURED]
    [NEW] ipv4     2 tcp      6 120 SYN_SENT src=192.0.2.16 dst=198.51.100.10 sport=40002 dport=80 [UNREPLIED] src=203.0.113.20 dst=192.0.2.16 sport=8080 dport=40002 id=239415521
[1796091208.558   ]\t [UPDATE] tcp      6 120 LISTEN src=192.0.2.16 dst=198.51.100.10 sport=40002 dport=80 [UNREPLIED] src=203.0.113.20 dst=192.0.2.16 sport=8080 dport=40002 mark=1
[1796100472.925247]\t[DESTROY] ipv6     10 tcp      6 119 TIME_WAIT src=::1 dst=::1 sport=40546 dport=8080 packets=6 bytes=554 src=::1 dst=::1 sport=8080 dport=40546 packets=6 bytes=1501 [ASSURED] delta-time=0 [start=Tue Dec  1 04:47:52 2026] [stop=Tue Dec  1 04:47:52 2026] id=2912185036 [USERSPACE] portid=2707720859 progname=conntrack
conntrack v1.4.7 (conntrack-tools): 15 flow events have been shown.
",
        expect![[r#"
            New at 1796091212.856558 SYN_SENT 120s 192.0.2.16:60604 > 198.51.100.10:80 reply 203.0.113.20:8080 > 192.0.2.16:60604 unreplied
            Update at 1796091362.055494 SYN_RECV 60s 192.0.2.16:60604 > 198.51.100.10:80 reply 203.0.113.22:8080 > 192.0.2.16:60604
            Destroy at 1796091362.055473 SYN_SENT 192.0.2.16:60604 > 198.51.100.10:80 reply 203.0.113.20:8080 > 192.0.2.16:60604 unreplied
            Destroy at 1796091208.922767 TIME_WAIT 118s 192.0.2.16:53786 > 198.51.100.10:80 reply 203.0.113.20:8080 > 192.0.2.16:53786 assured
            Destroy 192.0.2.38:60082 > 192.0.2.38:18080 reply 203.0.113.70:80 > 192.0.2.39:41338 assured
            New SYN_SENT 120s 192.0.2.16:40002 > 198.51.100.10:80 reply 203.0.113.20:8080 > 192.0.2.16:40002 unreplied id 239415521
            Update at 1796091208.000558 SYN_SENT2 120s 192.0.2.16:40002 > 198.51.100.10:80 reply 203.0.113.20:8080 > 192.0.2.16:40002 unreplied mark 1
            Destroy at 1796100472.925247 TIME_WAIT 119s [::1]:40546 > [::1]:8080 reply [::1]:8080 > [::1]:40546 assured by process id 2912185036 made 1796100472 local
            trailer: Trailer { count: 15, deleted: false }
        "#]],
    );
}

#[test]
fn what_was_deleted_by_hand_says_so_in_the_trailer() {
    check(
        "$ sudo conntrack -D -p tcp --state SYN_SENT
tcp      6 89 SYN_SENT src=192.0.2.16 dst=198.51.100.10 sport=60914 dport=80 [UNREPLIED] src=203.0.113.20 dst=192.0.2.16 sport=8080 dport=60914 mark=0 use=1
conntrack v1.4.6 (conntrack-tools): 1 flow entries have been deleted.",
        expect![[r#"
            Listed SYN_SENT 89s 192.0.2.16:60914 > 198.51.100.10:80 reply 203.0.113.20:8080 > 192.0.2.16:60914 unreplied mark 0
            unread: no protocol 1x, first in line 1
            trailer: Trailer { count: 1, deleted: true }
        "#]],
    );
}

#[test]
fn lines_that_are_none_are_counted_by_their_reason() {
    check(
        "tcp      6 89 SYN_SENT src=192.0.2.16 dst=198.51.100.10 sport=60914 dport=80 [UNREPLIED] src=203.0.113.20 dst=192.0.2.16 sport=8080 dport=60914
tcp      6 89 SYN_SENT src=192.0.2.16 dst=198.51.100.10 sport=60914 dport=80 [UNREPLIED] src=203.0.113.20 dst=192.0.2.16 spo
tcp      6 89 SYN_SENT src=192.0.2.16
tcp      6 89 SYN_SENT src=192.0.2.16.1 dst=198.51.100.10 sport=60914 dport=80
tcp      6 89 SYN_SENT src=192.0.2.16 dst=198.51.100.10 sport=70000 dport=80
tcp      6 89 SYN_SEND src=192.0.2.16 dst=198.51.100.10 sport=60914 dport=80
[1796091212.85x]\t[NEW] tcp      6 120 SYN_SENT
[NEW]
Error: ENOBUFS
",
        expect![[r#"
            Listed SYN_SENT 89s 192.0.2.16:60914 > 198.51.100.10:80 reply 203.0.113.20:8080 > 192.0.2.16:60914 unreplied
            unread: a port that is none 1x, first in line 5
            unread: a time that is none 1x, first in line 7
            unread: an address that is none 1x, first in line 4
            unread: an unknown state of TCP 1x, first in line 6
            unread: an unknown word 1x, first in line 2
            unread: no protocol 2x, first in line 8
            unread: without both tuples 1x, first in line 3
        "#]],
    );
}

const XML: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<conntrack>
<flow type="new"><meta direction="original"><layer3 protonum="2" protoname="ipv4"><src>127.0.0.1</src><dst>127.0.0.9</dst></layer3><layer4 protonum="6" protoname="tcp"><sport>57084</sport><dport>80</dport></layer4></meta><meta direction="reply"><layer3 protonum="2" protoname="ipv4"><src>127.0.0.1</src><dst>127.0.0.1</dst></layer3><layer4 protonum="6" protoname="tcp"><sport>8080</sport><dport>57084</dport></layer4></meta><meta direction="independent"><state>SYN_SENT</state><timeout>120</timeout><id>239415521</id><unreplied/></meta><when><hour>4</hour><min>47</min><sec>52</sec><wday>3</wday><day>1</day><month>12</month><year>2026</year></when></flow>
<flow type="destroy"><meta direction="original"><layer3 protonum="10" protoname="ipv6"><src>::1</src><dst>::1</dst></layer3><layer4 protonum="6" protoname="tcp"><sport>40546</sport><dport>8080</dport></layer4><counters><packets>6</packets><bytes>554</bytes></counters></meta><meta direction="reply"><layer3 protonum="10" protoname="ipv6"><src>::1</src><dst>::1</dst></layer3><layer4 protonum="6" protoname="tcp"><sport>8080</sport><dport>40546</dport></layer4><counters><packets>6</packets><bytes>1501</bytes></counters></meta><meta direction="independent"><state>TIME_WAIT</state><timeout>119</timeout><zone>3</zone><id>2912185036</id><assured/><timestamp><start>1796100472338879825</start><stop>1796100472927217280</stop></timestamp><deltatime>0</deltatime></meta></flow> [USERSPACE] portid=2707720859
<flow>
	<meta direction="original"><layer3 protonum="2" protoname="ipv4"><src>127.0.0.1</src><dst>127.0.0.1</dst></layer3><layer4 protonum="17" protoname="udp"><sport>56398</sport><dport>9999</dport></layer4></meta>
	<meta direction="reply"><layer3 protonum="2" protoname="ipv4"><src>127.0.0.1</src><dst>127.0.0.1</dst></layer3><layer4 protonum="17" protoname="udp"><sport>9999</sport><dport>56398</dport></layer4></meta>
	<meta direction="independent"><timeout>29</timeout><mark>0</mark><use>1</use><id>1321277401</id><unreplied/></meta>
</flow>
<flow type="new"><meta direction="original"><layer3 protonum="2" protoname="ipv4"><src>127.0.0.1</src><dst>127.0.0.1</dst></layer3><layer4 protonum="1" protoname="icmp"></layer4></meta><meta direction="reply"></meta></flow>
<flow type="new"><meta direction="original">
<flow type="sold"><meta direction="original"></meta></flow>
<flow type="new"><meta direction="original"></mta></flow>
<flow type="new"><meta direc"#;

#[test]
fn xml_is_read_flow_by_flow() {
    check(
        XML,
        expect![[r#"
            New at 1796100472 local SYN_SENT 120s 127.0.0.1:57084 > 127.0.0.9:80 reply 127.0.0.1:8080 > 127.0.0.1:57084 unreplied id 239415521
            Destroy TIME_WAIT 119s [::1]:40546 > [::1]:8080 reply [::1]:8080 > [::1]:40546 assured zone 3/3 id 2912185036 made 1796100472.338880
            Listed protocol 17 29s 127.0.0.1:56398 > 127.0.0.1:9999 reply 127.0.0.1:9999 > 127.0.0.1:56398 unreplied mark 0 id 1321277401
            unread: a flow of unknown type 1x, first in line 12
            unread: a flow that is none 1x, first in line 13
            unread: a flow without its end 2x, first in line 11
            other protocols: 1
        "#]],
    );
}

#[test]
fn a_local_time_needs_the_zone_of_the_node() {
    let (flows, _) = read(Form::Xml, XML.as_bytes(), 4096);
    let stamp = flows[0].time.unwrap().with_offset(3600);
    assert_eq!((stamp.at.0, stamp.step_ns), (1_796_096_872_000_000_000, 1_000_000_000));
}

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/kubernetes-1.36-readiness");

fn recorded(name: &str) -> Vec<u8> {
    let bytes = std::fs::read(format!("{FOLDER}/{name}")).unwrap();
    if name.ends_with(".zst") { zstd::decode_all(&bytes[..]).unwrap() } else { bytes }
}

#[test]
fn the_recorded_events_are_read_to_the_last() {
    let log = recorded("conntrack-events.log.zst");
    let (flows, counts) = read(Form::Text, &log, 64 * 1024);
    assert!(counts.unread.is_empty(), "{:?}", counts.unread);
    let of = |kind| flows.iter().filter(|flow| flow.kind == kind).count();
    // As counted with grep.
    assert_eq!(
        (of(FlowKind::New), of(FlowKind::Update), of(FlowKind::Destroy)),
        (28_770, 143_072, 16_249)
    );
    let destroyed = |state, killed: bool| {
        flows
            .iter()
            .filter(|flow| flow.kind == FlowKind::Destroy && flow.state == Some(state))
            .filter(|flow| flow.remaining.is_some() == killed)
            .count()
    };
    assert_eq!(destroyed(CtState::TimeWait, true), 14_819);
    assert_eq!(destroyed(CtState::TimeWait, false), 1_390);
    assert_eq!(destroyed(CtState::Close, true), 13);
    assert_eq!(destroyed(CtState::SynSent, false), 27);
}

#[test]
fn the_recorded_stale_entries_point_at_the_three_old_pods() {
    let log = recorded("conntrack-events.log.zst");
    let (mut events, _) = read(Form::Text, &log, 64 * 1024);
    events.retain(|event| event.kind != FlowKind::Update);
    let (listed, counts) =
        read(Form::Text, &recorded("conntrack-list-30s-after-rollout.txt"), 4096);
    assert!(counts.unread.is_empty());
    let mut stale: Vec<String> = Vec::new();
    for entry in &listed {
        let news: Vec<_> = events
            .iter()
            .filter(|event| event.kind == FlowKind::New && event.reply == entry.reply)
            .collect();
        let ends: Vec<_> = events
            .iter()
            .filter(|event| event.kind == FlowKind::Destroy && event.reply == entry.reply)
            .collect();
        // One NEW each, and no line when their ports came round again: five times for port 60914.
        let last = ends.last().unwrap();
        assert_eq!((news.len(), last.state), (1, Some(CtState::SynSent)), "{}", entry.orig);
        stale.push(entry.backend().unwrap().to_string());
    }
    stale.sort();
    let mut counted: Vec<(String, usize)> = Vec::new();
    for backend in stale {
        match counted.last_mut() {
            Some((last, count)) if *last == backend => *count += 1,
            _ => counted.push((backend, 1)),
        }
    }
    expect![[r#"[("10.244.1.20:8080", 10), ("10.244.2.6:8080", 9), ("10.244.2.7:8080", 8)]"#]]
        .assert_eq(&format!("{counted:?}"));
}

fn a_line() -> impl Strategy<Value = String> {
    let words = prop_oneof![
        Just("tcp".to_owned()),
        Just("6".to_owned()),
        Just("[NEW]".to_owned()),
        Just("[".to_owned()),
        Just("]".to_owned()),
        Just("[1796091212.5 ]".to_owned()),
        Just("SYN_SENT".to_owned()),
        Just("src=::1".to_owned()),
        Just("dst=192.0.2.1".to_owned()),
        Just("sport=1".to_owned()),
        Just("dport=65535".to_owned()),
        Just("[start=Tue Dec  1 04:47:52 2026]".to_owned()),
        "[a-z=\\[\\]0-9.]{0,12}",
    ];
    proptest::collection::vec(words, 0..16).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn any_bytes_are_read_to_their_end(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        lines in proptest::collection::vec(a_line(), 0..8),
        chunk in 1..200_usize,
    ) {
        for bytes in [bytes, lines.join("\n").into_bytes()] {
            for form in [Form::Text, Form::Xml] {
                prop_assert_eq!(read(form, &bytes, chunk), read(form, &bytes, usize::MAX));
            }
            let _ = looks_like(&bytes);
        }
    }

    #[test]
    fn cut_and_flipped_xml_costs_the_flows_that_it_hits(
        at in 0..XML.len(), bit in 0..8_u8, cut in 0..XML.len(), chunk in 1..900_usize,
    ) {
        let mut bytes = XML.as_bytes().to_vec();
        bytes[at] ^= 1 << bit;
        bytes.truncate(cut);
        let (flows, counts) = read(Form::Xml, &bytes, chunk);
        prop_assert!(flows.len() <= 3);
        prop_assert_eq!(flows.len() as u64, counts.flows);
    }
}
