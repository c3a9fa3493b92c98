//! What the correlator makes of small traces, of disorder, and of anything at all.

use expect_test::expect;

use super::testing::{Scene, scene, timeline};
use super::{Correlator, Timeline};
use crate::model::Seq;

fn read(text: &str) -> Timeline {
    timeline(&scene(text))
}

#[test]
fn successes_are_forgotten_but_counted() {
    let timeline = read(
        "0s  pod b 10.0.1.8 added
         0s  load until 60s to b",
    );
    assert_eq!(timeline.requests.ended, 60);
    assert_eq!(
        (timeline.failures.len(), timeline.meetings.len(), timeline.entries.len()),
        (0, 0, 0)
    );
    assert_eq!(timeline.tally.bins().map(|(_, bin)| bin.ok).sum::<u64>(), 60);
}

/// On the node itself: no device of the node's namespace is handed the answer.
#[test]
fn a_connected_socket_says_that_its_entry_was_answered() {
    let entries = |connected: &str| {
        let timeline = read(&format!(
            "0s     pod b 10.0.1.8 added
             1s     syn 40000 isn 1 left 120s to b
             {connected}
             5s     pod b 10.0.1.8 asked
             6s     pod b 10.0.1.8 deleted
             130s   pod c 10.0.1.9 added"
        ));
        timeline.entries.len()
    };
    assert_eq!(entries("1.1s  state 40000 close syn-sent"), 1);
    assert_eq!(entries("1.1s  state 40000 syn-sent established"), 0);
}

#[test]
fn what_is_open_is_bounded_by_the_entry_lifetime() {
    let Scene { header, events, .. } = scene(
        "0s  pod b 10.0.1.8 added
         0s  load until 4000s to b",
    );
    let mut correlator = Correlator::new(&header);
    let mut most = 0;
    for (seq, event) in events.iter().enumerate() {
        correlator.apply(Seq(seq as u64), event);
        most = most.max(correlator.open());
    }
    // A connect a second, and entries that are remembered for at most 120 + 5 s and a sweep.
    assert!(most <= 140, "{most} client ends were open at once");
}

#[test]
fn a_kept_connection_is_known_for_as_long_as_it_is_there_and_no_longer() {
    // One carries a request each 200 s, longer than any entry is remembered; a hundred others are closed, and
    // one is never heard of again.
    let mut text = "0s pod b 10.0.1.8 added\n".to_owned();
    text += "1s connect 40000 isn 1 to b keep\n2s connect 40998 isn 1 to b keep\n";
    for nth in 1..10 {
        text += &format!("{}s request {nth} 40000 ok 50ms nth {nth}\n", nth * 200);
    }
    for other in 1..=100 {
        let (port, at) = (40_000 + 2 * other, 2 + other);
        text += &format!("{at}s connect {port} isn 1 to b keep\n");
        text += &format!("{at}.5s state {port} established close-wait\n");
    }
    text +=
        "1990s request 90 40000 closed 10ms nth 10\n1990.005s state 40000 established close-wait\n";
    let Scene { header, events, .. } = scene(&text);
    let mut correlator = Correlator::new(&header);
    let mut last = 0;
    for (seq, event) in events.iter().enumerate() {
        correlator.apply(Seq(seq as u64), event);
        last = correlator.open();
    }
    assert_eq!(last, 1, "only the one that was in use is left");
    let timeline = correlator.finish();
    assert_eq!(timeline.failures.len(), 1);
    let attempt = timeline.failures[0].attempt.as_ref().expect("its connect is known");
    assert_eq!(attempt.close.map(|close| close.by), Some(super::ClosedBy::Server));
    let sum = |count: fn(&super::Bin) -> u64| -> u64 {
        timeline.tally.bins().map(|(_, bin)| count(&bin)).sum()
    };
    assert_eq!((sum(|bin| bin.connects_ok), sum(|bin| bin.unanswered)), (102, 0));
    assert_eq!((sum(|bin| bin.kept), sum(|bin| bin.ok)), (10, 111));
    assert_eq!(timeline.counters.get("attempts of no known request"), None);
}

#[test]
fn unanswered_entries_to_live_pods_are_forgotten_when_they_expire() {
    let timeline = read(
        "0s   pod b 10.0.1.8 added
         1s   syn 40002 isn 1 left 120s to b
         2s   syn 40004 isn 1 left 120s to b
         140s connect 40100 isn 5 to b
         150s pod b 10.0.1.8 asked",
    );
    assert_eq!(timeline.entries, []);
    assert_eq!(timeline.tally.bins().map(|(_, bin)| bin.unanswered).sum::<u64>(), 2);
}

#[test]
fn events_a_little_out_of_order_make_no_difference() {
    let Scene { header, mut events, .. } = scene(
        "0s     pod a 10.0.1.7 added
         0s     pod b 10.0.1.8 added
         0s     load until 60s to b
         10s    pod a 10.0.1.7 asked
         10.5s  blackhole 40002 isn 1 left 120s to a request 1
         10.9s  pod a 10.0.1.7 deleted
         40s    blackhole 40002 isn 2 left 90.5s to a request 2
         45s    connect 40004 isn 3 to b",
    );
    let read = |events: &[crate::model::Event]| {
        let mut correlator = Correlator::new(&header);
        for (seq, event) in events.iter().enumerate() {
            correlator.apply(Seq(seq as u64), event);
        }
        let timeline = correlator.finish();
        let found = timeline.failures.iter().map(|failure| {
            let attempt = failure.attempt.as_ref().expect("its packets were seen");
            (failure.start, attempt.first.time, attempt.syns)
        });
        (found.collect::<Vec<_>>(), timeline.requests.ended)
    };
    let in_order = read(&events);
    // Each request's end before its last packets, each answer before its SYN.
    for pair in events.chunks_mut(2) {
        let close = pair.len() == 2 && pair[1].time.since(pair[0].time).as_millis() < 10;
        if close {
            pair.reverse();
        }
    }
    assert_eq!(read(&events), in_order);
}

#[test]
fn the_largest_number_of_open_requests_is_known_over_time() {
    let timeline = read(
        "0s    pod b 10.0.1.8 added
         1s    request 1 40002 ok 100ms
         1.05s request 2 40004 ok 100ms
         1.06s request 3 40006 ok 10ms
         9s    request 4 40008 ok 100ms",
    );
    let most: Vec<u32> = timeline.requests.most_open.iter().map(|(_, most)| *most).collect();
    assert_eq!(most, [1, 2, 3]);
}

#[test]
fn a_pod_lives_until_its_last_answer_or_its_deletion() {
    let timeline = read(
        "0s     pod a 10.0.1.7 added
         0s     pod b 10.0.1.8 added
         0s     pod c 10.0.1.9 added
         10s    pod a 10.0.1.7 asked
         10.2s  connect 40002 isn 1 to a
         10.4s  send-reset 40004 isn 2 by a
         12s    pod a 10.0.1.7 deleted
         13s    connect 40006 isn 3 to a
         14s    pod b 10.0.1.8 deleted
         20s    pod d 10.0.1.8 added
         21s    connect 40008 isn 4 to d",
    );
    let mut said = String::new();
    for life in timeline.pods.lives() {
        let gone = life.gone().map(|gone| gone.seconds_from(timeline.began));
        said += &format!("{} gone {gone:?}\n", life.name);
    }
    expect![[r#"
        a gone Some(10.4)
        b gone Some(14.0)
        c gone None
        d gone None
    "#]]
    .assert_eq(&said);
}

/// The pod's life in a trace whose watch says only that its deletion was asked for between 9 s and 10 s.
fn asked_between(answers: &str) -> std::time::Duration {
    let mut scene = scene(&format!("0s pod a 10.0.1.7 added\n{answers}\n10s pod a 10.0.1.7 asked"));
    let began = scene.header.began;
    for event in &mut scene.events {
        if let crate::model::EventKind::Cluster { since, .. } = &mut event.kind
            && event.time == began + std::time::Duration::from_secs(10)
        {
            *since = began + std::time::Duration::from_secs(9);
        }
    }
    timeline(&scene).pods.lives()[0].gone().expect("it is gone").since(began)
}

#[test]
fn a_pod_asked_to_go_at_an_unknown_moment_is_gone_from_its_last_answer_after_the_first_possible() {
    assert_eq!(asked_between("5s connect 40002 isn 1 to a").as_secs(), 9);
    let answered = asked_between("9.5s connect 40002 isn 1 to a").as_secs_f64();
    assert!((9.5..9.6).contains(&answered), "{answered}");
    let answered = asked_between("12s connect 40002 isn 1 to a").as_secs_f64();
    assert!((12.0..12.1).contains(&answered), "{answered}");
}

/// The first SYN meets a TIME_WAIT socket of a pod that is just going: an ACK comes, the client's RST takes the entry,
/// and the SYN goes out again after two ticks.
#[test]
fn an_entry_made_by_a_syn_that_was_sent_again_at_once_has_its_maker() {
    let timeline = read(
        "0s      pod a 10.0.1.7 added
         0s      load until 1s to a
         3s      pod a 10.0.1.7 asked
         3.1s    syn 40000 isn 1 left 120s to a
         3.1s    client-rst 40000 to a
         3.11s   syn 40000 isn 1 left 120s to a
         3.2s    pod a 10.0.1.7 deleted
         3.1s    request 1 40000 connect-timeout 3s
         20s     syn 40000 isn 2 left 103.11s to a
         20s     request 2 40000 connect-timeout 3s",
    );
    let second = timeline.failures[1].attempt.as_ref().expect("its packets were seen");
    let super::Found::Older(older) = &second.found else { panic!("{:?}", second.found) };
    assert_eq!(older.by, super::OlderBy::SameEntry);
    let made = older.made.expect("it is known").seconds_from(timeline.began);
    assert!((made - 3.11).abs() < 1e-6, "{made}");
    assert_eq!(older.maker.map(|maker| maker.request), Some(Some(crate::model::RequestId(1))));
}
