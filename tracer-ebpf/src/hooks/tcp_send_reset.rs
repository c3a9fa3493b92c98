//! `tcp_send_reset(sk, skb[, reason])`: this kernel answers a segment with a RST. `skb` is the segment that
//! provoked it; it is null where a socket is closed hard, and that RST is a packet of net_dev_start_xmit.

use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use aya_log_ebpf::debug;
use tracer_ebpf::HookNumber;

use crate::memory::Skb;
use crate::packet::{self, Place, Wanted};

#[btf_tracepoint(function = "tcp_send_reset")]
fn tcp_send_reset(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: include/trace/events/tcp.h: the second argument is a `const struct sk_buff *`, since the
    // tracepoint was made in Linux 4.15.
    if let Some(skb) = unsafe { Skb::argument(&ctx, 1) } {
        run(&ctx, skb);
    }
    0
}

#[inline(always)]
fn run(ctx: &BtfTracePointContext, skb: Skb) -> Option<()> {
    let segment = packet::read(skb, Wanted::AnyTcp)?;
    let watched = packet::watched(skb, &segment)?;
    let (netns, ifindex) = skb.place();
    debug!(ctx, "tcp_send_reset: watched segment, namespace {}", netns);
    let place = Place { hook: HookNumber::TcpSendReset, netns, ifindex, drop_reason: None };
    packet::submit_watched(place, &segment, &watched);
    Some(())
}
