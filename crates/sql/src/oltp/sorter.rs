//! A sort of any size: rows in, rows out in order, with runs on disk where memory does not suffice.
//!
//! Rows that compare equal come out as they came in: runs are numbered in the order of their rows,
//! and of equal rows the one of the first run goes first.

use super::Context;
use super::memory::row_bytes;
use super::segmented::Segmented;
use super::sort::{compare_rows, key_prefix};
use super::spill::{Spill, Tape, TapeReader};
use crate::bind::SortKey;
use crate::error::Result;
use crate::merge_sort;
use crate::types::Datum;

/// Runs that are merged at a time; each has a block in memory.
const FAN_IN: usize = 32;

/// A row that takes part in the sort.
#[derive(Clone, Copy, Default)]
struct Entry {
    /// The first bytes of its keys. If those of two rows differ, so do the rows, in that order.
    prefix: u128,
    /// Its place among the rows.
    place: u32,
}

/// Rows of a run that is sorted at a time take no more, so that comparing them is no long step.
const RUN_BYTES: usize = 1 << 20;

/// What an entry takes while it is sorted.
const ENTRY_BYTES: usize = 2 * size_of::<Entry>();

/// Sorts rows.
#[derive(Default)]
pub(crate) struct Sorter {
    rows: Segmented<Vec<Datum>>,
    entries: Vec<Entry>,
    /// Comparing rows may be given up half-way.
    is_long: bool,
    /// Accounted for the rows in memory.
    bytes: usize,
    /// Rows behind this one are not wanted.
    cutoff: Option<u128>,
    /// The next entry to come out.
    at: usize,
    disk: Option<(Spill, Vec<Tape>)>,
    merge: Option<Merge>,
    key: Vec<u8>,
}

impl Sorter {
    /// Gives back the memory it accounts for, and its file.
    pub(crate) fn release(&mut self, context: Context<'_>) {
        context.execution.runtime.release(self.bytes);
        *self = Sorter::default();
    }

    /// Whether the rows that come out are in its memory, and accounted for, until all are out.
    pub(crate) fn holds_rows(&self) -> bool {
        self.merge.is_none()
    }

    fn prefix(&mut self, row: &[Datum], keys: &[SortKey]) -> u128 {
        key_prefix(row, keys, &mut self.key)
    }

    /// Takes a row. No more than the first `bound` rows are wanted.
    pub(crate) fn push(
        &mut self,
        row: Vec<Datum>,
        keys: &[SortKey],
        bound: Option<usize>,
        context: Context<'_>,
    ) -> Result<()> {
        let prefix = self.prefix(&row, keys);
        self.is_long |= keys.iter().any(|key| row[key.column].is_compared_at_length());
        if self.cutoff.is_some_and(|cutoff| prefix > cutoff) {
            return Ok(());
        }
        let bytes = row_bytes(&row) + ENTRY_BYTES;
        if context.execution.is_tight(self.bytes, bytes) {
            self.write_run(keys, context)?;
        }
        context.execution.reserve(bytes)?;
        self.bytes += bytes;
        self.entries.push(Entry { prefix, place: self.rows.len() as u32 });
        self.rows.push(row);
        // Twice the rows wanted are there: the worse half can go.
        match bound {
            Some(bound) if self.rows.len() >= bound.saturating_mul(2).max(1024) => {
                self.cut(bound, keys, context)
            }
            _ => Ok(()),
        }
    }

    fn sort(&mut self, keys: &[SortKey], context: Context<'_>) -> Result<()> {
        let rows = &self.rows;
        // The larger the rows, the longer may a comparison take. One that is given up must not be
        // in the sort of a run: where there may be such, all is done by merging.
        let longest = if self.is_long { 1 } else { merge_sort::RUN };
        let run = (RUN_BYTES * rows.len() / self.bytes.max(1)).clamp(1, longest);
        let go_on = || context.execution.tick();
        merge_sort::sort(&mut self.entries, run, go_on, |a, b| {
            let whole = || compare_rows(&rows[a.place as usize], &rows[b.place as usize], keys);
            a.prefix.cmp(&b.prefix).then_with(whole)
        })
    }

    /// Keeps the first rows only.
    fn cut(&mut self, bound: usize, keys: &[SortKey], context: Context<'_>) -> Result<()> {
        self.sort(keys, context)?;
        let mut kept = Vec::with_capacity(bound);
        for entry in self.entries.drain(..).take(bound) {
            context.execution.tick()?;
            kept.push((entry.prefix, std::mem::take(&mut self.rows[entry.place as usize])));
        }
        self.cutoff = kept.last().map(|(prefix, _)| *prefix);
        context.execution.runtime.release(self.bytes);
        self.bytes = 0;
        self.rows.give_back(|| context.execution.tick())?;
        for (prefix, row) in kept {
            context.execution.tick()?;
            let bytes = row_bytes(&row) + ENTRY_BYTES;
            context.execution.reserve(bytes)?;
            self.bytes += bytes;
            self.entries.push(Entry { prefix, place: self.rows.len() as u32 });
            self.rows.push(row);
        }
        Ok(())
    }

    /// Puts the rows in memory on disk, as one run. They stay where they are if there is no place
    /// for files.
    fn write_run(&mut self, keys: &[SortKey], context: Context<'_>) -> Result<()> {
        if self.disk.is_none() {
            self.disk = Spill::create(context)?.map(|spill| (spill, vec![]));
        }
        if self.disk.is_none() {
            return Ok(());
        }
        self.sort(keys, context)?;
        let Some((spill, runs)) = &mut self.disk else { return Ok(()) };
        let mut run = Tape::default();
        for entry in self.entries.drain(..) {
            context.execution.tick()?;
            run.write(&std::mem::take(&mut self.rows[entry.place as usize]), spill)?;
        }
        run.close(spill)?;
        runs.push(run);
        self.rows.give_back(|| context.execution.tick())?;
        context.execution.runtime.release(self.bytes);
        self.bytes = 0;
        Ok(())
    }

    /// All rows are there.
    pub(crate) fn finish(&mut self, keys: &[SortKey], context: Context<'_>) -> Result<()> {
        if self.disk.is_none() {
            return self.sort(keys, context);
        }
        self.write_run(keys, context)?;
        self.rows.give_back(|| context.execution.tick())?;
        self.entries = vec![];
        let Some((mut spill, mut runs)) = self.disk.take() else { return Ok(()) };
        while runs.len() > FAN_IN {
            // Into a file of their own: the one that is read can go then.
            let Some(mut next) = Spill::create(context)? else { break };
            let mut merged = vec![];
            let mut row = vec![];
            while !runs.is_empty() {
                let rest = runs.split_off(runs.len().min(FAN_IN));
                let mut merge = Merge::new(std::mem::replace(&mut runs, rest));
                let mut run = Tape::default();
                while merge.next(self, keys, &spill, &mut row)? {
                    context.execution.tick()?;
                    run.write(&row, &mut next)?;
                }
                run.close(&mut next)?;
                merged.push(run);
            }
            (spill, runs) = (next, merged);
        }
        self.merge = Some(Merge::new(runs));
        self.disk = Some((spill, vec![]));
        Ok(())
    }

    /// Puts the next row into `out`. False at the end.
    pub(crate) fn next(
        &mut self,
        keys: &[SortKey],
        context: Context<'_>,
        out: &mut Vec<Datum>,
    ) -> Result<bool> {
        if let (Some(mut merge), Some((spill, _))) = (self.merge.take(), self.disk.take()) {
            context.execution.tick()?;
            let found = merge.next(self, keys, &spill, out);
            (self.merge, self.disk) = (Some(merge), Some((spill, vec![])));
            return found;
        }
        let Some(entry) = self.entries.get(self.at) else { return Ok(false) };
        self.at += 1;
        *out = std::mem::take(&mut self.rows[entry.place as usize]);
        Ok(true)
    }
}

/// Sorted runs on their way to one.
struct Merge {
    /// In the order of their rows.
    runs: Vec<Head>,
    begun: bool,
}

/// A run, and its next row.
struct Head {
    run: TapeReader,
    prefix: u128,
    row: Vec<Datum>,
}

impl Merge {
    fn new(runs: Vec<Tape>) -> Merge {
        let head = |run: Tape| Head { run: run.read(), prefix: 0, row: vec![] };
        Merge { runs: runs.into_iter().map(head).collect(), begun: false }
    }

    fn next(
        &mut self,
        sorter: &mut Sorter,
        keys: &[SortKey],
        spill: &Spill,
        out: &mut Vec<Datum>,
    ) -> Result<bool> {
        if !self.begun {
            self.begun = true;
            for place in (0..self.runs.len()).rev() {
                self.advance(place, sorter, keys, spill)?;
            }
        }
        let mut first = 0;
        for place in 1..self.runs.len() {
            let (best, next) = (&self.runs[first], &self.runs[place]);
            let whole = || compare_rows(&next.row, &best.row, keys);
            if next.prefix.cmp(&best.prefix).then_with(whole).is_lt() {
                first = place;
            }
        }
        let Some(head) = self.runs.get_mut(first) else { return Ok(false) };
        std::mem::swap(out, &mut head.row);
        self.advance(first, sorter, keys, spill)?;
        Ok(true)
    }

    /// Reads the next row of a run; a run without one goes.
    fn advance(&mut self, place: usize, sorter: &mut Sorter, keys: &[SortKey], spill: &Spill) -> Result<()> {
        let head = &mut self.runs[place];
        if head.run.next(spill, &mut head.row)? {
            head.prefix = sorter.prefix(&head.row, keys);
        } else {
            self.runs.remove(place);
        }
        Ok(())
    }
}
