//! A session and its temporary objects: the schema they are in, the values of its sequences, and
//! that all of it goes with the session.
//!
//! ```text
//! the session ends            its schema is dropped at once, by a transaction of its own
//!   that was not possible     it is among those that are left behind: whoever ends next tries again
//! the server was killed       what the next start finds has no session any more
//! a node was killed           what has its number and an earlier start; `sweep_temporary` is called there
//! ```
//!
//! The values of temporary sequences are here and nowhere else: they need not outlive anything.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use cognate_engine::{Access, Csn};
use parking_lot::Mutex;

use super::facts::Facts;
use super::{Boxed, Planned, Session, SessionParameters, SqlDatabase};
use crate::catalog::{Catalog, Changes, Home, Oid, Schema, Sequence, store};
use crate::error::{Result, SqlError, sqlstate};
use crate::sequence::successor;

/// What a session knows of its temporary objects.
#[derive(Default)]
pub(crate) struct Temporary {
    /// Oid of their schema, once there was one; 0 before.
    namespace: AtomicU32,
    /// The state of the catalog and the commit of the last change that concerned nothing else
    /// (`database`).
    state: AtomicU64,
    changed_at: AtomicU64,
    /// The session only drops what another one has left behind.
    is_sweeper: AtomicBool,
    /// The last value of each sequence, by its counter, and whether it was given.
    counters: Mutex<HashMap<u32, (i64, bool)>>,
}

impl Temporary {
    /// Oid of the session's schema, whether it is there or not; 0 if there never was one.
    #[inline]
    pub(crate) fn namespace(&self) -> Oid {
        self.namespace.load(Ordering::Relaxed)
    }

    /// From now on the session's schema has this oid.
    pub(crate) fn begin(&self, oid: Oid) -> Oid {
        self.namespace.store(oid, Ordering::Relaxed);
        oid
    }

    #[inline]
    pub(super) fn state(&self) -> u64 {
        self.state.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn changed_at(&self) -> Csn {
        self.changed_at.load(Ordering::Relaxed)
    }

    pub(super) fn note_change(&self, state: u64, csn: Csn) {
        self.state.store(state, Ordering::Relaxed);
        self.changed_at.store(csn, Ordering::Relaxed);
    }

    /// The last change will never be durable.
    pub(super) fn forget_change(&self) {
        self.changed_at.store(0, Ordering::Relaxed);
    }

    /// Whether nothing but the session's temporary objects was changed.
    pub(super) fn has_all(&self, changes: &Changes, before: &Catalog) -> bool {
        let namespace = self.namespace();
        namespace != 0
            && changes.iter().all(|(oid, after)| {
                let mut known = after.as_ref().into_iter().chain(before.object(*oid));
                known.all(|object| object.schema() == namespace)
            })
    }

    /// The session's schema, if it is there.
    pub(crate) fn schema<'a>(&self, catalog: &'a Catalog) -> Option<&'a Arc<Schema>> {
        match self.namespace() {
            0 => None,
            oid => catalog.schema_by_oid(oid),
        }
    }

    /// Whether the session's schema has this oid.
    pub(crate) fn is_own(&self, schema: Oid) -> bool {
        schema != 0 && schema == self.namespace()
    }

    /// The value of a sequence, and whether it was given.
    pub(crate) fn counter(&self, sequence: &Sequence) -> (i64, bool) {
        let known = self.counters.lock().get(&sequence.counter).copied();
        known.unwrap_or((sequence.counter_start, sequence.counter_called))
    }

    /// nextval. 2200H at the end of a sequence that does not cycle.
    pub(crate) fn next(&self, sequence: &Sequence) -> Result<i64> {
        let value = match self.counter(sequence) {
            (last, true) => successor(sequence, last)?,
            (next, false) => next,
        };
        self.set(sequence, value, true);
        Ok(value)
    }

    /// setval. The range was checked.
    pub(crate) fn set(&self, sequence: &Sequence, value: i64, is_called: bool) {
        self.counters.lock().insert(sequence.counter, (value, is_called));
    }

    /// Forgets the values of sequences that are gone.
    fn forget_without(&self, catalog: &Catalog) {
        let mut counters = self.counters.lock();
        if !counters.is_empty() {
            let sequences = catalog.sequences().filter(|sequence| sequence.is_temporary());
            let known: Vec<u32> = sequences.map(|sequence| sequence.counter).collect();
            counters.retain(|counter, _| known.contains(counter));
        }
    }
}

/// What a session has of temporary objects goes with it.
pub(super) struct Guard(pub(super) Arc<Facts>);

impl Drop for Guard {
    fn drop(&mut self) {
        let database = &self.0.database;
        if self.0.temporary.is_sweeper.load(Ordering::Relaxed) {
            return;
        }
        if self.0.temporary.schema(&database.catalog()).is_some() {
            database.left_behind().lock().push(self.0.temporary.namespace());
            database.sweep_now();
        }
    }
}

impl Session {
    /// 0A000 if the transaction has met temporary objects: they end with the session, and what is
    /// prepared does not.
    pub(super) fn check_no_temporary(&self) -> Result<()> {
        if !self.open.as_ref().is_some_and(|open| open.state.is_temporary) {
            return Ok(());
        }
        Err(SqlError::new(
            sqlstate::FEATURE_NOT_SUPPORTED,
            "cannot PREPARE a transaction that has operated on temporary objects",
        ))
    }

    /// A plan reads or changes temporary tables. Changing them is possible in a transaction that is
    /// read-only, too, and was begun as one.
    #[cold]
    pub(super) fn meet_temporary(&mut self, planned: &Planned) {
        let Some(open) = &mut self.open else { return };
        open.state.is_temporary = true;
        if planned.changes_temporary && open.engine.access() == Access::ReadOnly {
            open.engine.allow_writes();
        }
    }

    /// What temporary tables say for the end of a transaction that commits.
    pub(super) async fn run_on_commit(&mut self) -> Result<()> {
        let interrupts = self.interrupts();
        if self.open.is_none() {
            return Ok(());
        }
        let mut work = self.work(&interrupts)?;
        Box::pin(work.run_on_commit()).await
    }

    /// DISCARD TEMP.
    pub(super) async fn discard_temporary(&mut self) -> Result<()> {
        let (catalog, _) = self.catalog_with_state();
        let Some(schema) = self.facts.temporary.schema(&catalog) else { return Ok(()) };
        let oid = schema.oid;
        if self.sibling.is_some() {
            return Err(SqlError::unsupported("DISCARD TEMP in an instance of a family"));
        }
        self.open_transaction(false);
        if let Some(open) = self.open.as_mut().filter(|open| open.engine.access() == Access::ReadOnly) {
            open.engine.allow_writes();
        }
        let interrupts = self.interrupts();
        let mut work = self.work(&interrupts)?;
        Box::pin(work.drop_temporary(oid, false)).await
    }

    /// Whether the transaction may have made or dropped temporary objects.
    pub(super) fn defines_temporary(&self) -> bool {
        let of = |open: &super::Open| open.state.is_temporary && open.engine.has_written(store::CATALOG_TREE);
        self.facts.temporary.namespace() != 0 && self.open.as_ref().is_some_and(of)
    }

    /// A transaction that may have made or dropped temporary objects has committed. Whoever does
    /// not see that yet, at a node, forgets with the next one.
    pub(super) fn forget_temporary(&self, csn: Csn) {
        if self.database.engine().visible() < csn {
            return;
        }
        let catalog = self.database.catalog();
        self.facts.temporary.forget_without(&catalog);
        self.facts.forget_sequences_without(&catalog);
    }

    async fn drop_left_behind(&mut self, schema: Oid) -> Result<()> {
        self.enter_implicit();
        self.open_transaction(false);
        let interrupts = self.interrupts();
        let mut work = self.work(&interrupts)?;
        work.drop_temporary(schema, true).await?;
        self.commit().await
    }
}

impl SqlDatabase {
    /// Where the sessions of this database are.
    pub(crate) fn home(&self) -> Home {
        let (node, start) = self.engine().node().unwrap_or_default();
        Home { node, start }
    }

    /// Finds the temporary objects of sessions that are no more: those of earlier starts, and of
    /// nodes that are not in the cluster. A database of its own does this when it is opened.
    pub fn note_left_behind(&self, is_member: impl Fn(u16) -> bool) {
        let here = self.home();
        for database in self.all() {
            let catalog = database.catalog();
            let gone = catalog.schemas().filter(|schema| {
                schema.home.is_some_and(|home| match home.node == here.node {
                    true => home.start != here.start || here.node == 0,
                    false => !is_member(home.node),
                })
            });
            let mut behind = database.left_behind().lock();
            for schema in gone {
                if !behind.contains(&schema.oid) {
                    behind.push(schema.oid);
                }
            }
        }
    }

    /// Drops what sessions have left behind, in all databases. What cannot be dropped now stays for
    /// the next time.
    ///
    /// # Errors
    /// Of the first that could not be dropped.
    #[inline(never)]
    pub fn sweep_temporary(&self) -> Boxed<'_, ()> {
        Box::pin(self.sweep_temporary_here())
    }

    async fn sweep_temporary_here(&self) -> Result<()> {
        let mut outcome = Ok(());
        for database in self.all() {
            let left = std::mem::take(&mut *database.left_behind().lock());
            for schema in left {
                if let Err(error) = database.drop_left_behind(schema).await
                    && database.catalog().schema_by_oid(schema).is_some()
                {
                    database.left_behind().lock().push(schema);
                    outcome = outcome.and(Err(error));
                }
            }
        }
        outcome
    }

    /// The same in this database, without waiting for anything: at a node of a cluster, where
    /// commits wait for others, nothing is done.
    pub(super) fn sweep_now(&self) {
        if self.engine().is_node() {
            return;
        }
        let left = std::mem::take(&mut *self.left_behind().lock());
        for schema in left {
            {
                let dropped = pin!(self.drop_left_behind(schema));
                let polled = dropped.poll(&mut Context::from_waker(Waker::noop()));
                if let Poll::Ready(Err(error)) = polled {
                    tracing::debug!(%error, "temporary objects are left behind");
                }
            }
            // It may have waited for the log only, and is done; else for somebody's lock.
            if self.catalog().schema_by_oid(schema).is_some() {
                self.left_behind().lock().push(schema);
            }
        }
    }

    async fn drop_left_behind(&self, schema: Oid) -> Result<()> {
        let mut session = Session::for_another(self.clone(), SessionParameters::default())?;
        session.facts.temporary.begin(schema);
        session.facts.temporary.is_sweeper.store(true, Ordering::Relaxed);
        session.drop_left_behind(schema).await
    }

    /// Whether there is anything to be swept.
    pub fn has_left_behind(&self) -> bool {
        self.all().iter().any(|database| !database.left_behind().lock().is_empty())
    }
}
