//! Stored rows: compact, and any column readable without touching the others.
//!
//! ```text
//! byte 0        version 1 in the low four bits; bit 7: offsets are four bytes wide instead of two
//! bytes 1-2     number of columns in this row, little-endian
//! bitmap        one bit a column, least significant first, 1 = NULL
//! fixed         the columns of fixed width in column order, little-endian; zeros for NULL
//! offsets       for each column of variable width, in column order, the end of its bytes, counted from the start of `data`
//! data          the bytes of the columns of variable width
//! ```
//!
//! A column's place follows from the types of the columns before it, which [`RowLayout`] sums up
//! once for a table. So a row written before columns were added is still readable: what it lacks
//! reads as absent ([`Row::get`] gives `None`), and the reader puts the default there. Long texts
//! and bytea share the row's memory, unless that is a small part of a larger buffer. char(n) is
//! stored without trailing blanks and padded on reading.

use bytes::Bytes;
use cognate_engine::Lent;

use crate::error::{SqlError, sqlstate};
use crate::types::{Datum, EnumValue, Interval, Numeric, Text, Type, TypeId, keep_part, pad};

const VERSION: u8 = 1;
const WIDE: u8 = 0x80;
/// Bytes before the bitmap.
const HEADER: usize = 3;

/// Most columns of a row.
pub const MAX_COLUMNS: usize = 1600;

#[derive(Clone, Copy, Debug)]
enum Place {
    /// Offset within the fixed part.
    Fixed(u32),
    /// Ordinal among the columns of variable width.
    Variable(u32),
}

/// Where the columns of a table's rows are.
#[derive(Clone, Debug)]
pub struct RowLayout {
    types: Vec<Type>,
    places: Vec<Place>,
    /// Width of the fixed part, and number of variable columns, of a row with the first n columns.
    sums: Vec<(u32, u32)>,
}

/// Bytes of a fixed-width type.
fn width(id: TypeId) -> Option<u32> {
    Some(match id {
        TypeId::Bool => 1,
        TypeId::Int2 => 2,
        TypeId::Int4 | TypeId::Float4 | TypeId::Date | TypeId::Xid => 4,
        TypeId::Int8
        | TypeId::Float8
        | TypeId::Time
        | TypeId::Timestamp
        | TypeId::Timestamptz
        | TypeId::Enum
        | TypeId::PgLsn
        | TypeId::Xid8 => 8,
        TypeId::Interval | TypeId::Uuid => 16,
        id if id.is_oid() => 4,
        _ => return None,
    })
}

#[cold]
fn corrupt() -> SqlError {
    SqlError::new(sqlstate::DATA_CORRUPTED, "malformed row")
}

impl RowLayout {
    /// The layout of rows with columns of these types, in storage order.
    pub fn new(types: &[Type]) -> RowLayout {
        let (mut fixed, mut variable) = (0, 0);
        let mut places = Vec::with_capacity(types.len());
        let mut sums = vec![(0, 0)];
        for ty in types {
            match width(ty.id) {
                Some(width) => {
                    places.push(Place::Fixed(fixed));
                    fixed += width;
                }
                None => {
                    places.push(Place::Variable(variable));
                    variable += 1;
                }
            }
            sums.push((fixed, variable));
        }
        RowLayout { types: types.to_vec(), places, sums }
    }

    /// The columns' types.
    pub fn types(&self) -> &[Type] {
        &self.types
    }

    /// The row of these values, one for each column.
    pub fn encode(&self, datums: &[Datum]) -> Result<Bytes, SqlError> {
        let mut out = Vec::new();
        self.encode_into(datums, &mut out)?;
        Ok(Bytes::from(out))
    }

    /// Appends the row of these values, one for each column. XX000 if a value is not of its
    /// column's type.
    pub fn encode_into(&self, datums: &[Datum], out: &mut Vec<u8>) -> Result<(), SqlError> {
        if datums.len() != self.types.len() || datums.len() > MAX_COLUMNS {
            return Err(SqlError::internal(format!(
                "row has {} columns, {} expected",
                datums.len(),
                self.types.len()
            )));
        }
        let start = out.len();
        let (fixed, variable) = self.sums[datums.len()];
        out.reserve(HEADER + datums.len().div_ceil(8) + fixed as usize + variable as usize * 10);
        out.push(VERSION);
        out.extend_from_slice(&(datums.len() as u16).to_le_bytes());
        let bitmap = out.len();
        out.resize(bitmap + datums.len().div_ceil(8), 0);
        for (i, (datum, ty)) in datums.iter().zip(&self.types).enumerate() {
            if datum.is_null() {
                out[bitmap + i / 8] |= 1 << (i % 8);
            }
            if let Some(width) = width(ty.id) {
                write_fixed(datum, ty.id, width as usize, out)?;
            }
        }
        if variable > 0 {
            self.encode_variable(datums, variable as usize, start, out)?;
        }
        Ok(())
    }

    fn encode_variable(
        &self,
        datums: &[Datum],
        count: usize,
        start: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), SqlError> {
        let offsets = out.len();
        out.resize(offsets + 2 * count, 0);
        let data = out.len();
        let mut ends = smallvec::SmallVec::<[u32; 32]>::new();
        for (datum, ty) in datums.iter().zip(&self.types) {
            if width(ty.id).is_some() {
                continue;
            }
            write_variable(datum, ty.id, out)?;
            let end = u32::try_from(out.len() - data)
                .map_err(|_| SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "row is too big"))?;
            ends.push(end);
        }
        if out.len() - data <= usize::from(u16::MAX) {
            for (slot, end) in out[offsets..data].chunks_exact_mut(2).zip(&ends) {
                slot.copy_from_slice(&(*end as u16).to_le_bytes());
            }
            return Ok(());
        }
        out[start] |= WIDE;
        out.splice(offsets..data, ends.iter().flat_map(|end| end.to_le_bytes()));
        Ok(())
    }

    /// Opens a stored row. XX001 if it cannot be one of this layout.
    #[inline(always)]
    pub fn open<'a>(&'a self, row: impl Into<Lent<'a>>) -> Result<Row<'a>, SqlError> {
        let row = row.into();
        let bytes = row.bytes();
        let [first, low, high, ..] = *bytes else { return Err(corrupt()) };
        let columns = usize::from(u16::from_le_bytes([low, high]));
        if first & !WIDE != VERSION || columns > self.types.len() {
            return Err(corrupt());
        }
        let (fixed_width, variable) = self.sums[columns];
        let wide = first & WIDE != 0;
        let fixed = HEADER + columns.div_ceil(8);
        let offsets = fixed + fixed_width as usize;
        let data = offsets + variable as usize * if wide { 4 } else { 2 };
        if bytes.len() < data {
            return Err(corrupt());
        }
        Ok(Row { layout: self, bytes, buffer: row.buffer(), columns, wide, fixed, offsets, data })
    }

    /// All columns of a stored row; those it lacks as NULL.
    pub fn decode(&self, bytes: &Bytes) -> Result<Vec<Datum>, SqlError> {
        let row = self.open(bytes)?;
        (0..self.types.len()).map(|i| Ok(row.get(i)?.unwrap_or(Datum::Null))).collect()
    }
}

/// A stored row, opened for reading.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    layout: &'a RowLayout,
    bytes: &'a [u8],
    /// What texts share: the row is a part of it.
    buffer: &'a Bytes,
    columns: usize,
    wide: bool,
    fixed: usize,
    offsets: usize,
    data: usize,
}

/// A column as it is stored.
#[derive(Clone, Copy)]
pub(crate) enum Stored<'a> {
    Null,
    /// Its type and its bytes; behind those of a fixed width there are others.
    Bytes(TypeId, &'a [u8]),
}

impl<'a> Stored<'a> {
    /// The bytes of its value and nothing else; none of NULL.
    pub(crate) fn value(self) -> Option<&'a [u8]> {
        match self {
            Stored::Null => None,
            Stored::Bytes(id, bytes) => {
                let width = width(id).map_or(bytes.len(), |width| width as usize);
                Some(&bytes[..width.min(bytes.len())])
            }
        }
    }
}

impl Row<'_> {
    /// Number of columns stored in this row, perhaps fewer than the table has by now.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Is the column NULL? False if the row lacks it.
    pub fn is_null(&self, column: usize) -> bool {
        column < self.columns && self.bytes[HEADER + column / 8] & (1 << (column % 8)) != 0
    }

    /// The value of a column; `None` if the row was written before the column was added. XX001 if
    /// the bytes are damaged.
    pub fn get(&self, column: usize) -> Result<Option<Datum>, SqlError> {
        let mut value = Datum::Null;
        Ok(self.read(column, &mut value)?.then_some(value))
    }

    /// Puts the value of a column into a place. False if the row was written before the column was
    /// added. XX001 if the bytes are damaged.
    #[inline]
    pub fn read(&self, column: usize, place: &mut Datum) -> Result<bool, SqlError> {
        if column >= self.columns {
            return Ok(false);
        }
        if self.is_null(column) {
            *place = Datum::Null;
            return Ok(true);
        }
        let ty = self.layout.types[column];
        let read = match self.layout.places[column] {
            Place::Fixed(offset) => read_fixed(&self.bytes[self.fixed + offset as usize..], ty, place),
            Place::Variable(ordinal) => {
                self.part(ordinal as usize).and_then(|part| read_variable(part, self.buffer, ty, place))
            }
        };
        read.map(|()| true).ok_or_else(corrupt)
    }

    /// A column as it is stored. `None` if the row was written before the column was added, or if
    /// the bytes are damaged: [`Row::read`] tells which.
    #[inline]
    pub(crate) fn stored(&self, column: usize) -> Option<Stored<'_>> {
        if column >= self.columns {
            return None;
        }
        if self.is_null(column) {
            return Some(Stored::Null);
        }
        let bytes = match self.layout.places[column] {
            Place::Fixed(offset) => self.bytes.get(self.fixed + offset as usize..)?,
            Place::Variable(ordinal) => self.part(ordinal as usize)?,
        };
        Some(Stored::Bytes(self.layout.types[column].id, bytes))
    }

    #[inline]
    fn end(&self, ordinal: usize) -> Option<usize> {
        let offsets = &self.bytes[self.offsets..self.data];
        if self.wide {
            let bytes = offsets.get(ordinal * 4..)?.first_chunk::<4>()?;
            Some(u32::from_le_bytes(*bytes) as usize)
        } else {
            let bytes = offsets.get(ordinal * 2..)?.first_chunk::<2>()?;
            Some(usize::from(u16::from_le_bytes(*bytes)))
        }
    }

    /// The bytes of a column of variable width.
    #[inline]
    fn part(&self, ordinal: usize) -> Option<&[u8]> {
        let start = self.data + if ordinal == 0 { 0 } else { self.end(ordinal - 1)? };
        let end = self.data + self.end(ordinal)?;
        self.bytes.get(start..end)
    }
}

fn mismatch(datum: &Datum, id: TypeId) -> SqlError {
    SqlError::internal(format!("value {datum:?} in a column of type {}", id.sql_name()))
}

fn write_fixed(datum: &Datum, id: TypeId, width: usize, out: &mut Vec<u8>) -> Result<(), SqlError> {
    if !id.holds(datum) {
        return Err(mismatch(datum, id));
    }
    match datum {
        Datum::Bool(value) => out.push(u8::from(*value)),
        Datum::Int2(value) => out.extend_from_slice(&value.to_le_bytes()),
        Datum::Int4(value) | Datum::Date(value) => out.extend_from_slice(&value.to_le_bytes()),
        Datum::Int8(value) | Datum::Time(value) | Datum::Timestamp(value) | Datum::Timestamptz(value) => {
            out.extend_from_slice(&value.to_le_bytes());
        }
        Datum::Float4(value) => out.extend_from_slice(&value.to_le_bytes()),
        Datum::Float8(value) => out.extend_from_slice(&value.to_le_bytes()),
        Datum::Oid(value) => out.extend_from_slice(&value.to_le_bytes()),
        Datum::Unsigned(value) => out.extend_from_slice(&value.to_le_bytes()),
        Datum::Uuid(value) => out.extend_from_slice(value),
        Datum::Enum(value) => out.extend_from_slice(&value.position.to_le_bytes()),
        Datum::Interval(value) => {
            out.extend_from_slice(&value.micros.to_le_bytes());
            out.extend_from_slice(&value.days.to_le_bytes());
            out.extend_from_slice(&value.months.to_le_bytes());
        }
        Datum::Null => out.resize(out.len() + width, 0),
        _ => return Err(mismatch(datum, id)),
    }
    Ok(())
}

/// Puts a value where mostly another one of its kind is, that of the row before. Then nothing has
/// to be looked for that the place may own.
macro_rules! put {
    ($place:ident, $kind:ident, $value:expr) => {{
        let value = $value;
        match $place {
            Datum::$kind(held) => *held = value,
            other => *other = Datum::$kind(value),
        }
    }};
}

/// Puts the value where it belongs. Each is written there at once: moving one that was just made
/// costs more than reading it.
#[inline]
fn read_fixed(bytes: &[u8], ty: Type, place: &mut Datum) -> Option<()> {
    fn take<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.first_chunk::<N>().copied()
    }
    match ty.id {
        TypeId::Int4 => put!(place, Int4, i32::from_le_bytes(take(bytes)?)),
        TypeId::Int8 => put!(place, Int8, i64::from_le_bytes(take(bytes)?)),
        TypeId::Date => put!(place, Date, i32::from_le_bytes(take(bytes)?)),
        TypeId::Bool => put!(place, Bool, *bytes.first()? != 0),
        TypeId::Int2 => put!(place, Int2, i16::from_le_bytes(take(bytes)?)),
        TypeId::Float4 => put!(place, Float4, f32::from_le_bytes(take(bytes)?)),
        TypeId::Float8 => put!(place, Float8, f64::from_le_bytes(take(bytes)?)),
        TypeId::Time => put!(place, Time, i64::from_le_bytes(take(bytes)?)),
        TypeId::Timestamp => put!(place, Timestamp, i64::from_le_bytes(take(bytes)?)),
        TypeId::Timestamptz => put!(place, Timestamptz, i64::from_le_bytes(take(bytes)?)),
        TypeId::Interval => {
            *place = Datum::Interval(Interval {
                micros: i64::from_le_bytes(take(bytes)?),
                days: i32::from_le_bytes(take(bytes.get(8..)?)?),
                months: i32::from_le_bytes(take(bytes.get(12..)?)?),
            });
        }
        TypeId::Uuid => *place = Datum::Uuid(take(bytes)?),
        TypeId::PgLsn | TypeId::Xid8 => *place = Datum::Unsigned(u64::from_le_bytes(take(bytes)?)),
        TypeId::Enum => {
            let position = i64::from_le_bytes(take(bytes)?);
            *place = Datum::Enum(EnumValue { ty: ty.bare().oid(), position });
        }
        _ => *place = Datum::Oid(u32::from_le_bytes(take(bytes)?)),
    }
    Some(())
}

fn write_variable(datum: &Datum, id: TypeId, out: &mut Vec<u8>) -> Result<(), SqlError> {
    if !id.holds(datum) {
        return Err(mismatch(datum, id));
    }
    match datum {
        Datum::Null => {}
        Datum::Text(text) | Datum::Jsonb(text) => out.extend_from_slice(text.as_bytes()),
        Datum::Bpchar(text) => out.extend_from_slice(text.trim_end_blanks().as_bytes()),
        Datum::Bytea(bytes) => out.extend_from_slice(bytes),
        Datum::Numeric(value) => value.write_stored(out),
        Datum::Array(_) | Datum::Inet(_) => datum.to_binary(Type::new(id), out),
        _ => return Err(mismatch(datum, id)),
    }
    Ok(())
}

/// The same for a column of variable width.
#[inline]
fn read_variable(bytes: &[u8], buffer: &Bytes, ty: Type, place: &mut Datum) -> Option<()> {
    match ty.id {
        TypeId::Numeric => match Numeric::read_word(bytes) {
            Some(word) => put!(place, Numeric, Numeric::from(word)),
            None => *place = Datum::Numeric(Numeric::read_stored(bytes)?),
        },
        TypeId::Bpchar => match Text::of_few(bytes, ty.character_limit().unwrap_or(0)) {
            Some(text) => put!(place, Bpchar, text),
            None => *place = read_other(bytes, buffer, ty)?,
        },
        TypeId::Text | TypeId::Varchar => match Text::of_few(bytes, 0) {
            Some(text) => put!(place, Text, text),
            None => *place = read_other(bytes, buffer, ty)?,
        },
        _ => *place = read_other(bytes, buffer, ty)?,
    }
    Some(())
}

fn read_other(bytes: &[u8], buffer: &Bytes, ty: Type) -> Option<Datum> {
    // Everything above relies on texts being UTF-8.
    let text = || std::str::from_utf8(bytes).is_ok().then(|| Text::from_stored_in(buffer, bytes));
    Some(match ty.id {
        TypeId::Text
        | TypeId::Varchar
        | TypeId::Name
        | TypeId::InternalChar
        | TypeId::Json
        | TypeId::PgSnapshot
        | TypeId::TxidSnapshot
        | TypeId::Unknown => Datum::Text(text()?),
        TypeId::Bpchar => Datum::Bpchar(pad(text()?, ty)),
        TypeId::Jsonb => Datum::Jsonb(text()?),
        TypeId::Bytea => Datum::Bytea(keep_part(buffer, bytes)),
        _ => Datum::from_binary(ty, bytes).ok()?,
    })
}
