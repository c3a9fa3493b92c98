//! What must have become of each request of the client, from the lab's truth and the client's log alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use super::entries::{self, Stale};
use super::judged::{ClientEnd, ClientRow, Judged, Judgement, Span};
use super::names::{self, Names};
use super::table::State;
use super::{DeadAddress, Deleted, Frozen, HowDropped, PodLife, Truth};
use crate::model::{MonoNs, Symptom};

/// The kernel's clock of timers is this coarse at worst (HZ = 100).
pub(super) const TICK: Duration = Duration::from_millis(10);

/// An answer that needed at least this long to connect had its first SYN unanswered: the first retransmission
/// comes after 1 s (RFC 6298).
pub(super) const RETRANSMITTED: Duration = Duration::from_millis(900);

/// A name that took longer than this, and left less than this for the rest, left no time to send a SYN again.
const LONG_NAME: Duration = Duration::from_secs(1);

/// Judges each request, in the order of `rows`.
pub fn judge(truth: &Truth, rows: &[ClientRow]) -> Vec<Judgement> {
    let none = Names::default();
    let unresolved = names::unanswered(truth.names.as_ref().unwrap_or(&none), rows);
    let with_an_address: Vec<ClientRow> = rows.iter().map(ClientRow::with_an_address).collect();
    let mut by_port = BTreeMap::<u16, Vec<&ClientRow>>::new();
    for row in &with_an_address {
        // What used a connection that was there made no entry and met none.
        if let Some(port) = row.port.filter(|_| !row.is_reused) {
            by_port.entry(port).or_default().push(row);
        }
    }
    for rows in by_port.values_mut() {
        rows.sort_by_key(|row| row.start);
    }
    let stale = entries::stale(truth, &by_port);
    let judge = Judge { truth, by_port: &by_port, stale: &stale, unresolved: &unresolved };
    let judged = with_an_address.iter().zip(rows).map(|(with_an_address, row)| Judgement {
        id: row.id,
        waited: row.waited(),
        judged: judge.row(with_an_address),
    });
    judged.collect()
}

/// A look this long before an attempt still tells of the table that the attempt met: looks come at least
/// once a second.
const LOOKS_APART: Duration = Duration::from_secs(2);

/// An entry that has seen a reply.
struct Replied {
    backend: SocketAddr,
    made: Span,
    expires: Span,
}

struct Judge<'a> {
    truth: &'a Truth,
    by_port: &'a BTreeMap<u16, Vec<&'a ClientRow>>,
    stale: &'a BTreeMap<u16, Vec<Stale>>,
    unresolved: &'a BTreeSet<u64>,
}

impl Judge<'_> {
    fn row(&self, row: &ClientRow) -> Judged {
        if row.resolution.is_some_and(|resolution| resolution.failed.is_some()) {
            return match self.unresolved.contains(&row.id) {
                true => Judged::Unresolved,
                false => undetermined("by the DNS server's own word its name had an answer"),
            };
        }
        let Some(port) = row.port else {
            return match row.end {
                ClientEnd::Failed(Symptom::Local) => Judged::Local,
                _ => undetermined("the log has no source port"),
            };
        };
        if row.is_reused {
            return match row.end {
                ClientEnd::Answered => Judged::Ok,
                ClientEnd::Failed(_) => self.cut(row),
            };
        }
        let entries = self.stale.get(&port).map_or(&[][..], Vec::as_slice);
        match (row.end, row.connected) {
            (ClientEnd::Answered, connected) => self.answered(row, port, connected, entries),
            (ClientEnd::Failed(Symptom::Local), _) => Judged::Local,
            (ClientEnd::Failed(Symptom::WrongAnswer), _) => self
                .met_other(row, entries)
                .unwrap_or_else(|| undetermined("no entry leads to a pod of another app")),
            (ClientEnd::Failed(_), Some(_)) => self.cut(row),
            (ClientEnd::Failed(symptom), None) => self.not_connected(row, port, symptom, entries),
        }
    }

    fn answered(
        &self,
        row: &ClientRow,
        port: u16,
        connected: Option<Duration>,
        entries: &[Stale],
    ) -> Judged {
        let connected = connected.unwrap_or_default();
        let attempt = Span { from: row.start, to: row.start + connected };
        // Still in the table when the connect was over: the SYN must have met it, whatever came of it.
        let survived =
            |entry: &&Stale| entry.made.to < attempt.from && entry.seen_last > attempt.to;
        if let Some(entry) = entries.iter().find(survived) {
            return met(entry);
        }
        if connected < RETRANSMITTED {
            // A dead address answers nobody, so the first SYN did not meet an entry to one.
            return Judged::Ok;
        }
        let freed =
            |deleted: &&Deleted| deleted.port == port && deleted.when.and(attempt).is_some();
        if let Some(deleted) = self.truth.deleted.iter().find(freed) {
            return Judged::Freed { backend: deleted.backend };
        }
        let midway =
            |entry: &&Stale| entry.made.to < row.start && entry.expires.and(attempt).is_some();
        if let Some(entry) = entries.iter().find(midway) {
            return Judged::Slowed { backend: entry.backend, made: entry.made };
        }
        let own = |entry: &&Stale| {
            entry.made.from + TICK >= row.start && entry.expires.and(attempt).is_some()
        };
        if let Some(entry) = entries.iter().find(own)
            && self.is_gone(entry.backend, entry.made.to)
        {
            return Judged::SentAnew { backend: entry.backend };
        }
        let replied = self.replied(row, port, row.start);
        match replied.filter(|entry| entry.expires.and(attempt).is_some()) {
            Some(Replied { backend, made, .. }) => Judged::Slowed { backend, made },
            None => undetermined(format!(
                "connected only after {:.3} s, and no known entry expired meanwhile",
                connected.as_secs_f64()
            )),
        }
    }

    fn cut(&self, row: &ClientRow) -> Judged {
        let attempt = Span { from: row.start, to: row.start + row.total };
        // The proxies delete by ports and addresses, so that the entry which they saw may have given way to this one's.
        let is_deleted = |deleted: &Deleted| {
            Some(deleted.port) == row.port && deleted.when.and(attempt).is_some()
        };
        if row.end == ClientEnd::Failed(Symptom::ResponseTimeout)
            && self.truth.deleted.iter().any(is_deleted)
        {
            return Judged::LostItsEntry;
        }
        let dying = self.pods(|pod| dying(pod).is_some_and(|dying| dying.and(attempt).is_some()));
        // A connection that was there was made when the rules were others.
        let those = if row.is_reused { dying } else { self.named_then(dying, row.start) };
        let is_slow = row.end == ClientEnd::Failed(Symptom::ResponseTimeout)
            && row.connected.is_some_and(|connected| row.total < connected + self.truth.pod_delay);
        if is_slow {
            let waited = row.waited();
            return match waited >= LONG_NAME && row.total < LONG_NAME {
                true => Judged::ResolvedTooLate,
                false => Judged::SlowPod,
            };
        }
        let is_frozen = |pod: &PodLife| self.is_frozen(pod.address, attempt.to);
        let frozen = addresses(&self.named_then(self.pods(is_frozen), row.start));
        if row.end == ClientEnd::Failed(Symptom::ResponseTimeout) && !frozen.is_empty() {
            return Judged::NotAccepted { backends: frozen };
        }
        let backends = addresses(&those);
        if !backends.is_empty() {
            return Judged::CutByDyingPod { backends };
        }
        let is_lost =
            |pod: &PodLife| self.lost(pod).is_some_and(|lost| lost.and(attempt).is_some());
        match addresses(&self.named_then(self.pods(is_lost), row.start)) {
            none if none.is_empty() => undetermined("connected, but no pod ended meanwhile"),
            backends => Judged::CutOffMidway { backends },
        }
    }

    /// If an entry on its port, older than itself, led it to a pod of another app.
    fn met_other(&self, row: &ClientRow, entries: &[Stale]) -> Option<Judged> {
        let end = row.start + row.total;
        let entry = entries
            .iter()
            .rfind(|entry| entry.made.to < row.start && entry.expires.to >= row.start)?;
        // Who got through ended the entry: a RST removes it, and an answer makes another thing of it.
        let is_over = self.by_port[&row.port?].iter().any(|other| {
            let got_through = other.connected.is_some() || other.end == REFUSED;
            got_through && entry.made.to < other.start && other.start < row.start
        });
        let is_other = |pod: &PodLife| pod.app != self.app_of(entry) && pod.added <= end + TICK;
        let owners = self.pods(|pod| pod.address == entry.backend);
        let is_met = !is_over && owners.into_iter().any(is_other);
        is_met.then_some(Judged::MetOther { backend: entry.backend })
    }

    /// The app of the pod that had the address when the entry was made.
    fn app_of(&self, entry: &Stale) -> &str {
        let owners = self.pods(|pod| pod.address == entry.backend && pod.added <= entry.made.to);
        owners.last().map_or("", |pod| &pod.app)
    }

    fn not_connected(
        &self,
        row: &ClientRow,
        port: u16,
        symptom: Symptom,
        entries: &[Stale],
    ) -> Judged {
        let attempt = Span { from: row.start, to: row.start + row.total };
        if symptom == Symptom::Refused
            && let Some(other) = self.met_other(row, entries)
        {
            return other;
        }
        let freed = |deleted: &Deleted| deleted.port == port && deleted.when.and(attempt).is_some();
        let is_first = row.total < RETRANSMITTED || self.truth.deleted.iter().any(freed);
        if symptom == Symptom::Refused && self.truth.dead_address == DeadAddress::Silent && is_first
        {
            // A silent address refuses nobody: the SYN, or the one after its entry was deleted, reached a pod.
            return self.refused(row);
        }
        // The latest entry that can have been there decides; an earlier one was gone by then.
        let end = row.start + row.total;
        let possible =
            entries.iter().rfind(|entry| entry.made.from <= end && entry.expires.to >= row.start);
        match possible {
            Some(entry) if entry.made.to < row.start => {
                if entry.expires.from <= row.start && entry.seen_last < row.start {
                    return undetermined("the entry on its port expired too close to its start");
                }
                return if self.is_gone(entry.backend, row.start) {
                    met(entry)
                } else if self.is_frozen(entry.backend, row.start) {
                    Judged::BacklogFull { backend: entry.backend }
                } else if self.is_cut_off(entry.backend, attempt) {
                    Judged::CutOff { backend: entry.backend }
                } else {
                    undetermined("it met an entry to an address that was not dead")
                };
            }
            Some(entry) if entry.made.from + TICK < row.start => {
                return undetermined("an entry on its port was made too close to its start");
            }
            Some(last) => {
                // Its first SYN's, where that one's expired meanwhile and this is that of a later SYN.
                let own = |entry: &&Stale| entry.made.from + TICK >= row.start;
                let entry = entries.iter().find(own).unwrap_or(last);
                if symptom == Symptom::Refused
                    && self.truth.dead_address == DeadAddress::Silent
                    && entry.expires.and(attempt).is_some()
                {
                    return self.refused(row);
                }
                // Or it was deleted.
                let before =
                    self.truth.deleted.iter().find(|deleted| {
                        deleted.port == port && deleted.when.and(attempt).is_some()
                    });
                return match before {
                    Some(deleted) if self.is_dead(deleted.backend, deleted.when.from) => {
                        Judged::FreshToDeadAddress { backend: deleted.backend }
                    }
                    _ => self.fresh(entry),
                };
            }
            None => {}
        }
        if let Some(Replied { backend, made, .. }) = self.replied(row, port, end) {
            return match self.is_gone(backend, row.start) {
                true => Judged::MetStale { backend, made, is_replied: true },
                false => Judged::CutOff { backend },
            };
        }
        let dropping = self.truth.dropping.as_ref();
        let dropped = dropping
            .filter(|dropping| dropping.ports.contains(&port) && dropping.set <= row.start)
            .map(|dropping| dropping.how);
        // Its entry was deleted before any look could show it.
        let own = self.truth.deleted.iter().find(|deleted| freed(deleted));
        match symptom {
            Symptom::Refused => self.refused(row),
            Symptom::ConnectTimeout
                if let Some(deleted) =
                    own.filter(|deleted| self.is_dead(deleted.backend, deleted.when.from)) =>
            {
                Judged::FreshToDeadAddress { backend: deleted.backend }
            }
            Symptom::ConnectTimeout if dropped == Some(HowDropped::Rule) => Judged::DroppedByRule,
            Symptom::ConnectTimeout if dropped == Some(HowDropped::Invalid) => Judged::Invalid,
            // A node limits its ICMP errors, so that most SYNs which its rules reject have no answer.
            Symptom::ConnectTimeout if self.named(Span { from: row.start, to: end }).is_empty() => {
                Judged::RejectedWithoutEndpoints
            }
            _ => undetermined(format!(
                "no look at the table shows an entry on port {port} meanwhile"
            )),
        }
    }

    /// Of an attempt that made an entry itself.
    fn fresh(&self, entry: &Stale) -> Judged {
        if !self.is_gone(entry.backend, entry.made.to) {
            if self.is_frozen(entry.backend, entry.made.to) {
                return Judged::BacklogFull { backend: entry.backend };
            }
            if self.is_cut_off(entry.backend, entry.made) {
                return Judged::CutOff { backend: entry.backend };
            }
            return undetermined(format!(
                "its own entry points at {}, which was not dead",
                entry.backend
            ));
        }
        if !self.named(entry.made).contains(&entry.backend) {
            return undetermined(format!(
                "its own entry points at {}, which the rules did not name any more",
                entry.backend
            ));
        }
        let is_going = |pod: &PodLife| {
            let gone = pod.disconnected.unwrap_or(MonoNs(u64::MAX));
            let is_lost = self.lost(pod).is_some();
            pod.address == entry.backend && !is_lost && entry.made.from <= gone
        };
        let backend = entry.backend;
        match self.truth.pods.iter().any(is_going) {
            true => Judged::FreshToGoingAddress { backend },
            false => Judged::FreshToDeadAddress { backend },
        }
    }

    /// The entry that had seen a reply, to an address that is dead by now, and that its first SYN met: one that
    /// was seen during the attempt, or else in the last look before. `until`: looks after that don't count.
    fn replied(&self, row: &ClientRow, port: u16, until: MonoNs) -> Option<Replied> {
        let looks = self.truth.looks.iter().rev().skip_while(|look| look.after > until);
        let (look, seen) = looks
            .take_while(|look| look.after + LOOKS_APART > row.start)
            .find_map(|look| Some((look, look.rows.iter().find(|seen| seen.port == port)?)))?;
        let left = Duration::from_secs(u64::from(seen.left));
        let expires = Span {
            from: look.before + left - TICK,
            to: look.after + left + Duration::from_secs(1) + TICK,
        };
        let is_stale = !seen.is_unreplied
            && seen.state != State::SynSent
            && expires.to >= row.start
            && (self.is_dead(seen.backend, row.start)
                || self.is_cut_off(seen.backend, Span { from: row.start, to: row.start }));
        // Another attempt since then made another entry, or showed that this one was no trouble.
        let is_since = |other: &&&ClientRow| {
            other.start < row.start && other.start + other.total > look.before
        };
        if self.by_port[&port]
            .iter()
            .any(|other| is_since(&other) && other.end == ClientEnd::Answered)
        {
            return None;
        }
        // Who made it before the log began is not known.
        let before = Span { from: MonoNs(0), to: look.before };
        let (made, is_finished) = self.made_replied(row, port).unwrap_or((before, false));
        // A SYN renews an entry in CLOSE if either side had sent a FIN before (nf_conntrack_tcp_packet).
        let is_stale = is_stale && !(seen.state == State::Close && is_finished);
        is_stale.then_some(Replied { backend: seen.backend, made, expires })
    }

    /// When the entry with a reply was made that a request can have met, by the last on its port that was connected or by
    /// a connection of the lab's own, and whether a FIN ended that. Who was not connected only met the entry.
    fn made_replied(&self, row: &ClientRow, port: u16) -> Option<(Span, bool)> {
        let of_client = self.by_port[&port].iter().filter_map(|other| {
            let made = Span { from: other.start, to: other.start + other.connected? };
            Some((made, other.end != ClientEnd::Failed(Symptom::Reset)))
        });
        let held = self.truth.held.iter().filter(|held| held.port == port);
        let of_lab = held.map(|held| (held.made, false));
        let before = |(made, _): &(Span, bool)| made.from < row.start;
        of_client.chain(of_lab).filter(before).max_by_key(|(made, _)| made.from)
    }

    fn refused(&self, row: &ClientRow) -> Judged {
        let attempt = Span { from: row.start, to: row.start + row.total };
        let refuses = |pod: &PodLife| {
            let spans = [starting(pod), dying(pod)];
            spans.into_iter().flatten().any(|span| span.and(attempt).is_some())
        };
        let backends = addresses(&self.named_then(self.pods(refuses), row.start));
        let resets = self.truth.dead_address == DeadAddress::Resets;
        let is_dead =
            |pod: &PodLife| resets && pod.disconnecting.is_some_and(|since| since <= attempt.to);
        let dead = addresses(&self.named_then(self.pods(is_dead), row.start));
        // Until the API says that the pod is gone, a RST from its address is the pod's for all that anyone can see.
        let is_listed = |pod: &PodLife| {
            pod.asked.is_some() && pod.deleted.is_none_or(|deleted| attempt.from <= deleted)
        };
        let listed = addresses(&self.named_then(self.pods(is_listed), row.start));
        if !dead.is_empty() {
            Judged::RefusedByDeadAddress { backends: dead, or_pods: &backends | &listed }
        } else if !backends.is_empty() {
            Judged::RefusedByPod { backends }
        } else if self.named(attempt).is_empty() {
            Judged::RejectedWithoutEndpoints
        } else {
            undetermined("refused, but no pod that the rules named was starting or dying")
        }
    }

    fn pods(&self, wanted: impl Fn(&PodLife) -> bool) -> Vec<&PodLife> {
        self.truth.pods.iter().filter(|pod| wanted(pod)).collect()
    }

    /// Those of the pods that the rules may have named at this moment.
    fn named_then<'p>(&self, mut pods: Vec<&'p PodLife>, moment: MonoNs) -> Vec<&'p PodLife> {
        let named = self.named(Span { from: moment, to: moment });
        pods.retain(|pod| named.contains(&pod.address));
        pods
    }

    /// The endpoints that the client node's rules may have named at some moment of the span.
    fn named(&self, span: Span) -> BTreeSet<SocketAddr> {
        let changes =
            self.truth.rules.iter().filter(|change| change.node == self.truth.client_node);
        let mut named = BTreeSet::new();
        for change in changes.filter(|change| change.before <= span.to) {
            if change.after <= span.from {
                // In force before the span began: it replaces all that was before.
                named.clear();
            }
            named.extend(&change.endpoints);
        }
        named
    }

    /// Whether the address may have been silent at this moment: its network was at least being taken down.
    fn is_dead(&self, address: SocketAddr, moment: MonoNs) -> bool {
        self.owners(address, moment)
            .all(|pod| pod.disconnecting.is_some_and(|since| since <= moment))
    }

    /// The same, or the network had lost it by then and its pod's deletion was asked for: no more than that can be seen
    /// of it.
    fn is_gone(&self, address: SocketAddr, moment: MonoNs) -> bool {
        let is_lost = |pod: &PodLife| {
            let lost = self.lost(pod).is_some_and(|lost| lost.from <= moment);
            lost && pod.asked.is_some_and(|asked| asked <= moment)
        };
        self.is_dead(address, moment) || self.owners(address, moment).all(is_lost)
    }

    /// Whether the network may have lost the address's pod at some moment of the span.
    fn is_cut_off(&self, address: SocketAddr, span: Span) -> bool {
        self.owners(address, span.to)
            .any(|pod| self.lost(pod).is_some_and(|lost| lost.from <= span.to))
    }

    /// Whether the address is of a pod that may have been stopped by this moment.
    fn is_frozen(&self, address: SocketAddr, moment: MonoNs) -> bool {
        let is_it = |it: &Frozen| it.address == address && it.since.from <= moment;
        self.truth.frozen.iter().any(is_it) && !self.is_dead(address, moment)
    }

    /// When the network lost a pod's node, if it did.
    fn lost(&self, pod: &PodLife) -> Option<Span> {
        let outage = self.truth.outage.as_ref()?;
        (outage.node == pod.node).then_some(outage.lost)
    }

    /// The pods that the address had belonged to by then.
    fn owners(&self, address: SocketAddr, moment: MonoNs) -> impl Iterator<Item = &PodLife> {
        let pods = self.truth.pods.iter();
        pods.filter(move |pod| pod.address == address && pod.added <= moment)
    }
}

const REFUSED: ClientEnd = ClientEnd::Failed(Symptom::Refused);

/// While its address may refuse because nobody listens yet, although it counts as ready.
fn starting(pod: &PodLife) -> Option<Span> {
    Some(Span { from: pod.ready?, to: pod.listening? })
}

fn addresses(pods: &[&PodLife]) -> BTreeSet<SocketAddr> {
    pods.iter().map(|pod| pod.address).collect()
}

/// While its address may refuse or cut: from just before SIGTERM until its network was gone.
fn dying(pod: &PodLife) -> Option<Span> {
    Some(Span { from: pod.terminated?, to: pod.disconnected.unwrap_or(MonoNs(u64::MAX)) })
}

fn met(entry: &Stale) -> Judged {
    Judged::MetStale { backend: entry.backend, made: entry.made, is_replied: false }
}

fn undetermined(why: impl Into<String>) -> Judged {
    Judged::Undetermined { why: why.into() }
}

#[cfg(test)]
mod tests;
