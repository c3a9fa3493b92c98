//! The pictures over time beside the port map: failures by cause, and stale entries alive.

use maud::Markup;
use plotters::element::{PathElement, Polygon, Rectangle};

use super::super::Report;
use super::axis::Axis;
use super::family::Family;
use super::svg::{DRAWS, Ink, Size, chart, frame};
use super::time::Moments;

/// Widths of a column in seconds.
const WIDTHS: [f64; 12] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0];
/// More points than this no line needs.
const MOST_POINTS: usize = 1_000;

/// Failures over time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Columns {
    /// Seconds of a column.
    pub(super) width: f64,
    /// Failures by family, [`Family::ALL`]'s order.
    pub(super) counts: Vec<[u64; 3]>,
}

impl Columns {
    /// In at most so many columns.
    pub(super) fn new(report: &Report, most: usize) -> Columns {
        let duration =
            if report.clock.duration.is_finite() { report.clock.duration.max(1.0) } else { 1.0 };
        let fits = |width: &f64| (duration / width).ceil() <= most as f64;
        let width = WIDTHS.into_iter().find(fits).unwrap_or(duration / most as f64);
        let mut counts = vec![[0; 3]; (duration / width).ceil() as usize];
        let last = counts.len() - 1;
        for failure in &report.failed {
            let column = (failure.start.max(0.0) / width) as usize;
            counts[column.min(last)][Family::of(failure.cause) as usize] += 1;
        }
        Columns { width, counts }
    }
}

/// Failed requests by the time of their start, the families on each other. The last column is as narrow as the time
/// that it had.
pub(super) fn failures(report: &Report, size: Size, class: &str) -> Markup {
    let Columns { width, counts } = Columns::new(report, (size.width / 18) as usize);
    let most = counts.iter().map(|column| column.iter().sum::<u64>()).max().unwrap_or(0);
    let end = report.clock.duration;
    let drawn = chart(size, Axis::time(end), Axis::count(most), |chart, sheet| {
        Moments::new(report).draw(chart, sheet);
        let gap = width * 0.08;
        for (nth, column) in counts.iter().enumerate() {
            let from = nth as f64 * width;
            let to = (from + width).min(end.max(from));
            let mut below = 0;
            for (family, count) in Family::ALL.into_iter().zip(column) {
                if *count > 0 {
                    let corners = [
                        (from + gap, below as f64),
                        (to - gap.min(to - from), (below + count) as f64),
                    ];
                    let bar = Rectangle::new(corners, family.ink().filled());
                    chart.plotting_area().draw(&bar).expect(DRAWS);
                    below += count;
                }
            }
        }
    });
    frame(
        size,
        class,
        "Failed requests over time, by cause; the table below has the numbers",
        &drawn,
    )
}

/// How many stale entries were alive, at each time when that changed.
pub(super) fn alive_over_time(report: &Report) -> Vec<(f64, u64)> {
    let mut changes: Vec<(f64, i64)> = Vec::new();
    for entry in &report.entries.list {
        changes.push((entry.made, 1));
        changes.extend(entry.expires.map(|expires| (expires.max(entry.made), -1)));
    }
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    let mut alive = 0_i64;
    let mut steps: Vec<(f64, u64)> = vec![(0.0, 0)];
    for (time, change) in changes.into_iter().filter(|(time, _)| *time <= report.clock.duration) {
        alive += change;
        let alive = u64::try_from(alive).unwrap_or(0);
        match steps.last_mut() {
            Some(last) if last.0 == time => last.1 = alive,
            _ => steps.push((time, alive)),
        }
    }
    steps
}

/// Stale entries alive over time.
pub(super) fn alive(report: &Report, size: Size, class: &str) -> Markup {
    let steps = alive_over_time(report);
    let most = steps.iter().map(|(_, alive)| *alive).max().unwrap_or(0);
    let every = steps.len().div_ceil(MOST_POINTS).max(1);
    let mut line = Vec::new();
    let mut before = 0.0;
    for (time, alive) in steps.iter().step_by(every) {
        line.push((*time, before));
        before = *alive as f64;
        line.push((*time, before));
    }
    line.push((report.clock.duration, before));
    let mut area = line.clone();
    area.extend([(report.clock.duration, 0.0), (0.0, 0.0)]);
    let drawn =
        chart(size, Axis::time(report.clock.duration), Axis::count(most), |chart, sheet| {
            Moments::new(report).draw(chart, sheet);
            let plot = chart.plotting_area();
            plot.draw(&Polygon::new(area, Ink::Alive.filled())).expect(DRAWS);
            plot.draw(&PathElement::new(line, Ink::AliveLine.stroke())).expect(DRAWS);
        });
    frame(size, class, "Stale entries alive over time", &drawn)
}
