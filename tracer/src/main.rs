//! The `tracer` program: arguments in, exit status out. Everything else is in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    tracer::cli::run()
}
