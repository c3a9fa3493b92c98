//! How long a change of the EndpointSlice takes to reach a node's rules: drawn, not awaited. Pure.

use std::ops::RangeInclusive;
use std::time::Duration;

use rand::RngExt;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::plan::Node;

/// The lag of one change on one node. It depends on nothing but the arguments: not on the order in which
/// threads ask.
pub(crate) fn draw(
    seed: u64,
    change: u64,
    node: Node,
    between: &RangeInclusive<Duration>,
) -> Duration {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream((change << 8) | u64::from(node.0));
    random.random_range(between.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BETWEEN: RangeInclusive<Duration> =
        Duration::from_millis(300)..=Duration::from_millis(800);

    #[test]
    fn the_same_seed_gives_the_same_lag() {
        assert_eq!(draw(7, 3, Node(1), &BETWEEN), draw(7, 3, Node(1), &BETWEEN));
    }

    #[test]
    fn seeds_changes_and_nodes_have_lags_of_their_own() {
        let lag = draw(7, 3, Node(1), &BETWEEN);
        assert_ne!(lag, draw(8, 3, Node(1), &BETWEEN));
        assert_ne!(lag, draw(7, 4, Node(1), &BETWEEN));
        assert_ne!(lag, draw(7, 3, Node(0), &BETWEEN));
    }

    #[test]
    fn lags_fill_the_range_and_stay_in_it() {
        let lags: Vec<_> = (0..1000).map(|change| draw(1, change, Node(0), &BETWEEN)).collect();
        assert!(lags.iter().all(|lag| BETWEEN.contains(lag)));
        let mean = lags.iter().sum::<Duration>() / 1000;
        assert!((mean.as_secs_f64() - 0.55).abs() < 0.02, "the mean is {mean:?}");
        assert!(lags.iter().min() < Some(&Duration::from_millis(310)));
        assert!(lags.iter().max() > Some(&Duration::from_millis(790)));
    }
}
