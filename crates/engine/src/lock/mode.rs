//! Lock modes and which of them go together.
//!
//! # Rows
//!
//! Four strengths, PostgreSQL's: *key share* (KS, `FOR KEY SHARE` and foreign keys' checks) keeps
//! the row and its keys as they are, *share* (S, `FOR SHARE`) the whole row; *no key exclusive*
//! (NX, `FOR NO KEY UPDATE`, an UPDATE that leaves the keys alone, and the claim to a unique key)
//! changes what is not a key, *exclusive* (X, `FOR UPDATE`, DELETE, an UPDATE of a key) everything.
//! So who refers to a row and who changes it otherwise do not meet.
//!
//! The Multi-Instance-Precommit paper adds modes for sibling instances of one request: siblings
//! have the same XID and do not block each other. It has S and X, SS and SX; with four strengths
//! there are four of siblings, SKS, SS, SNX and SX. A cell says whether two transactions may have
//! these modes at the same time; *XID* says: if they are siblings.
//!
//! | | KS | S | NX | X | SKS | SS | SNX | SX |
//! |---|---|---|---|---|---|---|---|---|
//! | KS | yes | yes | yes | no | yes | yes | yes | no |
//! | S | yes | yes | no | no | yes | yes | no | no |
//! | NX | yes | no | no | no | yes | no | no | no |
//! | X | no | no | no | no | no | no | no | no |
//! | SKS | yes | yes | yes | no | yes | yes | yes | XID |
//! | SS | yes | yes | no | no | yes | yes | XID | XID |
//! | SNX | yes | no | no | no | yes | XID | XID | XID |
//! | SX | no | no | no | no | XID | XID | XID | XID |
//!
//! The rows and columns S, X, SS and SX are the paper's table (§3.2). Each strength goes together
//! with a part of what the next weaker one goes together with: so the strongest mode that somebody
//! holds says all about him.
//!
//! Who asks names a strength; whether that is X or SX is a matter of the transaction: ordinary ones
//! take only the former, instances of a family only the latter. So between two members of one
//! family everything goes together, and "same XID" is the only thing that `queue` must know of a
//! family: a [`FamilySlot`] travels with the mode.
//!
//! # Trees
//!
//! Siblings share rows only. On whole trees they are like anybody else. The modes are those of
//! PostgreSQL's LOCK TABLE; statements take the first three, which go together, building an index
//! takes `Share`, dropping a table, or changing what readers see of it, `Exclusive`. *No* where two
//! do not go together:
//!
//! | | Read | RowShare | Write | ShareUpdateExclusive | Share | ShareRowExclusive | ReadersOnly | Exclusive |
//! |---|---|---|---|---|---|---|---|---|
//! | Read (ACCESS SHARE) | | | | | | | | no |
//! | RowShare (ROW SHARE) | | | | | | | no | no |
//! | Write (ROW EXCLUSIVE) | | | | | no | no | no | no |
//! | ShareUpdateExclusive | | | | no | no | no | no | no |
//! | Share (SHARE) | | | no | no | | no | no | no |
//! | ShareRowExclusive | | | no | no | no | no | no | no |
//! | ReadersOnly (EXCLUSIVE) | | no | no | no | no | no | no | no |
//! | Exclusive (ACCESS EXCLUSIVE) | no | no | no | no | no | no | no | no |

use std::num::NonZeroU32;

/// Mode of a row lock, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockMode {
    /// The row stays, and its keys; others may change the rest of it.
    KeyShared,
    /// Others may share; nobody may write.
    Shared,
    /// Nobody else may write or share; others may refer to the row.
    NoKeyExclusive,
    /// Nobody else may lock.
    Exclusive,
}

/// Mode of a lock on a whole tree, in PostgreSQL's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TreeMode {
    /// Reads rows.
    Read,
    /// Reads rows and locks them.
    RowShare,
    /// Reads and writes rows.
    Write,
    /// Lets others read and write, but only one ask for this.
    ShareUpdateExclusive,
    /// Keeps writers out, lets readers in: building an index.
    Share,
    /// The same for one at a time.
    ShareRowExclusive,
    /// Keeps everybody out who does more than read.
    ReadersOnly,
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

/// Stands for a family of siblings while one of them holds or wants locks: unique among those, and
/// reused after them.
pub(crate) type FamilySlot = NonZeroU32;

/// A mode of any kind of lock. Modes of rows and of trees never meet in one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// KS, S, NX or X: of a transaction without siblings.
    Row(LockMode),
    /// SKS, SS, SNX or SX: of a member of this family.
    Sibling(LockMode, FamilySlot),
    Tree(TreeMode),
}

/// A set of modes, one bit each. Rows: the four strengths, and four bits higher the same of
/// siblings; trees: the eight modes. Records of prepared transactions have them so.
pub(crate) type Modes = u8;

/// How far the modes of siblings are from those of others.
const OF_SIBLINGS: u32 = 4;

/// The modes of trees that go together, so that statements need not meet in a queue for them.
pub(crate) const WEAK: Modes = 0b111;

/// For each strength, those that do not go together with it.
const ROWS: [Modes; 4] = [0b1000, 0b1100, 0b1110, 0b1111];

/// The same for each mode of trees.
const TREES: [Modes; 8] =
    [0b1000_0000, 0b1100_0000, 0b1111_0000, 0b1111_1000, 0b1110_1100, 0b1111_1100, 0b1111_1110, 0b1111_1111];

impl Mode {
    /// This mode alone.
    #[inline]
    pub(crate) fn bit(self) -> Modes {
        match self {
            Mode::Row(mode) => 1 << mode as u32,
            Mode::Sibling(mode, _) => 1 << (mode as u32 + OF_SIBLINGS),
            Mode::Tree(mode) => 1 << mode as u32,
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

    /// The modes that do not go together with this one: the two tables above, "same XID" read
    /// as *no*.
    #[inline]
    pub(crate) fn conflicts(self) -> Modes {
        match self {
            Mode::Row(mode) | Mode::Sibling(mode, _) => both(ROWS[mode as usize]),
            Mode::Tree(mode) => TREES[mode as usize],
        }
    }

    /// Whether somebody who holds `held` need not ask for this mode.
    #[inline]
    pub(crate) fn covered_by(self, held: Modes) -> bool {
        held != 0 && self.conflicts() & !self.keeps_out(held) == 0
    }

    /// The modes that a holder of `held` (same kind as `self`) keeps out.
    #[inline]
    pub(crate) fn keeps_out(self, held: Modes) -> Modes {
        match self {
            Mode::Row(_) | Mode::Sibling(..) => match (held | held >> OF_SIBLINGS) & 0b1111 {
                0 => 0,
                held => both(ROWS[held.ilog2() as usize]),
            },
            Mode::Tree(_) => {
                (0..8).filter(|at| held & 1 << at != 0).fold(0, |set, at: usize| set | TREES[at])
            }
        }
    }

    /// Whether a request may be granted ahead of others who wait, if it goes together with all
    /// holders. PostgreSQL does so with rows, and so readers of a row do not queue up behind a
    /// writer whom another reader keeps waiting.
    #[inline]
    pub(crate) fn may_overtake(self) -> bool {
        !matches!(self, Mode::Tree(_))
    }
}

/// Strengths of siblings and of others.
#[inline]
fn both(strengths: Modes) -> Modes {
    strengths | strengths << OF_SIBLINGS
}

impl TreeMode {
    /// Reading, locking and writing rows: taken by every statement, so nearly free.
    #[inline]
    pub fn is_weak(self) -> bool {
        matches!(self, TreeMode::Read | TreeMode::RowShare | TreeMode::Write)
    }

    /// Whether it keeps out all that another mode keeps out: who holds it need not ask for that.
    #[inline]
    pub fn covers(self, other: TreeMode) -> bool {
        self == other || Mode::Tree(other).covered_by(Mode::Tree(self).bit())
    }
}

/// Strengths by name, weakest first, each after its sibling's: `LockMode` is what was asked for,
/// the kind of transaction decides between S and SS, X and SX.
const ROW_NAMES: [(Modes, &str); 8] = [
    (1 << 4, "SiblingKeyShared"),
    (1, "KeyShared"),
    (1 << 5, "SiblingShared"),
    (1 << 1, "Shared"),
    (1 << 6, "SiblingNoKeyExclusive"),
    (1 << 2, "NoKeyExclusive"),
    (1 << 7, "SiblingExclusive"),
    (1 << 3, "Exclusive"),
];

const TREE_NAMES: [&str; 8] = [
    "Read",
    "RowShare",
    "Write",
    "ShareUpdateExclusive",
    "Share",
    "ShareRowExclusive",
    "ReadersOnly",
    "Exclusive",
];

/// The names of modes of a row or of a tree, strongest last.
pub(crate) fn names(of_row: bool, modes: Modes) -> Vec<&'static str> {
    match of_row {
        true => ROW_NAMES.iter().filter(|(bit, _)| bit & modes != 0).map(|(_, name)| *name).collect(),
        false => {
            let names = TREE_NAMES.iter().enumerate();
            names.filter(|(at, _)| modes & 1 << at != 0).map(|(_, name)| *name).collect()
        }
    }
}

#[cfg(test)]
pub(super) const STRENGTHS: [LockMode; 4] =
    [LockMode::KeyShared, LockMode::Shared, LockMode::NoKeyExclusive, LockMode::Exclusive];

#[cfg(test)]
pub(super) const TREE_MODES: [TreeMode; 8] = [
    TreeMode::Read,
    TreeMode::RowShare,
    TreeMode::Write,
    TreeMode::ShareUpdateExclusive,
    TreeMode::Share,
    TreeMode::ShareRowExclusive,
    TreeMode::ReadersOnly,
    TreeMode::Exclusive,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> [Mode; 8] {
        let [a, b, c, d] = STRENGTHS;
        let sibling = |mode| Mode::Sibling(mode, FamilySlot::MIN);
        [a, b, c, d].map(Mode::Row).into_iter().chain([a, b, c, d].map(sibling)).collect::<Vec<_>>()[..]
            .try_into()
            .expect("eight")
    }

    /// The tables of the module's head, read from there.
    fn printed(first: &str) -> Vec<Vec<String>> {
        let lines = include_str!("mode.rs").lines();
        let table = lines.skip_while(|line| !line.starts_with(first)).skip(2);
        table
            .map_while(|line| line.strip_prefix("//! |"))
            .map(|line| {
                line.trim_end_matches('|').split('|').skip(1).map(|cell| cell.trim().to_owned()).collect()
            })
            .collect()
    }

    #[test]
    fn the_matrices_are_those_of_the_head() {
        let trees = TREE_MODES.map(Mode::Tree);
        for (modes, first) in [(rows(), "//! | | KS |"), (trees, "//! | | Read |")] {
            let table = printed(first);
            assert_eq!(table.len(), 8);
            for (row, a) in table.iter().zip(modes) {
                assert_eq!(row.len(), 8);
                for (cell, b) in row.iter().zip(modes) {
                    assert_eq!(
                        a.conflicts() & b.bit() != 0,
                        matches!(cell.as_str(), "no" | "XID"),
                        "{a:?} {b:?}"
                    );
                    let kin = a.family().is_some() && b.family().is_some();
                    assert!(cell != "XID" || kin, "{a:?} {b:?}");
                    assert!(!kin || cell != "no", "{a:?} {b:?}");
                }
            }
        }
    }

    #[test]
    fn the_matrices_are_symmetric_and_a_mode_covers_itself() {
        for kind in [rows(), TREE_MODES.map(Mode::Tree)] {
            for a in kind {
                for b in kind {
                    assert_eq!(a.conflicts() & b.bit() != 0, b.conflicts() & a.bit() != 0, "{a:?} {b:?}");
                    assert_eq!(a.keeps_out(b.bit()), b.conflicts());
                    assert_eq!(a.keeps_out(a.bit() | b.bit()), a.conflicts() | b.conflicts());
                }
                assert!(a.covered_by(a.bit()) && !a.covered_by(0));
            }
        }
    }

    #[test]
    fn stronger_modes_cover_weaker_ones() {
        for (at, weak) in STRENGTHS.into_iter().enumerate() {
            for strong in &STRENGTHS[at + 1..] {
                assert!(Mode::Row(weak).covered_by(Mode::Row(*strong).bit()));
                assert!(!Mode::Row(*strong).covered_by(Mode::Row(weak).bit()));
            }
        }
        let tree = |mode| Mode::Tree(mode);
        assert!(tree(TreeMode::Read).covered_by(tree(TreeMode::Write).bit()));
        assert!(!tree(TreeMode::Write).covered_by(tree(TreeMode::Share).bit()));
        assert!(tree(TreeMode::Share).covered_by(tree(TreeMode::Exclusive).bit()));
        assert!(TreeMode::ShareRowExclusive.covers(TreeMode::ShareUpdateExclusive));
        assert!(!TreeMode::ShareUpdateExclusive.covers(TreeMode::ShareRowExclusive));
        assert!(TreeMode::Write.covers(TreeMode::Write) && !TreeMode::Read.covers(TreeMode::RowShare));
        let weak = TREE_MODES.into_iter().filter(|mode| mode.is_weak());
        assert_eq!(weak.fold(0, |set, mode| set | tree(mode).bit()), WEAK);
    }
}
