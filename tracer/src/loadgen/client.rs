//! The client: workers that ask back to back and tell of each request's start and end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::header::HeaderValue;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::exchange::{Question, closed_by_server};
use crate::model::{Event, EventKind, MonoNs, RequestEnded, RequestId, RequestStarted, Reuse};
use crate::sys::clock;
use crate::sys::stop::Stop;

/// Pause of a worker whose request could not even be sent: no port, no descriptor, no route. Such errors come
/// back at once, without waiting for anything; asking again without a pause would be a tight loop in which no
/// other task of this thread ever runs.
const UNSENT_PAUSE: Duration = Duration::from_millis(10);

/// Events handed to the sink in one go.
const BATCH: usize = 256;

/// What the client does.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Whom to ask.
    pub target: SocketAddr,
    /// How many requests are under way at once.
    pub workers: u32,
    /// How long a request may take: connect and answer together.
    pub timeout: Duration,
    /// How long requests are started; without it, until asked to stop.
    pub duration: Option<Duration>,
    /// The app that must answer; without it, any may.
    pub app: Option<String>,
}

/// Why the client could not ask.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No runtime.
    #[error("cannot start the client")]
    Start(#[source] io::Error),
    /// The app's name can't stand in an HTTP header.
    #[error("no answer can name the app {name:?}: use visible ASCII")]
    Name {
        /// The name.
        name: String,
    },
}

/// Who closed the connections whose answer was complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closes {
    /// The server, as it should.
    pub server: u64,
    /// The client, because the server had not by the request's deadline.
    pub client: u64,
}

/// Asks until the duration is over or someone wants it to stop, then lets what is under way end (at most one
/// timeout). Tells `sink` of each request's start and end, with the time of each; two events may come a little
/// out of the order of their times.
///
/// Blocks, and makes every socket on the calling thread: in the network namespace that this thread is in.
/// `sink` is called on this thread, too: what it takes long for, the requests wait for.
pub fn run(
    settings: &ClientSettings,
    stop: &Stop,
    sink: &mut dyn FnMut(Event),
) -> Result<Closes, ClientError> {
    let app = match &settings.app {
        None => None,
        Some(name) => Some(
            HeaderValue::from_str(name).map_err(|_| ClientError::Name { name: name.clone() })?,
        ),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(ClientError::Start)?;
    runtime.block_on(async {
        let (events, mut inbox) = unbounded_channel();
        let run = Arc::new(Run {
            question: Question::new(settings.target, settings.timeout, app),
            stop: stop.clone(),
            // A time that the clock can't hold does not come.
            end: settings.duration.and_then(|duration| Instant::now().checked_add(duration)),
            next_id: AtomicU64::new(0),
        });
        let mut workers = JoinSet::new();
        for number in 0..settings.workers {
            workers.spawn(work(number, Arc::clone(&run), events.clone()));
        }
        drop(events);
        // Ends when the last worker has dropped its end of the channel.
        let mut batch = Vec::with_capacity(BATCH);
        while inbox.recv_many(&mut batch, BATCH).await > 0 {
            batch.drain(..).for_each(&mut *sink);
        }
        let mut closes = Closes::default();
        while let Some(worker) = workers.join_next().await {
            let of_worker = worker.expect("a worker neither panics nor is aborted");
            closes.server += of_worker.server;
            closes.client += of_worker.client;
        }
        Ok(closes)
    })
}

/// What the workers share.
struct Run {
    question: Question,
    stop: Stop,
    end: Option<Instant>,
    next_id: AtomicU64,
}

impl Run {
    fn is_over(&self) -> bool {
        self.stop.is_requested() || self.end.is_some_and(|end| Instant::now() >= end)
    }
}

/// One worker: one request after the other, each on a connection of its own.
async fn work(worker: u32, run: Arc<Run>, events: UnboundedSender<Event>) -> Closes {
    let mut closes = Closes::default();
    let question = &run.question;
    let target = question.target();
    while !run.is_over() {
        let id = RequestId(run.next_id.fetch_add(1, Ordering::Relaxed));
        let deadline = question.deadline();
        let started = clock::now();
        tell(&events, started, EventKind::RequestStarted(RequestStarted { id, worker }));
        let answer = question.ask(started, deadline).await;
        let ended = RequestEnded {
            id,
            source: answer.source,
            target: Some(target),
            reuse: Reuse::Fresh,
            outcome: answer.outcome,
            resolution: None,
            connect: answer.connect,
            received: 0,
            total: answer.ended.since(started),
            pod: answer.pod,
        };
        tell(&events, answer.ended, EventKind::RequestEnded(ended));
        if let Some(open) = answer.open {
            if closed_by_server(open, deadline).await {
                closes.server += 1;
            } else {
                closes.client += 1;
            }
        }
        if answer.unsent {
            sleep(UNSENT_PAUSE).await;
        }
    }
    closes
}

/// The receiver outlives the workers, so nothing is lost here.
fn tell(events: &UnboundedSender<Event>, time: MonoNs, kind: EventKind) {
    let _ = events.send(Event { time, kind });
}
