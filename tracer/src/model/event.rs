//! One thing that happened, at one time.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    ClusterEvent, ConnectEvent, ConntrackEvent, Hook, Intervention, MonoNs, NetnsId, PacketEvent,
    RequestEnded, RequestStarted, TcpStateEvent, Workload,
};

/// An event's place in the trace, counted from 0. Given by `stream` after ordering; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, on the node's monotonic clock.
    pub time: MonoNs,
    /// What.
    pub kind: EventKind,
}

/// All that can happen. New kinds go to the end: the trace file stores their numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// A packet at a hook.
    Packet(PacketEvent),
    /// A TCP socket changed its state.
    TcpState(TcpStateEvent),
    /// The cluster changed, at some time from `since` to the event's own.
    ///
    /// Where the change itself was watched both are the same. Where only an object tells of it, in whole seconds
    /// and by another machine's clock, they are the first and the last moment that this leaves, the difference
    /// of the clocks included. What lies between the two can't be ordered against the change: evidence that
    /// needs the change before must hold with the event's time, evidence that needs it after with `since`.
    Cluster {
        /// The change.
        change: ClusterEvent,
        /// The earliest time at which it can have happened.
        since: MonoNs,
    },
    /// A request began.
    RequestStarted(RequestStarted),
    /// A request ended.
    RequestEnded(RequestEnded),
    /// A sysctl of a namespace was changed while tracing; the header has the values at the start.
    SysctlSet {
        /// Where.
        netns: NetnsId,
        /// Its name, dotted.
        name: String,
        /// Its new value.
        value: String,
    },
    /// Events were lost. The event's time is when the loss was noticed; it happened since the last such
    /// notice of the same source, or since the start.
    Lost {
        /// Where they were lost.
        source: LossSource,
        /// How many.
        count: u64,
        /// The earliest time at which the loss can have happened.
        since: MonoNs,
    },
    /// Something was changed on purpose.
    Intervention(Intervention),
    /// A conntrack table changed, by its own log.
    Conntrack(ConntrackEvent),
    /// Tracing ended here, whenever the last other event was: until then, what happened was seen.
    Ended,
    /// A connect ended, where no request log tells of requests.
    Connect(ConnectEvent),
    /// What a cgroup is.
    Workload(Workload),
}

/// Where events can be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LossSource {
    /// The ring buffer was full when this hook had a record for it.
    Ring(Hook),
    /// Records that user space could not understand.
    Codec,
    /// Events that came after later ones had been passed on: kept, but out of order.
    Ordering,
    /// The load generator's log.
    Requests,
    /// The cluster's watch had a gap.
    Cluster,
    /// The trace file: frames that were damaged or cut off.
    TraceFile,
    /// The kernel passed over this hook's program, because it was running on that CPU already. Whether there
    /// would have been a record is not known.
    PassedOver(Hook),
    /// A capture file: places that were damaged or cut off, and packets that its maker says it dropped.
    Capture,
    /// The memory that continuous tracing has for events: the oldest were dropped before they were judged.
    Window,
}

impl LossSource {
    /// Whether a loss's count is what was lost. Where a file was cut off or damaged nobody knows how much there
    /// was: then the count is the least that it can have been.
    pub fn is_counted(self) -> bool {
        !matches!(self, LossSource::TraceFile | LossSource::Capture | LossSource::PassedOver(_))
    }

    /// The name used in reports.
    pub fn name(self) -> String {
        match self {
            LossSource::Ring(hook) => format!("ring buffer at {}", hook.name()),
            LossSource::Codec => "unreadable records".to_owned(),
            LossSource::Ordering => "events out of order".to_owned(),
            LossSource::Requests => "request log".to_owned(),
            LossSource::Cluster => "cluster watch".to_owned(),
            LossSource::TraceFile => "trace file damaged or cut short".to_owned(),
            LossSource::Capture => "capture file".to_owned(),
            LossSource::Window => "memory for events".to_owned(),
            LossSource::PassedOver(hook) => format!("program passed over at {}", hook.name()),
        }
    }
}
