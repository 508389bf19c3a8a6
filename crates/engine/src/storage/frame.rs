//! Frames: how blocks and indexes lie in a run file. `CRC32C | kind and length | body`, back to
//! back, no gaps.
//!
//! The CRC covers the run's number and the frame's offset too, so a frame in the wrong place is as
//! invalid as a flipped one.

use std::path::Path;

use cognate_env::File;

use super::partition::FrameAt;
use super::record::u32_at;
use crate::Error;

/// Bytes in front of each body.
pub const FRAME_HEADER: usize = 8;

/// Largest body: 30 bits.
pub const BODY_MAX: usize = (1 << 30) - 1;

/// Key and value of an entry together are not longer: its block is to fit into a frame.
pub const ENTRY_MAX: usize = BODY_MAX - 64;

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// Entries.
    Block = 0,
    /// Filter and index of some blocks.
    Partition = 1,
    /// Index of the partitions; the last frame.
    Top = 2,
}

/// Completes a frame whose header room and body are the bytes of `out` from `start` on, and which
/// will lie at `offset`.
pub fn seal(out: &mut [u8], start: usize, kind: FrameKind, run: u64, offset: u64) -> FrameAt {
    let frame = &mut out[start..];
    let length = (frame.len() - FRAME_HEADER) as u32;
    let word = (kind as u32) << 30 | length;
    frame[4..8].copy_from_slice(&word.to_le_bytes());
    let crc = checksum(&frame[4..], run, offset);
    frame[..4].copy_from_slice(&crc.to_le_bytes());
    FrameAt { offset, length }
}

/// Kind and body length that a frame header claims; not yet verified.
pub fn claim(header: &[u8]) -> Option<(FrameKind, usize)> {
    let word = u32_at(header, 4);
    let kind = match word >> 30 {
        0 => FrameKind::Block,
        1 => FrameKind::Partition,
        2 => FrameKind::Top,
        _ => return None,
    };
    Some((kind, word as usize & BODY_MAX))
}

/// Verifies a whole frame; the error says what is wrong.
pub fn verify(frame: &[u8], run: u64, offset: u64) -> Result<FrameKind, String> {
    let computed = checksum(&frame[4..], run, offset);
    let stored = u32_at(frame, 0);
    if computed != stored {
        return Err(format!("block has checksum {computed:08x}, expected {stored:08x}"));
    }
    match claim(frame) {
        Some((kind, length)) if length + FRAME_HEADER == frame.len() => Ok(kind),
        _ => Err("block header with an impossible kind or length".into()),
    }
}

/// Reads and verifies a frame that an index points to; returns the whole frame.
pub fn read(file: &dyn File, path: &Path, run: u64, at: FrameAt, kind: FrameKind) -> Result<Vec<u8>, Error> {
    let mut frame = vec![0; FRAME_HEADER + at.length as usize];
    match file.read_exact_at(&mut frame, at.offset) {
        Ok(()) => {}
        Err(cause) if cause.kind() == std::io::ErrorKind::UnexpectedEof => {
            return Err(Error::corrupt(path, at.offset, "the file ends within a block"));
        }
        Err(cause) => return Err(Error::io("reading", path, cause)),
    }
    let found = verify(&frame, run, at.offset).map_err(|what| Error::corrupt(path, at.offset, what))?;
    if found != kind {
        return Err(Error::corrupt(path, at.offset, "block of an unexpected kind"));
    }
    Ok(frame)
}

/// The checksum of a frame as far as its header goes; its body is to be appended.
pub fn begun_checksum(header: &[u8], run: u64, offset: u64) -> u32 {
    checksum(&header[4..FRAME_HEADER], run, offset)
}

fn checksum(bytes: &[u8], run: u64, offset: u64) -> u32 {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&run.to_le_bytes());
    place[8..].copy_from_slice(&offset.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&place), bytes)
}
