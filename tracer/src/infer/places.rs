//! The same packet at several places of a node: which sightings belong together.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;

use super::HOLD;
use crate::model::{Captured, MonoNs, Segment, Way};

/// What NAT leaves alone: sequence numbers, flags, the sender's timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Mark(u64, u64);

impl Mark {
    fn of(packet: &Captured) -> Mark {
        let stamp = packet.timestamp.map_or(0, |stamp| 1 << 32 | u64::from(stamp));
        match packet.segment {
            Segment::Tcp { flags, seq, ack } => {
                Mark(u64::from(seq) << 32 | u64::from(ack), u64::from(flags.0) << 40 | stamp)
            }
            Segment::IcmpError { kind, code, .. } => {
                let about = u64::from(packet.about.unwrap_or(0));
                Mark(about, 1 << 63 | u64::from(kind) << 8 | u64::from(code))
            }
        }
    }
}

/// The same packet on both sides of NAT.
#[derive(Clone, Copy, Debug)]
pub(super) struct Translated {
    pub(super) before: Captured,
    pub(super) after: Captured,
}

/// The packets that were seen in the last moments.
#[derive(Debug, Default)]
pub(super) struct Places {
    seen: HashMap<Mark, Seen, FixedState>,
    /// In the order of their first sightings.
    order: VecDeque<(MonoNs, Mark)>,
}

#[derive(Debug)]
struct Seen {
    time: MonoNs,
    first: Captured,
    /// Whether all that it tells has been told.
    settled: bool,
}

impl Places {
    /// Takes a sighting. Of a SYN that was seen with another tuple a moment ago it says both sides, once.
    pub(super) fn sighted(&mut self, time: MonoNs, packet: &Captured) -> Option<Translated> {
        let mark = Mark::of(packet);
        let new = Seen { time, first: *packet, settled: false };
        let seen = match self.seen.entry(mark) {
            std::collections::hash_map::Entry::Vacant(vacant) => {
                vacant.insert(new);
                self.order.push_back((time, mark));
                return None;
            }
            std::collections::hash_map::Entry::Occupied(occupied) => occupied.into_mut(),
        };
        let is_syn = matches!(packet.segment, Segment::Tcp { flags, .. } if flags.is_syn());
        if seen.settled || !is_syn || seen.first.tuple == packet.tuple {
            return None;
        }
        seen.settled = true;
        // What came in is before NAT, what goes out after it. Where a capture does not tell, they are in order.
        let (before, after) = match (packet.way, seen.first.way) {
            (Some(Way::In), Some(Way::Out)) => (*packet, seen.first),
            _ => (seen.first, *packet),
        };
        Some(Translated { before, after })
    }

    /// Says that all is told of a packet that was sighted. False if it was before.
    pub(super) fn settle(&mut self, packet: &Captured) -> bool {
        match self.seen.get_mut(&Mark::of(packet)) {
            Some(seen) => !std::mem::replace(&mut seen.settled, true),
            None => true,
        }
    }

    /// The next packet whose first sighting was before `until` (or at any time) and of which nothing was told:
    /// its other side does not come any more.
    pub(super) fn over(&mut self, until: Option<MonoNs>) -> Option<(MonoNs, Captured)> {
        while let Some((time, mark)) = self.order.front().copied() {
            if until.is_some_and(|until| time >= until) {
                return None;
            }
            self.order.pop_front();
            if let Some(seen) = self.seen.remove(&mark)
                && !seen.settled
            {
                return Some((seen.time, seen.first));
            }
        }
        None
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.seen.len()
    }
}

const _: () = assert!(HOLD.as_millis() < 1000, "shorter than a retransmission");
