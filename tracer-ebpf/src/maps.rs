//! The maps: where records go, what is watched, what was lost.

use aya_ebpf::Global;
use aya_ebpf::bindings::BPF_RB_NO_WAKEUP;
use aya_ebpf::macros::map;
use aya_ebpf::maps::ring_buf::RingBufEntry;
use aya_ebpf::maps::{HashMap, LruHashMap, PerCpuArray, RingBuf};
use tracer_ebpf::record::{Endpoint, Packet, PacketWithEntry, Socket};
use tracer_ebpf::{
    BACKENDS_CAPACITY, HOOKS, HookNumber, NETNS_CAPACITY, RING_BYTES, SERVICES_CAPACITY,
};

#[map]
static EVENTS: RingBuf = RingBuf::with_byte_size(RING_BYTES, 0);
#[map]
static LOST: PerCpuArray<u64> = PerCpuArray::with_max_entries(HOOKS, 0);
#[map]
static SERVICES: HashMap<Endpoint, u8> = HashMap::with_max_entries(SERVICES_CAPACITY, 0);
#[map]
static BACKENDS: LruHashMap<Endpoint, u8> = LruHashMap::with_max_entries(BACKENDS_CAPACITY, 0);
#[map]
static NETNS: HashMap<u32, u8> = HashMap::with_max_entries(NETNS_CAPACITY, 0);

#[unsafe(no_mangle)]
static LIMIT_NETNS: Global<u8> = Global::new(0);

/// Whether this is a watched Service.
#[inline(always)]
pub(crate) fn is_service(endpoint: &Endpoint) -> bool {
    SERVICES.get_ptr(endpoint).is_some()
}

/// Whether DNAT has chosen this for a watched Service.
#[inline(always)]
pub(crate) fn is_backend(endpoint: &Endpoint) -> bool {
    BACKENDS.get_ptr(endpoint).is_some()
}

/// Remembers a backend. Looking it up first keeps it recent without taking the map's lock.
#[inline(always)]
pub(crate) fn learn_backend(endpoint: &Endpoint) {
    if !is_backend(endpoint) {
        // A full map drops its oldest; an error would mean no memory, and then the next SYN tries again.
        let _ = BACKENDS.insert(endpoint, 1, 0);
    }
}

/// Whether recording covers this namespace.
#[inline(always)]
pub(crate) fn covers(netns: u32) -> bool {
    LIMIT_NETNS.load() == 0 || NETNS.get_ptr(netns).is_some()
}

/// A record of `tracer_ebpf::record`: integers only, so that any bytes are a valid one.
pub(crate) trait Record: Copy + 'static {}

impl Record for Packet {}
impl Record for PacketWithEntry {}
impl Record for Socket {}

/// Room for a record in the ring buffer; none if that is full, which is counted. It must be given to [`submit`], with every
/// field set. No closure is taken to set them: one that the compiler does not inline is a call, and what a program's
/// functions have on the stack together must fit into 512 bytes.
#[inline(always)]
pub(crate) fn reserve<T: Record>(hook: HookNumber) -> Option<RingBufEntry<T>> {
    let place = EVENTS.reserve::<T>(0);
    if place.is_none() {
        count_lost(hook);
    }
    place
}

/// The record in its place.
#[inline(always)]
pub(crate) fn record<T: Record>(place: &mut RingBufEntry<T>) -> &mut T {
    // SAFETY: the kernel reserved memory of the record's size, aligned to 8 bytes, for us alone; it holds some bytes or
    // other, and by `Record` any will do. It is built there and not on the stack, because two of the larger ones would
    // not fit into the 512 bytes of a program's stack.
    unsafe { place.assume_init_mut() }
}

/// Gives a record to user space.
#[inline(always)]
pub(crate) fn submit<T: Record>(place: RingBufEntry<T>) {
    // Nobody is woken: that costs an interrupt of this CPU for nearly every record, some microseconds, while user space
    // can as well look every few milliseconds.
    place.submit(u64::from(BPF_RB_NO_WAKEUP));
}

#[inline(always)]
fn count_lost(hook: HookNumber) {
    if let Some(count) = LOST.get_ptr_mut(hook as u32) {
        // SAFETY: the pointer comes from the map, is not null and is aligned to 8 bytes, and the slot is this
        // CPU's and this hook's own. Since Linux 6.1 a program never interrupts itself on a CPU; before, an
        // interrupt between load and store can make two losses count as one, but never as none.
        unsafe { *count += 1 }
    }
}
