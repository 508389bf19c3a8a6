//! The payload of a log record: one commit.
//!
//! Integers are varints (seven bits a byte, lowest first; the top bit says that more follow).
//!
//! ```text
//! kind: 1 byte      1 = commit, 2 = commit that attaches bulk loads, 3 = commit of a prepared transaction
//! transaction id    (kind 3: of the prepared one, whose row has further writes, loads and dropped trees)
//! next tree id      all ids below may be in use: a committed catalog entry may name a tree that has no row yet
//! loads             (kind 2 only) count, then the numbers of staged runs, oldest first
//! dropped trees     count, then ids
//! trees             count, then for each, ascending:
//!     tree id, count, then for each key, ascending:
//!         key length, value length + 1 (0 = deleted), key, value
//! ```
//!
//! The log guards the bytes with a checksum; a payload that does not decode was written by another
//! version or is a defect, and is reported as such.

use crate::key::SmallKey;
use crate::own::OwnRow;
use crate::{TransactionId, TreeId, Value};

const COMMIT: u8 = 1;
const COMMIT_WITH_LOADS: u8 = 2;
const COMMIT_PREPARED: u8 = 3;

/// Builds a payload.
pub(crate) struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    pub(crate) fn commit(
        id: TransactionId,
        next_tree: u64,
        loads: &[u64],
        dropped: &[TreeId],
        trees: usize,
        size: u64,
    ) -> Encoder {
        let mut encoder = Encoder { bytes: Vec::with_capacity(32 + size.min(1 << 16) as usize) };
        encoder.bytes.push(if loads.is_empty() { COMMIT } else { COMMIT_WITH_LOADS });
        encoder.varint(id);
        encoder.varint(next_tree);
        if !loads.is_empty() {
            encoder.varint(loads.len() as u64);
            loads.iter().for_each(|&number| encoder.varint(number));
        }
        encoder.varint(dropped.len() as u64);
        for &tree in dropped {
            encoder.varint(u64::from(tree));
        }
        encoder.varint(trees as u64);
        encoder
    }

    /// A record that changes the engine's own rows, which are ascending by tree and key; with
    /// `of_prepared` it commits the prepared transaction `id`.
    pub(crate) fn own(id: TransactionId, of_prepared: bool, next_tree: u64, rows: &[OwnRow]) -> Vec<u8> {
        let size: usize =
            rows.iter().map(|(_, key, value)| 16 + key.len() + value.as_ref().map_or(0, |v| v.len())).sum();
        let mut encoder = Encoder::with_capacity(32 + size as u64);
        encoder.byte(if of_prepared { COMMIT_PREPARED } else { COMMIT });
        encoder.varint(id);
        encoder.varint(next_tree);
        encoder.varint(0);
        encoder.varint(rows.chunk_by(|a, b| a.0 == b.0).count() as u64);
        for rows in rows.chunk_by(|a, b| a.0 == b.0) {
            encoder.tree(rows[0].0, rows.len());
            for (_, key, value) in rows {
                encoder.entry(key, value.as_ref());
            }
        }
        encoder.finish()
    }

    pub(crate) fn with_capacity(bytes: u64) -> Encoder {
        Encoder { bytes: Vec::with_capacity(bytes.min(1 << 16) as usize) }
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// Length and bytes.
    pub(crate) fn string(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Length + 1 and bytes, or 0.
    pub(crate) fn optional(&mut self, bytes: Option<&[u8]>) {
        self.varint(bytes.map_or(0, |bytes| bytes.len() as u64 + 1));
        self.bytes.extend_from_slice(bytes.unwrap_or_default());
    }

    /// Count and items.
    pub(crate) fn list<T>(&mut self, items: &[T], mut encode: impl FnMut(&mut Encoder, &T)) {
        self.varint(items.len() as u64);
        items.iter().for_each(|item| encode(self, item));
    }

    pub(crate) fn tree(&mut self, tree: TreeId, count: usize) {
        self.varint(u64::from(tree));
        self.varint(count as u64);
    }

    pub(crate) fn entry(&mut self, key: &[u8], value: Option<&Value>) {
        self.varint(key.len() as u64);
        self.varint(value.map_or(0, |v| v.len() as u64 + 1));
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.map_or(&[], |v| v));
    }

    pub(crate) fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// What a payload says, piece by piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// First: who committed, and the allocator's mark.
    Commit { id: TransactionId, next_tree: u64 },
    /// The record commits this prepared transaction.
    Prepared(TransactionId),
    /// A staged run is attached.
    Load(u64),
    /// A tree is dropped.
    Dropped(TreeId),
    /// Keys of this tree follow.
    Tree(TreeId),
    /// A key and its new value; `None` is a deletion.
    Entry(&'a [u8], Option<&'a [u8]>),
}

/// Decodes a payload, handing each piece to `take`.
///
/// # Errors
/// What is wrong with the payload, in words.
pub(crate) fn decode<'a>(payload: &'a [u8], mut take: impl FnMut(Piece<'a>)) -> Result<(), String> {
    let mut input = Input::of(payload);
    let kind = input.byte()?;
    if !matches!(kind, COMMIT | COMMIT_WITH_LOADS | COMMIT_PREPARED) {
        return Err(format!("a record of unknown kind {kind}"));
    }
    let (id, next_tree) = (input.varint()?, input.varint()?);
    take(Piece::Commit { id, next_tree });
    if kind == COMMIT_PREPARED {
        take(Piece::Prepared(id));
    }
    if kind == COMMIT_WITH_LOADS {
        for _ in 0..input.varint()? {
            take(Piece::Load(input.varint()?));
        }
    }
    for _ in 0..input.varint()? {
        take(Piece::Dropped(input.tree()?));
    }
    for _ in 0..input.varint()? {
        take(Piece::Tree(input.tree()?));
        for _ in 0..input.varint()? {
            let (key, value) = input.entry()?;
            take(Piece::Entry(key, value));
        }
    }
    input.end()
}

/// Reads what an [`Encoder`] wrote. All errors are what is wrong, in words.
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Input<'a> {
        Input { rest: bytes }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, String> {
        Ok(self.bytes(1)?[0])
    }

    pub(crate) fn string(&mut self) -> Result<&'a [u8], String> {
        let length = self.length()?;
        self.bytes(length)
    }

    pub(crate) fn optional(&mut self) -> Result<Option<&'a [u8]>, String> {
        match self.varint()?.checked_sub(1) {
            Some(length) => self.bytes(length as usize).map(Some),
            None => Ok(None),
        }
    }

    /// A key and its value.
    pub(crate) fn entry(&mut self) -> Result<(&'a [u8], Option<&'a [u8]>), String> {
        let (key, value) = (self.length()?, self.varint()?);
        let key = self.bytes(key)?;
        let value = match value.checked_sub(1) {
            Some(length) => Some(self.bytes(length as usize)?),
            None => None,
        };
        Ok((key, value))
    }

    pub(crate) fn list<T>(
        &mut self,
        mut decode: impl FnMut(&mut Input<'a>) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        // Not allocated by what the count says: it may be damaged.
        let count = self.varint()?;
        (0..count).map(|_| decode(self)).collect()
    }

    pub(crate) fn end(&self) -> Result<(), String> {
        match self.rest {
            [] => Ok(()),
            rest => Err(format!("{} bytes after the end", rest.len())),
        }
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or("a commit ends too early")?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn varint(&mut self) -> Result<u64, String> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = match self.rest {
                [byte, rest @ ..] => {
                    self.rest = rest;
                    *byte
                }
                [] => return Err("a commit ends within a number".into()),
            };
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a number is too long".into())
    }

    fn length(&mut self) -> Result<usize, String> {
        Ok(self.varint()? as usize)
    }

    pub(crate) fn tree(&mut self) -> Result<TreeId, String> {
        TreeId::try_from(self.varint()?).map_err(|_| "a tree id is too large".into())
    }
}

/// The key and value of an entry, copied.
pub(crate) fn owned(key: &[u8], value: Option<&[u8]>) -> (SmallKey, Option<Value>) {
    (SmallKey::new(key), value.map(Value::copy_from_slice))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(loads: &[u64]) -> Vec<u8> {
        let mut encoder = Encoder::commit(300, 1001, loads, &[7], 2, 0);
        encoder.tree(1, 2);
        encoder.entry(b"a", Some(&Value::from_static(b"1")));
        encoder.entry(b"b", None);
        encoder.tree(u32::MAX, 1);
        encoder.entry(b"", Some(&Value::new()));
        encoder.finish()
    }

    fn pieces(bytes: &[u8]) -> Result<Vec<Piece<'_>>, String> {
        let mut all = Vec::new();
        decode(bytes, |piece| all.push(piece)).map(|()| all)
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        let want = [
            Piece::Commit { id: 300, next_tree: 1001 },
            Piece::Load(12),
            Piece::Load(1_000),
            Piece::Dropped(7),
            Piece::Tree(1),
            Piece::Entry(b"a", Some(b"1")),
            Piece::Entry(b"b", None),
            Piece::Tree(u32::MAX),
            Piece::Entry(b"", Some(b"")),
        ];
        assert_eq!(pieces(&sample(&[12, 1_000])).unwrap(), want);
        let without: Vec<_> = want.iter().filter(|piece| !matches!(piece, Piece::Load(_))).copied().collect();
        assert_eq!(pieces(&sample(&[])).unwrap(), without);
    }

    #[test]
    fn every_cut_and_every_addition_is_noticed() {
        for whole in [sample(&[]), sample(&[3])] {
            for end in 0..whole.len() {
                assert!(pieces(&whole[..end]).is_err());
            }
            let mut longer = whole;
            longer.push(0);
            assert!(pieces(&longer).is_err());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn random_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = pieces(&bytes);
        }
    }
}
