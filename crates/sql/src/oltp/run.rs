//! Running a statement that changes rows: evaluation over frames.

use std::sync::Arc;

use sqlparser::ast;

use super::constraint::check_violation;
use super::memory::row_bytes;
use super::returning::{Changed, Returning};
use super::source::{Places, unplanned};
use crate::bind::Binder;
use crate::catalog::{Check, Table};
use crate::ddl::expression;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{DomainCheck, Env, Execution, Expr, ReadContext, Runtime, check_held};
use crate::oltp::{Cursor, Given};
use crate::parse::parse_expression;
use crate::plan::Plan;
use crate::session::work::Work;
use crate::types::Datum;

/// One execution of a statement: its parameters, and what lives as long as it.
pub(crate) struct Run {
    parameters: Arc<[Datum]>,
    /// Kept results of subqueries, unless the cursor has them.
    runtime: Runtime,
    cursor: Option<Cursor>,
    /// Rows of other parts of the statement.
    given: Given,
    /// The statement is run again if a row has gone that may be under another key.
    follows: bool,
}

impl Run {
    pub(crate) fn new(parameters: Arc<[Datum]>, places: &Places) -> Run {
        let mut runtime = Runtime::new(places.subqueries, places.ctes);
        if !places.cte_plans.is_empty() {
            runtime = runtime.with_cte_plans(places.cte_plans.clone());
        }
        Run { parameters, runtime, cursor: None, given: Given::new(), follows: false }
    }

    /// The same for a statement that is, or is not, run again if a row has gone.
    pub(crate) fn following(self, follows: bool) -> Run {
        Run { follows, ..self }
    }

    /// Whether it is.
    pub(crate) fn follows(&self) -> bool {
        self.follows
    }

    /// The same for a part of a statement, with the rows of those that were run before.
    pub(crate) fn part(parameters: Arc<[Datum]>, places: &Places, given: &Given) -> Run {
        let run = Run::new(parameters, places);
        run.runtime.give(given);
        Run { given: given.clone(), ..run }
    }

    /// Begins to read the rows of the statement's query. Its expressions are evaluated beside them
    /// from now on.
    pub(crate) fn open(&mut self, plan: &Arc<Plan>) {
        let cursor = Cursor::new(plan, self.parameters.clone());
        cursor.give(&self.given);
        self.cursor = Some(cursor);
    }

    /// The next row of the query.
    pub(crate) fn next(&mut self, work: &Work<'_>) -> Result<Option<Vec<Datum>>> {
        let cursor = self.cursor.as_mut().ok_or_else(unplanned)?;
        work.read(|read| cursor.next(read))
    }

    /// Evaluates expressions over a frame.
    pub(crate) fn evaluate(&self, work: &Work<'_>, exprs: &[Expr], frame: &[Datum]) -> Result<Vec<Datum>> {
        work.read(|read| match &self.cursor {
            Some(cursor) => exprs.iter().map(|expr| cursor.evaluate(expr, frame, read)).collect(),
            None => {
                let execution = Execution { read, parameters: &self.parameters, runtime: &self.runtime };
                let env = Env::new(frame, execution);
                exprs.iter().map(|expr| expr.eval(&env)).collect()
            }
        })
    }

    /// Whether a condition holds over a frame.
    pub(crate) fn holds(&self, work: &Work<'_>, condition: &Expr, frame: &[Datum]) -> Result<bool> {
        if matches!(condition, Expr::Constant(Datum::Bool(true))) {
            return Ok(true);
        }
        Ok(self.evaluate(work, std::slice::from_ref(condition), frame)?[0].as_bool() == Some(true))
    }

    /// Counts a changed row, and adds what RETURNING gives for its frame.
    pub(crate) fn give_back(
        &self,
        work: &Work<'_>,
        returning: Option<&Returning>,
        frame: &[Datum],
        changed: &mut Changed,
    ) -> Result<()> {
        changed.rows += 1;
        if let Some(returning) = returning {
            let row = self.evaluate(work, &returning.exprs, frame)?;
            changed.returned_bytes += row_bytes(&row);
            check_held(changed.returned_bytes, work.state.memory_limit)?;
            changed.returned.push(row);
        }
        Ok(())
    }
}

/// The value of an expression without parameters and subqueries over a row: a default, a check.
pub(crate) fn evaluate(expr: &Expr, row: &[Datum], read: &ReadContext<'_>) -> Result<Datum> {
    let runtime = Runtime::default();
    expr.eval(&Env::new(row, Execution { read, parameters: &[], runtime: &runtime }))
}

/// What a row must meet: the CHECK constraints of its table, bound over it, and those of its
/// columns' domains.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    checks: Vec<(String, Expr)>,
    /// Places of the columns that must not be NULL.
    not_null: Vec<usize>,
    /// Places of columns, with what their values must meet.
    domains: Vec<(usize, Arc<DomainCheck>)>,
    /// Columns are computed from others.
    generates: bool,
    /// Places of the columns that the statement gives values.
    given: Vec<usize>,
}

impl Checks {
    /// Binds those constraints that `wanted` says a change of these columns can break, and those
    /// that a row may not meet as it is.
    pub(crate) fn bind(
        binder: &mut Binder<'_>,
        table: &Arc<Table>,
        wanted: impl Fn(usize) -> bool,
    ) -> Result<Checks> {
        let mut checks = Vec::new();
        let in_question = |check: &&Check| {
            check.not_valid || check.columns.is_empty() || check.columns.iter().any(|&c| wanted(c))
        };
        for check in table.checks.iter().filter(in_question) {
            let syntax = parse_expression(&check.expression)?;
            let bound = expression::bind_check(binder, table, &syntax)?;
            checks.push((check.name.clone(), bound));
        }
        let mut domains = Vec::new();
        for (place, column) in table.visible_columns().filter(|(place, _)| wanted(*place)) {
            domains.extend(binder.domain_check(column.ty)?.map(|check| (place, check)));
        }
        let columns = table.columns.iter().enumerate();
        let not_null = columns
            .filter(|(_, column)| column.not_null && !column.dropped)
            .map(|(place, _)| place)
            .collect();
        Ok(Checks { checks, not_null, domains, generates: table.has_generated(), given: Vec::new() })
    }

    /// The same for a statement that gives these columns values, which messages show it.
    pub(crate) fn giving(self, given: Vec<usize>) -> Checks {
        Checks { given, ..self }
    }

    /// Places of the columns that the statement gives values.
    pub(super) fn given(&self) -> &[usize] {
        &self.given
    }

    /// Gives a row the values of its generated columns, and tests it. 23502, 23514.
    pub(crate) fn complete(&self, work: &Work<'_>, table: &Table, row: &mut [Datum]) -> Result<()> {
        if self.generates {
            work.generate(table, row)?;
        }
        for (place, check) in &self.domains {
            work.read(|read| check.test(&row[*place], read))?;
        }
        self.test_row(work, table, row)
    }

    /// The same for a complete row whose values are known to be of their columns' domains.
    pub(crate) fn test_row(&self, work: &Work<'_>, table: &Table, row: &[Datum]) -> Result<()> {
        if self.not_null.iter().any(|&place| row[place].is_null()) {
            let checked = super::constraint::check_not_null(table, row, work.format);
            checked.map_err(|error| work.tell_row(error, table, row, &self.given))?;
        }
        for (name, condition) in &self.checks {
            // NULL passes.
            if work.evaluate(condition, row)?.as_bool() == Some(false) {
                let error = check_violation(table, name, row, work.format);
                return Err(work.tell_row(error, table, row, &self.given));
            }
        }
        Ok(())
    }

    /// What the values of the column at this place must meet, if it is of a domain.
    pub(crate) fn domain(&self, place: usize) -> Option<&DomainCheck> {
        self.domains.iter().find(|(known, _)| *known == place).map(|(_, check)| check.as_ref())
    }
}

/// Is this expression the word DEFAULT?
pub(crate) fn is_default(expression: &ast::Expr) -> bool {
    matches!(expression, ast::Expr::Identifier(ident)
        if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
}

/// The value of a column that a statement gives none. A generated one gets its own later.
pub(crate) fn default_of(binder: &mut Binder<'_>, table: &Table, place: usize) -> Result<Expr> {
    let column = &table.columns[place];
    match expression::default_of(binder.context.catalog, column) {
        Some(text) if !column.dropped => {
            let syntax = parse_expression(text)?;
            expression::bind_default(binder, column, &syntax).map(|typed| typed.expr)
        }
        _ => Ok(Expr::NULL),
    }
}

/// 428C9 for a generated column.
pub(crate) fn is_generated(column: &str, update: bool) -> SqlError {
    let error = generated_always(column, update);
    let mut error = error.with_detail(format!("Column \"{column}\" is a generated column."));
    error.hint = None;
    error
}

/// 428C9.
pub(crate) fn generated_always(column: &str, update: bool) -> SqlError {
    let message = match update {
        true => format!("column \"{column}\" can only be updated to DEFAULT"),
        false => format!("cannot insert a non-DEFAULT value into column \"{column}\""),
    };
    let error = SqlError::new(sqlstate::GENERATED_ALWAYS, message)
        .with_detail(format!("Column \"{column}\" is an identity column defined as GENERATED ALWAYS."));
    if update { error } else { error.with_hint("Use OVERRIDING SYSTEM VALUE to override.") }
}
