//! The pictures, each with what it shows in words and its numbers to unfold.

use maud::{Markup, html};

use super::super::Report;
use super::super::pictures::{PathStop, StopKind};
use super::super::words::count;
use super::charts::{self, Columns};
use super::family::Family;
use super::lanes;
use super::map::PortMap;
use super::svg::Size;
use super::time::{self, Moments};
use super::{Cell, number, seconds, section, table, text, unfold};

const WIDE: (&str, u32) = ("wide", 940);
const NARROW: (&str, u32) = ("narrow", 340);
/// Rows of a table that unfolds.
const MOST_ROWS: usize = 200;

pub(super) fn all(report: &Report) -> Markup {
    html! {
        (port_map(report))
        @if report.requests.failed > 0 { (over_time(report)) }
        @if !report.entries.list.is_empty() { (alive(report)) }
        (path(report))
    }
}

/// A picture in two sizes, of which the page shows the one that fits.
fn both(wide: u32, narrow: u32, draw: impl Fn(Size, &'static str) -> Markup) -> Markup {
    html! {
        (draw(Size { width: WIDE.1, height: wide }, WIDE.0))
        (draw(Size { width: NARROW.1, height: narrow }, NARROW.0))
    }
}

fn port_map(report: &Report) -> Markup {
    let map = PortMap::new(report);
    if map.is_empty() {
        return html! {};
    }
    let (on_bars, late) = map.late_on_bars();
    let with_port = if late == report.requests.late { "" } else { " with a port of their own" };
    let caption = html! {
        p {
            "Each dot is one connect: time across, its source port up. "
            @if !report.entries.list.is_empty() {
                "A bar is a stale entry: the time in which the node still sent that port to a pod that was gone. "
            }
            @if late > 0 {
                strong {
                    @if on_bars == late && late == 1 { "The only late failure" (with_port) " sits on a bar." }
                    @else if on_bars == late {
                        "All " (count(late)) " late failures" (with_port) " sit on a bar."
                    } @else {
                        (count(on_bars)) " of " (count(late)) " late failures" (with_port) " sit on a bar."
                    }
                }
            }
        }
    };
    let left_out = map.left_out();
    let picture = html! {
        figure.map {
            (caption)
            (legend(report))
            (both(470, 420, |size, class| map.draw(size, class)))
            @if !report.pictures.stories.is_empty() {
                p.readout aria-live="polite" { "Choose a failed request to see its story." }
            }
            figcaption.faint {
                "Source ports up, seconds since the trace began across."
                @if !left_out.is_empty() { " In this picture " (left_out.join("; ")) "." }
            }
        }
        (lanes_of(report))
        (pods(report))
        (entries(report))
    };
    section("map", "The port map", &picture)
}

fn swatch(shape: &Markup) -> Markup {
    html! { svg.swatch viewBox="-10 -10 20 20" aria-hidden="true" { (shape) } }
}

/// A legend's items for the groups of causes that there are.
fn families(report: &Report) -> Markup {
    let is_there =
        |family: &Family| report.failed.iter().any(|failure| Family::of(failure.cause) == *family);
    html! {
        @for family in Family::ALL.iter().filter(|family| is_there(family)) {
            li {
                (swatch(&html! { g class=(format!("mark {}", family.class())) { (family.shape(0, 0)) } }))
                (family.name())
            }
        }
    }
}

fn legend(report: &Report) -> Markup {
    let sampled = &report.pictures.attempts;
    html! {
        ul.legend {
            (families(report))
            @if !report.survived.is_empty() {
                li {
                    (swatch(&html! { g.survivor { (super::family::diamond(0, 0)) } }))
                    "met a stale entry and did not fail"
                }
            }
            @if sampled.iter().any(|dot| dot.answered) {
                li { (swatch(&html! { path.answered d="M-5 -4h0M3 1h0M-2 6h0" {} })) "answered" }
            }
            @if sampled.iter().any(|dot| !dot.answered) {
                li {
                    (swatch(&html! { path.unanswered d="M-5 -4h0M3 1h0M-2 6h0" {} }))
                    "not answered, of no known request"
                }
            }
            @if !report.entries.list.is_empty() {
                li {
                    (swatch(&html! { rect.bar x="-10" y="-3" width="20" height="6" {} }))
                    "stale entry, from its first SYN to its expiry"
                }
            }
            @if !report.rollouts.is_empty() {
                li {
                    (swatch(&html! { rect.rollout x="-7" y="-10" width="14" height="20" {} }))
                    "rollout"
                }
            }
            @if report.pods.iter().any(|pod| pod.gone.or(pod.asked).is_some()) {
                li {
                    (swatch(&html! { line.pod x1="0" x2="0" y1="-10" y2="10" {} }))
                    "a pod is gone, by number"
                }
            }
            @if Moments::new(report).late.is_some() {
                li {
                    (swatch(&html! { line.late x1="0" x2="0" y1="-10" y2="10" {} }))
                    "late from here on"
                }
            }
        }
    }
}

fn lanes_of(report: &Report) -> Markup {
    let ports = lanes::ports(report);
    let height = lanes::height(report);
    let of = report.entries.list.len();
    html! {
        @if !ports.is_empty() {
            figure.lanes {
                h3 { "Port by port" }
                p {
                    "The same time, but only the ports that had a stale entry, a row each. "
                    @if report.exposure.attempts > 0 {
                        strong {
                            (count(report.exposure.failed)) " of " (count(report.exposure.attempts))
                            " connects that met a bar failed."
                        }
                    }
                    @if ports.len() == lanes::MOST_LANES && of > ports.len() {
                        " Of " (count(of as u64)) " stale entries, these were met most often."
                    }
                }
                (both(height, height, |size, class| lanes::draw(report, size, class)))
            }
        }
    }
}

fn pods(report: &Report) -> Markup {
    let gone = Moments::new(report).pods;
    let rows = gone.iter().take(MOST_ROWS).enumerate().map(|(nth, (at, name))| {
        let row = report.pods.iter().find(|pod| pod.name == *name);
        vec![
            Cell::Number((nth + 1).to_string()),
            text(name),
            text(row.and_then(|pod| pod.address).map(|it| it.to_string()).unwrap_or_default()),
            seconds(row.and_then(|pod| pod.asked), 1),
            seconds(Some(*at), 1),
            seconds(row.and_then(|pod| pod.rules_lag), 2),
        ]
    });
    let head = ["", "pod", "address", "asked to go", "gone", "rules lag"];
    html! {
        @if !gone.is_empty() {
            (unfold("The pods that went", &html! {
                (table(&head, rows))
                (super::more(gone.len(), MOST_ROWS))
                p.faint { "Rules lag: how long the node's rules still chose the pod after it was gone." }
            }))
        }
    }
}

fn entries(report: &Report) -> Markup {
    let entries = &report.entries;
    let rows = entries.list.iter().take(MOST_ROWS).map(|entry| {
        let seqs: Vec<String> = entry.seqs.iter().map(ToString::to_string).collect();
        vec![
            text(entry.source.to_string()),
            text(entry.backend.to_string()),
            seconds(Some(entry.made), 1),
            seconds(entry.expires, 1),
            number(entry.met),
            text(seqs.join(" ")),
        ]
    });
    let pointing = entries.pointing_at.iter().take(MOST_ROWS).map(|at| {
        vec![
            text(at.backend.to_string()),
            text(at.pod.as_deref().unwrap_or("unknown")),
            number(at.entries),
        ]
    });
    html! {
        @if !entries.list.is_empty() {
            (unfold(&format!("The {} stale entries", count(entries.stale)), &html! {
                (table(&["they point at", "pod", "entries"], pointing))
                (table(&["client", "points at", "first SYN", "expires", "met", "event"], rows))
                (super::more(entries.list.len(), MOST_ROWS))
            }))
        }
    }
}

fn over_time(report: &Report) -> Markup {
    let Columns { width, counts } = Columns::new(report, 60);
    let rows = counts.iter().enumerate().filter(|(_, column)| column.iter().any(|n| *n > 0));
    let rows = rows.map(|(nth, column)| {
        let from = nth as f64 * width;
        let to = (from + width).min(report.clock.duration);
        let mut row = vec![text(format!("{from:.0} to {to:.0} s"))];
        row.extend(column.iter().map(|n| number(*n)));
        row
    });
    let content = html! {
        figure {
            p {
                "Failed requests by the time of their start. The band is the rollout; the thin line after it is where late begins."
            }
            ul.legend { (families(report)) }
            (both(240, 240, |size, class| charts::failures(report, size, class)))
            figcaption.faint { "The last column ends with the trace." }
        }
        (unfold("The numbers", &table(&["from", "reused port", "rules", "other"], rows)))
    };
    section("over-time", "Failures over time", &content)
}

fn alive(report: &Report) -> Markup {
    let steps = charts::alive_over_time(report);
    let most = steps.iter().map(|(_, alive)| *alive).max().unwrap_or(0);
    let every = steps.len().div_ceil(MOST_ROWS).max(1);
    let rows =
        steps.iter().step_by(every).map(|(at, alive)| vec![seconds(Some(*at), 1), number(*alive)]);
    let content = html! {
        figure {
            p {
                "How many stale entries the node still held: " (count(most)) " at most. When the last has \
                 expired, no port can meet one."
            }
            (both(200, 200, |size, class| charts::alive(report, size, class)))
        }
        (unfold("The numbers", &html! {
            (table(&["from", "alive"], rows))
            @if every > 1 { p.faint { "One in " (every) " of the changes." } }
        }))
    };
    section("entries", "Stale entries alive", &content)
}

fn path(report: &Report) -> Markup {
    let Some(path) = &report.pictures.path else { return html! {} };
    let stop = |stop: &PathStop| {
        let (class, kind) = match stop.kind {
            StopKind::Client => ("client", "client"),
            StopKind::Conntrack => ("conntrack", "conntrack"),
            StopKind::Device => ("device", "device"),
            StopKind::Drop => ("drop", "dropped"),
            StopKind::Pod => ("pod-stop", "pod"),
            StopKind::End => ("end", "outcome"),
        };
        html! {
            li class=(class) {
                span.kind { (kind) }
                strong { (stop.place) }
                span { (stop.what) }
                span.faint {
                    @if let Some(time) = stop.time { (format!("{time:.3} s")) }
                    @if let Some(seq) = stop.seq { " " (seq) }
                }
            }
        }
    };
    let content = html! {
        p { "The first SYN of request " (path.request.0) ", from stop to stop." }
        ol.path { @for it in &path.stops { (stop(it)) } }
    };
    section("path", "The way of one failing SYN", &content)
}

/// The moment in words, for the other parts.
pub(super) fn when(seconds: f64) -> String {
    time::at(seconds)
}
