//! What a capture does not say: the conntrack entries behind its packets. From the packets in their order to the
//! events that the tracer would have recorded, had it been there.
//!
//! A SYN that passes a node is captured before and after NAT, with the same initial sequence number and the same
//! TCP timestamp value, within moments; whatever else changed between the two is what NAT chose. An entry that an
//! unanswered SYN made lives as long as the SYN_SENT timer, so a later SYN of another connect on the same tuple
//! met it, if it went to the same backend in that time. One that went elsewhere shows that the entry was gone.
//!
//! All of it is inference, so every packet's event has [`Hook::Capture`], and what had to be assumed is said in
//! sentences for the header.
//!
//! Memory is bounded by what is open within the timer.

mod entries;
mod holes;
mod places;
mod silence;
mod table;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

pub use table::TableSilence;

use entries::{Entries, Side};
use holes::Holes;
use places::{Places, Translated};
use silence::Backends;

use crate::model::{
    Captured, ClockAnchor, CtInfo, CtStatus, Event, EventKind, Hook, HookStatus, Lookup,
    LossSource, MonoNs, NetnsId, PacketEvent, Segment, Sysctl, TraceHeader, Tuple, WallNs,
};

/// Linux's default of `nf_conntrack_tcp_timeout_syn_sent` (`tcp_timeouts` in
/// net/netfilter/nf_conntrack_proto_tcp.c); kube-proxy leaves it alone.
pub const SYN_SENT_DEFAULT: Duration = Duration::from_secs(120);

/// The sysctl of that timer.
const SYN_SENT: &str = "net.netfilter.nf_conntrack_tcp_timeout_syn_sent";

/// A packet is on its way through the node for at most this long; events are held back as long, and come out in
/// order.
pub const HOLD: Duration = Duration::from_millis(50);

/// What is known besides the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The namespace that the capture was made in, by whatever number it goes in this trace.
    pub netns: NetnsId,
    /// How the capture's clock relates to the events' clock.
    pub anchor: ClockAnchor,
    /// The SYN_SENT timer, where something tells it.
    pub syn_sent: Option<Duration>,
    /// Whether to say which backends fell silent: right where nothing tells of pods.
    pub silence: bool,
}

impl Settings {
    /// Adds to a header what these settings make of a capture: its place, the timer, and what was assumed.
    pub fn describe(&self, header: &mut TraceHeader) {
        header.hooks.push(HookStatus {
            hook: Hook::Capture,
            attached: true,
            note: Some(
                "conntrack entries are inferred from the packets before and after NAT".to_owned(),
            ),
        });
        let known = header.sysctl(self.netns, SYN_SENT).is_some();
        if !known {
            header.sysctls.push(Sysctl {
                netns: self.netns,
                name: SYN_SENT.to_owned(),
                value: self.timer().as_secs().to_string(),
            });
        }
        if self.syn_sent.is_none() {
            header.notes.push(format!(
                "the node's {SYN_SENT} is not known: Linux's default of {} s is assumed",
                SYN_SENT_DEFAULT.as_secs()
            ));
        }
    }

    fn timer(&self) -> Duration {
        self.syn_sent.unwrap_or(SYN_SENT_DEFAULT)
    }

    /// The capture's time on the events' clock; what lies before that clock's zero is at its zero.
    fn time(&self, wall: WallNs) -> MonoNs {
        let apart = i128::from(wall.0) - i128::from(self.anchor.wall.0);
        let time = (i128::from(self.anchor.mono.0) + apart).max(0);
        MonoNs(u64::try_from(time).unwrap_or(u64::MAX))
    }
}

/// What was found, and what could not be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// SYNs that were seen before and after NAT, retransmissions included.
    pub translated: u64,
    /// SYNs that were seen on one side of NAT only, or that no NAT applied to.
    pub untranslated: u64,
    /// First SYNs of connects whose entry was made by them.
    pub fresh: u64,
    /// First SYNs that met an entry without a reply.
    pub met_unreplied: u64,
    /// First SYNs that met an entry that had seen a reply.
    pub met_replied: u64,
    /// First SYNs of which it can't be told: most often they are the first to a backend that has not answered
    /// anybody since the capture began.
    pub unsure: u64,
    /// Entries that a later SYN showed to be gone before their time: deleted, pushed out of a full table, or ended
    /// by something that was not captured; or the timer is shorter than assumed.
    pub ended_early: u64,
    /// SYNs behind an entry's time, within the timer of a later SYN on it, that went to its backend again.
    pub after_same: u64,
    /// The same, that went elsewhere: each shows that this kernel does not renew entries.
    pub after_other: u64,
    /// FINs.
    pub fins: u64,
}

/// Infers events from a capture's packets.
#[derive(Debug)]
pub struct Inference {
    settings: Settings,
    /// The latest time of a packet.
    now: MonoNs,
    /// Damage whose end has not been seen: where it begins.
    damage: Option<MonoNs>,
    /// The last word of dropped packets.
    dropped: Option<MonoNs>,
    holes: Holes,
    places: Places,
    entries: Entries,
    backends: Backends,
    out: VecDeque<Event>,
    done: bool,
}

impl Inference {
    /// For a capture from its beginning.
    pub fn new(settings: Settings) -> Inference {
        Inference {
            settings,
            now: MonoNs(0),
            damage: None,
            dropped: None,
            holes: Holes::default(),
            places: Places::default(),
            entries: Entries::new(settings.timer(), settings.syn_sent.is_none()),
            backends: Backends::default(),
            out: VecDeque::new(),
            done: false,
        }
    }

    /// Takes the next packet.
    pub fn apply(&mut self, packet: &Captured) {
        let time = self.settings.time(packet.time);
        self.now = self.now.max(time);
        self.dropped.get_or_insert(time);
        self.holes.packet(self.now);
        self.damage_ends();
        self.expire(Some(self.now - HOLD));
        match packet.segment {
            Segment::Tcp { flags, .. } if flags.is_syn() => self.syn(time, packet),
            Segment::Tcp { .. } => self.other(time, packet),
            Segment::IcmpError { .. } => self.icmp(time, packet),
        }
        self.entries.forget(self.now);
        if self.settings.silence {
            for event in self.backends.silent(self.now) {
                put(&mut self.out, event);
            }
        }
    }

    /// The capture has damage here, or ends within a packet: nobody knows how much is missing.
    pub fn damaged(&mut self) {
        self.damage.get_or_insert(self.now);
    }

    /// The maker of the capture says that it dropped this many packets since its last such word.
    pub fn dropped(&mut self, count: u64) {
        let since = self.dropped.replace(self.now).unwrap_or(self.now);
        self.lost(count, since);
    }

    fn damage_ends(&mut self) {
        if let Some(since) = self.damage.take() {
            self.lost(1, since);
        }
    }

    fn lost(&mut self, count: u64, since: MonoNs) {
        self.holes.ends(self.now);
        let kind = EventKind::Lost { source: LossSource::Capture, count, since };
        put(&mut self.out, Event { time: self.now, kind });
    }

    /// There are no more packets.
    pub fn finish(&mut self) {
        self.damage_ends();
        self.expire(None);
        self.done = true;
    }

    /// What was found so far.
    pub fn summary(&self) -> &Summary {
        &self.entries.summary
    }

    /// What a reader must know of the inference, a sentence each; known at its end.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.entries.summary.notes(self.settings.syn_sent.is_none());
        notes.extend(self.holes.note());
        notes
    }

    /// How many connects and packets it holds something of.
    #[cfg(test)]
    fn open(&self) -> usize {
        self.entries.len() + self.places.len() + self.out.len()
    }

    /// A SYN. Seen once, it waits for its other side; seen on both, it tells what NAT chose.
    fn syn(&mut self, time: MonoNs, packet: &Captured) {
        let Some(Translated { before, after }) = self.places.sighted(time, packet) else {
            return;
        };
        let Segment::Tcp { seq, .. } = after.segment else { return };
        let (orig, reply) = (before.tuple, after.tuple.reversed());
        let time = self.settings.time(after.time);
        let backend = reply.src.ip();
        if reply.src != orig.dst {
            self.backends.asked(backend, time);
        }
        // Who has answered since the capture's last hole has no entry without an answer from before it.
        let hole = self.holes.last().filter(|end| time.since(*end) < self.settings.timer());
        let blind = hole.is_some_and(|end| !self.backends.has_answered(backend, end));
        let lookup = self.entries.syn(time, seq, (orig, reply), blind);
        self.emit(time, &after, Some(lookup));
    }

    /// An answer, a reset or an end of a connection.
    fn other(&mut self, time: MonoNs, packet: &Captured) {
        let Segment::Tcp { flags, ack, .. } = packet.segment else { return };
        let Some((side, orig)) = self.entries.find(packet.tuple) else {
            if flags.is_syn_ack() {
                self.backends.answered(packet.tuple.src.ip(), time);
            }
            if flags.is_syn_ack() || flags.is_rst() {
                self.places.sighted(time, packet);
            }
            return;
        };
        let from_backend = matches!(side, Side::Reply | Side::ReplyTranslated);
        if from_backend && (flags.is_syn_ack() || flags.is_rst()) {
            self.backends.answered(self.entries.backend(orig).ip(), time);
        }
        let lookup = self.entries.segment(time, orig, from_backend, flags, ack);
        if !flags.is_syn_ack() && !flags.is_rst() {
            return;
        }
        // Recorded where it leaves the node, as the hook would; before that it only waits.
        self.places.sighted(time, packet);
        if matches!(side, Side::ReplyTranslated | Side::OriginalTranslated)
            && self.places.settle(packet)
        {
            self.emit(time, packet, Some(lookup));
        }
    }

    fn icmp(&mut self, time: MonoNs, packet: &Captured) {
        self.places.sighted(time, packet);
        if let Some((_, orig)) = self.entries.find(packet.tuple)
            && self.places.settle(packet)
        {
            let mut lookup = self.entries.lookup(orig, time);
            lookup.ctinfo = CtInfo(CtInfo::RELATED + CtInfo::IS_REPLY);
            self.emit(time, packet, Some(lookup));
        }
    }

    /// Gives up waiting for the other side of what was seen until then, and lets events go.
    fn expire(&mut self, until: Option<MonoNs>) {
        while let Some((time, packet)) = self.places.over(until) {
            if matches!(packet.segment, Segment::Tcp { flags, .. } if flags.is_syn()) {
                self.entries.summary.untranslated += 1;
            }
            self.emit(time, &packet, None);
        }
    }

    fn emit(&mut self, time: MonoNs, packet: &Captured, lookup: Option<Lookup>) {
        let packet = PacketEvent {
            hook: Hook::Capture,
            netns: self.settings.netns,
            ifindex: packet.ifindex,
            tuple: packet.tuple,
            segment: packet.segment,
            lookup,
            drop: None,
        };
        put(&mut self.out, Event { time, kind: EventKind::Packet(packet) });
    }
}

/// The events in order of their time, each as soon as nothing earlier can come any more.
impl Iterator for Inference {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let ready = self.out.front().is_some_and(|event| self.done || event.time + HOLD < self.now);
        if ready { self.out.pop_front() } else { None }
    }
}

/// Puts an event at its place: nearly always the end.
fn put(out: &mut VecDeque<Event>, event: Event) {
    let mut at = out.len();
    while at > 0 && out[at - 1].time > event.time {
        at -= 1;
    }
    if at == out.len() { out.push_back(event) } else { out.insert(at, event) }
}

impl Summary {
    fn notes(&self, timer_assumed: bool) -> Vec<String> {
        let mut notes = Vec::new();
        if self.translated == 0 && self.untranslated > 0 {
            notes.push(
                "no SYN was captured both before and after NAT: capture on the client's node, on \
                 all its interfaces (tcpdump -i any)"
                    .to_owned(),
            );
        }
        if self.fins == 0 && self.translated > 0 {
            notes.push(
                "the capture has no FIN: a connection that was answered and not reset is taken as \
                 closed by both ends once its port comes round"
                    .to_owned(),
            );
        }
        if self.ended_early > 0 {
            let timer = if timer_assumed { ", or the timer is shorter than assumed" } else { "" };
            let count = self.ended_early;
            notes.push(format!("{count} entries were gone before their time: deleted{timer}"));
        }
        if self.after_other > 0 {
            let count = self.after_other;
            notes.push(format!(
                "this kernel does not renew an entry on each SYN: {count} SYNs within what a renewed \
                 entry would have lived went elsewhere"
            ));
        }
        if self.unsure > 0 {
            let count = self.unsure;
            notes.push(format!("of {count} SYNs it can't be told whether they met an older entry"));
        }
        notes
    }
}

/// The status bits of an entry with these tuples, which is in the table.
fn status(orig: Tuple, reply: Tuple, replied: bool) -> CtStatus {
    let bit = |set: bool, bit: u32| if set { bit } else { 0 };
    CtStatus(
        CtStatus::CONFIRMED
            | bit(replied, CtStatus::SEEN_REPLY)
            | bit(reply.src != orig.dst, CtStatus::DST_NAT)
            | bit(reply.dst != orig.src, CtStatus::SRC_NAT),
    )
}
