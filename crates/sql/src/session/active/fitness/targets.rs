//! What a table adds by itself to the rows that a statement puts into it, changes or deletes:
//! defaults, what rows have to meet, what is computed of them, and what other rows do that refer to
//! them.

use std::collections::HashSet;
use std::sync::Arc;

use cognate_syntax::{has_expression, walk};
use sqlparser::ast;

use super::{Check, IN_ORDER, on_more_stack, rounded, split, unfit};
use crate::catalog::{Column, Index, Oid, ReferentialAction, Relation, Table};
use crate::ddl::expression::default_of;
use crate::error::Result;
use crate::oltp::run::is_default;

impl<'a> Check<'a, '_> {
    /// What an INSERT puts rows into, and what that gives them.
    pub(super) fn inserted(&mut self, insert: &ast::Insert) -> Result<()> {
        let ast::TableObject::TableName(name) = &insert.table else { return Ok(()) };
        let Some(relation) = self.find(name) else { return Ok(()) };
        // A view's columns have names of their own.
        let says = matches!(relation, Relation::Table(_))
            && insert.source.is_some()
            && !insert.columns.is_empty()
            && !has_expression(insert, is_default);
        let is_given = |column: &Column| says && insert.columns.iter().any(|name| is_of(name, column));
        self.target(relation, &is_given)?;
        for table in self.tables_under(relation) {
            for column in table.columns.iter().filter(|column| !column.dropped && !is_given(column)) {
                self.default(column)?;
            }
            self.met(table)?;
            self.computed(table)?;
            if let Some(ast::OnInsert::OnConflict(on)) = &insert.on
                && let ast::OnConflictAction::DoUpdate(update) = &on.action
            {
                let is_table = matches!(relation, Relation::Table(_));
                let changed = changed_places(table, &update.assignments, is_table);
                self.referring(table, Some(&changed), &mut HashSet::new())?;
            }
        }
        Ok(())
    }

    /// What rows of INSERT ... SELECT go into.
    fn target(&self, relation: &Relation, is_given: &dyn Fn(&Column) -> bool) -> Result<()> {
        if self.is_values {
            return Ok(());
        }
        let table = match relation {
            Relation::Table(table) => table,
            Relation::View(view) => {
                return Err(unfit(format_args!("INSERT ... SELECT into view \"{}\"", view.name)));
            }
            _ => return Ok(()),
        };
        if table.primary_key().is_none() {
            return Err(unfit(format_args!(
                "INSERT ... SELECT into table \"{}\", which has no primary key",
                table.name
            )));
        }
        let mut left_out = table.columns.iter().filter(|column| !column.dropped && !is_given(column));
        let default = left_out.find(|column| {
            let text = default_of(self.catalog, column).unwrap_or_default().to_ascii_lowercase();
            IN_ORDER.iter().any(|name| text.contains(&format!("{name}(")))
        });
        default.map_or(Ok(()), |column| {
            Err(unfit(format_args!(
                "INSERT ... SELECT into table \"{}\", whose column \"{}\" has a default that counts or is random",
                table.name, column.name
            )))
        })
    }

    /// What an UPDATE puts into rows by itself.
    pub(super) fn updated(&mut self, update: &ast::Update) -> Result<()> {
        let ast::TableFactor::Table { name, .. } = &update.table.relation else { return Ok(()) };
        let Some(relation) = self.find(name) else { return Ok(()) };
        let is_table = matches!(relation, Relation::Table(_));
        let by_default: Vec<&ast::AssignmentTarget> = update
            .assignments
            .iter()
            .filter(|assignment| has_expression(&assignment.value, is_default))
            .map(|assignment| &assignment.target)
            .collect();
        for table in self.tables_under(relation) {
            let gets_it = |column: &&Column| {
                let mut targets = by_default.iter();
                !column.dropped && targets.any(|target| !is_table || assigns(target, column))
            };
            for column in table.columns.iter().filter(gets_it) {
                self.default(column)?;
            }
            self.met(table)?;
            self.computed(table)?;
            let changed = changed_places(table, &update.assignments, is_table);
            self.referring(table, Some(&changed), &mut HashSet::new())?;
        }
        Ok(())
    }

    /// What goes with the rows of a DELETE.
    pub(super) fn deleted(&mut self, delete: &ast::Delete) -> Result<()> {
        let ast::FromTable::WithFromKeyword(from) = &delete.from else { return Ok(()) };
        let Some(ast::TableFactor::Table { name, .. }) = from.first().map(|from| &from.relation) else {
            return Ok(());
        };
        let Some(relation) = self.find(name) else { return Ok(()) };
        self.tables_under(relation).into_iter().try_for_each(|table| {
            self.indexed(table)?;
            self.referring(table, None, &mut HashSet::new())
        })
    }

    /// What is put into rows that refer to those of a table, whose columns at these places change,
    /// or which go. `seen` has the foreign keys that were looked at, and whether for rows that go.
    fn referring(
        &mut self,
        table: &Table,
        changed: Option<&[usize]>,
        seen: &mut HashSet<(Oid, bool)>,
    ) -> Result<()> {
        let catalog = self.catalog;
        for reference in &table.referenced_by {
            let Some(child) = catalog.table_by_oid(reference.table) else { continue };
            let Some(key) = child.foreign_keys.iter().find(|key| key.oid == reference.constraint) else {
                continue;
            };
            let is_met = |changed| key.referenced_columns.iter().any(|&at| table.changes_with(at, changed));
            if !changed.is_none_or(is_met) || !seen.insert((key.oid, changed.is_none())) {
                continue;
            }
            let (action, set) = match changed {
                None => (key.on_delete, key.set_on_delete()),
                Some(_) => (key.on_update, key.columns.as_slice()),
            };
            match action {
                ReferentialAction::NoAction | ReferentialAction::Restrict => continue,
                ReferentialAction::Cascade if changed.is_none() => {
                    self.indexed(child)?;
                    on_more_stack(|| self.referring(child, None, seen))?;
                    continue;
                }
                ReferentialAction::SetDefault => {
                    for &place in set {
                        self.default(&child.columns[place])?;
                    }
                }
                ReferentialAction::Cascade | ReferentialAction::SetNull => {}
            }
            self.met(child)?;
            self.computed(child)?;
            on_more_stack(|| self.referring(child, Some(set), seen))?;
        }
        Ok(())
    }

    /// The table of this name, or those that a view is over: one of them is changed through it.
    fn tables_under(&self, relation: &'a Relation) -> Vec<&'a Arc<Table>> {
        match relation {
            Relation::Table(table) => vec![table],
            Relation::View(view) => {
                let catalog = self.catalog;
                let under = view.depends_on.iter().filter_map(|oid| catalog.relation_by_oid(*oid));
                under.flat_map(|relation| self.tables_under(relation)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// What a column has by default.
    fn default(&mut self, column: &Column) -> Result<()> {
        match default_of(self.catalog, column) {
            Some(text) => self.stored(text),
            None => Ok(()),
        }
    }

    /// What the rows of a table have to meet.
    fn met(&mut self, table: &Table) -> Result<()> {
        for check in &table.checks {
            self.stored(&check.expression)?;
        }
        for column in table.columns.iter().filter(|column| !column.dropped) {
            self.domain(column.ty.domain_named())?;
        }
        Ok(())
    }

    /// What values of this domain have to meet.
    pub(super) fn domain(&mut self, mut next: Option<Oid>) -> Result<()> {
        let catalog = self.catalog;
        while let Some(domain) = next.and_then(|oid| catalog.domain_by_oid(oid)) {
            if !self.is_new(domain.oid) {
                break;
            }
            for check in &domain.checks {
                self.stored_under(check.search_path.as_slice(), &check.expression)?;
            }
            next = domain.base.domain_named();
        }
        Ok(())
    }

    /// An expression of the catalog whose names are looked up in these schemas.
    fn stored_under(&mut self, path: &'a [String], text: &str) -> Result<()> {
        let outer = std::mem::replace(&mut self.path, path);
        let stored = self.stored(text);
        self.path = outer;
        stored
    }

    /// An expression of the catalog. A sequence that it names is no temporary one.
    fn stored(&mut self, text: &str) -> Result<()> {
        let expression = crate::parse::parse_expression(text)?;
        let had_sequences = std::mem::take(&mut self.has_sequences);
        let step = walk(&expression, self);
        self.has_sequences = had_sequences;
        self.outcome(step)
    }

    /// What is computed of rows that are put into a table or changed there: for generated columns,
    /// whatever is changed, and for entries of indexes. It is immutable and calls no functions of
    /// users, so that nodes differ by how they round it, or not at all.
    fn computed(&self, table: &Table) -> Result<()> {
        let columns = table.columns.iter().filter(|column| !column.dropped);
        let mut generated = columns.filter_map(|column| column.generated.as_deref());
        generated.try_for_each(|computed| self.is_not_rounded(&computed.text))?;
        self.indexed(table)
    }

    /// What is computed of rows that go, too: which entries of indexes go with them.
    fn indexed(&self, table: &Table) -> Result<()> {
        let mut computed = table.indexes.iter().flat_map(Index::computed);
        computed.try_for_each(|computed| self.is_not_rounded(&computed.text))
    }

    fn is_not_rounded(&self, text: &str) -> Result<()> {
        if self.refuses_rounding() { rounded::check(text) } else { Ok(()) }
    }
}

/// Whether a name in a statement is that of a column.
fn is_of(name: &ast::ObjectName, column: &Column) -> bool {
    split(name).is_some_and(|(_, name)| name == column.name)
}

/// The places of a table's columns that are assigned to; all of them through a view, whose columns
/// have names of their own.
fn changed_places(table: &Table, assignments: &[ast::Assignment], is_table: bool) -> Vec<usize> {
    let is_changed = |column: &Column| assignments.iter().any(|one| assigns(&one.target, column));
    let places = 0..table.columns.len();
    places.filter(|&place| !is_table || is_changed(&table.columns[place])).collect()
}

/// Whether a column is assigned to.
fn assigns(target: &ast::AssignmentTarget, column: &Column) -> bool {
    match target {
        ast::AssignmentTarget::ColumnName(name) => is_of(name, column),
        ast::AssignmentTarget::Tuple(all) => all.iter().any(|name| is_of(name, column)),
    }
}
