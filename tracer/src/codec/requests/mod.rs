//! Logs of requests: the load generator's own, written and read; and those of others, read: CSV and JSON lines
//! whose columns' names tell when a request started, from which port, how it ended and how long it took; vegeta's
//! (`vegeta encode --to csv|json`), oha's (`--output-format csv`).
//!
//! Times: Unix time in any of the usual units or RFC 3339. Durations: in the unit that the column's name or the
//! value ends with, or that [`Columns`] says, else in seconds. What an error's text means is in `wording`.
//!
//! A row that can't be read is a request that is not known of: whoever makes events of a log must make a
//! loss of them ([`LossSource::Requests`](crate::model::LossSource::Requests)), so that nothing is argued from
//! their absence. oha leaves out its failed requests altogether.

mod columns;
mod log;
mod row;
mod wording;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::Step;
use super::lines::{Line, Lines};
use super::stamp::Stamp;
use super::unread::Unread;
use crate::model::{
    MonoNs, Outcome, RequestEnded, RequestId, RequestStarted, Resolution, Reuse, WallNs,
};
use columns::Layout;
use row::Cells;

pub use columns::{Columns, Unit};
pub use log::{LogFormat, LogWriter, Row};

/// The longest line that is read: vegeta puts whole answers into one.
const LINE_LIMIT: usize = 4 * 1024 * 1024;

/// A request, as a row of a log tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The row's line.
    pub line: u64,
    /// Its number, if the log has one.
    pub id: Option<u64>,
    /// Which of the client's workers sent it.
    pub worker: Option<u32>,
    /// When it started, by the client's wall clock.
    pub start: Stamp,
    /// The same by the client's CLOCK_MONOTONIC: where the packets are of the same machine, the finer one.
    pub start_mono: Option<MonoNs>,
    /// From the start to the end.
    pub total: Duration,
    /// The client's address.
    pub source: Option<IpAddr>,
    /// The client's port. Many clients don't know it where the connect failed.
    pub source_port: Option<u16>,
    /// Whom it asked.
    pub target: Option<SocketAddr>,
    /// How it ended. The status of one that was answered is 0 if the log has none.
    pub outcome: Outcome,
    /// It timed out, and the log does not say whether at the connect: the symptom is connect-timeout, and a
    /// SYN-ACK in the packets makes it response-timeout.
    pub phase_unknown: bool,
    /// From the start until connected.
    pub connect: Option<Duration>,
    /// The pod that answered.
    pub pod: Option<String>,
    /// Whose connection it used. Only our own log tells of kept ones: other logs' requests are taken to have
    /// had one of their own, and one that had not has no SYN.
    pub reuse: Reuse,
    /// How many bytes of an answer came; 0 where the log does not tell.
    pub received: u64,
    /// What became of the question for the target's name; only our own log tells.
    pub resolution: Option<Resolution>,
}

/// What a log does not tell, of all its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Its address.
    pub source: Option<IpAddr>,
    /// Whom it asked.
    pub target: Option<SocketAddr>,
}

/// A request's two events, by the client's wall clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestEvents {
    /// When it started.
    pub start: WallNs,
    /// Its start.
    pub started: RequestStarted,
    /// When it ended.
    pub end: WallNs,
    /// Its end.
    pub ended: RequestEnded,
}

impl Request {
    /// Its events, under a number that is unique among all logs of a trace; none if nobody knows whom it asked,
    /// and it is not for want of an address.
    pub fn events(&self, id: RequestId, client: Client) -> Option<RequestEvents> {
        let unresolved = self.resolution.is_some_and(|resolution| resolution.failed.is_some());
        let target = self.target.or(client.target.filter(|_| !unresolved));
        if target.is_none() && !unresolved {
            return None;
        }
        let source = self.source.or(client.source);
        let total = i64::try_from(self.total.as_nanos()).unwrap_or(i64::MAX);
        Some(RequestEvents {
            start: self.start.at,
            started: RequestStarted { id, worker: self.worker.unwrap_or(0) },
            end: WallNs(self.start.at.0.saturating_add(total)),
            ended: RequestEnded {
                id,
                source: source.zip(self.source_port).map(SocketAddr::from),
                target,
                reuse: self.reuse,
                outcome: self.outcome,
                resolution: self.resolution,
                received: self.received,
                connect: self.connect,
                total: self.total,
                pod: self.pod.clone(),
            },
        })
    }
}

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Values separated by this byte, with a header line.
    Csv {
        /// `,`, `;` or a tab.
        separator: u8,
    },
    /// vegeta's CSV, which has no header.
    VegetaCsv,
    /// A JSON object on each line.
    JsonLines,
    /// oha's JSON: counts, and no requests. `--output-format csv` has them.
    OhaSummary,
}

/// How the log that begins with these bytes is written; none if it is no log of requests. A few kilobytes tell.
pub fn form_of(start: &[u8], columns: &Columns) -> Option<Form> {
    let text = start.strip_prefix(BOM).unwrap_or(start);
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    // The last character may be cut.
    let line = match std::str::from_utf8(line) {
        Ok(line) => line,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&line[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return None,
    };
    let line = line.trim_end_matches('\r');
    if text.trim_ascii_start().starts_with(b"{") {
        let has = |name: &[u8]| memchr::memmem::find(text, name).is_some();
        if has(b"\"summary\"") && has(b"\"successRate\"") {
            return Some(Form::OhaSummary);
        }
        let keys = row::keys(line);
        let is_object = ["apiVersion", "object"].iter().any(|key| keys.contains(key));
        return (!is_object && Layout::new(keys, columns).is_enough()).then_some(Form::JsonLines);
    }
    let mut cells = Cells::default();
    for separator in *b",;\t" {
        cells.split(line.as_bytes(), separator);
        if Layout::new(cells.iter(), columns).is_enough() {
            return Some(Form::Csv { separator });
        }
    }
    cells.split(line.as_bytes(), b',');
    row::is_vegeta(&cells).then_some(Form::VegetaCsv)
}

/// Whether these first bytes of a file are a log of requests.
pub fn looks_like(start: &[u8]) -> bool {
    form_of(start, &Columns::default()).is_some()
}

/// The names of the columns of a log that begins with these bytes, or of the fields of its first object; none where
/// there is no header.
pub fn names(start: &[u8]) -> Vec<String> {
    let text = start.strip_prefix(BOM).unwrap_or(start);
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end_matches('\r');
    if line.starts_with('{') {
        return row::keys(line).into_iter().map(str::to_owned).collect();
    }
    let mut best = Vec::new();
    let mut cells = Cells::default();
    for separator in *b",;\t" {
        cells.split(line.as_bytes(), separator);
        let names: Vec<String> = cells.iter().map(|cell| cell.trim().to_owned()).collect();
        if names.len() > best.len() {
            best = names;
        }
    }
    best
}

const BOM: &[u8] = b"\xef\xbb\xbf";

/// Reads a log from bytes as they come. A row is a line: one with a line end in a quoted value can't be read.
#[derive(Debug)]
pub struct Reader {
    form: Form,
    columns: Columns,
    lines: Lines,
    cells: Cells,
    layout: Option<Layout>,
    counts: Counts,
}

/// What was read on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that were read.
    pub requests: u64,
    /// Of these, timeouts that don't say whether at the connect.
    pub phase_unknown: u64,
    /// Of these, without a source port.
    pub without_port: u64,
    /// Rows that could not be read.
    pub unread: Unread,
}

impl Reader {
    /// For a log of this form.
    pub fn new(form: Form, columns: Columns) -> Reader {
        Reader {
            form,
            columns,
            lines: Lines::new(LINE_LIMIT),
            cells: Cells::default(),
            layout: None,
            counts: Counts::default(),
        }
    }

    /// Adds bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.lines.feed(bytes);
    }

    /// Says that there are no more bytes.
    pub fn close(&mut self) {
        self.lines.close();
    }

    /// What was read so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The next request.
    pub fn step(&mut self) -> Step<Request> {
        loop {
            let (number, line) = match self.lines.next() {
                Step::Item((number, Line::Whole(line))) => (number, line),
                Step::Item((number, Line::TooLong)) => {
                    self.counts.unread.count("a line too long", number);
                    continue;
                }
                Step::More => return Step::More,
                Step::End => return Step::End,
            };
            let line = if number == 1 { line.strip_prefix(BOM).unwrap_or(line) } else { line };
            if line.trim_ascii().is_empty() {
                continue;
            }
            let read = match self.form {
                Form::Csv { separator } => {
                    self.cells.split(line, separator);
                    match &self.layout {
                        None => {
                            self.layout = Some(Layout::new(self.cells.iter(), &self.columns));
                            continue;
                        }
                        Some(layout) => row::read(&self.cells, layout, &self.columns),
                    }
                }
                Form::VegetaCsv => {
                    self.cells.split(line, b',');
                    row::read_vegeta(&self.cells, &self.columns)
                }
                Form::JsonLines => row::read_json(line, &self.columns),
                Form::OhaSummary => Err(Cow::Borrowed(
                    "oha's summary has no requests; `oha --output-format csv` has",
                )),
            };
            match read {
                Ok(request) => {
                    return Step::Item(self.counts.take(Request { line: number, ..request }));
                }
                Err(reason) => self.counts.unread.count(reason, number),
            }
        }
    }
}

impl Counts {
    fn take(&mut self, request: Request) -> Request {
        self.requests += 1;
        self.phase_unknown += u64::from(request.phase_unknown);
        self.without_port += u64::from(request.source_port.is_none());
        request
    }
}
