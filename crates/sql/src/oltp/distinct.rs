//! DISTINCT: the first row of each key, in the order of the input.
//!
//! Once memory is full no further key is noted: rows with new keys go to disk, divided by hash,
//! each with the number of its place in the input. Later one part after the other is rid of its
//! duplicates, and a sort by the numbers brings what is left in order again. All of it comes after
//! what was given while memory sufficed.
//!
//! ```text
//! a b a c b d     a and b fit: gives a b         parts: c(3) | d(5)          then, by number: c d
//! ```

use super::Context;
use super::keyed::Keyed;
use super::memory::row_bytes;
use super::node::NodeState;
use super::packed::pack;
use super::sorter::Sorter;
use super::spill::{DEPTH, Spill, Tape, part_of};
use crate::bind::SortKey;
use crate::error::Result;
use crate::plan::Node;
use crate::types::Datum;

/// Rows on disk begin with their number.
const BY_NUMBER: [SortKey; 1] = [SortKey { column: 0, descending: false, nulls_first: false }];

/// State of a DISTINCT.
pub(crate) struct DistinctState {
    input: NodeState,
    seen: Keyed<()>,
    /// The key of the present row.
    key: Vec<Datum>,
    /// Bytes accounted for what was seen.
    bytes: usize,
    disk: Option<Disk>,
    /// What the disk had, in order.
    rest: Option<Sorter>,
}

struct Disk {
    spill: Spill,
    tapes: Vec<Tape>,
    /// The number of the next row.
    number: i64,
}

impl DistinctState {
    pub(crate) fn new(input: &Node) -> DistinctState {
        DistinctState {
            input: NodeState::new(input),
            seen: Keyed::default(),
            key: vec![],
            bytes: 0,
            disk: None,
            rest: None,
        }
    }

    pub(crate) fn release(&mut self, context: Context<'_>) {
        context.execution.runtime.release(self.bytes);
        self.bytes = 0;
        self.seen.clear();
        self.disk = None;
        if let Some(rest) = &mut self.rest {
            rest.release(context);
        }
        self.input.release(context);
    }

    fn forget(&mut self, context: Context<'_>) -> Result<()> {
        context.execution.runtime.release(self.bytes);
        self.bytes = 0;
        self.seen.give_back(|| context.execution.tick())
    }

    /// Puts the next row into `out`.
    pub(crate) fn next(
        &mut self,
        input: &Node,
        columns: &[usize],
        context: Context<'_>,
        out: &mut Vec<Datum>,
    ) -> Result<bool> {
        while self.rest.is_none() {
            if !self.input.next(input, context, out)? {
                self.end(columns, context)?;
                break;
            }
            self.key.clear();
            self.key.extend(columns.iter().map(|column| out[*column].clone()));
            let packed = pack(self.key.iter());
            if self.seen.get(packed, &self.key).is_some() {
                continue;
            }
            if self.disk.is_none() && context.execution.is_tight(self.bytes, row_bytes(&self.key)) {
                let disk = |spill| Disk { spill, tapes: Tape::parts(), number: 0 };
                self.disk = Spill::create(context)?.map(disk);
            }
            let Some(disk) = &mut self.disk else {
                self.note(packed, context)?;
                return Ok(true);
            };
            let part = part_of(self.seen.hash(&self.key), 0);
            out.insert(0, Datum::Int8(disk.number));
            disk.number += 1;
            disk.tapes[part].write(out, &mut disk.spill)?;
        }
        let Some(rest) = &mut self.rest else { return Ok(false) };
        if !rest.next(&BY_NUMBER, context, out)? {
            return Ok(false);
        }
        out.remove(0);
        Ok(true)
    }

    /// The present row's key is known from now on.
    fn note(&mut self, packed: Option<u128>, context: Context<'_>) -> Result<()> {
        let bytes = row_bytes(&self.key);
        context.execution.reserve(bytes)?;
        self.bytes += bytes;
        self.seen.insert(packed, &self.key, ());
        Ok(())
    }

    /// The input is at its end: goes through what is on disk.
    fn end(&mut self, columns: &[usize], context: Context<'_>) -> Result<()> {
        let mut rest = Sorter::default();
        if let Some(Disk { mut spill, tapes, .. }) = self.disk.take() {
            let mut parts: Vec<(Tape, u32)> = tapes.into_iter().map(|tape| (tape, 1)).collect();
            while let Some((part, depth)) = parts.pop() {
                self.forget(context)?;
                self.part(part, depth, columns, (&mut spill, &mut parts), &mut rest, context)?;
            }
            self.forget(context)?;
        }
        rest.finish(&BY_NUMBER, context)?;
        self.rest = Some(rest);
        Ok(())
    }

    /// Takes the first row of each key from a part; what does not fit is divided again, for the
    /// `depth`th time.
    fn part(
        &mut self,
        part: Tape,
        depth: u32,
        columns: &[usize],
        (spill, parts): (&mut Spill, &mut Vec<(Tape, u32)>),
        rest: &mut Sorter,
        context: Context<'_>,
    ) -> Result<()> {
        let mut tapes: Option<Vec<Tape>> = None;
        let mut part = part.read();
        let mut row = vec![];
        while part.next(spill, &mut row)? {
            context.execution.tick()?;
            self.key.clear();
            self.key.extend(columns.iter().map(|column| row[*column + 1].clone()));
            let packed = pack(self.key.iter());
            if self.seen.get(packed, &self.key).is_some() {
                continue;
            }
            let tight = context.execution.is_tight(self.bytes, row_bytes(&self.key));
            if tapes.is_none() && depth <= DEPTH && tight && !self.seen.is_empty() {
                tapes = Some(Tape::parts());
            }
            match &mut tapes {
                Some(tapes) => {
                    let place = part_of(self.seen.hash(&self.key), depth);
                    tapes[place].write(&row, spill)?;
                }
                None => {
                    self.note(packed, context)?;
                    rest.push(std::mem::take(&mut row), &BY_NUMBER, None, context)?;
                }
            }
        }
        parts.extend(tapes.into_iter().flatten().map(|tape| (tape, depth + 1)));
        Ok(())
    }
}
