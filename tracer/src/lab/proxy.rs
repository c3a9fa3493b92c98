//! A node's kube-proxy: it hears of each change of the endpoints after a while, and sets its node's rules.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::ATTENTION;
use super::error::LabError;
use super::plan::{Family, Node};
use super::rules::{ProxyMode, Service};
use super::truth::{Recorder, Span};
use crate::sys::clock;
use crate::sys::conntrack::Conntrack;
use crate::sys::netns::Netns;
use crate::sys::stop::Stop;

/// kube-proxy syncs at once when it has been quiet for this long, and not more often than this otherwise
/// (minSyncPeriod, pkg/proxy/apis/config/v1alpha1/defaults.go).
const QUIET: Duration = Duration::from_secs(1);

/// What a proxy hears: from when on, and the endpoints to use.
type News = (Instant, BTreeSet<SocketAddr>);

/// The proxy of one node. Dropping it ends its thread; its rules stay.
#[derive(Debug)]
pub(crate) struct Proxy {
    mailbox: Arc<Mailbox>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Mailbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// In the order in which it arrives.
    news: VecDeque<News>,
    is_syncing: bool,
    last_sync: Option<Instant>,
    is_over: bool,
    error: Option<LabError>,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proxy {
    /// Starts the proxy of a node with no endpoints.
    pub(crate) fn start(
        mode: ProxyMode,
        netns: Netns,
        service: Service,
        recorder: Arc<Recorder>,
        clears_entries: bool,
    ) -> Result<Proxy, LabError> {
        let mailbox = Arc::new(Mailbox::default());
        let inside = Arc::clone(&mailbox);
        let thread = thread::Builder::new()
            .name(format!("proxy of {}", service.node.name()))
            .spawn(move || {
                let mut sync =
                    Sync { mode, netns, service, recorder, clears_entries, current: None };
                while let Some(endpoints) = inside.next() {
                    let result = sync.to(endpoints);
                    let mut state = inside.lock();
                    state.is_syncing = false;
                    state.last_sync = Some(Instant::now());
                    state.error = state.error.take().or(result.err());
                    inside.changed.notify_all();
                }
            })
            .map_err(LabError::Thread)?;
        Ok(Proxy { mailbox, thread: Some(thread) })
    }

    /// Tells it of a change that arrives at `due`. The watch keeps order: a change never overtakes an earlier
    /// one, so it may arrive with that one instead, later than `due`.
    pub(crate) fn tell(&self, due: Instant, endpoints: BTreeSet<SocketAddr>) {
        let mut state = self.mailbox.lock();
        let due = state.news.back().map_or(due, |(earlier, _)| due.max(*earlier));
        state.news.push_back((due, endpoints));
        self.mailbox.changed.notify_all();
    }

    /// Whether it has nothing to do and has done nothing for a while, so that it would follow a change at once.
    pub(crate) fn is_quiet(&self) -> bool {
        let state = self.mailbox.lock();
        let has_rested = state.last_sync.is_none_or(|last| last.elapsed() >= QUIET);
        has_rested && !state.is_syncing && state.news.is_empty()
    }

    /// Waits until the rules say all that the proxy was told.
    pub(crate) fn settle(&self, stop: &Stop) -> Result<(), LabError> {
        let mut state = self.mailbox.lock();
        while state.error.is_none() && (state.is_syncing || !state.news.is_empty()) {
            if stop.is_requested() {
                return Err(LabError::Stopped);
            }
            let wait = self.mailbox.changed.wait_timeout(state, ATTENTION);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.error.take().map_or(Ok(()), Err)
    }

    /// The first error since the last time it was asked.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        self.mailbox.lock().error.take().map_or(Ok(()), Err)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.mailbox.lock().is_over = true;
        self.mailbox.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there was printed when it happened, and there is nothing left to do for the thread.
            let _ = thread.join();
        }
    }
}

impl Mailbox {
    /// Waits for news to arrive. Of several that have arrived the latest counts: kube-proxy has at most one
    /// sync pending, and syncs to what it knows then.
    fn next(&self) -> Option<BTreeSet<SocketAddr>> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            let now = Instant::now();
            let arrived = state.news.iter().take_while(|(due, _)| *due <= now).count();
            let latest = state.news.drain(..arrived).next_back();
            if let Some((_, endpoints)) = latest {
                state.is_syncing = true;
                return Some(endpoints);
            }
            state = match state.news.front() {
                Some((due, _)) => {
                    let left = due.saturating_duration_since(now);
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

struct Sync {
    mode: ProxyMode,
    netns: Netns,
    service: Service,
    recorder: Arc<Recorder>,
    /// Whether the entries of an endpoint that is withdrawn go with it.
    clears_entries: bool,
    /// None: the rules say nothing of the Service yet.
    current: Option<BTreeSet<SocketAddr>>,
}

impl Sync {
    fn to(&mut self, endpoints: BTreeSet<SocketAddr>) -> Result<(), LabError> {
        if self.current.as_ref() == Some(&endpoints) {
            return Ok(());
        }
        let none = BTreeSet::new();
        let current = self.current.as_ref().unwrap_or(&none);
        let rules = self.mode.sync(&self.service, &endpoints, current);
        let before = clock::now();
        self.mode.set(self.service.plan.family(), &self.netns, &rules)??;
        self.recorder.rules_changed(&self.service.node.name(), before, clock::now(), &endpoints);
        let before = self.current.replace(endpoints).unwrap_or_default();
        let current = self.current.iter().flatten().copied().collect();
        let withdrawn: BTreeSet<SocketAddr> = before.difference(&current).copied().collect();
        if self.clears_entries && !withdrawn.is_empty() { self.clear(&withdrawn) } else { Ok(()) }
    }

    /// Deletes the entries that point at these endpoints, as kube-proxy does for UDP
    /// (pkg/proxy/conntrack/cleanup.go).
    fn clear(&self, withdrawn: &BTreeSet<SocketAddr>) -> Result<(), LabError> {
        self.netns.run(|| {
            let table = Conntrack::open()?;
            let entries = table.entries(self.service.plan.family() == Family::Ipv6)?;
            for entry in entries.iter().filter(|entry| withdrawn.contains(&entry.reply.src)) {
                let from = clock::now();
                if table.delete(entry)? && self.service.node == Node(0) {
                    let when = Span { from, to: clock::now() };
                    self.recorder.deleted(entry.orig.src.port(), entry.reply.src, when);
                }
            }
            Ok(())
        })?
    }
}
