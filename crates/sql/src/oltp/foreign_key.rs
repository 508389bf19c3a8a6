//! Foreign keys: that a row refers to one that exists, and what happens to those that refer to a
//! row that goes. The queue of their checks is also that of UNIQUE constraints that are DEFERRABLE
//! (`deferred_unique`); what it takes is in `pending`.
//!
//! Both are looked at when the statement has ended (or, if deferred, when the transaction does), on
//! the newest committed state with the own writes, whatever the transaction's snapshot is. Who
//! refers to a row locks it KEY SHARE, who takes it or its key away locks it exclusively (see
//! [`write`](super::write)), so of two transactions that would break the rule together one waits
//! for the other:
//!
//! ```text
//! T1: DELETE FROM parent WHERE id = 1      row 1 locked exclusively, no child found
//! T2: INSERT INTO child VALUES (1)         waits for row 1 ...
//! T1: COMMIT
//! T2:                                      key 1 does not exist: 23503
//! ```
//!
//! If T2 is REPEATABLE READ and its snapshot shows row 1, that is 40001.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use cognate_engine::{Isolation, LockMode, TreeMode};

use super::constraint::{check_not_null, check_violation};
use super::index_maintenance::{columns_into, key_tree, same};
use super::indexed::Indexed;
use super::reference_error::{mixed_nulls, no_parent, still_referenced};
use super::stored::{LatestScan, decode};
use super::target::as_key;
use super::write::prefix_range;
use crate::catalog::{ForeignKey, Index, IndexKey, Oid, ReferentialAction, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::function::Interrupt;
use crate::keys;
use crate::session::work::Work;
use crate::types::cast::{self, CastContext};
use crate::types::{Datum, FormatContext, Type};

/// A check that waits for the end of the statement or transaction.
#[derive(Clone, Debug)]
pub(crate) enum Check {
    /// A row of `table` must refer to a row that exists, by these values.
    Parent { table: Arc<Table>, key: Oid, values: Vec<Datum> },
    /// No other row of `table` may have these values in an index's columns.
    Unique { table: Oid, index: Oid, values: Vec<Datum> },
    /// A row of `parent` is gone or has another key; what referred to it by `before` is to be dealt
    /// with.
    Children { parent: Arc<Table>, child: Oid, key: Oid, before: Vec<Datum>, after: Option<Vec<Datum>> },
}

/// What the values of a row's referencing columns mean.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum References {
    /// They refer to nothing, which is allowed.
    Nothing,
    /// They refer to a key.
    Key,
    /// Some are NULL and some are not, which MATCH FULL does not allow.
    Mixed,
}

impl References {
    /// What these values mean to a foreign key.
    pub(crate) fn of(key: &ForeignKey, values: &[Datum]) -> References {
        match values.iter().filter(|value| value.is_null()).count() {
            0 => References::Key,
            nulls if key.match_full && nulls < values.len() => References::Mixed,
            _ => References::Nothing,
        }
    }
}

/// Checks of the transaction's end.
pub(crate) type DeferredChecks = Vec<Check>;

impl Work<'_> {
    /// Queues the checks of a new or changed row's references.
    pub(crate) fn queue_parent_checks(
        &mut self,
        table: &Arc<Table>,
        row: &[Datum],
        wanted: impl Fn(&ForeignKey) -> bool,
    ) -> Result<()> {
        if table.foreign_keys.is_empty() || self.facts.effective().is_replica {
            return Ok(());
        }
        for key in table.foreign_keys.iter().filter(|key| !key.unchecked && wanted(key)) {
            let values: Vec<Datum> = key.columns.iter().map(|&place| row[place].clone()).collect();
            if References::of(key, &values) == References::Nothing {
                continue;
            }
            let check = Check::Parent { table: table.clone(), key: key.oid, values };
            self.keep_check(check, self.state.is_deferred(key))?;
        }
        Ok(())
    }

    /// Queues what is to be done about the rows that referred to a row.
    pub(crate) fn queue_child_checks(
        &mut self,
        parent: &Arc<Table>,
        before: &[Datum],
        after: Option<&[Datum]>,
    ) -> Result<()> {
        if parent.referenced_by.is_empty() || self.facts.effective().is_replica {
            return Ok(());
        }
        for reference in parent.referenced_by.iter().filter(|reference| !reference.unheeded) {
            let Some(child) = self.catalog.table_by_oid(reference.table).cloned() else { continue };
            let Some(key) = child.foreign_key(reference.constraint) else { continue };
            let values = |row: &[Datum]| -> Vec<Datum> {
                key.referenced_columns.iter().map(|&place| row[place].clone()).collect()
            };
            let old = values(before);
            let new = after.map(values);
            // A key that looks different is handed on even if it is equal: -0 and 0, 1.0 and 1.00.
            let unchanged =
                new.as_ref().is_some_and(|new| new.iter().zip(&old).all(|(new, old)| looks_same(new, old)));
            if unchanged || old.iter().any(Datum::is_null) {
                continue;
            }
            let check = Check::Children {
                parent: parent.clone(),
                child: child.oid,
                key: key.oid,
                before: old,
                after: new,
            };
            let action = if after.is_some() { key.on_update } else { key.on_delete };
            // Only NO ACTION can wait: the others act or refuse with the statement.
            let waits = action == ReferentialAction::NoAction && self.state.is_deferred(key);
            self.keep_check(check, waits)?;
        }
        Ok(())
    }

    /// 55006 for what makes a table another one while foreign keys of rows that it had are still to
    /// be looked at. PostgreSQL keeps no such check of a key that may be there only once.
    pub(crate) fn require_settled(&self, oid: Oid, command: &str) -> Result<()> {
        let is_of_it = |check: &Check| match check {
            Check::Parent { table, .. } => table.oid == oid,
            Check::Children { parent, .. } => parent.oid == oid,
            Check::Unique { .. } => false,
        };
        if !self.state.deferred.iter().any(is_of_it) {
            return Ok(());
        }
        let name = self.catalog.table_by_oid(oid).map(|table| table.name.clone()).unwrap_or_default();
        Err(SqlError::new(
            sqlstate::OBJECT_IN_USE,
            format!("cannot {command} \"{name}\" because it has pending trigger events"),
        ))
    }

    /// The end of a statement: looks at what its writes queued, and at what that queues in turn.
    pub(crate) async fn run_checks(&mut self) -> Result<()> {
        while !self.state.checks.is_empty() {
            for check in std::mem::take(&mut self.state.checks) {
                self.interrupts.check()?;
                self.run_check(check).await?;
            }
        }
        self.end_checks();
        Ok(())
    }

    /// The end of the transaction.
    pub(crate) async fn run_deferred_checks(&mut self) -> Result<()> {
        self.state.checks.append(&mut self.state.deferred);
        self.run_checks().await
    }

    async fn run_check(&mut self, check: Check) -> Result<()> {
        match check {
            Check::Parent { table, key, values } => {
                let Some(key) = table.foreign_key(key) else { return Ok(()) };
                if References::of(key, &values) == References::Mixed {
                    return match self.refers(&table, key, &values)? {
                        true => Err(mixed_nulls(&table, key)),
                        false => Ok(()),
                    };
                }
                self.join_table(key.referenced_table, TreeMode::RowShare).await?;
                let Some(parent) = self.catalog.table_by_oid(key.referenced_table).cloned() else {
                    return Ok(());
                };
                self.check_leads_back(&parent)?;
                if self.lock_parent(&table, &parent, key, &values).await? {
                    return Ok(());
                }
                // The row may be gone, or have changed since: the check may be an earlier
                // statement's, or that of an earlier part of this one.
                if !self.refers(&table, key, &values)? {
                    return Ok(());
                }
                self.refuse_gone_parent(&table, &parent, key, &values)?;
                Err(no_parent(&table, &parent, key, &self.told_key(&table, &key.columns, &values)))
            }
            Check::Unique { table, index, values } => self.check_unique(table, index, &values).await,
            Check::Children { parent, child, key, before, after } => {
                self.join_table(child, TreeMode::Write).await?;
                let Some(child) = self.catalog.table_by_oid(child).cloned() else { return Ok(()) };
                self.check_leads_back(&child)?;
                let Some(key) = child.foreign_key(key).cloned() else { return Ok(()) };
                let action = if after.is_some() { key.on_update } else { key.on_delete };
                match action {
                    ReferentialAction::NoAction | ReferentialAction::Restrict => {
                        self.refuse_children(&parent, &child, &key, &before, action).await
                    }
                    _ => self.act_on_children(&parent, &child, &key, &before, after.as_deref(), action).await,
                }
            }
        }
    }

    /// 40001 at SERIALIZABLE if others have truncated the table, or given it other trees, since the
    /// snapshot. A check reads the newest commits, and what they have replaced in other trees than
    /// it reads is nothing that it could be told to come after.
    fn check_leads_back(&self, table: &Table) -> Result<()> {
        match self.engine.isolation() == Isolation::Serializable && self.is_shared(table) {
            true => self.check_not_moved(table),
            false => Ok(()),
        }
    }

    /// Locks another table that a check looks into, or writes to. Who has only read it so far keeps
    /// out nobody who is to wait for writers.
    pub(super) async fn join_table(&mut self, table: Oid, mode: TreeMode) -> Result<()> {
        if !self.state.held.iter().any(|(held, as_what)| *held == table && as_what.covers(mode)) {
            self.lock_table(table, mode).await?;
        }
        Ok(())
    }

    /// Locks the row that has the referenced key, and says whether there is one. Nobody is waited
    /// for who only makes one.
    pub(super) async fn lock_parent(
        &mut self,
        table: &Table,
        parent: &Table,
        key: &ForeignKey,
        values: &[Datum],
    ) -> Result<bool> {
        let Some((index, entry)) = self.parent_key(table, parent, key, values)? else { return Ok(false) };
        let noted = key_tree(index.tree);
        loop {
            let Some(holder) = self.key_holder(index.tree, &entry)? else {
                self.note_absent(index.tree, &entry)?;
                return Ok(false);
            };
            let row_key = if index.is_clustered() { &entry } else { &holder[..] };
            let is_shared = self.is_shared(parent);
            if is_shared {
                self.lock_key(parent.tree, row_key, LockMode::KeyShared).await?;
            }
            // The row may have gone, or another one have the key, while the lock was waited for.
            let now = self.key_holder(index.tree, &entry)?;
            if now.is_some_and(|now| index.is_clustered() || now == holder) {
                // That the key exists is what is read, not what else is in the row.
                if is_shared {
                    self.engine.note_latest_under(noted, &entry, (parent.tree, row_key))?;
                }
                return Ok(true);
            }
        }
    }

    /// Whether there is such a row at this moment, which nothing keeps so.
    pub(super) fn shows_parent(
        &self,
        table: &Table,
        parent: &Table,
        key: &ForeignKey,
        values: &[Datum],
    ) -> Result<bool> {
        match self.parent_key(table, parent, key, values)? {
            Some((index, entry)) => Ok(self.key_holder(index.tree, &entry)?.is_some()),
            None => Ok(false),
        }
    }

    /// Notes that nobody has a key. There is nothing to lock, so it is read as the snapshot shows
    /// it. 40001 for a serializable transaction whose snapshot shows the key: it has gone since,
    /// and what would be read after that could change again until the commit.
    fn note_absent(&self, tree: u32, entry: &[u8]) -> Result<()> {
        if self.engine.isolation() == Isolation::Serializable
            && self.engine.changed(tree, entry)?.is_some()
            && self.view.get(tree, entry)?.is_some()
        {
            self.check_unchanged(tree, entry)?;
        }
        self.engine.note_read(key_tree(tree), entry);
        Ok(())
    }

    /// 40001 at REPEATABLE READ if the snapshot shows the key, which nobody has by now: the first
    /// who changes a row wins. To be told that there is no such row would contradict what is seen.
    fn refuse_gone_parent(
        &self,
        table: &Table,
        parent: &Table,
        key: &ForeignKey,
        values: &[Datum],
    ) -> Result<()> {
        if self.engine.isolation() == Isolation::Snapshot
            && let Some((index, entry)) = self.parent_key(table, parent, key, values)?
            && self.engine.changed(index.tree, &entry)?.is_some()
            && self.view.get(index.tree, &entry)?.is_some()
        {
            return Err(self.newer("update", index.tree, &entry));
        }
        Ok(())
    }

    /// Whether the referenced key exists, without a lock: the caller holds both tables.
    pub(crate) fn has_parent(
        &mut self,
        table: &Table,
        parent: &Table,
        key: &ForeignKey,
        values: &[Datum],
    ) -> Result<bool> {
        match self.parent_key(table, parent, key, values)? {
            Some((index, entry)) => {
                self.engine.note_latest(key_tree(index.tree), &entry, (index.tree, &entry))?;
                Ok(self.key_holder(index.tree, &entry)?.is_some())
            }
            None => Ok(false),
        }
    }

    /// The referenced index and the key the values have there. `None` if the values cannot be in
    /// the referenced columns.
    fn parent_key<'t>(
        &self,
        table: &Table,
        parent: &'t Table,
        key: &ForeignKey,
        values: &[Datum],
    ) -> Result<Option<(&'t Index, Vec<u8>)>> {
        let index = parent
            .index(key.referenced_index)
            .ok_or_else(|| SqlError::internal(format!("foreign key \"{}\" has no index", key.name)))?;
        let mut entry = Vec::with_capacity(values.len() * 10);
        for column in &index.columns {
            let is_it = |&place: &usize| column.key == IndexKey::Column(place);
            let at = key.referenced_columns.iter().position(is_it).unwrap_or(0);
            let from = table.columns[key.columns[at]].ty;
            let to = parent.key_type(index, column.key);
            let Some(value) = converted(&values[at], from, to, self.format) else { return Ok(None) };
            keys::encode_entry_into(&mut entry, &value, column.order());
        }
        Ok(Some((index, entry)))
    }

    /// Whether a row of `table` still refers by these values.
    fn refers(&mut self, table: &Arc<Table>, key: &ForeignKey, values: &[Datum]) -> Result<bool> {
        // An index that was dropped since an earlier statement queued this knows no later changes.
        let table = self.catalog.table_by_oid(table.oid).unwrap_or(table).clone();
        Ok(!self.rows_with(&table, &key.columns, values, true)?.is_empty())
    }

    async fn refuse_children(
        &mut self,
        parent: &Arc<Table>,
        child: &Arc<Table>,
        key: &ForeignKey,
        before: &[Datum],
        action: ReferentialAction,
    ) -> Result<()> {
        let Some(values) = self.child_values(parent, child, key, before) else { return Ok(()) };
        let mut locked = None;
        loop {
            let found = self.rows_with(child, &key.columns, &values, true)?.pop();
            let Some(row_key) = found else { return Ok(()) };
            // Another row may have taken the key's place by now.
            if action == ReferentialAction::NoAction && self.lock_parent(child, parent, key, &values).await? {
                return Ok(());
            }
            if locked.as_ref() == Some(&row_key) || !self.must_stay(child, &row_key)? {
                let told = self.told_key(parent, &key.referenced_columns, before);
                return Err(still_referenced(parent, child, key, &told));
            }
            // Looked at once more under the lock, which stays with what was read then.
            self.lock_key(child.tree, &row_key, LockMode::Shared).await?;
            locked = Some(row_key);
        }
    }

    /// Whether what is said of a row, which was found in the newest commits, has to be kept true by
    /// a lock: for the certifier it is read for good, if it is newer than the snapshot, even if the
    /// client rolls back to a savepoint after a failure and goes on.
    fn must_stay(&self, table: &Table, row_key: &[u8]) -> Result<bool> {
        Ok(self.engine.isolation() == Isolation::Serializable
            && self.is_shared(table)
            && self.engine.own(table.tree, row_key)?.is_none())
    }

    /// CASCADE, SET NULL, SET DEFAULT.
    async fn act_on_children(
        &mut self,
        parent: &Arc<Table>,
        child: &Arc<Table>,
        key: &ForeignKey,
        before: &[Datum],
        after: Option<&[Datum]>,
        action: ReferentialAction,
    ) -> Result<()> {
        let Some(values) = self.child_values(parent, child, key, before) else { return Ok(()) };
        let mut rows = self.rows_with(child, &key.columns, &values, false)?.into_iter();
        while let Some(row_key) = rows.next() {
            let deletes = action == ReferentialAction::Cascade && after.is_none();
            let mode = if deletes { LockMode::Exclusive } else { LockMode::NoKeyExclusive };
            let own = self.engine.own(child.tree, &row_key)?.is_some();
            if self.is_shared(child) && (deletes || !own) {
                self.lock_key(child.tree, &row_key, mode).await?;
            }
            if self.is_shared(child) && !own {
                self.check_unchanged(child.tree, &row_key)?;
            }
            let Some(row) = self.latest_row(child, &row_key)? else {
                // It may have got another primary key while its lock was waited for.
                rows = self.rows_with(child, &key.columns, &values, false)?.into_iter();
                continue;
            };
            if !key.columns.iter().zip(&values).all(|(&place, value)| same(&row[place], value)) {
                continue;
            }
            if deletes {
                self.delete_row(child, &row_key, &row).await?;
                continue;
            }
            let mut changed = row.clone();
            let set = if after.is_none() { key.set_on_delete() } else { &key.columns };
            for (at, &place) in key.columns.iter().enumerate().filter(|(_, place)| set.contains(place)) {
                changed[place] = match (action, after) {
                    (ReferentialAction::Cascade, Some(after)) => {
                        let from = parent.columns[key.referenced_columns[at]].ty;
                        let to = child.columns[place].ty;
                        cast::cast(&after[at], from, to, CastContext::Assignment, self.format)?
                    }
                    (ReferentialAction::SetDefault, _) => match self.bind_default(child, place)? {
                        Some(default) => self.evaluate(&default, &[])?,
                        None => Datum::Null,
                    },
                    _ => Datum::Null,
                };
            }
            self.generate(child, &mut changed)?;
            let generated =
                (0..child.columns.len()).filter(|&place| child.columns[place].generated.is_some());
            let places: Vec<usize> = key.columns.iter().copied().chain(generated).collect();
            self.check_domains(child, &places, &changed)?;
            check_not_null(child, &changed, self.format)?;
            for check in &child.checks {
                let condition = self.bind_check(child, &check.expression)?;
                if self.evaluate(&condition, &changed)?.as_bool() == Some(false) {
                    return Err(check_violation(child, &check.name, &changed, self.format));
                }
            }
            self.update_row(child, &row_key, &row, &changed).await?;
        }
        // The defaults may be the very key that goes.
        if action == ReferentialAction::SetDefault {
            return self.refuse_children(parent, child, key, before, ReferentialAction::NoAction).await;
        }
        Ok(())
    }

    fn child_values(
        &self,
        parent: &Table,
        child: &Table,
        key: &ForeignKey,
        values: &[Datum],
    ) -> Option<Vec<Datum>> {
        let pairs = values.iter().zip(&key.referenced_columns).zip(&key.columns);
        pairs
            .map(|((value, &referenced), &place)| {
                converted(value, parent.columns[referenced].ty, child.columns[place].ty, self.format)
            })
            .collect()
    }

    /// Row keys of the rows of a table that have these values, as the newest commits and own writes
    /// leave them. By an index that begins with the columns if there is one, else by looking at all
    /// rows.
    pub(super) fn rows_with(
        &mut self,
        table: &Arc<Table>,
        places: &[usize],
        values: &[Datum],
        first_only: bool,
    ) -> Result<Vec<Bytes>> {
        let database = self.database.engine();
        let mut found = Vec::new();
        let index = table.indexes.iter().find(|index| begins_with(index, places));
        let (tree, range) = match index {
            Some(index) => {
                let mut row = vec![Datum::Null; table.columns.len()];
                for (&place, value) in places.iter().zip(values) {
                    row[place] = value.clone();
                }
                let head = Index { columns: index.columns[..places.len()].to_vec(), ..index.clone() };
                let mut prefix = Vec::new();
                columns_into(&head, Indexed::plain(&row), &mut prefix);
                (index.tree, prefix_range(&prefix))
            }
            None => (table.tree, (Bound::Unbounded, Bound::Unbounded)),
        };
        let (lower, upper) = (range.0.as_ref().map(Vec::as_slice), range.1.as_ref().map(Vec::as_slice));
        let mut scan = LatestScan::open(database, self.engine, tree, lower, upper)?;
        let mut rows = 0u32;
        while let Some((key, value)) = scan.next(self.engine)? {
            rows = rows.wrapping_add(1);
            if rows & 0xff == 0 {
                self.interrupts.check()?;
            }
            match index {
                Some(index) => found.push(Bytes::copy_from_slice(index.row_key(&key, &value)?)),
                None => {
                    let row = decode(table, &value)?;
                    if places.iter().zip(values).all(|(&place, value)| same(&row[place], value)) {
                        found.push(key);
                    }
                }
            }
            if first_only && !found.is_empty() {
                break;
            }
        }
        let counts = self.state.usage.of(index.map_or(table.oid, |index| index.oid));
        (counts.scans, counts.read) = (counts.scans + 1, counts.read + u64::from(rows));
        Ok(found)
    }
}

/// Whether an index has an entry for each row, which begins with these columns.
fn begins_with(index: &Index, places: &[usize]) -> bool {
    let is_one = |key: IndexKey| key.column().is_some_and(|column| places.contains(&column));
    index.predicate.is_none()
        && index.columns.len() >= places.len()
        && index.columns[..places.len()].iter().all(|column| is_one(column.key))
}

/// Equal, and shown alike.
fn looks_same(a: &Datum, b: &Datum) -> bool {
    same(a, b)
        && match (a, b) {
            (Datum::Float4(a), Datum::Float4(b)) => a.is_sign_negative() == b.is_sign_negative(),
            (Datum::Float8(a), Datum::Float8(b)) => a.is_sign_negative() == b.is_sign_negative(),
            (Datum::Numeric(a), Datum::Numeric(b)) => a.scale() == b.scale(),
            (Datum::Interval(a), Datum::Interval(b)) => {
                (a.months, a.days, a.micros) == (b.months, b.days, b.micros)
            }
            (Datum::Jsonb(a), Datum::Jsonb(b)) => a == b,
            _ => true,
        }
}

/// A value of one side's type in the other's; `None` if that type has no equal value.
fn converted(value: &Datum, from: Type, to: Type, format: &FormatContext) -> Option<Datum> {
    if from.id == to.id {
        return Some(value.clone());
    }
    if to.id.is_integer() && from.id.is_integer() {
        return as_key(value.clone(), to);
    }
    cast::cast(value, from, to.plain(), CastContext::Assignment, format).ok()
}
