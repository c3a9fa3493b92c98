//! Backends that stop answering: where nothing tells of pods, all that tells that one is gone.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use foldhash::fast::FixedState;

use crate::model::{ClusterEvent, Event, EventKind, MonoNs, PodChange};

/// A backend that has answered nobody for this long after a connect is silent. A lost SYN is sent again after a
/// second, and its answer is back within the next.
const SILENT: Duration = Duration::from_secs(2);
/// How often backends are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// An address that nobody asked and that answered nobody for this long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// The backends, by address.
#[derive(Debug, Default)]
pub(super) struct Backends {
    known: HashMap<IpAddr, Backend, FixedState>,
    looked: MonoNs,
}

#[derive(Debug, Default)]
struct Backend {
    /// The first connect since its last answer.
    unanswered: Option<MonoNs>,
    last_answer: MonoNs,
    touched: MonoNs,
    /// Whether its silence was told.
    told: bool,
}

impl Backends {
    /// A SYN went to it.
    pub(super) fn asked(&mut self, address: IpAddr, time: MonoNs) {
        let backend = self.known.entry(address).or_default();
        backend.touched = time;
        if time > backend.last_answer {
            backend.unanswered.get_or_insert(time);
        }
    }

    /// An address answered.
    pub(super) fn answered(&mut self, address: IpAddr, time: MonoNs) {
        if let Some(backend) = self.known.get_mut(&address) {
            backend.unanswered = None;
            backend.last_answer = backend.last_answer.max(time);
            backend.touched = time;
            backend.told = false;
        }
    }

    /// Whether an address has answered anybody since.
    pub(super) fn has_answered(&self, address: IpAddr, since: MonoNs) -> bool {
        self.known.get(&address).is_some_and(|backend| backend.last_answer >= since)
    }

    /// Those that are silent by now and were not before.
    pub(super) fn silent(&mut self, now: MonoNs) -> Vec<Event> {
        if now.since(self.looked) < LOOK {
            return Vec::new();
        }
        self.looked = now;
        self.known.retain(|_, backend| now.since(backend.touched) < FORGOTTEN);
        let mut silent: Vec<(MonoNs, IpAddr)> = Vec::new();
        for (address, backend) in &mut self.known {
            if let Some(since) = backend.unanswered
                && !backend.told
                && now.since(since) >= SILENT
            {
                backend.told = true;
                silent.push((since, *address));
            }
        }
        silent.sort();
        let event = |(since, address): (MonoNs, IpAddr)| Event {
            time: now,
            kind: EventKind::Cluster {
                change: ClusterEvent::Pod {
                    name: address.to_string(),
                    app: String::new(),
                    node: String::new(),
                    address: Some(address),
                    change: PodChange::Silent { since },
                },
                since: now,
            },
        };
        silent.into_iter().map(event).collect()
    }
}
