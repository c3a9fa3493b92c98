//! What a trace says of itself before its first event.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{ClockAnchor, DropReason, Hook, MonoNs, NetnsId};

/// The head of a trace: all that a verdict needs and that no event tells. Known before the first event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceHeader {
    /// The version of tracer that made it.
    pub tracer: String,
    /// What made it.
    pub origin: Origin,
    /// The kernel's release and machine, as `uname -rm` prints them; empty where no file tells it.
    pub kernel: String,
    /// The node's host name; empty where no file tells it.
    pub node: String,
    /// The kernel's ticks a second, if they could be determined.
    pub hz: Option<u32>,
    /// When the trace began: the zero of every time in a report.
    pub began: MonoNs,
    /// The same clock's relation to the wall clock.
    pub anchor: ClockAnchor,
    /// The hooks and whether they were attached.
    pub hooks: Vec<HookStatus>,
    /// The namespaces that were known, and what they are.
    pub netns: Vec<Netns>,
    /// The values at the start of the sysctls that matter.
    pub sysctls: Vec<Sysctl>,
    /// The Services of interest, as address and port in front of NAT.
    pub services: Vec<SocketAddr>,
    /// The traced kernel's names of drop reasons.
    pub drop_reasons: BTreeMap<u32, String>,
    /// What a reader must know, a sentence each: shortened timers, features switched off.
    pub notes: Vec<String>,
}

impl TraceHeader {
    /// The value of a sysctl in a namespace at the start.
    pub fn sysctl(&self, netns: NetnsId, name: &str) -> Option<&str> {
        self.sysctls
            .iter()
            .find(|sysctl| sysctl.netns == netns && sysctl.name == name)
            .map(|sysctl| sysctl.value.as_str())
    }

    /// The name of a namespace, if the trace knows it.
    pub fn netns_name(&self, id: NetnsId) -> Option<&str> {
        self.netns.iter().find(|netns| netns.id == id).map(|netns| netns.name.as_str())
    }

    /// A drop's reason in the traced kernel's words.
    pub fn drop_reason(&self, reason: Option<DropReason>) -> String {
        let Some(reason) = reason else { return "this kernel gives no reason".to_owned() };
        let name = self.drop_reasons.get(&reason.0).cloned();
        name.unwrap_or_else(|| format!("reason {}", reason.0))
    }

    /// Whether SYNs could be seen with the entries that they met: read from the kernel, or inferred from a capture.
    pub fn sees_syns(&self) -> bool {
        [Hook::NetDevStartXmit, Hook::Capture].iter().any(|hook| self.is_attached(*hook))
    }

    /// Whether a hook was attached.
    pub fn is_attached(&self, hook: Hook) -> bool {
        self.hooks.iter().any(|status| status.hook == hook && status.attached)
    }
}

/// What made a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// `tracer lab`: the whole truth of requests and cluster is in the trace.
    Lab {
        /// The command line.
        command: String,
        /// The seed that its random choices came from.
        seed: u64,
    },
    /// `tracer record`.
    Record {
        /// The command line.
        command: String,
    },
    /// `tracer replay`, of what others have recorded: captures, conntrack logs, watches, request logs.
    Replay {
        /// The command line.
        command: String,
    },
}

/// A hook, and whether its program runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookStatus {
    /// Which.
    pub hook: Hook,
    /// Whether it was attached.
    pub attached: bool,
    /// Why not, or what it can't tell here.
    pub note: Option<String>,
}

/// A network namespace that the trace knows by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Netns {
    /// Its inode number.
    pub id: NetnsId,
    /// Its name.
    pub name: String,
    /// What it is.
    pub role: NetnsRole,
}

/// What a network namespace is to the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetnsRole {
    /// The node that the client runs on: its conntrack table is the one that matters.
    ClientNode,
    /// Another node.
    Node,
    /// The client's pod.
    Client,
    /// Something else.
    Other,
}

/// A sysctl's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sysctl {
    /// The namespace.
    pub netns: NetnsId,
    /// Its name, dotted.
    pub name: String,
    /// Its value, white space folded to one space.
    pub value: String,
}
