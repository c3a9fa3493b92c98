//! One row to a request.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_json::value::RawValue;

use super::super::stamp::{SECOND, Stamp, decimal, rfc3339, unix};
use super::Request;
use super::columns::{Columns, Field, Layout, Unit};
use super::wording::{Said, dialled, errno, said};
use crate::model::{MonoNs, NameError, Outcome, Resolution, Reuse, Symptom, WallNs};

/// Why a row can't be read.
type Reason = Cow<'static, str>;

/// The cells of a line, in memory that is used again for the next.
#[derive(Debug, Default)]
pub(super) struct Cells {
    text: Vec<u8>,
    ends: Vec<usize>,
    count: usize,
    length: usize,
}

impl Cells {
    /// Takes a line apart.
    pub(super) fn split(&mut self, line: &[u8], separator: u8) {
        let mut parser = csv_core::ReaderBuilder::new().delimiter(separator).build();
        // No cell is longer than the line, and there is one more than there are separators.
        self.text.resize(line.len() + 1, 0);
        self.ends.resize(line.len() + 2, 0);
        (self.length, self.count) = (0, 0);
        let mut rest = line;
        loop {
            let (result, read, written, ended) = parser.read_record(
                rest,
                &mut self.text[self.length..],
                &mut self.ends[self.count..],
            );
            rest = &rest[read..];
            self.length += written;
            self.count += ended;
            match result {
                // What is empty now tells the parser that this was all.
                csv_core::ReadRecordResult::InputEmpty => {}
                _ => return,
            }
        }
    }

    /// The cells; one that is no UTF-8 is empty.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.count).filter_map(|index| self.get(index))
    }

    fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends[..self.count].get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(std::str::from_utf8(&self.text[start..end]).unwrap_or_default())
    }
}

/// What a row says, cell by cell.
#[derive(Debug, Default)]
struct Values<'a> {
    id: Option<&'a str>,
    worker: Option<&'a str>,
    start: Option<&'a str>,
    start_mono: Option<&'a str>,
    source: Option<&'a str>,
    source_port: Option<&'a str>,
    target: Option<&'a str>,
    outcome: Option<&'a str>,
    success: Option<&'a str>,
    symptom: Option<&'a str>,
    errno: Option<&'a str>,
    status: Option<&'a str>,
    duration: Option<(&'a str, Option<Unit>)>,
    connect: Option<(&'a str, Option<Unit>)>,
    pod: Option<&'a str>,
    nth: Option<&'a str>,
    received: Option<&'a str>,
    resolve: Option<(&'a str, Option<Unit>)>,
    resolve_error: Option<&'a str>,
}

impl<'a> Values<'a> {
    fn set(&mut self, field: Field, text: &'a str, unit: Option<Unit>) {
        let text = text.trim();
        if matches!(text, "" | "-" | "null") {
            return;
        }
        match field {
            Field::Id => self.id = Some(text),
            Field::Worker => self.worker = Some(text),
            Field::Start => self.start = Some(text),
            Field::StartMono => self.start_mono = Some(text),
            Field::Source => self.source = Some(text),
            Field::SourcePort => self.source_port = Some(text),
            Field::Target => self.target = Some(text),
            Field::Outcome => self.outcome = Some(text),
            Field::Success => self.success = Some(text),
            Field::Symptom => self.symptom = Some(text),
            Field::Errno => self.errno = Some(text),
            Field::Status => self.status = Some(text),
            Field::Duration => self.duration = Some((text, unit)),
            Field::Connect => self.connect = Some((text, unit)),
            Field::Pod => self.pod = Some(text),
            Field::Nth => self.nth = Some(text),
            Field::Received => self.received = Some(text),
            Field::Resolve => self.resolve = Some((text, unit)),
            Field::ResolveError => self.resolve_error = Some(text),
        }
    }
}

/// A row of CSV.
pub(super) fn read(cells: &Cells, layout: &Layout, columns: &Columns) -> Result<Request, Reason> {
    if let Some(missing) = layout.missing() {
        return Err(missing.into());
    }
    let mut values = Values::default();
    for (field, index, unit) in layout.columns() {
        if let Some(text) = cells.get(index) {
            values.set(field, text, unit);
        }
    }
    request(&values, columns)
}

/// A JSON object on a line; its keys are the columns' names.
pub(super) fn read_json(line: &[u8], columns: &Columns) -> Result<Request, Reason> {
    const NO_JSON: Reason = Cow::Borrowed("a line that is no JSON object");
    let line = std::str::from_utf8(line).map_err(|_| NO_JSON)?;
    let object: HashMap<Cow<'_, str>, &RawValue> =
        serde_json::from_str(line).map_err(|_| NO_JSON)?;
    // In an order that does not depend on the map's.
    let mut names: Vec<&str> = object.keys().map(AsRef::as_ref).collect();
    names.sort_unstable();
    let mut layout = Layout::new(names.iter().copied(), columns);
    if ["attack", "seq", "latency", "bytes_in"].iter().all(|key| object.contains_key(*key)) {
        layout.set_unit(Field::Duration, Unit::Nanoseconds);
    }
    if let Some(missing) = layout.missing() {
        return Err(missing.into());
    }
    let texts: Vec<(Field, Cow<'_, str>, Option<Unit>)> = layout
        .columns()
        .filter_map(|(field, index, unit)| {
            let raw = object.get(*names.get(index)?)?.get();
            let text = match raw.as_bytes().first()? {
                b'"' => Cow::Owned(serde_json::from_str::<String>(raw).ok()?),
                _ => Cow::Borrowed(raw),
            };
            Some((field, text, unit))
        })
        .collect();
    let mut values = Values::default();
    for (field, text, unit) in &texts {
        values.set(*field, text, *unit);
    }
    request(&values, columns)
}

/// The keys on a line of JSON, which may be cut; also those of objects inside.
pub(super) fn keys(line: &str) -> Vec<&str> {
    let mut keys = Vec::new();
    let mut parts = line.split('"');
    let _before = parts.next();
    while let (Some(word), Some(after)) = (parts.next(), parts.next()) {
        if after.trim_start().starts_with(':') {
            keys.push(word);
        }
    }
    keys
}

/// vegeta's columns, by their places: Unix time in ns, status, latency in ns, bytes out, bytes in, error, body,
/// attack, sequence number; newer versions go on with method, URL, headers (lib/results.go).
const VEGETA: [(Field, usize, Option<Unit>); 6] = [
    (Field::Start, 0, None),
    (Field::Status, 1, None),
    (Field::Duration, 2, Some(Unit::Nanoseconds)),
    (Field::Outcome, 5, None),
    (Field::Id, 8, None),
    (Field::Target, 10, None),
];

/// Whether a line can be one of vegeta's.
pub(super) fn is_vegeta(cells: &Cells) -> bool {
    let is_number = |index| {
        cells
            .get(index)
            .is_some_and(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let is_start = cells.get(0).is_some_and(|start| start.len() == 19 && unix(start).is_some());
    // Five cells suffice: the others may be cut off.
    is_start && (1..5).all(is_number) && cells.get(1).is_some_and(|status| status.len() <= 3)
}

/// A row of vegeta's CSV.
pub(super) fn read_vegeta(cells: &Cells, columns: &Columns) -> Result<Request, Reason> {
    if cells.count < 9 || !is_vegeta(cells) {
        return Err("a row that is not vegeta's".into());
    }
    let mut values = Values::default();
    for (field, index, unit) in VEGETA {
        if let Some(text) = cells.get(index) {
            values.set(field, text, unit);
        }
    }
    request(&values, columns)
}

fn request(values: &Values<'_>, columns: &Columns) -> Result<Request, Reason> {
    let start = values.start.ok_or("a row without its start")?;
    let start = moment(start, columns)?;
    let (total, unit) = values.duration.ok_or("a row without its duration")?;
    let total = duration(total, unit.or(columns.duration_unit)).ok_or("a duration that is none")?;
    let connect = values.connect.map(|(text, unit)| {
        duration(text, unit.or(columns.duration_unit)).ok_or("a duration that is none")
    });
    // 0 is what some clients write that were never connected.
    let connect = connect.transpose()?.filter(|connect| !connect.is_zero());
    let resolved = values.resolve.map(|(text, unit)| {
        duration(text, unit.or(columns.duration_unit)).ok_or("a duration that is none")
    });
    let failed = values.resolve_error.map(|error| {
        let known = NameError::ALL.into_iter().find(|known| known.name() == error);
        known.ok_or("a resolution's error that is none")
    });
    let failed = failed.transpose()?;
    let resolution = resolved.transpose()?.map(|took| Resolution { took, failed });
    let (source, port) = values.source.map_or((None, None), ends);
    let source_port =
        values.source_port.map(|port| port.parse().map_err(|_| "a port that is none"));
    // Port 0 is how some clients write that they don't know.
    let source_port = source_port.transpose()?.or(port).filter(|port| *port != 0);
    let (outcome, phase_unknown) = outcome(values, connect.is_some())?;
    // And some write how long they tried.
    let never = [Symptom::ConnectTimeout, Symptom::Refused, Symptom::Unreachable, Symptom::Local];
    let connect = connect.filter(|_| outcome.symptom().is_none_or(|it| !never.contains(&it)));
    let target = values.target.and_then(target).or_else(|| dialled(values.outcome?));
    Ok(Request {
        line: 0,
        id: values.id.and_then(|id| id.parse().ok()),
        worker: values.worker.and_then(|worker| worker.parse().ok()),
        start,
        start_mono: values.start_mono.and_then(|start| start.parse().ok()).map(MonoNs),
        total,
        source,
        source_port,
        target,
        outcome,
        phase_unknown,
        connect,
        pod: values.pod.map(str::to_owned),
        reuse: match values.nth.map(|nth| nth.parse().map_err(|_| "a place that is none")) {
            Some(nth) => Reuse::KeepAlive { nth: nth? },
            None => Reuse::Fresh,
        },
        received: values.received.and_then(|received| received.parse().ok()).unwrap_or(0),
        resolution,
    })
}

fn moment(text: &str, columns: &Columns) -> Result<Stamp, Reason> {
    if let Some(stamp) = unix(text).or_else(|| rfc3339(text)) {
        return Ok(stamp);
    }
    let (since, step_ns) = decimal(text, SECOND).ok_or("a start that is no time")?;
    let began = columns.began.ok_or("a start that is counted from a time that is not given")?;
    let at = WallNs(began.0.checked_add(since).ok_or("a start that is no time")?);
    Ok(Stamp { at, step_ns })
}

/// `0.0533`, `53.3ms`, `1.5e-5`; a unit at its end counts before the column's.
fn duration(text: &str, unit: Option<Unit>) -> Option<Duration> {
    let number = text.trim_end_matches(|c: char| c.is_alphabetic());
    let (text, unit) = match Unit::named(text[number.len()..].trim()) {
        Some(named) => (number.trim_end(), named),
        None => (text, unit.unwrap_or(Unit::Seconds)),
    };
    if let Some((ns, _)) = decimal(text, unit.ns()) {
        return u64::try_from(ns).ok().map(Duration::from_nanos);
    }
    let seconds = text.parse::<f64>().ok()? * (unit.ns() as f64 / SECOND as f64);
    Duration::try_from_secs_f64(seconds).ok()
}

/// An address, with or without its port.
fn ends(text: &str) -> (Option<IpAddr>, Option<u16>) {
    match text.parse::<SocketAddr>() {
        Ok(both) => (Some(both.ip()), Some(both.port())),
        Err(_) => (text.parse().ok(), None),
    }
}

/// An address and port, or a URL with an address. A name is nothing that packets have.
fn target(text: &str) -> Option<SocketAddr> {
    let (rest, port) = match text.split_once("://") {
        Some(("http", rest)) => (rest, 80),
        Some(("https", rest)) => (rest, 443),
        _ => return text.parse().ok(),
    };
    let host = rest.split(['/', '?', '#']).next()?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.parse().ok().or_else(|| Some(SocketAddr::new(bare.parse().ok()?, port)))
}

/// How it ended, and whether it is not known where it timed out.
fn outcome(values: &Values<'_>, connected: bool) -> Result<(Outcome, bool), Reason> {
    let status: Option<u16> = values.status.and_then(|status| status.parse().ok());
    let status = status.filter(|status| *status != 0);
    let number = values.errno.and_then(|errno| errno.parse().ok());
    let number = number.or_else(|| errno(values.outcome?));
    let failed = |symptom| Outcome::Failed { symptom, errno: number, status };
    if let Some(symptom) = values.symptom {
        let symptom = Symptom::ALL.into_iter().find(|known| known.name() == symptom);
        return Ok((failed(symptom.ok_or("a symptom that is none")?), false));
    }
    let by_status = |status: u16| match status {
        500.. => {
            Outcome::Failed { symptom: Symptom::WrongAnswer, errno: number, status: Some(status) }
        }
        status => Outcome::Answered { status },
    };
    let outcome = match values.outcome.map(said) {
        Some(Said::Failed(symptom)) => failed(symptom),
        Some(Said::TimedOut) if connected => failed(Symptom::ResponseTimeout),
        Some(Said::TimedOut) => return Ok((failed(Symptom::ConnectTimeout), true)),
        Some(Said::Status(said)) => by_status(status.unwrap_or(said)),
        Some(Said::Well) => by_status(status.unwrap_or(0)),
        Some(Said::Unknown) => {
            let text: String = values.outcome.unwrap_or_default().chars().take(60).collect();
            return Err(format!("unknown wording: {text}").into());
        }
        None => match (values.success.map(said), status) {
            (Some(Said::Well), status) => by_status(status.unwrap_or(0)),
            (None, Some(status)) => by_status(status),
            (Some(_), Some(status @ 500..)) => by_status(status),
            _ => return Err("a row that does not tell how it ended".into()),
        },
    };
    Ok((outcome, false))
}
