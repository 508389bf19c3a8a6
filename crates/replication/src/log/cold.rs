//! Reads records back from the log's segments, for who is so far behind that memory no longer has
//! what he needs.
//!
//! Only records that are durable are asked for, so their batches are whole and nobody writes there
//! any more. Batches lie one behind the other; the headers are hopped over from the last place that
//! was read, or from the segment's beginning.

use std::path::PathBuf;
use std::sync::Arc;

use cognate_engine::storage::record::{BATCH_HEADER, decode_body, decode_header};
use cognate_engine::storage::segment::{SEGMENT_HEADER, SegmentReader, parse_segment_name, segment_name};
use cognate_engine::{Csn, Error};
use cognate_env::{Disk, OpenMode};
use parking_lot::Mutex;

/// Receives each record: number and payload.
type Each<'a> = dyn FnMut(Csn, &[u8]) -> Result<(), Error> + 'a;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Cold {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    hint: Mutex<Option<Hint>>,
}

/// A batch whose place is known.
#[derive(Debug, Clone, Copy)]
struct Hint {
    segment: Csn,
    first: Csn,
    offset: u64,
}

impl Cold {
    pub(crate) fn new(disk: Arc<dyn Disk>, folder: PathBuf) -> Cold {
        Cold { disk, folder, hint: Mutex::new(None) }
    }

    /// Number of the record before the first that the folder has.
    pub(crate) fn before_first(&self) -> Result<Csn, Error> {
        Ok(self.segments()?.first().copied().unwrap_or(1).saturating_sub(1))
    }

    /// Calls `each` for the records `from` to `to`, in order. What it calls [`Error::Undecodable`]
    /// is damage, and gets its file and offset here. Blocks.
    pub(crate) fn read(&self, from: Csn, to: Csn, each: &mut Each<'_>) -> Result<(), Error> {
        let mut next = from;
        while next <= to {
            let before = next;
            let segments = self.segments()?;
            let after = segments.partition_point(|&first| first <= next);
            let found = after.checked_sub(1).map(|index| segments[index]);
            if let Some(segment) = found {
                self.read_segment(segment, &mut next, to, each)?;
            }
            if next == before {
                let file = self.folder.join(segment_name(found.unwrap_or(next)));
                return Err(Error::Corrupt { file, offset: 0, what: format!("record {next} is missing") });
            }
        }
        Ok(())
    }

    /// Reads on from `next` in one segment, and moves it behind what was read.
    fn read_segment(&self, segment: Csn, next: &mut Csn, to: Csn, each: &mut Each<'_>) -> Result<(), Error> {
        let path = self.folder.join(segment_name(segment));
        let file = self.disk.open(&path, OpenMode::Read);
        let file = file.map_err(|cause| Error::io("opening", &path, cause))?;
        let Some(mut reader) = SegmentReader::open(file, &path, segment)? else { return Ok(()) };
        let salt = reader.header().salt;
        let hint = self.hint.lock().filter(|hint| hint.segment == segment && hint.first <= *next);
        let mut offset = hint.map_or(SEGMENT_HEADER as u64, |hint| hint.offset);
        while *next <= to {
            let Some(header) = decode_header(reader.bytes(offset, BATCH_HEADER)?, salt) else { break };
            let after = header.first + u64::from(header.count);
            if after > *next {
                let body = reader.bytes(offset + BATCH_HEADER as u64, header.body as usize)?;
                let whole = decode_body(&header, body, &mut |record| {
                    let is_wanted = record.csn >= *next && record.csn <= to;
                    if is_wanted { each(record.csn, record.payload) } else { Ok(()) }
                });
                // What is whole and makes no sense is damage, too: of the batch that has it.
                let whole = whole.map_err(|error| match error {
                    Error::Undecodable { what, .. } => Error::corrupt(&path, offset, what),
                    other => other,
                })?;
                whole.map_err(|bad| Error::Corrupt {
                    file: path.clone(),
                    offset: offset + (BATCH_HEADER + bad.offset) as u64,
                    what: bad.what,
                })?;
                *next = after;
                *self.hint.lock() = Some(Hint { segment, first: header.first, offset });
            }
            offset += BATCH_HEADER as u64 + u64::from(header.body);
        }
        Ok(())
    }

    fn segments(&self) -> Result<Vec<Csn>, Error> {
        let names = self.disk.list(&self.folder);
        let names = names.map_err(|cause| Error::io("listing", &self.folder, cause))?;
        let mut firsts: Vec<Csn> = names.iter().filter_map(|name| parse_segment_name(name)).collect();
        firsts.sort_unstable();
        Ok(firsts)
    }
}
