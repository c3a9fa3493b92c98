//! What becomes of the reused source port, given findings, contrast, exposure and losses.

use crate::correlate::{Loss, Timeline};
use crate::model::{LossSource, MonoNs, Origin, TraceHeader};

use super::applies;
use super::exposure::{Contrast, Exposed, Fate};
use super::gone::StaleEntry;
use super::judge::{Finding, seconds};
use super::late::{Reference, Rollouts};
use super::{Cause, HypothesisName, Judgement, VerdictOutcome, lost_in_words};

/// What the rules look at.
pub(super) struct Case<'a> {
    pub(super) header: &'a TraceHeader,
    pub(super) timeline: &'a Timeline,
    pub(super) rollouts: &'a Rollouts,
    pub(super) findings: &'a [Finding],
    pub(super) exposed: &'a [Exposed],
    pub(super) stale: &'a [StaleEntry<'a>],
    pub(super) contrast: &'a Contrast,
}

impl Case<'_> {
    pub(super) fn late(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.late)
    }

    /// Judges the reused source port.
    pub(super) fn reused_source_port(&self) -> Judgement {
        let late = self.late().count();
        let reused: Vec<&Finding> =
            self.late().filter(|finding| finding.cause.is_reused_port()).collect();
        let whole = reused.iter().filter(|finding| finding.missing.is_empty()).count();
        let blockers = self.blockers();
        let falsifiers = self.falsifiers();
        let alive = self.dead_that_answer();
        let (outcome, mut reasons) = if late == 0 && !self.has_unexplained() {
            self.without_late_failures(&blockers)
        } else if blockers.is_empty() && falsifiers.is_empty() && alive.is_empty() && whole > 0 {
            self.with_evidence(late, whole, &reused)
        } else if blockers.is_empty()
            && reused.is_empty()
            && self.not_logged().is_none()
            && self.all_are_something_else()
        {
            (VerdictOutcome::Refuted, self.refutation(late))
        } else {
            let mut reasons = blockers;
            reasons.extend(self.not_logged());
            reasons.extend(alive);
            if whole > 0 {
                reasons.push(format!("{whole} of {late} late failures met a stale entry"));
            }
            reasons.extend(falsifiers);
            reasons.extend(self.incomplete());
            if reasons.is_empty() {
                reasons.push("no late failure has whole evidence of its cause".to_owned());
            }
            (VerdictOutcome::Inconclusive, reasons)
        };
        if outcome != VerdictOutcome::Supported {
            reasons.extend(applies::why_not(self.header, self.timeline));
        }
        reasons.dedup();
        let share = (late > 0).then(|| whole as f64 / late as f64);
        Judgement { name: HypothesisName::ReusedSourcePort, outcome, share, proven: None, reasons }
    }

    fn with_evidence(
        &self,
        late: usize,
        whole: usize,
        reused: &[&Finding],
    ) -> (VerdictOutcome, Vec<String>) {
        let mut reasons = vec![format!(
            "{whole} of {late} late failures sent their first SYN on an older entry to a pod that was gone"
        )];
        let incomplete = reused.len() - whole;
        if incomplete > 0 {
            reasons.push(format!("{incomplete} more did so with evidence that is not whole"));
            reasons.extend(self.incomplete());
        }
        let Contrast { stale_failed, stale_ok, other_failed, other_ok, p_value } = *self.contrast;
        let p = p_value.map_or(String::new(), |p| format!(" (p = {p:.2e})"));
        reasons.push(format!(
            "late attempts that met a stale entry: {stale_failed} of {} failed; others: {other_failed} of {}{p}",
            stale_failed + stale_ok,
            other_failed + other_ok,
        ));
        let unseen = self.late().filter(|finding| finding.cause == Cause::Unseen).count();
        if incomplete + unseen >= whole {
            if incomplete == 0 {
                reasons.extend(self.incomplete());
            }
            reasons.push("most of the evidence is not whole".to_owned());
            (VerdictOutcome::Inconclusive, reasons)
        } else if self.contrast.is_clear() {
            reasons.push("nothing was lost or seen that speaks against it".to_owned());
            (VerdictOutcome::Supported, reasons)
        } else {
            reasons.push("the contrast is too weak to tell".to_owned());
            (VerdictOutcome::Inconclusive, reasons)
        }
    }

    /// No late failures: was it not there, or not seen?
    fn without_late_failures(&self, blockers: &[String]) -> (VerdictOutcome, Vec<String>) {
        let mut reasons = blockers.to_vec();
        reasons.extend(self.not_logged());
        let no_stale = self.stale.is_empty() && self.exposed.is_empty();
        if !no_stale {
            reasons.extend(self.not_covered());
        }
        if reasons.is_empty() {
            let mut reasons = vec!["no request failed late".to_owned()];
            let early =
                self.findings.iter().filter(|finding| finding.cause.is_reused_port()).count();
            if early > 0 {
                reasons.push(format!("{early} early failures met a stale entry"));
            }
            reasons.push(if no_stale {
                "no entry pointed at a pod that was gone".to_owned()
            } else {
                format!(
                    "the trace covers the life of all {} stale entries, with connects being made",
                    self.stale.len()
                )
            });
            return (VerdictOutcome::NotObserved, reasons);
        }
        reasons.insert(0, "no request failed late".to_owned());
        (VerdictOutcome::Inconclusive, reasons)
    }

    /// That no request started late, where there was something to be late after: then none could fail late.
    fn nothing_was_late(&self) -> Option<String> {
        let timeline = self.timeline;
        let from = timeline.began;
        let late = self.rollouts.first_late()?;
        if timeline.requests.ended == 0 {
            // Said by a blocker, in better words.
            return None;
        }
        let mut starts = timeline.tally.bins().filter(|(_, bin)| bin.started > 0);
        if starts.any(|(start, _)| self.rollouts.is_late(start)) {
            return None;
        }
        Some(format!(
            "no request started late: late begins at {}, the trace ends at {}",
            seconds(late.since(from)),
            seconds(timeline.ended.since(from))
        ))
    }

    /// What keeps any outcome but inconclusive from being said.
    pub(super) fn blockers(&self) -> Vec<String> {
        let timeline = self.timeline;
        let mut blockers = Vec::new();
        if !self.header.sees_syns() {
            blockers.push(match self.header.origin {
                Origin::Replay { .. } => "there is no capture: no SYN could be seen".to_owned(),
                _ => {
                    "the hook net_dev_start_xmit was not attached: no SYN could be seen".to_owned()
                }
            });
        }
        let requests = timeline.requests.ended + timeline.requests.unfinished;
        let packets = timeline.counters.get("packets").copied().unwrap_or(0);
        let replayed = matches!(self.header.origin, Origin::Replay { .. });
        if requests == 0 && packets == 0 && replayed {
            blockers.push("there is no request log: which requests failed is not known".to_owned());
        } else if requests == 0 && packets == 0 {
            blockers.push(
                "no packet and no request was seen: is the Service's address the one that clients use, \
                 and do they use it on this node?"
                    .to_owned(),
            );
        } else if requests == 0 {
            let exposed = self.exposed.len();
            blockers.push(if exposed > 0 {
                let failed = self.exposed.iter().filter(|it| it.fate == Fate::Failed).count();
                format!(
                    "no request log: {exposed} attempts met a stale entry and {failed} of them were not \
                     answered, but which requests failed is not known"
                )
            } else {
                format!(
                    "no request log: {packets} packets were seen, but which requests failed is not known"
                )
            });
        } else if timeline.requests.ended == 0 {
            blockers.push("no request ended within the trace".to_owned());
        }
        // By address alone `record` hears of no pods, and so can't say that no entry pointed at one that was gone.
        let recorded = matches!(self.header.origin, Origin::Record { .. });
        let ask_for_pods = (requests == 0 || recorded) && packets > 0
            || self.late().count() > 0
            || self.has_candidates();
        if timeline.pods.lives().is_empty() && ask_for_pods {
            blockers
                .push("no event tells of pods: which backends were gone is not known".to_owned());
        }
        if self.rollouts.reference == Reference::Nothing && !self.findings.is_empty() {
            blockers.push(
                "no rollout and no deletion was seen, so nothing can be called late".to_owned(),
            );
        }
        if self.rollouts.reference != Reference::Nothing && self.rollouts.first_late().is_none() {
            blockers.push("the rollout was not complete when the trace ended".to_owned());
        }
        blockers.extend(self.losses_that_matter());
        blockers.extend(self.nothing_was_late());
        blockers
    }

    /// Pods that stale entries point at, and whose address accepts connects after their deletion: either they are not
    /// gone, or somebody has their address of whom nothing is known.
    fn dead_that_answer(&self) -> Vec<String> {
        let mut named: Vec<String> = Vec::new();
        for stale in self.stale {
            let Some((count, last)) = stale.pod.accepted_after else { continue };
            let connects = if count == 1 { "connect" } else { "connects" };
            let said = format!(
                "the address of {} accepted {count} {connects} after its deletion, the last at {}: what is told of pods \
                 is of another time or cluster, or another pod has the address",
                stale.pod.name,
                seconds(last.time.since(self.timeline.began)),
            );
            if !named.contains(&said) {
                named.push(said);
            }
        }
        named
    }

    /// Late connects that met a stale entry and were not answered, and that no request is known of: the log has not all.
    fn not_logged(&self) -> Option<String> {
        let unlogged = self.exposed.iter().filter(|exposed| {
            exposed.late && exposed.fate == Fate::Failed && exposed.request.is_none()
        });
        match unlogged.count() {
            // Where there is no log at all, that is said in better words.
            _ if self.timeline.requests.ended == 0 => None,
            0 => None,
            count => Some(format!(
                "{count} late connects met a stale entry and were not answered, and the log has no failed request for \
                 them: it does not hold all, or is of other requests"
            )),
        }
    }

    /// Losses since the first stale entry can have been made, by source: they can hide an answer, an
    /// attempt that did not fail, a pod that was still there.
    fn losses_that_matter(&self) -> Vec<String> {
        let from = self.matters_from();
        let mut named: Vec<(LossSource, u64, MonoNs, MonoNs)> = Vec::new();
        for loss in self.timeline.losses.iter().filter(|loss| {
            loss.count > 0 && can_undo(loss) && loss.touches(from, self.timeline.ended)
        }) {
            match named.iter_mut().find(|(source, ..)| *source == loss.source) {
                Some((_, count, first, last)) => {
                    *count += loss.count;
                    *first = loss.from.min(*first);
                    *last = loss.to.max(*last);
                }
                None => named.push((loss.source, loss.count, loss.from, loss.to)),
            }
        }
        named
            .into_iter()
            .map(|(source, count, first, last)| {
                format!(
                    "{} between {} and {}",
                    lost_in_words(count, source),
                    seconds(first.since(self.timeline.began)),
                    seconds(last.since(self.timeline.began)),
                )
            })
            .collect()
    }

    /// From when on a loss can matter: the first of rollout, deletion and stale entry. All of the trace if
    /// there was none of these.
    fn matters_from(&self) -> MonoNs {
        let deletions =
            self.timeline.pods.lives().iter().flat_map(|life| [life.asked, life.deleted]);
        let deletions = deletions.flatten().map(|seen| seen.time);
        let entries = self.stale.iter().filter_map(|stale| stale.entry.made);
        deletions
            .chain(entries)
            .chain(self.rollouts.first_start())
            .min()
            .unwrap_or(self.timeline.began)
    }

    /// Observations that the hypothesis forbids.
    fn falsifiers(&self) -> Vec<String> {
        let mut falsifiers = Vec::new();
        let fresh = self.late().filter(|finding| finding.is_falsifier).count();
        if fresh > 0 {
            falsifiers.push(format!(
                "{fresh} late connects timed out on a fresh entry to a live pod, and nothing explains it"
            ));
        }
        let survived = self
            .exposed
            .iter()
            .filter(|exposed| matches!(exposed.fate, Fate::Unexplained(_)))
            .count();
        if survived > 0 {
            falsifiers.push(format!(
                "{survived} attempts met a stale entry and did not fail, and nothing explains it"
            ));
        }
        falsifiers
    }

    fn has_unexplained(&self) -> bool {
        self.exposed.iter().any(|exposed| matches!(exposed.fate, Fate::Unexplained(_)))
    }

    /// Whether everything that could have been a reused port was shown to be something else: every late
    /// failure has another cause, with whole evidence, and whoever met a stale entry did not fail.
    fn all_are_something_else(&self) -> bool {
        let late_failures = self.late().all(|finding| {
            finding.cause != Cause::Unseen && finding.missing.is_empty() && !finding.met_stale
        });
        let exposed_failed = self.exposed.iter().any(|exposed| exposed.fate == Fate::Failed);
        let something = self.late().count() > 0 || self.has_unexplained();
        late_failures && something && !(exposed_failed && self.has_unexplained())
    }

    fn refutation(&self, late: usize) -> Vec<String> {
        let mut reasons = Vec::new();
        if late > 0 {
            reasons.push(format!("all {late} late failures have another cause: {}", self.causes()));
        }
        reasons.extend(self.falsifiers());
        reasons
    }

    fn causes(&self) -> String {
        let counts = Cause::ALL.iter().filter_map(|cause| {
            let count = self.late().filter(|finding| finding.cause == *cause).count();
            (count > 0).then(|| format!("{count} {cause}"))
        });
        counts.collect::<Vec<_>>().join(", ")
    }

    /// What the late failures' evidence lacks, each lack once with its count.
    pub(super) fn incomplete(&self) -> Vec<String> {
        let mut lacks: Vec<(String, usize)> = Vec::new();
        for finding in self.late() {
            let unseen = (finding.cause == Cause::Unseen).then(|| finding.why.clone());
            let lack = finding.missing.first().cloned().or(unseen);
            if let Some(lack) = lack {
                match lacks.iter_mut().find(|(known, _)| *known == lack) {
                    Some((_, count)) => *count += 1,
                    None => lacks.push((lack, 1)),
                }
            }
        }
        lacks.into_iter().map(|(lack, count)| format!("{count} late failures: {lack}")).collect()
    }

    fn has_candidates(&self) -> bool {
        self.timeline.tally.bins().any(|(_, bin)| bin.unanswered > 0)
            || self.timeline.failures.iter().any(|failure| failure.attempt.is_some())
    }

    /// What the trace lacks to say that stale entries did no harm.
    fn not_covered(&self) -> Option<String> {
        let timeline = self.timeline;
        let ends = self.stale.iter().map(|stale| stale.entry.end());
        let Some(last) = ends.collect::<Option<Vec<MonoNs>>>() else {
            return Some("when the stale entries expired is not known".to_owned());
        };
        let last = last.into_iter().max()?;
        if timeline.ended < last {
            return Some(format!(
                "the trace ended {} before the last stale entry expired",
                seconds(last.since(timeline.ended))
            ));
        }
        let from = self.rollouts.first_late()?;
        let mut before = from;
        let mut gap = None;
        let made = timeline
            .tally
            .bins()
            .filter(|(_, bin)| bin.connects_started() + bin.connects_ok + bin.unanswered > 0);
        let times = made.map(|(start, _)| start);
        for time in times.filter(|time| from <= *time && *time <= last).chain([last.max(from)]) {
            if time.since(before) > std::time::Duration::from_secs(10) {
                gap = Some(before);
            }
            before = time;
        }
        gap.map(|_| {
            "no connects were made for more than 10 s while stale entries were alive".to_owned()
        })
    }
}

/// Whether a loss can undo a finding. Lost socket changes, resets and drops can't: a RST that removes an
/// entry is also seen at the devices, and an entry's identity rests on its expiry. Events out of order were
/// kept.
fn can_undo(loss: &Loss) -> bool {
    loss.hides_packets() || matches!(loss.source, LossSource::Requests | LossSource::Cluster)
}
