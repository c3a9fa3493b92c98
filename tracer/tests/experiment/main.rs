//! The whole experiment, for real: the quick lab, traced, judged, and held against the lab's own truth.
//! Needs root and the BPF programs; without them the test says that it was left out.

#[path = "../support/schema.rs"]
mod schema;

mod matrix;
mod naming;
mod recorded;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use schema::Schema;
use serde_json::Value;
use tracer::commands::lab::agreement::{self, Agreement};
use tracer::files::{Existing, TraceReader, TraceWriter};
use tracer::model::{Event, EventKind, Tuple};

static REPORT: LazyLock<Schema> =
    LazyLock::new(|| Schema::new(include_str!("../../../docs/report.schema.json")));

/// A quick run, done once for all that is asked of it.
struct Run {
    folder: tempfile::TempDir,
    report: Value,
    json: String,
    took: Duration,
}

impl Run {
    fn new(arguments: &[&str]) -> Run {
        let folder = tempfile::tempdir().expect("a folder");
        let started = Instant::now();
        let output = Command::new(env!("CARGO_BIN_EXE_tracer"))
            .args(["lab", "--quick", "--format", "json"])
            .args(arguments)
            .arg("--record")
            .arg(folder.path().join("run.trace"))
            .arg("--truth")
            .arg(folder.path().join("run.truth"))
            .output()
            .expect("tracer starts");
        let took = started.elapsed();
        let json = said(output);
        let report = serde_json::from_str(&json).expect("the report is JSON");
        Run { folder, report, json, took }
    }

    fn trace(&self) -> PathBuf {
        self.folder.path().join("run.trace")
    }

    /// Holds a report of this run's trace, or of a changed one, against the truth.
    fn hold(&self, json: &str) -> Agreement {
        let began = TraceReader::open(&self.trace()).expect("the trace is there").header().began;
        let truth = fs::read_to_string(self.folder.path().join("run.truth")).expect("the truth");
        agreement::compare(&truth, json, began).expect("both are JSON")
    }

    fn rows(&self, name: &str) -> &Vec<Value> {
        self.report[name].as_array().expect("a list")
    }
}

/// Standard output of a run that reached a verdict.
fn said(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    String::from_utf8(output.stdout).expect("reports are UTF-8")
}

fn replay(trace: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tracer"))
        .args(["replay", "--format", "json"])
        .arg(trace)
        .output()
        .expect("tracer starts")
}

fn is_left_out(name: &str) -> bool {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("left out: {name}: needs root");
        return true;
    }
    if !tracer::kernel::has_programs() {
        eprintln!("left out: {name}: built without BPF programs");
        return true;
    }
    false
}

#[test]
fn deleting_entries_in_nftables_mode_over_ipv6_proves_it() {
    if is_left_out("deleting_entries_in_nftables_mode_over_ipv6_proves_it") {
        return;
    }
    let run = Run::new(&[
        "--mode",
        "nftables",
        "--family",
        "ipv6",
        "--intervene",
        "flush",
        "--duration",
        "36s",
    ]);
    let hypothesis = &run.report["hypothesis"];
    assert_ne!(hypothesis["outcome"], "refuted", "{hypothesis:#}");
    // On a slow machine too few ports come round to tell; never must the deleted ones fail like the others.
    assert_ne!(hypothesis["proven"], false, "{hypothesis:#}");
    let reasons = hypothesis["reasons"].to_string();
    assert!(reasons.contains("; deleted: 0 of "), "{reasons}");
    it_agrees(&run);
}

#[test]
fn a_client_outside_the_cluster_meets_stale_entries_of_a_nodes_port() {
    if is_left_out("a_client_outside_the_cluster_meets_stale_entries_of_a_nodes_port") {
        return;
    }
    let run = Run::new(&["--from", "nodeport", "--duration", "25s"]);
    let entries = run.report["entries"]["list"].as_array().expect("a list");
    assert!(
        entries.iter().all(|entry| {
            entry["service"].as_str().is_some_and(|service| service.ends_with(":30080"))
        }),
        "{entries:?}"
    );
    it_agrees(&run);
}

/// No request of which report and truth say different things.
fn it_agrees(run: &Run) {
    let agreement = run.hold(&run.json);
    assert_eq!(agreement.disagreements, Vec::new());
    assert_eq!(agreement.undetermined, Vec::<String>::new());
    assert!(agreement.kinds.contains_key("met a stale entry"), "{:?}", agreement.kinds);
}

#[test]
fn the_quick_lab_supports_the_hypothesis_and_agrees_with_the_truth() {
    const NAME: &str = "the_quick_lab_supports_the_hypothesis_and_agrees_with_the_truth";
    if is_left_out(NAME) {
        return;
    }
    let run = Run::new(&[]);
    it_is_quick(&run);
    it_supports_with_evidence(&run);
    the_server_closes_first(&run);
    the_report_keeps_to_its_schema(&run);
    the_replay_says_the_same_bytes(&run);
    the_truth_agrees(&run);
    swapped_ports_are_found_out(&run);
}

fn it_is_quick(run: &Run) {
    assert!(run.took < Duration::from_secs(60), "it took {:?}", run.took);
}

fn it_supports_with_evidence(run: &Run) {
    let report = &run.report;
    assert_eq!(report["hypothesis"]["outcome"], "supported", "{:#}", report["hypothesis"]);
    assert_eq!(report["hypothesis"]["share"], 1.0);
    let notes = report["notes"].to_string();
    assert!(notes.contains("nf_conntrack_tcp_timeout_syn_sent shortened"), "{notes}");
    assert!(notes.contains("ip_local_port_range narrowed"), "{notes}");
    let late: Vec<&Value> = run.rows("failed").iter().filter(|row| row["late"] == true).collect();
    assert!(!late.is_empty());
    for row in late {
        assert_eq!(row["cause"], "stale-entry-reuse", "{row}");
        assert!(row["evidence"].as_array().is_some_and(|seqs| seqs.len() >= 3), "{row}");
    }
    // Every attempt that met a stale entry is counted, and is a failure or a survivor.
    let met = run.rows("failed").iter().filter(|row| row["cause"] == "stale-entry-reuse").count();
    let replied =
        run.rows("failed").iter().filter(|row| row["cause"] == "stale-replied-entry").count();
    let survived = run.rows("survived").len();
    assert_eq!(report["exposure"]["failed"], met + replied);
    assert_eq!(report["exposure"]["attempts"], met + replied + survived);
}

fn the_server_closes_first(run: &Run) {
    let closes = &run.report["closes"];
    assert_eq!(closes["client"], 0, "{closes}");
    let answered = run.report["requests"]["total"].as_u64().expect("a count")
        - run.report["requests"]["failed"].as_u64().expect("a count");
    assert!(closes["server"].as_u64().expect("a count") * 10 > answered * 9, "{closes}");
}

fn the_report_keeps_to_its_schema(run: &Run) {
    REPORT.check(&run.json).unwrap_or_else(|errors| panic!("{errors:#?}"));
}

fn the_replay_says_the_same_bytes(run: &Run) {
    assert!(said(replay(&run.trace())) == run.json, "the replay's report differs");
}

fn the_truth_agrees(run: &Run) {
    let agreement = run.hold(&run.json);
    assert_eq!(agreement.disagreements, Vec::new());
    assert_eq!(agreement.undetermined, Vec::<String>::new());
    assert_eq!(agreement.compared as u64, run.report["requests"]["total"].as_u64().unwrap_or(0));
    for kind in ["ok", "met a stale entry", "fresh to a dead address"] {
        assert!(agreement.kinds.contains_key(kind), "{:?}", agreement.kinds);
    }
}

/// The comparison can fail: with the packets of two ports swapped, it does.
fn swapped_ports_are_found_out(run: &Run) {
    let failed = |row: &&Value| row["late"] == true && row["cause"] == "stale-entry-reuse";
    let one = run.rows("failed").iter().find(failed).expect("there are late failures");
    let one = port(one).expect("its port is known");
    let touched: BTreeSet<u16> =
        run.rows("failed").iter().chain(run.rows("survived")).filter_map(port).collect();
    let other = (one + 2..=u16::MAX)
        .step_by(2)
        .find(|port| !touched.contains(port))
        .expect("most ports never failed");
    let swapped = run.folder.path().join("swapped.trace");
    swap(&run.trace(), &swapped, one, other);
    let output = replay(&swapped);
    let json = String::from_utf8(output.stdout).expect("reports are UTF-8");
    let agreement = run.hold(&json);
    let named =
        agreement.disagreements.iter().any(|line| line.text.contains("the truth: MetStale"));
    assert!(named, "{:#?}", agreement.disagreements);
}

fn port(row: &Value) -> Option<u16> {
    row["source"].as_str()?.rsplit(':').next()?.parse().ok()
}

/// Copies a trace with two source ports swapped in all that the kernel's hooks saw.
fn swap(from: &Path, to: &Path, one: u16, other: u16) {
    let reader = TraceReader::open(from).expect("the trace is there");
    let mut writer =
        TraceWriter::create(to, reader.header(), Existing::Keep).expect("the folder is ours");
    for event in reader {
        let mut event = event.expect("the trace is whole");
        swap_in(&mut event, &mut |tuple| {
            for end in [&mut tuple.src, &mut tuple.dst] {
                match end.port() {
                    port if port == one => end.set_port(other),
                    port if port == other => end.set_port(one),
                    _ => {}
                }
            }
        });
        writer.append(&event).expect("there is room");
    }
    writer.finish().expect("there is room");
}

fn swap_in(event: &mut Event, swap: &mut dyn FnMut(&mut Tuple)) {
    match &mut event.kind {
        EventKind::Packet(packet) => {
            swap(&mut packet.tuple);
            if let Some(lookup) = &mut packet.lookup {
                swap(&mut lookup.orig);
                swap(&mut lookup.reply);
            }
        }
        EventKind::TcpState(state) => swap(&mut state.tuple),
        _ => {}
    }
}
