//! What may go wrong between a cluster and whoever watches it: nothing is lost unsaid, and nothing is asked without end.

use std::time::{Duration, Instant};

use expect_test::expect;
use tracer::cluster::Update;
use tracer::model::PodChange;

use super::watching::{in_words, is_deletion, losses, notes, pod, usual, watch, watch_with};
use crate::apiserver::{Fault, Verb};

/// A fault in the watch of pods, while a pod goes and another comes. What is told, and how often it was asked.
fn through(fault: Fault) -> (Vec<Update>, usize) {
    let server = usual();
    let mut watched = watch(&server);
    server.until("all is watched", |server| server.open_watches() == 5);
    let before = server.asked().len();
    if matches!(fault, Fault::Status { .. }) {
        server.fault(Verb::Watch, "pods", Fault::End, 1);
    }
    server.fault(Verb::Watch, "pods", fault, 1);
    server.remove("pods", "default", "web-a");
    server.apply(pod("web-b", "10.244.1.8"));
    watched.until_pod("web-b", |change| change == PodChange::Added);
    if !watched.told.iter().any(|update| is_deletion(update, "web-a")) {
        watched.until_pod("web-a", |change| change == PodChange::Deleted);
    }
    assert_eq!(server.faults_due(), 0);
    let asked = server.asked().len() - before;
    (watched.finish(), asked)
}

#[test]
fn a_watch_that_breaks_loses_nothing() {
    for fault in [
        Fault::Disconnect,
        Fault::HalfLine,
        Fault::HalfLineAndEnd,
        Fault::Garbage,
        Fault::End,
        Fault::Status { code: 500, retry_after: None },
    ] {
        let (told, asked) = through(fault.clone());
        assert_eq!(losses(&told), 0, "{fault:?}: {told:#?}");
        assert!(asked < 10, "{fault:?}: {asked}");
    }
}

#[test]
fn an_expired_version_is_a_gap_and_what_went_meanwhile_is_gone() {
    let (told, asked) = through(Fault::Gone);
    assert_eq!(losses(&told), 1, "{told:#?}");
    assert!(asked < 10, "{asked}");
    let notes = notes(&told);
    assert!(notes[0].contains("watching pods: its version has expired (410)"), "{notes:?}");
    assert!(notes[1].starts_with("pods were listed anew: what came and went between"), "{notes:?}");
}

#[test]
fn a_server_that_forgot_everything_while_the_watch_was_down_is_listed_again() {
    let server = usual();
    let mut watched = watch(&server);
    server.until("all is watched", |server| server.open_watches() == 5);
    server.remove("pods", "default", "web-a");
    watched.until_pod("web-a", |change| change == PodChange::Deleted);
    server.fault(Verb::Watch, "pods", Fault::Disconnect, 1);
    server.compact();
    server.apply(pod("web-b", "10.244.1.8"));
    watched.until_pod("web-b", |change| change == PodChange::Added);
    assert!(losses(&watched.finish()) >= 1);
}

#[test]
fn retry_after_is_heeded() {
    let server = usual();
    let mut watched = watch(&server);
    server.until("all is watched", |server| server.open_watches() == 5);
    server.fault(Verb::Watch, "pods", Fault::Status { code: 429, retry_after: Some(2) }, 1);
    // The watch ends, and its next request is refused.
    server.fault(Verb::Watch, "pods", Fault::End, 1);
    let begun = Instant::now();
    server.until("it is refused", |server| server.faults_due() == 0);
    let asked = server.count(Verb::Watch, "pods");
    server.apply(pod("web-b", "10.244.1.8"));
    watched.until_pod("web-b", |change| change == PodChange::Added);
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(server.count(Verb::Watch, "pods"), asked + 1);
    let told = watched.finish();
    assert_eq!(losses(&told), 0);
    assert!(notes(&told)[0].contains("the API server is busy (429)"), "{:?}", notes(&told));
}

#[test]
fn a_server_that_ends_every_watch_at_once_is_not_asked_without_end() {
    let server = usual();
    let watched = watch(&server);
    server.until("all is watched", |server| server.open_watches() == 5);
    let (asked, begun) = (server.asked().len(), Instant::now());
    server.fault(Verb::Watch, "pods", Fault::End, usize::MAX);
    server.until("the burst is over", |server| server.asked().len() > asked + 15);
    while begun.elapsed() < Duration::from_secs(3) {
        std::thread::sleep(Duration::from_millis(50));
    }
    // A burst of 30, and four a second from then on.
    let asked = server.asked().len() - asked;
    assert!(asked < 30 + 3 * 4 + 8, "{asked}");
    drop(watched);
}

#[test]
fn a_stalled_watch_is_noticed_and_renewed() {
    let server = usual();
    let mut watched = watch_with(&server, |settings| settings.renew = Duration::from_secs(1))
        .unwrap_or_else(|error| panic!("{error}"));
    server.until("all is watched", |server| server.open_watches() >= 5);
    server.fault(Verb::Watch, "pods", Fault::Stall, 1);
    server.until("it stalls", |server| server.faults_due() == 0);
    server.apply(pod("web-b", "10.244.1.8"));
    watched.until_pod("web-b", |change| change == PodChange::Added);
    assert_eq!(losses(&watched.finish()), 0);
}

#[test]
fn a_list_that_stalls_or_breaks_is_asked_for_again() {
    for fault in [Fault::Stall, Fault::HalfLine, Fault::Disconnect, Fault::Garbage] {
        let server = usual();
        server.fault(Verb::List, "pods", fault.clone(), 1);
        let watched = watch(&server);
        assert_eq!(server.count(Verb::List, "pods"), 2, "{fault:?}");
        let pods = watched.first.events.iter().filter_map(in_words);
        assert_eq!(pods.filter(|words| words.starts_with("pod ")).count(), 2, "{fault:?}");
        let notes = watched.first.notes.join("\n");
        assert!(notes.contains("pods: "), "{fault:?}: {notes}");
    }
}

#[test]
fn what_is_broken_at_the_end_is_a_gap() {
    let server = usual();
    let mut watched = watch(&server);
    server.until("all is watched", |server| server.open_watches() == 5);
    let out = Fault::Status { code: 503, retry_after: None };
    // The open watch breaks, and no other one comes about.
    server.fault(Verb::Watch, "pods", Fault::Disconnect, 1);
    server.fault(Verb::Watch, "pods", out, usize::MAX);
    watched.until("trouble", |update| matches!(update, Update::Note(_)));
    assert_eq!(losses(&watched.finish()), 1);
}

#[test]
fn a_kind_that_may_not_be_watched_is_named_with_what_that_costs() {
    let server = usual();
    server.deny(None, "deployments");
    let watched = watch(&server);
    expect![[r#"not allowed to list and watch deployments: when a rollout began and was complete is not known (deployments is forbidden: User "tester" cannot list resource "deployments" in API group "apps" in the namespace "default")"#]]
        .assert_eq(&watched.first.notes[0]);
    assert_eq!(server.count(Verb::List, "deployments"), 1);
}

#[test]
fn an_account_of_one_namespace_sees_the_pods_of_that() {
    let server = usual();
    server.deny_everywhere(Verb::List, "pods");
    let watched = watch(&server);
    let pods = watched.first.events.iter().filter_map(in_words);
    assert_eq!(pods.filter(|words| words.starts_with("pod ")).count(), 2);
    let note = &watched.first.notes[0];
    assert!(note.starts_with("pods only of the namespace default ("), "{note}");
}
