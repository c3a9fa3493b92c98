//! Times as text, for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tracer_fuzz::time_stamp(bytes));
