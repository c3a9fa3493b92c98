//! The load generator, the demo app that it asks, and a DNS server for its name. Client and app speak
//! HTTP/1.1 and both know who closes a connection first: the server, unless the client is told to. A client that
//! closes first keeps its ports in TIME_WAIT, and the kernel's port walk is then another one.
//!
//! Deliberately absent: anything that knows of Services, NAT or traces. The client sees what a client sees.

pub mod client;
pub mod dns;
pub mod names;
pub mod server;

mod connection;
mod exchange;
mod ports;
mod target;

pub use ports::OwnPorts;
pub use target::{BadTarget, Resolve, Target};

/// Whose connection a request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A new one for every request, with `Connection: close`.
    Fresh,
    /// A new one for every request, which the client closes once it has the answer.
    ClosesFirst,
    /// That of its worker, for as long as it is there.
    KeepAlive,
}

/// Response header: the app that answered.
pub const APP_HEADER: &str = "x-app";

/// Response header: the pod that answered.
pub const POD_HEADER: &str = "x-pod";

#[cfg(test)]
mod tests;
