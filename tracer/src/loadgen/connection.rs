//! One connection of the client: a socket that is connected, and HTTP/1.1 on it for one request or more.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{HeaderMap, Request};
use hyper_util::rt::TokioIo;
use nix::errno::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::ports::Ports;

/// A connect that is under way.
pub(super) struct Connecting {
    /// The socket's own end, without scope and flow label; none if the kernel chose no port.
    pub(super) source: Option<SocketAddr>,
    /// The socket, or why nothing could be sent.
    pub(super) socket: io::Result<Socket>,
}

/// Makes a socket and calls connect(), from one of these ports if there are any. The source is known from then on, also if
/// the connect fails.
pub(super) fn connect(target: SocketAddr, ports: Option<&Ports>, nodelay: bool) -> Connecting {
    let socket = Socket::new(
        Domain::for_address(target),
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )
    .and_then(|socket| {
        if nodelay {
            socket.set_tcp_nodelay(true)?;
        }
        if let Some(ports) = ports {
            ports.bind(&socket, target)?;
        }
        Ok(socket)
    });
    let socket = match socket {
        Ok(socket) => socket,
        Err(error) => return Connecting { source: None, socket: Err(error) },
    };
    let connecting = match socket.connect(&SockAddr::from(target)) {
        Err(error) if error.raw_os_error() == Some(Errno::EINPROGRESS as i32) => Ok(()),
        other => other,
    };
    // Asked now, since a socket whose connect has failed and was closed can't be asked any more.
    let source = socket
        .local_addr()
        .ok()
        .and_then(|address| address.as_socket())
        // A socket that is bound and not connected has a port, and no address yet.
        .filter(|address| address.port() != 0 && !address.ip().is_unspecified())
        .map(as_in_events);
    Connecting { source, socket: connecting.map(|()| socket) }
}

/// Waits until a connect has succeeded or failed.
pub(super) async fn connected(stream: TcpStream) -> io::Result<TcpStream> {
    stream.writable().await?;
    match stream.take_error() {
        Ok(None) => Ok(stream),
        Ok(Some(error)) | Err(error) => Err(error),
    }
}

/// Without an IPv6 address's scope and flow label: packets, and so events, have neither.
pub(super) fn as_in_events(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}

/// HTTP/1.1 on a connected socket.
pub(super) struct Connection {
    /// Gone once no further request will be sent.
    sender: Option<SendRequest<Empty<Bytes>>>,
    http: http1::Connection<TokioIo<Counted>, Empty<Bytes>>,
    /// How the connection ended, once it has.
    over: Option<Result<(), hyper::Error>>,
    received: Arc<AtomicU64>,
    /// How many requests were sent on it.
    pub(super) carried: u32,
}

/// What an exchange had come to, also if it did not come to its end.
#[derive(Default)]
pub(super) struct Progress {
    /// The status, once it came.
    pub(super) status: Option<u16>,
    /// Bytes of the answer.
    pub(super) received: u64,
}

impl Connection {
    pub(super) async fn new(stream: TcpStream) -> Result<Connection, hyper::Error> {
        let received = Arc::new(AtomicU64::new(0));
        let counted = Counted { stream, received: Arc::clone(&received) };
        let (sender, http) = http1::handshake(TokioIo::new(counted)).await?;
        Ok(Connection { sender: Some(sender), http, over: None, received, carried: 0 })
    }

    /// Sends a request and reads the whole answer; its headers.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Empty<Bytes>>,
        progress: &mut Progress,
        deadline: Instant,
    ) -> Result<HeaderMap, Broken> {
        let before = self.received.load(Ordering::Relaxed);
        let ended = timeout_at(deadline, self.talk(request, &mut progress.status)).await;
        progress.received = self.received.load(Ordering::Relaxed) - before;
        match ended {
            Err(_elapsed) => Err(Broken::Timeout),
            Ok(result) => result.map_err(Broken::Http),
        }
    }

    async fn talk(
        &mut self,
        request: Request<Empty<Bytes>>,
        status: &mut Option<u16>,
    ) -> Result<HeaderMap, hyper::Error> {
        self.carried += 1;
        let Connection { sender, http, over, .. } = self;
        let sender = sender.as_mut().expect("a connection that is closing is given to nobody");
        let result = {
            let mut exchange = pin!(async {
                let (head, body) = sender.send_request(request).await?.into_parts();
                *status = Some(head.status.as_u16());
                drain(body).await?;
                Ok(head.headers)
            });
            // Each of the two waits for the other within one answer: asked in turn they are done in one go.
            poll_fn(|context| {
                if let Poll::Ready(result) = exchange.as_mut().poll(context) {
                    return Poll::Ready(result);
                }
                if over.is_none()
                    && let Poll::Ready(ended) = http.poll_without_shutdown(context)
                {
                    *over = Some(ended);
                }
                exchange.as_mut().poll(context)
            })
            .await
        };
        match result {
            Ok(headers) => Ok(headers),
            Err(error) => {
                // The half that saw the socket's error has its number.
                self.finish().await;
                match self.over.take() {
                    Some(Err(cause))
                        if errno_of(&error).is_none() && errno_of(&cause).is_some() =>
                    {
                        Err(cause)
                    }
                    _ => Err(error),
                }
            }
        }
    }

    /// Whether it can't be used any more, as far as this end knows: the server said so, or closed it.
    pub(super) async fn is_over(&mut self) -> bool {
        poll_fn(|context| {
            if self.over.is_none()
                && let Poll::Ready(ended) = self.http.poll_without_shutdown(context)
            {
                self.over = Some(ended);
            }
            Poll::Ready(self.over.is_some())
        })
        .await
    }

    /// Sends nothing more and waits until the server has closed, so that TIME_WAIT is on its side. False if
    /// it did not by the deadline (or left the connection unusable): this end closes then, as the first.
    pub(super) async fn closed_by_server(mut self, deadline: Instant) -> bool {
        if timeout_at(deadline, self.finish()).await.is_err() {
            return false;
        }
        match &self.over {
            Some(Err(error)) => errno_of(error) == Some(Errno::ECONNRESET as i32),
            _ => self.http.into_parts().io.into_inner().closed_by_peer(deadline).await,
        }
    }

    /// Ends HTTP without the client's FIN: without its sender it ends with the current answer, whatever the
    /// server would like.
    async fn finish(&mut self) {
        self.sender = None;
        let Connection { http, over, .. } = self;
        if over.is_none() {
            *over = Some(poll_fn(|context| http.poll_without_shutdown(context)).await);
        }
    }
}

/// Why an exchange did not come to its end.
pub(super) enum Broken {
    /// The deadline.
    Timeout,
    /// The connection, or what came on it.
    Http(hyper::Error),
}

/// Reads the body to its end and keeps nothing of it.
async fn drain(mut body: Incoming) -> Result<(), hyper::Error> {
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}

/// The number of the system call's error that an error of hyper comes from.
pub(super) fn errno_of(error: &hyper::Error) -> Option<i32> {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return io.raw_os_error();
        }
        source = cause.source();
    }
    None
}

/// A stream that counts what it receives.
struct Counted {
    stream: TcpStream,
    received: Arc<AtomicU64>,
}

impl Counted {
    async fn closed_by_peer(mut self, deadline: Instant) -> bool {
        let mut rest = [0; 512];
        loop {
            match timeout_at(deadline, self.stream.read(&mut rest)).await {
                Ok(Ok(0)) => return true,
                // More than the answer: of no use to anyone.
                Ok(Ok(_)) => {}
                // A RST closes as well, and it was not the client's.
                Ok(Err(error)) => return error.kind() == io::ErrorKind::ConnectionReset,
                Err(_elapsed) => return false,
            }
        }
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let count = buffer.filled().len() - before;
        self.received.fetch_add(count as u64, Ordering::Relaxed);
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
