//! A cursor: one execution of a plan.

use std::sync::Arc;

use super::rows::Rows;
use super::{Context, Row};
use crate::error::Result;
use crate::expr::{Env, Execution, Expr, ReadContext, Runtime};
use crate::plan::Plan;
use crate::types::Datum;

/// One execution of a plan, from the first row to the last. It borrows nothing between calls.
pub struct Cursor {
    plan: Arc<Plan>,
    parameters: Arc<[Datum]>,
    runtime: Runtime,
    rows: Rows,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Fresh,
    Running,
    Done,
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cursor")
    }
}

impl Cursor {
    /// A cursor before its first row. `parameters` have the types of the plan's.
    pub fn new(plan: &Arc<Plan>, parameters: Arc<[Datum]>) -> Cursor {
        Cursor {
            rows: Rows::new(&plan.root),
            runtime: Runtime::new(plan.subqueries, plan.ctes),
            plan: plan.clone(),
            parameters,
            state: State::Fresh,
        }
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The values of the parameters.
    pub fn parameters(&self) -> &Arc<[Datum]> {
        &self.parameters
    }

    /// The next row: the output columns, then the keys that [`Plan::locks`] names. After an error the cursor is at its end.
    pub fn next(&mut self, read: &ReadContext<'_>) -> Result<Option<Row>> {
        if self.state == State::Done {
            return Ok(None);
        }
        let result = self.advance(read);
        if !matches!(result, Ok(Some(_))) {
            self.state = State::Done;
            self.rows.close();
        }
        result
    }

    fn advance(&mut self, read: &ReadContext<'_>) -> Result<Option<Row>> {
        let execution = Execution { read, parameters: &self.parameters, runtime: &self.runtime };
        let context = Context { execution, outer: None };
        if self.state == State::Fresh {
            self.rows.open(&context)?;
            self.state = State::Running;
        }
        self.rows.next(&context)
    }

    /// LIMIT and OFFSET of a plan with row locks, which its caller applies: rows to leave out, and the most to give.
    pub fn limits(&self, read: &ReadContext<'_>) -> Result<(u64, Option<u64>)> {
        let execution = Execution { read, parameters: &self.parameters, runtime: &self.runtime };
        let env = Env::new(&[], execution);
        super::rows::limits(self.plan.limit.as_ref(), self.plan.offset.as_ref(), &env)
    }

    /// Evaluates an expression of the statement over a frame, with this execution's parameters.
    pub fn evaluate(&self, expr: &Expr, frame: &[Datum], read: &ReadContext<'_>) -> Result<Datum> {
        let execution = Execution { read, parameters: &self.parameters, runtime: &self.runtime };
        expr.eval(&Env::new(frame, execution))
    }
}
