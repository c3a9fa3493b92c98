//! One connect: all that its packets tell.

use std::net::{IpAddr, SocketAddr};

use super::entry::Found;
use super::pods::Seen;
use crate::model::{DropReason, IfIndex, Isn, MonoNs, NetnsId, RequestId, Tuple};

/// How many retransmissions, hops and drops of an attempt are kept.
const MOST: usize = 8;

/// One connect: an original tuple and an ISN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// From the client to the Service.
    pub orig: Tuple,
    /// Its initial sequence number.
    pub isn: Isn,
    /// The first SYN that was seen of it.
    pub first: Seen,
    /// Whether a SYN was seen at all, or only what followed one.
    pub has_syn: bool,
    /// Where that was; none if only an answer was seen, or a drop.
    pub place: Option<(NetnsId, IfIndex)>,
    /// What it found.
    pub found: Found,
    /// How many SYNs it sent, as seen at the client's node.
    pub syns: u32,
    /// The retransmissions, the first few.
    pub retransmissions: Vec<Seen>,
    /// The last SYN.
    pub last_syn: Seen,
    /// Where a retransmission went, if elsewhere than the first SYN: its entry had expired in between.
    pub moved_to: Option<(SocketAddr, Seen)>,
    /// Other devices that its SYN was handed to, the first few.
    pub hops: Vec<Hop>,
    /// The SYN-ACK.
    pub answer: Option<Answer>,
    /// The RST.
    pub reset: Option<Reset>,
    /// The ICMP error.
    pub icmp: Option<Icmp>,
    /// Drops of its segments, the first few.
    pub drops: Vec<Dropped>,
    /// When its socket was connected.
    pub connected: Option<Seen>,
    /// The end of its connection.
    pub close: Option<Close>,
    /// The end of the latest request that came on its connection, where this may carry more than one.
    pub(super) kept: Option<MonoNs>,
    /// The request that it was made for.
    pub request: Option<RequestId>,
}

/// A SYN on its way, beyond the client's node or on another device of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// In which namespace.
    pub netns: NetnsId,
    /// To which device it was handed; 0 where the hook has none.
    pub ifindex: IfIndex,
    /// When and where in the trace.
    pub seen: Seen,
}

/// A SYN-ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// When and where in the trace.
    pub seen: Seen,
    /// The backend that sent it.
    pub from: SocketAddr,
    /// Whether it was seen in the client's node, on its way to the client.
    pub at_client: bool,
    /// Whether it carried the Service's address there.
    pub translated: bool,
}

/// A RST to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    /// When and where in the trace.
    pub seen: Seen,
    /// Whether it answered the SYN, or came later.
    pub of_syn: bool,
}

/// The end of a connection, as the client's socket changed its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close {
    /// When and where in the trace.
    pub seen: Seen,
    /// Who ended it.
    pub by: ClosedBy,
}

/// Who ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedBy {
    /// The client's FIN was the first.
    Client,
    /// The server's FIN was.
    Server,
    /// A RST, of either side.
    Reset,
}

/// An ICMP error about the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp {
    /// When and where in the trace.
    pub seen: Seen,
    /// Who sent it.
    pub from: IpAddr,
    /// Its type.
    pub kind: u8,
    /// Its code.
    pub code: u8,
}

impl Icmp {
    /// A port unreachable: what kube-proxy's REJECT sends for a Service without endpoints.
    pub fn is_port_unreachable(&self) -> bool {
        match self.from {
            IpAddr::V4(_) => (self.kind, self.code) == (3, 3),
            IpAddr::V6(_) => (self.kind, self.code) == (1, 4),
        }
    }
}

/// A dropped segment of the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// When and where in the trace.
    pub seen: Seen,
    /// In which namespace.
    pub netns: NetnsId,
    /// Why.
    pub reason: Option<DropReason>,
    /// Whether it was the answer, not the SYN.
    pub is_answer: bool,
    /// Whether conntrack had given it an entry.
    pub has_entry: bool,
}

impl Attempt {
    /// The attempt whose first sight is this.
    pub(super) fn new(orig: Tuple, isn: Isn, first: Seen, found: Found) -> Attempt {
        Attempt {
            orig,
            isn,
            first,
            has_syn: true,
            place: None,
            found,
            syns: 1,
            retransmissions: Vec::new(),
            last_syn: first,
            moved_to: None,
            hops: Vec::new(),
            answer: None,
            reset: None,
            icmp: None,
            drops: Vec::new(),
            connected: None,
            close: None,
            kept: None,
            request: None,
        }
    }

    pub(super) fn retransmitted(&mut self, now: Seen) {
        self.syns += 1;
        self.last_syn = now;
        if self.retransmissions.len() < MOST {
            self.retransmissions.push(now);
        }
    }

    pub(super) fn hop(&mut self, hop: Hop) {
        if self.hops.len() < MOST {
            self.hops.push(hop);
        }
    }

    pub(super) fn dropped(&mut self, drop: Dropped) {
        if self.drops.len() < MOST {
            self.drops.push(drop);
        }
    }

    /// Where its SYN went, by its latest entry.
    pub fn backend(&self) -> Option<SocketAddr> {
        self.moved_to.map(|(backend, _)| backend).or(self.found.backend())
    }

    /// Whether the connect was accepted, by a packet or by the socket.
    pub fn is_accepted(&self) -> bool {
        self.answer.is_some() || self.connected.is_some()
    }

    /// When it last showed a sign of life.
    pub(super) fn last_seen(&self) -> MonoNs {
        let answer = self.answer.map_or(self.last_syn.time, |answer| answer.seen.time);
        let reset = self.reset.map_or(answer, |reset| reset.seen.time);
        self.last_syn.time.max(answer).max(reset).max(self.kept.unwrap_or(MonoNs(0)))
    }

    /// The events behind it, in order.
    pub fn seqs(&self) -> Vec<Seen> {
        let mut seen = vec![self.first];
        seen.extend(&self.retransmissions);
        seen.extend(self.hops.iter().map(|hop| hop.seen));
        seen.extend(self.moved_to.map(|(_, seen)| seen));
        seen.extend(self.answer.map(|answer| answer.seen));
        seen.extend(self.reset.map(|reset| reset.seen));
        seen.extend(self.icmp.map(|icmp| icmp.seen));
        seen.extend(self.drops.iter().map(|drop| drop.seen));
        seen.extend(self.connected);
        seen.sort();
        seen.dedup();
        seen
    }
}
