//! Rows that are looked at again and again by their places, in pages, some of which may be on disk:
//! those of a window's partition, and those that a nested loop goes through for each outer row.
//!
//! A page is [`PAGE`] rows, or as many as take [`PAGE_BYTES`]. While rows come and memory is full,
//! the pages there are go to disk; a row of such a page is read with all of its page, and the pages
//! looked at last stay at hand. Window calls go forward with a few places at a time (the row, the
//! two ends of its frame, a neighbour) and loops with one, so that each page is read a few times
//! only, or once in each loop.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;

use super::Context;
use super::memory::row_bytes;
use super::spill::{Piece, Spill};
use crate::error::Result;
use crate::types::Datum;

/// Rows of a page at most.
const PAGE: usize = 64;
/// A page that takes so much is full, so that what is at hand stays small however large rows are.
const PAGE_BYTES: usize = 64 << 10;
/// Pages of the disk that stay at hand.
const AT_HAND: usize = 8;

type Row = Vec<Datum>;

/// Rows by their places.
#[derive(Default)]
pub(super) struct Rows {
    pages: Vec<Page>,
    length: usize,
    /// Some page before the last one has less than [`PAGE`] rows.
    is_uneven: bool,
    /// So many pages, the first ones, are on disk.
    on_disk: usize,
    /// Bytes accounted for rows in memory.
    bytes: usize,
    spill: Option<Spill>,
    /// Pages from disk with their numbers, the one looked at last at the end.
    at_hand: RefCell<Vec<(usize, Arc<Vec<Row>>)>>,
}

struct Page {
    /// The place of its first row.
    from: usize,
    /// Bytes accounted for its rows while they are in memory.
    bytes: usize,
    held: Held,
}

enum Held {
    Memory(Vec<Row>),
    Disk(Piece),
}

impl Page {
    fn is_full(&self) -> bool {
        match &self.held {
            Held::Memory(rows) => rows.len() == PAGE || self.bytes >= PAGE_BYTES,
            Held::Disk(_) => true,
        }
    }
}

/// A row that is looked at.
pub(super) enum Seen<'a> {
    Memory(&'a Row),
    Page(Arc<Vec<Row>>, usize),
}

impl Deref for Seen<'_> {
    type Target = Row;

    fn deref(&self) -> &Row {
        match self {
            Seen::Memory(row) => row,
            Seen::Page(page, at) => &page[*at],
        }
    }
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Gives the rows in memory back; each is a step. They are accounted for until they are
    /// forgotten, which is what follows.
    pub(super) fn give_back(&mut self, context: Context<'_>) -> Result<()> {
        while let Some(page) = self.pages.pop() {
            context.execution.tick()?;
            let Held::Memory(rows) = page.held else { continue };
            for row in rows {
                context.execution.tick()?;
                drop(row);
            }
        }
        Ok(())
    }

    /// Forgets all rows, and gives their memory back.
    pub(super) fn clear(&mut self, context: Context<'_>) {
        context.execution.runtime.release(self.bytes);
        *self = Rows::default();
    }

    /// One more row. Its memory is accounted for unless somebody else does.
    pub(super) fn push(&mut self, row: Row, is_accounted: bool, context: Context<'_>) -> Result<()> {
        let bytes = if is_accounted { 0 } else { row_bytes(&row) };
        if !is_accounted {
            if context.execution.is_tight(self.bytes, bytes) {
                self.write(context)?;
            }
            context.execution.reserve(bytes)?;
            self.bytes += bytes;
        }
        if self.pages.last().is_none_or(Page::is_full) {
            self.is_uneven |= !self.length.is_multiple_of(PAGE);
            self.pages.push(Page { from: self.length, bytes: 0, held: Held::Memory(Vec::new()) });
        }
        if let Some(Page { bytes: of_page, held: Held::Memory(rows), .. }) = self.pages.last_mut() {
            rows.push(row);
            *of_page += bytes;
        }
        self.length += 1;
        Ok(())
    }

    /// Puts all full pages on disk, if there is a place for files.
    fn write(&mut self, context: Context<'_>) -> Result<()> {
        if self.spill.is_none() {
            self.spill = Spill::create(context)?;
        }
        let Some(spill) = &mut self.spill else { return Ok(()) };
        for page in self.pages.iter_mut().skip(self.on_disk) {
            context.execution.tick()?;
            if !page.is_full() {
                break;
            }
            if let Held::Memory(rows) = &page.held {
                page.held = Held::Disk(spill.put(rows)?);
                context.execution.runtime.release(page.bytes);
                self.bytes -= page.bytes;
            }
            self.on_disk += 1;
        }
        Ok(())
    }

    /// The page that a place is in, and the place there.
    #[inline]
    fn find(&self, at: usize) -> (usize, usize) {
        if !self.is_uneven {
            return (at / PAGE, at % PAGE);
        }
        let number = self.pages.partition_point(|page| page.from <= at).saturating_sub(1);
        (number, at - self.pages[number].from)
    }

    /// The row at a place.
    #[inline]
    pub(super) fn row(&self, at: usize) -> Result<Seen<'_>> {
        let (number, within) = self.find(at);
        match &self.pages[number].held {
            Held::Memory(rows) => Ok(Seen::Memory(&rows[within])),
            Held::Disk(piece) => Ok(Seen::Page(self.page(number, *piece)?, within)),
        }
    }

    /// The row at a place, which is not looked at again.
    pub(super) fn take(&mut self, at: usize) -> Result<Row> {
        let (number, within) = self.find(at);
        if let Held::Memory(rows) = &mut self.pages[number].held {
            return Ok(std::mem::take(&mut rows[within]));
        }
        Ok(self.row(at)?.clone())
    }

    #[cold]
    fn page(&self, number: usize, piece: Piece) -> Result<Arc<Vec<Row>>> {
        let mut at_hand = self.at_hand.borrow_mut();
        let found = match at_hand.iter().position(|(known, _)| *known == number) {
            Some(place) => at_hand.remove(place).1,
            None => {
                let spill = self.spill.as_ref();
                Arc::new(spill.map(|spill| spill.get(piece)).transpose()?.unwrap_or_default())
            }
        };
        if at_hand.len() == AT_HAND {
            at_hand.remove(0);
        }
        at_hand.push((number, Arc::clone(&found)));
        Ok(found)
    }
}
