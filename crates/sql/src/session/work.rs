//! What a running statement works with: the transaction, the catalog it sees, the session around
//! it.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use cognate_engine::{
    Columns, Divided, Interest, Lent, LockMode, LockOutcome, ReadView, Scan, TemporaryFile, Transaction,
    TreeMode, WaitPolicy,
};

use super::SqlDatabase;
use super::external::External;
use super::facts::Facts;
use super::interrupt::Interrupts;
use super::state::TransactionState;
use crate::catalog::{Catalog, DATABASE_OID, Object, Oid, PUBLIC_OID, Schema, store};
use crate::ddl::database::undefined_database;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{ReadContext, Reader, RowScan, ScanParts, Tally};
use crate::function::{EvalContext, Interrupt as _};
use crate::types::{FormatContext, bounds};

/// A running statement's surroundings, lent by the session.
pub(crate) struct Work<'a> {
    pub(crate) database: &'a SqlDatabase,
    pub(crate) facts: &'a Arc<Facts>,
    pub(crate) engine: &'a mut Transaction,
    /// What the statement reads: nothing of its own effects.
    pub(crate) view: Cow<'a, ReadView>,
    pub(crate) state: &'a mut TransactionState,
    pub(crate) format: &'a FormatContext,
    /// Start of the statement, microseconds since 2000-01-01 UTC.
    pub(crate) statement_time: i64,
    pub(crate) interrupts: &'a Arc<Interrupts>,
    pub(crate) notices: &'a mut Vec<SqlError>,
    /// The catalog the statement sees: its own changes included.
    pub(crate) catalog: Arc<Catalog>,
    /// Where the rows of its nodes are counted, if they are.
    pub(crate) tally: Option<Arc<Tally>>,
}

/// What expressions and cursors read: the transaction as it was when the statement, or the portal,
/// began.
pub(crate) struct ViewReader<'a>(pub(crate) &'a ReadView);

struct EngineScan(Scan);

impl RowScan for EngineScan {
    fn advance(&mut self) -> Result<bool> {
        Ok(self.0.advance()?)
    }

    fn entry(&self) -> Option<(&[u8], Lent<'_>)> {
        self.0.key().zip(self.0.value())
    }

    fn find(&mut self, accept: &mut dyn FnMut(&[u8], Lent<'_>) -> Result<bool>) -> Result<bool> {
        self.0.find(accept)
    }

    fn divide(&mut self, parts: usize) -> Result<Option<Box<dyn ScanParts>>> {
        Ok(self.0.divide(parts)?.map(|divided| Box::new(EngineParts(divided)) as Box<dyn ScanParts>))
    }
}

struct EngineParts(Divided);

impl ScanParts for EngineParts {
    fn count(&self) -> usize {
        self.0.parts()
    }

    fn open(&self, part: usize) -> Result<Box<dyn RowScan>> {
        Ok(Box::new(EngineScan(self.0.open(part)?)))
    }
}

impl Reader for ViewReader<'_> {
    fn get(&self, tree: u32, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.0.get(tree, key)?)
    }

    fn lend(&self, tree: u32, key: &[u8], read: &mut dyn FnMut(Lent<'_>)) -> Result<bool> {
        Ok(self.0.lend(tree, key, read)?)
    }

    fn scan(
        &self,
        tree: u32,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        reverse: bool,
    ) -> Result<Box<dyn RowScan>> {
        Ok(Box::new(EngineScan(self.0.scan(tree, lower, upper, reverse)?)))
    }

    fn lend_columns(
        &self,
        tree: u32,
        key: &[u8],
        columns: Columns,
        read: &mut dyn FnMut(Lent<'_>),
    ) -> Result<bool> {
        Ok(self.0.lend_columns(tree, key, columns, read)?)
    }

    fn scan_for(
        &self,
        tree: u32,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        interest: &dyn Fn() -> Interest,
    ) -> Result<Box<dyn RowScan>> {
        Ok(Box::new(EngineScan(self.0.scan_for(tree, range, reverse, interest)?)))
    }

    fn temporary_file(&self) -> Result<Option<TemporaryFile>> {
        Ok(Some(self.0.temporary_file()?))
    }
}

/// Locks a table as a whole, by its oid, for a transaction, unless that is done. True if it had to
/// wait.
pub(super) async fn hold_table(
    engine: &mut Transaction,
    state: &mut TransactionState,
    interrupts: &Interrupts,
    oid: Oid,
    mode: TreeMode,
) -> Result<bool> {
    if state.held.contains(&(oid, mode)) {
        return Ok(false);
    }
    let request = engine.lock_tree(oid, mode, WaitPolicy::Block);
    let outcome = interrupts.lock(request).await?;
    state.held.push((oid, mode));
    Ok(outcome == LockOutcome::Granted { waited: true })
}

impl Work<'_> {
    /// Evaluates something: lends the context that expressions and cursors read with. Nothing comes
    /// out of it that rests on a comparison that was given up (`types::bounds`).
    pub(crate) fn read<T>(&self, action: impl FnOnce(&ReadContext<'_>) -> Result<T>) -> Result<T> {
        self.read_at(&self.view, action)
    }

    /// The same at another moment's view.
    pub(crate) fn read_at<T>(
        &self,
        view: &ReadView,
        action: impl FnOnce(&ReadContext<'_>) -> Result<T>,
    ) -> Result<T> {
        let (reader, usage) = (ViewReader(view), RefCell::default());
        let external = External {
            facts: self.facts,
            catalog: &self.catalog,
            read_only: self.state.read_only,
            view: Some(view),
            stamp: self.state.catalog.stamp(),
            transaction: Some(&*self.engine),
            interrupts: self.interrupts,
        };
        let context = ReadContext {
            reader: &reader,
            eval: EvalContext {
                format: self.format,
                statement_time: self.statement_time,
                session: &**self.facts,
                memory_limit: self.state.memory_limit,
                interrupt: &**self.interrupts,
            },
            catalog: &self.catalog,
            external: &external,
            interrupt: &**self.interrupts,
            memory_limit: self.state.memory_limit,
            tally: self.tally.as_deref(),
            usage: Some(&usage),
        };
        let done = bounds::within(self.interrupts.clone(), || action(&context));
        self.state.usage.note(usage.take());
        done
    }

    /// Adds a notice.
    pub(crate) fn notice(&mut self, notice: SqlError) {
        self.notices.push(notice);
    }

    /// A fresh oid.
    pub(crate) fn allocate_oid(&self) -> Result<Oid> {
        self.database.counters().allocate_oid()
    }

    /// A fresh tree. Until the commit it is this transaction's alone, so that it may be filled
    /// beyond any limit.
    pub(crate) fn allocate_tree(&mut self) -> u32 {
        // The transaction may outlive the session, prepared.
        let interrupts = Arc::downgrade(self.interrupts);
        self.engine.ask(Arc::new(move || match interrupts.upgrade() {
            Some(interrupts) => interrupts.check().map(drop).map_err(|error| error.message.clone()),
            None => Ok(()),
        }));
        self.engine.create_tree()
    }

    /// Whoever waits for an advisory lock of the session waits for what this transaction waits for,
    /// too: also for one that the running statement is the first to have taken. To be said before
    /// each wait.
    #[inline]
    pub(crate) fn note_companion(&mut self) {
        if let Some(owner) = self.facts.advisory.owner() {
            self.engine.set_companion(Some(owner));
        }
    }

    /// Locks a row (or any key), waiting if need be. Says whether it waited. Nothing to do in a
    /// tree that the transaction made.
    pub(crate) async fn lock_key(&mut self, tree: u32, key: &[u8], mode: LockMode) -> Result<bool> {
        if self.engine.has_created(tree) {
            return Ok(false);
        }
        self.note_companion();
        let request = self.engine.lock(tree, key, mode, WaitPolicy::Block);
        match self.interrupts.lock(request).await? {
            LockOutcome::Granted { waited } => Ok(waited),
            LockOutcome::Skipped => Err(SqlError::internal("a lock that was to be waited for was skipped")),
        }
    }

    /// Locks a table as a whole, by its oid; afterwards the catalog is as new as the lock.
    pub(crate) async fn lock_table(&mut self, oid: Oid, mode: TreeMode) -> Result<()> {
        self.hold_table(oid, mode).await?;
        self.refresh_catalog();
        Ok(())
    }

    /// Locks a table as a whole, by its oid, unless that is done. True if it had to wait.
    pub(crate) async fn hold_table(&mut self, oid: Oid, mode: TreeMode) -> Result<bool> {
        self.note_companion();
        hold_table(self.engine, self.state, self.interrupts, oid, mode).await
    }

    /// Locks the name of a relation that is to be made or to go, in this database.
    pub(crate) async fn lock_name(&mut self, schema: Oid, name: &str) -> Result<()> {
        self.lock_name_as(schema, name, LockMode::Exclusive).await
    }

    /// The same with others who only want that it stays.
    pub(crate) async fn lock_name_as(&mut self, schema: Oid, name: &str, mode: LockMode) -> Result<()> {
        let database = self.database.oid();
        if database != DATABASE_OID {
            // Nobody is to make anything in a database that somebody drops.
            let key = [store::DATABASES.to_be_bytes(), database.to_be_bytes()].concat();
            self.lock_key(store::NAME_TREE, &key, LockMode::Shared).await?;
            if self.database.of(database).is_none() {
                return Err(undefined_database(&self.facts.given_database));
            }
        }
        let mut key = store::prefix(database);
        key.extend_from_slice(&schema.to_be_bytes());
        key.extend_from_slice(name.as_bytes());
        self.lock_key(store::NAME_TREE, &key, mode).await?;
        self.refresh_catalog();
        Ok(())
    }

    /// Locks the name of something that all databases share: `space` says what.
    pub(crate) async fn lock_shared_name(&mut self, space: Oid, name: &str) -> Result<()> {
        self.lock_shared_name_as(space, name, LockMode::Exclusive).await
    }

    /// The same with others who only want that it stays.
    pub(crate) async fn lock_shared_name_as(&mut self, space: Oid, name: &str, mode: LockMode) -> Result<()> {
        let mut key = space.to_be_bytes().to_vec();
        key.extend_from_slice(name.as_bytes());
        self.lock_key(store::NAME_TREE, &key, mode).await?;
        self.refresh_catalog();
        Ok(())
    }

    /// Looks at the newest committed catalog, with the transaction's own changes.
    pub(crate) fn refresh_catalog(&mut self) {
        self.catalog = self.state.catalog.over(self.database.catalog());
        self.engine.rest_on(self.database.catalog_csn());
        self.facts.set_catalog(&self.catalog);
    }

    /// Stores a new or changed object.
    pub(crate) fn change(&mut self, object: Object) -> Result<()> {
        self.change_all([object])
    }

    /// Stores new or changed objects. The catalog as it is seen is made anew once for all of them:
    /// that takes time in proportion to all that there is.
    pub(crate) fn change_all(&mut self, objects: impl IntoIterator<Item = Object>) -> Result<()> {
        let mut new = Vec::new();
        for object in objects {
            self.interrupts.check()?;
            let oid = object.oid();
            if self.catalog.has_roles() && self.catalog.object(oid).is_none() {
                new.push(oid);
            }
            self.state.is_temporary |= object.is_temporary();
            let key = store::key(self.catalog.home_of(&object), oid);
            self.engine.put(store::CATALOG_TREE, &key, store::encode(&object)?)?;
            self.state.catalog.change(oid, Some(object));
        }
        self.refresh_catalog();
        new.into_iter().try_for_each(|oid| self.own_new(oid))
    }

    /// Removes an object, and what is said of its owner and privileges.
    pub(crate) fn remove(&mut self, oid: Oid) -> Result<()> {
        self.remove_all([oid])
    }

    /// Removes objects like this. The catalog as it is seen is made anew once for all of them.
    pub(crate) fn remove_all(&mut self, oids: impl IntoIterator<Item = Oid>) -> Result<()> {
        for oid in oids {
            self.interrupts.check()?;
            self.note_removed(oid)?;
        }
        self.refresh_catalog();
        Ok(())
    }

    /// Removes an object like this; the catalog still shows it.
    fn note_removed(&mut self, oid: Oid) -> Result<()> {
        if let Some(access) = self.catalog.access(oid).map(|access| access.oid) {
            self.note_removed(access)?;
        }
        if self.catalog.schema_by_oid(oid).is_some() {
            let of_it = self.catalog.default_accesses().filter(|default| default.schema == oid);
            let of_it: Vec<Oid> = of_it.map(|default| default.oid).collect();
            of_it.into_iter().try_for_each(|default| self.note_removed(default))?;
        }
        let home =
            self.catalog.object(oid).map_or(self.database.oid(), |object| self.catalog.home_of(object));
        let key = store::key(home, oid);
        match self.catalog.schema_by_oid(oid).filter(|_| oid == PUBLIC_OID) {
            // It is there unless it is said that it is not.
            Some(schema) => {
                let dropped = Object::Schema(Schema { dropped: true, ..Schema::clone(schema) }.into());
                self.engine.put(store::CATALOG_TREE, &key, store::encode(&dropped)?)?;
            }
            None => self.engine.delete(store::CATALOG_TREE, &key)?,
        }
        self.state.is_temporary |= self.catalog.object(oid).is_some_and(Object::is_temporary);
        match self.database.catalog().object(oid) {
            // Nobody else has ever known of it.
            None => self.state.catalog.forget(oid),
            Some(_) => self.state.catalog.change(oid, None),
        }
        Ok(())
    }

    /// 25006 in a read-only transaction, 0A000 in one that has siblings: they share rows, not
    /// definitions. `command` is the tag: `CREATE TABLE`.
    pub(crate) fn require_writable(&self, command: &str) -> Result<()> {
        if self.engine.instance().is_some() {
            return Err(SqlError::unsupported(format!("{command} in an instance of a family")));
        }
        if !self.state.read_only {
            return Ok(());
        }
        Err(SqlError::new(
            sqlstate::READ_ONLY_SQL_TRANSACTION,
            format!("cannot execute {command} in a read-only transaction"),
        ))
    }
}
