//! Texts that share their bytes: cloning one, or taking one out of a stored row, copies no characters.

use std::fmt;
use std::hash::{Hash, Hasher};

use bytes::Bytes;

use crate::error::{SqlError, sqlstate};

/// A UTF-8 text without NUL characters, backed by shared bytes. Compares by bytes (collation C).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Text(Bytes);

impl Text {
    /// A text of these bytes, or `None` if they are not UTF-8.
    pub fn from_utf8(bytes: Bytes) -> Option<Text> {
        std::str::from_utf8(&bytes).is_ok().then_some(Text(bytes))
    }

    /// A text of bytes from outside. 22021 if they are not UTF-8 or have a NUL.
    pub fn read(bytes: &[u8]) -> Result<Text, SqlError> {
        let valid = match std::str::from_utf8(bytes) {
            Ok(_) => bytes.iter().position(|b| *b == 0),
            Err(error) => Some(error.valid_up_to()),
        };
        let Some(at) = valid else { return Ok(Text(Bytes::copy_from_slice(bytes))) };
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

    /// A text of bytes that were a `Text` when they were stored. The storage below checks its blocks, so they are not
    /// checked again here.
    pub fn from_stored(bytes: Bytes) -> Text {
        debug_assert!(std::str::from_utf8(&bytes).is_ok());
        Text(bytes)
    }

    /// A text that borrows from the program itself.
    pub fn from_static(text: &'static str) -> Text {
        Text(Bytes::from_static(text.as_bytes()))
    }

    /// The characters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a text is UTF-8 from its construction on")
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The shared bytes themselves.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// No characters at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The part `start..end` in bytes, sharing this text's memory. Both must be character boundaries.
    pub fn slice(&self, start: usize, end: usize) -> Text {
        debug_assert!(self.as_str().is_char_boundary(start) && self.as_str().is_char_boundary(end));
        Text(self.0.slice(start..end))
    }

    /// The text without its trailing blanks, sharing this text's memory.
    pub fn trim_end_blanks(&self) -> Text {
        let length = trimmed_length(&self.0);
        if length == self.0.len() { self.clone() } else { Text(self.0.slice(..length)) }
    }

    /// Number of characters.
    pub fn chars(&self) -> usize {
        if self.0.is_ascii() { self.0.len() } else { self.as_str().chars().count() }
    }
}

/// Length of `bytes` without trailing blanks.
pub(crate) fn trimmed_length(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&b| b != b' ').map_or(0, |i| i + 1)
}

/// A text padded with blanks to the length of char(n); as it is if `ty` has no length or the text is longer.
pub fn pad(text: Text, ty: super::Type) -> Text {
    let Some(limit) = ty.character_limit() else { return text };
    let missing = limit.saturating_sub(text.chars());
    if missing == 0 {
        return text;
    }
    let mut padded = Vec::with_capacity(text.len() + missing);
    padded.extend_from_slice(text.as_bytes());
    padded.resize(text.len() + missing, b' ');
    Text(Bytes::from(padded))
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
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
        Text(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text(Bytes::from(text.into_bytes()))
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}
