//! One window: sorts, cuts into partitions, computes.

use super::Input;
use super::call::CallState;
use super::frame::{Frames, Partition};
use crate::bind::SortKey;
use crate::error::Result;
use crate::oltp::Context;
use crate::oltp::memory::row_bytes;
use crate::oltp::sort::{compare_rows, sort_rows};
use crate::plan::WindowNode;
use crate::types::Datum;

/// State of a window.
pub(super) struct Stage {
    /// All rows in order, if they had to be sorted.
    sorted: Option<std::vec::IntoIter<Vec<Datum>>>,
    /// The first row of the partition that follows.
    ahead: Option<Vec<Datum>>,
    begun: bool,
    partition: Partition,
    /// The next row to be given.
    at: usize,
    frames: Option<Frames>,
    calls: Vec<CallState>,
    /// No call looks at a row again once it was given: it can be moved out.
    moves_out: bool,
    bytes: usize,
}

impl Stage {
    pub(super) fn new(node: &WindowNode) -> Stage {
        let calls: Vec<CallState> = node.calls.iter().map(|call| CallState::new(call, &node.frame)).collect();
        Stage {
            sorted: None,
            ahead: None,
            begun: false,
            partition: Partition::default(),
            at: 0,
            frames: None,
            moves_out: calls.iter().all(|call| !call.looks_back(&node.frame)),
            calls,
            bytes: 0,
        }
    }

    pub(super) fn release(&mut self, context: Context<'_>) {
        context.execution.runtime.release(self.bytes);
        self.bytes = 0;
    }

    fn reserve(&mut self, bytes: usize, context: Context<'_>) -> Result<()> {
        context.execution.reserve(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Puts the next row into `row`.
    pub(super) fn next(
        &mut self,
        node: &WindowNode,
        context: Context<'_>,
        input: Input<'_>,
        row: &mut Vec<Datum>,
    ) -> Result<bool> {
        if self.at == self.partition.rows.len() && !self.next_partition(node, context, input)? {
            return Ok(false);
        }
        context.execution.tick()?;
        let at = self.at;
        self.at += 1;
        let Some(frames) = &mut self.frames else { return Ok(false) };
        let place = frames.place(&node.frame, &node.order, &self.partition, at, context)?;
        let mut results = smallvec::SmallVec::<[Datum; 4]>::new();
        for (state, call) in self.calls.iter_mut().zip(&node.calls) {
            let held = state.held();
            results.push(state.result(call, &self.partition, &place, context)?);
            let held = state.held().saturating_sub(held);
            if held > 0 {
                context.execution.reserve(held)?;
                self.bytes += held;
            }
        }
        *row = match self.moves_out {
            true => std::mem::take(&mut self.partition.rows[at]),
            false => self.partition.rows[at].clone(),
        };
        for (result, call) in results.into_iter().zip(&node.calls) {
            row[call.place] = result;
        }
        Ok(true)
    }

    /// Reads the next partition. False if there is none.
    fn next_partition(&mut self, node: &WindowNode, context: Context<'_>, input: Input<'_>) -> Result<bool> {
        if !self.begun {
            self.begun = true;
            self.frames = Some(Frames::new(&node.frame, context)?);
            if !node.sort.is_empty() {
                self.sort(&node.sort, context, input)?;
            }
            self.ahead = self.read(context, input)?;
        }
        self.partition.clear();
        self.at = 0;
        if self.sorted.is_none() {
            // What is not sorted is accounted for by the partition.
            self.release(context);
        }
        let Some(first) = self.ahead.take() else { return Ok(false) };
        self.partition.push(first, &node.order);
        while let Some(row) = self.read(context, input)? {
            context.execution.tick()?;
            if compare_rows(&self.partition.rows[0], &row, &node.partition).is_ne() {
                self.ahead = Some(row);
                break;
            }
            if self.sorted.is_none() {
                self.reserve(row_bytes(&row), context)?;
            }
            self.partition.push(row, &node.order);
        }
        if let Some(frames) = &mut self.frames {
            frames.begin();
        }
        for (state, call) in self.calls.iter_mut().zip(&node.calls) {
            state.begin(call)?;
        }
        Ok(true)
    }

    /// The next row in the window's order.
    fn read(&mut self, context: Context<'_>, input: Input<'_>) -> Result<Option<Vec<Datum>>> {
        let _ = context;
        match &mut self.sorted {
            Some(rows) => Ok(rows.next()),
            None => {
                let mut row = vec![];
                Ok(input(&mut row)?.then_some(row))
            }
        }
    }

    fn sort(&mut self, keys: &[SortKey], context: Context<'_>, input: Input<'_>) -> Result<()> {
        let mut rows: Vec<Vec<Datum>> = vec![];
        let mut row = vec![];
        while input(&mut row)? {
            self.reserve(row_bytes(&row), context)?;
            rows.push(std::mem::take(&mut row));
        }
        sort_rows(&mut rows, context.execution, |a, b| compare_rows(a, b, keys))?;
        self.sorted = Some(rows.into_iter());
        Ok(())
    }
}
