//! The controls: lab runs whose truth is known beforehand, most of which must come out the other way. Without them a
//! verdict of `supported` would be worth little.

mod table;

use std::str::FromStr;
use std::time::Duration;

use crate::lab::{DeadAddress, Deployment, Family, HeldState, LabSettings};
use crate::loadgen::Mode;
use crate::model::Symptom;
use crate::verdict::{Cause, VerdictOutcome};

pub use table::CONTROLS;

/// A control.
#[derive(Clone, Copy, Debug)]
pub struct Control {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub about: &'static str,
    /// What differs from [`Scene::usual`].
    pub(super) scene: fn(&mut Scene),
    /// What must come out.
    pub(super) expected: Expected,
}

impl Control {
    /// Whether there is such a lab with addresses of this family: the machine that would answer for a dead pod's address
    /// has IPv4 alone.
    pub(super) fn is_for(&self, family: Family) -> bool {
        let mut scene = Scene::usual();
        (self.scene)(&mut scene);
        family == Family::Ipv4 || scene.lab.dead_address != DeadAddress::Resets
    }
}

/// What is built and done.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) lab: LabSettings,
    pub(super) workers: u32,
    pub(super) timeout: Duration,
    pub(super) duration: Duration,
    pub(super) mode: Mode,
    /// What is done when, counted from the load's beginning.
    pub(super) script: Script,
    /// For how long the client asks before the trace begins, and what is done meanwhile.
    pub(super) prelude: Option<(Duration, Script)>,
}

/// What is done when.
pub(super) type Script = Vec<(Duration, Deed)>;

/// Something that is done to the lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// A rolling update, seen through.
    Rollout,
    /// A second one that begins so long after the first, before that is over.
    OverlappingRollouts(Duration),
    /// So many connections for each of these states are made to pods on the nodes that are to be lost.
    Hold(&'static [HeldState], usize),
    /// Their sockets go without a word, each in its state.
    LetGo,
    /// The newest pod is killed with so many requests unread, and deleted.
    ResetNewest(usize),
    /// The newest pod is stopped and lives on.
    Freeze,
    /// The client's node drops the SYNs of so many source ports.
    DropSyns(usize),
    /// The SYNs of so many source ports leave the client such that conntrack judges them invalid.
    SpoilSyns(usize),
    /// Dead pods' addresses go to new pods of another app.
    Reassign,
    /// The network loses every node but the client's.
    LoseNodes,
    /// The lost nodes' pods count as not ready.
    DoubtLost,
    /// The lost nodes' pods are evicted, and deleted by force.
    EvictLost,
    /// The Deployment is scaled down to so many pods.
    ScaleDown(usize),
}

/// What must come out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    /// What becomes of the reused source port.
    pub(super) reused_source_port: VerdictOutcome,
    /// What becomes of the rival `stale-rules`, where that matters.
    pub(super) stale_rules: Option<VerdictOutcome>,
    /// Between which shares of the late failures the reused source port explains, where that matters.
    pub(super) share: Option<(f64, f64)>,
    /// So many requests at least met a stale entry and got through.
    pub(super) slowed: usize,
    /// A failed request met an entry in each of these states.
    pub(super) states: &'static [&'static str],
    /// Every failed request is of one of these kinds, and of each there are as many at least.
    pub(super) failures: &'static [Kind],
}

/// A kind of failure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) cause: Cause,
    pub(super) symptoms: &'static [Symptom],
    /// How many early and late ones there must be at least; none: there must be none.
    pub(super) early: Option<u64>,
    pub(super) late: Option<u64>,
}

impl Scene {
    /// A rollout of pods that exit at once, as quick as can be: entries live for 15 s and the client has a thousand
    /// ports.
    pub(super) fn usual() -> Scene {
        Scene {
            lab: LabSettings {
                deployment: Deployment { replicas: 3, max_surge: 1, max_unavailable: 0 },
                pod_delay: Duration::from_millis(20),
                pod_creation: Duration::from_millis(200),
                pod_start_delay: Duration::from_millis(300),
                syn_sent_timeout: Some(15),
                ports: 32_768..=33_791,
                // SYNs go after 0, 1, 3 and 7 s, as before Linux 6.5: with the timeout none goes at the last moment.
                client_sysctls: vec![("net.ipv4.tcp_syn_linear_timeouts", "0")],
                ..LabSettings::default()
            },
            workers: 10,
            timeout: Duration::from_millis(2_500),
            duration: Duration::from_secs(30),
            mode: Mode::Fresh,
            script: vec![(Duration::from_secs(3), Deed::Rollout)],
            prelude: None,
        }
    }
}

/// Which controls to run.
#[derive(Clone, Copy, Debug)]
pub enum Chosen {
    /// This one.
    One(Control),
    /// One after the other.
    All,
}

impl FromStr for Chosen {
    type Err = UnknownControl;

    fn from_str(name: &str) -> Result<Chosen, UnknownControl> {
        if name == ALL { Ok(Chosen::All) } else { name.parse().map(Chosen::One) }
    }
}

/// What all controls together are called.
const ALL: &str = "all";

/// There is no control of this name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no control is called `{name}`; there are: {}, and {ALL}", CONTROLS.map(|control| control.name).join(", "))]
pub struct UnknownControl {
    name: String,
}

impl FromStr for Control {
    type Err = UnknownControl;

    fn from_str(name: &str) -> Result<Control, UnknownControl> {
        let control = CONTROLS.into_iter().find(|control| control.name == name);
        control.ok_or_else(|| UnknownControl { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::words;

    #[test]
    fn every_control_is_found_by_its_name_and_an_unknown_one_refused_with_the_list() {
        for control in CONTROLS {
            assert_eq!(control.name.parse::<Control>().map(|it| it.name), Ok(control.name));
        }
        let error = "stale".parse::<Control>().map(|it| it.name).unwrap_err().to_string();
        assert!(
            error.starts_with("no control is called `stale`; there are: stale-entries, "),
            "{error}"
        );
        assert!(error.ends_with(", and all"), "{error}");
        assert!(matches!("all".parse(), Ok(Chosen::All)));
        assert!(CONTROLS.iter().all(|control| control.name != ALL));
    }

    /// What a control must show, as a row of the table in docs/controls.md.
    fn row(control: &Control) -> String {
        let Expected { reused_source_port, stale_rules, share, slowed, states, failures } =
            control.expected;
        let mut must = Vec::new();
        let mut may = Vec::new();
        for kind in failures {
            let name = kind.cause.name();
            let is_due = |least: Option<u64>| least.is_some_and(|least| least > 0);
            match (is_due(kind.early), is_due(kind.late)) {
                (false, false) => may.push(format!("`{name}`")),
                (true, false) => must.push(format!("`{name}` early")),
                (false, true) => must.push(format!("`{name}` late")),
                (true, true) => must.push(format!("`{name}` early and late")),
            }
        }
        if slowed > 0 {
            must.push("connects that met a stale entry and got through".to_owned());
        }
        if !states.is_empty() {
            must.push(format!("entries in {}", states.join(", ")));
        }
        let mut outcome = words::outcome_name(reused_source_port).to_owned();
        if let Some((least, most)) = share {
            let share =
                if least == most { least.to_string() } else { format!("{least} to {most}") };
            outcome.push_str(&format!(", share {share}"));
        }
        if let Some(rival) = stale_rules {
            outcome.push_str(&format!("; `stale-rules` {}", words::outcome_name(rival)));
        }
        let list = |of: &[String]| if of.is_empty() { "nothing".to_owned() } else { of.join("; ") };
        let Control { name, about, .. } = control;
        format!("| `{name}` | {about} | {outcome} | {} | {} |", list(&must), list(&may))
    }

    #[test]
    fn the_page_of_controls_lists_each_with_what_it_must_show() {
        let page = include_str!("../../../../docs/controls.md");
        let is_row = |line: &&str| line.starts_with("| `");
        let rows: Vec<&str> = page.lines().filter(is_row).collect();
        let wanted: Vec<String> = CONTROLS.iter().map(row).collect();
        assert_eq!(rows, wanted, "docs/controls.md should have:\n{}\n", wanted.join("\n"));
    }
}
