//! The conntrack entries that a node must have had.

use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use foldhash::fast::FixedState;

use super::{Summary, status};
use crate::model::{CtInfo, CtState, EntryLife, Lookup, MonoNs, TcpFlags, Tuple};

/// How exactly the end of an entry's time is known: ticks are 1 to 10 ms, and a packet takes a while from the
/// table to where it is captured.
const SLACK: Duration = Duration::from_millis(20);
/// `nf_conntrack_tcp_timeout_close`: how long an entry outlives a RST of the server.
const CLOSE: Duration = Duration::from_secs(10);

/// Which side of an entry a tuple is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// From the client, before NAT.
    Original,
    /// From the client, after NAT.
    OriginalTranslated,
    /// From the backend, before NAT is undone.
    Reply,
    /// From the backend, with the address that the client asked.
    ReplyTranslated,
}

/// An entry.
#[derive(Clone, Debug)]
struct Entry {
    reply: Tuple,
    made: MonoNs,
    /// Whether that is when it was made, or only when it was first seen.
    certain: bool,
    /// The ISN of the last SYN on it.
    isn: u32,
    /// When that was.
    last_syn: MonoNs,
    /// The last that was seen of it.
    touched: MonoNs,
    replied: bool,
    /// FINs, from the client and from the backend.
    fins: (bool, bool),
    reset: Option<Reset>,
}

/// A RST on an entry.
#[derive(Clone, Copy, Debug)]
struct Reset {
    time: MonoNs,
    /// Whether the entry stays, closed, for [`CLOSE`]: only then does a SYN still meet it.
    stays: bool,
}

/// What a connect's first SYN found.
enum Found {
    Fresh,
    Unreplied,
    Replied(CtState),
    Unsure,
}

/// All entries that can still be met.
#[derive(Debug)]
pub(super) struct Entries {
    timer: Duration,
    assumed: bool,
    /// The least age at which an entry was shown to be gone before its time.
    shortest: Option<Duration>,
    by_orig: HashMap<Tuple, Entry, FixedState>,
    /// Reply tuples, to the original ones.
    by_reply: HashMap<Tuple, Tuple, FixedState>,
    /// When to look at an entry to forget it; each is here once.
    due: VecDeque<(MonoNs, Tuple)>,
    pub(super) summary: Summary,
}

impl Entries {
    pub(super) fn new(timer: Duration, assumed: bool) -> Entries {
        Entries {
            timer,
            assumed,
            shortest: None,
            by_orig: HashMap::default(),
            by_reply: HashMap::default(),
            due: VecDeque::new(),
            summary: Summary::default(),
        }
    }

    /// A SYN left the node, translated: the entry that it carried. `blind`: an entry without an answer may have
    /// been made to its backend where nothing was captured.
    pub(super) fn syn(
        &mut self,
        now: MonoNs,
        isn: u32,
        (orig, reply): (Tuple, Tuple),
        blind: bool,
    ) -> Lookup {
        self.summary.translated += 1;
        let timer = self.timer;
        let Slot::Occupied(mut known) = self.by_orig.entry(orig) else {
            self.due.push_back((now + timer + SLACK, orig));
            return self.first(now, isn, (orig, reply), blind);
        };
        let entry = known.get_mut();
        if entry.isn == isn {
            // Sent again: on the same entry, or on a new one if that is over.
            let over = entry.reset.is_some()
                || entry.reply != reply
                || (!entry.replied && entry.certain && now >= entry.made + timer);
            if over {
                return self.make(now, isn, (orig, reply), true);
            }
            entry.last_syn = now;
            entry.touched = now;
            return self.lookup(orig, now);
        }
        match self.found(now, orig, reply) {
            Found::Fresh => self.first(now, isn, (orig, reply), blind),
            Found::Unsure => self.first(now, isn, (orig, reply), true),
            Found::Unreplied => {
                self.summary.met_unreplied += 1;
                self.meet(now, isn, orig);
                self.lookup(orig, now)
            }
            Found::Replied(state) => {
                self.summary.met_replied += 1;
                let mut lookup = self.lookup(orig, now);
                self.meet(now, isn, orig);
                lookup.state = Some(state);
                lookup
            }
        }
    }

    /// What the first SYN of another connect found, by where it went.
    fn found(&mut self, now: MonoNs, orig: Tuple, reply: Tuple) -> Found {
        let Some(entry) = self.by_orig.get(&orig) else { return Found::Fresh };
        let same = entry.reply == reply;
        if let Some(reset) = entry.reset {
            // A RST removes an entry without a reply, and one of the client lets the next SYN make its own.
            // Without FINs in the capture there may have been one before the RST, which lets it too.
            return match reset.stays && now.since(reset.time) < CLOSE {
                true if self.summary.fins == 0 && same => Found::Unsure,
                true if self.summary.fins == 0 => Found::Fresh,
                true if same => Found::Replied(CtState::Close),
                true => self.was_gone(None),
                false => Found::Fresh,
            };
        }
        if entry.replied {
            let state = match entry.fins {
                // TIME_WAIT: a SYN takes its place (`tcp_conntracks`: sIV, then the lookup is repeated).
                (true, true) => return Found::Fresh,
                (true, false) => CtState::FinWait,
                (false, true) => CtState::CloseWait,
                // A port comes round only after its socket is gone. Without FINs in the capture, that was by
                // FINs; a RST would have been seen.
                (false, false) if self.summary.fins == 0 => return Found::Fresh,
                (false, false) => CtState::Established,
            };
            return if same { Found::Replied(state) } else { self.was_gone(None) };
        }
        let age = now.since(entry.made);
        if !entry.certain && age >= self.timer && same {
            return Found::Unsure;
        }
        if age + SLACK < self.timer {
            return match (same, self.shortest) {
                (true, Some(shortest)) if self.assumed && age >= shortest => Found::Unsure,
                (true, _) => Found::Unreplied,
                (false, _) => self.was_gone(Some(age)),
            };
        }
        if age <= self.timer + SLACK {
            return if same { Found::Unsure } else { Found::Fresh };
        }
        // Its time is over, unless this kernel renews an entry on each SYN.
        if now.since(entry.last_syn) < self.timer && entry.last_syn > entry.made {
            if !same {
                self.summary.after_other += 1;
            } else {
                self.summary.after_same += 1;
                if self.summary.after_other == 0 {
                    return Found::Unsure;
                }
            }
        }
        Found::Fresh
    }

    /// A SYN went elsewhere, though the entry should have been there.
    fn was_gone(&mut self, age: Option<Duration>) -> Found {
        self.summary.ended_early += 1;
        if let Some(age) = age {
            self.shortest = Some(self.shortest.map_or(age, |shortest| shortest.min(age)));
        }
        Found::Fresh
    }

    /// The first SYN on an entry that is its own, or that nobody knows.
    fn first(&mut self, now: MonoNs, isn: u32, ends: (Tuple, Tuple), unsure: bool) -> Lookup {
        let counter = if unsure { &mut self.summary.unsure } else { &mut self.summary.fresh };
        *counter += 1;
        self.make(now, isn, ends, !unsure)
    }

    fn make(
        &mut self,
        now: MonoNs,
        isn: u32,
        (orig, reply): (Tuple, Tuple),
        certain: bool,
    ) -> Lookup {
        let entry = Entry {
            reply,
            made: now,
            certain,
            isn,
            last_syn: now,
            touched: now,
            replied: false,
            fins: (false, false),
            reset: None,
        };
        if let Some(before) = self.by_orig.insert(orig, entry)
            && before.reply != reply
            && self.by_reply.get(&before.reply) == Some(&orig)
        {
            self.by_reply.remove(&before.reply);
        }
        self.by_reply.insert(reply, orig);
        self.lookup(orig, now)
    }

    fn meet(&mut self, now: MonoNs, isn: u32, orig: Tuple) {
        if let Some(entry) = self.by_orig.get_mut(&orig) {
            entry.isn = isn;
            entry.last_syn = now;
            entry.touched = now;
        }
    }

    /// The entry with this tuple on one of its sides, and which: its original tuple.
    pub(super) fn find(&self, tuple: Tuple) -> Option<(Side, Tuple)> {
        let back = tuple.reversed();
        if let Some(orig) = self.by_reply.get(&tuple) {
            return Some((Side::Reply, *orig));
        }
        if self.by_orig.contains_key(&back) {
            return Some((Side::ReplyTranslated, back));
        }
        if let Some(orig) = self.by_reply.get(&back) {
            return Some((Side::OriginalTranslated, *orig));
        }
        self.by_orig.contains_key(&tuple).then_some((Side::Original, tuple))
    }

    /// The backend of the entry with this original tuple.
    pub(super) fn backend(&self, orig: Tuple) -> SocketAddr {
        self.by_orig.get(&orig).map_or(orig.dst, |entry| entry.reply.src)
    }

    /// A segment that is no SYN, on an entry that was found. The lookup is that from before it.
    pub(super) fn segment(
        &mut self,
        now: MonoNs,
        orig: Tuple,
        from_backend: bool,
        flags: TcpFlags,
        ack: u32,
    ) -> Lookup {
        let fin = flags.0 & TcpFlags::FIN != 0;
        self.summary.fins += u64::from(fin);
        if let Some(entry) = self.by_orig.get_mut(&orig) {
            entry.touched = now;
            if flags.is_syn_ack() && from_backend && ack.wrapping_sub(1) == entry.isn {
                entry.replied = true;
                entry.reset = None;
                // A connect that was accepted on an entry which was left over.
                entry.fins = (false, false);
            }
            if fin {
                if from_backend { entry.fins.1 = true } else { entry.fins.0 = true }
            }
            if flags.is_rst() {
                let stays = entry.replied && from_backend && entry.fins == (false, false);
                entry.reset.get_or_insert(Reset { time: now, stays });
            }
        }
        let mut lookup = self.lookup(orig, now);
        if from_backend {
            lookup.ctinfo = CtInfo(CtInfo::ESTABLISHED + CtInfo::IS_REPLY);
        }
        lookup
    }

    /// The entry with this original tuple as a packet of the client carries it now.
    pub(super) fn lookup(&self, orig: Tuple, now: MonoNs) -> Lookup {
        let entry = self.by_orig.get(&orig);
        let reply = entry.map_or(orig.reversed(), |entry| entry.reply);
        let replied = entry.is_some_and(|entry| entry.replied);
        let life = match entry {
            Some(entry) if !replied && entry.certain => {
                match (entry.made + self.timer).since(now) {
                    Duration::ZERO => EntryLife::Expired,
                    left => EntryLife::Remaining(left),
                }
            }
            _ => EntryLife::Unknown,
        };
        Lookup {
            orig,
            reply,
            zone: 0,
            status: status(orig, reply, replied),
            ctinfo: CtInfo(if replied { CtInfo::ESTABLISHED } else { CtInfo::NEW }),
            state: (!replied).then_some(CtState::SynSent),
            life,
        }
    }

    /// Forgets what no SYN can meet any more.
    pub(super) fn forget(&mut self, now: MonoNs) {
        while let Some((due, orig)) = self.due.front().copied() {
            if due > now {
                return;
            }
            self.due.pop_front();
            let Some(entry) = self.by_orig.get(&orig) else { continue };
            // Until then it tells, by where a SYN goes, whether this kernel renews entries.
            let until = entry.touched.max(entry.last_syn) + self.timer + SLACK;
            if until > now {
                self.due.push_back((until.max(now + Duration::from_secs(1)), orig));
                continue;
            }
            if let Some(entry) = self.by_orig.remove(&orig)
                && self.by_reply.get(&entry.reply) == Some(&orig)
            {
                self.by_reply.remove(&entry.reply);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_orig.len() + self.by_reply.len() + self.due.len()
    }
}
