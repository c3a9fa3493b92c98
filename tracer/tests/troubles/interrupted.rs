//! `tracer lab` interrupted in each of its phases, once, twice, and as a terminal does it.

use nix::sys::signal::Signal;

use crate::command::{Output, Running, tracer};
use crate::host::Host;
use crate::watched::Watched;
use crate::{Needs, is_left_out};

const WITH_VERDICT: &str = "interrupted; the lab is taken down, the verdict is of what was traced";
const BEFORE_IT_STOOD: &str = "interrupted before the lab stood; what was built is taken down";
const TWICE: &str = "interrupted again; the lab is taken down, there is no verdict";

fn lab(duration: &str) -> Running {
    Running::start(tracer(&["lab", "--quick", "--format", "json", "--duration", duration]))
}

fn has_a_name(seen: &Watched) -> bool {
    !seen.names().is_empty()
}

fn has_pods(seen: &Watched) -> bool {
    seen.names().iter().filter(|name| name.contains("-web-1-")).count() == 3
}

fn is_traced(seen: &Watched) -> bool {
    !seen.programs.is_empty()
}

fn is_rolling(seen: &Watched) -> bool {
    seen.names().iter().any(|name| name.contains("-web-2-"))
}

fn is_traced_no_more(seen: &Watched) -> bool {
    is_traced(seen) && seen.loaded().is_empty()
}

/// A verdict was reached, of a run that was cut short.
#[track_caller]
fn has_verdict(output: &Output) {
    assert!(matches!(output.code, Some(0 | 3)), "{output:?}");
    assert_eq!(output.report()["schema"], 1);
}

#[test]
fn while_the_lab_is_built() {
    if is_left_out("while_the_lab_is_built", Needs::Lab) {
        return;
    }
    let host = Host::now();
    for (signal, phase) in [
        (Signal::SIGINT, has_a_name as fn(&Watched) -> bool),
        (Signal::SIGTERM, has_pods),
        (Signal::SIGHUP, has_pods),
    ] {
        let mut lab = lab("12s");
        lab.reach("its names", phase);
        lab.signal(signal);
        let output = lab.wait();
        assert_eq!(output.refusal(), BEFORE_IT_STOOD, "{signal}");
        host.is_as_before(&[&output]);
    }
}

#[test]
fn before_the_rollout() {
    if is_left_out("before_the_rollout", Needs::Lab) {
        return;
    }
    let host = Host::now();
    let mut lab = lab("20s");
    lab.reach("tracing", is_traced);
    lab.signal(Signal::SIGTERM);
    let output = lab.wait();
    has_verdict(&output);
    assert_eq!(output.line(), WITH_VERDICT);
    host.is_as_before(&[&output]);
}

#[test]
fn in_the_middle_of_the_rollout_from_the_terminal() {
    if is_left_out("in_the_middle_of_the_rollout_from_the_terminal", Needs::Lab) {
        return;
    }
    let host = Host::now();
    let mut lab = lab("30s");
    lab.reach("a pod of the rollout", is_rolling);
    lab.signal_group(Signal::SIGINT);
    let output = lab.wait();
    has_verdict(&output);
    assert_eq!(output.code, Some(3), "the rollout was not complete: {}", output.stdout);
    assert_eq!(output.line(), WITH_VERDICT);
    host.is_as_before(&[&output]);
}

#[test]
fn when_all_is_over_but_the_taking_down() {
    if is_left_out("when_all_is_over_but_the_taking_down", Needs::Lab) {
        return;
    }
    let host = Host::now();
    let mut lab = lab("1s");
    lab.reach("the end of tracing", is_traced_no_more);
    lab.signal(Signal::SIGINT);
    let output = lab.wait();
    has_verdict(&output);
    host.is_as_before(&[&output]);
}

/// timeout(1) signals its child, and then the child's group.
#[test]
fn by_two_signals_at_once_which_are_one_wish() {
    if is_left_out("by_two_signals_at_once_which_are_one_wish", Needs::Lab) {
        return;
    }
    let host = Host::now();
    let mut lab = lab("30s");
    lab.reach("a pod of the rollout", is_rolling);
    // Two different ones: two of the same at once would be one to the kernel.
    lab.signal(Signal::SIGTERM);
    lab.signal(Signal::SIGINT);
    let output = lab.wait();
    has_verdict(&output);
    assert_eq!(output.line(), WITH_VERDICT);
    host.is_as_before(&[&output]);
}

#[test]
fn twice_in_a_row() {
    if is_left_out("twice_in_a_row", Needs::Lab) {
        return;
    }
    let host = Host::now();
    for (phase, signals) in [
        (has_a_name as fn(&Watched) -> bool, [Signal::SIGINT, Signal::SIGTERM]),
        (has_pods, [Signal::SIGTERM, Signal::SIGINT]),
        (is_rolling, [Signal::SIGINT, Signal::SIGTERM]),
    ] {
        let mut lab = lab("30s");
        lab.reach("its phase", phase);
        let [first, second] = signals;
        lab.signal(first);
        // What comes within a quarter of a second is the same wish.
        std::thread::sleep(std::time::Duration::from_millis(350));
        lab.signal(second);
        let output = lab.wait();
        match output.code {
            Some(130) => {
                assert!(output.stderr.ends_with(&format!("tracer: {TWICE}\n")), "{output:?}")
            }
            // It was faster than the second signal.
            Some(2) => assert_eq!(output.line(), BEFORE_IT_STOOD),
            _ => has_verdict(&output),
        }
        host.is_as_before(&[&output]);
    }
}
