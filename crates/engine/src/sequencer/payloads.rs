//! The records of entries: step 1 of the sequencer.

use smallvec::SmallVec;

use super::{Sequencer, Writing};
use crate::TransactionId;
use crate::own::OwnRow;
use crate::payload::Encoder;
use crate::storage::StagedRun;

impl Sequencer {
    /// The record of a commit.
    pub(super) fn encode(&self, commit: &Writing<'_>) -> Vec<u8> {
        let loads: SmallVec<[u64; 4]> = commit.loads.iter().map(StagedRun::number).collect();
        let (next_tree, trees) = (self.store.trees.next(), commit.changes.len());
        let mut encoder = Encoder::commit(commit.id, next_tree, &loads, commit.dropped, trees, commit.size);
        for (tree, changes) in &commit.changes {
            encoder.tree(*tree, changes.len());
            for (key, value) in changes.iter() {
                encoder.entry(key, value);
            }
        }
        encoder.finish()
    }

    /// The record of own rows, which are put in order; with `of_prepared` it commits the prepared
    /// transaction `id`.
    pub(super) fn encode_own(&self, id: TransactionId, of_prepared: bool, rows: &mut [OwnRow]) -> Vec<u8> {
        rows.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        Encoder::own(id, of_prepared, self.store.trees.next(), rows)
    }
}
