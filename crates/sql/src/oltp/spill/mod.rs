//! What does not fit into a statement's memory: rows on disk.
//!
//! A [`Spill`] is one temporary file, removed with it; a [`Tape`] is a sequence of rows in it. Many
//! tapes grow in one file side by side: each gathers whole rows in a block of its own and puts the
//! block at the file's end when it is full. A tape is read from its first block to its last.
//!
//! ```text
//! tape 0 gathers a b c, tape 1 gathers x y      file: -
//! tape 0 is full                                file: [a b c]
//! tape 1 is full, then tape 0                   file: [a b c] [x y] [d e]      tape 0 is blocks 0 and 2
//! ```
//!
//! Whoever holds rows spills when [`Execution::is_tight`] says so; without a place for files it
//! goes on to its limit and fails there with 53200.

mod codec;

use cognate_engine::TemporaryFile;

use super::Context;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::Execution;
use crate::types::{Datum, Shape};

/// A block is written when it has so many bytes.
const BLOCK: usize = 16 << 10;

/// Parts that rows are divided into by the hash of their keys.
pub(super) const PARTS: usize = 16;
/// How often a part is divided again. Rows that are together still have one key, or are as many as
/// no memory was made for.
pub(super) const DEPTH: u32 = 6;

/// The part of a hash, where rows are divided for the `depth`th time.
pub(super) fn part_of(hash: u64, depth: u32) -> usize {
    (hash >> (60 - 4 * depth)) as usize % PARTS
}

/// A file of rows.
pub(super) struct Spill {
    file: TemporaryFile,
    /// The shapes of the records among the values.
    shapes: Vec<Shape>,
}

impl Spill {
    /// A new one; none if there is no place for files.
    pub(super) fn create(context: Context<'_>) -> Result<Option<Spill>> {
        let file = context.execution.read.reader.temporary_file()?;
        Ok(file.map(|file| Spill { file, shapes: vec![] }))
    }

    /// Writes some rows that will be read together, any number of times.
    pub(super) fn put(&mut self, rows: &[Vec<Datum>]) -> Result<Piece> {
        let mut bytes = vec![];
        for row in rows {
            codec::put_row(row, &mut self.shapes, &mut bytes);
        }
        Ok(Piece { at: self.file.append(&bytes)?, length: bytes.len() })
    }

    /// Reads them.
    pub(super) fn get(&self, piece: Piece) -> Result<Vec<Vec<Datum>>> {
        let mut bytes = vec![0; piece.length];
        self.file.read(&mut bytes, piece.at)?;
        let mut rest = &bytes[..];
        let mut rows = vec![];
        while !rest.is_empty() {
            let mut row = vec![];
            codec::take_row(&mut rest, &self.shapes, &mut row).ok_or_else(unreadable)?;
            rows.push(row);
        }
        Ok(rows)
    }
}

/// Some rows in a file.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    at: u64,
    length: usize,
}

fn unreadable() -> SqlError {
    // It says something of this node's disk.
    SqlError::new(sqlstate::IO_ERROR, "a temporary file is not what was written")
}

/// Rows in a file, those of the last block still in memory.
#[derive(Default)]
pub(super) struct Tape {
    /// Places and lengths of the blocks.
    blocks: Vec<(u64, usize)>,
    gathered: Vec<u8>,
    rows: u64,
}

impl Tape {
    /// Empty tapes, one for each part.
    pub(super) fn parts() -> Vec<Tape> {
        (0..PARTS).map(|_| Tape::default()).collect()
    }

    /// So many rows.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds a row.
    pub(super) fn write(&mut self, row: &[Datum], spill: &mut Spill) -> Result<()> {
        codec::put_row(row, &mut spill.shapes, &mut self.gathered);
        self.rows += 1;
        if self.gathered.len() >= BLOCK { self.flush(spill) } else { Ok(()) }
    }

    fn flush(&mut self, spill: &mut Spill) -> Result<()> {
        if !self.gathered.is_empty() {
            let at = spill.file.append(&self.gathered)?;
            self.blocks.push((at, self.gathered.len()));
            self.gathered.clear();
        }
        Ok(())
    }

    /// No row follows: gives the memory of its last block back.
    pub(super) fn close(&mut self, spill: &mut Spill) -> Result<()> {
        self.flush(spill)?;
        self.gathered = vec![];
        Ok(())
    }

    /// Reads the rows from the first to the last.
    pub(super) fn read(mut self) -> TapeReader {
        TapeReader {
            last: std::mem::take(&mut self.gathered),
            blocks: self.blocks.into_iter(),
            block: vec![],
            at: 0,
        }
    }
}

/// A tape being read.
pub(super) struct TapeReader {
    blocks: std::vec::IntoIter<(u64, usize)>,
    /// What was not written yet.
    last: Vec<u8>,
    block: Vec<u8>,
    /// The next row in the block.
    at: usize,
}

impl TapeReader {
    /// Puts the next row into `row`. False at the end.
    pub(super) fn next(&mut self, spill: &Spill, row: &mut Vec<Datum>) -> Result<bool> {
        if self.at == self.block.len() {
            self.at = 0;
            self.block.clear();
            match self.blocks.next() {
                Some((at, length)) => {
                    self.block.resize(length, 0);
                    spill.file.read(&mut self.block, at)?;
                }
                None => self.block = std::mem::take(&mut self.last),
            }
            if self.block.is_empty() {
                return Ok(false);
            }
        }
        let mut rest = &self.block[self.at..];
        let read = codec::take_row(&mut rest, &spill.shapes, row);
        read.ok_or_else(unreadable)?;
        self.at = self.block.len() - rest.len();
        Ok(true)
    }
}

impl Execution<'_> {
    /// Whether who holds `own` bytes should put them on disk before taking `more`: they would be
    /// most of what the statement may hold, or all of the statement's holders together are near its
    /// limit.
    #[inline]
    pub(super) fn is_tight(&self, own: usize, more: usize) -> bool {
        let limit = self.read.memory_limit;
        own.saturating_add(more) > limit / 4 * 3
            || (own > limit / 256 && self.runtime.memory().saturating_add(more) > limit / 8 * 7)
    }
}

#[cfg(test)]
mod tests;
