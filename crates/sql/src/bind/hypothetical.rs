//! Hypothetical-set aggregates: where a row would be in an order. Each is what other aggregates
//! say of the rows that come before it.
//!
//! ```text
//! rank(3) WITHIN GROUP (ORDER BY x)
//! 1 + count(*) FILTER (WHERE x < 3 OR (3 IS NULL AND x IS NOT NULL))
//! ```
//!
//! The keys are in there more than once, and so are the values, so only columns may be keys and
//! only constants values.

use sqlparser::ast::{Expr as Syntax, Function as FunctionSyntax, FunctionArgumentList, OrderByExpr};

use super::call::plain_arguments;
use super::order::sort_direction;
use super::{Binder, Clause};
use crate::error::{Result, SqlError};
use crate::expr::Typed;
use crate::function;
use crate::parse::parse_expression;

/// Whether an aggregate of this name with WITHIN GROUP is one of these.
pub(super) fn is_hypothetical_set(name: &str) -> bool {
    ["rank", "dense_rank", "percent_rank", "cume_dist"].contains(&name)
}

impl Binder<'_> {
    pub(super) fn hypothetical_set(
        &mut self,
        name: &str,
        syntax: &FunctionSyntax,
        list: &FunctionArgumentList,
    ) -> Result<Typed> {
        let (direct, keys) = (plain_arguments(&list.args)?, syntax.within_group.as_slice());
        if direct.len() != keys.len() {
            return Err(self.other_width(name, &direct, keys)?);
        }
        if !direct.iter().all(|value| is_constant(value)) {
            return Err(self.lacks("a direct argument of a hypothetical-set aggregate that is no constant"));
        }
        if !keys.iter().all(|key| matches!(key.expr, Syntax::Identifier(_) | Syntax::CompoundIdentifier(_))) {
            return Err(self.lacks("a hypothetical-set aggregate over anything but columns"));
        }
        if syntax.filter.is_some() || (name == "dense_rank" && keys.len() > 1) {
            return Err(self.lacks("this form of a hypothetical-set aggregate"));
        }
        // Positions in this text would say nothing to whoever wrote the statement.
        let call = parse_expression(&written(name, &direct, keys)).and_then(|call| self.expression(&call));
        call.map_err(|mut error| {
            error.position = None;
            error
        })
    }

    /// 42883.
    fn other_width(&mut self, name: &str, direct: &[&Syntax], keys: &[OrderByExpr]) -> Result<SqlError> {
        let all = direct.iter().copied().chain(keys.iter().map(|key| &key.expr));
        let types = self.in_clause(Clause::Aggregate, |binder| {
            all.map(|argument| Ok(binder.expression(argument)?.ty.id.sql_name())).collect::<Result<Vec<_>>>()
        })?;
        let error = function::undefined("function", &format!("{name}({})", types.join(", ")));
        let (given, wanted) = (direct.len(), keys.len());
        Ok(error.with_hint(format!(
            "To use the hypothetical-set aggregate {name}, the number of hypothetical direct arguments (here \
             {given}) must match the number of ordering columns (here {wanted})."
        )))
    }
}

fn is_constant(value: &Syntax) -> bool {
    match value {
        Syntax::Value(_) | Syntax::TypedString(_) => true,
        Syntax::Cast { expr, .. } | Syntax::UnaryOp { expr, .. } | Syntax::Nested(expr) => is_constant(expr),
        _ => false,
    }
}

/// What the aggregate is, in others.
fn written(name: &str, direct: &[&Syntax], keys: &[OrderByExpr]) -> String {
    let mut before = String::from("false");
    let mut equal = String::from("true");
    for (value, key) in direct.iter().zip(keys).rev() {
        let (descending, nulls_first) = sort_direction(&key.options);
        let (key, operator) = (&key.expr, if descending { ">" } else { "<" });
        let nulls = match nulls_first {
            true => format!("{key} IS NULL AND ({value}) IS NOT NULL"),
            false => format!("({value}) IS NULL AND {key} IS NOT NULL"),
        };
        let same = format!("{key} IS NOT DISTINCT FROM ({value})");
        before = format!("({key} {operator} ({value}) OR ({nulls}) OR ({same} AND {before}))");
        equal = format!("({same} AND {equal})");
    }
    let count = "pg_catalog.count(*)";
    let float = |number: String| format!("CAST({number} AS float8)");
    match (name, keys) {
        ("percent_rank", _) => {
            let (part, all) = (format!("{count} FILTER (WHERE {before})"), format!("nullif({count}, 0)"));
            format!("coalesce({} / {}, {})", float(part), float(all), float("0".to_owned()))
        }
        ("cume_dist", _) => {
            let part = format!("1 + {count} FILTER (WHERE {before} OR {equal})");
            format!("{} / {}", float(part), float(format!("1 + {count}")))
        }
        // NULL is one more value, which is not counted.
        ("dense_rank", [key]) => format!(
            "1 + pg_catalog.count(DISTINCT {key}) FILTER (WHERE {before}) \
             + CASE WHEN {count} FILTER (WHERE {before} AND {key} IS NULL) > 0 THEN 1 ELSE 0 END",
            key = key.expr
        ),
        _ => format!("1 + {count} FILTER (WHERE {before})"),
    }
}
