//! Connects as the kernel ends them, and who made them: what is known of requests where no client logs them.

use serde::{Deserialize, Serialize};

use super::{MonoNs, NetnsId, Tuple};

/// A connect came to its end, or a connection that had come about was reset, as the client's socket told
/// (`inet_sock_set_state`). Only where no request log tells of requests: then this is all that is known of how they
/// ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectEvent {
    /// The socket's network namespace.
    pub netns: NetnsId,
    /// Local end → remote end.
    pub tuple: Tuple,
    /// When the process called connect(2); none if that was not seen, as of a connection that is reset.
    pub started: Option<MonoNs>,
    /// How it ended.
    pub end: ConnectEnd,
    /// The process that called; none if that was not seen.
    pub by: Option<Process>,
}

/// How a connect ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConnectEnd {
    /// The connection came about. What it then carried is not known.
    Established,
    /// It did not.
    Failed {
        /// The socket's error (errno(3)); 0 if it had none: its own process gave up.
        errno: i32,
    },
    /// It had come about, and a RST ended it.
    Reset {
        /// The socket's error.
        errno: i32,
    },
}

/// A process, as it was when it connected.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Process {
    /// Its number in the first PID namespace.
    pub pid: u32,
    /// Its name, at most 15 bytes (`comm`).
    pub name: String,
    /// The number of its cgroup in the unified hierarchy; [`Workload`] tells what that is.
    pub cgroup: u64,
}

/// What a cgroup is, told once in a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// The cgroup's number.
    pub cgroup: u64,
    /// Its path in the unified hierarchy.
    pub path: String,
    /// The container's id, if the path names one.
    pub container: Option<String>,
    /// The pod's name, or its uid where no event tells of it.
    pub pod: Option<String>,
}
