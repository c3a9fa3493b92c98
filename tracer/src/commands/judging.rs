//! What `lab`, `record` and `replay` share: the options of a judgement, and saying it.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::{output, units};
use crate::cli::Exit;
use crate::correlate::Timeline;
use crate::files::{self, Existing};
use crate::model::TraceHeader;
use crate::report::{Report, html, json, terminal, view};
use crate::verdict::{self, VerdictOutcome};

/// How a trace is judged, and how that is said.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct Options {
    /// How the report is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,

    /// Write the report to this file too, as a page of HTML with pictures
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Replace files that exist
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    lateness: Lateness,

    /// Exit with status 1 if this is the outcome; may be given more than once, or several with commas
    #[arg(long, value_name = "OUTCOME", value_enum, value_delimiter = ',')]
    fail_on: Vec<FailOn>,
}

/// What counts as late.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct Lateness {
    /// A request is late if it started this long after the rollout was complete
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = units::duration)]
    late_after: Duration,

    /// When the rollout started, instead of what the trace says of it: Unix seconds, or +SECONDS since the trace
    /// began
    #[arg(long, value_name = "TIME", value_parser = units::moment, allow_hyphen_values = true)]
    rollout_start: Option<units::Moment>,

    /// When the rollout was complete; late is measured from it
    #[arg(long, value_name = "TIME", value_parser = units::moment, allow_hyphen_values = true)]
    rollout_end: Option<units::Moment>,
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

impl Lateness {
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
}

impl Options {
    /// What can be told of the options before there is a trace.
    ///
    /// # Errors
    /// If the rollout's end, on the scale of its start, is before it; or if the page can't be had.
    pub fn check(&self) -> anyhow::Result<()> {
        self.lateness.check()?;
        match &self.report {
            // What is to be replaced need not have been a report.
            Some(path) if self.force && path.exists() => {
                let opened = OpenOptions::new().write(true).open(path);
                opened.with_context(|| format!("cannot write {}", path.display()))?;
            }
            Some(path) => files::check(path, Existing::Keep)?,
            None => {}
        }
        Ok(())
    }

    /// Whether the trace and the page are two files.
    ///
    /// # Errors
    /// If they are one.
    pub fn check_apart(&self, trace: Option<&Path>) -> anyhow::Result<()> {
        match (&self.report, trace) {
            (Some(page), Some(trace)) if page == trace => {
                anyhow::bail!(
                    "{} can't hold the trace and the report: name two files",
                    page.display()
                )
            }
            _ => Ok(()),
        }
    }

    /// What to do with files that are there.
    pub fn existing(&self) -> Existing {
        if self.force { Existing::Replace } else { Existing::Keep }
    }

    /// How to judge the trace with this header.
    ///
    /// # Errors
    /// As [`Lateness::settings`].
    pub fn settings(&self, header: &TraceHeader) -> anyhow::Result<verdict::Settings> {
        self.lateness.settings(header)
    }

    /// Judges the timeline, prints the report to standard output, and writes the page if one is wanted.
    pub fn say(
        &self,
        header: &TraceHeader,
        timeline: &Timeline,
        settings: &verdict::Settings,
    ) -> anyhow::Result<Exit> {
        let report = report(header, timeline, settings);
        let text = match self.format {
            Format::Text => terminal::render(&report, &style()),
            Format::Json => json::render(&report),
        };
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("printing the report")?;
        if let Some(path) = &self.report {
            let mut file = output::create(path, self.force)?;
            let page = html::render(&report);
            file.write_all(page.as_bytes())
                .with_context(|| format!("writing the report to {}", path.display()))?;
        }
        Ok(self.exit(report.hypothesis.outcome))
    }

    /// Whether the report is printed for people.
    pub fn is_text(&self) -> bool {
        matches!(self.format, Format::Text)
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

/// The report of a timeline.
pub fn report(header: &TraceHeader, timeline: &Timeline, settings: &verdict::Settings) -> Report {
    view::build(header, timeline, &verdict::assess(header, timeline, settings))
}

/// How text looks on standard output.
pub fn style() -> terminal::Style {
    let color = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    terminal::Style { width: 80, color }
}

fn end_before_start() -> anyhow::Error {
    anyhow::anyhow!("--rollout-end is before --rollout-start")
}
