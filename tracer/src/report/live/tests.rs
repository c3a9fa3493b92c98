use std::fmt::Write;

use expect_test::{Expect, expect};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::fixture;
use super::*;

const HALFWAY: Progress = Progress { now: 60.0, of: Some(170.0), is_ending: false };

/// The screen's characters.
fn screen(size: (u16, u16), report: &Report, view: &View, progress: Progress) -> String {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).expect("a buffer");
    terminal.draw(|frame| draw(frame, report, view, progress)).expect("it is drawn");
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for row in 0..size.1 {
        let line: String = (0..size.0).map(|column| buffer[(column, row)].symbol()).collect();
        writeln!(text, "{}", line.trim_end()).expect("a string takes everything");
    }
    text
}

fn check(size: (u16, u16), report: &Report, view: &View, expected: &Expect) {
    expected.assert_eq(&screen(size, report, view, HALFWAY));
}

#[test]
fn the_state_of_things_fits_eighty_columns() {
    check(
        (80, 24),
        &fixture::supported(),
        &View::default(),
        &expect![[r#"
            60 of 170 s: 28,485 requests, 90 failed, 51 of them late
            rollout of web complete at 13.4 s
            if it ended now: SUPPORTED  All 51 late failures came from a reused source port:
            the node remembered the port's earlier connection and still sent it to a pod
            that was gone.
             Failures by cause ───────────────────── Stale entries: 1 alive, 68 s at most ──
                                  early   late      40914 ██████░░░░  68 s met 3×  …-4xkqp
            stale-entry-reuse         0     51
            stale-rules              27      0
            pod-not-serving          12      0


             Failed requests: 2 of 2 ───────────────────────────────────────────────────────
                  s   request   port        symptom           cause               pod
                7.8      1302  40914        connect-timeout   stale-rules         …9b8-4xkqp
               31.0      5204  40914  late  connect-timeout   stale-entry-reuse   …9b8-4xkqp






            nothing was lost
            ↑ ↓ choose   Enter its story   End the latest   q end it and say the verdict
        "#]],
    );
}

#[test]
fn nothing_yet() {
    check(
        (80, 24),
        &fixture::empty(),
        &View::default(),
        &expect![[r#"
            60 of 170 s: 0 requests, none failed
            no rollout seen yet
            if it ended now: INCONCLUSIVE  No late failure was seen, but this trace can't
            say that there was none to see.

             Failures by cause ───────────────────── Stale entries: none so far ────────────
                                  early   late
            none so far




             Failed requests: none so far ──────────────────────────────────────────────────
                  s   request   port        symptom           cause               pod








            nothing was lost
            ↑ ↓ choose   Enter its story   End the latest   q end it and say the verdict
        "#]],
    );
}

#[test]
fn a_higher_screen_shows_failures_over_time() {
    check(
        (100, 34),
        &fixture::supported(),
        &View::default(),
        &expect![[r#"
            60 of 170 s: 28,485 requests, 90 failed, 51 of them late
            rollout of web complete at 13.4 s
            if it ended now: SUPPORTED  All 51 late failures came from a reused source port: the node remembered
            the port's earlier connection and still sent it to a pod that was gone.

             Over time, 10 s a column ──────────────────────────────────────────────────────────────────────────
            failed early  ▃▃██
            failed late       ▂▂  ▁▁▂▂▂▂▁▁  ▃▃▂▂▃▃▂▂▁▁

             Failures by cause ─────────────────────────────── Stale entries: 1 alive, 68 s at most ────────────
                                  early   late                40914 ██████░░░░  68 s met 3×  …-6c5f7d9b8-4xkqp
            stale-entry-reuse         0     51
            stale-rules              27      0
            pod-not-serving          12      0




             Failed requests: 2 of 2 ───────────────────────────────────────────────────────────────────────────
                  s   request   port        symptom           cause               pod
                7.8      1302  40914        connect-timeout   stale-rules         web-6c5f7d9b8-4xkqp
               31.0      5204  40914  late  connect-timeout   stale-entry-reuse   web-6c5f7d9b8-4xkqp










            nothing was lost
            ↑ ↓ choose   Enter its story   End the latest   q end it and say the verdict
        "#]],
    );
}

#[test]
fn the_chosen_failures_story_covers_the_rest() {
    let report = fixture::supported();
    let mut view = View::default();
    view.follow(Wish::Open, &report);
    check(
        (80, 24),
        &report,
        &view,
        &expect![[r#"
            60 of 170 s: 28,485 requests, 90 failed, 51 of them late
            rollout of web complete at 13.4 s
            if it ended now: SUPPORTED  All 51 late failures came from a reused source port:
            the node remembered the port's earlier connection and still sent it to a pod
            that was gone.
             request 5204: connect-timeout, because of stale-entry-reuse ───────────────────
            its SYN met the entry that an earlier connect from its port had made
            The connect came from a source port that had been used shortly before; the node
            still remembered that earlier, never answered connect, followed its note and
            sent the SYN to a pod that was gone.












            nothing was lost
            ↑ ↓ scroll   Esc back   q end it and say the verdict
        "#]],
    );
    view.follow(Wish::Back, &report);
    assert_eq!(
        screen((80, 24), &report, &view, HALFWAY),
        screen((80, 24), &report, &View::default(), HALFWAY)
    );
}

#[test]
fn any_size_can_be_drawn() {
    for report in [fixture::supported(), fixture::empty()] {
        for (width, height) in [(1, 1), (2, 40), (40, 3), (300, 100), (75, 9)] {
            let mut view = View::new(true);
            screen((width, height), &report, &view, HALFWAY);
            view.follow(Wish::Open, &report);
            view.follow(Wish::Down, &report);
            screen((width, height), &report, &view, HALFWAY);
        }
    }
}

#[test]
fn a_choice_stays_while_failures_come_and_the_end_follows_them() {
    let mut report = fixture::supported();
    let like = |request| FailureRow { request: RequestId(request), ..report.failed[0].clone() };
    let all: Vec<FailureRow> = (1..=4).map(like).collect();
    report.failed = all[..3].to_vec();
    let mut view = View::default();
    assert_eq!(view.place(&report), Some(all.len() - 2), "the latest");
    view.follow(Wish::Up, &report);
    let chosen = view.place(&report);
    assert_eq!(chosen, Some(all.len() - 3));
    report.failed = all.clone();
    assert_eq!(view.place(&report), chosen);
    view.follow(Wish::Down, &report);
    view.follow(Wish::Down, &report);
    assert_eq!(view.chosen, None, "from the last one on the latest is followed");
    assert_eq!(view.place(&report), Some(all.len() - 1));
}

#[test]
fn choosing_where_nothing_failed_does_nothing() {
    let report = fixture::empty();
    let mut view = View::default();
    for wish in [Wish::Up, Wish::Down, Wish::Open, Wish::Latest, Wish::Back] {
        view.follow(wish, &report);
        assert_eq!((view.chosen, view.story), (None, None));
    }
}

#[test]
fn a_countdown_runs_between_two_reports() {
    let mut report = fixture::supported();
    report.entries.list.truncate(1);
    (report.entries.list[0].made, report.entries.list[0].expires) = (10.0, Some(130.0));
    let at = |now| screen((80, 24), &report, &View::default(), Progress { now, ..HALFWAY });
    assert!(at(60.0).contains("1 alive, 70 s at most"), "{}", at(60.0));
    assert!(at(60.0).contains("██████░░░░  70 s"), "{}", at(60.0));
    assert!(at(129.0).contains("█░░░░░░░░░   1 s"), "{}", at(129.0));
    assert!(at(131.0).contains("have expired"), "{}", at(131.0));
}

#[test]
fn losses_and_missing_hooks_are_in_sight() {
    let mut report = fixture::supported();
    report.losses.push(super::super::LossRow {
        source: "ring buffer".to_owned(),
        count: 1_742,
        at_least: false,
        from: 1.0,
        to: 2.0,
    });
    report.hooks[0].attached = false;
    let text = screen((80, 24), &report, &View::default(), HALFWAY);
    assert!(text.contains("lost: 1,742 events, 1 hook not attached"), "{text}");
}
