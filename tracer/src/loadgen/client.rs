//! The client: workers that ask back to back and tell of each request's start and end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::header::HeaderValue;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep};

use super::exchange::{Answer, Link, Question};
use super::names::{Resolver, ResolverError};
use super::ports::{OwnPorts, Ports};
use super::target::Addressing;
use super::{Mode, Resolve, Target};
use crate::model::{Event, EventKind, MonoNs, RequestEnded, RequestId, RequestStarted, Symptom};
use crate::sys::clock;
use crate::sys::stop::Stop;

/// Pause of a worker whose request could not even be sent: no port, no descriptor, no route. Such errors come
/// back at once, without waiting for anything; asking again without a pause would be a tight loop in which no
/// other task of this thread ever runs.
const PAUSE: Duration = Duration::from_millis(10);

/// From this many requests in a row that ended at once without an answer a worker pauses as well. Below it a
/// refusal is what it would be to any client that asks back to back: a few of them in a rollout are the very
/// thing to be seen. Above it nobody is there, and the worker would only ask tens of thousands of times a second.
const TURNED_AWAY: u32 = 20;

/// From one worker's first request to the next one's, at most. Workers that begin at the same moment keep step for as
/// long as the server takes equally long for each: then all of them are idle, or none is, when a pod goes.
const APART: Duration = Duration::from_millis(5);

/// By then the last worker has begun.
const ALL_BEGUN: Duration = Duration::from_millis(100);

/// Events handed to the sink in one go.
const BATCH: usize = 256;

/// What the client does.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Whom to ask.
    pub target: Target,
    /// Whose connection a request uses.
    pub mode: Mode,
    /// How many requests are under way at once.
    pub workers: u32,
    /// How long a request may take: name, connect and answer together.
    pub timeout: Duration,
    /// How long requests are started; without it, until asked to stop.
    pub duration: Option<Duration>,
    /// The app that must answer; without it, any may.
    pub app: Option<String>,
    /// Whether small writes go out at once although an earlier one is not acknowledged (TCP_NODELAY).
    pub nodelay: bool,
    /// When the target's name is resolved.
    pub resolve: Resolve,
    /// The DNS server to ask; without it, as the system is configured.
    pub resolver: Option<SocketAddr>,
    /// Source ports that some workers choose themselves; without it, the kernel chooses all.
    pub ports: Option<OwnPorts>,
}

impl ClientSettings {
    /// Ten workers that ask anyone there until they are stopped, each request on a new connection and with
    /// 3 s of patience.
    pub fn new(target: impl Into<Target>) -> ClientSettings {
        ClientSettings {
            target: target.into(),
            mode: Mode::Fresh,
            workers: 10,
            timeout: Duration::from_secs(3),
            duration: None,
            app: None,
            nodelay: false,
            resolve: Resolve::Each,
            resolver: None,
            ports: None,
        }
    }
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
    /// The system's resolver configuration.
    #[error("cannot resolve names; give --resolver")]
    Resolver(#[from] ResolverError),
}

/// Who closed the connections whose last answer was complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closes {
    /// The server, as it should.
    pub server: u64,
    /// The client, because the server had not by the request's deadline, or because the run was over.
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
    let question = question(settings)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(ClientError::Start)?;
    runtime.block_on(async {
        let (events, mut inbox) = unbounded_channel();
        let run = Arc::new(Run {
            question,
            ports: settings.ports.clone().map(Ports::new),
            stop: stop.clone(),
            // A time that the clock can't hold does not come.
            end: settings.duration.and_then(|duration| Instant::now().checked_add(duration)),
            next_id: AtomicU64::new(0),
            apart: APART.min(ALL_BEGUN / settings.workers.max(1)),
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

fn question(settings: &ClientSettings) -> Result<Question, ClientError> {
    let app = match &settings.app {
        None => None,
        Some(name) => Some(
            HeaderValue::from_str(name).map_err(|_| ClientError::Name { name: name.clone() })?,
        ),
    };
    let host = HeaderValue::from_str(&settings.target.to_string())
        .map_err(|_| ClientError::Name { name: settings.target.to_string() })?;
    let addressing = match (&settings.target, settings.resolver) {
        (Target::Address(address), _) => Addressing::Known(*address),
        (target, Some(server)) => Addressing::new(target, settings.resolve, Resolver::at(server)),
        (target, None) => Addressing::new(target, settings.resolve, Resolver::system()?),
    };
    let ClientSettings { mode, nodelay, timeout, .. } = *settings;
    Ok(Question { addressing, host, mode, nodelay, timeout, app })
}

/// What the workers share.
struct Run {
    question: Question,
    ports: Option<Ports>,
    stop: Stop,
    end: Option<Instant>,
    next_id: AtomicU64,
    /// From one worker's beginning to the next one's.
    apart: Duration,
}

impl Run {
    fn is_over(&self) -> bool {
        self.stop.is_requested() || self.end.is_some_and(|end| Instant::now() >= end)
    }
}

/// One worker: one request after the other, each on a connection of its own or on the one that is there.
async fn work(worker: u32, run: Arc<Run>, events: UnboundedSender<Event>) -> Closes {
    let mut closes = Closes::default();
    let question = &run.question;
    sleep(run.apart * worker).await;
    let mut link: Option<Link> = None;
    let mut deadline = question.deadline();
    let mut turned_away = 0;
    let ports = run.ports.as_ref().filter(|ports| ports.are_of(worker));
    while !run.is_over() {
        if ports.is_some_and(Ports::are_used_up) {
            log::warn!(
                "worker {worker} asks no more: the source ports that it may use once are used up"
            );
            break;
        }
        if let Some(idle) = &mut link {
            // Lets the reactor look at the socket: clients do not send where they see that it is closed.
            yield_now().await;
            if idle.connection.is_over().await {
                close(link.take(), deadline, &mut closes).await;
            }
        }
        let id = RequestId(run.next_id.fetch_add(1, Ordering::Relaxed));
        deadline = question.deadline();
        let started = clock::now();
        tell(&events, started, EventKind::RequestStarted(RequestStarted { id, worker }));
        let mut answer = question.ask(link.take(), ports, started, deadline).await;
        let (unsent, left) = (answer.unsent, answer.link.take());
        turned_away = if is_turned_away(&answer) { turned_away + 1 } else { 0 };
        let ended = ended(id, started, answer);
        tell(&events, started + ended.total, EventKind::RequestEnded(ended));
        match question.mode {
            Mode::Fresh => close(left, deadline, &mut closes).await,
            Mode::ClosesFirst => closes.client += u64::from(left.is_some()),
            Mode::KeepAlive => link = left,
        }
        if unsent || turned_away >= TURNED_AWAY {
            sleep(PAUSE).await;
        }
    }
    if let Some(mut idle) = link {
        match idle.connection.is_over().await {
            true => close(Some(idle), deadline, &mut closes).await,
            false => closes.client += 1,
        }
    }
    closes
}

/// Whether the network or the server's machine said no to the connect: an answer that takes no time.
fn is_turned_away(answer: &Answer) -> bool {
    matches!(answer.outcome.symptom(), Some(Symptom::Refused | Symptom::Unreachable))
}

/// Waits for the server to close, and counts who did.
async fn close(link: Option<Link>, deadline: Instant, closes: &mut Closes) {
    let Some(link) = link else { return };
    if link.connection.closed_by_server(deadline).await {
        closes.server += 1;
    } else {
        closes.client += 1;
    }
}

fn ended(id: RequestId, started: MonoNs, answer: Answer) -> RequestEnded {
    RequestEnded {
        id,
        source: answer.source,
        target: answer.target,
        reuse: answer.reuse,
        outcome: answer.outcome,
        resolution: answer.resolution,
        connect: answer.connect,
        received: answer.received,
        total: answer.ended.since(started),
        pod: answer.pod,
    }
}

/// The receiver outlives the workers, so nothing is lost here.
fn tell(events: &UnboundedSender<Event>, time: MonoNs, kind: EventKind) {
    let _ = events.send(Event { time, kind });
}
