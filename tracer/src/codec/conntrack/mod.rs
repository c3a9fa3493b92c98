//! What the `conntrack` tool prints: events (`-E`), listings (`-L`, `-D`, /proc/net/nf_conntrack), and both as
//! XML (`-o xml`). Every entry becomes a [`Flow`], with what its form tells and no more.
//!
//! What such a log can and can't tell of a connect (kernel sources: nf_conntrack_netlink.c,
//! nf_conntrack_proto_tcp.c, nf_conntrack_core.c):
//!
//! - A NEW is the moment at which an entry was confirmed: with `-o timestamp` the tool's own clock when it read
//!   the event, microseconds after the packet, or more where the tool could not keep up.
//! - **The time of a DESTROY is not the time of death.** An expired entry is no longer matched, but reported only
//!   when the garbage collector (up to a minute later) or a lookup comes across it. It died its timer after the
//!   last packet that renewed it: an unreplied SYN_SENT entry `nf_conntrack_tcp_timeout_syn_sent` after its NEW
//!   on kernels that don't renew it.
//! - **A SYN that meets an existing SYN_SENT entry prints nothing**: no state changes. How often a stale entry
//!   was met can't be read from such a log, only that it was there.
//! - A DESTROY has seconds and a state from Linux 5.12 on (commit 86d21fc74745), the seconds only if the entry was
//!   killed before it expired: then the time is that of its death. Before, it has neither.
//! - A DESTROY and a NEW of one tuple microseconds apart are one lookup: it removed the expired entry and made
//!   another one.
//! - Events are lost without a line in the log when the tool can't keep up (ENOBUFS is said on standard error).
//! - A listing has no time of its own, and of an entry's age only what its remaining seconds leave, rounded
//!   down; with `-o ktimestamp` also when it was made, if the kernel keeps that.

mod text;
mod xml;

#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::Step;
use super::lines::{Line, Lines};
use super::stamp::Stamp;
use super::unread::Unread;
use crate::model::{CtState, Tuple};

pub use text::{LineError, Parsed, parse_line};
pub use xml::XmlError;

/// The longest line that is read. An entry with all there is has some 600 bytes.
const LINE_LIMIT: usize = 16 * 1024;

/// An entry of the table, as one line tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// What the line is.
    pub kind: FlowKind,
    /// When the tool printed it.
    pub time: Option<FlowTime>,
    /// The IP protocol: 6 is TCP.
    pub protocol: u8,
    /// The seconds that the entry had left, rounded down; of a NEW or UPDATE its whole timer.
    pub remaining: Option<Duration>,
    /// The TCP tracker's state.
    pub state: Option<CtState>,
    /// The original tuple.
    pub orig: Tuple,
    /// The reply tuple: its source is the backend that DNAT chose.
    pub reply: Tuple,
    /// No reply has been seen.
    pub unreplied: bool,
    /// The connection is assured.
    pub assured: bool,
    /// Packets pass the table by, in a flow table of software or hardware: the seconds are not what counts.
    pub offloaded: bool,
    /// The zone of both directions, or of the original one.
    pub zone: u16,
    /// The zone of the reply direction.
    pub reply_zone: u16,
    /// The mark; events have one only where it is not 0.
    pub mark: Option<u32>,
    /// The kernel's number of the entry (`-o id`): tells two entries of one tuple apart.
    pub id: Option<u32>,
    /// When the entry was made (`-o ktimestamp`).
    pub made: Option<FlowTime>,
    /// A process made the event (`-o userspace`), as `conntrack -D` does: nothing died by itself.
    pub by_process: bool,
}

impl Flow {
    /// The address and port that destination NAT chose; none if it chose none.
    pub fn backend(&self) -> Option<SocketAddr> {
        (self.reply.src != self.orig.dst).then_some(self.reply.src)
    }
}

/// What a line about an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowKind {
    /// An event: the entry came into the table.
    New,
    /// An event: the entry changed.
    Update,
    /// An event: the entry was taken out of the table, some time after it died.
    Destroy,
    /// It is in the table; or it was, of the lines that `conntrack -D` prints.
    Listed,
}

/// A time in conntrack's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowTime {
    /// On the wall clock of the node.
    Wall(Stamp),
    /// A date and time of the node's time zone, which the output does not name: as if it were UTC.
    /// `<when>` of XML, and `[start=…]`.
    Local(Stamp),
}

impl FlowTime {
    /// The moment on the wall clock, for a node whose zone is so many seconds ahead of UTC.
    pub fn with_offset(self, ahead: i32) -> Stamp {
        match self {
            FlowTime::Wall(stamp) => stamp,
            FlowTime::Local(stamp) => {
                let ns = i64::from(ahead) * 1_000_000_000;
                Stamp { at: crate::model::WallNs(stamp.at.0.saturating_sub(ns)), ..stamp }
            }
        }
    }
}

/// Which form of conntrack's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Lines.
    Text,
    /// XML.
    Xml,
}

/// Which form of conntrack's output these first bytes of a file are; none if they are none. A few kilobytes
/// tell, and no more than twenty lines are looked at: a prompt or a remark may stand before the entries.
pub fn form_of(start: &[u8]) -> Option<Form> {
    if xml::looks_like(start) {
        return Some(Form::Xml);
    }
    let mut lines = start.split(|byte| *byte == b'\n').take(20);
    lines
        .any(|line| matches!(parse_line(line), Ok(Parsed::Flow(_) | Parsed::OtherProtocol(_))))
        .then_some(Form::Text)
}

/// Whether these first bytes of a file are output of conntrack.
pub fn looks_like(start: &[u8]) -> bool {
    form_of(start).is_some()
}

/// Reads conntrack's output from bytes as they come, in constant memory.
#[derive(Debug)]
pub struct Reader {
    input: Input,
    counts: Counts,
}

#[derive(Debug)]
enum Input {
    Text(Lines),
    Xml(xml::Flows),
}

/// What was passed over on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries that were read.
    pub flows: u64,
    /// Lines that could not be read.
    pub unread: Unread,
    /// Entries of protocols without ports: none of this tool's business.
    pub other_protocols: u64,
    /// What the tool's last line says, if it is there: it goes to standard error.
    pub trailer: Option<Trailer>,
}

/// What conntrack says when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// How many entries or events.
    pub count: u64,
    /// Whether the entries were deleted: what is listed before is no longer there.
    pub deleted: bool,
}

impl Reader {
    /// For output of this form.
    pub fn new(form: Form) -> Reader {
        let input = match form {
            Form::Text => Input::Text(Lines::new(LINE_LIMIT)),
            Form::Xml => Input::Xml(xml::Flows::default()),
        };
        Reader { input, counts: Counts::default() }
    }

    /// Adds bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        match &mut self.input {
            Input::Text(lines) => lines.feed(bytes),
            Input::Xml(flows) => flows.feed(bytes),
        }
    }

    /// Says that there are no more bytes.
    pub fn close(&mut self) {
        match &mut self.input {
            Input::Text(lines) => lines.close(),
            Input::Xml(flows) => flows.close(),
        }
    }

    /// What was passed over so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The next entry.
    pub fn step(&mut self) -> Step<Flow> {
        loop {
            let (line, parsed) = match &mut self.input {
                Input::Text(lines) => match lines.next() {
                    Step::Item((number, Line::Whole(line))) => {
                        (number, parse_line(line).map_err(|error| error.to_string().into()))
                    }
                    Step::Item((number, Line::TooLong)) => (number, Err("a line too long".into())),
                    Step::More => return Step::More,
                    Step::End => return Step::End,
                },
                Input::Xml(flows) => match flows.step() {
                    Step::Item((number, parsed)) => {
                        (number, parsed.map_err(|error| error.to_string().into()))
                    }
                    Step::More => return Step::More,
                    Step::End => return Step::End,
                },
            };
            if let Some(flow) = self.counts.take(line, parsed) {
                return Step::Item(flow);
            }
        }
    }
}

impl Counts {
    fn take(
        &mut self,
        line: u64,
        parsed: Result<Parsed, std::borrow::Cow<'static, str>>,
    ) -> Option<Flow> {
        match parsed {
            Ok(Parsed::Flow(flow)) => {
                self.flows += 1;
                return Some(flow);
            }
            Ok(Parsed::OtherProtocol(_)) => self.other_protocols += 1,
            Ok(Parsed::Trailer(trailer)) => self.trailer = Some(trailer),
            Ok(Parsed::Empty) => {}
            Err(reason) => self.unread.count(reason, line),
        }
        None
    }
}

/// One direction of an entry as it is read, field by field.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    src: Option<IpAddr>,
    dst: Option<IpAddr>,
    sport: Option<u16>,
    dport: Option<u16>,
}

impl Ends {
    fn tuple(self) -> Option<Tuple> {
        let src = SocketAddr::new(self.src?, self.sport?);
        Some(Tuple { src, dst: SocketAddr::new(self.dst?, self.dport?) })
    }
}

/// The protocols whose tuples have ports: TCP, DCCP, UDP, SCTP, UDP-Lite.
fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 33 | 17 | 132 | 136)
}

const TCP: u8 = 6;

/// The state by the name that the tools print; LISTEN is what they called SYN_SENT2 before Linux 2.6.31.
fn tcp_state(name: &str) -> Option<CtState> {
    (0..=9)
        .map(CtState::from_number)
        .find(|state| state.name() == name)
        .or((name == "LISTEN").then_some(CtState::SynSent2))
}
