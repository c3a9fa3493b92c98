//! Interventions, and how the next connects ended on what was treated and on what was not.
//!
//! Where entries are treated, one counts once: the first request on its port after the intervention, since a second one
//! on the same entry would tell nothing new. Where source ports are, each request counts.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use foldhash::fast::FixedState;

use super::pods::Seen;
use crate::model::{Intervention, MonoNs, RequestEnded, Reuse, Symptom};

/// An entry's expiry is read between two ticks: what starts this soon after it tells nothing.
const MARGIN: Duration = Duration::from_millis(100);

/// An intervention and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intervened {
    /// When.
    pub seen: Seen,
    /// What.
    pub what: Intervention,
    /// In the order in which they ended.
    pub trials: Vec<Trial>,
}

/// The first request on an entry's port that came within the time that the entry was to live; or, where the intervention
/// is one of source ports, any request with a connection of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Whether the intervention had removed the entry by then, or the client had chosen the port itself.
    pub treated: bool,
    /// Whether the request failed.
    pub failed: bool,
    /// The client's end.
    pub source: SocketAddr,
    /// The request's start.
    pub start: MonoNs,
    /// The request's end.
    pub end: Seen,
}

/// What trials are waited for.
#[derive(Clone, Debug, Default)]
pub(super) struct Trials {
    all: Vec<Intervened>,
    /// By the client's end: which intervention, from when to when, and whether treated.
    flushed: HashMap<SocketAddr, (usize, MonoNs, MonoNs, bool), FixedState>,
    timer: Option<Timer>,
    ports: Option<Ports>,
}

/// Source ports that the client chooses itself.
#[derive(Clone, Debug)]
struct Ports {
    nth: usize,
    since: MonoNs,
    chosen: RangeInclusive<u16>,
}

/// A timer that was set on purpose.
#[derive(Clone, Debug)]
struct Timer {
    nth: usize,
    since: MonoNs,
    before: Duration,
    after: Duration,
    /// By the client's end: when the connect without an answer started that made an entry.
    made: HashMap<SocketAddr, Made, FixedState>,
}

#[derive(Clone, Copy, Debug)]
struct Made {
    start: MonoNs,
    /// Whether a trial was seen while the entry lived.
    is_tried: bool,
}

impl Trials {
    pub(super) fn begin(&mut self, seen: Seen, what: &Intervention) {
        let nth = self.all.len();
        match what {
            Intervention::Flush { entries, .. } => {
                for entry in entries {
                    let until = seen.time + entry.left;
                    self.flushed.insert(entry.orig.src, (nth, seen.time, until, entry.treated));
                }
            }
            Intervention::Timeout { before, after, .. } => {
                let (before, after) = (*before, *after);
                let made = HashMap::default();
                self.timer = Some(Timer { nth, since: seen.time, before, after, made });
            }
            Intervention::Ports { first, last, .. } => {
                self.ports = Some(Ports { nth, since: seen.time, chosen: *first..=*last });
            }
        }
        self.all.push(Intervened { seen, what: what.clone(), trials: Vec::new() });
    }

    pub(super) fn request_ended(&mut self, end: Seen, ended: &RequestEnded) {
        let Some(source) = ended.source else { return };
        if matches!(ended.reuse, Reuse::KeepAlive { nth: 1.. }) {
            return;
        }
        let start = end.time - ended.total;
        let symptom = ended.outcome.symptom();
        let failed = symptom.is_some();
        if let Some((nth, since, until, treated)) = self.flushed.get(&source).copied()
            && since < start
        {
            self.flushed.remove(&source);
            if start < until {
                self.all[nth].trials.push(Trial { treated, failed, source, start, end });
            }
        }
        if let Some(ports) = self.ports.as_ref().filter(|ports| ports.since < start) {
            let treated = ports.chosen.contains(&source.port());
            self.all[ports.nth].trials.push(Trial { treated, failed, source, start, end });
        }
        let Some(timer) = &mut self.timer else { return };
        if let Some(treated) = timer.trial(source, start, end.time) {
            self.all[timer.nth].trials.push(Trial { treated, failed, source, start, end });
        }
        let unanswered = matches!(symptom, Some(Symptom::ConnectTimeout | Symptom::Unreachable));
        if unanswered && start > timer.since && !timer.made.contains_key(&source) {
            let before = timer.before;
            timer.made.retain(|_, made| end.time < made.start + before);
            timer.made.insert(source, Made { start, is_tried: false });
        }
    }

    pub(super) fn finish(self) -> Vec<Intervened> {
        self.all
    }
}

impl Timer {
    /// Whether a request on this port is a trial, and whether of an entry that had expired by then and under
    /// the old timer would not have.
    fn trial(&mut self, source: SocketAddr, start: MonoNs, end: MonoNs) -> Option<bool> {
        let made = self.made.get_mut(&source)?;
        let expired = made.start + self.after;
        if end < expired {
            return (!std::mem::replace(&mut made.is_tried, true)).then_some(false);
        }
        if start < expired + MARGIN {
            return None;
        }
        let would_live = start < made.start + self.before;
        self.made.remove(&source);
        would_live.then_some(true)
    }
}
