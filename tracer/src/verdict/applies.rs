//! Whether the reused source port can happen at all where this was traced: it needs a conntrack that translates the
//! Service's address, and that keeps what it noted. Told by what was seen, not by names.

use crate::correlate::{Timeline, Translation};
use crate::model::{Origin, TraceHeader};

/// Fewer connects than this tell nothing of how a node treats them.
const ENOUGH: u64 = 20;
/// Fewer entries that vanished may have been anybody's.
const SOME: u64 = 3;

/// Why it can hardly happen here, a sentence each; empty where nothing speaks against it.
pub(super) fn why_not(header: &TraceHeader, timeline: &Timeline) -> Vec<String> {
    // What others have recorded need not hold the packets on both sides of NAT.
    if matches!(header.origin, Origin::Replay { .. }) || !header.sees_syns() {
        return Vec::new();
    }
    let mut why = Vec::new();
    let Translation { translated, redirected, untranslated, unanswered, vanished } =
        timeline.translation;
    let connects = translated + untranslated;
    let requests = timeline.requests.ended;
    if connects == 0 && requests >= ENOUGH && timeline.losses.is_empty() {
        why.push(format!(
            "{requests} requests were made, and no SYN to the Service carried a conntrack entry on this node: its \
             address is translated by something else (eBPF in place of kube-proxy), or not at all (a headless Service), \
             or on another node"
        ));
    }
    if translated == 0 && untranslated >= ENOUGH {
        why.push(format!(
            "none of {untranslated} connects was translated by this node's conntrack: kube-proxy is replaced by \
             something with tables of its own, or the Service is headless; there are no entries that could go stale"
        ));
    }
    if redirected >= ENOUGH && redirected == translated {
        why.push(format!(
            "all {redirected} connects were led back to the client's own address: a proxy beside it (a mesh's sidecar) \
             makes the connections, from ports of its own; trace those"
        ));
    }
    // What is flushed on purpose vanishes, too.
    if timeline.interventions.is_empty() && vanished >= SOME && vanished * 2 > unanswered {
        why.push(format!(
            "{vanished} of {unanswered} unanswered entries had been deleted before they expired when their port came \
             round: something on this node removes the entries of pods that are gone"
        ));
    }
    why
}
