//! Bytes to events and back: ring records, the trace file, captures, request logs. Pure: no I/O, no clock.

pub mod pcap;
pub mod requests;
pub mod ring;
pub mod trace;
