//! A small DNS server over UDP, so that a name's part in a failure can be measured: it knows a table of A and
//! AAAA records, and can be slow, forgetful or out of order on purpose.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use simple_dns::rdata::{A, AAAA, RData};
use simple_dns::{CLASS, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};
use tokio::net::UdpSocket;
use tokio::signal::unix::{SignalKind, signal};

use crate::model::MonoNs;
use crate::sys::clock;

/// The longest question that is read.
const LONGEST_QUESTION: usize = 4096;

/// How long a resolver may keep an answer: not at all.
const TIME_TO_LIVE: u32 = 0;

/// How the DNS server behaves.
#[derive(Clone, Debug)]
pub struct DnsSettings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The names, each with an address; a name may come more than once.
    pub names: Vec<(String, IpAddr)>,
    /// How long it takes to answer.
    pub delay: Duration,
    /// The probability that a question is not answered, from 0 to 1.
    pub lose: f64,
    /// Where the choice of what is lost comes from.
    pub seed: u64,
    /// What it answers to every question, instead of the truth.
    pub fail: Option<DnsFailure>,
}

/// A way to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsFailure {
    /// SERVFAIL
    Servfail,
    /// NXDOMAIN
    Nxdomain,
    /// REFUSED
    Refused,
}

/// A question that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// When.
    pub at: MonoNs,
    /// From where.
    pub client: SocketAddr,
    /// Whether it is answered, once the delay is over.
    pub is_answered: bool,
}

/// Why the DNS server could not serve.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// No runtime, no signal handler.
    #[error("cannot start the DNS server")]
    Start(#[source] io::Error),
    /// The address is taken, or not of this host, or the port is privileged.
    #[error("cannot listen on {listen}")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// What came could not be told.
    #[error("cannot tell of the questions")]
    Tell(#[source] io::Error),
}

/// Serves until SIGTERM or SIGINT. `listening` is told the address once questions are taken, and `asked` of each
/// question; an error of that one ends the server.
pub fn run(
    settings: &DnsSettings,
    listening: &mut dyn FnMut(SocketAddr),
    asked: &mut dyn FnMut(Asked) -> io::Result<()>,
) -> Result<(), DnsError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(DnsError::Start)?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(DnsError::Start)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(DnsError::Start)?;
        let listen = settings.listen;
        let socket =
            UdpSocket::bind(listen).await.map_err(|source| DnsError::Listen { listen, source })?;
        listening(socket.local_addr().unwrap_or(listen));
        tokio::select! {
            error = serve(socket, settings, asked) => Err(DnsError::Tell(error)),
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        }
    })
}

/// Answers until a question can't be told.
pub(super) async fn serve(
    socket: UdpSocket,
    settings: &DnsSettings,
    tell: &mut dyn FnMut(Asked) -> io::Result<()>,
) -> io::Error {
    let socket = Arc::new(socket);
    let table = Table::new(settings);
    let mut random = ChaCha8Rng::seed_from_u64(settings.seed);
    let mut question = [0; LONGEST_QUESTION];
    loop {
        let (length, client) = match socket.recv_from(&mut question).await {
            Ok(received) => received,
            // The ICMP error to an answer that nobody waited for any more.
            Err(error) => {
                log::debug!("cannot receive: {error}");
                continue;
            }
        };
        let at = clock::now();
        let lost = random.random_bool(settings.lose.clamp(0.0, 1.0));
        let answer = table.answer(&question[..length]).filter(|_| !lost);
        if let Err(error) = tell(Asked { at, client, is_answered: answer.is_some() }) {
            return error;
        }
        let Some(answer) = answer else { continue };
        let (socket, delay) = (Arc::clone(&socket), settings.delay);
        tokio::spawn(async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            if let Err(error) = socket.send_to(&answer, client).await {
                log::debug!("cannot answer {client}: {error}");
            }
        });
    }
}

/// What there is to be known.
struct Table {
    names: BTreeMap<String, Vec<IpAddr>>,
    fail: Option<DnsFailure>,
}

impl Table {
    fn new(settings: &DnsSettings) -> Table {
        let mut names: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
        for (name, address) in &settings.names {
            names.entry(canonical(name)).or_default().push(*address);
        }
        Table { names, fail: settings.fail }
    }

    /// The answer to a question; none to what is no question.
    fn answer(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let asked = Packet::parse(bytes).ok().filter(|it| !it.has_flags(PacketFlag::RESPONSE))?;
        let question = asked.questions.first()?;
        let mut answer = Packet::new_reply(asked.id());
        answer.set_flags(PacketFlag::AUTHORITATIVE_ANSWER | PacketFlag::RECURSION_AVAILABLE);
        if asked.has_flags(PacketFlag::RECURSION_DESIRED) {
            answer.set_flags(PacketFlag::RECURSION_DESIRED);
        }
        answer.questions.push(question.clone());
        let known = self.names.get(&canonical(&question.qname.to_string()));
        *answer.rcode_mut() = match (self.fail, known) {
            (Some(DnsFailure::Servfail), _) => RCODE::ServerFailure,
            (Some(DnsFailure::Refused), _) => RCODE::Refused,
            (Some(DnsFailure::Nxdomain), _) | (None, None) => RCODE::NameError,
            (None, Some(addresses)) => {
                answer.answers = addresses
                    .iter()
                    .filter_map(|address| record(question.qtype, *address))
                    .map(|data| {
                        ResourceRecord::new(question.qname.clone(), CLASS::IN, TIME_TO_LIVE, data)
                    })
                    .collect();
                RCODE::NoError
            }
        };
        answer.build_bytes_vec_compressed().ok()
    }
}

/// The address as a record, if it is of the type that was asked for.
fn record(asked: QTYPE, address: IpAddr) -> Option<RData<'static>> {
    let (kind, data) = match address {
        IpAddr::V4(v4) => (TYPE::A, RData::A(A { address: v4.into() })),
        IpAddr::V6(v6) => (TYPE::AAAA, RData::AAAA(AAAA { address: v6.into() })),
    };
    (asked == kind.into() || asked == QTYPE::ANY).then_some(data)
}

/// Names are the same in upper and lower case, and with or without the last dot.
fn canonical(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_question_is_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let table = Table { names: BTreeMap::new(), fail: None };
            let _ = table.answer(&bytes);
        }
    }
}
