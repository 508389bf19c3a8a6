//! All worlds that can be reached from one.
//!
//! Worlds are told apart by 128 bits of hash, and only the hashes are kept. Every world in which
//! nothing can happen is checked; and from every world such a one can be reached, so nothing can
//! wait for ever.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::quality::FixedState;

use crate::world::{Action, Plan, World};

/// What was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Explored {
    pub(crate) worlds: usize,
    pub(crate) ends: usize,
    /// Ends in which the first root is committed.
    pub(crate) committed: usize,
}

fn hash(world: &World) -> u128 {
    let half = |seed: u64| u128::from(FixedState::with_seed(seed).hash_one(world));
    half(1) << 64 | half(2)
}

/// Explores everything; panics with the way there if a world is wrong.
pub(crate) fn explore(plan: &Plan, start: World) -> Explored {
    let mut numbers: HashMap<u128, u32> = HashMap::new();
    // For each world: from where, and by what action of its list.
    let mut came: Vec<(u32, u16)> = vec![(0, 0)];
    let mut edges: Vec<(u32, u32)> = Vec::new();
    let mut ends: Vec<u32> = Vec::new();
    let mut explored = Explored::default();
    numbers.insert(hash(&start), 0);
    let first = start.clone();
    let mut open = vec![(0u32, start)];
    while let Some((number, world)) = open.pop() {
        let actions = world.actions(plan);
        if actions.is_empty() {
            if let Err(why) = world.check_end(plan) {
                panic!("{why}\n{}", way(plan, &first, &came, number));
            }
            explored.ends += 1;
            explored.committed += usize::from(world.decided.contains(&plan.beginnings[0].0));
            ends.push(number);
        }
        for (place, action) in actions.iter().enumerate() {
            let next = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.after(plan, action)));
            let Ok(next) = next else {
                panic!("by {action:?} after\n{}", way(plan, &first, &came, number));
            };
            let fresh = numbers.len() as u32;
            let seen = *numbers.entry(hash(&next)).or_insert(fresh);
            edges.push((seen, number));
            if seen == fresh {
                came.push((number, place as u16));
                open.push((fresh, next));
            }
        }
    }
    explored.worlds = numbers.len();
    check_that_all_end(plan, &first, &came, edges, ends);
    explored
}

/// From every world an end can be reached.
fn check_that_all_end(
    plan: &Plan,
    first: &World,
    came: &[(u32, u16)],
    mut edges: Vec<(u32, u32)>,
    ends: Vec<u32>,
) {
    edges.sort_unstable();
    let mut can_end = vec![false; came.len()];
    let mut open = ends;
    open.iter().for_each(|end| can_end[*end as usize] = true);
    while let Some(world) = open.pop() {
        let from = edges.partition_point(|(to, _)| *to < world);
        for (_, before) in edges[from..].iter().take_while(|(to, _)| *to == world) {
            if !std::mem::replace(&mut can_end[*before as usize], true) {
                open.push(*before);
            }
        }
    }
    if let Some(stuck) = can_end.iter().position(|can| !can) {
        panic!("this never ends:\n{}", way(plan, first, came, stuck as u32));
    }
}

/// The way to a world, one action a line.
fn way(plan: &Plan, first: &World, came: &[(u32, u16)], to: u32) -> String {
    let mut places = Vec::new();
    let mut at = to;
    while at != 0 {
        let (before, place) = came[at as usize];
        places.push(place);
        at = before;
    }
    let mut world = first.clone();
    let mut told = String::new();
    for place in places.into_iter().rev() {
        let action: Action = world.actions(plan)[usize::from(place)].clone();
        told += &match &action {
            Action::Deliver(index) => format!("deliver {:?}\n", world.messages[*index]),
            Action::Lose(index) => format!("lose {:?}\n", world.messages[*index]),
            Action::Duplicate(index) => format!("duplicate {:?}\n", world.messages[*index]),
            action => format!("{action:?}\n"),
        };
        world = world.after(plan, &action);
    }
    format!("{told}{world:#?}")
}
