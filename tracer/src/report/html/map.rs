//! The port map: time across, source ports up. Late failures sit on the bars of stale entries, or they do not.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::net::SocketAddr;

use maud::{Markup, html};

use super::super::{EntryRow, FailureRow, Report};
use super::axis::Axis;
use super::family::Family;
use super::svg::{Chart, SCALE, Sheet, Size, chart, frame};
use super::time::{self, Moments};

/// So many failures get a mark of their own; of more, every second, third … one.
pub(super) const MOST_MARKS: usize = 1_500;
/// The same for bars.
pub(super) const MOST_BARS: usize = 1_500;
/// Points closer than this, in units of the picture, draw over each other.
const TOGETHER: i32 = 2 * SCALE;

/// What is drawn, chosen once for all sizes.
#[derive(Debug)]
pub(super) struct PortMap<'a> {
    report: &'a Report,
    /// The failures' places in the report.
    marks: Vec<usize>,
    bars: Vec<&'a EntryRow>,
    lives: Lives,
}

/// When each client's end had a stale entry.
#[derive(Debug, Default)]
struct Lives(HashMap<SocketAddr, Vec<(f64, f64)>>);

impl Lives {
    fn new(report: &Report) -> Lives {
        let mut lives: HashMap<_, Vec<_>> = HashMap::new();
        for entry in &report.entries.list {
            let end = entry.expires.unwrap_or(report.clock.duration);
            lives.entry(entry.source).or_default().push((entry.made, end));
        }
        Lives(lives)
    }

    /// Whether the failed request started on a stale entry that was there already. The one that made an entry
    /// began before it.
    fn has(&self, failure: &FailureRow) -> bool {
        let lives = failure.source.and_then(|source| self.0.get(&source));
        lives.is_some_and(|lives| {
            lives.iter().any(|(made, end)| *made < failure.start && failure.start < *end)
        })
    }
}

impl<'a> PortMap<'a> {
    pub(super) fn new(report: &'a Report) -> PortMap<'a> {
        let connects = connects(report).filter(|(_, it)| it.source.is_some());
        PortMap {
            report,
            marks: thinned(connects.map(|(index, _)| index).collect(), MOST_MARKS),
            bars: thinned(report.entries.list.iter().collect(), MOST_BARS),
            lives: Lives::new(report),
        }
    }

    /// Whether there is anything to draw.
    pub(super) fn is_empty(&self) -> bool {
        self.marks.is_empty() && self.bars.is_empty() && self.report.pictures.attempts.is_empty()
    }

    /// How many late failures lie on a bar, of how many that have a port. Of all, not only of those drawn.
    pub(super) fn late_on_bars(&self) -> (u64, u64) {
        let late = connects(self.report).filter(|(_, it)| it.late && it.source.is_some());
        late.fold((0, 0), |(on, all), (_, failure)| {
            (on + u64::from(self.lives.has(failure)), all + 1)
        })
    }

    /// What was left out of the picture, in words.
    pub(super) fn left_out(&self) -> Vec<String> {
        let report = self.report;
        let drawn = |drawn: usize, of: usize, what: &str| {
            (drawn < of).then(|| format!("{drawn} of {of} {what} are drawn"))
        };
        let sampled = &report.pictures.attempts;
        let stood_for: u64 = sampled.iter().map(|dot| dot.stands_for).sum();
        let without_port = connects(report).filter(|(_, it)| it.source.is_none()).count();
        let mut left_out = Vec::new();
        if stood_for > sampled.len() as u64 {
            left_out.push(
                "one dot is drawn where connects lie so close together that they would draw over each other"
                    .to_owned(),
            );
        }
        let kept = report.pictures.kept.len();
        let with_port = connects(report).count() - without_port;
        left_out.extend(drawn(self.marks.len(), with_port, "failed requests"));
        left_out.extend(drawn(self.bars.len(), report.entries.list.len(), "stale entries"));
        if without_port > 0 {
            left_out.push(format!("{without_port} failed requests had no source port to draw"));
        }
        if kept > 0 {
            left_out.push(format!(
                "{kept} failed requests came on a connection that was there: they were no connects"
            ));
        }
        left_out
    }

    /// The picture at one size.
    pub(super) fn draw(&self, size: Size, class: &str) -> Markup {
        let report = self.report;
        let ports = report.pictures.attempts.iter().map(|dot| dot.port);
        let ports = ports.chain(self.bars.iter().map(|entry| entry.source.port()));
        let ports = ports.chain(self.marks.iter().filter_map(|index| self.port(*index)));
        let moments = Moments::new(report);
        let drawn =
            chart(size, Axis::time(report.clock.duration), Axis::ports(ports), |chart, sheet| {
                moments.draw(chart, sheet);
                self.attempts(true, chart, sheet);
                self.bars(chart, sheet);
                self.attempts(false, chart, sheet);
                self.marks(chart, sheet);
                self.survivors(chart, sheet);
            });
        frame(
            size,
            class,
            "Port map: each mark is a failed request; arrow keys move between them",
            &drawn,
        )
    }

    fn port(&self, index: usize) -> Option<u16> {
        self.report.failed[index].source.map(|source| source.port())
    }

    /// The sampled connects: the answered ones below everything, the unanswered ones over the bars.
    fn attempts(&self, answered: bool, chart: &Chart<'_>, sheet: &Sheet) {
        let mut path = String::new();
        let mut taken = HashSet::new();
        let dots = self.report.pictures.attempts.iter();
        for dot in dots.filter(|dot| dot.answered == answered) {
            let (x, y) = chart.backend_coord(&(dot.start, f64::from(dot.port)));
            if taken.insert((x / TOGETHER, y / TOGETHER)) {
                // A line of no length with round ends is a dot, at a quarter of a circle's bytes.
                let _ = write!(path, "M{x} {y}h0");
            }
        }
        if !path.is_empty() {
            sheet.add(html! {
                @if answered {
                    path class="answered" d=(path) {}
                } @else {
                    path class="unanswered rim" d=(path) {}
                    path class="unanswered" d=(path) {}
                }
            });
        }
    }

    fn bars(&self, chart: &Chart<'_>, sheet: &Sheet) {
        let height = 2 * SCALE;
        for entry in &self.bars {
            let port = f64::from(entry.source.port());
            let end = entry.expires.unwrap_or(self.report.clock.duration);
            let (x, y) = chart.backend_coord(&(entry.made, port));
            let (x2, _) = chart.backend_coord(&(end, port));
            let width = (x2 - x).max(SCALE);
            let pod = self.pod_of(entry);
            sheet.add(html! {
                rect class="bar" data-entry=(entry.source) x=(x) y=(y - height / 2) width=(width)
                    height=(height) {
                    title {
                        "stale entry of port " (entry.source.port()) " to " (pod) ", "
                        (time::at(entry.made)) " to "
                        @match entry.expires {
                            Some(expires) => (time::at(expires)),
                            None => "unknown",
                        }
                        ", met " (entry.met) "×"
                    }
                }
            });
        }
    }

    fn pod_of(&self, entry: &EntryRow) -> String {
        let pointing = self.report.entries.pointing_at.iter();
        let pod = pointing.filter(|at| at.backend == entry.backend).find_map(|at| at.pod.clone());
        pod.unwrap_or_else(|| entry.backend.to_string())
    }

    fn marks(&self, chart: &Chart<'_>, sheet: &Sheet) {
        for &index in &self.marks {
            let failure = &self.report.failed[index];
            let Some(port) = self.port(index) else { continue };
            let (x, y) = chart.backend_coord(&(failure.start, f64::from(port)));
            let family = Family::of(failure.cause);
            let has_story = self.report.pictures.stories.contains_key(&index);
            let on_bar = self.lives.has(failure);
            let what = format!(
                "request {}, {}, port {port}: {}, {}, {}{}",
                failure.request.0,
                time::at(failure.start),
                failure.symptom,
                failure.cause,
                if failure.late { "late" } else { "early" },
                if on_bar { ", on a stale entry" } else { "" }
            );
            let shape = html! {
                circle class="hit" cx=(x) cy=(y) r=(9 * SCALE) {}
                (family.shape(x, y))
                title { (what) }
            };
            let class = format!("mark {}", family.class());
            let href = format!("#story-{index}");
            sheet.add(html! {
                @if has_story {
                    a class=(class) href=(href) data-request=(failure.request.0)
                        data-cause=(failure.cause) data-late=(failure.late) data-on-bar=(on_bar) {
                        (shape)
                    }
                } @else {
                    g class=(class) data-request=(failure.request.0) data-cause=(failure.cause)
                        data-late=(failure.late) data-on-bar=(on_bar) { (shape) }
                }
            });
        }
    }

    fn survivors(&self, chart: &Chart<'_>, sheet: &Sheet) {
        for survivor in self.report.survived.iter().take(MOST_MARKS) {
            let port = survivor.source.port();
            let (x, y) = chart.backend_coord(&(survivor.start, f64::from(port)));
            sheet.add(html! {
                g class="survivor" data-survivor=(port) {
                    (super::family::diamond(x, y))
                    title {
                        "port " (port) " at " (time::at(survivor.start))
                        " met a stale entry and did not fail: " (survivor.why)
                    }
                }
            });
        }
    }
}

/// The failed requests that made a connection of their own, with their places in the report.
pub(super) fn connects(report: &Report) -> impl Iterator<Item = (usize, &FailureRow)> {
    let failed = report.failed.iter().enumerate();
    failed.filter(|(index, _)| !report.pictures.kept.contains(index))
}

/// At most so many of them, evenly.
fn thinned<T>(all: Vec<T>, most: usize) -> Vec<T> {
    let every = all.len().div_ceil(most.max(1)).max(1);
    all.into_iter().step_by(every).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture;
    use super::*;

    #[test]
    fn a_failure_is_on_a_bar_only_while_its_own_client_has_a_stale_entry() {
        let mut report = fixture::supported();
        let entry = report.entries.list[0].clone();
        let failure = report.failed[0].clone();
        let on_bar = |report: &Report, source: SocketAddr, start: f64| {
            let failure = FailureRow { source: Some(source), start, ..failure.clone() };
            Lives::new(report).has(&failure)
        };
        report.entries.list = vec![EntryRow { made: 10.0, expires: Some(130.0), ..entry.clone() }];
        let on = |start| on_bar(&report, entry.source, start);
        assert_eq!([9.999, 10.0, 10.001, 129.9, 130.0].map(on), [false, false, true, true, false]);
        let neighbour = SocketAddr::new(entry.source.ip(), entry.source.port() + 2);
        assert!(!on_bar(&report, neighbour, 60.0));
        let namesake = SocketAddr::new([192, 0, 2, 1].into(), entry.source.port());
        assert!(!on_bar(&report, namesake, 60.0), "another client's port of the same number");
    }
}
