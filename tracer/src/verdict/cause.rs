//! Why a request failed: the closed list of causes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a request failed. Where several hold, the first of this list is the one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The SYN followed an entry that an earlier attempt on the same tuple had made, in SYN_SENT and
    /// unreplied, to a pod that was gone.
    StaleEntryReuse,
    /// The same with an entry that had seen a reply.
    StaleRepliedEntry,
    /// A stale entry of either form to an address that now belongs to another pod.
    WrongPod,
    /// An entry made while no NAT rule matched, or a reply that was not translated back.
    Untranslated,
    /// A fresh DNAT to a pod that was already gone, because this node's rules still named it.
    StaleRules,
    /// Refused by a pod that is still there, or closed or reset by the pod, be it while it went away.
    PodNotServing,
    /// The SYN reached a live pod's namespace and nothing came back.
    PodUnanswered,
    /// Connected, but no answer or a late one.
    SlowAnswer,
    /// The Service had no endpoints.
    NoEndpoints,
    /// No route, or ICMP, for a live pod.
    Unreachable,
    /// conntrack judged the SYN invalid.
    Invalid,
    /// Dropped, with a reason.
    Dropped,
    /// The name did not resolve, or left no time for the rest.
    Dns,
    /// No port, no socket.
    LocalError,
    /// No packets were seen for it.
    Unseen,
}

impl Cause {
    /// Every cause, in order of precedence.
    pub const ALL: [Cause; 15] = [
        Cause::StaleEntryReuse,
        Cause::StaleRepliedEntry,
        Cause::WrongPod,
        Cause::Untranslated,
        Cause::StaleRules,
        Cause::PodNotServing,
        Cause::PodUnanswered,
        Cause::SlowAnswer,
        Cause::NoEndpoints,
        Cause::Unreachable,
        Cause::Invalid,
        Cause::Dropped,
        Cause::Dns,
        Cause::LocalError,
        Cause::Unseen,
    ];

    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Cause::StaleEntryReuse => "stale-entry-reuse",
            Cause::StaleRepliedEntry => "stale-replied-entry",
            Cause::WrongPod => "wrong-pod",
            Cause::Untranslated => "untranslated",
            Cause::StaleRules => "stale-rules",
            Cause::PodNotServing => "pod-not-serving",
            Cause::PodUnanswered => "pod-unanswered",
            Cause::SlowAnswer => "slow-answer",
            Cause::NoEndpoints => "no-endpoints",
            Cause::Unreachable => "unreachable",
            Cause::Invalid => "invalid",
            Cause::Dropped => "dropped",
            Cause::Dns => "dns",
            Cause::LocalError => "local-error",
            Cause::Unseen => "unseen",
        }
    }

    /// Whether it is one of the forms of the reused source port.
    pub fn is_reused_port(self) -> bool {
        matches!(self, Cause::StaleEntryReuse | Cause::StaleRepliedEntry | Cause::WrongPod)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
