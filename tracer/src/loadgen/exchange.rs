//! One request on a connection of its own, from socket() to close(), and what the client saw of it.

use std::error::Error as _;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, HeaderValue};
use hyper::{HeaderMap, Request};
use hyper_util::rt::TokioIo;
use nix::errno::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::{APP_HEADER, POD_HEADER};
use crate::model::{MonoNs, Outcome, Symptom};
use crate::sys::clock;

/// No request waits longer: a time so far away that clocks can't hold it is no reason to panic.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// What every request of a run has in common.
pub(super) struct Question {
    target: SocketAddr,
    /// The target as socket() and connect() want it.
    address: SockAddr,
    domain: Domain,
    host: HeaderValue,
    timeout: Duration,
    app: Option<HeaderValue>,
}

/// What became of a request.
pub(super) struct Answer {
    pub(super) source: Option<SocketAddr>,
    pub(super) outcome: Outcome,
    pub(super) connect: Option<Duration>,
    pub(super) pod: Option<String>,
    /// Whether it failed before anything could be sent, so that asking again at once would be a tight loop.
    pub(super) unsent: bool,
    /// When its outcome was known.
    pub(super) ended: MonoNs,
    /// The connection, where the answer was complete and the client has not closed it.
    pub(super) open: Option<TcpStream>,
}

/// A failure on the way: symptom, error number, and the HTTP status where one had come.
struct Failure {
    symptom: Symptom,
    errno: Option<i32>,
    status: Option<u16>,
}

impl Question {
    pub(super) fn new(target: SocketAddr, timeout: Duration, app: Option<HeaderValue>) -> Question {
        let host = HeaderValue::from_str(&target.to_string())
            .expect("an address and port are visible ASCII");
        Question {
            target,
            address: SockAddr::from(target),
            domain: Domain::for_address(target),
            host,
            timeout: timeout.min(LONGEST),
            app,
        }
    }

    pub(super) fn target(&self) -> SocketAddr {
        as_in_events(self.target)
    }

    /// Asks, on a new connection. `started` is now; connect and answer share one timeout.
    pub(super) async fn ask(&self, started: MonoNs, deadline: Instant) -> Answer {
        let mut answer = Answer {
            source: None,
            outcome: Outcome::Answered { status: 0 },
            connect: None,
            pod: None,
            unsent: false,
            ended: started,
            open: None,
        };
        answer.outcome = match self.connect(&mut answer, deadline).await {
            Ok(stream) => {
                answer.connect = Some(clock::now().since(started));
                match self.exchange(stream, &mut answer, deadline).await {
                    Ok(status) => Outcome::Answered { status },
                    Err(failure) => failure.outcome(),
                }
            }
            Err(failure) => failure.outcome(),
        };
        answer.ended = clock::now();
        answer
    }

    /// The deadline of a request that starts now.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Makes a socket and connects it. The source is known as soon as connect() has been called.
    async fn connect(&self, answer: &mut Answer, deadline: Instant) -> Result<TcpStream, Failure> {
        answer.unsent = true;
        let socket =
            Socket::new(self.domain, Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))
                .map_err(Failure::local)?;
        socket.set_tcp_nodelay(true).map_err(Failure::local)?;
        let connecting = match socket.connect(&self.address) {
            Err(error) if error.raw_os_error() == Some(Errno::EINPROGRESS as i32) => Ok(()),
            other => other,
        };
        // Asked now, since a socket whose connect has failed and was closed can't be asked any more.
        answer.source = socket
            .local_addr()
            .ok()
            .and_then(|address| address.as_socket())
            .filter(|address| address.port() != 0)
            .map(as_in_events);
        connecting.map_err(Failure::connecting)?;
        let stream = TcpStream::from_std(socket.into()).map_err(Failure::local)?;
        answer.unsent = false;
        match timeout_at(deadline, stream.writable()).await {
            Err(_elapsed) => return Err(Failure::of(Symptom::ConnectTimeout)),
            Ok(ready) => ready.map_err(Failure::connecting)?,
        }
        match stream.take_error() {
            Ok(None) => Ok(stream),
            Ok(Some(error)) | Err(error) => Err(Failure::connecting(error)),
        }
    }

    /// Sends the request and reads the whole answer. Leaves the connection open in `answer` if it was complete.
    async fn exchange(
        &self,
        stream: TcpStream,
        answer: &mut Answer,
        deadline: Instant,
    ) -> Result<u16, Failure> {
        let mut status = None;
        let talk = async {
            let (mut sender, connection) =
                http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await?;
            let exchange = async {
                let (head, body) = sender.send_request(self.request()).await?.into_parts();
                // Without its sender the connection ends with this answer, whatever the server would like.
                drop(sender);
                status = Some(head.status.as_u16());
                drain(body).await?;
                Ok::<HeaderMap, hyper::Error>(head.headers)
            };
            // Not shut down: that would be the client's FIN.
            let (head, parts) = tokio::join!(exchange, connection.without_shutdown());
            match (head, parts) {
                (Ok(head), parts) => Ok((head, parts.ok().map(|parts| parts.io.into_inner()))),
                // The half that saw the socket's error has its number.
                (Err(error), Err(cause)) if errno_of(&error).is_none() => {
                    Err(if errno_of(&cause).is_some() { cause } else { error })
                }
                (Err(error), _) => Err(error),
            }
        };
        let (head, open) = match timeout_at(deadline, talk).await {
            Err(_elapsed) => {
                return Err(Failure { status, ..Failure::of(Symptom::ResponseTimeout) });
            }
            Ok(Err(error)) => {
                return Err(Failure { status, ..Failure::talking(&error) });
            }
            Ok(Ok(complete)) => complete,
        };
        answer.open = open;
        answer.pod =
            head.get(POD_HEADER).and_then(|pod| pod.to_str().ok()).map(|pod| pod.to_owned());
        let status = status.expect("a complete answer has a status");
        let right_app = self.app.as_ref().is_none_or(|app| head.get(APP_HEADER) == Some(app));
        if status >= 500 || !right_app {
            return Err(Failure { status: Some(status), ..Failure::of(Symptom::WrongAnswer) });
        }
        Ok(status)
    }

    fn request(&self) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        request
    }
}

/// Waits until the server has closed, so that TIME_WAIT is on its side. False if it did not by the deadline
/// (or left the connection unusable): the caller closes then, and is the first to do so.
pub(super) async fn closed_by_server(mut stream: TcpStream, deadline: Instant) -> bool {
    let mut rest = [0; 512];
    loop {
        match timeout_at(deadline, stream.read(&mut rest)).await {
            Ok(Ok(0)) => return true,
            // More than the answer: of no use to anyone.
            Ok(Ok(_)) => {}
            // A RST closes as well, and it was not the client's.
            Ok(Err(error)) => return error.kind() == io::ErrorKind::ConnectionReset,
            Err(_elapsed) => return false,
        }
    }
}

/// Without an IPv6 address's scope and flow label: packets, and so events, have neither.
fn as_in_events(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}

/// Reads the body to its end and keeps nothing of it.
async fn drain(mut body: Incoming) -> Result<(), hyper::Error> {
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}

impl Failure {
    fn of(symptom: Symptom) -> Failure {
        Failure { symptom, errno: None, status: None }
    }

    fn local(error: io::Error) -> Failure {
        Failure { errno: error.raw_os_error(), ..Failure::of(Symptom::Local) }
    }

    /// What connect() or SO_ERROR said before the connection was there.
    fn connecting(error: io::Error) -> Failure {
        let symptom = match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ECONNREFUSED) => Symptom::Refused,
            Some(Errno::EHOSTUNREACH | Errno::ENETUNREACH) => Symptom::Unreachable,
            Some(Errno::ETIMEDOUT) => Symptom::ConnectTimeout,
            Some(Errno::ECONNRESET | Errno::EPIPE) => Symptom::Reset,
            // EADDRNOTAVAIL, EMFILE, EPERM from a local rule, …: nothing left this host.
            _ => Symptom::Local,
        };
        Failure { errno: error.raw_os_error(), ..Failure::of(symptom) }
    }

    /// What hyper said once connected.
    fn talking(error: &hyper::Error) -> Failure {
        let errno = errno_of(error);
        let symptom = match errno.map(Errno::from_raw) {
            // The kernel gave up sending again, perhaps with the last ICMP error as the reason.
            Some(Errno::ETIMEDOUT | Errno::EHOSTUNREACH | Errno::ENETUNREACH) => {
                Symptom::ResponseTimeout
            }
            Some(_) => Symptom::Reset,
            // Not HTTP at all.
            None if error.is_parse() => Symptom::WrongAnswer,
            // hyper makes an incomplete message, or an UnexpectedEof inside a body, of an early FIN.
            None => Symptom::Closed,
        };
        Failure { errno, ..Failure::of(symptom) }
    }

    fn outcome(self) -> Outcome {
        Outcome::Failed { symptom: self.symptom, errno: self.errno, status: self.status }
    }
}

/// The number of the system call's error that an error of hyper comes from.
fn errno_of(error: &hyper::Error) -> Option<i32> {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return io.raw_os_error();
        }
        source = cause.source();
    }
    None
}
