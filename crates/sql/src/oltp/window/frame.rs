//! Frames: which rows of its partition a row looks at.
//!
//! A frame is a range of places, and what EXCLUDE leaves out of it. Its two ends only move forward
//! from one row to the next, since offsets are the same for all rows; so finding all frames of a
//! partition takes time in proportion to its rows, in all modes.

use super::range::in_range;
use crate::bind::{Exclusion, Frame, FrameBound, FrameMode, SortKey};
use crate::error::{Result, SqlError, sqlstate};
use crate::oltp::Context;
use crate::oltp::pages::Rows;
use crate::oltp::sort::compare_rows;
use crate::types::Datum;

/// The rows of a partition, in the window's order.
#[derive(Default)]
pub(super) struct Partition {
    pub(super) rows: Rows,
    /// Where each group of rows begins that sort alike.
    pub(super) groups: Vec<usize>,
}

impl Partition {
    /// Gives its rows back, each of which is a step, before it is emptied.
    pub(super) fn give_back(&mut self, context: Context<'_>) -> Result<()> {
        self.rows.give_back(context)
    }

    pub(super) fn clear(&mut self, context: Context<'_>) {
        self.rows.clear(context);
        self.groups.clear();
    }

    /// One more row. Without ORDER BY all sort alike; without `order` no one asks.
    pub(super) fn push(
        &mut self,
        row: Vec<Datum>,
        order: Option<&[SortKey]>,
        is_accounted: bool,
        context: Context<'_>,
    ) -> Result<()> {
        let at = self.rows.len();
        let begins = match order {
            Some(order) if at > 0 => compare_rows(&self.rows.row(at - 1)?, &row, order).is_ne(),
            _ => at == 0,
        };
        if begins {
            self.groups.push(at);
        }
        self.rows.push(row, is_accounted, context)
    }

    /// Where a group begins; the end of the partition for one that is not there.
    fn group(&self, group: usize) -> usize {
        self.groups.get(group).copied().unwrap_or(self.rows.len())
    }
}

/// A row and what is around it.
pub(super) struct Place {
    /// The row.
    pub(super) at: usize,
    /// Its group of rows that sort alike: which one it is, and its rows.
    pub(super) group: usize,
    pub(super) peers: (usize, usize),
    /// The frame: the first row and the one after the last. It may be empty.
    pub(super) frame: (usize, usize),
    exclusion: Exclusion,
}

impl Place {
    /// The rows of the frame that are not excluded, as up to three ranges.
    pub(super) fn ranges(&self) -> [(usize, usize); 3] {
        let (head, tail) = (self.frame.0, self.frame.1.max(self.frame.0));
        let (from, to) = match self.exclusion {
            Exclusion::None => return [(head, tail), (tail, tail), (tail, tail)],
            Exclusion::CurrentRow => (self.at, self.at + 1),
            Exclusion::Group | Exclusion::Ties => self.peers,
        };
        let itself = self.exclusion == Exclusion::Ties && (head..tail).contains(&self.at);
        [
            (head, tail.min(from).max(head)),
            if itself { (self.at, self.at + 1) } else { (tail, tail) },
            (head.max(to).min(tail), tail),
        ]
    }
}

/// Finds frames.
pub(super) struct Frames {
    /// The offsets: of ROWS and GROUPS as numbers.
    start: Datum,
    end: Datum,
    /// The ends of the frame before, and the current group.
    head: usize,
    tail: usize,
    group: usize,
}

/// The offset of one end.
fn offset(bound: &FrameBound, mode: FrameMode, end: &str, context: Context<'_>) -> Result<Datum> {
    let Some(expr) = bound.offset() else { return Ok(Datum::Null) };
    let value = expr.eval(&context.env(&[]))?;
    if value.is_null() {
        let message = format!("frame {end} offset must not be null");
        return Err(SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, message));
    }
    if mode != FrameMode::Range && value.as_i64().is_some_and(|value| value < 0) {
        let message = format!("frame {end} offset must not be negative");
        return Err(SqlError::new(sqlstate::INVALID_PRECEDING_OR_FOLLOWING_SIZE, message));
    }
    Ok(value)
}

fn count(offset: &Datum) -> usize {
    offset.as_i64().and_then(|value| usize::try_from(value).ok()).unwrap_or(0)
}

impl Frames {
    pub(super) fn new(frame: &Frame, context: Context<'_>) -> Result<Frames> {
        Ok(Frames {
            start: offset(&frame.start, frame.mode, "starting", context)?,
            end: offset(&frame.end, frame.mode, "ending", context)?,
            head: 0,
            tail: 0,
            group: 0,
        })
    }

    /// A partition begins.
    pub(super) fn begin(&mut self) {
        (self.head, self.tail, self.group) = (0, 0, 0);
    }

    /// What is around the row `at`. Rows are asked for one after the other.
    pub(super) fn place(
        &mut self,
        frame: &Frame,
        order: &[SortKey],
        partition: &Partition,
        at: usize,
        context: Context<'_>,
    ) -> Result<Place> {
        if partition.group(self.group + 1) <= at {
            self.group += 1;
        }
        let peers = (partition.group(self.group), partition.group(self.group + 1));
        let rows = partition.rows.len();
        self.head = match (&frame.start, frame.mode) {
            (FrameBound::Unbounded, _) => 0,
            (FrameBound::Current, FrameMode::Rows) => at,
            (FrameBound::Current, _) => peers.0,
            (FrameBound::Preceding(_), FrameMode::Rows) => at.saturating_sub(count(&self.start)),
            (FrameBound::Following(_), FrameMode::Rows) => at.saturating_add(count(&self.start)).min(rows),
            (FrameBound::Preceding(_), FrameMode::Groups) => {
                partition.group(self.group.saturating_sub(count(&self.start)))
            }
            (FrameBound::Following(_), FrameMode::Groups) => {
                partition.group(self.group.saturating_add(count(&self.start)))
            }
            (bound, FrameMode::Range) => self.range_end(bound, true, order, partition, at, context)?,
        };
        self.tail = match (&frame.end, frame.mode) {
            (FrameBound::Unbounded, _) => rows,
            (FrameBound::Current, FrameMode::Rows) => at + 1,
            (FrameBound::Current, _) => peers.1,
            (FrameBound::Preceding(_), FrameMode::Rows) => (at + 1).saturating_sub(count(&self.end)),
            (FrameBound::Following(_), FrameMode::Rows) => {
                (at + 1).saturating_add(count(&self.end)).min(rows)
            }
            (FrameBound::Preceding(_), FrameMode::Groups) => {
                partition.group((self.group + 1).saturating_sub(count(&self.end)))
            }
            (FrameBound::Following(_), FrameMode::Groups) => {
                partition.group((self.group + 1).saturating_add(count(&self.end)))
            }
            (bound, FrameMode::Range) => self.range_end(bound, false, order, partition, at, context)?,
        };
        Ok(Place { at, group: self.group, peers, frame: (self.head, self.tail), exclusion: frame.exclusion })
    }

    /// An end of a frame by distance: the first row, or the one after the last, whose key is no
    /// further away than the offset. NULLs are at no distance from each other, and beyond all
    /// others on their side.
    fn range_end(
        &self,
        bound: &FrameBound,
        is_start: bool,
        order: &[SortKey],
        partition: &Partition,
        at: usize,
        context: Context<'_>,
    ) -> Result<usize> {
        let key = order.first().ok_or_else(|| SqlError::internal("a distance without a sort key"))?;
        let offset = if is_start { &self.start } else { &self.end };
        let preceding = matches!(bound, FrameBound::Preceding(_));
        // The key minus the offset, if that is where the frame's end lies in the sort's direction.
        let subtract = preceding != key.descending;
        let at_most = is_start == key.descending;
        let current = &partition.rows.row(at)?[key.column];
        let mut end = if is_start { self.head } else { self.tail };
        while end < partition.rows.len() {
            let row = partition.rows.row(end)?;
            let value = &row[key.column];
            let passes = match (value.is_null(), current.is_null(), is_start) {
                (false, false, true) => !in_range(value, current, offset, subtract, at_most, context)?,
                (false, false, false) => in_range(value, current, offset, subtract, at_most, context)?,
                (value_null, current_null, true) => match key.nulls_first {
                    true => value_null && !current_null,
                    false => !value_null && current_null,
                },
                (value_null, current_null, false) => match key.nulls_first {
                    true => value_null,
                    false => current_null,
                },
            };
            if !passes {
                break;
            }
            end += 1;
        }
        Ok(end)
    }
}
