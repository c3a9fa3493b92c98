//! Whether the backend of an entry was gone at a given moment, and who has its address then.

use std::net::SocketAddr;
use std::time::Duration;

use crate::correlate::{Entry, GoneBy, PodLife, Timeline};
use crate::model::MonoNs;

/// A backend that was gone.
#[derive(Clone, Copy, Debug)]
pub struct Gone<'a> {
    /// The pod that had its address when the entry was made.
    pub pod: &'a PodLife,
    /// Since when it was gone.
    pub since: MonoNs,
    /// How that is known.
    pub by: GoneBy,
}

/// The pod behind `backend` when an entry to it was `made`, if it was gone `at` a later time. Where pods
/// share an address, all of them must be gone.
pub fn gone(
    timeline: &Timeline,
    backend: SocketAddr,
    made: MonoNs,
    at: MonoNs,
) -> Option<Gone<'_>> {
    let owners = timeline.pods.owners(backend.ip(), made);
    let mut gone = None;
    for pod in owners {
        let by = pod.gone_by(at)?;
        gone = Some(Gone { pod, since: pod.gone()?, by });
    }
    gone
}

/// Another pod that has the address of a pod that is gone.
pub fn heir<'a>(
    timeline: &'a Timeline,
    backend: SocketAddr,
    gone: &Gone<'_>,
    at: MonoNs,
) -> Option<&'a PodLife> {
    let now = timeline.pods.owner(backend.ip(), at)?;
    let other = now.name != gone.pod.name || now.added != gone.pod.added;
    (other && now.gone_by(at).is_none()).then_some(now)
}

/// An entry that was alive while its backend was gone: stale.
#[derive(Clone, Debug)]
pub struct StaleEntry<'a> {
    /// The entry.
    pub entry: &'a Entry,
    /// The pod.
    pub pod: &'a PodLife,
    /// Since when the pod was gone.
    pub gone: MonoNs,
}

/// Every entry of the timeline that was stale at some time of its life.
pub fn stale_entries(timeline: &Timeline) -> Vec<StaleEntry<'_>> {
    timeline
        .entries
        .iter()
        .filter_map(|entry| {
            let made = entry.made.unwrap_or(entry.shown.time);
            // The last moment at which it was in the table; what expires at that moment no longer matches.
            let end = entry.end().unwrap_or(timeline.ended).min(timeline.ended);
            let end = end - Duration::from_nanos(1);
            let gone = gone(timeline, entry.backend, made, end)?;
            Some(StaleEntry { entry, pod: gone.pod, gone: gone.since })
        })
        .collect()
}
