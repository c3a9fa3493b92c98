//! Entries as the table's own log tells of them: that they were there, and not who met them.

use super::entry::Entry;
use super::{Correlator, Seen};
use crate::model::{ConntrackEvent, CtState, EntryChange};

impl Correlator {
    pub(super) fn table_changed(&mut self, now: Seen, change: &ConntrackEvent) {
        self.count("changes of the conntrack table");
        self.answered_by_table(now, change);
        let backend = change.reply.src;
        let services = &self.places.services;
        let is_ours =
            backend != change.orig.dst && (services.is_empty() || self.is_service(change.orig.dst));
        if !is_ours {
            return;
        }
        if change.change == EntryChange::New {
            let entry = Entry {
                netns: change.netns,
                zone: change.zone,
                orig: change.orig,
                backend,
                made: Some(now.time),
                maker: None,
                shown: now,
                expires: change.remaining.filter(|_| change.unreplied).map(|left| now.time + left),
                ended: None,
                replied: !change.unreplied,
                met: 0,
            };
            let lane = self.lanes.lane_or_new(change.orig, now.time);
            let of = |known: &&mut Entry| known.netns == entry.netns && known.zone == entry.zone;
            match lane.entries.iter_mut().find(of) {
                Some(known) => {
                    let mut before = std::mem::replace(known, entry);
                    before.ended = before.ended.or(Some(now));
                    self.archive(before);
                }
                None => lane.push_entry(entry),
            }
            return;
        }
        let Some(lane) = self.lanes.lane(change.orig) else { return };
        for entry in &mut lane.entries {
            if entry.netns != change.netns || entry.zone != change.zone {
                continue;
            }
            match change.change {
                EntryChange::Updated if !change.unreplied => {
                    entry.replied = true;
                    entry.expires = None;
                }
                EntryChange::Destroyed | EntryChange::Deleted => {
                    entry.ended = entry.ended.or(Some(now));
                }
                EntryChange::Updated | EntryChange::New => {}
            }
        }
    }

    /// An entry that has its first reply, or that a RST removed before its time, shows that its backend answers.
    fn answered_by_table(&mut self, now: Seen, change: &ConntrackEvent) {
        let first_reply =
            change.change == EntryChange::Updated && change.state == Some(CtState::SynRecv);
        let removed = change.change == EntryChange::Destroyed
            && change.unreplied
            && self.lanes.lane(change.orig).is_some_and(|lane| {
                lane.entries.iter().any(|entry| entry.expires.is_some_and(|end| now.time < end))
            });
        if first_reply || removed {
            self.pods.answered(change.reply.src.ip(), now);
        }
    }
}
