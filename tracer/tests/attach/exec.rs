//! Exec through a WebSocket, as the API server and the kubelet have it (v5.channel.k8s.io: the first byte of a message
//! is its channel; 0, 1, 2 are the standard streams, 3 is the end as a Status, 255 closes one).

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use futures_util::{SinkExt, StreamExt};
use hyper::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::apiserver::{Handled, Request, empty, status};
use crate::kubelet::{Kubelet, Wire};

/// Answers an exec in a pod of this kubelet.
pub(crate) fn answer(kubelet: &Arc<Kubelet>, pod: &str, mut request: Request) -> Handled {
    let command = command(request.uri().query().unwrap_or_default());
    let Some(folder) = kubelet.folder(pod) else {
        return Handled::Answer(status(404, "NotFound", &format!("pods \"{pod}\" not found")));
    };
    let Some(key) = request.headers().get(SEC_WEBSOCKET_KEY).cloned() else {
        return Handled::Answer(status(400, "BadRequest", "you must specify an upgrade"));
    };
    let upgraded = hyper::upgrade::on(&mut request);
    let wire = kubelet.wire();
    let kubelet = Arc::clone(kubelet);
    tokio::spawn(async move {
        if let Ok(upgraded) = upgraded.await {
            let stream = TokioIo::new(upgraded);
            let socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
            let child = start(&command, &folder);
            kubelet.followed_by(&child);
            serve(socket, child, wire).await;
        }
    });
    let mut response = empty(101);
    let headers = response.headers_mut();
    headers.insert(CONNECTION, "Upgrade".parse().expect("a value"));
    headers.insert(UPGRADE, "websocket".parse().expect("a value"));
    let accept = derive_accept_key(key.as_bytes());
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept.parse().expect("a value"));
    headers.insert(SEC_WEBSOCKET_PROTOCOL, "v5.channel.k8s.io".parse().expect("a value"));
    Handled::Answer(Ok(response))
}

/// The words of the command, in order.
fn command(query: &str) -> Vec<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let words = pairs.filter(|(key, _)| *key == "command").map(|(_, word)| word);
    words.map(|word| word.replace("%2F", "/")).collect()
}

/// The image's program is the one under test, and the pod's folder is one here.
pub(crate) fn start(command: &[String], folder: &Path) -> Child {
    assert_eq!(command[0], "/usr/bin/tracer", "the image has no other program");
    let arguments = command[1..].iter();
    let arguments = arguments.map(|word| match word.as_str() {
        "/trace" => folder.as_os_str().to_owned(),
        word => word.into(),
    });
    Command::new(env!("CARGO_BIN_EXE_tracer"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

enum Piece {
    Bytes(u8, Vec<u8>),
    Closed,
}

fn pump(mut from: impl Read + Send + 'static, channel: u8, to: mpsc::Sender<Piece>) {
    thread::spawn(move || {
        let mut chunk = vec![0; 32 * 1024];
        while let Ok(count @ 1..) = from.read(&mut chunk) {
            if to.blocking_send(Piece::Bytes(channel, chunk[..count].to_vec())).is_err() {
                return;
            }
        }
        let _ = to.blocking_send(Piece::Closed);
    });
}

type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

async fn serve(mut socket: Socket, mut child: Child, mut wire: Wire) {
    let (pieces_in, mut pieces) = mpsc::channel(4);
    pump(child.stdout.take().expect("it is piped"), 1, pieces_in.clone());
    pump(child.stderr.take().expect("it is piped"), 2, pieces_in);
    let mut stdin = child.stdin.take();
    let mut closed = 0;
    while closed < 2 {
        tokio::select! {
            piece = pieces.recv() => match piece {
                Some(Piece::Bytes(channel, bytes)) => {
                    if wire.is_silent() {
                        continue;
                    }
                    let passed = if channel == 1 { wire.pass(bytes.len()) } else { bytes.len() };
                    let mut message = vec![channel];
                    message.extend(&bytes[..passed]);
                    if socket.send(Message::binary(message)).await.is_err() || passed < bytes.len() {
                        // The connection breaks; the program's standard input ends, as it does then.
                        drop(stdin.take());
                        let _ = child.wait();
                        return;
                    }
                }
                _ => closed += 1,
            },
            message = socket.next() => match message {
                Some(Ok(Message::Binary(bytes))) if bytes.first() == Some(&0) => {
                    if let Some(stdin) = &mut stdin {
                        let _ = stdin.write_all(&bytes[1..]).and_then(|()| stdin.flush());
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => {
                    drop(stdin.take());
                    let _ = child.wait();
                    return;
                }
                Some(Ok(_)) => {}
            },
        }
    }
    let code = child.wait().expect("it can be waited for").code();
    let end = match code {
        Some(0) => json!({ "metadata": {}, "status": "Success" }),
        code => json!({
            "metadata": {},
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: {code:?}"),
        }),
    };
    let mut message = vec![3];
    message.extend(end.to_string().bytes());
    let _ = socket.send(Message::binary(message)).await;
    let _ = socket.close(None).await;
}
