//! Runs that end otherwise than well.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::kubelet::Runs;
use crate::world::{Said, World, quick_lab, signal};

const RUN: [&str; 3] = ["worker", "--service", "10.96.0.20:80"];

#[test]
fn a_second_signal_ends_it_at_once_and_still_removes_the_pod() {
    let world = World::new();
    // It does not end its trace when it is asked to.
    world.kubelet.runs("worker", Runs::Dies(quick_lab()));
    let mut child = world.start(&RUN);
    signal(&child, Signal::SIGINT);
    // What follows within a quarter of a second of its seeing the first is the same wish, and nothing tells when it saw
    // that: so as somebody does who presses Ctrl-C until it ends.
    let deadline = Instant::now() + Duration::from_secs(60);
    while child.try_wait().expect("it can be waited for").is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(400));
        signal(&child, Signal::SIGINT);
    }
    let said = Said::ended(child);
    assert_eq!(said.code, Some(130), "{}", said.stderr);
    world.nothing_is_left();
}

#[test]
fn a_signal_while_the_pod_starts_removes_it() {
    let world = World::new();
    world.kubelet.runs("worker", Runs::Never);
    let child = world.command(&RUN).spawn().expect("tracer starts");
    world.server.until("the pod is there", |_| world.pods().len() == 1);
    signal(&child, Signal::SIGTERM);
    let said = Said::ended(child);
    assert!(said.refusal().contains("interrupted before anything was traced"), "{}", said.stderr);
    world.nothing_is_left();
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next_and_a_living_run_is_left_alone() {
    let world = World::new();
    let mut killed = world.start(&RUN);
    let of_killed = world.pods();
    killed.kill().expect("it is there");
    killed.wait().expect("it ends");
    let living =
        world.command(&["worker2", "--service", "10.96.0.20:80"]).spawn().expect("it starts");
    world.server.until("the killed run's pod is gone, the living run's is there", |_| {
        let pods = world.pods();
        pods.len() == 1 && pods != of_killed
    });
    let of_living = world.pods();
    let said = world.run(&["worker", "--service", "10.96.0.20:80", "--duration", "300ms"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(!said.stderr.contains("left over"), "{}", said.stderr);
    world.server.until("only the living run's pod is there", |_| world.pods() == of_living);
    signal(&living, Signal::SIGINT);
    let said = Said::ended(living);
    assert!(said.stderr.contains("left over from an earlier run"), "{}", said.stderr);
    world.nothing_is_left();
}

/// Nobody follows any more: the recording in the pod ends by itself. With the pod's own program.
#[test]
fn a_recording_that_nobody_follows_ends_by_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = std::process::Command::new(env!("CARGO_BIN_EXE_tracer"));
    node.args(["node", "run", "--patience", "1s"]).arg(folder.path());
    node.args(["--", "--service", "192.0.2.1:80"]);
    let output = node.output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    // Where this machine lets nobody trace, it ends as well, and says so.
    let is_traced = output.status.code() == Some(0);
    assert!(is_traced || stderr.ends_with("tracer: the recording failed\n"), "{stderr}");
    assert_eq!(folder.path().join("done").exists(), is_traced);
}
