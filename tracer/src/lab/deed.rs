//! What can be done to a lab that runs, besides a rollout: the troubles that a control is made of.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use super::plan::{Family, Node};
use super::pod::{Pod, PodSpec};
use super::slice::Conditions;
use super::truth::HowDropped;
use super::{Cluster, Comes, Lab, LabError, Sink, listing, lock, pod_event};
use crate::model::PodChange;
use crate::sys::clock;
use crate::sys::conntrack::Conntrack;
use crate::sys::stop::Stop;
use crate::sys::tool::{IP6TABLES_RESTORE, IPTABLES_RESTORE, NFT};

/// The app that may get a dead pod's address.
const OTHER_APP: &str = "other";

/// What becomes of packets to an address whose pod is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum DeadAddress {
    /// Nothing answers, as where a node's default route leads to a router that drops them.
    #[default]
    Silent,
    /// A machine that has the address now answers with a RST.
    Resets,
    /// A router answers with an ICMP host unreachable.
    Unreachable,
}

impl Lab {
    /// From now on the client's node drops the SYNs of so many of the client's source ports, by a rule of the filter
    /// table as a network policy or a firewall would have one.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn drop_syns(&self, count: usize) -> Result<(), LabError> {
        let is_v6 = self.plan.family() == Family::Ipv6;
        let tool = if is_v6 { IP6TABLES_RESTORE } else { IPTABLES_RESTORE };
        let ports = self.untroubled(count)?;
        let mut rules = "*filter\n".to_owned();
        for port in &ports {
            rules.push_str(&format!("-I FORWARD 1 -p tcp --sport {port} --syn -j DROP\n"));
        }
        rules.push_str("COMMIT\n");
        let since = clock::now();
        self.network.node(Node(0)).run(|| tool.run(&["-w", "5", "--noflush"], &rules))??;
        self.recorder.dropping(ports, HowDropped::Rule, since);
        Ok(())
    }

    /// From now on the SYNs of so many of the client's source ports leave it with a FIN besides, which conntrack judges
    /// invalid (`tcp_valid_flags` in net/netfilter/nf_conntrack_proto_tcp.c): it gives them no entry, so that no rule
    /// translates them, and kube-proxy's rules drop them or they go nowhere.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn spoil_syns(&self, count: usize) -> Result<(), LabError> {
        let ports = self.untroubled(count)?;
        let list = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        let rules = format!(
            "table inet spoil {{\n\tchain out {{\n\t\ttype filter hook output priority 0;\n\t\t\
             tcp sport {{ {list} }} tcp flags & (syn | ack) == syn tcp flags set fin | syn\n\t}}\n}}\n"
        );
        let since = clock::now();
        self.network.client().run(|| NFT.run(&["-f", "-"], &rules))??;
        self.recorder.dropping(ports, HowDropped::Invalid, since);
        Ok(())
    }

    /// So many of the client's source ports on which no entry without an answer is, so that nothing but what is done to
    /// them can be what a SYN fails of. Spread over the range: the kernel's walk goes through it in steps.
    pub(super) fn untroubled(&self, count: usize) -> Result<BTreeSet<u16>, LabError> {
        let is_v6 = self.plan.family() == Family::Ipv6;
        let mut ports: BTreeSet<u16> = self.settings.ports.clone().collect();
        let entries = self.network.node(Node(0)).run(|| Conntrack::open()?.entries(is_v6))??;
        for entry in entries.iter().filter(|entry| entry.is_unanswered) {
            ports.remove(&entry.orig.src.port());
        }
        let step = (ports.len() / count.max(1)).max(1);
        Ok(ports.into_iter().step_by(step).take(count).collect())
    }

    /// Gives the address of each pod that is deleted to a new pod of another app, which is no endpoint of the Service
    /// and listens on the same port; returns when they answer.
    ///
    /// # Errors
    /// [`LabError`]; [`LabError::Stopped`] if `stop` was requested meanwhile.
    pub fn reassign(&self, sink: Sink<'_>, stop: &Stop) -> Result<(), LabError> {
        let free = std::mem::take(&mut self.cluster().free);
        let mut pods = Vec::new();
        for (nth, (node, address)) in free.into_iter().enumerate() {
            let name = format!("{OTHER_APP}-{}", nth + 1);
            let netns = lock(&self.owner).as_ref().ok_or(LabError::Stopped)?.name(&name);
            let spec = PodSpec { name, app: OTHER_APP, netns, node, address };
            let pod = Arc::new(Pod::create(spec, &self.network, &self.recorder)?);
            self.cluster().apart.push(Arc::clone(&pod));
            sink(pod_event(&pod, PodChange::Added));
            pods.push(pod);
        }
        for pod in &pods {
            pod.start(&self.settings, &self.recorder, stop)?;
        }
        for pod in &pods {
            pod.wait_listening(&self.settings, &self.recorder, stop)?;
            sink(pod_event(pod, PodChange::Ready));
        }
        Ok(())
    }

    /// Lets the network lose every node but the client's. Nobody is told, and the pods there live on.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn lose_nodes(&self) -> Result<(), LabError> {
        for node in Node::all().filter(|node| *node != Node(0)) {
            let since = clock::now();
            self.network.lose(node)?;
            self.recorder.outage(&node.name(), since);
        }
        Ok(())
    }

    /// What the node lifecycle controller does about a node that has not reported for long: its pods count as not ready,
    /// so that their endpoints are withdrawn.
    pub fn doubt_lost(&self, sink: Sink<'_>) {
        let mut cluster = self.cluster();
        for pod in on_lost_nodes(&cluster) {
            sink(pod_event(&pod, PodChange::NotReady));
            self.change_slice(&mut cluster, Comes::Out, |slice| {
                slice.list(pod.address, Conditions::UNKNOWN);
            });
            sink(self.endpoint_event(&pod, listing(Conditions::UNKNOWN)));
        }
    }

    /// What comes of it in the end: the pods are evicted, and as no kubelet confirms it, deleted by force. They run on,
    /// where nobody reaches them.
    ///
    /// # Errors
    /// [`LabError`]; [`LabError::Stopped`] if `stop` was requested meanwhile.
    pub fn evict_lost(&self, sink: Sink<'_>, stop: &Stop) -> Result<(), LabError> {
        let lost = on_lost_nodes(&self.cluster());
        for pod in &lost {
            let mut cluster = self.cluster();
            let place = cluster.pods.iter().position(|listed| listed.pod.name == pod.name);
            self.ask(&mut cluster, place.expect("it was listed just now"), sink);
        }
        for pod in lost {
            self.mark_deleted(&pod, sink);
            self.cluster().apart.push(pod);
        }
        self.proxies().iter().try_for_each(|proxy| proxy.settle(stop))
    }

    /// Scales the Deployment down: deletes pods, the newest first, until so many are left, and returns when they are
    /// gone and the nodes' rules have followed. No rollout: the template stays.
    ///
    /// # Errors
    /// [`LabError`]; [`LabError::Stopped`] if `stop` was requested meanwhile.
    pub fn scale_down(&self, left: usize, sink: Sink<'_>, stop: &Stop) -> Result<(), LabError> {
        let mut victims = Vec::new();
        while self.living() > left {
            victims.push(self.ask_newest(sink));
        }
        thread::scope(|scope| {
            let ends: Vec<_> = victims
                .iter()
                .map(|pod| {
                    let pod = Arc::clone(pod);
                    scope.spawn(move || -> Result<(), LabError> {
                        pod.terminate(&self.network, &self.settings, &self.recorder, stop)?;
                        self.mark_deleted(&pod, sink);
                        Ok(())
                    })
                })
                .collect();
            ends.into_iter().try_for_each(|end| match end.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
        self.proxies().iter().try_for_each(|proxy| proxy.settle(stop))
    }
}

/// The pods on all nodes but the client's.
fn on_lost_nodes(cluster: &Cluster) -> Vec<Arc<Pod>> {
    let pods = cluster.pods.iter().map(|listed| &listed.pod);
    pods.filter(|pod| pod.node != Node(0)).cloned().collect()
}
