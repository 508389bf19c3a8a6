//! Aggregates that keep all values: arrays, joined texts, JSON.

use super::Accumulator;
use crate::error::{SqlError, sqlstate};
use crate::function::{EvalContext, json};
use crate::oltp::memory::datum_bytes;
use crate::types::{Array, Datum, Dimension, Text, Type, TypeId};

type Added = Result<(), SqlError>;
type Finished = Result<Datum, SqlError>;

/// `string_agg`: the delimiter of each value stands before it, except before the first.
struct Joined {
    out: Option<Vec<u8>>,
    bytes: bool,
}

impl Joined {
    fn datum(&self, out: Option<Vec<u8>>) -> Datum {
        match out {
            None => Datum::Null,
            Some(out) if self.bytes => Datum::Bytea(out.into()),
            // Texts joined are a text.
            Some(out) => Datum::Text(Text::from_stored(out.into())),
        }
    }
}

fn raw(datum: &Datum) -> &[u8] {
    match datum {
        Datum::Bytea(bytes) => bytes,
        other => other.as_text().map_or(&[], Text::as_bytes),
    }
}

impl Accumulator for Joined {
    fn add(&mut self, arguments: &[Datum], _: &EvalContext<'_>) -> Added {
        if arguments[0].is_null() {
            return Ok(());
        }
        match &mut self.out {
            Some(out) => out.extend_from_slice(raw(&arguments[1])),
            None => self.out = Some(Vec::new()),
        }
        if let Some(out) = &mut self.out {
            out.extend_from_slice(raw(&arguments[0]));
        }
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> Finished {
        let out = self.out.take();
        Ok(self.datum(out))
    }
    fn result(&self, _: &EvalContext<'_>) -> Finished {
        Ok(self.datum(self.out.clone()))
    }
    fn memory(&self) -> usize {
        self.out.as_ref().map_or(0, Vec::capacity)
    }
}

pub(super) fn string(types: &[Type]) -> Box<dyn Accumulator> {
    Box::new(Joined { out: None, bytes: types.first().is_some_and(|ty| ty.id == TypeId::Bytea) })
}

struct Elements {
    element: TypeId,
    values: Option<Vec<Datum>>,
    bytes: usize,
}

impl Accumulator for Elements {
    fn add(&mut self, arguments: &[Datum], _: &EvalContext<'_>) -> Added {
        self.bytes += datum_bytes(&arguments[0]);
        self.values.get_or_insert_default().push(arguments[0].clone());
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> Finished {
        Ok(self.values.take().map_or(Datum::Null, |values| Array::new(self.element, values).into()))
    }
    fn result(&self, _: &EvalContext<'_>) -> Finished {
        Ok(self.values.clone().map_or(Datum::Null, |values| Array::new(self.element, values).into()))
    }
    fn memory(&self) -> usize {
        self.bytes
    }
}

pub(super) fn array(types: &[Type]) -> Box<dyn Accumulator> {
    let element = types.first().map_or(TypeId::Text, |ty| ty.id);
    Box::new(Elements { element, values: None, bytes: 0 })
}

/// Arrays of one shape, as the rows of an array with a dimension more.
struct Nested {
    array: Option<Array>,
    rows: usize,
    bytes: usize,
}

impl Nested {
    fn datum(array: Option<Array>, rows: usize) -> Finished {
        let Some(mut array) = array else { return Ok(Datum::Null) };
        array.dimensions.insert(0, Dimension { length: rows, lower: 1 });
        Ok(array.checked()?.into())
    }
}

impl Accumulator for Nested {
    fn add(&mut self, arguments: &[Datum], _: &EvalContext<'_>) -> Added {
        let Datum::Array(next) = &arguments[0] else {
            return Err(SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, "cannot accumulate null arrays"));
        };
        if next.dimensions.is_empty() {
            return Err(SqlError::new(sqlstate::ARRAY_SUBSCRIPT_ERROR, "cannot accumulate empty arrays"));
        }
        match &mut self.array {
            None => self.array = Some(Array::clone(next)),
            Some(array) if array.dimensions == next.dimensions => {
                array.elements.extend_from_slice(&next.elements)
            }
            Some(_) => {
                return Err(SqlError::new(
                    sqlstate::ARRAY_SUBSCRIPT_ERROR,
                    "cannot accumulate arrays of different dimensionality",
                ));
            }
        }
        self.rows += 1;
        self.bytes += datum_bytes(&arguments[0]);
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> Finished {
        Nested::datum(self.array.take(), self.rows)
    }
    fn result(&self, _: &EvalContext<'_>) -> Finished {
        Nested::datum(self.array.clone(), self.rows)
    }
    fn memory(&self) -> usize {
        self.bytes
    }
}

pub(super) fn array_of_arrays(_: &[Type]) -> Box<dyn Accumulator> {
    Box::new(Nested { array: None, rows: 0, bytes: 0 })
}

/// JSON text that grows by a member or element a row.
struct Json {
    out: Option<Vec<u8>>,
    types: Vec<Type>,
    object: bool,
    binary: bool,
}

impl Json {
    fn datum(&self, out: Option<Vec<u8>>) -> Finished {
        let Some(mut out) = out else { return Ok(Datum::Null) };
        out.extend_from_slice(if self.object { b" }" } else { b"]" });
        json::finish(out, self.binary)
    }
}

impl Accumulator for Json {
    fn add(&mut self, arguments: &[Datum], context: &EvalContext<'_>) -> Added {
        let first = self.out.is_none();
        let (out, mut writer) = (self.out.get_or_insert_default(), json::Writer::new(context));
        match (first, self.object) {
            (true, true) => out.extend_from_slice(b"{ "),
            (true, false) => out.push(b'['),
            (false, _) => out.extend_from_slice(b", "),
        }
        if self.object {
            writer.key(&arguments[0], self.types[0], out)?;
            out.extend_from_slice(b" : ");
            writer.value(&arguments[1], self.types[1], out)?;
        } else {
            // PostgreSQL puts rows and arrays on lines of their own.
            if !first && matches!(arguments[0], Datum::Array(_) | Datum::Record(_)) {
                out.extend_from_slice(b"\n ");
            }
            writer.value(&arguments[0], self.types[0], out)?;
        }
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> Finished {
        let out = self.out.take();
        self.datum(out)
    }
    fn result(&self, _: &EvalContext<'_>) -> Finished {
        self.datum(self.out.clone())
    }
    fn memory(&self) -> usize {
        self.out.as_ref().map_or(0, Vec::capacity)
    }
}

fn json_accumulator(types: &[Type], object: bool, binary: bool) -> Box<dyn Accumulator> {
    Box::new(Json { out: None, types: types.to_vec(), object, binary })
}

pub(super) fn json_array(types: &[Type]) -> Box<dyn Accumulator> {
    json_accumulator(types, false, false)
}

pub(super) fn jsonb_array(types: &[Type]) -> Box<dyn Accumulator> {
    json_accumulator(types, false, true)
}

pub(super) fn json_object(types: &[Type]) -> Box<dyn Accumulator> {
    json_accumulator(types, true, false)
}

pub(super) fn jsonb_object(types: &[Type]) -> Box<dyn Accumulator> {
    json_accumulator(types, true, true)
}
