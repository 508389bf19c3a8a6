//! Common table expressions: their rows, computed when first asked for.

use std::collections::HashSet;
use std::sync::Arc;

use super::Context;
use super::hash::Seeded;
use super::memory::row_bytes;
use super::node::NodeState;
use crate::error::{Result, SqlError};
use crate::plan::{CtePlan, Node};
use crate::types::Datum;

/// Rows shared by all who read them.
pub(crate) type Rows = Arc<Vec<Vec<Datum>>>;

/// How far a common table expression is computed.
pub(crate) enum CteState {
    /// All its rows.
    Complete(Rows),
    /// Within its own recursive part: the rows of the last step.
    Working(Rows),
}

/// The rows of a common table expression, as seen from where they are asked for.
pub(crate) fn rows(number: usize, context: Context<'_>) -> Result<Rows> {
    let runtime = context.execution.runtime;
    if let Some(Some(CteState::Complete(rows) | CteState::Working(rows))) = runtime.ctes.borrow().get(number)
    {
        return Ok(rows.clone());
    }
    let plan = runtime.cte_plan(number).cloned();
    let plan = plan.ok_or_else(|| SqlError::internal("a WITH query is read but not planned"))?;
    let outer = if plan.correlated { context.outer } else { None };
    compute(&plan, Context { execution: context.execution, outer })
}

fn compute(plan: &CtePlan, context: Context<'_>) -> Result<Rows> {
    let put = |state: Option<CteState>| -> Result<()> {
        match context.execution.runtime.ctes.borrow_mut().get_mut(plan.number) {
            Some(place) => *place = state,
            None => return Err(SqlError::internal("a WITH query without a place")),
        }
        Ok(())
    };
    let mut seen = HashSet::<Vec<Datum>, Seeded>::default();
    let distinct = plan.recursive.as_ref().is_some_and(|(_, distinct)| *distinct);
    let mut all = collect(&plan.node, context, distinct.then_some(&mut seen))?;
    if let Some((node, _)) = &plan.recursive {
        let mut working = Arc::new(all.clone());
        while !working.is_empty() {
            context.execution.read.interrupt.check()?;
            put(Some(CteState::Working(working)))?;
            let step = collect(node, context, distinct.then_some(&mut seen))?;
            all.extend(step.iter().cloned());
            working = Arc::new(step);
        }
    }
    let all = Arc::new(all);
    put((!plan.correlated).then(|| CteState::Complete(all.clone())))?;
    Ok(all)
}

/// All rows of a node, those in `seen` left out.
fn collect(
    node: &Node,
    context: Context<'_>,
    mut seen: Option<&mut HashSet<Vec<Datum>, Seeded>>,
) -> Result<Vec<Vec<Datum>>> {
    let mut state = NodeState::new(node);
    let mut rows = vec![];
    let mut row = vec![];
    while state.next(node, context, &mut row)? {
        if let Some(seen) = &mut seen
            && !seen.insert(row.clone())
        {
            continue;
        }
        context.execution.reserve(row_bytes(&row))?;
        rows.push(std::mem::take(&mut row));
    }
    state.release(context);
    Ok(rows)
}
