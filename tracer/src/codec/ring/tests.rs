//! Tests of the decoder. Records are put together field by field, at the layout's own offsets.

use proptest::prelude::*;

use super::*;

/// A record in the making.
struct Bytes(Vec<u8>);

impl Bytes {
    fn new(length: usize) -> Bytes {
        Bytes(vec![0; length])
    }

    fn put(mut self, at: usize, bytes: &[u8]) -> Bytes {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn put_ends(self, at: usize, tuple: Tuple) -> Bytes {
        self.put(at + offset_of!(record::Ends, src), &octets(tuple.src.ip()))
            .put(at + offset_of!(record::Ends, dst), &octets(tuple.dst.ip()))
            .put(at + offset_of!(record::Ends, src_port), &tuple.src.port().to_be_bytes())
            .put(at + offset_of!(record::Ends, dst_port), &tuple.dst.port().to_be_bytes())
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn end(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

const HZ: Kernel = Kernel { hz: Some(250) };

fn encode_packet(time: MonoNs, event: &PacketEvent) -> Bytes {
    let length = match event.lookup {
        Some(_) => size_of::<record::PacketWithEntry>(),
        None => size_of::<record::Packet>(),
    };
    let kind = match event.lookup {
        Some(_) => record::KIND_PACKET_WITH_ENTRY,
        None => record::KIND_PACKET,
    };
    let hook = Hook::ALL.iter().position(|hook| *hook == event.hook).expect("it is one of them");
    let bytes = Bytes::new(length)
        .put(offset_of!(record::Packet, time_ns), &time.0.to_ne_bytes())
        .put(offset_of!(record::Packet, kind), &[kind])
        .put(offset_of!(record::Packet, hook), &[hook as u8])
        .put(offset_of!(record::Packet, netns), &event.netns.0.to_ne_bytes())
        .put(offset_of!(record::Packet, ifindex), &event.ifindex.0.to_ne_bytes())
        .put(offset_of!(record::Packet, has_reason), &[u8::from(event.drop.is_some())])
        .put(
            offset_of!(record::Packet, drop_reason),
            &event.drop.map_or(0, |reason| reason.0).to_ne_bytes(),
        )
        .put_ends(offset_of!(record::Packet, ends), event.tuple);
    let detail = offset_of!(record::Packet, detail);
    match event.segment {
        Segment::Tcp { flags, seq, ack } => bytes
            .put(offset_of!(record::Packet, protocol), &[record::TCP])
            .put(offset_of!(record::Packet, tcp_flags), &[flags.0])
            .put(detail, &seq.to_be_bytes())
            .put(detail + 4, &ack.to_be_bytes()),
        Segment::IcmpError { kind, code, from } => bytes
            .put(
                offset_of!(record::Packet, protocol),
                &[if from.is_ipv4() { record::ICMP } else { record::ICMPV6 }],
            )
            .put(offset_of!(record::Packet, icmp_kind), &[kind])
            .put(offset_of!(record::Packet, icmp_code), &[code])
            .put(detail, &octets(from)),
    }
}

fn put_entry(bytes: Bytes, lookup: &Lookup, state: u8, timeout: u32, jiffies: u32) -> Bytes {
    let entry = offset_of!(record::PacketWithEntry, entry);
    bytes
        .put_ends(entry + offset_of!(record::Entry, orig), lookup.orig)
        .put_ends(entry + offset_of!(record::Entry, reply), lookup.reply)
        .put(entry + offset_of!(record::Entry, zone), &lookup.zone.to_ne_bytes())
        .put(entry + offset_of!(record::Entry, status), &lookup.status.0.to_ne_bytes())
        .put(entry + offset_of!(record::Entry, ctinfo), &[lookup.ctinfo.0])
        .put(entry + offset_of!(record::Entry, tcp_state), &[state])
        .put(entry + offset_of!(record::Entry, timeout), &timeout.to_ne_bytes())
        .put(entry + offset_of!(record::Entry, jiffies), &jiffies.to_ne_bytes())
}

fn syn() -> PacketEvent {
    PacketEvent {
        hook: Hook::NetDevStartXmit,
        netns: NetnsId(4_026_532_000),
        ifindex: IfIndex(7),
        tuple: Tuple::new(end("10.0.0.5:40001"), end("10.0.1.7:8080")),
        segment: Segment::Tcp { flags: TcpFlags(TcpFlags::SYN), seq: 0x0102_0304, ack: 0 },
        lookup: Some(Lookup {
            orig: Tuple::new(end("10.0.0.5:40001"), end("10.96.0.1:80")),
            reply: Tuple::new(end("10.0.1.7:8080"), end("10.0.0.5:40001")),
            zone: 3,
            status: CtStatus(CtStatus::CONFIRMED | CtStatus::DST_NAT),
            ctinfo: CtInfo(CtInfo::NEW),
            state: Some(CtState::SynSent),
            life: EntryLife::Remaining(Duration::from_millis(89_996)),
        }),
        drop: None,
    }
}

#[test]
fn a_syn_on_an_entry_comes_out_as_it_went_in() {
    let event = syn();
    let lookup = event.lookup.expect("it has one");
    let bytes = put_entry(encode_packet(MonoNs(5), &event), &lookup, 1, 22_499, 0);
    let decoded = decode(&bytes.0, HZ);
    assert_eq!(decoded, Ok(Event { time: MonoNs(5), kind: EventKind::Packet(event) }));
}

fn life_of(timeout: u32, jiffies: u32, status: u32, hz: Option<u32>) -> EntryLife {
    let event = syn();
    let lookup = Lookup { status: CtStatus(status), ..event.lookup.expect("it has one") };
    let bytes = put_entry(encode_packet(MonoNs(5), &event), &lookup, 1, timeout, jiffies);
    match decode(&bytes.0, Kernel { hz }).map(|event| event.kind) {
        Ok(EventKind::Packet(PacketEvent { lookup: Some(lookup), .. })) => lookup.life,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_entrys_life_is_counted_across_the_wrap_of_the_ticks() {
    let confirmed = CtStatus::CONFIRMED;
    let remaining = |seconds| EntryLife::Remaining(Duration::from_secs(seconds));
    assert_eq!(life_of(30_000, 0, confirmed, Some(250)), remaining(120));
    assert_eq!(life_of(29_744, u32::MAX - 255, confirmed, Some(250)), remaining(120));
    assert_eq!(life_of(5 * 86_400 * 1000, 0, confirmed, Some(1000)), remaining(5 * 86_400));
}

#[test]
fn an_entry_whose_time_is_over_has_expired() {
    assert_eq!(life_of(7, 7, CtStatus::CONFIRMED, Some(250)), EntryLife::Expired);
    assert_eq!(life_of(u32::MAX, 5, CtStatus::CONFIRMED, Some(250)), EntryLife::Expired);
}

#[test]
fn an_unconfirmed_entrys_timeout_is_relative() {
    let life = life_of(30_000, 77_777, 0, Some(250));
    assert_eq!(life, EntryLife::Unconfirmed(Duration::from_secs(120)));
}

#[test]
fn without_the_tick_rate_nothing_is_guessed() {
    assert_eq!(life_of(30_000, 0, CtStatus::CONFIRMED, None), EntryLife::Unknown);
    assert_eq!(life_of(30_000, 0, CtStatus::CONFIRMED, Some(0)), EntryLife::Unknown);
}

#[test]
fn a_state_that_could_not_be_read_is_none() {
    let event = syn();
    let lookup = event.lookup.expect("it has one");
    let unknown = record::TCP_STATE_UNKNOWN;
    let bytes = put_entry(encode_packet(MonoNs(5), &event), &lookup, unknown, 1, 0);
    match decode(&bytes.0, HZ).map(|event| event.kind) {
        Ok(EventKind::Packet(PacketEvent { lookup: Some(lookup), .. })) => {
            assert_eq!(lookup.state, None);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn odd_records_are_named() {
    let bytes = encode_packet(MonoNs(5), &PacketEvent { lookup: None, ..syn() }).0;
    let with = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        decode(&bytes, HZ)
    };
    assert_eq!(decode(&[], HZ), Err(RingError::Length { length: 0 }));
    assert_eq!(decode(&bytes[..79], HZ), Err(RingError::Length { length: 79 }));
    assert_eq!(with(offset_of!(record::Packet, kind), 9), Err(RingError::Kind { kind: 9 }));
    assert_eq!(with(offset_of!(record::Packet, hook), 5), Err(RingError::Hook { hook: 5 }));
    let protocol = with(offset_of!(record::Packet, protocol), 17);
    assert_eq!(protocol, Err(RingError::Protocol { protocol: 17 }));
}

fn any_end() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), any::<u16>()).prop_map(|(address, port)| {
        // What is written as a mapped address is the IPv4 address.
        SocketAddr::new(address.to_canonical(), port)
    })
}

fn any_tuple() -> impl Strategy<Value = Tuple> {
    (any_end(), any_end()).prop_map(|(src, dst)| Tuple { src, dst })
}

fn any_segment() -> impl Strategy<Value = Segment> {
    prop_oneof![
        (any::<u8>(), any::<u32>(), any::<u32>()).prop_map(|(flags, seq, ack)| Segment::Tcp {
            flags: TcpFlags(flags),
            seq,
            ack
        }),
        (any::<u8>(), any::<u8>(), any::<IpAddr>()).prop_map(|(kind, code, from)| {
            Segment::IcmpError { kind, code, from: from.to_canonical() }
        }),
    ]
}

proptest! {
    #[test]
    fn packets_come_out_as_they_went_in(
        hook in 0_usize..5,
        (time, netns, ifindex) in any::<(u64, u32, u32)>(),
        tuple in any_tuple(),
        segment in any_segment(),
        drop in proptest::option::of(any::<u32>().prop_map(DropReason)),
    ) {
        let event = PacketEvent {
            hook: Hook::ALL[hook],
            netns: NetnsId(netns),
            ifindex: IfIndex(ifindex),
            tuple,
            segment,
            lookup: None,
            drop,
        };
        let decoded = decode(&encode_packet(MonoNs(time), &event).0, HZ);
        prop_assert_eq!(decoded, Ok(Event { time: MonoNs(time), kind: EventKind::Packet(event) }));
    }

    #[test]
    fn sockets_come_out_as_they_went_in(
        (time, netns, old, new) in any::<(u64, u32, u8, u8)>(),
        tuple in any_tuple(),
    ) {
        let bytes = Bytes::new(size_of::<record::Socket>())
            .put(offset_of!(record::Socket, time_ns), &time.to_ne_bytes())
            .put(offset_of!(record::Socket, kind), &[record::KIND_SOCKET])
            .put(offset_of!(record::Socket, hook), &[4])
            .put(offset_of!(record::Socket, old), &[old])
            .put(offset_of!(record::Socket, new), &[new])
            .put(offset_of!(record::Socket, netns), &netns.to_ne_bytes())
            .put_ends(offset_of!(record::Socket, ends), tuple)
            .put(offset_of!(record::Socket, error), &110_u32.to_ne_bytes())
            .put(offset_of!(record::Socket, socket), &time.to_ne_bytes())
            .put(offset_of!(record::Socket, cgroup), &77_u64.to_ne_bytes())
            .put(offset_of!(record::Socket, pid), &netns.to_ne_bytes())
            .put(offset_of!(record::Socket, comm), b"curl\0");
        let by = Process { pid: netns, name: "curl".to_owned(), cgroup: 77 };
        let by = Some(by).filter(|by| by.pid != 0);
        let detail = SocketDetail { socket: time, errno: 110, by };
        prop_assert_eq!(socket_detail(&bytes.0), Some(detail));
        let event = TcpStateEvent {
            netns: NetnsId(netns),
            tuple,
            old: SockState::from_number(old),
            new: SockState::from_number(new),
        };
        let decoded = decode(&bytes.0, HZ);
        prop_assert_eq!(decoded, Ok(Event { time: MonoNs(time), kind: EventKind::TcpState(event) }));
    }

    #[test]
    fn random_bytes_do_no_harm(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        kind in 0_u8..5,
        length in proptest::sample::select(vec![80_usize, 96, 168]),
        hz in proptest::option::of(any::<u32>()),
    ) {
        let _ = decode(&bytes, Kernel { hz });
        let _ = socket_detail(&bytes);
        bytes.resize(length, 0);
        bytes[offset_of!(record::Packet, kind)] = kind;
        let _ = decode(&bytes, Kernel { hz });
        let _ = socket_detail(&bytes);
    }
}
