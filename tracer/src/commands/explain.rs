//! `tracer explain`: the stories of single failed requests, in words and packets. Needs no privileges.

use std::io::{self, Write};

use anyhow::{Context, bail};
use clap::Args;

use super::{judging, replay};
use crate::cli::Exit;
use crate::correlate::Failure;
use crate::report::words::count;
use crate::report::{Story, story, terminal};
use crate::verdict::{self, Finding};

/// Requests or ports that are named where the one that was asked for is not there.
const NAMED: usize = 5;

/// Options of `tracer explain`
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    sources: replay::Sources,

    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    lateness: judging::Lateness,
}

/// Which failures.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// The failed request with this number
    #[arg(long, value_name = "N")]
    request: Option<u64>,

    /// Every failed request from this source port
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,

    /// Every request that failed late
    #[arg(long)]
    late: bool,
}

/// Reads what there is and tells the stories that were asked for.
pub fn run(options: Options) -> anyhow::Result<Exit> {
    options.lateness.check()?;
    let (header, settings, timeline) =
        options.sources.read(|header| options.lateness.settings(header))?;
    let verdict = verdict::assess(&header, &timeline, &settings);
    let failed = Failed { failures: &timeline.failures, findings: &verdict.findings };
    let stories: Vec<Story> = failed
        .find(&options.which)?
        .into_iter()
        .map(|index| story::tell(&header, &timeline, &verdict, index))
        .collect();
    let text = terminal::tell(&stories, &judging::style());
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("printing the stories")?;
    Ok(Exit::Done)
}

/// The failed requests of a trace.
struct Failed<'a> {
    failures: &'a [Failure],
    findings: &'a [Finding],
}

impl Failed<'_> {
    /// The places of those that were asked for; never none.
    fn find(&self, which: &Which) -> anyhow::Result<Vec<usize>> {
        let found: Vec<usize> = (0..self.failures.len())
            .filter(|index| match (which.request, which.port) {
                (Some(request), _) => self.failures[*index].ended.id.0 == request,
                (None, Some(port)) => self.port(*index) == Some(port),
                (None, None) => self.findings[*index].late,
            })
            .collect();
        if found.is_empty() {
            bail!("{}; {}", self.nothing(which), self.what_there_is(which));
        }
        Ok(found)
    }

    /// Its request's port; some logs have none where the connect failed, but its packets do.
    fn port(&self, index: usize) -> Option<u16> {
        let failure = &self.failures[index];
        let attempt = failure.attempt.as_ref().map(|attempt| attempt.orig.src);
        failure.ended.source.or(attempt).map(|source| source.port())
    }

    fn nothing(&self, which: &Which) -> String {
        match (which.request, which.port) {
            (Some(request), _) => format!("no request {request} failed in this trace"),
            (None, Some(port)) => format!("no request from port {port} failed in this trace"),
            (None, None) => "no request failed late in this trace".to_owned(),
        }
    }

    fn what_there_is(&self, which: &Which) -> String {
        if self.failures.is_empty() {
            return "none failed at all".to_owned();
        }
        let all = 0..self.failures.len();
        let (what, option) = match which.port {
            Some(_) => ("failed requests came from ports", "--port"),
            None => ("failed requests are", "--request"),
        };
        let mut numbers: Vec<u64> = match which.port {
            Some(_) => all.filter_map(|index| self.port(index)).map(u64::from).collect(),
            None => all.map(|index| self.failures[index].ended.id.0).collect(),
        };
        numbers.sort_unstable();
        numbers.dedup();
        let named: Vec<String> = numbers.iter().take(NAMED).map(u64::to_string).collect();
        if named.is_empty() {
            return "no failed request has a source port".to_owned();
        }
        let more = match numbers.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {} more", count(more as u64)),
        };
        format!("{what} {}{more} ({option})", named.join(", "))
    }
}
