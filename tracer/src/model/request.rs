//! What the client asked for and got.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A request's number, unique within a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub u64);

/// A request began. Its event's time is the moment just before the client did anything for it: asked for the
/// name, made the socket, or wrote to the connection that was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestStarted {
    /// Which one.
    pub id: RequestId,
    /// Which of the client's workers sent it.
    pub worker: u32,
}

/// A request ended, well or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestEnded {
    /// Which one.
    pub id: RequestId,
    /// The socket's own end, also where the connect failed; none if no port was chosen.
    pub source: Option<SocketAddr>,
    /// Where to; none if its name did not resolve.
    pub target: Option<SocketAddr>,
    /// On a connection of its own, or on one that was there.
    pub reuse: Reuse,
    /// How it ended.
    pub outcome: Outcome,
    /// What became of its question for the target's name; none if it asked none.
    pub resolution: Option<Resolution>,
    /// From the start until connected; none if it never was, or the connection was there.
    pub connect: Option<Duration>,
    /// How many bytes of an answer came, head and body.
    pub received: u64,
    /// From the start until the end.
    pub total: Duration,
    /// The pod that named itself in the answer.
    pub pod: Option<String>,
}

/// What became of the question for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolution {
    /// From the request's start until an address was known, or the client gave up.
    pub took: Duration,
    /// Why there was no address, if there was none.
    pub failed: Option<NameError>,
}

/// Why a name did not resolve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NameError {
    /// No answer came within the client's timeout, or the resolver's own.
    Unanswered,
    /// NXDOMAIN: there is no such name.
    NoSuchName,
    /// There is such a name, and it has no address.
    NoAddress,
    /// SERVFAIL, REFUSED, or an answer that could not be read.
    ServerFailed,
    /// The question could not be sent, or an ICMP error came back.
    Unreachable,
}

impl NameError {
    /// Every reason.
    pub const ALL: [NameError; 5] = [
        NameError::Unanswered,
        NameError::NoSuchName,
        NameError::NoAddress,
        NameError::ServerFailed,
        NameError::Unreachable,
    ];

    /// The name used in logs.
    pub fn name(self) -> &'static str {
        match self {
            NameError::Unanswered => "unanswered",
            NameError::NoSuchName => "no-such-name",
            NameError::NoAddress => "no-address",
            NameError::ServerFailed => "server-failed",
            NameError::Unreachable => "unreachable",
        }
    }
}

/// Whose connection a request used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reuse {
    /// It opened its own.
    Fresh,
    /// It was the `nth` on its connection, counted from 0.
    KeepAlive {
        /// How many requests the connection had carried before.
        nth: u32,
    },
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Answered in full by the right app, with this HTTP status (below 500).
    Answered {
        /// The HTTP status; 0 if the log that tells of the request has none.
        status: u16,
    },
    /// Anything else.
    Failed {
        /// What the client saw.
        symptom: Symptom,
        /// The error number of the call that failed, where one did.
        errno: Option<i32>,
        /// The HTTP status, where one came.
        status: Option<u16>,
    },
}

impl Outcome {
    /// The symptom, if it failed.
    pub fn symptom(self) -> Option<Symptom> {
        match self {
            Outcome::Answered { .. } => None,
            Outcome::Failed { symptom, .. } => Some(symptom),
        }
    }
}

impl Reuse {
    /// Whether the request made a connection for itself: only such a one is an attempt.
    pub fn is_connect(self) -> bool {
        matches!(self, Reuse::Fresh | Reuse::KeepAlive { nth: 0 })
    }
}

/// What the client saw of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Symptom {
    /// The connect was not answered within the client's timeout (or ETIMEDOUT).
    ConnectTimeout,
    /// ECONNREFUSED: a RST, or an ICMP port unreachable.
    Refused,
    /// EHOSTUNREACH or ENETUNREACH during the connect.
    Unreachable,
    /// ECONNRESET or EPIPE.
    Reset,
    /// The connection was closed before the answer was complete.
    Closed,
    /// Connected, but no complete answer within the timeout.
    ResponseTimeout,
    /// A complete answer of the wrong app, or with a status of 500 and more.
    WrongAnswer,
    /// No request could be sent: no free port, no socket, no name.
    Local,
}

impl Symptom {
    /// Every symptom.
    pub const ALL: [Symptom; 8] = [
        Symptom::ConnectTimeout,
        Symptom::Refused,
        Symptom::Unreachable,
        Symptom::Reset,
        Symptom::Closed,
        Symptom::ResponseTimeout,
        Symptom::WrongAnswer,
        Symptom::Local,
    ];

    /// The name used in reports and logs.
    pub fn name(self) -> &'static str {
        match self {
            Symptom::ConnectTimeout => "connect-timeout",
            Symptom::Refused => "refused",
            Symptom::Unreachable => "unreachable",
            Symptom::Reset => "reset",
            Symptom::Closed => "closed",
            Symptom::ResponseTimeout => "response-timeout",
            Symptom::WrongAnswer => "wrong-answer",
            Symptom::Local => "local",
        }
    }
}

impl fmt::Display for Symptom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
