//! Who speaks to whom: addresses, ports, and the places in which a packet was seen.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// Source and destination of a TCP segment. Directional: [`Tuple::reversed`] is what the answer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tuple {
    /// Source address and port.
    pub src: SocketAddr,
    /// Destination address and port.
    pub dst: SocketAddr,
}

/// By a few whole numbers: every packet is looked up by its tuple, and field by field the hash alone takes longer than
/// the rest of that.
impl Hash for Tuple {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let ports = u32::from(self.src.port()) << 16 | u32::from(self.dst.port());
        match (self.src.ip(), self.dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                state.write_u64(u64::from(src.to_bits()) << 32 | u64::from(dst.to_bits()));
                state.write_u32(ports);
            }
            (src, dst) => {
                for end in [src, dst] {
                    match end {
                        IpAddr::V4(end) => state.write_u32(end.to_bits()),
                        IpAddr::V6(end) => state.write_u128(end.to_bits()),
                    }
                }
                state.write_u32(ports);
            }
        }
    }
}

impl Tuple {
    /// The tuple from `src` to `dst`.
    pub fn new(src: SocketAddr, dst: SocketAddr) -> Tuple {
        Tuple { src, dst }
    }

    /// The same two ends, the other way round.
    pub fn reversed(self) -> Tuple {
        Tuple { src: self.dst, dst: self.src }
    }

    /// The source port.
    pub fn src_port(self) -> SrcPort {
        SrcPort(self.src.port())
    }
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}", self.src, self.dst)
    }
}

/// A direction of a conntrack entry: `Original` is that of its first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// The direction of the packet that made the entry.
    Original,
    /// The direction of its answers.
    Reply,
}

/// A client's source port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SrcPort(pub u16);

impl fmt::Display for SrcPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The initial sequence number of a SYN. With the tuple it names one connect: a retransmission has the
/// same one, a new connect from the same port has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Isn(pub u32);

/// A network namespace: the inode number of `/proc/PID/ns/net`, `net->ns.inum` in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NetnsId(pub u32);

/// An interface's index, unique within its network namespace only. 0: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IfIndex(pub u32);
