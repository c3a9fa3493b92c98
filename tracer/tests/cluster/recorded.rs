//! `tracer record --service NAMESPACE/NAME` beside the lab, whose cluster the scripted server plays: no request log
//! and nothing else than the API and the kernel, and it must come to the verdict that the client's log gives.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tracer::lab::{APP, Lab, LabSettings};
use tracer::loadgen::Mode;
use tracer::loadgen::client::{self, ClientSettings};
use tracer::model::{Event, EventKind, RequestEnded, Symptom};
use tracer::sys::stop::Stop;

use crate::apiserver::Server;
use crate::apiserver::play::Played;

const TRACER: &str = env!("CARGO_BIN_EXE_tracer");

/// When the rollout starts.
const ROLLOUT_AFTER: Duration = Duration::from_secs(3);
/// How long the load lasts: the rollout's ten seconds, and the shortened timer's twenty.
const DURATION: Duration = Duration::from_secs(40);

fn is_left_out(name: &str) -> bool {
    let reason = if !nix::unistd::geteuid().is_root() {
        "needs root"
    } else if !tracer::kernel::has_programs() {
        "built without BPF programs: cargo xtask build"
    } else {
        return false;
    };
    let _ = writeln!(io::stderr(), "left out: {name}: {reason}");
    true
}

/// `tracer record`, until it is asked to end.
struct Recording {
    child: Child,
    notes: BufReader<std::process::ChildStderr>,
    said: String,
}

impl Recording {
    fn start(kubeconfig: &Path, arguments: &[&str]) -> Recording {
        let mut command = Command::new(TRACER);
        command.args(["record", "--format", "json", "--kubeconfig"]).arg(kubeconfig);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("tracer starts");
        let notes = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut recording = Recording { child, notes, said: String::new() };
        recording.until("tracing ");
        recording
    }

    /// Waits for a line that says so.
    fn until(&mut self, what: &str) {
        loop {
            let mut line = String::new();
            let read = self.notes.read_line(&mut line).expect("notes are UTF-8");
            self.said += &line;
            assert_ne!(read, 0, "it does not say `{what}`: {}", self.said);
            if line.contains(what) {
                return;
            }
        }
    }

    /// Asks it to end; the exit status and the report.
    fn end(mut self) -> (Option<i32>, Value, String) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process's number"));
        kill(pid, Signal::SIGINT).expect("it was started here");
        let mut report = String::new();
        let out = self.child.stdout.as_mut().expect("it is piped");
        out.read_to_string(&mut report).expect("the report is UTF-8");
        self.notes.read_to_string(&mut self.said).expect("notes are UTF-8");
        let code = self.child.wait().expect("it was started here").code();
        let report = serde_json::from_str(&report).unwrap_or_else(|_| panic!("{}", self.said));
        (code, report, self.said)
    }
}

/// A rollout under load, played through the server. What the client logged.
fn roll(lab: &Lab, played: &Played<'_>) -> Vec<RequestEnded> {
    let stop = Stop::default();
    let (over, log) = (Stop::default(), std::sync::Arc::new(Mutex::new(Vec::new())));
    let settings = ClientSettings {
        mode: Mode::Fresh,
        workers: 10,
        timeout: Duration::from_secs(3),
        duration: Some(DURATION),
        app: Some(APP.to_owned()),
        ..ClientSettings::new(lab.service())
    };
    let client = {
        let (stop, over, log) = (stop.clone(), over.clone(), std::sync::Arc::clone(&log));
        lab.in_client(move || {
            let ended = client::run(&settings, &stop, &mut |event: Event| {
                if let EventKind::RequestEnded(ended) = event.kind {
                    log.lock().expect("no holder panics").push(ended);
                }
            });
            over.request();
            ended.map(drop)
        })
    };
    let client = client.expect("a thread in the client's pod");
    assert!(over.wait(ROLLOUT_AFTER), "the client ended early");
    lab.rollout(&|event| played.see(&event), &over).expect("a rollout can be done");
    client.join().expect("no panic").expect("the pod is there").expect("the client asks");
    std::sync::Arc::into_inner(log).expect("the client has ended").into_inner().expect("no panic")
}

/// The client's ends of failed rows, with symptom, late or early.
fn rows(report: &Value, late: bool) -> BTreeSet<(String, String)> {
    let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let rows = report["failed"].as_array().expect("a list").iter();
    let rows = rows.filter(|row| row["late"] == late);
    rows.map(|row| (text(row, "source"), text(row, "symptom"))).collect()
}

#[test]
fn record_comes_to_the_verdict_from_kernel_and_api_alone() {
    if is_left_out("record_comes_to_the_verdict_from_kernel_and_api_alone") {
        return;
    }
    let settings = LabSettings { program: PathBuf::from(TRACER), ..LabSettings::default().quick() };
    let lab = Lab::build(&settings, &Stop::default()).expect("a lab can be built");
    let server = Server::start();
    let played = Played::new(&server, "shop", lab.service(), lab.initial_events());
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = server.kubeconfig(folder.path());
    let trace = folder.path().join("run.trace");
    let trace = trace.to_str().expect("UTF-8");
    let client = lab.client_netns().name();
    let arguments = ["--service", "shop/web", "--client-netns", client, trace];
    let recording = Recording::start(&kubeconfig, &arguments);
    let log = roll(&lab, &played);
    let (code, report, said) = recording.end();
    lab.teardown().expect("the lab goes");

    let hypothesis = &report["hypothesis"];
    assert_eq!(
        (code, &hypothesis["outcome"]),
        (Some(0), &"supported".into()),
        "{hypothesis:#}\n{said}"
    );
    // What the client logged as a connect that failed is what the kernel told of, port by port.
    let connects = [Symptom::ConnectTimeout, Symptom::Refused, Symptom::Unreachable];
    let logged: BTreeSet<(String, String)> = log
        .iter()
        .filter_map(|ended| {
            let symptom = ended.outcome.symptom().filter(|symptom| connects.contains(symptom))?;
            Some((ended.source?.to_string(), symptom.name().to_owned()))
        })
        .collect();
    let told: BTreeSet<(String, String)> = rows(&report, false)
        .union(&rows(&report, true))
        .filter(|(_, symptom)| connects.iter().any(|known| known.name() == symptom))
        .cloned()
        .collect();
    assert!(logged.len() > 5, "{logged:?}");
    assert_eq!(told, logged, "{said}");
    let late = rows(&report, true);
    assert!(
        !late.is_empty() && late.iter().all(|(_, symptom)| symptom == "connect-timeout"),
        "{late:?}"
    );
    let causes = report["failures"]["late"].as_object().expect("causes");
    assert_eq!(causes.keys().collect::<Vec<_>>(), ["stale-entry-reuse"], "{causes:?}");
    // Every connect was counted.
    let made = log.iter().filter(|ended| ended.source.is_some()).count() as u64;
    let total = report["requests"]["total"].as_u64().expect("a count");
    let resets =
        rows(&report, false).iter().filter(|(_, symptom)| symptom == "reset").count() as u64;
    assert_eq!(total - resets, made);
    // The rollout, and the three pods that went.
    assert_eq!(report["rollouts"].as_array().map(Vec::len), Some(1), "{}", report["rollouts"]);
    let gone = report["pods"].as_array().expect("a list").iter();
    assert_eq!(gone.filter(|pod| pod["gone"].is_number()).count(), 3, "{}", report["pods"]);
    assert_eq!(report["losses"].as_array().map(Vec::len), Some(0), "{}", report["losses"]);
    let notes = report["notes"].to_string();
    assert!(notes.contains("there is no request log"), "{notes}");
    assert!(notes.contains("the API server's clock less this node's is between"), "{notes}");

    // Each failed connect has its process: a thread of this one.
    let lines = folder.path().join("run.jsonl");
    let exported = Command::new(TRACER).args(["export", trace, "--output"]).arg(&lines).status();
    assert!(exported.expect("tracer starts").success());
    let lines = std::fs::read_to_string(lines).expect("it was written");
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let failed: Vec<Value> =
        lines.filter(|line| line["kind"] == "connect" && line["end"] == "failed").collect();
    let all = log.iter().filter_map(|ended| ended.outcome.symptom());
    assert_eq!(failed.len(), all.filter(|symptom| connects.contains(symptom)).count());
    for connect in failed {
        assert_eq!(connect["process"]["pid"], std::process::id(), "{connect}");
    }

    // The trace judges itself.
    let replayed = Command::new(TRACER).args(["replay", "--format", "json", trace]).output();
    let replayed = replayed.expect("tracer starts");
    let replayed: Value = serde_json::from_slice(&replayed.stdout).expect("a report");
    assert_eq!(replayed, report);
}
