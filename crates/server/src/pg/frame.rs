//! Framing: where one client message ends and the next begins, decided from at most five bytes.
//!
//! After the start-up packet every message is `tag: u8`, `length: u32` (big endian, counts itself,
//! not the tag), then `length - 4` bytes of body. A length is checked as soon as its five bytes are
//! there, before any memory is set aside for the body: a hostile length costs nothing. A message
//! with an impossible header means that the stream is out of step, which cannot be healed: such
//! errors are fatal to the connection. A well-framed message with a bad body is another matter (see
//! [`super::message`]): the next message begins where the header said.

use super::message::tag;

/// Bytes of a message header: tag and length.
pub const HEADER_BYTES: usize = 5;
/// The largest start-up packet and the largest password or SASL message, in bytes with their length
/// field.
pub const STARTUP_BYTES_MAX: usize = 10_000;
/// The largest message of a kind that only carries a name or nothing at all, in bytes without the
/// tag.
const SMALL_MESSAGE_BYTES_MAX: usize = 10_000;

/// What a connection may send at this point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Only `p` messages, and small ones.
    Authentication,
    /// Everything else; the largest message in bytes without the tag.
    Session {
        /// Bound on one message, in bytes without the tag.
        message_bytes_max: usize,
    },
}

/// A header that cannot be followed; the connection has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// No frontend message begins with this byte.
    #[error("invalid frontend message type {0}")]
    UnknownTag(u8),
    /// The length does not even cover itself.
    #[error("invalid message length {length} in frontend message type {tag}")]
    BadLength {
        /// The message's first byte.
        tag: u8,
        /// The length as sent.
        length: u32,
    },
    /// The message is larger than this connection accepts.
    #[error("message of {length} bytes exceeds the limit of {limit} bytes")]
    TooLarge {
        /// The length as sent.
        length: u32,
        /// The bound that it exceeds.
        limit: usize,
    },
}

impl FrameError {
    /// SQLSTATE for the farewell message.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            FrameError::TooLarge { .. } => "54000",
            FrameError::UnknownTag(_) | FrameError::BadLength { .. } => "08P01",
        }
    }
}

/// A message header that passed its checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The message's kind.
    pub tag: u8,
    /// Bytes of the whole message, tag and length included.
    pub total: usize,
}

/// Reads the header at the start of `input`. `Ok(None)`: fewer than five bytes are there, none of
/// them wrong so far.
pub fn header(input: &[u8], phase: Phase) -> Result<Option<Header>, FrameError> {
    let Some(&first) = input.first() else { return Ok(None) };
    let Some(limit) = limit_of(first, phase) else { return Err(FrameError::UnknownTag(first)) };
    let Some(length) = input.get(1..HEADER_BYTES) else { return Ok(None) };
    let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]);
    if length < 4 {
        return Err(FrameError::BadLength { tag: first, length });
    }
    if length as usize > limit {
        return Err(FrameError::TooLarge { length, limit });
    }
    Ok(Some(Header { tag: first, total: length as usize + 1 }))
}

/// The tag of the first message that does something for the transaction, if it is here: closing
/// what has a name, and asking for answers, does nothing.
pub(crate) fn first_acting(mut input: &[u8], phase: Phase) -> Option<u8> {
    while let Some(&first) = input.first() {
        if !matches!(first, tag::CLOSE | tag::FLUSH) {
            return Some(first);
        }
        let skipped = header(input, phase).ok().flatten()?;
        input = input.get(skipped.total..)?;
    }
    None
}

/// The bound on a message of this kind in this phase, `None` if no such message exists there.
fn limit_of(first: u8, phase: Phase) -> Option<usize> {
    match phase {
        Phase::Authentication => (first == tag::PASSWORD).then_some(STARTUP_BYTES_MAX),
        Phase::Session { message_bytes_max } => match first {
            tag::QUERY | tag::PARSE | tag::BIND | tag::COPY_DATA | tag::FUNCTION_CALL => {
                Some(message_bytes_max)
            }
            tag::DESCRIBE
            | tag::EXECUTE
            | tag::CLOSE
            | tag::FLUSH
            | tag::SYNC
            | tag::TERMINATE
            | tag::COPY_DONE
            | tag::COPY_FAIL
            | tag::PASSWORD => Some(SMALL_MESSAGE_BYTES_MAX.min(message_bytes_max)),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: Phase = Phase::Session { message_bytes_max: 1 << 20 };

    #[test]
    fn a_header_needs_five_bytes() {
        assert_eq!(header(b"", SESSION), Ok(None));
        assert_eq!(header(b"Q\0\0\0", SESSION), Ok(None));
        assert_eq!(header(b"Q\0\0\0\x05\0", SESSION), Ok(Some(Header { tag: b'Q', total: 6 })));
    }

    #[test]
    fn wrong_bytes_are_refused_at_the_first_that_shows_it() {
        assert_eq!(header(b"\x16", SESSION), Err(FrameError::UnknownTag(0x16)));
        assert_eq!(header(b"Q\0\0\0\x03", SESSION), Err(FrameError::BadLength { tag: b'Q', length: 3 }));
        assert!(matches!(header(b"Q\xff\xff\xff\xff", SESSION), Err(FrameError::TooLarge { .. })));
        assert!(matches!(header(b"S\0\0\xff\xff", SESSION), Err(FrameError::TooLarge { limit: 10_000, .. })));
    }

    #[test]
    fn closing_and_flushing_are_no_company() {
        let (close, flush) = (&b"C\0\0\0\x06P\0"[..], &b"H\0\0\0\x04"[..]);
        let first = |parts: &[&[u8]]| first_acting(&parts.concat(), SESSION);
        assert_eq!(first(&[b"S\0\0\0\x04"]), Some(b'S'));
        assert_eq!(first(&[close, flush, close, b"S"]), Some(b'S'));
        assert_eq!(first(&[close, b"P\0"]), Some(b'P'));
        assert_eq!(first(&[]), None);
        assert_eq!(first(&[flush, &close[..6]]), None);
        assert_eq!(first(&[flush, b"C\0\0\0\x01"]), None);
    }

    #[test]
    fn before_authentication_only_small_passwords_pass() {
        assert_eq!(header(b"Q", Phase::Authentication), Err(FrameError::UnknownTag(b'Q')));
        assert!(matches!(header(b"p\0\x10\0\0", Phase::Authentication), Err(FrameError::TooLarge { .. })));
        assert!(matches!(header(b"p\0\0\0\x10", Phase::Authentication), Ok(Some(Header { total: 17, .. }))));
    }
}
