//! A pod: a real process as PID 1 in its own network and PID namespaces, and what the kubelet does to it.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::error::LabError;
use super::network::{self, Network};
use super::plan::{Node, POD_PORT};
use super::probe::Probe;
use super::settings::LabSettings;
use super::truth::{PodMoment, Recorder};
use super::{APP, ATTENTION};
use crate::model::{self, NetnsRole};
use crate::sys::clock;
use crate::sys::netns::{self, Netns};
use crate::sys::process::{Ended, Process, ProcessError};
use crate::sys::stop::Stop;

/// The least time between SIGTERM and SIGKILL, however long preStop took (pkg/kubelet/kuberuntime,
/// minimumGracePeriodInSeconds).
const LEAST_GRACE: Duration = Duration::from_secs(2);

/// A pod that runs.
#[derive(Debug)]
pub(crate) struct Pod {
    /// Its name.
    pub(crate) name: String,
    /// The node it runs on.
    pub(crate) node: Node,
    /// Where it serves.
    pub(crate) address: SocketAddr,
    netns: model::Netns,
    device: String,
    process: Process,
}

/// What a pod is to be.
#[derive(Clone, Debug)]
pub(crate) struct PodSpec {
    /// Its name.
    pub(crate) name: String,
    /// Its network namespace's name.
    pub(crate) netns: String,
    /// The node it is to run on.
    pub(crate) node: Node,
    /// Its address.
    pub(crate) address: Ipv4Addr,
}

impl Pod {
    /// Makes its network and starts its process.
    pub(crate) fn start(
        spec: PodSpec,
        network: &Network,
        settings: &LabSettings,
        recorder: &Recorder,
    ) -> Result<Pod, LabError> {
        let PodSpec { name, netns: netns_name, node, address } = spec;
        netns::create(&[&netns_name])?;
        let device = name.clone();
        network.connect_pod(node, &netns_name, &device, address)?;
        let netns = Netns::open(&netns_name)?;
        let description = network::describe(&netns, NetnsRole::Other);
        let mut command = Command::new(&settings.program);
        command
            .arg("serve")
            .args(["--listen", &format!("0.0.0.0:{POD_PORT}"), "--app", APP, "--pod", &name])
            .args(["--delay", &milliseconds(settings.pod_delay)])
            .args(["--start-delay", &milliseconds(settings.pod_start_delay)])
            .arg("--die-with-parent");
        let address = SocketAddr::new(address.into(), POD_PORT);
        recorder.pod_added(&name, &node.name(), address);
        let process = Process::start(netns, command)
            .map_err(|source| LabError::Process { pod: name.clone(), source })?;
        recorder.pod(&name, PodMoment::Started, clock::now());
        Ok(Pod { name, node, address, netns: description, device, process })
    }

    /// Its network namespace.
    pub(crate) fn netns(&self) -> model::Netns {
        self.netns.clone()
    }

    /// Asks its readiness from its node, each period, until it is ready.
    pub(crate) fn wait_ready(
        &self,
        network: &Network,
        settings: &LabSettings,
        stop: &Stop,
    ) -> Result<(), LabError> {
        if !settings.setup.readiness {
            return Ok(());
        }
        network.node(self.node).run(|| {
            let probe =
                Probe::new(self.address, settings.probe_period).map_err(LabError::Thread)?;
            let began = Instant::now();
            loop {
                let asked = Instant::now();
                let answer = match probe.ask() {
                    Ok(()) => return Ok(()),
                    Err(answer) => answer,
                };
                if let Some(ended) = self.process.ended() {
                    return Err(self.ended_by_itself(&ended));
                }
                if began.elapsed() > settings.ready_within {
                    let pod = self.name.clone();
                    return Err(LabError::NotReady { pod, after: settings.ready_within, answer });
                }
                if !stop.wait(settings.probe_period.saturating_sub(asked.elapsed())) {
                    return Err(LabError::Stopped);
                }
            }
        })?
    }

    /// What the kubelet does once a pod's deletion was asked for: preStop, SIGTERM, SIGKILL at the end of the
    /// grace period, which counts from the start of preStop; then its network goes.
    pub(crate) fn terminate(
        &self,
        network: &Network,
        settings: &LabSettings,
        recorder: &Recorder,
        stop: &Stop,
    ) -> Result<(), LabError> {
        let began = Instant::now();
        if let Some(sleep) = settings.setup.prestop
            && !stop.wait(sleep.min(settings.grace))
        {
            return Err(LabError::Stopped);
        }
        let failed = |source| LabError::Process { pod: self.name.clone(), source };
        recorder.pod(&self.name, PodMoment::Terminated, clock::now());
        self.process.signal(Signal::SIGTERM).map_err(failed)?;
        let grace = settings.grace.saturating_sub(began.elapsed()).max(LEAST_GRACE);
        let ended = self.wait_for_end(grace, stop).map_err(failed)?;
        recorder.pod(&self.name, PodMoment::Exited, ended.time);
        if !stop.wait(settings.network_teardown) {
            return Err(LabError::Stopped);
        }
        self.disconnect(network, recorder)
    }

    /// Kills it without ado.
    pub(crate) fn kill(&self) -> Result<(), LabError> {
        self.process
            .kill()
            .map(drop)
            .map_err(|source| LabError::Process { pod: self.name.clone(), source })
    }

    fn disconnect(&self, network: &Network, recorder: &Recorder) -> Result<(), LabError> {
        recorder.pod(&self.name, PodMoment::Disconnecting, clock::now());
        network.disconnect_pod(self.node, &self.device)?;
        recorder.pod(&self.name, PodMoment::Disconnected, clock::now());
        Ok(netns::delete(&self.netns.name)?)
    }

    fn wait_for_end(&self, grace: Duration, stop: &Stop) -> Result<Ended, ProcessError> {
        let until = Instant::now() + grace;
        while !stop.is_requested() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if let Some(ended) = self.process.wait(left.min(ATTENTION)) {
                return Ok(ended);
            }
        }
        self.process.kill()
    }

    fn ended_by_itself(&self, ended: &Ended) -> LabError {
        LabError::PodEnded {
            pod: self.name.clone(),
            status: ended.status.to_string(),
            stderr: ended.stderr.clone(),
        }
    }
}

fn milliseconds(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}
