//! One window: sorts, cuts into partitions, computes.

use super::Input;
use super::call::CallState;
use super::first::First;
use super::frame::{Frames, Partition};
use crate::bind::SortKey;
use crate::error::Result;
use crate::oltp::Context;
use crate::oltp::sorter::Sorter;
use crate::plan::WindowNode;
use crate::types::Datum;

/// State of a window.
pub(super) struct Stage {
    /// All rows in order, if they had to be sorted.
    sorted: Option<Sorter>,
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
    /// Some call has to know which rows sort alike.
    has_peers: bool,
    bytes: usize,
}

impl Stage {
    pub(super) fn new(node: &WindowNode) -> Stage {
        let frame = &node.frame;
        let calls: Vec<CallState> = node.calls.iter().map(|call| CallState::new(call, frame)).collect();
        Stage {
            sorted: None,
            ahead: None,
            begun: false,
            partition: Partition::default(),
            at: 0,
            frames: None,
            has_peers: calls.iter().any(CallState::looks_around),
            // An end that is told by distance may be before the row, whoever looks at the frame.
            moves_out: !frame.is_by_distance() && calls.iter().all(|call| !call.looks_back(frame)),
            calls,
            bytes: 0,
        }
    }

    pub(super) fn release(&mut self, context: Context<'_>) {
        self.leave_partition(context);
        if let Some(sorted) = &mut self.sorted {
            sorted.release(context);
        }
    }

    /// Gives back what is accounted for the partition and its calls.
    fn leave_partition(&mut self, context: Context<'_>) {
        self.partition.clear(context);
        context.execution.runtime.release(self.bytes);
        self.bytes = 0;
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
            true => self.partition.rows.take(at)?,
            false => self.partition.rows.row(at)?.clone(),
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
                self.sort(node, context, input)?;
            }
            self.ahead = self.read(node, context, input)?;
        }
        self.at = 0;
        self.partition.give_back(context)?;
        self.leave_partition(context);
        // Rows that the sort holds are accounted for by it.
        let is_accounted = self.sorted.as_ref().is_some_and(Sorter::holds_rows);
        let Some(first) = self.ahead.take() else { return Ok(false) };
        let order = self.has_peers.then_some(&node.order[..]);
        let key: Vec<Datum> = node.partition.iter().map(|key| first[key.column].clone()).collect();
        self.partition.push(first, order, is_accounted, context)?;
        while let Some(row) = self.read(node, context, input)? {
            context.execution.tick()?;
            let is_same = |(key, value): (&SortKey, &Datum)| row[key.column] == *value;
            if !node.partition.iter().zip(&key).all(is_same) {
                self.ahead = Some(row);
                break;
            }
            self.partition.push(row, order, is_accounted, context)?;
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
    fn read(
        &mut self,
        node: &WindowNode,
        context: Context<'_>,
        input: Input<'_>,
    ) -> Result<Option<Vec<Datum>>> {
        let mut row = vec![];
        let found = match &mut self.sorted {
            Some(rows) => rows.next(&node.sort, context, &mut row)?,
            None => input(&mut row)?,
        };
        Ok(found.then_some(row))
    }

    fn sort(&mut self, node: &WindowNode, context: Context<'_>, input: Input<'_>) -> Result<()> {
        let mut first = First::new(node, context)?;
        let sorter = self.sorted.insert(Sorter::default());
        let mut row = vec![];
        while input(&mut row)? {
            let passes = match &mut first {
                Some(first) => first.passes(&row, node, context)?,
                None => Some(true),
            };
            match passes {
                Some(false) => continue,
                Some(true) => {}
                // All that is left is sorted.
                None => {
                    first.iter_mut().for_each(|first| first.release(context));
                    first = None;
                }
            }
            sorter.push(std::mem::take(&mut row), &node.sort, None, context)?;
        }
        first.iter_mut().for_each(|first| first.release(context));
        sorter.finish(&node.sort, context)
    }
}
