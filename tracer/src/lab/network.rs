//! The lab's network: an upstream, two nodes, the client's pod; and each pod's own, made and taken down.
//!
//! A node routes to each of its pods by a host route through the pod's own device, as kind does (the `ptp`
//! plugin). When a pod's device goes, so does that route, and packets for the address take the default route
//! to the upstream, where a blackhole route swallows them without an ICMP answer.

use std::net::IpAddr;

use super::deed::DeadAddress;
use super::error::LabError;
use super::plan::{Family, Node, Plan};
use super::settings::{LabSettings, Way};
use crate::model;
use crate::model::NetnsRole;
use crate::sys::netns::{self, Netns};
use crate::sys::owner::{self, Owner};
use crate::sys::sysctl::{self, SysctlError};
use crate::sys::tool::{IP6TABLES_RESTORE, IPTABLES_RESTORE, ToolError};

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

/// The same for IPv6, whose redirects never name a router like the lab's (net/ipv6/ndisc.c,
/// ndisc_send_redirect: only a link-local one).
const NODE_SYSCTLS_V6: [(&str, &str); 1] = [("net.ipv6.conf.all.forwarding", "1")];

/// How long an entry lives after a RST.
const CLOSE_TIMEOUT: &str = "net.netfilter.nf_conntrack_tcp_timeout_close";

/// What every namespace with IPv6 needs: an address is used at once, without asking for a second whether
/// somebody else has it.
const NO_DAD: [(&str, &str); 2] =
    [("net.ipv6.conf.all.accept_dad", "0"), ("net.ipv6.conf.default.accept_dad", "0")];

/// The namespaces that stay for the life of a lab.
#[derive(Debug)]
pub(crate) struct Network {
    plan: Plan,
    upstream: Netns,
    nodes: Vec<Netns>,
    /// The client's own; none if it uses its node's.
    client: Option<Netns>,
    /// The DNS server's, if there is one.
    dns: Option<Netns>,
    /// A second client's, if there is one.
    second_client: Option<Netns>,
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
        let mut names = vec![upstream.as_str()];
        names.extend(nodes.iter().map(String::as_str));
        if settings.way != Way::Host {
            names.push(&client);
        }
        let dns = owner.name("dns");
        if settings.dns.is_some() {
            names.push(&dns);
        }
        let second = settings.second_client.then(|| owner.name("client2"));
        names.extend(second.as_deref());
        netns::create(&names)?;
        let network = Network {
            plan,
            upstream: Netns::open(&upstream)?,
            nodes: nodes.iter().map(|name| Netns::open(name)).collect::<Result<_, _>>()?,
            client: (settings.way != Way::Host).then(|| Netns::open(&client)).transpose()?,
            dns: settings.dns.map(|_| Netns::open(&dns)).transpose()?,
            second_client: second.as_deref().map(Netns::open).transpose()?,
        };
        let own = network.client.iter().chain(&network.second_client).chain(&network.dns);
        for netns in network.nodes.iter().chain([&network.upstream]).chain(own) {
            network.prepare(netns)?;
        }
        for node in &network.nodes {
            // Rules first: where conntrack is a module, they are what loads it, and with it its sysctls.
            let base = settings.proxy_mode.base(plan.family());
            settings.proxy_mode.set(plan.family(), node, &base)??;
            node.run(|| {
                let v6 = NODE_SYSCTLS_V6.into_iter().filter(|_| plan.family() == Family::Ipv6);
                for (name, value) in NODE_SYSCTLS.into_iter().chain(KUBE_PROXY_SYSCTLS).chain(v6) {
                    sysctl::write(name, value)?;
                }
                if let Some(seconds) = settings.syn_sent_timeout {
                    sysctl::write(sysctl::SYN_SENT_TIMEOUT, &seconds.to_string())?;
                }
                if let Some(seconds) = settings.conntrack_close_timeout {
                    sysctl::write(CLOSE_TIMEOUT, &seconds.to_string())?;
                }
                Ok::<_, LabError>(())
            })??;
        }
        network.connect_nodes(settings.dead_address)?;
        if settings.dead_address == DeadAddress::Unreachable {
            network.refuse_by_icmp()?;
        }
        match settings.way {
            Way::Pod => network.connect_pod(Node(0), &client, "client", plan.client())?,
            Way::Host => {}
            Way::NodePort(_) => network.connect_outside(&client, "client", plan.outside())?,
        }
        match settings.way {
            _ if settings.dns.is_none() => {}
            Way::Pod | Way::Host => network.connect_pod(Node(1), &dns, "dns", plan.dns())?,
            Way::NodePort(_) => network.connect_outside(&dns, "dns", plan.dns_outside())?,
        }
        network.client().run(|| set_client(settings))??;
        if let Some(second) = &network.second_client {
            let address = plan.second_client();
            network.connect_pod(Node(0), second.name(), "client2", address)?;
            second.run(|| set_client(settings))??;
        }
        Ok(network)
    }

    fn connect_nodes(&self, dead: DeadAddress) -> Result<(), ToolError> {
        let plan = self.plan;
        let bits = plan.net_bits();
        let mut upstream = format!(
            "link add br0 type bridge\naddr add {}/{bits} dev br0\nlink set br0 up\n",
            plan.router()
        );
        if dead == DeadAddress::Unreachable {
            upstream +=
                "link add dead0 type veth peer name dead1\nlink set dead0 up\nlink set dead1 up\n";
        }
        for node in Node::all() {
            upstream += &format!(
                "link add {name} type veth peer name eth0 netns {netns}\nlink set {name} master br0 up\n\
                 route add {dead} {pods}{through}\n",
                name = node.name(),
                netns = self.node(node).name(),
                dead = match dead {
                    DeadAddress::Silent => "blackhole",
                    DeadAddress::Unreachable => "",
                    DeadAddress::Resets => "local",
                },
                pods = plan.pod_cidr(node),
                through = match dead {
                    DeadAddress::Silent => "",
                    // Somewhere else than whence it came: what the rule catches on the way there.
                    DeadAddress::Unreachable => " dev dead0",
                    DeadAddress::Resets => " dev lo",
                },
            );
        }
        upstream += &format!("route add blackhole {}\n", plan.service_cidr());
        if dead != DeadAddress::Silent {
            // What the upstream answers goes back to the client's pod by its node.
            upstream += &format!(
                "link set lo up\nroute add {}/{} via {}\n",
                plan.client(),
                plan.host_bits(),
                plan.node(Node(0))
            );
        }
        netns::batch(self.upstream.name(), &upstream)?;
        for node in Node::all() {
            let mut commands = format!(
                "addr add {}/{bits} dev eth0\nlink set eth0 up\nroute add default via {}\n",
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

    /// Lets the upstream answer each packet to a dead pod with an ICMP host unreachable. By a rule of the filter table:
    /// a route of the type `unreachable` would answer one packet a second (net/ipv4/route.c, ip_error).
    fn refuse_by_icmp(&self) -> Result<(), LabError> {
        let (tool, reject, sysctls) = match self.plan.family() {
            Family::Ipv4 => (
                IPTABLES_RESTORE,
                "icmp-host-unreachable",
                [("net.ipv4.ip_forward", "1"), ("net.ipv4.icmp_ratelimit", "0")],
            ),
            Family::Ipv6 => (
                IP6TABLES_RESTORE,
                "icmp6-addr-unreachable",
                [("net.ipv6.conf.all.forwarding", "1"), ("net.ipv6.icmp.ratelimit", "0")],
            ),
        };
        let rule = format!(
            "*filter\n-A FORWARD -o dead0 -p tcp -j REJECT --reject-with {reject}\nCOMMIT\n"
        );
        self.upstream.run(|| {
            sysctls.into_iter().try_for_each(|(name, value)| sysctl::write(name, value))?;
            tool.run(&["-w", "5", "--noflush"], &rule)?;
            Ok::<_, LabError>(())
        })?
    }

    /// Sets what a new namespace needs before it gets devices.
    pub(crate) fn prepare(&self, netns: &Netns) -> Result<(), LabError> {
        match self.plan.family() {
            Family::Ipv4 => Ok(()),
            Family::Ipv6 => netns.run(|| {
                NO_DAD.into_iter().try_for_each(|(name, value)| Ok(sysctl::write(name, value)?))
            })?,
        }
    }

    /// Connects a pod's namespace to its node by a device pair, whose end on the node is called `device`.
    pub(crate) fn connect_pod(
        &self,
        node: Node,
        pod: &str,
        device: &str,
        address: IpAddr,
    ) -> Result<(), ToolError> {
        let gateway = self.plan.gateway(node);
        let bits = self.plan.host_bits();
        netns::batch(
            self.node(node).name(),
            &format!(
                "link add {device} type veth peer name eth0 netns {pod}\naddr add {gateway}/{bits} dev {device}\n\
                 link set {device} up\nroute add {address}/{bits} dev {device}\n"
            ),
        )?;
        netns::batch(
            pod,
            &format!(
                "addr add {address}/{bits} dev eth0\nlink set eth0 up\nroute add {gateway}/{bits} dev eth0\n\
                 route add default via {gateway}\n"
            ),
        )
    }

    /// Connects a machine outside the cluster to the node network, by a device of this name there.
    fn connect_outside(
        &self,
        machine: &str,
        device: &str,
        address: IpAddr,
    ) -> Result<(), ToolError> {
        let plan = self.plan;
        netns::batch(
            self.upstream.name(),
            &format!(
                "link add {device} type veth peer name eth0 netns {machine}\nlink set {device} master br0 up\n"
            ),
        )?;
        netns::batch(
            machine,
            &format!(
                "addr add {address}/{} dev eth0\nlink set eth0 up\nroute add default via {}\n",
                plan.net_bits(),
                plan.router()
            ),
        )
    }

    /// Takes a pod's device down, and its route with it: from now on its address is silent.
    pub(crate) fn disconnect_pod(&self, node: Node, device: &str) -> Result<(), ToolError> {
        netns::batch(self.node(node).name(), &format!("link del {device}\n"))
    }

    /// Lets the network between the nodes lose a node: what is for its pods ends in the upstream's blackhole, and so
    /// does what they send to those of other nodes. Its device stays up and its neighbours known, as where a switch
    /// further away fails: nobody is told.
    pub(crate) fn lose(&self, lost: Node) -> Result<(), ToolError> {
        let router = self.plan.router();
        for node in Node::all() {
            for other in Node::all().filter(|other| (node == lost) != (*other == lost)) {
                let pods = self.plan.pod_cidr(other);
                netns::batch(
                    self.node(node).name(),
                    &format!("route replace {pods} via {router}\n"),
                )?;
            }
        }
        Ok(())
    }

    /// A node's namespace.
    pub(crate) fn node(&self, node: Node) -> &Netns {
        &self.nodes[usize::from(node.0)]
    }

    /// The namespace that the client is in.
    pub(crate) fn client(&self) -> &Netns {
        self.client.as_ref().unwrap_or_else(|| self.node(Node(0)))
    }

    /// The DNS server's namespace, if there is one.
    pub(crate) fn dns(&self) -> Option<&Netns> {
        self.dns.as_ref()
    }

    /// The namespaces.
    pub(crate) fn netns(&self) -> Vec<model::Netns> {
        let mut all = vec![describe(&self.upstream, NetnsRole::Other)];
        for (place, node) in self.nodes.iter().enumerate() {
            let role = if place == 0 { NetnsRole::ClientNode } else { NetnsRole::Node };
            all.push(describe(node, role));
        }
        all.extend(self.client.iter().map(|client| describe(client, NetnsRole::Client)));
        all.extend(self.dns.iter().map(|dns| describe(dns, NetnsRole::Other)));
        all.extend(self.second_client.iter().map(|client| describe(client, NetnsRole::Client)));
        all
    }

    /// The namespace that a second client is in, if there is one.
    pub(crate) fn second_client(&self) -> Option<&Netns> {
        self.second_client.as_ref()
    }

    /// The sysctls that matter, where they matter. What this kernel does not have is left out.
    pub(crate) fn sysctls(&self) -> Result<Vec<model::Sysctl>, LabError> {
        let mut all = Vec::new();
        for netns in &self.nodes {
            all.extend(sysctl::values(netns, &sysctl::OF_INTEREST)?);
        }
        if let Some(client) = &self.client {
            all.extend(sysctl::values(client, &[sysctl::PORT_RANGE])?);
        }
        Ok(all)
    }
}

/// Sets the sysctls of a client's namespace, which the calling thread is in.
fn set_client(settings: &LabSettings) -> Result<(), SysctlError> {
    let ports = format!("{} {}", settings.ports.start(), settings.ports.end());
    sysctl::write(sysctl::PORT_RANGE, &ports)?;
    settings
        .client_sysctls
        .iter()
        .filter(|(name, _)| sysctl::read(name).is_ok())
        .try_for_each(|(name, value)| sysctl::write(name, value))
}

/// A namespace as the trace's header has it: by the name that it has in every lab, a node's that of the node.
pub(crate) fn describe(netns: &Netns, role: NetnsRole) -> model::Netns {
    let name = owner::part(netns.name()).unwrap_or(netns.name()).to_owned();
    model::Netns { id: netns.id(), name, role }
}
