//! What is known of one packet, in one line: where it was seen, whose it is and what became of that, the entry
//! that it carries, the pod.

use std::collections::HashMap;
use std::time::Duration;

use crate::correlate::{self, Attempt, Failure, Found, Made, SYN_SENT, Timeline, Timers};
use crate::model::{
    CtInfo, CtState, CtStatus, EntryLife, Hook, Lookup, MonoNs, NetnsId, PacketEvent, RequestId,
    Segment, Seq, TraceHeader,
};
use crate::verdict::{Finding, Verdict};

/// Says what is known of packets. Memory: what the timeline keeps, once more as places in the trace.
pub(super) struct Remarks<'a> {
    header: &'a TraceHeader,
    timeline: &'a Timeline,
    about: HashMap<Seq, Vec<About<'a>>>,
    timers: Timers,
    slack: Duration,
}

/// What a packet has to do with an attempt that the timeline keeps.
#[derive(Clone, Copy)]
enum About<'a> {
    /// It belongs to a failed request.
    Failed(&'a Failure, &'a Finding),
    /// It belongs to an attempt that met an older entry and did not make a request fail.
    Met(&'a Attempt),
    /// It made the entry that this attempt met later.
    Made(&'a Attempt),
}

impl<'a> Remarks<'a> {
    pub(super) fn new(
        header: &'a TraceHeader,
        timeline: &'a Timeline,
        verdict: &'a Verdict,
    ) -> Remarks<'a> {
        let mut about: HashMap<Seq, Vec<About<'a>>> = HashMap::new();
        let mut note = |attempt: &'a Attempt, what: About<'a>| {
            for seen in attempt.seqs() {
                about.entry(seen.seq).or_default().push(what);
            }
            if let Found::Older(older) = &attempt.found
                && let Some(maker) = older.maker
            {
                about.entry(maker.seen.seq).or_default().push(About::Made(attempt));
            }
        };
        for (failure, finding) in timeline.failures.iter().zip(&verdict.findings) {
            if let Some(attempt) = &failure.attempt {
                note(attempt, About::Failed(failure, finding));
            }
        }
        for meeting in &timeline.meetings {
            note(&meeting.attempt, About::Met(&meeting.attempt));
        }
        let (timers, slack) = (Timers::new(header), correlate::slack(header));
        Remarks { header, timeline, about, timers, slack }
    }

    /// A sysctl was changed.
    pub(super) fn sysctl(&mut self, netns: NetnsId, at: MonoNs, name: &str, value: &str) {
        if name == SYN_SENT {
            self.timers.set(netns, at, value);
        }
    }

    /// The line of a packet.
    pub(super) fn of(&self, seq: Seq, time: MonoNs, packet: &PacketEvent) -> String {
        let about = self.about.get(&seq).map_or(&[][..], Vec::as_slice);
        let mut parts: Vec<String> = about.iter().map(About::text).collect();
        parts.extend(self.pod(time, packet, about));
        match &packet.lookup {
            Some(lookup) => parts.push(self.entry(time, packet, lookup, about)),
            // A socket's RST comes without its packet, and so without what that carries.
            None if packet.hook == Hook::TcpReceiveReset => {}
            None => parts.push("no conntrack entry".to_owned()),
        }
        parts.push(format!("{seq} at {}", self.hook(packet)));
        parts.join("; ")
    }

    fn hook(&self, packet: &PacketEvent) -> String {
        let hook = packet.hook.name();
        match packet.hook {
            Hook::KfreeSkb => {
                format!("{hook}: dropped, {}", self.header.drop_reason(packet.drop))
            }
            Hook::TcpSendReset => format!("{hook}: this kernel answers it with a RST"),
            Hook::TcpReceiveReset => {
                format!("{hook}: a socket received a RST, whose numbers were not recorded")
            }
            _ => hook.to_owned(),
        }
    }

    fn pod(&self, time: MonoNs, packet: &PacketEvent, about: &[About<'_>]) -> Option<String> {
        let backend = packet.lookup.as_ref().map(|lookup| lookup.reply.src);
        // The finding knows whom the entry was made for, also where another pod has the address by now.
        let found = about.iter().find_map(|about| match about {
            About::Failed(_, finding) if finding.backend == backend => finding.pod.as_deref(),
            _ => None,
        });
        let ends = [backend, Some(packet.tuple.dst), Some(packet.tuple.src)];
        let mut addresses = ends.into_iter().flatten().map(|end| end.ip());
        let pods = &self.timeline.pods;
        let owner = addresses.find_map(|address| {
            let owners = pods.lives().iter().filter(|life| life.address == Some(address));
            let named = found.and_then(|name| owners.clone().find(|life| life.name == name));
            named.or(pods.owner(address, time))
        })?;
        let gone = owner.gone().filter(|gone| *gone <= time);
        Some(match gone {
            Some(gone) => format!("pod {}, gone for {}", owner.name, seconds(time.since(gone))),
            None => format!("pod {}", owner.name),
        })
    }

    fn entry(
        &self,
        time: MonoNs,
        packet: &PacketEvent,
        lookup: &Lookup,
        about: &[About<'_>],
    ) -> String {
        let mut text = format!("entry {}, reply {}", lookup.orig, lookup.reply);
        if lookup.zone != 0 {
            text.push_str(&format!(", zone {}", lookup.zone));
        }
        match lookup.state {
            Some(CtState::Other(number)) => text.push_str(&format!(", state {number}")),
            Some(state) => text.push_str(&format!(", {}", state.name())),
            None => text.push_str(", state unread"),
        }
        text.push_str(if is_replied(lookup) { ", replied" } else { ", unreplied" });
        match lookup.life {
            EntryLife::Unconfirmed(_) => text.push_str(", not yet in the table"),
            EntryLife::Remaining(left) => text.push_str(&format!(", {} left", seconds(left))),
            EntryLife::Expired => text.push_str(", expired"),
            EntryLife::Unknown => text.push_str(", time left unread"),
        }
        if let Some(age) = self.age(time, packet, lookup, about) {
            text.push_str(&format!(", {} old", seconds(age)));
        }
        text
    }

    /// How old the entry is, where that is known: from the attempt that made it, or else from its remaining life
    /// and the timer.
    fn age(
        &self,
        time: MonoNs,
        packet: &PacketEvent,
        lookup: &Lookup,
        about: &[About<'_>],
    ) -> Option<Duration> {
        let met = about.iter().filter_map(About::attempt).find_map(|attempt| {
            let Found::Older(older) = &attempt.found else { return None };
            let moved = attempt.moved_to.is_some_and(|(_, moved)| moved.time <= time);
            let same = older.backend == lookup.reply.src && attempt.orig == lookup.orig && !moved;
            older.made.filter(|_| same)
        });
        if let Some(made) = met {
            return Some(time.since(made));
        }
        let is_syn = matches!(packet.segment, Segment::Tcp { flags, .. } if flags.is_syn());
        let EntryLife::Remaining(left) = lookup.life else { return None };
        // A kernel that renews entries says nothing of their age by what they have left.
        let renews = self.timeline.renewal.renews() == Some(true);
        if !is_syn || is_replied(lookup) || renews {
            return None;
        }
        match self.timers.made(packet.netns, time, left, self.slack) {
            Made::At(made) => Some(time.since(made)),
            Made::Ambiguous | Made::Unknown => None,
        }
    }
}

impl<'a> About<'a> {
    /// The attempt that the packet is of.
    fn attempt(&self) -> Option<&'a Attempt> {
        match self {
            About::Failed(failure, _) => failure.attempt.as_ref(),
            About::Met(attempt) => Some(attempt),
            About::Made(_) => None,
        }
    }

    fn text(&self) -> String {
        match self {
            About::Failed(failure, finding) => format!(
                "request {}: {} ({}), because of {}",
                failure.ended.id.0,
                failure.symptom,
                if finding.late { "late" } else { "early" },
                finding.cause
            ),
            About::Met(attempt) => {
                format!("{}: met an older entry and did not fail", whose(attempt.request))
            }
            About::Made(attempt) => {
                format!("makes the entry that {} meets later", whose(attempt.request))
            }
        }
    }
}

fn whose(request: Option<RequestId>) -> String {
    request.map_or_else(|| "a connect".to_owned(), |request| format!("request {}", request.0))
}

/// conntrack sets the status bit only after the reply has passed; ESTABLISHED means that it had.
fn is_replied(lookup: &Lookup) -> bool {
    lookup.status.has(CtStatus::SEEN_REPLY) || lookup.ctinfo.0 == CtInfo::ESTABLISHED
}

fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}
