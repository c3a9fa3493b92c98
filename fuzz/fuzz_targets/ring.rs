//! Records of the ring buffer, for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tracer_fuzz::ring_record(bytes));
