//! From a packet's bytes to a record: what it is, whether it matters, what is recorded of it. The cheapest
//! tests come first. Knows no hook; reads kernel memory through `memory` only.

use tracer_ebpf::HookNumber;
use tracer_ebpf::record::{
    Address, Endpoint, Ends, Entry, ICMP, ICMPV6, KIND_PACKET, KIND_PACKET_WITH_ENTRY, Packet,
    PacketWithEntry, TCP, TCP_STATE_UNKNOWN,
};

use crate::maps;
use crate::memory::{self, EntryPointer, Skb, Tuples};

const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// What is recorded of a packet's own bytes.
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    ends: Ends,
    protocol: u8,
    tcp_flags: u8,
    icmp_kind: u8,
    icmp_code: u8,
    detail: [u32; 4],
}

impl Segment {
    /// A reset, known only from the socket that received it.
    #[inline(always)]
    pub(crate) fn reset(ends: Ends) -> Segment {
        Segment { ends, protocol: TCP, tcp_flags: RST, icmp_kind: 0, icmp_code: 0, detail: [0; 4] }
    }

    /// A connect's opening segment.
    #[inline(always)]
    fn is_syn(&self) -> bool {
        self.tcp_flags & (SYN | ACK | RST) == SYN
    }

    /// Whether one of its ends is a watched Service or a backend of one.
    #[inline(always)]
    fn touches_watched(&self) -> bool {
        let (src, dst) = (source(&self.ends), destination(&self.ends));
        maps::is_service(&dst)
            || maps::is_service(&src)
            || maps::is_backend(&dst)
            || maps::is_backend(&src)
    }
}

/// Which TCP segments a hook wants.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// SYN, SYN-ACK, RST, and ICMP errors.
    Handshake,
    /// Any TCP segment.
    AnyTcp,
}

/// Reads the headers. None: not IP, a later fragment, behind IPv6 extension headers, or not wanted.
#[inline(always)]
pub(crate) fn read(skb: Skb, wanted: Wanted) -> Option<Segment> {
    match skb.protocol() {
        ETH_P_IP => read_v4(skb.network_header()?, wanted),
        ETH_P_IPV6 => read_v6(skb.network_header()?, wanted),
        _ => None,
    }
}

/// The first 20 bytes of a TCP header (RFC 9293, 3.1).
type TcpHeader = [u32; 5];

#[inline(always)]
fn read_v4(at: u64, wanted: Wanted) -> Option<Segment> {
    // RFC 791, 3.1: 20 bytes, then options, then the next header; one read takes both where there are none.
    let [ip, next]: [[u32; 5]; 2] = memory::copy(at)?;
    let header_bytes = ip[0] & 0xf;
    let version = ip[0] >> 4 & 0xf;
    let fragment_offset = u16::from_be((ip[1] >> 16) as u16) & 0x1fff;
    if version != 4 || header_bytes < 5 || fragment_offset != 0 {
        return None;
    }
    let protocol = (ip[2] >> 8) as u8;
    if protocol != TCP && protocol != ICMP {
        return None;
    }
    let next_at = at + u64::from(header_bytes) * 4;
    let next = if header_bytes == 5 { next } else { memory::copy(next_at)? };
    let (src, dst) = (memory::map_v4(ip[3]), memory::map_v4(ip[4]));
    if protocol == TCP {
        return tcp(src, dst, &next, wanted);
    }
    // RFC 792: destination unreachable, time exceeded, parameter problem.
    let kind = next[0] as u8;
    if wanted != Wanted::Handshake || !matches!(kind, 3 | 11 | 12) {
        return None;
    }
    let inner: [u32; 5] = memory::copy(next_at + 8)?;
    if inner[0] >> 4 & 0xf != 4 || (inner[2] >> 8) as u8 != TCP {
        return None;
    }
    let ports: u32 = memory::copy(next_at + 8 + u64::from(inner[0] & 0xf) * 4)?;
    let ends = ends(memory::map_v4(inner[3]), memory::map_v4(inner[4]), ports);
    Some(icmp_error(ends, ICMP, next[0], src))
}

#[inline(always)]
fn read_v6(at: u64, wanted: Wanted) -> Option<Segment> {
    // RFC 8200, 3: 40 bytes.
    let (ip, next): ([u32; 10], TcpHeader) = {
        let both: [u32; 15] = memory::copy(at)?;
        let [ip @ .., a, b, c, d, e] = both;
        (ip, [a, b, c, d, e])
    };
    if ip[0] >> 4 & 0xf != 6 {
        return None;
    }
    let (src, dst) = v6_addresses(&ip);
    let protocol = (ip[1] >> 16) as u8;
    if protocol == TCP {
        return tcp(src, dst, &next, wanted);
    }
    // RFC 4443: unreachable, too big, time exceeded, parameter problem.
    let kind = next[0] as u8;
    if protocol != ICMPV6 || wanted != Wanted::Handshake || !matches!(kind, 1..=4) {
        return None;
    }
    let (inner, ports): ([u32; 10], u32) = {
        let both: [u32; 11] = memory::copy(at + 48)?;
        let [inner @ .., ports] = both;
        (inner, ports)
    };
    if inner[0] >> 4 & 0xf != 6 || (inner[1] >> 16) as u8 != TCP {
        return None;
    }
    let (inner_src, inner_dst) = v6_addresses(&inner);
    Some(icmp_error(ends(inner_src, inner_dst, ports), ICMPV6, next[0], src))
}

#[inline(always)]
fn v6_addresses(ip: &[u32; 10]) -> (Address, Address) {
    ([ip[2], ip[3], ip[4], ip[5]], [ip[6], ip[7], ip[8], ip[9]])
}

#[inline(always)]
fn tcp(src: Address, dst: Address, header: &TcpHeader, wanted: Wanted) -> Option<Segment> {
    let flags = (header[3] >> 8) as u8;
    if wanted == Wanted::Handshake && flags & (SYN | RST) == 0 {
        return None;
    }
    Some(Segment {
        ends: ends(src, dst, header[0]),
        protocol: TCP,
        tcp_flags: flags,
        icmp_kind: 0,
        icmp_code: 0,
        detail: [header[1], header[2], 0, 0],
    })
}

#[inline(always)]
fn icmp_error(ends: Ends, protocol: u8, first_word: u32, from: Address) -> Segment {
    let (icmp_kind, icmp_code) = (first_word as u8, (first_word >> 8) as u8);
    Segment { ends, protocol, tcp_flags: 0, icmp_kind, icmp_code, detail: from }
}

/// `ports`: both, as the first word of a TCP header holds them.
#[inline(always)]
fn ends(src: Address, dst: Address, ports: u32) -> Ends {
    Ends { src, dst, src_port: ports as u16, dst_port: (ports >> 16) as u16 }
}

#[inline(always)]
fn source(ends: &Ends) -> Endpoint {
    Endpoint { address: ends.src, port: ends.src_port, zero: 0 }
}

#[inline(always)]
fn destination(ends: &Ends) -> Endpoint {
    Endpoint { address: ends.dst, port: ends.dst_port, zero: 0 }
}

/// The packet's entry, if it belongs to a watched flow: made for a Service, or for a backend of one, as on
/// the pod's own node. The opening segment of a Service's flow teaches us its backend.
#[inline(always)]
pub(crate) fn watched_entry(pointer: EntryPointer, segment: &Segment) -> Option<Tuples> {
    let tuples = pointer.tuples()?;
    if tuples.protocol != TCP {
        return None;
    }
    let asked_for = destination(&tuples.orig);
    if maps::is_service(&asked_for) {
        let backend = source(&tuples.reply);
        if segment.is_syn() && backend != asked_for {
            maps::learn_backend(&backend);
        }
        return Some(tuples);
    }
    if maps::is_backend(&asked_for) { Some(tuples) } else { None }
}

/// Where a packet is recorded.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The hook.
    pub(crate) hook: HookNumber,
    /// The namespace.
    pub(crate) netns: u32,
    /// The device, or 0.
    pub(crate) ifindex: u32,
    /// Why it is dropped.
    pub(crate) drop_reason: Option<u32>,
}

/// Why a packet is recorded.
#[derive(Clone, Copy)]
pub(crate) struct Watched {
    /// Its entry, where that is watched; else its own addresses are.
    entry: Option<(EntryPointer, u8, Tuples)>,
}

/// Whether a packet's entry is watched, or else its own addresses are.
#[inline(always)]
pub(crate) fn watched(skb: Skb, segment: &Segment) -> Option<Watched> {
    if let Some((pointer, ctinfo)) = skb.entry()
        && let Some(tuples) = watched_entry(pointer, segment)
    {
        return Some(Watched { entry: Some((pointer, ctinfo, tuples)) });
    }
    if segment.touches_watched() { Some(Watched { entry: None }) } else { None }
}

/// Records a packet that is watched.
#[inline(always)]
pub(crate) fn submit_watched(place: Place, segment: &Segment, watched: &Watched) {
    match &watched.entry {
        Some((pointer, ctinfo, tuples)) => {
            submit_with_entry(place, segment, *pointer, tuples, *ctinfo)
        }
        None => submit(place, segment),
    }
}

/// Records a packet that carries no entry of interest.
#[inline(always)]
pub(crate) fn submit(place: Place, segment: &Segment) {
    if maps::covers(place.netns)
        && let Some(mut reserved) = maps::reserve::<Packet>(place.hook)
    {
        fill(maps::record(&mut reserved), KIND_PACKET, place, segment);
        maps::submit(reserved);
    }
}

/// Records a packet with its entry.
#[inline(always)]
pub(crate) fn submit_with_entry(
    place: Place,
    segment: &Segment,
    pointer: EntryPointer,
    tuples: &Tuples,
    ctinfo: u8,
) {
    if maps::covers(place.netns)
        && let Some(mut reserved) = maps::reserve::<PacketWithEntry>(place.hook)
    {
        let record = maps::record(&mut reserved);
        fill(&mut record.packet, KIND_PACKET_WITH_ENTRY, place, segment);
        record.entry = Entry {
            orig: tuples.orig,
            reply: tuples.reply,
            timeout: pointer.timeout(),
            jiffies: memory::jiffies(),
            status: pointer.status(),
            zone: pointer.zone(),
            ctinfo,
            tcp_state: pointer.tcp_state().unwrap_or(TCP_STATE_UNKNOWN),
        };
        maps::submit(reserved);
    }
}

#[inline(always)]
fn fill(packet: &mut Packet, kind: u8, place: Place, segment: &Segment) {
    *packet = Packet {
        time_ns: memory::now(),
        kind,
        hook: place.hook as u8,
        protocol: segment.protocol,
        has_reason: place.drop_reason.is_some() as u8,
        netns: place.netns,
        ifindex: place.ifindex,
        drop_reason: place.drop_reason.unwrap_or(0),
        ends: segment.ends,
        tcp_flags: segment.tcp_flags,
        icmp_kind: segment.icmp_kind,
        icmp_code: segment.icmp_code,
        zero: 0,
        detail: segment.detail,
    };
}
