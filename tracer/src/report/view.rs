//! The report as plain values, from header, timeline and verdict. Decides nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::pictures;
use super::story;
use super::words;
use super::{
    BinRow, ClockRow, CloseCounts, ContrastRow, EarlyLate, EntriesRow, EntryRow, ExposureRow,
    FailureRow, HookRow, HypothesisRow, LateRow, LossRow, MeasuredFrom, ModelRow, NamesRow,
    OriginRow, PodRow, PointingAtRow, Report, RequestCounts, RolloutRow, SurvivorRow,
};
use crate::correlate::Timeline;
use crate::model::{HookStatus, LossSource, MonoNs, Origin, TraceHeader};
use crate::verdict::gone::{StaleEntry, stale_entries};
use crate::verdict::{Fate, Judgement, Reference, Verdict};

/// The width of the report's bins, in seconds.
const BIN: f64 = 10.0;

/// Builds the report.
pub fn build(header: &TraceHeader, timeline: &Timeline, verdict: &Verdict) -> Report {
    let view = View { header, timeline, verdict };
    let stale = stale_entries(timeline);
    Report {
        schema: 1,
        hypothesis: hypothesis(&verdict.hypothesis),
        rivals: verdict.rivals.iter().map(hypothesis).collect(),
        requests: view.requests(),
        names: view.names(),
        failures: early_late(verdict.findings.iter().map(|finding| (finding.late, finding.cause))),
        symptoms: early_late(
            verdict
                .findings
                .iter()
                .zip(&timeline.failures)
                .map(|(finding, failure)| (finding.late, failure.symptom)),
        ),
        contrast: view.contrast(),
        exposure: ExposureRow {
            attempts: verdict.exposed.len() as u64,
            failed: verdict.exposed.iter().filter(|it| it.fate == Fate::Failed).count() as u64,
        },
        model: verdict.model.map(|model| ModelRow {
            expected: model.expected,
            low: model.low,
            high: model.high,
            observed: model.observed,
        }),
        entries: view.entries(&stale),
        rollouts: view.rollouts(),
        late: view.late(),
        pods: view.pods(),
        hooks: header.hooks.iter().map(hook).collect(),
        losses: view.losses(),
        clock: view.clock(),
        bins: view.bins(),
        failed: view.failed(),
        survived: view.survived(),
        closes: CloseCounts { client: timeline.closes.0, server: timeline.closes.1 },
        counters: view.counters(),
        origin: view.origin(),
        stories: story::of_interest(verdict)
            .map(|index| story::tell(header, timeline, verdict, index))
            .into_iter()
            .collect(),
        notes: view.notes(),
        pictures: pictures::build(header, timeline, verdict),
    }
}

struct View<'a> {
    header: &'a TraceHeader,
    timeline: &'a Timeline,
    verdict: &'a Verdict,
}

impl View<'_> {
    fn at(&self, time: MonoNs) -> f64 {
        time.seconds_from(self.timeline.began)
    }

    fn requests(&self) -> RequestCounts {
        let counts = &self.timeline.requests;
        RequestCounts {
            total: counts.ended,
            failed: counts.failed,
            late: self.verdict.findings.iter().filter(|finding| finding.late).count() as u64,
            slowed: counts.slowed,
            slow_names: counts.slow_names,
            unfinished: counts.unfinished,
        }
    }

    fn names(&self) -> Option<NamesRow> {
        let names = &self.timeline.requests.names;
        let of_resolved = |seconds: f64| (names.resolved() > 0).then_some(seconds);
        (names.asked > 0).then(|| NamesRow {
            asked: names.asked,
            failed: names.failed,
            mean: of_resolved(names.took.as_secs_f64() / names.resolved() as f64),
            longest: of_resolved(names.longest.as_secs_f64()),
        })
    }

    fn contrast(&self) -> ContrastRow {
        let contrast = &self.verdict.contrast;
        ContrastRow {
            stale_failed: contrast.stale_failed,
            stale_ok: contrast.stale_ok,
            other_failed: contrast.other_failed,
            other_ok: contrast.other_ok,
            p_value: contrast.p_value,
        }
    }

    fn entries(&self, stale: &[StaleEntry<'_>]) -> EntriesRow {
        let mut pointing: BTreeMap<SocketAddr, (Option<String>, u64)> = BTreeMap::new();
        for stale in stale {
            let known = pointing.entry(stale.entry.backend).or_default();
            known.0 = Some(stale.pod.name.clone());
            known.1 += 1;
        }
        EntriesRow {
            stale: stale.len() as u64,
            pointing_at: pointing
                .into_iter()
                .map(|(backend, (pod, entries))| PointingAtRow { backend, pod, entries })
                .collect(),
            list: stale
                .iter()
                .map(|StaleEntry { entry, .. }| EntryRow {
                    source: entry.orig.src,
                    service: entry.orig.dst,
                    backend: entry.backend,
                    made: self.at(entry.made.unwrap_or(entry.shown.time)),
                    expires: entry.end().map(|end| self.at(end)),
                    met: entry.met,
                    seqs: vec![entry.maker.map_or(entry.shown.seq, |maker| maker.seen.seq)],
                })
                .collect(),
        }
    }

    fn rollouts(&self) -> Vec<RolloutRow> {
        let rollouts = self.timeline.rollouts.iter();
        rollouts
            .map(|rollout| RolloutRow {
                deployment: rollout.deployment.clone(),
                started: rollout.started.map(|seen| self.at(seen.time)),
                finished: rollout.finished.map(|seen| self.at(seen.time)),
            })
            .collect()
    }

    fn pods(&self) -> Vec<PodRow> {
        let lives = self.timeline.pods.lives().iter();
        lives
            .map(|life| {
                let gone = life.gone();
                let lag = gone.zip(life.last_fresh).filter(|(gone, fresh)| fresh.time > *gone);
                PodRow {
                    name: life.name.clone(),
                    address: life.address,
                    asked: life.asked.map(|seen| self.at(seen.time)),
                    gone: gone.map(|gone| self.at(gone)),
                    rules_lag: lag.map(|(gone, fresh)| fresh.time.seconds_from(gone)),
                }
            })
            .collect()
    }

    fn losses(&self) -> Vec<LossRow> {
        let losses = self.timeline.losses.iter();
        losses
            .map(|loss| LossRow {
                source: loss.source.name(),
                count: loss.count,
                at_least: !loss.source.is_counted(),
                from: self.at(loss.from),
                to: self.at(loss.to),
            })
            .collect()
    }

    fn clock(&self) -> ClockRow {
        let anchor = &self.header.anchor;
        let began = self.timeline.began.seconds_from(anchor.mono);
        ClockRow {
            began_unix: anchor.wall.0 as f64 / 1e9 + began,
            error: anchor.error_ns as f64 / 1e9,
            duration: self.at(self.timeline.ended),
        }
    }

    fn bins(&self) -> Vec<BinRow> {
        let mut bins: BTreeMap<u64, BinRow> = BTreeMap::new();
        let mut bin = |time: MonoNs, count: &dyn Fn(&mut BinRow)| {
            let index = (self.at(time).max(0.0) / BIN).floor();
            let row = bins
                .entry(index as u64)
                .or_insert_with(|| BinRow { from: index * BIN, ..BinRow::default() });
            count(row);
        };
        for (start, counts) in self.timeline.tally.bins() {
            if counts.started > 0 || counts.ok > 0 {
                bin(start, &|row| row.ok += counts.ok);
            }
        }
        for (failure, finding) in self.timeline.failures.iter().zip(&self.verdict.findings) {
            bin(failure.start, &|row| {
                let side = if finding.late { &mut row.late } else { &mut row.early };
                *side += 1;
            });
        }
        bins.into_values().collect()
    }

    fn failed(&self) -> Vec<FailureRow> {
        let failures = self.timeline.failures.iter().zip(&self.verdict.findings);
        failures
            .map(|(failure, finding)| FailureRow {
                request: failure.ended.id,
                start: self.at(failure.start),
                total: failure.ended.total.as_secs_f64(),
                // Some logs have no port where the connect failed; its packets do.
                source: failure.ended.source.or(failure.attempt.as_ref().map(|it| it.orig.src)),
                symptom: failure.symptom,
                cause: finding.cause,
                late: finding.late,
                backend: finding.backend,
                pod: finding.pod.clone(),
                entry_age: finding.entry_age.map(|age| age.as_secs_f64()),
                since_gone: finding.since_gone.map(|since| since.as_secs_f64()),
                by: failure.by.as_ref().map(|by| words::process(by, self.timeline)),
                why: if finding.missing.is_empty() {
                    finding.why.clone()
                } else {
                    format!("{} (missing: {})", finding.why, finding.missing.join("; "))
                },
                evidence: finding.evidence.clone(),
            })
            .collect()
    }

    fn survived(&self) -> Vec<SurvivorRow> {
        let exposed = self.verdict.exposed.iter();
        exposed
            .filter_map(|exposed| {
                let why = match &exposed.fate {
                    Fate::Failed => return None,
                    Fate::Explained(why) | Fate::Unexplained(why) => why.clone(),
                    Fate::Open => "it was still open when the trace ended".to_owned(),
                };
                Some(SurvivorRow {
                    request: exposed.request,
                    start: self.at(exposed.start),
                    source: exposed.source,
                    backend: exposed.backend,
                    entry_age: exposed.entry_age.unwrap_or_default().as_secs_f64(),
                    why,
                    evidence: exposed.evidence.clone(),
                })
            })
            .collect()
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        let renewal = self.timeline.renewal;
        let mut counters: BTreeMap<String, u64> = self
            .timeline
            .counters
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect();
        counters.insert("retransmissions that renewed an entry".to_owned(), renewal.renewed);
        counters.insert("retransmissions that did not renew an entry".to_owned(), renewal.kept);
        counters
    }

    fn origin(&self) -> OriginRow {
        let (command, seed) = match &self.header.origin {
            Origin::Lab { command, seed } => (command, Some(*seed)),
            Origin::Record { command } | Origin::Replay { command } => (command, None),
        };
        let name = |sysctl: &crate::model::Sysctl| {
            let known = self.header.netns.iter().find(|netns| netns.id == sysctl.netns);
            known.map_or_else(|| sysctl.netns.0.to_string(), |netns| netns.name.clone())
        };
        OriginRow {
            tracer: self.header.tracer.clone(),
            command: command.clone(),
            seed,
            kernel: self.header.kernel.clone(),
            node: self.header.node.clone(),
            sysctls: self
                .header
                .sysctls
                .iter()
                .map(|sysctl| (format!("{} {}", name(sysctl), sysctl.name), sysctl.value.clone()))
                .collect(),
        }
    }

    fn late(&self) -> LateRow {
        let rollouts = &self.verdict.rollouts;
        LateRow {
            measured_from: match rollouts.reference {
                Reference::Rollouts => MeasuredFrom::Rollouts,
                Reference::Given => MeasuredFrom::Given,
                Reference::Deletions => MeasuredFrom::Deletions,
                Reference::Nothing => MeasuredFrom::Nothing,
            },
            from: rollouts.first_late().map(|from| self.at(from)),
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.header.notes.clone();
        if self.verdict.rollouts.reference == Reference::Deletions {
            notes.push(
                "There was no rollout: late is measured from each pod's going, as if it were one."
                    .to_owned(),
            );
        }
        let disordered: u64 = self
            .timeline
            .losses
            .iter()
            .filter(|loss| loss.source == LossSource::Ordering)
            .map(|loss| loss.count)
            .sum();
        if disordered > 0 {
            let events = words::counted(disordered, "event");
            notes.push(format!("{events} came out of order, and kept all the same."));
        }
        if self.timeline.renewal.renews() == Some(true) {
            notes.push(
                "This kernel restarts an unreplied entry's timer at each SYN, so an entry's age is \
                 told from its maker, not from its remaining life."
                    .to_owned(),
            );
        }
        notes
    }
}

fn hypothesis(judgement: &Judgement) -> HypothesisRow {
    HypothesisRow {
        name: judgement.name,
        outcome: judgement.outcome,
        share: judgement.share,
        proven: judgement.proven,
        reasons: judgement.reasons.clone(),
    }
}

fn early_late<K: Ord + serde::Serialize>(of: impl Iterator<Item = (bool, K)>) -> EarlyLate<K> {
    let mut counts = EarlyLate::default();
    for (late, what) in of {
        let side = if late { &mut counts.late } else { &mut counts.early };
        *side.entry(what).or_default() += 1;
    }
    counts
}

fn hook(status: &HookStatus) -> HookRow {
    HookRow {
        name: status.hook.name().to_owned(),
        attached: status.attached,
        note: status.note.clone(),
    }
}
