//! Captures made here by the formats' drafts, and what becomes of them under damage.

use std::net::SocketAddr;

use expect_test::expect;
use proptest::prelude::*;

use super::{Counts, Decoder, Loss, PcapError, Step, is_capture};
use crate::model::{Captured, Segment, TcpFlags};

/// Which form a capture is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Pcap { nanos: bool },
    PcapNg { nanos: bool },
}

const FORMS: [Form; 4] = [
    Form::Pcap { nanos: false },
    Form::Pcap { nanos: true },
    Form::PcapNg { nanos: false },
    Form::PcapNg { nanos: true },
];

/// Writes captures in either byte order.
struct Writer {
    big: bool,
    bytes: Vec<u8>,
}

impl Writer {
    fn u16(&mut self, number: u16) -> &mut Writer {
        let bytes = if self.big { number.to_be_bytes() } else { number.to_le_bytes() };
        self.raw(&bytes)
    }

    fn u32(&mut self, number: u32) -> &mut Writer {
        let bytes = if self.big { number.to_be_bytes() } else { number.to_le_bytes() };
        self.raw(&bytes)
    }

    fn raw(&mut self, bytes: &[u8]) -> &mut Writer {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// A pcapng block around a body.
    fn block(&mut self, kind: u32, body: impl FnOnce(&mut Writer)) -> &mut Writer {
        let mut inner = Writer { big: self.big, bytes: Vec::new() };
        body(&mut inner);
        inner.bytes.resize(inner.bytes.len().next_multiple_of(4), 0);
        let length = u32::try_from(inner.bytes.len()).unwrap() + 12;
        self.u32(kind).u32(length).raw(&inner.bytes).u32(length)
    }

    fn section(&mut self) -> &mut Writer {
        self.block(0x0a0d_0d0a, |body| {
            body.u32(0x1a2b_3c4d).u16(1).u16(0).raw(&[0xff; 8]);
        })
    }

    fn interface(&mut self, link: u16, resolution: Option<u8>) -> &mut Writer {
        self.block(1, |body| {
            body.u16(link).u16(0).u32(0);
            if let Some(resolution) = resolution {
                body.u16(9).u16(1).raw(&[resolution, 0, 0, 0]).u16(0).u16(0);
            }
        })
    }

    fn packet(
        &mut self,
        interface: u32,
        ticks: u64,
        data: &[u8],
        flags: Option<u32>,
    ) -> &mut Writer {
        let length = u32::try_from(data.len()).unwrap();
        self.block(6, |body| {
            body.u32(interface).u32((ticks >> 32) as u32).u32(ticks as u32).u32(length).u32(1500);
            body.raw(data).bytes.resize((20 + data.len()).next_multiple_of(4), 0);
            if let Some(flags) = flags {
                body.u16(2).u16(4).u32(flags).u16(0).u16(0);
            }
        })
    }
}

fn write(form: Form, big: bool, link: u16, packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut out = Writer { big, bytes: Vec::new() };
    match form {
        Form::Pcap { nanos } => {
            out.u32(if nanos { 0xa1b2_3c4d } else { 0xa1b2_c3d4 });
            out.u16(2).u16(4).u32(0).u32(0).u32(96).u32(u32::from(link));
            for (time, data) in packets {
                let unit = if nanos { 1 } else { 1000 };
                out.u32((time / 1_000_000_000) as u32).u32((time % 1_000_000_000 / unit) as u32);
                out.u32(data.len() as u32).u32(data.len() as u32).raw(data);
            }
        }
        Form::PcapNg { nanos } => {
            out.section().interface(link, nanos.then_some(9));
            for (time, data) in packets {
                out.packet(0, if nanos { *time } else { time / 1000 }, data, None);
            }
        }
    }
    out.bytes
}

/// A TCP segment with a timestamp option, in an IP packet.
fn ip(src: &str, dst: &str, flags: u8, seq: u32, ack: u32) -> Vec<u8> {
    let (src, dst): (SocketAddr, SocketAddr) = (src.parse().unwrap(), dst.parse().unwrap());
    let mut tcp = Vec::new();
    tcp.extend(src.port().to_be_bytes());
    tcp.extend(dst.port().to_be_bytes());
    tcp.extend(seq.to_be_bytes());
    tcp.extend(ack.to_be_bytes());
    tcp.extend([0xa0, flags, 0xfa, 0xf0, 0, 0, 0, 0]);
    tcp.extend([2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 77, 0, 0, 0, 0, 1, 3, 3, 7]);
    around(src, dst, 6, &tcp)
}

fn around(src: SocketAddr, dst: SocketAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    match (src, dst) {
        (SocketAddr::V4(src), SocketAddr::V4(dst)) => {
            packet.extend([
                0x45,
                0,
                0,
                20 + payload.len() as u8,
                0,
                0,
                0x40,
                0,
                64,
                protocol,
                0,
                0,
            ]);
            packet.extend(src.ip().octets());
            packet.extend(dst.ip().octets());
        }
        (SocketAddr::V6(src), SocketAddr::V6(dst)) => {
            packet.extend([0x60, 0, 0, 0, 0, payload.len() as u8, protocol, 64]);
            packet.extend(src.ip().octets());
            packet.extend(dst.ip().octets());
        }
        _ => unreachable!("one family"),
    }
    packet.extend(payload);
    packet
}

const CLIENT: &str = "10.244.1.16:40000";
const SERVICE: &str = "10.96.0.10:80";

fn syn(seq: u32) -> Vec<u8> {
    ip(CLIENT, SERVICE, TcpFlags::SYN, seq, 0)
}

fn ethernet(protocol: u16, packet: &[u8]) -> Vec<u8> {
    [&[0; 12][..], &protocol.to_be_bytes(), packet].concat()
}

/// Every step, the bytes fed in pieces of `chunk`.
fn steps(bytes: &[u8], chunk: usize) -> (Vec<Step>, Result<Counts, PcapError>) {
    let mut decoder = Decoder::new();
    let mut chunks = bytes.chunks(chunk);
    let mut steps = Vec::new();
    loop {
        match decoder.step() {
            Ok(Step::More) => match chunks.next() {
                Some(chunk) => decoder.feed(chunk),
                None => decoder.close(),
            },
            Ok(Step::End) => return (steps, Ok(*decoder.counts())),
            Ok(step) => steps.push(step),
            Err(error) => return (steps, Err(error)),
        }
    }
}

fn packets(bytes: &[u8]) -> Vec<Captured> {
    let (steps, counts) = steps(bytes, 1 << 16);
    let packets: Vec<Captured> = steps
        .into_iter()
        .map(|step| match step {
            Step::Packet(packet) => packet,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(counts.unwrap().taken, packets.len() as u64);
    packets
}

fn says(packet: &Captured) -> String {
    let way = packet.way.map_or("-".to_owned(), |way| format!("{way:?}"));
    let segment = match packet.segment {
        Segment::Tcp { flags, seq, ack } => format!("{:#04x} seq {seq} ack {ack}", flags.0),
        Segment::IcmpError { kind, code, from } => {
            format!("icmp {kind}/{code} from {from} about {:?}", packet.about)
        }
    };
    let time = packet.time.0;
    format!(
        "{time} {}/{way} {} {segment} ts {:?}",
        packet.ifindex.0, packet.tuple, packet.timestamp
    )
}

#[test]
fn both_formats_in_both_byte_orders_and_both_resolutions_say_the_same() {
    let time = 1_796_091_205_000_045_000;
    for form in FORMS {
        for big in [false, true] {
            let bytes = write(form, big, 101, &[(time, syn(7)), (time + 5000, syn(8))]);
            assert!(is_capture(&bytes));
            let found = packets(&bytes);
            assert_eq!(found.len(), 2, "{form:?}");
            let interface = u32::from(matches!(form, Form::PcapNg { .. }));
            assert_eq!(
                says(&found[1]),
                format!(
                    "1796091205000050000 {interface}/- 10.244.1.16:40000 > 10.96.0.10:80 \
                     0x02 seq 8 ack 0 ts Some(77)"
                )
            );
        }
    }
}

#[test]
fn nanoseconds_are_kept() {
    for form in [Form::Pcap { nanos: true }, Form::PcapNg { nanos: true }] {
        let bytes = write(form, false, 101, &[(1_000_000_000_123_456_789, syn(7))]);
        assert_eq!(packets(&bytes)[0].time.0, 1_000_000_000_123_456_789);
    }
}

#[test]
fn every_link_type_finds_the_packet() {
    let cooked = |kind: u16| {
        [&kind.to_be_bytes()[..], &[0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0], &syn(7)].concat()
    };
    let v6 = ip("[fd00::1]:40000", "[fd00::2]:80", TcpFlags::SYN, 7, 0);
    let cooked_v2 =
        [&[0x86, 0xdd, 0, 0, 0, 0, 0, 22, 0, 1, 4, 6, 0, 0, 0, 0, 0, 0, 0, 0][..], &v6].concat();
    let found: Vec<String> = [
        (1, ethernet(0x0800, &syn(7))),
        (1, ethernet(0x8100, &[&[0, 5, 8, 0][..], &syn(7)].concat())),
        (1, ethernet(0x88a8, &[&[0, 5, 0x81, 0, 0, 6, 0x86, 0xdd][..], &v6].concat())),
        (113, cooked(0)),
        (113, cooked(4)),
        (276, cooked_v2),
        (12, syn(7)),
        (101, v6.clone()),
        (228, syn(7)),
        (229, v6.clone()),
        (0, [&2_u32.to_le_bytes()[..], &syn(7)].concat()),
        (108, [&24_u32.to_be_bytes()[..], &v6].concat()),
    ]
    .into_iter()
    .map(|(link, data)| {
        let bytes = write(Form::Pcap { nanos: true }, false, link, &[(1, data)]);
        format!("{link}: {}\n", says(&packets(&bytes)[0]))
    })
    .collect();
    expect![[r#"
        1: 1 0/- 10.244.1.16:40000 > 10.96.0.10:80 0x02 seq 7 ack 0 ts Some(77)
        1: 1 0/- 10.244.1.16:40000 > 10.96.0.10:80 0x02 seq 7 ack 0 ts Some(77)
        1: 1 0/- [fd00::1]:40000 > [fd00::2]:80 0x02 seq 7 ack 0 ts Some(77)
        113: 1 0/In 10.244.1.16:40000 > 10.96.0.10:80 0x02 seq 7 ack 0 ts Some(77)
        113: 1 0/Out 10.244.1.16:40000 > 10.96.0.10:80 0x02 seq 7 ack 0 ts Some(77)
        276: 1 22/Out [fd00::1]:40000 > [fd00::2]:80 0x02 seq 7 ack 0 ts Some(77)
        12: 1 0/- 10.244.1.16:40000 > 10.96.0.10:80 0x02 seq 7 ack 0 ts Some(77)
        101: 1 0/- [fd00::1]:40000 > [fd00::2]:80 0x02 seq 7 ack 0 ts Some(77)
        228: 1 0/- 10.244.1.16:40000 > 10.96.0.10:80 0x02 seq 7 ack 0 ts Some(77)
        229: 1 0/- [fd00::1]:40000 > [fd00::2]:80 0x02 seq 7 ack 0 ts Some(77)
        0: 1 0/- 10.244.1.16:40000 > 10.96.0.10:80 0x02 seq 7 ack 0 ts Some(77)
        108: 1 0/- [fd00::1]:40000 > [fd00::2]:80 0x02 seq 7 ack 0 ts Some(77)
    "#]]
    .assert_eq(&found.concat());
}

#[test]
fn a_snapshot_that_ends_within_the_options_still_tells_the_segment() {
    let mut cut = syn(7);
    cut.truncate(20 + 20 + 4);
    let found = packets(&write(Form::Pcap { nanos: true }, false, 101, &[(1, cut.clone())]));
    assert_eq!((found[0].segment, found[0].timestamp), (syn_segment(7), None));
    cut.truncate(20 + 12);
    let (steps, counts) = steps(&write(FORMS[0], false, 101, &[(1, cut)]), 7);
    assert_eq!((steps, counts.unwrap().too_short), (vec![], 1));
}

fn syn_segment(seq: u32) -> Segment {
    Segment::Tcp { flags: TcpFlags(TcpFlags::SYN), seq, ack: 0 }
}

#[test]
fn what_is_no_packet_of_ours_is_counted_by_its_reason() {
    let mut fragment = syn(7);
    fragment[6..8].copy_from_slice(&[0, 9]);
    let mut malformed = syn(7);
    malformed[0] = 0x41;
    let udp = around(CLIENT.parse().unwrap(), SERVICE.parse().unwrap(), 17, &[0; 8]);
    let ack = ip(CLIENT, SERVICE, TcpFlags::ACK, 1, 1);
    let data: Vec<(u64, Vec<u8>)> = [
        ethernet(0x0806, &[0; 28]),
        ethernet(0x0800, &udp),
        ethernet(0x0800, &ack),
        ethernet(0x0800, &fragment),
        ethernet(0x0800, &malformed),
        ethernet(0x0800, &syn(7)[..30]),
        ethernet(0x0800, &syn(7)),
    ]
    .map(|data| (1, data))
    .into();
    let (steps, counts) = steps(&write(FORMS[2], true, 1, &data), 64);
    let counts = counts.unwrap();
    assert_eq!((steps.len(), counts.packets, counts.taken), (1, 7, 1));
    let reasons: Vec<_> = counts.passed_over().collect();
    assert_eq!(
        reasons,
        [
            ("TCP segments of open connections", 1),
            ("not TCP", 2),
            ("fragments", 1),
            ("captured too short", 1),
            ("malformed headers", 1),
        ]
    );
}

#[test]
fn an_icmp_error_tells_which_syn_it_is_about() {
    let from = "10.244.1.1:0".parse().unwrap();
    let quoting = |kind: u8, code: u8| {
        let payload = [&[kind, code, 0, 0, 0, 0, 0, 0][..], &syn(7)[..28]].concat();
        around(from, CLIENT.parse().unwrap(), 1, &payload)
    };
    let bytes = write(FORMS[0], false, 101, &[(1000, quoting(3, 1)), (2000, quoting(8, 0))]);
    let (steps, counts) = steps(&bytes, 1000);
    let [Step::Packet(packet)] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!(
        says(packet),
        "1000 0/- 10.244.1.16:40000 > 10.96.0.10:80 icmp 3/1 from 10.244.1.1 about Some(7) ts None"
    );
    assert_eq!(counts.unwrap().not_tcp, 1);
}

#[test]
fn sections_have_interfaces_of_their_own_and_unknown_blocks_are_skipped() {
    let mut out = Writer { big: false, bytes: Vec::new() };
    out.section().interface(147, None).interface(101, Some(9)).block(0xbad, |body| {
        body.raw(b"custom");
    });
    out.packet(1, 1_000_000_007, &syn(1), Some(1)).packet(0, 5, &syn(2), None);
    // No interface 7, and no time in a simple packet.
    out.packet(7, 5, &syn(2), None).block(3, |body| {
        body.u32(60).raw(&syn(3));
    });
    out.big = true;
    // 2^-20 s.
    out.section().interface(101, Some(0x94)).packet(0, 3 << 20, &syn(4), Some(2));
    let (steps, counts) = steps(&out.bytes, 5);
    let found: Vec<String> = steps
        .iter()
        .map(|step| match step {
            Step::Packet(packet) => says(packet),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(
        found,
        [
            "1000000007 2/In 10.244.1.16:40000 > 10.96.0.10:80 0x02 seq 1 ack 0 ts Some(77)",
            "3000000000 1/Out 10.244.1.16:40000 > 10.96.0.10:80 0x02 seq 4 ack 0 ts Some(77)",
        ]
    );
    let counts = counts.unwrap();
    assert_eq!((counts.packets, counts.unknown_link, counts.without_time), (5, 2, 1));
}

#[test]
fn what_its_maker_dropped_is_lost() {
    let mut out = Writer { big: false, bytes: Vec::new() };
    out.section().interface(101, Some(9));
    for dropped in [0_u32, 3, 5] {
        out.packet(0, 1, &syn(1), None).block(5, |body| {
            body.u32(0).u32(0).u32(0).u16(5).u16(8).u32(dropped).u32(0).u16(0).u16(0);
        });
    }
    let (steps, counts) = steps(&out.bytes, 500);
    let lost: Vec<_> = steps.iter().filter(|step| matches!(step, Step::Lost(_))).collect();
    assert_eq!(
        lost,
        [&Step::Lost(Loss::Dropped { packets: 3 }), &Step::Lost(Loss::Dropped { packets: 2 })]
    );
    assert_eq!(counts.unwrap().dropped, 5);
}

#[test]
fn what_is_no_capture_is_refused_with_one_line() {
    let says = |bytes: &[u8]| steps(bytes, 3).1.unwrap_err().to_string();
    assert_eq!(says(b""), "is empty");
    assert_eq!(says(b"\x7fELF and so on"), "is not a capture");
    assert_eq!(says(b"ab"), "is not a capture");
    assert_eq!(says(b"\x0a\x0d\x0d\x0a and so on, further"), "is not a capture");
    assert_eq!(
        says(&write(FORMS[0], true, 1, &[])[..20]),
        "is a capture that was cut off within its header"
    );
    for form in FORMS {
        assert_eq!(
            says(&write(form, false, 127, &[(1, syn(1)), (2, syn(2))])),
            "is a capture of link type 127 (IEEE 802.11 with radiotap); capture on Ethernet, or on `any` \
             (Linux cooked), or raw IP"
        );
    }
    // One without packets has nothing that could not be read.
    assert_eq!(steps(&write(FORMS[0], false, 127, &[]), 9).1, Ok(Counts::default()));
}

/// A capture of 40 SYNs, a millisecond apart.
fn forty(form: Form, big: bool) -> Vec<u8> {
    let data: Vec<_> =
        (0..40).map(|n| (1_796_091_205_000_000_000 + n * 1_000_000, syn(n as u32))).collect();
    write(form, big, 101, &data)
}

#[test]
fn damage_costs_the_packets_that_it_hit_and_one_neighbour_at_most() {
    for form in FORMS {
        let whole = forty(form, false);
        let size = (whole.len() - forty_starts(form)) / 40;
        for byte in 0..size {
            let mut bytes = whole.clone();
            bytes[forty_starts(form) + 20 * size + byte] ^= 0x40;
            let (steps, counts) = steps(&bytes, 4096);
            let taken = counts.unwrap().taken;
            assert!(
                taken >= 38,
                "{form:?}: {taken} packets with byte {byte} of one damaged: {steps:?}"
            );
        }
    }
}

/// Where the packets begin.
fn forty_starts(form: Form) -> usize {
    write(form, false, 101, &[]).len()
}

#[test]
fn a_hole_in_the_middle_is_named_and_passed() {
    for form in FORMS {
        let mut bytes = forty(form, true);
        let start = forty_starts(form);
        let size = (bytes.len() - start) / 40;
        bytes.drain(start + 10 * size + 5..start + 20 * size + 9);
        let (steps, counts) = steps(&bytes, 333);
        let counts = counts.unwrap();
        assert_eq!((counts.damaged_places, counts.cut_short), (1, false), "{form:?}");
        assert!(counts.taken >= 28, "{form:?}: {counts:?}");
        assert!(steps.iter().any(|step| matches!(step, Step::Lost(Loss::Damaged { .. }))));
    }
}

#[test]
fn a_capture_that_ends_within_a_packet_is_cut_short() {
    for form in FORMS {
        let bytes = forty(form, false);
        let (steps, counts) = steps(&bytes[..bytes.len() - 7], 333);
        assert_eq!(steps.len(), 40);
        assert_eq!(steps[39], Step::Lost(Loss::CutShort), "{form:?}");
        assert!(counts.unwrap().cut_short);
    }
}

fn form() -> impl Strategy<Value = Form> {
    proptest::sample::select(&FORMS[..])
}

proptest! {
    #[test]
    fn any_bytes_behind_any_header_end(form in form(), big: bool, link: u16, bytes: Vec<u8>, chunk in 1..64_usize) {
        let file = [write(form, big, link, &[]), bytes.clone()].concat();
        for file in [file, bytes] {
            let _ = steps(&file, chunk);
        }
    }

    #[test]
    fn any_packet_is_taken_or_counted(link in proptest::sample::select(&[0_u16, 1, 101, 113, 276][..]), data in proptest::collection::vec(any::<u8>(), 0..96)) {
        let (steps, counts) = steps(&write(FORMS[1], false, link, &[(1, data)]), 99);
        let counts = counts.unwrap();
        let passed_over: u64 = counts.passed_over().map(|(_, count)| count).sum();
        prop_assert_eq!((counts.packets, counts.taken + passed_over), (1, 1));
        prop_assert_eq!(steps.len() as u64, counts.taken);
    }

    #[test]
    fn cut_anywhere_the_packets_before_are_read(form in form(), big: bool, cut: prop::sample::Index) {
        let whole = forty(form, big);
        let start = forty_starts(form);
        let cut = start + cut.index(whole.len() - start);
        let size = (whole.len() - start) / 40;
        let (steps, counts) = steps(&whole[..cut], 4096);
        let counts = counts.unwrap();
        prop_assert_eq!(counts.taken as usize, (cut - start) / size);
        prop_assert_eq!(counts.cut_short, !(cut - start).is_multiple_of(size));
        prop_assert_eq!(steps.len() as u64, counts.taken + u64::from(counts.cut_short));
    }

    #[test]
    fn flipped_bits_end_and_the_pieces_do_not_matter(
        form in form(),
        big: bool,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 1..8),
        chunk in 1..2000_usize,
    ) {
        let mut bytes = forty(form, big);
        for (index, bit) in flips {
            let index = index.index(bytes.len());
            bytes[index] ^= 1 << bit;
        }
        prop_assert_eq!(steps(&bytes, chunk), steps(&bytes, usize::MAX));
    }
}
