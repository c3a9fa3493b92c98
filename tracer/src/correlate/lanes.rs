//! What is open, by the client's end: attempts that may still get packets, entries that may still be met.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use foldhash::fast::FixedState;

use super::attempt::Attempt;
use super::entry::{Entry, Maker};
use crate::model::{Isn, MonoNs, Tuple};

/// How often a client's end is looked at to forget what can no longer matter.
const SWEEP: Duration = Duration::from_secs(5);
/// ISNs of settled attempts that a lane remembers, so that a late retransmission makes no new attempt.
const SPENT: usize = 4;

/// All lanes. Bounded by the client ends that were active within an entry's lifetime.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    clients: HashMap<SocketAddr, Vec<Lane>, FixedState>,
    due: VecDeque<(MonoNs, SocketAddr)>,
}

/// One original tuple: a client's end and a Service.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) orig: Tuple,
    pub(super) attempts: Vec<Attempt>,
    pub(super) entries: Vec<Entry>,
    pub(super) touched: MonoNs,
    spent: VecDeque<Isn>,
}

impl Lane {
    pub(super) fn new(orig: Tuple, now: MonoNs) -> Lane {
        Lane {
            orig,
            attempts: Vec::new(),
            entries: Vec::new(),
            touched: now,
            spent: VecDeque::new(),
        }
    }

    pub(super) fn attempt(&mut self, isn: Isn) -> Option<&mut Attempt> {
        self.attempts.iter_mut().rev().find(|attempt| attempt.isn == isn)
    }

    pub(super) fn is_spent(&self, isn: Isn) -> bool {
        self.spent.contains(&isn)
    }

    /// Takes a settled attempt out.
    pub(super) fn take(&mut self, index: usize) -> Attempt {
        let attempt = self.attempts.remove(index);
        if self.spent.len() == SPENT {
            self.spent.pop_front();
        }
        self.spent.push_back(attempt.isn);
        attempt
    }

    /// The makers that attempts still open may have copied.
    pub(super) fn makers(&mut self, isn: Isn) -> impl Iterator<Item = &mut Maker> {
        let own = self.entries.iter_mut().filter_map(|entry| entry.maker.as_mut());
        let copies = self.attempts.iter_mut().filter_map(|attempt| match &mut attempt.found {
            super::entry::Found::Older(older) => older.maker.as_mut(),
            _ => None,
        });
        own.chain(copies).filter(move |maker| maker.isn == isn)
    }
}

impl Lanes {
    pub(super) fn lane(&mut self, orig: Tuple) -> Option<&mut Lane> {
        self.clients.get_mut(&orig.src)?.iter_mut().find(|lane| lane.orig == orig)
    }

    pub(super) fn lane_or_new(&mut self, orig: Tuple, now: MonoNs) -> &mut Lane {
        let lanes = self.clients.entry(orig.src).or_default();
        if lanes.is_empty() {
            self.due.push_back((now + SWEEP, orig.src));
        }
        let index = lanes.iter().position(|lane| lane.orig == orig).unwrap_or_else(|| {
            lanes.push(Lane::new(orig, now));
            lanes.len() - 1
        });
        lanes[index].touched = lanes[index].touched.max(now);
        &mut lanes[index]
    }

    /// Every lane of a client's end.
    pub(super) fn of_client(&mut self, client: SocketAddr) -> &mut [Lane] {
        self.clients.get_mut(&client).map_or(&mut [], Vec::as_mut_slice)
    }

    /// The client ends that are due to be looked at.
    pub(super) fn due(&mut self, now: MonoNs) -> Vec<SocketAddr> {
        let count = self.due.iter().take_while(|(due, _)| *due <= now).count();
        self.due.drain(..count).map(|(_, client)| client).collect()
    }

    /// Forgets the client's lanes that hold nothing, and comes back for the rest later.
    pub(super) fn swept(&mut self, client: SocketAddr, now: MonoNs, keep: Duration) {
        let Some(lanes) = self.clients.get_mut(&client) else { return };
        lanes.retain(|lane| {
            !lane.attempts.is_empty()
                || !lane.entries.is_empty()
                || now.since(lane.touched) <= keep.min(SWEEP)
        });
        if lanes.is_empty() {
            self.clients.remove(&client);
        } else {
            self.due.push_back((now + SWEEP, client));
        }
    }

    /// All client ends, in order.
    pub(super) fn clients(&self) -> Vec<SocketAddr> {
        let mut clients: Vec<SocketAddr> = self.clients.keys().copied().collect();
        clients.sort();
        clients
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }
}
