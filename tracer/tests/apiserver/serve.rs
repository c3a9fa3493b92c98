//! Connections, and who answers a request.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch as notice;
use tokio_rustls::TlsAcceptor;

use super::request::Ask;
use super::{Shared, answer, objects};

/// A request as hyper has it.
pub(crate) type Request = hyper::Request<Incoming>;
/// What an answer consists of.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;
/// An answer. An error breaks the connection.
pub(crate) type Response = io::Result<hyper::Response<Body>>;

/// What a handler makes of a request: an answer, or the request again for whoever comes next.
pub(crate) enum Handled {
    /// It answered.
    Answer(Response),
    /// It is not for this handler.
    Pass(Request),
}

/// Answers requests before the server does; upgrades (`hyper::upgrade::on`) are possible. It is asked after the
/// token and the rights were looked at.
pub(crate) type Handler = Arc<
    dyn Fn(Arc<Shared>, Ask, Request) -> Pin<Box<dyn Future<Output = Handled> + Send>>
        + Send
        + Sync,
>;

/// Serves until it is told to stop.
pub(super) fn run(
    shared: &Arc<Shared>,
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    mut stopped: notice::Receiver<bool>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime for the API server");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).expect("the runtime's listener");
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let Ok((stream, _)) = accepted else { continue };
                    let _ = stream.set_nodelay(true);
                    tokio::spawn(connection(Arc::clone(shared), stream, acceptor.clone()));
                }
                _ = stopped.wait_for(|stop| *stop) => return,
            }
        }
    });
}

async fn connection(
    shared: Arc<Shared>,
    stream: tokio::net::TcpStream,
    acceptor: Option<TlsAcceptor>,
) {
    match acceptor {
        None => serve(shared, stream).await,
        Some(acceptor) => {
            // Whoever does not believe the certificate ends here.
            if let Ok(stream) = acceptor.accept(stream).await {
                serve(shared, stream).await;
            }
        }
    }
}

async fn serve(shared: Arc<Shared>, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let service = service_fn(move |request| respond(Arc::clone(&shared), request));
    let connection = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    // A client that goes away is none of the server's troubles, and a fault breaks it on purpose.
    let _ = connection.await;
}

async fn respond(shared: Arc<Shared>, mut request: Request) -> Response {
    if let Some(token) = &shared.token {
        let given = request.headers().get(AUTHORIZATION).and_then(|given| given.to_str().ok());
        if given != Some(format!("Bearer {token}").as_str()) {
            return status(401, "Unauthorized", "Unauthorized");
        }
    }
    let path = request.uri().path();
    if path == "/version" {
        let version = serde_json::json!({
            "major": "1", "minor": "36", "gitVersion": "v1.36.2", "platform": "linux/amd64",
        });
        return full(200, &version);
    }
    let Some(ask) = Ask::read(request.method(), path, request.uri().query()) else {
        return status(404, "NotFound", "the server could not find the requested resource");
    };
    shared.state().asked.push(ask.clone());
    if let Some(refused) = answer::refusal(&shared, &ask) {
        return refused;
    }
    for handler in shared.handlers.clone() {
        match handler(Arc::clone(&shared), ask.clone(), request).await {
            Handled::Answer(response) => return response,
            Handled::Pass(passed) => request = passed,
        }
    }
    answer::answer(&shared, ask, request).await
}

/// The JSON that a request brought; null if it brought none.
pub(super) async fn json_of(request: Request) -> Value {
    let bytes = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or(Value::Null)
}

/// An answer with a whole JSON body.
pub(crate) fn full(code: u16, body: &Value) -> Response {
    let body = Full::new(Bytes::from(body.to_string())).map_err(never).boxed_unsync();
    Ok(head(code).body(body).expect("a valid answer"))
}

/// An answer without a body.
pub(crate) fn empty(code: u16) -> hyper::Response<Body> {
    let body = Full::new(Bytes::new()).map_err(never).boxed_unsync();
    hyper::Response::builder().status(code).body(body).expect("a valid answer")
}

/// An error, told as the API does.
pub(crate) fn status(code: u16, reason: &str, message: &str) -> Response {
    full(code, &objects::status(code, reason, message))
}

pub(super) fn head(code: u16) -> hyper::http::response::Builder {
    let code = StatusCode::from_u16(code).expect("an HTTP status");
    hyper::Response::builder().status(code).header(CONTENT_TYPE, "application/json")
}

fn never(never: Infallible) -> io::Error {
    match never {}
}
