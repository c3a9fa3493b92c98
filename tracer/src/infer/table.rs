//! A conntrack log without anything that tells of pods: which backends fell silent.

use super::silence::Backends;
use crate::model::{ConntrackEvent, CtState, EntryChange, Event, MonoNs};

/// Says of backends, by the table's changes, that they answer nobody any more. An entry in SYN_SENT asked its
/// backend, one in SYN_RECV was answered.
#[derive(Debug, Default)]
pub struct TableSilence(Backends);

impl TableSilence {
    /// Takes the next change; what follows from it, if anything.
    pub fn apply(&mut self, now: MonoNs, change: &ConntrackEvent) -> Vec<Event> {
        let backend = change.reply.src;
        let asked = change.change == EntryChange::New && change.unreplied;
        if asked && backend != change.orig.dst {
            self.0.asked(backend.ip(), now);
        }
        // With time left it was a RST that removed it (`nf_conntrack_netlink` tells the seconds of an entry that
        // is taken out before they are over, since Linux 5.12).
        let refused = change.change == EntryChange::Destroyed
            && change.unreplied
            && change.remaining.is_some_and(|left| !left.is_zero());
        let accepted =
            change.change == EntryChange::Updated && change.state == Some(CtState::SynRecv);
        if accepted || refused {
            self.0.answered(backend.ip(), now);
        }
        self.0.silent(now)
    }

    /// What follows from nothing more having happened until now.
    pub fn at(&mut self, now: MonoNs) -> Vec<Event> {
        self.0.silent(now)
    }
}
