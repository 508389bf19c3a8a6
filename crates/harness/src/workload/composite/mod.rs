//! Composite transactions under load: components in this process, over real HTTP on loopback, each
//! with a database of its own; and the same work written by hand, to compare with.
//!
//! | file | what it holds |
//! |---|---|
//! | `http` | clients that post requests |
//! | `host` | components and other services, with threads of their own |
//! | `place` | where components have their databases |
//! | `tree` | the paper's workload: a tree of services, each an update of an item |
//! | `plain` | one service of it with plain SQL |
//! | `entries` | the same with an undo entry, in a slot or as a row |
//! | `purchase` | shop, stock and payment as components |
//! | `pool` | connections for what is written by hand |
//! | `direct` | the purchase by a two-phase commit over three connections |
//! | `by_hand` | the purchase by three services with a two-phase commit of their own, or with none |
//!
//! Items are chosen as in the paper: 80 % of the requests meet 20 % of them.

pub mod by_hand;
pub mod direct;
pub mod entries;
pub mod host;
pub mod http;
pub mod place;
pub mod plain;
pub mod pool;
pub mod purchase;
pub mod tree;

use crate::random::Random;

/// Rows of each table.
pub const ITEMS: i32 = 10_000;
/// Connections of a service to its database, of components and of what is compared with them.
pub const CONNECTIONS: usize = 24;

/// An item: 80 % of them are of the first fifth.
pub fn skewed(random: &mut Random) -> i32 {
    match random.chance(80) {
        true => random.int(1, ITEMS / 5),
        false => random.int(ITEMS / 5 + 1, ITEMS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_of_five_requests_meet_a_fifth_of_the_items() {
        let mut random = Random::new(1);
        let drawn: Vec<i32> = (0..10_000).map(|_| skewed(&mut random)).collect();
        assert!(drawn.iter().all(|item| (1..=ITEMS).contains(item)));
        let hot = drawn.iter().filter(|item| **item <= ITEMS / 5).count();
        assert!((7_800..8_200).contains(&hot), "{hot}");
    }
}
