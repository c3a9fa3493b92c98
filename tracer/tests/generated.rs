//! Generated traces are what they claim to be: the whole way from events to report finds in them what was
//! put there.

#[path = "support/generator.rs"]
mod generator;

use std::convert::Infallible;
use std::time::Duration;

use generator::{Settings, Truth};
use tracer::correlate::{Correlator, Timeline};
use tracer::model::{Event, MonoNs, Seq, TraceHeader};
use tracer::verdict::{self, Cause, VerdictOutcome};

fn events(settings: &Settings) -> (Vec<Event>, Truth) {
    let mut events = Vec::new();
    let result: Result<Truth, Infallible> = generator::generate(settings, &mut |event| {
        events.push(event.clone());
        Ok(())
    });
    let Ok(truth) = result;
    (events, truth)
}

fn timeline(header: &TraceHeader, events: &[Event]) -> Timeline {
    let mut correlator = Correlator::new(header);
    for (seq, event) in events.iter().enumerate() {
        correlator.apply(Seq(seq as u64), event);
    }
    correlator.finish()
}

/// Two rollouts, and time for the ports to come round after each.
fn settings() -> Settings {
    Settings { rollout_every: Duration::from_secs(120), ..Settings::new(360_000, 7) }
}

#[test]
fn a_generated_trace_is_judged_as_it_was_made() {
    let (events, truth) = events(&settings());
    assert!(truth.events >= 360_000 && truth.rollouts == 2, "{truth:?}");
    assert!(truth.stale_rules > 20 && truth.late > 20 && truth.refused > 0, "{truth:?}");

    let header = generator::header(&settings());
    let timeline = timeline(&header, &events);
    assert_eq!(timeline.requests.ended, truth.requests);
    assert_eq!(timeline.requests.unfinished, 0);

    let verdict = verdict::assess(&header, &timeline, &verdict::Settings::default());
    let count = |cause, late| {
        let findings = verdict.findings.iter();
        findings.filter(|it| (it.cause, it.late) == (cause, late)).count() as u64
    };
    assert_eq!(count(Cause::StaleEntryReuse, true), truth.late);
    assert_eq!(count(Cause::StaleEntryReuse, false), truth.early);
    assert_eq!(count(Cause::StaleRules, false), truth.stale_rules);
    assert_eq!(count(Cause::PodNotServing, false), truth.refused);
    let failed = truth.late + truth.early + truth.stale_rules + truth.refused;
    assert_eq!(verdict.findings.len() as u64, failed);
    assert_eq!(verdict.hypothesis.outcome, VerdictOutcome::Supported, "{verdict:#?}");
    assert_eq!(verdict.hypothesis.share, Some(1.0));
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_one_another() {
    let few = |seed| events(&Settings::new(2_000, seed));
    assert_eq!(few(3), few(3));
    assert_ne!(few(3).0, few(4).0);
}

#[test]
fn events_are_in_the_order_of_their_times() {
    let (events, truth) = events(&Settings::new(50_000, 5));
    assert_eq!(truth.events, events.len() as u64);
    let times: Vec<MonoNs> = events.iter().map(|event| event.time).collect();
    assert!(times.is_sorted());
}
