//! Options that are wrong, contradict each other, or ask for nothing; and where the output goes.

use std::fs::File;
use std::process::Command;

use crate::command::{TRACER, run, tracer};
use crate::host::Host;
use crate::replay::fixture;

#[test]
fn a_wrong_option_is_refused_with_what_is_right() {
    let endpoint = "write it as ADDRESS:PORT, like 10.96.0.20:80 or [fd00::20]:80";
    let service = &format!("{endpoint}, or as NAMESPACE/NAME");
    for (line, expected) in [
        ("lab --duration 0", "must be more than 0"),
        ("lab --timeout 0s", "must be more than 0"),
        ("lab --workers 0", "0 is not in 1..=1000"),
        ("lab --ring-size 0", "must be more than 0"),
        ("lab --ring-size 2G", "must be at most 1G"),
        ("lab --ring-size many", "write a size below 4 GiB like 65536, 64K or 16M"),
        (
            "lab --setup readyness",
            "no setup is called `readyness`; there are: naive, readiness, readiness-drain, readiness-prestop, readiness-prestop-drain, readiness-no-handler",
        ),
        ("lab --late-after later", "expected number at 0; write it like 5s, 500ms or 2m"),
        ("record --service 10.96.0.20", service),
        ("record --service fd00::20", endpoint),
        ("record --service Default/web", service),
        ("record --service 10.96.0.20:0", "a port is 1 to 65535"),
        (
            "load 10.96.0.20",
            "write it as ADDRESS:PORT or NAME:PORT, such as 10.96.0.20:80, [fd00::1]:80 or web.shop:80",
        ),
        ("load 10.96.0.20:80 --duration 0", "must be more than 0"),
        ("load 10.96.0.20:80 --workers 0", "0 is not in 1..=65535"),
    ] {
        let output = run(tracer(&line.split(' ').collect::<Vec<_>>()));
        let said = output.usage_error();
        assert!(said.ends_with(&format!(": {expected}")), "{line}: {said}");
    }
}

#[test]
fn an_unknown_outcome_is_answered_with_those_that_there_are() {
    let output = run(tracer(&["replay", fixture(), "--fail-on", "bad"]));
    output.usage_error();
    let outcomes = "[possible values: supported, refuted, not-observed, inconclusive]";
    assert!(output.stderr.contains(outcomes), "{}", output.stderr);
}

#[test]
fn a_service_must_be_named_to_be_recorded() {
    let output = run(tracer(&["record"]));
    output.usage_error();
    assert!(output.stderr.contains("--service <SERVICE>"), "{}", output.stderr);
}

#[test]
fn a_rollout_does_not_end_before_it_starts() {
    let host = Host::now();
    let moments = ["--rollout-start", "+10", "--rollout-end", "+5"];
    for command in [&["lab"][..], &["record", "--service", "192.0.2.1:80"], &["replay", fixture()]]
    {
        let output = run(tracer(&[command, &moments].concat()));
        assert_eq!(output.refusal(), "--rollout-end is before --rollout-start", "{command:?}");
        assert_eq!(output.watched.index, None, "no lab was built");
        host.is_as_before(&[&output]);
    }
    // On two scales it takes the trace's clock to tell.
    let mixed = ["replay", fixture(), "--rollout-start", "+10", "--rollout-end", "4102444800"];
    assert!(matches!(run(tracer(&mixed)).code, Some(0 | 3)));
    let mixed = ["replay", fixture(), "--rollout-start", "4102444800", "--rollout-end", "+10"];
    assert_eq!(run(tracer(&mixed)).refusal(), "--rollout-end is before --rollout-start");
}

#[test]
fn fail_on_changes_the_exit_status_and_nothing_else() {
    let plain = run(tracer(&["replay", fixture()]));
    assert_eq!(plain.code, Some(3), "{}", plain.stdout);
    for (outcome, code) in [("inconclusive", Some(1)), ("supported", Some(3))] {
        let output = run(tracer(&["replay", fixture(), "--fail-on", outcome]));
        assert_eq!((output.code, &output.stdout), (code, &plain.stdout));
    }
}

#[test]
fn a_broken_pipe_is_no_error() {
    for arguments in [&["replay", fixture()][..], &["doctor"], &["lab", "--help"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe can be made");
        drop(reader);
        let output = tracer(arguments).stdout(writer).output().expect("it was built");
        let stderr = String::from_utf8_lossy(&output.stderr);
        // The doctor may have found something missing; that it says all the same.
        assert!(!stderr.contains("pipe") && !stderr.contains("panic"), "{arguments:?}: {stderr}");
        if arguments[0] != "doctor" {
            assert_eq!((output.status.code(), stderr.as_ref()), (Some(0), ""), "{arguments:?}");
        }
    }
}

#[test]
fn a_closed_standard_output_is_no_panic_and_a_full_one_an_error() {
    let mut closed = Command::new("sh");
    closed.args(["-c", "exec \"$0\" \"$@\" >&-", TRACER, "replay", fixture()]);
    let output = run(closed);
    assert_eq!((output.code, output.stderr.as_str()), (Some(3), ""));

    let full = || File::options().write(true).open("/dev/full").expect("every Linux has it");
    let output = tracer(&["replay", fixture()]).stdout(full()).output().expect("it was built");
    let expected = "tracer: printing the report: No space left on device (os error 28)\n";
    assert_eq!((output.status.code(), stderr(&output)), (Some(2), expected.to_owned()));

    let output = tracer(&["replay", "no-such.trace"]).stderr(full()).output();
    assert_eq!(output.expect("it was built").status.code(), Some(2));
}

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn json_is_alone_on_standard_output() {
    let output = run(tracer(&["replay", fixture(), "--format", "json"]));
    assert_eq!(output.stderr, "");
    assert_eq!(output.report()["schema"], 1);
    assert!(output.stdout.ends_with("}\n"));
}
