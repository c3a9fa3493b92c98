//! conntrack's output to events.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use crate::codec::conntrack::{Flow, FlowKind, FlowTime, Form, Reader, form_of};
use crate::files::{FileError, Input, TextReader};
use crate::infer::TableSilence;
use crate::model::{ConntrackEvent, EntryChange, Event, EventKind, MonoNs, NetnsId};

/// The protocol's number.
const TCP: u8 = 6;

/// The reader of such a file.
pub(super) fn reader(path: &Path) -> Result<TextReader<Reader>, FileError> {
    let input = Input::open(path)?;
    let form = form_of(input.head()).unwrap_or(Form::Text);
    Ok(TextReader::new(input, Reader::new(form)))
}

/// How far the zone of conntrack's times is ahead of UTC, in seconds, where they name none; none: not told.
pub(super) type Zone = Option<i32>;

/// When a line was printed, on the clock of the replay: Unix time.
pub(super) fn time(flow: &Flow, zone: Zone) -> Option<MonoNs> {
    let at = flow.time?.with_offset(zone.unwrap_or(0)).at;
    u64::try_from(at.0).ok().map(MonoNs)
}

/// The events of logs, one log after the other as they were named.
pub(super) struct Table {
    logs: VecDeque<TextReader<Reader>>,
    netns: NetnsId,
    zone: Zone,
    silence: Option<TableSilence>,
    waiting: VecDeque<Event>,
    /// Bytes of the logs that are done.
    read: u64,
    /// Lines whose time names no zone.
    zoneless: u64,
    /// Lines that can't be placed in time.
    without_time: u64,
    unread: u64,
}

impl Table {
    pub(super) fn open(
        paths: &[PathBuf],
        netns: NetnsId,
        zone: Zone,
        silence: bool,
    ) -> Result<Table, FileError> {
        Ok(Table {
            logs: paths.iter().map(|path| reader(path)).collect::<Result<_, _>>()?,
            netns,
            zone,
            silence: silence.then(TableSilence::default),
            waiting: VecDeque::new(),
            read: 0,
            zoneless: 0,
            without_time: 0,
            unread: 0,
        })
    }

    pub(super) fn next(&mut self) -> Result<Option<Event>, FileError> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Ok(Some(event));
            }
            let Some(log) = self.logs.front_mut() else { return Ok(None) };
            let Some(flow) = log.next().transpose()? else {
                self.unread += log.text().counts().unread.total();
                self.read += log.input().position();
                self.logs.pop_front();
                continue;
            };
            let change = match flow.kind {
                FlowKind::New => EntryChange::New,
                FlowKind::Update => EntryChange::Updated,
                FlowKind::Destroy if flow.by_process => EntryChange::Deleted,
                FlowKind::Destroy => EntryChange::Destroyed,
                FlowKind::Listed => {
                    self.without_time += 1;
                    continue;
                }
            };
            self.zoneless += u64::from(matches!(flow.time, Some(FlowTime::Local(_))));
            let (Some(time), TCP) = (time(&flow, self.zone), flow.protocol) else {
                self.without_time += u64::from(flow.protocol == TCP);
                continue;
            };
            let change = ConntrackEvent {
                netns: self.netns,
                change,
                orig: flow.orig,
                reply: flow.reply,
                zone: flow.zone,
                state: flow.state,
                unreplied: flow.unreplied,
                remaining: flow.remaining,
            };
            self.waiting.push_back(Event { time, kind: EventKind::Conntrack(change) });
            if let Some(silence) = &mut self.silence {
                self.waiting.extend(silence.apply(time, &change));
            }
        }
    }

    /// How many bytes of the files have been read.
    pub(super) fn position(&self) -> u64 {
        self.read + self.logs.front().map_or(0, |log| log.input().position())
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.zoneless > 0 && self.zone.is_none() {
            notes.push(
                "conntrack's times are of the node's zone, which the file does not name: they are taken for UTC \
                 (--time-zone)"
                    .to_owned(),
            );
        }
        if self.without_time > 0 {
            let count = self.without_time;
            notes.push(format!(
                "{count} entries of conntrack's output have no time and were left out: use \
                 conntrack -E -o timestamp"
            ));
        }
        if self.unread > 0 {
            notes.push(format!("{} lines of conntrack's output could not be read", self.unread));
        }
        notes
    }
}
