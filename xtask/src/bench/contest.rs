//! What is compared: contenders that run alternately on one core, so that what else the machine does falls on all
//! alike, and the table of what each took.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::run::{self, Cost};
use super::statistics::{Bar, Spread};

/// One thing that is measured. The first of several is ours, and the bars are held against it.
pub(super) struct Contender {
    /// Its name in the table.
    pub(super) name: &'static str,
    /// What is run.
    pub(super) program: PathBuf,
    /// With what.
    pub(super) arguments: Vec<PathBuf>,
    /// Exit statuses of a run that did its work.
    pub(super) accepted: &'static [i32],
    /// What each run took.
    pub(super) costs: Vec<Cost>,
}

/// One of the times that a run took.
pub(super) type Time = fn(&Cost) -> f64;

/// What should be reached.
pub(super) struct Bars {
    /// Things in the input, and what they are called.
    pub(super) things: u64,
    /// `events`, `packets`
    pub(super) noun: &'static str,
    /// How many of them a second.
    pub(super) speed: Bar,
    /// Memory, in bytes.
    pub(super) peak: Bar,
    /// How many times faster than the rival of this name.
    pub(super) ratio: Option<(&'static str, Bar)>,
    /// By which time that is judged.
    pub(super) by: Time,
}

/// Runs each so many times, alternately; the first round only warms up.
pub(super) fn hold(
    contenders: &mut [Contender],
    runs: u32,
    cores: &str,
    scratch: &Path,
) -> Result<()> {
    for round in 0..=runs {
        for contender in &mut *contenders {
            let arguments: Vec<&OsStr> =
                contender.arguments.iter().map(|argument| argument.as_os_str()).collect();
            let program = &contender.program;
            let cost = run::measure(cores, scratch, program, &arguments, contender.accepted)?;
            if round > 0 {
                eprintln!("run {round} of {runs}: {}: {:.2} s", contender.name, cost.wall);
                contender.costs.push(cost);
            }
        }
    }
    Ok(())
}

/// Medians with least and greatest.
pub(super) fn table(contenders: &[Contender], bars: &Bars) -> String {
    let column = |contender: &Contender, of: fn(&Cost) -> f64| {
        Spread::of(&contender.costs.iter().map(of).collect::<Vec<f64>>())
    };
    let mut lines = String::new();
    let mut line = |name: &str, what: &str, spread: Spread, scale: f64, bar: Option<Bar>| {
        let judged = bar.map_or(String::new(), |bar| spread.against(bar).to_string());
        let Spread { median, low, high } = spread;
        let [median, low, high] = [median, low, high].map(|value| value / scale);
        let line = format!("{name:<14} {what:<30} {median:>8.2} ({low:.2} to {high:.2})  {judged}");
        lines.push_str(line.trim_end());
        lines.push('\n');
    };
    for (index, contender) in contenders.iter().enumerate() {
        let is_ours = index == 0;
        let things = bars.things as f64;
        let speed = |spread: Spread| Spread {
            median: things / spread.median,
            low: things / spread.high,
            high: things / spread.low,
        };
        let what = format!("million {}/s", bars.noun);
        let times: [(&str, Time); 2] = [("", |cost| cost.wall), (" of CPU time", |cost| cost.cpu)];
        for (suffix, of) in times {
            if let Some(times) = column(contender, of) {
                line(contender.name, &format!("{what}{suffix}"), speed(times), 1e6, None);
            }
        }
        if is_ours && let Some(judged) = column(contender, bars.by) {
            line(contender.name, &format!("{what}, judged"), speed(judged), 1e6, Some(bars.speed));
        }
        if let Some(peak) = column(contender, |cost| cost.peak) {
            line(contender.name, "peak memory, MB", peak, 1e6, is_ours.then_some(bars.peak));
        }
    }
    let ours = &contenders[0];
    for rival in &contenders[1..] {
        // Runs next to each other are compared, then the ratios.
        let pairs = ours.costs.iter().zip(&rival.costs);
        let ratios: Vec<f64> =
            pairs.map(|(ours, rival)| (bars.by)(rival) / (bars.by)(ours)).collect();
        let bar = bars.ratio.filter(|(name, _)| *name == rival.name).map(|(_, bar)| bar);
        if let Some(ratio) = Spread::of(&ratios) {
            line(ours.name, &format!("times as fast as {}", rival.name), ratio, 1.0, bar);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    const BARS: Bars = Bars {
        things: 10_000_000,
        noun: "events",
        speed: Bar::AtLeast(3e6),
        peak: Bar::Below(200e6),
        ratio: Some(("reading alone", Bar::AtLeast(0.4))),
        by: |cost| cost.cpu,
    };

    #[test]
    fn the_table_says_what_was_reached_and_what_is_undecided() {
        let contender = |name, costs: &[(f64, f64, f64)]| Contender {
            name,
            program: PathBuf::new(),
            arguments: Vec::new(),
            accepted: &[0],
            costs: costs.iter().map(|&(wall, cpu, peak)| Cost { wall, cpu, peak }).collect(),
        };
        let contenders = [
            contender("tracer replay", &[(4.0, 3.0, 5e7), (5.0, 4.0, 6e7), (4.0, 3.2, 5e7)]),
            contender("reading alone", &[(2.0, 1.5, 1e7), (2.0, 2.0, 1e7), (2.0, 1.6, 1e7)]),
        ];
        expect![[r#"
            tracer replay  million events/s                   2.50 (2.00 to 2.50)
            tracer replay  million events/s of CPU time       3.12 (2.50 to 3.33)
            tracer replay  million events/s, judged           3.12 (2.50 to 3.33)  undecided
            tracer replay  peak memory, MB                   50.00 (50.00 to 60.00)  reached
            reading alone  million events/s                   5.00 (5.00 to 5.00)
            reading alone  million events/s of CPU time       6.25 (5.00 to 6.67)
            reading alone  peak memory, MB                   10.00 (10.00 to 10.00)
            tracer replay  times as fast as reading alone     0.50 (0.50 to 0.50)  reached
        "#]]
        .assert_eq(&table(&contenders, &BARS));
    }
}
