//! What conntrack does with the connects to a Service here: the suspect needs entries that translate, and that stay.

use crate::model::{Lookup, MonoNs};

use super::entry::Entry;

/// Counts of connects, by their first SYN on the client's node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// Whose entry leads to another address than they asked for.
    pub translated: u64,
    /// Of these, whose entry leads back to the client itself: to a proxy beside it.
    pub redirected: u64,
    /// Whose entry leads where they asked.
    pub untranslated: u64,
    /// Unanswered entries that were followed on their port: by then they had expired, or not.
    pub unanswered: u64,
    /// Of these, the ones that were gone before they had expired.
    pub vanished: u64,
}

impl Translation {
    /// A connect's first SYN carries this entry.
    pub(super) fn first_syn(&mut self, lookup: &Lookup) {
        if !lookup.is_translated() {
            self.untranslated += 1;
            return;
        }
        self.translated += 1;
        let to = lookup.reply.src.ip();
        self.redirected += u64::from(to.is_loopback() || to == lookup.orig.src.ip());
    }

    /// The same SYN carries another entry, that of the node: the first was that of the client's own namespace.
    pub(super) fn first_syn_again(&mut self, lookup: &Lookup) {
        self.untranslated = self.untranslated.saturating_sub(1);
        self.first_syn(lookup);
    }

    /// A SYN made an entry of its own, where there was this one before.
    pub(super) fn followed(&mut self, before: &Entry, now: MonoNs) {
        if before.replied || before.ended.is_some() {
            return;
        }
        self.unanswered += 1;
        self.vanished += u64::from(before.expires.is_some_and(|expires| now < expires));
    }
}
