//! Reports to test with, as traces of real rollouts give them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::*;

fn socket(text: &str) -> SocketAddr {
    text.parse().expect("an address of this file")
}

fn hypothesis(
    name: HypothesisName,
    outcome: VerdictOutcome,
    share: Option<f64>,
    why: &[&str],
) -> HypothesisRow {
    HypothesisRow {
        name,
        outcome,
        share,
        proven: None,
        reasons: why.iter().map(|reason| (*reason).to_owned()).collect(),
    }
}

/// One of each.
pub(crate) fn all() -> Vec<Report> {
    vec![empty(), supported(), not_observed(), inconclusive(), refuted()]
}

/// A trace in which nothing happened.
pub(crate) fn empty() -> Report {
    Report {
        schema: 1,
        hypothesis: hypothesis(
            HypothesisName::ReusedSourcePort,
            VerdictOutcome::Inconclusive,
            None,
            &["no rollout was seen"],
        ),
        rivals: Vec::new(),
        requests: RequestCounts::default(),
        names: None,
        failures: EarlyLate::default(),
        symptoms: EarlyLate::default(),
        contrast: ContrastRow::default(),
        exposure: ExposureRow::default(),
        model: None,
        entries: EntriesRow::default(),
        rollouts: Vec::new(),
        late: LateRow { measured_from: MeasuredFrom::Nothing, from: None },
        pods: Vec::new(),
        hooks: Vec::new(),
        losses: Vec::new(),
        clock: ClockRow { began_unix: 1_780_000_000.0, error: 0.0, duration: 0.0 },
        bins: Vec::new(),
        failed: Vec::new(),
        survived: Vec::new(),
        closes: CloseCounts::default(),
        counters: BTreeMap::new(),
        origin: OriginRow {
            tracer: "0.1.0".into(),
            command: "tracer record --service 10.96.0.1:80".into(),
            seed: None,
            kernel: "6.18.0 x86_64".into(),
            node: "worker-1".into(),
            sysctls: BTreeMap::new(),
        },
        stories: Vec::new(),
        notes: Vec::new(),
        pictures: Pictures::default(),
    }
}

/// A pod of the rollout: its name, its address, asked, gone, the rules' lag, its stale entries.
const OLD_PODS: [(&str, &str, f64, f64, f64, u64); 3] = [
    ("web-6c5f7d9b8-4xkqp", "10.244.1.5", 7.41, 7.72, 0.31, 8),
    ("web-6c5f7d9b8-m2v7z", "10.244.2.4", 10.66, 10.98, 0.57, 9),
    ("web-6c5f7d9b8-t9wjc", "10.244.1.6", 13.38, 13.71, 0.78, 10),
];

/// The figures of a recorded rollout of three pods, without a preStop sleep, under 170 s of load.
pub(crate) fn supported() -> Report {
    let mut report = rollout();
    report.hypothesis = hypothesis(
        HypothesisName::ReusedSourcePort,
        VerdictOutcome::Supported,
        Some(1.0),
        &[
            "each of the 51 late failures has its evidence: its first SYN met an entry that an earlier \
             connect from the same port had made, to a pod that was gone by then, and no answer came",
            "all 51 connects that met such an entry failed, and none of the 25,903 others did (p < 10⁻¹⁵⁰)",
            "nothing was lost, and nothing that speaks against it was found",
        ],
    );
    report.rivals = vec![
        hypothesis(
            HypothesisName::StaleRules,
            VerdictOutcome::Refuted,
            Some(0.0),
            &[
                "no late connect was given to a gone pod afresh; the last was 0.78 s after its pod was gone",
            ],
        ),
        hypothesis(
            HypothesisName::Dns,
            VerdictOutcome::NotObserved,
            Some(0.0),
            &["the client used an address, not a name"],
        ),
    ];
    report.requests = RequestCounts {
        total: 28_485,
        failed: 90,
        late: 51,
        slowed: 0,
        slow_names: 0,
        unfinished: 0,
    };
    report.failures = EarlyLate {
        early: [(Cause::StaleRules, 27), (Cause::PodNotServing, 12)].into(),
        late: [(Cause::StaleEntryReuse, 51)].into(),
    };
    report.symptoms = EarlyLate {
        early: [(Symptom::ConnectTimeout, 27), (Symptom::Refused, 9), (Symptom::Closed, 3)].into(),
        late: [(Symptom::ConnectTimeout, 51)].into(),
    };
    report.contrast = ContrastRow {
        stale_failed: 51,
        stale_ok: 0,
        other_failed: 0,
        other_ok: 25_903,
        p_value: Some(1.22e-159),
    };
    report.exposure = ExposureRow { attempts: 51, failed: 51 };
    report.model = Some(ModelRow { expected: 36.4, low: 22.0, high: 53.0, observed: 51 });
    let old = |name: &str| name.to_owned();
    report.entries = EntriesRow {
        stale: 27,
        pointing_at: OLD_PODS
            .iter()
            .map(|(name, address, .., entries)| PointingAtRow {
                backend: socket(&format!("{address}:8080")),
                pod: Some(old(name)),
                entries: *entries,
            })
            .collect(),
        list: vec![EntryRow {
            source: socket("10.244.3.2:40914"),
            service: socket("10.96.0.1:80"),
            backend: socket("10.244.1.5:8080"),
            made: 7.81,
            expires: Some(127.81),
            met: 3,
            seqs: vec![Seq(5_127)],
        }],
    };
    let late = [0, 0, 5, 0, 3, 6, 4, 2, 0, 9, 7, 8, 5, 2, 0, 0, 0];
    let early = [9, 30];
    for (n, bin) in report.bins.iter_mut().enumerate() {
        bin.early = early.get(n).copied().unwrap_or(0);
        bin.late = late[n];
        bin.ok -= 55 * (bin.early + bin.late);
    }
    report.failed = vec![
        FailureRow {
            request: RequestId(1_302),
            start: 7.81,
            total: 3.001,
            source: Some(socket("10.244.3.2:40914")),
            symptom: Symptom::ConnectTimeout,
            cause: Cause::StaleRules,
            late: false,
            backend: Some(socket("10.244.1.5:8080")),
            pod: Some(OLD_PODS[0].0.into()),
            entry_age: Some(0.0),
            since_gone: Some(0.09),
            by: None,
            why: "a fresh choice of a pod that was gone for 0.09 s".into(),
            evidence: vec![Seq(4_990), Seq(5_127)],
        },
        FailureRow {
            request: RequestId(5_204),
            start: 31.004,
            total: 3.002,
            source: Some(socket("10.244.3.2:40914")),
            symptom: Symptom::ConnectTimeout,
            cause: Cause::StaleEntryReuse,
            late: true,
            backend: Some(socket("10.244.1.5:8080")),
            pod: Some(OLD_PODS[0].0.into()),
            entry_age: Some(23.194),
            since_gone: Some(23.284),
            by: None,
            why: "its SYN met the entry that an earlier connect from its port had made".into(),
            evidence: vec![Seq(5_127), Seq(4_990), Seq(20_816)],
        },
    ];
    report.stories = vec![Story {
        request: RequestId(5_204),
        title: "request 5204, from port 40914 at 31.004 s: connect-timeout".into(),
        steps: [
            (7.720, "pod web-6c5f7d9b8-4xkqp is gone; nothing answers at 10.244.1.5 any more", Some(4_990)),
            (
                7.810,
                "request 1302 connects from port 40914; the node's rules still name the gone pod and choose \
                 it: a conntrack entry to 10.244.1.5:8080 is made",
                Some(5_127),
            ),
            (10.811, "request 1302 gives up: connect-timeout. The entry stays", Some(7_004)),
            (
                31.004,
                "request 5204 connects from port 40914 again: its SYN meets the entry, 23.2 s old, \
                 SYN_SENT, and goes to 10.244.1.5:8080",
                Some(20_816),
            ),
            (32.026, "SYN sent again, to the same place", Some(21_377)),
            (33.050, "SYN sent again, to the same place", Some(21_941)),
            (34.006, "request 5204 gives up: connect-timeout", Some(22_480)),
        ]
        .into_iter()
        .map(|(time, text, seq)| StoryStep { time, text: text.into(), seq: seq.map(Seq) })
        .collect(),
    }];
    report
}

/// The same rollout with a preStop sleep of 5 s: nothing fails.
pub(crate) fn not_observed() -> Report {
    let mut report = rollout();
    for pod in &mut report.pods {
        pod.rules_lag = None;
    }
    report.requests.total = 32_961;
    report.contrast.other_ok = 29_004;
    report.hypothesis = hypothesis(
        HypothesisName::ReusedSourcePort,
        VerdictOutcome::NotObserved,
        None,
        &["there were no stale entries, no late failures, and nothing was lost"],
    );
    report
}

/// A ring buffer that was too small.
pub(crate) fn inconclusive() -> Report {
    let mut report = supported();
    report.hypothesis = hypothesis(
        HypothesisName::ReusedSourcePort,
        VerdictOutcome::Inconclusive,
        Some(0.6),
        &[
            "12,904 events were lost at net_dev_start_xmit between 8.2 s and 96.0 s: 20 late failures were not \
           seen on the wire",
        ],
    );
    report.failures.late = [(Cause::StaleEntryReuse, 31), (Cause::Unseen, 20)].into();
    report.contrast = ContrastRow {
        stale_failed: 31,
        stale_ok: 0,
        other_failed: 20,
        other_ok: 19_022,
        p_value: Some(1e-80),
    };
    report.exposure = ExposureRow { attempts: 31, failed: 31 };
    report.model = None;
    report.losses = vec![LossRow {
        at_least: false,
        source: "ring buffer at net_dev_start_xmit".into(),
        count: 12_904,
        from: 8.2,
        to: 96.0,
    }];
    report.hooks[1].attached = false;
    report.hooks[1].note =
        Some("this kernel has no such tracepoint; dropped packets are not seen".into());
    report
}

/// Late failures of another cause, and one connect that met a stale entry and was answered.
pub(crate) fn refuted() -> Report {
    let mut report = rollout();
    report.requests.failed = 40;
    report.requests.late = 40;
    report.failures.late = [(Cause::StaleRules, 40)].into();
    report.symptoms.late = [(Symptom::ConnectTimeout, 40)].into();
    report.contrast = ContrastRow {
        stale_failed: 0,
        stale_ok: 1,
        other_failed: 40,
        other_ok: 25_000,
        p_value: Some(1.0),
    };
    report.exposure = ExposureRow { attempts: 1, failed: 0 };
    report.hypothesis = hypothesis(
        HypothesisName::ReusedSourcePort,
        VerdictOutcome::Refuted,
        Some(0.0),
        &["all 40 late failures were given to a gone pod afresh"],
    );
    report.rivals = vec![hypothesis(
        HypothesisName::StaleRules,
        VerdictOutcome::Supported,
        Some(1.0),
        &["the rules named gone pods for 20 s"],
    )];
    report.survived = vec![SurvivorRow {
        request: Some(RequestId(9)),
        start: 40.0,
        source: socket("10.244.3.2:40914"),
        backend: socket("10.244.1.5:8080"),
        entry_age: 2.0,
        why: "another pod with that address answered".into(),
        evidence: vec![Seq(9)],
    }];
    report
}

/// A rollout of three pods under load, as far as all these reports share it.
fn rollout() -> Report {
    let mut report = empty();
    report.requests.total = 28_485;
    report.contrast.other_ok = 25_954;
    report.rollouts =
        vec![RolloutRow { deployment: "web".into(), started: Some(5.0), finished: Some(13.42) }];
    report.late = LateRow { measured_from: MeasuredFrom::Rollouts, from: Some(18.42) };
    report.pods = OLD_PODS
        .iter()
        .map(|(name, address, asked, gone, lag, _)| PodRow {
            name: (*name).to_owned(),
            address: Some(address.parse().expect("an address of this file")),
            asked: Some(*asked),
            gone: Some(*gone),
            rules_lag: Some(*lag),
        })
        .collect();
    report.pods.push(PodRow {
        name: "web-84b6d7c4f-8hs2n".into(),
        address: "10.244.2.5".parse().ok(),
        asked: None,
        gone: None,
        rules_lag: None,
    });
    report.hooks = ["net_dev_start_xmit", "kfree_skb", "tcp_send_reset", "tcp_receive_reset"]
        .into_iter()
        .map(|name| HookRow { name: name.into(), attached: true, note: None })
        .collect();
    report.clock = ClockRow { began_unix: 1_780_000_000.25, error: 0.000_012, duration: 170.0 };
    report.bins = (0..17)
        .map(|n| BinRow { from: 10.0 * f64::from(n), ok: 1_941, early: 0, late: 0 })
        .collect();
    report.closes = CloseCounts { client: 0, server: 28_395 };
    report.counters = [("syn".to_owned(), 28_641), ("syn-ack".to_owned(), 28_395)].into();
    report.origin = OriginRow {
        tracer: "0.1.0".into(),
        command: "tracer lab --setup readiness --seed 7".into(),
        seed: Some(7),
        kernel: "6.18.0 x86_64".into(),
        node: "worker-1".into(),
        sysctls: [(
            "node-1 net.netfilter.nf_conntrack_tcp_timeout_syn_sent".to_owned(),
            "120".to_owned(),
        )]
        .into(),
    };
    report.notes = vec!["late: started more than 5 s after the rollout was complete".into()];
    report
}
