//! A cluster of two workers with a Service, and `tracer attach` in front of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::apiserver::{Handled, Handler, Options, Server, Tls};
use crate::exec;
use crate::kubelet::{Kubelet, Runs};

pub(crate) const TOKEN: &str = "a-token-that-nobody-may-see";

/// The cluster.
pub(crate) struct World {
    pub(crate) server: Arc<Server>,
    pub(crate) kubelet: Arc<Kubelet>,
    kubeconfig: PathBuf,
    pub(crate) folder: tempfile::TempDir,
    thread: Option<JoinHandle<()>>,
}

/// The trace that pods play.
pub(crate) fn quick_lab() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/quick-lab.trace")
}

impl World {
    /// One whose pods play the quick lab's trace.
    pub(crate) fn new() -> World {
        World::with(Vec::new())
    }

    /// One with handlers of its own, which see a request first.
    pub(crate) fn with(mut handlers: Vec<Handler>) -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let kubelet = Kubelet::new(folder.path());
        let of_exec = Arc::clone(&kubelet);
        handlers.push(Arc::new(move |_, ask, request| {
            let kubelet = Arc::clone(&of_exec);
            Box::pin(async move {
                match (ask.resource.as_str(), &ask.name) {
                    ("pods/exec", Some(pod)) => exec::answer(&kubelet, pod, request),
                    _ => Handled::Pass(request),
                }
            })
        }));
        let token = Some(TOKEN.to_owned());
        let options = Options { tls: Tls::Trusted, token, handlers, listen: None };
        let server = Arc::new(Server::with(options));
        let kubeconfig = server.kubeconfig(folder.path());
        for (node, boot) in [("control-plane", "one"), ("worker", "one"), ("worker2", "two")] {
            server.apply(json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": { "name": node, "labels": { "kubernetes.io/os": "linux" } },
                "status": { "nodeInfo": {
                    "bootID": boot, "machineID": "", "systemUUID": "", "kernelVersion": "6.18",
                    "osImage": "", "containerRuntimeVersion": "", "kubeletVersion": "",
                    "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "arm64",
                } },
            }));
            kubelet.runs(node, Runs::Trace(quick_lab()));
        }
        server.apply(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "web", "namespace": "demo" },
            "spec": { "clusterIP": "10.96.0.20", "ports": [{ "port": 80, "protocol": "TCP" }] },
        }));
        server.apply(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "web", "namespace": "demo" },
            "spec": {
                "replicas": 3,
                "selector": { "matchLabels": { "app": "web" } },
                "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [] } },
            },
        }));
        server.apply(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "client", "namespace": "demo" },
            "spec": { "nodeName": "worker2", "containers": [] },
        }));
        let (of_thread, at) = (Arc::clone(&kubelet), Arc::clone(&server));
        let thread = std::thread::spawn(move || of_thread.run(&at));
        World { server, kubelet, kubeconfig, folder, thread: Some(thread) }
    }

    /// `tracer attach` with these arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tracer"));
        command.arg("attach").args(arguments).arg("--kubeconfig").arg(&self.kubeconfig);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts it, and waits until it traces.
    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        let child = self.command(arguments).spawn().expect("tracer starts");
        self.server.until("a pod is followed", |server| {
            let all = server.objects("pods");
            let ours = all.iter().filter_map(|pod| pod["metadata"]["name"].as_str());
            let mut ours = ours.filter_map(|name| self.kubelet.folder(name));
            ours.any(|folder| folder.join("followed").exists())
        });
        child
    }

    /// Runs it until it ends by itself.
    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        Said::of(self.command(arguments).output().expect("tracer starts"))
    }

    /// The pods of ours that are there.
    pub(crate) fn pods(&self) -> Vec<String> {
        let ours = self.server.objects("pods").into_iter();
        let ours = ours.filter(|pod| pod["metadata"]["namespace"] == "tracer");
        ours.map(|pod| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Waits until none of ours is there.
    #[track_caller]
    pub(crate) fn nothing_is_left(&self) {
        self.server.until("no pod of ours is left", |_| self.pods().is_empty());
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.kubelet.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).expect("a PID")), signal).expect("it is there");
}

/// What a run said.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    #[track_caller]
    pub(crate) fn of(output: Output) -> Said {
        let text = |bytes| String::from_utf8(bytes).expect("it is UTF-8");
        let said = Said {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        };
        for secret in [TOKEN, "certificate-authority-data", "Bearer"] {
            assert!(!said.stdout.contains(secret) && !said.stderr.contains(secret), "{secret}");
        }
        said
    }

    #[track_caller]
    pub(crate) fn ended(child: Child) -> Said {
        Said::of(child.wait_with_output().expect("it ends"))
    }

    /// The report.
    #[track_caller]
    pub(crate) fn report(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", self.stderr))
    }

    /// Exit status 2 and nothing on standard output: the last line on standard error, which names the trouble.
    #[track_caller]
    pub(crate) fn refusal(&self) -> &str {
        assert_eq!((self.code, self.stdout.as_str()), (Some(2), ""), "{}", self.stderr);
        let last = self.stderr.lines().last().unwrap_or_default();
        last.strip_prefix("tracer: ").expect("it says who speaks")
    }
}

/// What `tracer replay` says of a trace.
pub(crate) fn replayed(trace: &Path) -> String {
    let mut replay = Command::new(env!("CARGO_BIN_EXE_tracer"));
    let output = replay.args(["replay", "--format", "json"]).arg(trace).output();
    String::from_utf8(output.expect("tracer starts").stdout).expect("a report is UTF-8")
}

pub(crate) fn bytes(path: impl AsRef<Path>) -> Vec<u8> {
    fs::read(path).expect("the file is there")
}
