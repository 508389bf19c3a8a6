//! COPY in binary format: data cut anywhere to the fields of rows, and rows to data.
//!
//! ```text
//! header   PGCOPY \n \377 \r \n \0 | flags, 4 bytes | length of an extension, 4 bytes | extension
//! row      number of fields, 2 bytes | of each its length, 4 bytes, -1 for NULL | and its bytes
//! trailer  -1, 2 bytes
//! ```
//!
//! Numbers are big-endian. The lower 16 flags may be ignored, the upper ones may not. Data may end
//! without the trailer where a row could begin; nothing may follow the trailer.

use super::Fields;
use super::lines::{MAX_LINE, too_long};
use crate::error::{Result, SqlError, sqlstate};
use crate::types::{Datum, FormatContext, Type};

const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";
/// Data once came with object identifiers.
const WITH_OIDS: u32 = 1 << 16;
/// Consumed bytes are dropped from the buffer beyond this many.
const COMPACT: usize = 64 * 1024;

fn malformed(message: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate::BAD_COPY_FILE_FORMAT, message)
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Signature,
    Flags,
    ExtensionLength,
    /// So many bytes of the header's extension.
    Extension(usize),
    /// A row's number of fields, or the trailer.
    Row,
    /// This field of a row.
    Field(usize),
    /// Nothing: the trailer was read.
    End,
}

/// Reads COPY data in binary format.
#[derive(Debug)]
pub struct BinaryReader {
    buffer: Vec<u8>,
    /// Consumed bytes at the buffer's beginning.
    start: usize,
    stage: Stage,
    /// Fields of each row.
    width: usize,
    row: u64,
    finished: bool,
    row_max: usize,
}

impl BinaryReader {
    /// A reader before the first byte, of rows with so many fields and no more than so many bytes.
    pub fn new(width: usize, row_max: usize) -> BinaryReader {
        BinaryReader {
            buffer: Vec::new(),
            start: 0,
            stage: Stage::Signature,
            width,
            row: 0,
            finished: false,
            row_max: row_max.min(MAX_LINE),
        }
    }

    /// Number of the row that was read last or is being read, from 1; 0 within the header.
    pub fn row(&self) -> u64 {
        self.row
    }

    /// The field that is being read, if the data ends within a row.
    pub fn field(&self) -> Option<usize> {
        if let Stage::Field(place) = self.stage { Some(place) } else { None }
    }

    /// Takes more data.
    pub fn feed(&mut self, data: &[u8]) {
        if self.start > COMPACT && self.start * 2 > self.buffer.len() {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(data);
    }

    /// No more data will come.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// The next complete row's fields; false if more data is needed, or all is read. What is there
    /// of a row is kept in `fields`, which must be the same each time. 22P04 for malformed data,
    /// 53200 for a row that is too long, 54000 if there is a field that none may have.
    pub fn next(&mut self, fields: &mut Fields) -> Result<bool> {
        loop {
            let done = match self.stage {
                Stage::Signature => self.signature()?,
                Stage::Flags => self.flags()?,
                Stage::ExtensionLength => self.extension_length()?,
                Stage::Extension(length) => self.extension(length)?,
                Stage::Row => self.begin_row(fields)?,
                Stage::Field(place) if place == self.width => {
                    self.stage = Stage::Row;
                    return Ok(true);
                }
                Stage::Field(place) => self.read_field(place, fields)?,
                Stage::End if self.start < self.buffer.len() => {
                    return Err(malformed("received copy data after EOF marker"));
                }
                Stage::End => false,
            };
            if !done {
                return Ok(false);
            }
        }
    }

    /// The next so many bytes. None as long as they are not there; `missing` if they never will be.
    fn take(&mut self, length: usize, missing: &str) -> Result<Option<&[u8]>> {
        if self.buffer.len() - self.start < length {
            return if self.finished { Err(malformed(missing)) } else { Ok(None) };
        }
        let from = self.start;
        self.start += length;
        Ok(Some(&self.buffer[from..self.start]))
    }

    fn word(&mut self, missing: &str) -> Result<Option<i32>> {
        let bytes = self.take(4, missing)?;
        Ok(bytes.and_then(|bytes| bytes.try_into().ok()).map(i32::from_be_bytes))
    }

    fn signature(&mut self) -> Result<bool> {
        const UNKNOWN: &str = "COPY file signature not recognized";
        let Some(found) = self.take(SIGNATURE.len(), UNKNOWN)? else { return Ok(false) };
        if found != SIGNATURE {
            return Err(malformed(UNKNOWN));
        }
        self.stage = Stage::Flags;
        Ok(true)
    }

    fn flags(&mut self) -> Result<bool> {
        let Some(flags) = self.word("invalid COPY file header (missing flags)")? else { return Ok(false) };
        let flags = flags as u32;
        if flags & WITH_OIDS != 0 {
            return Err(malformed("invalid COPY file header (WITH OIDS)"));
        }
        if flags >> 16 != 0 {
            return Err(malformed("unrecognized critical flags in COPY file header"));
        }
        self.stage = Stage::ExtensionLength;
        Ok(true)
    }

    fn extension_length(&mut self) -> Result<bool> {
        const MISSING: &str = "invalid COPY file header (missing length)";
        let Some(length) = self.word(MISSING)? else { return Ok(false) };
        let length = usize::try_from(length).map_err(|_| malformed(MISSING))?;
        self.stage = Stage::Extension(length);
        Ok(true)
    }

    /// Nobody has said yet what an extension means.
    fn extension(&mut self, length: usize) -> Result<bool> {
        let skipped = length.min(self.buffer.len() - self.start);
        self.start += skipped;
        self.stage = if skipped == length { Stage::Row } else { Stage::Extension(length - skipped) };
        match self.stage {
            Stage::Row => Ok(true),
            _ if self.finished => Err(malformed("invalid COPY file header (wrong length)")),
            _ => Ok(false),
        }
    }

    fn begin_row(&mut self, fields: &mut Fields) -> Result<bool> {
        let Some(&[high, low]) = self.buffer.get(self.start..self.start + 2) else {
            // A row that has not even its count is none.
            return Ok(false);
        };
        self.start += 2;
        self.row += 1;
        let count = i16::from_be_bytes([high, low]);
        if count == -1 {
            self.stage = Stage::End;
            return Ok(true);
        }
        if usize::try_from(count) != Ok(self.width) {
            return Err(malformed(format!("row field count is {count}, expected {}", self.width)));
        }
        fields.clear();
        self.stage = Stage::Field(0);
        Ok(true)
    }

    fn read_field(&mut self, place: usize, fields: &mut Fields) -> Result<bool> {
        const MISSING: &str = "unexpected EOF in COPY data";
        let begin = self.start;
        let Some(length) = self.word(MISSING)? else { return Ok(false) };
        if length == -1 {
            fields.push(None);
        } else {
            let length = usize::try_from(length).map_err(|_| malformed("invalid field size"))?;
            if length > MAX_LINE {
                return Err(too_long(MAX_LINE));
            }
            if fields.bytes_held() + length > self.row_max {
                return Err(too_long(self.row_max));
            }
            let Some(value) = self.take(length, MISSING)? else {
                self.start = begin;
                return Ok(false);
            };
            fields.push(Some(value));
        }
        self.stage = Stage::Field(place + 1);
        Ok(true)
    }
}

/// Makes COPY data in binary format, in one buffer that is used again and again.
#[derive(Debug)]
pub struct BinaryWriter {
    /// The header is in it until the first row is.
    data: Vec<u8>,
    has_begun: bool,
}

impl Default for BinaryWriter {
    fn default() -> BinaryWriter {
        let mut data = SIGNATURE.to_vec();
        data.extend_from_slice(&[0; 8]);
        BinaryWriter { data, has_begun: false }
    }
}

impl BinaryWriter {
    /// Clears what was given out. The header goes along with what is first.
    fn begin(&mut self) {
        if self.has_begun {
            self.data.clear();
        }
        self.has_begun = true;
    }

    /// A row's data. 57014 once the statement should stop, 53200 and 54000 for too much of it.
    pub fn row(&mut self, row: &[Datum], types: &[Type], context: &FormatContext) -> Result<&[u8]> {
        self.begin();
        self.data.extend_from_slice(&(row.len() as i16).to_be_bytes());
        for (value, ty) in row.iter().zip(types) {
            if value.is_null() {
                self.data.extend_from_slice(&(-1_i32).to_be_bytes());
                continue;
            }
            let start = self.data.len();
            self.data.extend_from_slice(&[0; 4]);
            value.send(*ty, context, &mut self.data)?;
            let length = (self.data.len() - start - 4) as i32;
            self.data[start..start + 4].copy_from_slice(&length.to_be_bytes());
        }
        Ok(&self.data)
    }

    /// What ends the data.
    pub fn trailer(&mut self) -> &[u8] {
        self.begin();
        self.data.extend_from_slice(&(-1_i16).to_be_bytes());
        &self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TypeId;

    const TYPES: [Type; 2] = [Type::new(TypeId::Int4), Type::new(TypeId::Text)];

    /// Two rows: 1 and `a`, NULL and the empty text.
    fn data() -> Vec<u8> {
        let mut writer = BinaryWriter::default();
        let context = FormatContext::default();
        let one = writer.row(&[Datum::Int4(1), Datum::text("a")], &TYPES, &context);
        let mut data = one.expect("nothing bounds it").to_vec();
        let two = writer.row(&[Datum::Null, Datum::text("")], &TYPES, &context);
        data.extend_from_slice(two.expect("nothing bounds it"));
        data.extend_from_slice(writer.trailer());
        data
    }

    /// The rows of data that comes in pieces of this length, or what is wrong with it.
    fn read(data: &[u8], piece: usize) -> Result<Vec<Vec<Option<Vec<u8>>>>, String> {
        let mut reader = BinaryReader::new(2, 1 << 20);
        let (mut fields, mut rows) = (Fields::default(), vec![]);
        let mut take = |reader: &mut BinaryReader| {
            while reader.next(&mut fields)? {
                rows.push((0..fields.len()).map(|at| fields.get(at).map(<[u8]>::to_vec)).collect());
            }
            Ok(())
        };
        let mut all = || {
            for piece in data.chunks(piece) {
                reader.feed(piece);
                take(&mut reader)?;
            }
            reader.finish();
            take(&mut reader)
        };
        all().map_err(|error: SqlError| error.message.clone())?;
        Ok(rows)
    }

    #[test]
    fn what_is_written_is_read_however_it_is_cut() {
        let data = data();
        let one = vec![Some(1_i32.to_be_bytes().to_vec()), Some(b"a".to_vec())];
        let rows = vec![one, vec![None, Some(vec![])]];
        for piece in 1..=data.len() {
            assert_eq!(read(&data, piece), Ok(rows.clone()), "in pieces of {piece}");
        }
        // The trailer may be missing, or cut.
        assert_eq!(read(&data[..data.len() - 2], 3), Ok(rows.clone()));
        assert_eq!(read(&data[..data.len() - 1], 3), Ok(rows));
    }

    #[test]
    fn rows_may_have_no_fields() {
        let mut writer = BinaryWriter::default();
        let context = FormatContext::default();
        let mut data = writer.row(&[], &[], &context).unwrap().to_vec();
        data.extend_from_slice(writer.row(&[], &[], &context).unwrap());
        data.extend_from_slice(writer.trailer());
        let (mut reader, mut fields) = (BinaryReader::new(0, 1 << 20), Fields::default());
        reader.feed(&data);
        reader.finish();
        for _ in 0..2 {
            assert!(reader.next(&mut fields).expect("it reads"));
            assert!(fields.is_empty());
        }
        assert!(!reader.next(&mut fields).expect("it reads"));
    }

    #[test]
    fn each_place_where_data_can_end_has_its_error() {
        let data = data();
        for (end, expected) in [
            (0, "COPY file signature not recognized"),
            (10, "COPY file signature not recognized"),
            (11, "invalid COPY file header (missing flags)"),
            (18, "invalid COPY file header (missing length)"),
            (22, "unexpected EOF in COPY data"),
            (28, "unexpected EOF in COPY data"),
        ] {
            assert_eq!(read(&data[..end], 1), Err(expected.to_owned()), "cut at {end}");
        }
        assert_eq!(read(&data[..19], 1), Ok(vec![]));
    }

    #[test]
    fn malformed_data_is_named() {
        let changed = |at: usize, bytes: &[u8]| {
            let mut data = data();
            data[at..at + bytes.len()].copy_from_slice(bytes);
            read(&data, 5).unwrap_err()
        };
        assert_eq!(changed(0, b"X"), "COPY file signature not recognized");
        assert_eq!(changed(12, &[1]), "invalid COPY file header (WITH OIDS)");
        assert_eq!(changed(11, &[1]), "unrecognized critical flags in COPY file header");
        assert_eq!(changed(15, &[0xff]), "invalid COPY file header (missing length)");
        assert_eq!(changed(17, &[9]), "invalid COPY file header (wrong length)");
        assert_eq!(changed(19, &[0, 3]), "row field count is 3, expected 2");
        assert_eq!(changed(19, &[0xff, 0xff]), "received copy data after EOF marker");
        assert_eq!(changed(21, &[0xff, 0xff, 0xff, 0xfe]), "invalid field size");
        assert_eq!(changed(21, &[0x7f]), "a line of COPY data is too long");
        assert_eq!(changed(21, &[0, 0x20]), "out of memory");
    }

    #[test]
    fn an_extension_of_the_header_is_skipped() {
        let mut extended = data();
        extended[18] = 3;
        extended.splice(19..19, *b"ext");
        // The lower flags mean nothing yet.
        extended[14] = 1;
        for piece in [1, 4, 100] {
            assert_eq!(read(&extended, piece), read(&data(), 100));
        }
    }
}
