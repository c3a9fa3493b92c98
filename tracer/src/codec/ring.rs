//! Records of the ring buffer, as `tracer_ebpf::record` lays them out, to events.

use std::mem::{offset_of, size_of};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tracer_ebpf::record;

use crate::model::{
    CtInfo, CtState, CtStatus, DropReason, EntryLife, Event, EventKind, Hook, IfIndex, Lookup,
    MonoNs, NetnsId, PacketEvent, Process, Segment, SockState, TcpFlags, TcpStateEvent, Tuple,
};

/// Why a record can't be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// Its length is not that of its kind.
    #[error("a record of {length} bytes")]
    Length {
        /// How long it is.
        length: usize,
    },
    /// There is no such kind.
    #[error("a record of unknown kind {kind}")]
    Kind {
        /// Its number.
        kind: u8,
    },
    /// There is no such hook.
    #[error("a record of unknown hook {hook}")]
    Hook {
        /// Its number.
        hook: u8,
    },
    /// There is no such IP protocol among those that are recorded.
    #[error("a record of IP protocol {protocol}")]
    Protocol {
        /// Its number.
        protocol: u8,
    },
}

/// What a record's numbers mean on the traced kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Ticks a second; none if unknown, or if `nf_conn.timeout` could not be found: then the entries' life is
    /// unknown.
    pub hz: Option<u32>,
}

/// Decodes one record.
///
/// # Errors
/// If it is of another length, kind, hook or protocol than the programs write.
pub fn decode(bytes: &[u8], kernel: Kernel) -> Result<Event, RingError> {
    // Time and kind lie at the same place in every record.
    const KIND_AT: usize = offset_of!(record::Packet, kind);
    const _: () = assert!(KIND_AT == offset_of!(record::Socket, kind));
    let length = bytes.len();
    let kind = *bytes.get(KIND_AT).ok_or(RingError::Length { length })?;
    let expected = match kind {
        record::KIND_PACKET => size_of::<record::Packet>(),
        record::KIND_PACKET_WITH_ENTRY => size_of::<record::PacketWithEntry>(),
        record::KIND_SOCKET => size_of::<record::Socket>(),
        kind => return Err(RingError::Kind { kind }),
    };
    if length != expected {
        return Err(RingError::Length { length });
    }
    let fields = Fields(bytes);
    match kind {
        record::KIND_SOCKET => socket(fields),
        record::KIND_PACKET => packet(fields, None),
        _ => {
            let entry = offset_of!(record::PacketWithEntry, entry);
            packet(fields, Some(lookup(Fields(&bytes[entry..]), kernel)))
        }
    }
}

/// A record's bytes; its length was checked against its kind, so that every offset lies inside.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(self, at: usize) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(&self.0[at..at + N]);
        array
    }

    fn u8(self, at: usize) -> u8 {
        self.0[at]
    }

    fn u16(self, at: usize) -> u16 {
        u16::from_ne_bytes(self.array(at))
    }

    fn u32(self, at: usize) -> u32 {
        u32::from_ne_bytes(self.array(at))
    }

    fn u64(self, at: usize) -> u64 {
        u64::from_ne_bytes(self.array(at))
    }

    fn address(self, at: usize) -> IpAddr {
        Ipv6Addr::from(self.array::<16>(at)).to_canonical()
    }

    fn tuple(self, at: usize) -> Tuple {
        let end = |address, port| {
            SocketAddr::new(self.address(at + address), u16::from_be_bytes(self.array(at + port)))
        };
        Tuple {
            src: end(offset_of!(record::Ends, src), offset_of!(record::Ends, src_port)),
            dst: end(offset_of!(record::Ends, dst), offset_of!(record::Ends, dst_port)),
        }
    }
}

fn hook(number: u8) -> Result<Hook, RingError> {
    Hook::ALL.get(usize::from(number)).copied().ok_or(RingError::Hook { hook: number })
}

fn packet(fields: Fields<'_>, lookup: Option<Lookup>) -> Result<Event, RingError> {
    let detail = offset_of!(record::Packet, detail);
    let segment = match fields.u8(offset_of!(record::Packet, protocol)) {
        record::TCP => Segment::Tcp {
            flags: TcpFlags(fields.u8(offset_of!(record::Packet, tcp_flags))),
            seq: u32::from_be_bytes(fields.array(detail)),
            ack: u32::from_be_bytes(fields.array(detail + 4)),
        },
        record::ICMP | record::ICMPV6 => Segment::IcmpError {
            kind: fields.u8(offset_of!(record::Packet, icmp_kind)),
            code: fields.u8(offset_of!(record::Packet, icmp_code)),
            from: fields.address(detail),
        },
        protocol => return Err(RingError::Protocol { protocol }),
    };
    let has_reason = fields.u8(offset_of!(record::Packet, has_reason)) != 0;
    Ok(Event {
        time: MonoNs(fields.u64(offset_of!(record::Packet, time_ns))),
        kind: EventKind::Packet(PacketEvent {
            hook: hook(fields.u8(offset_of!(record::Packet, hook)))?,
            netns: NetnsId(fields.u32(offset_of!(record::Packet, netns))),
            ifindex: IfIndex(fields.u32(offset_of!(record::Packet, ifindex))),
            tuple: fields.tuple(offset_of!(record::Packet, ends)),
            segment,
            lookup,
            drop: has_reason
                .then(|| DropReason(fields.u32(offset_of!(record::Packet, drop_reason)))),
        }),
    })
}

fn lookup(fields: Fields<'_>, kernel: Kernel) -> Lookup {
    let status = CtStatus(fields.u32(offset_of!(record::Entry, status)));
    let state = fields.u8(offset_of!(record::Entry, tcp_state));
    Lookup {
        orig: fields.tuple(offset_of!(record::Entry, orig)),
        reply: fields.tuple(offset_of!(record::Entry, reply)),
        zone: fields.u16(offset_of!(record::Entry, zone)),
        status,
        ctinfo: CtInfo(fields.u8(offset_of!(record::Entry, ctinfo))),
        state: (state != record::TCP_STATE_UNKNOWN).then(|| CtState::from_number(state)),
        life: life(
            fields.u32(offset_of!(record::Entry, timeout)),
            fields.u32(offset_of!(record::Entry, jiffies)),
            status.has(CtStatus::CONFIRMED),
            kernel.hz,
        ),
    }
}

/// `nf_conn.timeout` counts ticks: relative until the entry is confirmed, then the low 32 bits of the tick at
/// which it expires, so that the difference wraps (include/net/netfilter/nf_conntrack.h: `nf_ct_expires`).
fn life(timeout: u32, jiffies: u32, confirmed: bool, hz: Option<u32>) -> EntryLife {
    let Some(hz) = hz.filter(|&hz| hz > 0) else { return EntryLife::Unknown };
    let ticks = |count: u32| Duration::from_nanos(u64::from(count) * 1_000_000_000 / u64::from(hz));
    if !confirmed {
        return EntryLife::Unconfirmed(ticks(timeout));
    }
    match u32::try_from(timeout.wrapping_sub(jiffies).cast_signed()) {
        Ok(left) if left > 0 => EntryLife::Remaining(ticks(left)),
        _ => EntryLife::Expired,
    }
}

/// What a record of a socket tells beyond its event: which socket it is, and who connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketDetail {
    /// What tells it from all other sockets that there are at that time.
    pub socket: u64,
    /// The socket's error (errno(3)); 0: none.
    pub errno: i32,
    /// The process that connects; none unless the socket leaves CLOSE.
    pub by: Option<Process>,
}

/// The detail of a record that [`decode`] takes for a socket's change of state; none of another record.
pub fn socket_detail(bytes: &[u8]) -> Option<SocketDetail> {
    if bytes.len() != size_of::<record::Socket>()
        || bytes[offset_of!(record::Socket, kind)] != record::KIND_SOCKET
    {
        return None;
    }
    let fields = Fields(bytes);
    let pid = fields.u32(offset_of!(record::Socket, pid));
    let comm: [u8; 16] = fields.array(offset_of!(record::Socket, comm));
    let name = comm.split(|byte| *byte == 0).next().unwrap_or_default();
    let by = (pid != 0).then(|| Process {
        pid,
        name: String::from_utf8_lossy(name).into_owned(),
        cgroup: fields.u64(offset_of!(record::Socket, cgroup)),
    });
    let errno = fields.u32(offset_of!(record::Socket, error)).cast_signed();
    Some(SocketDetail { socket: fields.u64(offset_of!(record::Socket, socket)), errno, by })
}

fn socket(fields: Fields<'_>) -> Result<Event, RingError> {
    hook(fields.u8(offset_of!(record::Socket, hook)))?;
    Ok(Event {
        time: MonoNs(fields.u64(offset_of!(record::Socket, time_ns))),
        kind: EventKind::TcpState(TcpStateEvent {
            netns: NetnsId(fields.u32(offset_of!(record::Socket, netns))),
            tuple: fields.tuple(offset_of!(record::Socket, ends)),
            old: SockState::from_number(fields.u8(offset_of!(record::Socket, old))),
            new: SockState::from_number(fields.u8(offset_of!(record::Socket, new))),
        }),
    })
}

#[cfg(test)]
mod tests;
