//! What continuous tracing answers to those who ask over HTTP: `/metrics`, `/healthz`, `/readyz`, and nothing else.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::metrics::{MEDIA_TYPE, Metrics};
use crate::model::MonoNs;
use crate::sys::clock;

/// A loop that has not come round for so long hangs.
const HANGS: Duration = Duration::from_secs(30);
/// Connections at a time. A scraper needs one.
const MOST: usize = 32;
/// A connection that has not sent its request in this time is closed.
const PATIENCE: Duration = Duration::from_secs(10);

/// How it goes.
#[derive(Debug, Default)]
pub(super) struct Health {
    beat: AtomicU64,
    ready: AtomicBool,
}

impl Health {
    /// The loop came round.
    pub(super) fn beat(&self, now: MonoNs) {
        self.beat.store(now.0, Ordering::Relaxed);
    }

    /// The programs are attached, and the cluster is known.
    pub(super) fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    fn is_well(&self, now: MonoNs) -> bool {
        now.since(MonoNs(self.beat.load(Ordering::Relaxed))) < HANGS
    }
}

/// Listens there, and answers on a thread of its own for as long as the process lives. The address is the one that it
/// listens on, also where the port was left to the kernel.
///
/// # Errors
/// If nothing can listen there.
pub(super) fn serve(
    listen: SocketAddr,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
) -> anyhow::Result<SocketAddr> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the HTTP server")?;
    let listener = runtime
        .block_on(TcpListener::bind(listen))
        .with_context(|| format!("cannot listen on {listen}"))?;
    let address = listener.local_addr().context("asking where it listens")?;
    thread::Builder::new()
        .name("http".to_owned())
        .spawn(move || runtime.block_on(accept(listener, metrics, health)))
        .context("starting the HTTP server's thread")?;
    Ok(address)
}

async fn accept(listener: TcpListener, metrics: Arc<Metrics>, health: Arc<Health>) {
    let places = Arc::new(Semaphore::new(MOST));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor left, perhaps: some will be given back.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (metrics, health) = (Arc::clone(&metrics), Arc::clone(&health));
        tokio::spawn(async move {
            let answer = service_fn(|request: Request<Incoming>| {
                let answer = answer(request.method(), request.uri().path(), &metrics, &health);
                async move { Ok::<_, Infallible>(answer) }
            });
            // How a connection ends is its client's business.
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), answer)
                .await;
            drop(place);
        });
    }
}

fn answer(
    method: &Method,
    path: &str,
    metrics: &Metrics,
    health: &Health,
) -> Response<Full<Bytes>> {
    let plain = |status, text: &str| with(status, "text/plain; charset=utf-8", text.to_owned());
    if method != Method::GET && method != Method::HEAD {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    let well = health.is_well(clock::now());
    match path {
        "/metrics" => with(StatusCode::OK, MEDIA_TYPE, metrics.text()),
        "/healthz" if well => plain(StatusCode::OK, "ok\n"),
        "/healthz" => plain(StatusCode::SERVICE_UNAVAILABLE, "the tracing loop hangs\n"),
        "/readyz" if well && health.ready.load(Ordering::Relaxed) => plain(StatusCode::OK, "ok\n"),
        "/readyz" => plain(StatusCode::SERVICE_UNAVAILABLE, "not tracing yet\n"),
        _ => plain(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz\n"),
    }
}

fn with(status: StatusCode, media_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, media_type.parse().expect("it is a constant"));
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    fn ask(address: SocketAddr, request: &str) -> (String, String) {
        let mut stream = TcpStream::connect(address).expect("it listens");
        write!(stream, "{request} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.lines().next().expect("a status").to_owned(), body.to_owned())
    }

    #[test]
    fn it_says_how_it_goes() {
        let (metrics, health) = (Arc::new(Metrics::new()), Arc::new(Health::default()));
        let any = "127.0.0.1:0".parse().expect("an address");
        let address = serve(any, Arc::clone(&metrics), Arc::clone(&health)).expect("a port");
        health.beat(clock::now());
        let (status, body) = ask(address, "GET /readyz");
        assert_eq!(
            (status.as_str(), body.as_str()),
            ("HTTP/1.1 503 Service Unavailable", "not tracing yet\n")
        );
        assert_eq!(ask(address, "GET /healthz").0, "HTTP/1.1 200 OK");
        health.set_ready(true);
        assert_eq!(ask(address, "GET /readyz").0, "HTTP/1.1 200 OK");
        health.beat(clock::now() - HANGS);
        assert_eq!(ask(address, "GET /healthz").1, "the tracing loop hangs\n");
        metrics.state(4_096, 1);
        let (status, body) = ask(address, "GET /metrics");
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert!(body.contains("\ntracer_buffer_bytes 4096\n"), "{body}");
        assert!(body.contains("\ntracer_rollouts_open 1\n"), "{body}");
        assert!(body.ends_with("# EOF\n"), "{body}");
        assert_eq!(ask(address, "GET /").0, "HTTP/1.1 404 Not Found");
        assert_eq!(ask(address, "POST /metrics").0, "HTTP/1.1 405 Method Not Allowed");
    }

    #[test]
    fn an_address_that_is_taken_is_one_line() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = taken.local_addr().expect("it has one");
        let error =
            serve(address, Arc::new(Metrics::new()), Arc::default()).expect_err("it is taken");
        let error = format!("{error:#}");
        assert!(error.starts_with(&format!("cannot listen on {address}: ")), "{error}");
    }
}
