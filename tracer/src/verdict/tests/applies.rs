//! Places where the suspect can't be.

use super::verdict;

/// A rollout in which 30 requests are answered, each with the lines that `packets` gives for its port.
fn said(packets: impl Fn(u32) -> String) -> String {
    let mut scene = "0s pod a 10.0.1.7 added\n0s pod b 10.0.2.8 added\n5s rollout started\n\
                     10s pod a 10.0.1.7 asked\n11s pod a 10.0.1.7 deleted\n12s rollout finished\n"
        .to_owned();
    for n in 0..30 {
        let port = 40_000 + 2 * n;
        scene += &format!("{}s request {n} {port} ok 50ms\n{}\n", 18 + n, packets(port));
    }
    let hypothesis = verdict(&scene).hypothesis;
    format!("{:?}: {}", hypothesis.outcome, hypothesis.reasons.join("; "))
}

/// The time of a port's request.
fn at(port: u32) -> u32 {
    18 + (port - 40_000) / 2
}

#[test]
fn a_service_whose_connects_are_translated_has_nothing_against_it() {
    let said = said(|port| format!("{}s syn {port} isn {port} to b", at(port)));
    assert_eq!(
        said,
        "NotObserved: no request failed late; no entry pointed at a pod that was gone"
    );
}

#[test]
fn without_any_entry_something_else_translates() {
    let said = said(|_| String::new());
    assert!(
        said.contains("30 requests were made, and no SYN to the Service carried a conntrack entry"),
        "{said}"
    );
}

#[test]
fn where_packets_were_lost_their_absence_tells_nothing() {
    let said =
        said(|port| if port == 40_000 { "20s lost 9 xmit since 18s" } else { "" }.to_owned());
    assert!(!said.contains("no SYN to the Service"), "{said}");
}

#[test]
fn entries_that_translate_nothing_cannot_go_stale() {
    let said = said(|port| format!("{}s syn {port} isn {port} to service", at(port)));
    assert!(said.contains("none of 30 connects was translated by this node's conntrack"), "{said}");
}

#[test]
fn an_entry_of_the_clients_own_namespace_is_not_the_nodes() {
    // Nobody says which namespace is the node.
    let packets = |port| {
        let roles = if port == 40_000 { "no roles\n" } else { "" };
        let at = at(port);
        format!(
            "{roles}{at}s syn {port} isn {port} to service in 3\n{at}.001s syn {port} isn {port} to b"
        )
    };
    let said = said(packets);
    assert!(!said.contains("translated"), "{said}");
}

#[test]
fn a_sidecar_is_known_by_connects_that_lead_back() {
    let mut scene = "0s pod proxy 127.0.0.1 added\n".to_owned();
    for n in 0..30 {
        let port = 40_000 + 2 * n;
        scene += &format!("{n}s request {n} {port} ok 50ms\n{n}s syn {port} isn {n} to proxy\n");
    }
    let reasons = verdict(&scene).hypothesis.reasons.join("; ");
    assert!(
        reasons.contains("all 30 connects were led back to the client's own address"),
        "{reasons}"
    );
}

#[test]
fn entries_that_vanish_before_their_time_are_told() {
    let scene = |port: u32, left: &str| {
        let again = at(port) + 20;
        format!(
            "{}s syn {port} isn {port} left 120s to a\n{again}s syn {port} isn 1{port} left {left} to b",
            at(port)
        )
    };
    let gone = said(|port| scene(port, "120s"));
    assert!(
        gone.contains("30 of 30 unanswered entries had been deleted before they expired"),
        "{gone}"
    );
    // Met again with what is left of their life: nobody removed them.
    let there = said(|port| scene(port, "100s").replace("to b", "to a"));
    assert!(!there.contains("deleted before they expired"), "{there}");
}
