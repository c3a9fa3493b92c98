//! `kfree_skb(skb, location[, reason])`: a packet is dropped. A SYN that conntrack judges invalid has no
//! entry any more, so the packet's own addresses count as well.

use aya_ebpf::Global;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use aya_log_ebpf::debug;
use tracer_ebpf::HookNumber;

use crate::memory::Skb;
use crate::packet::{self, Place, Wanted};

#[unsafe(no_mangle)]
static DROP_REASON: Global<u8> = Global::new(0);

#[btf_tracepoint(function = "kfree_skb")]
fn kfree_skb(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: include/trace/events/skb.h: the first argument is a `struct sk_buff *`.
    if let Some(skb) = unsafe { Skb::argument(&ctx, 0) } {
        run(&ctx, skb);
    }
    0
}

#[inline(always)]
fn run(ctx: &BtfTracePointContext, skb: Skb) -> Option<()> {
    let segment = packet::read(skb, Wanted::Handshake)?;
    let watched = packet::watched(skb, &segment)?;
    // The verifier refuses to read an argument that the tracepoint does not have, unless it can see that the branch is
    // never taken.
    let drop_reason = if DROP_REASON.load() == 1 { Some(ctx.arg::<u32>(2)) } else { None };
    let (netns, ifindex) = skb.place();
    debug!(ctx, "kfree_skb: watched packet, reason {}", drop_reason.unwrap_or(0));
    let place = Place { hook: HookNumber::KfreeSkb, netns, ifindex, drop_reason };
    packet::submit_watched(place, &segment, &watched);
    Some(())
}
