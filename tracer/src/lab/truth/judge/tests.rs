//! Requests whose fate was worked out by hand.

use super::super::{Dropping, Held, Look, Outage, Row, RulesChange};
use super::*;

const A: &str = "10.100.1.20:8080";
const B: &str = "10.100.2.20:8080";

fn at(seconds: f64) -> MonoNs {
    MonoNs((seconds * 1e9).round() as u64)
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// A dies at 10 s: SIGTERM, silent from 10.1 s on. The rules drop it at 10.5 s. Entries live 20 s.
fn truth() -> Truth {
    let life = |text: &str| PodLife {
        name: text.to_owned(),
        app: "web".to_owned(),
        added: at(0.0),
        node: "n1".to_owned(),
        address: address(text),
        started: Some(at(0.0)),
        ready: Some(at(3.0)),
        listening: None,
        asked: None,
        terminated: None,
        exited: None,
        disconnecting: None,
        disconnected: None,
        deleted: None,
    };
    let dead = PodLife {
        asked: Some(at(10.0)),
        terminated: Some(at(10.0)),
        exited: Some(at(10.01)),
        disconnecting: Some(at(10.1)),
        disconnected: Some(at(10.12)),
        ..life(A)
    };
    let rules = |time: f64, endpoints: &[&str]| RulesChange {
        node: "n1".to_owned(),
        before: at(time),
        after: at(time + 0.01),
        endpoints: endpoints.iter().map(|text| address(text)).collect(),
    };
    Truth {
        seed: 1,
        client_node: "n1".to_owned(),
        client: "10.100.1.16".parse().expect("an address"),
        service: address("10.100.96.10:80"),
        syn_sent_timeout: Duration::from_secs(20),
        dead_address: DeadAddress::Silent,
        pod_delay: Duration::from_millis(50),
        dropping: None,
        names: None,
        outage: None,
        frozen: Vec::new(),
        held: Vec::new(),
        rollout_started: None,
        rollout_finished: None,
        pods: vec![dead, life(B)],
        rules: vec![rules(1.0, &[]), rules(3.5, &[A, B]), rules(10.5, &[B])],
        deleted: Vec::new(),
        looks: Vec::new(),
    }
}

/// Looks each 0.7 s at an unreplied entry to A on port 40000 that was made at this time.
fn looks_at_entry(made: f64) -> Vec<Look> {
    (0..60)
        .map(|nth| {
            let time = f64::from(nth) * 0.7 + 0.05;
            let left = made + 20.0 - time;
            let row = Row {
                port: 40000,
                backend: address(A),
                state: State::SynSent,
                is_unreplied: true,
                left: left.max(0.0) as u32,
            };
            let rows = if time > made && left > 0.0 { vec![row] } else { Vec::new() };
            Look { before: at(time - 0.01), after: at(time + 0.02), rows }
        })
        .collect()
}

fn request(start: f64, total: f64, end: ClientEnd) -> ClientRow {
    let is_connected = !matches!(
        end,
        ClientEnd::Failed(Symptom::ConnectTimeout | Symptom::Refused | Symptom::Unreachable)
    );
    ClientRow {
        id: 0,
        start: at(start),
        is_reused: false,
        port: Some(40000),
        resolution: None,
        connected: is_connected.then(|| Duration::from_secs_f64((total - 0.05_f64).max(0.0))),
        total: Duration::from_secs_f64(total),
        end,
    }
}

fn timeout(start: f64) -> ClientRow {
    request(start, 3.0, ClientEnd::Failed(Symptom::ConnectTimeout))
}

fn list(backends: &BTreeSet<SocketAddr>) -> String {
    backends.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" or ")
}

fn judged(truth: &Truth, rows: &[ClientRow]) -> Vec<String> {
    let text = |judgement: Judgement| match judgement.judged {
        Judged::MetStale { backend, made, is_replied } => {
            let kind = if is_replied { "replied" } else { "unreplied" };
            let (from, to) = (made.from.0 as f64 / 1e9, made.to.0 as f64 / 1e9);
            format!("met {kind} {backend} made {from:.2}..{to:.2}")
        }
        Judged::Slowed { backend, .. } => format!("slowed {backend}"),
        Judged::FreshToDeadAddress { backend } => format!("fresh to dead {backend}"),
        Judged::RefusedByPod { backends } => format!("refused {}", list(&backends)),
        Judged::CutByDyingPod { backends } => format!("cut {}", list(&backends)),
        Judged::Undetermined { why } => format!("undetermined: {why}"),
        other => format!("{other:?}"),
    };
    judge(truth, rows).into_iter().map(text).collect()
}

#[test]
fn the_first_timeout_is_fresh_and_the_next_on_its_port_met_its_entry() {
    let truth = Truth { looks: looks_at_entry(10.3), ..truth() };
    let rows = [timeout(10.298), timeout(16.0), timeout(27.5)];
    let met = "met unreplied 10.100.1.20:8080 made 10.30..10.38";
    assert_eq!(judged(&truth, &rows), ["fresh to dead 10.100.1.20:8080", met, met]);
}

#[test]
fn an_entry_that_expires_midway_slows_the_request() {
    let truth = Truth { looks: looks_at_entry(10.3), ..truth() };
    let rows = [timeout(10.298), request(29.5, 1.1, ClientEnd::Answered)];
    assert_eq!(judged(&truth, &rows)[1], "slowed 10.100.1.20:8080");
    // Without such an entry nobody knows why it was slow.
    let rows = [timeout(10.298), request(33.0, 1.1, ClientEnd::Answered)];
    assert!(judged(&truth, &rows)[1].starts_with("undetermined: connected only after 1.050 s"));
}

#[test]
fn an_entry_that_is_deleted_midway_frees_the_request() {
    let when = Span { from: at(16.5), to: at(16.51) };
    let deleted = vec![Deleted { port: 40000, backend: address(A), when }];
    let truth = Truth { deleted, ..truth() };
    let rows = [request(16.0, 1.1, ClientEnd::Answered), request(18.0, 1.1, ClientEnd::Answered)];
    let judged = judged(&truth, &rows);
    assert_eq!(judged[0], "Freed { backend: 10.100.1.20:8080 }");
    assert!(judged[1].starts_with("undetermined"), "{}", judged[1]);
}

#[test]
fn after_its_time_the_port_is_good_again() {
    let truth = Truth { looks: looks_at_entry(10.3), ..truth() };
    let rows = [timeout(10.298), request(30.4, 0.06, ClientEnd::Answered)];
    assert_eq!(judged(&truth, &rows)[1], "Ok");
}

#[test]
fn an_answer_through_a_stale_entry_would_be_told() {
    let truth = Truth { looks: looks_at_entry(10.3), ..truth() };
    let rows = [timeout(10.298), request(20.0, 0.06, ClientEnd::Answered)];
    assert!(judged(&truth, &rows)[1].starts_with("met unreplied"));
}

#[test]
fn a_timeout_that_nobody_looked_at_is_undetermined() {
    let rows = [timeout(16.0)];
    assert_eq!(
        judged(&truth(), &rows),
        ["undetermined: no look at the table shows an entry on port 40000 meanwhile"]
    );
}

#[test]
fn a_timeout_on_a_fresh_entry_to_a_live_pod_is_not_explained() {
    let mut truth = Truth { looks: looks_at_entry(6.0), ..truth() };
    assert!(
        judged(&truth, &[timeout(5.999)])[0].starts_with("undetermined: its own entry points at")
    );
    // Nor is one to a dead address that the rules did not name any more.
    truth.looks = looks_at_entry(12.0);
    assert!(
        judged(&truth, &[timeout(11.999)])[0].ends_with("which the rules did not name any more")
    );
}

#[test]
fn a_dying_pod_refuses_and_cuts() {
    let refused = |start| request(start, 0.002, ClientEnd::Failed(Symptom::Refused));
    let closed = |start| request(start, 0.06, ClientEnd::Failed(Symptom::Closed));
    let all =
        judged(&truth(), &[refused(10.05), refused(5.0), refused(2.0), closed(9.98), closed(20.0)]);
    assert_eq!(
        all,
        [
            "refused 10.100.1.20:8080",
            "undetermined: refused, but no pod that the rules named was starting or dying",
            "RejectedWithoutEndpoints",
            "cut 10.100.1.20:8080",
            "undetermined: connected, but no pod ended meanwhile",
        ]
    );
}

#[test]
fn a_pod_that_counts_as_ready_before_it_listens_refuses() {
    let mut truth = truth();
    truth.pods[1].listening = Some(at(5.0));
    let refused = |start| request(start, 0.002, ClientEnd::Failed(Symptom::Refused));
    assert_eq!(
        judged(&truth, &[refused(4.0), refused(6.0)]),
        [
            "refused 10.100.2.20:8080",
            "undetermined: refused, but no pod that the rules named was starting or dying"
        ]
    );
    truth.pods[1].listening = Some(at(10.2));
    assert_eq!(judged(&truth, &[refused(10.05)]), ["refused 10.100.1.20:8080 or 10.100.2.20:8080"]);
}

#[test]
fn a_request_on_a_connection_that_was_there_meets_no_entry() {
    let truth = Truth { looks: looks_at_entry(10.3), ..truth() };
    let reused = |start, end| ClientRow { is_reused: true, ..request(start, 0.06, end) };
    let cut = ClientEnd::Failed(Symptom::Reset);
    assert_eq!(
        judged(&truth, &[reused(16.0, ClientEnd::Answered), reused(9.98, cut)]),
        ["Ok", "cut 10.100.1.20:8080"]
    );
}

#[test]
fn a_reset_entry_carries_the_next_syn_to_the_dead_pod() {
    let row =
        Row { port: 40000, backend: address(A), state: State::Close, is_unreplied: false, left: 7 };
    let look = Look { before: at(12.0), after: at(12.05), rows: vec![row] };
    let truth = Truth { looks: vec![look], ..truth() };
    let cut = request(9.98, 0.06, ClientEnd::Failed(Symptom::Reset));
    assert_eq!(
        judged(&truth, &[cut.clone(), timeout(14.0)])[1],
        "met replied 10.100.1.20:8080 made 9.98..9.99"
    );
    let later = judged(&truth, &[cut, timeout(21.0)]);
    assert!(later[1].starts_with("undetermined"), "its 10 s are over: {}", later[1]);
}

#[test]
fn a_reset_entry_that_expires_midway_slows_the_request() {
    let row =
        Row { port: 40000, backend: address(A), state: State::Close, is_unreplied: false, left: 1 };
    let look = Look { before: at(18.0), after: at(18.05), rows: vec![row] };
    let truth = Truth { looks: vec![look], ..truth() };
    let cut = request(9.98, 0.06, ClientEnd::Failed(Symptom::Reset));
    let slow = request(18.1, 2.1, ClientEnd::Answered);
    assert_eq!(judged(&truth, &[cut, slow])[1], "slowed 10.100.1.20:8080");
}

#[test]
fn what_never_left_the_client_is_local() {
    let row = ClientRow { port: None, ..request(5.0, 0.0, ClientEnd::Failed(Symptom::Local)) };
    assert_eq!(judged(&truth(), &[row]), ["Local"]);
}

#[test]
fn a_connection_whose_entry_is_deleted_has_no_answer_whoever_dies_meanwhile() {
    let when = Span { from: at(9.1), to: at(9.11) };
    let truth =
        Truth { deleted: vec![Deleted { port: 40000, backend: address(B), when }], ..truth() };
    let unanswered = request(9.08, 3.0, ClientEnd::Failed(Symptom::ResponseTimeout));
    let other = ClientRow { port: Some(40002), ..unanswered.clone() };
    assert_eq!(judged(&truth, &[unanswered, other]), ["LostItsEntry", "cut 10.100.1.20:8080"]);
}

#[test]
fn who_waits_until_its_own_entry_has_expired_gets_through_by_the_rules() {
    let truth =
        Truth { looks: looks_at_entry(10.3), syn_sent_timeout: Duration::from_secs(20), ..truth() };
    let outlived = request(10.298, 21.1, ClientEnd::Answered);
    let text = judged(&truth, &[outlived]).concat();
    assert!(text.starts_with("SentAnew"), "{text}");
}

#[test]
fn a_stopped_pod_takes_what_its_backlog_holds_and_hears_no_more() {
    let since = Span { from: at(10.0), to: at(10.001) };
    let truth = Truth {
        looks: looks_at_entry(10.3),
        frozen: vec![Frozen { address: address(A), since }],
        pods: truth().pods.into_iter().map(|pod| PodLife { disconnecting: None, ..pod }).collect(),
        ..truth()
    };
    let waiting = request(10.298, 3.0, ClientEnd::Failed(Symptom::ResponseTimeout));
    let rows = [timeout(10.298), timeout(16.0), ClientRow { port: Some(40002), ..waiting }];
    let unheard = "BacklogFull { backend: 10.100.1.20:8080 }";
    let waits = "NotAccepted { backends: {10.100.1.20:8080} }";
    assert_eq!(judged(&truth, &rows), [unheard, unheard, waits]);
}

#[test]
fn an_entry_of_the_labs_own_connection_is_met_whoever_else_failed_of_it() {
    let row = Row {
        port: 40000,
        backend: address(A),
        state: State::Other,
        is_unreplied: false,
        left: 80_000,
    };
    let look = |time: f64| Look { before: at(time), after: at(time + 0.01), rows: vec![row] };
    let truth = Truth {
        looks: vec![look(11.0), look(15.0)],
        held: vec![Held { port: 40000, made: Span { from: at(9.0), to: at(9.1) } }],
        ..truth()
    };
    let met = "met replied 10.100.1.20:8080 made 9.00..9.10";
    assert_eq!(judged(&truth, &[timeout(11.5), timeout(15.5)]), [met, met]);
}

#[test]
fn an_entry_in_close_is_met_only_if_no_fin_ended_its_connection() {
    let row =
        Row { port: 40000, backend: address(A), state: State::Close, is_unreplied: false, left: 9 };
    let looks = vec![Look { before: at(10.2), after: at(10.21), rows: vec![row] }];
    let truth = Truth { looks, ..truth() };
    let after = |end| {
        let maker = request(10.0, 0.06, ClientEnd::Failed(end));
        judged(&truth, &[maker, timeout(10.3)]).remove(1)
    };
    assert_eq!(after(Symptom::Reset), "met replied 10.100.1.20:8080 made 10.00..10.01");
    assert!(after(Symptom::Closed).starts_with("undetermined: no look"));
}

/// From 12 s on A's address belongs to a pod of another app.
fn reassigned() -> Truth {
    let mut truth = Truth { looks: looks_at_entry(10.3), ..truth() };
    let other = PodLife {
        name: "other-1".to_owned(),
        app: "other".to_owned(),
        added: at(12.0),
        ..truth.pods[1].clone()
    };
    truth.pods.push(PodLife { address: address(A), ..other });
    truth
}

#[test]
fn an_entry_leads_to_a_pod_of_another_app_once_that_has_the_address() {
    let truth = reassigned();
    let wrong = request(16.0, 0.06, ClientEnd::Failed(Symptom::WrongAnswer));
    let refused = request(16.0, 0.002, ClientEnd::Failed(Symptom::Refused));
    let other = "MetOther { backend: 10.100.1.20:8080 }";
    for row in [wrong.clone(), refused] {
        assert_eq!(judged(&truth, &[timeout(10.298), row])[1], other);
    }
    let slow = request(11.0, 1.1, ClientEnd::Failed(Symptom::WrongAnswer));
    assert_eq!(judged(&truth, &[timeout(10.298), slow])[1], other, "it came in the middle");
    let before = judged(&truth, &[timeout(10.298), timeout(11.0)]);
    assert!(before[1].starts_with("met unreplied"), "{}", before[1]);
    let again = ClientRow { start: at(18.0), ..wrong.clone() };
    let again = judged(&truth, &[timeout(10.298), wrong, again]);
    assert!(again[2].starts_with("undetermined"), "the answer ended the entry: {}", again[2]);
}

#[test]
fn a_wrong_answer_without_such_an_entry_is_not_explained() {
    let wrong = request(16.0, 0.06, ClientEnd::Failed(Symptom::WrongAnswer));
    assert_eq!(
        judged(&truth(), &[wrong]),
        ["undetermined: no entry leads to a pod of another app"]
    );
}

/// The network loses A's node at 6 s, its deletion is asked for at 10 s, and A itself lives on.
fn outage() -> Truth {
    let mut truth = Truth { looks: looks_at_entry(6.3), ..truth() };
    truth.pods[0] = PodLife {
        node: "n2".to_owned(),
        terminated: None,
        exited: None,
        disconnecting: None,
        disconnected: None,
        ..truth.pods[0].clone()
    };
    truth.outage =
        Some(Outage { node: "n2".to_owned(), lost: Span { from: at(6.0), to: at(6.01) } });
    truth
}

#[test]
fn what_a_lost_pod_fails_of_is_the_network_until_its_deletion_is_asked_for() {
    let cut_off = "CutOff { backend: 10.100.1.20:8080 }";
    let timeouts = judged(&outage(), &[timeout(6.298), timeout(9.5), timeout(14.0)]);
    assert_eq!(timeouts[..2], [cut_off, cut_off]);
    assert!(timeouts[2].starts_with("met unreplied 10.100.1.20:8080 made 6.30"), "{}", timeouts[2]);
    let midway = request(5.98, 3.0, ClientEnd::Failed(Symptom::ResponseTimeout));
    let backends = format!("CutOffMidway {{ backends: {{{A}}} }}");
    let mut truth = outage();
    truth.looks.clear();
    truth.rules[1].endpoints.remove(&address(B));
    assert_eq!(judged(&truth, &[midway]), [backends]);
}

#[test]
fn without_an_outage_the_same_is_not_explained() {
    let truth = Truth { outage: None, ..outage() };
    let judged = judged(&truth, &[timeout(6.298), timeout(9.5)]);
    assert!(judged.iter().all(|judged| judged.starts_with("undetermined")), "{judged:?}");
}

#[test]
fn ports_whose_syns_are_dropped_time_out_for_the_reason_they_are_dropped_for() {
    let dropping = |how| {
        let ports = BTreeSet::from([40000]);
        Truth { dropping: Some(Dropping { ports, how, since: at(14.9), set: at(15.0) }), ..truth() }
    };
    assert_eq!(judged(&dropping(HowDropped::Rule), &[timeout(16.0)]), ["DroppedByRule"]);
    assert_eq!(judged(&dropping(HowDropped::Invalid), &[timeout(16.0)]), ["Invalid"]);
    let before = judged(&dropping(HowDropped::Rule), &[timeout(14.0)]);
    assert!(before[0].starts_with("undetermined"), "{before:?}");
}
