//! Locks of requests whose place in the order of all nodes is decided (`delivery`): they are taken
//! whatever others hold, and nobody is waited for.

use super::held::{Held, HeldLock};
use super::mode::{FamilySlot, LockMode, Mode, TreeMode, WEAK};
use super::queue::siblings;
use super::table::{LockTable, entry};
use crate::key::SmallKey;
use crate::{TransactionId, TreeId};

impl LockTable {
    /// Gives `owner` locks that others may stand against, and tells against whom and where. It
    /// must let go by `release_all`. Who asks from now on waits for it.
    ///
    /// Nobody is waited for and nobody is asked: this is for requests whose place in the order is
    /// decided (`delivery`). `family`: of an instance, whose siblings do not stand against it.
    pub(crate) fn force<'a>(
        &self,
        owner: TransactionId,
        family: Option<FamilySlot>,
        locks: impl Iterator<Item = &'a HeldLock>,
        against: &mut Vec<(TransactionId, TreeId, Option<SmallKey>)>,
    ) -> Held {
        let mut held = Held::default();
        for lock in locks {
            let family = family.filter(|_| lock.key.is_some());
            let (key, strong) = (lock.key.as_deref(), lock.key.is_none() && lock.modes & !WEAK != 0);
            held.weak |= key.is_none() && !strong;
            if strong {
                self.announce(lock.tree);
                held.strong.push(lock.tree);
            } else if key.is_none() && self.force_weak(owner, lock) {
                continue;
            }
            let hash = self.hash(lock.tree, key);
            let mut rows = self.shard(hash).lock();
            let queue = &mut entry(&mut rows, hash, lock.tree, key).queue;
            let out = match key {
                Some(_) => Mode::Row(LockMode::Exclusive).keeps_out(lock.modes),
                None => Mode::Tree(TreeMode::Read).keeps_out(lock.modes),
            };
            let others = queue.holders().iter().filter(|h| h.owner != owner && h.modes & out != 0);
            let strangers = others.filter(|h| !siblings(h.family, family));
            against.extend(strangers.map(|h| (h.owner, lock.tree, lock.key.clone())));
            queue.hold(owner, lock.modes, family);
            queue.note_leaving(owner);
            held.hashes.push(hash);
        }
        held
    }

    /// Weak locks on a tree that nobody has, or asks for, a strong lock on. False if somebody does.
    fn force_weak(&self, owner: TransactionId, lock: &HeldLock) -> bool {
        let weak = [TreeMode::Read, TreeMode::RowShare, TreeMode::Write];
        let wanted = weak.into_iter().filter(|mode| Mode::Tree(*mode).bit() & lock.modes != 0);
        let mut all = true;
        for mode in wanted {
            all &= self.try_weak(owner, lock.tree, mode);
        }
        all
    }
}
