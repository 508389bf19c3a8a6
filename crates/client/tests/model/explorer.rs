//! Breadth first over all states: so the first violation has a shortest history.
//!
//! A state is known by 128 bits of hash; whole states are kept for the frontier only.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use crate::heal;
use crate::world::{Bounds, Step, Violation, World};

/// What was seen.
pub(crate) struct Explored {
    pub(crate) states: usize,
    pub(crate) steps: u64,
    pub(crate) depth: usize,
    pub(crate) healings: usize,
    pub(crate) elapsed: Duration,
    /// The broken property and a shortest history that breaks it.
    pub(crate) violation: Option<String>,
}

/// The keys are hashes already.
#[derive(Default)]
struct Folded(u64);

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for (place, byte) in bytes.iter().enumerate() {
            self.0 ^= u64::from(*byte) << (place % 8 * 8);
        }
    }

    fn write_u128(&mut self, number: u128) {
        self.0 ^= number as u64;
    }
}

type ByHash<V> = HashMap<u128, V, BuildHasherDefault<Folded>>;
type Hashes = HashSet<u128, BuildHasherDefault<Folded>>;

fn fingerprint(value: &impl Hash) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        value.hash(&mut hasher);
        hasher.finish()
    };
    u128::from(half(1)) << 64 | u128::from(half(2))
}

/// Explores all states within the bounds, but stops at the first violation, or beyond `most` states.
pub(crate) fn explore(bounds: &Bounds, most: usize) -> Explored {
    let begun = Instant::now();
    let (mut steps, mut depth) = (0, 0);
    let first = World::new(bounds);
    let mut seen = ByHash::default();
    let mut origins: Vec<(u32, Step)> = vec![(0, Step::TimeOut)];
    let mut healed = Hashes::default();
    seen.insert(fingerprint(&first), 0u32);
    let mut violation = heal_once(&first, bounds, &mut healed).err().map(|broken| (broken, 0, None));
    let mut frontier = vec![(0u32, first)];
    'levels: while !frontier.is_empty() && violation.is_none() && seen.len() <= most {
        let mut next = Vec::new();
        for (number, world) in frontier {
            for step in world.steps(bounds) {
                steps += 1;
                let mut after = world.clone();
                if let Err(broken) = after.take(step, bounds) {
                    violation = Some((broken, number, Some(step)));
                    break 'levels;
                }
                let fresh = origins.len() as u32;
                if *seen.entry(fingerprint(&after)).or_insert(fresh) != fresh {
                    continue;
                }
                origins.push((number, step));
                if let Err(broken) = heal_once(&after, bounds, &mut healed) {
                    violation = Some((broken, fresh, None));
                    break 'levels;
                }
                next.push((fresh, after));
            }
        }
        depth += 1;
        frontier = next;
    }
    let violation = violation.map(|(broken, at, last)| history(bounds, &origins, at, last, &broken));
    let (states, healings) = (seen.len(), healed.len());
    Explored { states, steps, depth, healings, elapsed: begun.elapsed(), violation }
}

/// Healing depends on client and sites alone.
fn heal_once(world: &World, bounds: &Bounds, healed: &mut Hashes) -> Result<(), Violation> {
    if !bounds.has_tombstones || !healed.insert(fingerprint(&(&world.client, &world.sites))) {
        return Ok(());
    }
    heal::client(world.clone(), bounds)?;
    heal::stubs(world.clone(), bounds)
}

fn history(
    bounds: &Bounds,
    origins: &[(u32, Step)],
    at: u32,
    last: Option<Step>,
    broken: &Violation,
) -> String {
    let mut steps: Vec<Step> = last.into_iter().collect();
    let mut at = at as usize;
    while at != 0 {
        steps.push(origins[at].1);
        at = origins[at].0 as usize;
    }
    steps.reverse();
    let mut text = format!("{broken}\nafter {} steps:\n", steps.len());
    let mut world = World::new(bounds);
    for (number, step) in steps.iter().enumerate() {
        let what = world.describe(*step);
        let _ = world.take(*step, bounds);
        let _ = writeln!(text, "{:3}. {what:52} {}", number + 1, world.summary());
    }
    text
}
