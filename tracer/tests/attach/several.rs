//! Several nodes, and what is done while they are traced.

use std::path::Path;

use tracer::files::TraceReader;
use tracer::model::EventKind;

use crate::kubelet::Runs;
use crate::world::{World, quick_lab};

#[test]
fn a_pod_tells_its_node() {
    let world = World::new();
    let run = ["--pod", "demo/client", "--service", "demo/web", "--duration", "300ms"];
    let said = world.run(&run);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains("the pod demo/client is on the node worker2"), "{}", said.stderr);
    let [pod] = world.kubelet.seen().try_into().expect("one pod");
    assert_eq!(pod["spec"]["nodeName"], "worker2");
    assert_eq!(pod["spec"]["serviceAccountName"], "tracer-record");
}

/// Two of the three nodes are containers on one kernel, as kind has them.
#[test]
fn all_nodes_are_traced_one_of_each_kernel_and_judged_as_one() {
    let world = World::new();
    let trace = world.path("merged.trace");
    let run = ["--all-nodes", "--service", "demo/web", "--duration", "300ms", "--format", "json"];
    let said = world.run(&[&run[..], &["--record", &trace]].concat());
    assert!(said.stderr.contains("worker runs on the kernel of control-plane"), "{}", said.stderr);
    let seen = world.kubelet.seen();
    let mut nodes: Vec<_> = seen.iter().map(|pod| pod["spec"]["nodeName"].as_str()).collect();
    nodes.sort();
    assert_eq!(nodes, [Some("control-plane"), Some("worker2")]);
    let count = |path: &Path, wanted: fn(&EventKind) -> bool| {
        let events = TraceReader::open(path).expect("a trace");
        events.filter(|event| wanted(&event.as_ref().expect("it is whole").kind)).count()
    };
    let (one, merged) = (quick_lab(), Path::new(&trace));
    // Each node's packets are there, and what the API told is there once.
    let is_packet = |kind: &EventKind| matches!(kind, EventKind::Packet(_));
    assert_eq!(count(merged, is_packet), 2 * count(&one, is_packet));
    let is_cluster = |kind: &EventKind| matches!(kind, EventKind::Cluster { .. });
    assert_eq!(count(merged, is_cluster), count(&one, is_cluster));
    let header = |path: &Path| TraceReader::open(path).expect("a trace").header().clone();
    let (of_one, of_merged) = (header(&one), header(merged));
    assert_eq!(of_merged.netns.len(), 2 * of_one.netns.len());
    let mut ids: Vec<_> = of_merged.netns.iter().map(|netns| netns.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), of_merged.netns.len(), "namespaces of two kernels are two");
    // Its clock is the wall clock, which the two have in common.
    assert_eq!(of_merged.anchor.wall(of_merged.began), of_one.anchor.wall(of_one.began));
    let said_of_lost = said.report()["losses"].to_string();
    assert!(!said_of_lost.contains("out of order"), "{said_of_lost}");
    world.nothing_is_left();
}

#[test]
fn one_command_loads_restarts_and_traces() {
    let world = World::new();
    let run =
        ["worker", "--service", "demo/web", "--load", "--roll", "web", "--duration", "5500ms"];
    let said = world.run(&run);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let [_, load] = world.kubelet.seen().try_into().expect("two pods");
    let container = &load["spec"]["containers"][0];
    let arguments: Vec<&str> = container["args"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one.as_str())
        .collect();
    assert_eq!(arguments[..2], ["load", "10.96.0.20:80"]);
    let owned: Vec<String> = arguments.iter().map(|&one| one.to_owned()).collect();
    assert_eq!(tracer::cli::accepts(&owned), Ok(()));
    assert_eq!(load["spec"]["nodeName"], "worker");
    assert_eq!(load["spec"]["automountServiceAccountToken"], false);
    let [deployment] = world.server.objects("deployments").try_into().expect("one");
    let restarted = &deployment["spec"]["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"];
    let restarted = restarted.as_str().expect("it was restarted");
    assert!(restarted.starts_with("20") && restarted.ends_with('Z'), "{restarted}");
    world.nothing_is_left();
}

#[test]
fn a_paused_deployment_is_not_restarted() {
    let world = World::new();
    world.server.edit("deployments", "demo", "web", |web| web["spec"]["paused"] = true.into());
    let said = world.run(&["worker", "--service", "demo/web", "--roll", "web"]);
    assert!(said.refusal().contains("kubectl rollout resume"), "{}", said.stderr);
    assert_eq!(world.kubelet.seen().len(), 0);
}

/// The whole way for real: the pod's program records on this machine, and ends when it is asked to.
#[test]
fn what_the_pod_records_is_what_comes() {
    let name = "what_the_pod_records_is_what_comes";
    if !nix::unistd::geteuid().is_root() {
        eprintln!("left out: {name}: needs root");
        return;
    }
    if let Err(error) = tracer::kernel::preflight() {
        eprintln!("left out: {name}: {error}");
        return;
    }
    let world = World::new();
    world.kubelet.runs("worker", Runs::Really);
    let trace = world.path("real.trace");
    let run = ["worker", "--service", "192.0.2.1:80", "--duration", "1s", "--format", "json"];
    let said = world.run(&[&run[..], &["--record", &trace]].concat());
    assert_eq!(said.code, Some(3), "{}", said.stderr);
    assert_eq!(said.report()["hypothesis"]["outcome"], "inconclusive");
    let mut reader = TraceReader::open(Path::new(&trace)).expect("a trace");
    let last = reader.by_ref().last().expect("events").expect("it is whole");
    assert_eq!(last.kind, EventKind::Ended);
    assert!(reader.trailer().is_some(), "it was finished");
    world.nothing_is_left();
}
