//! The table that an INSERT, UPDATE or DELETE changes, as its expressions see it.
//!
//! In the frame of such a statement the target's columns come first, each at its place in the
//! table, then its row key, then what other relations add:
//!
//! ```text
//! UPDATE t SET a = t.a + u.x FROM u WHERE t.id = u.id
//!   frame: [0] t.id  [1] t.a  [2] row key of t  [3] u.id  [4] u.x
//! ```
//!
//! So a stored row decodes straight into the frame, and a row that was re-read after a wait
//! replaces the first slots.

use std::sync::Arc;

use sqlparser::ast;

use super::source::{Pieces, Places, share};
use crate::bind::{Binder, Body, Query, Select};
use crate::catalog::{Index, Relation, Table};
use crate::ddl::names::Qualified;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, Typed};
use crate::function::operator::Comparison;
use crate::plan::Plan;
use crate::session::OutputColumn;
use crate::types::{Datum, Type, TypeId};

/// Opens a query level with one table: its columns are the first slots, in order, and have the
/// table's name.
pub(crate) fn open_table(binder: &mut Binder<'_>, table: &Arc<Table>) -> Result<()> {
    open_table_as(binder, table, None)
}

/// The same under an alias.
pub(crate) fn open_table_as(
    binder: &mut Binder<'_>,
    table: &Arc<Table>,
    alias: Option<&ast::TableAlias>,
) -> Result<()> {
    binder.push_level();
    let (tree, names) = binder.stored_table(table, alias, false)?;
    let level = binder.level()?;
    level.select.from.push(tree);
    level.namespace.extend(names)?;
    for place in 0..table.columns.len() {
        level.slot(0, place);
    }
    Ok(())
}

/// The table of this name that a statement is to change. 42P01, 42809.
pub(crate) fn find_table(binder: &mut Binder<'_>, name: &ast::ObjectName) -> Result<Arc<Table>> {
    match find_changed(binder, name)? {
        Relation::Table(table) => Ok(table),
        other => Err(SqlError::unsupported(format_args!("changing view \"{}\"", other.name()))),
    }
}

/// The table or view of this name that a statement is to change. 42P01, 42809.
pub(super) fn find_changed(binder: &mut Binder<'_>, name: &ast::ObjectName) -> Result<Relation> {
    let qualified = Qualified::from_object_name(name)?;
    let own = qualified.check_database(binder.context.catalog);
    own.map_err(|error| binder.at(error, crate::bind::name_span(name)))?;
    if let Some(schema) = &qualified.schema {
        binder.need_schema(schema);
    }
    let span = crate::bind::name_span(name);
    match binder.find_relation(qualified.schema.as_deref(), &qualified.name) {
        Some(Relation::Table(table)) => {
            binder.check_own(table)?;
            Ok(Relation::Table(table.clone()))
        }
        Some(Relation::View(view)) => Ok(Relation::View(view.clone())),
        Some(Relation::Sequence(sequence)) => Err(SqlError::new(
            sqlstate::WRONG_OBJECT_TYPE,
            format!("cannot change sequence \"{}\"", sequence.name),
        )),
        Some(Relation::Index(table, oid)) => {
            let name = table.index(*oid).map_or("", |index| &index.name);
            Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, format!("\"{name}\" is an index")))
        }
        None => {
            let schema =
                qualified.schema.as_deref().filter(|schema| binder.context.catalog.schema(schema).is_none());
            if schema.is_none_or(|schema| schema == "pg_catalog")
                && (qualified.name.starts_with("pg_") || qualified.schema.as_deref() == Some("pg_catalog"))
            {
                return Err(SqlError::new(
                    sqlstate::INSUFFICIENT_PRIVILEGE,
                    format!("permission denied: \"{}\" is a system catalog", qualified.name),
                ));
            }
            let message = format!("relation \"{}\" does not exist", qualified.display());
            Err(binder.at(SqlError::new(sqlstate::UNDEFINED_TABLE, message), span))
        }
    }
}

/// The rows that an UPDATE or DELETE changes.
#[derive(Debug)]
pub(crate) struct Target {
    /// The table.
    pub(crate) table: Arc<Table>,
    /// How they are found.
    pub(crate) access: Access,
    /// Must hold for a row: asked again of a row that changed while its lock was waited for.
    pub(crate) filter: Expr,
    /// Other relations take part, so that a row may be found more than once.
    pub(crate) is_joined: bool,
}

/// How the rows to change are found.
#[derive(Debug)]
pub(crate) enum Access {
    /// By the whole primary key: one expression for each of its columns, which reads no slots.
    Point(Vec<Expr>),
    /// By a query whose output is the frame.
    Query(Arc<Plan>),
    /// The one at which a cursor of this name stands.
    Current(String),
}

impl Target {
    /// Closes the open level, whose first relation is the table: the query whose output is the
    /// frame, and the condition. Nothing may be bound in the level afterwards.
    pub(crate) fn query(binder: &mut Binder<'_>) -> Result<(Query, Expr)> {
        let mut level = binder.pop_level()?;
        let filter = Expr::all(level.select.filter.clone());
        let slots = &level.select.slots;
        let targets =
            slots.iter().enumerate().map(|(slot, part)| Typed::new(Expr::Slot(slot), part.ty)).collect();
        let columns = slots.iter().map(|part| OutputColumn {
            name: String::new(),
            ty: part.ty,
            table_oid: 0,
            attribute_number: 0,
        });
        let columns = columns.collect();
        level.select.targets = targets;
        level.select.visible = slots.len();
        Ok((Query::of(Body::Select(Box::new(level.select)), columns), filter))
    }

    /// Decides how the rows are found, and plans that.
    pub(crate) fn plan(
        binder: &Binder<'_>,
        pieces: &mut Pieces,
        table: Arc<Table>,
        query: Query,
        mut filter: Expr,
    ) -> Result<PlannedTarget> {
        let is_joined = matches!(&query.body, Body::Select(select) if select.relations.len() > 1);
        let key = match &query.body {
            // Expressions beside the rows read WITH queries through the query's cursor.
            Body::Select(select) if query.ctes.is_empty() => point_key(select, &table),
            _ => None,
        };
        let access = match key {
            Some(key) => Ok(key),
            None => Err(pieces.query_of_taken(binder, query)?),
        };
        pieces.expressions(binder, std::slice::from_mut(&mut filter))?;
        Ok(PlannedTarget { table, access, filter, is_joined, cursor: None })
    }

    /// Whether the row is found by its whole primary key.
    pub(crate) fn is_point(&self) -> bool {
        matches!(self.access, Access::Point(_))
    }

    /// Whether a row of it may get another key meanwhile, and still be one that is meant: rows are
    /// where their primary key is.
    pub(crate) fn may_move(&self) -> bool {
        matches!(self.access, Access::Query(_)) && self.table.primary_key().is_some()
    }

    /// Slot of the row key.
    pub(crate) fn key_slot(&self) -> usize {
        self.table.columns.len()
    }
}

/// A target whose statement is not wholly planned yet.
pub(crate) struct PlannedTarget {
    table: Arc<Table>,
    access: Result<Vec<Expr>, Plan>,
    filter: Expr,
    is_joined: bool,
    cursor: Option<String>,
}

impl PlannedTarget {
    /// The row is that of a cursor, if one is given.
    pub(crate) fn at_cursor(self, cursor: Option<&str>) -> PlannedTarget {
        PlannedTarget { cursor: cursor.map(str::to_owned), ..self }
    }

    /// The target, once the statement's places are known.
    pub(crate) fn finish(self, places: &Places) -> Target {
        let access = match (self.cursor, self.access) {
            (Some(cursor), _) => Access::Current(cursor),
            (None, Ok(key)) => Access::Point(key),
            (None, Err(plan)) => Access::Query(share(plan, places)),
        };
        Target { table: self.table, access, filter: self.filter, is_joined: self.is_joined }
    }
}

/// Opens the level of an UPDATE or DELETE: the target, then its row key.
pub(crate) fn open_target(
    binder: &mut Binder<'_>,
    table: &Arc<Table>,
    alias: Option<&ast::TableAlias>,
) -> Result<()> {
    open_table_as(binder, table, alias)?;
    let slot = binder.level()?.key_slot(0);
    debug_assert_eq!(slot, table.columns.len());
    Ok(())
}

/// Expressions for all columns of the primary key, if the conditions pin each of them to a value
/// that needs no row.
fn point_key(select: &Select, table: &Table) -> Option<Vec<Expr>> {
    if select.relations.len() != 1 {
        return None;
    }
    let key: &Index = table.primary_key()?;
    key.key_columns().map(|column| pinned(&select.filter, column)).collect()
}

/// The value that a conjunct `column = value` pins a column to.
fn pinned(filter: &[Expr], place: usize) -> Option<Expr> {
    filter.iter().find_map(|conjunct| {
        let Expr::Compare(Comparison::Equal, sides) = conjunct else { return None };
        let value = match sides.as_ref() {
            [Expr::Slot(slot), value] | [value, Expr::Slot(slot)] if *slot == place => value,
            _ => return None,
        };
        let reads_rows = value.any(&mut |expr| {
            matches!(expr, Expr::Slot(_) | Expr::Outer { .. } | Expr::Subquery(_) | Expr::Aggregate { .. })
        });
        (!reads_rows && !value.is_volatile()).then(|| value.clone())
    })
}

/// A value as a key of a column of this type holds it; integers of all widths compare with each
/// other, and so do floats, but their keys differ. `None` if no value of the type is equal to it.
pub(crate) fn as_key(value: Datum, ty: Type) -> Option<Datum> {
    match ty.id {
        _ if value.is_null() => None,
        TypeId::Int2 => value.as_i64().and_then(|value| i16::try_from(value).ok()).map(Datum::Int2),
        TypeId::Int4 => value.as_i64().and_then(|value| i32::try_from(value).ok()).map(Datum::Int4),
        TypeId::Int8 => value.as_i64().map(Datum::Int8),
        TypeId::Float4 | TypeId::Float8 => float_as_key(value, ty.id),
        _ => Some(value),
    }
}

fn float_as_key(value: Datum, ty: TypeId) -> Option<Datum> {
    let converted = match (ty, &value) {
        (TypeId::Float4, Datum::Float8(wide)) => Some(Datum::Float4(*wide as f32)),
        (TypeId::Float8, Datum::Float4(narrow)) => Some(Datum::Float8(f64::from(*narrow))),
        _ => None,
    };
    match converted {
        // Most values of the wider type are none of the other.
        Some(converted) => (converted == value).then_some(converted),
        None => Some(value),
    }
}
