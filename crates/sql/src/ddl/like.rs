//! CREATE TABLE ... (LIKE t): columns, and what else is asked for, taken over from another table.
//!
//! Columns, their defaults and identities, CHECK constraints and keys become requests as if they
//! had been written down, in the place of LIKE. Indexes without a constraint are made once the
//! table is there, and comments come last. Foreign keys are never taken over, as in PostgreSQL.

use std::sync::Arc;

use cognate_engine::TreeMode;

use super::names::{Qualified, make_up, unique_name};
use super::request::{ColumnRequest, ConstraintRequest};
use super::resolve::undefined_table;
use crate::catalog::{Column, Index, IndexKey, Object, Privileges, Relation, Table, put_hint};
use crate::error::{Result, SqlError, sqlstate};
use crate::parse::{Like, SequenceOptions, parse_expression};
use crate::pg_catalog::table as system_table;
use crate::session::work::Work;
use crate::types::Type;

impl Work<'_> {
    /// Adds what LIKE stands for to a new table's columns and constraints. The table it was taken
    /// from, if there is more to take from it.
    pub(crate) async fn copy_columns(
        &mut self,
        like: Like,
        columns: &mut Vec<ColumnRequest>,
        constraints: &mut Vec<ConstraintRequest>,
    ) -> Result<Option<(Like, Arc<Table>)>> {
        let name = match like.table.as_slice() {
            [name] => Qualified::plain(name),
            [schema, name] => Qualified::within(schema, name),
            [database, schema, name] => {
                Qualified { database: Some(database.clone()), ..Qualified::within(schema, name) }
            }
            parts => {
                let name = parts.join(".");
                return Err(SqlError::syntax(format!(
                    "improper relation name (too many dotted names): {name}"
                )));
            }
        };
        self.require_usage(&name)?;
        match self.find(&name) {
            Some(Relation::Table(_)) => {}
            Some(relation @ Relation::View(_)) => {
                self.require_on(&relation, Privileges::SELECT)?;
                let Relation::View(view) = relation else { return Ok(None) };
                columns.extend(view.columns.iter().map(plain_column));
                return Ok(None);
            }
            Some(Relation::Sequence(_)) => return Err(not_like(&name, "sequences")),
            Some(Relation::Index(..)) => return Err(not_like(&name, "indexes")),
            None => {
                columns.extend(system_columns(&name)?);
                return Ok(None);
            }
        }
        if let Some(relation) = self.find(&name) {
            self.require_on(&relation, Privileges::SELECT)?;
        }
        let table = self.locked_table(&name, TreeMode::Read).await?;
        for column in table.columns.iter().filter(|column| !column.dropped) {
            columns.push(self.copied_column(&like, column)?);
        }
        if like.constraints {
            for check in &table.checks {
                constraints.push(ConstraintRequest::Check {
                    name: Some(check.name.clone()),
                    expression: Box::new(parse_expression(&check.expression)?),
                    no_inherit: check.no_inherit,
                });
            }
        }
        if like.indexes {
            for index in table.indexes.iter().filter(|index| index.constraint.is_some()) {
                let name = |place: usize| table.columns[place].name.clone();
                constraints.push(ConstraintRequest::Key {
                    name: None,
                    columns: index.key_columns().map(name).collect(),
                    included: index.included.iter().copied().map(name).collect(),
                    options: index.options.clone(),
                    primary: index.primary,
                    nulls_not_distinct: index.nulls_not_distinct,
                    deferrable: index.deferrable,
                });
            }
        }
        Ok(Some((like, table)))
    }

    fn copied_column(&self, like: &Like, column: &Column) -> Result<ColumnRequest> {
        let mut copy = plain_column(column);
        if let Some(generated) = column.generated.as_ref().filter(|_| like.generated) {
            copy.generated = Some(parse_expression(&generated.text)?);
        }
        match (&column.identity, column.sequence, &column.default) {
            (Some(identity), Some(sequence), _) if like.identity => {
                copy.identity = Some((*identity, self.sequence_options(sequence)?));
            }
            // The default of an identity column is its sequence, which is no default in SQL.
            (Some(_), ..) => {}
            (_, _, Some(default)) if like.defaults => copy.default = Some(parse_expression(default)?),
            _ => {}
        }
        Ok(copy)
    }

    /// The options that make another sequence like this one.
    fn sequence_options(&self, oid: u32) -> Result<SequenceOptions> {
        match self.catalog.relation_by_oid(oid) {
            Some(Relation::Sequence(sequence)) => Ok(SequenceOptions {
                increment: Some(sequence.increment),
                minimum: Some(Some(sequence.minimum)),
                maximum: Some(Some(sequence.maximum)),
                start: Some(sequence.start),
                cache: Some(sequence.cache),
                cycle: Some(sequence.cycle),
                ..SequenceOptions::default()
            }),
            _ => Err(SqlError::internal("an identity column has no sequence")),
        }
    }

    /// Gives a new table the indexes without constraints, the comments, and how columns are to be
    /// stored, of one that it is like.
    pub(crate) async fn copy_indexes(&mut self, name: &Qualified, like: &Like, source: &Table) -> Result<()> {
        let mut table = Table::clone(&*self.table(name)?);
        if like.indexes {
            for index in source.indexes.iter().filter(|index| index.constraint.is_none()) {
                self.copy_index(&mut table, source, index).await?;
            }
        }
        if like.storage {
            for (place, storage) in &source.hints.storage {
                let column = source.columns.get(*place).filter(|column| !column.dropped);
                if let Some(copy) = column.and_then(|column| table.column_place(&column.name)) {
                    put_hint(&mut table.hints.storage, copy, Some(*storage));
                }
            }
        }
        if like.comments {
            for column in source.columns.iter().filter(|column| column.comment.is_some()) {
                if let Some(place) = table.column_place(&column.name) {
                    table.columns[place].comment.clone_from(&column.comment);
                }
            }
            for check in source.checks.iter().filter(|_| like.constraints) {
                if let Some(copy) = table.checks.iter_mut().find(|copy| copy.name == check.name) {
                    copy.comment.clone_from(&check.comment);
                }
            }
            for index in source.indexes.iter().filter(|index| like.indexes && index.comment.is_some()) {
                let alike = table.indexes.iter().position(|copy| {
                    copy.unique == index.unique
                        && copy.constraint.is_some() == index.constraint.is_some()
                        && column_names(&table, copy) == column_names(source, index)
                        && copy.predicate.as_ref().map(|one| &one.text)
                            == index.predicate.as_ref().map(|one| &one.text)
                });
                if let Some(place) = alike {
                    table.indexes[place].comment.clone_from(&index.comment);
                }
            }
        }
        self.change(Object::Table(table.into()))
    }

    async fn copy_index(&mut self, table: &mut Table, source: &Table, index: &Index) -> Result<()> {
        let schema = self.schema_of(table.schema)?;
        let names = column_names(source, index);
        let name = make_up(&table.name, &names.join("_"), "idx", |name| {
            self.is_taken(&schema.name, name) || table.indexes.iter().any(|other| other.name == name)
        });
        self.claim_name(&schema, &name).await?;
        for computed in index.computed() {
            self.hold_named(&parse_expression(&computed.text)?).await?;
        }
        let mut copy = index.clone();
        move_to(&mut copy, source, table)?;
        let oid = self.allocate_oid()?;
        let tree = self.allocate_tree();
        table.indexes.push(Index { oid, name, tree, comment: None, constraint_comment: None, ..copy });
        Ok(())
    }
}

/// Makes an index of one table one of another, which has the columns at other places.
fn move_to(index: &mut Index, source: &Table, table: &Table) -> Result<()> {
    let moved = |place: usize| {
        let gone = || SqlError::internal("a column that was taken over is gone");
        table.column_place(&source.columns[place].name).ok_or_else(gone)
    };
    let first = table.free_place();
    let mut places = Vec::new();
    for (at, computed) in index.computed_mut().enumerate() {
        places.push((computed.place, first + at));
        computed.place = first + at;
        computed.columns = computed.columns.iter().map(|&place| moved(place)).collect::<Result<_>>()?;
    }
    for column in &mut index.columns {
        column.key = match column.key {
            IndexKey::Column(place) => IndexKey::Column(moved(place)?),
            IndexKey::Expression(old) => {
                let known = places.iter().find(|(place, _)| *place == old);
                IndexKey::Expression(known.map_or(old, |(_, new)| *new))
            }
        };
    }
    index.included = index.included.iter().map(|&place| moved(place)).collect::<Result<_>>()?;
    Ok(())
}

/// The columns of a relation of the system. 42P01 if there is none of this name.
fn system_columns(name: &Qualified) -> Result<Vec<ColumnRequest>> {
    let schema = name.schema.as_deref().unwrap_or("pg_catalog");
    let system = system_table(schema, &name.name).ok_or_else(|| undefined_table(name))?;
    Ok(system.columns.iter().map(|(name, ty)| bare_column(name, *ty)).collect())
}

/// A column with its type and NOT NULL only.
fn plain_column(column: &Column) -> ColumnRequest {
    let not_null = column.not_null.then_some(true);
    ColumnRequest { not_null, collation: column.collation, ..bare_column(&column.name, column.ty) }
}

fn bare_column(name: &str, ty: Type) -> ColumnRequest {
    ColumnRequest {
        name: name.to_owned(),
        ty,
        collation: None,
        not_null: None,
        default: None,
        serial: false,
        identity: None,
        generated: None,
    }
}

/// Names of what is shown with an index, as the columns of an index without a name are called.
fn column_names(table: &Table, index: &Index) -> Vec<String> {
    let name = |key| match key {
        IndexKey::Column(place) => table.columns[place].name.as_str(),
        IndexKey::Expression(place) => index.expression(place).map_or("", |one| &one.name),
    };
    let mut names = vec![];
    index.shown().for_each(|key| names.push(unique_name(&names, name(key))));
    names
}

fn not_like(name: &Qualified, what: &str) -> SqlError {
    let message = format!("relation \"{}\" is invalid in LIKE clause", name.name);
    SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message)
        .with_detail(format!("This operation is not supported for {what}."))
}
