//! The bytes of a log batch: a 32-byte header and its records. Pure functions; byte maps in
//! `docs/log-format.md`.
//!
//! A batch is what one flush makes durable. Its header carries the csn of its first record, the CRC
//! of the header before it (the chain) and a CRC salted per segment, so neither a stale batch nor
//! stored user data can pose as one. Each record carries its own length, csn and CRC32C over both
//! and its payload.

use crate::Csn;

/// Length of a batch header, and alignment of batches in a segment.
pub const BATCH_HEADER: usize = 32;

/// Bytes in front of each payload.
pub const RECORD_HEADER: usize = 16;

/// Fills a batch up to its alignment. Not zero, so that an intact batch does not end in a sector
/// share that looks lost.
const PADDING: u8 = 0xFF;

const MAGIC: [u8; 3] = [0xC0, 0x9B, 0xA7];

/// What a batch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchKind {
    /// Commit records.
    Records = 1,
    /// Proves that all before it is durable; written when the log falls idle.
    Mark = 2,
    /// As a mark, written at clean shutdown.
    Close = 3,
    /// As a mark, the last one in its segment: the next segment is durable, and has what follows.
    Left = 4,
}

/// A decoded batch header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// What the batch is for.
    pub kind: BatchKind,
    /// Csn of the first record, or the next csn to be given out.
    pub first: Csn,
    /// Number of records.
    pub count: u32,
    /// Bytes after the header, padding included.
    pub body: u32,
    /// CRC field of the header before this one.
    pub chain: u32,
    /// CRC field of this header.
    pub crc: u32,
}

/// A record of a verified batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its commit sequence number.
    pub csn: Csn,
    /// The commit's bytes.
    pub payload: &'a [u8],
}

/// A record that does not check out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRecord {
    /// Byte offset from the start of the batch's body.
    pub offset: usize,
    /// What is wrong with it.
    pub what: String,
}

/// Appends a record to a batch body under construction.
///
/// The parts are written one after the other as one payload, whose length must fit 32 bits.
pub fn encode_record(buffer: &mut Vec<u8>, csn: Csn, payload: &[&[u8]]) {
    let length: usize = payload.iter().map(|part| part.len()).sum();
    let start = buffer.len();
    buffer.reserve(RECORD_HEADER + length);
    buffer.extend_from_slice(&[0; 4]);
    buffer.extend_from_slice(&(length as u32).to_le_bytes());
    buffer.extend_from_slice(&csn.to_le_bytes());
    for part in payload {
        buffer.extend_from_slice(part);
    }
    let crc = crc32c::crc32c(&buffer[start + 4..]);
    buffer[start..start + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Completes a batch: pads it and fills the header in its first [`BATCH_HEADER`] bytes. Returns the
/// header's CRC field, the chain for the next batch.
pub fn seal_batch(
    batch: &mut Vec<u8>,
    kind: BatchKind,
    first: Csn,
    count: u32,
    chain: u32,
    salt: u64,
) -> u32 {
    batch.resize(batch.len().next_multiple_of(BATCH_HEADER), PADDING);
    let body = (batch.len() - BATCH_HEADER) as u32;
    let header = &mut batch[..BATCH_HEADER];
    header[4..7].copy_from_slice(&MAGIC);
    header[7] = kind as u8;
    header[8..16].copy_from_slice(&first.to_le_bytes());
    header[16..20].copy_from_slice(&count.to_le_bytes());
    header[20..24].copy_from_slice(&body.to_le_bytes());
    header[24..28].copy_from_slice(&chain.to_le_bytes());
    header[28..32].fill(0);
    let crc = header_crc(header, salt);
    header[..4].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// Decodes a batch header; `None` if it is not one of a segment with this salt.
pub fn decode_header(bytes: &[u8], salt: u64) -> Option<BatchHeader> {
    let header = bytes.get(..BATCH_HEADER)?;
    if header[4..7] != MAGIC {
        return None;
    }
    let crc = u32_at(header, 0);
    if crc != header_crc(header, salt) || u32_at(header, 28) != 0 {
        return None;
    }
    let kind = match header[7] {
        1 => BatchKind::Records,
        2 => BatchKind::Mark,
        3 => BatchKind::Close,
        4 => BatchKind::Left,
        _ => return None,
    };
    let (count, body) = (u32_at(header, 16), u32_at(header, 20));
    let shape = match kind {
        BatchKind::Records => {
            count > 0
                && (body as usize).is_multiple_of(BATCH_HEADER)
                && body as u64 >= u64::from(count) * RECORD_HEADER as u64
        }
        BatchKind::Mark | BatchKind::Close | BatchKind::Left => count == 0 && body == 0,
    };
    shape.then(|| BatchHeader { kind, first: u64_at(header, 8), count, body, chain: u32_at(header, 24), crc })
}

/// Verifies every record of a batch body, calling `each` in order. Nothing is allocated; lengths
/// are checked against the body before they are used.
pub fn decode_body<'a, E>(
    header: &BatchHeader,
    body: &'a [u8],
    each: &mut dyn FnMut(Record<'a>) -> Result<(), E>,
) -> Result<Result<(), BadRecord>, E> {
    let mut offset = 0;
    for index in 0..u64::from(header.count) {
        let record = match decode_record(body, offset, header.first.wrapping_add(index)) {
            Ok(record) => record,
            Err(what) => return Ok(Err(BadRecord { offset, what })),
        };
        each(record)?;
        offset += RECORD_HEADER + record.payload.len();
    }
    let padding = body.get(offset..).unwrap_or(&[]);
    if padding.len() >= BATCH_HEADER || padding.iter().any(|&byte| byte != PADDING) {
        return Ok(Err(BadRecord { offset, what: "batch padding is damaged".into() }));
    }
    Ok(Ok(()))
}

fn decode_record(body: &[u8], offset: usize, csn: Csn) -> Result<Record<'_>, String> {
    let bytes = body.get(offset..).unwrap_or(&[]);
    let Some(header) = bytes.get(..RECORD_HEADER) else {
        return Err(format!("record {csn} is cut off"));
    };
    let length = u32_at(header, 4) as usize;
    let Some(payload) = bytes.get(RECORD_HEADER..).and_then(|rest| rest.get(..length)) else {
        return Err(format!("record {csn} claims a length of {length} bytes beyond its batch"));
    };
    let crc = crc32c::crc32c(&bytes[4..RECORD_HEADER + length]);
    if crc != u32_at(header, 0) {
        return Err(format!("record {csn} has checksum {crc:08x}, expected {:08x}", u32_at(header, 0)));
    }
    if u64_at(header, 8) != csn {
        return Err(format!("record {csn} expected, found {}", u64_at(header, 8)));
    }
    Ok(Record { csn, payload })
}

fn header_crc(header: &[u8], salt: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), &header[4..BATCH_HEADER])
}

/// The little-endian number at `offset`; the caller has checked the length.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(word)
}

/// The little-endian number at `offset`; the caller has checked the length.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(word)
}
