//! What was changed on purpose during a trace, so that what was treated can be compared with what was not.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{NetnsId, Tuple};

/// A change made on purpose. The event's time is just after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Intervention {
    /// Of the stale entries that there were, a random half was deleted.
    Flush {
        /// In whose table.
        netns: NetnsId,
        /// All that there were, deleted or not.
        entries: Vec<FlushedEntry>,
    },
    /// Entries made from now on live for another time; those that are there keep theirs.
    Timeout {
        /// In whose table.
        netns: NetnsId,
        /// How long an entry without a reply lived.
        before: Duration,
        /// How long one lives now.
        after: Duration,
    },
    /// A random half of the client's workers choose their connections' source ports themselves from now on, out of a
    /// range that nobody else takes ports of. The others leave it to the kernel.
    Ports {
        /// Where the client is.
        netns: NetnsId,
        /// The range's first port.
        first: u16,
        /// Its last one.
        last: u16,
        /// Whether they are taken again and again, one after the other. Else each is used once.
        again: bool,
    },
}

/// A stale entry at the time of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlushedEntry {
    /// Its original tuple.
    pub orig: Tuple,
    /// Where it points.
    pub backend: SocketAddr,
    /// How long it had left, in whole seconds, rounded down.
    pub left: Duration,
    /// Whether it was deleted.
    pub treated: bool,
}
