//! The report while a trace goes on: what would be said if it ended now. Draws into a buffer; whose terminal that is, and
//! which keys were pressed, others know.

#[cfg(test)]
mod tests;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Wrap};

use super::words::{self, count};
use super::{EntryRow, FailureRow, Report, Story, StoryStep};
use crate::model::RequestId;
use crate::verdict::{Cause, VerdictOutcome};

/// Cells of an entry's bar.
const BAR: usize = 10;
/// The narrowest screen on which causes and entries stand side by side.
const SIDE_BY_SIDE: u16 = 76;
/// The lowest screen that has room for failures over time.
const HIGH: u16 = 30;

/// What the person in front of it looks at.
#[derive(Clone, Debug, Default)]
pub struct View {
    color: bool,
    /// The failed request that was chosen; else the latest.
    chosen: Option<RequestId>,
    /// Whether its story is open, and how many of its lines were scrolled past.
    story: Option<u16>,
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The failure before, or a line up in the story.
    Up,
    /// The failure after, or a line down in the story.
    Down,
    /// The latest failure, whichever that is.
    Latest,
    /// The story of the chosen one.
    Open,
    /// The list again.
    Back,
}

/// How far a live trace has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Seconds since the trace began. The report may be a little older.
    pub now: f64,
    /// Seconds that it will last, where that is known.
    pub of: Option<f64>,
    /// Whether it was asked to end.
    pub is_ending: bool,
}

impl View {
    /// The latest failure is chosen, its story is not open. With colours, things are said once more by them.
    pub fn new(color: bool) -> View {
        View { color, ..View::default() }
    }

    /// Follows a wish.
    pub fn follow(&mut self, wish: Wish, report: &Report) {
        let last = report.failed.len().checked_sub(1);
        match (wish, &mut self.story) {
            (Wish::Up, Some(line)) => *line = line.saturating_sub(1),
            (Wish::Down, Some(line)) => *line = line.saturating_add(1),
            (Wish::Up, None) => {
                let place = self.place(report).map(|place| place.saturating_sub(1));
                self.chosen = place.map(|place| report.failed[place].request);
            }
            (Wish::Down, None) => {
                let place = self.place(report).map(|place| place + 1);
                // From the last one on, the latest is followed.
                let place = place.filter(|place| Some(*place) < last);
                self.chosen = place.map(|place| report.failed[place].request);
            }
            (Wish::Latest, _) => (self.chosen, self.story) = (None, None),
            (Wish::Open, _) => {
                // Kept, though others may come.
                let place = self.place(report);
                self.chosen = place.map(|place| report.failed[place].request);
                self.story = place.map(|_| 0);
            }
            (Wish::Back, _) => self.story = None,
        }
    }

    /// The chosen failure's place in the report; none where nothing failed.
    fn place(&self, report: &Report) -> Option<usize> {
        let chosen = |failure: &FailureRow| Some(failure.request) == self.chosen;
        report.failed.iter().position(chosen).or_else(|| report.failed.len().checked_sub(1))
    }

    fn style(&self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }

    /// How a cause looks: reused ports as the verdict's bad news, and so in every other picture.
    fn cause(&self, cause: Cause) -> Style {
        match cause {
            cause if cause.is_reused_port() => self.style(Color::Red),
            Cause::StaleRules => self.style(Color::Blue),
            _ => self.style(Color::Magenta),
        }
    }
}

const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Draws it, on a screen of any size.
pub fn draw(frame: &mut Frame<'_>, report: &Report, view: &View, progress: Progress) {
    let area = frame.area();
    let over_time = if area.height >= HIGH { 4 } else { 0 };
    let [head, times, middle, failures, foot] = Layout::vertical([
        Constraint::Length(5),
        Constraint::Length(over_time),
        Constraint::Fill(2),
        Constraint::Fill(3),
        Constraint::Length(2),
    ])
    .areas(area);
    frame.render_widget(headline(report, view, progress), head);
    if over_time > 0 {
        frame.render_widget(failures_over_time(report, view, times), times);
    }
    let [causes, entries] = if area.width >= SIDE_BY_SIDE {
        Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(middle)
    } else {
        Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(middle)
    };
    frame.render_widget(by_cause(report, view), causes);
    frame.render_widget(stale_entries(report, view, progress.now, entries), entries);
    frame.render_widget(last_failures(report, view, failures), failures);
    if let Some(scrolled) = view.story
        && let Some(place) = view.place(report)
    {
        let over = Rect { y: middle.y, height: middle.height + failures.height, ..middle };
        frame.render_widget(Clear, over);
        frame.render_widget(story(report, place, scrolled, over), over);
    }
    frame.render_widget(losses_and_keys(report, view), foot);
}

fn panel(title: impl Into<String>) -> Block<'static> {
    Block::new().borders(Borders::TOP).title(Span::styled(format!(" {} ", title.into()), STRONG))
}

/// What would be said if it ended now.
fn headline<'a>(report: &Report, view: &View, progress: Progress) -> Paragraph<'a> {
    let outcome = report.hypothesis.outcome;
    let style = match outcome {
        VerdictOutcome::Supported => view.style(Color::Red),
        VerdictOutcome::NotObserved => view.style(Color::Green),
        VerdictOutcome::Refuted | VerdictOutcome::Inconclusive => view.style(Color::Yellow),
    };
    let of = progress.of.map_or_else(String::new, |of| format!(" of {of:.0}"));
    let ending = if progress.is_ending { ", ending" } else { "" };
    let requests = &report.requests;
    let failed = match requests.failed {
        0 => "none failed".to_owned(),
        failed => format!("{} failed, {} of them late", count(failed), count(requests.late)),
    };
    let rollout = report.rollouts.last().map_or_else(
        || "no rollout seen yet".to_owned(),
        |rollout| match (rollout.started, rollout.finished) {
            (_, Some(finished)) => {
                format!("rollout of {} complete at {finished:.1} s", rollout.deployment)
            }
            (Some(started), None) => {
                format!("rollout of {} since {started:.1} s", rollout.deployment)
            }
            (None, None) => format!("rollout of {}", rollout.deployment),
        },
    );
    let status = format!(
        "{:.0}{of} s{ending}: {}, {failed}",
        progress.now,
        words::counted(requests.total, "request"),
    );
    Paragraph::new(vec![
        Line::styled(status, STRONG),
        Line::raw(rollout),
        Line::from(vec![
            Span::raw("if it ended now: "),
            Span::styled(
                words::outcome_name(outcome).to_uppercase(),
                style.add_modifier(Modifier::BOLD),
            ),
            Span::raw("  "),
            Span::raw(words::verdict(report)),
        ]),
    ])
    .wrap(Wrap { trim: true })
}

/// Failures over time, a column for each bin of the report.
fn failures_over_time<'a>(report: &Report, view: &View, area: Rect) -> Paragraph<'a> {
    const LEVELS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
    let room = usize::from(area.width).saturating_sub(14) / 2;
    let bins = &report.bins[report.bins.len().saturating_sub(room)..];
    let most = bins.iter().map(|bin| bin.early.max(bin.late)).max().unwrap_or(0).max(1);
    let level = |n: u64| {
        let nth = (n * 8).div_ceil(most).min(8);
        LEVELS[usize::try_from(nth).unwrap_or(0)].repeat(2)
    };
    let row = |name: &str, style: Style, n: fn(&super::BinRow) -> u64| {
        let bars: String = bins.iter().map(|bin| level(n(bin))).collect();
        Line::from(vec![Span::raw(format!("{name:<14}")), Span::styled(bars, style)])
    };
    Paragraph::new(vec![
        row("failed early", view.style(Color::Blue), |bin| bin.early),
        row("failed late", view.style(Color::Red), |bin| bin.late),
    ])
    .block(panel("Over time, 10 s a column"))
}

fn by_cause<'a>(report: &Report, view: &View) -> Paragraph<'a> {
    let failures = &report.failures;
    let mut causes: Vec<Cause> =
        failures.early.keys().chain(failures.late.keys()).copied().collect();
    causes.sort();
    causes.dedup();
    let mut lines = vec![Line::styled(format!("{:<20}{:>7}{:>7}", "", "early", "late"), FAINT)];
    for cause in causes {
        let of = |side: &std::collections::BTreeMap<Cause, u64>| side.get(&cause).copied();
        let (early, late) =
            (of(&failures.early).unwrap_or_default(), of(&failures.late).unwrap_or_default());
        lines.push(Line::from(vec![
            Span::styled(format!("{:<20}", cause.name()), view.cause(cause)),
            Span::raw(format!("{:>7}{:>7}", count(early), count(late))),
        ]));
    }
    if lines.len() == 1 {
        lines.push(Line::raw("none so far"));
    }
    Paragraph::new(lines).block(panel("Failures by cause"))
}

/// The entries that live, with the time that each has left; those that go first come first.
fn stale_entries<'a>(report: &Report, view: &View, now: f64, area: Rect) -> Paragraph<'a> {
    let is_alive = |entry: &&EntryRow| entry.expires.is_none_or(|expires| now < expires);
    let mut alive: Vec<&EntryRow> = report.entries.list.iter().filter(is_alive).collect();
    let end = |entry: &EntryRow| entry.expires.unwrap_or(f64::INFINITY);
    alive.sort_by(|a, b| end(a).total_cmp(&end(b)));
    let last = alive.iter().filter_map(|entry| entry.expires).reduce(f64::max);
    let title = match (alive.len(), last) {
        (0, _) if report.entries.stale == 0 => "Stale entries: none so far".to_owned(),
        (0, _) => format!("Stale entries: all {} have expired", count(report.entries.stale)),
        (n, None) => format!("Stale entries: {n} alive"),
        (n, Some(last)) => format!("Stale entries: {n} alive, {:.0} s at most", last - now),
    };
    let room = usize::from(area.height).saturating_sub(1);
    let shown = if alive.len() > room { room.saturating_sub(1) } else { alive.len() };
    let mut lines: Vec<Line<'a>> =
        alive.iter().take(shown).map(|it| left(it, report, view, now, area.width.into())).collect();
    if shown < alive.len() {
        lines.push(Line::styled(format!("and {} more", alive.len() - shown), FAINT));
    }
    Paragraph::new(lines).block(panel(title))
}

/// How much of an entry's life is left.
fn left<'a>(entry: &EntryRow, report: &Report, view: &View, now: f64, width: usize) -> Line<'a> {
    let at = report.entries.pointing_at.iter().find(|at| at.backend == entry.backend);
    let pod = at.and_then(|at| at.pod.clone()).unwrap_or_else(|| entry.backend.to_string());
    let (bar, left) = match entry.expires {
        None => (" ".repeat(BAR), "   ?".to_owned()),
        Some(expires) => {
            let whole = (expires - entry.made).max(f64::MIN_POSITIVE);
            let share = ((expires - now) / whole).clamp(0.0, 1.0);
            let full = ((share * BAR as f64).ceil() as usize).min(BAR);
            (
                format!("{}{}", "█".repeat(full), "░".repeat(BAR - full)),
                format!("{:>4.0}", (expires - now).max(0.0).ceil()),
            )
        }
    };
    let met = if entry.met > 0 { format!("met {}×", entry.met) } else { String::new() };
    Line::from(vec![
        Span::raw(format!("{:>5} ", entry.source.port())),
        Span::styled(bar, view.style(Color::Yellow)),
        Span::raw(format!("{left} s ")),
        Span::styled(format!("{met:<7} "), view.style(Color::Red)),
        Span::raw(fitted(&pod, width.saturating_sub(33))),
    ])
}

fn last_failures<'a>(report: &Report, view: &View, area: Rect) -> Paragraph<'a> {
    let room = usize::from(area.height).saturating_sub(2);
    let chosen = view.place(report);
    // The chosen one is in sight, and what came after it as far as there is room.
    let end = chosen.map_or(0, |chosen| (chosen + 1).max(room).min(report.failed.len()));
    let first = end.saturating_sub(room);
    let row = |cells: [&str; 7]| {
        let [start, request, port, late, symptom, cause, pod] = cells;
        let before = format!("{start:>7}  {request:>8}  {port:>5}  {late:<4}  {symptom:<16}  ");
        [before, format!("{cause:<18}  "), pod.to_owned()]
    };
    let head = row(["s", "request", "port", "", "symptom", "cause", "pod"]);
    let mut lines = vec![Line::styled(head.concat(), FAINT)];
    for (place, failure) in report.failed.iter().enumerate().take(end).skip(first) {
        let mark = if Some(place) == chosen { CHOSEN } else { Style::new() };
        let pod = failure.pod.as_deref().unwrap_or_default();
        let [before, cause, pod] = row([
            &format!("{:.1}", failure.start),
            &failure.request.0.to_string(),
            &failure.source.map_or_else(String::new, |source| source.port().to_string()),
            if failure.late { "late" } else { "" },
            failure.symptom.name(),
            failure.cause.name(),
            &fitted(pod, usize::from(area.width).saturating_sub(70)),
        ]);
        lines.push(Line::from(vec![
            Span::styled(before, mark),
            Span::styled(cause, view.cause(failure.cause).patch(mark)),
            Span::styled(pod, mark),
        ]));
    }
    let title = match report.failed.len() {
        0 => "Failed requests: none so far".to_owned(),
        all => format!("Failed requests: {} of {}", end, count(all as u64)),
    };
    Paragraph::new(lines).block(panel(title))
}

/// The end of a name that is too long: there pods' names differ.
fn fitted(name: &str, room: usize) -> String {
    let long = name.chars().count();
    if long <= room {
        return name.to_owned();
    }
    let end = name.chars().skip(long - room.saturating_sub(1).min(long));
    std::iter::once('…').chain(end).collect()
}

fn story<'a>(report: &Report, place: usize, scrolled: u16, area: Rect) -> Paragraph<'a> {
    let failure = &report.failed[place];
    let told = report.pictures.stories.get(&place);
    let title = match told {
        Some(Story { title, .. }) => title.clone(),
        None => format!(
            "request {}: {}, because of {}",
            failure.request.0, failure.symptom, failure.cause
        ),
    };
    let mut lines: Vec<Line<'a>> = Vec::new();
    for StoryStep { time, text, .. } in told.iter().flat_map(|story| &story.steps) {
        lines.push(Line::from(vec![
            Span::styled(format!("{time:>9.3} s  "), FAINT),
            Span::raw(text.clone()),
        ]));
    }
    lines.push(Line::raw(failure.why.clone()));
    lines.push(Line::styled(words::explain(failure.cause), FAINT));
    // As far as there is something to see.
    let most = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_sub(area.height / 2);
    Paragraph::new(lines)
        .wrap(Wrap { trim: false })
        .scroll((scrolled.min(most), 0))
        .block(panel(title))
}

fn losses_and_keys<'a>(report: &Report, view: &View) -> Paragraph<'a> {
    let lost: u64 = report.losses.iter().map(|loss| loss.count).sum();
    let missing = report.hooks.iter().filter(|hook| !hook.attached).count();
    let mut said = match lost {
        0 => vec![Span::raw("nothing was lost")],
        _ => vec![Span::styled(
            format!("lost: {}", words::counted(lost, "event")),
            view.style(Color::Yellow).add_modifier(Modifier::BOLD),
        )],
    };
    if missing > 0 {
        said.push(Span::styled(
            format!(", {} not attached", words::counted(missing as u64, "hook")),
            view.style(Color::Yellow),
        ));
    }
    let keys = if view.story.is_some() {
        "↑ ↓ scroll   Esc back   q end it and say the verdict"
    } else {
        "↑ ↓ choose   Enter its story   End the latest   q end it and say the verdict"
    };
    Paragraph::new(vec![Line::from(said), Line::styled(keys, FAINT)])
}
