//! ORDER BY and DISTINCT ON.

use sqlparser::ast::{Expr as Syntax, OrderByExpr, OrderByOptions, UnaryOperator, Value, ValueWithSpan};

use super::expression::strip;
use super::scope::object_name;
use super::sortable::check_sortable_column;
use super::{Binder, Body, Distinct, Query, SortKey};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::Typed;

/// Descending, and NULLs first; NULLs come last in ascending and first in descending order unless
/// said otherwise.
pub(super) fn sort_direction(options: &OrderByOptions) -> (bool, bool) {
    let descending = options.asc == Some(false);
    (descending, options.nulls_first.unwrap_or(descending))
}

/// The number, if this is a plain integer literal; an error if it is another literal.
pub(super) fn ordinal(syntax: &Syntax, clause: &str) -> Result<Option<i64>> {
    match strip(syntax) {
        Syntax::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => {
            digits.parse().map(Some).map_err(|_| non_integer(clause))
        }
        Syntax::Value(ValueWithSpan {
            value: Value::Placeholder(_) | Value::Null | Value::Boolean(_),
            ..
        }) => Ok(None),
        Syntax::Value(_) => Err(non_integer(clause)),
        // PostgreSQL's parser makes one literal of a sign and a number.
        Syntax::UnaryOp { op: UnaryOperator::Minus, expr } if is_number(expr) => {
            Ok(ordinal(expr, clause)?.map(|number| -number))
        }
        _ => Ok(None),
    }
}

fn is_number(syntax: &Syntax) -> bool {
    match strip(syntax) {
        Syntax::Value(ValueWithSpan { value: Value::Number(..), .. }) => true,
        Syntax::UnaryOp { op: UnaryOperator::Minus, expr } => is_number(expr),
        _ => false,
    }
}

fn non_integer(clause: &str) -> SqlError {
    SqlError::syntax(format!("non-integer constant in {clause}"))
}

/// The target at a 1-based position.
pub(super) fn target_at(position: i64, visible: usize, clause: &str) -> Result<usize> {
    match usize::try_from(position) {
        Ok(position) if (1..=visible).contains(&position) => Ok(position - 1),
        _ => Err(SqlError::new(
            sqlstate::INVALID_COLUMN_REFERENCE,
            format!("{clause} position {position} is not in select list"),
        )),
    }
}

/// The visible target of this name. 42702 if several different ones have it.
pub(super) fn target_named(
    name: &str,
    targets: &[(String, Typed)],
    visible: usize,
    clause: &str,
) -> Result<Option<usize>> {
    let mut found = None;
    for (place, (known, typed)) in targets[..visible].iter().enumerate() {
        if known != name {
            continue;
        }
        match found {
            None => found = Some(place),
            Some(before) if targets[before].1 == *typed => {}
            Some(_) => {
                return Err(SqlError::new(
                    sqlstate::AMBIGUOUS_COLUMN,
                    format!("{clause} \"{name}\" is ambiguous"),
                ));
            }
        }
    }
    Ok(found)
}

/// Whether two expressions with subqueries, which are equal to nothing if they are volatile, are
/// the same one written twice, as dumps have views: `SELECT DISTINCT (SELECT ...) ... ORDER BY
/// (SELECT ...)`.
fn repeats(left: &Typed, right: &Typed) -> bool {
    left.ty == right.ty
        && left.expr.has_subquery()
        && right.expr.has_subquery()
        && format!("{:?}", left.expr) == format!("{:?}", right.expr)
}

impl Binder<'_> {
    /// ORDER BY of a SELECT: output positions, output names, or expressions over the input, which
    /// become hidden targets.
    pub(super) fn order_by(
        &mut self,
        items: &[OrderByExpr],
        targets: &mut Vec<(String, Typed)>,
        visible: usize,
    ) -> Result<Vec<SortKey>> {
        let mut keys: Vec<SortKey> = vec![];
        for item in items {
            if item.with_fill.is_some() {
                return Err(SqlError::syntax("syntax error at or near \"WITH\""));
            }
            let column = self.sort_target(&item.expr, targets, visible, "ORDER BY")?;
            let (descending, nulls_first) = sort_direction(&item.options);
            // A later key on the same column decides nothing.
            if !keys.iter().any(|key| key.column == column) {
                keys.push(SortKey { column, descending, nulls_first });
            }
        }
        Ok(keys)
    }

    fn sort_target(
        &mut self,
        syntax: &Syntax,
        targets: &mut Vec<(String, Typed)>,
        visible: usize,
        clause: &str,
    ) -> Result<usize> {
        let output = match (ordinal(syntax, clause)?, strip(syntax)) {
            (Some(position), _) => Some(target_at(position, visible, clause)?),
            (None, Syntax::Identifier(ident)) => target_named(&object_name(ident), targets, visible, clause)?,
            _ => None,
        };
        if let Some(place) = output {
            let settled = self.settle(targets[place].1.clone())?;
            self.check_sortable_value(&settled, "ordering")?;
            return Ok(place);
        }
        let typed = self.settled_expression(syntax)?;
        self.check_sortable_value(&typed, "ordering")?;
        let is_known = |known: &Typed| *known == typed || repeats(known, &typed);
        if let Some(place) = targets.iter().position(|(_, known)| is_known(known)) {
            return Ok(place);
        }
        targets.push((String::new(), typed));
        Ok(targets.len() - 1)
    }

    /// DISTINCT ON: its expressions must be those ORDER BY begins with.
    pub(super) fn distinct_on(
        &mut self,
        items: &[Syntax],
        targets: &mut Vec<(String, Typed)>,
        visible: usize,
        keys: &[SortKey],
    ) -> Result<Distinct> {
        let mut on = vec![];
        for item in items {
            let place = self.sort_target(item, targets, visible, "SELECT DISTINCT ON")?;
            if !on.contains(&place) {
                on.push(place);
            }
        }
        if keys.iter().take(on.len()).any(|key| !on.contains(&key.column)) {
            return Err(SqlError::new(
                sqlstate::INVALID_COLUMN_REFERENCE,
                "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
            ));
        }
        Ok(Distinct::On(on))
    }

    /// ORDER BY of UNION, VALUES and so on: output positions and names only.
    pub(super) fn order_of_outputs(&mut self, query: &mut Query, items: &[OrderByExpr]) -> Result<()> {
        for item in items {
            let column = if let Some(position) = ordinal(&item.expr, "ORDER BY")? {
                target_at(position, query.columns.len(), "ORDER BY")?
            } else if let Syntax::Identifier(ident) = strip(&item.expr) {
                let name = object_name(ident);
                let place = query.columns.iter().position(|column| column.name == name);
                // Columns of a set operation are never the same, however they are written.
                let is_set = matches!(query.body, Body::SetOperation(_));
                if is_set && query.columns.iter().filter(|column| column.name == name).count() > 1 {
                    let message = format!("ORDER BY \"{name}\" is ambiguous");
                    return Err(self.at(SqlError::new(sqlstate::AMBIGUOUS_COLUMN, message), ident.span));
                }
                place.ok_or_else(|| {
                    self.at(
                        SqlError::new(
                            sqlstate::UNDEFINED_COLUMN,
                            format!("column \"{name}\" does not exist"),
                        ),
                        ident.span,
                    )
                })?
            } else {
                return Err(SqlError::new(
                    sqlstate::FEATURE_NOT_SUPPORTED,
                    "invalid UNION/INTERSECT/EXCEPT ORDER BY clause",
                )
                .with_detail("Only result column names can be used, not expressions or functions.")
                .with_hint(
                    "Add the expression/function to every SELECT, or move the UNION into a FROM clause.",
                ));
            };
            self.check_sortable(query.columns[column].ty, "ordering")?;
            check_sortable_column(query, column, "ordering")?;
            let (descending, nulls_first) = sort_direction(&item.options);
            if !query.order.iter().any(|key| key.column == column) {
                query.order.push(SortKey { column, descending, nulls_first });
            }
        }
        Ok(())
    }
}
