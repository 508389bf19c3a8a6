//! Common table expressions: their rows, computed as they are asked for.
//!
//! A recursive one is computed step by step: whoever reads it asks for one chunk after the other, and the next step is taken only
//! when somebody has come to the end of what there is. So `WITH RECURSIVE t(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM t)
//! SELECT n FROM t LIMIT 10` ends.
//!
//! ```text
//! chunk 0   the rows of the non-recursive term
//! chunk 1   the recursive term over chunk 0
//! chunk 2   the recursive term over chunk 1       ... until one is empty
//! ```

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
    /// The chunks there are.
    Chunks(Chunks),
    /// Within its own recursive part: the rows of the last step.
    Working(Rows),
}

/// Chunks of rows so far.
#[derive(Default)]
pub(crate) struct Chunks {
    chunks: Vec<Rows>,
    /// No more will come.
    complete: bool,
    /// All rows so far, if each is to come once.
    seen: Option<HashSet<Vec<Datum>, Seeded>>,
}

/// A chunk of the rows of a common table expression, as seen from where they are asked for; none after the last one.
pub(crate) fn chunk(number: usize, at: usize, context: Context<'_>) -> Result<Option<Rows>> {
    let runtime = context.execution.runtime;
    match runtime.ctes.borrow().get(number) {
        Some(Some(CteState::Working(rows))) => return Ok((at == 0).then(|| rows.clone())),
        Some(Some(CteState::Chunks(known))) => {
            if let Some(chunk) = known.chunks.get(at) {
                return Ok(Some(chunk.clone()));
            }
            if known.complete {
                return Ok(None);
            }
        }
        _ => {}
    }
    let plan = runtime.cte_plan(number).cloned();
    let plan = plan.ok_or_else(|| SqlError::internal("a WITH query is read but not planned"))?;
    if plan.correlated {
        // Its rows belong to one row of the query around it: nobody else can read them.
        return if at == 0 { compute(&plan, context).map(Some) } else { Ok(None) };
    }
    let context = Context { execution: context.execution, outer: None };
    let mut known = match put(&plan, context, None)? {
        Some(CteState::Chunks(known)) => known,
        _ => Chunks::begin(&plan),
    };
    let grown = known.grow_to(&plan, at, context);
    let chunk = known.chunks.get(at).cloned();
    put(&plan, context, Some(CteState::Chunks(known)))?;
    grown.map(|()| chunk)
}

/// Puts a state in its place; gives what was there.
fn put(plan: &CtePlan, context: Context<'_>, state: Option<CteState>) -> Result<Option<CteState>> {
    match context.execution.runtime.ctes.borrow_mut().get_mut(plan.number) {
        Some(place) => Ok(std::mem::replace(place, state)),
        None => Err(SqlError::internal("a WITH query without a place")),
    }
}

/// All rows at once.
fn compute(plan: &CtePlan, context: Context<'_>) -> Result<Rows> {
    let mut known = Chunks::begin(plan);
    let grown = known.grow_to(plan, usize::MAX, context);
    put(plan, context, None)?;
    grown?;
    let mut chunks = known.chunks;
    Ok(match chunks.len() {
        1 => chunks.swap_remove(0),
        _ => Arc::new(chunks.iter().flat_map(|chunk| chunk.iter().cloned()).collect()),
    })
}

impl Chunks {
    fn begin(plan: &CtePlan) -> Chunks {
        let distinct = plan.recursive.as_ref().is_some_and(|(_, distinct)| *distinct);
        Chunks { seen: distinct.then(HashSet::default), ..Chunks::default() }
    }

    /// Computes chunks until there is that one, or no more.
    fn grow_to(&mut self, plan: &CtePlan, at: usize, context: Context<'_>) -> Result<()> {
        while !self.complete && self.chunks.len() <= at {
            let step = match (self.chunks.last(), &plan.recursive) {
                (None, _) => collect(&plan.node, context, self.seen.as_mut())?,
                (Some(last), Some((node, _))) => {
                    context.execution.read.interrupt.check()?;
                    put(plan, context, Some(CteState::Working(last.clone())))?;
                    for place in
                        context.execution.runtime.ctes.borrow_mut()[plan.number + 1..plan.end].iter_mut()
                    {
                        *place = None;
                    }
                    collect(node, context, self.seen.as_mut())?
                }
                (Some(_), None) => Vec::new(),
            };
            self.complete = plan.recursive.is_none() || step.is_empty();
            if !step.is_empty() || self.chunks.is_empty() {
                self.chunks.push(Arc::new(step));
            }
        }
        Ok(())
    }
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
