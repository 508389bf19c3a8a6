//! A cursor: one execution of a plan.

use std::fmt;
use std::sync::Arc;

use super::node::{NodeState, evaluate_limit};
use super::{Context, Given, Row};
use crate::error::Result;
use crate::expr::{Env, Execution, Expr, ReadContext, Runtime};
use crate::plan::Plan;
use crate::types::{Datum, bounds};

/// One execution of a plan, from the first row to the last. It borrows nothing between calls.
pub struct Cursor {
    plan: Arc<Plan>,
    parameters: Arc<[Datum]>,
    runtime: Runtime,
    state: NodeState,
    row: Row,
    done: bool,
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("done", &self.done).finish_non_exhaustive()
    }
}

impl Cursor {
    /// A cursor before its first row; nothing is read yet. `parameters` have the types of the
    /// plan's.
    pub fn new(plan: &Arc<Plan>, parameters: Arc<[Datum]>) -> Cursor {
        Cursor::within(plan, parameters, 0)
    }

    /// The same for a call of a user's function, with so many calls around it, itself included.
    pub(crate) fn within(plan: &Arc<Plan>, parameters: Arc<[Datum]>, depth: usize) -> Cursor {
        let mut runtime = Runtime::new(plan.subqueries, plan.ctes).at_depth(depth);
        if !plan.cte_plans.is_empty() {
            runtime = runtime.with_cte_plans(plan.cte_plans.clone());
        }
        Cursor {
            state: NodeState::new(&plan.root),
            plan: plan.clone(),
            parameters,
            runtime,
            row: vec![],
            done: false,
        }
    }

    /// Puts the rows of WITH queries in place that were computed before. To be called before the
    /// first row.
    pub(crate) fn give(&self, given: &Given) {
        self.runtime.give(given);
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The values of the parameters.
    pub fn parameters(&self) -> &Arc<[Datum]> {
        &self.parameters
    }

    /// The next row, to be kept: the output columns, then the keys that [`Plan::locks`] names.
    /// After an error the cursor is at its end.
    pub fn next(&mut self, read: &ReadContext<'_>) -> Result<Option<Row>> {
        Ok(self.advance(read)?.then(|| std::mem::take(&mut self.row)))
    }

    /// The next row, lent until the next call.
    pub fn next_row(&mut self, read: &ReadContext<'_>) -> Result<Option<&[Datum]>> {
        Ok(if self.advance(read)? { Some(&self.row) } else { None })
    }

    fn advance(&mut self, read: &ReadContext<'_>) -> Result<bool> {
        if self.done {
            return Ok(false);
        }
        let execution = Execution { read, parameters: &self.parameters, runtime: &self.runtime };
        let context = Context { execution, outer: None };
        // The row leaves: it must not rest on a comparison that was given up.
        let found = self.state.next(&self.plan.root, context, &mut self.row);
        let found = found.and_then(|found| bounds::check().map(|()| found));
        self.done = !matches!(found, Ok(true));
        if matches!(found, Ok(false)) {
            // What it holds goes now, however long the portal stays. After an error the portal
            // goes, too.
            self.state = NodeState::Values { at: 0 };
        }
        found
    }

    /// Bytes accounted for now.
    pub fn memory(&self) -> usize {
        self.runtime.memory()
    }

    /// LIMIT and OFFSET of a plan with row locks, which its caller applies: rows to leave out, and
    /// the most to give.
    pub fn limits(&self, read: &ReadContext<'_>) -> Result<(u64, Option<u64>)> {
        let execution = Execution { read, parameters: &self.parameters, runtime: &self.runtime };
        let context = Context { execution, outer: None };
        let number = |expr: Option<&Expr>, what: &str| -> Result<Option<u64>> {
            let Some(expr) = expr else { return Ok(None) };
            Ok(evaluate_limit(expr, what, context)?.and_then(|number| u64::try_from(number).ok()))
        };
        let skip = number(self.plan.offset.as_ref(), "OFFSET")?.unwrap_or(0);
        Ok((skip, number(self.plan.limit.as_ref(), "LIMIT")?))
    }

    /// Evaluates an expression of the statement over a frame, with this execution's parameters.
    pub fn evaluate(&self, expr: &Expr, frame: &[Datum], read: &ReadContext<'_>) -> Result<Datum> {
        let execution = Execution { read, parameters: &self.parameters, runtime: &self.runtime };
        expr.eval(&Env::new(frame, execution))
    }
}
