//! The search for a deadlock against one that follows every edge, in random queues: all strengths,
//! members of two families beside others, holders who wait elsewhere or for more of the same, and
//! lines in any order.
//!
//! Here nobody is refused, so there are cycles of all kinds, also such that do not pass through who
//! asks. The two must agree on whether somebody is in a cycle; each edge of the cycle found is one,
//! soft or hard as it says; and it has no soft edge if there is a cycle without any.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::deadlock::{Asked, Edge, Move, Search, WaitsFor, Whom};
use super::mode::{FamilySlot, Mode, STRENGTHS};
use super::queue::{Answer, Queue};
use crate::TransactionId;

const OWNERS: u64 = 8;
const ROWS: usize = 3;

#[derive(Debug, Clone, Copy)]
enum Step {
    Ask(TransactionId, usize, usize),
    End(TransactionId),
    GiveUp(TransactionId),
    /// Who waits goes ahead of another one in its line, whatever comes of it.
    Ahead(TransactionId, TransactionId),
}

fn step() -> impl Strategy<Value = Step> {
    let owner = 1..=OWNERS;
    let ask = (owner.clone(), 0..ROWS, 0..STRENGTHS.len());
    prop_oneof![
        12 => ask.prop_map(|(owner, row, mode)| Step::Ask(owner, row, mode)),
        1 => owner.clone().prop_map(Step::End),
        1 => owner.clone().prop_map(Step::GiveUp),
        2 => (owner.clone(), owner).prop_map(|(one, other)| Step::Ahead(one, other)),
    ]
}

/// Two families of two, and four others.
fn mode_of(owner: TransactionId, strength: usize) -> Mode {
    match owner {
        1 | 2 => Mode::Sibling(STRENGTHS[strength], FamilySlot::MIN),
        3 | 4 => Mode::Sibling(STRENGTHS[strength], FamilySlot::MAX),
        _ => Mode::Row(STRENGTHS[strength]),
    }
}

struct Rows {
    rows: Vec<Queue<TransactionId>>,
    standing: BTreeMap<TransactionId, (usize, Mode)>,
}

impl WaitsFor for Rows {
    fn blockers(&mut self, waiter: TransactionId, whom: Whom, asked: &mut Asked) -> bool {
        let Some((row, mode)) = self.standing.get(&waiter).copied() else { return false };
        let first = self.standing.get(&asked.start);
        asked.beside = waiter != asked.start && first.is_some_and(|(first, _)| *first == row);
        self.rows[row].blockers(waiter, mode, whom, asked)
    }

    fn suppose(&mut self, _: &[Move]) -> bool {
        false
    }
}

impl Rows {
    fn take(&mut self, step: Step) {
        let mut granted = Vec::new();
        match step {
            Step::Ask(owner, row, strength) if !self.standing.contains_key(&owner) => {
                let mode = mode_of(owner, strength);
                if self.rows[row].request(owner, mode) == Answer::Busy {
                    self.rows[row].enqueue(owner, mode, owner);
                    self.standing.insert(owner, (row, mode));
                }
            }
            Step::Ask(..) => {}
            Step::End(owner) => {
                self.take(Step::GiveUp(owner));
                self.rows.iter_mut().for_each(|queue| queue.release(owner, &mut granted));
            }
            Step::GiveUp(owner) => {
                if let Some((row, _)) = self.standing.remove(&owner) {
                    assert!(self.rows[row].withdraw(owner, &mut granted));
                }
            }
            Step::Ahead(owner, before) => {
                if let Some((row, _)) = self.standing.get(&owner) {
                    self.rows[*row].move_ahead(owner, before);
                    self.rows[*row].settle(&mut granted);
                }
            }
        }
        self.standing.retain(|owner, _| !granted.contains(owner));
    }

    fn edges(&self, waiter: TransactionId) -> Vec<Edge> {
        self.standing.get(&waiter).map(|(row, _)| self.rows[*row].every_blocker(waiter)).unwrap_or_default()
    }

    /// Whether somebody leads back to itself, by these edges.
    fn is_in_cycle(&self, start: TransactionId, counts: fn(&Edge) -> bool) -> bool {
        let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
        while let Some(waiter) = next.pop() {
            for edge in self.edges(waiter).into_iter().filter(counts) {
                if edge.to == start {
                    return true;
                }
                if seen.insert(edge.to) {
                    next.push(edge.to);
                }
            }
        }
        false
    }

    fn check(&mut self, search: &mut Search) {
        let waiting: Vec<TransactionId> = self.standing.keys().copied().collect();
        for start in waiting {
            let cycle = search.find_cycle(start, self);
            assert_eq!(cycle.is_some(), self.is_in_cycle(start, |_| true), "{start}: {:?}", self.rows);
            let Some(cycle) = cycle else { continue };
            assert_eq!(cycle[0].waiter, start);
            for (step, next) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
                let edge = Edge { to: next.waiter, soft: step.soft };
                assert!(self.edges(step.waiter).contains(&edge), "{cycle:?}: {:?}", self.rows);
            }
            let soft = cycle.iter().any(|step| step.soft);
            assert_eq!(soft, !self.is_in_cycle(start, |edge| !edge.soft), "{cycle:?}: {:?}", self.rows);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_search_finds_a_cycle_if_there_is_one(steps in proptest::collection::vec(step(), 1..60)) {
        let rows = (0..ROWS).map(|_| Queue::new()).collect();
        let (mut rows, mut search) = (Rows { rows, standing: BTreeMap::new() }, Search::default());
        for step in steps {
            rows.take(step);
            rows.check(&mut search);
        }
    }
}
