//! A rollout as the controllers do it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use expect_test::expect;
use tracer::lab::{Lab, LabSettings};
use tracer::model::{ClusterEvent, EventKind, PodChange, RolloutChange};
use tracer::sys::process::is_running;
use tracer::sys::stop::Stop;

use super::{ask, is_left_out, names_of, processes_of, roll, settings};

#[test]
fn a_rollout_replaces_every_pod_one_at_a_time() {
    if is_left_out("a_rollout_replaces_every_pod_one_at_a_time") {
        return;
    }
    let lab = Lab::build(&settings(), &Stop::default()).expect("a lab can be built");
    let old = processes_of(lab.index());
    let (words, events) = roll(&lab);
    // A deleted pod goes in its own time, so the order of those events is not fixed.
    let order: Vec<_> = words.iter().filter(|words| !words.ends_with("Deleted")).collect();
    expect![[r#"
        [
            "Started",
            "web-2-4 Added",
            "web-2-4 Ready",
            "web-1-1 Asked { grace: 30s }",
            "web-2-5 Added",
            "web-2-5 Ready",
            "web-1-2 Asked { grace: 30s }",
            "web-2-6 Added",
            "web-2-6 Ready",
            "web-1-3 Asked { grace: 30s }",
            "Finished",
        ]
    "#]]
    .assert_debug_eq(&order);
    let deleted: BTreeSet<_> = words.iter().filter(|words| words.ends_with("Deleted")).collect();
    assert_eq!(deleted.len(), 3);
    assert!(events.is_sorted_by_key(|event| event.time), "events come when they happen");
    assert!(old.iter().all(|pid| !is_running(*pid)), "no old pod is left of {old:?}");
    assert_eq!(names_of(lab.index()).len(), 7);
    ask(&lab).expect("the new pods serve");

    let truth = lab.finish_truth().expect("every look worked");
    let last = truth.rules.iter().rfind(|change| change.node == "n1").expect("rules were set");
    assert_eq!(last.endpoints.len(), 3);
    for pod in truth.pods.iter().filter(|pod| pod.name.starts_with("web-1-")) {
        let (asked, gone) = (pod.asked.expect("asked"), pod.disconnected.expect("gone"));
        for node in ["n1", "n2"] {
            let change = truth.rules.iter().find(|change| {
                change.node == node
                    && change.before > asked
                    && !change.endpoints.contains(&pod.address)
            });
            let lag = change.expect("the rules follow").before.since(asked);
            assert!(lag >= Duration::from_millis(300), "{} on {node}: {lag:?}", pod.name);
            assert!(lag < Duration::from_millis(1500), "{} on {node}: {lag:?}", pod.name);
        }
        assert!(gone.since(asked) >= Duration::from_millis(100), "the teardown takes its time");
    }
}

#[test]
fn prestop_keeps_a_pod_until_the_rules_have_followed() {
    if is_left_out("prestop_keeps_a_pod_until_the_rules_have_followed") {
        return;
    }
    let setup = "readiness-prestop".parse().expect("there is such a setup");
    let lab = Lab::build(&LabSettings { setup, ..settings() }, &Stop::default())
        .expect("it can be built");
    let began = Instant::now();
    let (words, events) = roll(&lab);
    let finished = words.iter().position(|words| words == "Finished").expect("it is complete");
    let deleted = words.iter().filter(|words| words.ends_with("Deleted"));
    assert_eq!(deleted.count(), 3);
    assert!(words[finished..].iter().any(|words| words == "web-1-3 Deleted"), "{words:?}");
    let time_of = |wanted: &dyn Fn(&EventKind) -> bool| {
        events
            .iter()
            .rfind(|event| wanted(&event.kind))
            .map(|event| event.time)
            .expect("it happened")
    };
    let complete = time_of(&|kind| {
        matches!(
            kind,
            EventKind::Cluster {
                change: ClusterEvent::Rollout { change: RolloutChange::Finished, .. },
                ..
            }
        )
    });
    let gone = time_of(&|kind| {
        matches!(
            kind,
            EventKind::Cluster { change: ClusterEvent::Pod { change: PodChange::Deleted, .. }, .. }
        )
    });
    assert!(gone.since(complete) > Duration::from_secs(5), "complete while the last one sleeps");
    assert!(began.elapsed() < Duration::from_secs(30));
    for pod in lab.truth().pods.iter().filter(|pod| pod.name.starts_with("web-1-")) {
        let (asked, terminated) = (pod.asked.expect("asked"), pod.terminated.expect("terminated"));
        assert!(terminated.since(asked) >= Duration::from_secs(5), "{}", pod.name);
    }
}

#[test]
fn without_a_readiness_probe_a_pod_counts_as_ready_before_it_listens() {
    if is_left_out("without_a_readiness_probe_a_pod_counts_as_ready_before_it_listens") {
        return;
    }
    let setup = "naive".parse().expect("there is such a setup");
    let lab = Lab::build(&LabSettings { setup, ..settings() }, &Stop::default())
        .expect("it can be built");
    ask(&lab).expect("the first pods listen before the lab stands");
    roll(&lab);
    ask(&lab).expect("the new pods listen");
    let truth = lab.truth();
    for pod in &truth.pods {
        let (ready, listening) = (pod.ready.expect("ready"), pod.listening.expect("it listens"));
        assert!(listening.since(ready) > Duration::from_millis(200), "{pod:?}");
    }
    let finished = truth.rollout_finished.expect("it is complete");
    assert!(truth.pods.iter().any(|pod| pod.listening > Some(finished)), "{:?}", truth.pods);
}
