//! The attached tracer, and draining what it records. Everything is owned by [`Tracer`]:
//! dropping it, or the end of the process in whatever way, detaches the programs and frees the maps.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use aya::maps::{HashMap, MapData, MapError, PerCpuArray, RingBuf};
use aya::{Btf, Ebpf, EbpfError};
use aya_log::EbpfLogger;
use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
use tracer_ebpf::fields::Feature;

use super::capability::{Capabilities, Capability, in_user_namespace};
use super::connects::Connects;
use super::fields::{self, FieldsError, KernelTypes, Offsets};
use super::losses::Losses;
use super::{hz, programs as object};
use crate::codec::ring;
use crate::model::{Event, EventKind, Hook, HookStatus, NetnsId};

/// Records passed on in one go, so that a flood can't keep the caller from looking at its wish to stop.
const BATCH: usize = 1 << 16;

/// How often the ring buffer is looked at while it is empty. The programs wake nobody (a wake-up costs them
/// more than the record); in this time the fastest flood seen fills a hundredth of the usual buffer.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What to trace, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The watched Services, as address and port in front of NAT.
    pub services: Vec<SocketAddr>,
    /// The network namespaces to which recording is limited; empty: all.
    pub netns: Vec<NetnsId>,
    /// The ring buffer's size in bytes; rounded up to a power of two of pages.
    pub ring_bytes: u32,
    /// Whether connects are told of, their processes and how they end: where no request log tells of them.
    pub connects: bool,
    /// Whether the programs log what they do, through the `log` crate at debug level.
    pub program_log: bool,
}

impl Settings {
    /// The usual settings for these Services.
    pub fn new(services: Vec<SocketAddr>) -> Settings {
        Settings {
            services,
            netns: Vec::new(),
            ring_bytes: tracer_ebpf::RING_BYTES,
            connects: false,
            program_log: false,
        }
    }
}

/// Why tracing can't start, or go on.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The stub is embedded instead of the programs.
    #[error("built without BPF programs: cargo xtask build")]
    NoPrograms,
    /// Nothing to watch.
    #[error("no Service to watch: give --service ADDRESS:PORT")]
    NoServices,
    /// The account may not load BPF programs.
    #[error("needs {} (or root); see `tracer doctor`", names(.missing))]
    Capability {
        /// What is missing.
        missing: Vec<Capability>,
    },
    /// Capabilities of a user namespace do not reach BPF.
    #[error(
        "BPF needs root of the first user namespace, not of a container's own; see `tracer doctor`"
    )]
    UserNamespace,
    /// The kernel's types can't be read.
    #[error("reading the kernel's types")]
    Fields(#[from] FieldsError),
    /// Members without which no packet can be read.
    #[error("this kernel can't be traced: {why}")]
    Kernel {
        /// Which.
        why: String,
    },
    /// The kernel's BTF, as the loader needs it.
    #[error("reading the kernel's BTF")]
    Btf(#[from] aya::BtfError),
    /// The object or its maps.
    #[error("loading the BPF programs")]
    Load(#[from] EbpfError),
    /// A map could not be filled, or the ring buffer or the counters not be read.
    #[error("BPF map {map}")]
    Map {
        /// Its name.
        map: &'static str,
        /// What happened.
        #[source]
        source: MapError,
    },
    /// The object has no such map: it was built from other sources.
    #[error("the BPF object has no map {map}: cargo xtask build")]
    NoMap {
        /// Its name.
        map: &'static str,
    },
    /// The hook that everything rests on.
    #[error("attaching to {}: {why}", hook.name())]
    Attach {
        /// Which.
        hook: Hook,
        /// What the kernel said.
        why: String,
    },
}

fn names(missing: &[Capability]) -> String {
    missing.iter().map(|capability| capability.name()).collect::<Vec<_>>().join(" and ")
}

/// The attached programs and their maps.
pub struct Tracer {
    ring: RingBuf<MapData>,
    losses: Losses,
    log: Option<EbpfLogger<&'static dyn log::Log>>,
    kernel: ring::Kernel,
    hz: Option<u32>,
    hooks: Vec<HookStatus>,
    drop_reasons: BTreeMap<u32, String>,
    notes: Vec<String>,
    filter: Option<Filter>,
    /// The open connects, if they are asked for.
    connects: Option<Connects>,
    /// Owns the programs and their links.
    programs: Option<Ebpf>,
}

impl Tracer {
    /// Loads the programs, tells them what to watch, and attaches them. A hook other than
    /// `net_dev_start_xmit` that can't be attached is told by [`Tracer::hooks`] and is no error.
    ///
    /// # Errors
    /// If the binary has no programs, the account may not load them, the kernel has no BTF or lacks what no
    /// packet can be read without, or `net_dev_start_xmit` can't be attached.
    pub fn attach(settings: &Settings) -> Result<Tracer, KernelError> {
        if settings.services.is_empty() {
            return Err(KernelError::NoServices);
        }
        let (types, offsets) = check()?;
        // Kernels before 5.11 count map memory against this limit; newer ones do not care, and where it
        // can't be raised there the load itself will say so.
        if let Err(errno) = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY) {
            log::debug!("RLIMIT_MEMLOCK stays as it is: {errno}");
        }
        let btf = Btf::from_sys_fs()?;
        let mut programs = object::load(settings, &types, &offsets, &btf)?;
        let log = settings.program_log.then(|| start_log(&mut programs)).flatten();
        object::watch(&mut programs, settings)?;
        let ring = object::take(&mut programs, tracer_ebpf::MAP_EVENTS, RingBuf::try_from)?;
        let counters = object::take(&mut programs, tracer_ebpf::MAP_LOST, PerCpuArray::try_from)?;
        let filter = Filter {
            services: object::take(&mut programs, tracer_ebpf::MAP_SERVICES, HashMap::try_from)?,
            backends: object::take(&mut programs, tracer_ebpf::MAP_BACKENDS, HashMap::try_from)?,
        };
        let hooks = object::attach_all(&mut programs, &types, &offsets, &btf)?;

        let hz = hz::ticks_per_second();
        let mut notes = offsets.notes();
        if hz.is_none() {
            notes.push(format!("{}: the kernel's tick is unknown", fields::cost(Feature::Life)));
        }
        Ok(Tracer {
            ring,
            losses: Losses::new(counters, object::descriptors(&programs)),
            log,
            kernel: ring::Kernel { hz: hz.filter(|_| offsets.has(Feature::Life)) },
            hz,
            hooks,
            drop_reasons: types.drop_reasons(),
            notes,
            filter: Some(filter),
            connects: settings.connects.then(Connects::default),
            programs: Some(programs),
        })
    }

    /// What the programs watch, for whoever adds to it while they run. None the second time.
    pub fn take_filter(&mut self) -> Option<Filter> {
        self.filter.take()
    }

    /// Every hook and whether its program runs.
    pub fn hooks(&self) -> Vec<HookStatus> {
        self.hooks.clone()
    }

    /// The kernel's ticks a second, if it says.
    pub fn hz(&self) -> Option<u32> {
        self.hz
    }

    /// The names of the kernel's drop reasons; empty before Linux 5.17.
    pub fn drop_reasons(&self) -> BTreeMap<u32, String> {
        self.drop_reasons.clone()
    }

    /// What could not be switched on and what that costs, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// Waits at most `wait` for records, looking every few milliseconds, and passes all that are there on as
    /// events, then what was lost. Under a flood it returns after 65,536 records: call it again.
    ///
    /// # Errors
    /// If the counters of losses can't be read.
    pub fn drain(
        &mut self,
        wait: Duration,
        sink: &mut dyn FnMut(Event),
    ) -> Result<(), KernelError> {
        let end = Instant::now() + wait;
        while self.pass_on(sink) == 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(LOOK_EVERY));
        }
        if let Some(log) = &mut self.log {
            log.flush();
        }
        self.tell_losses(sink)
    }

    /// Detaches the programs, then passes on all that they recorded and lost until then.
    ///
    /// # Errors
    /// If the counters can't be read.
    pub fn finish(mut self, sink: &mut dyn FnMut(Event)) -> Result<(), KernelError> {
        self.losses.detached(sink);
        drop(self.programs.take());
        while self.pass_on(sink) > 0 {}
        if let Some(log) = &mut self.log {
            log.flush();
        }
        self.tell_losses(sink)
    }

    fn pass_on(&mut self, sink: &mut dyn FnMut(Event)) -> usize {
        for passed in 0..BATCH {
            let Some(record) = self.ring.next() else { return passed };
            match ring::decode(&record, self.kernel) {
                Ok(event) => {
                    let connect = connect(self.connects.as_mut(), &event, &record);
                    sink(event);
                    connect.into_iter().for_each(&mut *sink);
                }
                Err(error) => {
                    log::debug!("{error}");
                    self.losses.add_undecoded();
                }
            }
        }
        BATCH
    }

    fn tell_losses(&mut self, sink: &mut dyn FnMut(Event)) -> Result<(), KernelError> {
        self.losses
            .tell(sink)
            .map_err(|source| KernelError::Map { map: tracer_ebpf::MAP_LOST, source })
    }
}

/// What the attached programs watch, to be added to while they run. Nothing is ever taken out: entries outlive the
/// endpoints that they were made for.
pub struct Filter {
    services: HashMap<MapData, object::EndpointKey, u8>,
    backends: HashMap<MapData, object::EndpointKey, u8>,
}

impl Filter {
    /// Watches these Services too, as address and port in front of NAT.
    ///
    /// # Errors
    /// If the map is full.
    pub fn watch(&mut self, services: &[SocketAddr]) -> Result<(), KernelError> {
        insert(&mut self.services, services, tracer_ebpf::MAP_SERVICES)
    }

    /// Takes these for backends before a SYN has shown them.
    ///
    /// # Errors
    /// If there is no memory; the oldest go where the map is full.
    pub fn expect(&mut self, backends: &[SocketAddr]) -> Result<(), KernelError> {
        insert(&mut self.backends, backends, tracer_ebpf::MAP_BACKENDS)
    }
}

fn insert(
    set: &mut HashMap<MapData, object::EndpointKey, u8>,
    endpoints: &[SocketAddr],
    map: &'static str,
) -> Result<(), KernelError> {
    for endpoint in endpoints {
        set.insert(object::endpoint_key(endpoint), 1, 0)
            .map_err(|source| KernelError::Map { map, source })?;
    }
    Ok(())
}

/// Whether this binary, account and kernel could trace, as far as can be told without loading anything: for a
/// caller who has much to do before it knows what to watch.
///
/// # Errors
/// As [`Tracer::attach`].
pub fn preflight() -> Result<(), KernelError> {
    check().map(drop)
}

fn check() -> Result<(KernelTypes, Offsets), KernelError> {
    if !object::has_programs() {
        return Err(KernelError::NoPrograms);
    }
    check_capabilities()?;
    let types = KernelTypes::read()?;
    let offsets = fields::resolve(&types);
    match offsets.off.get(&Feature::Packets) {
        Some(why) => Err(KernelError::Kernel { why: why.clone() }),
        None => Ok((types, offsets)),
    }
}

fn check_capabilities() -> Result<(), KernelError> {
    // Where /proc does not tell, the kernel will.
    let missing =
        Capabilities::of_self().map(Capabilities::missing_for_tracing).unwrap_or_default();
    if !missing.is_empty() {
        return Err(KernelError::Capability { missing });
    }
    if in_user_namespace() { Err(KernelError::UserNamespace) } else { Ok(()) }
}

/// The connect that a record ends, if they are asked for.
fn connect(connects: Option<&mut Connects>, event: &Event, record: &[u8]) -> Option<Event> {
    let connects = connects?;
    let EventKind::TcpState(change) = &event.kind else { return None };
    connects.take(event.time, change, ring::socket_detail(record)?)
}

fn start_log(programs: &mut Ebpf) -> Option<EbpfLogger<&'static dyn log::Log>> {
    EbpfLogger::init(programs)
        .map_err(|error| log::warn!("no log of the BPF programs: {error}"))
        .ok()
}

/// An error and its causes on one line.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracer_can_move_to_a_thread_of_its_own() {
        fn can_move<T: Send>() {}
        can_move::<Tracer>();
    }

    #[test]
    fn nothing_is_attached_without_a_service() {
        let attached = Tracer::attach(&Settings::new(Vec::new()));
        assert!(matches!(attached, Err(KernelError::NoPrograms | KernelError::NoServices)));
    }
}
