//! `net_dev_start_xmit(skb, dev)`: a packet is handed to a device. Here a SYN to a Service already carries
//! the address that DNAT chose, and its entry. Every packet of every connection comes by, so most must
//! leave at the first test: without an entry nothing is of interest.

use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use aya_log_ebpf::debug;
use tracer_ebpf::HookNumber;

use crate::memory::Skb;
use crate::packet::{self, Place, Wanted};

#[btf_tracepoint(function = "net_dev_start_xmit")]
fn net_dev_start_xmit(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: include/trace/events/net.h: the first argument is a `const struct sk_buff *`.
    if let Some(skb) = unsafe { Skb::argument(&ctx, 0) } {
        run(&ctx, skb);
    }
    0
}

#[inline(always)]
fn run(ctx: &BtfTracePointContext, skb: Skb) -> Option<()> {
    let (entry, ctinfo) = skb.entry()?;
    let segment = packet::read(skb, Wanted::Handshake)?;
    let tuples = packet::watched_entry(entry, &segment)?;
    let (netns, ifindex) = skb.place();
    debug!(ctx, "net_dev_start_xmit: watched packet, namespace {}, device {}", netns, ifindex);
    let place = Place { hook: HookNumber::NetDevStartXmit, netns, ifindex, drop_reason: None };
    packet::submit_with_entry(place, &segment, entry, &tuples, ctinfo);
    Some(())
}
