//! Looks at a node's conntrack table through `conntrack -L`, and their meaning.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Recorder;
use crate::lab::LabError;
use crate::model::MonoNs;
use crate::sys::netns::{Netns, NetnsError};
use crate::sys::stop::Stop;
use crate::sys::sysctl::SYN_SENT_TIMEOUT;
use crate::sys::tool::{CONNTRACK, ToolError};
use crate::sys::{clock, sysctl};

/// One look at the table. Each row was read at some moment between the two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// Just before.
    pub before: MonoNs,
    /// Just after.
    pub after: MonoNs,
    /// The client's entries for the Service, without those in TIME_WAIT: a new SYN kills such an entry and
    /// walks the rules afresh, so it decides nothing.
    pub rows: Vec<Row>,
}

/// An entry as `conntrack -L` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The client's port.
    pub port: u16,
    /// Where the entry's packets go: the source of its reply tuple.
    pub backend: SocketAddr,
    /// The state.
    pub state: State,
    /// Whether no reply has been seen.
    pub is_unreplied: bool,
    /// Whole seconds left, rounded down.
    pub left: u32,
}

/// The states that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// SYN_SENT
    SynSent,
    /// CLOSE
    Close,
    /// Any other but TIME_WAIT: it has seen a reply.
    Other,
}

/// Looks at the table until it is finished or dropped.
#[derive(Debug)]
pub(crate) struct Watcher {
    stop: Stop,
    thread: Option<JoinHandle<Result<Result<(), LabError>, NetnsError>>>,
}

impl Watcher {
    /// Looks each `period` from inside the node's namespace.
    pub(crate) fn start(
        node: &Netns,
        period: Duration,
        recorder: Arc<Recorder>,
    ) -> Result<Watcher, LabError> {
        let stop = Stop::default();
        let asked = stop.clone();
        let thread = node.spawn(move || watch(period, &recorder, &asked))?;
        Ok(Watcher { stop, thread: Some(thread) })
    }

    /// Looks once more and ends.
    pub(crate) fn finish(mut self) -> Result<(), LabError> {
        self.join()
    }

    fn join(&mut self) -> Result<(), LabError> {
        self.stop.request();
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result?,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            // Whoever wants its result calls `finish`.
            let _ = thread.join();
        }
    }
}

fn watch(period: Duration, recorder: &Recorder, stop: &Stop) -> Result<(), LabError> {
    let value = sysctl::read(SYN_SENT_TIMEOUT)?;
    let seconds = value.parse().map_err(|_| LabError::Timer { value })?;
    recorder.timeout(Duration::from_secs(seconds));
    let (client, service) = recorder.endpoints();
    loop {
        let is_last = stop.is_requested();
        let began = Instant::now();
        recorder.look(look(client, service)?);
        if is_last {
            return Ok(());
        }
        stop.wait(period.saturating_sub(began.elapsed()));
    }
}

fn look(client: IpAddr, service: SocketAddr) -> Result<Look, ToolError> {
    let before = clock::now();
    let family = if client.is_ipv4() { "ipv4" } else { "ipv6" };
    let text = CONNTRACK.run(&["-L", "-f", family, "-p", "tcp"], "")?;
    let after = clock::now();
    let rows = text.lines().filter_map(|line| parse(line, client, service)).collect();
    Ok(Look { before, after, rows })
}

/// The row of a line such as
/// `tcp 6 89 SYN_SENT src=… dst=… sport=… dport=… [UNREPLIED] src=… dst=… sport=… dport=… mark=0 use=1`,
/// if it is one of the client's for the Service and not in TIME_WAIT.
fn parse(line: &str, client: IpAddr, service: SocketAddr) -> Option<Row> {
    let mut words = line.split_ascii_whitespace();
    let ("tcp", "6") = (words.next()?, words.next()?) else { return None };
    let left = words.next()?.parse().ok()?;
    let state = match words.next()? {
        "TIME_WAIT" => return None,
        "SYN_SENT" => State::SynSent,
        "CLOSE" => State::Close,
        _ => State::Other,
    };
    let rest: Vec<&str> = words.collect();
    // The original tuple's values come first, then the reply tuple's.
    let values = |key: &str| {
        let of = rest.iter().filter_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        of.map(str::to_owned).collect::<Vec<_>>()
    };
    let (src, dst) = (values("src"), values("dst"));
    let (sport, dport) = (values("sport"), values("dport"));
    let end = |address: &str, port: &str| {
        Some(SocketAddr::new(address.parse().ok()?, port.parse().ok()?))
    };
    let original = (end(src.first()?, sport.first()?)?, end(dst.first()?, dport.first()?)?);
    if original.0.ip() != client || original.1 != service {
        return None;
    }
    Some(Row {
        port: original.0.port(),
        backend: end(src.get(1)?, sport.get(1)?)?,
        state,
        is_unreplied: rest.contains(&"[UNREPLIED]"),
        left,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<Row> {
        let client = "10.100.1.16".parse().expect("an address");
        parse(line, client, "10.100.96.10:80".parse().expect("an address"))
    }

    #[test]
    fn a_stale_entry_is_read() {
        let line = "tcp      6 89 SYN_SENT src=10.100.1.16 dst=10.100.96.10 sport=60914 dport=80 \
                    [UNREPLIED] src=10.100.2.20 dst=10.100.1.16 sport=8080 dport=60914 mark=0 use=1";
        let expected = Row {
            port: 60914,
            backend: "10.100.2.20:8080".parse().expect("an address"),
            state: State::SynSent,
            is_unreplied: true,
            left: 89,
        };
        assert_eq!(parsed(line), Some(expected));
    }

    #[test]
    fn a_replied_entry_is_told_apart() {
        let line = "tcp 6 9 CLOSE src=10.100.1.16 dst=10.100.96.10 sport=40000 dport=80 \
                    src=10.100.1.20 dst=10.100.1.16 sport=8080 dport=40000 [ASSURED] mark=0 use=1";
        let row = parsed(line).expect("it is the client's");
        assert_eq!((row.state, row.is_unreplied, row.left), (State::Close, false, 9));
    }

    #[test]
    fn other_clients_other_protocols_time_wait_and_torn_lines_are_left_out() {
        for line in [
            "",
            "tcp 6 100 SYN_SENT src=10.100.1.16",
            "udp 17 29 src=10.100.1.16 dst=10.100.96.10 sport=1 dport=80 src=1.1.1.1 dst=1.1.1.1 sport=80 dport=1",
            "tcp 6 100 TIME_WAIT src=10.100.1.16 dst=10.100.96.10 sport=40000 dport=80 \
             src=10.100.1.20 dst=10.100.1.16 sport=8080 dport=40000 [ASSURED] mark=0 use=1",
            "tcp 6 100 ESTABLISHED src=10.100.1.1 dst=10.100.1.20 sport=40000 dport=8080 \
             src=10.100.1.20 dst=10.100.1.1 sport=8080 dport=40000 [ASSURED] mark=0 use=1",
        ] {
            assert_eq!(parsed(line), None, "{line}");
        }
    }
}
