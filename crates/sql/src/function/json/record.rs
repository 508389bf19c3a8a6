//! JSON objects as rows whose columns have types: `json_to_record`, `json_populate_record` and
//! theirs for sets.
//!
//! A string is read as text is, anything else by its JSON text; arrays become arrays, JSON's null
//! and members that are missing become NULL.

use super::Computed;
use super::access::{ROW_BYTES, part_text, read};
use super::change::cannot;
use crate::error::{SqlError, sqlstate};
use crate::function::EvalContext;
use crate::types::bounds::Meter;
use crate::types::cast::apply_modifier;
use crate::types::json::{self, Node, Value};
use crate::types::{Array, Datum, Dimension, Type, TypeId};

/// Most dimensions of an array.
const DIMENSIONS_MAX: usize = 6;

/// The rows of a call of a function of this name: one, or of a set one for each object of an array.
pub(crate) fn json_records(
    name: &str,
    whole: &Datum,
    columns: &[(String, Type)],
    context: &EvalContext<'_>,
) -> Result<Vec<Vec<Datum>>, SqlError> {
    let is_set = name.ends_with("recordset");
    if whole.is_null() {
        return Ok(if is_set { vec![] } else { vec![vec![Datum::Null; columns.len()]] });
    }
    let (node, binary) = read(whole)?;
    let mut meter = Meter::default();
    let mut row = |object: &Node| -> Result<Vec<Datum>, SqlError> {
        meter.add(ROW_BYTES + columns.len() * size_of::<Datum>())?;
        let member = |(key, ty): &(String, Type)| match object.member(key) {
            Some(member) => Reader { key, whole, context }.value(member, *ty),
            None => Ok(Datum::Null),
        };
        columns.iter().map(member).collect()
    };
    let elements = match (&node.value, is_set) {
        (Value::Object(_), false) => return Ok(vec![row(&node)?]),
        (Value::Array(elements), true) => elements,
        (Value::Array(_), false) => return Err(cannot(&format!("cannot call {name} on an array"))),
        (_, true) if binary => return Err(cannot(&format!("cannot call {name} on a non-array"))),
        (Value::Object(_), true) => return Err(cannot(&format!("cannot call {name} on an object"))),
        _ => return Err(cannot(&format!("cannot call {name} on a scalar"))),
    };
    let object = |element: &Node| match &element.value {
        Value::Object(_) => row(element),
        _ => Err(cannot(&format!("argument of {name} must be an array of objects"))),
    };
    elements.iter().map(object).collect()
}

/// Reads the member of a key.
struct Reader<'a> {
    key: &'a str,
    whole: &'a Datum,
    context: &'a EvalContext<'a>,
}

impl Reader<'_> {
    /// A value of this type.
    fn value(&self, node: &Node, ty: Type) -> Computed {
        match &node.value {
            Value::Null => Ok(Datum::Null),
            Value::String(text) if matches!(ty.id, TypeId::Json | TypeId::Jsonb) => {
                let mut quoted = Vec::new();
                json::write_string(text, &mut quoted, &mut Meter::default())?;
                super::finish(quoted, ty.id == TypeId::Jsonb)
            }
            Value::String(text) => self.read(text, ty),
            _ if ty.id.is_array() => self.array(node, ty),
            _ => match part_text(node, self.whole)? {
                Datum::Text(text) => self.read(text.as_str(), ty),
                _ => Ok(Datum::Null),
            },
        }
    }

    /// As a literal is read.
    fn read(&self, text: &str, ty: Type) -> Computed {
        let read_as = if ty.id == TypeId::Interval { ty } else { ty.plain() };
        apply_modifier(Datum::from_text(read_as, text, self.context.format)?, ty, false)
    }

    fn array(&self, node: &Node, ty: Type) -> Computed {
        let element = ty.element().ok_or_else(|| SqlError::internal("an array type without elements"))?;
        let mut filling = Filling { element, lengths: vec![], depth: None, elements: vec![] };
        self.fill(node, &mut filling, &mut vec![])?;
        if filling.lengths.len() > DIMENSIONS_MAX {
            let count = filling.lengths.len();
            let message = format!(
                "number of array dimensions ({count}) exceeds the maximum allowed ({DIMENSIONS_MAX})"
            );
            return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message));
        }
        let dimensions = match filling.elements.is_empty() {
            true => vec![],
            false => filling.lengths.iter().flatten().map(|&length| Dimension { length, lower: 1 }).collect(),
        };
        let array = Array { element: element.id, dimensions, elements: filling.elements };
        Ok(Datum::Array(array.into()))
    }

    /// Adds the elements of an array, whose place among those around it is `path`.
    fn fill(&self, node: &Node, filling: &mut Filling, path: &mut Vec<usize>) -> Result<(), SqlError> {
        let Value::Array(elements) = &node.value else { return Err(self.expected_array(path)) };
        let depth = path.len();
        let is_flat = !matches!(elements.first().map(|first| &first.value), Some(Value::Array(_)));
        if is_flat && filling.depth.is_none() {
            filling.depth = Some(depth);
        }
        for (place, element) in elements.iter().enumerate() {
            if filling.depth.is_some_and(|innermost| depth >= innermost) {
                filling.elements.push(self.value(element, filling.element)?);
            } else {
                path.push(place);
                self.fill(element, filling, path)?;
                path.pop();
            }
        }
        if filling.lengths.len() <= depth {
            filling.lengths.resize(depth + 1, None);
        }
        match filling.lengths[depth].replace(elements.len()) {
            Some(before) if before != elements.len() => {
                Err(SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, "malformed JSON array")
                    .with_detail("Multidimensional arrays must have sub-arrays with matching dimensions."))
            }
            _ => Ok(()),
        }
    }

    fn expected_array(&self, path: &[usize]) -> SqlError {
        let places: String = path.iter().map(|place| format!("[{place}]")).collect();
        let hint = match path {
            [] => format!("See the value of key \"{}\".", self.key),
            _ => format!("See the array element {places} of key \"{}\".", self.key),
        };
        SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, "expected JSON array").with_hint(hint)
    }
}

/// An array being read.
struct Filling {
    element: Type,
    /// Of the arrays of each depth, as far as known.
    lengths: Vec<Option<usize>>,
    /// That of the innermost arrays, once it is known.
    depth: Option<usize>,
    elements: Vec<Datum>,
}
