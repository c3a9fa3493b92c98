//! Captures, pcap and pcapng, for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tracer_fuzz::capture(bytes));
