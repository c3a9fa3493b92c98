//! The cause of each failed request.

use expect_test::expect;

use super::{causes, rollout};

#[test]
fn a_reused_port_meets_the_entry_of_its_earlier_owner() {
    let said = causes(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    blackhole 40002 isn 2 left 90.5s to a request 2",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 0.50 s
        2 late stale-entry-reuse: its SYN met an entry 29.5 s old in SYN_SENT to a, gone for 30.0 s
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_fresh_choice_of_a_pod_that_is_gone_is_stale_rules() {
    // The same, but the entry is the attempt's own: late rules, not a reused port.
    let said = causes(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    blackhole 40002 isn 2 left 120s to a request 2",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 0.50 s
        2 late stale-rules: the rules chose a afresh, gone for 30.0 s
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_retransmission_is_not_a_reused_port() {
    // Its entry is two seconds old at its last SYN, by itself.
    let said = causes(&rollout(
        "30s    request 1 40002 connect-timeout 3s
         30.001s syn 40002 isn 1 left 120s to b
         31.001s syn 40002 isn 1 left 119s to b
         32.001s syn 40002 isn 1 left 118s to b",
    ));
    expect![[r#"
        1 late pod-unanswered: its SYN was sent to b and nothing came back
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_retransmission_whose_first_syn_was_lost_is_not_a_reused_port() {
    let said = causes(&rollout(
        "10.2s  request 1 40002 connect-timeout 3s
         11.3s  lost 4 xmit since 10.1s
         11.301s syn 40002 isn 1 left 118.9s to a",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 1.30 s
    "#]]
    .assert_eq(&said);
}

#[test]
fn an_entry_that_expired_in_between_is_not_met() {
    let said = causes(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         131s   blackhole 40002 isn 2 left 120s to b request 2",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 0.50 s
        2 late pod-unanswered: its SYN was sent to b and nothing came back
    "#]]
    .assert_eq(&said);
}

#[test]
fn hops_of_one_syn_are_one_attempt() {
    // The pod's node has an entry of its own, to the pod: neither stale nor untranslated.
    let said = causes(&rollout(
        "30s    request 1 40002 connect-timeout 3s
         30.001s syn 40002 isn 1 left 120s to b
         30.0011s hop 40002 isn 1 to b
         31.001s syn 40002 isn 1 left 119s to b
         31.0011s hop 40002 isn 1 to b",
    ));
    expect![[r#"
        1 late pod-unanswered: its SYN reached b and nothing came back
    "#]]
    .assert_eq(&said);
}

#[test]
fn an_entry_that_saw_a_reply_is_told_apart() {
    let said = causes(&rollout(
        "9.95s  connect 40002 isn 1 to a
         12.5s  request 2 40002 connect-timeout 3s
         12.501s syn 40002 isn 2 left 110s replied FIN_WAIT to a
         13.501s syn 40002 isn 2 left 109s replied FIN_WAIT to a
         30s    request 3 40004 connect-timeout 3s
         30.001s syn 40004 isn 3 left 86000s replied ESTABLISHED to a",
    ));
    expect![[r#"
        2 early stale-replied-entry: its SYN met an entry 2.55 s old in FIN_WAIT to a, gone for 2.50 s
        3 late stale-replied-entry: its SYN met an entry that had seen a reply before in ESTABLISHED to a, gone for 20.0 s
    "#]].assert_eq(&said);
}

#[test]
fn a_terminating_pod_that_still_answers_is_not_gone() {
    // It answers another client's port at 32 s, so it was there at 30 s.
    let said = causes(&rollout(
        "6s     pod c 10.0.1.9 added
         14s    pod c 10.0.1.9 asked
         15s    blackhole 40002 isn 1 left 120s to c request 1
         30s    blackhole 40002 isn 2 left 105s to c request 2
         32s    connect 40010 isn 3 to c
         33s    pod c 10.0.1.9 deleted",
    ));
    expect![[r#"
        1 early pod-unanswered: its SYN was sent to c and nothing came back
        2 late pod-unanswered: its SYN was sent to c and nothing came back
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_pod_that_was_asked_and_is_silent_is_gone() {
    let said = causes(&rollout(
        "6s     pod c 10.0.1.9 added
         11s    pod c 10.0.1.9 asked
         11.5s  blackhole 40002 isn 1 left 120s to c request 1
         30s    blackhole 40002 isn 2 left 101.5s to c request 2",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose c afresh, gone for 0.50 s
        2 late stale-entry-reuse: its SYN met an entry 18.5 s old in SYN_SENT to c, gone for 19.0 s
    "#]]
    .assert_eq(&said);
}

#[test]
fn an_address_that_belongs_to_another_pod_by_now_is_the_wrong_pod() {
    let said = causes(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         20s    pod d 10.0.1.7 added of db
         40s    request 2 40002 wrong-answer 50ms
         40.001s syn 40002 isn 2 left 90.501s to a
         40.002s synack 40002 isn 2 from a
         41s    blackhole 40006 isn 4 left 120s to d request 3",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 0.50 s
        2 late wrong-pod: its SYN met an entry 29.5 s old in SYN_SENT to a, gone for 30.0 s; its address belongs to d now
        3 late pod-unanswered: its SYN was sent to d and nothing came back
    "#]].assert_eq(&said);
}

#[test]
fn a_pod_that_comes_to_the_address_in_the_middle_is_the_wrong_pod_as_well() {
    let said = causes(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    request 2 40002 wrong-answer 1.1s
         40.001s syn 40002 isn 2 left 90.501s to a
         40.5s  pod d 10.0.1.7 added of db
         41.001s syn 40002 isn 2 left 89.501s to a
         41.002s synack 40002 isn 2 from a
         10.6s  blackhole 40004 isn 4 left 120s to a request 3
         40.1s  request 4 40004 refused 1.1s
         40.101s syn 40004 isn 5 left 90.501s to a
         41.101s syn 40004 isn 5 left 89.501s to a
         41.102s send-reset 40004 isn 5 by a",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 0.50 s
        3 early stale-rules: the rules chose a afresh, gone for 0.60 s
        2 late wrong-pod: its SYN met an entry 29.5 s old in SYN_SENT to a, gone for 30.0 s; its address belongs to d now
        4 late wrong-pod: its SYN met an entry 29.5 s old in SYN_SENT to a, gone for 30.1 s; its address belongs to d now
    "#]].assert_eq(&said);
}

#[test]
fn an_address_that_something_unknown_answers_from_lacks_evidence() {
    let said = causes(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    request 2 40002 wrong-answer 50ms
         40.001s syn 40002 isn 2 left 90.501s to a
         40.002s synack 40002 isn 2 from a",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 0.50 s
        2 late wrong-pod: its SYN met an entry 29.5 s old in SYN_SENT to a, gone for 30.0 s; something else answered from its address [who answered is not known]
    "#]].assert_eq(&said);
}

#[test]
fn a_stale_entry_that_is_answered_is_no_failure() {
    let said = causes(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    request 2 40002 ok 50ms
         40.001s syn 40002 isn 2 left 90.5s to a
         40.002s synack 40002 isn 2 from a",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 0.50 s
        survived, unexplained: it was answered all the same
    "#]]
    .assert_eq(&said);
}

#[test]
fn an_entry_that_expires_in_the_middle_slows_a_request() {
    let said = causes(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         129.5s request 2 40002 ok 1100ms
         129.501s syn 40002 isn 2 left 1s to a
         130.6s syn 40002 isn 2 left 120s to b
         130.601s synack 40002 isn 2 from b",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 0.50 s
        survived: the entry expired in the middle: its SYN sent again after 1.10 s went to 10.0.1.8:8080
    "#]].assert_eq(&said);
}

#[test]
fn a_refusal_removes_the_entry() {
    // The RST of the terminating pod kills its entry; the next SYN on the port makes a new one.
    let said = causes(&rollout(
        "10.1s  request 1 40002 refused 2ms
         10.101s syn 40002 isn 1 left 120s to a
         10.102s send-reset 40002 isn 1 by a
         10.1021s rst 40002 isn 1 from a
         40s    blackhole 40002 isn 2 left 120s to a request 2",
    ));
    expect![[r#"
        1 early pod-not-serving: a refused it with a RST
        2 late stale-rules: the rules chose a afresh, gone for 29.9 s
    "#]]
    .assert_eq(&said);
}

#[test]
fn an_icmp_error_leaves_the_entry() {
    let said = causes(&rollout(
        "11.5s  request 1 40002 unreachable 50ms
         11.501s syn 40002 isn 1 left 120s to a
         11.55s icmp 40002 3 1 from 10.0.9.9 to a
         40s    request 2 40002 unreachable 50ms
         40.001s syn 40002 isn 2 left 91.5s to a
         40.05s icmp 40002 3 1 from 10.0.9.9 to a",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 1.50 s
        2 late stale-entry-reuse: its SYN met an entry 28.5 s old in SYN_SENT to a, gone for 30.0 s
    "#]]
    .assert_eq(&said);
}

#[test]
fn masquerade_does_not_matter_the_original_tuple_decides() {
    let said = causes(&rollout(
        "10.5s  request 1 40002 connect-timeout 3s
         10.501s syn 40002 isn 1 left 120s masquerade 10.0.0.1:61000 to a
         40s    request 2 40002 connect-timeout 3s
         40.001s syn 40002 isn 2 left 90.5s masquerade 10.0.0.1:61000 to a",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 0.50 s
        2 late stale-entry-reuse: its SYN met an entry 29.5 s old in SYN_SENT to a, gone for 30.0 s
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_maker_from_before_the_trace_is_said_to_be_unseen() {
    let said = causes(&rollout("30s    blackhole 40004 isn 2 left 85s to a request 3"));
    expect![[r#"
        3 late stale-entry-reuse: its SYN met an entry 35.0 s old in SYN_SENT to a, gone for 20.0 s; its maker was not seen, its age is from its remaining life
    "#]].assert_eq(&said);
}

#[test]
fn an_entry_keeps_the_timer_that_was_in_force_when_it_was_made() {
    // Made under 120 s; the timer is 20 s when the port comes round, with 90.5 s left.
    let said = causes(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         11s    sysctl 20
         40s    blackhole 40002 isn 2 left 90.5s to a request 2
         41s    blackhole 40008 isn 3 left 89.5s to a request 3
         50s    blackhole 40010 isn 4 left 20s to a request 4",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 0.50 s
        2 late stale-entry-reuse: its SYN met an entry 29.5 s old in SYN_SENT to a, gone for 30.0 s
        3 late stale-entry-reuse: its SYN met an entry 30.5 s old in SYN_SENT to a, gone for 31.0 s; its maker was not seen, its age is from its remaining life [the SYN that made the entry should have been seen and was not]
        4 late stale-rules: the rules chose a afresh, gone for 40.0 s
    "#]].assert_eq(&said);
}

#[test]
fn a_changed_timer_can_make_an_age_ambiguous() {
    // Remaining 15 s: made 5 s ago under 20 s, or 105 s ago under 120 s.
    let said = causes(&rollout(
        "100s   sysctl 20
         110s   blackhole 40002 isn 2 left 15s to a request 2",
    ));
    expect![[r#"
        2 late unseen: its SYN went to a, gone for 100.0 s, but by a fresh or an older entry: the timer in force when the entry was made is not known for certain [whether its entry was its own]
    "#]].assert_eq(&said);
}

#[test]
fn a_kernel_that_renews_is_recognised_by_retransmissions() {
    let said = causes(&rollout(
        "10.5s  request 1 40002 connect-timeout 3s
         10.501s syn 40002 isn 1 left 120s to a
         11.501s syn 40002 isn 1 left 120s to a
         13.4s  syn 40002 isn 1 left 120s to a
         40s    request 2 40002 connect-timeout 3s
         40.001s syn 40002 isn 2 left 120s to a
         41.001s syn 40002 isn 2 left 120s to a
         150s   request 3 40002 connect-timeout 3s
         150.001s syn 40002 isn 3 left 120s to a",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 0.50 s
        2 late stale-entry-reuse: its SYN met an entry 29.5 s old in SYN_SENT to a, gone for 30.0 s
        3 late stale-entry-reuse: its SYN met an entry 139.5 s old in SYN_SENT to a, gone for 140.0 s
    "#]].assert_eq(&said);
}

#[test]
fn without_a_retransmission_a_renewed_entry_is_not_told_from_a_new_one() {
    let said = causes(&rollout(
        "11s    request 1 40002 unreachable 50ms
         11.001s syn 40002 isn 1 left 120s to a
         40s    request 2 40002 connect-timeout 500ms
         40.001s syn 40002 isn 2 left 120s to a",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 1.00 s
        2 late unseen: its SYN went to a, gone for 30.0 s, but by a fresh or an older entry: the entry could be an earlier one that this kernel renews, or a new one to the same pod [whether its entry was its own]
    "#]].assert_eq(&said);
}

#[test]
fn no_rule_matched() {
    let said = causes(&rollout(
        "30s    request 1 40002 connect-timeout 3s
         30.001s syn 40002 isn 1 left 120s to service",
    ));
    expect![[r#"
        1 late untranslated: its entry was made while no NAT rule matched
    "#]]
    .assert_eq(&said);
}

#[test]
fn the_clients_own_namespace_may_track_before_the_node_translates() {
    let said = causes(&rollout(
        "30s    request 1 40002 connect-timeout 3s
         30.001s syn 40002 isn 1 left 120s to service in 3
         30.0011s syn 40002 isn 1 left 120s to b",
    ));
    expect![[r#"
        1 late pod-unanswered: its SYN was sent to b and nothing came back
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_live_pod_refuses() {
    let said = causes(&rollout(
        "30s    request 1 40002 refused 2ms
         30.001s syn 40002 isn 1 left 120s to b
         30.002s send-reset 40002 isn 1 by b
         31s    request 2 40004 closed 20ms
         31.001s syn 40004 isn 2 left 120s to b
         31.002s synack 40004 isn 2 from b
         32s    request 3 40006 reset 20ms
         32.001s syn 40006 isn 3 left 120s to b
         32.002s synack 40006 isn 3 from b
         32.01s recv-reset 40006",
    ));
    expect![[r#"
        1 late pod-not-serving: b refused it with a RST
        2 late pod-not-serving: b closed before it had answered
        3 late pod-not-serving: b reset the connection
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_live_pod_accepts_and_is_slow() {
    let said = causes(&rollout(
        "30s    request 1 40002 response-timeout 3s
         30.001s syn 40002 isn 1 left 120s to b
         30.002s synack 40002 isn 1 from b
         35s    request 2 40004 connect-timeout 3s
         35.001s syn 40004 isn 2 left 120s to b
         35.002s synack 40004 isn 2 from b",
    ));
    expect![[r#"
        1 late slow-answer: b accepted and did not answer in time
        2 late slow-answer: b's SYN-ACK came, but the client did not wait for it
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_service_without_endpoints() {
    let said = causes(&rollout(
        "29s    endpoint b ready
         29.5s  endpoint b removed
         30s    request 1 40002 refused 1ms
         30.0005s icmp 40002 3 3 from 10.0.0.1 to service
         30.0004s drop 40002 isn 1 at node
         31s    request 2 40004 connect-timeout 3s
         31.001s syn 40004 isn 2 left 120s to service",
    ));
    expect![[r#"
        1 late no-endpoints: the Service had no endpoints
        2 late no-endpoints: the Service had no endpoints
    "#]]
    .assert_eq(&said);
}

#[test]
fn no_route_to_a_live_pod() {
    let said = causes(&rollout(
        "30s    request 1 40002 unreachable 3s
         30.001s syn 40002 isn 1 left 120s to b
         33s    icmp 40002 3 1 from 10.0.9.9 to b",
    ));
    expect![[r#"
        1 late unreachable: ICMP type 3 code 1 from 10.0.9.9
    "#]]
    .assert_eq(&said);
}

#[test]
fn conntrack_takes_the_syn_for_invalid() {
    let said = causes(&rollout(
        "30s    request 1 40002 connect-timeout 3s
         30.001s drop 40002 isn 1 at node",
    ));
    expect![[r#"
        1 late invalid: conntrack gave its SYN no entry; dropped: NETFILTER_DROP
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_rule_drops_the_syn() {
    let said = causes(&rollout(
        "30s    request 1 40002 connect-timeout 3s
         30.001s drop 40002 isn 1 at node to b",
    ));
    expect![[r#"
        1 late dropped: its SYN was dropped: NETFILTER_DROP
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_client_without_a_port() {
    let said = causes(&rollout("30s    request 1 - local 1ms"));
    expect![[r#"
        1 late local-error: the client could not open a connection
    "#]]
    .assert_eq(&said);
}

#[test]
fn without_packets_the_reason_is_said() {
    let said = causes(&rollout(
        "30s    request 1 40002 connect-timeout 3s
         40s    request 2 40004 connect-timeout 3s
         41s    lost 5 xmit since 40s
         3s     end 3 40006 connect-timeout 4s
         50s    request 4 - connect-timeout 3s",
    ));
    expect![[r#"
        3 early unseen: it began before the trace
        1 late unseen: no packet of its source port was seen, though nothing was lost
        2 late unseen: 5 events were lost (ring buffer at net_dev_start_xmit)
        4 late unseen: the client did not tell its source port
    "#]]
    .assert_eq(&said);
}

#[test]
fn ipv6_is_the_same() {
    let said = causes(&rollout(
        "ipv6
         6s     pod e fd00:1::7 added
         10s    pod e fd00:1::7 asked
         10.4s  pod e fd00:1::7 deleted
         10.5s  blackhole 40002 isn 1 left 120s to e request 1
         40s    blackhole 40002 isn 2 left 90.5s to e request 2",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose e afresh, gone for 0.50 s
        2 late stale-entry-reuse: its SYN met an entry 29.5 s old in SYN_SENT to e, gone for 30.0 s
    "#]]
    .assert_eq(&said);
}

#[test]
fn two_overlapping_rollouts_are_one() {
    // A failure after the first one's end is not late while the second is under way.
    let said = causes(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         11s    rollout started db
         60s    rollout finished db
         40s    blackhole 40002 isn 2 left 90.5s to a request 2
         70s    blackhole 40002 isn 3 left 60.5s to a request 3",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 0.50 s
        2 early stale-entry-reuse: its SYN met an entry 29.5 s old in SYN_SENT to a, gone for 30.0 s
        3 late stale-entry-reuse: its SYN met an entry 59.5 s old in SYN_SENT to a, gone for 60.0 s
    "#]]
    .assert_eq(&said);
}

#[test]
fn without_roles_the_service_tells_the_client_side() {
    let said = causes(&rollout(
        "no roles
         10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    blackhole 40002 isn 2 left 90.5s to a request 2
         40.0011s hop 40002 isn 2 to a",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 0.50 s
        2 late stale-entry-reuse: its SYN met an entry 29.5 s old in SYN_SENT to a, gone for 30.0 s
    "#]]
    .assert_eq(&said);
}

#[test]
fn an_age_without_a_maker_that_should_have_been_seen_is_not_enough() {
    // A `ct timeout` policy of 60 s makes each fresh entry look a minute old.
    let said = causes(&rollout("90s    blackhole 40002 isn 2 left 60s to a request 2"));
    expect![[r#"
        2 late stale-entry-reuse: its SYN met an entry 60.0 s old in SYN_SENT to a, gone for 80.0 s; its maker was not seen, its age is from its remaining life [the SYN that made the entry should have been seen and was not]
    "#]].assert_eq(&said);
}

#[test]
fn a_clock_tick_that_came_late_does_not_make_another_entry() {
    let said = causes(&rollout(
        "10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    blackhole 40002 isn 2 left 90.65s to a request 2",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 0.50 s
        2 late stale-entry-reuse: its SYN met an entry 29.5 s old in SYN_SENT to a, gone for 30.0 s
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_pod_on_the_clients_node_is_reached_by_the_nodes_own_device() {
    let said = causes(&rollout(
        "6s     pod c 10.0.1.9 added on n1
         30s    blackhole 40002 isn 1 left 120s to c request 1",
    ));
    expect![[r#"
        1 late pod-unanswered: its SYN reached c and nothing came back
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_rollout_that_another_overtakes_ends_with_it() {
    let said = causes(&rollout(
        "6s     rollout started
         10.5s  blackhole 40002 isn 1 left 120s to a request 1
         40s    blackhole 40002 isn 2 left 90.5s to a request 2",
    ));
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 0.50 s
        2 late stale-entry-reuse: its SYN met an entry 29.5 s old in SYN_SENT to a, gone for 30.0 s
    "#]]
    .assert_eq(&said);
}
