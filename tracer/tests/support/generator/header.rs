//! The generated trace's header, and who is who in it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tracer::model::{
    ClockAnchor, Hook, HookStatus, Netns, NetnsId, NetnsRole, Origin, Sysctl, TraceHeader, WallNs,
};

use super::{BEGAN, PORTS, SYN_SENT, Settings};

/// The kernel's ticks a second.
pub(super) const HZ: u32 = 250;

/// The router between the nodes, which drops what is sent to an address that nobody has.
pub(super) const ROUTER: NetnsId = NetnsId(4_026_532_177);
/// The client's pod.
pub(super) const CLIENT: NetnsId = NetnsId(4_026_532_246);
/// Its node.
pub(super) const CLIENT_NODE: NetnsId = NetnsId(4_026_532_315);
/// The other node.
pub(super) const OTHER_NODE: NetnsId = NetnsId(4_026_532_384);
/// A pod of the Service.
pub(super) const POD: NetnsId = NetnsId(4_026_532_453);

/// The client's address.
pub(super) fn client() -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 100, 1, 16))
}

/// The Service's address and port.
pub(super) fn service() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 100, 96, 10)), 80)
}

/// The header that goes with these settings.
pub(crate) fn header(settings: &Settings) -> TraceHeader {
    let netns = |id, name: &str, role| Netns { id, name: name.to_owned(), role };
    let sysctl = |netns, name: &str, value: String| Sysctl { netns, name: name.to_owned(), value };
    TraceHeader {
        tracer: env!("CARGO_PKG_VERSION").to_owned(),
        origin: Origin::Record {
            command: format!("generated: {} events, seed {}", settings.events, settings.seed),
        },
        kernel: "6.18.0 x86_64".to_owned(),
        node: "n1".to_owned(),
        hz: Some(HZ),
        began: BEGAN,
        anchor: ClockAnchor { mono: BEGAN, wall: WallNs(1_800_000_000_000_000_000), error_ns: 30 },
        hooks: Hook::ALL
            .iter()
            .map(|&hook| HookStatus { hook, attached: true, note: None })
            .collect(),
        netns: vec![
            netns(ROUTER, "router", NetnsRole::Other),
            netns(CLIENT_NODE, "n1", NetnsRole::ClientNode),
            netns(OTHER_NODE, "n2", NetnsRole::Node),
            netns(CLIENT, "client", NetnsRole::Client),
            netns(POD, "pod", NetnsRole::Other),
        ],
        sysctls: vec![
            sysctl(
                CLIENT_NODE,
                "net.netfilter.nf_conntrack_tcp_timeout_syn_sent",
                SYN_SENT.as_secs().to_string(),
            ),
            sysctl(CLIENT, "net.ipv4.ip_local_port_range", format!("{} {}", PORTS.0, PORTS.1)),
        ],
        services: vec![service()],
        drop_reasons: BTreeMap::from([
            (3, "NO_SOCKET".to_owned()),
            (87, "IP_INADDRERRORS".to_owned()),
        ]),
        notes: Vec::new(),
    }
}
