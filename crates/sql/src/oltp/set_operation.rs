//! UNION ALL, INTERSECT, EXCEPT. (UNION is DISTINCT over UNION ALL.)
//!
//! The rows of the right side are counted in a table, and those of the left are looked up in it as
//! they come. Once memory is full no further row enters the table: rows that are not in it go to
//! disk, divided by hash, those of both sides in the same way. When the left side is at its end,
//! one part after the other is worked on like the whole. No row is in two parts, nor in a part and
//! the table.
//!
//! ```text
//! a b c d EXCEPT b c x, two rows fit      table: b c      parts: right x    left: a | d       then: a, d
//! ```

use super::Context;
use super::keyed::Keyed;
use super::memory::row_bytes;
use super::node::NodeState;
use super::packed::pack;
use super::spill::{DEPTH, Spill, Tape, TapeReader, part_of};
use crate::bind::SetKind;
use crate::error::Result;
use crate::plan::Node;
use crate::types::Datum;

/// State of a set operation.
pub(crate) struct SetState {
    left: NodeState,
    right: NodeState,
    left_done: bool,
    /// How often each row is still to be matched.
    table: Keyed<usize>,
    /// The table has all it can have of the right side.
    counted: bool,
    bytes: usize,
    disk: Option<Box<Disk>>,
}

/// Rows that are not in the table.
struct Disk {
    spill: Spill,
    /// Those that are left by the present pass, of the right side and the left.
    tapes: Option<[Vec<Tape>; 2]>,
    /// What the present pass reads; nothing in the first one.
    read: Option<[TapeReader; 2]>,
    /// How often the rows of the present pass were divided.
    depth: u32,
    /// Parts to come, and how often they were divided.
    parts: Vec<([Tape; 2], u32)>,
}

const RIGHT: usize = 0;
const LEFT: usize = 1;

impl SetState {
    pub(crate) fn new(left: &Node, right: &Node) -> SetState {
        SetState {
            left: NodeState::new(left),
            right: NodeState::new(right),
            left_done: false,
            table: Keyed::default(),
            counted: false,
            bytes: 0,
            disk: None,
        }
    }

    pub(crate) fn release(&mut self, context: Context<'_>) {
        context.execution.runtime.release(self.bytes);
        self.bytes = 0;
        self.table.clear();
        self.disk = None;
        self.left.release(context);
        self.right.release(context);
    }

    fn forget(&mut self, context: Context<'_>) -> Result<()> {
        context.execution.runtime.release(self.bytes);
        self.bytes = 0;
        self.table.give_back(|| context.execution.tick())
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
            return self.next_of_both(left, right, context, out);
        }
        loop {
            if !self.counted {
                self.count(right, context, out)?;
                self.counted = true;
            }
            while self.read(LEFT, left, context, out)? {
                if self.is_wanted(kind, all, out, context)? {
                    return Ok(true);
                }
            }
            if !self.next_part(context)? {
                return Ok(false);
            }
        }
    }

    /// One side after the other.
    fn next_of_both(
        &mut self,
        left: &Node,
        right: &Node,
        context: Context<'_>,
        out: &mut Vec<Datum>,
    ) -> Result<bool> {
        self.left_done = self.left_done || !self.left.next(left, context, out)?;
        if self.left_done { self.right.next(right, context, out) } else { Ok(true) }
    }

    /// The next row of a side of the present pass.
    fn read(&mut self, side: usize, node: &Node, context: Context<'_>, row: &mut Vec<Datum>) -> Result<bool> {
        if let Some(disk) = &mut self.disk
            && let Some(read) = &mut disk.read
        {
            context.execution.tick()?;
            return read[side].next(&disk.spill, row);
        }
        let input = if side == LEFT { &mut self.left } else { &mut self.right };
        input.next(node, context, row)
    }

    /// Counts the rows of the right side, as many as memory suffices for.
    fn count(&mut self, right: &Node, context: Context<'_>, row: &mut Vec<Datum>) -> Result<()> {
        while self.read(RIGHT, right, context, row)? {
            let packed = pack(row.iter());
            if let Some(count) = self.table.get_mut(packed, row) {
                *count += 1;
            } else if !self.put_away(RIGHT, row, context)? {
                self.enter(packed, row, 1, context)?;
            }
        }
        Ok(())
    }

    /// Whether a row of the left side is part of the result.
    fn is_wanted(&mut self, kind: SetKind, all: bool, row: &[Datum], context: Context<'_>) -> Result<bool> {
        let intersects = kind == SetKind::Intersect;
        let packed = pack(row.iter());
        if let Some(count) = self.table.get_mut(packed, row) {
            let is_matched = *count > 0;
            // With ALL each row of the right side matches one of the left; otherwise INTERSECT
            // gives each row once.
            if is_matched && (all || intersects) {
                *count = if all { *count - 1 } else { 0 };
            }
            // A row that was given for want of one on the right is known from then on.
            return Ok(if intersects { is_matched } else { all && !is_matched });
        }
        let is_elsewhere = self.disk.as_ref().is_some_and(|disk| disk.tapes.is_some());
        if is_elsewhere || (!intersects && !all) {
            if self.put_away(LEFT, row, context)? {
                return Ok(false);
            }
            self.enter(packed, row, 0, context)?;
        }
        Ok(!intersects)
    }

    /// Notes a row in the table.
    fn enter(
        &mut self,
        packed: Option<u128>,
        row: &[Datum],
        count: usize,
        context: Context<'_>,
    ) -> Result<()> {
        let bytes = row_bytes(row);
        context.execution.reserve(bytes)?;
        self.bytes += bytes;
        self.table.insert(packed, row, count);
        Ok(())
    }

    /// Writes a row that is not in the table to disk, if the table is to take no more.
    fn put_away(&mut self, side: usize, row: &[Datum], context: Context<'_>) -> Result<bool> {
        if self.disk.as_ref().is_none_or(|disk| disk.tapes.is_none())
            && !self.begin_tapes(row_bytes(row), context)?
        {
            return Ok(false);
        }
        let hash = self.table.hash(row);
        let Some(disk) = &mut self.disk else { return Ok(false) };
        let Some(tapes) = &mut disk.tapes else { return Ok(false) };
        tapes[side][part_of(hash, disk.depth)].write(row, &mut disk.spill)?;
        Ok(true)
    }

    /// From now on rows go to disk, if so many bytes more are too many.
    fn begin_tapes(&mut self, more: usize, context: Context<'_>) -> Result<bool> {
        let depth = self.disk.as_ref().map_or(0, |disk| disk.depth);
        if depth > DEPTH || self.table.is_empty() || !context.execution.is_tight(self.bytes, more) {
            return Ok(false);
        }
        if self.disk.is_none() {
            let disk = |spill| Disk { spill, tapes: None, read: None, depth: 0, parts: vec![] };
            self.disk = Spill::create(context)?.map(|spill| Box::new(disk(spill)));
        }
        let Some(disk) = &mut self.disk else { return Ok(false) };
        disk.tapes = Some([Tape::parts(), Tape::parts()]);
        Ok(true)
    }

    /// Turns to the next part. False if there is none.
    fn next_part(&mut self, context: Context<'_>) -> Result<bool> {
        if self.disk.is_none() {
            return Ok(false);
        }
        self.forget(context)?;
        self.counted = false;
        let Some(disk) = &mut self.disk else { return Ok(false) };
        if let Some([right, left]) = disk.tapes.take() {
            let depth = disk.depth + 1;
            // Without rows on the left there is nothing to give.
            let parts = right.into_iter().zip(left).filter(|(_, left)| left.rows() > 0);
            disk.parts.extend(parts.map(|(right, left)| ([right, left], depth)));
        }
        let Some((part, depth)) = disk.parts.pop() else { return Ok(false) };
        disk.read = Some(part.map(Tape::read));
        disk.depth = depth;
        Ok(true)
    }
}
