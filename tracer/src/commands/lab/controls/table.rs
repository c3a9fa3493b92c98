//! The table of controls.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Control, Deed, Expected, Kind};
use crate::lab::{DeadAddress, HeldState, OnSigterm, Setup, USUAL};
use crate::loadgen::Mode;
use crate::model::Symptom;
use crate::verdict::{Cause, VerdictOutcome};

use Cause::{
    Dropped, Invalid, LocalError, NoEndpoints, PodNotServing, PodUnanswered, SlowAnswer,
    StaleEntryReuse, StaleRepliedEntry, StaleRules, Unreachable, WrongPod,
};
use VerdictOutcome::{Inconclusive, NotObserved, Refuted, Supported};

const fn kind(
    cause: Cause,
    symptoms: &'static [Symptom],
    early: Option<u64>,
    late: Option<u64>,
) -> Kind {
    Kind { cause, symptoms, early, late }
}

const TIMEOUT: &[Symptom] = &[Symptom::ConnectTimeout];
const REFUSED: &[Symptom] = &[Symptom::Refused];
const UNREACHABLE: &[Symptom] = &[Symptom::Unreachable];
const CUT: &[Symptom] = &[Symptom::Refused, Symptom::Closed, Symptom::Reset];

/// What matters in no control unless it says so.
const PLAIN: Expected = Expected {
    reused_source_port: Inconclusive,
    stale_rules: None,
    share: None,
    slowed: 0,
    states: &[],
    failures: &[],
};

/// What every rollout of pods that exit at once may bring while it goes on.
const DYING: Kind = kind(PodNotServing, CUT, Some(0), None);

/// A SYN may reach a pod whose network is just being taken down.
const GOING: Kind = kind(PodUnanswered, TIMEOUT, Some(0), None);

/// The same where a router answers for it.
const GOING_UNREACHABLE: Kind = kind(Unreachable, UNREACHABLE, Some(0), None);

/// A dying pod's RST leaves an entry in CLOSE, which has 10 s to be met.
const CLOSED: Kind = kind(StaleRepliedEntry, TIMEOUT, Some(0), Some(0));

/// What a rollout brings of which ports come round while its stale entries live.
const BY_ROLLOUT: Expected = Expected {
    reused_source_port: Supported,
    stale_rules: Some(Refuted),
    failures: &[
        kind(StaleEntryReuse, TIMEOUT, Some(0), Some(3)),
        kind(StaleRules, TIMEOUT, Some(3), None),
        CLOSED,
        DYING,
        GOING,
    ],
    ..PLAIN
};

/// Every control.
pub const CONTROLS: [Control; 24] = [
    Control {
        name: "stale-entries",
        about: "nothing is changed: ports come round while stale entries live",
        scene: |_| {},
        expected: BY_ROLLOUT,
    },
    Control {
        name: "no-rollout",
        about: "nothing happens at all",
        scene: |scene| {
            scene.script.clear();
            scene.duration = secs(10);
        },
        expected: Expected { reused_source_port: NotObserved, failures: &[], ..PLAIN },
    },
    Control {
        name: "scale-down",
        about: "the Deployment is scaled from 3 pods to 2, without a rollout",
        scene: |scene| scene.script = vec![(secs(3), Deed::ScaleDown(2))],
        expected: Expected {
            reused_source_port: Supported,
            stale_rules: Some(Refuted),
            failures: &[
                kind(StaleEntryReuse, TIMEOUT, Some(0), Some(1)),
                kind(StaleRules, TIMEOUT, Some(1), None),
                CLOSED,
                DYING,
                GOING,
            ],
            ..PLAIN
        },
    },
    Control {
        name: "no-endpoints",
        about: "the Deployment is scaled to nothing",
        scene: |scene| {
            scene.script = vec![(secs(3), Deed::ScaleDown(0))];
            scene.duration = secs(14);
            scene.lab.ports = WIDE;
            scene.lab.syn_sent_timeout = BRIEF;
        },
        expected: Expected {
            reused_source_port: Refuted,
            failures: &[
                // The REJECT rule's ICMP errors are limited to one a second, so that most SYNs have no answer.
                kind(NoEndpoints, &[Symptom::Refused, Symptom::ConnectTimeout], Some(3), Some(3)),
                kind(StaleRules, &[Symptom::ConnectTimeout, Symptom::Refused], Some(0), None),
                DYING,
                GOING,
            ],
            ..PLAIN
        },
    },
    Control {
        name: "address-resets",
        about: "another machine has a dead pod's address at once, and answers with a RST",
        scene: |scene| scene.lab.dead_address = DeadAddress::Resets,
        expected: Expected {
            reused_source_port: NotObserved,
            failures: &[kind(StaleRules, REFUSED, Some(3), None), DYING, GOING],
            ..PLAIN
        },
    },
    Control {
        name: "address-unreachable",
        about: "a router answers for a dead pod's address: ICMP host unreachable; the entries stay",
        scene: |scene| scene.lab.dead_address = DeadAddress::Unreachable,
        expected: Expected {
            reused_source_port: Supported,
            stale_rules: Some(Refuted),
            failures: &[
                kind(StaleEntryReuse, UNREACHABLE, Some(0), Some(3)),
                kind(StaleRules, UNREACHABLE, Some(3), None),
                kind(StaleRepliedEntry, UNREACHABLE, Some(0), Some(0)),
                DYING,
                GOING_UNREACHABLE,
            ],
            ..PLAIN
        },
    },
    Control {
        name: "rules-lag",
        about: "the nodes' rules follow 20 s late: late failures without a reused port",
        scene: |scene| {
            scene.lab.rules_lag = secs(20)..=secs(20);
            scene.lab.prompt_lag = None;
            scene.lab.ports = WIDE;
            scene.lab.syn_sent_timeout = BRIEF;
        },
        expected: Expected {
            reused_source_port: Refuted,
            stale_rules: Some(Supported),
            failures: &[kind(StaleRules, TIMEOUT, Some(3), Some(10)), DYING, GOING],
            ..PLAIN
        },
    },
    Control {
        name: "entries-deleted",
        about: "the proxies delete the entries of an endpoint that they withdraw",
        scene: |scene| scene.lab.clears_entries = true,
        expected: Expected {
            reused_source_port: NotObserved,
            failures: &[
                // Freed, their SYNs get through when they are sent again.
                kind(StaleEntryReuse, TIMEOUT, Some(0), None),
                kind(StaleRules, TIMEOUT, Some(0), None),
                // A connection to a pod that still lives loses its entry as well, and its packets go elsewhere.
                kind(SlowAnswer, &[Symptom::ResponseTimeout], Some(0), None),
                DYING,
                GOING,
            ],
            ..PLAIN
        },
    },
    Control {
        name: "firewall",
        about: "the client's node drops the SYNs of some source ports",
        scene: |scene| {
            scene.script = vec![(secs(3), Deed::DropSyns(20))];
            scene.duration = secs(14);
        },
        expected: Expected {
            // Nothing went, so nothing is late.
            reused_source_port: Inconclusive,
            failures: &[kind(Dropped, TIMEOUT, Some(3), None)],
            ..PLAIN
        },
    },
    Control {
        name: "firewall-and-stale-entries",
        about: "about half of the late failures come from reused ports, the others from a firewall",
        scene: |scene| scene.script.push((secs(12), Deed::DropSyns(6))),
        expected: Expected {
            reused_source_port: Supported,
            // About half: how many of each there are is chance, and what each is the truth says.
            share: Some((0.2, 0.8)),
            failures: &[
                kind(StaleEntryReuse, TIMEOUT, Some(0), Some(3)),
                kind(Dropped, TIMEOUT, Some(0), Some(3)),
                kind(StaleRules, TIMEOUT, Some(3), None),
                CLOSED,
                DYING,
                GOING,
            ],
            ..PLAIN
        },
    },
    Control {
        name: "address-reassigned",
        about: "the dead pods' addresses go to new pods of another app, while stale entries live",
        scene: |scene| scene.script.push((secs(11), Deed::Reassign)),
        expected: Expected {
            reused_source_port: Supported,
            stale_rules: Some(Refuted),
            share: Some((1.0, 1.0)),
            failures: &[
                kind(WrongPod, &[Symptom::WrongAnswer, Symptom::Refused], Some(0), Some(3)),
                kind(StaleEntryReuse, TIMEOUT, Some(0), Some(0)),
                kind(StaleRules, TIMEOUT, Some(3), None),
                CLOSED,
                DYING,
                GOING,
            ],
            ..PLAIN
        },
    },
    Control {
        name: "invalid",
        about: "conntrack judges the SYNs of some source ports invalid",
        scene: |scene| {
            scene.script.push((secs(8), Deed::SpoilSyns(10)));
            // Old pods answer until the rules have forgotten them: no stale entry is there that could be met.
            scene.lab.setup = Setup { prestop: Some(secs(5)), ..USUAL };
            scene.duration = secs(25);
        },
        expected: Expected {
            reused_source_port: Refuted,
            stale_rules: Some(Refuted),
            share: Some((0.0, 0.0)),
            failures: &[kind(Invalid, TIMEOUT, Some(0), Some(3))],
            ..PLAIN
        },
    },
    Control {
        name: "node-outage",
        about: "the network loses a node, whose pods are deleted only 8 s later",
        scene: |scene| {
            scene.lab.syn_sent_timeout = Some(20);
            scene.script = vec![
                (secs(3), Deed::LoseNodes),
                (secs(8), Deed::DoubtLost),
                (secs(11), Deed::EvictLost),
            ];
        },
        expected: Expected {
            reused_source_port: Supported,
            stale_rules: Some(Refuted),
            share: Some((1.0, 1.0)),
            failures: &[
                kind(StaleEntryReuse, TIMEOUT, Some(0), Some(3)),
                kind(StaleRepliedEntry, TIMEOUT, Some(0), Some(0)),
                kind(Dropped, TIMEOUT, Some(3), None),
                // Connected, or as good as, when the network lost the pod.
                kind(SlowAnswer, &[Symptom::ResponseTimeout], Some(0), None),
            ],
            ..PLAIN
        },
    },
    Control {
        name: "closed-silently",
        about: "sockets to pods on a node that dies went without a word: entries in ESTABLISHED, FIN_WAIT and CLOSE_WAIT stay",
        scene: |scene| {
            scene.lab.syn_sent_timeout = Some(20);
            let states = &[HeldState::Established, HeldState::FinWait, HeldState::CloseWait];
            scene.script = vec![
                (secs(2), Deed::Hold(states, 8)),
                (secs(3), Deed::LoseNodes),
                (secs(5), Deed::DoubtLost),
                (secs(7), Deed::EvictLost),
                (secs(8), Deed::LetGo),
            ];
            scene.duration = secs(22);
        },
        expected: Expected {
            reused_source_port: Supported,
            stale_rules: Some(Refuted),
            share: Some((1.0, 1.0)),
            states: &["ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT"],
            failures: &[
                kind(StaleRepliedEntry, TIMEOUT, Some(0), Some(6)),
                kind(StaleEntryReuse, TIMEOUT, Some(0), Some(0)),
                // How many of each there are depends on how long making the connections took.
                kind(Dropped, TIMEOUT, Some(0), None),
                kind(StaleRules, TIMEOUT, Some(0), None),
                kind(SlowAnswer, &[Symptom::ResponseTimeout], Some(0), None),
            ],
            ..PLAIN
        },
    },
    Control {
        name: "reset",
        about: "a pod dies with unread requests, and its RSTs leave entries in CLOSE",
        scene: |scene| {
            scene.script = vec![(secs(2), Deed::ResetNewest(12))];
            // What the client's own requests leave must not be what is met: only the entries in CLOSE outlive this.
            scene.lab.syn_sent_timeout = BRIEF;
            scene.lab.conntrack_close_timeout = Some(20);
            scene.duration = secs(20);
        },
        expected: Expected {
            reused_source_port: Supported,
            stale_rules: Some(Refuted),
            share: Some((1.0, 1.0)),
            states: &["CLOSE"],
            failures: &[
                kind(StaleRepliedEntry, TIMEOUT, Some(0), Some(6)),
                kind(StaleRules, TIMEOUT, Some(0), None),
                // The pod is stopped for a moment before it is killed.
                kind(SlowAnswer, &[Symptom::ResponseTimeout], Some(0), None),
                DYING,
                GOING,
            ],
            ..PLAIN
        },
    },
    Control {
        name: "full-backlog",
        about: "a pod lives and accepts nothing any more: its listen backlog is full",
        scene: |scene| {
            scene.lab.backlog = Some(4);
            scene.script = vec![(secs(3), Deed::Freeze)];
            scene.duration = secs(14);
        },
        expected: Expected {
            // Nothing went, so nothing is late.
            reused_source_port: Inconclusive,
            failures: &[
                kind(PodUnanswered, TIMEOUT, Some(10), None),
                kind(SlowAnswer, &[Symptom::ResponseTimeout], Some(1), None),
            ],
            ..PLAIN
        },
    },
    Control {
        name: "client-closes-first",
        about: "the client closes first and takes its ports out of TIME_WAIT again (tcp_tw_reuse)",
        scene: |scene| {
            scene.mode = Mode::ClosesFirst;
            scene.lab.keep_alive = true;
            scene.lab.client_sysctls.push(("net.ipv4.tcp_tw_reuse", "1"));
        },
        expected: BY_ROLLOUT,
    },
    Control {
        name: "second-client",
        about: "a second client on the same node asks the same from the same source ports",
        scene: |scene| scene.lab.second_client = true,
        expected: BY_ROLLOUT,
    },
    Control {
        name: "expires-midway",
        about: "the client waits long enough for stale entries to expire: it is slowed, and does not fail",
        scene: |scene| {
            scene.lab.syn_sent_timeout = Some(12);
            // SYNs go after 0, 1, 3 and 7 s: none of a fresh one after its entry has expired, and each that meets an
            // entry with less than 7 s left once more in time.
            scene.timeout = secs(9);
            scene.lab.ports = 32_768..=33_023;
            scene.script = vec![(secs(2), Deed::ScaleDown(2))];
            scene.duration = secs(18);
        },
        expected: Expected {
            reused_source_port: NotObserved,
            slowed: 3,
            failures: &[
                kind(StaleRules, TIMEOUT, Some(1), None),
                kind(StaleEntryReuse, TIMEOUT, Some(0), Some(0)),
                CLOSED,
                DYING,
                GOING,
            ],
            ..PLAIN
        },
    },
    Control {
        name: "late-tracing",
        about: "the entries were made before the trace began",
        scene: |scene| {
            scene.lab.syn_sent_timeout = Some(25);
            scene.prelude = Some((secs(4), vec![(secs(1), Deed::LoseNodes)]));
            scene.script = vec![(secs(1), Deed::DoubtLost), (secs(2), Deed::EvictLost)];
            scene.duration = secs(16);
        },
        expected: Expected {
            reused_source_port: Supported,
            stale_rules: Some(Refuted),
            share: Some((1.0, 1.0)),
            failures: &[
                kind(StaleEntryReuse, TIMEOUT, Some(0), Some(3)),
                kind(StaleRepliedEntry, TIMEOUT, Some(0), Some(0)),
                kind(Dropped, TIMEOUT, Some(3), None),
                kind(SlowAnswer, &[Symptom::ResponseTimeout], Some(0), None),
            ],
            ..PLAIN
        },
    },
    Control {
        name: "overlapping-rollouts",
        about: "a second rollout begins before the first is over",
        scene: |scene| scene.script = vec![(secs(3), Deed::OverlappingRollouts(secs(2)))],
        expected: BY_ROLLOUT,
    },
    Control {
        name: "terminating-answers",
        about: "terminating pods answer on while a firewall drops some of what is for them",
        scene: |scene| {
            scene.lab.setup = Setup { on_sigterm: OnSigterm::Nothing, ..USUAL };
            scene.lab.grace = secs(4);
            scene.lab.rules_lag = secs(2)..=secs(2);
            scene.script = vec![(secs(2), Deed::DropSyns(30)), (secs(3), Deed::Rollout)];
            scene.duration = secs(20);
        },
        expected: Expected {
            reused_source_port: Refuted,
            stale_rules: Some(Refuted),
            share: Some((0.0, 0.0)),
            failures: &[kind(Dropped, TIMEOUT, Some(3), Some(3))],
            ..PLAIN
        },
    },
    Control {
        name: "slow-app",
        about: "the app takes longer to answer than the client waits",
        scene: |scene| {
            scene.lab.pod_delay = Duration::from_millis(1_400);
            scene.lab.probe_period = secs(2);
            scene.timeout = secs(1);
            scene.lab.ports = WIDE;
            scene.lab.syn_sent_timeout = BRIEF;
            scene.duration = secs(20);
        },
        expected: Expected {
            reused_source_port: Refuted,
            failures: &[
                kind(SlowAnswer, &[Symptom::ResponseTimeout], Some(3), Some(3)),
                kind(StaleRules, TIMEOUT, Some(0), None),
                DYING,
                GOING,
            ],
            ..PLAIN
        },
    },
    Control {
        name: "no-ports",
        about: "the client has fewer source ports than workers",
        scene: |scene| {
            scene.lab.ports = 32_768..=32_773;
            scene.script.clear();
            scene.duration = secs(6);
        },
        expected: Expected {
            reused_source_port: Inconclusive,
            failures: &[kind(LocalError, &[Symptom::Local], Some(10), None)],
            ..PLAIN
        },
    },
];

/// So short a life that no port comes round within it: the kernel's walk begins anew at a random place each 10 s
/// (EPHEMERAL_PORT_SHUFFLE_PERIOD in net/core/secure_seq.c), so that even many ports are not enough.
const BRIEF: Option<u32> = Some(2);

/// The ports of a usual client.
const WIDE: RangeInclusive<u16> = 32_768..=60_999;

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
