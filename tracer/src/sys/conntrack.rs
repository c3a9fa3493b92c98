//! The conntrack table of the calling thread's network namespace, through its netlink interface (ctnetlink).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload, Nla,
};
use netlink_packet_netfilter::conntrack::{
    ConntrackAttribute, ConntrackMessage, IPTuple, ProtoInfo, ProtoInfoTCP, ProtoTuple, Protocol,
    Status, Tuple as TupleAttribute,
};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr as NetlinkAddress};

use crate::model::Tuple;

/// `CTA_ID`: with it a deletion is of this very entry and of no later one on the same tuple.
const CTA_ID: u16 = 12;
/// `TCP_CONNTRACK_SYN_SENT` (include/uapi/linux/netfilter/nf_conntrack_tcp.h).
const SYN_SENT: u8 = 1;

/// Why the table could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum ConntrackError {
    /// The netlink socket failed.
    #[error("cannot {what} the conntrack table: needs CAP_NET_ADMIN")]
    Socket {
        /// What was tried.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel's answer can't be understood.
    #[error("the kernel's answer on conntrack cannot be read: {0}")]
    Answer(String),
}

/// A TCP entry of the table.
#[derive(Clone, Debug)]
pub struct TableEntry {
    /// Its original tuple.
    pub orig: Tuple,
    /// Its reply tuple: the source is where its packets go.
    pub reply: Tuple,
    /// Whether it is in SYN_SENT and no reply was seen.
    pub is_unanswered: bool,
    /// How long it has left, in whole seconds.
    pub left: Duration,
    family: NetfilterProtoFamily,
    /// What names it in a deletion.
    key: Vec<ConntrackAttribute>,
}

/// A way to the table.
#[derive(Debug)]
pub struct Conntrack {
    socket: Socket,
}

impl Conntrack {
    /// Opens it, for the network namespace that the calling thread is in.
    ///
    /// # Errors
    /// [`ConntrackError::Socket`].
    pub fn open() -> Result<Conntrack, ConntrackError> {
        let failed = |source| ConntrackError::Socket { what: "open", source };
        let mut socket = Socket::new(NETLINK_NETFILTER).map_err(failed)?;
        socket.bind_auto().map_err(failed)?;
        socket.connect(&NetlinkAddress::new(0, 0)).map_err(failed)?;
        Ok(Conntrack { socket })
    }

    /// The TCP entries of one address family.
    ///
    /// # Errors
    /// [`ConntrackError`].
    pub fn entries(&self, is_ipv6: bool) -> Result<Vec<TableEntry>, ConntrackError> {
        let family = if is_ipv6 { NetfilterProtoFamily::IPv6 } else { NetfilterProtoFamily::IPv4 };
        let message = ConntrackMessage::Get(Vec::new());
        self.send("read", NLM_F_REQUEST | NLM_F_DUMP, family, message)?;
        let mut entries = Vec::new();
        loop {
            for message in self.receive("read")? {
                match message {
                    NetlinkPayload::Done(_) => return Ok(entries),
                    NetlinkPayload::Error(error) => {
                        let source = error.to_io();
                        return Err(ConntrackError::Socket { what: "read", source });
                    }
                    NetlinkPayload::InnerMessage(message) => {
                        entries.extend(entry(family, message.inner));
                    }
                    _ => {}
                }
            }
        }
    }

    /// Deletes an entry. False if it was gone already.
    ///
    /// # Errors
    /// [`ConntrackError`].
    pub fn delete(&self, entry: &TableEntry) -> Result<bool, ConntrackError> {
        let message = ConntrackMessage::Delete(entry.key.clone());
        self.send("change", NLM_F_REQUEST | NLM_F_ACK, entry.family, message)?;
        for message in self.receive("change")? {
            if let NetlinkPayload::Error(error) = message {
                let source = error.to_io();
                return match (error.code, source.kind()) {
                    (None, _) => Ok(true),
                    (_, io::ErrorKind::NotFound) => Ok(false),
                    _ => Err(ConntrackError::Socket { what: "change", source }),
                };
            }
        }
        Err(ConntrackError::Answer("no acknowledgement of a deletion".to_owned()))
    }

    fn send(
        &self,
        what: &'static str,
        flags: u16,
        family: NetfilterProtoFamily,
        message: ConntrackMessage,
    ) -> Result<(), ConntrackError> {
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        let message = NetfilterMessage::new(NetfilterHeader::new(family, 0, 0), message);
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        let sent = self.socket.send(&bytes, 0);
        sent.map(drop).map_err(|source| ConntrackError::Socket { what, source })
    }

    /// The messages of one datagram.
    fn receive(
        &self,
        what: &'static str,
    ) -> Result<Vec<NetlinkPayload<NetfilterMessage>>, ConntrackError> {
        let received = self.socket.recv_from_full();
        let (bytes, _) = received.map_err(|source| ConntrackError::Socket { what, source })?;
        let mut rest = &bytes[..];
        let mut messages = Vec::new();
        while !rest.is_empty() {
            let message = NetlinkMessage::<NetfilterMessage>::deserialize(rest)
                .map_err(|error| ConntrackError::Answer(error.to_string()))?;
            // Messages begin at multiples of four (NLMSG_ALIGN).
            let length = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(length.max(4)..).unwrap_or_default();
            messages.push(message.payload);
        }
        Ok(messages)
    }
}

/// The TCP entry that a message tells of.
fn entry(family: NetfilterProtoFamily, message: NetfilterMessageInner) -> Option<TableEntry> {
    let NetfilterMessageInner::Conntrack(ConntrackMessage::New(attributes)) = message else {
        return None;
    };
    let (mut orig, mut reply, mut left) = (None, None, Duration::ZERO);
    let (mut replied, mut state) = (true, None);
    let mut key = Vec::new();
    for attribute in attributes {
        match &attribute {
            ConntrackAttribute::CtaTupleOrig(parts) => {
                orig = tuple(parts);
                key.push(attribute);
            }
            ConntrackAttribute::CtaTupleReply(parts) => reply = tuple(parts),
            ConntrackAttribute::CtaStatus(status) => replied = status.contains(Status::SeenReply),
            ConntrackAttribute::CtaTimeout(seconds) => {
                left = Duration::from_secs((*seconds).into())
            }
            ConntrackAttribute::CtaProtoInfo(infos) => state = tcp_state(infos),
            ConntrackAttribute::Other(other) if other.kind() == CTA_ID => key.push(attribute),
            _ => {}
        }
    }
    let is_unanswered = !replied && state == Some(SYN_SENT);
    Some(TableEntry { orig: orig?, reply: reply?, is_unanswered, left, family, key })
}

fn tcp_state(infos: &[ProtoInfo]) -> Option<u8> {
    let mut parts = infos.iter().filter_map(|info| match info {
        ProtoInfo::TCP(parts) => Some(parts),
        _ => None,
    });
    parts.next()?.iter().find_map(|part| match part {
        ProtoInfoTCP::State(state) => Some(*state),
        _ => None,
    })
}

/// The tuple, if it is one of TCP.
fn tuple(parts: &[TupleAttribute]) -> Option<Tuple> {
    let (mut src, mut dst) = (None::<IpAddr>, None::<IpAddr>);
    let (mut sport, mut dport, mut is_tcp) = (None, None, false);
    for part in parts {
        match part {
            TupleAttribute::Ip(ends) => {
                for end in ends {
                    match end {
                        IPTuple::SourceAddress(address) => src = Some(*address),
                        IPTuple::DestinationAddress(address) => dst = Some(*address),
                        _ => {}
                    }
                }
            }
            TupleAttribute::Proto(parts) => {
                for part in parts {
                    match part {
                        ProtoTuple::Protocol(protocol) => is_tcp = *protocol == Protocol::Tcp,
                        ProtoTuple::SourcePort(port) => sport = Some(*port),
                        ProtoTuple::DestinationPort(port) => dport = Some(*port),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    let end = |address: Option<IpAddr>, port: Option<u16>| Some(SocketAddr::new(address?, port?));
    is_tcp.then_some(Tuple::new(end(src, sport)?, end(dst, dport)?))
}
