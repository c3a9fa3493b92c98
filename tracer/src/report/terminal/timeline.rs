//! What happened over time, as rows of columns that fit the page.

use super::super::{BinRow, Report};
use super::page::{Page, Span, Tone, plain};

/// Characters of a column: three digits and a gap.
const WIDE: usize = 4;
/// Characters of a column where no count has more than two digits; only every second one has its time.
const NARROW: usize = 3;
/// Characters of the rows' names.
const NAMES: usize = 14;
/// How many bins one column may take: spans that a reader knows, 10 s to a day.
const MERGES: [usize; 13] = [1, 2, 3, 6, 12, 30, 60, 90, 180, 360, 1080, 2160, 8640];
/// A bin, in seconds.
const BIN: f64 = 10.0;

/// Draws it; nothing where there are no bins.
pub(super) fn draw(page: &mut Page, report: &Report) {
    let fits = |cell: usize| report.bins.len() * cell + NAMES <= page.width();
    let small = report.bins.iter().all(|bin| bin.early < 100 && bin.late < 100);
    let cell = if !fits(WIDE) && fits(NARROW) && small { NARROW } else { WIDE };
    let room = (page.width().saturating_sub(NAMES) / cell).max(1);
    let merge = MERGES
        .into_iter()
        .find(|merge| report.bins.len().div_ceil(*merge) <= room)
        .unwrap_or_else(|| report.bins.len().div_ceil(room));
    let columns: Vec<BinRow> = report.bins.chunks(merge).map(sum).collect();
    let Some(first) = columns.first().map(|column| column.from) else {
        return;
    };
    let span = merge as f64 * BIN;
    let (unit, seconds) = unit(first + span * columns.len() as f64);
    page.heading(&format!("Over time (a column is {})", length(span)));
    let mut row = |name: &str, cells: Vec<Span>| {
        let mut spans = vec![plain(format!("  {name:<width$}", width = NAMES - 2))];
        for (tone, text) in cells {
            spans.push((tone, format!("{text:>cell$}")));
        }
        page.line(&spans);
    };
    let from = |(n, column): (usize, &BinRow)| match cell {
        NARROW if n % 2 == 1 => plain(""),
        _ => (Tone::Faint, format!("{:.0}", column.from / seconds)),
    };
    row(&format!("from ({unit})"), columns.iter().enumerate().map(from).collect());
    if report.rollouts.iter().any(|rollout| rollout.started.or(rollout.finished).is_some()) {
        row(
            "rollout",
            vec![(Tone::Strong, rollouts(report, first, span / cell as f64, columns.len() * cell))],
        );
    }
    // The last column may be shorter: its bar is as high as its rate, so that the end does not look like a drop.
    // Of less than a second there is no rate.
    let rate = |column: &BinRow| match report.clock.duration - column.from {
        seconds if (1.0..span).contains(&seconds) => {
            Some((column.ok as f64 * span / seconds) as u64)
        }
        seconds if (0.0..1.0).contains(&seconds) => None,
        _ => Some(column.ok),
    };
    let rates: Vec<Option<u64>> = columns.iter().map(rate).collect();
    let most = rates.iter().flatten().copied().max().unwrap_or(0);
    let height = |rate: &Option<u64>| {
        plain(rate.map_or(String::new(), |rate| bar(rate, most).repeat(cell - 1)))
    };
    row("answered", rates.iter().map(height).collect());
    row("failed early", columns.iter().map(|column| number(column.early, Tone::Warning)).collect());
    row("failed late", columns.iter().map(|column| number(column.late, Tone::Bad)).collect());
}

fn sum(bins: &[BinRow]) -> BinRow {
    let mut total = BinRow { from: bins[0].from, ..BinRow::default() };
    for bin in bins {
        total.ok += bin.ok;
        total.early += bin.early;
        total.late += bin.late;
    }
    total
}

/// The unit in which times up to `end` seconds have at most three digits, and its seconds.
fn unit(end: f64) -> (&'static str, f64) {
    if end < 1_000.0 {
        ("s", 1.0)
    } else if end < 60_000.0 {
        ("min", 60.0)
    } else {
        ("h", 3_600.0)
    }
}

fn length(seconds: f64) -> String {
    let (unit, per) = if seconds < 60.0 {
        ("s", 1.0)
    } else if seconds < 3_600.0 {
        ("min", 60.0)
    } else {
        ("h", 3_600.0)
    };
    format!("{:.0} {unit}", seconds / per)
}

fn number(n: u64, tone: Tone) -> Span {
    match n {
        0 => (Tone::Faint, "·".to_owned()),
        1..1_000 => (tone, n.to_string()),
        1_000..100_000 => (tone, format!("{}k", n / 1_000)),
        100_000..1_000_000 => (tone, format!(".{}M", n / 100_000)),
        _ => (tone, format!("{}M", (n / 1_000_000).min(99))),
    }
}

/// A bar as high as `n` of `most`.
fn bar(n: u64, most: u64) -> &'static str {
    const LEVELS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
    if n == 0 || most == 0 {
        return "·";
    }
    let level = (u128::from(n) * 8).div_ceil(u128::from(most)) as usize;
    LEVELS[level.clamp(1, 8) - 1]
}

/// The rollouts as lines over the columns: `├──┤` from start to end. A character is `span` seconds.
fn rollouts(report: &Report, first: f64, span: f64, length: usize) -> String {
    let place = |time: f64| {
        let place = ((time - first) / span).floor();
        (place.max(0.0) as usize).min(length - 1)
    };
    let mut line = vec![' '; length];
    for rollout in &report.rollouts {
        let (start, end) = (rollout.started.map(place), rollout.finished.map(place));
        if start.or(end).is_none() {
            continue;
        }
        let (from, to) = (start.unwrap_or(0), end.unwrap_or(length - 1));
        for c in line.iter_mut().take(to + 1).skip(from) {
            *c = '─';
        }
        if start.is_some() {
            line[from] = '├';
        }
        if end.is_some() {
            line[to] = if start == end { '┼' } else { '┤' };
        }
    }
    line.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::super::{RolloutRow, fixture};
    use super::super::Style;
    use super::*;

    fn drawn(bins: usize) -> String {
        let mut report = fixture::supported();
        report.bins = (0..bins)
            .map(|n| BinRow {
                from: 10.0 * n as f64,
                ok: 1_600,
                early: u64::from(n < 2) * 6,
                late: u64::from(n % 2 == 1),
            })
            .collect();
        report.clock.duration = 10.0 * bins as f64;
        let mut page = Page::new(Style { width: 80, color: false });
        draw(&mut page, &report);
        page.into_text()
    }

    #[test]
    fn a_long_run_fits_by_wider_columns() {
        expect![[r#"

            Over time (a column is 10 min)
              from (min)     0  10  20  30  40  50  60  70  80  90 100 110
              rollout     ┼
              answered     ███ ███ ███ ███ ███ ███ ███ ███ ███ ███ ███ ███
              failed early  12   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·   ·
              failed late   30  30  30  30  30  30  30  30  30  30  30  30
        "#]]
        .assert_eq(&drawn(720));
    }

    #[test]
    fn an_end_within_a_column_is_no_drop() {
        let mut report = fixture::supported();
        let bin = |from, ok| BinRow { from, ok, ..BinRow::default() };
        report.bins = vec![bin(0.0, 1_600), bin(10.0, 1_600), bin(20.0, 320)];
        report.clock.duration = 22.0;
        let mut page = Page::new(Style { width: 80, color: false });
        draw(&mut page, &report);
        let text = page.into_text();
        assert!(
            text.contains("answered     ███ ███ ███\n")
                || text.contains("answered      ██ ██ ██\n"),
            "{text}"
        );
    }

    #[test]
    fn every_length_of_a_run_fits() {
        for bins in (0..400).chain([5_000, 20_000, 400_000]) {
            for line in drawn(bins).lines() {
                assert!(line.chars().count() <= 80 && !line.ends_with('…'), "{bins} bins: {line}");
            }
        }
    }

    #[test]
    fn a_rollout_without_an_end_goes_on_and_two_may_overlap() {
        let mut report = fixture::supported();
        let rollout =
            |started, finished| RolloutRow { deployment: "web".into(), started, finished };
        report.rollouts = vec![rollout(Some(5.0), Some(20.0)), rollout(Some(12.0), None)];
        assert_eq!(rollouts(&report, 0.0, 2.5, 16), "  ├─├───────────");
        report.rollouts = vec![rollout(None, Some(20.0)), rollout(Some(30.0), Some(30.5))];
        assert_eq!(rollouts(&report, 0.0, 2.5, 16), "────────┤   ┼   ");
    }
}
