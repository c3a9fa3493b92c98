//! The model: how many connects should meet a stale entry, by what was known when late began.
//!
//! It walks the source ports as `__inet_hash_connect` does (net/ipv4/inet_hashtables.c) on kernels that
//! have the port selection changes of May 2022 (mainline 5.18, commits 4dfa9b438ee3 and ca7af0402550):
//!
//! - only ports of the range's first parity are taken while one of them is free;
//! - for one destination the walk goes on by `max(i, 2·random(0..7)) + 2` port numbers a connect, where
//!   `i` is how far it had to look for a free port;
//! - every 10 s of the kernel's clock it is thrown to a new random place.
//!
//! Older kernels walk on by 2 and are never thrown: the mean is about the same there, the spread is not.
//! Clients that close first keep most ports in TIME_WAIT, and their walk falls on the rest: they meet two
//! to three times as many stale entries as this says.

use std::collections::VecDeque;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// How long the walk goes on before it is thrown elsewhere, in seconds.
const EPOCH: f64 = 10.0;
/// Simulated runs. Fewer only where the client is so fast that they would take seconds.
const RUNS: u64 = 2_000;
/// Never fewer than this: the lowest and the highest of 40 runs still hold 95 % of all.
const MIN_RUNS: u64 = 40;
/// How many draws of random numbers all runs together may cost, before there are fewer of them.
const WORK: f64 = 2e7;

/// How many connects one jump passes over at most.
const JUMP: u64 = 64;
/// The longest step while no port is in the way, in ports of the ring: 16 port numbers.
const LONGEST_STEP: u32 = 8;

/// What was known when late began. Times are seconds from the rollout's end.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// The source port of each stale entry, and when it expires. Pods can die after the rollout is complete:
    /// entries made until `from` belong here too.
    pub entries: Vec<(u16, f64)>,
    /// Connects a second while no worker is blocked. (The average over a time with blocked workers is
    /// lower, and the blocking would then be counted twice.)
    pub rate: f64,
    /// The client's concurrency: how many connects can be open at once. 0: not limited, or not known;
    /// then a blocked connect does not slow the client.
    pub workers: u32,
    /// How long a connect that meets a stale entry blocks its worker and holds its port, in seconds. 0: not
    /// known; then it does neither.
    pub timeout: f64,
    /// `net.ipv4.ip_local_port_range`, both ends included.
    pub range: (u16, u16),
    /// The beginning of the window in which attempts are counted.
    pub from: f64,
    /// The window's end.
    pub until: f64,
    /// Where the random numbers begin. The same input gives the same prediction.
    pub seed: u64,
}

/// How many connects of the window meet a live stale entry.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prediction {
    /// The mean.
    pub expected: f64,
    /// The 2.5th percentile.
    pub low: f64,
    /// The 97.5th percentile.
    pub high: f64,
}

/// Simulates the port walk and counts.
pub fn predict(input: &Input) -> Prediction {
    predict_by(input, RUNS)
}

/// As [`predict`], by at most so many runs.
fn predict_by(input: &Input, most: u64) -> Prediction {
    let Some(ring) = Ring::new(input) else {
        return Prediction::default();
    };
    let mut rng = ChaCha8Rng::seed_from_u64(input.seed);
    let runs = ((WORK / ring.work(input.rate)) as u64).clamp(MIN_RUNS, most);
    let mut counts: Vec<u32> = (0..runs).map(|_| Run::new(&ring, input).count(&mut rng)).collect();
    counts.sort_unstable();
    let last = counts.len() - 1;
    Prediction {
        expected: counts.iter().copied().map(f64::from).sum::<f64>() / runs as f64,
        // Outward to whole runs, so that the interval holds at least 95 % of them.
        low: f64::from(counts[(0.025 * last as f64).floor() as usize]),
        high: f64::from(counts[(0.975 * last as f64).ceil() as usize]),
    }
}

/// The ports that the walk can take, numbered from 0 in steps of two port numbers, and the stale ones.
struct Ring {
    /// How many ports there are.
    size: u32,
    /// Numbers of the stale ports, ascending, each with its entry's expiry.
    stale: Vec<(u32, f64)>,
    /// When the simulation begins: early enough for workers that are blocked when the window opens.
    begin: f64,
    /// When the last count can happen.
    until: f64,
}

impl Ring {
    /// None where nothing can be met.
    fn new(input: &Input) -> Option<Ring> {
        let (low, high) = input.range;
        // As the kernel has it: both ends included, then rounded down to whole pairs.
        let size = (u32::from(high) + 1).checked_sub(u32::from(low))? / 2;
        let begin = (input.from - 2.0 * input.timeout).max(0.0).min(input.from);
        let mut stale: Vec<(u32, f64)> = input
            .entries
            .iter()
            .filter(|(port, expiry)| {
                (low..=high).contains(port) && (port - low) % 2 == 0 && *expiry > begin
            })
            .map(|(port, expiry)| (u32::from(port - low) / 2, *expiry))
            .filter(|(number, _)| *number < size)
            .collect();
        // One port can have several entries (to several Services); it is stale until the last is gone.
        stale.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
        stale.dedup_by_key(|(number, _)| *number);
        let until =
            stale.iter().map(|(_, expiry)| *expiry).fold(f64::MIN, f64::max).min(input.until);
        let rate_is_usable = input.rate.is_finite() && input.rate > 0.0;
        let window_is_usable = until.is_finite() && until > input.from && begin.is_finite();
        (rate_is_usable && window_is_usable && !stale.is_empty()).then_some(Ring {
            size,
            stale,
            begin,
            until,
        })
    }

    /// About how many draws of random numbers a run costs: the walk jumps where no stale port is near.
    fn work(&self, rate: f64) -> f64 {
        let near = (16.0 * self.stale.len() as f64 / f64::from(self.size)).min(1.0);
        rate * (self.until - self.begin) * (near + 1.0 / JUMP as f64)
    }

    /// How many ports lie from `place` to the next stale one, 0 if it is one itself; and which that is.
    fn distance(&self, place: u32) -> (u32, usize) {
        let next = self.stale.partition_point(|(number, _)| *number < place);
        match self.stale.get(next) {
            Some((number, _)) => (number - place, next),
            None => (self.size - place + self.stale[0].0, 0),
        }
    }
}

/// One simulated run.
struct Run<'a> {
    ring: &'a Ring,
    input: &'a Input,
    /// When the next connect is made.
    time: f64,
    /// Where the walk stands.
    place: u32,
    /// When it is thrown next.
    throw: f64,
    /// Blocked connects, oldest first: when each ends, and the port that it holds until then.
    blocked: VecDeque<(f64, u32)>,
}

impl<'a> Run<'a> {
    fn new(ring: &'a Ring, input: &'a Input) -> Run<'a> {
        // `throw` in the past: the first connect draws where the epoch stands, and the walk's place.
        Run { ring, input, time: ring.begin, place: 0, throw: f64::MIN, blocked: VecDeque::new() }
    }

    /// Runs to the end; how many connects of the window met a live stale entry.
    fn count(mut self, rng: &mut ChaCha8Rng) -> u32 {
        let mut met = 0;
        while self.time < self.ring.until {
            while self.blocked.front().is_some_and(|(end, _)| *end <= self.time) {
                self.blocked.pop_front();
            }
            let Some(pace) = self.pace() else {
                // Every worker is blocked: nothing happens until the first is free.
                self.time = self.blocked.front().map_or(self.ring.until, |(end, _)| *end);
                continue;
            };
            if self.throw <= self.time {
                self.throw_walk(rng);
            }
            let (distance, next) = self.ring.distance(self.place);
            if distance > 0 {
                // No stale port can be met by the next connects, whatever steps they take: pass over them
                // in one go, but not over anything that changes the pace or the place.
                let change =
                    self.blocked.front().map_or(self.throw, |(end, _)| end.min(self.throw));
                let until_change = ((change - self.time) / pace).ceil().max(1.0) as u64;
                let until_near = u64::from((distance - 1) / LONGEST_STEP) + 1;
                let connects = until_change.min(until_near).min(JUMP);
                self.advance(steps(connects, rng));
                self.time += connects as f64 * pace;
            } else {
                met += u32::from(self.connect(next, rng));
                self.time += pace;
            }
        }
        met
    }

    /// Seconds between connects while as many workers are free as now; none if none is.
    fn pace(&self) -> Option<f64> {
        if self.input.workers == 0 {
            return Some(1.0 / self.input.rate);
        }
        let free = self.input.workers.saturating_sub(self.blocked.len() as u32);
        (free > 0).then(|| f64::from(self.input.workers) / (f64::from(free) * self.input.rate))
    }

    /// A new epoch, and a new place.
    fn throw_walk(&mut self, rng: &mut ChaCha8Rng) {
        self.throw = if self.throw == f64::MIN {
            // Nobody knows where in its 10 s the kernel's clock stood.
            self.time + EPOCH * rng.random::<f64>()
        } else {
            self.throw + EPOCH * ((self.time - self.throw) / EPOCH + 1.0).floor()
        };
        self.place = rng.random_range(0..self.ring.size);
    }

    /// One connect from a place whose port is stale: whether it met a live entry inside the window.
    fn connect(&mut self, stale: usize, rng: &mut ChaCha8Rng) -> bool {
        // A port that a blocked connect holds is not free: the kernel looks at the next ones.
        let mut skipped = 0;
        let mut number = self.place;
        let mut entry = self.ring.stale.get(stale).copied();
        while self.blocked.iter().any(|(_, held)| *held == number) && skipped < self.ring.size {
            skipped += 1;
            number = (number + 1) % self.ring.size;
            let (distance, next) = self.ring.distance(number);
            entry = if distance == 0 { self.ring.stale.get(next).copied() } else { None };
        }
        self.advance(skipped.max(steps(1, rng) - 1) + 1);
        let met = entry.is_some_and(|(_, expiry)| self.time < expiry);
        if met && self.input.timeout > 0.0 && self.input.workers > 0 {
            self.blocked.push_back((self.time + self.input.timeout, number));
        }
        met && self.time >= self.input.from
    }

    fn advance(&mut self, ports: u32) {
        self.place = (self.place + ports) % self.ring.size;
    }
}

/// How far `connects` steps lead together, in ports of the ring: each is 1 to 8, all equally likely.
///
/// Exact, not an approximation: a step less one is a random number of three bits, so the ones among
/// `connects` random bits count its bits of one weight in all the steps at once.
fn steps(connects: u64, rng: &mut ChaCha8Rng) -> u32 {
    debug_assert!((1..=JUMP).contains(&connects));
    let mask = u64::MAX >> (64 - connects);
    let bits = if connects <= 21 {
        let all = rng.next_u64();
        [all, all >> connects, all >> (2 * connects)]
    } else {
        [rng.next_u64(), rng.next_u64(), rng.next_u64()]
    };
    let ones = bits.map(|bits| (bits & mask).count_ones());
    connects as u32 + ones[0] + 2 * ones[1] + 4 * ones[2]
}

#[cfg(test)]
mod tests;
