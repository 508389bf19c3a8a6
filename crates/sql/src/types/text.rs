//! Texts. Short ones lie in the value itself; long ones share their bytes, so that cloning one, or
//! taking one out of a stored row, copies no characters.
//!
//! Short ones are copied because a reference count that other threads touch too costs more than 23
//! bytes do. And whatever is a small part of what it was read from is copied because it would keep
//! all of that alive: a statement that holds many of them is only charged for themselves.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use bytes::Bytes;

use super::bounds::hash_bytes;
use crate::error::{SqlError, sqlstate};

/// Longest text that lies in the value itself: so many bytes fit beside the mark that tells short
/// from long.
const SHORT_MAX: usize = 23;

/// A part of a buffer is copied if it is so many times smaller, unless it is large itself.
const SMALL_PART: usize = 8;
const LARGE: usize = 4096;

/// A part of `owner` to keep: shared, or copied if it would keep too much alive.
pub(crate) fn keep_part(owner: &Bytes, part: &[u8]) -> Bytes {
    if part.len() < LARGE && part.len() * SMALL_PART < owner.len() {
        Bytes::copy_from_slice(part)
    } else {
        owner.slice_ref(part)
    }
}

/// A UTF-8 text without NUL characters. Compares by bytes (collation C).
#[derive(Clone)]
pub struct Text(Repr);

#[derive(Clone)]
enum Repr {
    Short { length: u8, bytes: [u8; SHORT_MAX] },
    Long(Bytes),
}

const _: () = assert!(size_of::<Text>() == size_of::<Bytes>());

/// Texts up to this many bytes can be made of one word.
const WORD_MAX: usize = size_of::<u64>();
/// The highest bit of each byte: not set in ASCII.
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
const BLANKS: u64 = 0x2020_2020_2020_2020;

impl Text {
    /// Up to eight bytes of ASCII, filled up with blanks to a width of at most eight. None of other
    /// bytes. Everything happens in a register: what is written byte by byte and read as a whole
    /// right afterwards has to wait.
    #[inline]
    pub(crate) fn of_few(text: &[u8], width: usize) -> Option<Text> {
        if text.len().max(width) > WORD_MAX {
            return None;
        }
        let mut word = text.iter().rev().fold(0, |word: u64, byte| word << 8 | u64::from(*byte));
        if word & HIGH_BITS != 0 {
            return None;
        }
        if text.len() < width {
            word |= BLANKS >> (8 * (WORD_MAX - width)) & BLANKS << (8 * text.len());
        }
        let mut bytes = [0; SHORT_MAX];
        bytes[..WORD_MAX].copy_from_slice(&word.to_le_bytes());
        Some(Text(Repr::Short { length: text.len().max(width) as u8, bytes }))
    }

    #[inline]
    fn short(text: &[u8]) -> Text {
        let mut bytes = [0; SHORT_MAX];
        bytes[..text.len()].copy_from_slice(text);
        Text(Repr::Short { length: text.len() as u8, bytes })
    }

    fn new(text: Bytes) -> Text {
        if text.len() <= SHORT_MAX { Text::short(&text) } else { Text(Repr::Long(text)) }
    }

    fn copy(text: &[u8]) -> Text {
        if text.len() <= SHORT_MAX {
            Text::short(text)
        } else {
            Text(Repr::Long(Bytes::copy_from_slice(text)))
        }
    }

    /// A text of these bytes, or `None` if they are not UTF-8.
    pub fn from_utf8(bytes: Bytes) -> Option<Text> {
        std::str::from_utf8(&bytes).is_ok().then(|| Text::new(bytes))
    }

    /// A text of bytes from outside. 22021 if they are not UTF-8 or have a NUL.
    pub fn read(bytes: &[u8]) -> Result<Text, SqlError> {
        check(bytes).map(|()| Text::copy(bytes))
    }

    /// The same of bytes that nobody else needs.
    pub fn take(bytes: Vec<u8>) -> Result<Text, SqlError> {
        check(&bytes).map(|()| Text::new(bytes.into()))
    }

    /// A text of bytes that were a `Text` when they were stored. The storage below checks its
    /// blocks, so they are not checked again here.
    pub fn from_stored(bytes: Bytes) -> Text {
        debug_assert!(std::str::from_utf8(&bytes).is_ok());
        Text::new(bytes)
    }

    /// The same of a part of `owner`, whose memory it may share.
    #[inline]
    pub fn from_stored_in(owner: &Bytes, part: &[u8]) -> Text {
        debug_assert!(std::str::from_utf8(part).is_ok());
        if part.len() <= SHORT_MAX { Text::short(part) } else { Text(Repr::Long(keep_part(owner, part))) }
    }

    /// A text that borrows from the program itself.
    pub fn from_static(text: &'static str) -> Text {
        Text::new(Bytes::from_static(text.as_bytes()))
    }

    /// The characters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("a text is UTF-8 from its construction on")
    }

    /// The bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Short { length, bytes } => &bytes[..usize::from(*length)],
            Repr::Long(bytes) => bytes,
        }
    }

    /// The bytes, shared if there are many.
    pub fn into_bytes(self) -> Bytes {
        match self.0 {
            Repr::Short { length, bytes } => Bytes::copy_from_slice(&bytes[..usize::from(length)]),
            Repr::Long(bytes) => bytes,
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// No characters at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part `start..end` in bytes, sharing this text's memory. Both must be character
    /// boundaries.
    pub fn slice(&self, start: usize, end: usize) -> Text {
        debug_assert!(self.as_str().is_char_boundary(start) && self.as_str().is_char_boundary(end));
        match &self.0 {
            Repr::Short { bytes, .. } => Text::short(&bytes[start..end]),
            Repr::Long(bytes) => Text::from_stored_in(bytes, &bytes[start..end]),
        }
    }

    /// The text without its trailing blanks, sharing this text's memory.
    pub fn trim_end_blanks(&self) -> Text {
        let length = trimmed_length(self.as_bytes());
        if length == self.len() { self.clone() } else { self.slice(0, length) }
    }

    /// Number of characters.
    pub fn chars(&self) -> usize {
        if self.as_bytes().is_ascii() { self.len() } else { self.as_str().chars().count() }
    }
}

/// 22021 if the bytes are not UTF-8 or have a NUL.
fn check(bytes: &[u8]) -> Result<(), SqlError> {
    let wrong = match std::str::from_utf8(bytes) {
        Ok(text) => text.find('\0'),
        Err(error) => Some(error.valid_up_to()),
    };
    let Some(at) = wrong else { return Ok(()) };
    // As many bytes as the first one announces.
    let length = match bytes[at] {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 1,
    };
    let shown: Vec<String> = bytes[at..].iter().take(length).map(|b| format!("0x{b:02x}")).collect();
    Err(SqlError::new(
        sqlstate::CHARACTER_NOT_IN_REPERTOIRE,
        format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" ")),
    ))
}

/// Length of `bytes` without trailing blanks.
pub(crate) fn trimmed_length(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&b| b != b' ').map_or(0, |i| i + 1)
}

/// A text padded with blanks to the length of char(n); as it is if `ty` has no length or the text
/// is longer.
pub fn pad(text: Text, ty: super::Type) -> Text {
    let Some(limit) = ty.character_limit() else { return text };
    let missing = limit.saturating_sub(text.chars());
    if missing == 0 {
        return text;
    }
    let mut padded = Vec::with_capacity(text.len() + missing);
    padded.extend_from_slice(text.as_bytes());
    padded.resize(text.len() + missing, b' ');
    Text::new(Bytes::from(padded))
}

impl Default for Text {
    fn default() -> Text {
        Text::short(&[])
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Text) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Text {}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Text) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Text) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_bytes(self.as_bytes(), state);
        state.write_u8(0xff);
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text::copy(text.as_bytes())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text::new(Bytes::from(text.into_bytes()))
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Type, TypeId};

    /// All texts of few bytes in all widths are as they are made the long way.
    #[test]
    fn few_bytes_are_padded_as_many_are() {
        for text in ["", "a", "ab", "a b", "1234567", "12345678", "é", "aé", "123456é"] {
            for width in 1..10 {
                let mut ty = Type::new(TypeId::Bpchar);
                ty.modifier = width + 4;
                let padded = pad(Text::from(text), ty);
                match Text::of_few(text.as_bytes(), width as usize) {
                    Some(made) => assert_eq!(made, padded, "{text} in {width}"),
                    None => assert!(!text.is_ascii() || width > 8, "{text} in {width}"),
                }
            }
        }
        assert!(Text::of_few(b"123456789", 0).is_none());
    }
}
