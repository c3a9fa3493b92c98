//! The matrix, for real: every setup with both clients, at once and as short as can be.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tracer::files::TraceReader;
use tracer::sys::netns;

use super::is_left_out;
use super::schema::Schema;

static MATRIX: LazyLock<Schema> =
    LazyLock::new(|| Schema::new(include_str!("../../../docs/matrix.schema.json")));

/// How long anything here may take: a slow machine's patience.
const PATIENCE: Duration = Duration::from_secs(120);

fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_tracer"))
        .args(["lab", "--matrix", "--format", "json"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tracer starts")
}

/// Its document, which keeps to its schema, and what it said besides.
fn end(child: Child) -> (Output, Value) {
    let output = child.wait_with_output().expect("it ends");
    let json = String::from_utf8(output.stdout.clone()).expect("documents are UTF-8");
    let said = String::from_utf8_lossy(&output.stderr);
    MATRIX.check(&json).unwrap_or_else(|errors| panic!("{errors:#?}\n{said}"));
    let document = serde_json::from_str(&json).expect("the document is JSON");
    (output, document)
}

/// Each run: client, setup and the run itself.
fn runs(document: &Value) -> Vec<(&str, &str, &Value)> {
    let mut all = Vec::new();
    for table in document["tables"].as_array().into_iter().flatten() {
        let client = table["client"].as_str().expect("a name");
        for setup in table["setups"].as_array().into_iter().flatten() {
            let name = setup["setup"].as_str().expect("a name");
            let runs = setup["runs"].as_array().into_iter().flatten();
            all.extend(runs.map(|run| (client, name, run)));
        }
    }
    all
}

/// The network namespaces of the labs of this process.
fn namespaces(of: &Child) -> Vec<String> {
    let owner = of.id().to_string();
    let is_its = |name: &String| {
        let index = name.strip_prefix("tracer-lab").and_then(|rest| rest.split('-').next());
        let file = index.map(|index| format!("/run/tracer-lab/{index}.owner"));
        file.and_then(|file| fs::read_to_string(file).ok()).is_some_and(|pid| pid.trim() == owner)
    };
    netns::names().into_iter().filter(is_its).collect()
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_run_that_fails_costs_its_cell_alone() {
    if is_left_out("a_run_that_fails_costs_its_cell_alone") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let traces = folder.path().join("traces");
    let traces = traces.to_str().expect("a plain path");
    let child = start(&["--runs", "1", "--duration", "7s", "--parallel", "4", "--record", traces]);
    // A pod of the first rollout that dies before it serves ends its lab: as one would that can't be built.
    wait_for("a new pod's process", || {
        let pod = namespaces(&child).into_iter().find(|name| name.contains("-web-2-"))?;
        let mut processes = netns::processes(&pod).ok()?.into_iter();
        // Its namespace has passing processes as well, such as those that set up its addresses.
        let victim = processes.find(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).nth(1) == Some(b"serve")
        })?;
        kill(Pid::from_raw(victim), Signal::SIGKILL).ok()
    });
    let (output, document) = end(child);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("tracer: 1 of 12 runs failed: "), "{said}");
    assert!(said.contains(" ended by itself "), "{said}");
    let runs = runs(&document);
    let cells: BTreeSet<(&str, &str)> =
        runs.iter().map(|(client, setup, _)| (*client, *setup)).collect();
    assert_eq!((runs.len(), cells.len()), (12, 12));
    let (failed, over): (Vec<_>, Vec<_>) =
        runs.into_iter().partition(|run| run.2["error"].is_string());
    assert_eq!((failed.len(), over.len()), (1, 11));
    assert_eq!(failed[0].2["result"], Value::Null);
    for (client, setup, run) in over {
        let result = &run["result"];
        assert!(result["requests"].as_u64().is_some_and(|count| count > 100), "{setup} {client}");
        assert_eq!(result["truth"]["disagreements"], Value::Array(Vec::new()), "{setup} {client}");
        let trace = Path::new(run["trace"].as_str().expect("it is recorded"));
        let header = TraceReader::open(trace).expect("the trace is there").header().clone();
        assert!(format!("{:?}", header.origin).contains(&run["seed"].to_string()), "{header:?}");
    }
}

#[test]
fn a_matrix_that_is_interrupted_says_what_is_there_and_leaves_nothing() {
    if is_left_out("a_matrix_that_is_interrupted_says_what_is_there_and_leaves_nothing") {
        return;
    }
    let child = start(&["--runs", "1", "--duration", "7s", "--parallel", "1"]);
    let has_client = || namespaces(&child).iter().any(|name| name.ends_with("-client"));
    wait_for("the first lab", || has_client().then_some(()));
    // One after the other: where the next one's client is, the first run is over.
    wait_for("the first lab's end", || (!has_client()).then_some(()));
    wait_for("the next lab", || has_client().then_some(()));
    let names = namespaces(&child);
    kill(Pid::from_raw(i32::try_from(child.id()).expect("a pid fits")), Signal::SIGINT)
        .expect("it runs");
    let (output, document) = end(child);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(document["interrupted"], true);
    let runs = runs(&document);
    assert!(runs.iter().all(|run| run.2["error"].is_null()));
    let over = runs.iter().filter(|run| run.2["result"].is_object()).count();
    assert!((1..12).contains(&over), "{over} runs are over");
    let left = netns::names();
    assert!(names.iter().all(|name| !left.contains(name)), "{left:?}");
}
