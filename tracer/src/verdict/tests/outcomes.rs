//! The outcome of the reused source port, and of its rivals.

use expect_test::expect;

use super::{outcome, rollout};

/// The entry of an early failure is met again late, twice.
const REUSED: &str = "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    blackhole 40002 isn 2 left 90.5s to a request 2
         45s    blackhole 40002 isn 8 left 85.5s to a request 8";

#[test]
fn late_failures_on_stale_entries_support_it() {
    let said = outcome(&rollout(REUSED));
    expect![[r#"
        Supported 1.00
        - 2 of 2 late failures sent their first SYN on an older entry to a pod that was gone
        - late attempts that met a stale entry: 2 of 2 failed; others: 0 of 132 (p = 1.12e-4)
        - nothing was lost or seen that speaks against it
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn late_failures_by_fresh_choices_refute_it_and_support_the_rival() {
    let said = outcome(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    blackhole 40002 isn 2 left 120s to a request 2",
    ));
    expect![[r#"
        Refuted 0.00
        - all 1 late failures have another cause: 1 stale-rules
        StaleRules: Supported
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_loss_after_the_rollout_makes_it_inconclusive() {
    let said = outcome(&rollout(&format!(
        "{REUSED}
         70s    lost 12 xmit since 69s",
    )));
    expect![[r#"
        Inconclusive 1.00
        - 12 events were lost (ring buffer at net_dev_start_xmit) between 69.0 s and 70.0 s
        - 2 of 2 late failures met a stale entry
        StaleRules: Inconclusive
        Dns: Inconclusive
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_loss_while_the_entries_were_made_makes_it_inconclusive() {
    let said = outcome(&rollout(&format!(
        "{REUSED}
         10.6s  lost 3 xmit since 10.4s",
    )));
    expect![[r#"
        Inconclusive 1.00
        - 3 events were lost (ring buffer at net_dev_start_xmit) between 10.4 s and 10.6 s
        - 2 of 2 late failures met a stale entry
        StaleRules: Inconclusive
        Dns: Inconclusive
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_loss_before_anything_could_matter_does_not() {
    let said = outcome(&rollout(&format!(
        "{REUSED}
         2s     lost 3 xmit since 1s",
    )));
    expect![[r#"
        Supported 1.00
        - 2 of 2 late failures sent their first SYN on an older entry to a pod that was gone
        - late attempts that met a stale entry: 2 of 2 failed; others: 0 of 132 (p = 1.12e-4)
        - nothing was lost or seen that speaks against it
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn lost_socket_changes_do_not_matter() {
    let said = outcome(&rollout(&format!(
        "{REUSED}
         70s    lost 3 state since 60s
         71s    lost 3 ordering since 60s",
    )));
    expect![[r#"
        Supported 1.00
        - 2 of 2 late failures sent their first SYN on an older entry to a pod that was gone
        - late attempts that met a stale entry: 2 of 2 failed; others: 0 of 132 (p = 1.12e-4)
        - nothing was lost or seen that speaks against it
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_gap_in_the_request_log_or_the_watch_does() {
    let said = outcome(&rollout(&format!(
        "{REUSED}
         70s    lost 3 requests since 60s
         71s    lost 1 cluster since 60s",
    )));
    expect![[r#"
        Inconclusive 1.00
        - 3 events were lost (request log) between 60.0 s and 70.0 s
        - 1 event was lost (cluster watch) between 60.0 s and 71.0 s
        - 2 of 2 late failures met a stale entry
        StaleRules: Inconclusive
        Dns: Inconclusive
    "#]]
    .assert_eq(&said);
}

#[test]
fn no_late_failure_and_every_stale_entry_expired_is_not_observed() {
    let said = outcome(&rollout("10.5s  blackhole 40002 isn 1 left 120s to a request 1"));
    expect![[r#"
        NotObserved
        - no request failed late
        - the trace covers the life of all 1 stale entries, with connects being made
        StaleRules: NotObserved
        Dns: NotObserved
    "#]]
    .assert_eq(&said);
}

#[test]
fn no_stale_entry_at_all_is_not_observed() {
    let said = outcome(&rollout(""));
    expect![[r#"
        NotObserved
        - no request failed late
        - no entry pointed at a pod that was gone
        StaleRules: NotObserved
        Dns: NotObserved
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_trace_that_ends_before_the_last_entry_expires_is_inconclusive() {
    let said = outcome(
        "0s     pod a 10.0.1.7 added
         0s     pod b 10.0.1.8 added
         0s     load until 60s to b
         5s     rollout started
         10s    pod a 10.0.1.7 asked
         10.9s  pod a 10.0.1.7 deleted
         12s    rollout finished
         10.5s  blackhole 40002 isn 1 left 120s to a request 1",
    );
    expect![[r#"
        Inconclusive
        - no request failed late
        - the trace ended 71.5 s before the last stale entry expired
        StaleRules: NotObserved
        Dns: NotObserved
    "#]]
    .assert_eq(&said);
}

#[test]
fn connects_that_stop_while_entries_live_are_inconclusive() {
    let said = outcome(
        "0s     pod a 10.0.1.7 added
         0s     pod b 10.0.1.8 added
         0s     load until 60s to b
         5s     rollout started
         10s    pod a 10.0.1.7 asked
         10.9s  pod a 10.0.1.7 deleted
         12s    rollout finished
         10.5s  blackhole 40002 isn 1 left 120s to a request 1
         140s   connect 40100 isn 5 to b",
    );
    expect![[r#"
        Inconclusive
        - no request failed late
        - no connects were made for more than 10 s while stale entries were alive
        StaleRules: NotObserved
        Dns: NotObserved
    "#]]
    .assert_eq(&said);
}

#[test]
fn not_observed_needs_a_trace_without_loss() {
    let said = outcome(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         70s    lost 12 xmit since 69s",
    ));
    expect![[r#"
        Inconclusive
        - no request failed late
        - 12 events were lost (ring buffer at net_dev_start_xmit) between 69.0 s and 70.0 s
        StaleRules: Inconclusive
        Dns: Inconclusive
    "#]]
    .assert_eq(&said);
}

#[test]
fn an_exposed_attempt_that_did_not_fail_refutes_it() {
    let said = outcome(&rollout(
        "11s    request 1 40002 unreachable 50ms
         11.001s syn 40002 isn 1 left 120s to a
         11.05s icmp 40002 3 1 from 10.0.9.9 to a
         40s    request 2 40002 ok 50ms
         40.001s syn 40002 isn 2 left 91s to a
         40.002s synack 40002 isn 2 from a",
    ));
    expect![[r#"
        Refuted
        - 1 attempts met a stale entry and did not fail, and nothing explains it
        StaleRules: NotObserved
        Dns: NotObserved
    "#]]
    .assert_eq(&said);
}

#[test]
fn exposed_attempts_of_which_some_fail_for_no_reason_are_inconclusive() {
    let said = outcome(&rollout(&format!(
        "{REUSED}
         60s    request 3 40002 ok 50ms
         60.001s syn 40002 isn 3 left 70.5s to a
         60.002s synack 40002 isn 3 from a",
    )));
    expect![[r#"
        Inconclusive 1.00
        - the address of a accepted 1 connect after its deletion, the last at 60.0 s: what is told of pods is of another time or cluster, or another pod has the address
        - 2 of 2 late failures met a stale entry
        - 1 attempts met a stale entry and did not fail, and nothing explains it
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn an_entry_that_expired_in_the_middle_is_no_falsifier() {
    let said = outcome(&rollout(&format!(
        "{REUSED}
         129.5s request 3 40002 ok 1100ms
         129.501s syn 40002 isn 3 left 1s to a
         130.6s syn 40002 isn 3 left 120s to b
         130.601s synack 40002 isn 3 from b",
    )));
    expect![[r#"
        Supported 1.00
        - 2 of 2 late failures sent their first SYN on an older entry to a pod that was gone
        - late attempts that met a stale entry: 2 of 3 failed; others: 0 of 132 (p = 3.32e-4)
        - nothing was lost or seen that speaks against it
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_late_timeout_on_a_fresh_entry_to_a_live_pod_is_a_falsifier() {
    let said = outcome(&rollout(&format!(
        "{REUSED}
         60s    blackhole 40020 isn 5 left 120s to b request 3",
    )));
    expect![[r#"
        Inconclusive 0.67
        - 2 of 3 late failures met a stale entry
        - 1 late connects timed out on a fresh entry to a live pod, and nothing explains it
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn late_failures_of_another_cause_lower_the_share() {
    let said = outcome(&rollout(&format!(
        "{REUSED}
         60s    request 3 40020 response-timeout 3s
         60.001s syn 40020 isn 5 left 120s to b
         60.002s synack 40020 isn 5 from b",
    )));
    expect![[r#"
        Supported 0.67
        - 2 of 3 late failures sent their first SYN on an older entry to a pod that was gone
        - late attempts that met a stale entry: 2 of 2 failed; others: 1 of 133 (p = 3.32e-4)
        - nothing was lost or seen that speaks against it
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn two_causes_are_both_supported_each_with_its_share() {
    let said = outcome(&rollout(&format!(
        "{REUSED}
         60s    blackhole 40020 isn 5 left 120s to a request 3",
    )));
    expect![[r#"
        Supported 0.67
        - 2 of 3 late failures sent their first SYN on an older entry to a pod that was gone
        - late attempts that met a stale entry: 2 of 2 failed; others: 1 of 133 (p = 3.32e-4)
        - nothing was lost or seen that speaks against it
        StaleRules: Supported
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn late_failures_without_packets_are_inconclusive() {
    let said = outcome(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         60s    request 3 40020 connect-timeout 3s",
    ));
    expect![[r#"
        Inconclusive 0.00
        - 1 late failures: no packet of its source port was seen, though nothing was lost
        StaleRules: Inconclusive
        Dns: Inconclusive
    "#]]
    .assert_eq(&said);
}

#[test]
fn without_the_hook_nothing_can_be_said() {
    let said = outcome(&rollout(&format!(
        "no hook
         {REUSED}",
    )));
    expect![[r#"
        Inconclusive 0.00
        - the hook net_dev_start_xmit was not attached: no SYN could be seen
        - 2 late failures: the hook net_dev_start_xmit was not attached
        StaleRules: Inconclusive
        Dns: Inconclusive
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_rollout_that_did_not_finish_is_inconclusive() {
    let said = outcome(
        "0s     pod a 10.0.1.7 added
         0s     load until 20s to a
         5s     rollout started",
    );
    expect![[r#"
        Inconclusive
        - no request failed late
        - the rollout was not complete when the trace ended
        StaleRules: Inconclusive
        Dns: Inconclusive
    "#]]
    .assert_eq(&said);
}

#[test]
fn without_requests_nothing_can_be_said() {
    let said = outcome(
        "0s     pod a 10.0.1.7 added
         10s    pod a 10.0.1.7 deleted
         9.5s   syn 40002 isn 1 left 120s to a
         10.5s  syn 40002 isn 1 left 119s to a
         40s    syn 40002 isn 2 left 89.5s to a
         41s    syn 40002 isn 2 left 88.5s to a
         80s    pod b 10.0.1.8 added",
    );
    expect![[r#"
        Inconclusive
        - no request failed late
        - no request log: 1 attempts met a stale entry and 1 of them were not answered, but which requests failed is not known
        - the trace ended 49.5 s before the last stale entry expired
        StaleRules: Inconclusive
        Dns: Inconclusive
    "#]].assert_eq(&said);
}

#[test]
fn without_any_event_nothing_can_be_said() {
    let said = outcome("");
    expect![[r#"
        Inconclusive
        - no request failed late
        - no packet and no request was seen: is the Service's address the one that clients use, and do they use it on this node?
        StaleRules: Inconclusive
        Dns: Inconclusive
    "#]]
    .assert_eq(&said);
}

#[test]
fn without_a_rollout_each_deletion_is_judged_alike() {
    let said = outcome(
        "0s     pod a 10.0.1.7 added
         0s     pod b 10.0.1.8 added
         0s     load until 150s to b
         10s    pod a 10.0.1.7 asked
         10.9s  pod a 10.0.1.7 deleted
         10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    blackhole 40002 isn 2 left 90.5s to a request 2",
    );
    expect![[r#"
        Supported 1.00
        - 1 of 1 late failures sent their first SYN on an older entry to a pod that was gone
        - late attempts that met a stale entry: 1 of 1 failed; others: 0 of 134 (p = 7.41e-3)
        - nothing was lost or seen that speaks against it
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn without_a_rollout_or_a_deletion_nothing_was_observed() {
    let said = outcome(
        "0s     pod b 10.0.1.8 added
         0s     load until 30s to b",
    );
    expect![[r#"
        NotObserved
        - no request failed late
        - no entry pointed at a pod that was gone
        StaleRules: NotObserved
        Dns: NotObserved
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_failure_with_nothing_to_be_late_after_is_inconclusive() {
    let said = outcome(
        "0s     pod b 10.0.1.8 added
         0s     load until 30s to b
         10s    blackhole 40002 isn 1 left 120s to b request 1",
    );
    expect![[r#"
        Inconclusive
        - no request failed late
        - no rollout and no deletion was seen, so nothing can be called late
        StaleRules: Inconclusive
        Dns: Inconclusive
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_trace_that_ends_before_anything_could_be_late_is_no_absence() {
    let said = outcome(
        "0s     pod a 10.0.1.7 added
         0s     pod b 10.0.1.8 added
         0s     load until 14s to b
         5s     rollout started
         10s    pod a 10.0.1.7 asked
         10.9s  pod a 10.0.1.7 deleted
         12s    rollout finished",
    );
    expect![[r#"
        Inconclusive
        - no request failed late
        - no request started late: late begins at 17.0 s, the trace ends at 13.1 s
        StaleRules: Inconclusive
        Dns: Inconclusive
    "#]]
    .assert_eq(&said);
}
