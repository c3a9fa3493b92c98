//! The other explanations of late failures, judged in the same words.

use crate::correlate::Names;

use super::outcome::Case;
use super::{Cause, HypothesisName, Judgement, VerdictOutcome};

impl Case<'_> {
    /// Judges a rival that explains late failures of one cause.
    pub(super) fn rival(&self, name: HypothesisName) -> Judgement {
        let (cause, what, other) = match name {
            HypothesisName::StaleRules => (
                Cause::StaleRules,
                "were sent afresh to a pod that was gone",
                "no late failure was sent afresh to a pod that was gone",
            ),
            HypothesisName::Dns => (
                Cause::Dns,
                "could not resolve the name",
                "every late failure had an address to connect to",
            ),
            HypothesisName::ReusedSourcePort => return self.reused_source_port(),
        };
        let late = self.late().count();
        let whole = self.late().filter(|it| it.cause == cause && it.missing.is_empty()).count();
        let blockers = self.blockers();
        // What lacks evidence of its own cause may be of this one; but a SYN that was seen had its name.
        let unsure = self.late().any(|finding| {
            let unproven = !finding.missing.is_empty() && name != HypothesisName::Dns;
            finding.cause == Cause::Unseen || unproven
        });
        let (outcome, mut reasons) = if !blockers.is_empty() {
            (VerdictOutcome::Inconclusive, blockers)
        } else if late == 0 {
            (VerdictOutcome::NotObserved, vec!["no request failed late".to_owned()])
        } else if whole > 0 {
            (VerdictOutcome::Supported, vec![format!("{whole} of {late} late failures {what}")])
        } else if unsure {
            (VerdictOutcome::Inconclusive, self.incomplete())
        } else {
            (VerdictOutcome::Refuted, vec![other.to_owned()])
        };
        if name == HypothesisName::Dns {
            reasons.push(self.names());
        }
        let share = (late > 0).then(|| whole as f64 / late as f64);
        Judgement { name, outcome, share, proven: None, reasons }
    }
    /// How the names fared, late or not, in a sentence.
    fn names(&self) -> String {
        let Names { asked, failed, longest, .. } = self.timeline.requests.names;
        match (asked, asked - failed) {
            (0, _) => "no request asked for a name".to_owned(),
            (_, 0) => format!("none of {asked} names that were asked for got an address"),
            (_, _) => format!(
                "{failed} of {asked} names that were asked for got no address; the others took {:.3} s at most",
                longest.as_secs_f64()
            ),
        }
    }
}
