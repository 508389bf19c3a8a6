//! PREPARE and the decision, as the manager carries them through: what they are to the sequencer,
//! and what becomes of locks, loads and owners once it has answered.

use std::sync::Arc;

use super::record::Record;
use super::{Owner, Prepared, WriteSet};
use crate::certifier::{Candidate, Method, Promise};
use crate::durable::Commit;
use crate::lock::mode::FamilySlot;
use crate::lock::table::Held;
use crate::manager::{Manager, Request};
use crate::own::{OwnRow, PREPARED_TREE, overtaken_key, prepared_key};
use crate::recovery::each_prepared;
use crate::sequencer::{Decision, Entry, Pending, Preparation};
use crate::sibling::Text;
use crate::storage::StagedRun;
use crate::sync::atomic::Ordering;
use crate::transaction::Transaction;
use crate::txn::writeset::{Changes, key_writes};
use crate::{Csn, Error, TransactionId, TreeId, Value};

impl Transaction {
    /// Prepares: from here on the transaction is decided by `Database::commit_prepared` and
    /// `rollback_prepared` with this identifier, also after a crash. `note` is kept with it.
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
        Ok(Commit::new(csn, manager.wait_durable_with_room(csn)))
    }
}

impl Manager {
    /// Ends a transaction as prepared; `texts` are an instance's. On an error it is rolled back.
    /// The answer is the record's number.
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
            let (notes, reads) = (&mut request.notes, request.reads.as_mut());
            let settled = self.admit().and_then(|()| self.settle(&mut writes, notes, reads));
            let settled = settled.and_then(|(loads, changes)| {
                self.log_prepared(&mut request, &held, &writes, &owner, texts, &note, loads, changes)
            });
            settled.inspect_err(|_| self.prepared.unreserve(&owner))
        });
        match result {
            Ok(mut prepared) => {
                let csn = prepared.csn;
                (prepared.part.held, prepared._writes) = (held, Some(writes));
                self.prepared.enter(owner, prepared);
                Ok(csn)
            }
            Err(error) => {
                // What it has spilled, if it did not come to be settled.
                writes.discard_spilled(&self.store.base);
                self.release(id, held);
                Err(error)
            }
        }
    }

    /// At a node of a cluster all this is done in the order of all nodes (`ordered`).
    fn check_single(&self) -> Result<(), Error> {
        match &self.cluster {
            None => Ok(()),
            Some(_) => Err(Error::CannotPrepare {
                reason: "A node of a cluster prepares and decides in the order of all nodes.",
            }),
        }
    }

    fn preparable(&self, request: &Request) -> Result<(), Error> {
        self.check_single()?;
        if request.reads.is_some() && self.sequencer.method() == Method::Ssi {
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
        let rows = vec![(PREPARED_TREE, prepared_key(id), Some(record.encode(writes.bytes())))];
        let Record { locks, notes, reads, changes, dropped, .. } = record;
        (request.reads, request.notes) = (reads, notes);
        let candidate = self.candidate(request, &changes, writes.whole_trees(&loads));
        let mut preparation = Preparation { id, candidate, rows, promise: Promise::default() };
        let appended = self.sequencer.append(Entry::Prepare(&mut preparation));
        let csn = appended.inspect_err(|_| self.discard(&loads))?;
        let (note, locks, promise) = (note.clone(), locks.len(), preparation.promise);
        let part = Pending { id, held: Held::default(), promise, loads, dropped, changes };
        let known_since = self.options.clock.monotonic();
        Ok(Prepared { note, name: None, prepared_us, known_since, csn, locks, part, _writes: None })
    }

    /// Decides: commits `winner` and rolls `losers` back, in one record together with `rows`. The
    /// answer is its number. On an error all of them stay as they were.
    pub(crate) fn decide(
        &self,
        winner: Option<&Owner>,
        losers: &[Owner],
        mut rows: Vec<OwnRow>,
    ) -> Result<Csn, Error> {
        self.check_single()?;
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
        rows.extend(taken.iter().map(|(_, prepared)| (PREPARED_TREE, prepared_key(prepared.part.id), None)));
        let commits = winner.is_some();
        let decided = taken.iter_mut().map(|(_, prepared)| &mut prepared.part).collect();
        let appended = self.sequencer.append(Entry::Decide(&mut Decision { commits, decided, rows }));
        let csn = match appended {
            Ok(csn) => csn,
            Err(error) => {
                taken.into_iter().for_each(|(owner, prepared)| self.prepared.enter(owner, prepared));
                return Err(error);
            }
        };
        for (place, (owner, prepared)) in taken.into_iter().enumerate() {
            self.prepared.unreserve(&owner);
            self.release(prepared.part.id, prepared.part.held);
            if commits && place == 0 {
                self.counters.commits.fetch_add(1, Ordering::Relaxed);
            } else {
                self.prepared.leave(csn, prepared.part.loads);
                self.rolled_back();
            }
        }
        self.prepared.note_decision();
        self.discard_left();
        Ok(csn)
    }

    /// Removes what was loaded by those whose rollback is durable by now.
    pub(crate) fn discard_left(&self) {
        let left = self.prepared.take_left(self.store.durable());
        if !left.is_empty() {
            self.discard(&left);
        }
    }

    /// Logs changes of the engine's own rows, and of nothing else.
    pub(crate) fn log_own(&self, rows: Vec<OwnRow>) -> Result<Csn, Error> {
        self.check_single()?;
        self.sequencer.append(Entry::Own(rows))
    }

    /// After recovery: prepared transactions are as they were, with their locks and in the graph.
    pub(crate) fn restore_prepared(&self) -> Result<(), Error> {
        let (mut restored, mut unwatched) = (0, Vec::new());
        each_prepared(&self.store.memory, &self.store.base, &self.seed, &mut |record| {
            restored += 1;
            let is_watched = record.reads.is_none() || self.sequencer.certifies();
            if !is_watched && !self.is_overtaken(record.id)? {
                unwatched.push(record.id);
            }
            self.restore(record)
        })
        .map_err(|error| self.store.name_place(error))?;
        if !unwatched.is_empty() {
            // Nobody notices now who comes after them. Before he commits, for a later start that
            // has a certifier again.
            let mark = |id: TransactionId| (PREPARED_TREE, overtaken_key(id), Some(Value::new()));
            self.log_own(unwatched.into_iter().map(mark).collect())?;
        }
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
        let overtaken = self.is_overtaken(id)?;
        let loads = self.staged(&loads)?;
        let held = self.locks.restore(id, family, &locks);
        let promise = match self.sequencer.certifies() {
            false => Promise::default(),
            true => {
                let writes = key_writes(&self.seed, &changes, notes);
                let whole = whole_trees(&dropped, &loads);
                let candidate = Candidate::new(id, snapshot, reads, writes, whole).of_family(family);
                self.sequencer.restore(candidate, overtaken)?
            }
        };
        let (csn, locks) = (self.store.visible(), locks.len());
        let part = Pending { id, held, promise, loads, dropped, changes };
        let known_since = self.options.clock.monotonic();
        let prepared =
            Prepared { note, name: None, prepared_us, known_since, csn, locks, part, _writes: None };
        self.prepared.enter(owner, prepared);
        Ok(())
    }

    /// Whether a prepared transaction has the mark that somebody has committed who comes after it.
    fn is_overtaken(&self, id: TransactionId) -> Result<bool, Error> {
        Ok(self.store.get_latest(PREPARED_TREE, &overtaken_key(id))?.value.is_some())
    }

    /// The runs that a prepared transaction has loaded. Without one of them it would commit a part
    /// of itself.
    fn staged(&self, numbers: &[u64]) -> Result<Vec<StagedRun>, Error> {
        let base = &self.store.base;
        let loads = base.staged(numbers);
        let is_missing = |number: &&u64| loads.iter().all(|run| run.number() != **number);
        match numbers.iter().find(is_missing) {
            None => Ok(loads),
            Some(missing) => {
                let what = format!("the run {missing}, which a prepared transaction has loaded, is missing");
                Err(Error::corrupt(&base.run_path(*missing), 0, what))
            }
        }
    }
}

/// Trees that come or go as a whole, as they did when it was prepared: who reads one that was
/// loaded finds nothing there, and comes before.
fn whole_trees(dropped: &[TreeId], loads: &[StagedRun]) -> Vec<TreeId> {
    let mut trees = dropped.to_vec();
    trees.extend(loads.iter().flat_map(StagedRun::trees));
    trees.sort_unstable();
    trees.dedup();
    trees
}
