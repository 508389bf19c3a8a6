//! Finding a cycle in who waits for whom.
//!
//! A transaction waits for at most one resource, but possibly for several transactions there. The search starts at
//! the transaction that is about to wait: a cycle that does not pass through it would have been found when its own
//! last member began to wait. So the newcomer is the victim, and the answer names its cycle.
//!
//! ```text
//! T1 holds a, T2 holds b, T1 waits for b:   T1 -> T2                  no cycle
//! T2 asks for a:                            T2 -> T1 -> T2            T2 is refused; cycle [T2, T1]
//! ```

use std::collections::HashSet;

use smallvec::SmallVec;

use crate::TransactionId;

/// The members of a cycle through `start`, beginning with `start`, each waiting for the next; or `None`.
///
/// `blockers` answers for whom a transaction waits (nobody if it does not wait).
pub(crate) fn find_cycle(
    start: TransactionId,
    mut blockers: impl FnMut(TransactionId) -> SmallVec<[TransactionId; 4]>,
) -> Option<Vec<TransactionId>> {
    let mut path = vec![start];
    let mut branches = vec![blockers(start)];
    let mut seen = HashSet::from([start]);
    while let Some(branch) = branches.last_mut() {
        match branch.pop() {
            None => {
                branches.pop();
                path.pop();
            }
            Some(next) if next == start => return Some(path),
            Some(next) => {
                if seen.insert(next) {
                    path.push(next);
                    branches.push(blockers(next));
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(edges: &[(u64, u64)], start: u64) -> Option<Vec<u64>> {
        find_cycle(start, |t| edges.iter().filter(|e| e.0 == t).map(|e| e.1).collect())
    }

    #[test]
    fn finds_a_cycle_through_the_start_only() {
        assert_eq!(search(&[(1, 2), (2, 3)], 1), None);
        assert_eq!(search(&[(1, 2), (2, 3), (3, 2)], 1), None);
        assert_eq!(search(&[(1, 2), (1, 4), (2, 3), (3, 1)], 1), Some(vec![1, 2, 3]));
        assert_eq!(search(&[(1, 4), (4, 5), (1, 2), (2, 5), (5, 1)], 1), Some(vec![1, 2, 5]));
    }

    /// Every graph of four transactions, against reachability by repeated closure.
    #[test]
    fn agrees_with_reachability_on_every_small_graph() {
        for bits in 0u32..1 << 12 {
            let pairs = (0..4u64).flat_map(|a| (0..4).filter(move |b| a != *b).map(move |b| (a, b)));
            let edges: Vec<_> =
                pairs.enumerate().filter(|(i, _)| bits & (1 << i) != 0).map(|p| p.1).collect();
            let mut reach: HashSet<(u64, u64)> = edges.iter().copied().collect();
            loop {
                let more: Vec<_> = reach
                    .iter()
                    .flat_map(|a| edges.iter().filter(|e| e.0 == a.1).map(|e| (a.0, e.1)))
                    .filter(|e| !reach.contains(e))
                    .collect();
                if more.is_empty() {
                    break;
                }
                reach.extend(more);
            }
            let cycle = search(&edges, 0);
            assert_eq!(cycle.is_some(), reach.contains(&(0, 0)), "{edges:?}");
            if let Some(cycle) = cycle {
                let next = cycle.iter().cycle().skip(1);
                assert!(
                    cycle.iter().zip(next).all(|(a, b)| edges.contains(&(*a, *b))),
                    "{edges:?} {cycle:?}"
                );
            }
        }
    }
}
