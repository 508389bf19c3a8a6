//! What a statement changes: a table, or the table under a view that stands for one.
//!
//! ```text
//! CREATE VIEW v AS SELECT id, a AS b FROM t WHERE a > 5
//! UPDATE v SET b = 7 WHERE id = 1      as     UPDATE t SET a = 7 WHERE a > 5 AND id = 1
//! INSERT INTO v VALUES (2, 8)          as     INSERT INTO t (id, a) VALUES (2, 8)
//! ```
//!
//! The statement goes on using the names of the view. Who runs it needs its privileges on the view,
//! and the view's owner needs them on the table.

use std::sync::Arc;

use sqlparser::ast;

use super::run::{Checks, Run};
use super::source::Pieces;
use super::target::{find_changed, open_table_as, open_target};
use crate::bind::{BaseTable, Binder, FixedColumn, NoBaseTable, ViewColumn, base_table};
use crate::catalog::{CheckOption, Privileges, Relation, Table, View};
use crate::ddl::names::single;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::Expr;
use crate::parse::hidden_column;
use crate::session::work::Work;
use crate::types::Datum;

/// How rows are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Insert,
    Update,
    Delete,
}

/// What a statement changes.
pub(crate) struct Subject {
    pub(crate) table: Arc<Table>,
    /// The table with the names that the statement has for it and its columns.
    pub(crate) named: Arc<Table>,
    under: Option<Under>,
    change: Change,
    privileges: Privileges,
}

/// The view that the table is under.
struct Under {
    view: Arc<View>,
    base: BaseTable,
}

impl Subject {
    /// What is meant by a name. Of `privileges` SELECT is what may be read of the table under a
    /// view. 42P01, 42809; 55000 for a view that stands for no table.
    pub(crate) fn find(
        binder: &mut Binder<'_>,
        name: &ast::ObjectName,
        change: Change,
        privileges: Privileges,
    ) -> Result<Subject> {
        let view = match find_changed(binder, name)? {
            Relation::View(view) => view,
            found => {
                let table = found.as_table().cloned();
                let table = table.ok_or_else(|| SqlError::internal("neither a table nor a view"))?;
                // What is read of it is seen where its names are resolved.
                binder.need(&table, privileges & !Privileges::SELECT);
                return Ok(Subject { named: table.clone(), table, under: None, change, privileges });
            }
        };
        let base = base_table(&view, binder.context.catalog, change != Change::Delete);
        let base = base.map_err(|refusal| cannot_change(change, &refusal))?;
        binder.check_own(&base.table)?;
        let (table, named) = (base.table.clone(), Arc::new(named(&view, &base)));
        Ok(Subject { table, named, under: Some(Under { view, base }), change, privileges })
    }

    /// Whether it is a view.
    pub(crate) fn is_view(&self) -> bool {
        self.under.is_some()
    }

    /// 0A000 unless the row of a cursor can be changed: of a table, and with nothing beside it.
    pub(crate) fn check_current(&self, is_alone: bool) -> Result<()> {
        if self.is_view() {
            let message = "WHERE CURRENT OF on a view is not implemented";
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
        }
        if is_alone { Ok(()) } else { Err(SqlError::unsupported("WHERE CURRENT OF beside other tables")) }
    }

    /// Opens a level with it: its columns are the first slots, in order; those of a view have the
    /// view's names, and only rows that it shows are met. What new rows must meet.
    pub(crate) fn open(
        &self,
        binder: &mut Binder<'_>,
        alias: Option<&ast::TableAlias>,
    ) -> Result<ViewChecks> {
        let mut is_cascaded = false;
        let mut checks = Vec::new();
        for (view, conditions) in self.open_views(binder, alias)?.into_iter().rev() {
            is_cascaded |= view.check_option == Some(CheckOption::Cascaded);
            if (is_cascaded || view.check_option.is_some()) && !conditions.is_empty() {
                checks.push((view.name.clone(), Expr::all(conditions)));
            }
        }
        // Inner views are asked first.
        checks.reverse();
        Ok(ViewChecks(checks))
    }

    /// The same; what a row must meet that the view shows.
    pub(crate) fn open_shown(
        &self,
        binder: &mut Binder<'_>,
        alias: Option<&ast::TableAlias>,
    ) -> Result<ViewChecks> {
        let views = self.open_views(binder, alias)?.into_iter();
        let selecting = views.filter(|(_, conditions)| !conditions.is_empty());
        let checks = selecting.map(|(view, conditions)| (view.name.clone(), Expr::all(conditions)));
        Ok(ViewChecks(checks.collect()))
    }

    /// The same; the views that it is, the innermost first, each with its conditions.
    fn open_views(
        &self,
        binder: &mut Binder<'_>,
        alias: Option<&ast::TableAlias>,
    ) -> Result<Vec<(&Arc<View>, Vec<Expr>)>> {
        let Some(Under { view, base }) = &self.under else {
            match self.change {
                Change::Insert => open_table_as(binder, &self.table, alias)?,
                Change::Update | Change::Delete => open_target(binder, &self.table, alias)?,
            }
            binder.need_what_names_read(&self.table)?;
            return Ok(Vec::new());
        };
        let conditions = binder.open_changed_view(view, &self.table, self.privileges, alias)?;
        Ok(base.views.iter().zip(conditions).collect())
    }

    /// The table as `named`, for SET: there DEFAULT is that of a view's column, which has none but
    /// its domain's.
    pub(crate) fn assigned(&self) -> Arc<Table> {
        if !self.is_view() {
            return self.named.clone();
        }
        let mut table = Table::clone(&self.named);
        for column in &mut table.columns {
            column.default = None;
        }
        Arc::new(table)
    }

    /// Columns of the table, by their places, are read, or given values. A view must have been
    /// opened before.
    pub(crate) fn need_columns(&self, binder: &mut Binder<'_>, privilege: Privileges, places: &[usize]) {
        let views = self.under.as_ref().map_or(&[][..], |under| under.base.views.as_slice());
        binder.need_columns(views, &self.table, privilege, places);
    }

    /// What new rows must meet.
    pub(crate) fn checks(&self, binder: &mut Binder<'_>) -> Result<ViewChecks> {
        if !self.is_view() {
            return Ok(ViewChecks::default());
        }
        let checks = self.open(binder, None)?;
        binder.pop_level()?;
        Ok(checks)
    }

    /// 0A000 if one of these columns cannot be changed. Those that there are not are somebody
    /// else's to refuse.
    pub(crate) fn check_columns<'a>(
        &self,
        names: impl IntoIterator<Item = &'a ast::ObjectName>,
    ) -> Result<()> {
        let Some(Under { view, base }) = &self.under else { return Ok(()) };
        for name in names {
            let Ok(name) = single(name) else { continue };
            match base.columns.iter().find(|(known, _)| *known == name) {
                Some((_, Err(fixed))) => return Err(cannot_change_column(self.change, fixed)),
                Some((_, Ok(place))) if self.named.columns[*place].name != name => {
                    let message = format!("changing column \"{name}\" of view \"{}\"", view.name);
                    return Err(SqlError::unsupported(format!("{message}, which has it twice,")));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The places of all columns, in order; with those that cannot be changed, and why.
    pub(crate) fn all_columns(&self) -> (Vec<usize>, Vec<(usize, SqlError)>) {
        let Some(Under { base, .. }) = &self.under else {
            return (self.table.visible_columns().map(|(place, _)| place).collect(), Vec::new());
        };
        let mut fixed = Vec::new();
        let mut places = Vec::new();
        for (at, (_, column)) in base.columns.iter().enumerate() {
            match column {
                Ok(place) if places.contains(place) => {
                    let name = &self.table.columns[*place].name;
                    let message = format!("multiple assignments to same column \"{name}\"");
                    fixed.push((at, SqlError::syntax(message)));
                }
                Ok(_) => {}
                Err(refusal) => fixed.push((at, cannot_change_column(self.change, refusal))),
            }
            // Whoever gives a value for one that cannot be changed is refused before.
            places.push(column.as_ref().map_or(0, |place| *place));
        }
        (places, fixed)
    }
}

/// The table under a view, with the names of the view's columns; others cannot be named.
fn named(view: &View, base: &BaseTable) -> Table {
    let mut named = Table::clone(&base.table);
    named.name.clone_from(&view.name);
    named.schema_name.clone_from(&view.schema_name);
    for (place, column) in named.columns.iter_mut().enumerate() {
        column.name = hidden_column(place);
    }
    for (name, column) in &base.columns {
        if let Ok(place) = column
            && named.columns[*place].name == hidden_column(*place)
        {
            named.columns[*place].name.clone_from(name);
        }
    }
    named
}

/// 55000 for a view that stands for no table.
fn cannot_change(change: Change, refusal: &NoBaseTable) -> SqlError {
    let (what, doing, trigger) = match change {
        Change::Insert => ("insert into", "inserting into", "INSERT"),
        Change::Update => ("update", "updating", "UPDATE"),
        Change::Delete => ("delete from", "deleting from", "DELETE"),
    };
    SqlError::new(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("cannot {what} view \"{}\"", refusal.view),
    )
    .with_detail(refusal.detail)
    .with_hint(format!(
        "To enable {doing} the view, provide an INSTEAD OF {trigger} trigger or an unconditional ON {trigger} \
         DO INSTEAD rule."
    ))
}

/// 0A000 for a column of a view that is none of a table.
fn cannot_change_column(change: Change, fixed: &FixedColumn) -> SqlError {
    let what = if change == Change::Insert { "insert into" } else { "update" };
    let message = format!("cannot {what} column \"{}\" of view \"{}\"", fixed.column, fixed.view);
    SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message).with_detail(fixed.detail)
}

/// Which columns of a view can be changed; none of one that stands for no table.
pub(crate) fn updatable_columns(view: &Arc<View>, catalog: &crate::catalog::Catalog) -> Vec<bool> {
    let columns = base_table(view, catalog, false).map(|base| base.columns).unwrap_or_default();
    columns.iter().map(|(_, column): &(String, ViewColumn)| column.is_ok()).collect()
}

/// What rows must meet by the conditions of views: those that a statement puts into one WITH CHECK
/// OPTION, or those that one shows.
#[derive(Debug, Default)]
pub(crate) struct ViewChecks(Vec<(String, Expr)>);

impl ViewChecks {
    /// Makes the conditions ready to be evaluated.
    pub(crate) fn plan(&mut self, binder: &Binder<'_>, pieces: &mut Pieces) -> Result<()> {
        for (_, condition) in &mut self.0 {
            pieces.expressions(binder, std::slice::from_mut(condition))?;
        }
        Ok(())
    }

    /// Tests a row of the table, which met `checks`. 44000.
    pub(crate) fn test(
        &self,
        work: &Work<'_>,
        run: &Run,
        checks: &Checks,
        table: &Table,
        row: &[Datum],
    ) -> Result<()> {
        for (view, condition) in &self.0 {
            if !run.holds(work, condition, row)? {
                let error = super::constraint::view_violation(table, view, row, work.format);
                return Err(work.tell_row(error, table, row, checks.given()));
            }
        }
        Ok(())
    }

    /// Tests a row of the table that a new one is in conflict with. 55000 if it is not shown: who
    /// may change what the view shows may not change others by ON CONFLICT.
    pub(crate) fn test_shown(&self, work: &Work<'_>, run: &Run, row: &[Datum]) -> Result<()> {
        for (view, condition) in &self.0 {
            if !run.holds(work, condition, row)? {
                return Err(SqlError::new(
                    sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                    format!("conflicting row is not visible through view \"{view}\""),
                ));
            }
        }
        Ok(())
    }
}
