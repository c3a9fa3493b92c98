//! Captures that other programs wrote, against what tshark reads in them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use tracer::codec::pcap::Counts;
use tracer::files::{CaptureReader, Input, Kind, Piece};
use tracer::model::{Captured, Segment, Way};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures").join(name)
}

fn read(path: &Path) -> (Vec<Captured>, Counts) {
    let input = Input::open(path).unwrap();
    assert_eq!(input.kind(), Some(Kind::Capture));
    let mut reader = CaptureReader::new(input);
    let mut packets = Vec::new();
    for piece in reader.by_ref() {
        match piece.unwrap() {
            Piece::Packet(packet) => packets.push(packet),
            Piece::Lost(loss) => panic!("{loss:?}"),
        }
    }
    assert_eq!(reader.input().position(), reader.input().length());
    (packets, *reader.counts())
}

/// The packets as the fixtures' lines have them. `has_index`: the interface is the kernel's.
fn lines(packets: &[Captured]) -> String {
    let mut lines = String::new();
    for packet in packets {
        let (seconds, nanos) = (packet.time.0 / 1_000_000_000, packet.time.0 % 1_000_000_000);
        let cooked = packet.way.is_some();
        let index = if cooked { packet.ifindex.0.to_string() } else { "-".to_owned() };
        let way = match packet.way {
            None => "-",
            Some(Way::In) => "In",
            Some(Way::Out) => "Out",
        };
        let what = match packet.segment {
            Segment::Tcp { flags, seq, ack } => format!("{:#04x} seq {seq} ack {ack}", flags.0),
            Segment::IcmpError { kind, code, from } => {
                assert!(packet.about.is_some());
                format!("icmp {kind}/{code} from {from} about ?")
            }
        };
        let stamp = packet.timestamp.map_or("-".to_owned(), |stamp| stamp.to_string());
        writeln!(lines, "{seconds}.{nanos:09} {index} {way} {} {what} ts {stamp}", packet.tuple)
            .unwrap();
    }
    lines
}

#[test]
fn every_form_is_read_as_tshark_reads_it() {
    for name in ["ethernet.pcap", "any-sll.pcap", "any-sll2.pcap", "merged.pcapng"] {
        let (packets, _) = read(&fixture(name));
        let reference = fixture(&format!("{}.tshark.txt", name.replace('.', "-")));
        let mut expected = fs::read_to_string(reference).unwrap();
        if name == "any-sll.pcap" {
            // Cooked v1 has no index.
            expected = expected.replace(" - Out ", " 0 Out ").replace(" - In ", " 0 In ");
        }
        assert_eq!(lines(&packets), expected, "{name}");
    }
}

#[test]
fn what_a_short_snapshot_leaves_is_read() {
    let (packets, counts) = read(&fixture("ethernet-nano-short.pcap"));
    let (whole, of_whole) = read(&fixture("ethernet.pcap"));
    // 68 bytes end within the IPv6 segments' headers, behind their flags, and within what the ICMP error quotes.
    assert_eq!((counts.taken, counts.too_short), (of_whole.taken - 1, 1));
    for (packet, whole) in packets.iter().zip(&whole) {
        assert_eq!((packet.tuple, packet.segment), (whole.tuple, whole.segment));
        assert_eq!(packet.timestamp, whole.timestamp.filter(|_| packet.tuple.src.is_ipv4()));
        assert!(packet.time.0.abs_diff(whole.time.0) < 20_000);
    }
}
