//! The lab's network: an upstream, two nodes, the client's pod; and each pod's own, made and taken down.
//!
//! A node routes to each of its pods by a host route through the pod's own device, as kind does (the `ptp`
//! plugin). When a pod's device goes, so does that route, and packets for the address take the default route
//! to the upstream, where a blackhole route swallows them without an ICMP answer.

use std::net::Ipv4Addr;

use super::error::LabError;
use super::plan::{Node, Plan};
use super::rules;
use super::settings::LabSettings;
use crate::model;
use crate::model::NetnsRole;
use crate::sys::netns::{self, Netns};
use crate::sys::owner::{self, Owner};
use crate::sys::sysctl;
use crate::sys::tool::{IPTABLES_RESTORE, ToolError};

/// What kube-proxy sets (pkg/proxy/conntrack/sysctls.go): it never touches the SYN_SENT timer.
const KUBE_PROXY_SYSCTLS: [(&str, &str); 2] = [
    ("net.netfilter.nf_conntrack_tcp_timeout_established", "86400"),
    ("net.netfilter.nf_conntrack_tcp_timeout_close_wait", "3600"),
];

/// What a node needs. Redirects are off because a node that sends a dead pod's packets back out of the device
/// they came from would tell their sender of a "better" way: an ICMP message that the real path never shows.
/// The reverse path filter is off because the nodes' defaults are the host's, which may be strict.
const NODE_SYSCTLS: [(&str, &str); 5] = [
    ("net.ipv4.ip_forward", "1"),
    ("net.ipv4.conf.all.send_redirects", "0"),
    ("net.ipv4.conf.default.send_redirects", "0"),
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
];

/// The namespaces that stay for the life of a lab.
#[derive(Debug)]
pub(crate) struct Network {
    plan: Plan,
    upstream: Netns,
    nodes: Vec<Netns>,
    client: Netns,
}

impl Network {
    /// Makes the namespaces, their devices, addresses, routes, sysctls, and kube-proxy's fixed chains.
    pub(crate) fn build(
        owner: &Owner,
        plan: Plan,
        settings: &LabSettings,
    ) -> Result<Network, LabError> {
        let upstream = owner.name("upstream");
        let client = owner.name("client");
        let nodes: Vec<String> = Node::all().map(|node| owner.name(&node.name())).collect();
        let mut names = vec![upstream.as_str(), client.as_str()];
        names.extend(nodes.iter().map(String::as_str));
        netns::create(&names)?;
        let network = Network {
            plan,
            upstream: Netns::open(&upstream)?,
            nodes: nodes.iter().map(|name| Netns::open(name)).collect::<Result<_, _>>()?,
            client: Netns::open(&client)?,
        };
        for node in &network.nodes {
            // Rules first: where conntrack is a module, they are what loads it, and with it its sysctls.
            restore(node, rules::base())??;
            node.run(|| {
                for (name, value) in NODE_SYSCTLS.into_iter().chain(KUBE_PROXY_SYSCTLS) {
                    sysctl::write(name, value)?;
                }
                if let Some(seconds) = settings.syn_sent_timeout {
                    sysctl::write(sysctl::SYN_SENT_TIMEOUT, &seconds.to_string())?;
                }
                Ok::<_, LabError>(())
            })??;
        }
        network.connect_nodes()?;
        network.connect_pod(Node(0), &client, "client", plan.client())?;
        let ports = format!("{} {}", settings.ports.start(), settings.ports.end());
        network.client.run(|| sysctl::write(sysctl::PORT_RANGE, &ports))??;
        Ok(network)
    }

    fn connect_nodes(&self) -> Result<(), ToolError> {
        let plan = self.plan;
        let mut upstream = format!(
            "link add br0 type bridge\naddr add {}/24 dev br0\nlink set br0 up\n",
            plan.router()
        );
        for node in Node::all() {
            upstream += &format!(
                "link add {name} type veth peer name eth0 netns {netns}\nlink set {name} master br0 up\n\
                 route add blackhole {pods}\n",
                name = node.name(),
                netns = self.node(node).name(),
                pods = plan.pod_cidr(node),
            );
        }
        upstream += &format!("route add blackhole {}\n", plan.service_cidr());
        netns::batch(self.upstream.name(), &upstream)?;
        for node in Node::all() {
            let mut commands = format!(
                "addr add {}/24 dev eth0\nlink set eth0 up\nroute add default via {}\n",
                plan.node(node),
                plan.router()
            );
            for other in Node::all().filter(|other| *other != node) {
                commands +=
                    &format!("route add {} via {}\n", plan.pod_cidr(other), plan.node(other));
            }
            netns::batch(self.node(node).name(), &commands)?;
        }
        Ok(())
    }

    /// Connects a pod's namespace to its node by a device pair, whose end on the node is called `device`.
    pub(crate) fn connect_pod(
        &self,
        node: Node,
        pod: &str,
        device: &str,
        address: Ipv4Addr,
    ) -> Result<(), ToolError> {
        let gateway = self.plan.gateway(node);
        netns::batch(
            self.node(node).name(),
            &format!(
                "link add {device} type veth peer name eth0 netns {pod}\naddr add {gateway}/32 dev {device}\n\
                 link set {device} up\nroute add {address}/32 dev {device}\n"
            ),
        )?;
        netns::batch(
            pod,
            &format!(
                "addr add {address}/32 dev eth0\nlink set eth0 up\nroute add {gateway}/32 dev eth0\n\
                 route add default via {gateway}\n"
            ),
        )
    }

    /// Takes a pod's device down, and its route with it: from now on its address is silent.
    pub(crate) fn disconnect_pod(&self, node: Node, device: &str) -> Result<(), ToolError> {
        netns::batch(self.node(node).name(), &format!("link del {device}\n"))
    }

    /// A node's namespace.
    pub(crate) fn node(&self, node: Node) -> &Netns {
        &self.nodes[usize::from(node.0)]
    }

    /// The client's namespace.
    pub(crate) fn client(&self) -> &Netns {
        &self.client
    }

    /// The namespaces.
    pub(crate) fn netns(&self) -> Vec<model::Netns> {
        let mut all = vec![describe(&self.upstream, NetnsRole::Other)];
        for (place, node) in self.nodes.iter().enumerate() {
            let role = if place == 0 { NetnsRole::ClientNode } else { NetnsRole::Node };
            all.push(describe(node, role));
        }
        all.push(describe(&self.client, NetnsRole::Client));
        all
    }

    /// The sysctls that matter, where they matter. What this kernel does not have is left out.
    pub(crate) fn sysctls(&self) -> Result<Vec<model::Sysctl>, LabError> {
        let mut all = Vec::new();
        for netns in &self.nodes {
            all.extend(sysctl::values(netns, &sysctl::OF_INTEREST)?);
        }
        all.extend(sysctl::values(&self.client, &[sysctl::PORT_RANGE])?);
        Ok(all)
    }
}

/// A namespace as the trace's header has it: by the name that it has in every lab, a node's that of the node.
pub(crate) fn describe(netns: &Netns, role: NetnsRole) -> model::Netns {
    let name = owner::part(netns.name()).unwrap_or(netns.name()).to_owned();
    model::Netns { id: netns.id(), name, role }
}

/// Runs `iptables-restore --noflush` in a node's namespace.
pub(crate) fn restore(
    node: &Netns,
    rules: &str,
) -> Result<Result<(), ToolError>, crate::sys::netns::NetnsError> {
    // `-w`: with the legacy variant another program may hold the lock on the tables.
    node.run(|| IPTABLES_RESTORE.run(&["-w", "5", "--noflush"], rules).map(drop))
}
