//! A trace as JSON lines: the header, then one event a line, in their order. docs/events.schema.json describes
//! every line.
//!
//! These are values of their own, not the model's: what other programs read must not change when a type does.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::Serialize;

use crate::model::{
    ClusterEvent, ConnectEnd, CtState, Direction, EndpointChange, EntryChange, EntryLife, Event,
    EventKind, Intervention, Lookup, MonoNs, NameError, NetnsRole, Origin, Outcome, PodChange,
    RequestEnded, Reuse, RolloutChange, Segment, Seq, SockState, TcpFlags, TraceHeader, Tuple,
};

/// The version of the lines' form.
const SCHEMA: u32 = 1;

/// Appends the first line.
pub fn header(header: &TraceHeader, out: &mut Vec<u8>) {
    let (by, command, seed) = match &header.origin {
        Origin::Lab { command, seed } => ("lab", command, Some(*seed)),
        Origin::Record { command } => ("record", command, None),
        Origin::Replay { command } => ("replay", command, None),
    };
    line(
        &HeaderLine {
            kind: "header",
            schema: SCHEMA,
            tracer: &header.tracer,
            by,
            command,
            seed,
            os: &header.kernel,
            node: &header.node,
            hz: header.hz,
            wall_ns: header.anchor.wall(header.began).0,
            wall_error_ns: header.anchor.error_ns,
            services: &header.services,
            hooks: header
                .hooks
                .iter()
                .map(|status| HookRow {
                    hook: status.hook.name(),
                    attached: status.attached,
                    note: status.note.as_deref(),
                })
                .collect(),
            netns: header
                .netns
                .iter()
                .map(|netns| NetnsRow {
                    id: netns.id.0,
                    name: &netns.name,
                    role: match netns.role {
                        NetnsRole::ClientNode => "client-node",
                        NetnsRole::Node => "node",
                        NetnsRole::Client => "client",
                        NetnsRole::Other => "other",
                    },
                })
                .collect(),
            sysctls: header
                .sysctls
                .iter()
                .map(|it| SysctlRow { netns: it.netns.0, name: &it.name, value: &it.value })
                .collect(),
            notes: &header.notes,
        },
        out,
    );
}

/// Appends the line of an event.
pub fn event(header: &TraceHeader, seq: Seq, event: &Event, out: &mut Vec<u8>) {
    let time = event.time.seconds_from(header.began);
    let wall_ns = header.anchor.wall(event.time).0;
    let earliest = match event.kind {
        EventKind::Cluster { since, .. } if since < event.time => {
            Some(since.seconds_from(header.began))
        }
        _ => None,
    };
    line(
        &EventLine {
            seq: seq.0,
            time,
            wall_ns,
            earliest,
            what: what(header, event.time, &event.kind),
        },
        out,
    );
}

fn line(value: &impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(&mut *out, value).expect("keys are names and memory takes it");
    out.push(b'\n');
}

#[derive(Serialize)]
struct HeaderLine<'a> {
    kind: &'static str,
    schema: u32,
    tracer: &'a str,
    by: &'static str,
    command: &'a str,
    seed: Option<u64>,
    os: &'a str,
    node: &'a str,
    hz: Option<u32>,
    wall_ns: i64,
    wall_error_ns: u64,
    services: &'a [SocketAddr],
    hooks: Vec<HookRow<'a>>,
    netns: Vec<NetnsRow<'a>>,
    sysctls: Vec<SysctlRow<'a>>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct HookRow<'a> {
    hook: &'static str,
    attached: bool,
    note: Option<&'a str>,
}

#[derive(Serialize)]
struct NetnsRow<'a> {
    id: u32,
    name: &'a str,
    role: &'static str,
}

#[derive(Serialize)]
struct SysctlRow<'a> {
    netns: u32,
    name: &'a str,
    value: &'a str,
}

#[derive(Serialize)]
struct EventLine<'a> {
    seq: u64,
    time: f64,
    wall_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    earliest: Option<f64>,
    #[serde(flatten)]
    what: What<'a>,
}

#[derive(Serialize)]
struct ProcessRow<'a> {
    pid: u32,
    name: &'a str,
    cgroup: u64,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum What<'a> {
    Packet {
        hook: &'static str,
        netns: u32,
        netns_name: Option<&'a str>,
        ifindex: u32,
        #[serde(flatten)]
        ends: Ends,
        #[serde(flatten)]
        segment: SegmentRow,
        entry: Option<EntryRow>,
        drop: Option<DropRow>,
    },
    TcpState {
        netns: u32,
        netns_name: Option<&'a str>,
        #[serde(flatten)]
        ends: Ends,
        old: Cow<'static, str>,
        new: Cow<'static, str>,
    },
    Connect {
        netns: u32,
        netns_name: Option<&'a str>,
        #[serde(flatten)]
        ends: Ends,
        end: &'static str,
        errno: Option<i32>,
        took: Option<f64>,
        process: Option<ProcessRow<'a>>,
    },
    Workload {
        cgroup: u64,
        path: &'a str,
        container: Option<&'a str>,
        pod: Option<&'a str>,
    },
    Pod {
        name: &'a str,
        app: &'a str,
        node: &'a str,
        address: Option<IpAddr>,
        change: &'static str,
        grace: Option<f64>,
        silent_since: Option<f64>,
    },
    Endpoint {
        service: &'a str,
        frontend: SocketAddr,
        backend: SocketAddr,
        change: &'static str,
        conditions: Option<Conditions>,
    },
    Rollout {
        deployment: &'a str,
        change: &'static str,
    },
    RequestStarted {
        request: u64,
        worker: u32,
    },
    RequestEnded(EndedRow<'a>),
    SysctlSet {
        netns: u32,
        netns_name: Option<&'a str>,
        name: &'a str,
        value: &'a str,
    },
    Lost {
        source: String,
        count: u64,
        since: f64,
    },
    Flush {
        netns: u32,
        netns_name: Option<&'a str>,
        entries: Vec<FlushedRow>,
    },
    TimerSet {
        netns: u32,
        netns_name: Option<&'a str>,
        before: f64,
        after: f64,
    },
    PortsChosen {
        netns: u32,
        netns_name: Option<&'a str>,
        first: u16,
        last: u16,
        again: bool,
    },
    Conntrack {
        netns: u32,
        netns_name: Option<&'a str>,
        change: &'static str,
        orig: Ends,
        reply: Ends,
        zone: u16,
        state: Option<Cow<'static, str>>,
        unreplied: bool,
        remaining: Option<f64>,
    },
    Ended,
}

#[derive(Serialize)]
struct FlushedRow {
    orig: Ends,
    backend: SocketAddr,
    left: f64,
    treated: bool,
}

#[derive(Serialize)]
struct Ends {
    src: SocketAddr,
    dst: SocketAddr,
}

impl From<Tuple> for Ends {
    fn from(Tuple { src, dst }: Tuple) -> Ends {
        Ends { src, dst }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
enum SegmentRow {
    Tcp {
        flags: Vec<&'static str>,
        seq: u32,
        ack: u32,
    },
    Icmp {
        #[serde(rename = "type")]
        kind: u8,
        code: u8,
        from: IpAddr,
    },
}

#[derive(Serialize)]
struct EntryRow {
    orig: Ends,
    reply: Ends,
    zone: u16,
    direction: &'static str,
    ctinfo: u8,
    status: u32,
    state: Option<Cow<'static, str>>,
    life: &'static str,
    remaining: Option<f64>,
}

#[derive(Serialize)]
struct DropRow {
    reason: u32,
    name: String,
}

#[derive(Serialize)]
struct Conditions {
    ready: bool,
    serving: bool,
    terminating: bool,
}

#[derive(Serialize)]
struct EndedRow<'a> {
    request: u64,
    source: Option<SocketAddr>,
    target: Option<SocketAddr>,
    keep_alive: Option<u32>,
    outcome: &'static str,
    symptom: Option<&'static str>,
    errno: Option<i32>,
    status: Option<u16>,
    resolve: Option<f64>,
    unresolved: Option<&'static str>,
    connect: Option<f64>,
    received: u64,
    total: f64,
    pod: Option<&'a str>,
}

fn what<'a>(header: &'a TraceHeader, time: MonoNs, kind: &'a EventKind) -> What<'a> {
    match kind {
        EventKind::Packet(packet) => What::Packet {
            hook: packet.hook.name(),
            netns: packet.netns.0,
            netns_name: header.netns_name(packet.netns),
            ifindex: packet.ifindex.0,
            ends: packet.tuple.into(),
            segment: match packet.segment {
                Segment::Tcp { flags, seq, ack } => {
                    SegmentRow::Tcp { flags: names(flags), seq, ack }
                }
                Segment::IcmpError { kind, code, from } => SegmentRow::Icmp { kind, code, from },
            },
            entry: packet.lookup.as_ref().map(entry),
            drop: packet
                .drop
                .map(|reason| DropRow { reason: reason.0, name: header.drop_reason(Some(reason)) }),
        },
        EventKind::TcpState(state) => What::TcpState {
            netns: state.netns.0,
            netns_name: header.netns_name(state.netns),
            ends: state.tuple.into(),
            old: sock_state(state.old),
            new: sock_state(state.new),
        },
        EventKind::Cluster { change, since: _ } => cluster(header, change),
        EventKind::RequestStarted(started) => {
            What::RequestStarted { request: started.id.0, worker: started.worker }
        }
        EventKind::RequestEnded(ended) => What::RequestEnded(request_ended(ended)),
        EventKind::SysctlSet { netns, name, value } => {
            What::SysctlSet { netns: netns.0, netns_name: header.netns_name(*netns), name, value }
        }
        EventKind::Lost { source, count, since } => {
            let since = since.seconds_from(header.began);
            What::Lost { source: source.name(), count: *count, since }
        }
        EventKind::Intervention(Intervention::Flush { netns, entries }) => What::Flush {
            netns: netns.0,
            netns_name: header.netns_name(*netns),
            entries: entries
                .iter()
                .map(|entry| FlushedRow {
                    orig: entry.orig.into(),
                    backend: entry.backend,
                    left: seconds(entry.left),
                    treated: entry.treated,
                })
                .collect(),
        },
        EventKind::Intervention(Intervention::Timeout { netns, before, after }) => What::TimerSet {
            netns: netns.0,
            netns_name: header.netns_name(*netns),
            before: seconds(*before),
            after: seconds(*after),
        },
        EventKind::Intervention(Intervention::Ports { netns, first, last, again }) => {
            What::PortsChosen {
                netns: netns.0,
                netns_name: header.netns_name(*netns),
                first: *first,
                last: *last,
                again: *again,
            }
        }
        EventKind::Conntrack(change) => What::Conntrack {
            netns: change.netns.0,
            netns_name: header.netns_name(change.netns),
            change: match change.change {
                EntryChange::New => "new",
                EntryChange::Updated => "updated",
                EntryChange::Destroyed => "destroyed",
                EntryChange::Deleted => "deleted",
            },
            orig: change.orig.into(),
            reply: change.reply.into(),
            zone: change.zone,
            state: change.state.map(ct_state),
            unreplied: change.unreplied,
            remaining: change.remaining.map(seconds),
        },
        EventKind::Ended => What::Ended,
        EventKind::Connect(connect) => {
            let (end, errno) = match connect.end {
                ConnectEnd::Established => ("established", None),
                ConnectEnd::Failed { errno } => ("failed", Some(errno)),
                ConnectEnd::Reset { errno } => ("reset", Some(errno)),
            };
            What::Connect {
                netns: connect.netns.0,
                netns_name: header.netns_name(connect.netns),
                ends: connect.tuple.into(),
                end,
                errno: errno.filter(|errno| *errno != 0),
                took: connect.started.map(|started| seconds(time.since(started))),
                process: connect.by.as_ref().map(|by| ProcessRow {
                    pid: by.pid,
                    name: &by.name,
                    cgroup: by.cgroup,
                }),
            }
        }
        EventKind::Workload(workload) => What::Workload {
            cgroup: workload.cgroup,
            path: &workload.path,
            container: workload.container.as_deref(),
            pod: workload.pod.as_deref(),
        },
    }
}

fn entry(lookup: &Lookup) -> EntryRow {
    let (life, remaining) = match lookup.life {
        EntryLife::Unconfirmed(life) => ("unconfirmed", Some(life)),
        EntryLife::Remaining(life) => ("remaining", Some(life)),
        EntryLife::Expired => ("expired", None),
        EntryLife::Unknown => ("unknown", None),
    };
    EntryRow {
        orig: lookup.orig.into(),
        reply: lookup.reply.into(),
        zone: lookup.zone,
        direction: match lookup.direction() {
            Direction::Original => "original",
            Direction::Reply => "reply",
        },
        ctinfo: lookup.ctinfo.0,
        status: lookup.status.0,
        state: lookup.state.map(ct_state),
        life,
        remaining: remaining.map(seconds),
    }
}

/// The state as conntrack names it, or its number.
fn ct_state(state: CtState) -> Cow<'static, str> {
    match state {
        CtState::Other(number) => number.to_string().into(),
        state => state.name().into(),
    }
}

fn cluster<'a>(header: &TraceHeader, change: &'a ClusterEvent) -> What<'a> {
    match change {
        ClusterEvent::Pod { name, app, node, address, change } => What::Pod {
            name,
            app,
            node,
            address: *address,
            change: match change {
                PodChange::Added => "added",
                PodChange::Ready => "ready",
                PodChange::NotReady => "not-ready",
                PodChange::Asked { .. } => "asked",
                PodChange::Deleted => "deleted",
                PodChange::Silent { .. } => "silent",
            },
            grace: match change {
                PodChange::Asked { grace } => Some(seconds(*grace)),
                _ => None,
            },
            silent_since: match change {
                PodChange::Silent { since } => Some(since.seconds_from(header.began)),
                _ => None,
            },
        },
        ClusterEvent::Endpoint { service, frontend, backend, change } => What::Endpoint {
            service,
            frontend: *frontend,
            backend: *backend,
            change: match change {
                EndpointChange::Listed { .. } => "listed",
                EndpointChange::Removed => "removed",
            },
            conditions: match *change {
                EndpointChange::Listed { ready, serving, terminating } => {
                    Some(Conditions { ready, serving, terminating })
                }
                EndpointChange::Removed => None,
            },
        },
        ClusterEvent::Rollout { deployment, change } => What::Rollout {
            deployment,
            change: match change {
                RolloutChange::Started => "started",
                RolloutChange::Finished => "finished",
            },
        },
    }
}

fn request_ended(ended: &RequestEnded) -> EndedRow<'_> {
    let (outcome, symptom, errno, status) = match ended.outcome {
        Outcome::Answered { status } => ("answered", None, None, Some(status)),
        Outcome::Failed { symptom, errno, status } => {
            ("failed", Some(symptom.name()), errno, status)
        }
    };
    EndedRow {
        request: ended.id.0,
        source: ended.source,
        target: ended.target,
        keep_alive: match ended.reuse {
            Reuse::Fresh => None,
            Reuse::KeepAlive { nth } => Some(nth),
        },
        outcome,
        symptom,
        errno,
        status,
        resolve: ended.resolution.map(|resolution| seconds(resolution.took)),
        unresolved: ended.resolution.and_then(|resolution| resolution.failed).map(NameError::name),
        connect: ended.connect.map(seconds),
        received: ended.received,
        total: seconds(ended.total),
        pod: ended.pod.as_deref(),
    }
}

/// The flags' names, from the lowest bit on (RFC 9293, 3.1).
fn names(flags: TcpFlags) -> Vec<&'static str> {
    const NAMES: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];
    let bits = NAMES.iter().enumerate();
    bits.filter(|(bit, _)| flags.0 & (1 << bit) != 0).map(|(_, name)| *name).collect()
}

/// The state as the kernel names it (include/net/tcp_states.h), or its number.
fn sock_state(state: SockState) -> Cow<'static, str> {
    match state {
        SockState::Established => "ESTABLISHED".into(),
        SockState::SynSent => "SYN_SENT".into(),
        SockState::SynRecv => "SYN_RECV".into(),
        SockState::FinWait1 => "FIN_WAIT1".into(),
        SockState::FinWait2 => "FIN_WAIT2".into(),
        SockState::TimeWait => "TIME_WAIT".into(),
        SockState::Close => "CLOSE".into(),
        SockState::CloseWait => "CLOSE_WAIT".into(),
        SockState::LastAck => "LAST_ACK".into(),
        SockState::Listen => "LISTEN".into(),
        SockState::Closing => "CLOSING".into(),
        SockState::Other(number) => number.to_string().into(),
    }
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

#[cfg(test)]
mod tests;
