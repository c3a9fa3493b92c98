//! The kubelets of a scripted cluster: they start what is on their nodes, say how it is, and end it when its pod is
//! to go.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::apiserver::Server;
use crate::exec;

/// What becomes of a pod that traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Runs {
    /// What it says it runs.
    Really,
    /// The first half of this trace comes at once, the rest when it is to stop.
    Trace(PathBuf),
    /// The first half of this trace comes, and then its program dies.
    Dies(PathBuf),
    /// The kubelet can't have its image.
    NoImage,
    /// Its program says this and fails.
    Fails(&'static str),
    /// No kubelet takes it up.
    Never,
}

/// What is to happen to connections: bytes after which the next ones break, and whether the next is silent.
#[derive(Default)]
struct Troubles {
    breaks: Vec<usize>,
    silent: usize,
}

/// What happens to one connection.
pub(crate) struct Wire {
    passed: Arc<AtomicUsize>,
    left: Option<usize>,
    silent: bool,
}

impl Wire {
    /// How many of so many bytes still get through.
    pub(crate) fn pass(&mut self, count: usize) -> usize {
        let passed = match &mut self.left {
            None => count,
            Some(left) => {
                let passed = count.min(*left);
                *left -= passed;
                passed
            }
        };
        self.passed.fetch_add(passed, Ordering::AcqRel);
        passed
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent
    }
}

#[derive(Default)]
struct State {
    folders: BTreeMap<String, PathBuf>,
    children: BTreeMap<String, Child>,
    troubles: Troubles,
    followers: Vec<Pid>,
    runs: BTreeMap<String, Runs>,
    /// The pods that were ever started, as they were asked for.
    seen: Vec<Value>,
}

/// All kubelets of a cluster.
pub(crate) struct Kubelet {
    root: PathBuf,
    state: Mutex<State>,
    stop: AtomicBool,
    /// Bytes of traces that all connections together let through.
    passed: Arc<AtomicUsize>,
}

impl Kubelet {
    pub(crate) fn new(root: &Path) -> Arc<Kubelet> {
        let root = root.to_owned();
        Arc::new(Kubelet {
            root,
            state: Mutex::default(),
            stop: AtomicBool::new(false),
            passed: Arc::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// What becomes of tracing pods on a node.
    pub(crate) fn runs(&self, node: &str, runs: Runs) {
        self.state().runs.insert(node.to_owned(), runs);
    }

    /// The next connections break after so many bytes of the trace each.
    pub(crate) fn break_after(&self, bytes: &[usize]) {
        self.state().troubles.breaks.extend(bytes.iter().rev());
    }

    /// The next connection says nothing.
    pub(crate) fn be_silent(&self) {
        self.state().troubles.silent += 1;
    }

    pub(crate) fn wire(&self) -> Wire {
        let mut state = self.state();
        let silent = state.troubles.silent > 0;
        state.troubles.silent = state.troubles.silent.saturating_sub(1);
        Wire {
            passed: Arc::clone(&self.passed),
            left: if silent { None } else { state.troubles.breaks.pop() },
            silent,
        }
    }

    /// How many bytes of traces have passed.
    pub(crate) fn passed(&self) -> usize {
        self.passed.load(Ordering::Acquire)
    }

    /// An exec began this process.
    pub(crate) fn followed_by(&self, child: &Child) {
        self.state().followers.push(pid(child));
    }

    /// Where a pod's files are, if it runs.
    pub(crate) fn folder(&self, pod: &str) -> Option<PathBuf> {
        self.state().folders.get(pod).cloned()
    }

    /// The pods that were started.
    pub(crate) fn seen(&self) -> Vec<Value> {
        self.state().seen.clone()
    }

    pub(crate) fn end(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Runs until it is ended.
    pub(crate) fn run(&self, server: &Server) {
        while !self.stop.load(Ordering::Acquire) {
            for pod in server.objects("pods") {
                self.see(server, &pod);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        for (_, child) in std::mem::take(&mut self.state().children) {
            end(child);
        }
    }

    fn see(&self, server: &Server, pod: &Value) {
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let name = text("/metadata/name");
        if text("/metadata/labels/app.kubernetes.io~1managed-by") != "tracer-attach" {
            return;
        }
        if pod["metadata"]["deletionTimestamp"].is_string() {
            let child = self.state().children.remove(name);
            child.into_iter().for_each(end);
            self.state().folders.remove(name);
            server.remove("pods", text("/metadata/namespace"), name);
        } else if pod["status"]["phase"].is_null() {
            self.start(server, pod, name, text("/spec/nodeName"));
        } else {
            self.advance(name);
            self.reap(server, name, text("/metadata/namespace"));
        }
    }

    fn start(&self, server: &Server, pod: &Value, name: &str, node: &str) {
        let arguments: Vec<String> =
            serde_json::from_value(pod["spec"]["containers"][0]["args"].clone())
                .expect("arguments");
        let is_load = arguments.first().is_some_and(|first| first == "load");
        let runs = self.state().runs.get(node).cloned().unwrap_or(Runs::Never);
        let running = json!({ "running": { "startedAt": "2026-12-01T12:00:00Z" } });
        let (phase, state) = match &runs {
            Runs::Never => return,
            _ if is_load => ("Running", running),
            Runs::NoImage => {
                let message =
                    "failed to pull and unpack image \"docker.io/library/tracer:0.1.0\": not found";
                ("Pending", json!({ "waiting": { "reason": "ErrImagePull", "message": message } }))
            }
            Runs::Fails(said) => {
                let message = format!("tracer: {said}\ntracer: the recording failed\n");
                (
                    "Failed",
                    json!({ "terminated": { "exitCode": 2, "reason": "Error", "message": message } }),
                )
            }
            Runs::Really | Runs::Trace(_) | Runs::Dies(_) => ("Running", running),
        };
        let folder = self.root.join(name);
        fs::create_dir_all(&folder).expect("a folder for the pod");
        if phase == "Running" && !is_load {
            match &runs {
                Runs::Trace(trace) | Runs::Dies(trace) => {
                    let bytes = fs::read(trace).expect("the trace is there");
                    fs::write(folder.join("trace"), &bytes[..bytes.len() / 2])
                        .expect("it is written");
                }
                _ => {
                    let mut command = vec!["/usr/bin/tracer".to_owned()];
                    command.extend(arguments);
                    let child = exec::start(&command, &folder);
                    self.state().children.insert(name.to_owned(), child);
                }
            }
        }
        let mut own = self.state();
        own.folders.insert(name.to_owned(), folder);
        own.seen.push(pod.clone());
        drop(own);
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let status = json!({
            "phase": phase,
            "containerStatuses": [{ "name": "tracer", "state": state, "ready": true, "restartCount": 0,
                                    "image": "tracer", "imageID": "" }],
        });
        server.edit("pods", namespace, name, |pod| pod["status"] = status);
    }

    /// What a pod that only plays a trace does meanwhile.
    fn advance(&self, name: &str) {
        let Some(folder) = self.folder(name) else { return };
        let plays = self.state().runs.values().find_map(|runs| match runs {
            Runs::Trace(trace) => Some(trace.clone()),
            _ => None,
        });
        let Some(trace) = plays else { return };
        if folder.join("stop").exists() && !folder.join("done").exists() {
            fs::copy(&trace, folder.join("trace")).expect("it is written");
            fs::write(folder.join("done"), []).expect("it is written");
        }
    }

    /// A program that ended by itself: its pod says so, with its last words.
    fn reap(&self, server: &Server, name: &str, namespace: &str) {
        let mut own = self.state();
        let Some(child) = own.children.get_mut(name) else { return };
        let Some(status) = child.try_wait().expect("it can be waited for") else { return };
        let mut said = String::new();
        if let Some(stderr) = &mut child.stderr {
            let _ = stderr.read_to_string(&mut said);
        }
        own.children.remove(name);
        own.folders.remove(name);
        let followers = std::mem::take(&mut own.followers);
        drop(own);
        let state =
            json!({ "terminated": { "exitCode": status.code().unwrap_or(137), "message": said } });
        server.edit("pods", namespace, name, |pod| {
            pod["status"]["phase"] = if status.success() { "Succeeded" } else { "Failed" }.into();
            pod["status"]["containerStatuses"][0]["state"] = state;
        });
        for follower in followers {
            let _ = kill(follower, Signal::SIGKILL);
        }
    }

    /// The programs of all pods die, and who follows them dies with their container.
    pub(crate) fn die(&self, server: &Server) {
        let followers = std::mem::take(&mut self.state().followers);
        for pod in server.objects("pods") {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if self.folder(&name).is_none() {
                continue;
            }
            let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            self.state().folders.remove(&name);
            let state = json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } });
            server.edit("pods", &namespace, &name, |pod| {
                pod["status"]["phase"] = "Failed".into();
                pod["status"]["containerStatuses"][0]["state"] = state;
            });
        }
        for follower in followers {
            let _ = kill(follower, Signal::SIGKILL);
        }
    }
}

/// As the kubelet ends a container: SIGTERM, and SIGKILL some time later.
fn end(mut child: Child) {
    let _ = kill(pid(&child), Signal::SIGTERM);
    for _ in 0..200 {
        if child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("a PID"))
}
