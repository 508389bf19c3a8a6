//! Bytes that a cursor lends until it moves on.

use std::ops::Deref;

use bytes::Bytes;

/// A part of a buffer. Whoever wants to keep some of it shares the buffer, or copies.
#[derive(Debug, Clone, Copy)]
pub struct Lent<'a> {
    bytes: &'a [u8],
    buffer: &'a Bytes,
}

impl<'a> Lent<'a> {
    /// `bytes` must be a part of `buffer`.
    #[inline]
    pub fn new(bytes: &'a [u8], buffer: &'a Bytes) -> Lent<'a> {
        Lent { bytes, buffer }
    }

    /// The bytes.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The buffer that they lie in.
    #[inline]
    pub fn buffer(self) -> &'a Bytes {
        self.buffer
    }

    /// The bytes to keep, sharing the buffer.
    pub fn share(self) -> Bytes {
        self.buffer.slice_ref(self.bytes)
    }

    /// The bytes to keep by themselves: shared if they are all of the buffer, else copied.
    pub fn own(self) -> Bytes {
        if self.bytes.len() == self.buffer.len() {
            self.buffer.clone()
        } else {
            Bytes::copy_from_slice(self.bytes)
        }
    }
}

impl<'a> From<&'a Bytes> for Lent<'a> {
    fn from(bytes: &'a Bytes) -> Lent<'a> {
        Lent { bytes, buffer: bytes }
    }
}

impl Deref for Lent<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}
