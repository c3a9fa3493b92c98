//! Whose connects are of interest to `record`, if not everybody's, and what is known of those who connect.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use anyhow::{Context, ensure};
use clap::Args;

use crate::cluster::Cluster;
use crate::model::{
    ClusterEvent, Event, EventKind, MonoNs, NetnsId, PacketEvent, TcpStateEvent, Workload,
};
use crate::sys::cgroup;
use crate::sys::netns::{self, Netns};

/// Cgroups that are looked up, at most: a node has some hundred.
const MOST_WORKLOADS: usize = 1 << 14;

/// Who the client is.
#[derive(Clone, Debug, Default, Args)]
#[group(skip)]
pub struct Options {
    /// Only connects of this pod, NAMESPACE/NAME; may be given more than once
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = pod)]
    client_pod: Vec<String>,

    /// Only connects of this namespace's pods; may be given more than once
    #[arg(long, value_name = "NAMESPACE")]
    client_namespace: Vec<String>,

    /// Only connects from this network namespace, as `ip netns` names it; may be given more than once
    #[arg(long, value_name = "NAME")]
    client_netns: Vec<String>,

    /// Only connects of this cgroup's processes and of those below it, by its path from the root of the unified
    /// hierarchy; may be given more than once
    #[arg(long, value_name = "PATH")]
    client_cgroup: Vec<String>,
}

/// A pod's name as reports have it: with its namespace, unless that is `default`.
fn pod(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some(("default", name)) if !name.is_empty() => Ok(name.to_owned()),
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Ok(text.to_owned()),
        _ => Err("write it as NAMESPACE/NAME".to_owned()),
    }
}

/// The clients that are of interest.
#[derive(Debug, Default)]
pub struct Clients {
    options: Options,
    netns: BTreeSet<NetnsId>,
    cgroups: BTreeSet<u64>,
    addresses: HashSet<IpAddr>,
}

impl Options {
    /// Finds what is named.
    ///
    /// # Errors
    /// If there is no such network namespace or cgroup, or pods are named and no cluster is watched.
    pub fn find(&self, watches_a_cluster: bool) -> anyhow::Result<Clients> {
        ensure!(
            watches_a_cluster || self.client_pod.is_empty() && self.client_namespace.is_empty(),
            "--client-pod and --client-namespace need --service NAMESPACE/NAME: by an address alone no pod is known"
        );
        let mut clients = Clients { options: self.clone(), ..Clients::default() };
        for name in &self.client_netns {
            let named = Netns::open(name)?;
            clients.netns.insert(named.id());
            let addresses = named.run(netns::addresses).with_context(|| name.clone())?;
            clients.addresses.extend(addresses);
        }
        for path in &self.client_cgroup {
            let numbers = cgroup::below(path);
            ensure!(!numbers.is_empty(), "there is no cgroup {path} in the unified hierarchy");
            clients.cgroups.extend(numbers);
        }
        Ok(clients)
    }
}

impl Clients {
    /// In words, for a reader of the trace; none if everybody is of interest.
    pub fn text(&self) -> Option<String> {
        let Options { client_pod, client_namespace, client_netns, client_cgroup } = &self.options;
        let named = [
            ("pod", client_pod),
            ("namespace", client_namespace),
            ("network namespace", client_netns),
            ("cgroup", client_cgroup),
        ];
        let named: Vec<String> = named
            .into_iter()
            .flat_map(|(what, names)| names.iter().map(move |name| format!("{what} {name}")))
            .collect();
        (!named.is_empty()).then(|| format!("only connects of {} are counted", named.join(", ")))
    }

    /// Learns which addresses pods have.
    pub fn learn(&mut self, event: &Event) {
        let EventKind::Cluster { change: ClusterEvent::Pod { name, address, .. }, .. } =
            &event.kind
        else {
            return;
        };
        let namespace = name.split_once('/').map_or("default", |(namespace, _)| namespace);
        let is_named = self.options.client_pod.contains(name)
            || self.options.client_namespace.iter().any(|known| known == namespace);
        if is_named {
            self.addresses.extend(address);
        }
    }

    /// Whether an event is of a client that is of interest, or of nobody.
    pub fn wants(&self, event: &Event) -> bool {
        if self.text().is_none() {
            return true;
        }
        match &event.kind {
            EventKind::Packet(packet) => self.wants_packet(packet),
            EventKind::TcpState(TcpStateEvent { netns, tuple, .. }) => {
                self.wants_socket(*netns, tuple.src.ip(), None)
            }
            EventKind::Connect(connect) => {
                let cgroup = connect.by.as_ref().map(|by| by.cgroup);
                self.wants_socket(connect.netns, connect.tuple.src.ip(), cgroup)
            }
            _ => true,
        }
    }

    /// By the end of the packet that is the client's: that of its entry, if it has one.
    fn wants_packet(&self, packet: &PacketEvent) -> bool {
        // A cgroup has no address of its own.
        if self.addresses.is_empty() && !self.cgroups.is_empty() {
            return true;
        }
        let is_known = |address: IpAddr| self.addresses.contains(&address);
        match &packet.lookup {
            Some(lookup) => is_known(lookup.orig.src.ip()),
            None => is_known(packet.tuple.src.ip()) || is_known(packet.tuple.dst.ip()),
        }
    }

    fn wants_socket(&self, netns: NetnsId, address: IpAddr, cgroup: Option<u64>) -> bool {
        if let Some(cgroup) = cgroup
            && self.cgroups.contains(&cgroup)
        {
            return true;
        }
        self.netns.contains(&netns)
            || self.addresses.contains(&address)
            || cgroup.is_none() && !self.cgroups.is_empty()
    }
}

/// Tells once of each cgroup what it is.
#[derive(Debug, Default)]
pub struct Workloads {
    known: BTreeSet<u64>,
    new: Vec<u64>,
}

impl Workloads {
    /// Takes note of whose connect an event tells.
    pub fn see(&mut self, event: &Event) {
        if let EventKind::Connect(connect) = &event.kind
            && let Some(by) = &connect.by
            && self.known.len() < MOST_WORKLOADS
            && self.known.insert(by.cgroup)
        {
            self.new.push(by.cgroup);
        }
    }

    /// What those are that were seen since the last time.
    pub fn tell(&mut self, now: MonoNs, cluster: Option<&Cluster>) -> Vec<Event> {
        let new = std::mem::take(&mut self.new);
        let told = new.into_iter().filter_map(|cgroup| {
            let path = cgroup::path(cgroup)?;
            let named = cgroup::named(&path);
            let pod = named
                .pod
                .map(|uid| cluster.and_then(|cluster| cluster.pod_name(&uid)).unwrap_or(uid));
            let workload = Workload { cgroup, path, container: named.container, pod };
            Some(Event { time: now, kind: EventKind::Workload(workload) })
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use expect_test::expect;

    use super::*;
    use crate::model::{ConnectEnd, ConnectEvent, PodChange, Process, SockState, Tuple};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(line: &str) -> Options {
        let words = std::iter::once("record").chain(line.split_whitespace());
        Line::try_parse_from(words).expect("the options are valid").options
    }

    /// The clients of these options, who have heard of two pods.
    fn clients(line: &str) -> Clients {
        let mut clients = options(line).find(true).expect("nothing must be there for it");
        for (name, address) in [("shop/a", "10.244.0.5"), ("b", "10.244.0.6")] {
            let change = ClusterEvent::Pod {
                name: name.to_owned(),
                app: String::new(),
                node: "n1".to_owned(),
                address: Some(address.parse().unwrap()),
                change: PodChange::Added,
            };
            let kind = EventKind::Cluster { change, since: MonoNs(0) };
            clients.learn(&Event { time: MonoNs(0), kind });
        }
        clients
    }

    fn events(address: &str, cgroup: u64) -> [Event; 2] {
        let src = format!("{address}:40001").parse().unwrap();
        let tuple = Tuple::new(src, "10.96.0.1:80".parse().unwrap());
        let netns = NetnsId(7);
        let (old, new) = (SockState::Close, SockState::SynSent);
        let by = Some(Process { pid: 1, name: "curl".to_owned(), cgroup });
        let end = ConnectEnd::Established;
        let kinds = [
            EventKind::TcpState(TcpStateEvent { netns, tuple, old, new }),
            EventKind::Connect(ConnectEvent { netns, tuple, started: None, end, by }),
        ];
        kinds.map(|kind| Event { time: MonoNs(0), kind })
    }

    fn wants(clients: &Clients, address: &str) -> bool {
        let wanted = events(address, 1).map(|event| clients.wants(&event));
        assert_eq!(wanted[0], wanted[1], "{address}");
        wanted[0]
    }

    #[test]
    fn pods_are_known_by_name_and_namespace() {
        let of = |line: &str| {
            let clients = clients(line);
            ["10.244.0.5", "10.244.0.6", "10.244.0.7"].map(|address| wants(&clients, address))
        };
        assert_eq!(of(""), [true, true, true]);
        assert_eq!(of("--client-pod shop/a"), [true, false, false]);
        assert_eq!(of("--client-pod default/b"), [false, true, false]);
        assert_eq!(of("--client-namespace shop"), [true, false, false]);
        assert_eq!(of("--client-namespace default --client-pod shop/a"), [true, true, false]);
        assert_eq!(of("--client-pod shop/unknown"), [false, false, false]);
    }

    #[test]
    fn a_cgroup_is_known_by_the_process_that_connects() {
        let cgroups = BTreeSet::from([77]);
        let options = Options { client_cgroup: vec!["/x".to_owned()], ..Options::default() };
        let clients = Clients { options, cgroups, ..Clients::default() };
        let [_, own] = events("10.244.0.5", 77);
        let [_, other] = events("10.244.0.5", 78);
        assert_eq!((clients.wants(&own), clients.wants(&other)), (true, false));
    }

    #[test]
    fn what_can_not_be_found_is_said_before_anything_is_traced() {
        let said = |line: &str, cluster| options(line).find(cluster).unwrap_err().to_string();
        let all = [
            said("--client-pod shop/a", false),
            said("--client-netns no-such-namespace", true),
            said("--client-cgroup /no/such/cgroup", true),
        ];
        expect![[r#"
            --client-pod and --client-namespace need --service NAMESPACE/NAME: by an address alone no pod is known
            cannot open network namespace /run/netns/no-such-namespace
            there is no cgroup /no/such/cgroup in the unified hierarchy"#]]
        .assert_eq(&all.join("\n"));
        let text = clients("--client-pod shop/a --client-namespace bank").text();
        assert_eq!(text.unwrap(), "only connects of pod shop/a, namespace bank are counted");
    }
}
