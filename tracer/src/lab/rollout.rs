//! The rolling update: the Deployment controller's decisions carried out, with the kubelet's and the endpoint
//! controller's part in them.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use super::deployment::{self, Counts, Step};
use super::{
    APP, ATTENTION, Cluster, Comes, Conditions, Lab, LabError, Listed, Node, Pod, PodMoment, Sink,
    cluster_event, listing, pod_event,
};
use crate::model::{ClusterEvent, EndpointChange, PodChange, RolloutChange};
use crate::sys::clock;
use crate::sys::stop::Stop;

/// What the threads of the kubelets report to the controller.
enum Report {
    Ready(Result<(), LabError>),
    /// Without a readiness probe a pod is ready before it listens.
    Listens(Result<(), LabError>),
    Gone(Result<(), LabError>),
}

impl Lab {
    /// Replaces every pod by one of a new revision, and returns when the last old one is gone, the new ones
    /// listen and the nodes' rules have followed, which may be long after the rollout is complete. Each change goes to `sink` at the moment it happens.
    ///
    /// # Errors
    /// [`LabError`]; [`LabError::Stopped`] if `stop` was requested meanwhile. On any other error it requests
    /// `stop` itself: a lab that lost a pod is over.
    pub fn rollout(&self, sink: Sink<'_>, stop: &Stop) -> Result<(), LabError> {
        self.roll(None, sink, stop)
    }

    /// The same, and `gap` after its beginning the template is changed once more: from then on the pods of the first
    /// rollout are old as well. Its events tell of two beginnings, and of one end unless the first was over by then.
    /// No pod may be unavailable, so that none is deleted before it was ready.
    ///
    /// # Errors
    /// As of [`Lab::rollout`].
    pub fn overlapping_rollouts(
        &self,
        gap: Duration,
        sink: Sink<'_>,
        stop: &Stop,
    ) -> Result<(), LabError> {
        self.roll(Some(gap), sink, stop)
    }

    fn roll(&self, again: Option<Duration>, sink: Sink<'_>, stop: &Stop) -> Result<(), LabError> {
        let revision =
            self.cluster().pods.iter().map(|listed| listed.revision).max().unwrap_or(0) + 1;
        let result = self.run_rollout(revision, again, sink, stop);
        if result.is_err() {
            stop.request();
        }
        result
    }

    fn run_rollout(
        &self,
        mut revision: u32,
        mut again: Option<Duration>,
        sink: Sink<'_>,
        stop: &Stop,
    ) -> Result<(), LabError> {
        self.announce(RolloutChange::Started, sink);
        let began = Instant::now();
        let (reports, reported) = mpsc::channel();
        thread::scope(|scope| {
            let without_probe = !self.settings.setup.readiness;
            let mut terminating = 0;
            let mut starting = 0;
            let mut is_complete = false;
            loop {
                if again.take_if(|gap| began.elapsed() >= *gap).is_some() {
                    revision += 1;
                    is_complete = false;
                    self.announce(RolloutChange::Started, sink);
                }
                if !is_complete {
                    match self.settings.deployment.next(self.counts(revision)) {
                        Step::Create => {
                            starting += usize::from(without_probe);
                            self.spawn_create(scope, revision, sink, stop, reports.clone())?;
                            continue;
                        }
                        Step::DeleteOld => {
                            terminating += 1;
                            self.spawn_delete(scope, revision, sink, stop, reports.clone())?;
                            continue;
                        }
                        Step::Wait => {}
                        Step::Complete => {
                            self.announce(RolloutChange::Finished, sink);
                            is_complete = true;
                        }
                    }
                }
                if is_complete && again.is_none() && terminating == 0 && starting == 0 {
                    break;
                }
                match reported.recv_timeout(ATTENTION) {
                    Ok(Report::Ready(result)) => result.inspect_err(|_| stop.request())?,
                    Ok(Report::Listens(result)) => {
                        result.inspect_err(|_| stop.request())?;
                        starting -= 1;
                    }
                    Ok(Report::Gone(result)) => {
                        result.inspect_err(|_| stop.request())?;
                        terminating -= 1;
                    }
                    Err(RecvTimeoutError::Timeout) if stop.is_requested() => {
                        return Err(LabError::Stopped);
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        unreachable!("this thread holds a sender")
                    }
                }
                for proxy in self.proxies().iter() {
                    proxy.check().inspect_err(|_| stop.request())?;
                }
            }
            self.proxies().iter().try_for_each(|proxy| proxy.settle(stop))
        })
    }

    /// Makes the first pods, all at once, and waits until each is ready and listens.
    pub(super) fn create_first(&self, stop: &Stop) -> Result<(), LabError> {
        let (reports, reported) = mpsc::channel();
        thread::scope(|scope| {
            let create = || self.spawn_create(scope, 1, &|_| {}, stop, reports.clone());
            let mut result = (0..self.settings.deployment.replicas).try_for_each(|_| create());
            drop(reports);
            if result.is_ok() {
                result = reported.iter().try_for_each(|report| match report {
                    Report::Ready(result) | Report::Listens(result) | Report::Gone(result) => {
                        result
                    }
                });
            }
            // The scope waits for the other pods' threads, which wait for readiness.
            result.inspect_err(|_| stop.request())
        })
    }

    fn announce(&self, change: RolloutChange, sink: Sink<'_>) {
        let event = cluster_event(ClusterEvent::Rollout { deployment: APP.to_owned(), change });
        self.recorder.rollout(change == RolloutChange::Finished, event.time);
        sink(event);
    }

    fn counts(&self, revision: u32) -> Counts {
        let mut counts = Counts::default();
        for listed in self.cluster().pods.iter().filter(|listed| !listed.is_terminating) {
            let (all, ready) = match listed.revision == revision {
                true => (&mut counts.new, &mut counts.new_ready),
                false => (&mut counts.old, &mut counts.old_ready),
            };
            *all += 1;
            *ready += usize::from(listed.is_ready);
        }
        counts
    }

    fn spawn_create<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        revision: u32,
        sink: Sink<'env>,
        stop: &'env Stop,
        reports: Sender<Report>,
    ) -> Result<(), LabError> {
        let spec = self.next_pod(revision)?;
        let pod = Pod::create(spec, &self.network, &self.recorder)?;
        let pod = Arc::new(pod);
        self.cluster().pods.push(Listed {
            pod: Arc::clone(&pod),
            revision,
            is_ready: false,
            is_terminating: false,
        });
        sink(pod_event(&pod, PodChange::Added));
        thread::Builder::new()
            .spawn_scoped(scope, move || {
                let started = pod.start(&self.settings, &self.recorder, stop);
                let result =
                    started.and_then(|()| pod.wait_ready(&self.network, &self.settings, stop));
                let is_ready = result.is_ok();
                if is_ready {
                    self.mark_ready(&pod, sink);
                }
                // Nobody listens any more only if the rollout has failed already.
                let _ = reports.send(Report::Ready(result));
                if is_ready && !self.settings.setup.readiness {
                    let result = pod.wait_listening(&self.settings, &self.recorder, stop);
                    let _ = reports.send(Report::Listens(result));
                }
            })
            .map_err(LabError::Thread)?;
        Ok(())
    }

    fn mark_ready(&self, pod: &Pod, sink: Sink<'_>) {
        let mut cluster = self.cluster();
        for listed in cluster.pods.iter_mut().filter(|listed| listed.pod.name == pod.name) {
            listed.is_ready = true;
        }
        self.recorder.pod(&pod.name, PodMoment::Ready, clock::now());
        sink(pod_event(pod, PodChange::Ready));
        self.change_slice(&mut cluster, Comes::In, |slice| {
            slice.list(pod.address, Conditions::READY);
        });
        sink(self.endpoint_event(pod, listing(Conditions::READY)));
    }

    fn spawn_delete<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        revision: u32,
        sink: Sink<'env>,
        stop: &'env Stop,
        reports: Sender<Report>,
    ) -> Result<(), LabError> {
        let pod = self.ask_deletion(revision, sink);
        thread::Builder::new()
            .spawn_scoped(scope, move || {
                let result = pod.terminate(&self.network, &self.settings, &self.recorder, stop);
                if result.is_ok() {
                    self.mark_deleted(&pod, sink);
                }
                let _ = reports.send(Report::Gone(result));
            })
            .map_err(LabError::Thread)?;
        Ok(())
    }

    /// Chooses an old pod, marks it as terminating, and withdraws its endpoint at once.
    fn ask_deletion(&self, revision: u32, sink: Sink<'_>) -> Arc<Pod> {
        let mut cluster = self.cluster();
        let live = |listed: &&Listed| !listed.is_terminating;
        let nodes_of = |wanted: bool| {
            let pods = cluster.pods.iter().filter(live);
            pods.filter(|listed| (listed.revision == revision) == wanted)
                .map(|listed| listed.pod.node)
                .collect::<Vec<Node>>()
        };
        let victim = deployment::victim(&nodes_of(false), &nodes_of(true))
            .expect("the controller deletes an old pod only if there is one");
        let place = cluster
            .pods
            .iter()
            .enumerate()
            .filter(|(_, listed)| !listed.is_terminating && listed.revision != revision)
            .map(|(place, _)| place)
            .nth(victim)
            .expect("the victim is one of these");
        self.ask(&mut cluster, place, sink)
    }

    /// How many pods are not terminating.
    pub(super) fn living(&self) -> usize {
        self.cluster().pods.iter().filter(|listed| !listed.is_terminating).count()
    }

    /// Marks the pod that was made last as terminating, and withdraws its endpoint at once.
    ///
    /// # Panics
    /// If every pod is terminating.
    pub(super) fn ask_newest(&self, sink: Sink<'_>) -> Arc<Pod> {
        let mut cluster = self.cluster();
        let place = cluster.pods.iter().rposition(|listed| !listed.is_terminating);
        self.ask(&mut cluster, place.expect("a pod is left"), sink)
    }

    pub(super) fn ask(&self, cluster: &mut Cluster, place: usize, sink: Sink<'_>) -> Arc<Pod> {
        let listed = &mut cluster.pods[place];
        listed.is_terminating = true;
        let pod = Arc::clone(&listed.pod);
        self.recorder.pod(&pod.name, PodMoment::Asked, clock::now());
        sink(pod_event(&pod, PodChange::Asked { grace: self.settings.grace }));
        self.change_slice(cluster, Comes::Out, |slice| {
            slice.list(pod.address, Conditions::TERMINATING);
        });
        sink(self.endpoint_event(&pod, listing(Conditions::TERMINATING)));
        pod
    }

    pub(super) fn mark_deleted(&self, pod: &Pod, sink: Sink<'_>) {
        let mut cluster = self.cluster();
        cluster.pods.retain(|listed| listed.pod.name != pod.name);
        cluster.free.push((pod.node, pod.address.ip()));
        self.change_slice(&mut cluster, Comes::Out, |slice| slice.remove(pod.address));
        self.recorder.pod(&pod.name, PodMoment::Deleted, clock::now());
        sink(self.endpoint_event(pod, EndpointChange::Removed));
        sink(pod_event(pod, PodChange::Deleted));
    }
}
