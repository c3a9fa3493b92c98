//! Conntrack entries as SYNs show them: who made one, whether two SYNs met the same, how old it was.

use std::net::SocketAddr;
use std::time::Duration;

use super::pods::Seen;
use super::timers::{Made, Timers};
use crate::model::{
    CtInfo, CtState, CtStatus, EntryLife, Isn, Lookup, MonoNs, NetnsId, RequestId, Symptom, Tuple,
};

/// The attempt that made an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maker {
    /// Its initial sequence number.
    pub isn: Isn,
    /// Its first SYN.
    pub seen: Seen,
    /// Its request, if one is known.
    pub request: Option<RequestId>,
    /// How that request failed, if it did.
    pub symptom: Option<Symptom>,
}

/// An entry, as far as its SYNs tell. One that saw a reply is known only until its connection is up: what
/// becomes of it then, neither SYN nor RST tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The namespace whose table holds it.
    pub netns: NetnsId,
    /// Its zone.
    pub zone: u16,
    /// Its original tuple.
    pub orig: Tuple,
    /// Where it points.
    pub backend: SocketAddr,
    /// When it was made.
    pub made: Option<MonoNs>,
    /// By whom; none if that was before the trace began.
    pub maker: Option<Maker>,
    /// The event that showed it first.
    pub shown: Seen,
    /// When it expires, while unreplied.
    pub expires: Option<MonoNs>,
    /// When it was removed before its time: by a RST, or because another one is in its place.
    pub ended: Option<Seen>,
    /// Whether an answer to a SYN of it was seen.
    pub replied: bool,
    /// How many later attempts met it.
    pub met: u64,
}

impl Entry {
    /// The end of its life, as far as known.
    pub fn end(&self) -> Option<MonoNs> {
        match (self.ended, self.expires) {
            (Some(ended), Some(expires)) => Some(ended.time.min(expires)),
            (ended, expires) => ended.map(|seen| seen.time).or(expires),
        }
    }

    pub(super) fn is_of(&self, netns: NetnsId, lookup: &Lookup) -> bool {
        self.netns == netns && self.zone == lookup.zone
    }
}

/// What an attempt's first SYN found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// An entry of its own: the rules chose this backend for it.
    Fresh {
        /// The choice.
        backend: SocketAddr,
    },
    /// An entry that was there before.
    Older(Older),
    /// An entry of its own, but no rule translated it.
    Untranslated,
    /// No entry: conntrack did not take it.
    NoEntry,
    /// It can't be told whether the entry was its own.
    Unsure {
        /// Where the entry points.
        backend: Option<SocketAddr>,
        /// Why.
        why: Unsure,
    },
}

impl Found {
    /// Where the first SYN went.
    pub fn backend(&self) -> Option<SocketAddr> {
        match self {
            Found::Fresh { backend } => Some(*backend),
            Found::Older(older) => Some(older.backend),
            Found::Unsure { backend, .. } => *backend,
            Found::Untranslated | Found::NoEntry => None,
        }
    }
}

/// An entry that was older than the attempt that met it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Older {
    /// Where it points.
    pub backend: SocketAddr,
    /// When it was made, if known.
    pub made: Option<MonoNs>,
    /// By whom, if known.
    pub maker: Option<Maker>,
    /// The TCP tracker's state.
    pub state: Option<CtState>,
    /// Whether it had seen a reply.
    pub replied: bool,
    /// When it expires, while unreplied.
    pub expires: Option<MonoNs>,
    /// How it is known that it is older.
    pub by: OlderBy,
}

/// How it is known that an entry is older than the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OlderBy {
    /// It expires when the entry of an earlier attempt on this tuple does: it is the same.
    SameEntry,
    /// The kernel renews entries, and an earlier attempt on this tuple had made one to the same backend
    /// that had not expired.
    Renewed,
    /// Its remaining life and the timer then in force say so; its maker was not seen.
    Age,
    /// It had seen a reply before the attempt's first SYN.
    Replied,
}

/// Why it can't be told whether an entry was the attempt's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsure {
    /// Its first SYN was not seen.
    FirstSynNotSeen,
    /// The entry's remaining life could not be read.
    NoLife,
    /// The timer in force when it was made is not known, or more than one fits.
    NoTimer,
    /// It could be the earlier entry, renewed, or a new one to the same backend, and this kernel has not
    /// shown yet which of the two it does.
    Renewal,
    /// Made so shortly before that the clock can't tell.
    TooClose,
    /// The request has no source port, and attempts that found different things fit it.
    WhichAttempt,
    /// What the packet says of the entry contradicts what was seen of it before.
    Contradiction,
}

impl Unsure {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Unsure::FirstSynNotSeen => "its first SYN was not seen",
            Unsure::NoLife => "the entry's remaining life could not be read",
            Unsure::NoTimer => {
                "the timer in force when the entry was made is not known for certain"
            }
            Unsure::Renewal => {
                "the entry could be an earlier one that this kernel renews, or a new one to the same pod"
            }
            Unsure::TooClose => {
                "the entry was made too shortly before to be told from one of its own"
            }
            Unsure::WhichAttempt => {
                "its source port is not known, and several attempts fit it that found different things"
            }
            Unsure::Contradiction => "what is known of the entry contradicts itself",
        }
    }
}

/// Whether this kernel restarts the timer of an unreplied entry at each SYN (before Linux 5.14 and its
/// backports) or lets it run out. Observed from retransmissions, never from a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Renewal {
    /// Retransmissions that found the timer restarted.
    pub renewed: u64,
    /// Retransmissions that found it running on.
    pub kept: u64,
}

impl Renewal {
    /// What this kernel does; none while it has not shown it, or has shown both.
    pub fn renews(&self) -> Option<bool> {
        match (self.renewed, self.kept) {
            (0, 0) => None,
            (_, 0) => Some(true),
            (0, _) => Some(false),
            _ => None,
        }
    }
}

/// When an entry expires whose life was read at `now`.
pub(super) fn expires(now: MonoNs, life: EntryLife) -> Option<MonoNs> {
    match life {
        EntryLife::Unconfirmed(life) | EntryLife::Remaining(life) => Some(now + life),
        EntryLife::Expired => Some(now),
        EntryLife::Unknown => None,
    }
}

/// What deciding needs to know besides the packet.
pub(super) struct Sight<'a> {
    pub(super) now: Seen,
    pub(super) netns: NetnsId,
    pub(super) lookup: &'a Lookup,
    pub(super) timers: &'a Timers,
    pub(super) renewal: Renewal,
    /// How exactly a remaining life is known: `nf_conn.timeout` counts ticks.
    pub(super) slack: Duration,
}

impl Sight<'_> {
    /// Whether the entry had seen a reply. `ctinfo` NEW means that it had not.
    fn is_replied(&self) -> bool {
        self.lookup.status.has(CtStatus::SEEN_REPLY) || self.lookup.ctinfo.0 == CtInfo::ESTABLISHED
    }

    /// When the entry expires, by this packet.
    pub(super) fn expires(&self) -> Option<MonoNs> {
        expires(self.now.time, self.lookup.life)
    }

    pub(super) fn is_same_time(&self, a: MonoNs, b: MonoNs) -> bool {
        a.since(b) <= self.slack && b.since(a) <= self.slack
    }

    /// What a SYN with a new ISN found, given the entry that was known before.
    pub(super) fn found(&self, before: Option<&Entry>) -> Found {
        let backend = self.lookup.reply.src;
        if !self.lookup.is_translated() {
            return Found::Untranslated;
        }
        let before = before.filter(|entry| entry.ended.is_none() && entry.backend == backend);
        if self.is_replied() {
            return self.older(before, None, OlderBy::Replied);
        }
        let remaining = match self.lookup.life {
            EntryLife::Unconfirmed(_) => return Found::Fresh { backend },
            EntryLife::Remaining(remaining) => remaining,
            EntryLife::Expired | EntryLife::Unknown => {
                return Found::Unsure { backend: Some(backend), why: Unsure::NoLife };
            }
        };
        let expires = self.now.time + remaining;
        if let Some(entry) = before
            && let Some(known) = entry.expires
            && self.now.time <= known + self.slack
        {
            if self.is_same_time(known, expires) || self.is_same_age(entry, expires) {
                return self.same(entry);
            }
            if known < expires && !entry.replied && self.looks_new(remaining) {
                // Full of life again: the earlier entry renewed, or another one to the same backend.
                return match self.renewal.renews() {
                    Some(true) => self.older(Some(entry), Some(expires), OlderBy::Renewed),
                    Some(false) => Found::Fresh { backend },
                    None => Found::Unsure { backend: Some(backend), why: Unsure::Renewal },
                };
            }
        }
        match self.timers.made(self.netns, self.now.time, remaining, self.slack) {
            Made::At(made) if self.now.time.since(made) <= self.slack => Found::Fresh { backend },
            Made::At(made) => Found::Older(Older {
                backend,
                made: Some(made),
                maker: None,
                state: self.lookup.state,
                replied: false,
                expires: Some(expires),
                by: OlderBy::Age,
            }),
            Made::Ambiguous | Made::Unknown => {
                Found::Unsure { backend: Some(backend), why: Unsure::NoTimer }
            }
        }
    }

    /// Whether it differs from the known entry by less than a stalled clock tick explains, long after that
    /// was made. To be another one, it would have to be made in the same moment by a SYN that was not seen.
    fn is_same_age(&self, entry: &Entry, expires: MonoNs) -> bool {
        let known = entry.expires.unwrap_or(expires);
        let apart = known.since(expires).max(expires.since(known));
        let old =
            entry.made.is_some_and(|made| self.now.time.since(made) >= Duration::from_secs(1));
        old && apart <= Duration::from_millis(250)
    }

    fn looks_new(&self, remaining: Duration) -> bool {
        match self.timers.made(self.netns, self.now.time, remaining, self.slack) {
            Made::At(made) => self.now.time.since(made) <= self.slack,
            Made::Ambiguous | Made::Unknown => true,
        }
    }

    /// It expires when the known entry does.
    fn same(&self, entry: &Entry) -> Found {
        let unsure = |why| Found::Unsure { backend: Some(entry.backend), why };
        if entry.replied {
            // An answer was seen on it, but the kernel says that it had none.
            return unsure(Unsure::Contradiction);
        }
        match entry.made {
            Some(made) if self.now.time.since(made) <= self.slack => unsure(Unsure::TooClose),
            _ => self.older(Some(entry), entry.expires, OlderBy::SameEntry),
        }
    }

    fn older(&self, entry: Option<&Entry>, expires: Option<MonoNs>, by: OlderBy) -> Found {
        let by = match (entry.and_then(|entry| entry.maker), by) {
            (None, OlderBy::SameEntry | OlderBy::Renewed) => OlderBy::Age,
            (_, by) => by,
        };
        Found::Older(Older {
            backend: self.lookup.reply.src,
            made: entry.and_then(|entry| entry.made),
            maker: entry.and_then(|entry| entry.maker),
            state: self.lookup.state,
            replied: self.is_replied(),
            expires,
            by,
        })
    }
}
