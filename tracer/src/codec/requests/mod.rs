//! Logs of requests: the load generator's own, written.

mod log;

pub use log::{LogFormat, LogWriter, Row};
