//! A packet as a capture has it: what it carries, and nothing of what the kernel thought of it.

use super::{IfIndex, Segment, Tuple, WallNs};

/// A TCP segment that opens, accepts, closes or resets a connection, or an ICMP error about TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// When, by the clock of the machine that captured it.
    pub time: WallNs,
    /// Where: the kernel's index of the device if the capture tells it (Linux cooked v2); else the number of the
    /// capture's interface, counted from 1, where it has several (pcapng); 0 if there is nothing to tell them by.
    pub ifindex: IfIndex,
    /// Which way it passed that device, if the capture tells.
    pub way: Option<Way>,
    /// Source and destination as it carries them here. Of an ICMP error: of the packet that it is about.
    pub tuple: Tuple,
    /// What it is.
    pub segment: Segment,
    /// The value of the TCP timestamp option (RFC 7323): the sender's clock. None if the packet has none, or was
    /// cut off before it.
    pub timestamp: Option<u32>,
    /// The sequence number of the segment that an ICMP error is about; none for a TCP segment.
    pub about: Option<u32>,
}

/// Which way a packet passes a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// It came in by the device.
    In,
    /// It goes out by it.
    Out,
}
