//! IP packets: TCP segments that tell of connects, and ICMP errors about TCP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::PassedOver;
use super::bytes::{be16, be32};
use crate::model::{Captured, IfIndex, Segment, TcpFlags, Tuple, WallNs, Way};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const ICMPV6: u8 = 58;
/// Extension headers in front of one IPv6 payload.
const MOST_EXTENSIONS: usize = 8;

/// An IP header, and what follows it.
struct Packet<'a> {
    src: IpAddr,
    dst: IpAddr,
    protocol: u8,
    payload: &'a [u8],
}

/// Looks into an IP packet of either version.
pub(super) fn decode(
    time: WallNs,
    place: (IfIndex, Option<Way>),
    data: &[u8],
) -> Result<Captured, PassedOver> {
    let packet = header(data)?;
    let (tuple, segment, timestamp, about) = match packet.protocol {
        TCP => {
            let (tuple, segment, timestamp) = tcp(&packet)?;
            (tuple, segment, timestamp, None)
        }
        ICMP | ICMPV6 => {
            let (tuple, segment, about) = icmp(&packet)?;
            (tuple, segment, None, Some(about))
        }
        _ => return Err(PassedOver::NotTcp),
    };
    Ok(Captured { time, ifindex: place.0, way: place.1, tuple, segment, timestamp, about })
}

fn header(data: &[u8]) -> Result<Packet<'_>, PassedOver> {
    match data.first().ok_or(PassedOver::TooShort)? >> 4 {
        4 => ipv4(data),
        6 => ipv6(data),
        _ => Err(PassedOver::Malformed),
    }
}

fn ipv4(data: &[u8]) -> Result<Packet<'_>, PassedOver> {
    let fixed: &[u8; 20] = data.first_chunk().ok_or(PassedOver::TooShort)?;
    let length = usize::from(fixed[0] & 0x0f) * 4;
    let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    // A total length of 0 is that of a packet which the device will cut into segments.
    if length < 20 || (total != 0 && total < length) {
        return Err(PassedOver::Malformed);
    }
    if u16::from_be_bytes([fixed[6], fixed[7]]) & 0x1fff != 0 {
        return Err(PassedOver::Fragment);
    }
    let address = |at: usize| {
        IpAddr::V4(Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]))
    };
    let end = if total == 0 { data.len() } else { total.min(data.len()) };
    let payload = data.get(length..end).ok_or(PassedOver::TooShort)?;
    Ok(Packet { src: address(12), dst: address(16), protocol: fixed[9], payload })
}

fn ipv6(data: &[u8]) -> Result<Packet<'_>, PassedOver> {
    let fixed: &[u8; 40] = data.first_chunk().ok_or(PassedOver::TooShort)?;
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&fixed[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    let length = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    let end = if length == 0 { data.len() } else { data.len().min(40 + length) };
    let mut payload = &data[40..end];
    let mut protocol = fixed[6];
    for _ in 0..MOST_EXTENSIONS {
        let length = match protocol {
            // Hop-by-hop options, routing, destination options.
            0 | 43 | 60 => 8 + 8 * usize::from(*payload.get(1).ok_or(PassedOver::TooShort)?),
            // Fragment.
            44 => {
                if be16(payload, 2).ok_or(PassedOver::TooShort)? & !7 != 0 {
                    return Err(PassedOver::Fragment);
                }
                8
            }
            // Authentication.
            51 => 8 + 4 * usize::from(*payload.get(1).ok_or(PassedOver::TooShort)?),
            _ => return Ok(Packet { src: address(8), dst: address(24), protocol, payload }),
        };
        protocol = payload[0];
        payload = payload.get(length..).ok_or(PassedOver::TooShort)?;
    }
    Err(PassedOver::Malformed)
}

fn ends(packet: &Packet) -> Result<Tuple, PassedOver> {
    let port = |at| be16(packet.payload, at).ok_or(PassedOver::TooShort);
    Ok(Tuple {
        src: SocketAddr::new(packet.src, port(0)?),
        dst: SocketAddr::new(packet.dst, port(2)?),
    })
}

/// A segment's header, as far as it was captured: flags lie 13 bytes in.
fn tcp(packet: &Packet) -> Result<(Tuple, Segment, Option<u32>), PassedOver> {
    let bytes = packet.payload;
    let tuple = ends(packet)?;
    let flags = TcpFlags(*bytes.get(13).ok_or(PassedOver::TooShort)?);
    let length = usize::from(bytes[12] >> 4) * 4;
    if length < 20 {
        return Err(PassedOver::Malformed);
    }
    if flags.0 & (TcpFlags::SYN | TcpFlags::RST | TcpFlags::FIN) == 0 {
        return Err(PassedOver::OtherSegment);
    }
    let seq = be32(bytes, 4).ok_or(PassedOver::TooShort)?;
    let ack = be32(bytes, 8).ok_or(PassedOver::TooShort)?;
    let options = bytes.get(20..length.min(bytes.len())).unwrap_or(&[]);
    Ok((tuple, Segment::Tcp { flags, seq, ack }, timestamp(options)))
}

/// The timestamp option's value (RFC 7323, section 3).
fn timestamp(mut options: &[u8]) -> Option<u32> {
    loop {
        match options {
            // End of options.
            [0, ..] | [] => return None,
            // No operation.
            [1, rest @ ..] => options = rest,
            [8, 10, rest @ ..] => return be32(rest, 0),
            [_, length, ..] if *length >= 2 => options = options.get(usize::from(*length)..)?,
            _ => return None,
        }
    }
}

/// An error about a TCP segment, of which it quotes the IP header and at least 8 bytes (RFC 792; RFC 4443).
fn icmp(packet: &Packet) -> Result<(Tuple, Segment, u32), PassedOver> {
    let bytes = packet.payload;
    let [kind, code, ..] = *bytes else { return Err(PassedOver::TooShort) };
    let is_error = match packet.protocol {
        // Unreachable, time exceeded, parameter problem.
        ICMP => matches!(kind, 3 | 11 | 12),
        _ => (1..128).contains(&kind),
    };
    if !is_error {
        return Err(PassedOver::NotTcp);
    }
    let quoted = header(bytes.get(8..).ok_or(PassedOver::TooShort)?)?;
    if quoted.protocol != TCP {
        return Err(PassedOver::NotTcp);
    }
    let tuple = ends(&quoted)?;
    let about = be32(quoted.payload, 4).ok_or(PassedOver::TooShort)?;
    Ok((tuple, Segment::IcmpError { kind, code, from: packet.src }, about))
}
