//! The load generator's log: one row a request, as CSV or as JSON lines. The columns are described in
//! docs/request-log.md.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{
    ClockAnchor, Event, EventKind, MonoNs, NameError, Outcome, RequestEnded, RequestId, Reuse,
    Symptom,
};

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Comma-separated values with a header line; what is not known is an empty field.
    Csv,
    /// One JSON object a line; what is not known is null.
    JsonLines,
}

/// A request, as a row of the log. The fields' order is the columns' order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The request's number within the run, counted from 0 in the order of the starts.
    pub id: u64,
    /// Which worker sent it; unknown if its start was not logged.
    pub worker: Option<u32>,
    /// When it started, in seconds of Unix time, to the microsecond.
    pub start_unix: f64,
    /// When it started, in nanoseconds of the host's CLOCK_MONOTONIC.
    pub start_mono_ns: u64,
    /// The client's address; unknown if no socket got one.
    pub source: Option<String>,
    /// The client's port.
    pub source_port: Option<u16>,
    /// Whom it asked; unknown if its name did not resolve.
    pub target: Option<SocketAddr>,
    /// How many requests its connection had carried before; unknown if it was for this request alone.
    pub nth: Option<u32>,
    /// `answered` or `failed`.
    pub outcome: String,
    /// What the client saw of a failure.
    pub symptom: Option<Symptom>,
    /// The error number of the call that failed.
    pub errno: Option<i32>,
    /// The HTTP status, if one came.
    pub status: Option<u16>,
    /// Seconds from the start until the name was resolved or given up, if it was asked for.
    pub resolve: Option<f64>,
    /// Why the name did not resolve.
    pub resolve_error: Option<NameError>,
    /// Seconds from the start until connected, on a connection of its own.
    pub connect: Option<f64>,
    /// Bytes of an answer that came.
    pub received: u64,
    /// Seconds from the start until the end.
    pub total: f64,
    /// The pod that answered.
    pub pod: Option<String>,
}

/// Makes the log of a client's events.
#[derive(Debug)]
pub struct LogWriter {
    format: LogFormat,
    anchor: ClockAnchor,
    /// The requests under way, with their workers.
    open: HashMap<RequestId, u32>,
}

impl LogWriter {
    /// A log in this format, with wall-clock times by this anchor.
    pub fn new(format: LogFormat, anchor: ClockAnchor) -> LogWriter {
        LogWriter { format, anchor, open: HashMap::new() }
    }

    /// Appends what stands before the first row.
    pub fn header(&self, out: &mut Vec<u8>) {
        if self.format == LogFormat::Csv {
            out.extend_from_slice(HEADER.as_bytes());
        }
    }

    /// Appends the row of a request that ended; any other event appends nothing.
    pub fn event(&mut self, event: &Event, out: &mut Vec<u8>) {
        match &event.kind {
            EventKind::RequestStarted(started) => {
                self.open.insert(started.id, started.worker);
            }
            EventKind::RequestEnded(ended) => {
                let worker = self.open.remove(&ended.id);
                let row = self.row(event.time, ended, worker);
                match self.format {
                    LogFormat::Csv => write_csv(&row, out),
                    LogFormat::JsonLines => write_json(&row, out),
                }
            }
            _ => {}
        }
    }

    fn row(&self, time: MonoNs, ended: &RequestEnded, worker: Option<u32>) -> Row {
        let start = time - ended.total;
        let (outcome, symptom, errno, status) = match ended.outcome {
            Outcome::Answered { status } => ("answered", None, None, Some(status)),
            Outcome::Failed { symptom, errno, status } => ("failed", Some(symptom), errno, status),
        };
        Row {
            id: ended.id.0,
            worker,
            start_unix: unix_seconds(&self.anchor, start),
            start_mono_ns: start.0,
            source: ended.source.map(|source| source.ip().to_string()),
            source_port: ended.source.map(|source| source.port()),
            target: ended.target,
            nth: match ended.reuse {
                Reuse::Fresh => None,
                Reuse::KeepAlive { nth } => Some(nth),
            },
            outcome: outcome.to_owned(),
            symptom,
            errno,
            status,
            resolve: ended.resolution.map(|resolution| seconds(resolution.took)),
            resolve_error: ended.resolution.and_then(|resolution| resolution.failed),
            connect: ended.connect.map(seconds),
            received: ended.received,
            total: seconds(ended.total),
            pod: ended.pod.clone(),
        }
    }
}

const HEADER: &str = "id,worker,start_unix,start_mono_ns,source,source_port,target,nth,outcome,symptom,\
                      errno,status,resolve,resolve_error,connect,received,total,pod\n";

fn write_csv(row: &Row, out: &mut Vec<u8>) {
    let mut csv = csv::WriterBuilder::new().has_headers(false).from_writer(out);
    csv.serialize(row).expect("a row is flat and memory takes it");
    csv.flush().expect("memory takes it");
}

fn write_json(row: &Row, out: &mut Vec<u8>) {
    serde_json::to_writer(&mut *out, row).expect("a row has no map and memory takes it");
    out.push(b'\n');
}

/// Whole microseconds: as much as an f64 of today's Unix time can hold, and no more digits than that.
fn unix_seconds(anchor: &ClockAnchor, time: MonoNs) -> f64 {
    anchor.wall(time).0.div_euclid(1000) as f64 / 1e6
}

fn seconds(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::model::{RequestStarted, Resolution, WallNs};

    fn anchor() -> ClockAnchor {
        ClockAnchor {
            mono: MonoNs(1_000_000_000),
            wall: WallNs(1_700_000_000_000_000_000),
            error_ns: 50,
        }
    }

    /// An answered request, one that failed to connect, one that never had a socket nor a logged start, one
    /// on a connection that was there, and one whose name did not resolve.
    fn events() -> Vec<Event> {
        let target = "10.96.0.1:80".parse().unwrap();
        let started = |id, worker, ms: u64| Event {
            time: MonoNs(ms * 1_000_000),
            kind: EventKind::RequestStarted(RequestStarted { id: RequestId(id), worker }),
        };
        let ended = |id, ms: u64, total: u64, source: Option<&str>, outcome, pod: Option<&str>| {
            let connect = pod.map(|_| Duration::from_micros(250));
            let ended = RequestEnded {
                id: RequestId(id),
                source: source.map(|source| source.parse().unwrap()),
                target: Some(target),
                reuse: Reuse::Fresh,
                outcome,
                resolution: None,
                connect,
                received: pod.map_or(0, |_| 187),
                total: Duration::from_millis(total),
                pod: pod.map(str::to_owned),
            };
            Event { time: MonoNs(ms * 1_000_000), kind: EventKind::RequestEnded(ended) }
        };
        let failed = |symptom, errno| Outcome::Failed { symptom, errno, status: None };
        let change = |mut event: Event, change: fn(&mut RequestEnded)| {
            if let EventKind::RequestEnded(ended) = &mut event.kind {
                change(ended);
            }
            event
        };
        vec![
            started(0, 0, 2_000),
            started(1, 1, 2_001),
            ended(
                0,
                2_051,
                51,
                Some("10.0.0.5:40002"),
                Outcome::Answered { status: 200 },
                Some("web, \"a\""),
            ),
            ended(
                1,
                5_001,
                3_000,
                Some("[fd00::5]:40004"),
                failed(Symptom::ConnectTimeout, None),
                None,
            ),
            ended(2, 5_002, 0, None, failed(Symptom::Local, Some(99)), None),
            change(
                ended(3, 5_003, 1, Some("10.0.0.5:40002"), failed(Symptom::Closed, None), None),
                |ended| ended.reuse = Reuse::KeepAlive { nth: 8 },
            ),
            change(ended(4, 8_004, 3_000, None, failed(Symptom::Local, None), None), |ended| {
                ended.target = None;
                let took = Duration::from_secs(3);
                ended.resolution = Some(Resolution { took, failed: Some(NameError::Unanswered) });
            }),
        ]
    }

    fn check(format: LogFormat, expected: Expect) {
        let mut log = LogWriter::new(format, anchor());
        let mut out = Vec::new();
        log.header(&mut out);
        for event in events() {
            log.event(&event, &mut out);
        }
        expected.assert_eq(&String::from_utf8(out).unwrap());
    }

    #[test]
    fn csv_has_a_header_and_leaves_empty_what_is_not_known() {
        check(
            LogFormat::Csv,
            expect![[r#"
                id,worker,start_unix,start_mono_ns,source,source_port,target,nth,outcome,symptom,errno,status,resolve,resolve_error,connect,received,total,pod
                0,0,1700000001.0,2000000000,10.0.0.5,40002,10.96.0.1:80,,answered,,,200,,,0.00025,187,0.051,"web, ""a"""
                1,1,1700000001.001,2001000000,fd00::5,40004,10.96.0.1:80,,failed,connect-timeout,,,,,,0,3.0,
                2,,1700000004.002,5002000000,,,10.96.0.1:80,,failed,local,99,,,,,0,0.0,
                3,,1700000004.002,5002000000,10.0.0.5,40002,10.96.0.1:80,8,failed,closed,,,,,,0,0.001,
                4,,1700000004.004,5004000000,,,,,failed,local,,,3.0,unanswered,,0,3.0,
            "#]],
        );
    }

    #[test]
    fn json_lines_say_null_for_what_is_not_known() {
        check(
            LogFormat::JsonLines,
            expect![[r#"
                {"id":0,"worker":0,"start_unix":1700000001.0,"start_mono_ns":2000000000,"source":"10.0.0.5","source_port":40002,"target":"10.96.0.1:80","nth":null,"outcome":"answered","symptom":null,"errno":null,"status":200,"resolve":null,"resolve_error":null,"connect":0.00025,"received":187,"total":0.051,"pod":"web, \"a\""}
                {"id":1,"worker":1,"start_unix":1700000001.001,"start_mono_ns":2001000000,"source":"fd00::5","source_port":40004,"target":"10.96.0.1:80","nth":null,"outcome":"failed","symptom":"connect-timeout","errno":null,"status":null,"resolve":null,"resolve_error":null,"connect":null,"received":0,"total":3.0,"pod":null}
                {"id":2,"worker":null,"start_unix":1700000004.002,"start_mono_ns":5002000000,"source":null,"source_port":null,"target":"10.96.0.1:80","nth":null,"outcome":"failed","symptom":"local","errno":99,"status":null,"resolve":null,"resolve_error":null,"connect":null,"received":0,"total":0.0,"pod":null}
                {"id":3,"worker":null,"start_unix":1700000004.002,"start_mono_ns":5002000000,"source":"10.0.0.5","source_port":40002,"target":"10.96.0.1:80","nth":8,"outcome":"failed","symptom":"closed","errno":null,"status":null,"resolve":null,"resolve_error":null,"connect":null,"received":0,"total":0.001,"pod":null}
                {"id":4,"worker":null,"start_unix":1700000004.004,"start_mono_ns":5004000000,"source":null,"source_port":null,"target":null,"nth":null,"outcome":"failed","symptom":"local","errno":null,"status":null,"resolve":3.0,"resolve_error":"unanswered","connect":null,"received":0,"total":3.0,"pod":null}
            "#]],
        );
    }

    #[test]
    fn a_csv_log_reads_back_by_its_own_header() {
        let mut log = LogWriter::new(LogFormat::Csv, anchor());
        let mut out = Vec::new();
        log.header(&mut out);
        for event in events() {
            log.event(&event, &mut out);
        }
        let rows: Vec<Row> =
            csv::Reader::from_reader(&out[..]).deserialize().collect::<Result<_, _>>().unwrap();
        assert_eq!(rows.len(), 5);
        assert_eq!(rows[0].pod.as_deref(), Some("web, \"a\""));
        assert_eq!(rows[1].symptom, Some(Symptom::ConnectTimeout));
        assert_eq!(rows[1].source_port, Some(40004));
        assert_eq!(rows[2].worker, None);
        assert_eq!((rows[3].nth, rows[3].resolve), (Some(8), None));
        assert_eq!((rows[4].target, rows[4].resolve_error), (None, Some(NameError::Unanswered)));
    }
}
