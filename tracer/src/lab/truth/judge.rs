//! What must have become of each request of the client, from the lab's truth and the client's log alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::entries::{self, Stale};
use super::table::State;
use super::{Deleted, PodLife, Truth};
use crate::model::{MonoNs, RequestEnded, Reuse, Symptom};

/// The kernel's clock of timers is this coarse at worst (HZ = 100).
pub(super) const TICK: Duration = Duration::from_millis(10);

/// An answer that needed at least this long to connect had its first SYN unanswered: the first retransmission
/// comes after 1 s (RFC 6298).
const RETRANSMITTED: Duration = Duration::from_millis(900);

/// A row of the client's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientRow {
    /// Which request.
    pub id: u64,
    /// Just before its socket was made.
    pub start: MonoNs,
    /// Whether its connection was there already, made by an earlier request.
    pub is_reused: bool,
    /// The source port, also where the connect failed.
    pub port: Option<u16>,
    /// From the start until connected, if it was.
    pub connected: Option<Duration>,
    /// From the start until its end.
    pub total: Duration,
    /// How it ended.
    pub end: ClientEnd,
}

impl ClientRow {
    /// The row of a request that started then and ended so.
    pub fn new(start: MonoNs, ended: &RequestEnded) -> ClientRow {
        ClientRow {
            id: ended.id.0,
            start,
            is_reused: matches!(ended.reuse, Reuse::KeepAlive { nth: 1.. }),
            port: ended.source.map(|source| source.port()),
            connected: ended.connect,
            total: ended.total,
            end: ended.outcome.symptom().map_or(ClientEnd::Answered, ClientEnd::Failed),
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientEnd {
    /// With an answer.
    Answered,
    /// Without.
    Failed(Symptom),
}

/// From one moment to another; something happened between the two, the ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Not before this.
    pub from: MonoNs,
    /// Not after this.
    pub to: MonoNs,
}

impl Span {
    /// What both have in common.
    pub fn and(self, other: Span) -> Option<Span> {
        let both = Span { from: self.from.max(other.from), to: self.to.min(other.to) };
        (both.from <= both.to).then_some(both)
    }
}

/// A request and what must have become of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Which request.
    pub id: u64,
    /// What must have become of it.
    pub judged: Judged,
}

/// What must have become of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Judged {
    /// Its SYN went to a pod that answered.
    Ok,
    /// Its SYN met an entry that an earlier attempt had made, to an address that was dead by now.
    MetStale {
        /// Where the entry points.
        backend: SocketAddr,
        /// When the entry was made.
        made: Span,
        /// Whether the entry had seen a reply.
        is_replied: bool,
    },
    /// It met such an entry, which expired in the middle of the attempt, so that a later SYN got through.
    Slowed {
        /// Where the entry points.
        backend: SocketAddr,
        /// When the entry was made.
        made: Span,
    },
    /// The entry that it had made or met was deleted in its middle, so that a later SYN got through.
    Freed {
        /// Where the entry pointed.
        backend: SocketAddr,
    },
    /// Its SYN made an entry to an address that was dead already: the rules still named it.
    FreshToDeadAddress {
        /// The address.
        backend: SocketAddr,
    },
    /// Its SYN was refused by a pod that did not listen any more, or not yet, and whose network was there.
    RefusedByPod {
        /// The pods that it can have been.
        backends: BTreeSet<SocketAddr>,
    },
    /// It was connected to a pod that ended before it had answered.
    CutByDyingPod {
        /// The pods that it can have been.
        backends: BTreeSet<SocketAddr>,
    },
    /// The rules named no endpoint.
    RejectedWithoutEndpoints,
    /// It never left the client.
    Local,
    /// It can't be said.
    Undetermined {
        /// Why.
        why: String,
    },
}

/// Judges each request, in the order of `rows`.
pub fn judge(truth: &Truth, rows: &[ClientRow]) -> Vec<Judgement> {
    let mut by_port = BTreeMap::<u16, Vec<&ClientRow>>::new();
    for row in rows {
        // What used a connection that was there made no entry and met none.
        if let Some(port) = row.port.filter(|_| !row.is_reused) {
            by_port.entry(port).or_default().push(row);
        }
    }
    for rows in by_port.values_mut() {
        rows.sort_by_key(|row| row.start);
    }
    let stale = entries::stale(truth, &by_port);
    let judge = Judge { truth, by_port: &by_port, stale: &stale };
    rows.iter().map(|row| Judgement { id: row.id, judged: judge.row(row) }).collect()
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
}

impl Judge<'_> {
    fn row(&self, row: &ClientRow) -> Judged {
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
        let dying = self.pods(|pod| dying(pod).is_some_and(|dying| dying.and(attempt).is_some()));
        // A connection that was there was made when the rules were others.
        let those = if row.is_reused { dying } else { self.named_then(dying, row.start) };
        match addresses(&those) {
            none if none.is_empty() => undetermined("connected, but no pod ended meanwhile"),
            backends => Judged::CutByDyingPod { backends },
        }
    }

    fn not_connected(
        &self,
        row: &ClientRow,
        port: u16,
        symptom: Symptom,
        entries: &[Stale],
    ) -> Judged {
        // The latest entry that can have been there decides; an earlier one was gone by then.
        let end = row.start + row.total;
        let possible =
            entries.iter().rfind(|entry| entry.made.from <= end && entry.expires.to >= row.start);
        match possible {
            Some(entry) if entry.made.to < row.start => {
                if entry.expires.from <= row.start && entry.seen_last < row.start {
                    return undetermined("the entry on its port expired too close to its start");
                }
                return match self.is_dead(entry.backend, row.start) {
                    true => met(entry),
                    false => undetermined("it met an entry to an address that was not dead"),
                };
            }
            Some(entry) if entry.made.from + TICK < row.start => {
                return undetermined("an entry on its port was made too close to its start");
            }
            Some(entry) => return self.fresh(entry),
            None => {}
        }
        if let Some(Replied { backend, made, .. }) = self.replied(row, port, end) {
            return Judged::MetStale { backend, made, is_replied: true };
        }
        match symptom {
            Symptom::Refused => self.refused(row),
            _ => undetermined(format!(
                "no look at the table shows an entry on port {port} meanwhile"
            )),
        }
    }

    /// Of an attempt that made an entry itself.
    fn fresh(&self, entry: &Stale) -> Judged {
        if !self.is_dead(entry.backend, entry.made.to) {
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
        Judged::FreshToDeadAddress { backend: entry.backend }
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
            && self.is_dead(seen.backend, row.start);
        let maker = self.by_port[&port].iter().rfind(|other| other.start < row.start)?;
        let made = Span { from: maker.start, to: maker.start + maker.connected? };
        is_stale.then_some(Replied { backend: seen.backend, made, expires })
    }

    fn refused(&self, row: &ClientRow) -> Judged {
        let attempt = Span { from: row.start, to: row.start + row.total };
        let refuses = |pod: &PodLife| {
            let spans = [starting(pod), dying(pod)];
            spans.into_iter().flatten().any(|span| span.and(attempt).is_some())
        };
        let backends = addresses(&self.named_then(self.pods(refuses), row.start));
        if !backends.is_empty() {
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
        let mut owners = self.truth.pods.iter().filter(|pod| pod.address == address);
        owners.all(|pod| pod.disconnecting.is_some_and(|since| since <= moment))
    }
}

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
mod tests {
    use super::super::{Look, Row, RulesChange};
    use super::*;

    const A: &str = "10.100.1.20:8080";
    const B: &str = "10.100.2.20:8080";

    fn at(seconds: f64) -> MonoNs {
        MonoNs((seconds * 1e9).round() as u64)
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    /// A dies at 10 s: SIGTERM, silent from 10.1 s on. The rules drop it at 10.5 s. Entries live 20 s.
    fn truth() -> Truth {
        let life = |text: &str| PodLife {
            name: text.to_owned(),
            node: "n1".to_owned(),
            address: address(text),
            started: Some(at(0.0)),
            ready: Some(at(3.0)),
            listening: None,
            asked: None,
            terminated: None,
            exited: None,
            disconnecting: None,
            disconnected: None,
        };
        let dead = PodLife {
            asked: Some(at(10.0)),
            terminated: Some(at(10.0)),
            exited: Some(at(10.01)),
            disconnecting: Some(at(10.1)),
            disconnected: Some(at(10.12)),
            ..life(A)
        };
        let rules = |time: f64, endpoints: &[&str]| RulesChange {
            node: "n1".to_owned(),
            before: at(time),
            after: at(time + 0.01),
            endpoints: endpoints.iter().map(|text| address(text)).collect(),
        };
        Truth {
            seed: 1,
            client_node: "n1".to_owned(),
            client: "10.100.1.16".parse().expect("an address"),
            service: address("10.100.96.10:80"),
            syn_sent_timeout: Duration::from_secs(20),
            rollout_started: None,
            rollout_finished: None,
            pods: vec![dead, life(B)],
            rules: vec![rules(1.0, &[]), rules(3.5, &[A, B]), rules(10.5, &[B])],
            deleted: Vec::new(),
            looks: Vec::new(),
        }
    }

    /// Looks each 0.7 s at an unreplied entry to A on port 40000 that was made at this time.
    fn looks_at_entry(made: f64) -> Vec<Look> {
        (0..60)
            .map(|nth| {
                let time = f64::from(nth) * 0.7 + 0.05;
                let left = made + 20.0 - time;
                let row = Row {
                    port: 40000,
                    backend: address(A),
                    state: State::SynSent,
                    is_unreplied: true,
                    left: left.max(0.0) as u32,
                };
                let rows = if time > made && left > 0.0 { vec![row] } else { Vec::new() };
                Look { before: at(time - 0.01), after: at(time + 0.02), rows }
            })
            .collect()
    }

    fn request(start: f64, total: f64, end: ClientEnd) -> ClientRow {
        let is_connected = !matches!(
            end,
            ClientEnd::Failed(Symptom::ConnectTimeout | Symptom::Refused | Symptom::Unreachable)
        );
        ClientRow {
            id: 0,
            start: at(start),
            is_reused: false,
            port: Some(40000),
            connected: is_connected.then(|| Duration::from_secs_f64((total - 0.05_f64).max(0.0))),
            total: Duration::from_secs_f64(total),
            end,
        }
    }

    fn timeout(start: f64) -> ClientRow {
        request(start, 3.0, ClientEnd::Failed(Symptom::ConnectTimeout))
    }

    fn list(backends: &BTreeSet<SocketAddr>) -> String {
        backends.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" or ")
    }

    fn judged(truth: &Truth, rows: &[ClientRow]) -> Vec<String> {
        let text = |judgement: Judgement| match judgement.judged {
            Judged::MetStale { backend, made, is_replied } => {
                let kind = if is_replied { "replied" } else { "unreplied" };
                let (from, to) = (made.from.0 as f64 / 1e9, made.to.0 as f64 / 1e9);
                format!("met {kind} {backend} made {from:.2}..{to:.2}")
            }
            Judged::Slowed { backend, .. } => format!("slowed {backend}"),
            Judged::FreshToDeadAddress { backend } => format!("fresh to dead {backend}"),
            Judged::RefusedByPod { backends } => format!("refused {}", list(&backends)),
            Judged::CutByDyingPod { backends } => format!("cut {}", list(&backends)),
            Judged::Undetermined { why } => format!("undetermined: {why}"),
            other => format!("{other:?}"),
        };
        judge(truth, rows).into_iter().map(text).collect()
    }

    #[test]
    fn the_first_timeout_is_fresh_and_the_next_on_its_port_met_its_entry() {
        let truth = Truth { looks: looks_at_entry(10.3), ..truth() };
        let rows = [timeout(10.298), timeout(16.0), timeout(27.5)];
        let met = "met unreplied 10.100.1.20:8080 made 10.30..10.38";
        assert_eq!(judged(&truth, &rows), ["fresh to dead 10.100.1.20:8080", met, met]);
    }

    #[test]
    fn an_entry_that_expires_midway_slows_the_request() {
        let truth = Truth { looks: looks_at_entry(10.3), ..truth() };
        let rows = [timeout(10.298), request(29.5, 1.1, ClientEnd::Answered)];
        assert_eq!(judged(&truth, &rows)[1], "slowed 10.100.1.20:8080");
        // Without such an entry nobody knows why it was slow.
        let rows = [timeout(10.298), request(33.0, 1.1, ClientEnd::Answered)];
        assert!(judged(&truth, &rows)[1].starts_with("undetermined: connected only after 1.050 s"));
    }

    #[test]
    fn an_entry_that_is_deleted_midway_frees_the_request() {
        let when = Span { from: at(16.5), to: at(16.51) };
        let deleted = vec![Deleted { port: 40000, backend: address(A), when }];
        let truth = Truth { deleted, ..truth() };
        let rows =
            [request(16.0, 1.1, ClientEnd::Answered), request(18.0, 1.1, ClientEnd::Answered)];
        let judged = judged(&truth, &rows);
        assert_eq!(judged[0], "Freed { backend: 10.100.1.20:8080 }");
        assert!(judged[1].starts_with("undetermined"), "{}", judged[1]);
    }

    #[test]
    fn after_its_time_the_port_is_good_again() {
        let truth = Truth { looks: looks_at_entry(10.3), ..truth() };
        let rows = [timeout(10.298), request(30.4, 0.06, ClientEnd::Answered)];
        assert_eq!(judged(&truth, &rows)[1], "Ok");
    }

    #[test]
    fn an_answer_through_a_stale_entry_would_be_told() {
        let truth = Truth { looks: looks_at_entry(10.3), ..truth() };
        let rows = [timeout(10.298), request(20.0, 0.06, ClientEnd::Answered)];
        assert!(judged(&truth, &rows)[1].starts_with("met unreplied"));
    }

    #[test]
    fn a_timeout_that_nobody_looked_at_is_undetermined() {
        let rows = [timeout(16.0)];
        assert_eq!(
            judged(&truth(), &rows),
            ["undetermined: no look at the table shows an entry on port 40000 meanwhile"]
        );
    }

    #[test]
    fn a_timeout_on_a_fresh_entry_to_a_live_pod_is_not_explained() {
        let mut truth = Truth { looks: looks_at_entry(6.0), ..truth() };
        assert!(
            judged(&truth, &[timeout(5.999)])[0]
                .starts_with("undetermined: its own entry points at")
        );
        // Nor is one to a dead address that the rules did not name any more.
        truth.looks = looks_at_entry(12.0);
        assert!(
            judged(&truth, &[timeout(11.999)])[0]
                .ends_with("which the rules did not name any more")
        );
    }

    #[test]
    fn a_dying_pod_refuses_and_cuts() {
        let refused = |start| request(start, 0.002, ClientEnd::Failed(Symptom::Refused));
        let closed = |start| request(start, 0.06, ClientEnd::Failed(Symptom::Closed));
        let all = judged(
            &truth(),
            &[refused(10.05), refused(5.0), refused(2.0), closed(9.98), closed(20.0)],
        );
        assert_eq!(
            all,
            [
                "refused 10.100.1.20:8080",
                "undetermined: refused, but no pod that the rules named was starting or dying",
                "RejectedWithoutEndpoints",
                "cut 10.100.1.20:8080",
                "undetermined: connected, but no pod ended meanwhile",
            ]
        );
    }

    #[test]
    fn a_pod_that_counts_as_ready_before_it_listens_refuses() {
        let mut truth = truth();
        truth.pods[1].listening = Some(at(5.0));
        let refused = |start| request(start, 0.002, ClientEnd::Failed(Symptom::Refused));
        assert_eq!(
            judged(&truth, &[refused(4.0), refused(6.0)]),
            [
                "refused 10.100.2.20:8080",
                "undetermined: refused, but no pod that the rules named was starting or dying"
            ]
        );
        truth.pods[1].listening = Some(at(10.2));
        assert_eq!(
            judged(&truth, &[refused(10.05)]),
            ["refused 10.100.1.20:8080 or 10.100.2.20:8080"]
        );
    }

    #[test]
    fn a_request_on_a_connection_that_was_there_meets_no_entry() {
        let truth = Truth { looks: looks_at_entry(10.3), ..truth() };
        let reused = |start, end| ClientRow { is_reused: true, ..request(start, 0.06, end) };
        let cut = ClientEnd::Failed(Symptom::Reset);
        assert_eq!(
            judged(&truth, &[reused(16.0, ClientEnd::Answered), reused(9.98, cut)]),
            ["Ok", "cut 10.100.1.20:8080"]
        );
    }

    #[test]
    fn a_reset_entry_carries_the_next_syn_to_the_dead_pod() {
        let row = Row {
            port: 40000,
            backend: address(A),
            state: State::Close,
            is_unreplied: false,
            left: 7,
        };
        let look = Look { before: at(12.0), after: at(12.05), rows: vec![row] };
        let truth = Truth { looks: vec![look], ..truth() };
        let cut = request(9.98, 0.06, ClientEnd::Failed(Symptom::Reset));
        assert_eq!(
            judged(&truth, &[cut.clone(), timeout(14.0)])[1],
            "met replied 10.100.1.20:8080 made 9.98..9.99"
        );
        let later = judged(&truth, &[cut, timeout(21.0)]);
        assert!(later[1].starts_with("undetermined"), "its 10 s are over: {}", later[1]);
    }

    #[test]
    fn a_reset_entry_that_expires_midway_slows_the_request() {
        let row = Row {
            port: 40000,
            backend: address(A),
            state: State::Close,
            is_unreplied: false,
            left: 1,
        };
        let look = Look { before: at(18.0), after: at(18.05), rows: vec![row] };
        let truth = Truth { looks: vec![look], ..truth() };
        let cut = request(9.98, 0.06, ClientEnd::Failed(Symptom::Reset));
        let slow = request(18.1, 2.1, ClientEnd::Answered);
        assert_eq!(judged(&truth, &[cut, slow])[1], "slowed 10.100.1.20:8080");
    }

    #[test]
    fn what_never_left_the_client_is_local() {
        let row = ClientRow { port: None, ..request(5.0, 0.0, ClientEnd::Failed(Symptom::Local)) };
        assert_eq!(judged(&truth(), &[row]), ["Local"]);
    }
}
