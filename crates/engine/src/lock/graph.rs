//! Who waits, and for what: the graph that the search for deadlocks goes through.
//!
//! Queues are the truth about who waits for whom; this only says in which queue a transaction
//! stands. An entry outlives its wait for the moment between the grant and the waiter's next step;
//! its queue has nothing in its way then.

use std::collections::HashMap;

use super::advisory::{ADVISORY_TREE, AdvisoryKey};
use super::deadlock::{Asked, Move, Search, WaitsFor, Whom};
use super::mode::{Mode, TreeMode, names};
use super::queue::Queue;
use crate::{Key, TransactionId, TreeId};

/// In which queue a transaction stands, and for what.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) hash: u64,
    pub(super) tree: TreeId,
    /// `None`: the tree as a whole.
    pub(super) key: Option<Key>,
    pub(super) mode: Mode,
    /// What it holds by another number, and cannot let go of while it waits: a session's advisory
    /// locks beside its transaction's, or the other way round.
    pub(super) companion: Option<TransactionId>,
}

impl Standing {
    fn is_in_queue_of(&self, other: &Standing) -> bool {
        self.hash == other.hash && self.tree == other.tree && self.key == other.key
    }
}

/// Everybody who waits, and the lists of the search.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) standing: HashMap<TransactionId, Standing>,
    /// By companion, who waits for both.
    pub(super) companions: HashMap<TransactionId, TransactionId>,
    pub(super) search: Search,
}

impl Graph {
    /// `owner` begins to wait.
    pub(super) fn enter(&mut self, owner: TransactionId, standing: Standing) {
        if let Some(companion) = standing.companion {
            self.companions.insert(companion, owner);
        }
        self.standing.insert(owner, standing);
    }

    /// `owner` waits no longer.
    pub(super) fn leave(&mut self, owner: TransactionId) -> Option<Standing> {
        let standing = self.standing.remove(&owner)?;
        if let Some(companion) = standing.companion {
            self.companions.remove(&companion);
        }
        Some(standing)
    }

    /// Where somebody waits, itself or by its companion.
    pub(super) fn standing_of(&self, owner: TransactionId) -> Option<&Standing> {
        let own = self.standing.get(&owner);
        own.or_else(|| self.standing.get(self.companions.get(&owner)?))
    }
}

/// The queues as they are.
pub(super) trait Queues {
    /// As `Queue::blockers`, of the queue in which `waiter` stands.
    fn blockers(&self, standing: &Standing, waiter: TransactionId, whom: Whom, asked: &mut Asked) -> bool;

    /// A copy of a queue to try another order, if there is such a queue.
    fn sketch(&self, standing: &Standing) -> Option<Queue<()>>;
}

/// The queues as they are, but for those in which another order is tried.
pub(super) struct Orders<'a, Q> {
    queues: &'a Q,
    standing: &'a HashMap<TransactionId, Standing>,
    companions: &'a HashMap<TransactionId, TransactionId>,
    tried: Vec<(&'a Standing, Queue<()>)>,
}

impl<'a, Q: Queues> Orders<'a, Q> {
    pub(super) fn new(
        queues: &'a Q,
        standing: &'a HashMap<TransactionId, Standing>,
        companions: &'a HashMap<TransactionId, TransactionId>,
    ) -> Orders<'a, Q> {
        Orders { queues, standing, companions, tried: Vec::new() }
    }

    /// The queue of a waiter, in the order that is tried; a copy of it first, if need be.
    fn tried(&mut self, waiter: TransactionId) -> Option<&mut Queue<()>> {
        let standing = self.standing.get(&waiter)?;
        let known = self.tried.iter().position(|(other, _)| other.is_in_queue_of(standing));
        let place = match known {
            Some(place) => place,
            None => {
                let sketch = self.queues.sketch(standing)?;
                self.tried.push((standing, sketch));
                self.tried.len() - 1
            }
        };
        Some(&mut self.tried[place].1)
    }
}

impl<Q: Queues> WaitsFor for Orders<'_, Q> {
    fn blockers(&mut self, waiter: TransactionId, whom: Whom, asked: &mut Asked) -> bool {
        let Some(standing) = self.standing.get(&waiter) else { return false };
        let first = self.standing.get(&asked.start);
        asked.beside = waiter != asked.start && first.is_some_and(|first| first.is_in_queue_of(standing));
        let own = asked.edges.len();
        let lead_further = match self.tried.iter_mut().find(|(other, _)| other.is_in_queue_of(standing)) {
            Some((_, queue)) => queue.blockers(waiter, standing.mode, whom, asked),
            None => self.queues.blockers(standing, waiter, whom, asked),
        };
        if !self.companions.is_empty() {
            // Who holds something and waits by another number waits all the same.
            for edge in &mut asked.edges[own..] {
                edge.to = self.companions.get(&edge.to).copied().unwrap_or(edge.to);
            }
        }
        lead_further
    }

    fn suppose(&mut self, moves: &[Move]) -> bool {
        self.tried.clear();
        for &Move { owner, before } in moves {
            let Some(queue) = self.tried(owner) else { return false };
            queue.move_ahead(owner, before);
        }
        moves
            .iter()
            .all(|one| self.tried(one.owner).is_some_and(|queue| queue.is_ahead(one.owner, one.before)))
    }
}

/// A cycle in words, a line for each member.
pub(super) fn describe(standing: &HashMap<TransactionId, Standing>, cycle: &[TransactionId]) -> String {
    // A session waits for an advisory lock in its transaction's name.
    let name = |member: &TransactionId| match standing.get(member) {
        Some(Standing { tree: ADVISORY_TREE, companion: Some(transaction), .. }) => *transaction,
        _ => *member,
    };
    let next = cycle.iter().cycle().skip(1);
    let lines = cycle.iter().zip(next).filter_map(|(waiter, blocker)| {
        let standing = standing.get(waiter)?;
        let mode = match standing.mode {
            Mode::Tree(TreeMode::ReadersOnly) if standing.tree == ADVISORY_TREE => "Exclusive".to_owned(),
            Mode::Tree(_) => names(false, standing.mode.bit()).concat(),
            _ => names(true, standing.mode.bit()).concat(),
        };
        let what = match &standing.key {
            Some(key) if standing.tree == ADVISORY_TREE => match AdvisoryKey::from_bytes(key) {
                Some((_, key)) => format!("advisory lock {key}"),
                None => "an advisory lock".to_owned(),
            },
            Some(key) => format!("key {} of tree {}", Hex(key), standing.tree),
            None => format!("tree {}", standing.tree),
        };
        Some(format!(
            "Transaction {} waits for {mode} lock on {what}; blocked by transaction {}.",
            name(waiter),
            name(blocker)
        ))
    });
    lines.collect::<Vec<_>>().join("\n")
}

struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("\\x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
