//! Recovery: the log's commits after the base store's watermark, installed in memory.
//!
//! No snapshot exists yet, so each key keeps its last version only.

use crate::memory::Memory;
use crate::payload::{self, Piece};
use crate::{Csn, Error, Key, TreeId, Value};

/// Receives the records of the log in order.
pub(crate) struct Replay<'a> {
    memory: &'a Memory,
    /// Changes of one tree, collected to be installed under one lock.
    changes: Vec<(Key, Option<Value>)>,
    /// Greatest transaction id seen.
    pub(crate) transaction: u64,
    /// All tree ids below may be in use.
    pub(crate) next_tree: u64,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(memory: &'a Memory, transaction: u64, next_tree: u64) -> Replay<'a> {
        Replay { memory, changes: Vec::new(), transaction, next_tree, records: 0, bytes: 0 }
    }

    /// Installs one commit.
    ///
    /// # Errors
    /// `InvalidArgument` if the payload is not a commit of this version.
    pub(crate) fn record(&mut self, csn: Csn, payload: &[u8]) -> Result<(), Error> {
        let mut tree: Option<TreeId> = None;
        let (memory, changes) = (self.memory, &mut self.changes);
        let (mut transaction, mut next_tree) = (self.transaction, self.next_tree);
        payload::decode(payload, |piece| match piece {
            Piece::Commit { id, next_tree: next } => {
                transaction = transaction.max(id);
                next_tree = next_tree.max(next);
            }
            Piece::Dropped(tree) => memory.drop_tree(tree, csn),
            Piece::Tree(next) => {
                if let Some(tree) = tree.replace(next) {
                    memory.replay(tree, csn, changes.drain(..));
                }
            }
            Piece::Entry(key, value) => changes.push(payload::owned(key, value)),
        })
        .map_err(|what| Error::InvalidArgument(format!("commit {csn} in the log: {what}")))?;
        if let Some(tree) = tree {
            memory.replay(tree, csn, changes.drain(..));
        }
        (self.transaction, self.next_tree) = (transaction, next_tree);
        self.records += 1;
        self.bytes += payload.len() as u64;
        Ok(())
    }
}
