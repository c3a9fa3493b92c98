//! Requests on a connection that was there: they sent no SYN, and what ended them is what ended the connection.

use crate::correlate::{Attempt, ClosedBy, Failure, Seen};
use crate::model::{Hook, LossSource, Symptom};

use super::judge::{Bench, Why, seconds, wrong_answer};
use super::{Cause, lost_in_words};

impl Bench<'_> {
    /// Judges a failed request that came on the connection of an earlier attempt.
    pub(super) fn kept(&self, failure: &Failure, attempt: &Attempt) -> Why {
        let whom = self.whom(attempt);
        let whose = self.state_of_pod(failure, attempt);
        match failure.symptom {
            Symptom::Closed | Symptom::Reset => {
                if self.end_of(failure, attempt).is_none() {
                    return Why::new(Cause::Unseen, self.why_no_end(failure, attempt));
                }
                let deed = if failure.symptom == Symptom::Closed { "closed" } else { "reset" };
                let when = if failure.ended.received == 0 {
                    "before any byte of an answer"
                } else {
                    "in the middle of the answer"
                };
                let why = format!("{whom} {deed} the connection that it came on {when}{whose}");
                Why::new(Cause::PodNotServing, why)
            }
            Symptom::WrongAnswer => wrong_answer(failure, &whom),
            Symptom::ResponseTimeout => Why::new(
                Cause::SlowAnswer,
                format!("{whom} did not answer in time on the connection that was there{whose}"),
            ),
            // What only a connect can meet: the client's log contradicts itself.
            Symptom::ConnectTimeout | Symptom::Refused | Symptom::Unreachable | Symptom::Local => {
                Why::new(
                    Cause::Unseen,
                    format!("{} on a connection that was there", failure.symptom),
                )
            }
        }
    }

    /// The event that ended the connection under a request, not by the client.
    pub(super) fn end_of(&self, failure: &Failure, attempt: &Attempt) -> Option<Seen> {
        let within = |seen: &Seen| seen.time <= failure.end.time;
        let close = attempt.close.filter(|close| close.by != ClosedBy::Client);
        let reset = attempt.reset.filter(|reset| !reset.of_syn).map(|reset| reset.seen);
        let ends = [close.map(|close| close.seen), reset];
        matches!(failure.symptom, Symptom::Closed | Symptom::Reset)
            .then(|| ends.into_iter().flatten().filter(within).min())
            .flatten()
    }

    /// How it stood with the pod when the request was over: a clause.
    fn state_of_pod(&self, failure: &Failure, attempt: &Attempt) -> String {
        let end = failure.end.time;
        let owner = attempt
            .backend()
            .and_then(|backend| self.timeline.pods.owner(backend.ip(), attempt.first.time));
        let Some(pod) = owner else { return String::new() };
        let before = |seen: Option<Seen>| seen.filter(|seen| seen.time <= end).map(|it| it.time);
        match (before(pod.deleted), before(pod.asked)) {
            (Some(deleted), _) => format!(", {} after it was deleted", seconds(end.since(deleted))),
            (None, Some(asked)) => {
                format!(", {} after it was asked to go", seconds(end.since(asked)))
            }
            (None, None) => String::new(),
        }
    }

    fn why_no_end(&self, failure: &Failure, attempt: &Attempt) -> String {
        if !self.header.is_attached(Hook::InetSockSetState) {
            return "the hook inet_sock_set_state was not attached: how its connection ended was not seen"
                .to_owned();
        }
        let lost = self.timeline.losses.iter().find(|loss| {
            let hides = loss.hides_packets()
                || loss.source == LossSource::Ring(Hook::InetSockSetState)
                || loss.source == LossSource::PassedOver(Hook::InetSockSetState);
            hides && loss.touches(attempt.first.time, failure.end.time)
        });
        match lost {
            Some(loss) => format!(
                "how its connection ended was not seen: {}",
                lost_in_words(loss.count, loss.source)
            ),
            None => "how its connection ended was not seen, though nothing was lost".to_owned(),
        }
    }
}
