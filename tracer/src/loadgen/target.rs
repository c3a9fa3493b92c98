//! Whom the client asks: an address, or a name that becomes one.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use tokio::sync::OnceCell;

use super::names::Resolver;
use crate::model::NameError;

/// The longest name that DNS can carry, as text (RFC 1035, 2.3.4).
const LONGEST_NAME: usize = 253;
/// The longest label of one.
const LONGEST_LABEL: usize = 63;

/// Whom to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An address and a port.
    Address(SocketAddr),
    /// A name and a port.
    Name {
        /// The name.
        host: String,
        /// The port.
        port: u16,
    },
}

/// A text that is no target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "write it as ADDRESS:PORT or NAME:PORT, such as 10.96.0.20:80, [fd00::1]:80 or web.shop:80"
)]
pub struct BadTarget;

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Target {
        Target::Address(address)
    }
}

impl FromStr for Target {
    type Err = BadTarget;

    fn from_str(text: &str) -> Result<Target, BadTarget> {
        if let Ok(address) = text.parse() {
            return Ok(Target::Address(address));
        }
        let (host, port) = text.rsplit_once(':').ok_or(BadTarget)?;
        let port: u16 = port.parse().map_err(|_| BadTarget)?;
        let labels = host.strip_suffix('.').unwrap_or(host);
        let sound = |label: &str| {
            (1..=LONGEST_LABEL).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        // A name that ends in a number can only be an address that is misspelt.
        let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
        let last = labels.rsplit('.').next().unwrap_or_default();
        if labels.len() > LONGEST_NAME || !labels.split('.').all(sound) || is_number(last) {
            return Err(BadTarget);
        }
        Ok(Target::Name { host: host.to_owned(), port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Address(address) => address.fmt(f),
            // As a Host header has it: without the dot that makes a name absolute.
            Target::Name { host, port } => {
                write!(f, "{}:{port}", host.strip_suffix('.').unwrap_or(host))
            }
        }
    }
}

/// When a target's name is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolve {
    /// For each new connection, as clients do that keep no answers.
    Each,
    /// For the first connection that finds an address; all others take the same.
    Once,
}

/// A target on its way to an address.
pub(super) enum Addressing {
    Known(SocketAddr),
    Each { host: String, port: u16, resolver: Resolver },
    Once { host: String, port: u16, resolver: Resolver, found: OnceCell<SocketAddr> },
}

impl Addressing {
    pub(super) fn new(target: &Target, resolve: Resolve, resolver: Resolver) -> Addressing {
        match (target, resolve) {
            (Target::Address(address), _) => Addressing::Known(*address),
            (Target::Name { host, port }, Resolve::Each) => {
                Addressing::Each { host: host.clone(), port: *port, resolver }
            }
            (Target::Name { host, port }, Resolve::Once) => {
                let found = OnceCell::new();
                Addressing::Once { host: host.clone(), port: *port, resolver, found }
            }
        }
    }

    /// The address, where no question is needed for it.
    pub(super) fn known(&self) -> Option<SocketAddr> {
        match self {
            Addressing::Known(address) => Some(*address),
            Addressing::Each { .. } => None,
            Addressing::Once { found, .. } => found.get().copied(),
        }
    }

    /// The address, asked for where it is not known.
    pub(super) async fn find(&self) -> Result<SocketAddr, NameError> {
        let ask = async |host: &str, port: u16, resolver: &Resolver| {
            Ok(SocketAddr::new(resolver.resolve(host).await?, port))
        };
        match self {
            Addressing::Known(address) => Ok(*address),
            Addressing::Each { host, port, resolver } => ask(host, *port, resolver).await,
            Addressing::Once { host, port, resolver, found } => {
                found.get_or_try_init(|| ask(host, *port, resolver)).await.copied()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_an_address_or_a_name_with_a_port() {
        assert_eq!("[fd00::1]:80".parse(), Ok(Target::Address("[fd00::1]:80".parse().unwrap())),);
        for (text, host) in [("web:80", "web"), ("a-1.web_x.shop.:80", "a-1.web_x.shop.")] {
            assert_eq!(text.parse(), Ok(Target::Name { host: host.to_owned(), port: 80 }));
        }
        let label = "x".repeat(64);
        for wrong in
            ["", "web", "web:", "web:70000", ":80", "a..b:80", "10.0.0:80", "fd00::1:80", "ä:80"]
                .into_iter()
                .chain([format!("{label}:80").as_str()])
        {
            assert_eq!(wrong.parse::<Target>(), Err(BadTarget), "{wrong}");
        }
    }
}
