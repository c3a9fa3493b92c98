//! Moments: in words, and as lines across a picture.

use maud::html;
use plotters::element::Rectangle;

use super::super::Report;
use super::svg::{Chart, DRAWS, Ink, SCALE, Sheet};

/// So many pods, and so many rollouts, get a line of their own in a picture.
const MOST: usize = 200;

/// A moment in seconds since the trace began.
pub(super) fn at(seconds: f64) -> String {
    format!("{seconds:.1} s")
}

/// The rollouts and the pods' deletions, as every picture over time shows them.
#[derive(Clone, Debug, Default)]
pub(super) struct Moments {
    /// From when to when, and how the two ends are called.
    rollouts: Vec<(f64, f64, String)>,
    /// Each pod that went, by when.
    pub(super) pods: Vec<(f64, String)>,
    /// From when on a request is late, where that is one moment.
    pub(super) late: Option<f64>,
}

impl Moments {
    pub(super) fn new(report: &Report) -> Moments {
        let end = report.clock.duration;
        let rollouts = report.rollouts.iter().filter(|it| it.started.or(it.finished).is_some());
        let mut pods: Vec<(f64, String)> = report
            .pods
            .iter()
            .filter_map(|pod| Some((pod.gone.or(pod.asked)?, pod.name.clone())))
            .collect();
        pods.sort_by(|a, b| a.0.total_cmp(&b.0));
        Moments {
            rollouts: rollouts
                .map(|rollout| {
                    let from = rollout.started.unwrap_or(0.0);
                    (from, rollout.finished.unwrap_or(end), rollout.deployment.clone())
                })
                .collect(),
            pods,
            late: report.late.from.filter(|_| report.rollouts.len() < 2),
        }
    }

    /// Draws them: a band from a rollout's start to its end, a line for each pod, numbered.
    pub(super) fn draw(&self, chart: &mut Chart<'_>, sheet: &Sheet) {
        let (_, y) = chart.plotting_area().get_pixel_range();
        let top = y.start;
        let plot = chart.plotting_area().clone();
        let range = chart.y_range();
        for (from, to, name) in self.rollouts.iter().take(MOST) {
            let band =
                Rectangle::new([(*from, range.start), (*to, range.end)], Ink::Rollout.filled());
            plot.draw(&band).expect(DRAWS);
            for (edge, what) in [(*from, "starts"), (*to, "is complete")] {
                let (x, _) = chart.backend_coord(&(edge, range.start));
                sheet.add(html! {
                    line class="rollout-edge" x1=(x) x2=(x) y1=(top) y2=(y.end) {
                        title { "rollout of " (name) " " (what) " at " (at(edge)) }
                    }
                });
            }
        }
        if let Some(late) = self.late {
            let (x, _) = chart.backend_coord(&(late, range.start));
            sheet.add(html! {
                line class="late" x1=(x) x2=(x) y1=(top) y2=(y.end) {
                    title { "late is what started after " (at(late)) }
                }
            });
        }
        let mut last = i32::MIN / 2;
        for (nth, (gone, name)) in self.pods.iter().take(MOST).enumerate() {
            let (x, _) = chart.backend_coord(&(*gone, range.start));
            sheet.add(html! {
                line class="pod" data-pod=(name) x1=(x) x2=(x) y1=(top) y2=(y.end) {
                    title { (name) " is gone at " (at(*gone)) }
                }
                @if x - last >= 12 * SCALE {
                    text class="label" x=(x) y=(top - 5 * SCALE) text-anchor="middle" { (nth + 1) }
                }
            });
            if x - last >= 12 * SCALE {
                last = x;
            }
        }
    }
}
