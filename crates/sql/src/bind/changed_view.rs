//! The level of a statement that changes a table through a view: the view is merged into it, so
//! that its names are those of the view, and its frame is that of the table.

use sqlparser::ast::{Query as QuerySyntax, SetExpr, TableAlias};

use super::from::Item;
use super::need::ColumnRead;
use super::scope::ColumnSource;
use super::{Binder, Source};
use crate::catalog::{Oid, Privileges, Relation, Table, View};
use crate::error::{Result, SqlError};
use crate::expr::Expr;

/// A view that a statement changes, while it is bound in the place of a table.
pub(super) struct ChangedView {
    /// How many levels there are around it and with it.
    level: usize,
    /// What is needed of the views, and of what they are over.
    privileges: Privileges,
    /// How many conditions the level has once each view is bound, the innermost first.
    conditions: Vec<usize>,
    /// The table that was found under them.
    table: Option<Oid>,
}

impl Binder<'_> {
    /// Opens a level with a view in the place of the table under it: the table's columns are the
    /// first slots, in order, and its row key comes behind them; the names are the view's. Gives
    /// the conditions of each view, the innermost first. 0A000 for a view that cannot be merged.
    pub(crate) fn open_changed_view(
        &mut self,
        view: &View,
        table: &Table,
        privileges: Privileges,
        alias: Option<&TableAlias>,
    ) -> Result<Vec<Vec<Expr>>> {
        // What is read of the view its names say.
        let read = self.need_to_change(view.oid, &view.schema_name, privileges & !Privileges::SELECT);
        self.push_level();
        let changed = ChangedView { level: self.levels.len(), privileges, conditions: vec![], table: None };
        let before = self.changed_view.replace(changed);
        let bound = self.view(view, alias, false);
        let changed = std::mem::replace(&mut self.changed_view, before);
        let (tree, names) = bound?;
        let Some(changed) = changed.filter(|changed| changed.table == Some(table.oid)) else {
            return Err(self.lacks(format!("changing view \"{}\"", view.name)));
        };
        let level = self.level()?;
        level.select.from.push(tree);
        level.namespace.extend(names.read_as(read))?;
        let mut from = 0;
        let mut conditions = Vec::with_capacity(changed.conditions.len());
        for to in changed.conditions {
            conditions.push(level.select.filter[from..to].to_vec());
            from = to;
        }
        Ok(conditions)
    }

    /// Names the columns of the view that the open level has once more, as those of `excluded`: of
    /// another row of the table, whose columns begin at this slot. Qualified names only. Who reads
    /// one of them reads the column of the view.
    pub(crate) fn name_excluded(&mut self, start: usize) -> Result<()> {
        let level = self.level()?;
        let Some(mut excluded) = level.namespace.tables.first().cloned() else {
            return Err(SqlError::internal("the level has no view"));
        };
        excluded.schema = None;
        excluded.name = "excluded".to_owned();
        for column in &mut excluded.columns {
            let mut typed = level.resolve(&column.source);
            typed.expr.replace_references(0, &mut |depth, slot| {
                let slot = start + slot;
                Some(if depth == 0 { Expr::Slot(slot) } else { Expr::Outer { depth, slot } })
            });
            column.source = ColumnSource::Expr(typed);
        }
        level.namespace.tables.push(excluded);
        Ok(())
    }

    /// The view that is changed, if it is this level that it is bound in.
    fn changed_here(&mut self) -> Option<&mut ChangedView> {
        let level = self.levels.len();
        self.changed_view.as_mut().filter(|changed| changed.level == level)
    }

    /// Whether a view that is bound here is changed.
    pub(super) fn is_changed_here(&mut self) -> bool {
        self.changed_here().is_some()
    }

    /// The query of a view that is changed: in what order its rows come does not matter.
    pub(super) fn changed_query(&mut self, query: &QuerySyntax, name: &str) -> Result<Item> {
        let SetExpr::Select(select) = query.body.as_ref() else {
            return Err(self.lacks(format!("changing view \"{name}\"")));
        };
        let before = std::mem::take(&mut self.level()?.namespace);
        let merged = self.merge(select, None, name, true);
        let level = self.level()?;
        level.namespace = before;
        let conditions = level.select.filter.len();
        if let Some(changed) = self.changed_here() {
            changed.conditions.push(conditions);
        }
        merged?.ok_or_else(|| self.lacks(format!("changing view \"{name}\"")))
    }

    /// A stored table was added: if it is the one that is changed, it has its frame from now on.
    pub(super) fn claim_changed(&mut self, table: &Table) -> Result<()> {
        let Some(changed) = self.changed_here().filter(|changed| changed.table.is_none()) else {
            return Ok(());
        };
        changed.table = Some(table.oid);
        let level = self.level()?;
        debug_assert!(matches!(level.select.relations[0].source, Source::Table(_)));
        for place in 0..table.columns.len() {
            level.slot(0, place);
        }
        level.key_slot(0);
        Ok(())
    }

    /// A relation in FROM is read, or changed in the place of the view over it. What the view says
    /// of that one's columns is read only if something is read of the view.
    pub(super) fn need_in_from(&mut self, relation: &Relation) -> Option<ColumnRead> {
        let Some(privileges) = self.changed_here().map(|changed| changed.privileges) else {
            return self.need_to_read(relation);
        };
        let read = self.need_to_change(relation.oid(), relation.schema_name(), privileges);
        read.map(ColumnRead::unasked)
    }
}
