//! Names that did not resolve, or took too long.

use expect_test::expect;

use super::*;

#[test]
fn a_name_that_does_not_resolve_is_dns_and_supports_the_rival() {
    let text = rollout(
        "30s  request 1 - local 3s name 3s unanswered
         31s  request 2 - local 1ms name 1ms no-such-name
         32s  request 3 - local 1ms",
    );
    expect![[r#"
        1 late dns: its name did not resolve within 3.00 s: no DNS server answered
        2 late dns: its name did not resolve within 0.00 s: there is no such name
        3 late local-error: the client could not open a connection
    "#]]
    .assert_eq(&causes(&text));
    expect![[r#"
        Refuted 0.00
        - all 3 late failures have another cause: 2 dns, 1 local-error
        StaleRules: Refuted
        Dns: Supported
    "#]]
    .assert_eq(&outcome(&text));
    // Neither has an attempt, so neither stands against those that met nothing.
    let contrast = verdict(&text).contrast;
    assert_eq!((contrast.other_failed, contrast.stale_failed), (0, 0));
}

#[test]
fn a_failure_after_a_quick_name_is_not_dns() {
    let text = rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    request 2 40002 connect-timeout 3s name 2ms
         40.003s syn 40002 isn 2 left 90.5s to a
         41.003s syn 40002 isn 2 left 89.5s to a",
    );
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 0.50 s
        2 late stale-entry-reuse: its SYN met an entry 29.5 s old in SYN_SENT to a, gone for 30.0 s
    "#]]
    .assert_eq(&causes(&text));
    expect![[r#"
        Supported 1.00
        - 1 of 1 late failures sent their first SYN on an older entry to a pod that was gone
        - late attempts that met a stale entry: 1 of 1 failed; others: 0 of 132 (p = 7.52e-3)
        - nothing was lost or seen that speaks against it
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&outcome(&text));
}

#[test]
fn a_name_that_left_no_time_for_the_rest_is_dns() {
    // The SYN goes out only after the name, so its entry is its own and it is the first.
    let said = causes(&rollout(
        "30s     request 1 40002 connect-timeout 3s name 2900ms
         32.901s syn 40002 isn 1 left 120s to b
         40s     request 2 40004 connect-timeout 3s name 1900ms
         41.901s syn 40004 isn 2 left 120s to b
         42.901s syn 40004 isn 2 left 119s to b",
    ));
    expect![[r#"
        1 late dns: its name took 2.90 s to resolve, which left 0.10 s for the rest
        2 late pod-unanswered: its SYN was sent to b and nothing came back
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_stale_entry_after_a_slow_name_stays_what_it_is() {
    let said = causes(&rollout(
        "10.5s   blackhole 40002 isn 1 left 120s to a request 1
         40s     request 2 40002 connect-timeout 3s name 2500ms
         42.501s syn 40002 isn 2 left 88s to a",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 0.50 s
        2 late stale-entry-reuse: its SYN met an entry 32.0 s old in SYN_SENT to a, gone for 32.5 s
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_loss_of_requests_leaves_dns_open() {
    let text = rollout(
        "30s  request 1 - local 3s name 3s server-failed
         35s  lost 4 requests since 20s",
    );
    expect![[r#"
        Inconclusive 0.00
        - 4 events were lost (request log) between 20.0 s and 35.0 s
        StaleRules: Inconclusive
        Dns: Inconclusive
    "#]]
    .assert_eq(&outcome(&text));
}

#[test]
fn requests_slowed_by_their_name_are_counted() {
    let requests = timeline(&scene(&rollout(
        "30s     request 1 40002 ok 2s name 1900ms
         31.901s syn 40002 isn 1 left 120s to b
         31.902s synack 40002 isn 1 from b
         40s     request 2 40004 ok 60ms name 10ms",
    )))
    .requests;
    assert_eq!((requests.slow_names, requests.slowed, requests.failed), (1, 0, 0));
}
