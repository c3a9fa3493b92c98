//! kubectl's objects as JSON, for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tracer_fuzz::watch_output(bytes));
