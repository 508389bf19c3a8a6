//! LIMIT and OFFSET. With ties, rows that sort like the last one come too.
//!
//! ```text
//! ORDER BY a FETCH FIRST 2 ROWS WITH TIES      a: 1 2 2 2 3      gives 1 2 2 2
//! ```

use super::Context;
use super::node::{NodeState, evaluate_limit};
use crate::error::Result;
use crate::expr::Expr;
use crate::plan::Node;
use crate::types::Datum;

/// State of a LIMIT.
pub(crate) struct LimitState {
    input: NodeState,
    /// How many rows are still to be given; none without a limit.
    left: Option<i64>,
    started: bool,
    /// What rows must have in the tied columns to come behind the last one; empty before that one,
    /// and once they have ended.
    last: Vec<Datum>,
}

impl LimitState {
    pub(crate) fn new(input: &Node) -> LimitState {
        LimitState { input: NodeState::new(input), left: None, started: false, last: vec![] }
    }

    pub(crate) fn release(&mut self, context: Context<'_>) {
        self.input.release(context);
    }

    /// Evaluates both numbers, OFFSET first, and leaves out the rows of OFFSET. `out` is a place to
    /// work in.
    fn start(
        &mut self,
        input: &Node,
        (limit, offset): (Option<&Expr>, Option<&Expr>),
        context: Context<'_>,
        out: &mut Vec<Datum>,
    ) -> Result<()> {
        self.started = true;
        let skipped = match offset {
            Some(offset) => evaluate_limit(offset, "OFFSET", context)?.unwrap_or(0),
            None => 0,
        };
        if let Some(limit) = limit {
            self.left = evaluate_limit(limit, "LIMIT", context)?;
        }
        for _ in 0..skipped {
            // Behind the last row there is nothing to leave out, whatever is asked for.
            if self.left == Some(0) || !self.input.next(input, context, out)? {
                self.left = Some(0);
                break;
            }
        }
        Ok(())
    }

    /// Puts the next row into `out`. `limits` are LIMIT and OFFSET.
    pub(crate) fn next(
        &mut self,
        input: &Node,
        limits: (Option<&Expr>, Option<&Expr>),
        ties: &[usize],
        context: Context<'_>,
        out: &mut Vec<Datum>,
    ) -> Result<bool> {
        if !self.started {
            self.start(input, limits, context, out)?;
        }
        match &mut self.left {
            Some(0) if self.last.is_empty() => return Ok(false),
            Some(0) => {
                let is_tied = self.input.next(input, context, out)?
                    && ties.iter().zip(&self.last).all(|(column, value)| out[*column] == *value);
                if !is_tied {
                    self.last.clear();
                }
                return Ok(is_tied);
            }
            Some(left) => *left -= 1,
            None => {}
        }
        let found = self.input.next(input, context, out)?;
        if found && self.left == Some(0) {
            self.last.extend(ties.iter().map(|column| out[*column].clone()));
        }
        Ok(found)
    }
}
