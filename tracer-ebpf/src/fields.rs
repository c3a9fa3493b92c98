//! The members of kernel structs that the programs read, each at an offset that user space takes from the
//! running kernel's BTF and stores in a frozen global before loading.

/// Stands in a global for a member that the kernel does not have; the programs leave its reading out.
pub const ABSENT: u32 = u32::MAX;

/// What stops working without a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Everything: no packet can be understood.
    Packets,
    /// The conntrack entry of a packet: both tuples and the status.
    Entry,
    /// The remaining life of an entry.
    Life,
    /// The zone of an entry (CONFIG_NF_CONNTRACK_ZONES).
    Zone,
    /// The TCP tracker's state of an entry.
    TcpState,
    /// The socket's ends at tcp_receive_reset and inet_sock_set_state.
    Sockets,
    /// The same for IPv6 (CONFIG_IPV6).
    SocketsV6,
}

/// A member of a kernel struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The global that holds its offset in bytes.
    pub global: &'static str,
    /// The struct that the offset counts from.
    pub owner: &'static str,
    /// The path from there, dotted.
    pub member: &'static str,
    /// Its size in bytes, which BTF must confirm. 0: not read itself, only its address is taken.
    pub size: u32,
    /// What is lost without it.
    pub feature: Feature,
}

/// Calls a macro with every field, as `GLOBAL: "owner" "member" size Feature;`.
#[macro_export]
macro_rules! each_field {
    ($then:ident) => {
        $then! {
            SKB_NFCT: "sk_buff" "_nfct" 8 Entry;
            SKB_PROTOCOL: "sk_buff" "protocol" 2 Packets;
            SKB_HEAD: "sk_buff" "head" 8 Packets;
            SKB_NETWORK_HEADER: "sk_buff" "network_header" 2 Packets;
            SKB_DEV: "sk_buff" "dev" 8 Packets;
            SKB_SK: "sk_buff" "sk" 8 Packets;
            DEV_IFINDEX: "net_device" "ifindex" 4 Packets;
            DEV_NET: "net_device" "nd_net.net" 8 Packets;
            NET_INUM: "net" "ns.inum" 4 Packets;
            CONN_TUPLES: "nf_conn" "tuplehash" 0 Entry;
            CONN_STATUS: "nf_conn" "status" 8 Entry;
            CONN_TIMEOUT: "nf_conn" "timeout" 4 Life;
            CONN_ZONE: "nf_conn" "zone.id" 2 Zone;
            CONN_TCP_STATE: "nf_conn" "proto.tcp.state" 1 TcpState;
            HASH_TUPLE: "nf_conntrack_tuple_hash" "tuple" 0 Entry;
            SOCK_FAMILY: "sock_common" "skc_family" 2 Sockets;
            SOCK_SRC: "sock_common" "skc_rcv_saddr" 4 Sockets;
            SOCK_DST: "sock_common" "skc_daddr" 4 Sockets;
            SOCK_DST_PORT: "sock_common" "skc_dport" 2 Sockets;
            SOCK_NET: "sock_common" "skc_net.net" 8 Packets;
            SOCK_SRC_V6: "sock_common" "skc_v6_rcv_saddr" 16 SocketsV6;
            SOCK_DST_V6: "sock_common" "skc_v6_daddr" 16 SocketsV6;
            SOCK_SRC_PORT: "inet_sock" "inet_sport" 2 Sockets;
            SOCK_PROTOCOL: "sock" "sk_protocol" 2 Sockets;
            SOCK_ERROR: "sock" "sk_err" 4 Sockets;
        }
    };
}

macro_rules! table {
    ($($global:ident: $owner:literal $member:literal $size:literal $feature:ident;)*) => {
        /// Every field.
        pub const FIELDS: &[Field] = &[$(Field {
            global: stringify!($global),
            owner: $owner,
            member: $member,
            size: $size,
            feature: Feature::$feature,
        }),*];
    };
}
each_field!(table);

/// A place inside a kernel struct at which the programs read without a global, because it lies within one
/// larger read. User space checks it against BTF and switches the feature off if it differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The struct.
    pub owner: &'static str,
    /// The path from there, dotted; empty for the struct's own size.
    pub member: &'static str,
    /// The offset in bytes that the programs rely on; for an empty member, the size.
    pub at: u32,
    /// What is lost if it differs.
    pub feature: Feature,
}

/// Bytes of one `nf_conntrack_tuple`.
pub const TUPLE_BYTES: u32 = 40;
/// Bytes from an entry's original tuple to its reply tuple.
pub const TUPLE_STRIDE: u32 = 56;

/// Every layout that is relied upon (include/net/netfilter/nf_conntrack_tuple.h: unchanged since 2.6).
pub const LAYOUTS: &[Layout] = &[
    Layout {
        owner: "nf_conntrack_tuple_hash",
        member: "",
        at: TUPLE_STRIDE,
        feature: Feature::Entry,
    },
    Layout { owner: "nf_conntrack_tuple", member: "", at: TUPLE_BYTES, feature: Feature::Entry },
    Layout { owner: "nf_conntrack_tuple", member: "src.u3", at: 0, feature: Feature::Entry },
    Layout { owner: "nf_conntrack_tuple", member: "src.u", at: 16, feature: Feature::Entry },
    Layout { owner: "nf_conntrack_tuple", member: "src.l3num", at: 18, feature: Feature::Entry },
    Layout { owner: "nf_conntrack_tuple", member: "dst.u3", at: 20, feature: Feature::Entry },
    Layout { owner: "nf_conntrack_tuple", member: "dst.u", at: 36, feature: Feature::Entry },
    Layout { owner: "nf_conntrack_tuple", member: "dst.protonum", at: 38, feature: Feature::Entry },
];
