//! A recording of several files: its header, and its events in one stream.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::ProgressBar;

use super::Sources;
use super::ahead::Ahead;
use super::changes::Changes;
use super::packets::Packets;
use super::paths::Files;
use super::requests::Log;
use super::scout::{self, Scouted};
use super::table::Table;
use super::{clocks, listing};
use crate::codec::requests::Client;
use crate::commands::tracing;
use crate::correlate::{Correlator, SYN_SENT, Timeline};
use crate::files::{self, FileError, Input, Kind};
use crate::infer;
use crate::model::{
    ClockAnchor, Event, EventKind, LossSource, MonoNs, Netns, NetnsId, NetnsRole, Origin, Sysctl,
    TraceHeader, WallNs,
};
use crate::stream::Ordering;

/// The namespace of the captured node; its real number is not in any file.
const NODE: NetnsId = NetnsId(1);
/// Each source is in order but for this much.
const WINDOW: Duration = Duration::from_secs(1);
/// How many events there are between two words of progress.
const PROGRESS_EVERY: u64 = 1 << 14;
/// A capture that begins or ends this much within the requests does not show all of them.
const COVERS: Duration = Duration::from_secs(1);

/// Where events come from.
enum Source {
    Changes(std::vec::IntoIter<Event>),
    Packets(Ahead),
    Table(Box<Table>),
    Log(Box<Log>),
}

impl Source {
    fn next(&mut self) -> Result<Option<Event>, FileError> {
        match self {
            Source::Changes(events) => Ok(events.next()),
            Source::Packets(packets) => packets.next(),
            Source::Table(table) => table.next(),
            Source::Log(log) => log.next(),
        }
    }

    /// How many bytes of its files have been read. Changes are few, and read before all else.
    fn position(&self) -> u64 {
        match self {
            Source::Changes(_) => 0,
            Source::Packets(packets) => packets.position(),
            Source::Table(table) => table.position(),
            Source::Log(log) => log.position(),
        }
    }

    fn notes(&self) -> Vec<String> {
        match self {
            Source::Changes(_) => Vec::new(),
            Source::Packets(packets) => packets.notes(),
            Source::Table(table) => table.notes(),
            Source::Log(log) => log.notes(),
        }
    }
}

/// Reads all files once more, in the order of their times, and correlates.
///
/// # Errors
/// If a file can't be read, or nothing in them has a time.
pub(super) fn read(files: &Files, options: &Sources) -> anyhow::Result<(TraceHeader, Timeline)> {
    let (captures, tables) = (files.of(Kind::Capture), files.of(Kind::Conntrack));
    let (logs, watches) = (files.of(Kind::Requests), files.of(Kind::Watch));
    let (columns, zone) = (options.log.columns()?, options.time_zone);
    let sysctls = sysctls(files)?;
    let syn_sent = sysctls.iter().find(|sysctl| sysctl.name == SYN_SENT);
    let syn_sent = syn_sent.and_then(|sysctl| sysctl.value.parse().ok()).map(Duration::from_secs);
    let changes = Changes::read(&watches)?;
    // The events' clock is Unix time.
    let anchor = ClockAnchor { mono: MonoNs(0), wall: WallNs(0), error_ns: 0 };
    let silence = !changes.has_pods();
    let settings = infer::Settings { netns: NODE, anchor, syn_sent, silence };
    let mut clocks = clocks::compare(&captures)?;
    let place = listing::Place {
        netns: NODE,
        sysctls: &sysctls,
        listed_at: options.listed_at.and_then(|at| u64::try_from(at.0).ok()).map(MonoNs),
        silence,
    };
    let mut listing = match captures.is_empty() && !tables.is_empty() {
        true => listing::read(&tables, &place)?,
        false => None,
    };
    let sources = scout::Sources {
        captures: (&captures, &clocks.ahead),
        tables: (&tables, zone),
        listing: listing.as_ref(),
        logs: (&logs, &columns),
    };
    let scouted = scout::look(sources, settings)?;
    let Some(began) = scouted.began.or(changes.began()) else {
        bail!("nothing in these files has a time");
    };
    let mut header = TraceHeader {
        tracer: env!("CARGO_PKG_VERSION").to_owned(),
        origin: Origin::Replay { command: tracing::command_line() },
        kernel: String::new(),
        node: String::new(),
        hz: None,
        began,
        anchor: ClockAnchor { mono: began, wall: WallNs(began.0.cast_signed()), error_ns: 0 },
        hooks: Vec::new(),
        netns: vec![Netns { id: NODE, name: "client's node".into(), role: NetnsRole::ClientNode }],
        sysctls,
        services: services(options, &scouted),
        drop_reasons: BTreeMap::new(),
        notes: missing(files, options, &changes),
    };
    if !captures.is_empty() {
        header.notes.append(&mut clocks.notes);
        settings.describe(&mut header);
    }
    let mut placed = changes.events(began, options.clock_difference, &scouted, &options.service);
    let client = Client {
        source: scouted.client.map(|(address, _)| address),
        target: scouted.client.map(|(_, target)| target).or(match options.service.as_slice() {
            [only] => Some(*only),
            _ => None,
        }),
    };
    let mut sources = vec![Source::Changes(std::mem::take(&mut placed.timed).into_iter())];
    if !captures.is_empty() {
        let packets = Packets::open(&captures, &clocks.ahead, settings)?;
        let ahead = Ahead::start(packets).context("starting the thread that reads captures")?;
        sources.push(Source::Packets(ahead));
    } else if let Some(listing) = &mut listing {
        sources.push(Source::Changes(std::mem::take(&mut listing.events).into_iter()));
        header.notes.append(&mut listing.notes);
    } else if !tables.is_empty() {
        sources.push(Source::Table(Box::new(Table::open(&tables, NODE, zone, silence)?)));
    }
    sources.extend(
        Log::open(&logs, client, &columns)?.into_iter().map(|log| Source::Log(Box::new(log))),
    );
    let mut stream = Stream::new(&header);
    let length = |paths: &[PathBuf]| {
        paths.iter().filter_map(|path| path.metadata().ok()).map(|file| file.len()).sum::<u64>()
    };
    let of_tables = if captures.is_empty() { length(&tables) } else { 0 };
    let bar = super::bar(length(&captures) + of_tables + length(&logs));
    stream.run(&mut sources, &bar)?;
    bar.finish_and_clear();
    header.notes.append(&mut placed.notes);
    header.notes.extend(sources.iter().flat_map(Source::notes));
    let timeline = stream.finish(|ended| placed.at_the_end(began, ended));
    Ok((header, timeline))
}

fn sysctls(files: &Files) -> Result<Vec<Sysctl>, FileError> {
    let mut sysctls: Vec<Sysctl> = Vec::new();
    for path in files.of(Kind::Sysctls) {
        for (name, value) in files::sysctls(Input::open(&path)?)? {
            if sysctls.iter().all(|known| known.name != name) {
                sysctls.push(Sysctl { netns: NODE, name, value });
            }
        }
    }
    Ok(sysctls)
}

fn services(options: &Sources, scouted: &Scouted) -> Vec<SocketAddr> {
    let mut services = options.service.clone();
    if services.is_empty() {
        services.extend(scouted.client.map(|(_, target)| target));
    }
    services
}

/// What is not there, and what that costs.
fn missing(files: &Files, options: &Sources, changes: &Changes) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |is: bool, text: &str| {
        if is {
            notes.push(text.to_owned());
        }
    };
    let has = |kind| !files.of(kind).is_empty();
    note(
        !has(Kind::Capture),
        "There is no capture: who met a stale entry can't be told. Capture SYN and RST segments on the \
         client's node: tcpdump -i any -w FILE 'tcp[tcpflags] & (tcp-syn|tcp-rst) != 0'",
    );
    note(
        has(Kind::Capture) && has(Kind::Conntrack),
        "conntrack's output was not used: the captures show the same entries, and who met them.",
    );
    note(
        !has(Kind::Capture) && has(Kind::Conntrack),
        "A SYN that meets an entry in SYN_SENT leaves no line in conntrack's output: how often one was met \
         is not known.",
    );
    note(!has(Kind::Requests), "There is no request log: which requests failed is not known.");
    note(
        !changes.has_pods(),
        "No file tells of pods: that one is gone is inferred from its silence (kubectl get pods -w -o json \
         --output-watch-events tells).",
    );
    note(
        !changes.has_rollouts(),
        "No file tells of a rollout (kubectl get deployments -w -o json --output-watch-events does, or \
         --rollout-start and --rollout-end).",
    );
    if has(Kind::Watch) {
        notes.push(format!(
            "The cluster's clocks are taken to be at most {} s from that of the packets \
             (--clock-difference); its times are in whole seconds.",
            options.clock_difference.as_secs_f64()
        ));
    }
    if files.of(Kind::Capture).len() > 1 {
        notes.push("The captures are read as one, by their times.".to_owned());
    }
    let passed_over: Vec<String> =
        files.passed_over.iter().map(|path| path.display().to_string()).collect();
    match passed_over.as_slice() {
        [] => {}
        [one] => notes.push(format!("Passed over, of no kind that can be replayed: {one}.")),
        some => {
            let list = some.join(", ");
            notes.push(format!(
                "Passed over, {} files of no kind that can be replayed: {list}.",
                some.len()
            ));
        }
    }
    notes
}

/// The events on their way to the timeline.
struct Stream {
    ordering: Ordering,
    correlator: Correlator,
    taken: u64,
    ended: MonoNs,
    /// The first and the last packet, and of the requests the first start and the last end.
    packets: Option<(MonoNs, MonoNs)>,
    requests: Option<(MonoNs, MonoNs)>,
}

impl Stream {
    fn new(header: &TraceHeader) -> Stream {
        Stream {
            ordering: Ordering::new(WINDOW),
            correlator: Correlator::new(header),
            taken: 0,
            ended: header.began,
            packets: None,
            requests: None,
        }
    }

    /// Takes the earliest event of all sources, again and again: one of each waits in memory.
    fn run(&mut self, sources: &mut [Source], bar: &ProgressBar) -> Result<(), FileError> {
        let mut heads: Vec<Option<Event>> =
            sources.iter_mut().map(Source::next).collect::<Result<_, _>>()?;
        loop {
            let waiting = heads.iter().enumerate();
            let earliest =
                waiting.filter_map(|(index, head)| Some((head.as_ref()?.time, index))).min();
            let Some((time, index)) = earliest else { return Ok(()) };
            if let Some(event) = std::mem::replace(&mut heads[index], sources[index].next()?) {
                self.take(event);
            }
            self.taken += 1;
            if self.taken.is_multiple_of(PROGRESS_EVERY) {
                bar.set_position(sources.iter().map(Source::position).sum());
            }
            let correlator = &mut self.correlator;
            self.ordering.release(time, &mut |seq, event| correlator.apply(seq, &event));
        }
    }

    fn take(&mut self, event: Event) {
        let is_first_packet = self.packets.is_none() && matches!(event.kind, EventKind::Packet(_));
        let span = match &event.kind {
            EventKind::Packet(_) => Some(&mut self.packets),
            EventKind::RequestStarted(_) | EventKind::RequestEnded(_) => Some(&mut self.requests),
            _ => None,
        };
        let time = event.time;
        if let Some(span) = span {
            let (first, last) = span.unwrap_or((time, time));
            *span = Some((first.min(time), last.max(time)));
        }
        // The capture began within the requests: said where it begins, so that the events stay in order.
        if let (true, Some((first, _)), Some((start, _))) =
            (is_first_packet, self.packets, self.requests)
        {
            self.uncovered(start, first);
        }
        self.ended = self.ended.max(time);
        self.ordering.push(event);
    }

    /// There are requests and no packets between the two.
    fn uncovered(&mut self, from: MonoNs, to: MonoNs) {
        if to.since(from) > COVERS {
            let kind = EventKind::Lost { source: LossSource::Capture, count: 1, since: from };
            self.ordering.push(Event { time: to, kind });
        }
    }

    /// Says what was not recorded, and what can be said only now.
    fn finish(mut self, last: impl FnOnce(MonoNs) -> Vec<Event>) -> Timeline {
        let ended = self.ended;
        for event in last(ended) {
            self.ordering.push(event);
        }
        if let (Some((_, last)), Some((_, end))) = (self.packets, self.requests) {
            self.uncovered(last, end);
        }
        let Stream { mut ordering, mut correlator, .. } = self;
        ordering.flush(&mut |seq, event| correlator.apply(seq, &event));
        correlator.finish()
    }
}
