//! conntrack's XML (`-o xml`): a `<flow>` for each entry. A killed tool leaves the document open, and lines of a
//! shell may stand around it, so the flows are read one by one and the document around them is not.

use std::net::IpAddr;
use std::time::Duration;

use jiff::civil::DateTime;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::Step;
use super::super::stamp::Stamp;
use super::text::{Parsed, local};
use super::{Ends, Flow, FlowKind, FlowTime, TCP, has_ports, tcp_state};
use crate::model::WallNs;

/// The longest flow that is read; one has some 900 bytes.
const LIMIT: usize = 64 * 1024;

const OPEN: &[u8] = b"<flow";
const CLOSE: &[u8] = b"</flow>";

/// Why a flow can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XmlError {
    /// It is not UTF-8.
    #[error("not text")]
    NotText,
    /// It is not XML, or not a flow's, or a value in it is none.
    #[error("a flow that is none")]
    NoFlow,
    /// It has no known type.
    #[error("a flow of unknown type")]
    Type,
    /// There is no such state of TCP.
    #[error("an unknown state of TCP")]
    State,
    /// A tuple is missing or not whole.
    #[error("without both tuples")]
    Tuples,
    /// Its time can't be read.
    #[error("a time that is none")]
    Time,
    /// It has no end.
    #[error("a flow without its end")]
    Cut,
}

/// Whether a file that begins so is conntrack's XML.
pub(super) fn looks_like(start: &[u8]) -> bool {
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
    let is_xml = text.starts_with(b"<");
    is_xml
        && (find(text, b"<conntrack>").is_some()
            || find(text, OPEN).is_some_and(|at| find(&text[at..], b"<layer3").is_some()))
}

/// Splits bytes into flows. Holds one flow.
#[derive(Debug, Default)]
pub(super) struct Flows {
    input: Vec<u8>,
    used: usize,
    /// Lines ended before `used`.
    lines: u64,
    closed: bool,
}

impl Flows {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.input.drain(..self.used);
        self.used = 0;
        self.input.extend_from_slice(bytes);
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// The next flow, and the line that it begins at.
    pub(super) fn step(&mut self) -> Step<(u64, Result<Parsed, XmlError>)> {
        let Some(open) = find(&self.input[self.used..], OPEN) else {
            // The last bytes may be the beginning of a flow.
            let keep = if self.closed { 0 } else { OPEN.len() - 1 };
            self.pass_to(self.input.len().saturating_sub(keep).max(self.used));
            return if self.closed { Step::End } else { Step::More };
        };
        self.pass_to(self.used + open);
        let line = self.lines + 1;
        let rest = &self.input[self.used..];
        let close = find(rest, CLOSE).map(|at| at + CLOSE.len());
        // A flow without its end stops at the next one's beginning.
        let next = find(&rest[OPEN.len()..], OPEN).map(|at| at + OPEN.len());
        let (length, parsed) = match (close, next) {
            (Some(close), next) if next.is_none_or(|next| close <= next) => {
                (close, flow(&rest[..close]))
            }
            (_, Some(next)) => (next, Err(XmlError::Cut)),
            _ if self.closed || rest.len() > LIMIT => (rest.len(), Err(XmlError::Cut)),
            _ => return Step::More,
        };
        self.pass_to(self.used + length);
        Step::Item((line, parsed))
    }

    fn pass_to(&mut self, to: usize) {
        let ends = self.input[self.used..to].iter().filter(|byte| **byte == b'\n').count();
        self.lines += ends as u64;
        self.used = to;
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, what)
}

#[derive(Deserialize)]
struct XmlFlow {
    #[serde(rename = "@type")]
    kind: Option<String>,
    meta: Vec<Meta>,
    when: Option<When>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(rename = "@direction")]
    direction: String,
    layer3: Option<Layer3>,
    layer4: Option<Layer4>,
    zone: Option<u16>,
    state: Option<String>,
    timeout: Option<u64>,
    mark: Option<u32>,
    id: Option<u32>,
    unreplied: Option<IgnoredAny>,
    assured: Option<IgnoredAny>,
    offload: Option<IgnoredAny>,
    hw_offload: Option<IgnoredAny>,
    timestamp: Option<Kept>,
}

#[derive(Deserialize)]
struct Layer3 {
    src: IpAddr,
    dst: IpAddr,
}

#[derive(Deserialize)]
struct Layer4 {
    #[serde(rename = "@protonum")]
    protocol: u8,
    sport: Option<u16>,
    dport: Option<u16>,
}

/// Unix time in nanoseconds.
#[derive(Deserialize)]
struct Kept {
    start: Option<i64>,
}

/// The node's local time.
#[derive(Deserialize)]
struct When {
    hour: i8,
    min: i8,
    sec: i8,
    day: i8,
    month: i8,
    year: i16,
}

fn flow(xml: &[u8]) -> Result<Parsed, XmlError> {
    let text = std::str::from_utf8(xml).map_err(|_| XmlError::NotText)?;
    let flow: XmlFlow = quick_xml::de::from_str(text).map_err(|_| XmlError::NoFlow)?;
    let kind = match flow.kind.as_deref() {
        Some("new") => FlowKind::New,
        Some("update") => FlowKind::Update,
        Some("destroy") => FlowKind::Destroy,
        None => FlowKind::Listed,
        Some(_) => return Err(XmlError::Type),
    };
    let of = |direction| flow.meta.iter().find(|meta| meta.direction == direction);
    let (Some(orig), Some(reply)) = (of("original"), of("reply")) else {
        return Err(XmlError::Tuples);
    };
    let protocol = orig.layer4.as_ref().ok_or(XmlError::Tuples)?.protocol;
    if !has_ports(protocol) {
        return Ok(Parsed::OtherProtocol(protocol));
    }
    let both = of("independent");
    let state = both.and_then(|both| both.state.as_deref()).filter(|_| protocol == TCP);
    let state = state.map(|name| tcp_state(name).ok_or(XmlError::State)).transpose()?;
    let has = |field: fn(&Meta) -> bool| both.is_some_and(field);
    let zone = both.and_then(|both| both.zone);
    let made = both.and_then(|both| both.timestamp.as_ref()?.start);
    Ok(Parsed::Flow(Flow {
        kind,
        time: flow.when.map(|when| when.time().ok_or(XmlError::Time)).transpose()?,
        protocol,
        remaining: both.and_then(|both| both.timeout).map(Duration::from_secs),
        state,
        orig: orig.ends().tuple().ok_or(XmlError::Tuples)?,
        reply: reply.ends().tuple().ok_or(XmlError::Tuples)?,
        unreplied: has(|both| both.unreplied.is_some()),
        assured: has(|both| both.assured.is_some()),
        offloaded: has(|both| both.offload.is_some() || both.hw_offload.is_some()),
        zone: zone.or(orig.zone).unwrap_or(0),
        reply_zone: zone.or(reply.zone).unwrap_or(0),
        mark: both.and_then(|both| both.mark),
        id: both.and_then(|both| both.id),
        made: made.map(|start| FlowTime::Wall(Stamp { at: WallNs(start), step_ns: 1 })),
        by_process: false,
    }))
}

impl Meta {
    fn ends(&self) -> Ends {
        let address = self.layer3.as_ref();
        let port = self.layer4.as_ref();
        Ends {
            src: address.map(|layer| layer.src),
            dst: address.map(|layer| layer.dst),
            sport: port.and_then(|layer| layer.sport),
            dport: port.and_then(|layer| layer.dport),
        }
    }
}

impl When {
    fn time(&self) -> Option<FlowTime> {
        let date = DateTime::new(self.year, self.month, self.day, self.hour, self.min, self.sec, 0);
        local(date.ok()?)
    }
}
