//! The client's log, and what may become of one of its requests.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{MonoNs, RequestEnded, Resolution, Reuse, Symptom};

/// A row of the client's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientRow {
    /// Which request.
    pub id: u64,
    /// Just before its socket was made.
    pub start: MonoNs,
    /// Whether its connection was there already, made by an earlier request.
    pub is_reused: bool,
    /// The source port, also where the connect failed.
    pub port: Option<u16>,
    /// What became of its question for the Service's name; none if it asked none.
    pub resolution: Option<Resolution>,
    /// From the start until connected, if it was.
    pub connected: Option<Duration>,
    /// From the start until its end.
    pub total: Duration,
    /// How it ended.
    pub end: ClientEnd,
}

impl ClientRow {
    /// The row of a request that started then and ended so.
    pub fn new(start: MonoNs, ended: &RequestEnded) -> ClientRow {
        ClientRow {
            id: ended.id.0,
            start,
            is_reused: matches!(ended.reuse, Reuse::KeepAlive { nth: 1.. }),
            port: ended.source.map(|source| source.port()),
            resolution: ended.resolution,
            connected: ended.connect,
            total: ended.total,
            end: ended.outcome.symptom().map_or(ClientEnd::Answered, ClientEnd::Failed),
        }
    }

    /// How long it waited for an address that it then got.
    pub(super) fn waited(&self) -> Duration {
        match self.resolution {
            Some(Resolution { took, failed: None }) => took,
            _ => Duration::ZERO,
        }
    }

    /// The same from the moment on when it had an address: until then no packet of it went to the Service.
    pub(super) fn with_an_address(&self) -> ClientRow {
        let waited = self.waited();
        ClientRow {
            start: self.start + waited,
            connected: self.connected.map(|connected| connected.saturating_sub(waited)),
            total: self.total.saturating_sub(waited),
            ..self.clone()
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientEnd {
    /// With an answer.
    Answered,
    /// Without.
    Failed(Symptom),
}

/// From one moment to another; something happened between the two, the ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Not before this.
    pub from: MonoNs,
    /// Not after this.
    pub to: MonoNs,
}

impl Span {
    /// What both have in common.
    pub fn and(self, other: Span) -> Option<Span> {
        let both = Span { from: self.from.max(other.from), to: self.to.min(other.to) };
        (both.from <= both.to).then_some(both)
    }
}

/// A request and what must have become of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Which request.
    pub id: u64,
    /// How long it waited for an address that it then got.
    pub waited: Duration,
    /// What must have become of it.
    pub judged: Judged,
}

/// What must have become of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Judged {
    /// Its SYN went to a pod that answered.
    Ok,
    /// Its SYN met an entry that an earlier attempt had made, to an address that was dead by now.
    MetStale {
        /// Where the entry points.
        backend: SocketAddr,
        /// When the entry was made.
        made: Span,
        /// Whether the entry had seen a reply.
        is_replied: bool,
    },
    /// It met such an entry, which expired in the middle of the attempt, so that a later SYN got through.
    Slowed {
        /// Where the entry points.
        backend: SocketAddr,
        /// When the entry was made.
        made: Span,
    },
    /// The entry that it had made or met was deleted in its middle, so that a later SYN got through.
    Freed {
        /// Where the entry pointed.
        backend: SocketAddr,
    },
    /// The entry that it had made to a dead address expired in its middle, so that a later SYN went by the rules anew and
    /// got through.
    SentAnew {
        /// Where the entry pointed.
        backend: SocketAddr,
    },
    /// Its SYN made an entry to an address that was dead already: the rules still named it.
    FreshToDeadAddress {
        /// The address.
        backend: SocketAddr,
    },
    /// Its SYN was refused by a pod that did not listen any more, or not yet, and whose network was there.
    RefusedByPod {
        /// The pods that it can have been.
        backends: BTreeSet<SocketAddr>,
    },
    /// The same while the pod's network was just being taken down: the SYN may have been the last that reached it.
    FreshToGoingAddress {
        /// The address.
        backend: SocketAddr,
    },
    /// The rules still named an address whose pod is gone, and whoever has it now refused; or, where a pod ended just
    /// then, that pod did.
    RefusedByDeadAddress {
        /// The dead addresses that it can have been.
        backends: BTreeSet<SocketAddr>,
        /// The dying pods that it can have been instead.
        or_pods: BTreeSet<SocketAddr>,
    },
    /// Its SYN met an entry that an earlier attempt had made, to an address that a pod of another app has by now.
    MetOther {
        /// Where the entry points.
        backend: SocketAddr,
    },
    /// Its SYN was for a pod that lives and that the network had lost.
    CutOff {
        /// The pod's address.
        backend: SocketAddr,
    },
    /// It was connected to such a pod, or as good as, when the network lost it.
    CutOffMidway {
        /// The pods that it can have been.
        backends: BTreeSet<SocketAddr>,
    },
    /// The client's node dropped its SYNs by a rule.
    DroppedByRule,
    /// Its SYNs were such that conntrack gave them no entry.
    Invalid,
    /// It was connected to a pod that lives and takes longer to answer than the client waits.
    SlowPod,
    /// Its SYN was for a pod that lives and in whose backlog nobody can wait any more.
    BacklogFull {
        /// The pod's address.
        backend: SocketAddr,
    },
    /// It was connected to such a pod, which never answered.
    NotAccepted {
        /// The pods that it can have been.
        backends: BTreeSet<SocketAddr>,
    },
    /// It was connected, and its entry was deleted before the answer came: what follows goes elsewhere.
    LostItsEntry,
    /// It was connected to a pod that ended before it had answered.
    CutByDyingPod {
        /// The pods that it can have been.
        backends: BTreeSet<SocketAddr>,
    },
    /// The rules named no endpoint.
    RejectedWithoutEndpoints,
    /// Its name did not resolve: the DNS server did not answer, or too late.
    Unresolved,
    /// Its name took so long that a pod which lives had no time left to answer.
    ResolvedTooLate,
    /// It never left the client.
    Local,
    /// It can't be said.
    Undetermined {
        /// Why.
        why: String,
    },
}
