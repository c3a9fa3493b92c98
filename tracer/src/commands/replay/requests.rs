//! Logs of requests to events.

use std::path::{Path, PathBuf};
use std::time::Duration;

use std::collections::VecDeque;

use crate::codec::requests::{Client, Columns, Form, Reader, form_of};
use crate::files::{FileError, Input, TextReader};
use crate::model::{Event, EventKind, LossSource, MonoNs, RequestId, WallNs};
use crate::stream::Ordering;

/// A row tells of a start and of an end, and rows are in the order of either: no request is expected to take
/// longer than this.
const WINDOW: Duration = Duration::from_secs(35);

/// The reader of such a file.
pub(super) fn reader(path: &Path, columns: &Columns) -> Result<TextReader<Reader>, FileError> {
    let input = Input::open(path)?;
    let form = form_of(input.head(), columns).unwrap_or(Form::Csv { separator: b',' });
    Ok(TextReader::new(input, Reader::new(form, columns.clone())))
}

/// A log's events.
pub(super) struct Log {
    reader: TextReader<Reader>,
    client: Client,
    /// The numbers of this log's requests: from here, in steps of so many.
    id: u64,
    step: u64,
    ordering: Ordering,
    ready: VecDeque<Event>,
    began: Option<MonoNs>,
    latest: MonoNs,
    /// Rows of requests that asked nobody knows whom.
    aimless: u64,
    done: bool,
}

impl Log {
    /// The logs, which share the numbers among them.
    pub(super) fn open(
        paths: &[PathBuf],
        client: Client,
        columns: &Columns,
    ) -> Result<Vec<Log>, FileError> {
        let step = paths.len() as u64;
        let log = |(id, path): (usize, &PathBuf)| {
            Ok(Log {
                reader: reader(path, columns)?,
                client,
                id: id as u64,
                step,
                ordering: Ordering::new(WINDOW),
                ready: VecDeque::new(),
                began: None,
                latest: MonoNs(0),
                aimless: 0,
                done: false,
            })
        };
        paths.iter().enumerate().map(log).collect()
    }

    pub(super) fn next(&mut self) -> Result<Option<Event>, FileError> {
        while self.ready.is_empty() && !self.done {
            match self.reader.next().transpose()? {
                Some(request) => {
                    let events = request.events(RequestId(self.id), self.client);
                    self.id += self.step;
                    let Some(events) = events else {
                        self.aimless += 1;
                        continue;
                    };
                    let (start, end) = (unix(events.start), unix(events.end));
                    self.began = Some(self.began.map_or(start, |began| began.min(start)));
                    self.latest = self.latest.max(end);
                    let started = EventKind::RequestStarted(events.started);
                    self.ordering.push(Event { time: start, kind: started });
                    self.ordering
                        .push(Event { time: end, kind: EventKind::RequestEnded(events.ended) });
                    let ready = &mut self.ready;
                    self.ordering.release(start, &mut |_, event| ready.push_back(event));
                }
                None => {
                    self.done = true;
                    let ready = &mut self.ready;
                    self.ordering.flush(&mut |_, event| ready.push_back(event));
                    let count = self.lost();
                    if count > 0 {
                        let since = self.began.unwrap_or(self.latest);
                        let source = LossSource::Requests;
                        let kind = EventKind::Lost { source, count, since };
                        self.ready.push_back(Event { time: self.latest, kind });
                    }
                }
            }
        }
        Ok(self.ready.pop_front())
    }

    /// How many requests are known to be missing.
    fn lost(&self) -> u64 {
        let unread = self.reader.text().counts().unread.total();
        unread + self.aimless + u64::from(self.reader.input().cut_short())
    }

    /// How many bytes of the file have been read.
    pub(super) fn position(&self) -> u64 {
        self.reader.input().position()
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let path = self.reader.input().path().display();
        let counts = self.reader.text().counts();
        for (reason, passed) in counts.unread.reasons() {
            let (count, line) = (passed.count, passed.line);
            notes
                .push(format!("{path}: {count} rows not read, the first in line {line}: {reason}"));
        }
        if self.aimless > 0 {
            notes.push(format!(
                "{path}: whom {} requests asked is not known; say it with --service",
                self.aimless
            ));
        }
        if counts.without_port > 0 {
            notes.push(format!(
                "{path}: {} requests have no source port; their packets are found by time and outcome",
                counts.without_port
            ));
        }
        if counts.phase_unknown > 0 {
            notes.push(format!(
                "{path}: {} timeouts are taken to be of the connect, the log does not say",
                counts.phase_unknown
            ));
        }
        notes
    }
}

/// A wall-clock time on the clock of the replay.
pub(super) fn unix(time: WallNs) -> MonoNs {
    MonoNs(u64::try_from(time.0).unwrap_or(0))
}
