//! The options of `tracer lab` that say what the cluster is like.

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::commands::units;
use crate::lab::{
    Deployment, Family, LabSettings, ProxyMode, SETUPS, Setup, TrafficPolicy, USUAL, Way,
};

/// What the cluster is like.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub(super) struct Options {
    /// How the pods are set up
    #[arg(long, value_name = "SETUP", default_value = USUAL.name, long_help = setups_help())]
    pub(super) setup: Setup,

    /// Show the same within a minute: a shorter SYN_SENT timer and port range inside the lab
    #[arg(long)]
    pub(super) quick: bool,

    /// How the nodes' kube-proxies program the kernel
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,

    /// Where the client is, and what it asks
    #[arg(long, value_enum, default_value_t)]
    from: From,

    /// With --from nodeport: which pods the port leads to [default: cluster]
    #[arg(long, value_enum)]
    traffic_policy: Option<Policy>,

    /// The addresses' family
    #[arg(long, value_enum, default_value_t)]
    family: FamilyName,

    /// How many pods there are
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=20))]
    replicas: u8,

    /// How long the app takes to answer a request
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = units::duration)]
    delay: Duration,

    /// How long the preStop hook sleeps, for a setup that has one [default: 5s]
    #[arg(long, value_name = "DURATION", value_parser = units::positive)]
    prestop: Option<Duration>,

    /// The grace period: from the start of preStop to SIGKILL
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = units::positive)]
    grace: Duration,

    /// From a change of the endpoints to a node's rules, drawn for each change and node: MIN..MAX, or one
    /// value for all [default: 300ms..800ms; 50ms for a pod that is ready, where nothing changed for a second]
    #[arg(long, value_name = "DURATIONS", value_parser = units::durations)]
    rules_lag: Option<RangeInclusive<Duration>>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Mode {
    /// Chains with a chance for each endpoint
    #[default]
    Iptables,
    /// Verdict maps
    Nftables,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum From {
    /// In a pod, asks the ClusterIP
    #[default]
    Pod,
    /// On a node itself, as a pod with hostNetwork is, asks the ClusterIP
    Host,
    /// Outside the cluster, asks a port of a node
    #[value(name = "nodeport")]
    NodePort,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Policy {
    /// To all, with the client's address masqueraded
    Cluster,
    /// To those on the node that is asked
    Local,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum FamilyName {
    #[default]
    Ipv4,
    Ipv6,
}

impl Options {
    /// The lab's settings; `timeout` is the client's.
    pub(super) fn settings(&self, timeout: Duration) -> anyhow::Result<LabSettings> {
        anyhow::ensure!(
            self.delay < timeout,
            "with --delay {} s and --timeout {} s no request could succeed",
            self.delay.as_secs_f64(),
            timeout.as_secs_f64()
        );
        let usual = LabSettings::default();
        let settings = LabSettings {
            setup: self.setup()?,
            proxy_mode: match self.mode {
                Mode::Iptables => ProxyMode::Iptables,
                Mode::Nftables => ProxyMode::Nftables,
            },
            family: match self.family {
                FamilyName::Ipv4 => Family::Ipv4,
                FamilyName::Ipv6 => Family::Ipv6,
            },
            way: self.way()?,
            deployment: Deployment { replicas: self.replicas.into(), ..usual.deployment },
            pod_delay: self.delay,
            grace: self.grace,
            prompt_lag: usual.prompt_lag.filter(|_| self.rules_lag.is_none()),
            rules_lag: self.rules_lag.clone().unwrap_or_else(|| usual.rules_lag.clone()),
            ..usual
        };
        Ok(if self.quick { settings.quick() } else { settings })
    }

    fn way(&self) -> anyhow::Result<Way> {
        anyhow::ensure!(
            self.from == From::NodePort || self.traffic_policy.is_none(),
            "--traffic-policy is for --from nodeport"
        );
        Ok(match self.from {
            From::Pod => Way::Pod,
            From::Host => Way::Host,
            From::NodePort => Way::NodePort(match self.traffic_policy {
                None | Some(Policy::Cluster) => TrafficPolicy::Cluster,
                Some(Policy::Local) => TrafficPolicy::Local,
            }),
        })
    }

    fn setup(&self) -> anyhow::Result<Setup> {
        let Some(sleep) = self.prestop else { return Ok(self.setup) };
        if self.setup.prestop.is_none() {
            let with: Vec<_> = SETUPS.iter().filter(|setup| setup.prestop.is_some()).collect();
            let with: Vec<_> = with.iter().map(|setup| setup.name).collect();
            anyhow::bail!(
                "the setup `{}` has no preStop hook for --prestop; these have: {}",
                self.setup.name,
                with.join(", ")
            );
        }
        Ok(Setup { prestop: Some(sleep), ..self.setup })
    }
}

fn setups_help() -> String {
    let mut help = "How the pods are set up:".to_owned();
    for setup in SETUPS {
        help.push_str(&format!("\n  {}: {}", setup.name, setup.about));
    }
    help
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use expect_test::expect;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn settings(line: &str) -> Result<LabSettings, String> {
        let words = std::iter::once("lab").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.options.settings(Duration::from_secs(3)).map_err(|error| error.to_string())
    }

    fn refused(line: &str) -> String {
        let error = settings(line).expect_err("it is refused");
        error.lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn without_options_it_is_the_usual_lab() {
        assert_eq!(settings(""), Ok(LabSettings::default()));
        assert_eq!(settings("--quick"), Ok(LabSettings::default().quick()));
    }

    #[test]
    fn options_reach_the_settings() {
        let settings = settings(
            "--setup readiness-prestop-drain --prestop 2s --grace 10s --rules-lag 20s --replicas 5 --delay 10ms \
             --mode nftables --from nodeport --traffic-policy local --family ipv6",
        )
        .expect("all of it is possible");
        assert_eq!(settings.setup.prestop, Some(Duration::from_secs(2)));
        assert_eq!(settings.setup.name, "readiness-prestop-drain");
        assert_eq!(settings.proxy_mode, ProxyMode::Nftables);
        assert_eq!(settings.way, Way::NodePort(TrafficPolicy::Local));
        assert_eq!(settings.family, Family::Ipv6);
        assert_eq!(settings.grace, Duration::from_secs(10));
        assert_eq!(settings.rules_lag, Duration::from_secs(20)..=Duration::from_secs(20));
        assert_eq!(settings.deployment.replicas, 5);
        assert_eq!(settings.pod_delay, Duration::from_millis(10));
    }

    #[test]
    fn contradictions_and_impossible_values_are_refused() {
        let all = [
            "--setup readyness",
            "--prestop 5s",
            "--setup readiness-prestop --prestop 0s",
            "--delay 3s",
            "--replicas 0",
            "--rules-lag 2s..1s",
            "--grace 0s",
            "--traffic-policy local",
            "--mode ipvs",
        ]
        .map(refused)
        .join("\n");
        expect![[r#"
            error: invalid value 'readyness' for '--setup <SETUP>': no setup is called `readyness`; there are: naive, readiness, readiness-drain, readiness-prestop, readiness-prestop-drain, readiness-no-handler
            the setup `readiness` has no preStop hook for --prestop; these have: readiness-prestop, readiness-prestop-drain
            error: invalid value '0s' for '--prestop <DURATION>': must be more than 0
            with --delay 3 s and --timeout 3 s no request could succeed
            error: invalid value '0' for '--replicas <N>': 0 is not in 1..=20
            error: invalid value '2s..1s' for '--rules-lag <DURATIONS>': 2s..1s is empty: write the smaller one first
            error: invalid value '0s' for '--grace <DURATION>': must be more than 0
            --traffic-policy is for --from nodeport
            error: invalid value 'ipvs' for '--mode <MODE>'"#]]
        .assert_eq(&all);
    }
}
