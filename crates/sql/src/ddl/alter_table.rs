//! ALTER TABLE: each operation in turn (`turns`), under a lock on the table.
//!
//! The lock is the strongest that one of the operations needs (`lock_of`):
//!
//! ```text
//! SET (storage parameters)    ShareUpdateExclusive   readers and writers go on
//! ADD FOREIGN KEY             ShareRowExclusive      readers go on; the same on the other table
//! VALIDATE CONSTRAINT         ShareRowExclusive      readers go on; Share on the other table
//! ENABLE, DISABLE TRIGGER     ShareRowExclusive      readers go on
//! all else                    Exclusive
//! ```
//!
//! The levels are PostgreSQL's, but for VALIDATE CONSTRAINT, which lets writers go on there. Why
//! nobody is misled who goes on:
//!
//! - Each of these modes keeps out itself and all stronger ones, so nobody else stores the table's
//!   definition meanwhile. It is published with the commit: who waited for the locks looks at the
//!   catalog again, which he gets when that is done.
//! - A plan is of one state of the catalog, so that a reader's next statement is planned anew. One
//!   that runs has the definition of before, and so has a snapshot of before: columns and trees are
//!   the same, and no plan of a query asks for foreign keys, whether constraints are valid, or
//!   storage parameters. So a reader comes as well before as behind the change.
//! - Who writes depends on foreign keys, and has `Write` on the table, also where a foreign key's
//!   action writes to it for who had only read it (`oltp::foreign_key`). So with ShareRowExclusive
//!   no row comes, goes or changes between the look at all rows and the commit. A row of the other
//!   table may be locked by somebody; before he deletes it he has to ask for `Write`.
//! - At SERIALIZABLE the look at all rows is noted as one at the newest commits under a lock that
//!   keeps them so (`LatestScan`), and this is true. It is why VALIDATE CONSTRAINT does not take
//!   ShareUpdateExclusive: beside writers the note would be wrong, and rows of both tables would
//!   not be looked at as of one moment. Definitions are noted as well (`Session::note_tables`): a
//!   reader that has noted one of before and one of behind the change fails with 40001, which
//!   needs two changes in a short time.
//! - At another node locks keep nobody waiting, but they come with the transaction, all eight
//!   modes: of a writer there and the change, who is ordered later is refused.

use std::sync::Arc;

use cognate_engine::TreeMode;
use sqlparser::ast;

use super::alter_type::TypeChange;
use super::constraint::{Rows, duplicate_constraint};
use super::names::Qualified;
use super::request::{self, ConstraintRequest};
use super::resolve::{undefined_column, undefined_table};
use super::turns::in_turn;
use crate::catalog::{Column, Index, Object, Oid, Relation, Sequence, Table, View};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold;
use crate::parse::identity_change;
use crate::session::work::Work;
use crate::types::Datum;

impl Work<'_> {
    /// ALTER TABLE.
    pub(crate) async fn alter_table(&mut self, statement: &ast::AlterTable) -> Result<()> {
        if statement.on_cluster.is_some() || statement.table_type.is_some() || statement.location.is_some() {
            return Err(SqlError::unsupported("this form of ALTER TABLE"));
        }
        refuse_renames_among(&statement.operations)?;
        let name = Qualified::from_object_name(&statement.name)?;
        self.refresh_catalog();
        self.require_usage(&name)?;
        let locked = match self.find(&name) {
            Some(relation @ Relation::Table(_)) => {
                self.require_relation_owner(&relation)?;
                self.locked_table(&name, lock_of(&statement.operations)).await
            }
            Some(other) => return self.alter_other(&name, &other, &statement.operations).await,
            None => Err(undefined_table(&name)),
        };
        let oid = match locked {
            Ok(table) => {
                // The name may mean another one by now.
                self.require_relation_owner(&Relation::Table(table.clone()))?;
                table.oid
            }
            Err(error) if statement.if_exists && error.sqlstate == sqlstate::UNDEFINED_TABLE => {
                let message = format!("relation \"{}\" does not exist, skipping", name.display());
                self.notice(SqlError::notice(message));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if !statement.operations.iter().all(is_rename) {
            self.require_unused(oid, "ALTER TABLE")?;
        }
        let ordered = in_turn(&statement.operations);
        let mut left = ordered.as_slice();
        while let [operation, others @ ..] = left {
            let types: Vec<TypeChange<'_>> = left.iter().map_while(|one| TypeChange::of(one)).collect();
            if types.is_empty() {
                self.alter(oid, operation).await?;
                left = others;
            } else {
                self.alter_types(oid, &types).await?;
                left = &left[types.len()..];
            }
        }
        Ok(())
    }

    /// A copy of the table to change.
    pub(crate) fn table_copy(&self, oid: Oid) -> Result<Table> {
        let table = self.catalog.table_by_oid(oid);
        table.map(|table| Table::clone(table)).ok_or_else(|| SqlError::internal("the altered table is gone"))
    }

    async fn alter(&mut self, oid: Oid, operation: &ast::AlterTableOperation) -> Result<()> {
        use ast::{AlterTableOperation as Operation, TableConstraint as Constraint};
        match operation {
            Operation::AddColumn { if_not_exists, column_def, column_position: None, .. } => {
                self.alter_add_column(oid, column_def, *if_not_exists).await
            }
            Operation::DropColumn { column_names, if_exists, drop_behavior, .. } => {
                let cascade = matches!(drop_behavior, Some(ast::DropBehavior::Cascade));
                for name in column_names {
                    self.alter_drop_column(oid, &fold(name), *if_exists, cascade).await?;
                }
                Ok(())
            }
            Operation::RenameColumn { old_column_name, new_column_name } => {
                self.rename_column(oid, &fold(old_column_name), &fold(new_column_name)).await
            }
            Operation::RenameTable { table_name } => {
                let relation = Relation::Table(Arc::new(self.table_copy(oid)?));
                self.rename_relation(&relation, rename_target(table_name)?).await
            }
            Operation::RenameConstraint { old_name, new_name } => {
                self.rename_constraint(oid, &fold(old_name), &fold(new_name)).await
            }
            Operation::AddConstraint { constraint: Constraint::UniqueUsingIndex(given), .. } => {
                self.add_key_by_index(oid, given, false).await
            }
            Operation::AddConstraint { constraint: Constraint::PrimaryKeyUsingIndex(given), .. } => {
                self.add_key_by_index(oid, given, true).await
            }
            Operation::AddConstraint { constraint, not_valid } => {
                let request = request::constraint(constraint)?;
                let rows = if *not_valid { Rows::NotLookedAt } else { Rows::MustMeetIt };
                let mut table = self.table_copy(oid)?;
                self.add_constraint(&mut table, request, rows).await?;
                self.change(Object::Table(table.into()))
            }
            Operation::DropConstraint { if_exists, name, drop_behavior } => {
                let cascade = matches!(drop_behavior, Some(ast::DropBehavior::Cascade));
                self.drop_constraint(oid, &fold(name), *if_exists, cascade).await
            }
            Operation::AlterColumn { column_name, op } => match identity_change(op) {
                Some(change) => self.alter_identity(oid, &fold(column_name), change?).await,
                None => self.alter_column(oid, &fold(column_name), op).await,
            },
            Operation::SetOptionsParens { options } => {
                let options = ast::CreateTableOptions::With(options.clone());
                let given = super::create_table::storage_options(&options)?;
                let mut table = self.table_copy(oid)?;
                table.options = super::create_table::merged_options(&table.options, given);
                self.change(Object::Table(table.into()))
            }
            Operation::ValidateConstraint { name } => self.validate_constraint(oid, &fold(name)).await,
            Operation::DisableTrigger { name } => self.alter_triggers(oid, name, false),
            Operation::EnableTrigger { name } => self.alter_triggers(oid, name, true),
            other => Err(SqlError::unsupported(format_args!("ALTER TABLE ... {other}"))),
        }
    }

    async fn alter_add_column(
        &mut self,
        oid: Oid,
        definition: &ast::ColumnDef,
        if_not_exists: bool,
    ) -> Result<()> {
        let mut table = self.table_copy(oid)?;
        self.require_usage_for_type(&definition.data_type)?;
        let (request, constraints) = request::column(&table.name, definition, self.format)?;
        self.hold_types(&[request.ty]).await?;
        super::create_table::check_column_name(&request.name)?;
        if table.column_place(&request.name).is_some() {
            let error = duplicate_column(&request.name, &table.name);
            if !if_not_exists {
                return Err(error);
            }
            let notice = SqlError::notice(format!("{}, skipping", error.message));
            self.notice(notice.with_sqlstate(sqlstate::DUPLICATE_COLUMN));
            return Ok(());
        }
        let before = table.clone();
        let schema = self.schema_of(table.schema)?;
        self.add_column(&schema, &mut table, request).await?;
        let place = table.columns.len() - 1;
        self.fill_new_column(&before, &mut table, place)?;
        let catalog = self.catalog.clone();
        self.change(Object::Table(table.clone().into()))?;
        self.follow_in_views(&catalog, oid).await?;
        let (keys, others): (Vec<_>, Vec<_>) = request::merged_keys(constraints)
            .into_iter()
            .partition(|constraint| matches!(constraint, ConstraintRequest::Key { .. }));
        for constraint in keys.into_iter().chain(others) {
            self.add_constraint(&mut table, constraint, Rows::MustMeetIt).await?;
            self.change(Object::Table(table.clone().into()))?;
        }
        Ok(())
    }

    /// Gives the rows there are a value for a new column: one that is the same for all without
    /// touching them, else by rewriting.
    fn fill_new_column(&mut self, before: &Table, table: &mut Table, place: usize) -> Result<()> {
        if table.columns[place].generated.is_some() {
            return self.fill_generated_column(before, table, place);
        }
        let default = self.bind_default(table, place)?;
        let Some(default) = default else {
            let column = &table.columns[place];
            if (column.not_null || column.ty.domain_named().is_some()) && self.has_rows(before)? {
                self.check_domains(table, &[place], &vec![Datum::Null; table.columns.len()])?;
                if column.not_null {
                    return Err(super::constraint::contains_nulls(table, &column.name));
                }
            }
            return Ok(());
        };
        if !default.is_volatile() {
            let value = self.evaluate(&default, &[])?;
            if table.columns[place].ty.domain_named().is_some() && self.has_rows(before)? {
                let mut row = vec![Datum::Null; table.columns.len()];
                row[place] = value.clone();
                self.check_domains(table, &[place], &row)?;
            }
            if value.is_null() && table.columns[place].not_null && self.has_rows(before)? {
                return Err(super::constraint::contains_nulls(table, &table.columns[place].name));
            }
            table.columns[place].missing = value;
            return Ok(());
        }
        self.replace_trees(table);
        let after = table.clone();
        self.rewrite_table(before, &after, |work, mut row| {
            row.push(work.evaluate(&default, &[])?);
            work.check_domains(&after, &[place], &row)?;
            Ok(row)
        })
    }

    fn fill_generated_column(&mut self, before: &Table, table: &mut Table, place: usize) -> Result<()> {
        self.replace_trees(table);
        let after = table.clone();
        self.rewrite_table(before, &after, |work, mut row| {
            row.push(Datum::Null);
            work.generate(&after, &mut row)?;
            work.check_domains(&after, &[place], &row)?;
            super::constraint::check_rewritten(&after, &row)?;
            Ok(row)
        })
    }

    pub(crate) fn has_rows(&mut self, table: &Table) -> Result<bool> {
        let (from, to) = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        let mut scan =
            crate::oltp::stored::LatestScan::open(self.database.engine(), self.engine, table.tree, from, to)?;
        Ok(scan.next(self.engine)?.is_some())
    }

    pub(super) async fn rename_column(&mut self, oid: Oid, old: &str, new: &str) -> Result<()> {
        let mut table = self.table_copy(oid)?;
        let missing =
            || SqlError::new(sqlstate::UNDEFINED_COLUMN, format!("column \"{old}\" does not exist"));
        let place = table.column_place(old).ok_or_else(missing)?;
        super::create_table::check_column_name(new)?;
        if table.column_place(new).is_some() {
            return Err(duplicate_column(new, &table.name));
        }
        for check in table.checks.iter_mut().filter(|check| check.columns.contains(&place)) {
            check.expression = super::computed::rename_column(&check.expression, old, new)?;
        }
        for computed in table.indexes.iter_mut().flat_map(Index::computed_mut) {
            if computed.columns.contains(&place) {
                computed.text = super::computed::rename_column(&computed.text, old, new)?;
            }
        }
        for computed in table.columns.iter_mut().filter_map(|column| column.generated.as_mut()) {
            if computed.columns.contains(&place) {
                computed.text = super::computed::rename_column(&computed.text, old, new)?;
            }
        }
        table.columns[place].name = new.to_owned();
        let before = self.catalog.clone();
        self.change(Object::Table(table.into()))?;
        self.follow_column(&before, oid, old).await
    }

    /// A view over this table that its present definition no longer fits.
    pub(crate) fn broken_view(&mut self, table: Oid) -> Result<Option<Arc<View>>> {
        let catalog = self.catalog.clone();
        for view in catalog.views().filter(|view| view.depends_on.contains(&table)) {
            if !self.view_fits(view)? {
                return Ok(Some(view.clone()));
            }
        }
        Ok(None)
    }

    /// RENAME TO, for every kind of relation.
    pub(crate) async fn rename_relation(&mut self, relation: &Relation, new: String) -> Result<()> {
        self.require_relation_owner(relation)?;
        let schema = self.schema_of(relation.schema())?;
        self.require_create(&schema)?;
        self.claim_name(&schema, &new).await?;
        let before = self.catalog.clone();
        match relation {
            Relation::Table(table) => {
                let mut table = self.table_copy(table.oid)?;
                table.name = new;
                self.change(Object::Table(table.into()))?;
            }
            Relation::Index(table, oid) => {
                self.lock_table(table.oid, TreeMode::Exclusive).await?;
                let mut table = self.table_copy(table.oid)?;
                let other_has_it = table.has_constraint(&new);
                let Some(index) = table.indexes.iter_mut().find(|index| index.oid == *oid) else {
                    return Err(undefined_table(&Qualified::plain(relation.name())));
                };
                if index.constraint.is_some() && other_has_it {
                    return Err(duplicate_constraint(&new, &table.name));
                }
                index.name = new;
                self.change(Object::Table(table.into()))?;
            }
            Relation::Sequence(sequence) => {
                self.change(Object::Sequence(Sequence { name: new, ..Sequence::clone(sequence) }.into()))?;
            }
            Relation::View(view) => {
                self.change(Object::View(View { name: new, ..View::clone(view) }.into()))?;
            }
        }
        self.follow_in_views(&before, relation.oid()).await?;
        self.refuse_told_in_literals(relation)
    }

    /// 0A000 if a view has the old name of a sequence, or its old schema, in a literal, which does
    /// not follow it.
    pub(super) fn refuse_told_in_literals(&mut self, relation: &Relation) -> Result<()> {
        let Relation::Sequence(sequence) = relation else { return Ok(()) };
        match self.broken_view(sequence.oid)? {
            None => Ok(()),
            Some(view) => Err(SqlError::unsupported(format_args!(
                "a new name or schema of sequence \"{}\", which view \"{}\" has in a literal,",
                sequence.name, view.name
            ))),
        }
    }

    /// Evaluates a bound expression over a row.
    pub(crate) fn evaluate(&self, expression: &crate::expr::Expr, row: &[Datum]) -> Result<Datum> {
        self.read(|read| crate::oltp::run::evaluate(expression, row, read))
    }
}

/// The lock that the operations need together.
fn lock_of(operations: &[ast::AlterTableOperation]) -> TreeMode {
    let modes = operations.iter().map(lock_of_one);
    modes.reduce(|one, other| if one.covers(other) { one } else { other }).unwrap_or(TreeMode::Exclusive)
}

fn lock_of_one(operation: &ast::AlterTableOperation) -> TreeMode {
    use ast::{AlterTableOperation as Operation, TableConstraint as Constraint};
    match operation {
        Operation::SetOptionsParens { .. } => TreeMode::ShareUpdateExclusive,
        Operation::AddConstraint { constraint: Constraint::ForeignKey(_), .. }
        | Operation::ValidateConstraint { .. }
        | Operation::DisableTrigger { .. }
        | Operation::EnableTrigger { .. } => TreeMode::ShareRowExclusive,
        _ => TreeMode::Exclusive,
    }
}

/// What gives something another name and leaves the rows alone.
fn is_rename(operation: &ast::AlterTableOperation) -> bool {
    use ast::AlterTableOperation as Operation;
    matches!(
        operation,
        Operation::RenameColumn { .. } | Operation::RenameTable { .. } | Operation::RenameConstraint { .. }
    )
}

/// 42601 for a new name beside other operations.
fn refuse_renames_among(operations: &[ast::AlterTableOperation]) -> Result<()> {
    if operations.len() < 2 || !operations.iter().any(is_rename) {
        return Ok(());
    }
    let near = if operations.first().is_some_and(is_rename) { "," } else { "RENAME" };
    Err(SqlError::syntax(format!("syntax error at or near \"{near}\"")))
}

pub(super) fn rename_target(name: &ast::RenameTableNameKind) -> Result<String> {
    match name {
        ast::RenameTableNameKind::As(name) | ast::RenameTableNameKind::To(name) => super::names::single(name),
    }
}

pub(crate) fn duplicate_column(column: &str, table: &str) -> SqlError {
    SqlError::new(
        sqlstate::DUPLICATE_COLUMN,
        format!("column \"{column}\" of relation \"{table}\" already exists"),
    )
}

pub(crate) fn undefined_constraint(name: &str, table: &str) -> SqlError {
    SqlError::new(
        sqlstate::UNDEFINED_OBJECT,
        format!("constraint \"{name}\" of relation \"{table}\" does not exist"),
    )
}

/// A visible column's place. 42703.
pub(crate) fn column_place(table: &Table, name: &str) -> Result<usize> {
    table.column_place(name).ok_or_else(|| undefined_column(name, &table.name))
}

/// Makes a column a dropped one: its place stays.
pub(crate) fn bury(column: &mut Column, place: usize) {
    column.name = format!("........pg.dropped.{}........", place + 1);
    column.dropped = true;
    column.not_null = false;
    column.default = None;
    column.identity = None;
    column.generated = None;
    column.sequence = None;
    column.missing = Datum::Null;
    column.comment = None;
}
