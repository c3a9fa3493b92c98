//! The load generator and the demo app that it asks. Both speak HTTP/1.1 and both know who closes a
//! connection first: the server. A client that closes first keeps its ports in TIME_WAIT, and the kernel's
//! port walk is then another one.
//!
//! Deliberately absent: anything that knows of Services, NAT or traces. The client sees what a client sees.

pub mod client;
pub mod server;

mod exchange;

/// Response header: the app that answered.
pub const APP_HEADER: &str = "x-app";

/// Response header: the pod that answered.
pub const POD_HEADER: &str = "x-pod";

#[cfg(test)]
mod tests;
