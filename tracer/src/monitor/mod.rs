//! Continuous tracing: of the last while events are kept, each rollout is judged when the last entry that it may have left
//! is gone, by the same rooms as a recorded trace.
//! Deliberately absent: clocks, threads, and telling anybody.

mod rollouts;
mod standing;
mod window;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

pub use rollouts::{Due, Rollouts};
pub use standing::Standing;
pub use window::Window;

use crate::correlate::Correlator;
use crate::model::{
    ClusterEvent, Event, EventKind, MonoNs, RolloutChange, Seq, Sysctl, TraceHeader,
};
use crate::report::{Report, view};
use crate::verdict;

/// How long after the last entry can have expired a rollout is judged: what ends then, ends with a client's timeout.
const MARGIN: Duration = Duration::from_secs(15);
/// How long an unanswered entry lives where no sysctl tells (`nf_conntrack_tcp_timeout_syn_sent`).
const LIFE: Duration = Duration::from_secs(120);

/// A rollout that was judged.
#[derive(Debug)]
pub struct Judged {
    /// The Deployment.
    pub deployment: String,
    /// What is said of it.
    pub report: Report,
    /// The header of the trace that it was judged by.
    pub header: TraceHeader,
    /// From when on events mattered to it.
    pub from: MonoNs,
}

/// The last while, and the rollouts in it.
#[derive(Debug)]
pub struct Monitor {
    header: TraceHeader,
    judging: verdict::Settings,
    window: Window,
    standing: Standing,
    rollouts: Rollouts,
    now: MonoNs,
}

impl Monitor {
    /// With a header as a trace would have it, and at most so many bytes of events.
    pub fn new(header: TraceHeader, judging: verdict::Settings, most: usize) -> Monitor {
        let after = life(&header.sysctls) + judging.late_after + MARGIN;
        Monitor {
            now: header.began,
            header,
            judging,
            window: Window::new(most),
            standing: Standing::default(),
            rollouts: Rollouts::new(after),
        }
    }

    /// Takes the next event, in order.
    pub fn accept(&mut self, event: &Event) {
        self.now = self.now.max(event.time);
        if let EventKind::Cluster { change: ClusterEvent::Rollout { deployment, change }, .. } =
            &event.kind
        {
            match change {
                RolloutChange::Started => self.rollouts.start(deployment, event.time),
                RolloutChange::Finished => self.rollouts.finish(deployment, event.time),
            }
        }
        let standing = &mut self.standing;
        self.window.push(event, &mut |gone| standing.apply(gone));
    }

    /// Judges what can be judged at this time, and forgets what nothing needs any more.
    pub fn tick(&mut self, now: MonoNs) -> Vec<Judged> {
        self.now = self.now.max(now);
        let due = self.rollouts.due(self.now);
        let judged = self.judge_all(due);
        let before = self.rollouts.needed_from(self.now);
        let standing = &mut self.standing;
        self.window.forget(before, &mut |gone| standing.apply(gone));
        judged
    }

    /// Judges what is open, as far as it came.
    pub fn judge_open(&mut self) -> Vec<Judged> {
        let all = self.rollouts.all();
        self.judge_all(all)
    }

    /// Bytes of events in memory.
    pub fn bytes(&self) -> usize {
        self.window.bytes()
    }

    /// Rollouts that are not judged yet.
    pub fn open(&self) -> usize {
        self.rollouts.open()
    }

    /// Shows the events that a rollout was judged by, to keep them. Only until the next [`Monitor::tick`].
    pub fn replay(&mut self, judged: &Judged, sink: &mut dyn FnMut(&Event)) {
        self.events(&judged.deployment, judged.from, sink);
    }

    fn judge_all(&mut self, due: Vec<Due>) -> Vec<Judged> {
        due.into_iter().map(|due| self.judge(due)).collect()
    }

    fn judge(&mut self, Due { deployment, from }: Due) -> Judged {
        let from = from.max(self.header.began);
        let services = self.services(&deployment, from);
        let header = TraceHeader { began: from, services, ..self.header.clone() };
        let mut correlator = Correlator::new(&header);
        let mut seq = Seq(0);
        self.events(&deployment, from, &mut |event| {
            correlator.apply(seq, event);
            seq = Seq(seq.0 + 1);
        });
        let timeline = correlator.finish();
        let verdict = verdict::assess(&header, &timeline, &self.judging);
        let report = view::build(&header, &timeline, &verdict);
        Judged { deployment, report, header, from }
    }

    /// What stood at a time, and what came from then on; of rollouts those of one Deployment.
    fn events(&mut self, deployment: &str, from: MonoNs, sink: &mut dyn FnMut(&Event)) {
        self.standing.replay(from, sink);
        self.window.replay(from, &mut |event| match &event.kind {
            EventKind::Cluster {
                change: ClusterEvent::Rollout { deployment: other, .. }, ..
            } if other != deployment => {}
            _ => sink(event),
        });
        sink(&Event { time: self.now, kind: EventKind::Ended });
    }

    /// The Services that led to this Deployment's pods; where none is known to, those that the header has.
    fn services(&mut self, deployment: &str, from: MonoNs) -> Vec<SocketAddr> {
        let mut pods: BTreeSet<IpAddr> = BTreeSet::new();
        let mut ends: BTreeSet<(SocketAddr, SocketAddr)> = BTreeSet::new();
        let mut look = |event: &Event| match &event.kind {
            EventKind::Cluster { change: ClusterEvent::Pod { name, address, .. }, .. }
                if deployment_of(name) == Some(deployment) =>
            {
                pods.extend(address);
            }
            EventKind::Cluster {
                change: ClusterEvent::Endpoint { frontend, backend, .. }, ..
            } => {
                ends.insert((*frontend, *backend));
            }
            _ => {}
        };
        self.standing.replay(from, &mut look);
        self.window.replay(from, &mut look);
        let of_pods = ends.into_iter().filter(|(_, backend)| pods.contains(&backend.ip()));
        let services: BTreeSet<SocketAddr> = of_pods.map(|(frontend, _)| frontend).collect();
        if services.is_empty() {
            self.header.services.clone()
        } else {
            services.into_iter().collect()
        }
    }
}

/// The Deployment that a pod belongs to by its name: `web-6c5f7d9b8-4xkqp` is one of `web` (the ReplicaSet's hash and the
/// pod's own, pkg/controller/deployment/sync.go and k8s.io/apiserver/pkg/storage/names).
fn deployment_of(pod: &str) -> Option<&str> {
    let (replica_set, _) = pod.rsplit_once('-')?;
    replica_set.rsplit_once('-').map(|(deployment, _)| deployment)
}

/// The longest that an unanswered entry may live, by these sysctls.
fn life(sysctls: &[Sysctl]) -> Duration {
    let timers = sysctls.iter().filter(|sysctl| sysctl.name == crate::correlate::SYN_SENT);
    let longest = timers.filter_map(|sysctl| sysctl.value.parse().ok()).max();
    longest.map_or(LIFE, Duration::from_secs)
}
