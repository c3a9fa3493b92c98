//! Processes in namespaces of their own, and their certain end.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use tracer::sys::netns::Netns;
use tracer::sys::process::{Process, ProcessError};

use super::is_left_out;

fn start(script: &str) -> Process {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    Process::start(Netns::current().expect("it is there"), command).expect("sh can be started")
}

/// The pids of the processes whose parent is this one.
fn children(pid: i32) -> Vec<i32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    list.unwrap_or_default().split_whitespace().map(|pid| pid.parse().expect("a pid")).collect()
}

#[test]
fn sigkill_ends_what_sigterm_does_not_and_takes_its_children_along() {
    if is_left_out("sigkill_ends_what_sigterm_does_not_and_takes_its_children_along") {
        return;
    }
    // PID 1 without a handler: the kernel does not deliver SIGTERM to it at all.
    let process = start("sleep 600 & wait");
    let child = loop {
        if let [child] = children(process.pid())[..] {
            break child;
        }
        std::thread::yield_now();
    };
    process.signal(Signal::SIGTERM).expect("it runs");
    assert_eq!(process.wait(Duration::from_millis(300)), None, "it survives SIGTERM");
    let ended = process.kill().expect("nothing survives SIGKILL");
    assert_eq!(ended.status.signal(), Some(Signal::SIGKILL as i32));
    assert!(!tracer::sys::process::is_running(child), "its child died with its PID namespace");
    process.signal(Signal::SIGTERM).expect("what has ended is left in peace");
}

#[test]
fn an_exit_is_seen_with_its_status_and_last_words() {
    if is_left_out("an_exit_is_seen_with_its_status_and_last_words") {
        return;
    }
    let ended =
        start("echo $$ >&2; exit 7").wait(Duration::from_secs(10)).expect("it exits at once");
    assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(7), "1"), "it was PID 1");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    if is_left_out("a_program_that_is_not_there_is_named") {
        return;
    }
    let netns = Netns::current().expect("it is there");
    match Process::start(netns, Command::new("/no/such/program")) {
        Err(ProcessError::Start { program, .. }) => assert_eq!(program, "/no/such/program"),
        other => panic!("there is no such program, but: {other:?}"),
    }
}

#[test]
fn a_program_can_start_itself() {
    if is_left_out("a_program_can_start_itself") {
        return;
    }
    // The default of a lab's pods. The path means the new process before it has become a program.
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", "process::no_such_test"]);
    let process = Process::start(Netns::current().expect("it is there"), command);
    let ended = process.expect("it can be started").wait(Duration::from_secs(10));
    let ended = ended.expect("it has no test to run");
    assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(0), ""));
}
