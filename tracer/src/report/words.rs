//! The sentences of a report that are the same in every form: the verdict in one sentence, what a cause or a
//! symptom means, and what can be done about it. For a reader who has never heard of conntrack.

use std::fmt;

use super::{MeasuredFrom, NamesRow, PodRow, Report};
use crate::correlate::Timeline;
use crate::model::{Process, Symptom};
use crate::verdict::{Cause, HypothesisName, VerdictOutcome};

/// The verdict in one sentence.
pub fn verdict(report: &Report) -> String {
    let late = report.requests.late;
    let explained: u64 = report
        .failures
        .late
        .iter()
        .filter(|(cause, _)| cause.is_reused_port())
        .map(|(_, n)| n)
        .sum();
    let failures =
        |n: u64| format!("{} late {}", count(n), if n == 1 { "failure" } else { "failures" });
    match report.hypothesis.outcome {
        VerdictOutcome::Supported => {
            let whose = if explained == late {
                match late {
                    1 => "The only late failure".to_owned(),
                    _ => format!("All {}", failures(late)),
                }
            } else {
                format!("{} of {}", count(explained), failures(late))
            };
            format!(
                "{whose} came from a reused source port: the node remembered the port's earlier connection \
                 and still sent it to a pod that was gone.{}",
                others(report)
            )
        }
        VerdictOutcome::Refuted => {
            let rival = report
                .rivals
                .iter()
                .find(|rival| rival.outcome == VerdictOutcome::Supported)
                .map(|rival| format!(" {}.", capital(hypothesis(rival.name))))
                .unwrap_or_default();
            match late {
                0 => "Reused source ports did no harm: connects met entries of pods that were gone and did \
                      not fail."
                    .to_owned(),
                _ => format!(
                    "Reused source ports do not explain the {}: the evidence says something else.{rival}",
                    failures(late)
                ),
            }
        }
        VerdictOutcome::NotObserved => match report.requests.failed {
            0 if report.rollouts.is_empty() => {
                "No request failed; there was no rollout, either.".to_owned()
            }
            0 => "No request failed, neither during the rollout nor after it.".to_owned(),
            failed => format!("No request failed late; {} failed early.", count(failed)),
        },
        VerdictOutcome::Inconclusive
            if report.requests.total == 0 && report.exposure.failed > 0 =>
        {
            format!(
                "{} connects met a stale entry and {} of them were not answered; whose requests failed of that, and \
                 how late, this trace does not tell.",
                count(report.exposure.attempts),
                count(report.exposure.failed)
            )
        }
        VerdictOutcome::Inconclusive if late == 0 => {
            "No late failure was seen, but this trace can't say that there was none to see."
                .to_owned()
        }
        VerdictOutcome::Inconclusive => format!(
            "This trace can't say whether reused source ports caused the {}.",
            failures(late)
        ),
    }
}

/// The late failures that another cause explains, the most frequent first.
fn others(report: &Report) -> String {
    let late = report.failures.late.iter();
    let mut others: Vec<(Cause, u64)> = late
        .filter(|(cause, n)| !cause.is_reused_port() && **n > 0)
        .map(|(cause, n)| (*cause, *n))
        .collect();
    if others.is_empty() {
        return String::new();
    }
    others.sort_by_key(|(cause, n)| (std::cmp::Reverse(*n), *cause));
    let others: Vec<String> =
        others.iter().map(|(cause, n)| format!("{} {}", count(*n), cause.name())).collect();
    format!(" The others: {}.", others.join(", "))
}

/// What a hypothesis claims.
pub fn hypothesis(name: HypothesisName) -> &'static str {
    match name {
        HypothesisName::ReusedSourcePort => {
            "a source port was reused while the node still remembered its earlier connection"
        }
        HypothesisName::StaleRules => "the node's rules still named a pod that was gone",
        HypothesisName::Dns => "the service's name did not resolve",
    }
}

/// The name of a hypothesis in reports.
pub fn hypothesis_name(name: HypothesisName) -> &'static str {
    match name {
        HypothesisName::ReusedSourcePort => "reused-source-port",
        HypothesisName::StaleRules => "stale-rules",
        HypothesisName::Dns => "dns",
    }
}

/// From when on a request is late, where that needs saying.
pub fn late(report: &Report) -> Option<String> {
    let after = |from: f64| match report.rollouts.len() {
        0 | 1 => format!("late is what started after {from:.1} s"),
        _ => format!("late begins at {from:.1} s, and anew after each later rollout"),
    };
    match (report.late.measured_from, report.late.from) {
        (MeasuredFrom::Rollouts, from) => from.map(after),
        (MeasuredFrom::Given, Some(from)) => {
            Some(format!("the rollout's times are given: {}", after(from)))
        }
        (MeasuredFrom::Given, None) => Some(
            "the rollout's start is given and not its end (--rollout-end): nothing counts as late"
                .to_owned(),
        ),
        (MeasuredFrom::Deletions | MeasuredFrom::Nothing, _) => None,
    }
}

/// The name of an outcome in reports.
pub fn outcome_name(outcome: VerdictOutcome) -> &'static str {
    match outcome {
        VerdictOutcome::Supported => "supported",
        VerdictOutcome::Refuted => "refuted",
        VerdictOutcome::NotObserved => "not-observed",
        VerdictOutcome::Inconclusive => "inconclusive",
    }
}

/// What a cause means, in a few words.
pub fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::StaleEntryReuse => "port reused; its old entry led to a gone pod",
        Cause::StaleRepliedEntry => "the same, the old entry had had an answer",
        Cause::WrongPod => "the same, another pod has that address now",
        Cause::Untranslated => "sent on without choosing a pod",
        Cause::StaleRules => "the node's rules still named a gone pod",
        Cause::PodNotServing => "turned away or cut off by its pod",
        Cause::PodUnanswered => "reached a live pod, no answer",
        Cause::SlowAnswer => "connected, but no answer in time",
        Cause::NoEndpoints => "the service had no pod to send it to",
        Cause::Unreachable => "no way to a live pod",
        Cause::Invalid => "conntrack judged the SYN invalid",
        Cause::Dropped => "dropped on the node",
        Cause::Dns => "the name did not resolve",
        Cause::LocalError => "the client had no port or socket",
        Cause::Unseen => "its packets were not seen",
    }
}

/// What a cause means, in a sentence for a reader who has never heard of conntrack.
pub fn explain(cause: Cause) -> &'static str {
    match cause {
        Cause::StaleEntryReuse => {
            "The connect came from a source port that had been used shortly before; the node still \
             remembered that earlier, never answered connect, followed its note and sent the SYN to a pod \
             that was gone."
        }
        Cause::StaleRepliedEntry => {
            "As above, but the earlier connection from that port had been answered before its pod went away."
        }
        Cause::WrongPod => {
            "As above, and meanwhile another pod has been given the address, so that one answered, refused or \
             stayed silent."
        }
        Cause::Untranslated => {
            "The node sent the SYN on without choosing a pod for it, or let an answer through untranslated, \
             so that the client could not know it as one."
        }
        Cause::StaleRules => {
            "The node's rules still listed a pod that was gone and chose it for a new connect: for a moment \
             after each deletion, or longer where the rules lag."
        }
        Cause::PodNotServing => {
            "The pod was there, but turned the connect away or cut the connection off: it was starting, or \
             stopping."
        }
        Cause::PodUnanswered => {
            "The SYN reached the pod, and the pod did not answer: its queue was full, or it was dropped inside."
        }
        Cause::SlowAnswer => "The connection stood, but no answer came in the client's time.",
        Cause::NoEndpoints => "The service had no pod at all to send the connect to.",
        Cause::Unreachable => "The pod was alive, but the network had no way to it.",
        Cause::Invalid => {
            "The node's connection tracking took the SYN for one that does not belong."
        }
        Cause::Dropped => "The node dropped the SYN, for the reason that each story names.",
        Cause::Dns => "The service's name did not resolve, or took so long that no time was left.",
        Cause::LocalError => "The client itself had no free port or no socket.",
        Cause::Unseen => {
            "None of its packets were seen, so nothing can be said; its story says why."
        }
    }
}

/// What an outcome claims.
pub fn outcome(outcome: VerdictOutcome) -> &'static str {
    match outcome {
        VerdictOutcome::Supported => {
            "the late failures show the whole evidence of a reused source port, and nothing contradicts it"
        }
        VerdictOutcome::Refuted => "the packets show that it was something else",
        VerdictOutcome::NotObserved => "it did not happen, and this trace would have shown it",
        VerdictOutcome::Inconclusive => "something is missing that a verdict would need",
    }
}

/// What a stale entry is.
pub fn stale_entry(report: &Report) -> String {
    let life = syn_sent(report)
        .map_or_else(|| "for minutes".to_owned(), |seconds| format!("for {seconds} s"));
    format!(
        "For each connection the node notes which pod it chose: a conntrack entry. One that was never \
         answered is kept {life}. A new connection from the same source port to the same service follows \
         that note instead of the current rules, so it goes to the same pod, even if that is gone: a stale \
         entry."
    )
}

/// What a symptom means, in a few words.
pub fn symptom(symptom: Symptom) -> &'static str {
    match symptom {
        Symptom::ConnectTimeout => "nobody answered the connect",
        Symptom::Refused => "the connect was turned away",
        Symptom::Unreachable => "the network said: no way there",
        Symptom::Reset => "the connection was cut off",
        Symptom::Closed => "closed before the answer was whole",
        Symptom::ResponseTimeout => "connected, no answer in time",
        Symptom::WrongAnswer => "a wrong app or an error answered",
        Symptom::Local => "nothing could be sent",
    }
}

/// Something to do, that follows from what was seen.
#[derive(Clone, Debug, PartialEq)]
pub enum Advice {
    /// Old pods should live on until the rules have forgotten them.
    SleepBeforeStop {
        /// The longest lag of the rules that was seen, in seconds.
        rules_lag: f64,
    },
    /// Pods should finish what they have begun before they exit.
    Drain,
    /// The entries' life can be shortened.
    ShortenTimer {
        /// `nf_conntrack_tcp_timeout_syn_sent` of this trace, in seconds, if it is known.
        syn_sent: Option<u64>,
    },
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Advice::SleepBeforeStop { rules_lag } => write!(
                f,
                "preStop sleep: let old pods answer until the rules have forgotten them, well longer than \
                 the {rules_lag:.2} s seen here (5 s is common); then no such entry should arise"
            ),
            Advice::Drain => f.write_str(
                "drain: on SIGTERM, finish the requests in hand before exiting; some were cut off here",
            ),
            Advice::ShortenTimer { syn_sent } => {
                f.write_str("if pods can't change: a smaller nf_conntrack_tcp_timeout_syn_sent")?;
                if let Some(syn_sent) = syn_sent {
                    write!(f, " (now {syn_sent} s)")?;
                }
                f.write_str(
                    " on the client's node ends it sooner; it prevents nothing, and holds for all its \
                     connects",
                )
            }
        }
    }
}

/// What became of the names that requests asked for.
pub fn names(names: &NamesRow) -> String {
    let mut text = format!("{} asked for: ", counted(names.asked, "name"));
    text.push_str(&match names.failed {
        0 => "none failed".to_owned(),
        failed => format!("{} failed", count(failed)),
    });
    if let (Some(mean), Some(longest)) = (names.mean, names.longest) {
        let (mean, longest) = (mean * 1e3, longest * 1e3);
        text.push_str(&format!(
            "; an address came after {mean:.1} ms on average, {longest:.1} ms at most"
        ));
    }
    text
}

/// What can be done about what this report saw. Empty where nothing follows from it.
pub fn advice(report: &Report) -> Vec<Advice> {
    let mut advice = Vec::new();
    let failures = |wanted: fn(Cause) -> bool| {
        let (early, late) = (&report.failures.early, &report.failures.late);
        early.iter().chain(late).any(|(cause, n)| *n > 0 && wanted(*cause))
    };
    let gone_pods_were_chosen =
        failures(Cause::is_reused_port) || failures(|c| c == Cause::StaleRules);
    if gone_pods_were_chosen && let Some(rules_lag) = longest_lag(&report.pods) {
        advice.push(Advice::SleepBeforeStop { rules_lag });
    }
    let cut = [Symptom::Reset, Symptom::Closed];
    let was_cut = |symptoms: &std::collections::BTreeMap<Symptom, u64>| {
        cut.iter().any(|symptom| symptoms.get(symptom).is_some_and(|n| *n > 0))
    };
    let symptoms = &report.symptoms;
    if failures(|c| c == Cause::PodNotServing)
        && (was_cut(&symptoms.early) || was_cut(&symptoms.late))
    {
        advice.push(Advice::Drain);
    }
    // The timer rules only entries that never had an answer.
    if failures(|c| c == Cause::StaleEntryReuse) {
        advice.push(Advice::ShortenTimer { syn_sent: syn_sent(report) });
    }
    advice
}

/// The longest time, in seconds, for which the rules still named a pod that was gone.
fn longest_lag(pods: &[PodRow]) -> Option<f64> {
    pods.iter().filter_map(|pod| pod.rules_lag).reduce(f64::max)
}

/// How long an unanswered entry lives, in seconds, if the trace knows one value for it.
pub fn syn_sent(report: &Report) -> Option<u64> {
    let mut values = report
        .origin
        .sysctls
        .iter()
        .filter(|(name, _)| name.ends_with("nf_conntrack_tcp_timeout_syn_sent"))
        .map(|(_, value)| value.parse().ok());
    let first = values.next()??;
    values.all(|value| value == Some(first)).then_some(first)
}

/// A short time, with the unit that suits it.
pub fn duration(seconds: f64) -> String {
    if seconds < 0.001 {
        format!("{:.0} µs", seconds * 1e6)
    } else if seconds < 1.0 {
        format!("{:.0} ms", seconds * 1e3)
    } else {
        format!("{seconds:.1} s")
    }
}

/// A count with its thousands set apart.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count and its noun, which takes an s.
pub fn counted(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}

/// A process, and where it runs as far as that is known.
pub fn process(by: &Process, timeline: &Timeline) -> String {
    let workload = timeline.workloads.get(&by.cgroup);
    let place = workload.map(|workload| match (&workload.pod, &workload.container) {
        (Some(pod), _) => format!(" of pod {pod}"),
        (None, Some(container)) => format!(" of container {container}"),
        (None, None) => format!(" in {}", workload.path),
    });
    format!("{} ({}){}", by.name, by.pid, place.unwrap_or_default())
}

/// As a sentence begins.
pub fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let texts = [0, 999, 1_000, 28_485, 1_234_567].map(count);
        assert_eq!(texts, ["0", "999", "1,000", "28,485", "1,234,567"]);
    }

    #[test]
    fn each_outcome_has_its_sentence() {
        let sentence = |report: &Report| verdict(report);
        assert!(
            sentence(&fixture::supported()).starts_with("All 51 late failures came from a reused")
        );
        assert_eq!(
            sentence(&fixture::not_observed()),
            "No request failed, neither during the rollout nor after it."
        );
        let mut early = fixture::not_observed();
        early.requests.failed = 1_039;
        assert_eq!(sentence(&early), "No request failed late; 1,039 failed early.");
        assert!(sentence(&fixture::inconclusive()).starts_with("This trace can't say whether"));
        assert!(
            sentence(&fixture::refuted()).contains("something else. The node's rules still named")
        );
        let mut partly = fixture::supported();
        partly.requests.late = 60;
        partly.failures.late.extend([(Cause::StaleRules, 2), (Cause::Dns, 7)]);
        let partly = sentence(&partly);
        assert!(partly.starts_with("51 of 60 late failures came from"), "{partly}");
        assert!(partly.ends_with("was gone. The others: 7 dns, 2 stale-rules."), "{partly}");
    }

    #[test]
    fn advice_follows_from_what_was_seen() {
        assert_eq!(
            advice(&fixture::supported()),
            [
                Advice::SleepBeforeStop { rules_lag: 0.78 },
                Advice::Drain,
                Advice::ShortenTimer { syn_sent: Some(120) }
            ]
        );
        assert_eq!(advice(&fixture::not_observed()), []);
        let mut no_lag_known = fixture::supported();
        no_lag_known.pods.clear();
        no_lag_known.symptoms.early.clear();
        no_lag_known.origin.sysctls.clear();
        assert_eq!(advice(&no_lag_known), [Advice::ShortenTimer { syn_sent: None }]);
    }

    #[test]
    fn two_namespaces_that_disagree_have_no_common_timer() {
        let mut report = fixture::supported();
        report
            .origin
            .sysctls
            .insert("node-2 net.netfilter.nf_conntrack_tcp_timeout_syn_sent".into(), "20".into());
        assert_eq!(syn_sent(&report), None);
    }
}
