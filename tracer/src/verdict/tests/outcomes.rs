//! The outcome of the reused source port.

use expect_test::expect;

use super::{outcome, rollout};

/// The entry of an early failure is met again late.
const REUSED: &str = "
    10.5s  blackhole 40002 isn 1 left 120s to a request 1
    40s    blackhole 40002 isn 2 left 90.5s to a request 2";

#[test]
fn late_failures_on_stale_entries_support_it() {
    expect![[r#"
        Supported 1.00
        - 1 of 1 late failures sent their first SYN on an older entry to a pod that was gone
        - late attempts that met a stale entry: 1 of 1 failed; others: 0 of 132
        - nothing was lost or seen that speaks against it
        StaleRules: Refuted
        Dns: Refuted
    "#]]
    .assert_eq(&outcome(&rollout(REUSED)));
}
