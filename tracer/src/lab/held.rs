//! Connections of the lab's own from the client's address, whose sockets go without a word to anyone: the entries that
//! they made stay in the state they are in, while their source ports are free for the client's requests.
//!
//! Such a socket is that of a client which gives up on a silent peer, or whose machine is moved: conntrack hears of no
//! end. Here it is closed in the kernel's repair mode (TCP_REPAIR, tcp(7) and `__tcp_close` in net/ipv4/tcp.c).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt::TcpRepair};
use socket2::{Domain, Socket, Type};

use super::plan::{Family, Node};
use super::pod::Pod;
use super::truth::Span;
use super::{ATTENTION, Lab, LabError, Sink, lock};
use crate::sys::clock;
use crate::sys::conntrack::Conntrack;
use crate::sys::stop::Stop;

/// A pod that lives answers sooner.
const PATIENCE: Duration = Duration::from_secs(2);

/// So many source ports are tried for what is wanted, at most.
const TRIES: usize = 200;

/// What the pods' app answers, and closes.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: held\r\nConnection: close\r\n\r\n";

/// The state that an entry is left in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldState {
    /// The connection is idle.
    Established,
    /// The client closed it, and nobody acknowledged.
    FinWait,
    /// The pod closed it, and the client did not.
    CloseWait,
}

/// A connection of the lab's own.
#[derive(Debug)]
pub(super) struct HeldSocket {
    stream: TcpStream,
    port: u16,
    state: HeldState,
}

impl Lab {
    /// Makes `each` connections for each of the states to pods on other nodes than the client's. Their source ports are
    /// taken until [`Lab::let_go`].
    ///
    /// # Errors
    /// [`LabError`]; [`LabError::Stopped`] if `stop` was requested meanwhile.
    pub fn hold(&self, states: &[HeldState], each: usize, stop: &Stop) -> Result<(), LabError> {
        let wanted: Vec<HeldState> =
            states.iter().flat_map(|state| std::iter::repeat_n(*state, each)).collect();
        let plan = self.plan;
        let is_far = |backend: SocketAddr| !plan.is_on(Node(0), backend.ip());
        let held = self.connect(&wanted, &is_far, stop)?;
        lock(&self.held).extend(held);
        Ok(())
    }

    /// Lets the sockets of [`Lab::hold`] go, each so that its entry stays in its state. A FIN that is sent for that must
    /// find nobody: the nodes must be lost.
    ///
    /// # Errors
    /// [`LabError::Held`].
    pub fn let_go(&self) -> Result<(), LabError> {
        for held in lock(&self.held).drain(..) {
            if held.state == HeldState::FinWait {
                held.stream.shutdown(Shutdown::Write).map_err(failed("sending a FIN"))?;
            }
            vanish(&held.stream)?;
        }
        Ok(())
    }

    /// Kills the newest pod while `count` connections to it have sent what it did not read, so that its kernel answers
    /// each with a RST and no FIN (RFC 2525, 2.17), which leaves their entries in CLOSE; and deletes it by force.
    ///
    /// # Errors
    /// [`LabError`]; [`LabError::Stopped`] if `stop` was requested meanwhile.
    pub fn reset_newest(&self, count: usize, sink: Sink<'_>, stop: &Stop) -> Result<(), LabError> {
        let newest = self.newest();
        let is_newest = |backend| backend == newest.address;
        let mut held = self.connect(&vec![HeldState::Established; count], &is_newest, stop)?;
        newest.freeze(&self.recorder)?;
        for held in &mut held {
            held.stream.write_all(b"x").map_err(failed("sending a byte"))?;
        }
        let ports: BTreeSet<u16> = held.iter().map(|held| held.port).collect();
        let began = Instant::now();
        while !newest.has_unread(&ports) {
            if began.elapsed() > PATIENCE {
                return Err(failed("waiting until the pod has it")(io::ErrorKind::TimedOut.into()));
            }
            if !stop.wait(ATTENTION / 10) {
                return Err(LabError::Stopped);
            }
        }
        let asked = self.ask_newest(sink);
        debug_assert_eq!(asked.name, newest.name, "nothing else changes the pods meanwhile");
        newest.kill_and_disconnect(&self.network, &self.recorder)?;
        self.mark_deleted(&newest, sink);
        for mut held in held {
            match held.stream.read(&mut [0]) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
                Err(error) => return Err(failed("waiting for the pod's RST")(error)),
                Ok(_) => {
                    return Err(failed("the pod ended it without a RST")(
                        io::ErrorKind::UnexpectedEof.into(),
                    ));
                }
            }
        }
        self.proxies().iter().try_for_each(|proxy| proxy.settle(stop))
    }

    /// Stops the newest pod's process. It stays an endpoint.
    ///
    /// # Errors
    /// [`LabError::Process`].
    pub fn freeze_newest(&self) -> Result<(), LabError> {
        self.newest().freeze(&self.recorder)
    }

    /// The pod that was made last of those that are not terminating.
    fn newest(&self) -> Arc<Pod> {
        let cluster = self.cluster();
        let newest = cluster.pods.iter().rfind(|listed| !listed.is_terminating);
        Arc::clone(&newest.expect("a pod is left").pod)
    }

    /// Makes a connection for each of the states, to a backend that is wanted: what the rules lead elsewhere is reset.
    fn connect(
        &self,
        wanted: &[HeldState],
        is_wanted: &dyn Fn(SocketAddr) -> bool,
        stop: &Stop,
    ) -> Result<Vec<HeldSocket>, LabError> {
        let mut ports = self.untroubled(TRIES)?.into_iter();
        let mut held = Vec::new();
        while held.len() < wanted.len() {
            if stop.is_requested() {
                return Err(LabError::Stopped);
            }
            // A part of them leads elsewhere.
            let some: Vec<u16> = ports.by_ref().take(2 * (wanted.len() - held.len())).collect();
            if some.is_empty() {
                let error = io::ErrorKind::AddrInUse.into();
                return Err(failed("too few source ports are free")(error));
            }
            let (client, service) = (self.plan.client(), self.target);
            let opened = self.network.client().run(|| {
                let open = some.iter().map(|port| {
                    let from = clock::now();
                    let stream = connect_from(SocketAddr::new(client, *port), service)?;
                    Ok(stream.map(|stream| (*port, stream, Span { from, to: clock::now() })))
                });
                open.filter_map(Result::transpose).collect::<Result<Vec<_>, LabError>>()
            })??;
            let backends = self.backends()?;
            for (port, mut stream, made) in opened {
                let is_wanted = backends.get(&port).is_some_and(|backend| is_wanted(*backend));
                let Some(state) = wanted.get(held.len()).filter(|_| is_wanted) else {
                    let closed = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                    closed.map_err(failed("closing it"))?;
                    continue;
                };
                if *state == HeldState::CloseWait {
                    stream.write_all(REQUEST).map_err(failed("asking"))?;
                    stream.read_to_end(&mut Vec::new()).map_err(failed("reading the answer"))?;
                }
                self.recorder.held(port, made);
                held.push(HeldSocket { stream, port, state: *state });
            }
        }
        Ok(held)
    }

    /// Where the client's entries point, by its ports.
    fn backends(&self) -> Result<BTreeMap<u16, SocketAddr>, LabError> {
        let is_v6 = self.plan.family() == Family::Ipv6;
        let client = self.plan.client();
        let entries = self.network.node(Node(0)).run(|| Conntrack::open()?.entries(is_v6))??;
        let own = entries.iter().filter(|it| it.orig.src.ip() == client);
        let own = own.filter(|it| it.orig.dst == self.target);
        Ok(own.map(|entry| (entry.orig.src.port(), entry.reply.src)).collect())
    }
}

/// A connection from this very port; none if the port is in use.
fn connect_from(source: SocketAddr, service: SocketAddr) -> Result<Option<TcpStream>, LabError> {
    let new = || -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::for_address(service), Type::STREAM, None)?;
        socket.bind(&source.into())?;
        socket.connect_timeout(&service.into(), PATIENCE)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    };
    match new() {
        Ok(stream) => Ok(Some(stream)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(failed("connecting")(error)),
    }
}

/// Makes a socket's close tell nobody of it.
fn vanish(stream: &TcpStream) -> Result<(), LabError> {
    setsockopt(stream, TcpRepair, &1).map_err(|errno| failed("TCP_REPAIR")(errno.into()))
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> LabError {
    move |source| LabError::Held { what, source }
}
