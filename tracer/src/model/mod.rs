//! The words of the project: what happened, when, to which tuple. No I/O, no clock, no logic beyond
//! what a word means. Every other room speaks in these types and in nothing else.

mod capture;
mod cluster;
mod connect;
mod conntrack;
mod event;
mod header;
mod intervention;
mod packet;
mod request;
mod time;
mod tuple;

pub use capture::{Captured, Way};
pub use cluster::{ClusterEvent, EndpointChange, PodChange, RolloutChange};
pub use connect::{ConnectEnd, ConnectEvent, Process, Workload};
pub use conntrack::{ConntrackEvent, EntryChange};
pub use event::{Event, EventKind, LossSource, Seq};
pub use header::{HookStatus, Netns, NetnsRole, Origin, Sysctl, TraceHeader};
pub use intervention::{FlushedEntry, Intervention};
pub use packet::{
    CtInfo, CtState, CtStatus, DropReason, EntryLife, Hook, Lookup, PacketEvent, Segment,
    SockState, TcpFlags, TcpStateEvent,
};
pub use request::{
    NameError, Outcome, RequestEnded, RequestId, RequestStarted, Resolution, Reuse, Symptom,
};
pub use time::{ClockAnchor, MonoNs, WallNs};
pub use tuple::{Direction, IfIndex, Isn, NetnsId, SrcPort, Tuple};
