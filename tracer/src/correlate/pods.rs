//! Which pod owned an address at a given moment, and since when it is gone. Told by events only.

use std::collections::HashMap;
use std::net::IpAddr;

use foldhash::fast::FixedState;

use crate::model::{MonoNs, PodChange, Seq};

/// A moment and the event that tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    /// When.
    pub time: MonoNs,
    /// The event.
    pub seq: Seq,
}

/// How it is known that a pod is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoneBy {
    /// Its object was deleted.
    Deleted,
    /// Its deletion was asked for and it answered nobody from then on: an argument from silence.
    Silence,
}

/// So long after its deletion an answer may still be told of: two sources, and clocks of two machines.
const AFTERMATH: std::time::Duration = std::time::Duration::from_secs(1);

/// One life of a pod at one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLife {
    /// Its name.
    pub name: String,
    /// Its app.
    pub app: String,
    /// Its node.
    pub node: String,
    /// Its address, once known.
    pub address: Option<IpAddr>,
    /// When it was first heard of with its address; none if it was there before.
    pub added: Option<Seen>,
    /// When its deletion was asked for.
    pub asked: Option<Seen>,
    /// The earliest time at which that can have been, where it is not known exactly.
    pub asked_from: Option<MonoNs>,
    /// When its object was deleted.
    pub deleted: Option<Seen>,
    /// Its last answer, a SYN-ACK or a RST, before it was deleted.
    pub last_answer: Option<Seen>,
    /// The last attempt that the rules sent to it afresh.
    pub last_fresh: Option<Seen>,
    /// How many connects its address accepted after its object was deleted, while nobody else was known to have the
    /// address; and the last of them.
    pub accepted_after: Option<(u64, Seen)>,
}

impl PodLife {
    /// Since when it is gone: deleted, or asked to go and silent from then on, whichever is earlier. A
    /// terminating pod that still answers anyone is not gone yet. Where it is known only between which times
    /// its deletion was asked for, it counts as gone from its last answer after the first of them: it answered
    /// nobody between that and the last of them.
    pub fn gone(&self) -> Option<MonoNs> {
        let silent = self
            .may_be_gone_from()
            .map(|from| self.last_answer.map_or(from, |answer| from.max(answer.time)));
        let deleted = self.deleted.map(|seen| seen.time);
        match (silent, deleted) {
            (Some(silent), Some(deleted)) => Some(silent.min(deleted)),
            (silent, deleted) => silent.or(deleted),
        }
    }

    /// Whether it was gone at `time`, and how that is known.
    pub fn gone_by(&self, time: MonoNs) -> Option<GoneBy> {
        if self.deleted.is_some_and(|deleted| deleted.time <= time) {
            Some(GoneBy::Deleted)
        } else if self.gone().is_some_and(|gone| gone <= time) {
            Some(GoneBy::Silence)
        } else {
            None
        }
    }

    /// The earliest time at which its deletion can have been asked for.
    fn may_be_gone_from(&self) -> Option<MonoNs> {
        let asked = self.asked?.time;
        Some(self.asked_from.map_or(asked, |from| from.min(asked)))
    }

    fn began(&self) -> MonoNs {
        self.added.map_or(MonoNs(0), |seen| seen.time)
    }
}

/// The pods, each life apart: an address is a history, not a name.
#[derive(Clone, Debug, Default)]
pub struct Pods {
    lives: Vec<PodLife>,
    /// The lives at an address, by their beginnings.
    by_address: HashMap<IpAddr, Vec<usize>, FixedState>,
    by_name: HashMap<String, usize, FixedState>,
}

impl Pods {
    /// All lives, in the order in which they were first heard of.
    pub fn lives(&self) -> &[PodLife] {
        &self.lives
    }

    /// The pod that had the address at `time`: the last that came to it until then, gone or not. Before the
    /// first one, that one: a trace learns of the pods that are there only after it began.
    pub fn owner(&self, address: IpAddr, time: MonoNs) -> Option<&PodLife> {
        self.owner_index(address, time).map(|index| &self.lives[index])
    }

    /// Every pod of the address's history that was there at `time` or, if none was, the last before it.
    /// More than one where pods share their node's address.
    pub fn owners(&self, address: IpAddr, time: MonoNs) -> Vec<&PodLife> {
        let known = self.by_address.get(&address).map_or(&[][..], Vec::as_slice);
        let there: Vec<&PodLife> = known
            .iter()
            .map(|&index| &self.lives[index])
            .filter(|life| life.began() <= time && life.gone_by(time).is_none())
            .collect();
        if there.is_empty() { self.owner(address, time).into_iter().collect() } else { there }
    }

    /// Whether the address's owner could be gone at `time`, by what is known so far.
    pub(super) fn may_be_gone(&self, address: IpAddr, time: MonoNs) -> bool {
        self.by_address.get(&address).is_some_and(|known| {
            known.iter().any(|&index| {
                let life = &self.lives[index];
                let deleted = life.deleted.map(|seen| seen.time);
                [life.may_be_gone_from(), deleted].iter().flatten().any(|from| *from <= time)
            })
        })
    }

    pub(super) fn apply(
        &mut self,
        now: Seen,
        pod: (&str, &str, &str),
        address: Option<IpAddr>,
        change: PodChange,
        since: MonoNs,
    ) {
        let (name, app, node) = pod;
        let known = self.by_name.get(name).copied().filter(|&index| {
            let life = &self.lives[index];
            let same = address.is_none() || life.address.is_none() || life.address == address;
            // A name that comes back after its deletion, or with another address, is another life.
            let over = life.deleted.is_some() && matches!(change, PodChange::Added);
            same && !over
        });
        let is_known = known.is_some();
        let index = known.unwrap_or_else(|| {
            self.lives.push(PodLife {
                name: name.to_owned(),
                app: app.to_owned(),
                node: node.to_owned(),
                address: None,
                added: None,
                asked: None,
                asked_from: None,
                deleted: None,
                last_answer: None,
                last_fresh: None,
                accepted_after: None,
            });
            self.by_name.insert(name.to_owned(), self.lives.len() - 1);
            self.lives.len() - 1
        });
        let life = &mut self.lives[index];
        if life.address.is_none()
            && let Some(address) = address
        {
            life.address = Some(address);
            // A pod that was heard of before gets its address now; one that was not may have had it long.
            if is_known || matches!(change, PodChange::Added) {
                life.added = Some(now);
            }
            let began = life.began();
            let known = self.by_address.entry(address).or_default();
            let at = known.partition_point(|&index| self.lives[index].began() <= began);
            known.insert(at, index);
        }
        let life = &mut self.lives[index];
        match change {
            PodChange::Asked { .. } => {
                life.asked = earliest(life.asked, now);
                life.asked_from = Some(life.asked_from.map_or(since, |from| from.min(since)));
            }
            PodChange::Deleted => life.deleted = earliest(life.deleted, now),
            // As if its deletion had been asked for then: it counts as gone while it answers nobody. An answer
            // after that moves the time on, so a claim that was wrong undoes itself.
            PodChange::Silent { since } => {
                life.asked = earliest(life.asked, Seen { time: since, seq: now.seq });
            }
            PodChange::Added | PodChange::Ready | PodChange::NotReady => {}
        }
    }

    /// The owner of the address sent a SYN-ACK or a RST. Answers after its deletion are not its own.
    pub(super) fn answered(&mut self, address: IpAddr, now: Seen) {
        if let Some(index) = self.owner_index(address, now.time) {
            let life = &mut self.lives[index];
            if life.deleted.is_none_or(|deleted| now.time < deleted.time) {
                life.last_answer = latest(life.last_answer, now);
            }
        }
    }

    /// The owner of the address sent a SYN-ACK. If it is deleted, one of the two is not so: what was told of it, or that
    /// nobody else has its address.
    pub(super) fn accepted(&mut self, address: IpAddr, now: Seen) {
        self.answered(address, now);
        if let Some(index) = self.owner_index(address, now.time) {
            let life = &mut self.lives[index];
            if life.deleted.is_some_and(|deleted| now.time.since(deleted.time) > AFTERMATH) {
                let (count, _) = life.accepted_after.unwrap_or((0, now));
                life.accepted_after = Some((count + 1, now));
            }
        }
    }

    /// The rules chose the address for a new entry.
    pub(super) fn chosen(&mut self, address: IpAddr, now: Seen) {
        if let Some(index) = self.owner_index(address, now.time) {
            let life = &mut self.lives[index];
            life.last_fresh = latest(life.last_fresh, now);
        }
    }

    fn owner_index(&self, address: IpAddr, time: MonoNs) -> Option<usize> {
        let known = self.by_address.get(&address)?;
        // From the latest on: an address can have had many lives, and the question is nearly always of now.
        let latest = known.iter().rev().find(|&&index| self.lives[index].began() <= time);
        latest.or(known.first()).copied()
    }
}

fn earliest(known: Option<Seen>, now: Seen) -> Option<Seen> {
    Some(known.map_or(now, |known| known.min(now)))
}

fn latest(known: Option<Seen>, now: Seen) -> Option<Seen> {
    Some(known.map_or(now, |known| known.max(now)))
}
