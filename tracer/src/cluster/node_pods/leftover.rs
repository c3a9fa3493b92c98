//! Pods whose run is no more. A run on another machine can't be looked at: its pod ends by itself when nobody
//! follows it any more, and so tells.

use std::fs;

use k8s_openapi::api::core::v1::Pod;

use super::plan::OWNER;

/// This process, among all of all machines: boot, PID namespace, PID and start time (proc_pid_stat(5), field 22).
pub(super) fn owner() -> String {
    let pid = std::process::id();
    format!("{} {pid} {}", place(), started(pid).unwrap_or_default())
}

fn place() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let pids = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim(), pids.display())
}

fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold blanks and brackets.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Whether nobody will remove it any more.
pub(super) fn is_left(pod: &Pod) -> bool {
    if pod.metadata.deletion_timestamp.is_some() {
        return false;
    }
    let owner = pod.metadata.annotations.as_ref().and_then(|all| all.get(OWNER));
    let Some(owner) = owner else { return false };
    match is_alive(owner) {
        Some(alive) => !alive,
        None => super::trouble::end(pod).is_some(),
    }
}

/// Whether that process is alive; none if it is not of this machine.
fn is_alive(owner: &str) -> Option<bool> {
    let (rest, start) = owner.rsplit_once(' ')?;
    let (at, pid) = rest.rsplit_once(' ')?;
    if at != place() {
        return None;
    }
    let pid = pid.parse().ok()?;
    Some(started(pid).is_some_and(|started| start.parse() == Ok(started)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(owner: &str, phase: &str) -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": { "name": "x", "annotations": { OWNER: owner } },
            "status": { "phase": phase },
        }))
        .expect("a pod")
    }

    #[test]
    fn a_pod_of_a_living_process_is_not_left_even_if_it_has_ended() {
        assert!(!is_left(&pod(&owner(), "Running")));
        assert!(!is_left(&pod(&owner(), "Succeeded")));
    }

    #[test]
    fn a_pod_of_a_process_that_is_no_more_is_left() {
        let dead = format!("{} {} 1", place(), std::process::id());
        assert!(is_left(&pod(&dead, "Running")));
    }

    #[test]
    fn a_pod_of_another_machine_is_left_when_it_has_ended() {
        let foreign = "another-boot pid:[1] 7 7";
        assert!(!is_left(&pod(foreign, "Running")));
        assert!(is_left(&pod(foreign, "Failed")));
    }

    #[test]
    fn a_pod_that_is_not_ours_is_left_alone() {
        let mut foreign = pod("x", "Failed");
        foreign.metadata.annotations = None;
        assert!(!is_left(&foreign));
    }
}
