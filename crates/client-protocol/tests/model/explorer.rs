//! Breadth first over all states: so the first violation has a shortest history.
//!
//! A state is known by 128 bits of hash, its number, and the step that first led to it; no whole
//! states are kept, or the frontier alone would need tens of gigabytes. They are made again by
//! their steps ([`Path`]): the states of a level have their numbers in the order of their
//! predecessors', so each shares nearly all of its history with the one before it.
//!
//! ```text
//! level 2          4        5     6            made again for 4: the first state, 1, 4
//!                 / \       |     |            for 5: nothing above 1 is needed again
//! level 1        1   ...    1     2            for 6: from the first state: 2, 6
//! ```

use std::collections::HashSet;
use std::fmt::Write;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::time::{Duration, Instant};

use crate::heal;
use crate::world::{Bounds, Step, Violation, World};

/// What was seen.
pub(crate) struct Explored {
    pub(crate) states: usize,
    pub(crate) steps: u64,
    pub(crate) depth: usize,
    pub(crate) healings: usize,
    /// States of attempts that are made together, after the last fault.
    pub(crate) together: usize,
    pub(crate) elapsed: Duration,
    /// The broken property and a shortest history that breaks it.
    pub(crate) violation: Option<String>,
}

/// The keys are hashes already.
#[derive(Default)]
pub(crate) struct Folded(u64);

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

pub(crate) type Hashes = HashSet<u128, BuildHasherDefault<Folded>>;

/// Two independent lanes of folded multiplications; nobody chooses the states to make them collide.
struct Wide(u64, u64);

fn folded(number: u64, by: u64) -> u64 {
    let product = u128::from(number) * u128::from(by);
    product as u64 ^ (product >> 64) as u64
}

impl Hasher for Wide {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let word = chunk.iter().rev().fold(chunk.len() as u64, |word, byte| word << 8 | u64::from(*byte));
            self.write_u64(word);
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = folded(self.0 ^ number, 0x9e37_79b9_7f4a_7c15).wrapping_add(0x2545_f491_4f6c_dd1d);
        self.1 = folded(self.1.rotate_left(23) ^ number, 0xd6e8_feb8_6659_fd93)
            .wrapping_add(0xa076_1d64_78bd_642f);
    }
}

pub(crate) fn fingerprint(value: &impl Hash) -> u128 {
    let mut hasher = Wide(0x1234_5678_9abc_def1, 0x0fed_cba9_8765_4321);
    value.hash(&mut hasher);
    u128::from(hasher.0) << 64 | u128::from(hasher.1)
}

/// How a state was first reached: from which other, by which step.
type Origins = [(u32, Step)];

/// A state, with all those that lead to it.
struct Path<'a> {
    bounds: &'a Bounds,
    states: Vec<(u32, World)>,
}

impl<'a> Path<'a> {
    fn new(first: World, bounds: &'a Bounds) -> Path<'a> {
        Path { bounds, states: vec![(0, first)] }
    }

    /// Goes to a state.
    fn reach(&mut self, number: u32, origins: &Origins) -> &World {
        let mut missing = Vec::new();
        let mut at = number;
        // Numbers grow along a path.
        while self.states.last().is_some_and(|(last, _)| *last != at) {
            if self.states.last().is_some_and(|(last, _)| *last > at) {
                self.states.pop();
                continue;
            }
            let (before, step) = origins[at as usize];
            missing.push((at, step));
            at = before;
        }
        for (number, step) in missing.into_iter().rev() {
            let mut world = self.states.last().expect("the first state is never left").1.clone();
            world.take(step, self.bounds).expect("a step that was taken before");
            self.states.push((number, world));
        }
        &self.states.last().expect("the first state is never left").1
    }
}

/// Explores all states within the bounds, but stops at the first violation that is `wanted`; steps
/// with another are not taken.
pub(crate) fn explore(bounds: &Bounds, wanted: Wanted<'_>) -> Explored {
    let begun = Instant::now();
    let (mut steps, mut depth) = (0, 0);
    let first = World::new(bounds);
    let mut seen = Hashes::default();
    let mut origins: Vec<(u32, Step)> = vec![(0, Step::TimeOut(0))];
    let mut healed = Healed::default();
    seen.insert(fingerprint(&first));
    let mut violation = heal_once(&first, bounds, &mut healed, wanted).err().map(|broken| (broken, 0, None));
    let mut path = Path::new(first, bounds);
    let mut level = 0..1u32;
    'levels: while !level.is_empty() && violation.is_none() {
        for number in level.clone() {
            let world = path.reach(number, &origins);
            for step in world.steps(bounds) {
                steps += 1;
                let mut after = world.clone();
                if let Err(broken) = after.take(step, bounds) {
                    if !wanted(&broken) {
                        continue;
                    }
                    violation = Some((broken, number, Some(step)));
                    break 'levels;
                }
                if !seen.insert(fingerprint(&after)) {
                    continue;
                }
                let fresh = u32::try_from(origins.len()).expect("fewer states than four thousand millions");
                origins.push((number, step));
                if let Err(broken) = heal_once(&after, bounds, &mut healed, wanted) {
                    violation = Some((broken, fresh, None));
                    break 'levels;
                }
            }
        }
        depth += 1;
        level = level.end..origins.len() as u32;
    }
    let violation = violation.map(|(broken, at, last)| history(bounds, &origins, at, last, &broken));
    let together = healed.together.len();
    let (states, healings) = (seen.len(), healed.states.len());
    Explored { states, steps, depth, healings, together, elapsed: begun.elapsed(), violation }
}

/// Healing depends on clients and sites alone.
fn heal_once(
    world: &World,
    bounds: &Bounds,
    healed: &mut Healed,
    wanted: Wanted<'_>,
) -> Result<(), Violation> {
    if !bounds.has_tombstones || !healed.states.insert(fingerprint(&(&world.clients, &world.sites))) {
        return Ok(());
    }
    let mut outcomes = vec![heal::clients(world, bounds), heal::stubs(world, bounds)];
    if bounds.attempts.len() > 1 {
        outcomes.push(heal::together(world, bounds, &mut healed.together));
    }
    outcomes
        .into_iter()
        .find(|outcome| outcome.as_ref().is_err_and(|broken| wanted(broken)))
        .unwrap_or(Ok(()))
}

/// Which violations are looked for.
type Wanted<'a> = &'a dyn Fn(&str) -> bool;

/// What need not be healed again.
#[derive(Default)]
struct Healed {
    states: Hashes,
    together: Hashes,
}

fn history(bounds: &Bounds, origins: &Origins, at: u32, last: Option<Step>, broken: &Violation) -> String {
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
