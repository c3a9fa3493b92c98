//! What is changed on purpose in a lab that runs.

use std::time::Duration;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::plan::{Family, Node};
use super::truth::Span;
use super::{Lab, LabError, Sink};
use crate::model::{Event, EventKind, FlushedEntry, Intervention};
use crate::sys::conntrack::{Conntrack, TableEntry};
use crate::sys::{clock, sysctl};

/// The stream of the random choices for a flush; those of the rules' lags have lower numbers.
const STREAM: u64 = u64::MAX;

impl Lab {
    /// Deletes a random half of the stale entries on the client's node: those without an answer that point
    /// at a pod that is gone.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn flush(&self, sink: Sink<'_>) -> Result<(), LabError> {
        let node = self.network.node(Node(0));
        let living: Vec<_> = self.cluster().pods.iter().map(|listed| listed.pod.address).collect();
        let entries = node.run(|| -> Result<Vec<FlushedEntry>, LabError> {
            let table = Conntrack::open()?;
            let is_stale = |entry: &TableEntry| {
                entry.is_unanswered
                    && entry.orig.dst == self.target
                    && !living.contains(&entry.reply.src)
                    && !entry.left.is_zero()
            };
            let mut stale = table.entries(self.plan.family() == Family::Ipv6)?;
            stale.retain(is_stale);
            stale.sort_by_key(|entry| entry.orig);
            let mut random = ChaCha8Rng::seed_from_u64(self.settings.seed);
            random.set_stream(STREAM);
            stale.shuffle(&mut random);
            let half = stale.len().div_ceil(2);
            let mut entries = Vec::new();
            for (place, entry) in stale.iter().enumerate() {
                let treated = place < half;
                let TableEntry { orig, reply, left, .. } = *entry;
                if treated {
                    let from = clock::now();
                    if !table.delete(entry)? {
                        // It expired just now: neither treated nor left.
                        continue;
                    }
                    let when = Span { from, to: clock::now() };
                    self.recorder.deleted(orig.src.port(), reply.src, when);
                }
                entries.push(FlushedEntry { orig, backend: reply.src, left, treated });
            }
            Ok(entries)
        })??;
        let what = Intervention::Flush { netns: node.id(), entries };
        sink(Event { time: clock::now(), kind: EventKind::Intervention(what) });
        Ok(())
    }

    /// Sets how long an entry lives that sees nothing but SYNs, on every node. Entries that are there keep
    /// the time that they were given.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn set_syn_sent_timeout(&self, after: Duration, sink: Sink<'_>) -> Result<(), LabError> {
        let name = sysctl::SYN_SENT_TIMEOUT;
        let value = after.as_secs().to_string();
        let mut before = None;
        for node in Node::all() {
            let netns = self.network.node(node);
            let old = netns.run(|| -> Result<String, LabError> {
                let old = sysctl::read(name)?;
                sysctl::write(name, &value)?;
                Ok(old)
            })??;
            let (name, value) = (name.to_owned(), value.clone());
            let kind = EventKind::SysctlSet { netns: netns.id(), name, value };
            sink(Event { time: clock::now(), kind });
            if before.is_none() {
                let seconds = old.parse().map_err(|_| LabError::Timer { value: old })?;
                before = Some(Duration::from_secs(seconds));
            }
        }
        self.recorder.timeout(after);
        let netns = self.network.node(Node(0)).id();
        let before = before.unwrap_or(after);
        let what = Intervention::Timeout { netns, before, after };
        sink(Event { time: clock::now(), kind: EventKind::Intervention(what) });
        Ok(())
    }
}
