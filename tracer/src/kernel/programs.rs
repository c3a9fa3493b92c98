//! The BPF object: embedded, loaded with this kernel's offsets, told what to watch, attached.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, RawFd};

use aya::maps::{HashMap, Map, MapError};
use aya::programs::{BtfTracePoint, Program, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader};

use super::attach::{KernelError, Settings, with_causes};
use super::fields::{self, Feature, KernelTypes, Offsets};
use crate::model::{Hook, HookStatus};

/// The BPF object, empty in a build without BPF programs.
static PROGRAMS: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/programs.bpf.o"));

/// Whether this binary was built with the BPF programs.
pub fn has_programs() -> bool {
    !PROGRAMS.is_empty()
}

/// How many arguments `kfree_skb` (skb, location, reason) and `tcp_send_reset` (sk, skb, reason) pass where
/// they have the reason.
const ARGUMENTS_WITH_REASON: u32 = 3;

/// Loads the object with the offsets, sizes and switches of this kernel and these settings.
pub(super) fn load(
    settings: &Settings,
    types: &KernelTypes,
    offsets: &Offsets,
    btf: &Btf,
) -> Result<Ebpf, KernelError> {
    let arguments = types.tracepoint_arguments(Hook::KfreeSkb.name()).unwrap_or(0);
    let drop_reason = u8::from(arguments >= ARGUMENTS_WITH_REASON);
    let limit_netns = u8::from(!settings.netns.is_empty());
    let log_level = if settings.program_log { aya_log::Level::Debug as u8 } else { 0 };
    let capacity = |needed: usize, usual| u32::try_from(needed).unwrap_or(u32::MAX).max(usual);
    let mut loader = EbpfLoader::new();
    loader
        .btf(Some(btf))
        .map_max_entries(tracer_ebpf::MAP_EVENTS, settings.ring_bytes)
        .map_max_entries(
            tracer_ebpf::MAP_SERVICES,
            capacity(settings.services.len(), tracer_ebpf::SERVICES_CAPACITY),
        )
        .map_max_entries(
            tracer_ebpf::MAP_NETNS,
            capacity(settings.netns.len(), tracer_ebpf::NETNS_CAPACITY),
        )
        .override_global(tracer_ebpf::GLOBAL_DROP_REASON, &drop_reason, true)
        .override_global(tracer_ebpf::GLOBAL_LIMIT_NETNS, &limit_netns, true)
        .override_global(aya_log::LEVEL, &log_level, true);
    for (global, offset) in &offsets.globals {
        loader.override_global(global, offset, true);
    }
    Ok(loader.load(PROGRAMS)?)
}

/// Tells the loaded programs what to watch.
pub(super) fn watch(programs: &mut Ebpf, settings: &Settings) -> Result<(), KernelError> {
    let services = settings.services.iter().map(endpoint_key);
    fill(programs, tracer_ebpf::MAP_SERVICES, services)?;
    let netns = settings.netns.iter().map(|netns| netns.0);
    fill(programs, tracer_ebpf::MAP_NETNS, netns)
}

fn fill<K: aya::Pod>(
    programs: &mut Ebpf,
    map: &'static str,
    keys: impl Iterator<Item = K>,
) -> Result<(), KernelError> {
    let found = programs.map_mut(map).ok_or(KernelError::NoMap { map })?;
    let with_source = |source| KernelError::Map { map, source };
    let mut set: HashMap<_, K, u8> = HashMap::try_from(found).map_err(with_source)?;
    for key in keys {
        set.insert(key, 1, 0).map_err(with_source)?;
    }
    Ok(())
}

/// Takes a map out of the loaded object.
pub(super) fn take<T>(
    programs: &mut Ebpf,
    map: &'static str,
    open: impl FnOnce(Map) -> Result<T, MapError>,
) -> Result<T, KernelError> {
    let found = programs.take_map(map).ok_or(KernelError::NoMap { map })?;
    open(found).map_err(|source| KernelError::Map { map, source })
}

/// The bytes of a `tracer_ebpf::record::Endpoint`.
pub(super) type EndpointKey = [u8; size_of::<tracer_ebpf::record::Endpoint>()];

pub(super) fn endpoint_key(service: &SocketAddr) -> EndpointKey {
    let address = match service.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let mut key = [0; 20];
    key[..16].copy_from_slice(&address.octets());
    key[16..18].copy_from_slice(&service.port().to_be_bytes());
    key
}

/// Attaches every program; one that can't be attached is no error, except for `net_dev_start_xmit`.
pub(super) fn attach_all(
    programs: &mut Ebpf,
    types: &KernelTypes,
    offsets: &Offsets,
    btf: &Btf,
) -> Result<Vec<HookStatus>, KernelError> {
    let mut hooks = Vec::new();
    for hook in Hook::ALL {
        let status = match attach_one(programs, types, offsets, btf, hook) {
            Ok(note) => HookStatus { hook, attached: true, note },
            Err(why) if hook == Hook::NetDevStartXmit => {
                return Err(KernelError::Attach { hook, why });
            }
            Err(why) => HookStatus { hook, attached: false, note: Some(why) },
        };
        hooks.push(status);
    }
    Ok(hooks)
}

/// Attaches one program. What the hook can't tell on this kernel, or why it can't be attached.
fn attach_one(
    programs: &mut Ebpf,
    types: &KernelTypes,
    offsets: &Offsets,
    btf: &Btf,
    hook: Hook,
) -> Result<Option<String>, String> {
    let arguments = types
        .tracepoint_arguments(hook.name())
        .ok_or_else(|| "this kernel does not have the tracepoint".to_owned())?;
    let note = match hook {
        Hook::TcpReceiveReset | Hook::InetSockSetState => {
            if let Some(why) = offsets.off.get(&Feature::Sockets) {
                return Err(why.clone());
            }
            offsets
                .off
                .contains_key(&Feature::SocketsV6)
                .then(|| fields::cost(Feature::SocketsV6).to_owned())
        }
        Hook::KfreeSkb if arguments < ARGUMENTS_WITH_REASON => {
            Some("without reasons: they came with Linux 5.17".to_owned())
        }
        Hook::NetDevStartXmit => offsets
            .off
            .contains_key(&Feature::Entry)
            .then(|| fields::cost(Feature::Entry).to_owned()),
        // Reason and RSTs without a socket came to it together (net/ipv4/tcp_ipv4.c, tcp_v4_send_reset).
        Hook::TcpSendReset if arguments < ARGUMENTS_WITH_REASON => Some(
            "RSTs of ports where nobody listens may be missing: they came with Linux 6.10"
                .to_owned(),
        ),
        Hook::KfreeSkb | Hook::TcpSendReset | Hook::Capture => None,
    };
    let program: &mut BtfTracePoint = programs
        .program_mut(hook.name())
        .ok_or_else(|| "the BPF object lacks the program: cargo xtask build".to_owned())?
        .try_into()
        .map_err(|error: ProgramError| with_causes(&error))?;
    program.load(hook.name(), btf).map_err(|error| with_causes(&error))?;
    program.attach().map_err(|error| with_causes(&error))?;
    Ok(note)
}

/// The open descriptors of the attached programs.
pub(super) fn descriptors(programs: &Ebpf) -> Vec<(Hook, RawFd)> {
    let descriptor = |hook: Hook| match programs.program(hook.name())? {
        Program::BtfTracePoint(program) => Some((hook, program.fd().ok()?.as_fd().as_raw_fd())),
        _ => None,
    };
    Hook::ALL.into_iter().filter_map(descriptor).collect()
}
