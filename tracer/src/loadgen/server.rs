//! The demo app of the pods. Every answer names its app and its pod, and the server is the one that closes:
//! after an answer with `Connection: close` its FIN leaves before the client's.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};

use super::{APP_HEADER, POD_HEADER};

/// Connections that may wait to be accepted. The kernel cuts it to `net.core.somaxconn` (4096 since 5.4).
const BACKLOG: u32 = 4096;

/// How long to wait before accepting again when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// How the demo app behaves.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The app's name: what may rightly answer for the Service.
    pub app: String,
    /// The pod's name.
    pub pod: String,
    /// How long each request takes; `/healthz` takes no time.
    pub delay: Duration,
    /// How long after its start it listens.
    pub start_delay: Duration,
    /// Whether connections stay open for more requests.
    pub keep_alive: bool,
    /// Whether the headers and the body of an answer are written separately, as simple servers do.
    pub two_writes: bool,
    /// Whether a small write goes out at once although an earlier one is not acknowledged (TCP_NODELAY).
    pub nodelay: bool,
    /// What SIGTERM does.
    pub on_sigterm: OnSigterm,
}

/// What SIGTERM does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnSigterm {
    /// The process exits at once; connections break off.
    Exit,
    /// It stops listening, answers what is in flight with `Connection: close`, closes idle connections, and
    /// exits when the last connection is over.
    Drain,
    /// Nothing is done about it. PID 1 of a PID namespace has no default action for signals
    /// (pid_namespaces(7)), so there it is lost; any other process is ended by it.
    Unhandled,
}

/// Why the demo app could not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// No runtime, no signal handler.
    #[error("cannot start the server")]
    Start(#[source] io::Error),
    /// The name can't stand in an HTTP header.
    #[error("the name {name:?} cannot be sent in an HTTP header: use visible ASCII")]
    Name {
        /// The name.
        name: String,
    },
    /// The address is taken, or not of this host, or the port is privileged.
    #[error("cannot listen on {listen}")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// Serves until SIGTERM, as the settings have it, or SIGINT, which ends it at once: connections break off
/// when the process exits.
///
/// The handlers are set before anything else: PID 1 of a PID namespace has no default action for signals
/// (pid_namespaces(7)), without a handler it would live on until SIGKILL.
///
/// `listening` is told the address once connections are taken.
pub fn run(
    settings: &ServerSettings,
    listening: &mut dyn FnMut(SocketAddr),
) -> Result<(), ServerError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ServerError::Start)?;
    runtime.block_on(async {
        let mut terminate = match settings.on_sigterm {
            OnSigterm::Unhandled => None,
            OnSigterm::Exit | OnSigterm::Drain => {
                Some(signal(SignalKind::terminate()).map_err(ServerError::Start)?)
            }
        };
        let mut interrupt = signal(SignalKind::interrupt()).map_err(ServerError::Start)?;
        let app = App::new(settings)?;
        let asked = async {
            match &mut terminate {
                Some(terminate) => terminate.recv().await,
                None => pending().await,
            };
        };
        tokio::select! {
            ended = start(settings, app, asked, listening) => ended,
            _ = interrupt.recv() => Ok(()),
        }
    })
}

/// Waits, listens, serves until it is asked to end.
async fn start(
    settings: &ServerSettings,
    app: App,
    asked: impl Future<Output = ()>,
    listening: &mut dyn FnMut(SocketAddr),
) -> Result<(), ServerError> {
    let mut asked = pin!(asked);
    if !settings.start_delay.is_zero() {
        tokio::select! {
            () = tokio::time::sleep(settings.start_delay) => {}
            () = &mut asked => return Ok(()),
        }
    }
    let listener = listen(settings.listen)
        .map_err(|source| ServerError::Listen { listen: settings.listen, source })?;
    listening(listener.local_addr().unwrap_or(settings.listen));
    let connections = serve(listener, app, asked).await;
    if settings.on_sigterm == OnSigterm::Drain {
        drain(connections).await;
    }
    Ok(())
}

/// Answers what is in flight, closes the connections, and waits until the last is over.
///
/// A request that has arrived is in flight although nobody has read it yet. hyper would close a connection like that
/// as an idle one, so each is read first: the runtime looks at the sockets, and lets the connections go on that can,
/// before this goes on.
pub(super) async fn drain(connections: GracefulShutdown) {
    for _ in 0..LOOKS {
        tokio::task::yield_now().await;
    }
    connections.shutdown().await;
}

/// How often the runtime looks at the sockets until each that was readable at first has been read: once to find them,
/// once more for the connections to run, and once because this one runs before them.
const LOOKS: u32 = 3;

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // The server closes first, so its port is full of TIME_WAIT when it is started again.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts and answers until it is asked to end, and has closed the listener then; the connections go on.
pub(super) async fn serve(
    listener: TcpListener,
    app: App,
    asked: impl Future<Output = ()>,
) -> GracefulShutdown {
    let connections = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    http.keep_alive(app.keep_alive).timer(TokioTimer::new());
    let mut asked = pin!(asked);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut asked => return connections,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            // Either this connection is gone already (ECONNABORTED), or there is no descriptor or memory
            // for it: it stays in the queue, and asking again at once would be a tight loop.
            Err(error) => {
                log::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if app.nodelay {
            // Fails only where the connection is gone already; the read that follows says so.
            let _ = stream.set_nodelay(true);
        }
        let app = app.clone();
        let service = service_fn(move |request| {
            let app = app.clone();
            async move { Ok::<_, Infallible>(app.answer(request).await) }
        });
        let connection = connections.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                log::debug!("connection ended: {error}");
            }
        });
    }
}

/// What answers: names and delay, ready to be sent.
#[derive(Clone)]
pub(super) struct App {
    app: HeaderValue,
    pod: HeaderValue,
    body: Bytes,
    delay: Duration,
    keep_alive: bool,
    two_writes: bool,
    nodelay: bool,
}

impl App {
    pub(super) fn new(settings: &ServerSettings) -> Result<App, ServerError> {
        let header = |name: &str| {
            HeaderValue::from_str(name).map_err(|_| ServerError::Name { name: name.to_owned() })
        };
        let names = serde_json::json!({ "app": settings.app, "pod": settings.pod });
        Ok(App {
            app: header(&settings.app)?,
            pod: header(&settings.pod)?,
            body: Bytes::from(format!("{names}\n")),
            delay: settings.delay,
            keep_alive: settings.keep_alive,
            two_writes: settings.two_writes,
            nodelay: settings.nodelay,
        })
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if request.uri().path() != "/healthz" && !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        let mut response =
            Response::new(Body { bytes: Some(self.body.clone()), apart: self.two_writes });
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(HeaderName::from_static(APP_HEADER), self.app.clone());
        headers.insert(HeaderName::from_static(POD_HEADER), self.pod.clone());
        response
    }
}

/// The body of an answer.
struct Body {
    bytes: Option<Bytes>,
    /// Whether it comes only once the headers have been written: what is there at once goes with them.
    apart: bool,
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if std::mem::take(&mut self.apart) {
            // hyper writes what it has before it waits.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
