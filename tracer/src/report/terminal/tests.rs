use expect_test::expect;
use proptest::prelude::*;

use super::super::{HookRow, LossRow, PodRow, fixture};
use super::*;

fn text(report: &Report) -> String {
    render(report, &Style::default())
}

#[test]
fn a_supported_verdict_in_full() {
    expect![[r#"
        SUPPORTED  All 51 late failures came from a reused source port: the node
                   remembered the port's earlier connection and still sent it to a pod
                   that was gone.

          28,485 requests in 170 s: 90 failed, 51 of them late
          rollout of web: started at 5.0 s, complete at 13.4 s
          late is what started after 18.4 s

        Over time (a column is 10 s)
          from (s)      0    20    40    60    80   100   120   140   160
          rollout      ├──┤
          answered     ▆▆ ▂▂ ▇▇ ██ ██ ▇▇ ██ ██ ██ ▆▆ ▇▇ ▇▇ ▇▇ ██ ██ ██ ██
          failed early  9 30  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·
          failed late   ·  ·  5  ·  3  6  4  2  ·  9  7  8  5  2  ·  ·  ·

        What may help
          - preStop sleep: let old pods answer until the rules have forgotten them, well
            longer than the 0.78 s seen here (5 s is common); then no such entry should
            arise
          - drain: on SIGTERM, finish the requests in hand before exiting; some were cut
            off here
          - if pods can't change: a smaller nf_conntrack_tcp_timeout_syn_sent (now 120
            s) on the client's node ends it sooner; it prevents nothing, and holds for
            all its connects

        Why this verdict
          - each of the 51 late failures has its evidence: its first SYN met an entry
            that an earlier connect from the same port had made, to a pod that was gone
            by then, and no answer came
          - all 51 connects that met such an entry failed, and none of the 25,903 others
            did (p < 10⁻¹⁵⁰)
          - nothing was lost, and nothing that speaks against it was found

        Other explanations
          - the node's rules still named a pod that was gone: refuted
            no late connect was given to a gone pod afresh; the last was 0.78 s after
            its pod was gone
          - the service's name did not resolve: not-observed
            the client used an address, not a name

        What a stale entry is
          For each connection the node notes which pod it chose: a conntrack entry. One
          that was never answered is kept for 120 s. A new connection from the same
          source port to the same service follows that note instead of the current
          rules, so it goes to the same pod, even if that is gone: a stale entry.

        Failures: why
                             early  late
          stale-entry-reuse      ·    51  port reused; its old entry led to a gone pod
          stale-rules           27     ·  the node's rules still named a gone pod
          pod-not-serving       12     ·  turned away or cut off by its pod

        Failures: what the client saw
                           early  late
          connect-timeout     27    51  nobody answered the connect
          refused              9     ·  the connect was turned away
          closed               3     ·  closed before the answer was whole

        Connects after the rollout
                             failed  answered  failed of all
          met a stale entry      51         ·          100 %
          met none                ·    25,903            0 %
          If stale entries made no difference, chance would give such a table with a
          probability of 1e-159 (Fisher's exact test).

        How often a stale entry was met
          seen      51 times in the whole trace; 51 of these connects failed
          expected  36 times late (95 %: 22 to 53) by the kernel's way of choosing
                    ports; it was 51 times

        27 stale entries point at
          backend          pod                  entries  gone at  rules lag
          10.244.1.5:8080  web-6c5f7d9b8-4xkqp        8    7.7 s     0.31 s
          10.244.2.4:8080  web-6c5f7d9b8-m2v7z        9   11.0 s     0.57 s
          10.244.1.6:8080  web-6c5f7d9b8-t9wjc       10   13.7 s     0.78 s
          rules lag: how long the node's rules still chose the pod after it was gone

        Step by step: request 5204, from port 40914 at 31.004 s: connect-timeout
              7.720 s  #4990     pod web-6c5f7d9b8-4xkqp is gone; nothing answers at
                                 10.244.1.5 any more
              7.810 s  #5127     request 1302 connects from port 40914; the node's rules
                                 still name the gone pod and choose it: a conntrack
                                 entry to 10.244.1.5:8080 is made
             10.811 s  #7004     request 1302 gives up: connect-timeout. The entry stays
             31.004 s  #20816    request 5204 connects from port 40914 again: its SYN
                                 meets the entry, 23.2 s old, SYN_SENT, and goes to
                                 10.244.1.5:8080
             32.026 s  #21377    SYN sent again, to the same place
             33.050 s  #21941    SYN sent again, to the same place
             34.006 s  #22480    request 5204 gives up: connect-timeout
          #: the event's place in the trace

        How it was measured
          - tracer 0.1.0 on worker-1, Linux 6.18.0 x86_64; hooks net_dev_start_xmit,
            kfree_skb, tcp_send_reset, tcp_receive_reset; `tracer lab --setup readiness
            --seed 7`, seed 7; clock known to 12 µs
          - who closed first: the server on 28,395 connections, the client on 0
          - late: started more than 5 s after the rollout was complete
          - nothing was lost
    "#]]
    .assert_eq(&text(&fixture::supported()));
}

#[test]
fn an_inconclusive_verdict_begins_with_what_is_missing() {
    let text = text(&fixture::inconclusive());
    expect![[r#"
        INCONCLUSIVE  This trace can't say whether reused source ports caused the 51
                      late failures.

          28,485 requests in 170 s: 90 failed, 51 of them late
          rollout of web: started at 5.0 s, complete at 13.4 s
          late is what started after 18.4 s

        Over time (a column is 10 s)
          from (s)      0    20    40    60    80   100   120   140   160
          rollout      ├──┤
          answered     ▆▆ ▂▂ ▇▇ ██ ██ ▇▇ ██ ██ ██ ▆▆ ▇▇ ▇▇ ▇▇ ██ ██ ██ ██
          failed early  9 30  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·
          failed late   ·  ·  5  ·  3  6  4  2  ·  9  7  8  5  2  ·  ·  ·

        Why this verdict
          - 12,904 events were lost at net_dev_start_xmit between 8.2 s and 96.0 s: 20
            late failures were not seen on the wire

        What may help
          - preStop sleep: let old pods answer until the rules have forgotten them, well
            longer than the 0.78 s seen here (5 s is common); then no such entry should
            arise
          - drain: on SIGTERM, finish the requests in hand before exiting; some were cut
            off here
    "#]]
    .assert_eq(&text.lines().take(24).map(|line| format!("{line}\n")).collect::<String>());
    assert!(text.contains("  ! kfree_skb was not attached: this kernel has no such tracepoint;"));
    assert!(
        text.contains(
            "  ! lost: 12,904 events, ring buffer at net_dev_start_xmit, between 8.2 s and"
        )
    );
    assert!(!text.contains("nothing was lost"));
}

#[test]
fn a_quiet_trace_is_short_and_gives_no_advice() {
    expect![[r#"
        NOT-OBSERVED  No request failed, neither during the rollout nor after it.

          32,961 requests in 170 s: none failed
          rollout of web: started at 5.0 s, complete at 13.4 s
          late is what started after 18.4 s

        Over time (a column is 10 s)
          from (s)      0    20    40    60    80   100   120   140   160
          rollout      ├──┤
          answered     ██ ██ ██ ██ ██ ██ ██ ██ ██ ██ ██ ██ ██ ██ ██ ██ ██
          failed early  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·
          failed late   ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·

        Why this verdict
          - there were no stale entries, no late failures, and nothing was lost

        Connects after the rollout
                             failed  answered  failed of all
          met a stale entry       ·         ·              –
          met none                ·    29,004            0 %

        How it was measured
          - tracer 0.1.0 on worker-1, Linux 6.18.0 x86_64; hooks net_dev_start_xmit,
            kfree_skb, tcp_send_reset, tcp_receive_reset; `tracer lab --setup readiness
            --seed 7`, seed 7; clock known to 12 µs
          - who closed first: the server on 28,395 connections, the client on 0
          - late: started more than 5 s after the rollout was complete
          - nothing was lost
    "#]]
    .assert_eq(&text(&fixture::not_observed()));
}

#[test]
fn a_trace_without_anything_still_says_so() {
    let text = text(&fixture::empty());
    assert!(text.starts_with("INCONCLUSIVE  No late failure was seen"), "{text}");
    assert!(text.contains("no rollout was seen"), "{text}");
}

#[test]
fn a_survivor_and_a_rival_are_told() {
    // Wherever the lines break.
    let text = text(&fixture::refuted()).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("1 met a stale entry and did not fail:"), "{text}");
    assert!(text.contains("another pod with that address answered (#9)"), "{text}");
    assert!(
        text.contains("still named a pod that was gone: supported, 100 % of the late"),
        "{text}"
    );
}

/// The text without its colours.
fn plain_text(text: &str) -> String {
    let mut plain = String::new();
    let mut parts = text.split("\u{1b}[");
    plain.push_str(parts.next().unwrap_or(""));
    for part in parts {
        plain.push_str(part.split_once('m').expect("a colour ends in m").1);
    }
    plain
}

#[test]
fn colour_adds_nothing_but_colour() {
    for report in [fixture::supported(), fixture::inconclusive(), fixture::refuted()] {
        let colored = render(&report, &Style { color: true, ..Style::default() });
        assert!(colored.contains("\u{1b}["));
        assert_eq!(plain_text(&colored), text(&report));
        assert!(!text(&report).contains('\u{1b}'));
    }
}

#[test]
fn shares_and_probabilities_are_not_rounded_away() {
    assert_eq!(
        [0.0, 0.0001, 0.5, 0.123, 0.9999, 1.0].map(percent),
        ["0 %", "< 0.1 %", "50 %", "12.3 %", "> 99.9 %", "100 %"]
    );
    assert_eq!(
        [0.0, 1e-12, 0.25].map(probability),
        ["a probability below 1e-300", "a probability of 1e-12", "a probability of 0.250"]
    );
}

proptest! {
    #[test]
    fn no_line_is_too_wide_or_ends_in_a_space(
        width in 40usize..140,
        name in "[a-z0-9-]{1,80}",
        words in "\\PC{0,200}",
        counts in proptest::array::uniform4(0u64..u64::MAX / 8),
        bins in 0usize..400,
        time in -1e9f64..1e9,
    ) {
        let mut report = fixture::inconclusive();
        let backend = "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535".parse().expect("an address");
        let row = &mut report.entries.pointing_at[0];
        (row.backend, row.pod, row.entries) = (backend, Some(name.clone()), counts[0]);
        report.pods.push(PodRow {
            name: name.clone(),
            address: Some(backend.ip()),
            asked: None,
            gone: Some(time),
            rules_lag: Some(time),
        });
        report.hooks.push(HookRow { name: name.clone(), attached: false, note: Some(words.clone()) });
        report.losses.push(LossRow { source: name.clone(), count: counts[1], at_least: true, from: time, to: time });
        report.stories[0].title = words.clone();
        report.stories[0].steps[0].text = name.clone();
        report.stories[0].steps[1].time = time;
        report.survived = fixture::refuted().survived;
        report.survived[0].why = words.clone();
        report.survived[0].source = backend;
        report.hypothesis.reasons = vec![words.clone(), name.clone()];
        report.notes.push(words);
        report.rollouts[0].deployment = name.clone();
        report.rollouts[0].finished = Some(time);
        report.origin.command = name.repeat(3);
        report.requests.total = counts[2];
        report.contrast.other_ok = counts[3];
        report.failures.late.insert(crate::verdict::Cause::Unseen, counts[3]);
        report.bins = report.bins.iter().cycle().take(bins).cloned().collect();
        for (n, bin) in report.bins.iter_mut().enumerate() {
            bin.from = 10.0 * n as f64;
            bin.late = counts[n % 4] / 1_000;
        }
        let text = render(&report, &Style { width, color: false });
        for line in text.lines() {
            prop_assert!(line.chars().count() <= width, "{} > {width}: {line}", line.chars().count());
            prop_assert!(line.trim_end() == line, "ends in a space: {line:?}");
        }
        let colored = render(&report, &Style { width, color: true });
        prop_assert_eq!(plain_text(&colored), text);
    }
}
