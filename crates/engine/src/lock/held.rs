//! What one transaction holds, and what of it goes with a savepoint.
//!
//! The transaction keeps the hashes of its locks in the order in which it got them, for one sweep
//! at its end. Rolling back to a savepoint is the same sweep over a part of them: what was locked
//! since is released, and what was only raised since is lowered to what it was before.
//!
//! ```text
//! T1: lock a KS            hashes a            raised -
//! T1: SAVEPOINT s          mark (1, 0)
//! T1: lock a NX, b X       hashes a b          raised a from KS
//! T1: ROLLBACK TO s        hashes a            raised -              b is free, a is held KS
//! ```
//!
//! *Pinned* locks stay, whatever is rolled back: those under which the newest version of something
//! was read that is not what the snapshot shows. The certifier was told that nobody changes it
//! before the transaction's end (`Transaction::note_latest`), and what was read is known to the
//! client, savepoint or not. Weak locks on trees stay, too.

use super::mode::Modes;
use crate::hash::KeyHash;
use crate::key::SmallKey;
use crate::{TransactionId, TreeId};

/// What one transaction holds. Kept by the transaction.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(super) hashes: Vec<u64>,
    pub(super) strong: Vec<TreeId>,
    pub(super) weak: bool,
    /// The number by which the same session holds its advisory locks, or its transaction's.
    pub(crate) companion: Option<TransactionId>,
    /// Open savepoints, oldest first.
    marks: Vec<Mark>,
    /// Locks that were held already and are stronger now, with what they were; since the first open
    /// savepoint.
    pub(super) raised: Vec<(u64, Modes)>,
    /// So many of `hashes`, and of `raised`, stay.
    pinned: (usize, usize),
    /// Hashes of locks that stay, wherever they are.
    kept: Vec<u64>,
}

/// How much was held when a savepoint was made.
#[derive(Debug, Clone, Copy)]
struct Mark {
    savepoint: u64,
    hashes: usize,
    raised: usize,
    strong: usize,
}

/// What is to be released for a savepoint.
#[derive(Debug, Default)]
pub(super) struct Undone {
    pub(super) hashes: Vec<u64>,
    pub(super) raised: Vec<(u64, Modes)>,
    pub(super) strong: Vec<TreeId>,
}

/// A lock that somebody holds, for keeping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeldLock {
    pub(crate) tree: TreeId,
    /// `None`: the tree as a whole.
    pub(crate) key: Option<SmallKey>,
    pub(crate) modes: Modes,
}

impl Held {
    /// Nothing, of somebody who has a companion.
    pub(crate) fn beside(companion: Option<TransactionId>) -> Held {
        Held { companion, ..Held::default() }
    }

    /// Whether anything is held at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.hashes.is_empty() && self.strong.is_empty() && !self.weak
    }

    /// Adds what the same owner holds besides; of what it does no savepoint is left.
    pub(crate) fn append(&mut self, mut others: Held) {
        self.hashes.append(&mut others.hashes);
        self.strong.append(&mut others.strong);
        self.weak |= others.weak;
    }

    /// Notes a lock that was held, with these modes, and is stronger now.
    #[inline]
    pub(super) fn note_raised(&mut self, hash: u64, before: Modes) {
        if !self.marks.is_empty() {
            self.raised.push((hash, before));
        }
    }

    /// Whether there is a savepoint.
    #[inline]
    pub(crate) fn has_marks(&self) -> bool {
        !self.marks.is_empty()
    }

    /// A savepoint is made; `savepoint` orders them.
    pub(crate) fn mark(&mut self, savepoint: u64) {
        let (hashes, raised, strong) = (self.hashes.len(), self.raised.len(), self.strong.len());
        self.marks.push(Mark { savepoint, hashes, raised, strong });
    }

    /// A savepoint is released, and later ones with it: what was locked since belongs to the one
    /// before.
    pub(crate) fn unmark(&mut self, savepoint: u64) {
        self.marks.truncate(self.marks.partition_point(|mark| mark.savepoint < savepoint));
        if self.marks.is_empty() {
            self.unmark_all();
        }
    }

    /// No savepoint is left; everything held stays until the end.
    pub(crate) fn unmark_all(&mut self) {
        self.marks.clear();
        self.raised.clear();
        self.kept.clear();
        // What is raised from now on is not among those that stay.
        self.pinned.1 = 0;
    }

    /// Everything held now stays until the end.
    #[inline]
    pub(crate) fn pin(&mut self) {
        self.pinned = (self.hashes.len(), self.raised.len());
    }

    /// The lock with this hash, which is asked for if there are savepoints, stays until the end.
    #[inline]
    pub(super) fn keep(&mut self, hash: impl FnOnce() -> KeyHash) {
        if !self.marks.is_empty() {
            self.kept.push(hash());
        }
    }

    /// How many locks were noted.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.hashes.len()
    }

    /// Takes out what was locked since a savepoint, which stays open. None if that savepoint is
    /// not.
    pub(super) fn undo(&mut self, savepoint: u64) -> Option<Undone> {
        let at = self.marks.iter().position(|mark| mark.savepoint == savepoint)?;
        let mark = self.marks[at];
        self.marks.truncate(at + 1);
        let (hashes, raised) = self.pinned;
        let kept = std::mem::take(&mut self.kept);
        let undone = Undone {
            hashes: part(&mut self.hashes, mark.hashes.max(hashes), |hash| kept.contains(hash)),
            raised: part(&mut self.raised, mark.raised.max(raised), |(hash, _)| kept.contains(hash)),
            // A pinned lock may be one on a tree.
            strong: match hashes > mark.hashes {
                true => Vec::new(),
                false => self.strong.split_off(mark.strong),
            },
        };
        self.kept = kept;
        Some(undone)
    }
}

/// Takes out what lies behind `from`, but for what stays.
fn part<T>(all: &mut Vec<T>, from: usize, stays: impl Fn(&T) -> bool) -> Vec<T> {
    let from = from.min(all.len());
    let (stay, go) = all.drain(from..).partition(|one| stays(one));
    let mut stay: Vec<T> = stay;
    all.append(&mut stay);
    go
}
