//! Which requests can't have got an address in time, by what the DNS server did with their questions.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::judge::TICK;
use super::judged::ClientRow;
use crate::model::MonoNs;

/// What the lab's DNS server did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Names {
    /// Where it was asked.
    pub server: Option<SocketAddr>,
    /// How long it took to answer.
    pub delay: Duration,
    /// Every question that came to it, in the order in which they came.
    pub questions: Vec<NameQuestion>,
}

/// A question for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameQuestion {
    /// When it came.
    pub at: MonoNs,
    /// The client's port.
    pub port: u16,
    /// Whether it was answered.
    pub is_answered: bool,
}

/// The two questions of one lookup, for an IPv4 and an IPv6 address, come together and from one port.
const TOGETHER: Duration = Duration::from_millis(500);

/// From the start of a request until its questions are there, at most.
const UNTIL_ASKED: Duration = Duration::from_secs(1);

/// One lookup: both questions.
struct Lookup {
    at: MonoNs,
    port: u16,
    questions: usize,
    /// When the last answer left; none if there was none to one of the two.
    answered: Option<MonoNs>,
}

/// The requests whose lookup had no whole answer before they gave up. Of a request that says that its name did not
/// resolve and is not among them, the DNS server says that it did.
pub(super) fn unanswered(names: &Names, rows: &[ClientRow]) -> BTreeSet<u64> {
    let lookups = lookups(names);
    let mut is_taken = vec![false; lookups.len()];
    let mut asked: Vec<&ClientRow> = rows.iter().filter(|row| row.resolution.is_some()).collect();
    asked.sort_by_key(|row| row.start);
    let mut unanswered = BTreeSet::new();
    for row in asked {
        let Some(resolution) = row.resolution.filter(|resolution| resolution.failed.is_some())
        else {
            continue;
        };
        let gave_up = row.start + resolution.took;
        let until = (row.start + UNTIL_ASKED).min(gave_up);
        let first = lookups.partition_point(|lookup| lookup.at < row.start);
        let its = lookups[first..].iter().take_while(|lookup| lookup.at <= until);
        let too_late = |lookup: &Lookup| lookup.answered.is_none_or(|at| at + TICK > gave_up);
        // Each lookup is that of one request.
        let free = its
            .enumerate()
            .map(|(nth, lookup)| (first + nth, lookup))
            .find(|(place, lookup)| !is_taken[*place] && too_late(lookup));
        if let Some((place, _)) = free {
            is_taken[place] = true;
            unanswered.insert(row.id);
        }
    }
    unanswered
}

fn lookups(names: &Names) -> Vec<Lookup> {
    let mut lookups: Vec<Lookup> = Vec::new();
    for question in &names.questions {
        let sent = question.is_answered.then(|| question.at + names.delay);
        let recent = lookups.iter_mut().rev().take_while(|it| question.at.since(it.at) <= TOGETHER);
        let mut same = recent.filter(|it| it.port == question.port && it.questions < 2);
        match same.next() {
            Some(lookup) => {
                lookup.questions += 1;
                lookup.answered = lookup.answered.zip(sent).map(|(one, other)| one.max(other));
            }
            None => lookups.push(Lookup {
                at: question.at,
                port: question.port,
                questions: 1,
                answered: sent,
            }),
        }
    }
    // A lookup of which one question never came can't have had both answers.
    for lookup in lookups.iter_mut().filter(|lookup| lookup.questions < 2) {
        lookup.answered = None;
    }
    lookups
}

#[cfg(test)]
mod tests {
    use super::super::judged::ClientEnd;
    use super::*;
    use crate::model::{NameError, Resolution, Symptom};

    fn ms(ms: u64) -> MonoNs {
        MonoNs(ms * 1_000_000)
    }

    fn question(at: u64, port: u16, is_answered: bool) -> NameQuestion {
        NameQuestion { at: ms(at), port, is_answered }
    }

    fn row(id: u64, start: u64, took: u64, failed: Option<NameError>) -> ClientRow {
        let took = Duration::from_millis(took);
        ClientRow {
            id,
            start: ms(start),
            is_reused: false,
            port: None,
            resolution: Some(Resolution { took, failed }),
            connected: None,
            total: took,
            end: ClientEnd::Failed(Symptom::Local),
        }
    }

    fn names(delay: u64, questions: &[NameQuestion]) -> Names {
        Names { server: None, delay: Duration::from_millis(delay), questions: questions.to_vec() }
    }

    const FAILED: Option<NameError> = Some(NameError::Unanswered);

    #[test]
    fn a_lookup_without_one_of_its_answers_is_that_of_one_request() {
        let names = names(
            0,
            &[
                question(1_001, 7, true),
                question(1_001, 8, true),
                question(1_001, 7, false),
                question(1_002, 8, true),
            ],
        );
        let rows = [row(1, 1_000, 3_000, FAILED), row(2, 1_000, 3_000, FAILED)];
        assert_eq!(unanswered(&names, &rows), BTreeSet::from([1]));
    }

    #[test]
    fn an_answer_after_the_client_gave_up_is_none() {
        let both = [question(1_001, 7, true), question(1_001, 7, true)];
        let rows = [row(1, 1_000, 3_000, FAILED)];
        assert_eq!(unanswered(&names(4_000, &both), &rows), BTreeSet::from([1]));
        assert!(unanswered(&names(2_000, &both), &rows).is_empty(), "the answer came in time");
    }

    #[test]
    fn a_request_that_got_an_address_takes_no_lookup_and_a_question_alone_is_none() {
        let names = names(0, &[question(1_001, 7, true)]);
        let rows = [row(1, 1_000, 1, None), row(2, 1_000, 3_000, FAILED)];
        assert_eq!(unanswered(&names, &rows), BTreeSet::from([2]));
        assert!(unanswered(&Names::default(), &rows).is_empty(), "the server was never asked");
    }
}
