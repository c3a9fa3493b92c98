//! Why a lab could not be built or did not run to its end.

use std::io;
use std::time::Duration;

use crate::sys::conntrack::ConntrackError;
use crate::sys::netns::NetnsError;
use crate::sys::owner::OwnerError;
use crate::sys::process::ProcessError;
use crate::sys::sysctl::SysctlError;
use crate::sys::tool::ToolError;

/// Why a lab could not be built or did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Without root there are no namespaces.
    #[error("the lab makes network namespaces: run it as root (sudo)")]
    NotRoot,
    /// SIGINT, SIGTERM, or a part of the program asked for the end.
    #[error("stopped on request")]
    Stopped,
    /// No names could be had, or those of a dead lab could not be removed.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// A tool is missing or failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A network namespace could not be used.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// A sysctl of the lab's namespaces could not be read or set.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// The conntrack table could not be read or changed.
    #[error(transparent)]
    Conntrack(#[from] ConntrackError),
    /// The SYN_SENT timer is not a number of seconds.
    #[error("nf_conntrack_tcp_timeout_syn_sent is `{value}`, not a number of seconds")]
    Timer {
        /// What it is.
        value: String,
    },
    /// A pod's process could not be started or ended.
    #[error("pod {pod}")]
    Process {
        /// The pod.
        pod: String,
        /// Why.
        #[source]
        source: ProcessError,
    },
    /// A pod's process ended by itself.
    #[error("pod {pod} ended by itself ({status}): {stderr}")]
    PodEnded {
        /// The pod.
        pod: String,
        /// Its exit status.
        status: String,
        /// The end of what it wrote to its standard error.
        stderr: String,
    },
    /// A pod did not become ready in time.
    #[error("pod {pod} is not ready after {} s: {answer}", after.as_secs_f64())]
    NotReady {
        /// The pod.
        pod: String,
        /// How long it was waited for.
        after: Duration,
        /// What its last probe got.
        answer: String,
    },
    /// The DNS server's log could not be had.
    #[error("cannot keep the DNS server's log")]
    DnsLog(#[source] io::Error),
    /// A connection of the lab's own could not be made or brought into its state.
    #[error("a connection of the lab's own: {what}")]
    Held {
        /// What did not come about.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A thread or a runtime could not be had.
    #[error("cannot start a thread of the lab")]
    Thread(#[source] io::Error),
}
