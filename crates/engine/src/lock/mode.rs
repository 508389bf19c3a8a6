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
//! S and X are built. SS and SX take the next two bits; "same XID" becomes a question that `queue` asks of the two
//! owners where the matrix below says *conflict*.
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

/// A mode of any kind of lock. Row modes and tree modes never meet in one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    Row(LockMode),
    Tree(TreeMode),
}

/// A set of modes, one bit each.
pub(crate) type Modes = u8;

const S: Modes = 1;
const X: Modes = 2;
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
            Mode::Tree(TreeMode::Read) => READ,
            Mode::Tree(TreeMode::Write) => WRITE,
            Mode::Tree(TreeMode::Share) => SHARE,
            Mode::Tree(TreeMode::Exclusive) => EXCLUSIVE,
        }
    }

    /// The modes that do not go together with this one: the two tables above.
    pub(crate) fn conflicts(self) -> Modes {
        match self {
            Mode::Row(LockMode::Shared) => X,
            Mode::Row(LockMode::Exclusive) => S | X,
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
        let all: &[Mode] = match self {
            Mode::Row(_) => &[Mode::Row(LockMode::Shared), Mode::Row(LockMode::Exclusive)],
            Mode::Tree(_) => &[
                Mode::Tree(TreeMode::Read),
                Mode::Tree(TreeMode::Write),
                Mode::Tree(TreeMode::Share),
                Mode::Tree(TreeMode::Exclusive),
            ],
        };
        all.iter().filter(|m| m.bit() & held != 0).fold(0, |set, m| set | m.conflicts())
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
        let rows = [LockMode::Shared, LockMode::Exclusive].map(Mode::Row);
        let trees = [TreeMode::Read, TreeMode::Write, TreeMode::Share, TreeMode::Exclusive].map(Mode::Tree);
        for kind in [&rows[..], &trees[..]] {
            for a in kind {
                for b in kind {
                    assert_eq!(a.conflicts() & b.bit() != 0, b.conflicts() & a.bit() != 0, "{a:?} {b:?}");
                }
                assert!(a.covered_by(a.bit()) && !a.covered_by(0));
            }
        }
        assert!(Mode::Row(LockMode::Shared).covered_by(X));
        assert!(!Mode::Row(LockMode::Exclusive).covered_by(S));
        assert!(Mode::Tree(TreeMode::Read).covered_by(WRITE));
        assert!(!Mode::Tree(TreeMode::Write).covered_by(SHARE));
        assert!(Mode::Tree(TreeMode::Share).covered_by(EXCLUSIVE));
    }
}
