//! pcap: a header, then records of 16 bytes and a packet each.

use super::bytes::Order;
use super::link::Link;
use super::{Found, Frame, LIMIT, LinkType};
use crate::model::{IfIndex, WallNs};

/// The file header's length.
pub(super) const HEADER: usize = 24;
/// A record header's length.
const RECORD: usize = 16;
/// A packet can't be longer than this; what sending and receiving offloads put together is at most 512 KiB
/// (`GSO_MAX_SIZE` of Linux with BIG TCP).
const LONGEST: u32 = 1024 * 1024;
/// How far the times of neighbouring packets may lie apart, in seconds, when looking for a record behind damage.
const NEIGHBOURS: u32 = 86_400;

/// What the first four bytes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Magic {
    order: Order,
    /// Nanoseconds in one unit of a time's second part.
    unit: u32,
}

/// Reads the first four bytes; none if they are not pcap's.
pub(super) fn magic(bytes: [u8; 4]) -> Option<Magic> {
    let known = |number| match number {
        0xa1b2_c3d4 => Some(1000),
        0xa1b2_3c4d => Some(1),
        _ => None,
    };
    let little = known(u32::from_le_bytes(bytes)).map(|unit| Magic { order: Order::Little, unit });
    little
        .or_else(|| known(u32::from_be_bytes(bytes)).map(|unit| Magic { order: Order::Big, unit }))
}

/// The records of a pcap file.
#[derive(Debug)]
pub(super) struct Records {
    magic: Magic,
    link: Result<Link, LinkType>,
    /// Packets were cut to this.
    snaplen: u32,
    /// The seconds of the record before.
    last: Option<u32>,
}

/// A record's header.
struct Head {
    seconds: u32,
    fraction: u32,
    captured: u32,
    /// Whether it holds as much of the packet as it should.
    regular: bool,
}

impl Records {
    pub(super) fn new(magic: Magic, header: &[u8; HEADER]) -> Records {
        let snaplen = magic.order.u32(header, 16).unwrap_or(0);
        // The upper bits say whether frames end with a checksum (draft, section 4: FCS len).
        let link = magic.order.u32(header, 20).unwrap_or(0) as u16;
        // Some writers have 0 for "no limit".
        let snaplen = if snaplen == 0 { LONGEST } else { snaplen };
        Records { magic, link: Link::new(LinkType(link)), snaplen, last: None }
    }

    /// What stands at the beginning of `rest`. When `searching` behind damage, or with a length that is not what
    /// the snapshot length makes of the packet's, the record after it must make sense too, or be the file's end.
    pub(super) fn next<'a>(&mut self, rest: &'a [u8], searching: bool, closed: bool) -> Found<'a> {
        let Some(bytes) = rest.get(..RECORD) else { return Found::More };
        let Some(head) = self.head(bytes, searching) else { return Found::Damage };
        let length = RECORD + head.captured as usize;
        debug_assert!(length <= RECORD + LIMIT);
        if searching || !head.regular {
            match rest.get(length..length + RECORD) {
                Some(after) if self.head(after, searching).is_some() => {}
                None if closed && rest.len() == length => {}
                None if !closed => return Found::More,
                _ => return Found::Damage,
            }
        }
        let Some(data) = rest.get(RECORD..length) else { return Found::More };
        self.last = Some(head.seconds);
        let nanos = i64::from(head.fraction) * i64::from(self.magic.unit);
        let frame = Frame {
            time: WallNs(i64::from(head.seconds) * 1_000_000_000 + nanos),
            link: self.link,
            ifindex: IfIndex(0),
            way: None,
            data,
        };
        Found::Frame(frame, length)
    }

    /// A record's header, if it can be one.
    fn head(&self, bytes: &[u8], searching: bool) -> Option<Head> {
        let order = self.magic.order;
        let captured = order.u32(bytes, 8)?;
        let original = order.u32(bytes, 12)?;
        let head = Head {
            seconds: order.u32(bytes, 0)?,
            fraction: order.u32(bytes, 4)?,
            captured,
            regular: captured == original.min(self.snaplen),
        };
        let near = match self.last {
            Some(last) if searching => head.seconds.abs_diff(last) <= NEIGHBOURS,
            _ => true,
        };
        let plausible = near
            && head.fraction < 1_000_000_000 / self.magic.unit
            && captured <= original
            && original <= LONGEST
            && (!searching || captured > 0);
        plausible.then_some(head)
    }
}
