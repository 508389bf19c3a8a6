//! PREPARE and the decision, as the manager carries them through: variants of the commit path of `manager`, under the same mutex.

use std::sync::Arc;

use super::record::Record;
use super::{Owner, Prepared, WriteSet};
use crate::certifier::{Candidate, Method, Promise, Removed};
use crate::lock::mode::FamilySlot;
use crate::lock::table::Held;
use crate::manager::{Manager, Request};
use crate::own::{OwnRow, PREPARED_TREE, overtaken_key, prepared_key};
use crate::payload::Encoder;
use crate::recovery::each_prepared;
use crate::sibling::Text;
use crate::storage::StagedRun;
use crate::sync::atomic::Ordering;
use crate::sync::spin;
use crate::transaction::{Commit, Transaction};
use crate::txn::writeset::{Changes, key_writes};
use crate::{Csn, Error, TransactionId, TreeId, Value};

impl Transaction {
    /// Prepares: from here on the transaction is decided by `Database::commit_prepared` and `rollback_prepared` with this identifier, also after a
    /// crash. `note` is kept with it.
    ///
    /// # Errors
    /// `AlreadyPrepared`, `CannotPrepare`, and as `commit`; the transaction is rolled back then.
    pub fn prepare(mut self, identifier: &str, note: Value) -> Result<Commit, Error> {
        if self.member.is_some() {
            return Err(Error::CannotPrepare {
                reason: "an instance of a family is prepared by PREPARE MIP",
            });
        }
        let manager = Arc::clone(&self.manager);
        let request = self.request();
        let writes = std::mem::replace(&mut self.writes, WriteSet::new(Arc::clone(&manager.budget)));
        let result =
            manager.prepare(request, writes, Owner::Global(identifier.into()), Default::default(), note);
        self.end();
        let csn = result?;
        Ok(Commit { csn, durable: manager.wait_durable_with_room(csn) })
    }
}

impl Manager {
    /// Whether only the decision about a prepared transaction can make a snapshot from here on safe.
    pub(crate) fn is_in_doubt(&self, snapshot: Csn) -> bool {
        spin::lock(&self.commit).is_in_doubt(snapshot)
    }

    /// Ends a transaction as prepared; `texts` are an instance's. On an error it is rolled back. The answer is the record's number.
    pub(crate) fn prepare(
        &self,
        mut request: Request,
        mut writes: WriteSet,
        owner: Owner,
        texts: (Text, Text),
        note: Value,
    ) -> Result<Csn, Error> {
        let (id, held) = (request.id, std::mem::take(&mut request.held));
        let result = self.preparable(&request).and_then(|()| self.prepared.reserve(&owner)).and_then(|()| {
            let settled = self.settle(&mut writes).and_then(|(loads, changes)| {
                self.log_prepared(&mut request, &held, &writes, &owner, texts, &note, loads, changes)
            });
            settled.inspect_err(|_| self.prepared.unreserve(&owner))
        });
        match result {
            Ok(mut prepared) => {
                let csn = prepared.csn;
                (prepared.held, prepared._writes) = (held, Some(writes));
                self.prepared.enter(owner, prepared);
                Ok(csn)
            }
            Err(error) => {
                // What it has spilled, if it did not come to be settled.
                writes.discard_spilled(&self.base);
                self.release(id, held);
                Err(error)
            }
        }
    }

    fn preparable(&self, request: &Request) -> Result<(), Error> {
        if request.reads.is_some() && self.options.serializable == Method::Ssi {
            let reason = "the comparator of dangerous structures knows no prepared transactions";
            return Err(Error::CannotPrepare { reason });
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one transaction, each used once")]
    fn log_prepared(
        &self,
        request: &mut Request,
        held: &Held,
        writes: &WriteSet,
        owner: &Owner,
        texts: (Text, Text),
        note: &Value,
        loads: Vec<StagedRun>,
        changes: Vec<(TreeId, Changes)>,
    ) -> Result<Prepared, Error> {
        let (id, prepared_us) = (request.id, self.options.clock.wall_us());
        let record = Record {
            id,
            snapshot: request.snapshot,
            prepared_us,
            owner: owner.clone(),
            texts,
            note: note.clone(),
            loads: loads.iter().map(StagedRun::number).collect(),
            dropped: writes.dropped().to_vec(),
            locks: self.locks.held_by(id, held),
            notes: std::mem::take(&mut request.notes),
            reads: request.reads.take(),
            changes,
        };
        let mut rows = vec![(PREPARED_TREE, prepared_key(id), Some(record.encode(writes.bytes())))];
        let payload = self.encode_own(id, false, &mut rows);
        let Record { locks, notes, reads, changes, dropped, .. } = record;
        (request.reads, request.notes) = (reads, notes);
        let mut candidate = self.candidate(request, &changes, &dropped);
        let prune = self.prune_to();
        let logged = {
            let mut order = spin::lock(&self.commit);
            let logged =
                self.certify(&mut order, candidate.as_ref()).and_then(|()| self.log.queue(&[&payload]));
            logged.map(|csn| {
                let admitted = candidate.take().map(|candidate| order.admit_prepared(candidate, false));
                let promise = admitted.unwrap_or_default();
                let removed = self.prune(&mut order, prune);
                self.install_own(csn, rows);
                self.show(csn, id, &mut None);
                (csn, promise, removed)
            })
        };
        self.log.nudge();
        let (csn, promise, removed) = logged.inspect_err(|_| self.discard(&loads))?;
        drop(removed);
        let (note, locks) = (note.clone(), locks.len());
        let (held, _writes) = (Held::default(), None);
        Ok(Prepared { id, note, prepared_us, csn, locks, held, promise, loads, dropped, changes, _writes })
    }

    /// Decides: commits `winner` and rolls `losers` back, in one record together with `rows`. The answer is its number. On an error all of them stay as they were.
    pub(crate) fn decide(
        &self,
        winner: Option<&Owner>,
        losers: &[Owner],
        mut rows: Vec<OwnRow>,
    ) -> Result<Csn, Error> {
        let mut taken: Vec<(Owner, Prepared)> = Vec::with_capacity(losers.len() + 1);
        for owner in winner.into_iter().chain(losers) {
            match self.prepared.take(owner) {
                Some(prepared) => taken.push((owner.clone(), prepared)),
                None => {
                    taken.into_iter().for_each(|(owner, prepared)| self.prepared.enter(owner, prepared));
                    return Err(Error::NotPrepared);
                }
            }
        }
        rows.extend(taken.iter().map(|(_, prepared)| (PREPARED_TREE, prepared_key(prepared.id), None)));
        let id = taken.first().map_or(0, |(_, prepared)| prepared.id);
        let payload = self.encode_own(id, winner.is_some(), &mut rows);
        let decided = self.log_decision(payload, rows, winner.is_some(), &mut taken);
        self.log.nudge();
        let (csn, removed) = match decided {
            Ok(decided) => decided,
            Err(error) => {
                taken.into_iter().for_each(|(owner, prepared)| self.prepared.enter(owner, prepared));
                return Err(error);
            }
        };
        drop(removed);
        for (place, (owner, mut prepared)) in taken.into_iter().enumerate() {
            self.prepared.unreserve(&owner);
            self.release(prepared.id, std::mem::take(&mut prepared.held));
            if winner.is_some() && place == 0 {
                self.counters.commits.fetch_add(1, Ordering::Relaxed);
            } else {
                self.discard(&prepared.loads);
                self.rolled_back();
            }
        }
        self.prepared.note_decision();
        Ok(csn)
    }

    /// The part of a decision under the mutex; the winner, if there is one, is the first.
    fn log_decision(
        &self,
        mut payload: Vec<u8>,
        mut rows: Vec<OwnRow>,
        commits: bool,
        taken: &mut [(Owner, Prepared)],
    ) -> Result<(Csn, Vec<Removed>), Error> {
        let prune = self.prune_to();
        let mut order = spin::lock(&self.commit);
        // Rare, and known under the mutex only: the marks go, too.
        let before = rows.len();
        let marked = taken.iter().filter(|(_, prepared)| order.is_marked(&prepared.promise));
        rows.extend(marked.map(|(_, prepared)| (PREPARED_TREE, overtaken_key(prepared.id), None)));
        if rows.len() > before {
            let id = taken.first().map_or(0, |(_, prepared)| prepared.id);
            payload = self.encode_own(id, commits, &mut rows);
        }
        if let Some((_, winner)) = taken.first().filter(|_| commits) {
            let overtaken = order.overtaken_by(&winner.promise);
            self.mark_overtaken(&overtaken)?;
        }
        let csn = self.log.queue(&[&payload])?;
        let mut removed = Vec::with_capacity(taken.len());
        let (mut id, mut held) = (0, None);
        for (place, (_, prepared)) in taken.iter_mut().enumerate() {
            let promise = std::mem::take(&mut prepared.promise);
            if commits && place == 0 {
                removed.push(order.fulfil(promise, csn));
                let changes = std::mem::take(&mut prepared.changes);
                self.install(csn, &prepared.loads, changes, &prepared.dropped);
                (id, held) = (prepared.id, Some(std::mem::take(&mut prepared.held)));
            } else {
                removed.push(order.withdraw(promise));
            }
        }
        removed.push(self.prune(&mut order, prune));
        self.install_own(csn, rows);
        self.show(csn, id, &mut held);
        if let (Some(held), Some((_, first))) = (held, taken.first_mut()) {
            first.held = held;
        }
        Ok((csn, removed))
    }

    /// Logs, before the commit of who comes after them, that prepared transactions have been overtaken. Under the mutex.
    pub(crate) fn mark_overtaken(&self, overtaken: &[TransactionId]) -> Result<(), Error> {
        if overtaken.is_empty() {
            return Ok(());
        }
        let mark = |id: &TransactionId| (PREPARED_TREE, overtaken_key(*id), Some(Value::new()));
        let mut rows: Vec<OwnRow> = overtaken.iter().map(mark).collect();
        let payload = self.encode_own(0, false, &mut rows);
        let csn = self.log.queue(&[&payload])?;
        self.install_own(csn, rows);
        self.show(csn, 0, &mut None);
        Ok(())
    }

    /// Logs changes of the engine's own rows, and of nothing else.
    pub(crate) fn log_own(&self, mut rows: Vec<OwnRow>) -> Result<Csn, Error> {
        let payload = self.encode_own(0, false, &mut rows);
        let logged = {
            let _order = spin::lock(&self.commit);
            let logged = self.log.queue(&[&payload]);
            if let Ok(csn) = logged {
                self.install_own(csn, rows);
                self.show(csn, 0, &mut None);
            }
            logged
        };
        self.log.nudge();
        logged
    }

    fn encode_own(&self, id: TransactionId, of_prepared: bool, rows: &mut [OwnRow]) -> Vec<u8> {
        rows.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        Encoder::own(id, of_prepared, self.trees.next(), rows)
    }

    fn install_own(&self, csn: Csn, rows: Vec<OwnRow>) {
        let mut rows = rows.into_iter().peekable();
        while let Some(tree) = rows.peek().map(|row| row.0) {
            let of_tree = std::iter::from_fn(|| rows.next_if(|row| row.0 == tree));
            self.memory.install(tree, csn, of_tree.map(|(_, key, value)| (key, value)), &|| self.needs());
        }
    }

    /// After recovery: prepared transactions are as they were, with their locks and in the graph.
    pub(crate) fn restore_prepared(&self) -> Result<(), Error> {
        let mut restored = 0;
        each_prepared(&self.memory, &self.base, &mut |record| {
            restored += 1;
            self.restore(record)
        })
        .map_err(|error| self.name_place(error))?;
        if restored > 0 {
            tracing::info!(transactions = restored, "prepared transactions are in doubt");
        }
        Ok(())
    }

    fn restore(&self, record: Record) -> Result<(), Error> {
        let family: Option<FamilySlot> = match &record.owner {
            Owner::Global(_) => None,
            Owner::Instance(xid, instance) => Some(self.adopt_sibling(xid, *instance, &record.texts)?),
        };
        let Record { id, snapshot, prepared_us, owner, note, loads, .. } = record;
        let Record { dropped, locks, notes, reads, changes, .. } = record;
        let overtaken = self.get_latest(PREPARED_TREE, &overtaken_key(id))?.value.is_some();
        let held = self.locks.restore(id, family, &locks);
        let promise = match self.certifies() {
            false => Promise::default(),
            true => {
                let (writes, dropped) = (key_writes(&changes, notes), dropped.clone());
                let candidate = Candidate::new(id, snapshot, reads, writes, dropped).of_family(family);
                let mut order = spin::lock(&self.commit);
                // It was certified when it was prepared; this draws its edges to the others.
                let _certified = order.certify(&candidate);
                let promise = order.admit_prepared(candidate, overtaken);
                drop(self.prune(&mut order, None));
                promise
            }
        };
        let (csn, locks, loads) = (self.visible(), locks.len(), self.base.staged(&loads));
        let _writes = None;
        let prepared =
            Prepared { id, note, prepared_us, csn, locks, held, promise, loads, dropped, changes, _writes };
        self.prepared.enter(owner, prepared);
        Ok(())
    }
}
