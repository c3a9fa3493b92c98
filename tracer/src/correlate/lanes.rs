//! What is open, by the client's end: attempts that may still get packets, entries that may still be met.

use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::time::Duration;

use foldhash::fast::FixedState;

use super::SETTLE;
use super::attempt::Attempt;
use super::entry::{Entry, Maker};
use crate::model::{Isn, MonoNs, Tuple};

/// How soon after it was touched a client's end is looked at, to forget what can no longer matter.
const SWEEP: Duration = Duration::from_secs(5);
/// ISNs of settled attempts that a lane remembers, so that a late retransmission makes no new attempt.
const SPENT: usize = 4;

/// All lanes. Bounded by the client ends that were active within an entry's lifetime.
#[derive(Clone, Debug, Default)]
pub(super) struct Lanes {
    clients: HashMap<End, Client, FixedState>,
    /// In which second to look at which client's ends; only what an end's `look` says too counts.
    due: BTreeMap<Second, Vec<SocketAddr>>,
}

/// A second of the clock: looking is not more exact than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Second(u64);

impl Second {
    const NEVER: Second = Second(u64::MAX);

    /// The one that has come at `time`.
    fn at(time: MonoNs) -> Second {
        Second(time.0 / 1_000_000_000)
    }

    /// The first that begins at `time` or after it.
    fn from(time: MonoNs) -> Second {
        Second(time.0.div_ceil(1_000_000_000))
    }
}

/// A client's end as a key: hashed as one number instead of field by field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End(SocketAddr);

impl Hash for End {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.0 {
            SocketAddr::V4(end) => {
                state.write_u64(u64::from(end.ip().to_bits()) << 16 | u64::from(end.port()));
            }
            SocketAddr::V6(end) => {
                state.write_u128(end.ip().to_bits());
                state.write_u16(end.port());
            }
        }
    }
}

/// A client's end: nearly always one lane.
#[derive(Clone, Debug)]
struct Client {
    lanes: Vec<Lane>,
    /// When it is looked at next.
    look: Second,
}

/// One original tuple: a client's end and a Service.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub(super) orig: Tuple,
    pub(super) attempts: Vec<Attempt>,
    pub(super) entries: Vec<Entry>,
    pub(super) touched: MonoNs,
    spent: Spent,
}

/// The last few ISNs of a lane.
#[derive(Clone, Debug, Default)]
struct Spent {
    isns: [Option<Isn>; SPENT],
    next: usize,
}

impl Lane {
    pub(super) fn new(orig: Tuple, now: MonoNs) -> Lane {
        Lane {
            orig,
            attempts: Vec::new(),
            entries: Vec::new(),
            touched: now,
            spent: Spent::default(),
        }
    }

    pub(super) fn attempt(&mut self, isn: Isn) -> Option<&mut Attempt> {
        self.attempts.iter_mut().rev().find(|attempt| attempt.isn == isn)
    }

    /// Adds an attempt, nearly always the only one: `Vec`'s own first step is room for four.
    pub(super) fn push_attempt(&mut self, attempt: Attempt) -> &mut Attempt {
        if self.attempts.is_empty() {
            self.attempts.reserve_exact(1);
        }
        self.attempts.push_mut(attempt)
    }

    /// Adds an entry, nearly always the only one.
    pub(super) fn push_entry(&mut self, entry: Entry) {
        if self.entries.is_empty() {
            self.entries.reserve_exact(1);
        }
        self.entries.push(entry);
    }

    pub(super) fn is_spent(&self, isn: Isn) -> bool {
        self.spent.isns.contains(&Some(isn))
    }

    /// Takes a settled attempt out.
    pub(super) fn take(&mut self, index: usize) -> Attempt {
        let attempt = self.attempts.remove(index);
        if self.attempts.is_empty() {
            // Lanes wait much longer than their attempts: what waits should be small.
            self.attempts = Vec::new();
        }
        self.spent.isns[self.spent.next] = Some(attempt.isn);
        self.spent.next = (self.spent.next + 1) % SPENT;
        attempt
    }

    /// When something of it can be forgotten at the earliest, if it is not touched until then.
    fn over(&self, keep: Duration) -> MonoNs {
        if !self.attempts.is_empty() {
            return self.touched;
        }
        let over = |entry: &Entry| entry.end().map_or(self.touched + keep, |end| end + SETTLE);
        self.entries.iter().map(over).min().unwrap_or(self.touched)
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
        self.of_client(orig.src).iter_mut().find(|lane| lane.orig == orig)
    }

    pub(super) fn lane_or_new(&mut self, orig: Tuple, now: MonoNs) -> &mut Lane {
        let soon = Second::from(now + SWEEP);
        let client = self
            .clients
            .entry(End(orig.src))
            .or_insert_with(|| Client { lanes: Vec::with_capacity(1), look: Second::NEVER });
        if client.look > soon {
            client.look = soon;
            self.due.entry(soon).or_default().push(orig.src);
        }
        let lanes = &mut client.lanes;
        let index = lanes.iter().position(|lane| lane.orig == orig).unwrap_or_else(|| {
            lanes.push(Lane::new(orig, now));
            lanes.len() - 1
        });
        lanes[index].touched = lanes[index].touched.max(now);
        &mut lanes[index]
    }

    /// Every lane of a client's end.
    pub(super) fn of_client(&mut self, client: SocketAddr) -> &mut [Lane] {
        self.clients.get_mut(&End(client)).map_or(&mut [], |client| client.lanes.as_mut_slice())
    }

    /// The next client end that is due to be looked at.
    pub(super) fn due(&mut self, now: MonoNs) -> Option<SocketAddr> {
        while let Some(mut first) = self.due.first_entry()
            && *first.key() <= Second::at(now)
        {
            match first.get_mut().pop() {
                Some(client) => {
                    let look = self.clients.get(&End(client)).map(|client| client.look);
                    if look == Some(*first.key()) {
                        return Some(client);
                    }
                }
                None => {
                    first.remove();
                }
            }
        }
        None
    }

    /// Forgets the client's lanes that hold nothing, and comes back for the rest when their time is over.
    pub(super) fn swept(&mut self, client: SocketAddr, now: MonoNs, keep: Duration) {
        let Some(known) = self.clients.get_mut(&End(client)) else { return };
        known.lanes.retain(|lane| {
            !lane.attempts.is_empty()
                || !lane.entries.is_empty()
                || now.since(lane.touched) <= keep.min(SWEEP)
        });
        match known.lanes.iter().map(|lane| lane.over(keep)).min() {
            Some(over) => {
                known.look = Second::from(over.max(now + SWEEP));
                self.due.entry(known.look).or_default().push(client);
            }
            None => {
                self.clients.remove(&End(client));
            }
        }
    }

    /// All client ends, in order.
    pub(super) fn clients(&self) -> Vec<SocketAddr> {
        let mut clients: Vec<SocketAddr> = self.clients.keys().map(|end| end.0).collect();
        clients.sort();
        clients
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }
}
