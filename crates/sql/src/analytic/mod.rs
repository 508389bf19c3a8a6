//! The analytic executor: SELECTs that the row executor does not do, or would do slowly, on DataFusion.
//!
//! ```text
//! syntax tree ─▶ planner (names, functions) ─▶ rewrite (PostgreSQL's rules) ─▶ AnalyticPlan, cached by the session
//! AnalyticPlan + parameters + source ─▶ physical plan ─▶ batches ─▶ decode ─▶ rows, through a bounded channel
//! ```
//!
//! **Same snapshot.** The session lends a view of its transaction, its snapshot and its own writes as they are when the statement begins; it travels in
//! the query's own session configuration, and the plan knows tables only by their definitions. A plan therefore pins no transaction.
//!
//! **Only what is asked for.** A mention of a table reads the ranges of keys that its conditions leave (`filter`, which also says what is still read
//! whole), from the query's own threads, and they are noted as read before a row of them goes anywhere. So whoever saw a result has in its
//! transaction's read set all that the result came from.
//!
//! **Same answers.** DataFusion joins, groups, sorts and moves windows; what it computes values with is the row executor's own
//! code: operators, functions and casts (`call`), aggregates (`aggregate`). Numerics travel by their digits. What
//! DataFusion would still do in its own way (`check`, `syntax`), and columns whose type Arrow cannot hold exactly, are refused by
//! name. Nothing is approximated silently.
//!
//! **No client waits behind it.** Execution runs on threads of its own with lower priority (`runtime`); the session
//! only awaits finished batches, so connections' threads stay free.

mod aggregate;
mod call;
mod check;
mod decode;
mod encode;
mod filter;
mod functions;
mod mapping;
mod planner;
mod provider;
mod rewrite;
mod runtime;
mod stored;
mod syntax;

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::{ParamValues, ScalarValue};
use datafusion::logical_expr::LogicalPlan;
use sqlparser::ast::Statement;

use crate::catalog::{Catalog, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::types::{Datum, FormatContext, Type, TypeId};

pub use runtime::{AnalyticCursor, AnalyticRuntime};
pub use stored::Source;

/// A SELECT planned for DataFusion. Immutable; holds no transaction and no parameter values.
#[derive(Debug)]
pub struct AnalyticPlan {
    plan: LogicalPlan,
    columns: Vec<(String, Type)>,
    parameters: Vec<Type>,
    tables: Vec<Arc<Table>>,
    /// What the row executor lacks to run the query.
    lacking: Option<SqlError>,
}

/// What a query needs besides its plan.
pub struct Surroundings<'a> {
    /// Values of the parameters, one for each of [`AnalyticPlan::parameters`].
    pub parameters: &'a [Datum],
    /// The session's settings of reading and printing, and the transaction's time.
    pub format: &'a FormatContext,
    /// When the statement began, microseconds since 2000-01-01 UTC.
    pub statement_time: i64,
}

impl AnalyticPlan {
    /// Plans a SELECT. `hints` are the parameter types the client declared. 0A000 names what is not supported.
    pub fn new(
        statement: &Statement,
        catalog: &Arc<Catalog>,
        search_path: &[String],
        hints: &[Option<Type>],
    ) -> Result<AnalyticPlan> {
        let statement = &syntax::prepare(statement)?;
        let planned = planner::plan(statement, catalog, search_path, hints)?;
        let plan = rewrite::apply(planned)?;
        let columns = plan
            .schema()
            .fields()
            .iter()
            .map(|field| {
                Ok((syntax::shown_name(field.name()).to_owned(), mapping::sql_type(field.data_type())?))
            })
            .collect::<Result<Vec<_>>>()?;
        let parameters = parameter_types(&plan, hints)?;
        let tables = provider::mentioned(&plan)?;
        Ok(AnalyticPlan { plan, columns, parameters, tables, lacking: None })
    }

    /// Names and types of the result's columns.
    pub fn columns(&self) -> &[(String, Type)] {
        &self.columns
    }

    /// Notes why the row executor does not run the query.
    pub fn set_lacking(&mut self, lacking: SqlError) {
        self.lacking = Some(lacking);
    }

    /// Why the row executor does not run the query, if it cannot.
    pub fn lacking(&self) -> Option<&SqlError> {
        self.lacking.as_ref()
    }

    /// Takes the row executor's names and types of the columns. 0A000 if the values cannot be given as these types.
    pub fn set_columns(&mut self, columns: Vec<(String, Type)>) -> Result<()> {
        if columns.len() != self.columns.len() {
            return Err(SqlError::unsupported("a query of other columns on the analytic executor"));
        }
        for ((name, ty), (_, found)) in columns.iter().zip(&self.columns) {
            if !readable(*found, *ty) {
                return Err(SqlError::unsupported(format!(
                    "column \"{name}\" of type {} as type {} on the analytic executor",
                    found.id.sql_name(),
                    ty.id.sql_name()
                )));
            }
        }
        self.columns = columns;
        Ok(())
    }

    /// Types of `$1`, `$2`, ...
    pub fn parameters(&self) -> &[Type] {
        &self.parameters
    }

    /// The tables it reads.
    pub fn tables(&self) -> &[Arc<Table>] {
        &self.tables
    }

    /// DataFusion's plan as text, a line a node.
    pub fn explain(&self) -> Vec<String> {
        self.plan.display_indent().to_string().lines().map(str::to_owned).collect()
    }

    /// Starts the query on `runtime`. It reads from `source`.
    pub fn start(
        &self,
        runtime: &AnalyticRuntime,
        source: Arc<dyn Source>,
        surroundings: &Surroundings<'_>,
    ) -> Result<AnalyticCursor> {
        let plan = if self.parameters.is_empty() {
            self.plan.clone()
        } else {
            let values = surroundings
                .parameters
                .iter()
                .zip(&self.parameters)
                .map(|(datum, ty)| mapping::scalar(datum, *ty))
                .collect::<Result<Vec<ScalarValue>>>()?;
            self.plan.clone().with_param_values(ParamValues::from(values)).map_err(failure)?
        };
        let types = self.columns.iter().map(|(_, ty)| *ty).collect();
        runtime.start(plan, types, source, surroundings)
    }
}

/// Whether values that come as `found` are read as `wanted`.
fn readable(found: Type, wanted: Type) -> bool {
    use TypeId::{Int2, Int4, Int8, Json, Name, Numeric, Text, Unknown, Varchar};
    let integer = |ty: Type| matches!(ty.id, Int2 | Int4 | Int8);
    let text = |ty: Type| matches!(ty.id, Text | Varchar | Name | Json | Unknown);
    found.id == wanted.id
        || (integer(found) && (integer(wanted) || wanted.id == Numeric))
        || (text(found) && text(wanted))
}

fn parameter_types(plan: &LogicalPlan, hints: &[Option<Type>]) -> Result<Vec<Type>> {
    let found = plan.get_parameter_fields().map_err(failure)?;
    let mut count = hints.len();
    let mut by_place = HashMap::new();
    for (name, field) in found {
        let place = name
            .strip_prefix('$')
            .and_then(|digits| digits.parse::<usize>().ok())
            .filter(|place| (1..=65_535).contains(place))
            .ok_or_else(|| {
                SqlError::new(sqlstate::UNDEFINED_PARAMETER, format!("there is no parameter {name}"))
            })?;
        count = count.max(place);
        if let Some(field) = field {
            by_place.insert(place, mapping::sql_type(field.data_type())?);
        }
    }
    (1..=count)
        .map(|place| {
            let hint = hints.get(place - 1).copied().flatten();
            hint.or_else(|| by_place.get(&place).copied()).ok_or_else(|| {
                SqlError::new(
                    sqlstate::INDETERMINATE_DATATYPE,
                    format!("could not determine data type of parameter ${place}"),
                )
            })
        })
        .collect()
}

/// DataFusion's error as ours.
fn failure(error: datafusion::error::DataFusionError) -> SqlError {
    use datafusion::arrow::error::ArrowError;
    use datafusion::error::DataFusionError as Failure;
    match error.find_root() {
        Failure::External(inner) => {
            if let Some(ours) = inner.downcast_ref::<SqlError>() {
                return ours.clone();
            }
        }
        Failure::ArrowError(inner, _) => match inner.as_ref() {
            ArrowError::DivideByZero => return SqlError::division_by_zero(),
            ArrowError::ArithmeticOverflow(what) => {
                return SqlError::new(
                    sqlstate::NUMERIC_VALUE_OUT_OF_RANGE,
                    format!("value out of range: {what}"),
                );
            }
            ArrowError::ExternalError(inner) => {
                if let Some(ours) = inner.downcast_ref::<SqlError>() {
                    return ours.clone();
                }
            }
            _ => {}
        },
        Failure::ResourcesExhausted(what) => {
            return SqlError::new(sqlstate::OUT_OF_MEMORY, "the query needs more memory than its share")
                .with_detail(what.clone());
        }
        Failure::NotImplemented(what) => return SqlError::unsupported(what),
        Failure::SchemaError(what, _) => {
            return SqlError::new(sqlstate::UNDEFINED_COLUMN, what.to_string());
        }
        Failure::Plan(what) => return planning(what),
        _ => {}
    }
    SqlError::new(sqlstate::INTERNAL_ERROR, error.strip_backtrace())
}

/// What DataFusion's planner says, with PostgreSQL's SQLSTATE where the query is wrong; else it is not supported.
fn planning(what: &str) -> SqlError {
    let what = what.trim();
    if let Some(rest) = what.strip_prefix("Invalid function '") {
        let name = rest.split('\'').next().unwrap_or_default();
        return SqlError::new(sqlstate::UNDEFINED_FUNCTION, format!("function {name} does not exist"));
    }
    if what.contains("must be in GROUP BY") || what.contains("must appear in the GROUP BY") {
        return SqlError::new(sqlstate::GROUPING_ERROR, what);
    }
    SqlError::unsupported(what)
}

#[cfg(test)]
mod tests;
