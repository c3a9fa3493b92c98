//! A packet's bytes, rebuilt from the header fields that its event has: what a capture would hold of it, but
//! for payload, options and what else was not recorded.

use std::net::{IpAddr, SocketAddr};

use etherparse::{IpHeaders, PacketBuilder, PacketBuilderStep, TcpHeader};

use crate::model::{Hook, PacketEvent, Segment, TcpFlags, Tuple};

/// What a reader of such packets must know.
pub const MADE_UP: &str = "Packets are rebuilt from recorded header fields: addresses, ports, TCP flags, \
    sequence and acknowledgement numbers, ICMP type, code and sender are as recorded. Payload, options, time \
    to live (64 here), window (65535 here), identification, and the sequence number that an ICMP error quotes \
    (0 here) were not recorded; lengths and checksums are computed for what is here.";

const HOPS: u8 = 64;
const WINDOW: u16 = 65_535;

/// What an ICMP error quotes of the packet that it is about, behind the IP header (RFC 792).
const QUOTED: usize = 8;

/// An IP packet, from its first header on.
///
/// - `tcp_send_reset` has the segment that provokes the RST, and so has this.
/// - `tcp_receive_reset` has no packet but the socket's ends: a RST to the local one, with numbers of 0.
/// - Where addresses of both families meet, which no real packet has, the shorter one is mapped to the longer
///   (RFC 4291, 2.5.5.2).
pub fn packet(event: &PacketEvent) -> Vec<u8> {
    let Tuple { src, dst } = event.tuple;
    match event.segment {
        Segment::Tcp { flags, seq, ack } if event.hook == Hook::TcpReceiveReset => {
            tcp(dst, src, flags, seq, ack)
        }
        Segment::Tcp { flags, seq, ack } => tcp(src, dst, flags, seq, ack),
        Segment::IcmpError { kind, code, from } => {
            let mut about = tcp(src, dst, TcpFlags(0), 0, 0);
            let header = about.len() - TcpHeader::MIN_LEN;
            about.truncate(header + QUOTED);
            icmp(from, src.ip(), kind, code, &about)
        }
    }
}

fn tcp(src: SocketAddr, dst: SocketAddr, flags: TcpFlags, seq: u32, ack: u32) -> Vec<u8> {
    let has = |bit: u8| flags.0 & bit != 0;
    let mut header = TcpHeader::new(src.port(), dst.port(), seq, WINDOW);
    header.acknowledgment_number = ack;
    // RFC 9293, 3.1: the flags from the lowest bit on.
    header.fin = has(TcpFlags::FIN);
    header.syn = has(TcpFlags::SYN);
    header.rst = has(TcpFlags::RST);
    header.psh = has(0x08);
    header.ack = has(TcpFlags::ACK);
    header.urg = has(0x20);
    header.ece = has(0x40);
    header.cwr = has(0x80);
    let builder = ip(src.ip(), dst.ip()).tcp_header(header);
    let mut bytes = Vec::with_capacity(builder.size(0));
    builder.write(&mut bytes, &[]).expect("memory takes it, and it has no payload");
    bytes
}

fn icmp(from: IpAddr, to: IpAddr, kind: u8, code: u8, about: &[u8]) -> Vec<u8> {
    let builder = ip(from, to);
    let mut bytes = Vec::new();
    let written = if from.is_ipv4() && to.is_ipv4() {
        builder.icmpv4_raw(kind, code, [0; 4]).write(&mut bytes, about)
    } else {
        builder.icmpv6_raw(kind, code, [0; 4]).write(&mut bytes, about)
    };
    written.expect("memory takes it, and a quote is far below 64 KiB");
    bytes
}

fn ip(from: IpAddr, to: IpAddr) -> PacketBuilderStep<IpHeaders> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => PacketBuilder::ipv4(from.octets(), to.octets(), HOPS),
        (from, to) => PacketBuilder::ipv6(v6(from), v6(to), HOPS),
    }
}

fn v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    use super::*;
    use crate::codec::trace::samples::any_event;
    use crate::model::{EventKind, IfIndex, NetnsId};

    fn event(hook: Hook, src: &str, dst: &str, segment: Segment) -> PacketEvent {
        let tuple = Tuple::new(src.parse().unwrap(), dst.parse().unwrap());
        PacketEvent {
            hook,
            netns: NetnsId(1),
            ifindex: IfIndex(2),
            tuple,
            segment,
            lookup: None,
            drop: None,
        }
    }

    /// A packet in words, by another reader than the one who built it; checksums are checked.
    fn read(bytes: &[u8]) -> String {
        let packet = SlicedPacket::from_ip(bytes).expect("a packet");
        let ends = match packet.net.as_ref().expect("an IP header") {
            NetSlice::Ipv4(ip) => {
                let (slice, header) = (ip.header(), ip.header().to_header());
                assert_eq!(header.header_checksum, header.calc_header_checksum());
                format!("{} > {}", slice.source_addr(), slice.destination_addr())
            }
            NetSlice::Ipv6(ip) => {
                let header = ip.header();
                format!("{} > {}", header.source_addr(), header.destination_addr())
            }
            NetSlice::Arp(_) => panic!("no IP"),
        };
        match packet.transport.expect("a transport header") {
            TransportSlice::Tcp(tcp) => {
                let header = tcp.to_header();
                let checksum = match packet.net.unwrap() {
                    NetSlice::Ipv4(ip) => {
                        header.calc_checksum_ipv4(&ip.header().to_header(), &[]).unwrap()
                    }
                    NetSlice::Ipv6(ip) => {
                        header.calc_checksum_ipv6(&ip.header().to_header(), &[]).unwrap()
                    }
                    NetSlice::Arp(_) => panic!("no IP"),
                };
                assert_eq!(header.checksum, checksum);
                format!(
                    "{ends} tcp {} > {} {} seq {} ack {}",
                    header.source_port,
                    header.destination_port,
                    [(header.syn, "S"), (header.ack, "A"), (header.rst, "R"), (header.ece, "E")]
                        .map(|(set, name)| if set { name } else { "" })
                        .concat(),
                    header.sequence_number,
                    header.acknowledgment_number
                )
            }
            TransportSlice::Icmpv4(icmp) => {
                let (kind, code) = (icmp.type_u8(), icmp.code_u8());
                format!("{ends} icmp {kind}/{code} about {}", quoted(icmp.payload(), 20))
            }
            TransportSlice::Icmpv6(icmp) => {
                let (kind, code) = (icmp.type_u8(), icmp.code_u8());
                assert!(icmp.is_checksum_valid(v6_end(bytes, 8), v6_end(bytes, 24)));
                format!("{ends} icmp6 {kind}/{code} about {}", quoted(icmp.payload(), 40))
            }
            TransportSlice::Udp(_) | TransportSlice::Igmp(_) => panic!("no packet of ours"),
        }
    }

    fn v6_end(bytes: &[u8], at: usize) -> [u8; 16] {
        bytes[at..at + 16].try_into().unwrap()
    }

    fn quoted(payload: &[u8], header: usize) -> String {
        let port = |at: usize| u16::from_be_bytes([payload[header + at], payload[header + at + 1]]);
        assert_eq!(payload.len(), header + QUOTED);
        format!("{} > {}", port(0), port(2))
    }

    #[test]
    fn a_segment_keeps_its_ends_flags_and_numbers() {
        let syn = Segment::Tcp { flags: TcpFlags(TcpFlags::SYN | 0x40), seq: 7, ack: 0 };
        let event = event(Hook::NetDevStartXmit, "10.0.0.5:40001", "10.96.0.1:80", syn);
        assert_eq!(read(&packet(&event)), "10.0.0.5 > 10.96.0.1 tcp 40001 > 80 SE seq 7 ack 0");
    }

    #[test]
    fn a_segment_of_ipv6_is_one() {
        let flags = TcpFlags(TcpFlags::SYN | TcpFlags::ACK);
        let answer = Segment::Tcp { flags, seq: 7, ack: 9 };
        let event = event(Hook::NetDevStartXmit, "[fd00::5]:80", "[fd00::1]:40001", answer);
        assert_eq!(read(&packet(&event)), "fd00::5 > fd00::1 tcp 80 > 40001 SA seq 7 ack 9");
    }

    #[test]
    fn a_received_reset_goes_to_the_local_end() {
        let reset = Segment::Tcp { flags: TcpFlags(TcpFlags::RST), seq: 0, ack: 0 };
        let event = event(Hook::TcpReceiveReset, "10.0.0.5:40001", "10.96.0.1:80", reset);
        assert_eq!(read(&packet(&event)), "10.96.0.1 > 10.0.0.5 tcp 80 > 40001 R seq 0 ack 0");
    }

    #[test]
    fn an_icmp_error_goes_to_the_sender_of_what_it_quotes() {
        let icmp =
            |kind, code, from: &str| Segment::IcmpError { kind, code, from: from.parse().unwrap() };
        let four =
            event(Hook::NetDevStartXmit, "10.0.0.5:40001", "10.0.1.7:80", icmp(3, 1, "10.0.1.1"));
        assert_eq!(read(&packet(&four)), "10.0.1.1 > 10.0.0.5 icmp 3/1 about 40001 > 80");
        let six =
            event(Hook::NetDevStartXmit, "[fd00::5]:40001", "[fd00::7]:80", icmp(1, 3, "fd00::1"));
        assert_eq!(read(&packet(&six)), "fd00::1 > fd00::5 icmp6 1/3 about 40001 > 80");
    }

    proptest! {
        #[test]
        fn any_packet_can_be_rebuilt_and_read(event in any_event()) {
            if let EventKind::Packet(event) = event.kind {
                read_any(&packet(&event));
            }
        }
    }

    /// Any type of ICMP may come, so that what a reader takes for its payload varies.
    fn read_any(bytes: &[u8]) {
        let packet = SlicedPacket::from_ip(bytes).expect("a packet");
        assert!(packet.net.is_some() && packet.transport.is_some());
    }
}
