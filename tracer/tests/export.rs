//! `tracer export` of a real trace: what other programs read must be all of it, and right.

#[path = "support/schema.rs"]
mod schema;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use schema::Schema;
use serde_json::Value;

/// Of each so many events one is held against the schema: each of them takes longer than its test.
const SAMPLE: usize = 40;

static EVENTS: LazyLock<Schema> =
    LazyLock::new(|| Schema::new(include_str!("../../docs/events.schema.json")));

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/quick-lab.trace")
}

fn tracer(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tracer"));
    command.args(args).stdin(Stdio::null()).output().expect("tracer starts")
}

/// Exports the example to a file of this name in a folder of its own.
fn exported(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    let output = tracer(&["export", text(&example()), "--output", text(&path)]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    (folder, path)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

fn report(path: &Path) -> Value {
    let output = tracer(&["replay", text(path), "--format", "json"]);
    serde_json::from_slice(&output.stdout).expect("a report")
}

fn refused(args: &[&str]) -> String {
    let output = tracer(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn json_lines_hold_every_event_in_its_order() {
    let (_folder, path) = exported("lab.jsonl");
    assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    let lines = fs::read_to_string(&path).expect("JSON is text");
    let mut kinds = BTreeMap::<String, u64>::new();
    for (nth, line) in lines.lines().enumerate() {
        let event: Value = serde_json::from_str(line).expect("each line is JSON");
        if nth == 0 || nth % SAMPLE == 0 {
            EVENTS.check(line).unwrap_or_else(|errors| panic!("{errors:#?}\n{line}"));
        }
        if nth > 0 {
            assert_eq!(event["seq"].as_u64(), Some(nth as u64 - 1));
        }
        *kinds.entry(event["kind"].as_str().expect("a kind").to_owned()).or_default() += 1;
    }
    let report = report(&example());
    assert_eq!(kinds.get("request-ended").copied(), report["requests"]["total"].as_u64());
    assert_eq!(kinds.get("packet").copied(), report["counters"]["packets"].as_u64());
    assert_eq!(kinds.get("tcp-state").copied(), report["counters"]["socket changes"].as_u64());
    assert_eq!(kinds["header"], 1);
    assert_eq!(kinds["ended"], 1);
    // What a report names as evidence is found by its number.
    let late = report["failed"].as_array().expect("a list").iter().find(|row| row["late"] == true);
    let late = late.expect("the example has late failures");
    let last = late["evidence"].as_array().expect("a list").last().expect("some").as_u64();
    let line = lines.lines().nth(last.expect("a number") as usize + 1).expect("that event");
    let line: Value = serde_json::from_str(line).expect("JSON");
    assert_eq!((&line["kind"], &line["request"]), (&"request-ended".into(), &late["request"]));
}

/// tshark's fields of the packets that pass its filter, a line each.
fn tshark(path: &Path, filter: &str, fields: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    // Names are not asked for: nothing leaves this machine.
    command.args(["-n", "-r", text(path), "-Y", filter, "-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark starts");
    let said = String::from_utf8_lossy(&output.stderr);
    let complaints: Vec<_> =
        said.lines().filter(|line| !line.starts_with("Running as user")).collect();
    assert!(output.status.success() && complaints.is_empty(), "{said}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn wireshark_reads_the_packets_and_what_is_known_of_each() {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!(
            "left out: wireshark_reads_the_packets_and_what_is_known_of_each: tshark is not on this machine"
        );
        return;
    }
    let (_folder, path) = exported("lab.pcapng");
    let report = report(&example());
    let packets = tshark(&path, "frame", &["frame.number"]);
    assert_eq!(Some(packets.len() as u64), report["counters"]["packets"].as_u64());
    assert_eq!(
        tshark(&path, "_ws.malformed || tcp.checksum.status == 0", &["frame.number"]),
        [""; 0]
    );
    // Each late failure: its SYNs say the request, the cause, the entry with its age, and the pod.
    for row in report["failed"].as_array().expect("a list") {
        if row["late"] != true {
            continue;
        }
        let request = format!(
            "request {}: {} (late)",
            row["request"],
            row["symptom"].as_str().expect("text")
        );
        // Where it is dropped, in another namespace, it carries no entry any more.
        let filter = format!(
            "tcp.flags.syn == 1 && frame.comment contains \"{request}\" && \
             frame.comment contains \"at net_dev_start_xmit\""
        );
        let syns = tshark(&path, &filter, &["tcp.srcport", "frame.comment"]);
        assert!(!syns.is_empty(), "{request}");
        let source = row["source"].as_str().expect("text");
        let (_, port) = source.rsplit_once(':').expect("a port");
        for syn in &syns {
            assert!(syn.starts_with(port), "{syn}");
            assert!(syn.contains(row["cause"].as_str().expect("text")), "{syn}");
            assert!(syn.contains(row["pod"].as_str().expect("text")), "{syn}");
            assert!(syn.contains("SYN_SENT, unreplied") && syn.contains(" s old"), "{syn}");
        }
        // The first one as old as the report says.
        let age = format!("{:.2} s old", row["entry_age"].as_f64().expect("a number"));
        assert!(syns[0].contains(&age), "{age}: {}", syns[0]);
    }
    // As a capture it holds less: replay says what, and reaches no verdict by it.
    let again = self::report(&path);
    assert_eq!(again["hypothesis"]["outcome"], "inconclusive");
    assert_eq!(again["requests"]["total"], 0);
}

#[test]
fn what_cannot_be_exported_is_refused_and_nothing_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let there = folder.path().join("there.jsonl");
    fs::write(&there, "mine").expect("it can be written");
    let example = example();
    let [example, there, cargo] = [text(&example), text(&there), env!("CARGO_MANIFEST_PATH")];
    assert_eq!(
        refused(&["export", example, "--output", there]),
        format!(
            "tracer: {there} exists; remove it, choose another name, or replace it with --force\n"
        )
    );
    assert_eq!(fs::read_to_string(there).expect("it is there"), "mine");
    assert_eq!(
        refused(&["export", example, "--output", "lab.txt"]),
        "tracer: lab.txt ends in none of .pcapng, .jsonl and .trace; give --to\n"
    );
    assert_eq!(
        refused(&["export", example]),
        "tracer: which form? give --to pcapng, --to jsonl or --to trace\n"
    );
    let error = refused(&["export", cargo, "--to", "jsonl"]);
    assert!(error.contains("is not a trace") && error.lines().count() == 1, "{error}");
    let output = tracer(&["export", example, "--output", there, "--force"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(fs::read_to_string(there).expect("text").starts_with("{\"kind\":\"header\""));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    for form in ["jsonl", "pcapng"] {
        let mut export = Command::new(env!("CARGO_BIN_EXE_tracer"))
            .args(["export", text(&example()), "--to", form])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("tracer starts");
        drop(export.stdout.take());
        let output = export.wait_with_output().expect("it ends");
        assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()), "{form}");
    }
}

/// Every address in a report and in a trace's JSON lines.
fn addresses(path: &Path) -> std::collections::BTreeSet<String> {
    let lines = tracer(&["export", text(path), "--to", "jsonl"]).stdout;
    let lines = String::from_utf8(lines).expect("JSON is text");
    let words = lines.split(|c: char| !(c.is_ascii_hexdigit() || matches!(c, '.' | ':')));
    let ip = |word: &str| word.rsplit_once(':').map_or(word, |(ip, _)| ip).to_owned();
    words
        .map(ip)
        .filter(|word| word.parse::<std::net::Ipv4Addr>().is_ok_and(|ip| !ip.is_loopback()))
        .collect()
}

#[test]
fn a_trace_with_other_addresses_has_the_same_verdict() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("other.trace");
    let output = tracer(&["export", text(&example()), "--anonymize", "--output", text(&path)]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    let (known, others) = (addresses(&example()), addresses(&path));
    assert!(known.contains("10.100.96.10"), "{known:?}");
    assert_eq!(known.len(), others.len(), "equal ones stay equal, and different ones different");
    assert_eq!(known.intersection(&others).collect::<Vec<_>>(), Vec::<&String>::new());
    let (known, other) = (report(&example()), report(&path));
    for field in ["requests", "failures", "symptoms", "contrast", "exposure", "bins", "losses"] {
        assert_eq!(known[field], other[field], "{field}");
    }
    assert_eq!(known["hypothesis"], other["hypothesis"]);
    assert_eq!(known["entries"]["stale"], other["entries"]["stale"]);
}

#[test]
fn a_trace_copied_is_the_same_trace() {
    let (_folder, path) = exported("copy.trace");
    assert_eq!(report(&path), report(&example()));
}

#[test]
fn pseudonyms_are_for_traces_and_json_lines() {
    let said = refused(&["export", text(&example()), "--anonymize", "--to", "pcapng"]);
    assert!(said.contains("export the trace that it makes to pcapng"), "{said}");
}
