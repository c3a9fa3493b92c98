//! What can be set about a lab, with the values of a usual cluster.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::deed::DeadAddress;
use super::deployment::Deployment;
use super::plan::Family;
use super::rules::{ProxyMode, TrafficPolicy};
use super::setup::{Setup, USUAL};

/// How the client comes to the Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// By its ClusterIP, from a pod.
    #[default]
    Pod,
    /// By its ClusterIP, from a process in a node's own network namespace.
    Host,
    /// By a node's port, from outside the cluster.
    NodePort(TrafficPolicy),
}

/// How the lab's DNS server behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Dns {
    /// How long it takes to answer.
    pub delay: Duration,
    /// The probability that a question is not answered, from 0 to 1.
    pub loss: f64,
}

/// What to build.
#[derive(Clone, Debug, PartialEq)]
pub struct LabSettings {
    /// What the pods are like.
    pub setup: Setup,
    /// How the nodes' kube-proxies program the kernel.
    pub proxy_mode: ProxyMode,
    /// The addresses' family.
    pub family: Family,
    /// How the client comes to the Service.
    pub way: Way,
    /// How many there are, and how they are replaced.
    pub deployment: Deployment,
    /// The index that names and addresses follow from; none: the first that is free.
    pub index: Option<u8>,
    /// Where every random choice of the lab comes from.
    pub seed: u64,
    /// The program that the pods run, as `PROGRAM serve …`.
    pub program: PathBuf,
    /// Whether the app keeps connections open for more requests, for clients that want that.
    pub keep_alive: bool,
    /// How long the app takes to answer a request.
    pub pod_delay: Duration,
    /// From a pod's creation until its process runs: scheduling, sandbox, network, container.
    pub pod_creation: Duration,
    /// How long the app takes from its start until it listens.
    pub pod_start_delay: Duration,
    /// How often readiness is asked, counted from a pod's creation as the kubelet does, and how long an answer may take.
    pub probe_period: Duration,
    /// How long a pod may take to become ready before the lab gives up.
    pub ready_within: Duration,
    /// From a change of the endpoints to the nodes' rules: drawn for each change and node.
    pub rules_lag: RangeInclusive<Duration>,
    /// The same for a pod that is ready, where the proxies have been quiet for a second: they follow at once. None: as
    /// for every other change.
    pub prompt_lag: Option<Duration>,
    /// `terminationGracePeriodSeconds`: from the start of preStop to SIGKILL.
    pub grace: Duration,
    /// What becomes of packets to an address whose pod is gone.
    pub dead_address: DeadAddress,
    /// Whether the proxies delete the entries of an endpoint that they withdraw, as kube-proxy does for UDP alone.
    pub clears_entries: bool,
    /// From the end of a pod's process until its network is taken down.
    pub network_teardown: Duration,
    /// `nf_conntrack_tcp_timeout_syn_sent` on the nodes, in seconds; none: as this kernel has it.
    pub syn_sent_timeout: Option<u32>,
    /// `nf_conntrack_tcp_timeout_close` on the nodes, in seconds; none: as this kernel has it.
    pub conntrack_close_timeout: Option<u32>,
    /// How many connections can wait until a pod accepts them (`net.core.somaxconn`); none: as many as it asks for.
    pub backlog: Option<u32>,
    /// `ip_local_port_range` of the client.
    pub ports: RangeInclusive<u16>,
    /// The DNS server that the client asks for the Service's name; none: it knows the address.
    pub dns: Option<Dns>,
    /// What else is set in the client's network namespace: sysctls by name. What this kernel does not have is left out.
    pub client_sysctls: Vec<(&'static str, &'static str)>,
    /// Whether a second client's pod is there, on the same node and with the same source ports.
    pub second_client: bool,
    /// How often the lab's own truth looks at the conntrack table.
    pub snapshot_period: Duration,
}

impl Default for LabSettings {
    /// Three replicas, one extra at a time, and the timers of Kubernetes and Linux.
    fn default() -> LabSettings {
        LabSettings {
            setup: USUAL,
            proxy_mode: ProxyMode::default(),
            family: Family::default(),
            way: Way::default(),
            deployment: Deployment { replicas: 3, max_surge: 1, max_unavailable: 0 },
            index: None,
            seed: 1,
            program: PathBuf::from("/proc/self/exe"),
            keep_alive: false,
            pod_delay: Duration::from_millis(50),
            pod_creation: Duration::from_millis(400),
            pod_start_delay: Duration::from_secs(2),
            probe_period: Duration::from_secs(1),
            ready_within: Duration::from_secs(30),
            rules_lag: Duration::from_millis(300)..=Duration::from_millis(800),
            prompt_lag: Some(Duration::from_millis(50)),
            grace: Duration::from_secs(30),
            dead_address: DeadAddress::default(),
            clears_entries: false,
            network_teardown: Duration::from_millis(100),
            syn_sent_timeout: None,
            conntrack_close_timeout: None,
            backlog: None,
            ports: 32768..=60999,
            dns: None,
            client_sysctls: Vec::new(),
            second_client: false,
            snapshot_period: Duration::from_millis(900),
        }
    }
}

impl LabSettings {
    /// The same, done sooner: entries live 20 s instead of 120 s, and the client has a seventh of the ports,
    /// so that in this shorter life a port still comes round about as often as in the longer one.
    pub fn quick(self) -> LabSettings {
        LabSettings { syn_sent_timeout: Some(20), ports: 32768..=36863, ..self }
    }

    /// What of this differs from a usual cluster, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let usual = LabSettings::default();
        let mut notes = Vec::new();
        if let Some(sleep) = self.setup.prestop
            && sleep > self.grace
        {
            notes.push(format!(
                "the preStop sleep of {} s is longer than the grace period: SIGTERM comes at that one's end, after {} s",
                sleep.as_secs_f64(),
                self.grace.as_secs_f64()
            ));
        }
        if self.rules_lag != usual.rules_lag {
            notes.push(format!(
                "the lab's nodes follow a change of the endpoints after {} to {} s, not {} to {} s",
                self.rules_lag.start().as_secs_f64(),
                self.rules_lag.end().as_secs_f64(),
                usual.rules_lag.start().as_secs_f64(),
                usual.rules_lag.end().as_secs_f64()
            ));
        }
        if let Some(dns) = self.dns.filter(|dns| *dns != Dns::default()) {
            notes.push(format!(
                "the lab's DNS server takes {} s to answer and leaves {} % of the questions unanswered",
                dns.delay.as_secs_f64(),
                dns.loss * 100.0
            ));
        }
        if let Some(seconds) = self.syn_sent_timeout {
            notes.push(format!(
                "the lab's nodes have nf_conntrack_tcp_timeout_syn_sent shortened to {seconds} s"
            ));
        }
        if self.ports != usual.ports {
            notes.push(format!(
                "the lab's client has ip_local_port_range narrowed to {}-{}",
                self.ports.start(),
                self.ports.end()
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_sleep_beyond_the_grace_period_and_another_lag_are_noted() {
        let setup = Setup { prestop: Some(Duration::from_secs(40)), ..USUAL };
        let rules_lag = Duration::from_secs(20)..=Duration::from_secs(20);
        expect![[r#"
            the preStop sleep of 40 s is longer than the grace period: SIGTERM comes at that one's end, after 30 s
            the lab's nodes follow a change of the endpoints after 20 to 20 s, not 0.3 to 0.8 s"#]]
        .assert_eq(&LabSettings { setup, rules_lag, ..LabSettings::default() }.notes().join("\n"));
    }

    #[test]
    fn quick_says_what_it_changes_and_the_usual_lab_has_nothing_to_say() {
        assert_eq!(LabSettings::default().notes(), Vec::<String>::new());
        expect![[r#"
            the lab's nodes have nf_conntrack_tcp_timeout_syn_sent shortened to 20 s
            the lab's client has ip_local_port_range narrowed to 32768-36863"#]]
        .assert_eq(&LabSettings::default().quick().notes().join("\n"));
    }
}
