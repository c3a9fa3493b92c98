//! pcapng: blocks of a type, a length and the same length again at their end; sections, each with a byte order
//! and interfaces of its own.

use super::bytes::Order;
use super::link::Link;
use super::{Found, Frame, LIMIT, LinkType, PassedOver};
use crate::model::{IfIndex, WallNs, Way};

/// The type of a section's header: the same in both byte orders.
pub(super) const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const NAMES: u32 = 4;
const STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// How much of a section's header tells that it is one: type, length, byte order.
pub(super) const START: usize = 12;
/// Type and length in front, length behind.
const FRAME: usize = 12;
/// Interfaces of a section that are kept: more than any machine captures on at once.
const MOST_INTERFACES: usize = 65_536;

/// Whether these bytes begin a section.
pub(super) fn is_start(bytes: &[u8]) -> bool {
    bytes.starts_with(&SECTION.to_be_bytes()) && order_of_section(bytes).is_some()
}

/// The byte order that a section's header tells.
fn order_of_section(block: &[u8]) -> Option<Order> {
    const MARK: u32 = 0x1a2b_3c4d;
    match Order::Little.u32(block, 8)? {
        MARK => Some(Order::Little),
        mark if mark == MARK.swap_bytes() => Some(Order::Big),
        _ => None,
    }
}

/// The sections of a pcapng file.
#[derive(Debug, Default)]
pub(super) struct Sections {
    /// None until a section began.
    order: Option<Order>,
    interfaces: Vec<Interface>,
}

/// An interface that a section describes.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: Result<Link, LinkType>,
    snaplen: u32,
    resolution: Resolution,
    /// Seconds to be added to every time.
    offset: i64,
    /// Lost packets that it has told of.
    dropped: u64,
}

/// What one unit of a time is (`if_tsresol`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolution {
    /// 10^-n s
    Decimal(u32),
    /// 2^-n s
    Binary(u32),
}

impl Resolution {
    fn nanos(self, ticks: u64) -> i128 {
        match self {
            Resolution::Decimal(digits @ ..=9) => i128::from(ticks) * 10_i128.pow(9 - digits),
            Resolution::Decimal(digits) => {
                i128::from(ticks) / 10_i128.checked_pow(digits - 9).unwrap_or(i128::MAX)
            }
            Resolution::Binary(bits) => i128::from(ticks)
                .checked_mul(1_000_000_000)
                .map_or(0, |product| product.checked_shr(bits).unwrap_or(0)),
        }
    }
}

impl Sections {
    /// What stands at the beginning of `rest`. When `searching` behind damage, only blocks of well-known types
    /// count.
    pub(super) fn next<'a>(&mut self, rest: &'a [u8], searching: bool) -> Found<'a> {
        let Some(kind) = Order::Little.u32(rest, 0) else { return Found::More };
        let order = if kind == SECTION {
            if rest.len() < START {
                return Found::More;
            }
            order_of_section(rest)
        } else {
            self.order
        };
        let Some(order) = order else { return Found::Damage };
        let (Some(kind), Some(length)) = (order.u32(rest, 0), order.u32(rest, 4)) else {
            return Found::More;
        };
        let length = length as usize;
        let known = kind == SECTION || (INTERFACE..=ENHANCED_PACKET).contains(&kind);
        if length < FRAME || !length.is_multiple_of(4) || length > LIMIT || (searching && !known) {
            return Found::Damage;
        }
        let Some(block) = rest.get(..length) else { return Found::More };
        if order.u32(block, length - 4) != Some(length as u32) {
            return Found::Damage;
        }
        let body = &block[8..length - 4];
        match kind {
            SECTION => {
                self.order = Some(order);
                self.interfaces.clear();
                Found::Skip(length)
            }
            INTERFACE => match describe(order, body) {
                Some(interface) if self.interfaces.len() < MOST_INTERFACES => {
                    self.interfaces.push(interface);
                    Found::Skip(length)
                }
                _ => Found::Damage,
            },
            ENHANCED_PACKET => self.enhanced(order, body, length),
            SIMPLE_PACKET => self.simple(order, body, length),
            OLD_PACKET => self.old(order, body, length),
            STATISTICS => self.statistics(order, body, length),
            NAMES => Found::Skip(length),
            _ => Found::Skip(length),
        }
    }

    fn enhanced<'a>(&self, order: Order, body: &'a [u8], length: usize) -> Found<'a> {
        let Some(id) = order.u32(body, 0) else { return Found::Damage };
        let Some(captured) = order.u32(body, 12) else { return Found::Damage };
        let end = 20_usize.saturating_add(captured as usize);
        let Some(data) = body.get(20..end) else { return Found::Damage };
        let options = body.get(end.next_multiple_of(4)..).unwrap_or(&[]);
        self.frame(order, id, ticks(order, body, 4), data, options, length)
    }

    /// The block that came before the enhanced one (draft, appendix: Packet Block).
    fn old<'a>(&self, order: Order, body: &'a [u8], length: usize) -> Found<'a> {
        let Some(id) = order.u16(body, 0) else { return Found::Damage };
        let Some(captured) = order.u32(body, 12) else { return Found::Damage };
        let end = 20_usize.saturating_add(captured as usize);
        let Some(data) = body.get(20..end) else { return Found::Damage };
        let options = body.get(end.next_multiple_of(4)..).unwrap_or(&[]);
        self.frame(order, u32::from(id), ticks(order, body, 4), data, options, length)
    }

    fn frame<'a>(
        &self,
        order: Order,
        id: u32,
        ticks: Option<u64>,
        data: &'a [u8],
        packet_options: &[u8],
        length: usize,
    ) -> Found<'a> {
        let (Some(interface), Some(ticks)) = (self.interfaces.get(id as usize), ticks) else {
            return Found::Stray(PassedOver::UnknownLink, length);
        };
        let nanos =
            interface.resolution.nanos(ticks) + i128::from(interface.offset) * 1_000_000_000;
        let Ok(time) = i64::try_from(nanos) else {
            return Found::Stray(PassedOver::NoTime, length);
        };
        let flags = options(order, packet_options).find(|(code, _)| *code == 2);
        let way = match flags.and_then(|(_, value)| order.u32(value, 0)).map_or(0, |it| it & 3) {
            1 => Some(Way::In),
            2 => Some(Way::Out),
            _ => None,
        };
        let frame = Frame {
            time: WallNs(time),
            link: interface.link,
            ifindex: IfIndex(id.saturating_add(1)),
            way,
            data,
        };
        Found::Frame(frame, length)
    }

    /// A simple packet has no time, and nothing can be told from it without one.
    fn simple<'a>(&self, order: Order, body: &'a [u8], length: usize) -> Found<'a> {
        let Some(original) = order.u32(body, 0) else { return Found::Damage };
        let Some(interface) = self.interfaces.first() else {
            return Found::Stray(PassedOver::UnknownLink, length);
        };
        let captured = match interface.snaplen {
            0 => original,
            snaplen => original.min(snaplen),
        };
        match body.get(4..4_usize.saturating_add(captured as usize)) {
            Some(_) => Found::Stray(PassedOver::NoTime, length),
            None => Found::Damage,
        }
    }

    /// What the maker could not keep up with: by the interface (`isb_ifdrop`) or by the operating system
    /// (`isb_osdrop`). Both count from the beginning.
    fn statistics<'a>(&mut self, order: Order, body: &'a [u8], length: usize) -> Found<'a> {
        let interface = order.u32(body, 0).and_then(|id| self.interfaces.get_mut(id as usize));
        let Some(interface) = interface else { return Found::Skip(length) };
        let all = body.get(12..).unwrap_or(&[]);
        let dropped = options(order, all)
            .filter(|(code, _)| matches!(code, 5 | 7))
            .filter_map(|(_, value)| order.u64(value, 0))
            .fold(0_u64, u64::saturating_add);
        let more = dropped.saturating_sub(interface.dropped);
        interface.dropped = interface.dropped.max(dropped);
        if more == 0 { Found::Skip(length) } else { Found::Dropped(more, length) }
    }
}

/// A time of two halves, the upper one first.
fn ticks(order: Order, body: &[u8], at: usize) -> Option<u64> {
    let (high, low) = (order.u32(body, at)?, order.u32(body, at + 4)?);
    Some(u64::from(high) << 32 | u64::from(low))
}

/// An interface's description.
fn describe(order: Order, body: &[u8]) -> Option<Interface> {
    let mut interface = Interface {
        link: Link::new(LinkType(order.u16(body, 0)?)),
        snaplen: order.u32(body, 4)?,
        resolution: Resolution::Decimal(6),
        offset: 0,
        dropped: 0,
    };
    for (code, value) in options(order, &body[8..]) {
        match (code, value) {
            // if_tsresol
            (9, [byte]) => {
                let exponent = u32::from(byte & 0x7f);
                interface.resolution = match byte & 0x80 {
                    0 => Resolution::Decimal(exponent),
                    _ => Resolution::Binary(exponent),
                };
            }
            // if_tsoffset
            (14, value) => {
                interface.offset = order.u64(value, 0).map_or(0, u64::cast_signed);
            }
            _ => {}
        }
    }
    Some(interface)
}

/// A block's options: code and value. Ends at the last one, or where they no longer make sense.
fn options(order: Order, bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let code = order.u16(bytes, at)?;
        let length = usize::from(order.u16(bytes, at + 2)?);
        let value = bytes.get(at + 4..at + 4 + length)?;
        at += 4 + length.next_multiple_of(4);
        (code != 0).then_some((code, value))
    })
}
