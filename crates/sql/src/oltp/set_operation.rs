//! UNION, INTERSECT, EXCEPT.

use std::collections::{HashMap, HashSet};

use super::Context;
use super::hash::Seeded;
use super::memory::row_bytes;
use super::node::NodeState;
use crate::bind::SetKind;
use crate::error::Result;
use crate::plan::Node;
use crate::types::Datum;

/// State of a set operation.
pub(crate) struct SetState {
    left: NodeState,
    right: NodeState,
    left_done: bool,
    /// Rows given already, where duplicates are dropped.
    seen: HashSet<Vec<Datum>, Seeded>,
    /// How often each row of the right side is still to be matched (INTERSECT, EXCEPT).
    counts: Option<HashMap<Vec<Datum>, usize, Seeded>>,
    bytes: usize,
}

impl SetState {
    pub(crate) fn new(left: &Node, right: &Node) -> SetState {
        SetState {
            left: NodeState::new(left),
            right: NodeState::new(right),
            left_done: false,
            seen: HashSet::default(),
            counts: None,
            bytes: 0,
        }
    }

    pub(crate) fn release(&mut self, context: Context<'_>) {
        context.execution.runtime.release(self.bytes);
        self.bytes = 0;
        self.left.release(context);
        self.right.release(context);
    }

    fn reserve(&mut self, row: &[Datum], context: Context<'_>) -> Result<()> {
        let bytes = row_bytes(row);
        context.execution.reserve(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Whether a row is new, where duplicates are dropped.
    fn is_new(&mut self, row: &[Datum], context: Context<'_>) -> Result<bool> {
        if self.seen.contains(row) {
            return Ok(false);
        }
        self.reserve(row, context)?;
        self.seen.insert(row.to_vec());
        Ok(true)
    }

    pub(crate) fn next(
        &mut self,
        kind: SetKind,
        all: bool,
        left: &Node,
        right: &Node,
        context: Context<'_>,
        out: &mut Vec<Datum>,
    ) -> Result<bool> {
        if kind == SetKind::Union {
            return self.next_of_union(all, left, right, context, out);
        }
        if self.counts.is_none() {
            let mut counts: HashMap<Vec<Datum>, usize, Seeded> = HashMap::default();
            let mut row = vec![];
            while self.right.next(right, context, &mut row)? {
                if let Some(count) = counts.get_mut(&row) {
                    *count += 1;
                } else {
                    self.reserve(&row, context)?;
                    counts.insert(std::mem::take(&mut row), 1);
                }
            }
            self.counts = Some(counts);
        }
        while self.left.next(left, context, out)? {
            let matched = match self.counts.as_mut().and_then(|counts| counts.get_mut(out.as_slice())) {
                None | Some(0) => false,
                Some(count) => {
                    // With ALL each row of the right side matches one of the left.
                    if all {
                        *count -= 1;
                    }
                    true
                }
            };
            if matched == (kind == SetKind::Intersect) && (all || self.is_new(out, context)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn next_of_union(
        &mut self,
        all: bool,
        left: &Node,
        right: &Node,
        context: Context<'_>,
        out: &mut Vec<Datum>,
    ) -> Result<bool> {
        loop {
            let found = if self.left_done {
                self.right.next(right, context, out)?
            } else {
                self.left.next(left, context, out)?
            };
            if found {
                if all || self.is_new(out, context)? {
                    return Ok(true);
                }
            } else if self.left_done {
                return Ok(false);
            } else {
                self.left_done = true;
            }
        }
    }
}
