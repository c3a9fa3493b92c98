//! Link layers: where the IP packet begins.

use super::bytes::{be16, be32};
use super::{Frame, LinkType, PassedOver, ip};
use crate::model::{Captured, IfIndex, Way};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// 802.1Q, 802.1ad (QinQ), and what was used for the latter before it had a number.
const VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// VLAN tags in front of one packet.
const MOST_TAGS: usize = 4;

/// The link types that are read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Ethernet,
    /// Linux cooked, version 1.
    Cooked,
    /// Linux cooked, version 2: with the device's index.
    CookedV2,
    /// IPv4 or IPv6 without anything before it.
    Raw,
    /// BSD's loopback: the address family, in the byte order of its maker or in network order.
    Null,
}

impl Link {
    /// The link type with this number (<https://www.tcpdump.org/linktypes.html>).
    pub(super) fn new(number: LinkType) -> Result<Link, LinkType> {
        match number.0 {
            0 | 108 => Ok(Link::Null),
            1 => Ok(Link::Ethernet),
            // 12 and 14 are what DLT_RAW is on some systems.
            12 | 14 | 101 | 228 | 229 => Ok(Link::Raw),
            113 => Ok(Link::Cooked),
            276 => Ok(Link::CookedV2),
            _ => Err(number),
        }
    }
}

/// Looks into a packet.
pub(super) fn decode(frame: &Frame) -> Result<Captured, PassedOver> {
    let data = frame.data;
    let link = frame.link.map_err(|_| PassedOver::UnknownLink)?;
    let short = PassedOver::TooShort;
    let (mut ifindex, mut way) = (frame.ifindex, frame.way);
    let (mut protocol, mut at) = match link {
        Link::Raw => return ip::decode(frame.time, (ifindex, way), data),
        Link::Null => {
            let family = be32(data, 0).ok_or(short)?;
            // AF_INET is 2 everywhere; AF_INET6 differs (10 Linux, 24 NetBSD, 28 FreeBSD, 30 macOS).
            return match family.min(family.swap_bytes()) {
                2 | 10 | 24 | 28 | 30 => ip::decode(frame.time, (ifindex, way), &data[4..]),
                _ => Err(PassedOver::NotTcp),
            };
        }
        Link::Ethernet => (be16(data, 12).ok_or(short)?, 14),
        Link::Cooked => {
            way = Some(direction(be16(data, 0).ok_or(short)?));
            (be16(data, 14).ok_or(short)?, 16)
        }
        Link::CookedV2 => {
            ifindex = IfIndex(be32(data, 4).ok_or(short)?);
            way = Some(direction(u16::from(*data.get(10).ok_or(short)?)));
            (be16(data, 0).ok_or(short)?, 20)
        }
    };
    for _ in 0..MOST_TAGS {
        if !VLAN.contains(&protocol) {
            break;
        }
        protocol = be16(data, at + 2).ok_or(short)?;
        at += 4;
    }
    match protocol {
        IPV4 | IPV6 => ip::decode(frame.time, (ifindex, way), data.get(at..).ok_or(short)?),
        _ => Err(PassedOver::NotTcp),
    }
}

/// Linux's packet type (include/uapi/linux/if_packet.h): 4 is `PACKET_OUTGOING`, all before it came in.
fn direction(packet_type: u16) -> Way {
    if packet_type == 4 { Way::Out } else { Way::In }
}
