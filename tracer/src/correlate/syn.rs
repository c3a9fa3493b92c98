//! SYNs: which attempt one belongs to, and what it found.

use std::time::Duration;

use super::attempt::{Attempt, Hop};
use super::entry::{Entry, Found, Maker, Sight, Unsure, expires};
use super::{Correlator, Seen};
use crate::model::{Isn, Lookup, NetnsId, PacketEvent};

/// SYNs of one ISN closer than this are the same one at several devices: the kernel sends it again after a
/// second at the earliest (`TCP_TIMEOUT_INIT`, RFC 6298).
pub(super) const RETRANSMISSION: Duration = Duration::from_millis(200);

impl Correlator {
    /// A SYN with the client-side entry.
    pub(super) fn client_syn(
        &mut self,
        now: Seen,
        packet: &PacketEvent,
        lookup: &Lookup,
        isn: Isn,
    ) {
        let netns = packet.netns;
        let lane = self.lanes.lane_or_new(lookup.orig, now.time);
        if lane.is_spent(isn) {
            self.count("SYNs of an attempt that was over");
            return;
        }
        let before = lane.entries.iter().find(|entry| entry.is_of(netns, lookup));
        let sight = Sight {
            now,
            netns,
            lookup,
            timers: &self.timers,
            renewal: self.renewal,
            slack: self.slack,
        };
        let known = lane.attempts.iter().rposition(|attempt| attempt.isn == isn);
        let (attempt, found) = match known.map(|index| &mut lane.attempts[index]) {
            None => {
                let found = sight.found(before);
                self.unported.first(now.time, lookup.orig, isn);
                self.translation.first_syn(lookup);
                let attempt = Attempt::new(lookup.orig, isn, now, found.clone());
                (lane.push_attempt(attempt), found)
            }
            Some(attempt) if !attempt.has_syn => {
                // Its answer came first in the trace: out of order, or this SYN is not its first.
                let late = now.time > attempt.first.time;
                let backend = Some(lookup.reply.src);
                let why = Unsure::FirstSynNotSeen;
                let found = if late { Found::Unsure { backend, why } } else { sight.found(before) };
                attempt.first = attempt.first.min(now);
                (attempt, found)
            }
            Some(attempt) => {
                let elsewhere = attempt.place.is_some_and(|(place, _)| place != netns);
                let again = now.time.since(attempt.last_syn.time) >= RETRANSMISSION;
                // A SYN that meets a TIME_WAIT socket of the pod is answered by an ACK, which the client answers by a
                // RST: that takes the entry, and the client sends its SYN again two ticks later, not after a second
                // (tcp_rcv_synsent_state_process, TCP_TIMEOUT_MIN).
                let afresh = before.is_some_and(|entry| entry.ended.is_some());
                let untranslated = matches!(attempt.found, Found::Untranslated);
                if elsewhere && !again && untranslated && lookup.is_translated() {
                    // The client's own namespace tracks connections too, before the node translates them.
                    self.translation.first_syn_again(lookup);
                    (attempt, sight.found(before))
                } else if (again || afresh) && !elsewhere {
                    return self.retransmission(now, netns, lookup, isn);
                } else {
                    attempt.hop(Hop { netns, ifindex: packet.ifindex, seen: now });
                    return;
                }
            }
        };
        attempt.has_syn = true;
        attempt.place = Some((netns, packet.ifindex));
        attempt.found = found.clone();
        self.note_entry(now, netns, lookup, isn, &found);
    }

    fn retransmission(&mut self, now: Seen, netns: NetnsId, lookup: &Lookup, isn: Isn) {
        let Some(lane) = self.lanes.lane(lookup.orig) else { return };
        let before = lane.entries.iter().find(|entry| entry.is_of(netns, lookup)).cloned();
        let Some(attempt) = lane.attempt(isn) else { return };
        let gap = now.time.since(attempt.last_syn.time);
        attempt.retransmitted(now);
        let sight = Sight {
            now,
            netns,
            lookup,
            timers: &self.timers,
            renewal: self.renewal,
            slack: self.slack,
        };
        let (Some(before), Some(expires)) = (before, sight.expires()) else { return };
        let backend = lookup.reply.src;
        let known = before.expires.filter(|known| now.time <= *known && before.ended.is_none());
        if let Some(known) = known
            && before.backend == backend
            && !before.replied
        {
            if sight.is_same_time(known, expires) {
                self.renewal.kept += 1;
            } else if sight.is_same_time(known + gap, expires) {
                // The same connect, the same backend, and its full life back: only renewing does that.
                self.renewal.renewed += 1;
                self.with_entry(netns, lookup, |entry| entry.expires = Some(expires));
            }
            return;
        }
        let found = sight.found(Some(&before));
        if matches!(found, Found::Fresh { .. }) {
            if backend != before.backend
                && let Some(attempt) =
                    self.lanes.lane(lookup.orig).and_then(|lane| lane.attempt(isn))
            {
                attempt.moved_to = Some((backend, now));
            }
            self.note_entry(now, netns, lookup, isn, &found);
        }
    }

    /// Keeps the lane's entry in step with what a SYN found.
    fn note_entry(&mut self, now: Seen, netns: NetnsId, lookup: &Lookup, isn: Isn, found: &Found) {
        if let Found::Fresh { backend } = found {
            self.pods.chosen(backend.ip(), now);
        }
        let Some(lane) = self.lanes.lane(lookup.orig) else { return };
        let at = lane.entries.iter().position(|entry| entry.is_of(netns, lookup));
        if let (Found::Older(older), Some(index)) = (found, at) {
            let entry = &mut lane.entries[index];
            if entry.backend == older.backend && entry.ended.is_none() && entry.made == older.made {
                entry.met += 1;
                if !older.replied {
                    entry.expires = older.expires.or(entry.expires);
                }
                return;
            }
        }
        if let (Found::Fresh { .. }, Some(index)) = (found, at) {
            self.translation.followed(&lane.entries[index], now.time);
        }
        let (made, maker, met) = match found {
            Found::Fresh { .. } | Found::Untranslated => {
                (Some(now.time), Some(Maker { isn, seen: now, request: None, symptom: None }), 0)
            }
            Found::Older(older) => (older.made, older.maker, 1),
            Found::Unsure { .. } | Found::NoEntry => (None, None, 0),
        };
        let replied = matches!(found, Found::Older(older) if older.replied);
        let entry = Entry {
            netns,
            zone: lookup.zone,
            orig: lookup.orig,
            backend: lookup.reply.src,
            made,
            maker,
            shown: now,
            expires: if replied { None } else { expires(now.time, lookup.life) },
            ended: None,
            replied,
            met,
        };
        match at {
            Some(index) => {
                let mut before = std::mem::replace(&mut lane.entries[index], entry);
                before.ended = before.ended.or(Some(now));
                self.archive(before);
            }
            None => lane.push_entry(entry),
        }
    }

    pub(super) fn with_entry(
        &mut self,
        netns: NetnsId,
        lookup: &Lookup,
        change: impl FnOnce(&mut Entry),
    ) {
        if let Some(lane) = self.lanes.lane(lookup.orig)
            && let Some(entry) = lane.entries.iter_mut().find(|entry| entry.is_of(netns, lookup))
        {
            change(entry);
        }
    }

    /// An entry's life is over: keeps it if its backend may have been gone before that.
    pub(super) fn archive(&mut self, entry: Entry) {
        let end = entry.end().unwrap_or(self.now).min(self.now);
        let stale = !entry.replied || entry.met > 0;
        if stale && self.pods.may_be_gone(entry.backend.ip(), end) {
            self.kept.entries.push(entry);
        }
    }
}
