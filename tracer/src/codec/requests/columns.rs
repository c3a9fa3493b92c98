//! Which column of a foreign log is what, by its name.

use super::super::stamp::SECOND;
use crate::model::WallNs;

/// What the columns of a log are called, where their names don't tell, and what no column can tell. All may be
/// left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// When a request started.
    pub start: Option<String>,
    /// The client's address.
    pub source: Option<String>,
    /// The client's port.
    pub source_port: Option<String>,
    /// Whom it asked: an address and port, or a URL with an address.
    pub target: Option<String>,
    /// How it ended: a word for success, or the text of an error.
    pub outcome: Option<String>,
    /// The HTTP status.
    pub status: Option<String>,
    /// From the start to the end.
    pub duration: Option<String>,
    /// From the start until connected.
    pub connect: Option<String>,
    /// The pod that answered.
    pub pod: Option<String>,
    /// The unit of durations whose column does not name one.
    pub duration_unit: Option<Unit>,
    /// When the run began: for starts that are counted from it in seconds, as oha's are.
    pub began: Option<WallNs>,
}

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
}

impl Unit {
    /// In nanoseconds.
    pub(super) fn ns(self) -> u64 {
        match self {
            Unit::Seconds => SECOND,
            Unit::Milliseconds => SECOND / 1_000,
            Unit::Microseconds => SECOND / 1_000_000,
            Unit::Nanoseconds => 1,
        }
    }

    /// The unit of this name, as column names and values have it.
    pub(super) fn named(name: &str) -> Option<Unit> {
        Some(match name {
            "s" | "sec" | "secs" | "second" | "seconds" => Unit::Seconds,
            "ms" | "msec" | "millis" | "milliseconds" => Unit::Milliseconds,
            "us" | "µs" | "μs" | "usec" | "micros" | "microseconds" => Unit::Microseconds,
            "ns" | "nsec" | "nanos" | "nanoseconds" => Unit::Nanoseconds,
            _ => return None,
        })
    }
}

/// What a column can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Id,
    Worker,
    Start,
    StartMono,
    Source,
    SourcePort,
    Target,
    Outcome,
    Success,
    Symptom,
    Errno,
    Status,
    Duration,
    Connect,
    Pod,
    Nth,
    Received,
    Resolve,
    ResolveError,
}

/// Names in use, in words; units and what says that a time is Unix time are taken off before.
const NAMES: [(Field, &[&str]); 19] = [
    (Field::Id, &["id", "seq"]),
    (Field::Worker, &["worker"]),
    (
        Field::Start,
        &[
            "start",
            "started",
            "start time",
            "started at",
            "begin",
            "request start",
            "timestamp",
            "time stamp",
            "ts",
            "time",
            "date",
        ],
    ),
    (Field::StartMono, &["start mono"]),
    (
        Field::Source,
        &[
            "source",
            "src",
            "source ip",
            "src ip",
            "source address",
            "local address",
            "local addr",
            "local ip",
            "client ip",
        ],
    ),
    (Field::SourcePort, &["source port", "src port", "local port", "sport", "client port"]),
    (
        Field::Target,
        &["target", "dst", "destination", "remote address", "remote addr", "url", "server"],
    ),
    (
        Field::Outcome,
        &["outcome", "error", "err", "result", "error message", "failure message", "exception"],
    ),
    (Field::Success, &["success", "ok"]),
    (Field::Symptom, &["symptom"]),
    (Field::Errno, &["errno"]),
    (
        Field::Status,
        &["status", "code", "status code", "http status", "http code", "response code"],
    ),
    (
        Field::Duration,
        &[
            "duration",
            "latency",
            "total",
            "elapsed",
            "total time",
            "response time",
            "time taken",
            "request duration",
            "request time",
        ],
    ),
    (Field::Connect, &["connect", "connect time", "connect duration"]),
    (Field::Pod, &["pod", "pod name"]),
    (Field::Nth, &["nth"]),
    (Field::Received, &["received"]),
    (Field::Resolve, &["resolve"]),
    (Field::ResolveError, &["resolve error"]),
];

/// Where a log has what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    columns: Vec<(Field, usize, Option<Unit>)>,
}

impl Layout {
    /// For columns of these names. A field that two names fit is the first of them.
    pub(super) fn new<'a>(names: impl IntoIterator<Item = &'a str>, options: &Columns) -> Layout {
        let names: Vec<&str> = names.into_iter().map(str::trim).collect();
        let mut columns: Vec<(Field, usize, Option<Unit>)> = Vec::new();
        for (field, given) in options.given() {
            if let Some(index) = names.iter().position(|name| *name == given) {
                columns.push((field, index, split(given).1));
            }
        }
        for (index, name) in names.iter().enumerate() {
            let (words, unit) = split(name);
            let field = NAMES.iter().find(|(_, known)| known.contains(&words.as_str()));
            let Some((field, _)) = field else { continue };
            let is_taken = columns.iter().any(|(other, at, _)| other == field || *at == index);
            let is_given = options.given().any(|(given, _)| given == *field);
            if !is_taken && !is_given {
                columns.push((*field, index, unit));
            }
        }
        let mut layout = Layout { columns };
        // JMeter's own log: both are in milliseconds, which its names don't say.
        if ["timeStamp", "elapsed", "label"].iter().all(|name| names.contains(name)) {
            layout.set_unit(Field::Duration, Unit::Milliseconds);
            layout.set_unit(Field::Connect, Unit::Milliseconds);
        }
        layout
    }

    /// Whether requests can be read by it: when each started and how it ended, by whatever tells that.
    pub(super) fn is_enough(&self) -> bool {
        let ends = [Field::Outcome, Field::Success, Field::Status, Field::Symptom];
        self.has(Field::Start)
            && self.has(Field::Duration)
            && ends.iter().any(|field| self.has(*field))
    }

    /// What is missing, in words.
    pub(super) fn missing(&self) -> Option<&'static str> {
        if !self.has(Field::Start) {
            Some("no column tells when a request started")
        } else if !self.has(Field::Duration) {
            Some("no column tells how long a request took")
        } else if !self.is_enough() {
            Some("no column tells how a request ended")
        } else {
            None
        }
    }

    pub(super) fn has(&self, field: Field) -> bool {
        self.columns.iter().any(|(known, _, _)| *known == field)
    }

    pub(super) fn columns(&self) -> impl Iterator<Item = (Field, usize, Option<Unit>)> {
        self.columns.iter().copied()
    }

    pub(super) fn set_unit(&mut self, field: Field, unit: Unit) {
        for column in self.columns.iter_mut().filter(|column| column.0 == field) {
            column.2 = Some(unit);
        }
    }
}

impl Columns {
    fn given(&self) -> impl Iterator<Item = (Field, &str)> {
        let given = [
            (Field::Start, &self.start),
            (Field::Source, &self.source),
            (Field::SourcePort, &self.source_port),
            (Field::Target, &self.target),
            (Field::Outcome, &self.outcome),
            (Field::Status, &self.status),
            (Field::Duration, &self.duration),
            (Field::Connect, &self.connect),
            (Field::Pod, &self.pod),
        ];
        given.into_iter().filter_map(|(field, name)| Some((field, name.as_deref()?)))
    }
}

/// A name's words in lower case without its unit, and the unit: `startTime_ms` is `start time` in milliseconds.
fn split(name: &str) -> (String, Option<Unit>) {
    let mut words: Vec<String> = Vec::new();
    let mut was_lower = false;
    let mut in_word = false;
    for c in name.chars().take(80) {
        if c.is_alphanumeric() {
            if !in_word || (was_lower && c.is_uppercase()) {
                words.push(String::new());
            }
            if let Some(word) = words.last_mut() {
                word.extend(c.to_lowercase());
            }
        }
        in_word = c.is_alphanumeric();
        was_lower = c.is_lowercase();
    }
    let mut unit = None;
    while let Some(last) = words.last().filter(|_| words.len() > 1) {
        if let Some(named) = Unit::named(last) {
            unit = Some(named);
        } else if !matches!(last.as_str(), "unix" | "epoch" | "utc") {
            break;
        }
        words.pop();
    }
    (words.join(" "), unit)
}
