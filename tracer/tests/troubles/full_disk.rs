//! A disk that is full while two labs run side by side.

use std::fs;

use tempfile::TempDir;

use crate::command::{Running, run, tracer, tracer_in_mounts};
use crate::host::Host;
use crate::{Needs, is_left_out};

const CUT_SHORT: &str =
    "the verdict is of the whole run, but the trace file is cut short: cannot write ";

#[test]
fn a_disk_that_fills_up_costs_the_trace_and_not_the_verdict() {
    if is_left_out("a_disk_that_fills_up_costs_the_trace_and_not_the_verdict", Needs::Lab) {
        return;
    }
    let host = Host::now();
    let folder = TempDir::new().expect("a folder can be made");
    let path = folder.path().to_str().expect("a temporary folder has a plain name");
    let [disk, copy, whole] =
        ["disk", "copy.trace", "whole.trace"].map(|name| format!("{path}/{name}"));
    fs::create_dir(&disk).expect("it is ours");
    let trace = format!("{disk}/x.trace");
    // The mount ends with its only process, so the copy is made there.
    let setup = format!(
        "mount -t tmpfs -o size=24k none {disk}
         \"$0\" \"$@\" || status=$?
         cp {trace} {copy}
         exit $status"
    );
    let lab = ["lab", "--quick", "--duration", "12s", "--format", "json", "--record"];
    let full = Running::start(tracer_in_mounts(&setup, &[&lab[..], &[&trace]].concat()));
    let beside = Running::start(tracer(&[&lab[..], &[&whole]].concat()));
    let (full, beside) = (full.wait(), beside.wait());

    assert_eq!(full.code, Some(2), "{}", full.stderr);
    let line = full.line();
    assert!(line.starts_with(&format!("{CUT_SHORT}{trace}, which ends after ")), "{line}");
    assert!(line.ends_with("No space left on device (os error 28)"), "{line}");
    let report = full.report();
    assert_eq!(report["rollouts"].as_array().map(Vec::len), Some(1), "the whole run is judged");
    let part = run(tracer(&["replay", &copy, "--format", "json"]));
    assert_eq!((part.code, part.stderr.as_str()), (Some(3), ""));
    let requests = |report: &serde_json::Value| report["requests"]["total"].as_u64();
    assert!(requests(&part.report()) > Some(0), "{}", part.stdout);
    assert!(requests(&part.report()) < requests(&report), "{}", part.stdout);

    // Two labs at once: each has its own rollout, load and verdict, and the other's is not in it.
    assert_eq!((beside.code, beside.stderr.as_str()), (Some(3), ""));
    let pods = |report: &serde_json::Value| {
        let pods = report["pods"].as_array().expect("a list").iter();
        pods.map(|pod| pod["address"].as_str().expect("it has one").to_owned()).collect::<Vec<_>>()
    };
    let (ours, theirs) = (pods(&report), pods(&beside.report()));
    assert!(ours.len() >= 4 && theirs.len() >= 4, "{ours:?} {theirs:?}");
    assert!(ours.iter().all(|pod| !theirs.contains(pod)), "{ours:?} {theirs:?}");
    let replayed = run(tracer(&["replay", &whole, "--format", "json"]));
    assert!(replayed.stdout == beside.stdout, "replay says another thing than the lab");
    host.is_as_before(&[&full, &beside]);
}

#[test]
fn a_disk_that_is_full_from_the_start_costs_the_trace_and_not_the_verdict() {
    if is_left_out(
        "a_disk_that_is_full_from_the_start_costs_the_trace_and_not_the_verdict",
        Needs::Lab,
    ) {
        return;
    }
    let host = Host::now();
    let lab = ["lab", "--quick", "--duration", "1s", "--format", "json", "--record", "/dev/full"];
    let output = run(tracer(&lab));
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    let full = "/dev/full, which ends after 0 events: No space left on device (os error 28)";
    assert_eq!(output.line(), format!("{CUT_SHORT}{full}"));
    assert!(output.report()["requests"]["total"].as_u64() > Some(0));
    host.is_as_before(&[&output]);
}
