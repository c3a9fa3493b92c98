//! How could `supported` be said on false grounds? Each trace here tried.

use expect_test::expect;

use super::{causes, outcome, rollout};

#[test]
fn pods_that_are_there_throughout_leave_nothing_stale() {
    let said = outcome(
        "0s     pod a 10.0.1.7 added
         0s     pod b 10.0.1.8 added
         0s     load until 150s to b
         5s     rollout started
         12s    rollout finished
         10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    blackhole 40002 isn 2 left 90.5s to a request 2",
    );
    expect![[r#"
        Refuted 0.00
        - all 1 late failures have another cause: 1 pod-unanswered
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn without_any_word_of_pods_nothing_is_gone() {
    let said = outcome(
        "0s     load until 150s to 10.0.1.8
         5s     rollout started
         12s    rollout finished
         10.5s  blackhole 40002 isn 1 left 120s to 10.0.1.7 request 1
         40s    blackhole 40002 isn 2 left 90.5s to 10.0.1.7 request 2",
    );
    expect![[r#"
        Inconclusive 0.00
        - no event tells of pods: which backends were gone is not known
        - 1 late failures: whether 10.0.1.7:8080 was there
        StaleRules: Inconclusive
        Dns: Inconclusive
    "#]]
    .assert_eq(&said);
}

#[test]
fn an_outage_in_which_everyone_fails_is_no_contrast() {
    // The exposed attempt fails, and so does everyone else at that time.
    let said = outcome(
        "0s     pod a 10.0.1.7 added
         0s     pod b 10.0.1.8 added
         0s     load until 16s to b
         5s     rollout started
         10s    pod a 10.0.1.7 asked
         10.9s  pod a 10.0.1.7 deleted
         12s    rollout finished
         10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    blackhole 40002 isn 2 left 90.5s to a request 2
         41s    request 3 40030 connect-timeout 3s
         41.001s syn 40030 isn 3 left 120s to b
         41.0011s hop 40030 isn 3 to b
         42s    request 4 40032 connect-timeout 3s
         42.001s syn 40032 isn 4 left 120s to b
         42.0011s hop 40032 isn 4 to b",
    );
    expect![[r#"
        Inconclusive 0.33
        - 1 of 3 late failures sent their first SYN on an older entry to a pod that was gone
        - late attempts that met a stale entry: 1 of 1 failed; others: 2 of 2
        - the contrast is too weak to tell
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn without_others_to_compare_with_there_is_no_contrast() {
    let said = outcome(
        "0s     pod a 10.0.1.7 added
         5s     rollout started
         10s    pod a 10.0.1.7 asked
         10.9s  pod a 10.0.1.7 deleted
         12s    rollout finished
         10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    blackhole 40002 isn 2 left 90.5s to a request 2",
    );
    expect![[r#"
        Inconclusive 1.00
        - 1 of 1 late failures sent their first SYN on an older entry to a pod that was gone
        - late attempts that met a stale entry: 1 of 1 failed; others: 0 of 0
        - the contrast is too weak to tell
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_pod_that_was_deleted_by_force_and_still_answers_is_no_evidence() {
    let said = outcome(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    request 2 40002 response-timeout 3s
         40.001s syn 40002 isn 2 left 90.5s to a
         40.002s synack 40002 isn 2 from a",
    ));
    expect![[r#"
        Inconclusive 0.00
        - the address of a accepted 1 connect after its deletion, the last at 40.0 s: what is told of pods is of another time or cluster, or another pod has the address
        - 1 late failures: who answered is not known
        StaleRules: Inconclusive
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn an_entry_to_the_heir_of_an_address_is_not_stale() {
    let said = outcome(&rollout(
        "20s    pod d 10.0.1.7 added
         25s    blackhole 40002 isn 1 left 120s to d request 1
         40s    blackhole 40002 isn 2 left 105s to d request 2",
    ));
    expect![[r#"
        Refuted 0.00
        - all 2 late failures have another cause: 2 pod-unanswered
        - 1 late connects timed out on a fresh entry to a live pod, and nothing explains it
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_retransmission_after_the_request_ended_is_no_new_attempt() {
    // The client gave up after 3 s but left its socket open; the port belongs to nobody new.
    let said = outcome(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         17.5s  syn 40002 isn 1 left 113s to a
         25.5s  syn 40002 isn 1 left 105s to a",
    ));
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
fn an_unanswered_entry_to_a_live_pod_is_not_stale() {
    let said = outcome(&rollout(
        "20s    blackhole 40002 isn 1 left 120s to b request 1
         40s    blackhole 40002 isn 2 left 100s to b request 2",
    ));
    expect![[r#"
        Refuted 0.00
        - all 2 late failures have another cause: 2 pod-unanswered
        - 1 late connects timed out on a fresh entry to a live pod, and nothing explains it
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_fresh_entry_under_a_shorter_timer_is_not_old() {
    let said = outcome(&rollout("90s    blackhole 40002 isn 2 left 60s to a request 2"));
    expect![[r#"
        Inconclusive 0.00
        - 1 late failures: the SYN that made the entry should have been seen and was not
        StaleRules: Inconclusive
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn syns_swapped_between_ports_do_not_fit_their_entries() {
    // Two ports' SYNs exchanged: the entry of 40002 was made at 10.5 s, that of 40004 at 11.5 s.
    let said = outcome(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         11.5s  blackhole 40004 isn 2 left 120s to a request 2
         40s    blackhole 40002 isn 3 left 91.5s to a request 3
         41s    blackhole 40004 isn 4 left 89.5s to a request 4",
    ));
    expect![[r#"
        Inconclusive 0.00
        - 2 late failures: the SYN that made the entry should have been seen and was not
        StaleRules: Inconclusive
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_pod_sharing_its_address_with_one_that_is_there_is_not_gone() {
    // Pods in the host's network share their node's address.
    let said = outcome(&rollout(
        "0s     pod h 10.0.1.7 added
         10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    blackhole 40002 isn 2 left 90.5s to a request 2",
    ));
    expect![[r#"
        Refuted 0.00
        - all 1 late failures have another cause: 1 pod-unanswered
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn an_entry_whose_life_can_not_be_read_is_no_evidence() {
    let said = outcome(&rollout(
        "10.5s  request 1 40002 connect-timeout 3s
         10.501s syn 40002 isn 1 left ? to a
         40s    request 2 40002 connect-timeout 3s
         40.001s syn 40002 isn 2 left ? to a",
    ));
    expect![[r#"
        Inconclusive 0.00
        - 1 late failures: whether its entry was its own
        StaleRules: Inconclusive
        Dns: Inconclusive
    "#]]
    .assert_eq(&said);
}

#[test]
fn without_a_known_timer_an_age_is_no_evidence() {
    let said = outcome(&rollout(
        "no timer
         13s    blackhole 40004 isn 1 left 80s to a request 1
         40s    blackhole 40006 isn 2 left 60s to a request 2",
    ));
    expect![[r#"
        Inconclusive 0.00
        - 1 late failures: whether its entry was its own
        StaleRules: Inconclusive
        Dns: Inconclusive
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_new_entry_to_the_same_pod_on_a_kernel_that_does_not_renew_is_fresh() {
    // Something flushed the entry; late rules chose the same pod again.
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
fn a_pod_that_answers_after_the_failure_was_not_gone_then() {
    let said = outcome(&rollout(
        "6s     pod c 10.0.1.9 added
         11s    pod c 10.0.1.9 asked
         11.5s  blackhole 40002 isn 1 left 120s to c request 1
         30s    blackhole 40002 isn 2 left 101.5s to c request 2
         60s    connect 40040 isn 7 to c",
    ));
    expect![[r#"
        Refuted 0.00
        - all 1 late failures have another cause: 1 pod-unanswered
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_request_that_was_accepted_in_the_end_failed_of_something_else_too() {
    // Its entry expires in the middle, the next one leads to a live pod, which is slow.
    let said = outcome(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         129.5s request 2 40002 response-timeout 5s
         129.501s syn 40002 isn 2 left 1s to a
         130.6s syn 40002 isn 2 left 120s to b
         130.601s synack 40002 isn 2 from b",
    ));
    expect![[r#"
        Inconclusive 0.00
        - 1 late failures: it was accepted in the end
        StaleRules: Inconclusive
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_live_pod_that_refused_the_syn_after_the_entry_had_expired_is_to_blame() {
    let said = causes(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         129.5s request 2 40002 refused 1100ms
         129.501s syn 40002 isn 2 left 1s to a
         130.59s syn 40002 isn 2 left 120s to b
         130.591s rst 40002 isn 2 from b",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 0.50 s
        2 late pod-not-serving: b refused it with a RST
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_syn_that_was_sent_again_to_another_pod_and_not_answered_is_no_whole_evidence() {
    let said = outcome(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         129.5s request 2 40002 connect-timeout 3s
         129.501s syn 40002 isn 2 left 1s to a
         130.6s syn 40002 isn 2 left 120s to b",
    ));
    expect![[r#"
        Inconclusive 0.00
        - 1 late failures: the entry expired in the middle and its SYN was sent again to 10.0.1.8:8080
        StaleRules: Inconclusive
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_reset_from_an_address_that_nobody_has_leaves_open_who_answered() {
    let said = outcome(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    request 2 40002 refused 2ms
         40.001s syn 40002 isn 2 left 90.5s to a
         40.002s rst 40002 isn 2 from a",
    ));
    expect![[r#"
        Inconclusive 0.00
        - 1 late failures: who answered is not known
        StaleRules: Inconclusive
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_heir_of_the_same_app_that_accepted_is_not_to_blame_for_sure() {
    let said = outcome(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         20s    pod d 10.0.1.7 added
         40s    request 2 40002 response-timeout 3s
         40.001s syn 40002 isn 2 left 90.5s to a
         40.002s synack 40002 isn 2 from a",
    ));
    expect![[r#"
        Inconclusive 0.00
        - 1 late failures: the pod that has the address now is one of the same app
        StaleRules: Inconclusive
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn attempts_of_an_unlogged_client_that_fail_alike_weaken_the_contrast() {
    let said = outcome(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    blackhole 40002 isn 2 left 90.5s to a request 2
         41s    syn 41000 isn 5 left 120s to b
         42s    syn 41000 isn 5 left 119s to b",
    ));
    expect![[r#"
        Inconclusive 1.00
        - 1 of 1 late failures sent their first SYN on an older entry to a pod that was gone
        - late attempts that met a stale entry: 1 of 1 failed; others: 1 of 133 (p = 1.49e-2)
        - the contrast is too weak to tell
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_pod_that_still_reset_others_was_there() {
    let said = outcome(&rollout(
        "6s     pod c 10.0.1.9 added
         11s    pod c 10.0.1.9 asked
         11.5s  blackhole 40002 isn 1 left 120s to c request 1
         30s    blackhole 40002 isn 2 left 101.5s to c request 2
         60s    send-reset 40040 isn 7 by c",
    ));
    expect![[r#"
        Refuted 0.00
        - all 1 late failures have another cause: 1 pod-unanswered
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn one_whole_finding_does_not_carry_many_that_are_not() {
    // A `ct timeout` policy of 60 s makes the fresh choices of late rules look a minute old.
    let said = outcome(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    blackhole 40002 isn 2 left 90.5s to a request 2
         90s    blackhole 40020 isn 3 left 60s to a request 3
         95s    blackhole 40022 isn 4 left 60s to a request 4",
    ));
    expect![[r#"
        Inconclusive 0.33
        - 1 of 3 late failures sent their first SYN on an older entry to a pod that was gone
        - 2 more did so with evidence that is not whole
        - 2 late failures: the SYN that made the entry should have been seen and was not
        - late attempts that met a stale entry: 3 of 3 failed; others: 0 of 132 (p = 2.49e-6)
        - most of the evidence is not whole
        StaleRules: Inconclusive
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_pod_that_gets_its_address_late_did_not_own_it_before() {
    // The entry points at a; that d has a's address later, and is there, must not hide nor excuse it.
    let said = outcome(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         15s    pod d - added
         40s    blackhole 40002 isn 2 left 90.5s to a request 2
         60s    pod d 10.0.1.7 ready",
    ));
    expect![[r#"
        Supported 1.00
        - 1 of 1 late failures sent their first SYN on an older entry to a pod that was gone
        - late attempts that met a stale entry: 1 of 1 failed; others: 0 of 132 (p = 7.52e-3)
        - nothing was lost or seen that speaks against it
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&said);
}

#[test]
fn one_whole_finding_does_not_carry_many_that_were_not_seen() {
    let said = outcome(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    blackhole 40002 isn 2 left 90.5s to a request 2
         50s    request 3 40004 connect-timeout 3s",
    ));
    expect![[r#"
        Inconclusive 0.50
        - 1 of 2 late failures sent their first SYN on an older entry to a pod that was gone
        - late attempts that met a stale entry: 1 of 1 failed; others: 1 of 133 (p = 1.49e-2)
        - 1 late failures: no packet of its source port was seen, though nothing was lost
        - most of the evidence is not whole
        StaleRules: Inconclusive
        Dns: Inconclusive
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_pod_that_accepts_connects_after_its_deletion_is_not_gone() {
    let late = "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    blackhole 40002 isn 2 left 90.5s to a request 2
         45s    blackhole 40002 isn 8 left 85.5s to a request 8";
    let said = outcome(&rollout(late));
    assert!(said.starts_with("Supported"), "{said}");
    let said = outcome(&rollout(&format!("{late}\n50s connect 40100 isn 5 to a")));
    assert!(said.starts_with("Inconclusive"), "{said}");
    assert!(said.contains("the address of a accepted 1 connect after its deletion"), "{said}");
}

#[test]
fn a_log_without_the_failures_that_packets_show_proves_no_absence() {
    // Three SYNs each on the entry of an earlier connect, and no request for them.
    let late = "10.5s  syn 40002 isn 1 left 120s to a
         40s    syn 40002 isn 2 left 90.5s to a
         41s    syn 40002 isn 2 left 89.5s to a
         43s    syn 40002 isn 2 left 87.5s to a";
    let said = outcome(&rollout(late));
    assert!(said.starts_with("Inconclusive"), "{said}");
    assert!(said.contains("the log has no failed request for them"), "{said}");
}
