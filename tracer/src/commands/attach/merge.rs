//! The traces of several nodes as one: on one clock, their namespaces apart, and what all of them heard from the API
//! said once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::commands::tracing;
use crate::files::{Existing, FileError, TraceReader, TraceWriter};
use crate::model::{
    Event, EventKind, Intervention, LossSource, MonoNs, NetnsId, Origin, TraceHeader, WallNs,
};

/// Writes one trace of all of these.
///
/// # Errors
/// If one can't be read, or the new one not be written.
pub(super) fn merge(traces: &[PathBuf], to: &Path) -> Result<PathBuf, FileError> {
    let mut nodes = traces
        .iter()
        .enumerate()
        .map(|(index, path)| {
            Ok(Node { index, reader: TraceReader::open(path)?, ids: Ids::default() })
        })
        .collect::<Result<Vec<_>, FileError>>()?;
    let mut ids = 0;
    let header = header(&mut nodes, &mut ids);
    let mut writer = TraceWriter::create(to, &header, Existing::Keep)?;
    let mut heads = Vec::new();
    for node in &mut nodes {
        heads.push(node.next(&header, &mut ids)?);
    }
    let mut last = header.began;
    while let Some(index) = earliest(&heads) {
        if let Some(event) =
            std::mem::replace(&mut heads[index], nodes[index].next(&header, &mut ids)?)
        {
            last = last.max(event.time);
            writer.append(&event)?;
        }
    }
    writer.append(&Event { time: last, kind: EventKind::Ended })?;
    writer.finish()?;
    Ok(to.to_owned())
}

fn earliest(heads: &[Option<Event>]) -> Option<usize> {
    let times = heads.iter().enumerate();
    times
        .filter_map(|(index, head)| Some((head.as_ref()?.time, index)))
        .min()
        .map(|(_, index)| index)
}

/// One node's trace.
struct Node {
    index: usize,
    reader: TraceReader,
    ids: Ids,
}

/// The numbers of a node's kernel, as numbers of the whole: two kernels give the same ones.
#[derive(Default)]
struct Ids {
    netns: BTreeMap<NetnsId, NetnsId>,
}

impl Ids {
    fn netns(&mut self, id: &mut NetnsId, next: &mut u32) {
        *id = *self.netns.entry(*id).or_insert_with(|| {
            *next += 1;
            NetnsId(*next)
        });
    }
}

/// The header of the whole. Its clock is Unix time, as each node has it.
fn header(nodes: &mut [Node], ids: &mut u32) -> TraceHeader {
    let wall =
        |header: &TraceHeader, time| MonoNs(header.anchor.wall(time).0.max(0).cast_unsigned());
    let first = nodes[0].reader.header().clone();
    let began =
        nodes.iter().map(|node| wall(node.reader.header(), node.reader.header().began)).min();
    let began = began.unwrap_or(first.began);
    let error = nodes.iter().map(|node| node.reader.header().anchor.error_ns).max().unwrap_or(0);
    let names: Vec<String> = nodes.iter().map(|node| node.reader.header().node.clone()).collect();
    let mut whole = TraceHeader {
        origin: Origin::Record { command: tracing::command_line() },
        node: names.join(", "),
        began,
        anchor: crate::model::ClockAnchor {
            mono: began,
            wall: WallNs(began.0.cast_signed()),
            error_ns: error,
        },
        netns: Vec::new(),
        sysctls: Vec::new(),
        notes: Vec::new(),
        ..first
    };
    for node in nodes.iter_mut() {
        let own = node.reader.header().clone();
        for mut netns in own.netns {
            node.ids.netns(&mut netns.id, ids);
            netns.name = format!("{} of {}", netns.name, own.node);
            whole.netns.push(netns);
        }
        for mut sysctl in own.sysctls {
            node.ids.netns(&mut sysctl.netns, ids);
            whole.sysctls.push(sysctl);
        }
        // A hook counts where all nodes have it: silence proves nothing else.
        for (status, of_node) in whole.hooks.iter_mut().zip(&own.hooks) {
            if status.hook == of_node.hook && !of_node.attached {
                status.attached = false;
                status.note = of_node.note.clone();
            }
        }
        for service in own.services {
            if !whole.services.contains(&service) {
                whole.services.push(service);
            }
        }
        for note in own.notes {
            if !whole.notes.contains(&note) {
                whole.notes.push(note);
            }
        }
    }
    whole.notes.push(format!(
        "The traces of {} nodes are read as one, by each node's own wall clock; how far these are apart is not known.",
        names.len()
    ));
    whole
}

impl Node {
    /// Its next event, as one of the whole.
    fn next(&mut self, whole: &TraceHeader, ids: &mut u32) -> Result<Option<Event>, FileError> {
        loop {
            let own_anchor = self.reader.header().anchor;
            let Some(event) = self.reader.advance()? else { return Ok(None) };
            let mut event = event.clone();
            if !is_of_the_whole(self.index, &event.kind) {
                continue;
            }
            let place = |time: &mut MonoNs| {
                let wall = MonoNs(own_anchor.wall(*time).0.max(0).cast_unsigned());
                *time = wall.max(whole.began);
            };
            place(&mut event.time);
            let netns = &mut self.ids;
            match &mut event.kind {
                EventKind::Packet(packet) => netns.netns(&mut packet.netns, ids),
                EventKind::TcpState(state) => netns.netns(&mut state.netns, ids),
                EventKind::Conntrack(entry) => netns.netns(&mut entry.netns, ids),
                EventKind::SysctlSet { netns: id, .. } => netns.netns(id, ids),
                EventKind::Connect(connect) => {
                    netns.netns(&mut connect.netns, ids);
                    if let Some(started) = &mut connect.started {
                        place(started);
                    }
                    if let Some(by) = &mut connect.by {
                        apart(self.index, &mut by.cgroup);
                    }
                }
                EventKind::Workload(workload) => apart(self.index, &mut workload.cgroup),
                EventKind::Cluster { since, .. } | EventKind::Lost { since, .. } => place(since),
                EventKind::Intervention(
                    Intervention::Flush { netns: id, .. }
                    | Intervention::Timeout { netns: id, .. }
                    | Intervention::Ports { netns: id, .. },
                ) => netns.netns(id, ids),
                _ => {}
            }
            return Ok(Some(event));
        }
    }
}

/// Cgroups of two kernels may have the same number.
fn apart(node: usize, cgroup: &mut u64) {
    *cgroup ^= (node as u64) << 48;
}

/// Whether an event is kept: what the API told is the same for all, so the first node's watch is enough; and the
/// whole has an end of its own.
fn is_of_the_whole(node: usize, kind: &EventKind) -> bool {
    match kind {
        EventKind::Cluster { .. } | EventKind::Lost { source: LossSource::Cluster, .. } => {
            node == 0
        }
        EventKind::Ended => false,
        _ => true,
    }
}
