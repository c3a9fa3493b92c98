//! A change of a conntrack table, as its own log tells it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CtState, NetnsId, Tuple};

/// An entry came into a conntrack table, changed, or was taken out, as the kernel told whoever asked
/// (`nf_conntrack_netlink`). A SYN that meets an entry in SYN_SENT changes nothing and so is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConntrackEvent {
    /// Whose table.
    pub netns: NetnsId,
    /// What happened.
    pub change: EntryChange,
    /// The original tuple.
    pub orig: Tuple,
    /// The reply tuple: its source is the backend that NAT chose.
    pub reply: Tuple,
    /// The zone.
    pub zone: u16,
    /// The TCP tracker's state, where it is told.
    pub state: Option<CtState>,
    /// Whether no reply has been seen.
    pub unreplied: bool,
    /// How long it still has, where that is told; of a new entry its whole timer.
    pub remaining: Option<Duration>,
}

/// What happened to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryChange {
    /// It came into the table.
    New,
    /// It changed.
    Updated,
    /// It was taken out, by the kernel. One that expired is taken out only some time after.
    Destroyed,
    /// Somebody deleted it.
    Deleted,
}
