//! The only reader of kernel memory.
//!
//! A tracepoint's arguments are typed pointers: the verifier lets their members be loaded directly as long
//! as the offset is a constant, which a frozen global is. What they point to may be gone or null all the
//! same; the kernel then gives zeros. Memory behind plain numbers (packet bytes, the entry behind `_nfct`)
//! is copied with `bpf_probe_read_kernel`, which fails where nothing is mapped.

use core::ptr::{self, NonNull};

use aya_ebpf::Global;
use aya_ebpf::helpers::generated::{bpf_get_current_cgroup_id, bpf_jiffies64, bpf_ktime_get_ns};
use aya_ebpf::helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_probe_read_kernel};
use aya_ebpf::programs::BtfTracePointContext;
use tracer_ebpf::each_field;
use tracer_ebpf::fields::ABSENT;
use tracer_ebpf::record::{Address, Endpoint, Ends, MAPPED};

macro_rules! globals {
    ($($global:ident: $owner:literal $member:literal $size:literal $feature:ident;)*) => {
        $(#[unsafe(no_mangle)]
        static $global: Global<u32> = Global::new(ABSENT);)*
    };
}
each_field!(globals);

/// Low bits of `_nfct` that hold ctinfo (`NFCT_INFOMASK`).
const CTINFO_MASK: u64 = 7;

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// A `struct sk_buff` given as an argument.
#[derive(Clone, Copy)]
pub(crate) struct Skb(NonNull<u8>);

impl Skb {
    /// The `n`th argument; none if it is null.
    ///
    /// # Safety
    /// The tracepoint's `n`th argument must be a `struct sk_buff *`.
    #[inline(always)]
    pub(crate) unsafe fn argument(ctx: &BtfTracePointContext, n: usize) -> Option<Skb> {
        NonNull::new(ctx.arg::<*mut u8>(n)).map(Skb)
    }

    /// The conntrack entry that it carries, and how it relates to it.
    #[inline(always)]
    pub(crate) fn entry(self) -> Option<(EntryPointer, u8)> {
        let nfct: u64 = load(self.0, &SKB_NFCT)?;
        let address = nfct & !CTINFO_MASK;
        // Without an entry but with ctinfo: a packet that a rule exempts from tracking (IP_CT_UNTRACKED).
        if address == 0 { None } else { Some((EntryPointer(address), (nfct & CTINFO_MASK) as u8)) }
    }

    /// `skb->protocol`, host order.
    #[inline(always)]
    pub(crate) fn protocol(self) -> u16 {
        u16::from_be(load(self.0, &SKB_PROTOCOL).unwrap_or(0))
    }

    /// The address of its network header.
    #[inline(always)]
    pub(crate) fn network_header(self) -> Option<u64> {
        let head: u64 = load(self.0, &SKB_HEAD)?;
        let offset: u16 = load(self.0, &SKB_NETWORK_HEADER)?;
        Some(head + u64::from(offset))
    }

    /// Its device, or else its socket, as the namespace's number and the device's index; zeros for neither.
    #[inline(always)]
    pub(crate) fn place(self) -> (u32, u32) {
        if let Some(device) = load_pointer(self.0, &SKB_DEV) {
            let ifindex = load(device, &DEV_IFINDEX).unwrap_or(0);
            return (netns(load_pointer(device, &DEV_NET)), ifindex);
        }
        match load_pointer(self.0, &SKB_SK) {
            Some(socket) => (netns(load_pointer(socket, &SOCK_NET)), 0),
            None => (0, 0),
        }
    }
}

#[inline(always)]
fn netns(net: Option<NonNull<u8>>) -> u32 {
    net.and_then(|net| load(net, &NET_INUM)).unwrap_or(0)
}

/// The address of a `struct nf_conn`.
#[derive(Clone, Copy)]
pub(crate) struct EntryPointer(u64);

/// A `struct nf_conntrack_tuple`, as `tracer_ebpf::fields::LAYOUTS` has it.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawTuple {
    src: Address,
    src_port: u16,
    family: u16,
    dst: Address,
    dst_port: u16,
    protocol: u8,
    direction: u8,
}

/// Both tuples in one read, with the hash link and padding that lie between them.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawTuples {
    orig: RawTuple,
    between: [u32; 4],
    reply: RawTuple,
}

const _: () = assert!(size_of::<RawTuple>() == tracer_ebpf::fields::TUPLE_BYTES as usize);
const _: () =
    assert!(core::mem::offset_of!(RawTuples, reply) == tracer_ebpf::fields::TUPLE_STRIDE as usize);

/// The two tuples of an entry.
#[derive(Clone, Copy)]
pub(crate) struct Tuples {
    /// Original tuple.
    pub(crate) orig: Ends,
    /// Reply tuple.
    pub(crate) reply: Ends,
    /// The IP protocol that is tracked.
    pub(crate) protocol: u8,
}

impl EntryPointer {
    /// Its tuples.
    #[inline(always)]
    pub(crate) fn tuples(self) -> Option<Tuples> {
        let at = u64::from(CONN_TUPLES.load()) + u64::from(HASH_TUPLE.load());
        let raw: RawTuples = copy(self.0 + at)?;
        Some(Tuples { orig: ends(&raw.orig), reply: ends(&raw.reply), protocol: raw.orig.protocol })
    }

    /// `timeout`
    #[inline(always)]
    pub(crate) fn timeout(self) -> u32 {
        copy_member(self.0, &CONN_TIMEOUT).unwrap_or(0)
    }

    /// The low half of `status`.
    #[inline(always)]
    pub(crate) fn status(self) -> u32 {
        copy_member::<u64>(self.0, &CONN_STATUS).unwrap_or(0) as u32
    }

    /// `zone.id`; 0 where there is none.
    #[inline(always)]
    pub(crate) fn zone(self) -> u16 {
        copy_member(self.0, &CONN_ZONE).unwrap_or(0)
    }

    /// `proto.tcp.state`
    #[inline(always)]
    pub(crate) fn tcp_state(self) -> Option<u8> {
        copy_member(self.0, &CONN_TCP_STATE)
    }
}

#[inline(always)]
fn ends(raw: &RawTuple) -> Ends {
    let mapped = raw.family == AF_INET;
    Ends {
        src: if mapped { map_v4(raw.src[0]) } else { raw.src },
        dst: if mapped { map_v4(raw.dst[0]) } else { raw.dst },
        src_port: raw.src_port,
        dst_port: raw.dst_port,
    }
}

/// A `struct sock` given as an argument.
#[derive(Clone, Copy)]
pub(crate) struct Sock(NonNull<u8>);

impl Sock {
    /// The `n`th argument; none if it is null.
    ///
    /// # Safety
    /// The tracepoint's `n`th argument must be a `struct sock *`, whose first member is a
    /// `struct sock_common`.
    #[inline(always)]
    pub(crate) unsafe fn argument(ctx: &BtfTracePointContext, n: usize) -> Option<Sock> {
        NonNull::new(ctx.arg::<*mut u8>(n)).map(Sock)
    }

    /// The number of its protocol.
    #[inline(always)]
    pub(crate) fn protocol(self) -> u16 {
        load(self.0, &SOCK_PROTOCOL).unwrap_or(0)
    }

    /// Its remote end; none for a socket of neither IPv4 nor IPv6.
    #[inline(always)]
    pub(crate) fn remote(self) -> Option<Endpoint> {
        let address = self.address(&SOCK_DST, &SOCK_DST_V6)?;
        Some(Endpoint { address, port: load(self.0, &SOCK_DST_PORT)?, zero: 0 })
    }

    /// Local end as source, remote end as destination.
    #[inline(always)]
    pub(crate) fn ends(self, remote: &Endpoint) -> Option<Ends> {
        // inet_sport and not skc_num, as that is 0 again when the state becomes CLOSE (tcp_set_state gives the
        // port back before it says so). It lies beyond `struct sock`, which the argument's type ends with.
        let src_port = copy_member(self.0.as_ptr() as u64, &SOCK_SRC_PORT)?;
        let src = self.address(&SOCK_SRC, &SOCK_SRC_V6)?;
        Some(Ends { src, dst: remote.address, src_port, dst_port: remote.port })
    }

    #[inline(always)]
    fn address(self, v4: &Global<u32>, v6: &Global<u32>) -> Option<Address> {
        match load::<u16>(self.0, &SOCK_FAMILY)? {
            AF_INET => Some(map_v4(load(self.0, v4)?)),
            AF_INET6 => load_address(self.0, v6),
            _ => None,
        }
    }

    /// Its network namespace's number.
    #[inline(always)]
    pub(crate) fn netns(self) -> u32 {
        netns(load_pointer(self.0, &SOCK_NET))
    }

    /// `sk_err`
    #[inline(always)]
    pub(crate) fn error(self) -> u32 {
        load(self.0, &SOCK_ERROR).unwrap_or(0)
    }

    /// What tells it from all other sockets that there are.
    #[inline(always)]
    pub(crate) fn identity(self) -> u64 {
        self.0.as_ptr() as u64
    }
}

/// The process that runs: its cgroup, its number, its name.
#[inline(always)]
pub(crate) fn current() -> (u64, u32, [u8; 16]) {
    // SAFETY: takes and touches nothing.
    let cgroup = unsafe { bpf_get_current_cgroup_id() };
    let pid = (bpf_get_current_pid_tgid() >> 32) as u32;
    (cgroup, pid, bpf_get_current_comm().unwrap_or_default())
}

/// An IPv4 address (as it lies in memory) in its mapped form.
#[inline(always)]
pub(crate) fn map_v4(address: u32) -> Address {
    [0, 0, MAPPED, address]
}

/// Copies what lies at an address in the kernel.
#[inline(always)]
pub(crate) fn copy<T: Copy>(address: u64) -> Option<T> {
    // SAFETY: the helper checks the address and fails instead of faulting; every `T` used here is made of
    // integers, for which any bytes will do.
    unsafe { bpf_probe_read_kernel(address as *const T) }.ok()
}

#[inline(always)]
fn copy_member<T: Copy>(base: u64, field: &Global<u32>) -> Option<T> {
    let offset = field.load();
    if offset == ABSENT { None } else { copy(base + u64::from(offset)) }
}

/// Loads a member of an argument, or of what a pointer loaded from one leads to. The offset's global is
/// frozen, so the verifier knows it and checks it against the type; with an absent member it drops the load.
#[inline(always)]
fn load<T: Copy>(base: NonNull<u8>, field: &Global<u32>) -> Option<T> {
    let offset = field.load();
    if offset == ABSENT {
        return None;
    }
    // SAFETY: `base` is a typed pointer, and the verifier refuses the program unless a member lies there.
    // Volatile, so that each load stays a load of its own size.
    Some(unsafe { ptr::read_volatile(base.as_ptr().add(offset as usize).cast::<T>()) })
}

/// Loads a member that is a pointer to another struct; the verifier knows which, so that it can be loaded
/// from in its turn.
#[inline(always)]
fn load_pointer(base: NonNull<u8>, field: &Global<u32>) -> Option<NonNull<u8>> {
    load::<*mut u8>(base, field).and_then(NonNull::new)
}

#[inline(always)]
fn load_address(base: NonNull<u8>, field: &Global<u32>) -> Option<Address> {
    let offset = field.load();
    if offset == ABSENT {
        return None;
    }
    let mut address = [0; 4];
    let mut word = 0;
    while word < 4 {
        // SAFETY: as in `load`; the member is 16 bytes long.
        address[word] = unsafe {
            ptr::read_volatile(base.as_ptr().add(offset as usize + word * 4).cast::<u32>())
        };
        word += 1;
    }
    Some(address)
}

/// Now, on the monotonic clock.
#[inline(always)]
pub(crate) fn now() -> u64 {
    // SAFETY: takes and touches nothing.
    unsafe { bpf_ktime_get_ns() }
}

/// The low half of the kernel's tick count.
#[inline(always)]
pub(crate) fn jiffies() -> u32 {
    // SAFETY: takes and touches nothing.
    unsafe { bpf_jiffies64() as u32 }
}
