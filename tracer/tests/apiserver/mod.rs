//! An API server for tests: it speaks list, watch, get, create, patch and delete as Kubernetes' own does, keeps
//! what it is told in memory, and breaks when it is told to. It runs on a thread of its own, so that tests need
//! no runtime; everything can be changed while clients are connected.
//!
//! A test binary includes it by `#[path]`. What it does not speak itself (exec, attach, logs) is for
//! [`Handler`]s, which see a request before everything else.

mod answer;
mod fault;
mod objects;
pub(crate) mod play;
mod request;
mod serve;
mod tls;
mod watch;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use serde_json::{Value, json};
use tokio::sync::watch as notice;

use objects::Objects;

pub(crate) use fault::Fault;
pub(crate) use request::{Ask, Verb};
pub(crate) use serve::{Body, Handled, Handler, Request, Response, empty, full, status};
pub(crate) use tls::Tls;

/// How a server is to be.
#[derive(Default)]
pub(crate) struct Options {
    /// Whether it speaks TLS, and whether its clients may believe it.
    pub(crate) tls: Tls,
    /// The bearer token that it asks for; the kubeconfig has it.
    pub(crate) token: Option<String>,
    /// What answers before the server does.
    pub(crate) handlers: Vec<Handler>,
    /// The address that it listens at [default: a free port of the loopback].
    pub(crate) listen: Option<SocketAddr>,
}

/// A running API server. It ends when it is dropped.
pub(crate) struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    certificates: Option<tls::Certificates>,
    stop: notice::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// What the server and its connections share.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Turns at every change of the objects and of the faults.
    changed: notice::Sender<u64>,
    token: Option<String>,
    handlers: Vec<Handler>,
}

/// What RBAC forbids.
struct Denied {
    verb: Option<Verb>,
    resource: String,
    /// Only where no namespace is named.
    everywhere: bool,
}

/// What the server knows.
#[derive(Default)]
pub(crate) struct State {
    /// The objects.
    pub(crate) objects: Objects,
    faults: Vec<fault::Due>,
    denied: Vec<Denied>,
    asked: Vec<Ask>,
    open_watches: usize,
}

impl Shared {
    /// The state, for a look or a change. Whoever changes something calls [`Shared::turn`] then.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// Wakes the watches.
    pub(crate) fn turn(&self) {
        self.changed.send_modify(|turn| *turn += 1);
    }
}

impl Server {
    /// Starts one that speaks plain HTTP and lets everybody do everything.
    pub(crate) fn start() -> Server {
        Server::with(Options::default())
    }

    /// Starts one.
    pub(crate) fn with(options: Options) -> Server {
        let certificates = options.tls.certificates();
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: notice::Sender::new(0),
            token: options.token,
            handlers: options.handlers,
        });
        let listen = options.listen.unwrap_or_else(|| "127.0.0.1:0".parse().expect("an address"));
        let listener = std::net::TcpListener::bind(listen).expect("binding the API server");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let address = listener.local_addr().expect("the listener's address");
        let (stop, stopped) = notice::channel(false);
        let acceptor = certificates.as_ref().map(tls::Certificates::acceptor);
        let serving = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("api server".to_owned())
            .spawn(move || serve::run(&serving, listener, acceptor, stopped))
            .expect("starting the API server's thread");
        Server { shared, address, certificates, stop, thread: Some(thread) }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What its connections see.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Writes a kubeconfig for it into a folder; its path.
    pub(crate) fn kubeconfig(&self, folder: &Path) -> PathBuf {
        self.kubeconfig_at(folder, self.address)
    }

    /// Writes a kubeconfig that reaches it at another address (a forwarded one).
    pub(crate) fn kubeconfig_at(&self, folder: &Path, address: SocketAddr) -> PathBuf {
        let scheme = if self.certificates.is_some() { "https" } else { "http" };
        let mut cluster = json!({ "server": format!("{scheme}://{address}") });
        if let Some(certificates) = &self.certificates {
            cluster["certificate-authority-data"] = certificates.authority().into();
        }
        let user = match &self.shared.token {
            Some(token) => json!({ "token": token }),
            None => json!({}),
        };
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "scripted", "cluster": cluster }],
            "users": [{ "name": "tester", "user": user }],
            "contexts": [{ "name": "scripted", "context": { "cluster": "scripted", "user": "tester" } }],
            "current-context": "scripted",
        });
        let path = folder.join("kubeconfig");
        // JSON is YAML.
        fs::write(&path, config.to_string()).expect("writing the kubeconfig");
        path
    }

    /// Adds an object or puts it in the place of the one with its name; its version. An object that brings a
    /// `resourceVersion` later than all before keeps it, else it gets the next one.
    pub(crate) fn apply(&self, object: Value) -> u64 {
        let version = self.shared.state().objects.apply(object);
        self.shared.turn();
        version
    }

    /// Changes an object, if it is there.
    pub(crate) fn edit(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        edit: impl FnOnce(&mut Value),
    ) -> Option<u64> {
        let mut state = self.shared.state();
        let mut object = state.objects.get(resource, namespace, name)?.clone();
        edit(&mut object);
        let version = state.objects.apply(object);
        drop(state);
        self.shared.turn();
        Some(version)
    }

    /// Deletes an object, if it is there, at once.
    pub(crate) fn remove(&self, resource: &str, namespace: &str, name: &str) -> Option<u64> {
        let version = self.shared.state().objects.remove(resource, namespace, name);
        self.shared.turn();
        version
    }

    /// Plays one line of `kubectl get -w -o json --output-watch-events`.
    pub(crate) fn play(&self, event: &Value) {
        let object = event["object"].clone();
        match event["type"].as_str() {
            Some("DELETED") => self.shared.state().objects.deleted(object),
            _ => _ = self.shared.state().objects.apply(object),
        }
        self.shared.turn();
    }

    /// Forgets all versions before now: who wants to go on watching from one is told 410.
    pub(crate) fn compact(&self) {
        self.shared.state().objects.compact();
        self.shared.turn();
    }

    /// Breaks the next `times` requests of this kind; an open watch counts as one, but for a status, which the next
    /// request gets. `usize::MAX`: until [`Server::heal`].
    pub(crate) fn fault(&self, verb: Verb, resource: &str, fault: Fault, times: usize) {
        let due = fault::Due { verb, resource: resource.to_owned(), fault, times };
        self.shared.state().faults.push(due);
        self.shared.turn();
    }

    /// No longer breaks anything.
    pub(crate) fn heal(&self) {
        self.shared.state().faults.clear();
        self.shared.turn();
    }

    /// How many ordered faults have not happened yet.
    pub(crate) fn faults_due(&self) -> usize {
        let state = self.shared.state();
        state.faults.iter().fold(0, |due, fault| due.saturating_add(fault.times))
    }

    /// Forbids a verb, or all, on a resource (`pods`, `pods/exec`), as RBAC does.
    pub(crate) fn deny(&self, verb: Option<Verb>, resource: &str) {
        let resource = resource.to_owned();
        self.shared.state().denied.push(Denied { verb, resource, everywhere: false });
    }

    /// Forbids a verb on a resource at the cluster's scope, as where a Role allows it in a namespace.
    pub(crate) fn deny_everywhere(&self, verb: Verb, resource: &str) {
        let resource = resource.to_owned();
        self.shared.state().denied.push(Denied { verb: Some(verb), resource, everywhere: true });
    }

    /// Allows again what was forbidden.
    pub(crate) fn allow_all(&self) {
        self.shared.state().denied.clear();
    }

    /// The requests so far, in order.
    pub(crate) fn asked(&self) -> Vec<Ask> {
        self.shared.state().asked.clone()
    }

    /// How many requests of a kind there were.
    pub(crate) fn count(&self, verb: Verb, resource: &str) -> usize {
        let state = self.shared.state();
        state.asked.iter().filter(|ask| ask.verb == verb && ask.resource == resource).count()
    }

    /// How many watches are open.
    pub(crate) fn open_watches(&self) -> usize {
        self.shared.state().open_watches
    }

    /// The objects of a resource, by namespace and name.
    pub(crate) fn objects(&self, resource: &str) -> Vec<Value> {
        self.shared.state().objects.all(resource).cloned().collect()
    }

    /// Waits until something holds of the server; panics if it does not within half a minute.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&Server) -> bool) {
        let begun = std::time::Instant::now();
        while !holds(self) {
            let waited = begun.elapsed();
            assert!(waited.as_secs() < 30, "not within {waited:?}: {what}; {:#?}", self.asked());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
