//! One line of conntrack's text, in any of its forms:
//!
//! ```text
//! [time] [EVENT] [l3 name, number] l4 name, number [seconds] [state] tuple [UNREPLIED] tuple [ASSURED] key=value…
//! ```

use std::net::IpAddr;
use std::time::Duration;

use jiff::civil::DateTime;

use super::super::stamp::{SECOND, Stamp, decimal};
use super::{Ends, Flow, FlowKind, FlowTime, TCP, Trailer, has_ports, tcp_state};
use crate::model::WallNs;

/// What a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "one at a time, and nearly always an entry")]
pub enum Parsed {
    /// An entry.
    Flow(Flow),
    /// An entry of a protocol without ports, by its number.
    OtherProtocol(u8),
    /// The tool's last words.
    Trailer(Trailer),
    /// Nothing.
    Empty,
}

/// Why a line can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// It is not UTF-8.
    #[error("not text")]
    NotText,
    /// It does not begin with a protocol's name and number.
    #[error("no protocol")]
    NoProtocol,
    /// Its time can't be read.
    #[error("a time that is none")]
    Time,
    /// An address can't be read.
    #[error("an address that is none")]
    Address,
    /// A port can't be read.
    #[error("a port that is none")]
    Port,
    /// A number can't be read.
    #[error("a number that is none")]
    Number,
    /// There is no such state of TCP.
    #[error("an unknown state of TCP")]
    State,
    /// It has a word that no form has.
    #[error("an unknown word")]
    Word,
    /// A tuple is missing or not whole: the line may be cut.
    #[error("without both tuples")]
    Tuples,
}

/// Reads one line, with or without its end. Spaces and tabs may be more or fewer than the tool prints: pasting
/// changes them.
///
/// # Errors
/// If it is in none of the forms.
pub fn parse_line(line: &[u8]) -> Result<Parsed, LineError> {
    let line = std::str::from_utf8(line).map_err(|_| LineError::NotText)?.trim();
    let mut words = Words(line);
    let Some(mut word) = words.next() else { return Ok(Parsed::Empty) };
    if let Some(trailer) = trailer(line) {
        return Ok(Parsed::Trailer(trailer));
    }
    let mut time = None;
    if let Some(inner) = bracketed(word).filter(|inner| inner.starts_with(digit)) {
        time = Some(FlowTime::Wall(printed_at(inner).ok_or(LineError::Time)?));
        word = words.next().ok_or(LineError::NoProtocol)?;
    }
    let kind = match word {
        "[NEW]" => FlowKind::New,
        "[UPDATE]" => FlowKind::Update,
        "[DESTROY]" => FlowKind::Destroy,
        _ => FlowKind::Listed,
    };
    if kind != FlowKind::Listed {
        word = words.next().ok_or(LineError::NoProtocol)?;
    }
    if matches!(word, "ipv4" | "ipv6") {
        words.next().filter(|number| is_number(number)).ok_or(LineError::NoProtocol)?;
        word = words.next().ok_or(LineError::NoProtocol)?;
    }
    let protocol = words.next().filter(|_| word.starts_with(|c: char| c.is_ascii_alphabetic()));
    let protocol = protocol.and_then(|number| number.parse().ok()).ok_or(LineError::NoProtocol)?;
    if !has_ports(protocol) {
        // Both tuples are looked for, so that no sentence with a number in it passes for an entry.
        let both = line.matches(" src=").count() >= 2 && line.matches(" dst=").count() >= 2;
        return if both { Ok(Parsed::OtherProtocol(protocol)) } else { Err(LineError::Tuples) };
    }
    let mut fields = Fields { protocol, ..Fields::default() };
    for word in words {
        fields.take(word)?;
    }
    fields.flow(kind, time).map(Parsed::Flow)
}

/// Words between white space; what stands in brackets is one word.
struct Words<'a>(&'a str);

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let text = self.0.trim_ascii_start();
        let bytes = text.as_bytes();
        let is_end = |byte: &u8| byte.is_ascii_whitespace();
        let end = match bytes.first()? {
            b'[' => bytes.iter().position(|byte| *byte == b']').map(|at| at + 1),
            _ => bytes.iter().position(is_end),
        };
        let (word, rest) = text.split_at(end.unwrap_or(text.len()));
        self.0 = rest;
        Some(word)
    }
}

/// What stands behind the protocol, as it is read.
#[derive(Default)]
struct Fields {
    protocol: u8,
    remaining: Option<Duration>,
    state: Option<crate::model::CtState>,
    orig: Ends,
    reply: Ends,
    /// Whether the second `src=` has been met.
    in_reply: bool,
    unreplied: bool,
    assured: bool,
    offloaded: bool,
    zone: u16,
    reply_zone: Option<u16>,
    mark: Option<u32>,
    id: Option<u32>,
    made: Option<FlowTime>,
    by_process: bool,
}

impl Fields {
    fn take(&mut self, word: &str) -> Result<(), LineError> {
        if let Some((key, value)) = word.split_once('=')
            && !word.starts_with('[')
        {
            return self.key(key, value);
        }
        match word {
            "[UNREPLIED]" => self.unreplied = true,
            "[ASSURED]" => self.assured = true,
            "[OFFLOAD]" | "[HW_OFFLOAD]" => self.offloaded = true,
            "[USERSPACE]" => self.by_process = true,
            _ => {
                if let Some(inner) = bracketed(word) {
                    if let Some(date) = inner.strip_prefix("start=") {
                        self.made = Some(made_at(date).ok_or(LineError::Time)?);
                    }
                    // A flag of a newer tool: what it means, the rest of the line does not depend on.
                } else if self.orig.src.is_some() {
                    return Err(LineError::Word);
                } else if is_number(word) {
                    let seconds = word.parse().map_err(|_| LineError::Number)?;
                    self.remaining = Some(Duration::from_secs(seconds));
                } else if self.protocol == TCP {
                    self.state = Some(tcp_state(word).ok_or(LineError::State)?);
                }
            }
        }
        Ok(())
    }

    fn key(&mut self, key: &str, value: &str) -> Result<(), LineError> {
        match key {
            "src" => {
                self.in_reply = self.orig.src.is_some();
                self.ends().src = Some(address(value)?);
            }
            "dst" => self.ends().dst = Some(address(value)?),
            "sport" => self.ends().sport = Some(port(value)?),
            "dport" => self.ends().dport = Some(port(value)?),
            "zone" | "zone-orig" => self.zone = number(value)?,
            "zone-reply" => self.reply_zone = Some(number(value)?),
            "mark" => self.mark = Some(number(value)?),
            "id" => self.id = Some(number(value)?),
            // Counters, use, secctx, labels, helper, delta-time, portid: nothing rests on them.
            _ => {}
        }
        Ok(())
    }

    fn ends(&mut self) -> &mut Ends {
        if self.in_reply { &mut self.reply } else { &mut self.orig }
    }

    fn flow(self, kind: FlowKind, time: Option<FlowTime>) -> Result<Flow, LineError> {
        Ok(Flow {
            kind,
            time,
            protocol: self.protocol,
            remaining: self.remaining,
            state: self.state,
            orig: self.orig.tuple().ok_or(LineError::Tuples)?,
            reply: self.reply.tuple().ok_or(LineError::Tuples)?,
            unreplied: self.unreplied,
            assured: self.assured,
            offloaded: self.offloaded,
            zone: self.zone,
            reply_zone: self.reply_zone.unwrap_or(self.zone),
            mark: self.mark,
            id: self.id,
            made: self.made,
            by_process: self.by_process,
        })
    }
}

/// `conntrack v1.4.7 (conntrack-tools): 48 flow entries have been shown.`
fn trailer(line: &str) -> Option<Trailer> {
    let said = line.strip_suffix("have been shown.").map(|said| (said, false));
    let (said, deleted) =
        said.or_else(|| line.strip_suffix("have been deleted.").map(|said| (said, true)))?;
    let said = said.rsplit_once(':').map_or(said, |(_, said)| said);
    let count = said.split_whitespace().next()?.parse().ok()?;
    Some(Trailer { count, deleted })
}

fn bracketed(word: &str) -> Option<&str> {
    word.strip_prefix('[')?.strip_suffix(']')
}

/// `1796091212.856558`. Before version 1.4.5 the microseconds were padded with spaces behind instead of zeros
/// before: `1796091212.5558  ` is 5,558 µs.
fn printed_at(text: &str) -> Option<Stamp> {
    let trimmed = text.trim_end();
    if trimmed.len() == text.len() {
        let (at, step_ns) = decimal(text, SECOND)?;
        return Some(Stamp { at: WallNs(at), step_ns });
    }
    let (seconds, micros) = trimmed.split_once('.')?;
    let (seconds, _) = decimal(seconds.trim_end(), SECOND)?;
    let (micros, step_ns) = decimal(micros, 1_000)?;
    Some(Stamp { at: WallNs(seconds.checked_add(micros)?), step_ns })
}

/// `Tue Dec  1 04:47:52 2026`, as ctime(3) writes the local time; the kernel's own seconds in /proc would be
/// `start=…` without it.
fn made_at(text: &str) -> Option<FlowTime> {
    let date = DateTime::strptime("%a %b %e %H:%M:%S %Y", text).ok()?;
    local(date)
}

/// A date and time without a zone, in whole seconds.
pub(super) fn local(date: DateTime) -> Option<FlowTime> {
    let at = jiff::tz::Offset::UTC.to_timestamp(date).ok()?.as_nanosecond();
    Some(FlowTime::Local(Stamp { at: WallNs(i64::try_from(at).ok()?), step_ns: SECOND }))
}

fn digit(c: char) -> bool {
    c.is_ascii_digit()
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn address(text: &str) -> Result<IpAddr, LineError> {
    text.parse().map_err(|_| LineError::Address)
}

fn port(text: &str) -> Result<u16, LineError> {
    text.parse().map_err(|_| LineError::Port)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, LineError> {
    text.parse().map_err(|_| LineError::Number)
}
