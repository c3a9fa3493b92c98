//! What `kubectl get pods|endpointslices|deployments|replicasets|services|events -o json` prints, with or without
//! `-w` and `--output-watch-events`, lists and single objects: states of objects, one after the other. Of each
//! state only what it tells beyond the states before becomes a [`Told`].
//!
//! The files have no times of arrival; see [`When`] for what the objects' own times are worth. How each change
//! is found:
//!
//! - *Added*: the pod has an address; between its sandbox's making and its first container's start.
//! - *Ready*, *NotReady*: the condition Ready turned.
//! - *Asked*: `deletionTimestamp` less `deletionGracePeriodSeconds`.
//! - *Deleted*: the DELETED event, or in a stream without types the last state, with no grace and no finalizers
//!   left: the object goes with the request that wrote it. Where a person forced it, the pod may outlive it.
//! - *Rollout started*: the pod template is another than before.
//! - *Rollout finished*: the first state after that for which `kubectl rollout status` would return; see
//!   [`DeploymentState`].
//! - *Endpoint*: what the slices list, and their conditions.
//!
//! Pods that only one state shows tell no more than that they are there.

mod endpoints;
mod object;
mod pods;
mod rollout;
mod split;
mod told;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Step;
use super::unread::Unread;
use endpoints::Slices;
use pods::Pods;
use rollout::Rollouts;
use split::{Objects, Piece};

pub use rollout::{DeploymentState, RolloutStatus};
pub use told::{Change, Endpoint, Remark, Service, Told, When};

/// Reads a stream of objects from bytes as they come. Holds one object, and a few words of each pod that is
/// there.
#[derive(Debug, Default)]
pub struct Reader {
    objects: Objects,
    state: State,
}

/// What was read on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Objects that were read.
    pub objects: u64,
    /// What could not be read, kinds that nothing is known of among it.
    pub unread: Unread,
}

#[derive(Debug, Default)]
struct State {
    pods: Pods,
    slices: Slices,
    rollouts: Rollouts,
    told: VecDeque<Told>,
    counts: Counts,
    ended: bool,
}

impl Reader {
    /// Adds bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.objects.feed(bytes);
    }

    /// Says that there are no more bytes.
    pub fn close(&mut self) {
        self.objects.close();
    }

    /// What was read so far.
    pub fn counts(&self) -> &Counts {
        &self.state.counts
    }

    /// The next change.
    pub fn step(&mut self) -> Step<Told> {
        loop {
            if let Some(told) = self.state.told.pop_front() {
                return Step::Item(told);
            }
            match self.objects.next() {
                Step::Item(piece) => self.state.take(&piece),
                Step::More => return Step::More,
                Step::End if self.state.ended => return Step::End,
                Step::End => self.state.finish(),
            }
        }
    }
}

/// The same of states that come one by one, as a client of the API has them: each with its kind, which the items
/// of a list do not say themselves.
#[derive(Debug, Default)]
pub struct Live {
    state: State,
}

impl Live {
    /// What this state of an object tells that the ones before did not; its last one, if it was deleted.
    ///
    /// # Errors
    /// Why it could not be read.
    pub fn take(
        &mut self,
        kind: &str,
        json: &str,
        deleted: bool,
    ) -> Result<Vec<Told>, Cow<'static, str>> {
        let event = if deleted { "DELETED" } else { "MODIFIED" };
        self.state.object(kind, json, event, 0)?;
        Ok(self.state.told.drain(..).collect())
    }
}

/// Whether these first bytes of a file are such a stream: JSON whose first object is a watch event, a list or an
/// object of Kubernetes. A few kilobytes tell.
pub fn looks_like(start: &[u8]) -> bool {
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
    let text = text.strip_prefix(b"[").unwrap_or(text).trim_ascii_start();
    if !text.starts_with(b"{") {
        return false;
    }
    let has = |name: &str| has_key(text, name);
    (has("apiVersion") && has("kind"))
        || (has("apiVersion") && has("items"))
        || (has("apiVersion") && has("metadata"))
        || (has("type") && has("object"))
}

/// Whether a key of this name occurs.
fn has_key(text: &[u8], name: &str) -> bool {
    let quoted = format!("\"{name}\"");
    memchr::memmem::find_iter(text, &quoted)
        .any(|at| text[at + quoted.len()..].trim_ascii_start().starts_with(b":"))
}

/// A watch event, or an object.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
}

/// Of an object what tells how to read it.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
}

impl State {
    fn take(&mut self, piece: &Piece<'_>) {
        if let Err(reason) = self.read(piece) {
            self.counts.unread.count(reason, piece.line);
        }
    }

    fn read(&mut self, piece: &Piece<'_>) -> Result<(), Cow<'static, str>> {
        let json = piece.json.map_err(|error| error.to_string())?;
        let json = std::str::from_utf8(json).map_err(|_| "an object that is no text")?;
        let envelope: Envelope<'_> = parse(json, "an object that is no JSON")?;
        let (event, object) = match (&envelope.kind, envelope.object) {
            (Some(kind), Some(object)) => (kind.as_ref(), object.get()),
            _ => ("", json),
        };
        let is_known =
            matches!(event, "" | "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR");
        if !is_known {
            return Err(format!("a watch event of type {}", short(event)).into());
        }
        let head: Head<'_> = parse(object, "an object that is no JSON")?;
        let kind = head.kind.as_deref().or_else(|| piece.list.as_deref()?.strip_suffix("List"));
        let kind = kind.ok_or("an object without its kind")?;
        self.object(kind, object, event, piece.line)?;
        self.counts.objects += 1;
        Ok(())
    }

    fn object(
        &mut self,
        kind: &str,
        json: &str,
        event: &str,
        line: u64,
    ) -> Result<(), Cow<'static, str>> {
        // A bookmark has nothing but a revision.
        if event == "BOOKMARK" {
            return Ok(());
        }
        let deleted = event == "DELETED";
        match kind {
            "Pod" => {
                let pod: object::Pod = parse(json, "a Pod that is none")?;
                let told = self.pods.take(&pod, deleted);
                let told = told.into_iter().map(|(event, when)| (Change::Cluster(event), when));
                self.tell(told, pod.metadata.revision(), line);
            }
            "Deployment" => {
                let deployment: object::Deployment = parse(json, "a Deployment that is none")?;
                let told = self.rollouts.take(&deployment, deleted);
                self.tell(told, deployment.metadata.revision(), line);
            }
            "ReplicaSet" => {
                let set: object::ReplicaSet = parse(json, "a ReplicaSet that is none")?;
                self.rollouts.replica_set(&set);
            }
            "EndpointSlice" => {
                let slice: object::EndpointSlice = parse(json, "an EndpointSlice that is none")?;
                let told = self.slices.take(&slice, deleted);
                let told = told.into_iter().map(|(told, when)| (Change::Endpoint(told), when));
                self.tell(told, slice.metadata.revision(), line);
            }
            "Service" => {
                let service: object::Service = parse(json, "a Service that is none")?;
                let when = When::at(service.metadata.created());
                let told = endpoints::frontends(&service).filter(|_| !deleted);
                let told = told.map(|told| (Change::Service(told), when));
                self.tell(told, service.metadata.revision(), line);
            }
            "Event" => {
                let event: object::Event = parse(json, "an Event that is none")?;
                if !deleted {
                    let (remark, when) = remark(&event);
                    self.tell([(Change::Remark(remark), when)], event.metadata.revision(), line);
                }
            }
            "Status" => {
                let status: object::Status = parse(json, "a Status that is none")?;
                let message = status.message.unwrap_or_default();
                self.tell([(Change::Gap { message }, When::default())], None, line);
            }
            other => return Err(format!("objects of kind {}", short(other)).into()),
        }
        Ok(())
    }

    fn tell(
        &mut self,
        told: impl IntoIterator<Item = (Change, When)>,
        revision: Option<u64>,
        line: u64,
    ) {
        let told = told.into_iter().map(|(change, when)| Told { change, when, revision, line });
        self.told.extend(told);
    }

    fn finish(&mut self) {
        self.ended = true;
        let told = self.rollouts.finish();
        self.tell(told, None, 0);
    }
}

fn remark(event: &object::Event) -> (Remark, When) {
    let about = &event.involved_object;
    let name =
        object::in_namespace(about.namespace.as_deref(), about.name.as_deref().unwrap_or(""));
    let remark = Remark {
        about: format!("{} {name}", about.kind.as_deref().unwrap_or("object")),
        reason: event.reason.clone().unwrap_or_default(),
        message: event.message.clone().unwrap_or_default(),
    };
    // An Event that counts repetitions has its first and its last time; the remark was first made at the first.
    let times = [&event.event_time, &event.first_timestamp, &event.last_timestamp];
    let first = times.iter().find_map(|time| time.as_ref()?.stamp());
    (remark, When::at(first.or(event.metadata.created())))
}

fn parse<'a, T: Deserialize<'a>>(
    json: &'a str,
    reason: &'static str,
) -> Result<T, Cow<'static, str>> {
    serde_json::from_str(json).map_err(|_| Cow::Borrowed(reason))
}

/// As much of a foreign word as a counter's name may hold.
fn short(word: &str) -> String {
    word.chars().filter(|c| !c.is_control()).take(40).collect()
}
