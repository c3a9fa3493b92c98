//! Reads a trace and does nothing with its events, for benchmarks: what reading alone costs.
//! `cargo run --release --example decode -- FILE.trace` prints how many events there were.

use std::path::PathBuf;

use anyhow::Context;
use tracer::files::TraceReader;

fn main() -> anyhow::Result<()> {
    let path = std::env::args_os().nth(1).map(PathBuf::from).context("usage: decode FILE.trace")?;
    let mut events: u64 = 0;
    let mut reader = TraceReader::open(&path)?;
    while let Some(event) = reader.advance()? {
        std::hint::black_box(event);
        events += 1;
    }
    println!("{events}");
    Ok(())
}
