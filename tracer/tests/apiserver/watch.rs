//! Watches, which end when their client goes, when their time is up, or by a fault.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Shared;
use super::answer::failed;
use super::fault::Fault;
use super::objects::{self, Change, Kind};
use super::request::{Ask, Verb};
use super::serve::{Body, Response, head, status};

/// How often a watch that wants bookmarks gets one where nothing happens; the real server's minute would make
/// tests long.
const BOOKMARK: Duration = Duration::from_millis(500);

type Lines = mpsc::Sender<io::Result<Frame<Bytes>>>;

/// Why a watch is over.
enum Over {
    /// As if its time were up.
    Ended,
    /// The client went away.
    Left,
    /// Its connection is to break.
    Broken,
}

/// Starts a watch.
pub(super) fn start(shared: &Arc<Shared>, ask: Ask) -> Response {
    let Some(kind) = Kind::of_path(&ask.api_version, &ask.resource) else {
        return status(404, "NotFound", "the server could not find the requested resource");
    };
    // A status must be told before the stream begins; all other faults happen in it.
    let is_status = |fault: &Fault| matches!(fault, Fault::Status { .. });
    let at_once = shared.state().take_fault_if(Verb::Watch, &ask.resource, is_status);
    if let Some(Fault::Status { code, retry_after }) = at_once {
        return failed(code, retry_after);
    }
    let (lines, receiver) = mpsc::channel(16);
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        shared.state().open_watches += 1;
        let over = Watch { shared: &shared, ask: &ask, kind, lines: &lines }.run().await;
        shared.state().open_watches -= 1;
        if matches!(over, Over::Broken) {
            let _ = lines.send(Err(io::Error::other("the connection breaks"))).await;
        }
    });
    Ok(head(200)
        .header("transfer-encoding", "chunked")
        .body(streamed(receiver))
        .expect("an answer"))
}

fn streamed(mut receiver: mpsc::Receiver<io::Result<Frame<Bytes>>>) -> Body {
    let stream = futures_util::stream::poll_fn(move |context| receiver.poll_recv(context));
    StreamBody::new(stream).boxed_unsync()
}

struct Watch<'a> {
    shared: &'a Shared,
    ask: &'a Ask,
    kind: &'static Kind,
    lines: &'a Lines,
}

impl Watch<'_> {
    async fn run(&self) -> Over {
        let mut changed = self.shared.changed.subscribe();
        let end = self.ask.number("timeoutSeconds").map(Duration::from_secs);
        let end = Instant::now() + end.unwrap_or(Duration::from_secs(3600));
        let wants_bookmarks = self.ask.is_on("allowWatchBookmarks");
        let given = self.ask.query.get("resourceVersion").map_or("", String::as_str);
        let mut seen = given.parse::<u64>().unwrap_or(0);
        if seen == 0 || self.ask.is_on("sendInitialEvents") {
            match self.begin().await {
                Ok(version) => seen = version,
                Err(over) => return over,
            }
        }
        let mut bookmark = Instant::now() + BOOKMARK;
        loop {
            changed.mark_unchanged();
            let step = self.step(&mut seen).await;
            if let Some(over) = step {
                return over;
            }
            tokio::select! {
                turned = changed.changed() => if turned.is_err() { return Over::Ended },
                () = tokio::time::sleep_until(end) => return Over::Ended,
                () = tokio::time::sleep_until(bookmark), if wants_bookmarks => {
                    bookmark = Instant::now() + BOOKMARK;
                    if let Err(over) = self.bookmark(seen, false).await {
                        return over;
                    }
                }
                () = self.lines.closed() => return Over::Left,
            }
        }
    }

    /// All that is there, as if it had just been added.
    async fn begin(&self) -> Result<u64, Over> {
        let (there, version) = {
            let state = self.shared.state();
            let there = state.objects.all(self.kind.resource);
            let there: Vec<Value> =
                there.filter(|object| self.ask.wants(object)).cloned().collect();
            (there, state.objects.version())
        };
        for object in there {
            self.line(&json!({ "type": "ADDED", "object": object })).await?;
        }
        if self.ask.is_on("sendInitialEvents") {
            self.bookmark(version, true).await?;
        }
        Ok(version)
    }

    /// Sends what happened since, and lets happen what is due. Some, if it is over then.
    async fn step(&self, seen: &mut u64) -> Option<Over> {
        loop {
            let (next, fault) = {
                let mut state = self.shared.state();
                let next = match state.objects.since(*seen) {
                    None => Err(()),
                    Some(changes) => Ok(changes
                        .iter()
                        .find(|change| {
                            change.resource == self.kind.resource && self.ask.wants(&change.object)
                        })
                        .cloned()),
                };
                // Half a line needs a line, and a status is for the next request.
                let has_line = matches!(next, Ok(Some(_)));
                let fault =
                    state.take_fault_if(Verb::Watch, self.kind.resource, |fault| match fault {
                        Fault::HalfLine | Fault::HalfLineAndEnd => has_line,
                        Fault::Status { .. } => false,
                        _ => true,
                    });
                (next, fault)
            };
            if let Some(fault) = fault {
                return Some(self.break_by(fault, next.ok().flatten()).await);
            }
            let change = match next {
                Err(()) => return Some(self.gone().await),
                Ok(None) => return None,
                Ok(Some(change)) => change,
            };
            *seen = change.version;
            if let Err(over) = self.line(&line_of(&change)).await {
                return Some(over);
            }
        }
    }

    async fn break_by(&self, fault: Fault, next: Option<Change>) -> Over {
        match fault {
            Fault::Gone => self.gone().await,
            Fault::End => Over::Ended,
            Fault::Stall => {
                self.lines.closed().await;
                Over::Left
            }
            Fault::Garbage => match self.bytes(b"<html>502 Bad Gateway</html>\n".to_vec()).await {
                Ok(()) => Over::Ended,
                Err(over) => over,
            },
            Fault::HalfLine | Fault::HalfLineAndEnd => {
                let line = next.as_ref().map(|change| line_of(change).to_string());
                let line = line.unwrap_or_default().into_bytes();
                let half = line[..line.len() / 2].to_vec();
                match self.bytes(half).await {
                    Ok(()) if fault == Fault::HalfLineAndEnd => Over::Ended,
                    Ok(()) => Over::Broken,
                    Err(over) => over,
                }
            }
            Fault::Disconnect | Fault::Status { .. } => Over::Broken,
        }
    }

    async fn gone(&self) -> Over {
        let status = objects::status(410, "Expired", "too old resource version: 1 (2)");
        match self.line(&json!({ "type": "ERROR", "object": status })).await {
            Ok(()) => Over::Ended,
            Err(over) => over,
        }
    }

    async fn bookmark(&self, version: u64, is_initial_end: bool) -> Result<(), Over> {
        let mut object = json!({
            "kind": self.kind.kind,
            "apiVersion": self.kind.api_version,
            "metadata": { "resourceVersion": version.to_string(), "creationTimestamp": null },
        });
        if is_initial_end {
            object["metadata"]["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        self.line(&json!({ "type": "BOOKMARK", "object": object })).await
    }

    async fn line(&self, line: &Value) -> Result<(), Over> {
        self.bytes(format!("{line}\n").into_bytes()).await
    }

    async fn bytes(&self, bytes: Vec<u8>) -> Result<(), Over> {
        self.lines.send(Ok(Frame::data(bytes.into()))).await.map_err(|_| Over::Left)
    }
}

fn line_of(change: &Change) -> Value {
    json!({ "type": change.event, "object": change.object })
}

/// The first half of an answer, and then the connection breaks.
pub(super) async fn halved(response: hyper::Response<Body>) -> Response {
    let (head, body) = response.into_parts();
    let bytes = body.collect().await?.to_bytes();
    let (lines, receiver) = mpsc::channel(2);
    let half = bytes.slice(..bytes.len() / 2);
    let _ = lines.send(Ok(Frame::data(half))).await;
    let _ = lines.send(Err(io::Error::other("the connection breaks"))).await;
    Ok(hyper::Response::from_parts(head, streamed(receiver)))
}
