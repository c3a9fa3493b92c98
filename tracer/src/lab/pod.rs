//! A pod: a real process as PID 1 in its own network and PID namespaces, and what the kubelet does to it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::ATTENTION;
use super::error::LabError;
use super::listening::{has_unread, listens};
use super::network::{self, Network};
use super::plan::{Node, POD_PORT};
use super::probe::Probe;
use super::settings::LabSettings;
use super::setup::OnSigterm;
use super::truth::{PodMoment, Recorder};
use crate::model::{self, NetnsRole};
use crate::sys::clock;
use crate::sys::netns::{self, Netns};
use crate::sys::process::{Ended, Process};
use crate::sys::stop::Stop;
use crate::sys::sysctl;

/// The least time between SIGTERM and SIGKILL, however long preStop took (pkg/kubelet/kuberuntime,
/// minimumGracePeriodInSeconds).
const LEAST_GRACE: Duration = Duration::from_secs(2);

/// The most that a listener's backlog can hold.
const SOMAXCONN: &str = "net.core.somaxconn";

/// How often it is asked whether a process listens.
pub(super) const LISTENING_PERIOD: Duration = Duration::from_millis(5);

/// A pod: it has its network, and runs a little later.
#[derive(Debug)]
pub(crate) struct Pod {
    /// Its name.
    pub(crate) name: String,
    /// Its app.
    pub(crate) app: &'static str,
    /// The node it runs on.
    pub(crate) node: Node,
    /// Where it serves.
    pub(crate) address: SocketAddr,
    netns: Netns,
    device: String,
    created: Instant,
    process: OnceLock<Process>,
}

/// What a pod is to be.
#[derive(Clone, Debug)]
pub(crate) struct PodSpec {
    /// Its name.
    pub(crate) name: String,
    /// Its app.
    pub(crate) app: &'static str,
    /// Its network namespace's name.
    pub(crate) netns: String,
    /// The node it is to run on.
    pub(crate) node: Node,
    /// Its address.
    pub(crate) address: IpAddr,
}

impl Pod {
    /// Makes its network.
    pub(crate) fn create(
        spec: PodSpec,
        network: &Network,
        recorder: &Recorder,
    ) -> Result<Pod, LabError> {
        let created = Instant::now();
        let PodSpec { name, app, netns: netns_name, node, address } = spec;
        netns::create(&[&netns_name])?;
        let device = name.clone();
        let netns = Netns::open(&netns_name)?;
        network.prepare(&netns)?;
        network.connect_pod(node, &netns_name, &device, address)?;
        let address = SocketAddr::new(address, POD_PORT);
        recorder.pod_added(&name, app, &node.name(), address);
        Ok(Pod { name, app, node, address, netns, device, created, process: OnceLock::new() })
    }

    /// Starts its process, once that is due.
    pub(crate) fn start(
        &self,
        settings: &LabSettings,
        recorder: &Recorder,
        stop: &Stop,
    ) -> Result<(), LabError> {
        if !stop.wait(settings.pod_creation.saturating_sub(self.created.elapsed())) {
            return Err(LabError::Stopped);
        }
        let any = match self.address {
            SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        let listen = SocketAddr::new(any, POD_PORT);
        let mut command = Command::new(&settings.program);
        command
            .arg("serve")
            .args(["--listen", &listen.to_string(), "--app", self.app, "--pod", &self.name])
            .args(["--delay", &milliseconds(settings.pod_delay)])
            .args(["--start-delay", &milliseconds(settings.pod_start_delay)])
            .arg("--die-with-parent");
        match settings.setup.on_sigterm {
            OnSigterm::Exit => {}
            OnSigterm::Drain => _ = command.arg("--drain"),
            OnSigterm::Nothing => _ = command.arg("--ignore-sigterm"),
        }
        if settings.keep_alive {
            command.arg("--keep-alive");
        }
        if let Some(backlog) = settings.backlog {
            self.netns.run(|| sysctl::write(SOMAXCONN, &backlog.to_string()))??;
        }
        let process = Process::start(Netns::open(self.netns.name())?, command)
            .map_err(|source| LabError::Process { pod: self.name.clone(), source })?;
        recorder.pod(&self.name, PodMoment::Started, clock::now());
        assert!(self.process.set(process).is_ok(), "a pod is started once");
        Ok(())
    }

    /// Its process.
    ///
    /// # Panics
    /// If it was not started: nothing is asked of a pod before that.
    fn process(&self) -> &Process {
        self.process.get().expect("the pod was started")
    }

    /// Its network namespace.
    pub(crate) fn netns(&self) -> model::Netns {
        network::describe(&self.netns, NetnsRole::Other)
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
            loop {
                let answer = match probe.ask() {
                    Ok(()) => return Ok(()),
                    Err(answer) => answer,
                };
                if let Some(ended) = self.process().ended() {
                    return Err(self.ended_by_itself(&ended));
                }
                let age = self.created.elapsed();
                if age > settings.pod_creation + settings.ready_within {
                    let pod = self.name.clone();
                    return Err(LabError::NotReady { pod, after: settings.ready_within, answer });
                }
                if !stop.wait(until_next(age, settings.probe_period)) {
                    return Err(LabError::Stopped);
                }
            }
        })?
    }

    /// Waits until its process listens, which without a readiness probe nobody else does.
    pub(crate) fn wait_listening(
        &self,
        settings: &LabSettings,
        recorder: &Recorder,
        stop: &Stop,
    ) -> Result<(), LabError> {
        let began = Instant::now();
        loop {
            if listens(self.process().pid(), POD_PORT).is_ok_and(|listens| listens) {
                recorder.pod(&self.name, PodMoment::Listening, clock::now());
                return Ok(());
            }
            if let Some(ended) = self.process().ended() {
                return Err(self.ended_by_itself(&ended));
            }
            if began.elapsed() > settings.ready_within {
                return Err(LabError::NotReady {
                    pod: self.name.clone(),
                    after: settings.ready_within,
                    answer: "its process does not listen".to_owned(),
                });
            }
            if !stop.wait(LISTENING_PERIOD) {
                return Err(LabError::Stopped);
            }
        }
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
        self.process().signal(Signal::SIGTERM).map_err(failed)?;
        let grace = settings.grace.saturating_sub(began.elapsed()).max(LEAST_GRACE);
        let ended = match self.wait_for_end(grace, stop) {
            Some(ended) => ended,
            None => {
                if settings.setup.on_sigterm == OnSigterm::Nothing {
                    // Only this signal ends it: until now it served on.
                    recorder.pod(&self.name, PodMoment::Terminated, clock::now());
                }
                self.process().kill().map_err(failed)?
            }
        };
        recorder.pod(&self.name, PodMoment::Exited, ended.time);
        if !stop.wait(settings.network_teardown) {
            return Err(LabError::Stopped);
        }
        self.disconnect(network, recorder)
    }

    /// Kills it without ado.
    pub(crate) fn kill(&self) -> Result<(), LabError> {
        let Some(process) = self.process.get() else { return Ok(()) };
        process
            .kill()
            .map(drop)
            .map_err(|source| LabError::Process { pod: self.name.clone(), source })
    }

    /// Stops its process: its kernel takes connections still, and nobody accepts them.
    pub(crate) fn freeze(&self, recorder: &Recorder) -> Result<(), LabError> {
        let since = clock::now();
        let failed = |source| LabError::Process { pod: self.name.clone(), source };
        self.process().signal(Signal::SIGSTOP).map_err(failed)?;
        recorder.frozen(self.address, since);
        Ok(())
    }

    /// Whether each of the connections from these ports has sent it something that it did not read.
    pub(crate) fn has_unread(&self, ports: &BTreeSet<u16>) -> bool {
        has_unread(self.process().pid(), POD_PORT, ports).is_ok_and(|unread| unread)
    }

    /// Kills it and takes its network down, as where it is deleted by force.
    pub(crate) fn kill_and_disconnect(
        &self,
        network: &Network,
        recorder: &Recorder,
    ) -> Result<(), LabError> {
        recorder.pod(&self.name, PodMoment::Terminated, clock::now());
        let failed = |source| LabError::Process { pod: self.name.clone(), source };
        let ended = self.process().kill().map_err(failed)?;
        recorder.pod(&self.name, PodMoment::Exited, ended.time);
        self.disconnect(network, recorder)
    }

    fn disconnect(&self, network: &Network, recorder: &Recorder) -> Result<(), LabError> {
        recorder.pod(&self.name, PodMoment::Disconnecting, clock::now());
        network.disconnect_pod(self.node, &self.device)?;
        recorder.pod(&self.name, PodMoment::Disconnected, clock::now());
        Ok(netns::delete(self.netns.name())?)
    }

    /// None: it was still there at the end of the grace period, or the lab is to end.
    fn wait_for_end(&self, grace: Duration, stop: &Stop) -> Option<Ended> {
        let until = Instant::now() + grace;
        while !stop.is_requested() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if let Some(ended) = self.process().wait(left.min(ATTENTION)) {
                return Some(ended);
            }
        }
        None
    }

    fn ended_by_itself(&self, ended: &Ended) -> LabError {
        LabError::PodEnded {
            pod: self.name.clone(),
            status: ended.status.to_string(),
            stderr: ended.stderr.clone(),
        }
    }
}

/// From this age of a pod until it is probed again: the kubelet's worker ticks from the pod's arrival on,
/// before its container runs (pkg/kubelet/prober/worker.go).
fn until_next(age: Duration, period: Duration) -> Duration {
    let since = Duration::from_secs_f64(age.as_secs_f64() % period.as_secs_f64());
    period.saturating_sub(since)
}

pub(super) fn milliseconds(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_keep_the_time_of_the_pod_not_of_its_process() {
        let ms = Duration::from_millis;
        assert_eq!(until_next(ms(400), ms(1000)), ms(600));
        assert_eq!(until_next(ms(2500), ms(1000)), ms(500));
    }
}
