//! Changing JSON: joining, deleting, setting, and other ways of writing it.

use std::collections::HashSet;

use super::access::read;
use super::finish;
use crate::error::{SqlError, sqlstate};
use crate::function::EvalContext;
use crate::function::array::array_of;
use crate::function::string::str_of;
use crate::types::bounds::Meter;
use crate::types::json::{self, Node, Value};
use crate::types::{Datum, Text};

type Computed = Result<Datum, SqlError>;

pub(super) fn normal(node: &Node) -> Computed {
    let mut out = Vec::new();
    node.write_normal(&mut out, &mut Meter::default())?;
    Ok(Datum::Jsonb(Text::from_stored(out.into())))
}

/// Objects are merged, the right one's members winning; anything else is joined as arrays.
pub(super) fn concatenate(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let (a, b) = (read(a)?.0, read(b)?.0);
    let value = match (a.value, b.value) {
        (Value::Object(mut left), Value::Object(right)) => {
            left.extend(right);
            Value::Object(left)
        }
        (left, right) => {
            let elements = |value| match value {
                Value::Array(elements) => elements,
                other => vec![Node::new(other)],
            };
            let mut joined = elements(left);
            joined.extend(elements(right));
            Value::Array(joined)
        }
    };
    normal(&Node::new(value))
}

#[cold]
pub(super) fn cannot(what: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, what.to_owned())
}

pub(super) fn delete_keys(mut node: Node, keys: &[&str]) -> Computed {
    let keys: HashSet<&str> = keys.iter().copied().collect();
    match &mut node.value {
        Value::Object(members) => members.retain(|(key, _)| !keys.contains(key.as_str())),
        Value::Array(elements) => {
            elements.retain(|e| !matches!(&e.value, Value::String(s) if keys.contains(s.as_str())));
        }
        _ => return Err(cannot("cannot delete from scalar")),
    }
    normal(&node)
}

pub(super) fn delete_key(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    delete_keys(read(a)?.0, &[str_of(b)?])
}

pub(super) fn delete_key_list(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let keys: Vec<&str> = texts_of(b)?.iter().filter_map(Datum::as_str).collect();
    delete_keys(read(a)?.0, &keys)
}

pub(super) fn delete_index(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let mut node = read(a)?.0;
    match &mut node.value {
        Value::Array(elements) => {
            let index = b.as_i64().unwrap_or(0);
            let index = if index < 0 { index + elements.len() as i64 } else { index };
            if let Ok(index) = usize::try_from(index)
                && index < elements.len()
            {
                elements.remove(index);
            }
        }
        Value::Object(_) => return Err(cannot("cannot delete from object using integer index")),
        _ => return Err(cannot("cannot delete from scalar")),
    }
    normal(&node)
}

/// What to do at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Replace {
        create: bool,
    },
    /// Before or after an element; a member that is there already is an error.
    Insert {
        after: bool,
    },
    Delete,
}

/// Index into an array that a step means: negative ones count from the end. Outside, before the
/// start or after the end.
pub(super) fn index_of(step: &str, place: usize, length: usize) -> Result<Result<usize, bool>, SqlError> {
    let index: i32 = step.trim_start().parse().map_err(|_| {
        SqlError::new(
            sqlstate::INVALID_TEXT_REPRESENTATION,
            format!("path element at position {place} is not an integer: \"{step}\""),
        )
    })?;
    let from_start = i64::from(index) + if index < 0 { length as i64 } else { 0 };
    Ok(match usize::try_from(from_start) {
        Ok(index) if index < length => Ok(index),
        Ok(_) => Err(true),
        Err(_) => Err(false),
    })
}

pub(super) fn change_at(
    node: &mut Node,
    path: &[Option<&str>],
    place: usize,
    change: Change,
    new: Option<&Node>,
) -> Result<(), SqlError> {
    let Some((step, rest)) = path.split_first() else { return Ok(()) };
    // Only where the path leads to, a NULL in it matters.
    let step = step.ok_or_else(|| {
        let message = format!("path element at position {place} is null");
        SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, message)
    })?;
    match &mut node.value {
        Value::Object(members) => {
            let found = members.iter().rposition(|(key, _)| key == step);
            match (found, rest.is_empty(), change, new) {
                (Some(at), true, Change::Delete, _) => {
                    members.remove(at);
                }
                (Some(at), true, Change::Replace { .. }, Some(new)) => members[at].1 = new.clone(),
                (Some(_), true, Change::Insert { .. }, _) => {
                    return Err(cannot("cannot replace existing key")
                        .with_hint("Try using the function jsonb_set to replace key value."));
                }
                (Some(at), false, ..) => return change_at(&mut members[at].1, rest, place + 1, change, new),
                (None, true, Change::Replace { create: true } | Change::Insert { .. }, Some(new)) => {
                    members.push((step.to_owned(), new.clone()));
                }
                _ => {}
            }
        }
        Value::Array(elements) => {
            let index = index_of(step, place, elements.len())?;
            match (index, rest.is_empty(), change, new) {
                (Ok(at), true, Change::Delete, _) => {
                    elements.remove(at);
                }
                (Ok(at), true, Change::Replace { .. }, Some(new)) => elements[at] = new.clone(),
                (Ok(at), true, Change::Insert { after }, Some(new)) => {
                    elements.insert(at + usize::from(after), new.clone());
                }
                (Ok(at), false, ..) => return change_at(&mut elements[at], rest, place + 1, change, new),
                (Err(after), true, Change::Replace { create: true } | Change::Insert { .. }, Some(new)) => {
                    let at = if after { elements.len() } else { 0 };
                    elements.insert(at, new.clone());
                }
                _ => {}
            }
        }
        _ => {}
    }
    Ok(())
}

/// The texts of an array that has one dimension at most.
fn texts_of(datum: &Datum) -> Result<&[Datum], SqlError> {
    let array = array_of(datum)?;
    if array.dimensions.len() > 1 {
        return Err(SqlError::new(sqlstate::ARRAY_SUBSCRIPT_ERROR, "wrong number of array subscripts"));
    }
    Ok(&array.elements)
}

pub(super) fn path_of(datum: &Datum) -> Result<Vec<Option<&str>>, SqlError> {
    Ok(texts_of(datum)?.iter().map(Datum::as_str).collect())
}

/// Where nothing is to be made, nothing in a document without parts can change, whatever the path.
fn is_empty(node: &Node) -> bool {
    match &node.value {
        Value::Object(members) => members.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        _ => false,
    }
}

/// A document with something else at a path.
fn changed(document: &Datum, path: &Datum, change: Change, new: &Datum) -> Computed {
    let path = path_of(path)?;
    let mut node = read(document)?.0;
    let new = read(new)?.0;
    if !matches!(node.value, Value::Object(_) | Value::Array(_)) {
        return Err(cannot("cannot set path in scalar"));
    }
    if change == (Change::Replace { create: false }) && is_empty(&node) {
        return Ok(document.clone());
    }
    change_at(&mut node, &path, 1, change, Some(&new))?;
    normal(&node)
}

pub(super) fn jsonb_set(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let create = arguments.get(3).is_none_or(|create| create.as_bool() == Some(true));
    changed(&arguments[0], &arguments[1], Change::Replace { create }, &arguments[2])
}

pub(super) fn jsonb_insert(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let after = arguments.get(3).and_then(Datum::as_bool) == Some(true);
    changed(&arguments[0], &arguments[1], Change::Insert { after }, &arguments[2])
}

/// `jsonb_set` for which it is told what a NULL means.
pub(super) fn jsonb_set_lax(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let [document, path, new, rest @ ..] = arguments else { return Ok(Datum::Null) };
    let create = rest.first().unwrap_or(&Datum::Bool(true));
    if document.is_null() || path.is_null() || create.is_null() {
        return Ok(Datum::Null);
    }
    let treatment = rest.get(1).map_or(Some("use_json_null"), Datum::as_str);
    let replace = Change::Replace { create: create.as_bool() == Some(true) };
    let wrong = || {
        cannot(
            "null_value_treatment must be \"delete_key\", \"return_target\", \"use_json_null\", or \"raise_exception\"",
        )
    };
    let treatment = treatment.ok_or_else(wrong)?;
    if !new.is_null() {
        return changed(document, path, replace, new);
    }
    match treatment {
        "raise_exception" => {
            let error = SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, "JSON value must not be null");
            Err(error
                .with_detail(
                    "Exception was raised because null_value_treatment is \"raise_exception\".",
                )
                .with_hint("To avoid, either change the null_value_treatment argument or ensure that an SQL NULL is not passed."))
        }
        "use_json_null" => changed(document, path, replace, &normal(&Node::new(Value::Null))?),
        "delete_key" => remove_at(document, path),
        "return_target" => Ok(document.clone()),
        _ => Err(wrong()),
    }
}

pub(super) fn delete_path(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    remove_at(a, b)
}

fn remove_at(a: &Datum, b: &Datum) -> Computed {
    let path = path_of(b)?;
    let mut node = read(a)?.0;
    if !matches!(node.value, Value::Object(_) | Value::Array(_)) {
        return Err(cannot("cannot delete path in scalar"));
    }
    if is_empty(&node) {
        return Ok(a.clone());
    }
    change_at(&mut node, &path, 1, Change::Delete, None)?;
    normal(&node)
}

pub(super) fn without_nulls(node: &mut Node) {
    match &mut node.value {
        Value::Object(members) => {
            members.retain(|(_, value)| !matches!(value.value, Value::Null));
            members.iter_mut().for_each(|(_, value)| without_nulls(value));
        }
        Value::Array(elements) => elements.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// Appends a value without any blanks, members in their order.
pub(super) fn write_compact(node: &Node, out: &mut Vec<u8>, meter: &mut Meter) -> Result<(), SqlError> {
    let start = out.len();
    match &node.value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Value::Number(text) => out.extend_from_slice(text.as_bytes()),
        Value::String(text) => return json::write_string(text, out, meter),
        Value::Array(elements) => {
            out.push(b'[');
            for (i, element) in elements.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_compact(element, out, meter)?;
            }
            out.push(b']');
            return Ok(());
        }
        Value::Object(members) => {
            out.push(b'{');
            for (i, (key, value)) in members.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                json::write_string(key, out, meter)?;
                out.push(b':');
                write_compact(value, out, meter)?;
            }
            out.push(b'}');
            return Ok(());
        }
    }
    meter.add(out.len() - start)
}

pub(super) fn strip_nulls(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let (mut node, binary) = read(&arguments[0])?;
    without_nulls(&mut node);
    if binary {
        return normal(&node);
    }
    let mut out = Vec::new();
    write_compact(&node, &mut out, &mut Meter::default())?;
    finish(out, false)
}

/// Appends a value in normal form, a member a line, four blanks a level.
fn write_pretty(node: &Node, level: usize, out: &mut Vec<u8>, meter: &mut Meter) -> Result<(), SqlError> {
    let line = |level: usize, out: &mut Vec<u8>, meter: &mut Meter| {
        meter.make_room(4 * level + 1, out)?;
        out.push(b'\n');
        out.resize(out.len() + 4 * level, b' ');
        meter.add(4 * level)
    };
    match &node.value {
        Value::Array(elements) if !elements.is_empty() => {
            out.push(b'[');
            for (i, element) in elements.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                line(level + 1, out, meter)?;
                write_pretty(element, level + 1, out, meter)?;
            }
            line(level, out, meter)?;
            out.push(b']');
        }
        Value::Object(members) if !members.is_empty() => {
            out.push(b'{');
            for (i, (key, value)) in json::ordered_members(members, meter)?.into_iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                line(level + 1, out, meter)?;
                json::write_string(key, out, meter)?;
                out.extend_from_slice(b": ");
                write_pretty(value, level + 1, out, meter)?;
            }
            line(level, out, meter)?;
            out.push(b'}');
        }
        Value::Array(_) => {
            out.push(b'[');
            line(level, out, meter)?;
            out.push(b']');
        }
        Value::Object(_) => {
            out.push(b'{');
            line(level, out, meter)?;
            out.push(b'}');
        }
        _ => node.write_normal(out, meter)?,
    }
    Ok(())
}

pub(super) fn pretty(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let mut out = Vec::new();
    write_pretty(&read(&arguments[0])?.0, 0, &mut out, &mut Meter::default())?;
    finish(out, false)
}
