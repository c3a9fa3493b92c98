//! Continuous tracing of a recorded lab run: it says of the rollout what a replay says.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tracer::files::TraceReader;
use tracer::model::{Event, EventKind, MonoNs};
use tracer::monitor::{Judged, Monitor};
use tracer::pipeline;
use tracer::report::{Report, view};
use tracer::verdict::{self, VerdictOutcome};

fn trace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/quick-lab.trace")
}

fn replayed() -> Report {
    let mut reader = TraceReader::open(&trace()).expect("the trace is there");
    let timeline = pipeline::replay(&mut reader, &mut |_| {}).expect("it can be read");
    let verdict = verdict::assess(reader.header(), &timeline, &verdict::Settings::default());
    view::build(reader.header(), &timeline, &verdict)
}

/// Its events, so many times, one after the other, an hour apart.
fn watched(times: u64, most: usize) -> (Vec<Judged>, usize) {
    let mut reader = TraceReader::open(&trace()).expect("the trace is there");
    let header = reader.header().clone();
    let mut events: Vec<Event> = Vec::new();
    while let Some(event) = reader.advance().expect("it can be read") {
        events.push(event.clone());
    }
    events.retain(|event| !matches!(event.kind, EventKind::Ended));
    let mut monitor = Monitor::new(header, verdict::Settings::default(), most);
    let mut judged = Vec::new();
    let mut peak = 0;
    for time in 0..times {
        let later = |at: MonoNs| at + Duration::from_secs(3600 * time);
        for event in &events {
            let kind = match &event.kind {
                EventKind::Cluster { change, since } => {
                    EventKind::Cluster { change: change.clone(), since: later(*since) }
                }
                other => other.clone(),
            };
            monitor.accept(&Event { time: later(event.time), kind });
            peak = peak.max(monitor.bytes());
        }
        let end = later(events.last().expect("there are events").time);
        for second in 0..300 {
            judged.extend(monitor.tick(end + Duration::from_secs(second)));
        }
        assert_eq!(monitor.open(), 0);
    }
    assert_eq!(monitor.judge_open().len(), 0, "all are judged");
    (judged, peak)
}

#[test]
fn a_rollout_is_judged_as_a_replay_judges_it() {
    let (judged, _) = watched(1, usize::MAX);
    let [Judged { deployment, report, .. }] = &judged[..] else { panic!("{}", judged.len()) };
    assert_eq!(deployment, "web");
    let replayed = replayed();
    assert_eq!(report.hypothesis.outcome, VerdictOutcome::Supported);
    assert_eq!(report.hypothesis.outcome, replayed.hypothesis.outcome);
    assert_eq!(report.failures, replayed.failures);
    assert_eq!(report.requests.total, replayed.requests.total);
    assert_eq!(report.entries.stale, replayed.entries.stale);
    assert_eq!(report.exposure, replayed.exposure);
}

#[test]
fn each_of_many_rollouts_is_judged_by_itself_and_memory_does_not_grow() {
    let (judged, peak) = watched(5, usize::MAX);
    let (_, one) = watched(1, usize::MAX);
    assert_eq!(judged.len(), 5);
    for Judged { report, .. } in &judged {
        assert_eq!(report.hypothesis.outcome, VerdictOutcome::Supported);
        assert_eq!(report.failures, judged[0].report.failures);
        assert_eq!(report.requests.total, judged[0].report.requests.total);
        assert_eq!(report.rollouts.len(), 1);
    }
    assert!(peak < 2 * one, "{peak} and {one} bytes");
}

#[test]
fn too_little_memory_makes_it_inconclusive_and_says_so() {
    let most = 64 * 1024;
    let (judged, peak) = watched(1, most);
    assert!(peak <= 2 * most, "{peak}");
    let [Judged { report, .. }] = &judged[..] else { panic!("{}", judged.len()) };
    assert_eq!(report.hypothesis.outcome, VerdictOutcome::Inconclusive);
    let reasons = report.hypothesis.reasons.join("; ");
    assert!(reasons.contains("were lost (memory for events)"), "{reasons}");
}
