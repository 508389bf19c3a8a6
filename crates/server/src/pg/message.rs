//! What a client can say: the bodies of frontend messages, decoded without copying.
//!
//! Every decoder takes one framed body and borrows from it. Nothing here allocates in proportion to
//! a number that the client merely claims: counts are checked against the bytes that are there
//! before anything is collected. No input panics. A body must be used up exactly; what is left over
//! is an error, as it means that both sides disagree about the format.

use cognate_sql::session::Format;
use smallvec::SmallVec;

/// First bytes of frontend messages.
pub mod tag {
    /// Parameters for a prepared statement: makes a portal.
    pub const BIND: u8 = b'B';
    /// Forget a statement or portal.
    pub const CLOSE: u8 = b'C';
    /// Part of a COPY stream.
    pub const COPY_DATA: u8 = b'd';
    /// The COPY stream is complete.
    pub const COPY_DONE: u8 = b'c';
    /// The COPY stream is given up.
    pub const COPY_FAIL: u8 = b'f';
    /// Ask for the shape of a statement or portal.
    pub const DESCRIBE: u8 = b'D';
    /// Run a portal.
    pub const EXECUTE: u8 = b'E';
    /// Send what has been answered so far.
    pub const FLUSH: u8 = b'H';
    /// Call by function number (obsolete, refused).
    pub const FUNCTION_CALL: u8 = b'F';
    /// Prepare a statement.
    pub const PARSE: u8 = b'P';
    /// Password or SASL answer.
    pub const PASSWORD: u8 = b'p';
    /// Statements as text.
    pub const QUERY: u8 = b'Q';
    /// End of a unit of the extended protocol.
    pub const SYNC: u8 = b'S';
    /// Goodbye.
    pub const TERMINATE: u8 = b'X';
}

/// Statement or portal, in Describe and Close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A prepared statement.
    Statement,
    /// A portal.
    Portal,
}

/// Formats as sent: none (all text), one (for all) or one for each.
pub type Formats = SmallVec<[Format; 8]>;
/// Parameter values as sent; `None` is SQL NULL.
pub type Values<'a> = SmallVec<[Option<&'a [u8]>; 8]>;

/// A Bind message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind<'a> {
    /// Name of the portal to make; empty for the unnamed one.
    pub portal: &'a str,
    /// Name of the prepared statement.
    pub statement: &'a str,
    /// Formats of `values`.
    pub formats: Formats,
    /// Parameters.
    pub values: Values<'a>,
    /// Formats wanted for the result's columns.
    pub result_formats: Formats,
}

/// One message from the client, after the start-up packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frontend<'a> {
    /// `Q`: statements as text.
    Query(&'a str),
    /// `P`: prepare.
    Parse {
        /// Name of the statement to make; empty for the unnamed one.
        name: &'a str,
        /// Its text, one statement.
        text: &'a str,
        /// Types that the client has already chosen for parameters; 0 leaves one open.
        parameter_oids: SmallVec<[u32; 8]>,
    },
    /// `B`: bind.
    Bind(Bind<'a>),
    /// `D`: describe.
    Describe(Target, &'a str),
    /// `C`: close.
    Close(Target, &'a str),
    /// `E`: execute.
    Execute {
        /// Name of the portal.
        portal: &'a str,
        /// Most rows to send; 0 for all.
        max_rows: u32,
    },
    /// `H`.
    Flush,
    /// `S`.
    Sync,
    /// `X`.
    Terminate,
    /// `d`: bytes of a COPY stream.
    CopyData(&'a [u8]),
    /// `c`.
    CopyDone,
    /// `f`: reason for giving up.
    CopyFail(&'a str),
    /// `p`: body is read by the authentication at hand.
    Password(&'a [u8]),
    /// `F`: refused, so its body is not read.
    FunctionCall,
}

/// A framed message whose body is wrong. The stream is still in step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The body ended inside a field.
    #[error("insufficient data left in message")]
    Short,
    /// Bytes are left after the last field.
    #[error("invalid message format")]
    Left,
    /// A string has no end.
    #[error("invalid string in message")]
    Unterminated,
    /// A string is not UTF-8.
    #[error("invalid byte sequence for encoding \"UTF8\": 0x{0:02x}")]
    NotUtf8(u8),
    /// A format code other than 0 and 1.
    #[error("unsupported format code: {0}")]
    Format(i16),
    /// Describe or Close of neither a statement nor a portal.
    #[error("invalid subtype {0} of a Describe or Close message")]
    Subtype(u8),
    /// A value's length is negative and not the -1 of NULL.
    #[error("invalid parameter length {0}")]
    ValueLength(i32),
    /// Number of formats is neither 0, 1, nor that of the values.
    #[error("bind message has {formats} parameter formats but {values} parameters")]
    FormatCount {
        /// Formats sent.
        formats: usize,
        /// Values sent.
        values: usize,
    },
    /// No message begins so.
    #[error("invalid frontend message type {0}")]
    Tag(u8),
}

impl MessageError {
    /// SQLSTATE of the answer.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            MessageError::NotUtf8(_) => "22021",
            MessageError::Format(_) => "22023",
            _ => "08P01",
        }
    }
}

/// Reads fields off the front of a body.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads `body` from its start.
    pub fn new(body: &'a [u8]) -> Self {
        Reader(body)
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], MessageError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(MessageError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    /// One byte.
    pub fn byte(&mut self) -> Result<u8, MessageError> {
        Ok(self.bytes(1)?[0])
    }

    /// Big-endian 16 bits.
    pub fn int2(&mut self) -> Result<i16, MessageError> {
        let b = self.bytes(2)?;
        Ok(i16::from_be_bytes([b[0], b[1]]))
    }

    /// Big-endian 32 bits.
    pub fn int4(&mut self) -> Result<i32, MessageError> {
        let b = self.bytes(4)?;
        Ok(i32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// A count of things of which each takes at least `bytes_each` bytes: refused when they cannot
    /// all be there. Counts are unsigned 16 bits, as a statement may have up to 65,535 parameters.
    fn count(&mut self, bytes_each: usize) -> Result<usize, MessageError> {
        let count = usize::from(self.int2()? as u16);
        if count.saturating_mul(bytes_each) > self.0.len() {
            return Err(MessageError::Short);
        }
        Ok(count)
    }

    /// A string up to its zero byte.
    pub fn string(&mut self) -> Result<&'a str, MessageError> {
        utf8(self.string_bytes()?)
    }

    /// The bytes of a string up to its zero byte, whatever they are.
    pub fn string_bytes(&mut self) -> Result<&'a [u8], MessageError> {
        let end = self.0.iter().position(|&b| b == 0).ok_or(MessageError::Unterminated)?;
        let text = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Ok(text)
    }

    /// Whether everything has been read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What has not been read.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    fn formats(&mut self) -> Result<Formats, MessageError> {
        let count = self.count(2)?;
        let mut formats = Formats::with_capacity(count);
        for _ in 0..count {
            formats.push(match self.int2()? {
                0 => Format::Text,
                1 => Format::Binary,
                other => return Err(MessageError::Format(other)),
            });
        }
        Ok(formats)
    }

    fn end<T>(self, value: T) -> Result<T, MessageError> {
        if self.is_empty() { Ok(value) } else { Err(MessageError::Left) }
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, MessageError> {
    std::str::from_utf8(bytes)
        .map_err(|e| MessageError::NotUtf8(bytes.get(e.valid_up_to()).copied().unwrap_or_default()))
}

/// Decodes one message from its tag and body.
pub fn decode(first: u8, body: &[u8]) -> Result<Frontend<'_>, MessageError> {
    let mut reader = Reader::new(body);
    match first {
        tag::BIND => decode_bind(reader).map(Frontend::Bind),
        tag::EXECUTE => {
            let portal = reader.string()?;
            let max_rows = reader.int4()?.max(0) as u32;
            reader.end(Frontend::Execute { portal, max_rows })
        }
        tag::SYNC => reader.end(Frontend::Sync),
        tag::QUERY => {
            let text = reader.string()?;
            reader.end(Frontend::Query(text))
        }
        tag::PARSE => decode_parse(reader),
        tag::DESCRIBE => {
            let (target, name) = decode_target(reader)?;
            Ok(Frontend::Describe(target, name))
        }
        tag::CLOSE => {
            let (target, name) = decode_target(reader)?;
            Ok(Frontend::Close(target, name))
        }
        tag::FLUSH => reader.end(Frontend::Flush),
        tag::COPY_DATA => Ok(Frontend::CopyData(body)),
        tag::COPY_DONE => reader.end(Frontend::CopyDone),
        tag::COPY_FAIL => {
            let reason = reader.string()?;
            reader.end(Frontend::CopyFail(reason))
        }
        tag::TERMINATE => Ok(Frontend::Terminate),
        tag::PASSWORD => Ok(Frontend::Password(body)),
        tag::FUNCTION_CALL => Ok(Frontend::FunctionCall),
        other => Err(MessageError::Tag(other)),
    }
}

fn decode_parse(mut reader: Reader<'_>) -> Result<Frontend<'_>, MessageError> {
    let name = reader.string()?;
    let text = reader.string()?;
    let count = reader.count(4)?;
    let mut parameter_oids = SmallVec::with_capacity(count);
    for _ in 0..count {
        parameter_oids.push(reader.int4()? as u32);
    }
    reader.end(Frontend::Parse { name, text, parameter_oids })
}

fn decode_bind(mut reader: Reader<'_>) -> Result<Bind<'_>, MessageError> {
    let portal = reader.string()?;
    let statement = reader.string()?;
    let formats = reader.formats()?;
    let count = reader.count(4)?;
    if formats.len() > 1 && formats.len() != count {
        return Err(MessageError::FormatCount { formats: formats.len(), values: count });
    }
    let mut values = Values::with_capacity(count);
    for _ in 0..count {
        values.push(match reader.int4()? {
            -1 => None,
            length => {
                let length = usize::try_from(length).map_err(|_| MessageError::ValueLength(length))?;
                Some(reader.bytes(length)?)
            }
        });
    }
    let result_formats = reader.formats()?;
    reader.end(Bind { portal, statement, formats, values, result_formats })
}

fn decode_target(mut reader: Reader<'_>) -> Result<(Target, &str), MessageError> {
    let target = match reader.byte()? {
        b'S' => Target::Statement,
        b'P' => Target::Portal,
        other => return Err(MessageError::Subtype(other)),
    };
    let name = reader.string()?;
    reader.end((target, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_message_is_read_field_by_field() {
        let body = b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x02hi\xff\xff\xff\xff\0\x01\0\0";
        let Ok(Frontend::Bind(bind)) = decode(tag::BIND, body) else { panic!("not a bind") };
        assert_eq!((bind.portal, bind.statement), ("p", "s"));
        assert_eq!(bind.values.as_slice(), [Some(&b"hi"[..]), None]);
        assert_eq!(bind.formats.as_slice(), [Format::Binary]);
        assert_eq!(bind.result_formats.as_slice(), [Format::Text]);
    }

    #[test]
    fn claimed_counts_are_held_against_the_bytes_present() {
        assert_eq!(decode(tag::BIND, b"\0\0\xff\xff"), Err(MessageError::Short));
        assert_eq!(decode(tag::PARSE, b"\0\0\xff\xff\0\0"), Err(MessageError::Short));
        assert_eq!(
            decode(tag::BIND, b"\0\0\0\0\0\x01\x7f\xff\xff\xff\0\0"),
            Err(MessageError::Short),
            "a value longer than the message"
        );
        assert_eq!(
            decode(tag::BIND, b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0"),
            Err(MessageError::ValueLength(-2))
        );
    }

    #[test]
    fn what_is_left_over_is_an_error() {
        assert_eq!(decode(tag::SYNC, b"x"), Err(MessageError::Left));
        assert_eq!(decode(tag::QUERY, b"select 1\0 "), Err(MessageError::Left));
        assert_eq!(decode(tag::QUERY, b"select 1"), Err(MessageError::Unterminated));
        assert_eq!(decode(tag::QUERY, b"\xff\0"), Err(MessageError::NotUtf8(0xff)));
        assert_eq!(decode(tag::DESCRIBE, b"Zx\0"), Err(MessageError::Subtype(b'Z')));
        assert_eq!(decode(tag::BIND, b"\0\0\0\x01\0\x07\0\0\0\0"), Err(MessageError::Format(7)));
    }

    #[test]
    fn a_negative_row_limit_means_all_rows() {
        assert_eq!(
            decode(tag::EXECUTE, b"c\0\xff\xff\xff\xff"),
            Ok(Frontend::Execute { portal: "c", max_rows: 0 })
        );
    }
}
