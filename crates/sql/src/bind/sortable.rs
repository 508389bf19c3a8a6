//! What cannot be sorted or grouped: values of types without an order (json), arrays of them, and
//! rows with such fields.
//!
//! A row of a table is of a type that has the table's name. What other rows are made of PostgreSQL
//! looks at where it sorts them; here the query tells.

use super::{Binder, Body, Query, Select, SlotPart, Source};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, Typed};
use crate::function::operator::has_no_order;
use crate::types::{Shape, Type, TypeId};

impl Binder<'_> {
    /// 42883 if values of the type cannot be sorted or grouped (json).
    pub(crate) fn check_sortable(&self, ty: Type, what: &str) -> Result<()> {
        if has_no_order(ty) { Err(no_order(what, ty.id.sql_name())) } else { Ok(()) }
    }

    /// The same of a value, which may be a row.
    pub(super) fn check_sortable_value(&self, typed: &Typed, what: &str) -> Result<()> {
        self.check_sortable(typed.ty, what)?;
        match self.levels.last() {
            Some(level) if typed.ty.id == TypeId::Record => check_record(&level.select, &typed.expr, what),
            _ => Ok(()),
        }
    }
}

/// 42883 if the values of a query's column are rows that cannot be sorted or grouped.
pub(super) fn check_sortable_column(query: &Query, column: usize, what: &str) -> Result<()> {
    match &query.body {
        Body::Select(select) => match select.targets.get(column) {
            Some(target) if target.ty.id == TypeId::Record => check_record(select, &target.expr, what),
            _ => Ok(()),
        },
        Body::SetOperation(operation) => {
            check_sortable_column(&operation.left, column, what)?;
            check_sortable_column(&operation.right, column, what)
        }
        Body::Values(_) => Ok(()),
    }
}

fn no_order(what: &str, ty: &str) -> SqlError {
    let operator = if what == "equality" { "an equality" } else { "an ordering" };
    let problem = format!("could not identify {operator} operator for type {ty}");
    let error = SqlError::new(sqlstate::UNDEFINED_FUNCTION, problem);
    match what {
        "ordering" => error.with_hint("Use an explicit ordering operator or modify the query."),
        _ => error,
    }
}

fn check_record(select: &Select, record: &Expr, what: &str) -> Result<()> {
    match record {
        Expr::Row(items, shape) => {
            let row = table_of(select, items, shape);
            for (item, (_, ty)) in items.iter().zip(shape.iter()) {
                let refused = has_no_order(*ty)
                    || (ty.id == TypeId::Record && check_record(select, item, what).is_err());
                match row {
                    Some(table) if refused => return Err(no_order(what, table)),
                    None if has_no_order(*ty) => {
                        let name = ty.id.sql_name();
                        let problem = format!("could not identify a comparison function for type {name}");
                        return Err(SqlError::new(sqlstate::UNDEFINED_FUNCTION, problem));
                    }
                    None if refused => return check_record(select, item, what),
                    _ => {}
                }
            }
            Ok(())
        }
        // A row that an outer join may not have.
        Expr::Case(case) => {
            let mut results = case.branches.iter().map(|(_, result)| result);
            results.try_for_each(|result| check_record(select, result, what))?;
            check_record(select, &case.otherwise, what)
        }
        Expr::Slot(place) => match select.slots.get(*place).map(|slot| (slot.relation, slot.part)) {
            Some((relation, SlotPart::Column(column))) => {
                match select.relations.get(relation).map(|relation| &relation.source) {
                    Some(Source::Query(query)) => check_sortable_column(query, column, what),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// The name of the table whose row it is, with all its columns.
fn table_of<'s>(select: &'s Select, items: &[Expr], shape: &Shape) -> Option<&'s str> {
    let relation_of = |item: &Expr| match item {
        Expr::Slot(place) => select.slots.get(*place).map(|slot| slot.relation),
        _ => None,
    };
    let relation = relation_of(items.first()?)?;
    let Source::Table(table) = &select.relations.get(relation)?.source else { return None };
    let columns = table.columns.iter().filter(|column| !column.dropped);
    let is_row = items.iter().all(|item| relation_of(item) == Some(relation))
        && columns.map(|column| column.name.as_str()).eq(shape.iter().map(|(name, _)| name.as_str()));
    is_row.then_some(table.name.as_str())
}
