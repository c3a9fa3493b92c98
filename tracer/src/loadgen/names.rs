//! Names to addresses, as a client's resolver does it (resolv.conf(5), RFC 1035): each name is asked for
//! twice at once from one socket, A and AAAA, and both answers are waited for. Nothing is kept.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use resolv_conf::Config;
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, Question, RCODE, TYPE};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::model::NameError;

/// The most that a UDP answer without EDNS has (RFC 1035, 4.2.1), with room for servers that send more.
const LONGEST_ANSWER: usize = 4096;

const DNS_PORT: u16 = 53;

/// Whom to ask for names, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolver {
    servers: Vec<SocketAddr>,
    search: Vec<String>,
    /// A name with fewer dots is tried with the search list first.
    ndots: usize,
    /// How long to wait for an answer before asking again.
    timeout: Duration,
    /// How often each server is asked.
    attempts: u32,
    hosts: HashMap<String, IpAddr>,
}

/// The system's resolver configuration could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ResolverError {
    /// The file is there and can't be read.
    #[error("cannot read {path}")]
    Read {
        /// Which file.
        path: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The file makes no sense.
    #[error("cannot understand /etc/resolv.conf")]
    Parse(#[from] resolv_conf::ParseError),
}

impl Resolver {
    /// The system's: `/etc/resolv.conf` and `/etc/hosts`, read once. Other sources of `nsswitch.conf` are
    /// not asked.
    pub fn system() -> Result<Resolver, ResolverError> {
        Resolver::new(&read("/etc/resolv.conf")?, &read("/etc/hosts")?)
    }

    /// This server alone, asked for names as they are written, with glibc's patience (5 s, twice).
    pub fn at(server: SocketAddr) -> Resolver {
        Resolver {
            servers: vec![server],
            search: Vec::new(),
            ndots: 0,
            timeout: Duration::from_secs(5),
            attempts: 2,
            hosts: HashMap::new(),
        }
    }

    fn new(resolv_conf: &[u8], hosts: &[u8]) -> Result<Resolver, ResolverError> {
        let mut config = Config::parse(resolv_conf)?;
        // The limits that glibc has, such as three servers.
        config.glibc_normalize();
        let servers = config.get_nameservers_or_local();
        Ok(Resolver {
            servers: servers.iter().map(|ip| (IpAddr::from(ip), DNS_PORT).into()).collect(),
            search: config.get_last_search_or_domain().cloned().collect(),
            ndots: config.ndots as usize,
            timeout: Duration::from_secs(config.timeout.max(1).into()),
            attempts: config.attempts.max(1),
            hosts: parse_hosts(hosts),
        })
    }

    /// An address of the name: the first IPv4 address of the answer, or else the first IPv6 address.
    ///
    /// # Errors
    /// Why there is none. Takes as long as the configuration says; the caller has a deadline of its own.
    pub async fn resolve(&self, name: &str) -> Result<IpAddr, NameError> {
        if let Some(address) = self.hosts.get(&name.to_ascii_lowercase()) {
            return Ok(*address);
        }
        let mut failed = NameError::NoSuchName;
        for candidate in self.candidates(name) {
            match self.ask(&candidate).await {
                Ok(address) => return Ok(address),
                // Who does not answer won't answer for the next one either.
                Err(NameError::Unanswered) => return Err(NameError::Unanswered),
                // The gravest is told: that a name has no address is of less use than that a server failed.
                Err(error) => failed = if rank(error) > rank(failed) { error } else { failed },
            }
        }
        Err(failed)
    }

    /// The names to ask for, in turn (resolv.conf(5), `search` and `ndots`).
    fn candidates(&self, name: &str) -> Vec<String> {
        if name.ends_with('.') || self.search.is_empty() {
            return vec![name.to_owned()];
        }
        let searched = self.search.iter().map(|domain| format!("{name}.{domain}"));
        let as_is = std::iter::once(name.to_owned());
        if name.matches('.').count() >= self.ndots {
            as_is.chain(searched).collect()
        } else {
            searched.chain(as_is).collect()
        }
    }

    /// Asks the servers in turn until one knows.
    async fn ask(&self, name: &str) -> Result<IpAddr, NameError> {
        let mut failed = NameError::Unanswered;
        for _ in 0..self.attempts {
            for server in &self.servers {
                failed = match timeout(self.timeout, ask_server(*server, name)).await {
                    Err(_elapsed) => NameError::Unanswered,
                    Ok(Err(error @ (NameError::ServerFailed | NameError::Unreachable))) => error,
                    Ok(known) => return known,
                };
            }
        }
        Err(failed)
    }
}

fn rank(error: NameError) -> u8 {
    match error {
        NameError::NoSuchName => 0,
        NameError::NoAddress => 1,
        NameError::ServerFailed => 2,
        NameError::Unreachable => 3,
        NameError::Unanswered => 4,
    }
}

/// A file that may be missing.
fn read(path: &'static str) -> Result<Vec<u8>, ResolverError> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(|source| ResolverError::Read { path, source }),
    }
}

/// hosts(5): an address and its names. The first line that has a name counts.
fn parse_hosts(text: &[u8]) -> HashMap<String, IpAddr> {
    let mut hosts = HashMap::new();
    for line in String::from_utf8_lossy(text).lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(Ok(address)) = words.next().map(str::parse::<IpAddr>) else { continue };
        for name in words {
            let name = name.to_ascii_lowercase();
            match hosts.get_mut(&name) {
                None => _ = hosts.insert(name, address),
                Some(known @ IpAddr::V6(_)) if address.is_ipv4() => *known = address,
                Some(_) => {}
            }
        }
    }
    hosts
}

/// One question to one server, for both families. Waits until both are answered.
async fn ask_server(server: SocketAddr, name: &str) -> Result<IpAddr, NameError> {
    let unreachable = |_| NameError::Unreachable;
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await.map_err(unreachable)?;
    socket.connect(server).await.map_err(unreachable)?;
    let first: u16 = rand::random();
    let asked = [(first, TYPE::A), (first.wrapping_add(1), TYPE::AAAA)];
    for (id, kind) in asked {
        socket.send(&question(id, name, kind)?).await.map_err(unreachable)?;
    }
    let mut answers = [None, None];
    let mut bytes = [0; LONGEST_ANSWER];
    loop {
        let length = socket.recv(&mut bytes).await.map_err(unreachable)?;
        for ((id, kind), answer) in asked.into_iter().zip(&mut answers) {
            if let Some(read) = read_answer(&bytes[..length], id, name, kind) {
                *answer = Some(read);
            }
        }
        if let [Some(v4), Some(v6)] = answers {
            return both(v4, v6);
        }
    }
}

/// What two answers say together.
fn both(v4: Result<IpAddr, NameError>, v6: Result<IpAddr, NameError>) -> Result<IpAddr, NameError> {
    match (v4, v6) {
        (Ok(address), _) | (_, Ok(address)) => Ok(address),
        (Err(v4), Err(v6)) => Err(if rank(v6) > rank(v4) { v6 } else { v4 }),
    }
}

fn question(id: u16, name: &str, kind: TYPE) -> Result<Vec<u8>, NameError> {
    let name = Name::new(name.trim_end_matches('.')).map_err(|_| NameError::NoSuchName)?;
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    packet.questions.push(Question::new(name, kind.into(), CLASS::IN.into(), false));
    packet.build_bytes_vec().map_err(|_| NameError::NoSuchName)
}

/// The answer to the question with this id, if that is what it is.
fn read_answer(bytes: &[u8], id: u16, name: &str, kind: TYPE) -> Option<Result<IpAddr, NameError>> {
    // Its id is where it would be if it could be read.
    if bytes.get(..2)? != id.to_be_bytes() {
        return None;
    }
    let Ok(packet) = Packet::parse(bytes) else { return Some(Err(NameError::ServerFailed)) };
    if !packet.has_flags(PacketFlag::RESPONSE) {
        return None;
    }
    // A server that refuses may leave the question out.
    let same = |question: &Question<'_>| {
        question.qtype == kind.into()
            && question.qname.to_string().eq_ignore_ascii_case(name.trim_end_matches('.'))
    };
    if !packet.questions.is_empty() && !packet.questions.iter().any(same) {
        return None;
    }
    let address = packet.answers.iter().find_map(|record| match &record.rdata {
        RData::A(a) if kind == TYPE::A => Some(Ipv4Addr::from(a.address).into()),
        RData::AAAA(aaaa) if kind == TYPE::AAAA => Some(Ipv6Addr::from(aaaa.address).into()),
        _ => None,
    });
    Some(match (packet.rcode(), address) {
        (RCODE::NoError, Some(address)) => Ok(address),
        (RCODE::NoError, None) if packet.has_flags(PacketFlag::TRUNCATION) => {
            Err(NameError::ServerFailed)
        }
        (RCODE::NoError, None) => Err(NameError::NoAddress),
        (RCODE::NameError, _) => Err(NameError::NoSuchName),
        _ => Err(NameError::ServerFailed),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_names_are_searched_first_and_dotted_ones_as_they_are() {
        // What the kubelet writes into a pod.
        let resolver = Resolver::new(
            b"search default.svc.cluster.local svc.cluster.local\nnameserver 10.96.0.10\n\
              options ndots:5 timeout:2 attempts:3\n",
            b"",
        )
        .unwrap();
        assert_eq!(resolver.servers, ["10.96.0.10:53".parse().unwrap()]);
        assert_eq!((resolver.timeout, resolver.attempts), (Duration::from_secs(2), 3));
        assert_eq!(
            resolver.candidates("web.shop"),
            ["web.shop.default.svc.cluster.local", "web.shop.svc.cluster.local", "web.shop"]
        );
        assert_eq!(resolver.candidates("web.shop."), ["web.shop."]);
        assert_eq!(resolver.candidates("a.b.c.d.e.f")[0], "a.b.c.d.e.f");
    }

    #[test]
    fn without_a_configuration_this_host_is_asked() {
        let resolver = Resolver::new(b"", b"").unwrap();
        assert_eq!(resolver.servers[0], "127.0.0.1:53".parse().unwrap());
        assert_eq!((resolver.timeout, resolver.attempts), (Duration::from_secs(5), 2));
    }

    #[test]
    fn the_hosts_file_goes_first_and_prefers_ipv4() {
        let hosts =
            parse_hosts(b"# here\n::1 localhost ip6\n127.0.0.1 localhost Box # me\nnonsense\n");
        assert_eq!(hosts["localhost"], Ipv4Addr::LOCALHOST);
        assert_eq!(hosts["box"], Ipv4Addr::LOCALHOST);
        assert_eq!(hosts["ip6"], Ipv6Addr::LOCALHOST);
        assert_eq!(hosts.len(), 3);
    }

    proptest! {
        #[test]
        fn no_answer_is_a_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if bytes.len() > 2 {
                bytes[..2].copy_from_slice(&7_u16.to_be_bytes());
            }
            let _ = read_answer(&bytes, 7, "web", TYPE::A);
        }
    }
}
