//! The thread that watches: one kube watcher for each kind, their lists first, then changes as they come.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use futures_util::StreamExt;
use hyper::Request;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::client::Body;
use kube::runtime::watcher::{self, Event as Watched, watcher};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::api::{self, causes};
use super::changes::{Changes, Kind, Moment, Source, lost};
use super::clock::ApiClock;
use super::{Begun, ClusterError, First, PodNames, Scope, Settings, Update};
use crate::model::MonoNs;
use crate::sys::clock;
use crate::sys::netns;
use crate::sys::stop::Stop;

/// The first pause after an error; it doubles with each that follows.
const PAUSE: Duration = Duration::from_millis(200);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The pause after a refusal: rights may be given later.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);
/// How often the server's clock is asked at the beginning: spread over a second, so that its seconds turn in between.
const CLOCK_LOOKS: u32 = 6;
const CLOCK_EVERY: Duration = Duration::from_millis(190);
/// How often wishes to stop are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// What the thread needs.
pub(super) struct Watching {
    pub(super) settings: Settings,
    pub(super) updates: SyncSender<Update>,
    pub(super) stop: Vec<Stop>,
    pub(super) names: Arc<PodNames>,
}

/// What one kind's watcher says.
enum Step {
    Begins,
    State {
        object: Box<Value>,
        deleted: bool,
    },
    Listed,
    /// Something went wrong, and is tried again.
    Trouble(String),
    /// The account may not.
    Forbidden {
        said: String,
        narrower: Option<String>,
    },
    Unauthorized,
}

struct Said {
    source: Source,
    step: Step,
    arrived: MonoNs,
}

/// Where a kind stands.
#[derive(Debug, Default)]
struct Standing {
    is_listed: bool,
    is_refused: bool,
    /// The last time that its watch was known to be whole.
    last_good: MonoNs,
    /// The last trouble, if nothing came since.
    trouble: Option<MonoNs>,
    is_relisting: bool,
}

impl Watching {
    pub(super) fn run(self, begun: SyncSender<Begun>) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = begun.send(Err(ClusterError::Start(error)));
                return;
            }
        };
        runtime.block_on(async {
            let Watching { settings, updates, stop, names } = self;
            let handle = tokio::runtime::Handle::current();
            match connect(&settings).await {
                Err(error) => _ = begun.send(Err(error)),
                Ok((client, clock)) => {
                    let watch = Watch {
                        settings,
                        updates,
                        client,
                        clock,
                        names,
                        standing: BTreeMap::new(),
                        notes: Vec::new(),
                    };
                    watch.run(begun, handle, stop).await;
                }
            }
        });
        // What was spawned beside (a verdict's Event on its way) has a moment to end.
        runtime.shutdown_timeout(Duration::from_secs(2));
    }
}

/// Reaches the API server, and learns what its clock says.
async fn connect(settings: &Settings) -> Result<(Client, Arc<ApiClock>), ClusterError> {
    let (client, clock, url) = api::client(&settings.access).await?;
    for look in 0..CLOCK_LOOKS {
        if look > 0 {
            sleep(CLOCK_EVERY).await;
        }
        let request = Request::get("/version").body(Body::empty()).expect("a constant request");
        let unreachable = |why| ClusterError::Unreachable { url: url.clone(), why };
        let answer = timeout(settings.patience, client.send(request)).await.map_err(|_| {
            unreachable(format!("no answer within {} s", settings.patience.as_secs_f64()))
        })?;
        match answer {
            Ok(answer) if answer.status().as_u16() == 401 => {
                return Err(ClusterError::Unauthorized);
            }
            Ok(_) => {}
            Err(error) if look == 0 => return Err(unreachable(causes(&error))),
            Err(_) => {}
        }
    }
    Ok((client, clock))
}

struct Watch {
    settings: Settings,
    updates: SyncSender<Update>,
    client: Client,
    clock: Arc<ApiClock>,
    names: Arc<PodNames>,
    standing: BTreeMap<Source, Standing>,
    notes: Vec<String>,
}

impl Watch {
    async fn run(
        mut self,
        begun: SyncSender<Begun>,
        runtime: tokio::runtime::Handle,
        stop: Vec<Stop>,
    ) {
        let mut changes =
            Changes::new(self.settings.scope.clone(), netns::addresses(), Arc::clone(&self.names));
        let (said_in, mut said) = mpsc::channel(256);
        for kind in Kind::ALL {
            for place in self.places(kind) {
                self.standing.insert(place.source, Standing::default());
                tokio::spawn(place.watch(self.settings.clone(), said_in.clone()));
            }
        }
        drop(said_in);
        let first = tokio::select! {
            first = self.first(&mut said, &mut changes) => first,
            () = stopped(&stop) => Err(ClusterError::Stopped),
        };
        let is_begun = first.is_ok();
        let answer = first.map(|first| (first, self.client.clone(), runtime));
        if begun.send(answer).is_err() || !is_begun {
            return;
        }
        loop {
            tokio::select! {
                next = said.recv() => match next {
                    Some(said) => {
                        let updates = self.live(&mut changes, said);
                        if !self.pass_on(updates).await {
                            return;
                        }
                    }
                    None => break,
                },
                () = stopped(&stop) => break,
            }
        }
        let updates = self.at_the_end();
        self.pass_on(updates).await;
    }

    /// Where a kind is watched, each place with what is narrower if it is refused.
    fn places(&self, kind: Kind) -> Vec<Place> {
        let place = |place, namespaces: Vec<Option<String>>, selector: watcher::Config| Place {
            source: Source { kind, place },
            namespaces,
            selector,
            client: self.client.clone(),
        };
        let plain = watcher::Config::default();
        match &self.settings.scope {
            Scope::Service { namespace, name } => {
                let within = vec![Some(namespace.clone())];
                vec![match kind {
                    Kind::Service => {
                        place(0, within, plain.fields(&format!("metadata.name={name}")))
                    }
                    Kind::EndpointSlice => {
                        let label = format!("kubernetes.io/service-name={name}");
                        place(0, within, plain.labels(&label))
                    }
                    // The address of a dead pod may come to a pod of any namespace.
                    Kind::Pod => place(0, vec![None, Some(namespace.clone())], plain),
                    Kind::ReplicaSet | Kind::Deployment => place(0, within, plain),
                }]
            }
            Scope::Namespaces(namespaces) if namespaces.is_empty() => {
                vec![place(0, vec![None], plain)]
            }
            Scope::Namespaces(namespaces) => {
                let all = namespaces.iter().enumerate();
                all.map(|(nth, namespace)| place(nth, vec![Some(namespace.clone())], plain.clone()))
                    .collect()
            }
        }
    }

    fn moment(&self, arrived: MonoNs) -> Moment {
        Moment { arrived, anchor: clock::anchor(), bounds: self.clock.bounds() }
    }

    /// Waits for the first list of each kind, and reads them in their order.
    async fn first(
        &mut self,
        said: &mut mpsc::Receiver<Said>,
        changes: &mut Changes,
    ) -> Result<First, ClusterError> {
        let mut there: BTreeMap<Source, Vec<(Value, MonoNs)>> = BTreeMap::new();
        while !self.standing.values().all(|standing| standing.is_listed || standing.is_refused) {
            let Some(Said { source, step, arrived }) = said.recv().await else { break };
            let kind = source.kind;
            let standing = self.standing.entry(source).or_default();
            match step {
                // A list that was given up shows nothing.
                Step::Begins => _ = there.remove(&source),
                Step::State { object, deleted: false } => {
                    there.entry(source).or_default().push((*object, arrived));
                }
                Step::State { object, deleted: true } => {
                    let uid = object["metadata"]["uid"].clone();
                    there.entry(source).or_default().retain(|(it, _)| it["metadata"]["uid"] != uid);
                }
                Step::Listed => {
                    standing.is_listed = true;
                    standing.last_good = arrived;
                    standing.trouble = None;
                }
                Step::Trouble(why) => {
                    if standing.trouble.is_none() {
                        self.notes.push(format!("{}: {why}", kind.plural()));
                        log::info!("{}: {why}", kind.plural());
                    }
                    standing.trouble = Some(arrived);
                }
                Step::Unauthorized => return Err(ClusterError::Unauthorized),
                Step::Forbidden { said, narrower: Some(narrower) } => {
                    let cost = "an address that another namespace's pod takes over is not noticed";
                    self.notes
                        .push(format!("{} only of {narrower} ({said}): {cost}", kind.plural()));
                }
                Step::Forbidden { said, narrower: None } => {
                    if kind == Kind::Service {
                        let what = "list and watch services".to_owned();
                        return Err(ClusterError::Forbidden { what, said });
                    }
                    standing.is_refused = true;
                    self.notes.push(format!(
                        "not allowed to list and watch {}: {} ({said})",
                        kind.plural(),
                        kind.cost(),
                    ));
                }
            }
        }
        let mut updates = Vec::new();
        for (source, objects) in there {
            for (object, arrived) in objects {
                let moment = self.moment(arrived);
                updates.extend(changes.state(source, object, false, &moment));
            }
        }
        let mut first = First { headless: changes.headless(), ..First::default() };
        for update in updates {
            match update {
                Update::Event(event) => first.events.push(*event),
                Update::Addresses(addresses) => {
                    first.addresses.services.extend(addresses.services);
                    first.addresses.backends.extend(addresses.backends);
                }
                Update::Note(note) => self.notes.push(note),
            }
        }
        if let Scope::Service { namespace, name } = &self.settings.scope
            && first.addresses.services.is_empty()
        {
            return Err(if first.headless.is_empty() {
                ClusterError::NoService { namespace: namespace.clone(), name: name.clone() }
            } else {
                ClusterError::Headless { name: name.clone() }
            });
        }
        first.notes = std::mem::take(&mut self.notes);
        first.notes.push(self.clock.text());
        Ok(first)
    }

    fn live(&mut self, changes: &mut Changes, said: Said) -> Vec<Update> {
        let Said { source, step, arrived } = said;
        let kind = source.kind;
        let moment = self.moment(arrived);
        let standing = self.standing.entry(source).or_default();
        match step {
            Step::Begins => {
                standing.is_relisting = true;
                changes.list_begins(source);
                Vec::new()
            }
            Step::State { object, deleted } => {
                if !standing.is_relisting {
                    standing.last_good = arrived;
                    standing.trouble = None;
                }
                changes.state(source, *object, deleted, &moment)
            }
            Step::Listed => {
                let mut updates = changes.list_ends(source, &moment);
                // A kind that was refused until now has told nothing that could be missed.
                if standing.is_listed {
                    let why = format!(
                        "{} were listed anew: what came and went between {:.1} s ago and now is not known",
                        kind.plural(),
                        arrived.since(standing.last_good).as_secs_f64(),
                    );
                    updates
                        .insert(0, Update::Event(Box::new(lost(standing.last_good, arrived, 1))));
                    updates.push(Update::Note(why));
                }
                standing.is_listed = true;
                standing.is_relisting = false;
                standing.last_good = arrived;
                standing.trouble = None;
                updates
            }
            Step::Trouble(why) => {
                let is_new = standing.trouble.replace(arrived).is_none();
                let note = format!("watching {}: {why}; trying again", kind.plural());
                if is_new { vec![Update::Note(note)] } else { Vec::new() }
            }
            Step::Unauthorized => {
                let is_new = standing.trouble.replace(arrived).is_none();
                let note =
                    format!("watching {}: the credentials are no longer accepted", kind.plural());
                if is_new { vec![Update::Note(note)] } else { Vec::new() }
            }
            Step::Forbidden { said, .. } => {
                let was_allowed = !std::mem::replace(&mut standing.is_refused, true);
                standing.trouble = Some(arrived);
                let note = format!("no longer allowed to watch {} ({said})", kind.plural());
                if was_allowed { vec![Update::Note(note)] } else { Vec::new() }
            }
        }
    }

    /// What is broken at the end was not seen since.
    fn at_the_end(&self) -> Vec<Update> {
        let now = clock::now();
        let broken = self.standing.values().filter(|standing| {
            let refused_from_the_start = standing.is_refused && !standing.is_listed;
            standing.is_relisting && standing.is_listed
                || !refused_from_the_start
                    && standing.trouble.is_some_and(|at| now.since(at) < LONGEST_PAUSE * 2)
        });
        broken.map(|standing| Update::Event(Box::new(lost(standing.last_good, now, 1)))).collect()
    }

    /// Hands updates over. False: nobody wants them any more.
    async fn pass_on(&self, updates: Vec<Update>) -> bool {
        for update in updates {
            let mut update = update;
            loop {
                match self.updates.try_send(update) {
                    Ok(()) => break,
                    Err(TrySendError::Disconnected(_)) => return false,
                    Err(TrySendError::Full(again)) => {
                        update = again;
                        sleep(Duration::from_millis(5)).await;
                    }
                }
            }
        }
        true
    }
}

async fn stopped(stop: &[Stop]) {
    while !stop.iter().any(Stop::is_requested) {
        sleep(LOOK).await;
    }
}

/// One kind in one place.
struct Place {
    source: Source,
    /// The namespace, or all; the next one where the account may not have the first.
    namespaces: Vec<Option<String>>,
    selector: watcher::Config,
    client: Client,
}

impl Place {
    fn api(&self, namespace: Option<&String>) -> Api<DynamicObject> {
        let resource = match self.source.kind {
            Kind::Pod => ApiResource::erase::<Pod>(&()),
            Kind::Service => ApiResource::erase::<Service>(&()),
            Kind::EndpointSlice => ApiResource::erase::<EndpointSlice>(&()),
            Kind::Deployment => ApiResource::erase::<Deployment>(&()),
            Kind::ReplicaSet => ApiResource::erase::<ReplicaSet>(&()),
        };
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    async fn watch(self, settings: Settings, out: mpsc::Sender<Said>) {
        let mut namespaces = self.namespaces.iter();
        let mut namespace = namespaces.next().and_then(Option::as_ref);
        let seconds = u32::try_from(settings.renew.as_secs().max(1)).unwrap_or(u32::MAX);
        let config = self.selector.clone().timeout(seconds);
        let mut pause = PAUSE;
        let mut is_listed = false;
        loop {
            let mut events = std::pin::pin!(watcher(self.api(namespace), config.clone()));
            let mut listing = true;
            loop {
                let next = if listing {
                    timeout(settings.patience, events.next()).await
                } else {
                    Ok(events.next().await)
                };
                let step = match next {
                    Err(_) => {
                        let waited = settings.patience.as_secs_f64();
                        Step::Trouble(format!("no answer to a list within {waited} s"))
                    }
                    // A watcher never ends.
                    Ok(None) => return,
                    Ok(Some(Ok(event))) => step(event, &mut listing),
                    Ok(Some(Err(error))) => trouble(&error),
                };
                let is_whole = !matches!(step, Step::Begins);
                let wait = match &step {
                    Step::Forbidden { .. } => Some(REFUSED_PAUSE),
                    Step::Trouble(_) | Step::Unauthorized => {
                        let wait = pause;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                        Some(wait)
                    }
                    _ => {
                        if is_whole {
                            pause = PAUSE;
                        }
                        is_listed |= matches!(step, Step::Listed);
                        None
                    }
                };
                let arrived = clock::now();
                // Narrower rights are tried at once, and only before the first list.
                let narrower = match &step {
                    Step::Forbidden { .. } if !is_listed => namespaces.next(),
                    _ => None,
                };
                let step = match (step, narrower) {
                    (Step::Forbidden { said, .. }, Some(narrower)) => {
                        namespace = narrower.as_ref();
                        let narrower = namespace.map(|name| format!("the namespace {name}"));
                        Step::Forbidden { said, narrower }
                    }
                    (step, _) => step,
                };
                let is_narrowed = matches!(&step, Step::Forbidden { narrower: Some(_), .. });
                if out.send(Said { source: self.source, step, arrived }).await.is_err() {
                    return;
                }
                if is_narrowed {
                    break;
                }
                if let Some(wait) = wait {
                    sleep(wait).await;
                    // A list that hangs is given up with its connection.
                    if listing {
                        break;
                    }
                }
            }
        }
    }
}

fn step(event: Watched<DynamicObject>, listing: &mut bool) -> Step {
    let state = |object: DynamicObject, deleted| {
        let object = serde_json::to_value(object).unwrap_or_default();
        Step::State { object: Box::new(object), deleted }
    };
    match event {
        Watched::Init => {
            *listing = true;
            Step::Begins
        }
        Watched::InitApply(object) | Watched::Apply(object) => state(object, false),
        Watched::Delete(object) => state(object, true),
        Watched::InitDone => {
            *listing = false;
            Step::Listed
        }
    }
}

/// What an error means.
fn trouble(error: &watcher::Error) -> Step {
    let status = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status),
        _ => None,
    };
    match status.map(|status| status.code) {
        Some(401) => Step::Unauthorized,
        Some(403) => {
            let said = status.map(|status| status.message.clone()).unwrap_or_default();
            Step::Forbidden { said, narrower: None }
        }
        Some(410) => Step::Trouble("its version has expired (410)".to_owned()),
        Some(429) => Step::Trouble("the API server is busy (429)".to_owned()),
        Some(code) => {
            let said = status.map(|status| status.message.as_str()).unwrap_or_default();
            Step::Trouble(format!("the API server said: {said} ({code})"))
        }
        None => Step::Trouble(match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => causes(error),
            other => causes(other),
        }),
    }
}
