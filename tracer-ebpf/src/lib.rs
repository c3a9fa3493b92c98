//! The words that the BPF programs and user space share: record layouts, the table of kernel fields,
//! the names of maps and their capacities. `no_std`, no logic.
#![no_std]
#![forbid(unsafe_code)]

pub mod fields;
pub mod record;

/// A hook's number in records and its index in the map of losses. The same order as `model::Hook::ALL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HookNumber {
    /// `net_dev_start_xmit`
    NetDevStartXmit = 0,
    /// `kfree_skb`
    KfreeSkb = 1,
    /// `tcp_send_reset`
    TcpSendReset = 2,
    /// `tcp_receive_reset`
    TcpReceiveReset = 3,
    /// `inet_sock_set_state`
    InetSockSetState = 4,
}

/// How many hooks there are.
pub const HOOKS: u32 = 5;

/// The ring buffer through which records come.
pub const MAP_EVENTS: &str = "EVENTS";
/// Per CPU and hook: how many records found the ring buffer full.
pub const MAP_LOST: &str = "LOST";
/// The watched Services: an [`record::Endpoint`] each.
pub const MAP_SERVICES: &str = "SERVICES";
/// The backends that DNAT has chosen for these, or is expected to: an [`record::Endpoint`] each.
pub const MAP_BACKENDS: &str = "BACKENDS";
/// The network namespaces to which recording is limited, if [`GLOBAL_LIMIT_NETNS`] is 1.
pub const MAP_NETNS: &str = "NETNS";

/// Global of one byte: 1 if only the namespaces of [`MAP_NETNS`] are recorded.
pub const GLOBAL_LIMIT_NETNS: &str = "LIMIT_NETNS";
/// Global of one byte: 1 if `kfree_skb` has its reason argument (since Linux 5.17).
pub const GLOBAL_DROP_REASON: &str = "DROP_REASON";

/// How many Services can be watched, unless user space makes the map larger.
pub const SERVICES_CAPACITY: u32 = 1024;
/// How many backends are remembered; the least recently used goes first.
pub const BACKENDS_CAPACITY: u32 = 16_384;
/// How many namespaces recording can be limited to, unless user space makes the map larger.
pub const NETNS_CAPACITY: u32 = 256;
/// The ring buffer's size in bytes, unless user space sets another before loading.
pub const RING_BYTES: u32 = 8 << 20;
