//! Which transactions had ended before a snapshot, told by their ids.
//!
//! A snapshot is the number of a commit, and ids say nothing about the order of commits. But who
//! reads a table as a queue, by the ids under which its rows were written, has to know below which
//! id nothing more will come. So ids are *noted*, by whoever is about to ask, in this order:
//!
//! ```text
//! 1  the next id N
//! 2  which transactions run
//! 3  which are prepared
//! 4  the last commit C
//! ```
//!
//! A transaction gets its id and is counted among those that run in one step (`active`). So one
//! with an id below N that is found neither in 2 nor in 3 has ended before 4, and if it committed,
//! then as C or earlier. That holds for *every* snapshot from C on, whenever it is taken. A note is
//! looked for by the snapshot: the latest that holds for it. Where there is none, nothing is known
//! to have ended, which is true as well.
//!
//! Nobody pays for it who does not ask. It is said of one database: the ids of a cluster's nodes
//! have no common order in time.

use std::collections::VecDeque;

use crate::sync::Mutex;
use crate::upkeep::Upkeep;
use crate::{Csn, Database, TransactionId};

/// So many notes are kept. Beyond that the second oldest goes: the oldest one may be all that holds
/// for a snapshot that somebody keeps for long.
const NOTES_MAX: usize = 64;

/// Ids of the transactions that may have ended after a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotIds {
    /// All ids from here on may be of such transactions.
    pub next: TransactionId,
    /// Those below that are, ascending.
    pub running: Vec<TransactionId>,
}

impl SnapshotIds {
    /// Every transaction with a lower id had ended before the snapshot.
    pub fn oldest(&self) -> TransactionId {
        self.running.first().copied().unwrap_or(self.next)
    }
}

/// What was noted, by the commit from which on it holds, ascending.
#[derive(Default)]
pub(crate) struct NotedIds(Mutex<VecDeque<(Csn, SnapshotIds)>>);

impl NotedIds {
    /// Keeps what holds from a commit on; no snapshot before `oldest` is asked for any more.
    fn note(&self, csn: Csn, ids: SnapshotIds, oldest: Csn) {
        let mut noted = self.0.lock();
        match noted.back_mut() {
            // Somebody who noted at the same time knows more.
            Some((last, known)) if *last > csn || known.next > ids.next => return,
            Some((last, known)) if *last == csn => *known = ids,
            _ => noted.push_back((csn, ids)),
        }
        while noted.get(1).is_some_and(|(csn, _)| *csn <= oldest) {
            noted.pop_front();
        }
        if noted.len() > NOTES_MAX {
            noted.remove(1);
        }
    }

    fn at(&self, snapshot: Csn) -> SnapshotIds {
        let noted = self.0.lock();
        let holds = noted.iter().rev().find(|(csn, _)| *csn <= snapshot);
        holds.map_or(SnapshotIds { next: 1, running: Vec::new() }, |(_, ids)| ids.clone())
    }
}

impl Upkeep {
    fn note_ids(&self) {
        let manager = &self.manager;
        let next = manager.numbers().transaction;
        let mut running: Vec<TransactionId> =
            manager.active.list().iter().map(|running| running.id).collect();
        // One that is on its way in or out may be in neither place: what was noted before holds.
        let Some(prepared) = manager.prepared.ids() else { return };
        running.extend(prepared);
        running.retain(|id| *id < next);
        running.sort_unstable();
        running.dedup();
        let last = manager.store.log.last();
        self.noted_ids.note(last, SnapshotIds { next, running }, manager.store.oldest_snapshot());
    }
}

impl Database {
    /// Notes which transactions have ended: for who then takes a snapshot, and asks for its ids.
    pub fn note_ids(&self) {
        self.upkeep().note_ids();
    }

    /// What is known of the transactions that may have ended after a snapshot. At a node of a
    /// cluster it says nothing of those of other nodes.
    pub fn ids_at(&self, snapshot: Csn) -> SnapshotIds {
        self.upkeep().noted_ids.at(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(next: TransactionId, running: &[TransactionId]) -> SnapshotIds {
        SnapshotIds { next, running: running.to_vec() }
    }

    #[test]
    fn a_snapshot_gets_the_latest_note_that_holds_for_it() {
        let noted = NotedIds::default();
        assert_eq!(noted.at(9), ids(1, &[]));
        noted.note(5, ids(10, &[7]), 0);
        noted.note(8, ids(12, &[]), 0);
        assert_eq!((noted.at(4).oldest(), noted.at(5).oldest(), noted.at(7).oldest()), (1, 7, 7));
        assert_eq!((noted.at(8).oldest(), noted.at(99).oldest()), (12, 12));
        // The same commit, later; and somebody who was slow.
        noted.note(8, ids(14, &[13]), 0);
        noted.note(8, ids(11, &[]), 0);
        noted.note(7, ids(20, &[]), 0);
        assert_eq!((noted.at(7).oldest(), noted.at(8).oldest()), (7, 13));
    }

    #[test]
    fn notes_stay_few_and_the_oldest_snapshot_keeps_its_own() {
        let noted = NotedIds::default();
        (1..=200).for_each(|n| noted.note(n * 10, ids(n * 100, &[]), 15));
        assert_eq!(noted.0.lock().len(), NOTES_MAX);
        assert_eq!((noted.at(15).oldest(), noted.at(5000).oldest()), (100, 20_000));
        noted.note(3000, ids(30_000, &[]), 3000);
        assert_eq!(noted.0.lock().len(), 1);
        assert_eq!(noted.at(3000).oldest(), 30_000);
    }
}
