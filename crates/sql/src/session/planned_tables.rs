//! The tables and views of a plan: their locks, and that the transaction may still read them as
//! they are now.

use std::sync::Arc;

use cognate_engine::{Access, Isolation, TreeMode};

use super::state::TransactionState;
use super::work::{Work, hold_table};
use super::{Block, Open, Planned, Session};
use crate::catalog::{Catalog, Object, Oid, Table, View};
use crate::error::{Result, SqlError, sqlstate};

impl Session {
    /// Locks the tables a plan reads and the one it changes, and the views by way of which it does:
    /// their definitions stay as long as the transaction may read by them again. True if it had to
    /// wait for one. That takes nothing of what a running statement works with, but for the
    /// transaction.
    pub(super) async fn lock_tables(&mut self, planned: &Planned) -> Result<bool> {
        let mode = |oid: Oid| match () {
            () if planned.changes(oid) => TreeMode::Write,
            () if planned.locks(oid) => TreeMode::RowShare,
            () => TreeMode::Read,
        };
        let shared = self.shared_tables(planned);
        let (interrupts, companion) = (self.interrupts(), self.facts.advisory.owner());
        let open = self.open.as_mut().ok_or_else(|| SqlError::internal("no transaction is open"))?;
        if companion.is_some() {
            open.engine.set_companion(companion);
        }
        let Open { engine, state } = open;
        let mut waited = false;
        for view in &planned.views {
            waited |= hold_table(engine, state, &interrupts, view.oid, TreeMode::Read).await?;
        }
        for oid in shared {
            waited |= hold_table(engine, state, &interrupts, oid, TreeMode::Share).await?;
        }
        for table in &planned.tables {
            waited |= hold_table(engine, state, &interrupts, table.oid, mode(table.oid)).await?;
        }
        Ok(waited)
    }

    /// A statement depends on the definitions of its tables, views and routines as well. They
    /// seldom change, so mostly nothing is noted.
    pub(super) fn note_tables(&self, planned: &Planned) {
        let Some(open) = &self.open else { return };
        let changed = self.changed_at();
        let relations = planned.tables.iter().map(|table| table.oid);
        let relations = relations.chain(planned.views.iter().map(|view| view.oid));
        let oids = relations.chain(planned.routine_oids());
        let database = self.database.oid();
        let keys = oids.map(|oid| crate::catalog::store::key(database, oid));
        if changed > open.engine.snapshot() {
            // The catalog is always the newest; the table's lock keeps the definition as it is, but
            // for what nobody depends on who has such a lock (`ddl::alter_table`).
            keys.for_each(|key| {
                open.engine.note_latest_of_tree(crate::catalog::store::CATALOG_TREE, &key);
            });
        } else if changed > 0 && self.database.engine().is_in_graph(changed) {
            keys.for_each(|key| open.engine.note_read(crate::catalog::store::CATALOG_TREE, &key));
        }
    }

    /// 40001 if a table was truncated or rewritten after the transaction's snapshot: what the
    /// snapshot saw is not there.
    pub(super) fn check_snapshot(&self, planned: &Planned) -> Result<()> {
        let Some(open) = &self.open else { return Ok(()) };
        let snapshot = open.engine.snapshot();
        if self.changed_at() <= snapshot {
            return Ok(());
        }
        let catalog = self.database.catalog();
        let changed = |table: &&Arc<Table>| {
            catalog.moved_at(table.oid) > snapshot && !open.engine.has_created(table.tree)
        };
        match planned.tables.iter().find(changed) {
            None => Ok(()),
            Some(table) => Err(changed_table(table)),
        }
    }

    /// The trees of indexes that the transaction has made over rows which others have written. They
    /// lead to the newest rows, and not to all that an earlier snapshot shows: as long as it stays,
    /// nothing is read by them. That a key is free is looked up in the newest commits.
    pub(super) fn newer_indexes(&self) -> Vec<u32> {
        let Some(open) = &self.open else { return Vec::new() };
        if open.engine.isolation() == Isolation::ReadCommitted {
            return Vec::new();
        }
        let tables = open.state.catalog.changes().values().filter_map(|object| match object {
            Some(Object::Table(table)) if !open.engine.has_created(table.tree) => Some(table),
            _ => None,
        });
        let trees = tables.flat_map(|table| table.indexes.iter().map(|index| index.tree));
        trees.filter(|tree| open.engine.has_created(*tree)).collect()
    }

    /// A READ ONLY block has no locks on what it reads that keep definitions as they are. So it
    /// remembers them, and fails where the rows of a table would look otherwise than before, or a
    /// view would give other ones, or where the name of one stands for another one: 40001.
    pub(super) fn check_seen(&mut self, planned: &Planned) -> Result<()> {
        if self.block != Block::Explicit {
            return Ok(());
        }
        let changed_at = self.changed_at();
        let Some(open) = &mut self.open else { return Ok(()) };
        if open.engine.access() != Access::ReadOnly || open.engine.isolation() == Isolation::ReadCommitted {
            return Ok(());
        }
        if changed_at > open.engine.snapshot() {
            check_names(&open.state, planned, &self.database.catalog())?;
        }
        for table in &planned.tables {
            match open.state.seen.iter().find(|seen| seen.oid == table.oid) {
                None => open.state.seen.push(Arc::clone(table)),
                Some(seen) if Arc::ptr_eq(seen, table) || look_alike(seen, table) => {}
                Some(_) => return Err(changed_table(table)),
            }
        }
        for view in &planned.views {
            match open.state.seen_views.iter().find(|seen| seen.oid == view.oid) {
                None => open.state.seen_views.push(Arc::clone(view)),
                Some(seen) if Arc::ptr_eq(seen, view) || read_alike(seen, view) => {}
                Some(_) => return Err(changed_view(view)),
            }
        }
        Ok(())
    }
}

impl Work<'_> {
    /// 40001 if a table was truncated or rewritten after the transaction's snapshot.
    pub(crate) fn check_not_moved(&self, table: &Table) -> Result<()> {
        match self.database.catalog().moved_at(table.oid) > self.engine.snapshot() {
            true => Err(changed_table(table)),
            false => Ok(()),
        }
    }
}

/// 40001 if a plan means another table or view by the name of one that was read before, and that
/// has lost it since: who keeps definitions as they are would have kept it from that.
fn check_names(state: &TransactionState, planned: &Planned, catalog: &Catalog) -> Result<()> {
    let is_replaced = |oid: Oid, schema: &str, name: &str| {
        let now = catalog.relation_by_oid(oid);
        now.is_none_or(|now| now.name() != name || now.schema_name() != schema)
            && (planned.tables.iter().any(|other| other.name == name && other.oid != oid)
                || planned.views.iter().any(|other| other.name == name && other.oid != oid))
    };
    let table = state.seen.iter().find(|seen| is_replaced(seen.oid, &seen.schema_name, &seen.name));
    if let Some(table) = table {
        return Err(changed_table(table));
    }
    let view = state.seen_views.iter().find(|seen| is_replaced(seen.oid, &seen.schema_name, &seen.name));
    view.map_or(Ok(()), |view| Err(changed_view(view)))
}

/// Whether rows of a table look as they did.
fn look_alike(before: &Table, now: &Table) -> bool {
    let mut columns = before.columns.iter().zip(&now.columns);
    before.columns.len() == now.columns.len()
        && columns.all(|(a, b)| a.name == b.name && a.ty == b.ty && a.dropped == b.dropped)
}

/// Whether a view gives the same rows of the same tables as it did.
fn read_alike(before: &View, now: &View) -> bool {
    let mut columns = before.columns.iter().zip(&now.columns);
    before.query == now.query
        && before.search_path == now.search_path
        && before.columns.len() == now.columns.len()
        && columns.all(|(a, b)| a.name == b.name && a.ty == b.ty)
}

#[cold]
fn changed_table(table: &Table) -> SqlError {
    changed("table", &table.name).met_at(table.oid, None)
}

#[cold]
fn changed_view(view: &View) -> SqlError {
    changed("view", &view.name).met_at(view.oid, None)
}

fn changed(kind: &str, name: &str) -> SqlError {
    let message = format!("could not serialize access due to a concurrent change of {kind} \"{name}\"");
    SqlError::new(sqlstate::SERIALIZATION_FAILURE, message)
        .with_hint("The transaction might succeed if retried.")
}
