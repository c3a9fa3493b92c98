//! Set-up, build, lab and test of tracer: one subcommand, one module.
#![forbid(unsafe_code)]
fn main() {}
