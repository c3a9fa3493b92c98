//! `tcp_receive_reset(sk)`: a socket receives a RST. The hook has no packet, so no sequence numbers.

use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use aya_log_ebpf::debug;
use tracer_ebpf::HookNumber;

use crate::maps;
use crate::memory::Sock;
use crate::packet::{self, Place, Segment};

#[btf_tracepoint(function = "tcp_receive_reset")]
fn tcp_receive_reset(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: include/trace/events/tcp.h: the only argument is a `struct sock *`.
    if let Some(sock) = unsafe { Sock::argument(&ctx, 0) } {
        run(&ctx, sock);
    }
    0
}

#[inline(always)]
fn run(ctx: &BtfTracePointContext, sock: Sock) -> Option<()> {
    let remote = sock.remote()?;
    if !maps::is_service(&remote) {
        return None;
    }
    let ends = sock.ends(&remote)?;
    let netns = sock.netns();
    debug!(ctx, "tcp_receive_reset: client socket, namespace {}", netns);
    let place = Place { hook: HookNumber::TcpReceiveReset, netns, ifindex: 0, drop_reason: None };
    packet::submit(place, &Segment::reset(ends));
    Some(())
}
