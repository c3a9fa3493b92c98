//! Events to a timeline: attempts, entries, pods, requests, and which belong together. Pure and unable to
//! fail: what does not fit becomes a counter.
//!
//! Deliberately absent: judging. What an attempt *found* is decided here, from the packet and what was seen
//! before it; what that *means* is for `verdict`, which also knows what came later.

mod attempt;
mod connects;
mod endpoints;
mod entry;
mod lanes;
mod packets;
mod pods;
mod requests;
mod sample;
mod syn;
mod table;
mod tally;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod timeline;
mod timers;
mod translation;
mod trials;
mod unported;

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use foldhash::fast::FixedState;

pub use attempt::{Answer, Attempt, Close, ClosedBy, Dropped, Hop, Icmp, Reset};
pub use endpoints::Endpoints;
pub use entry::{Entry, Found, Maker, Older, OlderBy, Renewal, Unsure};
pub use pods::{GoneBy, PodLife, Pods, Seen};
pub use requests::SLOW_NAME;
pub use sample::{Sample, Sampled, SampledEnd};
pub use tally::{Bin, Tally};
pub use timeline::{Failure, Loss, Meeting, MeetingEnd, Names, Requests, Rollout, Timeline};
pub use timers::{Made, SYN_SENT, Timers, slack};
pub use translation::Translation;

pub use trials::{Intervened, Trial};

use lanes::Lanes;
use requests::Ledger;
use trials::Trials;

use crate::model::{
    ClusterEvent, Event, EventKind, Lookup, MonoNs, NetnsId, NetnsRole, RolloutChange, Seq,
    SockState, TcpStateEvent, TraceHeader, Tuple, Workload,
};

/// How far events may come out of order without being taken for something else.
const SETTLE: Duration = Duration::from_secs(1);

/// Reads a trace, event by event. Holds what is open within an entry's lifetime, and what a verdict needs.
#[derive(Clone, Debug)]
pub struct Correlator {
    began: MonoNs,
    now: MonoNs,
    places: Places,
    timers: Timers,
    slack: Duration,
    lanes: Lanes,
    pods: Pods,
    endpoints: Endpoints,
    ledger: Ledger,
    unported: unported::Recent,
    connects: connects::Connects,
    workloads: BTreeMap<u64, Workload>,
    trials: Trials,
    tally: Tally,
    sample: Sample,
    renewal: Renewal,
    translation: Translation,
    kept: Kept,
    rollouts: Vec<Rollout>,
    losses: Vec<Loss>,
    closes: (u64, u64),
    packets: u64,
    socket_changes: u64,
    counters: BTreeMap<&'static str, u64>,
}

/// What stays to the end.
#[derive(Clone, Debug, Default)]
struct Kept {
    failures: Vec<Failure>,
    meetings: Vec<Meeting>,
    entries: Vec<Entry>,
    /// Entries whose life is over and that are about to be kept or forgotten.
    candidates: Vec<Entry>,
}

/// Where the client-side entries are.
#[derive(Clone, Debug)]
struct Places {
    services: HashSet<SocketAddr, FixedState>,
    client_nodes: HashSet<NetnsId, FixedState>,
}

impl Correlator {
    /// A correlator for a trace with this header.
    pub fn new(header: &TraceHeader) -> Correlator {
        let client_nodes = header
            .netns
            .iter()
            .filter(|netns| netns.role == NetnsRole::ClientNode)
            .map(|netns| netns.id)
            .collect();
        Correlator {
            began: header.began,
            now: header.began,
            places: Places { services: header.services.iter().copied().collect(), client_nodes },
            timers: Timers::new(header),
            slack: slack(header),
            lanes: Lanes::default(),
            pods: Pods::default(),
            endpoints: Endpoints::default(),
            ledger: Ledger::default(),
            unported: unported::Recent::new(header),
            connects: connects::Connects::default(),
            workloads: BTreeMap::new(),
            trials: Trials::default(),
            tally: Tally::new(header.began),
            sample: Sample::new(header.began),
            renewal: Renewal::default(),
            translation: Translation::default(),
            kept: Kept::default(),
            rollouts: Vec::new(),
            losses: Vec::new(),
            closes: (0, 0),
            packets: 0,
            socket_changes: 0,
            counters: BTreeMap::new(),
        }
    }

    /// Takes the next event.
    pub fn apply(&mut self, seq: Seq, event: &Event) {
        let seen = Seen { time: event.time, seq };
        self.now = self.now.max(event.time);
        match &event.kind {
            EventKind::Packet(packet) => {
                self.packets += 1;
                self.packet(seen, packet);
            }
            EventKind::TcpState(state) => {
                self.socket_changes += 1;
                self.tcp_state(seen, state);
            }
            EventKind::Cluster { change, since } => {
                self.count("cluster changes");
                self.cluster(seen, change, (*since).min(event.time));
            }
            EventKind::RequestStarted(started) => {
                self.request_started(seen, started);
            }
            EventKind::RequestEnded(ended) => {
                self.trials.request_ended(seen, ended);
                self.request_ended(seen, ended);
            }
            EventKind::Conntrack(change) => self.table_changed(seen, change),
            EventKind::Intervention(what) => self.trials.begin(seen, what),
            EventKind::SysctlSet { netns, name, value } => {
                if name == SYN_SENT {
                    self.timers.set(*netns, event.time, value);
                }
            }
            EventKind::Lost { source, count, since } => self.losses.push(Loss {
                source: *source,
                count: *count,
                from: *since,
                to: event.time,
            }),
            // That time went on until here is all it says.
            EventKind::Ended => {}
            EventKind::Connect(connect) => self.connect_ended(seen, connect),
            EventKind::Workload(workload) => {
                self.workloads.insert(workload.cgroup, workload.clone());
            }
        }
        self.settle_due();
        self.sweep();
    }

    /// The timeline of all that was applied.
    pub fn finish(mut self) -> Timeline {
        self.settle_all();
        let mut counters = std::mem::take(&mut self.counters);
        counters.insert("packets", self.packets);
        counters.insert("socket changes", self.socket_changes);
        let mut kept = self.kept;
        kept.failures.sort_by_key(|failure| (failure.start, failure.ended.id));
        kept.meetings.sort_by_key(|meeting| (meeting.attempt.first, meeting.attempt.orig));
        kept.entries.sort_by_key(|entry| (entry.made, entry.shown, entry.orig));
        Timeline {
            began: self.began,
            ended: self.now,
            pods: self.pods,
            endpoints: self.endpoints,
            rollouts: self.rollouts,
            failures: kept.failures,
            meetings: kept.meetings,
            entries: kept.entries,
            tally: self.tally,
            sample: self.sample,
            requests: self.ledger.into_counts(),
            losses: self.losses,
            renewal: self.renewal,
            translation: self.translation,
            closes: self.closes,
            workloads: self.workloads,
            interventions: self.trials.finish(),
            counters,
        }
    }

    /// How many client ends it holds something of.
    #[cfg(test)]
    fn open(&self) -> usize {
        self.lanes.len()
    }

    fn count(&mut self, what: &'static str) {
        *self.counters.entry(what).or_default() += 1;
    }

    /// Whether a lookup is that of the client-side entry: for a Service, in the client's node where the
    /// header says which that is. A pod's own node has an entry for the same flow, to the pod's address.
    fn is_client_side(&self, netns: NetnsId, lookup: &Lookup) -> bool {
        let Places { services, client_nodes } = &self.places;
        let place = client_nodes.is_empty() || client_nodes.contains(&netns);
        place
            && if services.is_empty() {
                lookup.is_translated()
            } else {
                self.is_service(lookup.orig.dst)
            }
    }

    fn is_service(&self, address: SocketAddr) -> bool {
        self.places.services.contains(&address) || self.endpoints.is_service(address)
    }

    fn cluster(&mut self, now: Seen, change: &ClusterEvent, since: MonoNs) {
        match change {
            ClusterEvent::Pod { name, app, node, address, change } => {
                self.pods.apply(now, (name, app, node), *address, *change, since);
            }
            ClusterEvent::Endpoint { frontend, backend, change, .. } => {
                self.endpoints.apply(now.time, *frontend, *backend, *change);
            }
            ClusterEvent::Rollout { deployment, change } => self.rollout(now, deployment, *change),
        }
    }

    fn rollout(&mut self, now: Seen, deployment: &str, change: RolloutChange) {
        let mut open: Vec<&mut Rollout> = self
            .rollouts
            .iter_mut()
            .filter(|rollout| rollout.deployment == deployment && rollout.finished.is_none())
            .collect();
        match change {
            // A rollout that another one overtook ends with it.
            RolloutChange::Finished if !open.is_empty() => {
                for rollout in &mut open {
                    rollout.finished = Some(now);
                }
            }
            RolloutChange::Started | RolloutChange::Finished => {
                let started = matches!(change, RolloutChange::Started).then_some(now);
                let finished = started.is_none().then_some(now);
                let deployment = deployment.to_owned();
                self.rollouts.push(Rollout { deployment, started, finished });
            }
        }
    }

    fn tcp_state(&mut self, now: Seen, state: &TcpStateEvent) {
        if !self.places.services.is_empty() && !self.is_service(state.tuple.dst) {
            self.count("socket changes of others");
            return;
        }
        match (state.old, state.new) {
            (SockState::Close, SockState::SynSent) => self.connect_began(now),
            (SockState::Established, SockState::FinWait1) => {
                self.closes.0 += 1;
                self.closed(now, state.tuple, ClosedBy::Client);
            }
            (SockState::Established, SockState::CloseWait) => {
                self.closes.1 += 1;
                self.closed(now, state.tuple, ClosedBy::Server);
            }
            // Without a FIN of either side: a RST came, or the client threw the connection away.
            (SockState::Established, SockState::Close) => {
                self.closed(now, state.tuple, ClosedBy::Reset);
            }
            (SockState::SynSent, SockState::Established) => self.socket_connected(now, state.tuple),
            _ => {}
        }
    }

    /// A client's socket is connected, so its SYN was answered, through the entry that it made or met. For a client in the
    /// node's own namespace this is all that tells: the answer goes to no device of that namespace any more.
    fn socket_connected(&mut self, now: Seen, tuple: Tuple) {
        let lane = self.lanes.lane(tuple);
        let latest = lane.and_then(|lane| Some((lane.attempts.last_mut()?, &mut lane.entries)));
        let Some((attempt, entries)) = latest else {
            self.count("connected without a SYN seen");
            return;
        };
        attempt.connected = Some(now);
        let Some(backend) = attempt.backend() else { return };
        for entry in entries.iter_mut().filter(|it| it.backend == backend && it.ended.is_none()) {
            entry.replied = true;
            entry.expires = None;
        }
        self.pods.accepted(backend.ip(), now);
    }

    /// The latest connection of the tuple has ended: a port is not used again before.
    fn closed(&mut self, now: Seen, tuple: Tuple, by: ClosedBy) {
        let latest = self.lanes.lane(tuple).and_then(|lane| lane.attempts.last_mut());
        let Some(attempt) = latest else { return };
        attempt.close.get_or_insert(Close { seen: now, by });
        // A pod that serves its kept connections only says by their ends how long it was there.
        if by == ClosedBy::Server
            && attempt.kept.is_some()
            && let Some(backend) = attempt.backend()
        {
            self.pods.answered(backend.ip(), now);
        }
    }
}
