//! However the owner of a lab ends, nothing of it stays.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tracer::lab::Lab;
use tracer::sys::process::is_running;
use tracer::sys::stop::Stop;
use tracer::sys::{netns, owner, signals};

use super::{ask, is_left_out, names_of, processes_of, settings};

/// Set in the process that builds a lab in order to be killed.
const VICTIM: &str = "TRACER_TEST_LAB_VICTIM";

/// Not a test of its own: the process that others signal or kill.
#[test]
fn the_victim_builds_a_lab_and_waits() {
    let Some(patience) = std::env::var_os(VICTIM) else { return };
    let stop = Stop::default();
    signals::watch(&stop, owner::sweep_own).expect("signals can be watched");
    let lab = Lab::build(&settings(), &stop).expect("a lab can be built");
    println!("\nindex {}", lab.index());
    while patience == "deaf" || !stop.is_requested() {
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("\nstopped");
    // Leaves by returning: dropping the lab takes it down.
}

/// Starts a process that builds a lab, and waits until it stands.
fn victim(patience: &str) -> (Child, impl Iterator<Item = String>, u8) {
    let mut child = Command::new(std::env::current_exe().expect("this test has a path"))
        .args(["--exact", "owner::the_victim_builds_a_lab_and_waits", "--nocapture"])
        .env(VICTIM, patience)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test can be started");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut lines = lines.map(|line| line.expect("it is text"));
    let index = lines.find_map(|line| line.strip_prefix("index ")?.parse().ok());
    (child, lines, index.expect("the victim built a lab"))
}

fn terminate(child: &Child) {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid fits"));
    kill(pid, Signal::SIGTERM).expect("it is our child");
}

#[test]
fn a_signal_takes_the_lab_down() {
    if is_left_out("a_signal_takes_the_lab_down") {
        return;
    }
    let (mut child, mut lines, index) = victim("attentive");
    let pods = processes_of(index);
    terminate(&child);
    assert!(lines.any(|line| line == "stopped"));
    assert!(child.wait().expect("it is our child").success());
    assert_eq!(names_of(index), Vec::<String>::new());
    assert!(pods.iter().all(|pid| !is_running(*pid)), "no pod is left of {pods:?}");
}

#[test]
fn a_second_signal_ends_what_does_not_stop_and_still_cleans_up() {
    if is_left_out("a_second_signal_ends_what_does_not_stop_and_still_cleans_up") {
        return;
    }
    let (mut child, _lines, index) = victim("deaf");
    let pods = processes_of(index);
    terminate(&child);
    // Two of the same signal at once would be one.
    while child.try_wait().expect("it is our child").is_none() && !names_of(index).is_empty() {
        std::thread::sleep(Duration::from_millis(100));
        terminate(&child);
    }
    assert_eq!(child.wait().expect("it is our child").code(), Some(130));
    assert_eq!(names_of(index), Vec::<String>::new());
    assert!(pods.iter().all(|pid| !is_running(*pid)), "no pod is left of {pods:?}");
}

#[test]
fn a_dead_owner_is_cleared_and_a_living_one_is_not() {
    if is_left_out("a_dead_owner_is_cleared_and_a_living_one_is_not") {
        return;
    }
    let living = Lab::build(&settings(), &Stop::default()).expect("a lab can be built");
    let (mut victim, _lines, dead) = victim("attentive");
    // A process that does not die with its parent, as a pod would not that someone else wrote.
    let orphan = Command::new("ip")
        .args(["netns", "exec", &format!("tracer-lab{dead}-n2"), "setsid", "sleep", "600"])
        .spawn()
        .expect("ip is installed");
    let orphan_pid = i32::try_from(orphan.id()).expect("a pid fits");
    let name = format!("tracer-lab{dead}-n2");
    while !netns::processes(&name).expect("it is there").contains(&orphan_pid) {
        std::thread::sleep(Duration::from_millis(5));
    }

    victim.kill().expect("it runs");
    victim.wait().expect("it was started here");
    assert_eq!(names_of(dead).len(), 7, "SIGKILL leaves the namespaces");

    let next = Lab::build(&settings(), &Stop::default()).expect("a lab can be built");
    assert!(!is_running(orphan_pid), "the orphan is killed");
    let taken_over = if next.index() == dead { 7 } else { 0 };
    assert_eq!(names_of(dead).len(), taken_over, "nothing of the dead lab is left");
    let mut orphan = orphan;
    orphan.wait().expect("it was started here");
    ask(&living).expect("the living lab was not touched");
}
