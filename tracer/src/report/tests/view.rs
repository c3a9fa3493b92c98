//! The report of a small trace, and its story.

use expect_test::expect;

use crate::correlate::testing::{rollout, scene, timeline};
use crate::report::{Report, html, view};
use crate::verdict::{Settings, assess};

fn report(text: &str) -> Report {
    let scene = scene(text);
    let timeline = timeline(&scene);
    view::build(&scene.header, &timeline, &assess(&scene.header, &timeline, &Settings::default()))
}

const REUSED: &str = "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    blackhole 40002 isn 2 left 90.5s to a request 2
         129.5s request 3 40002 ok 1100ms
         129.501s syn 40002 isn 3 left 1s to a
         130.6s syn 40002 isn 3 left 120s to b
         130.601s synack 40002 isn 3 from b
         131s   state 40002 established close-wait
         132s   state 40002 established fin-wait";

#[test]
fn a_late_failure_has_its_story() {
    let report = report(&rollout(REUSED));
    let story = &report.stories[0];
    let mut said = format!("{}\n", story.title);
    for step in &story.steps {
        let seq = step.seq.map_or(String::new(), |seq| format!(" {seq}"));
        said += &format!("{:.3}{seq} {}\n", step.time, step.text);
    }
    expect![[r#"
        request 2 from port 40002: connect-timeout (late), because of stale-entry-reuse
        9.902 #45 a answers for the last time
        10.000 #48 a is asked to go
        10.501 #53 request 1, which ends in connect-timeout, sends a SYN from the same port 40002; its entry points at 10.0.1.7:8080
        10.900 #54 a is gone: its object is deleted
        40.000 #176 request 2 starts
        40.001 #178 port 40002 comes round: the SYN meets the old entry (29.5 s old, SYN_SENT) to a
        41.001 #183 the SYN is sent again (1), on the same entry
        42.001 #188 the SYN is sent again (2), on the same entry
        43.000 #192 it ends after 3.00 s: connect-timeout; its SYN met an entry 29.5 s old in SYN_SENT to a, gone for 30.0 s
    "#]].assert_eq(&said);
}

#[test]
fn the_report_names_the_events_behind_failures_and_entries() {
    let report = report(&rollout(REUSED));
    expect![[r#"
        (
            [
                FailureRow {
                    request: RequestId(
                        1,
                    ),
                    start: 10.5,
                    total: 3.0,
                    source: Some(
                        10.0.0.5:40002,
                    ),
                    symptom: ConnectTimeout,
                    cause: StaleRules,
                    late: false,
                    backend: Some(
                        10.0.1.7:8080,
                    ),
                    pod: Some(
                        "a",
                    ),
                    entry_age: Some(
                        0.0,
                    ),
                    since_gone: Some(
                        0.5,
                    ),
                    by: None,
                    why: "the rules chose a afresh, gone for 0.50 s",
                    evidence: [
                        Seq(
                            48,
                        ),
                        Seq(
                            52,
                        ),
                        Seq(
                            53,
                        ),
                        Seq(
                            54,
                        ),
                        Seq(
                            59,
                        ),
                        Seq(
                            65,
                        ),
                        Seq(
                            70,
                        ),
                    ],
                },
                FailureRow {
                    request: RequestId(
                        2,
                    ),
                    start: 40.0,
                    total: 3.0,
                    source: Some(
                        10.0.0.5:40002,
                    ),
                    symptom: ConnectTimeout,
                    cause: StaleEntryReuse,
                    late: true,
                    backend: Some(
                        10.0.1.7:8080,
                    ),
                    pod: Some(
                        "a",
                    ),
                    entry_age: Some(
                        29.5,
                    ),
                    since_gone: Some(
                        30.0,
                    ),
                    by: None,
                    why: "its SYN met an entry 29.5 s old in SYN_SENT to a, gone for 30.0 s",
                    evidence: [
                        Seq(
                            48,
                        ),
                        Seq(
                            53,
                        ),
                        Seq(
                            54,
                        ),
                        Seq(
                            176,
                        ),
                        Seq(
                            178,
                        ),
                        Seq(
                            183,
                        ),
                        Seq(
                            188,
                        ),
                        Seq(
                            192,
                        ),
                    ],
                },
            ],
            [
                SurvivorRow {
                    request: Some(
                        RequestId(
                            3,
                        ),
                    ),
                    start: 129.5,
                    source: 10.0.0.5:40002,
                    backend: 10.0.1.7:8080,
                    entry_age: 119.0,
                    why: "the entry expired in the middle: its SYN sent again after 1.10 s went to 10.0.1.8:8080",
                    evidence: [
                        Seq(
                            48,
                        ),
                        Seq(
                            53,
                        ),
                        Seq(
                            54,
                        ),
                        Seq(
                            541,
                        ),
                        Seq(
                            547,
                        ),
                        Seq(
                            548,
                        ),
                    ],
                },
            ],
            EntriesRow {
                stale: 1,
                pointing_at: [
                    PointingAtRow {
                        backend: 10.0.1.7:8080,
                        pod: Some(
                            "a",
                        ),
                        entries: 1,
                    },
                ],
                list: [
                    EntryRow {
                        source: 10.0.0.5:40002,
                        service: 10.96.0.1:80,
                        backend: 10.0.1.7:8080,
                        made: 10.501,
                        expires: Some(
                            130.501,
                        ),
                        met: 2,
                        seqs: [
                            Seq(
                                53,
                            ),
                        ],
                    },
                ],
            },
        )
    "#]].assert_debug_eq(&(report.failed, report.survived, report.entries));
}

#[test]
fn counts_add_up() {
    let report = report(&rollout(REUSED));
    let early: u64 = report.failures.early.values().sum();
    let late: u64 = report.failures.late.values().sum();
    assert_eq!(early + late, report.requests.failed);
    assert_eq!(late, report.requests.late);
    let bins: u64 = report.bins.iter().map(|bin| bin.ok + bin.early + bin.late).sum();
    assert_eq!(bins, report.requests.total);
    assert_eq!((report.closes.server, report.closes.client), (1, 1));
    assert_eq!(report.requests.slowed, 1);
    expect![[r#"
        (
            ExposureRow {
                attempts: 2,
                failed: 1,
            },
            ContrastRow {
                stale_failed: 1,
                stale_ok: 1,
                other_failed: 0,
                other_ok: 132,
                p_value: Some(
                    0.014925373134327263,
                ),
            },
            [
                PodRow {
                    name: "a",
                    address: Some(
                        10.0.1.7,
                    ),
                    asked: Some(
                        10.0,
                    ),
                    gone: Some(
                        10.0,
                    ),
                    rules_lag: Some(
                        0.501,
                    ),
                },
                PodRow {
                    name: "b",
                    address: Some(
                        10.0.1.8,
                    ),
                    asked: None,
                    gone: None,
                    rules_lag: None,
                },
            ],
            ClockRow {
                began_unix: 0.0,
                error: 1e-6,
                duration: 149.05,
            },
        )
    "#]]
    .assert_debug_eq(&(report.exposure, report.contrast, report.pods, report.clock));
}

#[test]
fn the_same_trace_gives_the_same_bytes() {
    let text = rollout(REUSED);
    let once = serde_json::to_string(&report(&text)).expect("a report is JSON");
    assert_eq!(once, serde_json::to_string(&report(&text)).expect("a report is JSON"));
}

#[test]
fn the_way_of_a_syn_ends_where_it_was_lost() {
    let report = report(&rollout(REUSED));
    let path = report.pictures.path.expect("a failed connect has one");
    let mut said = format!("request {}\n", path.request.0);
    for stop in path.stops {
        said += &format!("{:?}: {}: {}\n", stop.kind, stop.place, stop.what);
    }
    expect![[r#"
        request 2
        Client: client, 10.0.0.5: a SYN from port 40002 to the service 10.96.0.1:80
        Conntrack: n1, conntrack: finds an entry 29.5 s old in SYN_SENT, made by request 1 from the same port: it says a, 10.0.1.7:8080, so the rules are not asked
        Device: n1, device 1: sent out to a, 10.0.1.7:8080
        Pod: a, 10.0.1.7:8080: gone for 30.0 s: nobody answers
        End: client: gives up after 3.00 s and 3 SYNs without an answer
    "#]].assert_eq(&said);
}

#[test]
fn a_request_on_a_kept_connection_sent_no_syn_and_is_no_connect() {
    let report = report(&rollout(
        "0s       pod c 10.0.1.9 added
         9.5s     connect 40002 isn 1 to c keep
         9.51s    state 40002 syn-sent established
         14s      pod c 10.0.1.9 asked
         19s      request 2 40002 closed 10ms nth 1
         19.009s  state 40002 established close-wait
         19.5s    pod c 10.0.1.9 deleted",
    ));
    assert_eq!(report.failed.len(), 1);
    assert_eq!(report.pictures.path, None);
    assert_eq!(report.pictures.kept.len(), 1);
    assert!(!html::render(&report).contains("data-late="));
}

#[test]
fn connects_are_dots_and_failed_ones_have_stories() {
    let report = report(&rollout(REUSED));
    let dots: u64 = report.pictures.attempts.iter().map(|dot| dot.stands_for).sum();
    assert_eq!(dots, report.requests.total - report.requests.failed);
    assert!(report.pictures.attempts.iter().all(|dot| dot.answered));
    let told: Vec<usize> = report.pictures.stories.keys().copied().collect();
    assert_eq!(told, (0..report.failed.len()).collect::<Vec<_>>());
}
