//! Finding a cycle in who waits for whom, and breaking it by another order of a queue.
//!
//! A transaction waits for at most one resource, but possibly for several transactions
//! there: *hard* edges lead to those who hold it, *soft* ones to those who wait ahead. The search
//! starts at the transaction that is about to wait: a cycle that does not pass through it would
//! have been found when its own last member began to wait. It visits each transaction once, is told
//! of each by its queue as good as once (`leads`), and keeps its lists from one search to the next.
//!
//! Hard edges are followed first, and those ahead of somebody are asked for only when no more are
//! left: so the cycle found has as few soft edges as any, and none if none need be in one; and most
//! searches never look into a line.
//!
//! ```text
//! T1 holds a, T2 holds b, T1 waits for b:   T1 -> T2                  no cycle
//! T2 asks for a:                            T2 -> T1 -> T2            T2 is refused; cycle [T2, T1]
//! ```
//!
//! A cycle with a soft edge in it is none if the two change places: then the one who was ahead
//! waits for the other. So that is tried first, as in PostgreSQL, with the soft edges of the cycle
//! one after the other, the one farthest from the newcomer first; each time it is asked whether the
//! new order closes another cycle, which may need another change. Only if no change helps, the
//! newcomer is the victim, and the answer names its cycle.
//!
//! ```text
//! D1 holds a shared, D2 holds b shared, E1 waits for a exclusively, E2 for b, D1 for b shared behind E2
//! D2 asks for a shared, behind E1:          D2 ~> E1 -> D1 ~> E2 -> D2
//! D1 goes ahead of E2:                      D1 has b; E2 -> D1, E2 -> D2, D2 ~> E1 -> D1     no cycle
//! ```

use std::collections::hash_map::Entry::Vacant;
use std::collections::{HashMap, VecDeque};

use crate::TransactionId;

/// Orders that are tried before the newcomer is refused.
const MOST_TRIED: usize = 64;

/// Somebody who is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) to: TransactionId,
    /// Only because it is ahead in the queue.
    pub(crate) soft: bool,
}

/// A member of a cycle, and whether it waits for the next one only because of the queue's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) waiter: TransactionId,
    pub(crate) soft: bool,
}

/// In a queue, the waiting `owner` goes directly ahead of `before`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) owner: TransactionId,
    pub(crate) before: TransactionId,
}

/// Which edges of a waiter are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whom {
    /// Hard ones.
    Holders,
    /// Soft ones.
    Ahead,
}

/// What a search asks, and what it is told.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// The number of the search: a queue forgets what it has told another one.
    pub(super) search: u64,
    /// Where it began.
    pub(super) start: TransactionId,
    /// Whether that one waits in the queue that is asked, and is not the waiter asked about.
    pub(super) beside: bool,
    pub(super) edges: Vec<Edge>,
    /// Holders, and places of lines, that were gone over, in all searches.
    pub(super) steps: u64,
}

/// Who waits for whom.
pub(crate) trait WaitsFor {
    /// Appends to the edges of `asked` those of `waiter` (none if it does not wait), but for what
    /// need not be told to this search any more. Those to holders are asked for first, and the
    /// answer to that is whether the others need be.
    fn blockers(&mut self, waiter: TransactionId, whom: Whom, asked: &mut Asked) -> bool;

    /// From now on `blockers` answers as if these moves had been made; false if they cannot be had
    /// at once.
    fn suppose(&mut self, moves: &[Move]) -> bool;
}

/// The lists of a search, kept for the next one.
#[derive(Debug, Default)]
pub(crate) struct Search {
    asked: Asked,
    /// Reached, and not looked at yet.
    next: Vec<TransactionId>,
    /// Looked at, but for those ahead of them.
    later: VecDeque<TransactionId>,
    /// All that were reached, but for the start, with who waits for them.
    reached: HashMap<TransactionId, Step>,
    /// Transactions whose edges were looked at, in all searches.
    pub(crate) visited: u64,
}

impl Search {
    /// The members of a cycle through `start`, beginning with `start`, each waiting for the next;
    /// or `None`.
    pub(crate) fn find_cycle(
        &mut self,
        start: TransactionId,
        graph: &mut impl WaitsFor,
    ) -> Option<Vec<Step>> {
        self.begin(start);
        loop {
            let (waiter, whom) = match self.next.pop() {
                Some(waiter) => (waiter, Whom::Holders),
                None => (self.later.pop_front()?, Whom::Ahead),
            };
            self.visited += u64::from(whom == Whom::Holders);
            if graph.blockers(waiter, whom, &mut self.asked) {
                self.later.push_back(waiter);
            }
            for Edge { to, soft } in self.asked.edges.drain(..) {
                let step = Step { waiter, soft };
                if to == start {
                    return Some(way(&self.reached, step));
                }
                if let Vacant(place) = self.reached.entry(to) {
                    place.insert(step);
                    self.next.push(to);
                }
            }
        }
    }

    fn begin(&mut self, start: TransactionId) {
        self.asked.search += 1;
        self.asked.start = start;
        self.asked.edges.clear();
        self.next.clear();
        self.later.clear();
        self.reached.clear();
        self.next.push(start);
    }

    /// Holders and places of lines that were gone over, in all searches.
    #[cfg(test)]
    pub(crate) fn steps(&self) -> u64 {
        self.asked.steps
    }

    /// Moves after which nobody is in a cycle any more; `None` if there are none, or none were
    /// found.
    pub(crate) fn resolve(
        &mut self,
        start: TransactionId,
        cycle: &[Step],
        graph: &mut impl WaitsFor,
    ) -> Option<Vec<Move>> {
        let (mut moves, mut tried) = (Vec::new(), 0);
        self.try_moves(start, cycle, &mut moves, &mut tried, graph).then_some(moves)
    }

    /// Tries the soft edges of `cycle`, on top of the moves made so far.
    fn try_moves(
        &mut self,
        start: TransactionId,
        cycle: &[Step],
        moves: &mut Vec<Move>,
        tried: &mut usize,
        graph: &mut impl WaitsFor,
    ) -> bool {
        for (place, step) in cycle.iter().enumerate().rev().filter(|(_, step)| step.soft) {
            let next = cycle[(place + 1) % cycle.len()].waiter;
            moves.push(Move { owner: step.waiter, before: next });
            *tried += 1;
            if *tried <= MOST_TRIED && graph.suppose(moves) {
                // Edges that were not there before all lead to who was moved.
                let ends = std::iter::once(start).chain(moves.iter().map(|one| one.owner));
                let ends: Vec<TransactionId> = ends.collect();
                match ends.into_iter().find_map(|end| self.find_cycle(end, graph)) {
                    None => return true,
                    Some(cycle) if self.try_moves(start, &cycle, moves, tried, graph) => return true,
                    Some(_) => {}
                }
            }
            moves.pop();
        }
        false
    }
}

/// The way from the start to `last`, who leads back to it.
fn way(reached: &HashMap<TransactionId, Step>, last: Step) -> Vec<Step> {
    let mut steps = vec![last];
    let mut waiter = last.waiter;
    while let Some(step) = reached.get(&waiter) {
        steps.push(*step);
        waiter = step.waiter;
    }
    steps.reverse();
    steps
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    struct Fixed<'a>(&'a [(u64, u64)]);

    impl WaitsFor for Fixed<'_> {
        fn blockers(&mut self, waiter: u64, _: Whom, asked: &mut Asked) -> bool {
            let own = self.0.iter().filter(|e| e.0 == waiter);
            asked.edges.extend(own.map(|e| Edge { to: e.1, soft: false }));
            false
        }

        fn suppose(&mut self, _: &[Move]) -> bool {
            false
        }
    }

    fn search(edges: &[(u64, u64)], start: u64) -> Option<Vec<u64>> {
        let mut search = Search::default();
        let cycle = search.find_cycle(start, &mut Fixed(edges));
        assert!(search.visited <= 1 + edges.len() as u64, "each once");
        cycle.map(|cycle| cycle.iter().map(|step| step.waiter).collect())
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
