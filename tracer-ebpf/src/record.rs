//! The layout of records in the ring buffer. Native byte order, except where a field says "network order".
//! Padding is explicit, so that no byte of a record is ever undefined.

use core::mem::size_of;

/// [`Packet`] alone: a packet that carries no conntrack entry.
pub const KIND_PACKET: u8 = 1;
/// [`PacketWithEntry`]
pub const KIND_PACKET_WITH_ENTRY: u8 = 2;
/// [`Socket`]
pub const KIND_SOCKET: u8 = 3;

/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of ICMP.
pub const ICMP: u8 = 1;
/// IP protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;

/// [`Entry::tcp_state`] where the kernel's BTF did not tell the field's place.
pub const TCP_STATE_UNKNOWN: u8 = 0xff;

/// An IP address as its 16 bytes lie in a packet. An IPv4 address is mapped: `::ffff:a.b.c.d`.
pub type Address = [u32; 4];

/// The third word of a mapped IPv4 address (RFC 4291, 2.5.5.2).
pub const MAPPED: u32 = 0xffff_u32.to_be();

/// An address and a port: the key of the maps of Services and backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Endpoint {
    /// The address.
    pub address: Address,
    /// The port, network order.
    pub port: u16,
    /// Zero.
    pub zero: u16,
}

/// Source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Ends {
    /// Source address.
    pub src: Address,
    /// Destination address.
    pub dst: Address,
    /// Source port, network order.
    pub src_port: u16,
    /// Destination port, network order.
    pub dst_port: u16,
}

/// A packet at a hook.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Packet {
    /// `bpf_ktime_get_ns`
    pub time_ns: u64,
    /// [`KIND_PACKET`] or [`KIND_PACKET_WITH_ENTRY`].
    pub kind: u8,
    /// [`crate::HookNumber`]
    pub hook: u8,
    /// [`TCP`], or [`ICMP`] or [`ICMPV6`] for an error message.
    pub protocol: u8,
    /// 1 if `drop_reason` is one.
    pub has_reason: u8,
    /// The network namespace's inode number; 0 if it could not be read.
    pub netns: u32,
    /// The device's index; 0 if there is none.
    pub ifindex: u32,
    /// `enum skb_drop_reason`
    pub drop_reason: u32,
    /// Of the packet; of an ICMP error, of the packet that it is about.
    pub ends: Ends,
    /// TCP flags; of an ICMP error, 0.
    pub tcp_flags: u8,
    /// ICMP type.
    pub icmp_kind: u8,
    /// ICMP code.
    pub icmp_code: u8,
    /// Zero.
    pub zero: u8,
    /// TCP: sequence and acknowledgement number, network order, then zeros. ICMP: the sender's address.
    pub detail: [u32; 4],
}

/// The conntrack entry that a packet carries.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Entry {
    /// Original tuple.
    pub orig: Ends,
    /// Reply tuple.
    pub reply: Ends,
    /// `nf_conn.timeout`: the expiry in jiffies once confirmed, before that relative.
    pub timeout: u32,
    /// The low half of `bpf_jiffies64` at the hook.
    pub jiffies: u32,
    /// `nf_conn.status`, its low half.
    pub status: u32,
    /// `nf_conn.zone.id`; 0 where the kernel has no zones.
    pub zone: u16,
    /// `enum ip_conntrack_info`
    pub ctinfo: u8,
    /// `enum tcp_conntrack`, or [`TCP_STATE_UNKNOWN`].
    pub tcp_state: u8,
}

/// A packet with its conntrack entry.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PacketWithEntry {
    /// The packet; its kind is [`KIND_PACKET_WITH_ENTRY`].
    pub packet: Packet,
    /// Its entry.
    pub entry: Entry,
}

/// A TCP socket's change of state.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Socket {
    /// `bpf_ktime_get_ns`
    pub time_ns: u64,
    /// [`KIND_SOCKET`]
    pub kind: u8,
    /// [`crate::HookNumber`]
    pub hook: u8,
    /// The state that it leaves (include/net/tcp_states.h).
    pub old: u8,
    /// The state that it enters.
    pub new: u8,
    /// The network namespace's inode number.
    pub netns: u32,
    /// Local end as source, remote end as destination.
    pub ends: Ends,
    /// `sk->sk_err`: why the connection ended, if it ended by an error.
    pub error: u32,
    /// What tells the socket from all others that there are: its address. The local port is not chosen yet when it
    /// leaves CLOSE.
    pub socket: u64,
    /// The cgroup of the process that connects (`bpf_get_current_cgroup_id`); 0 unless it leaves CLOSE.
    pub cgroup: u64,
    /// That process; 0 unless it leaves CLOSE.
    pub pid: u32,
    /// Zero.
    pub zero: u32,
    /// Its name (`bpf_get_current_comm`), up to the first zero.
    pub comm: [u8; 16],
}

const _: () = assert!(size_of::<Endpoint>() == 20);
const _: () = assert!(size_of::<Ends>() == 36);
const _: () = assert!(size_of::<Packet>() == 80);
const _: () = assert!(size_of::<Entry>() == 88);
const _: () = assert!(size_of::<PacketWithEntry>() == 168);
const _: () = assert!(size_of::<Socket>() == 96);
