//! The cause of one failed request: what its packets, the pods and the losses say together.

use std::net::SocketAddr;
use std::time::Duration;

use crate::correlate::{
    Attempt, Failure, Found, GoneBy, Older, OlderBy, PodLife, Timeline, Unsure,
};
use crate::model::{Hook, MonoNs, Netns, NetnsId, NetnsRole, Outcome, Seq, Symptom, TraceHeader};

use super::gone::{Gone, gone, heir};
use super::{Cause, lost_in_words};

/// What is said of one failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Why it failed.
    pub cause: Cause,
    /// Whether it started late.
    pub late: bool,
    /// Why this cause, in words.
    pub why: String,
    /// What its evidence lacks, a clause each; nothing if it is whole.
    pub missing: Vec<String>,
    /// Whether it speaks against the reused source port: a connect timeout on a fresh entry to a live pod
    /// with nothing seen that explains it.
    pub is_falsifier: bool,
    /// Whether its first SYN met a live stale entry.
    pub met_stale: bool,
    /// The backend of its first SYN.
    pub backend: Option<SocketAddr>,
    /// The pod at that address, then.
    pub pod: Option<String>,
    /// How old the entry was; zero for a fresh one.
    pub entry_age: Option<Duration>,
    /// Since when its backend had been gone when it started.
    pub since_gone: Option<Duration>,
    /// The events behind it.
    pub evidence: Vec<Seq>,
}

/// What judging looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bench<'a> {
    pub(super) header: &'a TraceHeader,
    pub(super) timeline: &'a Timeline,
}

/// A cause with its reason.
pub(super) struct Why {
    pub(super) cause: Cause,
    pub(super) why: String,
    pub(super) missing: Vec<String>,
    pub(super) is_falsifier: bool,
}

impl Why {
    pub(super) fn new(cause: Cause, why: impl Into<String>) -> Why {
        Why { cause, why: why.into(), missing: Vec::new(), is_falsifier: false }
    }
}

/// A rule of the packet filter dropped it (include/net/dropreason-core.h).
const NETFILTER_DROP: &str = "NETFILTER_DROP";

impl<'a> Bench<'a> {
    /// Judges one failed request.
    pub(super) fn judge(&self, failure: &Failure, late: bool) -> Finding {
        let attempt = failure.attempt.as_ref();
        // A request on a connection that was there sent no SYN, so it met nothing.
        let is_connect = failure.ended.reuse.is_connect();
        let connect = attempt.filter(|_| is_connect);
        let met = connect.and_then(|attempt| self.met_stale(attempt));
        let why = match attempt {
            _ if self.has_no_name(failure) => self.no_name(failure),
            _ if failure.symptom == Symptom::Local => Why::new(Cause::LocalError, local(failure)),
            None => Why::new(Cause::Unseen, self.why_unseen(failure)),
            Some(attempt) if !is_connect => self.kept(failure, attempt),
            Some(attempt) => {
                let why = self.judge_attempt(failure, attempt, met.as_ref());
                self.unless_slow_name(failure, why)
            }
        };
        let first = attempt.map(|attempt| attempt.first.time);
        let backend = attempt.and_then(|attempt| attempt.found.backend());
        let owner = backend.zip(first).and_then(|(backend, first)| {
            let pod = met.as_ref().map(|(gone, _)| gone.pod);
            pod.or(self.timeline.pods.owner(backend.ip(), first))
        });
        let since_gone = owner
            .and_then(PodLife::gone)
            .filter(|gone| *gone <= failure.start)
            .map(|gone| failure.start.since(gone));
        let mut evidence: Vec<Seq> = failure.started.iter().map(|seen| seen.seq).collect();
        let maker = met.as_ref().and_then(|(_, older)| older.maker);
        evidence.extend(maker.map(|maker| maker.seen.seq));
        if let (Some(pod), Some(first)) = (owner, first) {
            let told = [pod.asked, pod.deleted].into_iter().flatten();
            if !is_connect {
                let told = told.filter(|seen| seen.time <= failure.end.time);
                evidence.extend(told.map(|seen| seen.seq));
            } else if pod.gone_by(first).is_some() {
                evidence.extend(told.map(|seen| seen.seq));
            }
        }
        if !is_connect {
            evidence.extend(attempt.and_then(|it| self.end_of(failure, it)).map(|seen| seen.seq));
        }
        evidence.extend(attempt.iter().flat_map(|attempt| attempt.seqs()).map(|seen| seen.seq));
        evidence.push(failure.end.seq);
        evidence.sort();
        evidence.dedup();
        Finding {
            cause: why.cause,
            late,
            why: why.why,
            missing: why.missing,
            is_falsifier: why.is_falsifier,
            met_stale: met.is_some(),
            backend,
            pod: owner.map(|pod| pod.name.clone()),
            entry_age: connect.and_then(entry_age),
            since_gone,
            evidence,
        }
    }

    /// The stale entry that an attempt's first SYN met, if it met one.
    pub(super) fn met_stale<'b>(&self, attempt: &'b Attempt) -> Option<(Gone<'a>, &'b Older)> {
        let Found::Older(older) = &attempt.found else { return None };
        let at = attempt.first.time;
        let made = older.made.or(older.maker.map(|maker| maker.seen.time)).unwrap_or(at);
        gone(self.timeline, older.backend, made, at).map(|gone| (gone, older))
    }

    fn judge_attempt(
        &self,
        failure: &Failure,
        attempt: &Attempt,
        met: Option<&(Gone<'a>, &Older)>,
    ) -> Why {
        if let Some((gone, older)) = met {
            return self.stale_entry(failure, attempt, gone, older);
        }
        if let Found::Unsure { why: unsure @ Unsure::WhichAttempt, .. } = attempt.found {
            let mut why = Why::new(Cause::Unseen, unsure.text());
            why.missing.push("which attempt was its own".to_owned());
            return why;
        }
        let at = attempt.first.time;
        let service = attempt.orig.dst;
        let no_endpoints = self.timeline.endpoints.is_empty(service, at) == Some(true);
        let untranslated = matches!(attempt.found, Found::Untranslated) && attempt.place.is_some();
        if no_endpoints && attempt.found.backend().is_none() {
            return Why::new(Cause::NoEndpoints, "the Service had no endpoints");
        }
        if untranslated {
            return Why::new(Cause::Untranslated, "its entry was made while no NAT rule matched");
        }
        if attempt.answer.is_some_and(|answer| answer.at_client && !answer.translated) {
            return Why::new(Cause::Untranslated, "its SYN-ACK kept the pod's address");
        }
        if let Found::Fresh { backend } | Found::Unsure { backend: Some(backend), .. } =
            attempt.found
            && let Some(gone) = gone(self.timeline, backend, at, at)
        {
            return self.fresh_to_gone(failure, attempt, &gone);
        }
        self.live_pod(failure, attempt)
    }

    /// The first SYN met an entry that was older, and its backend was gone.
    fn stale_entry(
        &self,
        failure: &Failure,
        attempt: &Attempt,
        gone: &Gone<'_>,
        older: &Older,
    ) -> Why {
        if was_turned_away_elsewhere(attempt) {
            return self.live_pod(failure, attempt);
        }
        let at = attempt.first.time;
        let pod = &gone.pod.name;
        let state = older.state.map_or("an unread state", |state| state.name());
        let age = older.made.map_or_else(
            || "that had seen a reply before".to_owned(),
            |made| format!("{} old", seconds(at.since(made))),
        );
        let since = seconds(at.since(gone.since));
        let met = format!("its SYN met an entry {age} in {state} to {pod}, gone for {since}");
        // Who has the address may have come to it only after the first SYN: whoever answered was there by then.
        let answers = [attempt.answer.map(|it| it.seen), attempt.reset.map(|it| it.seen)];
        let heard = answers.into_iter().flatten().map(|seen| seen.time).min();
        let heir =
            heir(self.timeline, older.backend, gone, heard.map_or(at, |heard| heard.max(at)));
        let answered = attempt.answer.is_some_and(|answer| answer.from == older.backend);
        let (cause, why) = match heir {
            Some(heir) => {
                (Cause::WrongPod, format!("{met}; its address belongs to {} now", heir.name))
            }
            None if answered => {
                (Cause::WrongPod, format!("{met}; something else answered from its address"))
            }
            None if older.replied => (Cause::StaleRepliedEntry, met),
            None => (Cause::StaleEntryReuse, met),
        };
        let mut why = Why::new(cause, why);
        let mut lacks = |what: String| why.missing.push(what);
        match older.by {
            OlderBy::SameEntry | OlderBy::Renewed | OlderBy::Replied => {}
            OlderBy::Age => {
                why.why.push_str("; its maker was not seen, its age is from its remaining life")
            }
        }
        match older.made {
            None if older.by == OlderBy::Age => lacks("the entry's age is not known".to_owned()),
            // Its remaining life says that it was made while tracing, so its SYN should have been seen. A
            // timer other than the sysctl's (`ct timeout` policies) gives a fresh entry such an age.
            Some(made) if older.by == OlderBy::Age && made >= self.timeline.began => {
                lacks("the SYN that made the entry should have been seen and was not".to_owned());
            }
            _ => {}
        }
        if let Some((backend, _)) = attempt.moved_to
            && !attempt.is_accepted()
        {
            lacks(format!(
                "the entry expired in the middle and its SYN was sent again to {backend}"
            ));
        }
        let reset = attempt.reset.is_some_and(|reset| reset.of_syn);
        if (answered || reset) && heir.is_none() {
            lacks("who answered is not known".to_owned());
        } else if attempt.is_accepted() && heir.is_none() {
            lacks("it was accepted in the end".to_owned());
        }
        if heir.is_some_and(|heir| heir.app == gone.pod.app) && attempt.is_accepted() {
            lacks("the pod that has the address now is one of the same app".to_owned());
        }
        if gone.by == GoneBy::Silence
            && let Some(loss) = self.packets_lost(gone.since, at)
        {
            lacks(format!("that {pod} was silent is not certain: {loss}"));
        }
        if let Some(loss) = self.packets_lost(at, failure.end.time) {
            lacks(format!("that nothing answered is not certain: {loss}"));
        }
        if !self.header.sees_syns() {
            lacks("the hook net_dev_start_xmit was not attached".to_owned());
        }
        why
    }

    /// The SYN went to a pod that was gone, by an entry that was not shown to be older.
    fn fresh_to_gone(&self, failure: &Failure, attempt: &Attempt, gone: &Gone<'_>) -> Why {
        // A pod's silence is no argument where its SYNs are dropped before they come to it.
        let is_filtered = gone.by == GoneBy::Silence && self.was_filtered(attempt);
        if is_filtered || was_turned_away_elsewhere(attempt) {
            return self.live_pod(failure, attempt);
        }
        let pod = &gone.pod.name;
        let since = seconds(attempt.first.time.since(gone.since));
        let Found::Unsure { why, .. } = attempt.found else {
            let why = format!("the rules chose {pod} afresh, gone for {since}");
            let mut why = Why::new(Cause::StaleRules, why);
            if gone.by == GoneBy::Silence
                && let Some(loss) = self.packets_lost(gone.since, failure.end.time)
            {
                why.missing.push(format!("that {pod} was silent is not certain: {loss}"));
            }
            return why;
        };
        let why = format!(
            "its SYN went to {pod}, gone for {since}, but by a fresh or an older entry: {}",
            why.text()
        );
        let mut why = Why::new(Cause::Unseen, why);
        why.missing.push("whether its entry was its own".to_owned());
        why
    }

    /// The SYN went to a pod that was there, or to none that is known.
    fn live_pod(&self, failure: &Failure, attempt: &Attempt) -> Why {
        let whom = self.whom(attempt);
        match failure.symptom {
            Symptom::Closed => {
                return Why::new(
                    Cause::PodNotServing,
                    format!("{whom} closed before it had answered"),
                );
            }
            Symptom::WrongAnswer => return wrong_answer(failure, &whom),
            Symptom::Reset => {
                return Why::new(Cause::PodNotServing, format!("{whom} reset the connection"));
            }
            Symptom::ResponseTimeout => {
                return Why::new(
                    Cause::SlowAnswer,
                    format!("{whom} accepted and did not answer in time"),
                );
            }
            _ => {}
        }
        if attempt.reset.is_some() {
            return Why::new(Cause::PodNotServing, format!("{whom} refused it with a RST"));
        }
        if attempt.is_accepted() {
            return self.accepted(attempt, &whom);
        }
        self.unanswered(failure, attempt, &whom)
    }

    /// The pod that an attempt went to, or its address.
    pub(super) fn whom(&self, attempt: &Attempt) -> String {
        attempt.backend().map_or("no backend".to_owned(), |backend| {
            let owner = self.timeline.pods.owner(backend.ip(), attempt.first.time);
            owner.map_or_else(|| backend.to_string(), |pod| pod.name.clone())
        })
    }

    fn accepted(&self, attempt: &Attempt, whom: &str) -> Why {
        if let Some(drop) = attempt.drops.iter().find(|drop| drop.is_answer) {
            let reason = self.header.drop_reason(drop.reason);
            return Why::new(Cause::Dropped, format!("{whom}'s SYN-ACK was dropped: {reason}"));
        }
        let reached_client =
            attempt.connected.is_some() || attempt.answer.is_some_and(|answer| answer.at_client);
        if reached_client {
            let why = format!("{whom}'s SYN-ACK came, but the client did not wait for it");
            Why::new(Cause::SlowAnswer, why)
        } else {
            let why = format!("{whom}'s SYN-ACK did not come to the client's node");
            Why::new(Cause::Dropped, why)
        }
    }

    fn unanswered(&self, failure: &Failure, attempt: &Attempt, whom: &str) -> Why {
        if let Some(icmp) = attempt.icmp {
            let told = format!("ICMP type {} code {} from {}", icmp.kind, icmp.code, icmp.from);
            return if icmp.is_port_unreachable() && attempt.found.backend().is_none() {
                Why::new(
                    Cause::NoEndpoints,
                    format!("rejected before any rule chose a pod: {told}"),
                )
            } else {
                Why::new(Cause::Unreachable, told)
            };
        }
        if failure.symptom == Symptom::Unreachable {
            return Why::new(Cause::Unreachable, format!("no route to {whom}"));
        }
        if let Some(drop) = attempt.drops.iter().find(|drop| !drop.is_answer) {
            let reason = self.header.drop_reason(drop.reason);
            return if self.is_inside_pod(drop.netns) && failure.symptom == Symptom::Refused {
                // As where the pod's socket of an earlier connection on these ports took it for its own: it is sent
                // again, and refused, within milliseconds.
                let why = format!("its SYN came to {whom}, and the client was refused");
                let mut why = Why::new(Cause::PodNotServing, why);
                why.missing.push("the RST was not seen".to_owned());
                why
            } else if self.is_inside_pod(drop.netns) {
                Why::new(Cause::PodUnanswered, format!("{whom}'s kernel dropped its SYN: {reason}"))
            } else if self.is_elsewhere(attempt, drop.netns) {
                // What conntrack thought of it says an entry on the client's node alone.
                let place = self.header.netns_name(drop.netns).unwrap_or("another namespace");
                Why::new(Cause::Dropped, format!("its SYN was dropped in {place}: {reason}"))
            } else if !drop.has_entry {
                Why::new(
                    Cause::Invalid,
                    format!("conntrack gave its SYN no entry; dropped: {reason}"),
                )
            } else {
                Why::new(Cause::Dropped, format!("its SYN was dropped: {reason}"))
            };
        }
        if matches!(attempt.found, Found::NoEntry) {
            return Why::new(Cause::Invalid, "conntrack gave its SYN no entry");
        }
        if let Some(loss) = self.packets_lost(attempt.first.time, failure.end.time) {
            let mut why = Why::new(Cause::Unseen, format!("no answer was seen, but {loss}"));
            why.missing.push(loss);
            return why;
        }
        if failure.symptom == Symptom::Refused {
            return Why::new(Cause::Unseen, "refused, but neither RST nor ICMP error was seen");
        }
        let backend = attempt.backend();
        if backend.is_none_or(|backend| {
            self.timeline.pods.owner(backend.ip(), attempt.first.time).is_none()
        }) {
            let mut why = Why::new(
                Cause::PodUnanswered,
                format!(
                    "its SYN went to {whom} and nothing came back; no event names that address"
                ),
            );
            why.missing.push(format!("whether {whom} was there"));
            return why;
        }
        let arrived = self.has_arrived(attempt);
        let what = if arrived { "reached" } else { "was sent to" };
        let mut why =
            Why::new(Cause::PodUnanswered, format!("its SYN {what} {whom} and nothing came back"));
        if !arrived && !self.header.is_attached(Hook::KfreeSkb) {
            why.missing.push("the hook kfree_skb was not attached: a drop was not seen".to_owned());
        }
        why.is_falsifier = !arrived
            && failure.symptom == Symptom::ConnectTimeout
            && matches!(attempt.found, Found::Fresh { .. });
        why
    }

    /// Whether the SYN was seen to reach the pod's namespace: sent by another node's device, or the pod is
    /// on the client's node.
    fn has_arrived(&self, attempt: &Attempt) -> bool {
        let place = attempt.place.map(|(netns, _)| netns);
        if attempt.hops.iter().any(|hop| Some(hop.netns) != place) {
            return true;
        }
        let Some(backend) = attempt.backend() else { return false };
        let Some(pod) = self.timeline.pods.owner(backend.ip(), attempt.first.time) else {
            return false;
        };
        let place = attempt.place.and_then(|(netns, _)| self.header.netns_name(netns));
        place == Some(pod.node.as_str())
    }

    /// Whether a namespace is a pod's: one that is called so, or that came only after the header was written. Of the
    /// others that are neither a node nor a pod there are routers between the nodes.
    fn is_inside_pod(&self, netns: NetnsId) -> bool {
        let known = self.header.netns.iter().find(|known| known.id == netns);
        let roles_known = self.header.netns.iter().any(|known| known.role == NetnsRole::ClientNode);
        let is_pod = |known: &Netns| {
            let is_other = known.role == NetnsRole::Other;
            is_other && self.timeline.pods.lives().iter().any(|life| life.name == known.name)
        };
        roles_known && known.is_none_or(is_pod)
    }

    /// Whether a rule of the client's node dropped the SYN. What rules do to packets for an
    /// address because its pod is gone can't be told from that: only where it is not known to be gone does it matter.
    fn was_filtered(&self, attempt: &Attempt) -> bool {
        attempt.drops.iter().any(|drop| {
            let is_by_rule = self.header.drop_reason(drop.reason) == NETFILTER_DROP;
            is_by_rule && !drop.is_answer && drop.has_entry && self.is_client_node(drop.netns)
        })
    }

    fn is_client_node(&self, netns: NetnsId) -> bool {
        let mut nodes = self.header.netns.iter().filter(|it| it.role == NetnsRole::ClientNode);
        nodes.any(|node| node.id == netns)
    }

    /// Whether a namespace is another than that in which the attempt's SYN was seen to leave.
    fn is_elsewhere(&self, attempt: &Attempt, netns: NetnsId) -> bool {
        attempt.has_syn && attempt.place.is_some_and(|(place, _)| place != netns)
    }

    fn why_unseen(&self, failure: &Failure) -> String {
        if !self.header.sees_syns() {
            return "the hook net_dev_start_xmit was not attached".to_owned();
        }
        if failure.start < self.timeline.began {
            return "it began before the trace".to_owned();
        }
        if let Some(loss) = self.packets_lost(failure.start, failure.end.time) {
            return loss;
        }
        let services = &self.header.services;
        if let Some(target) = failure.ended.target
            && !services.is_empty()
            && !services.contains(&target)
        {
            return format!("the filter left out {target}");
        }
        if !failure.ended.reuse.is_connect() {
            return "the connect of its connection was not seen".to_owned();
        }
        if failure.ended.source.is_none() {
            return "the client did not tell its source port".to_owned();
        }
        "no packet of its source port was seen, though nothing was lost".to_owned()
    }

    /// The loss between two times that can hide a packet, in words.
    pub(super) fn packets_lost(&self, from: MonoNs, to: MonoNs) -> Option<String> {
        let touching = || {
            let losses = self.timeline.losses.iter();
            losses.filter(|loss| loss.hides_packets() && loss.touches(from, to))
        };
        let first = touching().next()?;
        let count: u64 = touching().map(|loss| loss.count).sum();
        Some(lost_in_words(count, first.source))
    }
}

/// Whether a RST or an ICMP error came after its SYN was sent again to another backend. Its first entry cost it time
/// then; what it failed of is what the other backend did.
fn was_turned_away_elsewhere(attempt: &Attempt) -> bool {
    let Some((_, moved)) = attempt.moved_to else { return false };
    let answers = [attempt.reset.map(|reset| reset.seen), attempt.icmp.map(|icmp| icmp.seen)];
    answers.into_iter().flatten().any(|seen| seen.time >= moved.time)
}

/// A complete answer, and not the right one.
pub(super) fn wrong_answer(failure: &Failure, whom: &str) -> Why {
    let why = match failure.ended.outcome {
        Outcome::Failed { status: Some(status), .. } => {
            format!("{whom} answered with status {status}")
        }
        _ => format!("{whom} gave a wrong answer"),
    };
    Why::new(Cause::PodNotServing, why)
}

fn local(failure: &Failure) -> String {
    match failure.ended.outcome {
        Outcome::Failed { errno: Some(errno), .. } => {
            format!("the client could not open a connection: errno {errno}")
        }
        _ => "the client could not open a connection".to_owned(),
    }
}

/// How old the entry was that an attempt's first SYN met, zero for its own.
pub fn entry_age(attempt: &Attempt) -> Option<Duration> {
    match &attempt.found {
        Found::Fresh { .. } => Some(Duration::ZERO),
        Found::Older(older) => older.made.map(|made| attempt.first.time.since(made)),
        _ => None,
    }
}

/// A duration for people.
pub(crate) fn seconds(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 10.0 { format!("{seconds:.2} s") } else { format!("{seconds:.1} s") }
}
