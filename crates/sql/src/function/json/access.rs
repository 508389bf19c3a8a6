//! Taking JSON apart: members, elements, paths, containment, rows.

use super::change::cannot;
use crate::error::SqlError;
use crate::function::EvalContext;
use crate::function::array::array_of;
use crate::function::math::unexpected;
use crate::function::string::str_of;
use crate::types::Datum;
use crate::types::bounds::{Meter, ask};
use crate::types::json::{self, Node, Value};

type Computed = Result<Datum, SqlError>;

/// The value read, and whether it is jsonb.
pub(super) fn read(datum: &Datum) -> Result<(Node, bool), SqlError> {
    Ok((json::parse(str_of(datum)?)?, matches!(datum, Datum::Jsonb(_))))
}

/// A part of a value as json (its own text) or jsonb.
pub(super) fn part(node: &Node, whole: &Datum) -> Computed {
    let text = whole.as_text().ok_or_else(|| unexpected(&[whole]))?;
    let slice = text.slice(node.span.start, node.span.end);
    Ok(if matches!(whole, Datum::Jsonb(_)) { Datum::Jsonb(slice) } else { Datum::Text(slice) })
}

/// A part of a value as text: strings without their quotes, null as NULL.
pub(super) fn part_text(node: &Node, whole: &Datum) -> Computed {
    match &node.value {
        Value::Null => Ok(Datum::Null),
        Value::String(text) => Ok(text.as_str().into()),
        _ => match part(node, whole)? {
            Datum::Jsonb(text) | Datum::Text(text) => Ok(Datum::Text(text)),
            other => Ok(other),
        },
    }
}

pub(super) fn find(whole: &Datum, step: &Datum, as_text: bool) -> Computed {
    let (node, _) = read(whole)?;
    let found = match (step, &node.value) {
        (Datum::Text(key), _) => node.member(key.as_str()),
        (other, Value::Array(_) | Value::Object(_)) => node.element(other.as_i64().unwrap_or(i64::MAX)),
        // A jsonb that is a single value is an array of one to this operator.
        (other, _) => {
            let is_it = matches!(whole, Datum::Jsonb(_)) && matches!(other.as_i64(), Some(0 | -1));
            is_it.then_some(&node)
        }
    };
    match found {
        None => Ok(Datum::Null),
        Some(found) if as_text => part_text(found, whole),
        Some(found) => part(found, whole),
    }
}

pub(super) fn get(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    find(a, b, false)
}

pub(super) fn get_text(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    find(a, b, true)
}

/// The texts of a path; `None` if one is NULL.
pub(super) fn steps(elements: &[Datum]) -> Option<Vec<&str>> {
    elements.iter().map(Datum::as_str).collect()
}

pub(super) fn follow(whole: &Datum, path: &[Datum], as_text: bool) -> Computed {
    let (node, _) = read(whole)?;
    let Some(steps) = steps(path) else { return Ok(Datum::Null) };
    match node.path(steps.into_iter()) {
        None => Ok(Datum::Null),
        Some(found) if as_text => part_text(found, whole),
        Some(found) => part(found, whole),
    }
}

pub(super) fn get_path(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    follow(a, &array_of(b)?.elements, false)
}

pub(super) fn get_path_text(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    follow(a, &array_of(b)?.elements, true)
}

pub(super) fn extract_path(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    follow(&arguments[0], &arguments[1..], false)
}

pub(super) fn extract_path_text(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    follow(&arguments[0], &arguments[1..], true)
}

pub(super) fn contains(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    read(a)?.0.contains(&read(b)?.0, &mut Meter::default()).map(Datum::Bool)
}

pub(super) fn contained(a: &Datum, b: &Datum, context: &EvalContext<'_>) -> Computed {
    contains(b, a, context)
}

/// Is the text a key of the object, a string of the array, or the string itself?
pub(super) fn has_key(node: &Node, key: &str) -> bool {
    match &node.value {
        Value::Object(members) => members.iter().any(|(k, _)| k == key),
        Value::Array(elements) => elements.iter().any(|e| matches!(&e.value, Value::String(s) if s == key)),
        Value::String(text) => text == key,
        _ => false,
    }
}

pub(super) fn exists(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Bool(has_key(&read(a)?.0, str_of(b)?)))
}

/// Whether any (or each) of the texts is a key: the first that is (or is not) decides.
fn among_keys(a: &Datum, b: &Datum, decisive: bool) -> Computed {
    let node = read(a)?.0;
    for key in array_of(b)?.elements.iter().filter_map(Datum::as_str) {
        ask()?;
        if has_key(&node, key) == decisive {
            return Ok(Datum::Bool(decisive));
        }
    }
    Ok(Datum::Bool(!decisive))
}

pub(super) fn exists_any(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    among_keys(a, b, true)
}

pub(super) fn exists_all(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    among_keys(a, b, false)
}

pub(super) fn array_length(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    match json::parse_shape(str_of(&arguments[0])?)?.value {
        Value::Array(elements) => Ok(Datum::Int4(elements.len() as i32)),
        Value::Object(_) => Err(cannot("cannot get array length of a non-array")),
        _ => Err(cannot("cannot get array length of a scalar")),
    }
}

pub(super) fn type_of(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(json::parse_shape(str_of(&arguments[0])?)?.type_name().into())
}

/// What a row takes beside its values.
pub(super) const ROW_BYTES: usize = size_of::<Vec<Datum>>() + 16;

/// The rows of the JSON functions that give rows; `None` for another name.
pub(in crate::function) fn rows(
    name: &str,
    arguments: &[Datum],
) -> Result<Option<Vec<Vec<Datum>>>, SqlError> {
    let (base, binary) = match name.strip_prefix("jsonb_") {
        Some(base) => (base, true),
        None => match name.strip_prefix("json_") {
            Some(base) => (base, false),
            None => return Ok(None),
        },
    };
    let wanted = ["array_elements", "array_elements_text", "object_keys", "each", "each_text"];
    if !wanted.contains(&base) {
        return Ok(None);
    }
    let whole = &arguments[0];
    let node = match base {
        "array_elements" => json::parse_shape(str_of(whole)?)?,
        _ => read(whole)?.0,
    };
    let mut meter = Meter::default();
    let take = |node: &Node| if base.ends_with("text") { part_text(node, whole) } else { part(node, whole) };
    let rows: Result<Vec<Vec<Datum>>, SqlError> = match (&node.value, base.starts_with("array")) {
        (Value::Array(elements), true) => {
            let row = |element: &Node| {
                meter.add(ROW_BYTES + size_of::<Datum>())?;
                Ok(vec![take(element)?])
            };
            elements.iter().map(row).collect()
        }
        (Value::Object(_), true) if binary => Err(cannot("cannot extract elements from an object")),
        (Value::Object(_), true) => Err(cannot(&format!("cannot call {name} on a non-array"))),
        (_, true) if binary => Err(cannot("cannot extract elements from a scalar")),
        (_, true) => Err(cannot(&format!("cannot call {name} on a scalar"))),
        (Value::Object(members), false) => {
            let members: Vec<&(String, Node)> =
                if binary { json::ordered_members(members, &mut meter)? } else { members.iter().collect() };
            let keys_only = base == "object_keys";
            let row = |(key, value): &(String, Node)| {
                meter.add(ROW_BYTES + 2 * size_of::<Datum>())?;
                let key: Datum = key.as_str().into();
                Ok(if keys_only { vec![key] } else { vec![key, take(value)?] })
            };
            members.into_iter().map(row).collect()
        }
        (_, false) if base != "object_keys" && binary => {
            Err(cannot(&format!("cannot call {name} on a non-object")))
        }
        (Value::Array(_), false) if base != "object_keys" => {
            Err(cannot("cannot deconstruct an array as an object"))
        }
        (_, false) if base != "object_keys" => Err(cannot("cannot deconstruct a scalar")),
        (other, false) => {
            let kind = if matches!(other, Value::Array(_)) { "an array" } else { "a scalar" };
            Err(cannot(&format!("cannot call {name} on {kind}")))
        }
    };
    rows.map(Some)
}
