//! A trace comes whole, whatever happens to the connection, and what came is judged as `replay` does.

use nix::sys::signal::Signal;

use crate::kubelet::Runs;
use crate::world::{Said, TOKEN, World, bytes, quick_lab, replayed, signal};

const SERVICE: &str = "10.96.0.20:80";

/// Arguments for a short run on `worker`, into this file.
fn short(world: &World) -> (String, Vec<String>) {
    let trace = world.path("kept.trace");
    let arguments = [
        "worker",
        "--service",
        SERVICE,
        "--duration",
        "300ms",
        "--format",
        "json",
        "--record",
        &trace,
    ]
    .map(str::to_owned)
    .to_vec();
    (trace, arguments)
}

fn run(world: &World, arguments: &[String]) -> Said {
    world.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn a_trace_comes_whole_is_judged_as_replay_does_and_nothing_is_left() {
    let world = World::new();
    let (trace, arguments) = short(&world);
    let said = run(&world, &arguments);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert_eq!(said.report()["hypothesis"]["outcome"], "supported");
    assert_eq!(said.stdout, replayed(&quick_lab()));
    assert_eq!(bytes(&trace), bytes(quick_lab()));
    world.nothing_is_left();
}

#[test]
fn what_a_pod_may_do_is_said_and_is_no_more() {
    let world = World::new();
    let (_, arguments) = short(&world);
    let said = run(&world, &arguments);
    assert!(
        said.stderr.contains("on the node worker: CAP_BPF, CAP_PERFMON and the node's network")
    );
    let [pod] = world.kubelet.seen().try_into().expect("one pod");
    let container = &pod["spec"]["containers"][0];
    let expected = serde_json::json!({ "drop": ["ALL"], "add": ["BPF", "PERFMON"] });
    assert_eq!(container["securityContext"]["capabilities"], expected);
    assert_eq!(container["args"][5], SERVICE);
    assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
    assert!(!pod.to_string().contains(TOKEN));
}

#[test]
fn a_connection_that_breaks_is_made_again_and_no_byte_is_missing_or_doubled() {
    let world = World::new();
    // Before the first byte, inside the header, twice at one place, and far into it.
    world.kubelet.break_after(&[0, 5, 0, 7000]);
    let (trace, mut arguments) = short(&world);
    arguments[4] = "6s".to_owned();
    let said = run(&world, &arguments);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains("the connection broke"), "{}", said.stderr);
    assert_eq!(bytes(&trace), bytes(quick_lab()));
    world.nothing_is_left();
}

/// A connection that neither breaks nor says anything: a firewall that forgot it.
#[test]
fn a_silent_connection_is_given_up_and_made_again() {
    let world = World::new();
    world.kubelet.be_silent();
    let (trace, arguments) = short(&world);
    let said = run(&world, &arguments);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains("the connection broke 1 times"), "{}", said.stderr);
    assert_eq!(bytes(&trace), bytes(quick_lab()));
}

#[test]
fn a_pod_that_dies_leaves_what_had_come_which_is_kept_and_judged() {
    let world = World::new();
    world.kubelet.runs("worker", Runs::Dies(quick_lab()));
    let trace = world.path("kept.trace");
    let arguments = ["worker", "--service", SERVICE, "--format", "json", "--record", &trace];
    let child = world.start(&arguments);
    let half = bytes(quick_lab()).len() / 2;
    world.server.until("half of the trace has come", |_| world.kubelet.passed() == half);
    world.kubelet.die(&world.server);
    let said = Said::ended(child);
    assert!(
        said.stderr.contains("the trace is cut short: the pod ended before its trace: OOMKilled"),
        "{}",
        said.stderr
    );
    assert_eq!(bytes(&trace), bytes(quick_lab())[..half]);
    assert_eq!(said.code, Some(3), "{}", said.stderr);
    let losses = said.report()["losses"].to_string();
    assert!(losses.contains("cut short"), "{losses}");
    world.nothing_is_left();
}

#[test]
fn ctrl_c_ends_the_trace_which_still_comes_whole() {
    for sent in [Signal::SIGINT, Signal::SIGTERM] {
        let world = World::new();
        let trace = world.path("kept.trace");
        let arguments = ["worker", "--service", SERVICE, "--format", "json", "--record", &trace];
        let child = world.start(&arguments);
        signal(&child, sent);
        let said = Said::ended(child);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        assert_eq!(bytes(&trace), bytes(quick_lab()));
        world.nothing_is_left();
    }
}
