//! What `lab`, `record` and `replay` share: the options of a judgement, and saying it.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::units;
use crate::cli::Exit;
use crate::correlate::Timeline;
use crate::model::TraceHeader;
use crate::report::{json, terminal, view};
use crate::verdict::{self, VerdictOutcome};

/// How a trace is judged, and how that is said.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct Options {
    /// How the report is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,

    /// A request is late if it started this long after the rollout was complete
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = units::duration)]
    late_after: Duration,

    /// When the rollout started, if the trace has no word of it: Unix seconds, or +SECONDS since the
    /// trace began
    #[arg(long, value_name = "TIME", value_parser = units::moment, allow_hyphen_values = true)]
    rollout_start: Option<units::Moment>,

    /// When the rollout was complete
    #[arg(long, value_name = "TIME", value_parser = units::moment, allow_hyphen_values = true)]
    rollout_end: Option<units::Moment>,

    /// Exit with status 1 if this is the outcome; may be given more than once
    #[arg(long, value_name = "OUTCOME", value_enum)]
    fail_on: Vec<FailOn>,
}

/// The forms of a report.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    /// For people
    #[default]
    Text,
    /// For programs: docs/report.schema.json describes it
    Json,
}

/// The outcomes, as they are typed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum FailOn {
    Supported,
    Refuted,
    NotObserved,
    Inconclusive,
}

impl FailOn {
    fn outcome(self) -> VerdictOutcome {
        match self {
            FailOn::Supported => VerdictOutcome::Supported,
            FailOn::Refuted => VerdictOutcome::Refuted,
            FailOn::NotObserved => VerdictOutcome::NotObserved,
            FailOn::Inconclusive => VerdictOutcome::Inconclusive,
        }
    }
}

impl Options {
    /// What can be told of the options before there is a trace.
    ///
    /// # Errors
    /// If the rollout's end, on the scale of its start, is before it.
    pub fn check(&self) -> anyhow::Result<()> {
        use units::Moment::{SinceBegan, Unix};
        match (self.rollout_start, self.rollout_end) {
            (Some(Unix(start)), Some(Unix(end)))
            | (Some(SinceBegan(start)), Some(SinceBegan(end)))
                if end < start =>
            {
                Err(end_before_start())
            }
            _ => Ok(()),
        }
    }

    /// How to judge the trace with this header.
    ///
    /// # Errors
    /// If a moment is before the trace's clock began, or the rollout's end before its start.
    pub fn settings(&self, header: &TraceHeader) -> anyhow::Result<verdict::Settings> {
        let on_the_clock = |moment: Option<units::Moment>, name: &str| {
            let before = || format!("{name} is before the traced machine started");
            moment.map(|moment| moment.on(header).with_context(before)).transpose()
        };
        let rollout_start = on_the_clock(self.rollout_start, "--rollout-start")?;
        let rollout_end = on_the_clock(self.rollout_end, "--rollout-end")?;
        match (rollout_start, rollout_end) {
            (Some(start), Some(end)) if end < start => Err(end_before_start()),
            _ => Ok(verdict::Settings { late_after: self.late_after, rollout_start, rollout_end }),
        }
    }

    /// Judges the timeline and prints the report to standard output.
    pub fn say(
        &self,
        header: &TraceHeader,
        timeline: &Timeline,
        settings: &verdict::Settings,
    ) -> anyhow::Result<Exit> {
        let verdict = verdict::assess(header, timeline, settings);
        let report = view::build(header, timeline, &verdict);
        let text = match self.format {
            Format::Text => terminal::render(&report, &self.style()),
            Format::Json => json::render(&report),
        };
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("printing the report")?;
        Ok(self.exit(report.hypothesis.outcome))
    }

    fn style(&self) -> terminal::Style {
        let color = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        terminal::Style { width: 80, color }
    }

    fn exit(&self, outcome: VerdictOutcome) -> Exit {
        if self.fail_on.iter().any(|fail_on| fail_on.outcome() == outcome) {
            Exit::Matched
        } else if outcome == VerdictOutcome::Inconclusive {
            Exit::Inconclusive
        } else {
            Exit::Done
        }
    }
}

fn end_before_start() -> anyhow::Error {
    anyhow::anyhow!("--rollout-end is before --rollout-start")
}
