//! Packets other than the client-side SYN: hops, answers, resets, ICMP errors, drops.

use std::net::SocketAddr;

use super::attempt::{Answer, Attempt, Dropped, Hop, Icmp, Reset};
use super::entry::{Found, Unsure};
use super::{Correlator, Seen};
use crate::model::{Direction, Hook, Isn, Lookup, PacketEvent, Segment, TcpFlags, Tuple};

impl Correlator {
    pub(super) fn packet(&mut self, now: Seen, packet: &PacketEvent) {
        let client_side =
            packet.lookup.as_ref().filter(|lookup| self.is_client_side(packet.netns, lookup));
        match packet.segment {
            Segment::IcmpError { kind, code, from } => {
                self.icmp(packet, client_side, Icmp { seen: now, from, kind, code });
            }
            Segment::Tcp { flags, seq, ack } => match packet.hook {
                Hook::KfreeSkb => self.drop(now, packet, client_side, flags, seq, ack),
                Hook::TcpSendReset => self.sent_reset(now, packet, flags, seq),
                Hook::TcpReceiveReset => self.received_reset(now, packet.tuple),
                Hook::NetDevStartXmit | Hook::InetSockSetState | Hook::Capture => {
                    if flags.is_syn() {
                        match client_side {
                            Some(lookup) => self.client_syn(now, packet, lookup, Isn(seq)),
                            None => self.syn_hop(now, packet, Isn(seq)),
                        }
                    } else if flags.is_syn_ack() {
                        self.answer(now, packet, client_side, Isn(ack.wrapping_sub(1)));
                    } else if flags.is_rst() {
                        self.reset(now, packet, client_side, Isn(ack.wrapping_sub(1)));
                    }
                }
            },
        }
    }

    /// A SYN elsewhere than in the client's node: behind NAT, or in a namespace without an entry of ours.
    fn syn_hop(&mut self, now: Seen, packet: &PacketEvent, isn: Isn) {
        match self.attempt_of(packet.tuple.src, isn) {
            Some(attempt) => {
                attempt.hop(Hop { netns: packet.netns, ifindex: packet.ifindex, seen: now });
            }
            None => self.count("SYNs of no known attempt"),
        }
    }

    fn answer(&mut self, now: Seen, packet: &PacketEvent, lookup: Option<&Lookup>, isn: Isn) {
        let from = lookup.map_or(packet.tuple.src, |lookup| lookup.reply.src);
        self.pods.accepted(from.ip(), now);
        let Some(lookup) = lookup else {
            match self.attempt_of(packet.tuple.dst, isn) {
                Some(attempt) => {
                    attempt.answer.get_or_insert(Answer {
                        seen: now,
                        from,
                        at_client: false,
                        translated: false,
                    });
                }
                None => self.count("answers of no known attempt"),
            }
            return;
        };
        let translated = packet.tuple.src == lookup.orig.dst;
        let answer = Answer { seen: now, from, at_client: true, translated };
        let lane = self.lanes.lane_or_new(lookup.orig, now.time);
        if lane.is_spent(isn) {
            self.count("answers to an attempt that was over");
            return;
        }
        match lane.attempt(isn) {
            Some(attempt) => {
                if attempt.answer.is_none_or(|known| !known.at_client) {
                    attempt.answer = Some(answer);
                }
            }
            None => {
                let found = Found::Unsure { backend: Some(from), why: Unsure::FirstSynNotSeen };
                let mut attempt = Attempt::new(lookup.orig, isn, now, found);
                attempt.has_syn = false;
                attempt.syns = 0;
                attempt.answer = Some(answer);
                lane.push_attempt(attempt);
                self.count("attempts known by their answer only");
            }
        }
        self.with_entry(packet.netns, lookup, |entry| {
            if entry.backend == from {
                entry.replied = true;
                entry.expires = None;
            }
        });
    }

    /// A RST that is sent.
    fn reset(&mut self, now: Seen, packet: &PacketEvent, lookup: Option<&Lookup>, isn: Isn) {
        let from_client = packet.lookup.is_some_and(|it| it.direction() == Direction::Original);
        if !from_client {
            let from = lookup.map_or(packet.tuple.src, |lookup| lookup.reply.src);
            self.pods.answered(from.ip(), now);
        }
        let Some(lookup) = lookup else {
            if !from_client && let Some(attempt) = self.attempt_of(packet.tuple.dst, isn) {
                attempt.reset.get_or_insert(Reset { seen: now, of_syn: true });
            }
            return;
        };
        // conntrack removes an unreplied entry at a RST, in either direction (`nf_ct_kill_acct` in
        // `nf_conntrack_tcp_packet`).
        self.with_entry(packet.netns, lookup, |entry| {
            if entry.backend == lookup.reply.src && !entry.replied {
                entry.ended = entry.ended.or(Some(now));
            }
        });
        if from_client {
            return;
        }
        if let Some(lane) = self.lanes.lane(lookup.orig) {
            let known = lane.attempts.iter().any(|attempt| attempt.isn == isn);
            let latest = if known { lane.attempt(isn) } else { lane.attempts.last_mut() };
            if let Some(attempt) = latest {
                attempt.reset.get_or_insert(Reset { seen: now, of_syn: known });
            }
        }
    }

    /// A kernel of this machine answers a segment with a RST; the tuple is the segment's.
    fn sent_reset(&mut self, now: Seen, packet: &PacketEvent, flags: TcpFlags, seq: u32) {
        self.pods.answered(packet.tuple.dst.ip(), now);
        let syn = flags.is_syn();
        if let Some(attempt) = self.attempt_to(packet.tuple, syn.then_some(Isn(seq))) {
            attempt.reset.get_or_insert(Reset { seen: now, of_syn: syn });
        }
    }

    /// The client's socket gets a RST: it came through the client's node, and through its entry.
    fn received_reset(&mut self, now: Seen, tuple: Tuple) {
        let Some(lane) = self.lanes.lane(tuple) else { return };
        for entry in lane.entries.iter_mut().filter(|entry| !entry.replied) {
            entry.ended = entry.ended.or(Some(now));
        }
        if let Some(attempt) = lane.attempts.last_mut() {
            let of_syn = !attempt.is_accepted();
            attempt.reset.get_or_insert(Reset { seen: now, of_syn });
        }
    }

    fn icmp(&mut self, packet: &PacketEvent, lookup: Option<&Lookup>, icmp: Icmp) {
        let attempt = match lookup {
            Some(lookup) => self.lanes.lane(lookup.orig).and_then(|lane| lane.attempts.last_mut()),
            None => self.attempt_to(packet.tuple, None),
        };
        match attempt {
            Some(attempt) => {
                attempt.icmp.get_or_insert(icmp);
            }
            None => self.count("ICMP errors of no known attempt"),
        }
    }

    fn drop(
        &mut self,
        now: Seen,
        packet: &PacketEvent,
        lookup: Option<&Lookup>,
        flags: TcpFlags,
        seq: u32,
        ack: u32,
    ) {
        let is_answer = flags.is_syn_ack();
        if !flags.is_syn() && !is_answer {
            self.count("drops of other segments");
            return;
        }
        let dropped = Dropped {
            seen: now,
            netns: packet.netns,
            reason: packet.drop,
            is_answer,
            has_entry: packet.lookup.is_some(),
        };
        let (client, isn) = if is_answer {
            (packet.tuple.dst, Isn(ack.wrapping_sub(1)))
        } else {
            (packet.tuple.src, Isn(seq))
        };
        if let Some(attempt) = self.attempt_of(client, isn) {
            attempt.dropped(dropped);
            return;
        }
        let orig = lookup.map_or(packet.tuple, |lookup| lookup.orig);
        let to_service = self.is_service(orig.dst) || lookup.is_some();
        if is_answer || !to_service {
            self.count("drops of no known attempt");
            return;
        }
        // It was dropped before a device of the node sent it.
        let lane = self.lanes.lane_or_new(orig, now.time);
        if lane.is_spent(isn) {
            return;
        }
        let found = match lookup {
            None => Found::NoEntry,
            Some(lookup) if !lookup.is_translated() => Found::Untranslated,
            Some(lookup) => {
                Found::Unsure { backend: Some(lookup.reply.src), why: Unsure::FirstSynNotSeen }
            }
        };
        let mut attempt = Attempt::new(orig, isn, now, found);
        attempt.dropped(dropped);
        lane.push_attempt(attempt);
    }

    /// The open attempt of a client's end with this ISN.
    fn attempt_of(&mut self, client: SocketAddr, isn: Isn) -> Option<&mut Attempt> {
        self.lanes.of_client(client).iter_mut().find_map(|lane| lane.attempt(isn))
    }

    /// The open attempt whose SYN carries this tuple, before or after NAT: with this ISN, or the latest.
    fn attempt_to(&mut self, tuple: Tuple, isn: Option<Isn>) -> Option<&mut Attempt> {
        self.lanes.of_client(tuple.src).iter_mut().find_map(|lane| {
            lane.attempts.iter_mut().rev().find(|attempt| {
                let there = attempt.orig == tuple || attempt.backend() == Some(tuple.dst);
                there && isn.is_none_or(|isn| attempt.isn == isn)
            })
        })
    }
}
