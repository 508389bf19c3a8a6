//! Lock modes and which of them go together.
//!
//! Rows: shared (S) and exclusive (X). The Multi-Instance-Precommit paper adds two modes for sibling instances of one
//! request, SS and SX; siblings have the same XID and do not block each other:
//!
//! | | S | X | SS | SX |
//! |---|---|---|---|---|
//! | S | yes | no | yes | no |
//! | X | no | no | no | no |
//! | SS | yes | no | yes | same XID |
//! | SX | no | no | same XID | same XID |
//!
//! Who asks says *shared* or *exclusive*; whether that is S or SS, X or SX is a matter of the transaction: ordinary ones take only the former, instances of a family
//! only the latter. So between two members of one family everything goes together, and "same XID" is the only thing that `queue` must know
//! of a family: a [`FamilySlot`] travels with the mode.
//!
//! Siblings share rows only. On whole trees they are like anybody else.
//!
//! Trees: a reader of a table and a writer of its rows go together; building an index (`Share`) keeps writers out, and
//! changing or dropping a table (`Exclusive`) keeps everybody out:
//!
//! | | Read | Write | Share | Exclusive |
//! |---|---|---|---|---|
//! | Read | yes | yes | yes | no |
//! | Write | yes | yes | no | no |
//! | Share | yes | no | yes | no |
//! | Exclusive | no | no | no | no |

use std::num::NonZeroU32;

/// Mode of a row lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockMode {
    /// Others may share; nobody may write.
    Shared,
    /// Nobody else may lock.
    Exclusive,
}

/// Mode of a lock on a whole tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TreeMode {
    /// Reads rows.
    Read,
    /// Reads and writes rows.
    Write,
    /// Keeps writers out, lets readers in: building an index.
    Share,
    /// Keeps everybody out: changing or dropping a table.
    Exclusive,
}

/// What to do when a lock is not free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitPolicy {
    /// Wait for it; a deadlock is an error.
    Block,
    /// Answer `LockNotAvailable`.
    NoWait,
    /// Answer `Skipped`.
    SkipLocked,
}

/// Answer to a lock request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockOutcome {
    /// The lock is held now. After a wait the row may have changed.
    Granted {
        /// Whether another transaction had to finish first.
        waited: bool,
    },
    /// Not free, and the caller asked to skip.
    Skipped,
}

/// Stands for a family of siblings while one of them holds or wants locks: unique among those, and reused after them.
pub(crate) type FamilySlot = NonZeroU32;

/// A mode of any kind of lock. Modes of rows and of trees never meet in one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// S or X: of a transaction without siblings.
    Row(LockMode),
    /// SS or SX: of a member of this family.
    Sibling(LockMode, FamilySlot),
    Tree(TreeMode),
}

/// A set of modes, one bit each.
pub(crate) type Modes = u8;

const S: Modes = 1;
const X: Modes = 2;
const SS: Modes = 4;
const SX: Modes = 8;
const READ: Modes = 1;
const WRITE: Modes = 2;
const SHARE: Modes = 4;
const EXCLUSIVE: Modes = 8;

impl Mode {
    /// This mode alone.
    pub(crate) fn bit(self) -> Modes {
        match self {
            Mode::Row(LockMode::Shared) => S,
            Mode::Row(LockMode::Exclusive) => X,
            Mode::Sibling(LockMode::Shared, _) => SS,
            Mode::Sibling(LockMode::Exclusive, _) => SX,
            Mode::Tree(TreeMode::Read) => READ,
            Mode::Tree(TreeMode::Write) => WRITE,
            Mode::Tree(TreeMode::Share) => SHARE,
            Mode::Tree(TreeMode::Exclusive) => EXCLUSIVE,
        }
    }

    /// The family of a member's mode.
    #[inline]
    pub(crate) fn family(self) -> Option<FamilySlot> {
        match self {
            Mode::Sibling(_, family) => Some(family),
            Mode::Row(_) | Mode::Tree(_) => None,
        }
    }

    /// The modes that do not go together with this one: the two tables above, "same XID" read as *no*.
    pub(crate) fn conflicts(self) -> Modes {
        match self {
            Mode::Row(LockMode::Shared) | Mode::Sibling(LockMode::Shared, _) => X | SX,
            Mode::Row(LockMode::Exclusive) | Mode::Sibling(LockMode::Exclusive, _) => S | X | SS | SX,
            Mode::Tree(TreeMode::Read) => EXCLUSIVE,
            Mode::Tree(TreeMode::Write) => SHARE | EXCLUSIVE,
            Mode::Tree(TreeMode::Share) => WRITE | EXCLUSIVE,
            Mode::Tree(TreeMode::Exclusive) => READ | WRITE | SHARE | EXCLUSIVE,
        }
    }

    /// Whether somebody who holds `held` need not ask for this mode.
    pub(crate) fn covered_by(self, held: Modes) -> bool {
        self.conflicts() & !self.keeps_out(held) == 0 && held != 0
    }

    /// The modes that a holder of `held` (same kind as `self`) keeps out.
    pub(crate) fn keeps_out(self, held: Modes) -> Modes {
        const TREES: [Mode; 4] = [
            Mode::Tree(TreeMode::Read),
            Mode::Tree(TreeMode::Write),
            Mode::Tree(TreeMode::Share),
            Mode::Tree(TreeMode::Exclusive),
        ];
        match self {
            Mode::Row(_) | Mode::Sibling(..) if held & (X | SX) != 0 => S | X | SS | SX,
            Mode::Row(_) | Mode::Sibling(..) if held & (S | SS) != 0 => X | SX,
            Mode::Row(_) | Mode::Sibling(..) => 0,
            Mode::Tree(_) => {
                TREES.iter().filter(|m| m.bit() & held != 0).fold(0, |set, m| set | m.conflicts())
            }
        }
    }
}

impl TreeMode {
    /// Reading and writing rows: taken by every statement, so nearly free.
    pub(crate) fn is_weak(self) -> bool {
        matches!(self, TreeMode::Read | TreeMode::Write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrices_are_symmetric() {
        let sibling = |mode| Mode::Sibling(mode, FamilySlot::MIN);
        let [shared, exclusive] = [LockMode::Shared, LockMode::Exclusive];
        let rows = [Mode::Row(shared), Mode::Row(exclusive), sibling(shared), sibling(exclusive)];
        let trees = [TreeMode::Read, TreeMode::Write, TreeMode::Share, TreeMode::Exclusive].map(Mode::Tree);
        for kind in [&rows[..], &trees[..]] {
            for a in kind {
                for b in kind {
                    assert_eq!(a.conflicts() & b.bit() != 0, b.conflicts() & a.bit() != 0, "{a:?} {b:?}");
                }
                assert!(a.covered_by(a.bit()) && !a.covered_by(0));
                assert_eq!(a.keeps_out(a.bit()), a.conflicts());
            }
        }
        assert!(Mode::Row(LockMode::Shared).covered_by(X));
        assert!(!Mode::Row(LockMode::Exclusive).covered_by(S));
        assert!(sibling(shared).covered_by(SX));
        assert!(!sibling(exclusive).covered_by(SS));
        assert!(Mode::Tree(TreeMode::Read).covered_by(WRITE));
        assert!(!Mode::Tree(TreeMode::Write).covered_by(SHARE));
        assert!(Mode::Tree(TreeMode::Share).covered_by(EXCLUSIVE));
    }
}
