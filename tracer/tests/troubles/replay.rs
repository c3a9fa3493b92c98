//! Files that are no traces, no longer whole ones, or not yet known.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::command::{Output, TRACER, run, tracer};
use crate::quiet;

/// A trace that an earlier build wrote.
pub(crate) fn fixture() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/version-1.trace")
}

fn bytes() -> Vec<u8> {
    fs::read(fixture()).expect("the fixture is there")
}

/// Replays these bytes as a file named `x.trace`, whose folder is taken out of what was said.
fn replay(bytes: &[u8]) -> Output {
    let folder = TempDir::new().expect("a folder can be made");
    let path = folder.path().join("x.trace");
    fs::write(&path, bytes).expect("it can be written");
    let mut output = run(tracer(&["replay", "--format", "json", path_str(&path)]));
    output.stderr = output.stderr.replace(&format!("{}/", folder.path().display()), "");
    output
}

fn path_str(path: &Path) -> &str {
    path.to_str().expect("a temporary folder has a plain name")
}

#[test]
fn what_is_no_trace_is_one_line() {
    let mut newer = bytes();
    newer[8..10].copy_from_slice(&9u16.to_le_bytes());
    let mut damaged = bytes();
    damaged[30] ^= 1;
    for (content, expected) in [
        (&b""[..], "x.trace is empty"),
        (b"a letter\n", "x.trace is of no kind that can be replayed"),
        (&bytes()[..12], "x.trace is a trace that was cut off within its header"),
        (&bytes()[..40], "x.trace is a trace that was cut off within its header"),
        (&damaged, "x.trace is a trace whose header is damaged"),
        (
            &newer,
            "x.trace is a trace of format version 9; this tracer reads up to 1: use a newer one",
        ),
    ] {
        assert_eq!(replay(content).refusal(), expected);
    }
}

#[test]
fn what_is_no_file_is_one_line() {
    let output = run(tracer(&["replay", "no-such.trace"]));
    let expected = "cannot open no-such.trace: No such file or directory (os error 2)";
    assert_eq!(output.refusal(), expected);
    // It has folders only.
    let output = run(tracer(&["replay", "/sys"]));
    assert_eq!(output.refusal(), "/sys has no file of a kind that can be replayed");
}

/// It has a verdict, which gives the missing events as the reason that it is none.
#[track_caller]
fn is_inconclusive_by_damage(output: &Output, what: &str) {
    assert_eq!((output.code, output.stderr.as_str()), (Some(3), ""), "{what}");
    let report = output.report();
    for place in [&report["losses"], &report["hypothesis"]["reasons"]] {
        assert!(place.to_string().contains("trace file damaged or cut short"), "{what}: {report}");
    }
}

#[test]
fn a_whole_trace_is_judged() {
    let output = replay(&quiet::trace().0);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{}", output.stdout);
    assert_eq!(output.report()["hypothesis"]["outcome"], "not-observed");
}

#[test]
fn a_trace_cut_anywhere_has_a_verdict_that_says_so() {
    let (bytes, header) = quiet::trace();
    for end in [bytes.len() - 1, (header + bytes.len()) / 2, header + 1, header] {
        is_inconclusive_by_damage(&replay(&bytes[..end]), &format!("cut at {end}"));
    }
}

#[test]
fn a_flipped_bit_behind_the_header_costs_events_and_is_said() {
    let (bytes, header) = quiet::trace();
    for place in (header..bytes.len()).step_by((bytes.len() - header) / 11) {
        let mut flipped = bytes.clone();
        flipped[place] ^= 0x10;
        is_inconclusive_by_damage(&replay(&flipped), &format!("byte {place}"));
    }
}

#[test]
fn a_trace_comes_through_a_pipe_as_well() {
    let direct = run(tracer(&["replay", fixture(), "--format", "json"]));
    let mut cat = Command::new("cat");
    let mut cat = cat.arg(fixture()).stdout(Stdio::piped()).spawn().expect("every Linux has it");
    let mut command = tracer(&["replay", "/dev/stdin", "--format", "json"]);
    command.stdin(cat.stdout.take().expect("it is piped"));
    let piped = run(command);
    cat.wait().expect("it is our child");
    assert_eq!((piped.code, &piped.stdout), (direct.code, &direct.stdout));
    assert_eq!(piped.stderr, "");

    let mut command = Command::new(TRACER);
    command.args(["replay", "/dev/stdin", "--format", "json"]);
    command.stdin(File::open(fixture()).expect("it is there"));
    assert_eq!(run(command).stdout, direct.stdout);
}
