//! The address plan of a lab: everything follows from its index. Pure.
//!
//! Two labs at once have addresses of their own, although they could not reach each other anyway: the
//! kernel's walk through the source ports is keyed by addresses and not by namespace, so labs with the same
//! addresses would share one walk.

use std::net::{Ipv4Addr, SocketAddr};

use crate::sys::owner;

/// The port of the Service.
pub(crate) const SERVICE_PORT: u16 = 80;
/// The port of the pods.
pub(crate) const POD_PORT: u16 = 8080;
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
    pub(crate) fn new(index: u8) -> Plan {
        assert!(index < owner::INDEXES, "an owner's index is below {}", owner::INDEXES);
        Plan { second: FIRST_SECOND + index }
    }

    /// The index.
    pub(crate) fn index(self) -> u8 {
        self.second - FIRST_SECOND
    }

    fn address(self, third: u8, fourth: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, self.second, third, fourth)
    }

    /// The nodes' default router, in the upstream.
    pub(crate) fn router(self) -> Ipv4Addr {
        self.address(0, 1)
    }

    /// A node's address in the node network, a /24 with the router.
    pub(crate) fn node(self, node: Node) -> Ipv4Addr {
        self.address(0, 11 + node.0)
    }

    /// A node's pod network.
    pub(crate) fn pod_cidr(self, node: Node) -> String {
        format!("{}/24", self.address(1 + node.0, 0))
    }

    /// The pods' gateway on a node: the address of each pod's host-side device.
    pub(crate) fn gateway(self, node: Node) -> Ipv4Addr {
        self.address(1 + node.0, 1)
    }

    /// The client's pod, on the first node.
    pub(crate) fn client(self) -> Ipv4Addr {
        self.address(1, 16)
    }

    /// The address of a node's `nth` pod, counted from 0. An address comes round after 235 pods.
    pub(crate) fn pod(self, node: Node, nth: u32) -> Ipv4Addr {
        let last = u32::from(u8::MAX - FIRST_POD);
        let offset = u8::try_from(nth % last).expect("the remainder is below 235");
        self.address(1 + node.0, FIRST_POD + offset)
    }

    /// The network of the Services' addresses.
    pub(crate) fn service_cidr(self) -> String {
        format!("{}/24", self.address(96, 0))
    }

    /// The Service: its ClusterIP and port.
    pub(crate) fn service(self) -> SocketAddr {
        SocketAddr::new(self.address(96, 10).into(), SERVICE_PORT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn everything_follows_from_the_index() {
        let plan = Plan::new(3);
        let [first, second] = [Node(0), Node(1)];
        expect![[r#"
            router 10.103.0.1
            n1 10.103.0.11 pods 10.103.1.0/24 via 10.103.1.1
            n2 10.103.0.12 pods 10.103.2.0/24 via 10.103.2.1
            client 10.103.1.16
            pods 10.103.1.20 10.103.2.21
            service 10.103.96.10:80 in 10.103.96.0/24
        "#]]
        .assert_eq(&format!(
            "router {}\n{} {} pods {} via {}\n{} {} pods {} via {}\nclient {}\npods {} {}\nservice {} in {}\n",
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
            plan.pod(first, 0),
            plan.pod(second, 1),
            plan.service(),
            plan.service_cidr(),
        ));
    }

    #[test]
    fn labs_share_no_address_and_pods_do_not_meet_the_client() {
        assert_ne!(Plan::new(0).client(), Plan::new(63).client());
        assert_eq!(Plan::new(63).service().to_string(), "10.163.96.10:80");
        let addresses: std::collections::BTreeSet<_> =
            (0..235).map(|nth| Plan::new(0).pod(Node(0), nth)).collect();
        assert_eq!(addresses.len(), 235);
        assert!(addresses.iter().all(|address| *address > Plan::new(0).client()));
        assert_eq!(Plan::new(0).pod(Node(0), 235), Plan::new(0).pod(Node(0), 0));
    }
}
