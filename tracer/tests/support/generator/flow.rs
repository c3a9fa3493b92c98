//! One request as events: what the hooks see of it from its start to its end.

use std::net::SocketAddr;
use std::time::Duration;

use tracer::model::{
    CtInfo, CtState, CtStatus, DropReason, EntryLife, Event, EventKind, Hook, IfIndex, Lookup,
    MonoNs, NetnsId, Outcome, PacketEvent, RequestEnded, RequestId, RequestStarted, Reuse, Segment,
    SockState, Symptom, TcpFlags, TcpStateEvent, Tuple,
};

use super::SYN_SENT;
use super::header::{CLIENT, CLIENT_NODE, HZ, OTHER_NODE, POD, ROUTER, client, service};

const SYN: u8 = TcpFlags::SYN;
const SYN_ACK: u8 = TcpFlags::SYN | TcpFlags::ACK;
const RST_ACK: u8 = TcpFlags::RST | TcpFlags::ACK;
/// The devices of a node towards the other node, and towards the client.
const UPLINK: u32 = 2;
const TO_CLIENT: u32 = 3;
/// `SKB_DROP_REASON_NO_SOCKET` and `SKB_DROP_REASON_IP_INADDRERRORS` of Linux 6.18.
const NO_SOCKET: u32 = 3;
const NO_ROUTE: u32 = 87;

/// An entry that was never answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) backend: SocketAddr,
    pub(super) expires: MonoNs,
}

impl Entry {
    /// Made by this SYN. A life is counted in ticks.
    pub(super) fn new(backend: SocketAddr, syn: MonoNs) -> Entry {
        Entry { backend, expires: tick(syn) + SYN_SENT }
    }

    fn remaining(&self, at: MonoNs) -> Duration {
        self.expires.since(tick(at))
    }
}

/// The last tick of the kernel's clock.
fn tick(at: MonoNs) -> MonoNs {
    let nanos = 1_000_000_000 / u64::from(HZ);
    MonoNs(at.0 / nanos * nanos)
}

/// The way to a pod: through the client's node alone, or through another one too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) backend: SocketAddr,
    pub(super) device: u32,
    pub(super) is_near: bool,
}

/// A request, and its events so far.
pub(super) struct Flow {
    id: u64,
    client: SocketAddr,
    isn: u32,
    start: MonoNs,
    events: Vec<Event>,
}

impl Flow {
    /// How long after its request began a connect sends its SYN.
    pub(super) const SYN_AFTER: Duration = Duration::from_micros(18);

    /// A request that begins now.
    pub(super) fn new(id: u64, port: u16, isn: u32, start: MonoNs) -> Flow {
        let client = SocketAddr::new(client(), port);
        let mut flow = Flow { id, client, isn, start, events: Vec::with_capacity(12) };
        let worker = (id % 10) as u32;
        flow.push(
            Duration::ZERO,
            EventKind::RequestStarted(RequestStarted { id: RequestId(id), worker }),
        );
        // The port is chosen between this change and the SYN.
        let unbound = Tuple::new(SocketAddr::new(client.ip(), 0), service());
        flow.state(micros(6), unbound, SockState::Close, SockState::SynSent);
        flow
    }

    /// Answered by the pod.
    pub(super) fn answered(mut self, way: Way, pod: &str, total: Duration) -> Vec<Event> {
        self.syn(Flow::SYN_AFTER, way);
        self.reply(micros(31), way, SYN_ACK);
        self.state(micros(41), self.orig(), SockState::SynSent, SockState::Established);
        let close = total - micros(100);
        self.state(close, self.orig(), SockState::Established, SockState::CloseWait);
        let answered = Outcome::Answered { status: 200 };
        self.end(total, answered, Some(micros(43)), Some(pod.to_owned()))
    }

    /// Refused by a pod that does not listen.
    pub(super) fn refused(mut self, way: Way) -> Vec<Event> {
        self.syn(Flow::SYN_AFTER, way);
        let at_pod = Tuple::new(self.client, way.backend);
        let syn = self.segment(SYN);
        self.packet(micros(26), Hook::TcpSendReset, POD, IfIndex(2), at_pod, syn, None);
        self.dropped(micros(28), POD, at_pod, NO_SOCKET);
        self.reply(micros(31), way, RST_ACK);
        let rst = Segment::Tcp { flags: TcpFlags(TcpFlags::RST), seq: 0, ack: 0 };
        let hook = Hook::TcpReceiveReset;
        self.packet(micros(40), hook, CLIENT, IfIndex(0), self.orig(), rst, None);
        self.state(micros(41), self.orig(), SockState::SynSent, SockState::Close);
        self.failed(micros(50), Symptom::Refused, Some(111))
    }

    /// Unanswered: its SYNs follow the entry to an address where nobody is, until the client gives up.
    pub(super) fn unanswered(mut self, entry: &Entry) -> Vec<Event> {
        let tuple = Tuple::new(self.client, entry.backend);
        for after in [0, 1_027, 2_051] {
            let after = Duration::from_millis(after) + Flow::SYN_AFTER;
            let life = entry.remaining(self.start + after);
            let lookup = self.translated(entry.backend, CtState::SynSent, life);
            let uplink = IfIndex(UPLINK);
            let syn = self.segment(SYN);
            self.packet(
                after,
                Hook::NetDevStartXmit,
                CLIENT_NODE,
                uplink,
                tuple,
                syn,
                Some(lookup),
            );
            self.dropped(after + micros(6), ROUTER, tuple, NO_ROUTE);
        }
        let end = Duration::from_millis(3_001);
        self.state(end, self.orig(), SockState::SynSent, SockState::Close);
        self.failed(end + micros(18), Symptom::ConnectTimeout, None)
    }

    /// The first SYN, on an entry of its own.
    fn syn(&mut self, after: Duration, way: Way) {
        let tuple = Tuple::new(self.client, way.backend);
        let segment = self.segment(SYN);
        let device = IfIndex(if way.is_near { way.device } else { UPLINK });
        let lookup = self.translated(way.backend, CtState::SynSent, SYN_SENT);
        let hook = Hook::NetDevStartXmit;
        self.packet(after, hook, CLIENT_NODE, device, tuple, segment, Some(lookup));
        if !way.is_near {
            let lookup = self.untranslated(way.backend, CtState::SynSent, SYN_SENT);
            let device = IfIndex(way.device);
            let after = after + micros(6);
            self.packet(after, hook, OTHER_NODE, device, tuple, segment, Some(lookup));
        }
    }

    /// The answer to the first SYN, on its way to the client.
    fn reply(&mut self, after: Duration, way: Way, flags: u8) {
        let segment = self.segment(flags);
        let (state, life) = match flags {
            SYN_ACK => (CtState::SynRecv, Duration::from_secs(60)),
            _ => (CtState::Close, Duration::from_secs(10)),
        };
        let hook = Hook::NetDevStartXmit;
        if !way.is_near {
            let tuple = Tuple::new(way.backend, self.client);
            let lookup = self.untranslated(way.backend, state, life);
            self.packet(after, hook, OTHER_NODE, IfIndex(UPLINK), tuple, segment, Some(lookup));
        }
        let lookup = self.translated(way.backend, state, life);
        let tuple = self.orig().reversed();
        let device = IfIndex(TO_CLIENT);
        self.packet(after + micros(7), hook, CLIENT_NODE, device, tuple, segment, Some(lookup));
    }

    fn orig(&self) -> Tuple {
        Tuple::new(self.client, service())
    }

    fn segment(&self, flags: u8) -> Segment {
        let (seq, ack) = match flags {
            SYN => (self.isn, 0),
            // The server's own initial sequence number: any other.
            SYN_ACK => (self.isn.wrapping_mul(2_654_435_761), self.isn.wrapping_add(1)),
            _ => (0, self.isn.wrapping_add(1)),
        };
        Segment::Tcp { flags: TcpFlags(flags), seq, ack }
    }

    /// The entry of the client's node.
    fn translated(&self, backend: SocketAddr, state: CtState, life: Duration) -> Lookup {
        let mut lookup = lookup(self.orig(), Tuple::new(backend, self.client), state, life);
        // The kernel's own bits for NAT that was decided, and applied to the destination.
        lookup.status.0 |= CtStatus::DST_NAT;
        lookup
    }

    /// The entry of the pod's own node.
    fn untranslated(&self, backend: SocketAddr, state: CtState, life: Duration) -> Lookup {
        let reply = Tuple::new(backend, self.client);
        lookup(reply.reversed(), reply, state, life)
    }

    fn dropped(&mut self, after: Duration, netns: NetnsId, tuple: Tuple, reason: u32) {
        let segment = self.segment(SYN);
        self.packet(after, Hook::KfreeSkb, netns, IfIndex(2), tuple, segment, None);
        if let Some(Event { kind: EventKind::Packet(packet), .. }) = self.events.last_mut() {
            packet.drop = Some(DropReason(reason));
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a packet's fields, in their order")]
    fn packet(
        &mut self,
        after: Duration,
        hook: Hook,
        netns: NetnsId,
        ifindex: IfIndex,
        tuple: Tuple,
        segment: Segment,
        lookup: Option<Lookup>,
    ) {
        let packet = PacketEvent { hook, netns, ifindex, tuple, segment, lookup, drop: None };
        self.push(after, EventKind::Packet(packet));
    }

    fn state(&mut self, after: Duration, tuple: Tuple, old: SockState, new: SockState) {
        let change = TcpStateEvent { netns: CLIENT, tuple, old, new };
        self.push(after, EventKind::TcpState(change));
    }

    fn failed(self, total: Duration, symptom: Symptom, errno: Option<i32>) -> Vec<Event> {
        self.end(total, Outcome::Failed { symptom, errno, status: None }, None, None)
    }

    fn end(
        mut self,
        total: Duration,
        outcome: Outcome,
        connect: Option<Duration>,
        pod: Option<String>,
    ) -> Vec<Event> {
        let ended = RequestEnded {
            id: RequestId(self.id),
            source: Some(self.client),
            target: Some(service()),
            reuse: Reuse::Fresh,
            received: if outcome.symptom().is_none() { 120 } else { 0 },
            outcome,
            resolution: None,
            connect,
            total,
            pod,
        };
        self.push(total, EventKind::RequestEnded(ended));
        self.events
    }

    fn push(&mut self, after: Duration, kind: EventKind) {
        self.events.push(Event { time: self.start + after, kind });
    }
}

/// An entry of the table, with the bits of NAT that was decided (`IPS_SRC_NAT_DONE`, `IPS_DST_NAT_DONE`).
fn lookup(orig: Tuple, reply: Tuple, state: CtState, life: Duration) -> Lookup {
    let is_reply = state != CtState::SynSent;
    let seen_reply = if is_reply { CtStatus::SEEN_REPLY } else { 0 };
    Lookup {
        orig,
        reply,
        zone: 0,
        status: CtStatus(CtStatus::CONFIRMED | 1 << 7 | 1 << 8 | seen_reply),
        ctinfo: CtInfo(if is_reply { CtInfo::IS_REPLY } else { CtInfo::NEW }),
        state: Some(state),
        life: EntryLife::Remaining(life),
    }
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}
