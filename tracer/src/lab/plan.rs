//! The address plan of a lab: everything follows from its index. Pure.
//!
//! Two labs at once have addresses of their own, although they could not reach each other anyway: the
//! kernel's walk through the source ports is keyed by addresses and not by namespace, so labs with the same
//! addresses would share one walk.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::sys::owner;

/// The port of the Service.
pub(crate) const SERVICE_PORT: u16 = 80;
/// The port of the Service on every node.
pub(crate) const NODE_PORT: u16 = 30080;
/// The port of the pods.
pub(crate) const POD_PORT: u16 = 8080;
/// The port of the DNS server.
pub(crate) const DNS_PORT: u16 = 53;
/// The number of nodes.
pub(crate) const NODES: u8 = 2;

/// The second octet of the lab with index 0.
const FIRST_SECOND: u8 = 100;
/// The first pod's last octet; lower ones are for the gateway and the client.
const FIRST_POD: u8 = 20;

/// Whoever has the index, has these addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    second: u8,
    family: Family,
}

/// The addresses that a lab has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// IPv4
    #[default]
    Ipv4,
    /// IPv6
    Ipv6,
}

/// A node of the lab: 0 is the one that the client runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node(pub(crate) u8);

impl Node {
    /// Every node.
    pub(crate) fn all() -> impl Iterator<Item = Node> {
        (0..NODES).map(Node)
    }

    /// Its name.
    pub(crate) fn name(self) -> String {
        format!("n{}", self.0 + 1)
    }
}

impl Plan {
    /// The plan of the lab with this index.
    ///
    /// # Panics
    /// If the index is not below [`owner::INDEXES`].
    pub(crate) fn new(index: u8, family: Family) -> Plan {
        assert!(index < owner::INDEXES, "an owner's index is below {}", owner::INDEXES);
        Plan { second: FIRST_SECOND + index, family }
    }

    /// The index.
    pub(crate) fn index(self) -> u8 {
        self.second - FIRST_SECOND
    }

    /// The family of all addresses.
    pub(crate) fn family(self) -> Family {
        self.family
    }

    fn address(self, third: u8, fourth: u8) -> IpAddr {
        match self.family {
            Family::Ipv4 => Ipv4Addr::new(10, self.second, third, fourth).into(),
            Family::Ipv6 => {
                let [second, third, fourth] = [self.second, third, fourth].map(u16::from);
                Ipv6Addr::new(0xfd10, second, third, 0, 0, 0, 0, fourth).into()
            }
        }
    }

    /// The length of an address as a prefix.
    pub(crate) fn host_bits(self) -> u8 {
        match self.family {
            Family::Ipv4 => 32,
            Family::Ipv6 => 128,
        }
    }

    /// The length of the prefix of each network.
    pub(crate) fn net_bits(self) -> u8 {
        match self.family {
            Family::Ipv4 => 24,
            Family::Ipv6 => 48,
        }
    }

    /// The nodes' default router, in the upstream.
    pub(crate) fn router(self) -> IpAddr {
        self.address(0, 1)
    }

    /// A node's address in the node network, which has the router too.
    pub(crate) fn node(self, node: Node) -> IpAddr {
        self.address(0, 11 + node.0)
    }

    /// A node's pod network.
    pub(crate) fn pod_cidr(self, node: Node) -> String {
        format!("{}/{}", self.address(1 + node.0, 0), self.net_bits())
    }

    /// Whether an address is of a node's pod network.
    pub(crate) fn is_on(self, node: Node, pod: IpAddr) -> bool {
        (FIRST_POD..=u8::MAX).any(|last| self.address(1 + node.0, last) == pod)
    }

    /// The pods' gateway on a node: the address of each pod's host-side device.
    pub(crate) fn gateway(self, node: Node) -> IpAddr {
        self.address(1 + node.0, 1)
    }

    /// The client's pod, on the first node.
    pub(crate) fn client(self) -> IpAddr {
        self.address(1, 16)
    }

    /// A second client's pod, on the same node.
    pub(crate) fn second_client(self) -> IpAddr {
        self.address(1, 17)
    }

    /// A client outside the cluster, in the node network.
    pub(crate) fn outside(self) -> IpAddr {
        self.address(0, 200)
    }

    /// The DNS server for clients in the cluster: a pod on the other node.
    pub(crate) fn dns(self) -> IpAddr {
        self.address(2, 16)
    }

    /// The DNS server for a client outside the cluster, in the node network.
    pub(crate) fn dns_outside(self) -> IpAddr {
        self.address(0, 201)
    }

    /// The address of a node's `nth` pod, counted from 0. An address comes round after 235 pods.
    pub(crate) fn pod(self, node: Node, nth: u32) -> IpAddr {
        let last = u32::from(u8::MAX - FIRST_POD);
        let offset = u8::try_from(nth % last).expect("the remainder is below 235");
        self.address(1 + node.0, FIRST_POD + offset)
    }

    /// The network of the Services' addresses.
    pub(crate) fn service_cidr(self) -> String {
        format!("{}/{}", self.address(96, 0), self.net_bits())
    }

    /// The Service: its ClusterIP and port.
    pub(crate) fn service(self) -> SocketAddr {
        SocketAddr::new(self.address(96, 10), SERVICE_PORT)
    }

    /// The Service from outside: a node's address and its port there.
    pub(crate) fn node_port(self, node: Node) -> SocketAddr {
        SocketAddr::new(self.node(node), NODE_PORT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn said(plan: Plan) -> String {
        let [first, second] = [Node(0), Node(1)];
        format!(
            "router {}\n{} {} pods {} via {}\n{} {} pods {} via {}\nclient {} outside {}\npods {} {}\nservice {} in {} and {}\n",
            plan.router(),
            first.name(),
            plan.node(first),
            plan.pod_cidr(first),
            plan.gateway(first),
            second.name(),
            plan.node(second),
            plan.pod_cidr(second),
            plan.gateway(second),
            plan.client(),
            plan.outside(),
            plan.pod(first, 0),
            plan.pod(second, 1),
            plan.service(),
            plan.service_cidr(),
            plan.node_port(first),
        )
    }

    #[test]
    fn everything_follows_from_the_index() {
        expect![[r#"
            router 10.103.0.1
            n1 10.103.0.11 pods 10.103.1.0/24 via 10.103.1.1
            n2 10.103.0.12 pods 10.103.2.0/24 via 10.103.2.1
            client 10.103.1.16 outside 10.103.0.200
            pods 10.103.1.20 10.103.2.21
            service 10.103.96.10:80 in 10.103.96.0/24 and 10.103.0.11:30080
        "#]]
        .assert_eq(&said(Plan::new(3, Family::Ipv4)));
    }

    #[test]
    fn and_from_the_family() {
        expect![[r#"
            router fd10:67::1
            n1 fd10:67::b pods fd10:67:1::/48 via fd10:67:1::1
            n2 fd10:67::c pods fd10:67:2::/48 via fd10:67:2::1
            client fd10:67:1::10 outside fd10:67::c8
            pods fd10:67:1::14 fd10:67:2::15
            service [fd10:67:60::a]:80 in fd10:67:60::/48 and [fd10:67::b]:30080
        "#]]
        .assert_eq(&said(Plan::new(3, Family::Ipv6)));
    }

    #[test]
    fn labs_share_no_address_and_pods_do_not_meet_the_client() {
        for family in [Family::Ipv4, Family::Ipv6] {
            let plan = Plan::new(0, family);
            assert_ne!(plan.client(), Plan::new(63, family).client());
            let addresses: std::collections::BTreeSet<_> =
                (0..235).map(|nth| plan.pod(Node(0), nth)).collect();
            assert_eq!(addresses.len(), 235);
            assert!(addresses.iter().all(|address| *address > plan.client()));
            assert!(addresses.iter().all(|address| plan.is_on(Node(0), *address)));
            assert!(!plan.is_on(Node(1), plan.pod(Node(0), 7)));
            assert_eq!(plan.pod(Node(0), 235), plan.pod(Node(0), 0));
        }
        assert_eq!(Plan::new(63, Family::Ipv4).service().to_string(), "10.163.96.10:80");
    }
}
