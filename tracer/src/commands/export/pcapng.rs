//! A trace as pcapng. Two passes over the file, so that a packet can say what only later events tell: first the
//! verdict, then the packets. Memory does not depend on the trace's length.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};

use super::remark::Remarks;
use crate::codec::pcapng_out::{self, Interface, Packet, Section, Way};
use crate::codec::rebuild;
use crate::correlate::Timeline;
use crate::files::TraceReader;
use crate::model::{EventKind, Hook, IfIndex, NetnsId, PacketEvent, Seq, TraceHeader};
use crate::pipeline;
use crate::report::{view, words};
use crate::verdict::{self, Settings, Verdict};

pub(super) fn write(
    path: &Path,
    mut first: TraceReader,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    if !fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        bail!("{} is not a file: for pcapng it is read twice, so copy it to one", path.display());
    }
    let timeline = pipeline::replay(&mut first, &mut |_| {})?;
    let header = first.header().clone();
    let verdict = verdict::assess(&header, &timeline, &Settings::default());

    let second = TraceReader::open(path).context("reading it again")?;
    let mut blocks = Vec::new();
    section(&header, &timeline, &verdict, &mut blocks);
    let mut remarks = Remarks::new(&header, &timeline, &verdict);
    let mut interfaces = Interfaces { header: &header, numbers: HashMap::new() };
    for (seq, event) in second.enumerate() {
        let event = event?;
        match &event.kind {
            EventKind::Packet(packet) => {
                let interface = interfaces.number(packet, &mut blocks);
                let comment = remarks.of(Seq(seq as u64), event.time, packet);
                let packet = Packet {
                    interface,
                    time: header.anchor.wall(event.time),
                    way: way(packet),
                    bytes: &rebuild::packet(packet),
                    comment: &comment,
                };
                pcapng_out::packet(&packet, &mut blocks);
            }
            EventKind::SysctlSet { netns, name, value } => {
                remarks.sysctl(*netns, event.time, name, value);
            }
            _ => {}
        }
        out.write_all(&blocks)?;
        blocks.clear();
    }
    out.write_all(&blocks)?;
    Ok(())
}

fn section(header: &TraceHeader, timeline: &Timeline, verdict: &Verdict, out: &mut Vec<u8>) {
    let report = view::build(header, timeline, verdict);
    let outcome = words::outcome_name(verdict.hypothesis.outcome);
    let mut comments = vec![
        format!("{outcome}: {}", words::verdict(&report)),
        rebuild::MADE_UP.to_owned(),
        "The same packet is here once for each place at which it was seen: an interface is a device in a \
         network namespace, or a hook that has no device."
            .to_owned(),
    ];
    if !timeline.losses.is_empty() {
        let losses = timeline.losses.iter();
        let lost: Vec<String> =
            losses.map(|loss| format!("{} ({})", loss.count, loss.source.name())).collect();
        comments.push(format!("Events were lost: {}.", lost.join(", ")));
    }
    comments.extend(header.notes.iter().cloned());
    let (os, hardware) = header.kernel.rsplit_once(' ').unwrap_or((&header.kernel, ""));
    let section = Section {
        hardware,
        os: &format!("Linux {os}"),
        application: &format!("tracer {}", header.tracer),
        comments: &comments,
    };
    pcapng_out::section(&section, out);
}

/// The interfaces, numbered as their packets come.
struct Interfaces<'a> {
    header: &'a TraceHeader,
    numbers: HashMap<(NetnsId, IfIndex), u32>,
}

impl Interfaces<'_> {
    /// The number of a packet's interface, which is described before its first packet.
    fn number(&mut self, packet: &PacketEvent, out: &mut Vec<u8>) -> u32 {
        let next = u32::try_from(self.numbers.len()).expect("fewer than 2^32 interfaces in memory");
        *self.numbers.entry((packet.netns, packet.ifindex)).or_insert_with(|| {
            describe(self.header, packet, out);
            next
        })
    }
}

fn describe(header: &TraceHeader, packet: &PacketEvent, out: &mut Vec<u8>) {
    let NetnsId(id) = packet.netns;
    let (name, netns) = match header.netns_name(packet.netns) {
        Some(name) => (name.to_owned(), format!("network namespace {name} ({id})")),
        None => (format!("netns-{id}"), format!("network namespace {id}, whose name is not known")),
    };
    let (name, description) = match packet.ifindex {
        IfIndex(0) => (format!("{name}:none"), format!("hooks without a device in {netns}")),
        IfIndex(index) => (format!("{name}:{index}"), format!("device {index} of {netns}")),
    };
    let comment = "Packets are rebuilt from recorded header fields, without payload and options; the \
                   section's comments say more.";
    let interface = Interface { name: &name, description: &description, comment };
    pcapng_out::interface(&interface, out);
}

fn way(packet: &PacketEvent) -> Way {
    match packet.hook {
        Hook::NetDevStartXmit => Way::Out,
        Hook::TcpReceiveReset | Hook::TcpSendReset => Way::In,
        _ => Way::Unknown,
    }
}
