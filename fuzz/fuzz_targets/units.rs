//! Values on the command line, for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tracer_fuzz::command_line(bytes));
