//! Holds a lab run's verdict against the lab's own truth, request by request:
//! `cargo run --example agreement -- RUN.trace RUN.truth RUN.json`, all three of one
//! `tracer lab --record RUN.trace --truth RUN.truth --format json > RUN.json`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use tracer::commands::lab::agreement;
use tracer::files::TraceReader;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [trace, truth, report] = arguments.as_slice() else {
        eprintln!("usage: agreement RUN.trace RUN.truth RUN.json");
        return ExitCode::from(2);
    };
    match hold(trace, truth, report) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("agreement: {error}");
            ExitCode::from(2)
        }
    }
}

fn hold(trace: &str, truth: &str, report: &str) -> Result<bool, Box<dyn std::error::Error>> {
    let began = TraceReader::open(Path::new(trace))?.header().began;
    let agreement =
        agreement::compare(&fs::read_to_string(truth)?, &fs::read_to_string(report)?, began)?;
    println!("{} requests: {:?}", agreement.compared, agreement.kinds);
    for line in &agreement.undetermined {
        println!("undetermined: {line}");
    }
    for line in &agreement.disagreements {
        println!("disagreement: {line}");
    }
    println!(
        "{} undetermined, {} disagreements",
        agreement.undetermined.len(),
        agreement.disagreements.len()
    );
    Ok(agreement.disagreements.is_empty())
}
