//! The rows of a partition, in pages, some of which may be on disk.
//!
//! A page is [`PAGE`] rows. While the partition is read and memory is full, the pages there are go
//! to disk; a row of such a page is read with all of its page, and the pages looked at last stay at
//! hand. Calls go forward with a few places at a time (the row, the two ends of its frame, a
//! neighbour), so that each page is read a few times only.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;

use crate::error::Result;
use crate::oltp::Context;
use crate::oltp::memory::row_bytes;
use crate::oltp::spill::{Piece, Spill};
use crate::types::Datum;

/// Rows of a page.
const PAGE: usize = 64;
/// Pages of the disk that stay at hand.
const AT_HAND: usize = 8;

type Row = Vec<Datum>;

/// Rows by their places.
#[derive(Default)]
pub(super) struct Rows {
    pages: Vec<Page>,
    length: usize,
    /// Bytes accounted for rows in memory.
    bytes: usize,
    spill: Option<Spill>,
    /// Pages from disk with their numbers, the one looked at last at the end.
    at_hand: RefCell<Vec<(usize, Arc<Vec<Row>>)>>,
}

enum Page {
    Memory(Vec<Row>),
    Disk(Piece),
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
            let Page::Memory(rows) = page else { continue };
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
        if !is_accounted {
            let bytes = row_bytes(&row);
            if context.execution.is_tight(self.bytes, bytes) {
                self.write(context)?;
            }
            context.execution.reserve(bytes)?;
            self.bytes += bytes;
        }
        if self.length.is_multiple_of(PAGE) {
            self.pages.push(Page::Memory(Vec::new()));
        }
        if let Some(Page::Memory(rows)) = self.pages.last_mut() {
            rows.push(row);
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
        for page in &mut self.pages {
            context.execution.tick()?;
            if let Page::Memory(rows) = page
                && rows.len() == PAGE
            {
                let bytes: usize = rows.iter().map(|row| row_bytes(row)).sum();
                *page = Page::Disk(spill.put(rows)?);
                context.execution.runtime.release(bytes);
                self.bytes -= bytes;
            }
        }
        Ok(())
    }

    /// The row at a place.
    #[inline]
    pub(super) fn row(&self, at: usize) -> Result<Seen<'_>> {
        match &self.pages[at / PAGE] {
            Page::Memory(rows) => Ok(Seen::Memory(&rows[at % PAGE])),
            Page::Disk(piece) => Ok(Seen::Page(self.page(at / PAGE, *piece)?, at % PAGE)),
        }
    }

    /// The row at a place, which is not looked at again.
    pub(super) fn take(&mut self, at: usize) -> Result<Row> {
        if let Page::Memory(rows) = &mut self.pages[at / PAGE] {
            return Ok(std::mem::take(&mut rows[at % PAGE]));
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
