//! Advisory locks: resources that are numbers of the clients' own.
//!
//! A session holds them, not its transaction: so it has a number of its own here, and what it holds
//! outlives transactions as long as it likes. They lie in the same table as all other locks, under
//! a tree that nobody writes into, so that a deadlock between them and rows is found: while a
//! session waits for one, whoever waits for its transaction waits for the session, and the other
//! way round (`graph`, *companion*).
//!
//! ```text
//! session A (1), transaction T2      session B (3), transaction T4
//! 1 holds advisory lock [0,7,1]      T4 holds row x
//! T2 waits for x, companion 1
//!                                    3 asks for [0,7,1], companion T4
//! 3 -> 1, which waits as T2 -> T4, which waits as 3: a cycle
//! ```
//!
//! The two modes are PostgreSQL's ShareLock and ExclusiveLock, first come, first served as with
//! trees. A session may hold both; how often it asked for each is its own matter.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::held::Held;
use super::mode::{Mode, TreeMode};
use super::queue::Answer;
use super::table::{LockTable, entry, punch, sweep};
use super::wait::LockWait;
use crate::{Error, TransactionId, TreeId};

/// The tree that stands for advisory locks; nothing is ever stored in it.
pub const ADVISORY_TREE: TreeId = TreeId::MAX - 4;

/// Bytes of a key: its kind, its space, two numbers.
const BYTES: usize = 13;

/// What is locked: one number of 64 bits, or two of 32. The two kinds never meet, nor do those of
/// two spaces, which whoever asks tells apart as he likes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AdvisoryKey {
    /// One number.
    One(i64),
    /// Two numbers.
    Two(i32, i32),
}

impl AdvisoryKey {
    /// As `pg_locks` shows it: `classid`, `objid`, `objsubid`.
    pub fn parts(self) -> (u32, u32, u16) {
        match self {
            AdvisoryKey::One(key) => ((key as u64 >> 32) as u32, key as u32, 1),
            AdvisoryKey::Two(first, second) => (first as u32, second as u32, 2),
        }
    }

    fn to_bytes(self, space: u32) -> [u8; BYTES] {
        let (class, object, kind) = self.parts();
        let mut bytes = [kind as u8; BYTES];
        bytes[1..5].copy_from_slice(&space.to_be_bytes());
        bytes[5..9].copy_from_slice(&class.to_be_bytes());
        bytes[9..].copy_from_slice(&object.to_be_bytes());
        bytes
    }

    /// The space and the key of a lock under [`ADVISORY_TREE`].
    pub fn from_bytes(bytes: &[u8]) -> Option<(u32, AdvisoryKey)> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let number = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (space, class, object) = (number(1), number(5), number(9));
        match bytes[0] {
            1 => Some((space, AdvisoryKey::One((u64::from(class) << 32 | u64::from(object)) as i64))),
            2 => Some((space, AdvisoryKey::Two(class as i32, object as i32))),
            _ => None,
        }
    }
}

impl fmt::Display for AdvisoryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (class, object, kind) = self.parts();
        write!(f, "[{class},{object},{kind}]")
    }
}

/// How an advisory lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AdvisoryMode {
    /// Together with others who share.
    Share,
    /// Alone.
    Exclusive,
}

impl AdvisoryMode {
    fn mode(self) -> Mode {
        Mode::Tree(match self {
            AdvisoryMode::Share => TreeMode::Share,
            AdvisoryMode::Exclusive => TreeMode::ReadersOnly,
        })
    }
}

/// A session's access to advisory locks. What it holds it holds until it lets go of it.
pub struct AdvisoryLocks {
    table: Arc<LockTable>,
    owner: TransactionId,
    space: u32,
}

/// Resolves once a lock is there. Dropping it withdraws the request; the lock may have been granted
/// for all that.
pub struct AdvisoryWait(LockWait);

impl Future for AdvisoryWait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl AdvisoryLocks {
    /// That of one more session, which holds locks by the number `owner`.
    pub(crate) fn new(table: Arc<LockTable>, owner: TransactionId, space: u32) -> AdvisoryLocks {
        AdvisoryLocks { table, owner, space }
    }

    /// The number by which it holds locks, in the lock table.
    pub fn owner(&self) -> TransactionId {
        self.owner
    }

    /// Takes a lock if it is free.
    pub fn try_lock(&self, key: AdvisoryKey, mode: AdvisoryMode) -> bool {
        self.table.try_advisory(self.owner, &key.to_bytes(self.space), mode.mode())
    }

    /// Queues for a lock that was not free, in a transaction. `None`: it is there now.
    ///
    /// # Errors
    /// `Deadlock` if waiting would never end.
    pub fn wait(
        &self,
        key: AdvisoryKey,
        mode: AdvisoryMode,
        transaction: Option<TransactionId>,
    ) -> Result<Option<AdvisoryWait>, Error> {
        // What is held is known by whoever counts it.
        let mut held = Held::beside(transaction);
        let bytes = key.to_bytes(self.space);
        if self.table.try_advisory(self.owner, &bytes, mode.mode()) {
            return Ok(None);
        }
        let waiting = self.table.wait(self.owner, &mut held, ADVISORY_TREE, Some(&bytes), mode.mode())?;
        Ok(waiting.map(AdvisoryWait))
    }

    /// Lets go of a lock in one mode. Nothing to do if it is not held so.
    pub fn unlock(&self, key: AdvisoryKey, mode: AdvisoryMode) {
        self.table.unlock_advisory(self.owner, &key.to_bytes(self.space), mode.mode());
    }
}

impl fmt::Debug for AdvisoryLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdvisoryLocks").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl LockTable {
    fn try_advisory(&self, owner: TransactionId, key: &[u8], mode: Mode) -> bool {
        let hash = self.hash(ADVISORY_TREE, Some(key));
        let mut rows = self.shard(hash).lock();
        let queue = &mut entry(&mut rows, hash, ADVISORY_TREE, Some(key)).queue;
        match queue.request(owner, mode) {
            Answer::Busy => false,
            Answer::Held => {
                // The stronger mode may go first.
                queue.hold(owner, mode.bit(), None);
                true
            }
            Answer::Granted | Answer::Raised(_) => true,
        }
    }

    fn unlock_advisory(&self, owner: TransactionId, key: &[u8], mode: Mode) {
        let (hash, mut granted) = (self.hash(ADVISORY_TREE, Some(key)), Vec::new());
        let mut rows = self.shard(hash).lock();
        entry(&mut rows, hash, ADVISORY_TREE, Some(key)).queue.lower(owner, !mode.bit(), &mut granted);
        sweep(&mut rows, hash);
        drop(rows);
        punch(granted);
    }
}
