//! What kubectl printed to events: few enough to be kept, and so put in order at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::requests::unix;
use super::scout::Scouted;
use crate::codec::watch::{Change, Endpoint, Reader, When};
use crate::files::{FileError, Input, TextReader};
use crate::model::{ClusterEvent, EndpointChange, Event, EventKind, LossSource, MonoNs, WallNs};

/// All changes of the cluster that files tell of.
#[derive(Debug, Default)]
pub(super) struct Changes {
    told: Vec<(ClusterEvent, When)>,
    endpoints: Vec<(Endpoint, When)>,
    earlier: Vec<(ClusterEvent, When)>,
    fronts: BTreeMap<(String, String), SocketAddr>,
    /// Places at which it is not known what happened.
    gaps: u64,
    notes: Vec<String>,
}

impl Changes {
    pub(super) fn read(paths: &[PathBuf]) -> Result<Changes, FileError> {
        let mut changes = Changes::default();
        for path in paths {
            let mut reader = TextReader::new(Input::open(path)?, Reader::default());
            for told in &mut reader {
                let told = told?;
                changes.take(told.change, told.when);
            }
            let shown = path.display();
            for (reason, passed) in reader.text().counts().unread.reasons() {
                let count = passed.count;
                // An object of a kind that nothing is asked of hides nothing.
                if !reason.starts_with("objects of kind") {
                    changes.gaps += count;
                }
                changes.notes.push(format!("{shown}: {count} objects not read: {reason}"));
            }
            if reader.input().cut_short() {
                changes.gaps += 1;
                changes.notes.push(format!("{shown} is cut short"));
            }
        }
        Ok(changes)
    }

    fn take(&mut self, change: Change, when: When) {
        match change {
            Change::Cluster(event) => self.told.push((event, when)),
            Change::Endpoint(endpoint) => self.endpoints.push((endpoint, when)),
            Change::Service(service) => {
                for (port, front) in service.frontends {
                    self.fronts.entry((service.service.clone(), port)).or_insert(front);
                }
            }
            Change::EarlierRollout { deployment, change } => {
                self.earlier.push((ClusterEvent::Rollout { deployment, change }, when));
            }
            Change::Remark(_) => {}
            Change::Gap { message } => {
                self.gaps += 1;
                self.notes.push(format!("a watch broke off: {message}"));
            }
        }
    }

    /// Whether pods are told of.
    pub(super) fn has_pods(&self) -> bool {
        self.told.iter().any(|(event, _)| matches!(event, ClusterEvent::Pod { .. }))
    }

    /// Whether a rollout is told of, one before the recording not counted.
    pub(super) fn has_rollouts(&self) -> bool {
        self.told.iter().any(|(event, _)| matches!(event, ClusterEvent::Rollout { .. }))
    }

    /// The earliest moment of any change, for a recording that has nothing else.
    pub(super) fn began(&self) -> Option<MonoNs> {
        self.told.iter().filter_map(|(_, when)| when.from).min().map(unix)
    }

    /// The events of a recording that began then: those with a time, in order, and those of which only the
    /// recording's end is known to come after them. Whose Service's address nobody tells are left out, and
    /// the notes say so.
    pub(super) fn events(
        self,
        began: MonoNs,
        apart: Duration,
        scouted: &Scouted,
        services: &[SocketAddr],
    ) -> Placed {
        let Changes { mut told, endpoints, earlier, mut fronts, gaps, mut notes } = self;
        let start = WallNs(i64::try_from(began.0).unwrap_or(i64::MAX));
        for (endpoint, _) in &endpoints {
            if let Some(front) = scouted.fronts.get(&endpoint.backend) {
                fronts.entry((endpoint.service.clone(), endpoint.port.clone())).or_insert(*front);
            }
        }
        let names: BTreeSet<(String, String)> = endpoints
            .iter()
            .map(|(endpoint, _)| (endpoint.service.clone(), endpoint.port.clone()))
            .collect();
        if let ([service], 1) = (services, names.len()) {
            fronts.extend(names.iter().map(|name| (name.clone(), *service)));
        }
        let mut nameless = BTreeSet::new();
        for (endpoint, when) in endpoints {
            match fronts.get(&(endpoint.service.clone(), endpoint.port.clone())) {
                Some(front) => told.push((endpoint.at(*front), when)),
                None => _ = nameless.insert(endpoint.service),
            }
        }
        if !nameless.is_empty() {
            let names = nameless.into_iter().collect::<Vec<_>>().join(", ");
            notes.push(format!(
                "the endpoints of {names} were left out: no file tells the Service's address \
                 (kubectl get services -o json, or --service)"
            ));
        }
        told.extend(
            earlier.into_iter().filter(|(_, when)| when.from.is_some_and(|at| start <= at)),
        );
        let mut placed = Placed { notes, gaps, ..Placed::default() };
        for (change, when) in told {
            let (from, to) = when.between(start, start, apart);
            // What was so before the recording is so from its beginning on.
            let time = unix(to).max(began);
            let event =
                Event { time, kind: EventKind::Cluster { change, since: unix(from).min(time) } };
            if when.to.is_some() { placed.timed.push(event) } else { placed.open.push(event) }
        }
        placed.timed.sort_by_key(|event| (event.time, is_listing(event)));
        placed
    }
}

/// Of changes at one time, those of a pod come before those of the endpoints.
fn is_listing(event: &Event) -> bool {
    let EventKind::Cluster { change, .. } = &event.kind else { return false };
    matches!(change, ClusterEvent::Endpoint { change: EndpointChange::Listed { .. }, .. })
}

/// Changes with their places in the recording.
#[derive(Debug, Default)]
pub(super) struct Placed {
    /// In the order of their times.
    pub(super) timed: Vec<Event>,
    /// Those that can have happened until the recording's end.
    open: Vec<Event>,
    gaps: u64,
    pub(super) notes: Vec<String>,
}

impl Placed {
    /// What can be said only at the recording's end.
    pub(super) fn at_the_end(self, began: MonoNs, ended: MonoNs) -> Vec<Event> {
        let mut events = self.open;
        for event in &mut events {
            event.time = ended;
        }
        if self.gaps > 0 {
            let (source, count) = (LossSource::Cluster, self.gaps);
            let kind = EventKind::Lost { source, count, since: began };
            events.push(Event { time: ended, kind });
        }
        events
    }
}
