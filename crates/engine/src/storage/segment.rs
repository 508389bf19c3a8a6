//! One log segment on disk: its name, its header, and the reader that tells a torn tail from
//! damage.
//!
//! The writer flushes each batch before it writes the next, so only the last batch of the last
//! segment can be torn. The reader therefore accepts an unreadable batch as torn only if
//! 1. nothing valid follows it (a later header proves that it had been durable), and
//! 2. some sector's share of it is lost, that is all zero or past the end of the file (a torn write
//!    loses whole sectors, rot does not).
//!
//! Everything else is damage, reported with file and offset. The whole decision table is in
//! `docs/log-format.md`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cognate_env::File;
use cognate_env::disk::SECTOR;

use super::record::{
    BATCH_HEADER, BatchHeader, BatchKind, RECORD_HEADER, decode_body, decode_header, u32_at, u64_at,
};
use crate::{Csn, Error};

/// Length of a segment's header; the first batch begins here.
pub const SEGMENT_HEADER: usize = 64;

const MAGIC: &[u8; 8] = b"COGNLOG1";
/// Segments of this version say at their end that the writer went on in another one. Those of the
/// version before, 1, do not.
const VERSION: u32 = 2;
const WINDOW: usize = 1 << 20;

/// A segment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Format version.
    pub version: u32,
    /// Csn of the first record that the segment may hold.
    pub first: Csn,
    /// CRC field of the last batch header of the segment before; 0 if there is none.
    pub chain: u32,
    /// Mixed into the batch headers' CRCs.
    pub salt: u64,
    /// CRC field of this header, the chain for the first batch.
    pub crc: u32,
}

impl SegmentHeader {
    /// Whether the segment says that it was left.
    pub fn says_when_left(&self) -> bool {
        self.version >= VERSION
    }
}

/// Encodes a segment header and returns it with its CRC field.
pub fn encode_header(first: Csn, chain: u32, salt: u64) -> ([u8; SEGMENT_HEADER], SegmentHeader) {
    let mut bytes = [0; SEGMENT_HEADER];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&chain.to_le_bytes());
    bytes[16..24].copy_from_slice(&first.to_le_bytes());
    bytes[24..32].copy_from_slice(&salt.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    (bytes, SegmentHeader { version: VERSION, first, chain, salt, crc })
}

/// Decodes a segment header; the error says what is wrong with it.
pub fn decode_segment_header(bytes: &[u8]) -> Result<SegmentHeader, String> {
    if bytes.len() < SEGMENT_HEADER {
        return Err("the file is too short for a log segment's header".into());
    }
    let crc = u32_at(bytes, 60);
    let computed = crc32c::crc32c(&bytes[..60]);
    if &bytes[..8] != MAGIC {
        return Err("not a log segment".into());
    }
    if crc != computed {
        return Err(format!("segment header has checksum {computed:08x}, expected {crc:08x}"));
    }
    let version = u32_at(bytes, 8);
    if !(1..=VERSION).contains(&version) {
        return Err(format!("log format version {version} is not supported"));
    }
    let (first, chain, salt) = (u64_at(bytes, 16), u32_at(bytes, 12), u64_at(bytes, 24));
    Ok(SegmentHeader { version, first, chain, salt, crc })
}

/// A segment's file name.
pub fn segment_name(first: Csn) -> String {
    format!("{first:020}.log")
}

/// The first csn in a segment's file name; `None` for other files.
pub fn parse_segment_name(name: &str) -> Option<Csn> {
    let digits = name.strip_suffix(".log")?;
    let number = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    number.then(|| digits.parse().ok())?.filter(|&first| first > 0)
}

/// Receives each record of a scan: offset of its batch, csn, payload.
pub type EachRecord<'a> = dyn FnMut(u64, Csn, &[u8]) -> Result<(), Error> + 'a;

/// Where a scan ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanEnd {
    /// Offset behind the last valid batch.
    pub position: u64,
    /// Offset of the last valid batch, if there is any.
    pub last_batch: Option<u64>,
    /// The next csn to be given out.
    pub next: Csn,
    /// CRC field of the last valid header.
    pub chain: u32,
    /// Whether bytes that are not zero follow (remains of a torn batch).
    pub remains: bool,
    /// Whether the last batch is a clean shutdown's.
    pub closed: bool,
    /// Whether the writer went on in another segment.
    pub left: bool,
}

/// Reads a segment from its header on.
#[derive(Debug)]
pub struct SegmentReader {
    file: Arc<dyn File>,
    path: PathBuf,
    length: u64,
    header: SegmentHeader,
    start: u64,
    window: Vec<u8>,
}

impl SegmentReader {
    /// Opens a segment whose name promises `first`. `Ok(None)` if it holds nothing but zeros: its
    /// creation was interrupted.
    pub fn open(file: Arc<dyn File>, path: &Path, first: Csn) -> Result<Option<SegmentReader>, Error> {
        let length = file.len().map_err(|cause| Error::io("reading", path, cause))?;
        let header = SegmentHeader { version: VERSION, first, chain: 0, salt: 0, crc: 0 };
        let path = path.to_path_buf();
        let mut reader = SegmentReader { file, path, length, header, start: 0, window: Vec::new() };
        let bytes = reader.bytes(0, SEGMENT_HEADER)?;
        if bytes.len() < SEGMENT_HEADER || bytes.iter().all(|&byte| byte == 0) {
            if reader.first_nonzero(0)?.is_none() {
                return Ok(None);
            }
            return Err(Error::corrupt(&reader.path, 0, "the log segment's header is missing"));
        }
        let header = decode_segment_header(bytes).map_err(|what| Error::corrupt(&reader.path, 0, what))?;
        if header.first != first {
            let what = format!("log segment of csn {} under the name of another", header.first);
            return Err(Error::corrupt(&reader.path, 0, what));
        }
        reader.header = header;
        Ok(Some(reader))
    }

    /// The segment's header.
    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// Reads batch after batch, calling `each` for every record in order. A batch's records are all
    /// verified before the first of them is passed on. `next_segment` is the first csn of the
    /// segment after this one; `None` for the last.
    pub fn scan(&mut self, next_segment: Option<Csn>, each: &mut EachRecord<'_>) -> Result<ScanEnd, Error> {
        let mut end = ScanEnd {
            position: SEGMENT_HEADER as u64,
            last_batch: None,
            next: self.header.first,
            chain: self.header.crc,
            remains: false,
            closed: false,
            left: false,
        };
        loop {
            let position = end.position;
            let salt = self.header.salt;
            let found = self.bytes(position, BATCH_HEADER)?;
            let cut_off = found.len() < BATCH_HEADER;
            let Some(header) = decode_header(found, salt) else {
                if cut_off || found.iter().all(|&byte| byte == 0) {
                    return self.finish(end, next_segment);
                }
                return Err(Error::corrupt(&self.path, position, "batch header is damaged"));
            };
            if header.first != end.next || header.chain != end.chain {
                let what = format!("batch of csn {} found where {} is expected", header.first, end.next);
                return Err(Error::corrupt(&self.path, position, what));
            }
            if header.kind == BatchKind::Left {
                // The next segment was made before, and continues the batch before this one.
                end.left = true;
                end.position = position + BATCH_HEADER as u64;
                return self.finish(end, next_segment);
            }
            if !self.batch(position, &header, next_segment.is_none(), each)? {
                end.remains = true;
                return Ok(end);
            }
            end.last_batch = Some(position);
            end.position = position + BATCH_HEADER as u64 + u64::from(header.body);
            end.next += u64::from(header.count);
            end.chain = header.crc;
            end.closed = header.kind == BatchKind::Close;
        }
    }

    /// Verifies and passes on one batch; `Ok(false)` if it is torn.
    fn batch(
        &mut self,
        position: u64,
        header: &BatchHeader,
        last_segment: bool,
        each: &mut EachRecord<'_>,
    ) -> Result<bool, Error> {
        if header.body == 0 {
            return Ok(true);
        }
        let whole = BATCH_HEADER + header.body as usize;
        let available = self.length.saturating_sub(position).min(whole as u64) as usize;
        let batch = self.bytes(position, available)?;
        let body = &batch[BATCH_HEADER..];
        let bad = match decode_body::<Error>(header, body, &mut |_| Ok(()))? {
            Ok(()) if available == whole => {
                let (mut at, mut next) = (0, position + BATCH_HEADER as u64);
                let passed = decode_body(header, body, &mut |record| {
                    at = next;
                    next += (RECORD_HEADER + record.payload.len()) as u64;
                    each(position, record.csn, record.payload)
                });
                passed.map_err(|error| error.at(&self.path, at))?.ok();
                return Ok(true);
            }
            Ok(()) => "batch is cut off".to_string(),
            Err(bad) => {
                let offset = position + (BATCH_HEADER + bad.offset) as u64;
                if available == whole && !lost_sector(batch, position) {
                    return Err(Error::corrupt(&self.path, offset, bad.what));
                }
                bad.what
            }
        };
        if !last_segment {
            return Err(Error::corrupt(&self.path, position, bad));
        }
        let after = position + whole as u64;
        let expected = header.first + u64::from(header.count);
        if let Some(later) = self.later_header(after, expected)? {
            let what = format!("{bad}, but a later batch at byte {later} is intact");
            return Err(Error::corrupt(&self.path, position, what));
        }
        Ok(false)
    }

    /// At zeros where a header could be: the end of the log, the end of this segment, or a hole.
    fn finish(&mut self, mut end: ScanEnd, next_segment: Option<Csn>) -> Result<ScanEnd, Error> {
        if let Some(first) = next_segment {
            if first != end.next {
                let what = format!("records {} to {} are missing", end.next, first.saturating_sub(1));
                return Err(Error::corrupt(&self.path, end.position, what));
            }
            return Ok(end);
        }
        if let Some(nonzero) = self.first_nonzero(end.position)? {
            if let Some(later) = self.later_header(end.position, end.next)? {
                let what = format!("no batch here, but a later one at byte {later} is intact");
                return Err(Error::corrupt(&self.path, end.position, what));
            }
            tracing::debug!(file = %self.path.display(), offset = nonzero, "remains of a torn batch");
            end.remains = true;
        }
        Ok(end)
    }

    /// The first batch header at or after `from` that this segment's writer could have written
    /// after csn `expected - 1`.
    fn later_header(&mut self, from: u64, expected: Csn) -> Result<Option<u64>, Error> {
        let salt = self.header.salt;
        let mut position = from;
        while position + BATCH_HEADER as u64 <= self.length {
            let window = self.bytes(position, WINDOW.min((self.length - position) as usize))?;
            for (index, slot) in window.chunks_exact(BATCH_HEADER).enumerate() {
                if slot[4] != 0 && decode_header(slot, salt).is_some_and(|header| header.first >= expected) {
                    return Ok(Some(position + (index * BATCH_HEADER) as u64));
                }
            }
            position += (window.len() - window.len() % BATCH_HEADER) as u64;
        }
        Ok(None)
    }

    fn first_nonzero(&mut self, from: u64) -> Result<Option<u64>, Error> {
        let mut position = from;
        while position < self.length {
            let window = self.bytes(position, WINDOW.min((self.length - position) as usize))?;
            if let Some(index) = window.iter().position(|&byte| byte != 0) {
                return Ok(Some(position + index as u64));
            }
            position += window.len() as u64;
        }
        Ok(None)
    }

    /// `count` bytes at `offset`, fewer if the file ends before. Reads ahead; the caller bounds
    /// `count` by the file's length.
    pub fn bytes(&mut self, offset: u64, count: usize) -> Result<&[u8], Error> {
        let held = offset >= self.start && offset + count as u64 <= self.start + self.window.len() as u64;
        if !held {
            let left = self.length.saturating_sub(offset);
            let wanted = (count.max(WINDOW) as u64).min(left) as usize;
            self.window.resize(wanted, 0);
            let got = self.file.read_up_to(&mut self.window, offset);
            let got = got.map_err(|cause| Error::io("reading", &self.path, cause))?;
            self.window.truncate(got);
            self.start = offset;
        }
        let begin = ((offset - self.start) as usize).min(self.window.len());
        let end = (begin + count).min(self.window.len());
        Ok(&self.window[begin..end])
    }
}

/// Whether some sector's share of `bytes`, which lie at `offset` of their file, is all zero.
fn lost_sector(bytes: &[u8], offset: u64) -> bool {
    let first = ((SECTOR - offset % SECTOR) as usize).min(bytes.len());
    let (head, rest) = bytes.split_at(first);
    std::iter::once(head).chain(rest.chunks(SECTOR as usize)).any(|share| share.iter().all(|&byte| byte == 0))
}
