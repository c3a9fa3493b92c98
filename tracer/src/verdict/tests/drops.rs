//! Causes of requests whose SYN or its answer was dropped on the way, or sent again elsewhere.

use expect_test::expect;

use super::{causes, rollout};

#[test]
fn a_live_pod_drops_the_syn_inside() {
    let said = causes(&rollout(
        "30s    request 1 40002 connect-timeout 3s
         30.001s syn 40002 isn 1 left 120s to b
         30.0015s drop 40002 isn 1 at pod",
    ));
    expect![[r#"
        1 late pod-unanswered: b's kernel dropped its SYN: NETFILTER_DROP
    "#]]
    .assert_eq(&said);
}

#[test]
fn who_is_refused_after_a_drop_inside_the_pod_was_refused_by_it() {
    let said = causes(&rollout(
        "30s    request 1 40002 refused 12ms
         30.001s syn 40002 isn 1 left 120s to b
         30.0015s drop 40002 isn 1 at pod",
    ));
    expect![[r#"
        1 late pod-not-serving: its SYN came to b, and the client was refused [the RST was not seen]
    "#]]
    .assert_eq(&said);
}

#[test]
fn the_silence_of_a_terminating_pod_whose_syns_a_rule_drops_says_nothing() {
    let said = causes(
        "0s    pod a 10.0.1.7 added
         9s    pod a 10.0.1.7 asked
         9.5s  request 1 40002 connect-timeout 3s
         9.501s syn 40002 isn 1 left 120s to a
         9.5011s drop 40002 isn 1 at node to a
         9.6s  request 2 40004 connect-timeout 3s
         9.601s syn 40004 isn 2 left 120s to a",
    );
    expect![[r#"
        1 early dropped: its SYN was dropped: NETFILTER_DROP
        2 early stale-rules: the rules chose a afresh, gone for 0.60 s
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_router_that_loses_the_syn_is_no_pod_and_says_nothing_of_conntrack() {
    let said = causes(&rollout(
        "30s    request 1 40002 connect-timeout 3s
         30.001s syn 40002 isn 1 left 120s to b
         30.0015s drop 40002 isn 1 at router",
    ));
    expect![[r#"
        1 late dropped: its SYN was dropped in router: NETFILTER_DROP
    "#]]
    .assert_eq(&said);
}

#[test]
fn an_answer_that_does_not_come_to_the_client_was_dropped() {
    let said = causes(&rollout(
        "30s    request 1 40002 connect-timeout 3s
         30.001s syn 40002 isn 1 left 120s to b
         30.002s synack 40002 isn 1 from b at-pod",
    ));
    expect![[r#"
        1 late dropped: b's SYN-ACK did not come to the client's node
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_fresh_syn_to_a_gone_pod_that_is_sent_again_to_another_fails_of_what_that_one_does() {
    let said = causes(&rollout(
        "10.5s  request 1 40002 refused 1.1s
         10.501s syn 40002 isn 1 left 120s to a
         11.501s syn 40002 isn 1 left 120s to b
         11.502s send-reset 40002 isn 1 by b",
    ));
    expect![[r#"
        1 early pod-not-serving: b refused it with a RST
    "#]]
    .assert_eq(&said);
}
