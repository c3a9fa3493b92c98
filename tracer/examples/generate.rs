//! Writes a long trace of a made-up cluster, for benchmarks, and prints what is in it as JSON:
//! `cargo run --release --example generate -- OUT.trace --events N [--seed N] [--rate N]`.

#[path = "../tests/support/generator.rs"]
mod generator;

use std::path::PathBuf;

use clap::Parser;
use generator::{Settings, Truth};
use tracer::files::{Existing, TraceWriter};

/// Write a long trace of a made-up cluster, and print what is in it
#[derive(Debug, Parser)]
struct Options {
    /// The file to write; a trace of this name is replaced
    out: PathBuf,

    /// At least so many events
    #[arg(long, default_value_t = 1_000_000)]
    events: u64,

    /// Where its random choices come from
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Requests a second, on average
    #[arg(long, default_value_t = 200.0)]
    rate: f64,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    anyhow::ensure!(options.rate > 0.0 && options.rate.is_finite(), "--rate must be above 0");
    let settings = Settings { rate: options.rate, ..Settings::new(options.events, options.seed) };
    let header = generator::header(&settings);
    let mut writer = TraceWriter::create(&options.out, &header, Existing::Replace)?;
    let truth = generator::generate(&settings, &mut |event| writer.append(event))?;
    writer.finish()?;
    let Truth { events, rollouts, requests, stale_rules, refused, late, early } = truth;
    let truth = serde_json::json!({
        "events": events,
        "rollouts": rollouts,
        "requests": requests,
        "failed": {
            "stale-rules": stale_rules,
            "pod-not-serving": refused,
            "stale-entry-reuse, late": late,
            "stale-entry-reuse, early": early,
        },
    });
    println!("{truth:#}");
    Ok(())
}
