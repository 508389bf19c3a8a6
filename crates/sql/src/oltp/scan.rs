//! Reading a stored table: by key, by ranges of the table's tree, or by ranges of an index.

use bytes::Bytes;
use cognate_engine::Lent;

use super::key_range::{self, Prefixes, Range};
use super::{Context, change};
use crate::error::{Result, SqlError};
use crate::expr::{Env, RowScan, ScanParts, place_of};
use crate::plan::{AccessKind, Scan, ScanColumn};
use crate::row::Row;
use crate::types::Datum;

/// Takes a row that is in the frame. The stored row is there as well if columns of it were left to
/// who takes it.
pub(crate) type Take<'a> = dyn FnMut(Option<&Row<'_>>, &mut [Datum]) -> Result<()> + 'a;

/// The columns of a scan that its conditions do not look at, divided: those that are read of each
/// row, and those that are left to who takes the rows.
pub(crate) struct LateColumns<'a> {
    soon: Vec<&'a ScanColumn>,
    late: Vec<&'a ScanColumn>,
}

impl<'a> LateColumns<'a> {
    /// Leaves those for some places. None if there are none of them.
    pub(crate) fn new(scan: &'a Scan, is_late: impl Fn(usize) -> bool) -> Option<LateColumns<'a>> {
        if scan.key_slot.is_some() {
            return None;
        }
        let others = scan.columns[looked_at(scan)..].iter();
        let (late, soon): (Vec<_>, Vec<_>) = others.partition(|column| is_late(column.slot));
        (!late.is_empty()).then_some(LateColumns { soon, late })
    }

    /// Reads what was left of a row into the frame.
    pub(crate) fn read(&self, row: &Row<'_>, frame: &mut [Datum]) -> Result<()> {
        load_columns(self.late.iter().copied(), row, frame)
    }
}

/// State of reading a table.
pub(crate) struct ScanState {
    stage: Stage,
    /// What is still to be read.
    pending: Prefixes,
}

enum Stage {
    /// Nothing computed yet.
    Fresh,
    /// Single keys, from `pending`.
    Keys,
    /// Within a range.
    Range(Box<dyn RowScan>),
    /// Between two ranges.
    Between,
    Done,
}

impl ScanState {
    pub(crate) fn new() -> ScanState {
        ScanState { stage: Stage::Fresh, pending: Prefixes::default() }
    }

    /// Starts again, with the frame's values then.
    pub(crate) fn rewind(&mut self, context: Context<'_>) {
        self.release(context);
        self.stage = Stage::Fresh;
    }

    /// Gives back the memory it accounts for.
    pub(crate) fn release(&mut self, context: Context<'_>) {
        self.pending.release(context.execution);
    }

    /// Puts the next row that passes the filter into the frame.
    pub(crate) fn next(&mut self, scan: &Scan, context: Context<'_>, frame: &mut [Datum]) -> Result<bool> {
        while self.fetch(scan, context, frame)? {
            let tally = context.execution.step()?;
            // Rows of a range of the table were tested while they were read.
            if matches!((&self.stage, &scan.access.kind), (Stage::Range(_), AccessKind::Table))
                || passes(scan, &context.env(frame))?
            {
                return Ok(true);
            }
            if let Some(tally) = tally {
                tally.note_removed(place_of(scan));
            }
        }
        Ok(false)
    }

    /// Gives `take` each row that passes the filter, in the frame. Those of a range of the table
    /// are not asked for one by one: each would have to find its way down to the storage anew. Of
    /// these, columns may be left to `take`. True if it pauses since `most` rows of a range were
    /// read, and there may be more.
    pub(crate) fn for_each(
        &mut self,
        scan: &Scan,
        late: Option<&LateColumns<'_>>,
        most: usize,
        context: Context<'_>,
        frame: &mut [Datum],
        take: &mut Take<'_>,
    ) -> Result<bool> {
        loop {
            while matches!(self.stage, Stage::Fresh | Stage::Between) {
                self.begin_next(scan, context, frame)?;
            }
            if let (Stage::Range(open), AccessKind::Table) = (&mut self.stage, &scan.access.kind) {
                let mut left = most;
                let is_enough = || {
                    left -= 1;
                    left == 0
                };
                if read(scan, &mut **open, late, is_enough, context, frame, take)? {
                    return Ok(true);
                }
                self.stage = Stage::Between;
                continue;
            }
            context.execution.tick()?;
            if !self.next(scan, context, frame)? {
                return Ok(false);
            }
            take(None, frame)?;
        }
    }

    /// Divides what is left of the range it is in into so many parts at most, and leaves them to
    /// others. None if that cannot be.
    pub(super) fn divide(&mut self, parts: usize) -> Result<Option<Box<dyn ScanParts>>> {
        let Stage::Range(open) = &mut self.stage else { return Ok(None) };
        let parts = open.divide(parts)?;
        if parts.is_some() {
            self.stage = Stage::Between;
        }
        Ok(parts)
    }

    /// Computes what is to be read, or opens the next range.
    #[inline(never)]
    fn begin_next(&mut self, scan: &Scan, context: Context<'_>, frame: &[Datum]) -> Result<()> {
        if matches!(self.stage, Stage::Fresh) {
            self.pending = key_range::prefixes(&scan.access, &context.env(frame))?;
            self.stage = if scan.access.unique { Stage::Keys } else { Stage::Between };
            return Ok(());
        }
        let Some(prefix) = self.pending.next() else {
            self.stage = Stage::Done;
            return Ok(());
        };
        // There may be very many ranges, and nothing in any of them.
        context.execution.tick()?;
        let range = key_range::range(&prefix, scan.access.range.as_ref(), &context.env(frame))?;
        if let Some(range) = range {
            self.stage = Stage::Range(open(scan, &range, context, frame)?);
            note(scan, context, (1, 0, 0));
        }
        Ok(())
    }

    /// Puts the next row into the frame.
    fn fetch(&mut self, scan: &Scan, context: Context<'_>, frame: &mut [Datum]) -> Result<bool> {
        let reader = context.execution.read.reader;
        loop {
            match &mut self.stage {
                Stage::Fresh | Stage::Between => self.begin_next(scan, context, frame)?,
                Stage::Keys => {
                    let Some(key) = self.pending.next() else {
                        self.stage = Stage::Done;
                        continue;
                    };
                    let found = match &scan.access.kind {
                        AccessKind::Table => by_key(scan, &key, context, frame)?,
                        AccessKind::Index(index) => match reader.get(index.tree, &key)? {
                            Some(entry) => by_key(scan, index.row_key(&key, &entry)?, context, frame)?,
                            None => false,
                        },
                    };
                    note(scan, context, (1, found.into(), found.into()));
                    if found {
                        return Ok(true);
                    }
                    context.execution.tick()?;
                }
                Stage::Range(open) => {
                    let (mut entries, mut gone) = (0, 0);
                    let found = open.find(&mut |key, value| {
                        entries += 1;
                        let found = match &scan.access.kind {
                            AccessKind::Table => load_passing(scan, key, value, context, frame)?,
                            AccessKind::Index(index) => {
                                let found = by_key(scan, index.row_key(key, &value)?, context, frame)?;
                                gone += u64::from(!found);
                                found
                            }
                        };
                        // Only a row of the table was there, and did not pass.
                        if !found
                            && let Some(tally) = context.execution.step()?
                            && matches!(scan.access.kind, AccessKind::Table)
                        {
                            tally.note_removed(place_of(scan));
                        }
                        Ok(found)
                    });
                    note(scan, context, (0, entries, entries - gone));
                    if found? {
                        return Ok(true);
                    }
                    self.stage = Stage::Between;
                }
                Stage::Done => return Ok(false),
            }
        }
    }
}

/// Gives `take` the rows of an open range of the table that pass the filter, in the frame. True if
/// it pauses since it is enough, which is asked behind each row that was read, and there may be
/// more.
pub(super) fn read(
    scan: &Scan,
    open: &mut dyn RowScan,
    late: Option<&LateColumns<'_>>,
    mut is_enough: impl FnMut() -> bool,
    context: Context<'_>,
    frame: &mut [Datum],
    take: &mut Take<'_>,
) -> Result<bool> {
    let mut rows = 0;
    let pauses = open.find(&mut |key, row| {
        rows += 1;
        let tally = context.execution.step()?;
        // A row that passes is two steps here, too.
        if let Some(late) = late {
            let opened = scan.table.layout().open(row);
            let stored = opened.as_ref().map_err(SqlError::clone)?;
            if load_looked_at(scan, stored, context, frame)? {
                context.execution.tick()?;
                load_columns(late.soon.iter().copied(), stored, frame)?;
                take(Some(stored), frame)?;
                return Ok(is_enough());
            }
        } else if load_passing(scan, key, row, context, frame)? {
            context.execution.tick()?;
            take(None, frame)?;
            return Ok(is_enough());
        }
        if let Some(tally) = tally {
            tally.note_removed(place_of(scan));
        }
        Ok(is_enough())
    });
    note(scan, context, (0, rows, rows));
    pauses
}

/// Counts scans, the rows or entries that these have met, and the rows that they were led to: of
/// the index that they go by, be it the primary key's, or of the table if that is read as a whole.
fn note(scan: &Scan, context: Context<'_>, (scans, read, fetched): (u64, u64, u64)) {
    let access = &scan.access;
    let index = match &access.kind {
        AccessKind::Index(index) => Some(index.oid),
        AccessKind::Table if access.parts.is_empty() && access.range.is_none() => None,
        AccessKind::Table => scan.table.primary_key().map(|index| index.oid),
    };
    context.execution.count(index.unwrap_or(scan.table.oid), |counts| {
        counts.scans += scans;
        counts.read += read;
        // Rows that no index leads to are read where they are.
        counts.fetched += if index.is_some() { fetched } else { 0 };
    });
}

/// Entries of an index are read as a whole; they change only if a column of the index does.
#[inline(never)]
fn open(scan: &Scan, range: &Range, context: Context<'_>, frame: &[Datum]) -> Result<Box<dyn RowScan>> {
    let (reader, reverse) = (context.execution.read.reader, scan.access.reverse);
    let (lower, upper) = range.bounds();
    match &scan.access.kind {
        AccessKind::Table => {
            let interest = || change::interest(scan, &context.env(frame));
            reader.scan_for(scan.table.tree, (lower, upper), reverse, &interest)
        }
        AccessKind::Index(index) => reader.scan(index.tree, lower, upper, reverse),
    }
}

/// Puts the row with this key into the frame. There is none if an index entry led here and the
/// transaction itself has deleted the row since the scan was opened.
fn by_key(scan: &Scan, key: &[u8], context: Context<'_>, frame: &mut [Datum]) -> Result<bool> {
    let mut loaded = Ok(());
    let reader = context.execution.read.reader;
    let found = reader.lend_columns(scan.table.tree, key, scan.reads, &mut |row| {
        loaded = load(scan, key, row, frame);
    })?;
    loaded.map(|()| found)
}

/// Reads the needed columns of a row into the frame if it passes the filter, and of another row
/// only what the conditions look at.
#[inline]
fn load_passing(
    scan: &Scan,
    key: &[u8],
    row: Lent<'_>,
    context: Context<'_>,
    frame: &mut [Datum],
) -> Result<bool> {
    if scan.filter.is_empty() || scan.key_slot.is_some() {
        load(scan, key, row, frame)?;
        return passes(scan, &context.env(frame));
    }
    let opened = scan.table.layout().open(row);
    let stored = opened.as_ref().map_err(SqlError::clone)?;
    if !load_looked_at(scan, stored, context, frame)? {
        return Ok(false);
    }
    load_columns(&scan.columns[looked_at(scan)..], stored, frame)?;
    Ok(true)
}

/// How many of its columns a scan's conditions look at.
#[inline]
fn looked_at(scan: &Scan) -> usize {
    scan.looked_at.last().copied().unwrap_or(0)
}

/// Reads what the conditions look at, as far as it is needed to tell whether a row passes.
#[inline]
fn load_looked_at(scan: &Scan, stored: &Row<'_>, context: Context<'_>, frame: &mut [Datum]) -> Result<bool> {
    let mut read = 0;
    for (condition, upto) in scan.filter.iter().zip(&scan.looked_at) {
        load_columns(&scan.columns[read..*upto], stored, frame)?;
        read = *upto;
        if !condition.test(&context.env(frame))? {
            return Ok(false);
        }
    }
    Ok(true)
}

#[inline]
fn load_columns<'a>(
    columns: impl IntoIterator<Item = &'a ScanColumn>,
    stored: &Row<'_>,
    frame: &mut [Datum],
) -> Result<()> {
    for column in columns {
        let place = &mut frame[column.slot];
        if !stored.read(column.column, place)? {
            *place = column.missing.clone();
        }
    }
    Ok(())
}

/// Reads the needed columns of a row into the frame.
#[inline]
pub(crate) fn load(scan: &Scan, key: &[u8], row: Lent<'_>, frame: &mut [Datum]) -> Result<()> {
    if !scan.columns.is_empty() {
        let opened = scan.table.layout().open(row);
        load_columns(&scan.columns, opened.as_ref().map_err(SqlError::clone)?, frame)?;
    }
    if let Some(slot) = scan.key_slot {
        frame[slot] = Datum::Bytea(Bytes::copy_from_slice(key));
    }
    Ok(())
}

fn passes(scan: &Scan, env: &Env<'_>) -> Result<bool> {
    for condition in &scan.filter {
        if !condition.test(env)? {
            return Ok(false);
        }
    }
    Ok(true)
}
