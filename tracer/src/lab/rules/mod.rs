//! kube-proxy's rules for one Service on one node, as text for the tool that sets them.

mod iptables;
mod nftables;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;

use super::plan::{Family, Node, Plan};
use crate::sys::netns::{Netns, NetnsError};
use crate::sys::tool::{IP6TABLES_RESTORE, IPTABLES_RESTORE, NFT, Tool, ToolError};

/// How the nodes' kube-proxies program the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyMode {
    /// Chains with a chance for each endpoint.
    #[default]
    Iptables,
    /// Verdict maps.
    Nftables,
}

/// Which endpoints a NodePort leads to (`externalTrafficPolicy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrafficPolicy {
    /// All of them; the client's address is masqueraded.
    #[default]
    Cluster,
    /// Those on the node that was asked; the client keeps its address.
    Local,
}

/// What the rules of one node are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    /// Its name within the namespace `default`.
    pub(crate) name: String,
    /// The addresses.
    pub(crate) plan: Plan,
    /// The node.
    pub(crate) node: Node,
    /// Whether it has a port on the nodes, and where that leads.
    pub(crate) node_port: Option<TrafficPolicy>,
}

impl Service {
    /// Those of the endpoints that are on the rules' own node.
    fn local(&self, endpoints: &BTreeSet<SocketAddr>) -> Vec<SocketAddr> {
        let is_local = |end: &&SocketAddr| self.plan.is_on(self.node, end.ip());
        endpoints.iter().filter(is_local).copied().collect()
    }

    /// Its name and its port's, as comments have it.
    fn label(&self) -> String {
        format!("default/{}:http", self.name)
    }
}

impl ProxyMode {
    /// The tool that sets the rules.
    pub(crate) fn tool(self, family: Family) -> Tool {
        match (self, family) {
            (ProxyMode::Iptables, Family::Ipv4) => IPTABLES_RESTORE,
            (ProxyMode::Iptables, Family::Ipv6) => IP6TABLES_RESTORE,
            (ProxyMode::Nftables, _) => NFT,
        }
    }

    /// The chains that stay, and the way into them from the kernel's own. To be set once.
    pub(crate) fn base(self, family: Family) -> String {
        match self {
            ProxyMode::Iptables => iptables::BASE.to_owned(),
            ProxyMode::Nftables => nftables::base(family),
        }
    }

    /// The rules that send the Service's new connections to `endpoints`, each with the same chance, and that
    /// take back what was there for those endpoints of `before` that are gone. Without endpoints the Service
    /// is rejected (ICMP port unreachable, so the client is refused).
    pub(crate) fn sync(
        self,
        service: &Service,
        endpoints: &BTreeSet<SocketAddr>,
        before: &BTreeSet<SocketAddr>,
    ) -> String {
        match self {
            ProxyMode::Iptables => iptables::sync(service, endpoints, before),
            ProxyMode::Nftables => nftables::sync(service, endpoints, before),
        }
    }

    /// Sets rules in a node's namespace, all at once or not at all.
    pub(crate) fn set(
        self,
        family: Family,
        node: &Netns,
        rules: &str,
    ) -> Result<Result<(), ToolError>, NetnsError> {
        let arguments: &[&str] = match self {
            // `-w`: with the legacy variant another program may hold the lock on the tables.
            ProxyMode::Iptables => &["-w", "5", "--noflush"],
            ProxyMode::Nftables => &["-f", "-"],
        };
        node.run(|| self.tool(family).run(arguments, rules).map(drop))
    }
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    writeln!(text, "{words}").expect("writing to a string cannot fail");
}
