//! How clients word an error, and what symptom that is.
//!
//! | symptom | wording |
//! |---|---|
//! | `local` | a name that was not resolved (Go `lookup …`, `no such host`; `Name or service not known`, `getaddrinfo`, `ENOTFOUND`, `UnknownHostException`, `Could not resolve host`), no port (`Cannot assign requested address`), no socket (`Too many open files`), forbidden (`Operation not permitted`) |
//! | `refused` | `Connection refused`, `ECONNREFUSED`, number 111 |
//! | `unreachable` | `No route to host`, `Network is unreachable`, `EHOSTUNREACH`, `NoRouteToHostException`, numbers 113, 101 |
//! | `wrong-answer` | a status of 500 and more, `Bad Gateway` and the like, what is no HTTP |
//! | `reset` | `Connection reset`, `ECONNRESET`, `Broken pipe`, `EPIPE`, numbers 104, 32 |
//! | `connect-timeout` | a timeout that names the connect: Go `dial tcp …: i/o timeout`, `while waiting for connection`; Java `connect timed out`; Python `ConnectTimeout`, `Connection to … timed out`; Node `connect ETIMEDOUT`, `Connect Timeout Error`; curl `Failed to connect … timed out`, `Connection timed out`; Rust `error trying to connect: operation timed out`; number 110 |
//! | `response-timeout` | a timeout that names the reading: `Read timed out`, `ReadTimeout`, `read tcp …: i/o timeout`, curl `Operation timed out … bytes received` |
//! | `closed` | `EOF`, `socket hang up`, `RemoteDisconnected`, `Server disconnected`, `Empty reply from server`, `connection closed`, `failed to respond` |
//!
//! The first that fits counts. A timeout that says neither (`context deadline exceeded`, `timeout`) is a
//! connect that timed out, unless the log says that it was connected; and that is marked, since packets can
//! tell better.

use crate::model::Symptom;

/// What a text says of a request's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It went well.
    Well,
    /// It has an HTTP status.
    Status(u16),
    /// It failed.
    Failed(Symptom),
    /// It timed out, at the connect or later.
    TimedOut,
    /// Nobody knows.
    Unknown,
}

/// What this text, a log's word on a request's outcome, says.
pub(super) fn said(text: &str) -> Said {
    let text = text.trim().to_lowercase();
    if matches!(
        text.as_str(),
        "ok" | "success" | "succeeded" | "answered" | "true" | "pass" | "passed" | "none" | "null"
    ) {
        return Said::Well;
    }
    if let Some(symptom) = Symptom::ALL.into_iter().find(|symptom| symptom.name() == text) {
        return Said::Failed(symptom);
    }
    if let Some(status) = leading_status(&text) {
        return Said::Status(status);
    }
    failure(&text)
}

/// `503`, `503 Service Unavailable` and `HTTP 503`.
fn leading_status(text: &str) -> Option<u16> {
    let text = text.strip_prefix("http ").unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let status = number.parse().ok().filter(|status| (100..600).contains(status))?;
    (rest.is_empty() || rest.starts_with(' ')).then_some(status)
}

fn failure(text: &str) -> Said {
    let has = |wording: &[&str]| wording.iter().any(|wording| text.contains(wording));
    let errno = errno(text);
    if has(LOCAL) || matches!(errno, Some(99 | 24 | 1)) || has_word(text, "lookup") {
        Said::Failed(Symptom::Local)
    } else if has(&["connection refused", "econnrefused"]) || errno == Some(111) {
        Said::Failed(Symptom::Refused)
    } else if has(UNREACHABLE) || matches!(errno, Some(113 | 101)) {
        Said::Failed(Symptom::Unreachable)
    } else if has(WRONG) {
        Said::Failed(Symptom::WrongAnswer)
    } else if has(&["connection reset", "econnreset", "broken pipe", "reset by peer"])
        || has_word(text, "epipe")
        || matches!(errno, Some(104 | 32))
    {
        Said::Failed(Symptom::Reset)
    } else if has(TIMEOUT) || errno == Some(110) {
        if has(READING) {
            Said::Failed(Symptom::ResponseTimeout)
        } else if has(CONNECTING) || errno == Some(110) {
            Said::Failed(Symptom::ConnectTimeout)
        } else {
            Said::TimedOut
        }
    } else if has_word(text, "eof") || has(CLOSED) {
        Said::Failed(Symptom::Closed)
    } else {
        Said::Unknown
    }
}

const LOCAL: &[&str] = &[
    "no such host",
    "name or service not known",
    "name resolution",
    "nodename nor servname",
    "getaddrinfo",
    "enotfound",
    "eai_again",
    "unknownhost",
    "could not resolve host",
    "couldn't resolve host",
    "dns error",
    "cannot assign requested address",
    "eaddrnotavail",
    "too many open files",
    "emfile",
    "operation not permitted",
];

const UNREACHABLE: &[&str] =
    &["no route to host", "is unreachable", "ehostunreach", "enetunreach", "noroutetohost"];

const WRONG: &[&str] = &[
    "internal server error",
    "bad gateway",
    "service unavailable",
    "gateway timeout",
    "gateway time-out",
    "malformed http",
    "bad status line",
    "badstatusline",
    "invalid http",
];

const TIMEOUT: &[&str] = &["timeout", "timed out", "etimedout", "deadline"];

const READING: &[&str] = &[
    "read timed out",
    "readtimeout",
    "read timeout",
    "read etimedout",
    "read tcp",
    "reading body",
    "bytes received",
    "response timeout",
    "headers timeout",
    "body timeout",
];

const CONNECTING: &[&str] = &[
    "dial ",
    "waiting for connection",
    "connect timed out",
    "connect timeout",
    "connecttimeout",
    "connect etimedout",
    "connect_timeout",
    "connection timed out",
    "connection timeout",
    "connection to ",
    "failed to connect",
    "trying to connect",
    "connect error",
    "(connect)",
    "tls handshake timeout",
];

const CLOSED: &[&str] = &[
    "socket hang up",
    "remote end closed",
    "remotedisconnected",
    "server disconnected",
    "server closed",
    "empty reply",
    "connection closed",
    "closed before",
    "closed the connection",
    "closed connection",
    "incomplete message",
    "incompletemessage",
    "unexpected end",
    "failed to respond",
];

/// Whether the word occurs by itself.
fn has_word(text: &str, word: &str) -> bool {
    let mut parts = text.split(|c: char| !c.is_alphanumeric());
    parts.any(|part| part == word)
}

/// The number in `[Errno 111]` and `(os error 111)`.
pub(super) fn errno(text: &str) -> Option<i32> {
    let text = text.to_lowercase();
    let at = ["errno ", "os error "]
        .iter()
        .find_map(|before| text.find(before).map(|at| at + before.len()))?;
    let digits = text[at..].trim_start_matches('-');
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// Whom Go says it dialled: `dial tcp 10.96.0.10:80: i/o timeout`.
pub(super) fn dialled(text: &str) -> Option<std::net::SocketAddr> {
    let (_, rest) = text.split_once("dial tcp ")?;
    let ends = rest.split_once(": ").map_or(rest, |(ends, _)| ends);
    ends.rsplit("->").next()?.trim_end_matches(':').parse().ok()
}
