//! What the correlator makes of small traces.

use super::testing::{scene, timeline};

#[test]
fn successes_are_forgotten_but_counted() {
    let timeline = timeline(&scene(
        "0s  pod b 10.0.1.8 added
         0s  load until 60s to b",
    ));
    assert_eq!(timeline.requests.ended, 60);
    assert_eq!((timeline.failures.len(), timeline.meetings.len(), timeline.entries.len()), (0, 0, 0));
    assert_eq!(timeline.tally.bins().map(|(_, bin)| bin.ok).sum::<u64>(), 60);
}
