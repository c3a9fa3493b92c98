//! Bytes to events and back: ring records, the trace file, request logs. Pure: no I/O, no clock.

pub mod requests;
pub mod ring;
pub mod trace;
