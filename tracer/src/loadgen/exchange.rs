//! One request, from the name to the last byte of the answer, and what the client saw of it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::header::{CONNECTION, HOST, HeaderValue};
use hyper::{HeaderMap, Request};
use nix::errno::Errno;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::connection::{Broken, Connection, Progress, as_in_events, connect, connected, errno_of};
use super::ports::Ports;
use super::target::Addressing;
use super::{APP_HEADER, Mode, POD_HEADER};
use crate::model::{MonoNs, NameError, Outcome, Resolution, Reuse, Symptom};
use crate::sys::clock;

/// No request waits longer: a time so far away that clocks can't hold it is no reason to panic.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// What every request of a run has in common.
pub(super) struct Question {
    pub(super) addressing: Addressing,
    pub(super) host: HeaderValue,
    pub(super) mode: Mode,
    pub(super) nodelay: bool,
    pub(super) timeout: Duration,
    pub(super) app: Option<HeaderValue>,
}

/// A connection, and between whom it is.
pub(super) struct Link {
    pub(super) connection: Connection,
    source: Option<SocketAddr>,
    target: SocketAddr,
}

/// What became of a request.
pub(super) struct Answer {
    pub(super) source: Option<SocketAddr>,
    pub(super) target: Option<SocketAddr>,
    pub(super) reuse: Reuse,
    pub(super) outcome: Outcome,
    pub(super) resolution: Option<Resolution>,
    pub(super) connect: Option<Duration>,
    pub(super) received: u64,
    pub(super) pod: Option<String>,
    /// Whether it failed before anything could be sent, so that asking again at once would be a tight loop.
    pub(super) unsent: bool,
    /// When its outcome was known.
    pub(super) ended: MonoNs,
    /// The connection, where the answer was complete.
    pub(super) link: Option<Link>,
}

/// A failure on the way: symptom, error number, and the HTTP status where one had come.
struct Failure {
    symptom: Symptom,
    errno: Option<i32>,
    status: Option<u16>,
}

impl Question {
    /// Asks, on the connection that is there or on a new one. `started` is now; name, connect and answer
    /// share one timeout. A new connection's source port is one of `ports`, or else the kernel's choice.
    pub(super) async fn ask(
        &self,
        link: Option<Link>,
        ports: Option<&Ports>,
        started: MonoNs,
        deadline: Instant,
    ) -> Answer {
        let mut answer = Answer {
            source: None,
            target: None,
            reuse: match self.mode {
                Mode::Fresh | Mode::ClosesFirst => Reuse::Fresh,
                Mode::KeepAlive => Reuse::KeepAlive {
                    nth: link.as_ref().map_or(0, |link| link.connection.carried),
                },
            },
            outcome: Outcome::Answered { status: 0 },
            resolution: None,
            connect: None,
            received: 0,
            pod: None,
            unsent: false,
            ended: started,
            link: None,
        };
        let asked = match link {
            Some(link) => Ok(link),
            None => self.open(&mut answer, ports, started, deadline).await,
        };
        answer.outcome = match asked {
            Ok(link) => match self.exchange(link, &mut answer, deadline).await {
                Ok(status) => Outcome::Answered { status },
                Err(failure) => failure.outcome(),
            },
            Err(failure) => failure.outcome(),
        };
        answer.ended = clock::now();
        answer
    }

    /// The deadline of a request that starts now.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout.min(LONGEST)
    }

    /// A new connection to the target.
    async fn open(
        &self,
        answer: &mut Answer,
        ports: Option<&Ports>,
        started: MonoNs,
        deadline: Instant,
    ) -> Result<Link, Failure> {
        let target = match self.addressing.known() {
            Some(target) => target,
            None => self.resolve(answer, started, deadline).await?,
        };
        answer.target = Some(as_in_events(target));
        answer.unsent = true;
        let connecting = connect(target, ports, self.nodelay);
        answer.source = connecting.source;
        let socket = connecting.socket.map_err(Failure::connecting)?;
        let stream = TcpStream::from_std(socket.into()).map_err(Failure::local)?;
        answer.unsent = false;
        let stream = match timeout_at(deadline, connected(stream)).await {
            Err(_elapsed) => return Err(Failure::of(Symptom::ConnectTimeout)),
            Ok(connected) => connected.map_err(Failure::connecting)?,
        };
        answer.connect = Some(clock::now().since(started));
        let connection = Connection::new(stream).await.map_err(|error| Failure::talking(&error))?;
        Ok(Link { connection, source: answer.source, target: as_in_events(target) })
    }

    async fn resolve(
        &self,
        answer: &mut Answer,
        started: MonoNs,
        deadline: Instant,
    ) -> Result<SocketAddr, Failure> {
        let found = match timeout_at(deadline, self.addressing.find()).await {
            Err(_elapsed) => Err(NameError::Unanswered),
            Ok(found) => found,
        };
        let took = clock::now().since(started);
        answer.resolution = Some(Resolution { took, failed: found.err() });
        answer.unsent = found.is_err();
        found.map_err(|_| Failure::of(Symptom::Local))
    }

    /// Sends the request and reads the whole answer. Leaves the connection in `answer` if it was complete.
    async fn exchange(
        &self,
        mut link: Link,
        answer: &mut Answer,
        deadline: Instant,
    ) -> Result<u16, Failure> {
        (answer.source, answer.target) = (link.source, Some(link.target));
        let mut progress = Progress::default();
        let ended = link.connection.exchange(self.request(), &mut progress, deadline).await;
        let Progress { status, received } = progress;
        answer.received = received;
        let head = match ended {
            Ok(head) => head,
            Err(broken) => {
                let failure = match broken {
                    Broken::Timeout => Failure::of(Symptom::ResponseTimeout),
                    Broken::Http(error) => Failure::talking(&error),
                };
                return Err(Failure { status, ..failure });
            }
        };
        answer.link = Some(link);
        answer.pod =
            head.get(POD_HEADER).and_then(|pod| pod.to_str().ok()).map(|pod| pod.to_owned());
        let status = status.expect("a complete answer has a status");
        if status >= 500 || !self.is_right_app(&head) {
            return Err(Failure { status: Some(status), ..Failure::of(Symptom::WrongAnswer) });
        }
        Ok(status)
    }

    fn is_right_app(&self, head: &HeaderMap) -> bool {
        self.app.as_ref().is_none_or(|app| head.get(APP_HEADER) == Some(app))
    }

    fn request(&self) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        if self.mode == Mode::Fresh {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        request
    }
}

impl Failure {
    fn of(symptom: Symptom) -> Failure {
        Failure { symptom, errno: None, status: None }
    }

    fn local(error: io::Error) -> Failure {
        Failure { errno: error.raw_os_error(), ..Failure::of(Symptom::Local) }
    }

    /// What socket(), connect() or SO_ERROR said before the connection was there.
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
            // hyper makes an incomplete message, or an UnexpectedEof inside a body, of an early FIN; and a
            // cancelled one of a connection that was closed before the request was written.
            None => Symptom::Closed,
        };
        Failure { errno, ..Failure::of(symptom) }
    }

    fn outcome(self) -> Outcome {
        Outcome::Failed { symptom: self.symptom, errno: self.errno, status: self.status }
    }
}
