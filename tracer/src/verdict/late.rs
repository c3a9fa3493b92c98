//! Early and late: where a moment stands against the rollouts.

use std::time::Duration;

use crate::correlate::Timeline;
use crate::model::MonoNs;

use super::Settings;

/// What lateness is measured from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// The rollouts that the trace tells of.
    Rollouts,
    /// A rollout whose times were given.
    Given,
    /// There was no rollout: each deletion of a pod stands for one, complete when the pod is gone.
    Deletions,
    /// Nothing happened after which anything could be late.
    Nothing,
}

/// The times at which a rollout was under way, those that overlap made one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollouts {
    /// What they come from.
    pub reference: Reference,
    /// How long after the end "late" begins.
    pub late_after: Duration,
    /// Start and end, in order, apart from each other by more than `late_after`. An end of `u64::MAX` is
    /// a rollout that was not complete when the trace ended.
    spans: Vec<(MonoNs, MonoNs)>,
}

impl Rollouts {
    pub(super) fn new(timeline: &Timeline, settings: &Settings) -> Rollouts {
        let never = MonoNs(u64::MAX);
        let given = settings.rollout_start.is_some() || settings.rollout_end.is_some();
        let (reference, spans) = if given {
            let start = settings.rollout_start.unwrap_or(timeline.began);
            (Reference::Given, vec![(start, settings.rollout_end.unwrap_or(never))])
        } else if !timeline.rollouts.is_empty() {
            let span = timeline.rollouts.iter().map(|rollout| {
                let start = rollout.started.map_or(timeline.began, |seen| seen.time);
                (start, rollout.finished.map_or(never, |seen| seen.time))
            });
            (Reference::Rollouts, span.collect())
        } else {
            let span = timeline.pods.lives().iter().filter_map(|life| {
                let gone = life.gone()?;
                Some((life.asked.map_or(gone, |asked| asked.time.min(gone)), gone))
            });
            (Reference::Deletions, span.collect::<Vec<_>>())
        };
        let reference = if spans.is_empty() { Reference::Nothing } else { reference };
        Rollouts {
            reference,
            late_after: settings.late_after,
            spans: merged(spans, settings.late_after),
        }
    }

    /// Whether what started then was late: after a rollout was complete by more than `late_after`, and
    /// while no other was under way.
    pub fn is_late(&self, start: MonoNs) -> bool {
        self.spans.iter().any(|(_, end)| self.late_from(*end) < start)
            && !self
                .spans
                .iter()
                .any(|(began, end)| *began <= start && start <= self.late_from(*end))
    }

    /// When the first of them began.
    pub fn first_start(&self) -> Option<MonoNs> {
        self.spans.first().map(|(start, _)| *start)
    }

    /// When the last of them that did end was complete.
    pub fn last_end(&self) -> Option<MonoNs> {
        self.spans.iter().rev().map(|(_, end)| *end).find(|end| end.0 != u64::MAX)
    }

    /// When the first late period begins.
    pub fn first_late(&self) -> Option<MonoNs> {
        self.spans
            .first()
            .map(|(_, end)| *end)
            .filter(|end| end.0 != u64::MAX)
            .map(|end| self.late_from(end))
    }

    fn late_from(&self, end: MonoNs) -> MonoNs {
        end + self.late_after
    }
}

fn merged(mut spans: Vec<(MonoNs, MonoNs)>, gap: Duration) -> Vec<(MonoNs, MonoNs)> {
    spans.sort();
    let mut merged: Vec<(MonoNs, MonoNs)> = Vec::new();
    for (start, end) in spans {
        match merged.last_mut() {
            Some((_, before)) if start <= *before + gap => *before = end.max(*before),
            _ => merged.push((start, end)),
        }
    }
    merged
}
