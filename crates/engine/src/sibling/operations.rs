//! BEGIN, PREPARE, COMMIT, ROLLBACK, REFUSE, SHOW and FORGET, as the manager carries them through:
//! the family decides (`family`), one record says it (`prepared`), and nothing is told before that
//! is durable. That an instance was given up is stored only when somebody is told
//! ([`Manager::told`], [`Manager::refused`]): until then it need not outlive a crash.
//!
//! Each operation works on a copy of the family and puts it in place once the record has its
//! number: what is refused, or fails, has changed nothing.

use std::ops::Bound;
use std::sync::Arc;

use super::registry::{Live, Shard};
use super::stored::{self, collect, rows};
use super::{Answer, Family, Instance, Limits, Member, Mipt, Refusal, State, Text, Xid};
use crate::durable::DurableWait;
use crate::key::SmallKey;
use crate::level::{Access, Isolation};
use crate::lock::mode::FamilySlot;
use crate::manager::{Manager, Request};
use crate::prepared::Owner;
use crate::rows::Rows;
use crate::transaction::Transaction;
use crate::txn::writeset::WriteSet;
use crate::{Csn, Error, TransactionId, TreeId, Value};

/// What BEGIN comes to.
#[derive(Debug)]
pub enum Begun {
    /// The instance is active.
    Active(Box<Transaction>),
    /// The family is decided: nothing was begun.
    Decided(Told),
}

/// The family's table, and the wait before anybody may be told.
#[derive(Debug)]
pub struct Told {
    /// The table.
    pub table: Mipt,
    /// The commit that has made it so; at a node of a cluster, the position where it was so.
    pub csn: Csn,
    /// Resolves when all of it is durable.
    pub durable: DurableWait,
}

/// A prepared family that waits for its decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InDoubt {
    /// The family.
    pub xid: Xid,
    /// Its prepared instances, ascending.
    pub instances: Vec<Instance>,
    /// The highest instance number heard of.
    pub highest: i64,
    /// The request.
    pub request: Text,
    /// When the first of them was prepared: wall clock, microseconds since 1970.
    pub prepared_us: i64,
    /// Time since then, in microseconds: that of the oldest, as [`crate::PreparedInfo::age`].
    pub age_us: i64,
    /// Locks that they hold.
    pub locks: usize,
}

impl Manager {
    pub(super) fn own_row(&self, tree: TreeId, key: &[u8]) -> Result<(Csn, Option<Value>), Error> {
        let latest = self.store.get_latest(tree, key)?;
        Ok((latest.csn, latest.value))
    }

    /// The family, from memory or from its rows; a blank one if nothing is known of it. `Corrupt`
    /// if its rows cannot be understood.
    pub(super) fn family<'a>(&self, shard: &'a mut Shard, xid: &Xid) -> Result<&'a mut Live, Error> {
        self.stored_family(shard, xid).map_err(|error| self.store.name_place(error))
    }

    fn stored_family<'a>(&self, shard: &'a mut Shard, xid: &Xid) -> Result<&'a mut Live, Error> {
        if shard.get(xid).is_none() {
            let get = |tree: TreeId, key: &[u8]| self.own_row(tree, key);
            let live = match self.may_be_stored(shard, xid)? {
                false => Live::new(Family::default(), 0),
                true => match stored::load(xid, &get)? {
                    Some((family, csn)) => Live::new(family, csn),
                    None if stored::is_collected(xid, &get)? => return Err(Refusal::Forgotten.into()),
                    None => Live::new(Family::default(), 0),
                },
            };
            return Ok(shard.enter(xid, live));
        }
        shard.get(xid).ok_or(Error::NotPrepared)
    }

    /// Whether it takes a search to tell that nothing is stored of the family.
    fn may_be_stored(&self, shard: &mut Shard, xid: &Xid) -> Result<bool, Error> {
        let Some((client, number)) = xid.numbered() else { return Ok(true) };
        shard.clients.may_have(client, number, || {
            let get = |tree: TreeId, key: &[u8]| self.own_row(tree, key);
            stored::highest(client, &get, &|tree, from, to| self.own_keys(tree, from, to))
        })
    }

    /// Keys of the engine's own rows. Memory first: what a checkpoint takes out of it meanwhile is
    /// in the base.
    fn own_keys(&self, tree: TreeId, from: &[u8], to: &[u8]) -> Result<Option<Vec<SmallKey>>, Error> {
        const KEYS_MAX: usize = 64;
        let range = (Bound::Included(from), Bound::Excluded(to));
        let mut rows = Rows::default();
        let all = self
            .store
            .memory
            .with_tree(tree, |of| Some(of.batch(range, false, Csn::MAX, KEYS_MAX, &mut rows)));
        rows.seal();
        let mut keys: Vec<SmallKey> =
            (0..rows.len()).filter_map(|row| rows.key(row).map(SmallKey::new)).collect();
        let mut stored = self.store.views.with(Csn::MAX, |view| view.scan(tree, range.0, range.1, false))?;
        while keys.len() <= 2 * KEYS_MAX
            && let Some((key, _)) = stored.next()?
        {
            keys.push(SmallKey::new(&key));
        }
        Ok((all.unwrap_or(true) && keys.len() <= 2 * KEYS_MAX).then_some(keys))
    }

    /// What is known of the family now, to be told. Whoever reads that an instance is aborted may
    /// act on it at other sites, so that is stored first.
    fn told(&self, xid: &Xid, live: &mut Live) -> Result<Told, Error> {
        self.settle_family(xid, live)?;
        Ok(Told { table: live.family.mipt(), csn: live.last, durable: self.wait_durable(live.last) })
    }

    fn settle_family(&self, xid: &Xid, live: &mut Live) -> Result<(), Error> {
        if live.family.is_settled() {
            return Ok(());
        }
        let mut next = live.family.clone();
        next.settle();
        self.store(xid, live, next)
    }

    /// A refusal on its way to whoever asked. One that says of an instance that it is aborted tells
    /// that as a table does; at a node that is ordered before (`ordered`).
    fn refused(&self, xid: &Xid, live: &mut Live, error: Error) -> Error {
        match error {
            Error::Refused(Refusal::InstanceAborted { .. }) if self.cluster.is_none() => {
                self.settle_family(xid, live).err().unwrap_or(error)
            }
            error => error,
        }
    }

    /// Logs the rows of a family, and nothing else, and puts it in its place.
    fn store(&self, xid: &Xid, live: &mut Live, next: Family) -> Result<(), Error> {
        live.last = self.log_own(rows(xid, &next))?;
        (live.family, live.is_stored) = (next, true);
        Ok(())
    }

    /// BEGIN MIP.
    pub(crate) fn begin_sibling(
        self: &Arc<Manager>,
        xid: Xid,
        instance: Instance,
        isolation: Isolation,
    ) -> Result<Begun, Error> {
        // Ended, if it is not needed, after the shard is free.
        let mut transaction = Transaction::begin(Arc::clone(self), isolation, Access::ReadWrite);
        let owner = transaction.id();
        let mut shard = self.families.shard(&xid);
        let live = self.family(&mut shard, &xid)?;
        let answer = live.family.begin(instance, owner).map(|effects| effects.answer);
        let begun: Result<Result<Member, Told>, Error> = match answer {
            Ok(Answer::Decided(_)) => self.told(&xid, live).map(Err),
            Ok(_) => {
                let doom = live.doom(owner);
                let slot = shard.join(&xid).ok_or(Error::NotPrepared)?;
                Ok(Ok(Member { xid: xid.clone(), instance, slot, doom }))
            }
            Err(refusal) => Err(self.refused(&xid, live, refusal.into())),
        };
        if !matches!(begun, Ok(Ok(_))) {
            shard.part(&xid, 0);
        }
        drop(shard);
        match begun? {
            Ok(member) => {
                transaction.join(member);
                Ok(Begun::Active(Box::new(transaction)))
            }
            Err(told) => Ok(Begun::Decided(told)),
        }
    }

    /// The transaction of an active instance has ended, unprepared.
    pub(crate) fn part_sibling(&self, member: &Member, owner: TransactionId) {
        let mut shard = self.families.shard(&member.xid);
        if let Some(live) = shard.get(&member.xid) {
            live.family.abandon(member.instance, owner);
            live.release(owner);
        }
        shard.part(&member.xid, 1);
    }

    /// PREPARE MIP. The transaction ends, whatever comes of it.
    pub(crate) fn prepare_sibling(
        &self,
        member: &Member,
        request: Request,
        mut writes: WriteSet,
        note: Value,
        (asked, result): (&Text, &Text),
        limits: Limits,
    ) -> Result<Told, Error> {
        let Member { xid, instance, .. } = member;
        let (owner, instance) = (request.id, *instance);
        let mut shard = self.families.shard(xid);
        let Some(live) = shard.get(xid) else {
            // Struck, and decided and forgotten since: there is no table to be shown any more.
            writes.discard_spilled(&self.store.base);
            self.release(owner, request.held);
            self.rolled_back();
            return Err(Refusal::Forgotten.into());
        };
        let mut next = live.family.clone();
        let prepared = match next.prepare(instance, owner, asked, result, limits) {
            Ok(effects) if effects.answer == Answer::Prepared => {
                let owner = Owner::Instance(xid.clone(), instance);
                let texts = (asked.clone(), result.clone());
                self.prepare(request, writes, owner, texts, note).map(|csn| Some((csn, effects)))
            }
            other => {
                writes.discard_spilled(&self.store.base);
                self.release(owner, request.held);
                self.rolled_back();
                other.map(|_| None).map_err(Error::from)
            }
        };
        match prepared {
            Ok(Some((csn, effects))) => {
                (live.family, live.last) = (next, csn);
                live.release(owner);
                live.strike(&effects.abort_active);
                if live.family.is_settled() {
                    let table = live.family.mipt();
                    // Where there is no room there is a wait, which is not for other families.
                    drop(shard);
                    return Ok(Told { table, csn, durable: self.wait_durable_with_room(csn) });
                }
                let told = self.told(xid, live);
                shard.part(xid, 0);
                told
            }
            ended => {
                live.family.abandon(instance, owner);
                live.release(owner);
                let told = ended.and_then(|_| self.told(xid, live));
                shard.part(xid, 1);
                told
            }
        }
    }

    /// COMMIT MIP: once or again.
    pub(crate) fn commit_sibling(&self, xid: &Xid, instance: Instance) -> Result<Told, Error> {
        self.end_instances(xid, |live| self.commit_family(xid, live, instance))
    }

    /// Ends instances of a family; `end` answers how many prepared ones have.
    fn end_instances(
        &self,
        xid: &Xid,
        end: impl FnOnce(&mut Live) -> Result<usize, Error>,
    ) -> Result<Told, Error> {
        let mut shard = self.families.shard(xid);
        let live = self.family(&mut shard, xid)?;
        let ended = end(live).map_err(|error| self.refused(xid, live, error));
        let count = *ended.as_ref().unwrap_or(&0);
        let told = ended.and_then(|_| self.told(xid, live));
        shard.part(xid, count);
        told
    }

    /// Commits; the answer is how many prepared instances have ended.
    fn commit_family(&self, xid: &Xid, live: &mut Live, instance: Instance) -> Result<usize, Error> {
        let mut next = live.family.clone();
        let effects = next.commit(instance)?;
        if effects.commit.is_none() {
            return Ok(0);
        }
        let owner = |instance| Owner::Instance(xid.clone(), instance);
        let losers: Vec<Owner> = effects.abort_prepared.iter().map(|loser| owner(*loser)).collect();
        live.last = self.decide(Some(&owner(instance)), &losers, rows(xid, &next))?;
        (live.family, live.is_stored) = (next, true);
        live.strike(&effects.abort_active);
        Ok(1 + losers.len())
    }

    /// ROLLBACK MIP.
    pub(crate) fn rollback_sibling(&self, xid: &Xid, instance: Instance) -> Result<Told, Error> {
        self.end_instances(xid, |live| self.rollback_family(xid, live, instance))
    }

    /// Rolls back; the answer is how many prepared instances have ended.
    fn rollback_family(&self, xid: &Xid, live: &mut Live, instance: Instance) -> Result<usize, Error> {
        let mut next = live.family.clone();
        let effects = next.rollback(instance)?;
        match effects.abort_prepared.first() {
            Some(loser) => {
                live.last = self.decide(None, &[Owner::Instance(xid.clone(), *loser)], rows(xid, &next))?;
                (live.family, live.is_stored) = (next, true);
            }
            None => self.store(xid, live, next)?,
        }
        live.strike(&effects.abort_active);
        Ok(effects.abort_prepared.len())
    }

    /// REFUSE MIP.
    pub(crate) fn refuse_sibling(&self, xid: &Xid, upto: Instance) -> Result<Told, Error> {
        let mut shard = self.families.shard(xid);
        let live = self.family(&mut shard, xid)?;
        let mut next = live.family.clone();
        let effects = next.refuse(upto);
        let stored = if effects.log.is_some() { self.store(xid, live, next) } else { Ok(()) };
        let told = stored.and_then(|()| {
            live.strike(&effects.abort_active);
            self.told(xid, live)
        });
        shard.part(xid, 0);
        told
    }

    /// SHOW MIPT.
    pub(crate) fn show_family(&self, xid: &Xid) -> Result<Told, Error> {
        let mut shard = self.families.shard(xid);
        let live = self.family(&mut shard, xid)?;
        let told = match live.family.knows_nothing() {
            true => Err(Refusal::FamilyUnknown.into()),
            false => self.told(xid, live),
        };
        shard.part(xid, 0);
        told
    }

    /// SHOW MIPT for who has had an instance that was not prepared: it is aborted for ever then,
    /// also if nobody remembers any more that it was begun. Its siblings are as they were.
    pub(crate) fn show_family_without(&self, xid: &Xid, instance: Instance) -> Result<Told, Error> {
        let mut shard = self.families.shard(xid);
        let live = self.family(&mut shard, xid)?;
        let stored = match live.family.state(instance) {
            State::Unknown => {
                let mut next = live.family.clone();
                next.abort_given_up(&[instance]);
                self.store(xid, live, next)
            }
            // Somebody has begun it anew, since nobody remembered.
            State::Active => self.rollback_family(xid, live, instance).map(drop),
            State::Prepared | State::Aborted | State::Committed => Ok(()),
        };
        let told = stored.and_then(|()| self.told(xid, live));
        shard.part(xid, 0);
        told
    }

    /// FORGET MIP.
    pub(crate) fn forget_family(&self, xid: &Xid) -> Result<DurableWait, Error> {
        let mut shard = self.families.shard(xid);
        let live = self.family(&mut shard, xid)?;
        let forgotten = live.family.forget().map_err(Error::from).and_then(|_| {
            let mut rows = rows(xid, &live.family);
            rows.iter_mut().for_each(|(.., value)| *value = None);
            rows.extend(collect(xid, &|tree: TreeId, key: &[u8]| self.own_row(tree, key))?);
            self.log_own(rows)
        });
        let forgotten = forgotten.map_err(|error| self.store.name_place(error));
        match forgotten {
            Ok(csn) => {
                shard.remove(xid);
                Ok(self.wait_durable(csn))
            }
            Err(error) => {
                shard.part(xid, 0);
                Err(error)
            }
        }
    }

    /// A prepared instance was found at the start, with the family's request and its result: the
    /// answer is the family's slot.
    pub(crate) fn adopt_sibling(
        &self,
        xid: &Xid,
        instance: Instance,
        (request, result): &(Text, Text),
    ) -> Result<FamilySlot, Error> {
        let mut shard = self.families.shard(xid);
        let live = self.family(&mut shard, xid)?;
        live.family.restore(instance, request, result);
        // All that was recovered is durable.
        live.last = live.last.max(self.store.durable());
        shard.join(xid).ok_or(Error::NotPrepared)
    }

    /// Families that wait for their decision, the oldest first.
    pub(crate) fn in_doubt(&self) -> Vec<InDoubt> {
        let mut all: Vec<InDoubt> = Vec::new();
        let mut places = std::collections::HashMap::new();
        for info in self.prepared.list(&*self.options.clock) {
            let Owner::Instance(xid, instance) = info.owner else { continue };
            let place = *places.entry(xid.clone()).or_insert_with(|| {
                let mut shard = self.families.shard(&xid);
                let live = shard.get(&xid);
                let highest = live.as_ref().map_or(0, |live| live.family.highest());
                let request = live.and_then(|live| live.family.request().cloned()).unwrap_or_default();
                let (instances, locks) = (Vec::new(), 0);
                let prepared_us = info.prepared_us;
                all.push(InDoubt { xid, instances, highest, request, prepared_us, age_us: 0, locks });
                all.len() - 1
            });
            let entry = &mut all[place];
            entry.instances.push(instance);
            entry.prepared_us = entry.prepared_us.min(info.prepared_us);
            entry.age_us = entry.age_us.max(i64::try_from(info.age.as_micros()).unwrap_or(i64::MAX));
            entry.locks += info.locks;
        }
        all.iter_mut().for_each(|entry| entry.instances.sort_unstable());
        all.sort_by_key(|entry| entry.prepared_us);
        all
    }
}
