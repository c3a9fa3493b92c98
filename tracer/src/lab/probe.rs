//! A readiness probe: HTTP GET, as the kubelet asks.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

/// Asks readiness, from the network namespace of the thread that made it.
#[derive(Debug)]
pub(crate) struct Probe {
    runtime: Runtime,
    pod: SocketAddr,
    timeout: Duration,
}

impl Probe {
    /// A probe of the pod at this address, with this long for an answer.
    pub(crate) fn new(pod: SocketAddr, timeout: Duration) -> io::Result<Probe> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Probe { runtime, pod, timeout })
    }

    /// Whether the pod answers that it is ready: with a status from 200 to 399 (the kubelet's rule). If not,
    /// what came instead.
    pub(crate) fn ask(&self) -> Result<(), String> {
        let answer = async { tokio::time::timeout(self.timeout, get(self.pod)).await };
        match self.runtime.block_on(answer) {
            Ok(Ok(status)) if (200..400).contains(&status) => Ok(()),
            Ok(Ok(status)) => Err(format!("status {status}")),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} s", self.timeout.as_secs_f64())),
        }
    }
}

async fn get(pod: SocketAddr) -> Result<u16, Box<dyn std::error::Error>> {
    let stream = TcpStream::connect(pod).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await?;
    let request = Request::get("/healthz")
        .header(header::HOST, pod.to_string())
        .header(header::CONNECTION, "close")
        .body(Empty::new())?;
    let answer = sender.send_request(request);
    tokio::pin!(answer, connection);
    // The connection does the work for the answer; it ends without an error once the answer is complete.
    tokio::select! {
        answer = &mut answer => Ok(answer?.status().as_u16()),
        ended = &mut connection => {
            ended?;
            Ok(answer.await?.status().as_u16())
        }
    }
}
