//! What is done while the nodes are traced: a client, a rollout, an end.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::{Instant, sleep};

use super::{Options, plan};
use crate::cli::note;
use crate::cluster::node_pods::{Node, NodePods, PodError};
use crate::commands::units::ServiceName;
use crate::sys::{clock, stop::Stop};

/// How long the article's client asked.
const LOAD: Duration = Duration::from_secs(170);
/// A rollout begins so long after everything else, so that there is a time before it.
const BEFORE_ROLL: Duration = Duration::from_secs(5);
/// After the client's last start its last request has this long to end, by its timeout.
const LAST_REQUEST: Duration = Duration::from_secs(4);
/// How often something is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// How long a run takes, if that is known.
pub(super) fn length(options: &Options) -> Option<Duration> {
    match (options.duration, options.load) {
        (Some(duration), false) => Some(duration),
        (duration, true) => Some(duration.unwrap_or(LOAD) + LAST_REQUEST),
        (None, false) => None,
    }
}

/// A run's script.
pub(super) struct Script<'a> {
    options: &'a Options,
    /// NAMESPACE and NAME of the Deployment to restart.
    roll: Option<(String, String)>,
}

/// Which of the nodes have begun to tell.
pub(super) struct Begun(RefCell<Vec<bool>>);

impl Begun {
    pub(super) fn new(nodes: usize) -> Begun {
        Begun(RefCell::new(vec![false; nodes]))
    }

    /// This one has; or it never will.
    pub(super) fn begin(&self, node: usize) {
        self.0.borrow_mut()[node] = true;
    }

    fn is_all(&self) -> bool {
        self.0.borrow().iter().all(|begun| *begun)
    }
}

impl Script<'_> {
    /// What the options ask for.
    ///
    /// # Errors
    /// If they contradict each other.
    pub(super) fn of(options: &Options) -> anyhow::Result<Script<'_>> {
        let namespace = match &options.service {
            ServiceName::Named { namespace, .. } => Some(namespace.clone()),
            ServiceName::Address(_) => None,
        };
        let roll = match options.roll.as_deref().map(|name| (name.split_once('/'), name)) {
            None => None,
            Some((Some((namespace, name)), _)) => Some((namespace.to_owned(), name.to_owned())),
            Some((None, name)) => match namespace {
                Some(namespace) => Some((namespace, name.to_owned())),
                None => bail!("--roll: write it as NAMESPACE/NAME"),
            },
        };
        Ok(Script { options, roll })
    }

    /// Looks whether it could be played, before anything is made.
    ///
    /// # Errors
    /// [`PodError`].
    pub(super) async fn check(&self, pods: &NodePods) -> Result<(), PodError> {
        if let Some((namespace, name)) = &self.roll {
            pods.can_roll(namespace, name).await?;
        }
        self.target(pods).await.map(drop)
    }

    /// Whom the load generator asks, if it is wanted.
    async fn target(&self, pods: &NodePods) -> Result<Option<String>, PodError> {
        match &self.options.service {
            _ if !self.options.load => Ok(None),
            ServiceName::Address(address) => Ok(Some(address.to_string())),
            ServiceName::Named { namespace, name } => pods.service(namespace, name).await.map(Some),
        }
    }

    /// Plays it once all nodes have begun to tell, and then asks everyone to stop: also when it fails.
    pub(super) async fn play(
        &self,
        pods: &NodePods,
        node: &Node,
        stop: &Stop,
        begun: &Begun,
    ) -> anyhow::Result<()> {
        while !begun.is_all() && !stop.is_requested() {
            sleep(LOOK).await;
        }
        let played = tokio::select! {
            played = self.scenes(pods, node) => played,
            () = stopped(stop) => Ok(()),
        };
        stop.request();
        played
    }

    async fn scenes(&self, pods: &NodePods, node: &Node) -> anyhow::Result<()> {
        note("tracing; Ctrl-C ends it");
        if let Some(target) = self.target(pods).await? {
            let length = self.options.duration.unwrap_or(LOAD);
            let name = pods.create(&plan::load(self.options, node, &target, length)).await?;
            pods.started(&name, self.options.start_within).await?;
            note(format_args!("the pod {name} asks {target} for {} s", length.as_secs()));
        }
        let began = Instant::now();
        if let Some((namespace, name)) = &self.roll {
            sleep(BEFORE_ROLL).await;
            let anchor = clock::anchor();
            let now = jiff::Timestamp::from_second(anchor.wall.0.div_euclid(1_000_000_000));
            let now = now.context("the clock of this machine")?.to_string();
            pods.roll(namespace, name, &now).await?;
            note(format_args!("restarted the Deployment {namespace}/{name}"));
        }
        match length(self.options) {
            Some(length) => tokio::time::sleep_until(began + length).await,
            None => std::future::pending().await,
        }
        Ok(())
    }
}

/// Comes when someone asks to stop.
pub(super) async fn stopped(stop: &Stop) {
    while !stop.is_requested() {
        sleep(LOOK).await;
    }
}
