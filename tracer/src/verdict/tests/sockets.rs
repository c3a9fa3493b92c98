//! Verdicts where nobody logs requests and the clients' sockets tell.

use super::{causes, outcome};

/// A rollout, in which pod a is gone at 11 s. `connects` has lines for each connect.
fn rollout(connects: &str) -> String {
    let mut scene = "0s pod a 10.0.1.7 added\n0s pod b 10.0.2.8 added\n5s rollout started\n\
                     10s pod a 10.0.1.7 asked\n11s pod a 10.0.1.7 deleted\n12s rollout finished\n"
        .to_owned();
    // A client that asks once a second.
    for second in 0..140 {
        scene += &answered(second, 50_000 + 2 * second, "close-wait");
    }
    scene += connects;
    scene
}

/// A connect that is answered, and how its socket leaves ESTABLISHED after 20 ms.
fn answered(second: u32, port: u32, end: &str) -> String {
    format!(
        "{second}.001s syn {port} isn {port} left 120s to b\n\
         {second}.002s synack {port} isn {port} from b\n\
         {second}.003s socket {port} 3ms connects\n\
         {second}.020s state {port} established {end}\n"
    )
}

/// A connect of three SYNs to a pod, that its client gives up after 3 s.
fn given_up(second: u32, port: u32, isn: u32, left: u32, pod: &str) -> String {
    let mut lines = String::new();
    for nth in 0..3 {
        let left = left - nth;
        lines += &format!("{}.001s syn {port} isn {isn} left {left}s to {pod}\n", second + nth);
    }
    lines + &format!("{}.001s socket {port} 3s fails 0\n", second + 3)
}

#[test]
fn late_connects_on_stale_entries_support_it_without_any_log() {
    let early = given_up(11, 40_002, 1, 120, "a");
    let late = given_up(40, 40_002, 2, 91, "a") + &given_up(60, 40_002, 3, 71, "a");
    let scene = rollout(&(early + &late));
    let causes = causes(&scene);
    let lines: Vec<&str> = causes.lines().map(|line| line.split(':').next().unwrap()).collect();
    let found: Vec<&str> = lines.iter().map(|line| line.split_once(' ').unwrap().1).collect();
    assert_eq!(found, ["early stale-rules", "late stale-entry-reuse", "late stale-entry-reuse"]);
    let said = outcome(&scene);
    assert!(said.starts_with("Supported 1.00\n"), "{said}");
}

#[test]
fn late_connects_to_a_live_pod_do_not() {
    let early = given_up(11, 40_002, 1, 120, "a");
    let scene = rollout(&(early + &given_up(40, 40_006, 2, 120, "b")));
    let said = outcome(&scene);
    assert!(!said.starts_with("Supported"), "{said}");
    assert!(said.contains("1 late connects timed out on a fresh entry to a live pod"), "{said}");
}

#[test]
fn a_loss_of_packets_makes_it_inconclusive_as_ever() {
    let late = given_up(40, 40_002, 2, 91, "a");
    let scene =
        rollout(&(given_up(11, 40_002, 1, 120, "a") + &late + "41s lost 5 xmit since 40.5s\n"));
    let said = outcome(&scene);
    assert!(said.starts_with("Inconclusive"), "{said}");
}

#[test]
fn a_reset_after_the_connect_is_a_failure_and_a_client_that_throws_away_is_not() {
    let reset = answered(30, 40_010, "close").replace(
        "30.020s",
        "30.010s recv-reset 40010\n30.011s socket 40010 11ms is-reset\n30.020s",
    );
    let thrown_away = answered(31, 40_012, "close");
    let said = causes(&rollout(&(reset + &thrown_away)));
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("late pod-not-serving"), "{said}");
}

#[test]
fn a_connect_that_is_turned_away_is_refused() {
    let refused = "30s     syn 40020 isn 9 left 120s to b\n\
                   30.001s rst 40020 isn 9 from b\n\
                   30.002s recv-reset 40020\n\
                   30.003s socket 40020 3ms fails 111\n";
    let said = causes(&rollout(refused));
    assert!(said.contains("late pod-not-serving"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
