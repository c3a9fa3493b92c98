//! What the kernel's hooks see: a segment, the conntrack entry that it carries, a socket's change of state.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Direction, IfIndex, NetnsId, Tuple};

/// Where a packet was seen: a place in the kernel at which a BPF program of ours runs, named as its tracepoint,
/// or a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Hook {
    /// `net:net_dev_start_xmit`: a packet is handed to a device for sending.
    NetDevStartXmit,
    /// `skb:kfree_skb`: a packet is dropped, since Linux 5.17 with a reason.
    KfreeSkb,
    /// `tcp:tcp_send_reset`: this kernel answers a segment with a RST.
    TcpSendReset,
    /// `tcp:tcp_receive_reset`: a socket of this kernel receives a RST.
    TcpReceiveReset,
    /// `sock:inet_sock_set_state`: a TCP socket changes its state.
    InetSockSetState,
    /// No program of ours, but a capture that somebody made: there a packet's `lookup` is not read from the kernel
    /// but inferred from the packets before and after NAT.
    Capture,
}

impl Hook {
    /// Every hook in the kernel, in the order of their numbers in the BPF records.
    pub const ALL: [Hook; 5] = [
        Hook::NetDevStartXmit,
        Hook::KfreeSkb,
        Hook::TcpSendReset,
        Hook::TcpReceiveReset,
        Hook::InetSockSetState,
    ];

    /// The tracepoint's name.
    pub fn name(self) -> &'static str {
        match self {
            Hook::NetDevStartXmit => "net_dev_start_xmit",
            Hook::KfreeSkb => "kfree_skb",
            Hook::TcpSendReset => "tcp_send_reset",
            Hook::TcpReceiveReset => "tcp_receive_reset",
            Hook::InetSockSetState => "inet_sock_set_state",
            Hook::Capture => "capture",
        }
    }
}

/// A packet at a hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketEvent {
    /// Where in the kernel it was seen.
    pub hook: Hook,
    /// The network namespace of the device, or of the socket where the hook has no device.
    pub netns: NetnsId,
    /// The device; 0 where the hook has none.
    pub ifindex: IfIndex,
    /// Source and destination as this packet carries them *here*: before or after NAT, whichever the place
    /// has. For `tcp_send_reset`: of the segment that provoked the RST, so the RST goes the other way.
    /// For `tcp_receive_reset`: the socket's, local end first. For an ICMP error: of the packet it is about.
    pub tuple: Tuple,
    /// What it is.
    pub segment: Segment,
    /// The conntrack entry that it carries (`skb->_nfct`), if any; for [`Hook::Capture`] the one that it must have
    /// carried.
    pub lookup: Option<Lookup>,
    /// Why it was dropped; only from `kfree_skb`, and there only where the kernel has reasons.
    pub drop: Option<DropReason>,
}

/// The kinds of packet that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Segment {
    /// A TCP segment's header fields.
    Tcp {
        /// Its flags.
        flags: TcpFlags,
        /// Its sequence number; of a SYN, the initial one.
        seq: u32,
        /// Its acknowledgement number.
        ack: u32,
    },
    /// An ICMP or ICMPv6 error message about a watched flow.
    IcmpError {
        /// ICMP type.
        kind: u8,
        /// ICMP code.
        code: u8,
        /// Who sent it.
        from: IpAddr,
    },
}

/// The flags byte of a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// FIN
    pub const FIN: u8 = 0x01;
    /// SYN
    pub const SYN: u8 = 0x02;
    /// RST
    pub const RST: u8 = 0x04;
    /// ACK
    pub const ACK: u8 = 0x10;

    /// A connect's opening segment: SYN without ACK or RST.
    pub fn is_syn(self) -> bool {
        self.0 & (Self::SYN | Self::ACK | Self::RST) == Self::SYN
    }

    /// The answer that accepts a connect: SYN and ACK.
    pub fn is_syn_ack(self) -> bool {
        self.0 & (Self::SYN | Self::ACK | Self::RST) == Self::SYN | Self::ACK
    }

    /// A reset.
    pub fn is_rst(self) -> bool {
        self.0 & Self::RST != 0
    }
}

/// What the packet's conntrack lookup found (or made): `skb->_nfct`, read at the hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookup {
    /// The entry's original tuple: for a Service, client → ClusterIP.
    pub orig: Tuple,
    /// The entry's reply tuple: its source is the backend that DNAT chose.
    pub reply: Tuple,
    /// The entry's zone id.
    pub zone: u16,
    /// The entry's status bits.
    pub status: CtStatus,
    /// How the packet relates to the entry.
    pub ctinfo: CtInfo,
    /// The TCP tracker's state, where it could be read.
    pub state: Option<CtState>,
    /// How long the entry has left.
    pub life: EntryLife,
}

impl Lookup {
    /// The packet's direction within the entry.
    pub fn direction(&self) -> Direction {
        if self.ctinfo.0 >= CtInfo::IS_REPLY { Direction::Reply } else { Direction::Original }
    }

    /// Whether destination NAT was applied: the reply comes from elsewhere than the client asked.
    pub fn is_translated(&self) -> bool {
        self.reply.src != self.orig.dst
    }
}

/// `enum ip_conntrack_info` (include/uapi/linux/netfilter/nf_conntrack_common.h): low 3 bits of `_nfct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CtInfo(pub u8);

impl CtInfo {
    /// Part of an established connection, original direction.
    pub const ESTABLISHED: u8 = 0;
    /// Related to one, such as an ICMP error, original direction.
    pub const RELATED: u8 = 1;
    /// First packets of a connection that has had no reply.
    pub const NEW: u8 = 2;
    /// From here on: the reply direction (`IP_CT_IS_REPLY`).
    pub const IS_REPLY: u8 = 3;
}

/// `enum ip_conntrack_status` bits (same header), stable since long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CtStatus(pub u32);

impl CtStatus {
    /// A reply has been seen.
    pub const SEEN_REPLY: u32 = 1 << 1;
    /// The connection is assured: early drop spares it.
    pub const ASSURED: u32 = 1 << 2;
    /// The entry is in the table.
    pub const CONFIRMED: u32 = 1 << 3;
    /// Source NAT applies.
    pub const SRC_NAT: u32 = 1 << 4;
    /// Destination NAT applies.
    pub const DST_NAT: u32 = 1 << 5;
    /// The entry is being removed.
    pub const DYING: u32 = 1 << 9;

    /// Whether all the given bits are set.
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }
}

/// `enum tcp_conntrack` (include/uapi/linux/netfilter/nf_conntrack_tcp.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CtState {
    /// TCP_CONNTRACK_NONE (0): a packet that the tracker has not classified yet.
    None,
    /// 1
    SynSent,
    /// 2
    SynRecv,
    /// 3
    Established,
    /// 4
    FinWait,
    /// 5
    CloseWait,
    /// 6
    LastAck,
    /// 7
    TimeWait,
    /// 8
    Close,
    /// 9: a simultaneous open's second SYN.
    SynSent2,
    /// Any other number: a kernel newer than this list.
    Other(u8),
}

impl CtState {
    /// The state with the kernel's number.
    pub fn from_number(number: u8) -> CtState {
        match number {
            0 => CtState::None,
            1 => CtState::SynSent,
            2 => CtState::SynRecv,
            3 => CtState::Established,
            4 => CtState::FinWait,
            5 => CtState::CloseWait,
            6 => CtState::LastAck,
            7 => CtState::TimeWait,
            8 => CtState::Close,
            9 => CtState::SynSent2,
            other => CtState::Other(other),
        }
    }

    /// The name as conntrack's tools print it.
    pub fn name(self) -> &'static str {
        match self {
            CtState::None => "NONE",
            CtState::SynSent => "SYN_SENT",
            CtState::SynRecv => "SYN_RECV",
            CtState::Established => "ESTABLISHED",
            CtState::FinWait => "FIN_WAIT",
            CtState::CloseWait => "CLOSE_WAIT",
            CtState::LastAck => "LAST_ACK",
            CtState::TimeWait => "TIME_WAIT",
            CtState::Close => "CLOSE",
            CtState::SynSent2 => "SYN_SENT2",
            CtState::Other(_) => "OTHER",
        }
    }
}

/// What is known of an entry's remaining life when a packet carried it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryLife {
    /// Not in the table yet: `nf_conn.timeout` is relative, this long from its confirmation on.
    Unconfirmed(Duration),
    /// In the table: it expires this long after the packet.
    Remaining(Duration),
    /// In the table with its time already over: nothing looked at it since.
    Expired,
    /// The kernel's tick rate or the field was not to be had.
    Unknown,
}

/// `enum skb_drop_reason`'s number on the traced kernel; the trace's header names the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DropReason(pub u32);

/// A TCP socket's change of state (`inet_sock_set_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpStateEvent {
    /// The socket's network namespace.
    pub netns: NetnsId,
    /// Local end → remote end. The local port is 0 until the kernel has chosen one.
    pub tuple: Tuple,
    /// The state it leaves.
    pub old: SockState,
    /// The state it enters.
    pub new: SockState,
}

/// A socket's TCP state (include/net/tcp_states.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SockState {
    /// 1
    Established,
    /// 2
    SynSent,
    /// 3
    SynRecv,
    /// 4
    FinWait1,
    /// 5
    FinWait2,
    /// 6
    TimeWait,
    /// 7
    Close,
    /// 8
    CloseWait,
    /// 9
    LastAck,
    /// 10
    Listen,
    /// 11
    Closing,
    /// Any other number.
    Other(u8),
}

impl SockState {
    /// The state with the kernel's number.
    pub fn from_number(number: u8) -> SockState {
        match number {
            1 => SockState::Established,
            2 => SockState::SynSent,
            3 => SockState::SynRecv,
            4 => SockState::FinWait1,
            5 => SockState::FinWait2,
            6 => SockState::TimeWait,
            7 => SockState::Close,
            8 => SockState::CloseWait,
            9 => SockState::LastAck,
            10 => SockState::Listen,
            11 => SockState::Closing,
            other => SockState::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syn_is_neither_its_answer_nor_a_reset() {
        let syn = TcpFlags(TcpFlags::SYN);
        let syn_ack = TcpFlags(TcpFlags::SYN | TcpFlags::ACK);
        assert!(syn.is_syn() && !syn.is_syn_ack() && !syn.is_rst());
        assert!(syn_ack.is_syn_ack() && !syn_ack.is_syn());
        // ECN bits (0xc0) do not change what a SYN is.
        assert!(TcpFlags(TcpFlags::SYN | 0xc0).is_syn());
    }
}
