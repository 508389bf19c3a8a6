//! Prepared transactions as far as verdicts depend on them: who is undecided, under which name, and
//! with which locks.
//!
//! Every node holds the locks of what is prepared, from the position of its PREPARE on, so nobody
//! who begins to wait later gets past them. What was sealed before is refused here: a request whose
//! locks do not go together with those of an undecided prepared transaction does not commit. It is
//! not queued, since two nodes could wait for each other so for ever.
//!
//! ```text
//! order 5: PREPARE of P, which wrote x         every node holds x for P
//! order 6: T, sealed before 5, wrote x         refused by P's lock
//! order 7: COMMIT PREPARED                     x is in the window at 7
//! order 8: U, sealed before 5, wrote x         refused by the window
//! ```
//!
//! A commit enters the window at its own position, and that covers the time since the PREPARE:
//! whoever looked last before the decision either held no lock against it, or is refused. What is
//! rolled back has never changed anything, and nobody need mind it.
//!
//! Members of one family go together: PREPARE of a sibling is not refused for another one's locks.
//!
//! All that is here follows from the positions and the bytes of the undecided PREPAREs
//! ([`Undecided::requests`]), which are kept for that.

use std::collections::HashMap;

use bytes::Bytes;
use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::Request;
use super::purpose::{OnFamily, Operation, Purpose};
use super::request::Place;
use super::window::{against, strengths};
use crate::lock::mode::Modes;
use crate::lock::table::HeldLock;
use crate::prepared::record::Owner;
use crate::sibling::Xid;
use crate::{Csn, TransactionId, TreeId};

/// A lock of a prepared transaction.
#[derive(Debug)]
struct Hold {
    position: Csn,
    id: TransactionId,
    modes: Modes,
}

/// A prepared transaction that nobody has decided.
#[derive(Debug)]
struct Promised {
    position: Csn,
    id: TransactionId,
    name: Option<Box<str>>,
    /// With each, whether it changes the key.
    locks: Vec<(HeldLock, bool)>,
    bytes: Bytes,
}

/// See the module's prose.
#[derive(Debug, Default)]
pub(crate) struct Undecided {
    promised: HashMap<Owner, Promised, RandomState>,
    locked: HashMap<Place, SmallVec<[Hold; 1]>, RandomState>,
    /// The families of those that are instances, by transaction.
    families: HashMap<TransactionId, Xid, RandomState>,
}

/// A prepared transaction that is decided.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) position: Csn,
    pub(super) id: TransactionId,
    pub(super) name: Option<Box<str>>,
    pub(super) locks: Vec<(HeldLock, bool)>,
    pub(super) commits: bool,
}

impl Undecided {
    /// Whether somebody is prepared under this name.
    pub(crate) fn has(&self, owner: &Owner) -> bool {
        self.promised.contains_key(owner)
    }

    /// Whether the request at this position is a PREPARE that nobody has decided.
    pub(super) fn is_at(&self, position: Csn) -> bool {
        self.promised.values().any(|one| one.position == position)
    }

    /// Where an undecided transaction was prepared.
    pub(super) fn position_of(&self, id: TransactionId) -> Option<Csn> {
        self.promised.values().find(|one| one.id == id).map(|one| one.position)
    }

    /// Where somebody was prepared whom his client calls so, or who has this id.
    pub(super) fn position_under(&self, name: &str, id: Option<TransactionId>) -> Option<Csn> {
        let is_it = |one: &&Promised| one.name.as_deref() == Some(name) || Some(one.id) == id;
        self.promised.values().filter(is_it).map(|one| one.position).min()
    }

    /// Whether somebody was prepared before a position and is undecided.
    pub(super) fn is_before(&self, position: Csn) -> bool {
        self.promised.values().any(|one| one.position < position)
    }

    /// An undecided transaction that changes something in one of these trees.
    pub(super) fn writes_into(&self, trees: &[TreeId]) -> Option<(Csn, TransactionId, TreeId)> {
        let writes = |one: &Promised| {
            let changed = one.locks.iter().filter(|(_, changes)| *changes);
            changed.map(|(lock, _)| lock.tree).find(|tree| trees.contains(tree))
        };
        let all = self.promised.values();
        all.filter_map(|one| Some((one.position, one.id, writes(one)?))).min()
    }

    /// A prepared transaction whose locks keep this one out. `family`: of the instance that asks.
    pub(super) fn conflict(&self, lock: &HeldLock, family: Option<&Xid>) -> Option<(Csn, TransactionId)> {
        if self.locked.is_empty() {
            return None;
        }
        let holds = self.locked.get(&(lock.tree, lock.key.clone()))?;
        let out = against(lock);
        let is_sibling =
            |hold: &Hold| lock.key.is_some() && family.is_some() && self.families.get(&hold.id) == family;
        let in_the_way = |hold: &&Hold| hold.modes & out != 0 && !is_sibling(hold);
        let first = holds.iter().filter(in_the_way).min_by_key(|hold| hold.position)?;
        Some((first.position, first.id))
    }

    /// The request at this position, a PREPARE with these locks, was granted.
    pub(super) fn enter(
        &mut self,
        position: Csn,
        request: &Request,
        locks: &[(HeldLock, bool)],
        bytes: &[u8],
    ) {
        let Purpose::Prepare(preparing) = &request.purpose else { return };
        let locks = locks.to_vec();
        for (lock, _) in &locks {
            let hold = Hold { position, id: request.id, modes: strengths(lock) };
            self.locked.entry((lock.tree, lock.key.clone())).or_default().push(hold);
        }
        if let Some(family) = request.purpose.family() {
            self.families.insert(request.id, family.clone());
        }
        let (id, name) = (request.id, request.name.clone());
        let promised = Promised { position, id, name, locks, bytes: Bytes::copy_from_slice(bytes) };
        let before = self.promised.insert(preparing.owner.clone(), promised);
        assert!(before.is_none(), "{:?} is prepared already", preparing.owner);
    }

    /// Takes out what a granted request decides.
    pub(super) fn decide(&mut self, purpose: &Purpose) -> Vec<Decided> {
        match purpose {
            Purpose::Commit
            | Purpose::Prepare(_)
            | Purpose::Voting
            | Purpose::Vote { .. }
            | Purpose::Execute(_)
            | Purpose::Void { .. }
            | Purpose::Part(_)
            | Purpose::Whole(_)
            | Purpose::GiveUp { .. } => Vec::new(),
            Purpose::Decide { identifier, commits } => {
                self.take(&Owner::Global(identifier.clone()), *commits).into_iter().collect()
            }
            Purpose::OnFamily(on) => {
                let OnFamily { xid, operation, .. } = &**on;
                match operation {
                    Operation::Commit(winner) => {
                        self.take_family(xid, &Owner::Instance(xid.clone(), *winner))
                    }
                    Operation::Rollback(instance) => {
                        self.take(&Owner::Instance(xid.clone(), *instance), false).into_iter().collect()
                    }
                    Operation::Refuse(_) | Operation::Show | Operation::Forget => Vec::new(),
                }
            }
        }
    }

    fn take_family(&mut self, xid: &Xid, winner: &Owner) -> Vec<Decided> {
        let of_family = |owner: &&Owner| matches!(owner, Owner::Instance(of, _) if of == xid);
        let mut members: Vec<Owner> = self.promised.keys().filter(of_family).cloned().collect();
        members.sort_unstable();
        members.iter().filter_map(|owner| self.take(owner, owner == winner)).collect()
    }

    fn take(&mut self, owner: &Owner, commits: bool) -> Option<Decided> {
        let Promised { position, id, name, locks, .. } = self.promised.remove(owner)?;
        for (lock, _) in &locks {
            let place = (lock.tree, lock.key.clone());
            let Some(holds) = self.locked.get_mut(&place) else { continue };
            holds.retain(|hold| hold.id != id);
            if holds.is_empty() {
                self.locked.remove(&place);
            }
        }
        self.families.remove(&id);
        Some(Decided { position, id, name, locks, commits })
    }

    /// The undecided PREPAREs: their positions and their requests, in the order.
    pub(crate) fn requests(&self) -> Vec<(Csn, Bytes)> {
        let mut all: Vec<(Csn, Bytes)> =
            self.promised.values().map(|one| (one.position, one.bytes.clone())).collect();
        all.sort_unstable_by_key(|(position, _)| *position);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Level, Preparing};
    use super::*;
    use crate::Value;
    use crate::hash::FIXED;
    use crate::key::SmallKey;
    use crate::lock::mode::{FamilySlot, LockMode, Mode, TreeMode};
    use crate::prepared::record::Parts;
    use crate::sibling::Instance;
    use crate::txn::change::Effects;

    fn row(key: &str, mode: Mode) -> HeldLock {
        HeldLock { tree: 7, key: Some(SmallKey::new(key.as_bytes())), modes: mode.bit() }
    }

    fn tree(mode: TreeMode) -> HeldLock {
        HeldLock { tree: 7, key: None, modes: Mode::Tree(mode).bit() }
    }

    fn member(xid: &str, number: i64) -> Owner {
        Owner::Instance(Xid::new(xid).expect("an XID"), Instance::new(number).expect("positive"))
    }

    fn enter(undecided: &mut Undecided, position: Csn, owner: Owner, locks: Vec<HeldLock>) {
        let preparing = Preparing { prepared_us: 0, owner, texts: Default::default(), note: Value::new() };
        let request = Request {
            id: 10 * position,
            name: None,
            level: Level::Snapshot,
            snapshot: 0,
            began: 0,
            bot: 0,
            oldest: 0,
            next_tree: 0,
            dropped: Vec::new(),
            whole: None,
            parts: Parts { locks, notes: Vec::new(), reads: None, changes: Vec::new() },
            effects: Effects::default(),
            purpose: Purpose::Prepare(Box::new(preparing)),
        };
        undecided.enter(position, &request, &request.all_locks(), &request.encode(0));
    }

    #[test]
    fn what_is_prepared_keeps_others_out_until_it_is_decided() {
        let mut undecided = Undecided::default();
        let locks = vec![row("a", Mode::Row(LockMode::NoKeyExclusive)), tree(TreeMode::Write)];
        enter(&mut undecided, 5, Owner::Global("p".into()), locks);
        assert!(undecided.has(&Owner::Global("p".into())) && undecided.is_at(5) && !undecided.is_at(4));
        let asks = |undecided: &Undecided, lock| undecided.conflict(&lock, None);
        assert_eq!(asks(&undecided, row("a", Mode::Row(LockMode::Shared))), Some((5, 50)));
        assert_eq!(asks(&undecided, row("a", Mode::Row(LockMode::KeyShared))), None);
        assert_eq!(asks(&undecided, row("b", Mode::Row(LockMode::Exclusive))), None);
        assert_eq!(asks(&undecided, tree(TreeMode::Share)), Some((5, 50)));
        assert_eq!(asks(&undecided, tree(TreeMode::Write)), None);
        let again: Vec<u64> = undecided
            .requests()
            .iter()
            .map(|(at, bytes)| at + Request::decode(bytes, &FIXED).expect("it was encoded").id)
            .collect();
        assert_eq!(again, [55]);
        let decided = undecided.decide(&Purpose::Decide { identifier: "p".into(), commits: true });
        assert_eq!((decided[0].position, decided[0].id, decided[0].commits), (5, 50, true));
        assert_eq!(decided[0].locks.len(), 2);
        assert_eq!(asks(&undecided, row("a", Mode::Row(LockMode::Exclusive))), None);
        assert!(undecided.requests().is_empty() && undecided.locked.is_empty());
    }

    #[test]
    fn siblings_go_together_and_a_decision_ends_the_family() {
        let mut undecided = Undecided::default();
        let lock = || row("a", Mode::Sibling(LockMode::Exclusive, FamilySlot::MIN));
        enter(&mut undecided, 5, member("x", 1), vec![lock()]);
        enter(&mut undecided, 6, member("x", 2), vec![lock()]);
        let (own, other) = (Xid::new("x").expect("an XID"), Xid::new("y").expect("an XID"));
        assert_eq!(undecided.conflict(&lock(), Some(&own)), None);
        assert_eq!(undecided.conflict(&lock(), Some(&other)), Some((5, 50)));
        assert_eq!(undecided.conflict(&lock(), None), Some((5, 50)));
        let on = |operation| {
            Purpose::OnFamily(Box::new(OnFamily { xid: own.clone(), operation, ended: Vec::new() }))
        };
        assert!(undecided.decide(&on(Operation::Show)).is_empty());
        let winner = Instance::new(2).expect("positive");
        let decided: Vec<(TransactionId, bool)> = undecided
            .decide(&on(Operation::Commit(winner)))
            .iter()
            .map(|one| (one.id, one.commits))
            .collect();
        assert_eq!(decided, [(50, false), (60, true)]);
        assert!(undecided.families.is_empty() && undecided.locked.is_empty());
    }
}
