//! The ports with stale entries one by one, a row each: what the port map shows too small, since the ports of one
//! deletion lie close together.

use std::collections::HashSet;

use maud::{Markup, html};

use super::super::{EntryRow, Report};
use super::axis::Axis;
use super::family::{Family, diamond};
use super::map::{MOST_MARKS, connects};
use super::svg::{SCALE, Size, chart, frame};
use super::time::{self, Moments};

/// Rows of a picture.
pub(super) const MOST_LANES: usize = 48;

/// Marks closer than this, in units of the picture, draw over each other.
const TOGETHER: i32 = 3 * SCALE;

/// The source ports that have a row, from the lowest up: of all with a stale entry those that were met most often.
pub(super) fn ports(report: &Report) -> Vec<u16> {
    let mut entries: Vec<&EntryRow> = report.entries.list.iter().collect();
    entries.sort_by_key(|entry| (std::cmp::Reverse(entry.met), entry.source));
    let mut ports: Vec<u16> = Vec::new();
    for entry in entries {
        if ports.len() < MOST_LANES && !ports.contains(&entry.source.port()) {
            ports.push(entry.source.port());
        }
    }
    ports.sort_unstable();
    ports
}

/// How high the picture must be for its rows, in CSS pixels.
pub(super) fn height(report: &Report) -> u32 {
    60 + 13 * u32::try_from(ports(report).len()).unwrap_or(0)
}

/// The picture at one size.
pub(super) fn draw(report: &Report, size: Size, class: &str) -> Markup {
    let ports = ports(report);
    let end = report.clock.duration;
    let lane = |port: u16| ports.binary_search(&port).ok().map(|lane| lane as f64);
    let drawn = chart(size, Axis::time(end), Axis::lanes(ports.len()), |chart, sheet| {
        Moments::new(report).draw(chart, sheet);
        let ticks = chart.plotting_area().get_pixel_range().0.start - 4 * SCALE;
        for (nth, port) in ports.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(0.0, nth as f64));
            let (x2, _) = chart.backend_coord(&(end, 0.0));
            sheet.add(html! {
                line class="grid" x1=(x) x2=(x2) y1=(y) y2=(y) {}
                text class="label" x=(ticks) y=(y) dy="0.36em" text-anchor="end" { (port) }
            });
        }
        // What would be drawn over itself is drawn once.
        let mut drawn = HashSet::new();
        for entry in &report.entries.list {
            let Some(lane) = lane(entry.source.port()) else { continue };
            let (x, y) = chart.backend_coord(&(entry.made, lane));
            let (x2, _) = chart.backend_coord(&(entry.expires.unwrap_or(end), lane));
            if !drawn.insert((y, x / TOGETHER, x2 / TOGETHER)) {
                continue;
            }
            let height = 5 * SCALE;
            sheet.add(html! {
                rect class="bar" x=(x) y=(y - height / 2) width=((x2 - x).max(SCALE)) height=(height) {}
            });
        }
        let mut drawn = HashSet::new();
        for dot in &report.pictures.attempts {
            if let Some(lane) = lane(dot.port) {
                let (x, y) = chart.backend_coord(&(dot.start, lane));
                if !drawn.insert((y, x / TOGETHER, dot.answered)) {
                    continue;
                }
                let (class, what) = match dot.answered {
                    true => ("answered-here", "answered"),
                    false => ("unanswered-here", "not answered"),
                };
                sheet.add(html! {
                    circle class=(class) cx=(x) cy=(y) r=(5 * SCALE / 2) {
                        title { (what) ", port " (dot.port) " at " (time::at(dot.start)) }
                    }
                });
            }
        }
        let mut drawn = HashSet::new();
        for (_, failure) in connects(report) {
            let port = failure.source.map(|source| source.port());
            let Some(lane) = port.and_then(lane) else { continue };
            let (x, y) = chart.backend_coord(&(failure.start, lane));
            let family = Family::of(failure.cause);
            if !drawn.insert((y, x / TOGETHER, family as i32)) {
                continue;
            }
            sheet.add(html! {
                g class=(format!("mark {}", family.class())) {
                    (family.shape(x, y))
                    title { "request " (failure.request.0) " at " (time::at(failure.start)) ": " (failure.cause) }
                }
            });
        }
        for survivor in report.survived.iter().take(MOST_MARKS) {
            if let Some(lane) = lane(survivor.source.port()) {
                let (x, y) = chart.backend_coord(&(survivor.start, lane));
                sheet.add(html! { g.survivor { (diamond(x, y)) title { (survivor.why) } } });
            }
        }
    });
    frame(size, class, "The ports with stale entries, a row each", &drawn)
}
