//! Bytes to events and back: ring records, the trace file. Pure: no I/O, no clock.

pub mod ring;
