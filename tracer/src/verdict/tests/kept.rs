//! Requests on connections that were there.

use expect_test::expect;

use super::*;

/// A connection to c, made at 9.5 s, whose pod is asked to go at 14 s and closes it at 19 s.
fn kept(more: &str) -> String {
    rollout(&format!(
        "0s       pod c 10.0.1.9 added
         9.5s     connect 40002 isn 1 to c keep
         9.51s    state 40002 syn-sent established
         14s      pod c 10.0.1.9 asked
         18.9s    request 1 40002 ok 50ms nth 1
         {more}"
    ))
}

#[test]
fn a_pod_that_went_away_closed_the_connection_under_the_request() {
    let text = kept(
        "19s      request 2 40002 closed 10ms nth 2
         19.009s  state 40002 established close-wait
         19.5s    pod c 10.0.1.9 deleted",
    );
    expect![[r#"
        2 late pod-not-serving: c closed the connection that it came on before any byte of an answer, 5.01 s after it was asked to go
    "#]]
    .assert_eq(&causes(&text));
    // The request, the connect, the socket's end, and that the pod was asked to go.
    let verdict = verdict(&text);
    let scene = scene(&text);
    let evidence: Vec<String> = verdict.findings[0]
        .evidence
        .iter()
        .map(|seq| match &scene.events[seq.0 as usize].kind {
            EventKind::RequestStarted(_) => "started".to_owned(),
            EventKind::RequestEnded(_) => "ended".to_owned(),
            EventKind::TcpState(state) => format!("{:?}", state.new),
            EventKind::Cluster { change: ClusterEvent::Pod { change, .. }, .. } => {
                format!("{change:?}")
            }
            EventKind::Packet(_) => "packet".to_owned(),
            other => panic!("{other:?}"),
        })
        .collect();
    expect![[r#"
        ["packet", "packet", "Established", "Asked { grace: 30s }", "started", "CloseWait", "ended"]
    "#]]
    .assert_eq(&format!("{evidence:?}\n"));
}

#[test]
fn a_reset_and_an_answer_that_was_cut_have_their_words() {
    let said = causes(&kept(
        "19s      request 2 40002 reset 10ms nth 2 received 120
         19.009s  recv-reset 40002
         30s      connect 40004 isn 3 to b keep
         31s      request 3 40004 reset 10ms nth 1
         31.009s  state 40004 established close",
    ));
    expect![[r#"
        2 late pod-not-serving: c reset the connection that it came on in the middle of the answer, 5.01 s after it was asked to go
        3 late pod-not-serving: b reset the connection that it came on before any byte of an answer
    "#]]
    .assert_eq(&said);
}

#[test]
fn other_failures_on_a_kept_connection_are_the_pod_s() {
    let said = causes(&kept(
        "20s      request 2 40002 response-timeout 3s nth 2
         19.5s    pod c 10.0.1.9 deleted
         30s      connect 40004 isn 3 to b keep
         31s      request 3 40004 wrong-answer 50ms nth 1
         32s      request 4 40004 refused 50ms nth 2",
    ));
    expect![[r#"
        2 late slow-answer: c did not answer in time on the connection that was there, 3.50 s after it was deleted
        3 late pod-not-serving: b gave a wrong answer
        4 late unseen: refused on a connection that was there
    "#]]
    .assert_eq(&said);
}

#[test]
fn an_end_that_was_not_seen_is_no_finding() {
    let end = "19s request 2 40002 closed 10ms nth 2";
    let mut said = causes(&kept(end));
    // The client's own close is not what it met, nor is one that came later.
    said += &causes(&kept(&format!("{end}\n19.005s state 40002 established fin-wait")));
    said += &causes(&kept(&format!("{end}\n19.5s state 40002 established close-wait")));
    said += &causes(&kept(&format!("{end}\n19.1s lost 3 state since 18s")));
    said += &causes(&kept(&format!("{end}\nno hook")));
    // A connection from before the trace.
    said += &causes(&rollout("30s request 3 40008 closed 10ms nth 700"));
    expect![[r#"
        2 late unseen: how its connection ended was not seen, though nothing was lost
        2 late unseen: how its connection ended was not seen, though nothing was lost
        2 late unseen: how its connection ended was not seen, though nothing was lost
        2 late unseen: how its connection ended was not seen: 3 events were lost (ring buffer at inet_sock_set_state)
        2 late unseen: the hook inet_sock_set_state was not attached: how its connection ended was not seen
        3 late unseen: the connect of its connection was not seen
    "#]]
    .assert_eq(&said);
}

#[test]
fn a_late_failure_on_a_kept_connection_is_not_a_reused_port() {
    // The SYN of its connection met a stale entry that was gone when it was sent again: this request did not.
    let text = rollout(
        "10.5s    blackhole 40002 isn 1 left 120s to a request 1
         129s     request 2 40002 ok 2s nth 0
         129.001s syn 40002 isn 2 left 1500ms to a
         130.001s syn 40002 isn 2 left 500ms to a
         131.001s syn 40002 isn 2 left 120s to b
         131.002s synack 40002 isn 2 from b
         140s     request 3 40002 closed 10ms nth 1
         140.005s state 40002 established close-wait",
    );
    expect![[r#"
        1 early stale-rules: the rules chose a afresh, gone for 0.50 s
        3 late pod-not-serving: b closed the connection that it came on before any byte of an answer
        survived: the entry expired in the middle: its SYN sent again after 2.00 s went to 10.0.1.8:8080
    "#]]
    .assert_eq(&causes(&text));
    expect![[r#"
        Refuted 0.00
        - all 1 late failures have another cause: 1 pod-not-serving
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&outcome(&text));
}

/// The late attempts, as the contrast counts them.
fn late_attempts(text: &str) -> (u64, u64, u64, u64) {
    let contrast = verdict(text).contrast;
    (contrast.stale_failed, contrast.stale_ok, contrast.other_failed, contrast.other_ok)
}

#[test]
fn the_contrast_counts_connects_not_requests() {
    let fresh = late_attempts(&rollout(""));
    let one_more = late_attempts(&rollout("30s connect 40002 isn 1 to b keep"));
    assert_eq!(one_more.3, fresh.3 + 1);
    let many: String = (1..50)
        .map(|nth| format!("{}s request {} 40002 ok 50ms nth {nth}\n", 31 + nth, 2000 + nth))
        .collect();
    let text = format!("30s connect 40002 isn 1 to b keep\n{many}");
    assert_eq!(late_attempts(&rollout(&text)), one_more);
    // Nor does a failure on it count as a connect that failed.
    let text = format!(
        "{text}\n90s request 9 40002 closed 10ms nth 51\n90.005s state 40002 established close-wait"
    );
    assert_eq!(late_attempts(&rollout(&text)), one_more);
}

#[test]
fn a_terminating_pod_that_answers_kept_connections_is_not_gone() {
    // It gets no connects any more, but a request on a kept one at 29 s.
    let said = causes(&rollout(
        "6s     pod c 10.0.1.9 added
         9s     connect 40010 isn 3 to c keep
         14s    pod c 10.0.1.9 asked
         20s    blackhole 40002 isn 1 left 120s to c request 1
         29s    request 2 40010 ok 50ms nth 1",
    ));
    expect![[r#"
        1 late pod-unanswered: its SYN was sent to c and nothing came back
    "#]]
    .assert_eq(&said);
}
