//! JSON: building, taking apart, changing.

use super::EvalContext;
use super::array::array_of;
use super::math::unexpected;
use super::operator::{Operator, infix};
use super::registry::{Function, plain, set, typed};
use super::string::str_of;
use crate::error::{SqlError, sqlstate};
use crate::types::TypeId::{Any, AnyArray, AnyElement, Bool, Int4, Json, Jsonb, Text as T, TextArray};
use crate::types::json::{self, Node, Value};
use crate::types::{Category, Datum, Text, Type, TypeId, datetime};

type Computed = Result<Datum, SqlError>;

/// Appends any value as JSON.
pub(super) fn write_value(datum: &Datum, ty: Type, context: &EvalContext<'_>, out: &mut Vec<u8>) {
    match datum {
        Datum::Null => out.extend_from_slice(b"null"),
        Datum::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Datum::Int2(_) | Datum::Int4(_) | Datum::Int8(_) => datum.to_text(ty, context, out),
        Datum::Float4(_) | Datum::Float8(_) | Datum::Numeric(_) => {
            let text = datum.to_text_string(ty, context);
            // NaN and the infinities are no JSON numbers.
            if text.ends_with(|c: char| c.is_ascii_digit()) {
                out.extend_from_slice(text.as_bytes());
            } else {
                json::write_string(&text, out);
            }
        }
        Datum::Jsonb(text) => out.extend_from_slice(text.as_bytes()),
        Datum::Text(text) if ty.id == Json => out.extend_from_slice(text.as_bytes()),
        Datum::Timestamp(timestamp) => {
            out.push(b'"');
            datetime::write_timestamp(*timestamp, b'T', out);
            out.push(b'"');
        }
        Datum::Timestamptz(timestamp) => {
            out.push(b'"');
            datetime::write_timestamptz(*timestamp, context.time_zone, b'T', out);
            out.push(b'"');
        }
        Datum::Array(array) if ty.id.category() == Category::Array => {
            let element = ty.element().unwrap_or(Type::new(array.element));
            let lengths: Vec<usize> = array.dimensions.iter().map(|d| d.length).collect();
            write_array(&array.elements, &lengths, element, context, out);
        }
        other => json::write_string(&other.to_text_string(ty, context), out),
    }
}

fn write_array(
    elements: &[Datum],
    lengths: &[usize],
    element: Type,
    context: &EvalContext<'_>,
    out: &mut Vec<u8>,
) {
    out.push(b'[');
    if let [outer, inner @ ..] = lengths {
        let size = elements.len() / (*outer).max(1);
        for (i, part) in elements.chunks(size.max(1)).enumerate() {
            if i > 0 {
                out.push(b',');
            }
            match part {
                [single] if inner.is_empty() => write_value(single, element, context, out),
                several => write_array(several, inner, element, context, out),
            }
        }
    }
    out.push(b']');
}

/// Appends an object's key. 22004 for NULL.
pub(super) fn write_key(
    datum: &Datum,
    ty: Type,
    context: &EvalContext<'_>,
    out: &mut Vec<u8>,
) -> Result<(), SqlError> {
    if datum.is_null() {
        return Err(SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, "field name must not be null"));
    }
    if ty.id.category() == Category::Array || matches!(ty.id, Json | Jsonb) {
        return Err(SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            "key value must be scalar, not array, composite, or json",
        ));
    }
    json::write_string(&datum.to_text_string(ty, context), out);
    Ok(())
}

/// The text as json, or in normal form as jsonb.
pub(super) fn finish(out: Vec<u8>, binary: bool) -> Computed {
    let text = Text::from_utf8(out.into()).ok_or_else(|| SqlError::internal("JSON that is not UTF-8"))?;
    if binary { Ok(Datum::Jsonb(json::normalize(text.as_str())?.into())) } else { Ok(Datum::Text(text)) }
}

fn build_object(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>, binary: bool) -> Computed {
    if arguments.len() % 2 == 1 {
        return Err(SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            "argument list must have even number of elements",
        )
        .with_hint(format!(
            "The arguments of {}_build_object() must consist of alternating keys and values.",
            if binary { "jsonb" } else { "json" }
        )));
    }
    let mut out = vec![b'{'];
    for (i, (pair, types)) in arguments.chunks_exact(2).zip(types.chunks_exact(2)).enumerate() {
        if i > 0 {
            out.extend_from_slice(b", ");
        }
        if pair[0].is_null() {
            let place = 2 * i + 1;
            let message = if binary {
                format!("argument {place}: key must not be null")
            } else {
                format!("argument {place} cannot be null")
            };
            return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message)
                .with_hint("Object keys should be text."));
        }
        write_key(&pair[0], types[0], context, &mut out)?;
        out.extend_from_slice(b" : ");
        write_value(&pair[1], types[1], context, &mut out);
    }
    out.push(b'}');
    finish(out, binary)
}

fn json_build_object(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
    build_object(arguments, types, context, false)
}

fn jsonb_build_object(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
    build_object(arguments, types, context, true)
}

fn build_array(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>, binary: bool) -> Computed {
    let mut out = vec![b'['];
    for (i, (argument, ty)) in arguments.iter().zip(types).enumerate() {
        if i > 0 {
            out.extend_from_slice(b", ");
        }
        write_value(argument, *ty, context, &mut out);
    }
    out.push(b']');
    finish(out, binary)
}

fn json_build_array(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
    build_array(arguments, types, context, false)
}

fn jsonb_build_array(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
    build_array(arguments, types, context, true)
}

fn to_json(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
    let mut out = Vec::new();
    write_value(&arguments[0], types[0], context, &mut out);
    finish(out, false)
}

fn to_jsonb(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
    let mut out = Vec::new();
    write_value(&arguments[0], types[0], context, &mut out);
    finish(out, true)
}

/// The value read, and whether it is jsonb.
fn read(datum: &Datum) -> Result<(Node, bool), SqlError> {
    Ok((json::parse(str_of(datum)?)?, matches!(datum, Datum::Jsonb(_))))
}

/// A part of a value as json (its own text) or jsonb.
fn part(node: &Node, whole: &Datum) -> Computed {
    let text = whole.as_text().ok_or_else(|| unexpected(&[whole]))?;
    let slice = text.slice(node.span.start, node.span.end);
    Ok(if matches!(whole, Datum::Jsonb(_)) { Datum::Jsonb(slice) } else { Datum::Text(slice) })
}

/// A part of a value as text: strings without their quotes, null as NULL.
fn part_text(node: &Node, whole: &Datum) -> Computed {
    match &node.value {
        Value::Null => Ok(Datum::Null),
        Value::String(text) => Ok(text.as_str().into()),
        _ => match part(node, whole)? {
            Datum::Jsonb(text) | Datum::Text(text) => Ok(Datum::Text(text)),
            other => Ok(other),
        },
    }
}

fn find(whole: &Datum, step: &Datum, as_text: bool) -> Computed {
    let (node, _) = read(whole)?;
    let found = match step {
        Datum::Text(key) => node.member(key.as_str()),
        other => node.element(other.as_i64().unwrap_or(i64::MAX)),
    };
    match found {
        None => Ok(Datum::Null),
        Some(found) if as_text => part_text(found, whole),
        Some(found) => part(found, whole),
    }
}

fn get(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    find(a, b, false)
}

fn get_text(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    find(a, b, true)
}

/// The texts of a path; `None` if one is NULL.
fn steps(elements: &[Datum]) -> Option<Vec<&str>> {
    elements.iter().map(Datum::as_str).collect()
}

fn follow(whole: &Datum, path: &[Datum], as_text: bool) -> Computed {
    let (node, _) = read(whole)?;
    let Some(steps) = steps(path) else { return Ok(Datum::Null) };
    match node.path(steps.into_iter()) {
        None => Ok(Datum::Null),
        Some(found) if as_text => part_text(found, whole),
        Some(found) => part(found, whole),
    }
}

fn get_path(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    follow(a, &array_of(b)?.elements, false)
}

fn get_path_text(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    follow(a, &array_of(b)?.elements, true)
}

fn extract_path(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    follow(&arguments[0], &arguments[1..], false)
}

fn extract_path_text(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    follow(&arguments[0], &arguments[1..], true)
}

fn contains(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Bool(read(a)?.0.contains(&read(b)?.0)))
}

fn contained(a: &Datum, b: &Datum, context: &EvalContext<'_>) -> Computed {
    contains(b, a, context)
}

/// Is the text a key of the object, a string of the array, or the string itself?
fn has_key(node: &Node, key: &str) -> bool {
    match &node.value {
        Value::Object(members) => members.iter().any(|(k, _)| k == key),
        Value::Array(elements) => elements.iter().any(|e| matches!(&e.value, Value::String(s) if s == key)),
        Value::String(text) => text == key,
        _ => false,
    }
}

fn exists(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    Ok(Datum::Bool(has_key(&read(a)?.0, str_of(b)?)))
}

fn exists_any(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let node = read(a)?.0;
    Ok(Datum::Bool(array_of(b)?.elements.iter().filter_map(Datum::as_str).any(|key| has_key(&node, key))))
}

fn exists_all(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let node = read(a)?.0;
    Ok(Datum::Bool(array_of(b)?.elements.iter().filter_map(Datum::as_str).all(|key| has_key(&node, key))))
}

fn normal(node: &Node) -> Computed {
    let mut out = Vec::new();
    node.write_normal(&mut out)?;
    Ok(Datum::Jsonb(Text::from_stored(out.into())))
}

/// Objects are merged, the right one's members winning; anything else is joined as arrays.
fn concatenate(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
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
fn cannot(what: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, what.to_owned())
}

fn delete_keys(mut node: Node, keys: &[&str]) -> Computed {
    match &mut node.value {
        Value::Object(members) => members.retain(|(key, _)| !keys.contains(&key.as_str())),
        Value::Array(elements) => {
            elements.retain(|e| !matches!(&e.value, Value::String(s) if keys.contains(&s.as_str())));
        }
        _ => return Err(cannot("cannot delete from scalar")),
    }
    normal(&node)
}

fn delete_key(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    delete_keys(read(a)?.0, &[str_of(b)?])
}

fn delete_key_list(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let keys: Vec<&str> = array_of(b)?.elements.iter().filter_map(Datum::as_str).collect();
    delete_keys(read(a)?.0, &keys)
}

fn delete_index(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
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
enum Change {
    Replace { create: bool },
    Delete,
}

/// Index into an array that a step means: negative ones count from the end. Outside, before the start or after the end.
fn index_of(step: &str, place: usize, length: usize) -> Result<Result<usize, bool>, SqlError> {
    let index: i64 = step.trim().parse().map_err(|_| {
        SqlError::new(
            sqlstate::INVALID_TEXT_REPRESENTATION,
            format!("path element at position {place} is not an integer: \"{step}\""),
        )
    })?;
    let from_start = if index < 0 { index + length as i64 } else { index };
    Ok(match usize::try_from(from_start) {
        Ok(index) if index < length => Ok(index),
        Ok(_) => Err(true),
        Err(_) => Err(false),
    })
}

fn change_at(
    node: &mut Node,
    path: &[&str],
    place: usize,
    change: Change,
    new: Option<&Node>,
) -> Result<(), SqlError> {
    let Some((step, rest)) = path.split_first() else { return Ok(()) };
    match &mut node.value {
        Value::Object(members) => {
            let found = members.iter().rposition(|(key, _)| key == step);
            match (found, rest.is_empty(), change, new) {
                (Some(at), true, Change::Delete, _) => {
                    members.remove(at);
                }
                (Some(at), true, Change::Replace { .. }, Some(new)) => members[at].1 = new.clone(),
                (Some(at), false, ..) => return change_at(&mut members[at].1, rest, place + 1, change, new),
                (None, true, Change::Replace { create: true }, Some(new)) => {
                    members.push(((*step).to_owned(), new.clone()));
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
                (Ok(at), false, ..) => return change_at(&mut elements[at], rest, place + 1, change, new),
                (Err(after), true, Change::Replace { create: true }, Some(new)) => {
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

fn path_of(datum: &Datum) -> Result<Vec<&str>, SqlError> {
    let elements = &array_of(datum)?.elements;
    let path: Result<Vec<&str>, usize> =
        elements.iter().enumerate().map(|(i, element)| element.as_str().ok_or(i + 1)).collect();
    path.map_err(|place| {
        SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, format!("path element at position {place} is null"))
    })
}

fn jsonb_set(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let mut node = read(&arguments[0])?.0;
    let path = path_of(&arguments[1])?;
    let new = read(&arguments[2])?.0;
    let create = arguments.get(3).is_none_or(|create| create.as_bool() == Some(true));
    if !matches!(node.value, Value::Object(_) | Value::Array(_)) {
        return Err(cannot("cannot set path in scalar"));
    }
    change_at(&mut node, &path, 1, Change::Replace { create }, Some(&new))?;
    normal(&node)
}

fn delete_path(a: &Datum, b: &Datum, _: &EvalContext<'_>) -> Computed {
    let mut node = read(a)?.0;
    let path = path_of(b)?;
    if !matches!(node.value, Value::Object(_) | Value::Array(_)) {
        return Err(cannot("cannot delete path in scalar"));
    }
    change_at(&mut node, &path, 1, Change::Delete, None)?;
    normal(&node)
}

fn array_length(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    match read(&arguments[0])?.0.value {
        Value::Array(elements) => Ok(Datum::Int4(elements.len() as i32)),
        Value::Object(_) => Err(cannot("cannot get array length of a non-array")),
        _ => Err(cannot("cannot get array length of a scalar")),
    }
}

fn type_of(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(read(&arguments[0])?.0.type_name().into())
}

fn without_nulls(node: &mut Node) {
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
fn write_compact(node: &Node, out: &mut Vec<u8>) {
    match &node.value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Value::Number(text) => out.extend_from_slice(text.as_bytes()),
        Value::String(text) => json::write_string(text, out),
        Value::Array(elements) => {
            out.push(b'[');
            for (i, element) in elements.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_compact(element, out);
            }
            out.push(b']');
        }
        Value::Object(members) => {
            out.push(b'{');
            for (i, (key, value)) in members.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                json::write_string(key, out);
                out.push(b':');
                write_compact(value, out);
            }
            out.push(b'}');
        }
    }
}

fn strip_nulls(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let (mut node, binary) = read(&arguments[0])?;
    without_nulls(&mut node);
    if binary {
        return normal(&node);
    }
    let mut out = Vec::new();
    write_compact(&node, &mut out);
    finish(out, false)
}

/// Appends a value in normal form, a member a line, four blanks a level.
fn write_pretty(node: &Node, level: usize, out: &mut Vec<u8>) -> Result<(), SqlError> {
    let line = |level: usize, out: &mut Vec<u8>| {
        out.push(b'\n');
        out.resize(out.len() + 4 * level, b' ');
    };
    match &node.value {
        Value::Array(elements) if !elements.is_empty() => {
            out.push(b'[');
            for (i, element) in elements.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                line(level + 1, out);
                write_pretty(element, level + 1, out)?;
            }
            line(level, out);
            out.push(b']');
        }
        Value::Object(members) if !members.is_empty() => {
            out.push(b'{');
            for (i, (key, value)) in json::ordered_members(members).into_iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                line(level + 1, out);
                json::write_string(key, out);
                out.extend_from_slice(b": ");
                write_pretty(value, level + 1, out)?;
            }
            line(level, out);
            out.push(b'}');
        }
        Value::Array(_) => {
            out.push(b'[');
            line(level, out);
            out.push(b']');
        }
        Value::Object(_) => {
            out.push(b'{');
            line(level, out);
            out.push(b'}');
        }
        _ => node.write_normal(out)?,
    }
    Ok(())
}

fn pretty(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let mut out = Vec::new();
    write_pretty(&read(&arguments[0])?.0, 0, &mut out)?;
    finish(out, false)
}

/// The rows of the JSON functions that give rows; `None` for another name.
pub(super) fn rows(name: &str, arguments: &[Datum]) -> Result<Option<Vec<Vec<Datum>>>, SqlError> {
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
    let node = read(whole)?.0;
    let take = |node: &Node| if base.ends_with("text") { part_text(node, whole) } else { part(node, whole) };
    let rows: Result<Vec<Vec<Datum>>, SqlError> = match (&node.value, base.starts_with("array")) {
        (Value::Array(elements), true) => elements.iter().map(|element| Ok(vec![take(element)?])).collect(),
        (Value::Object(_), true) => Err(cannot("cannot extract elements from an object")),
        (_, true) => Err(cannot("cannot extract elements from a scalar")),
        (Value::Object(members), false) => {
            let members: Vec<&(String, Node)> =
                if binary { json::ordered_members(members) } else { members.iter().collect() };
            let keys_only = base == "object_keys";
            let row = |(key, value): &(String, Node)| {
                let key: Datum = key.as_str().into();
                Ok(if keys_only { vec![key] } else { vec![key, take(value)?] })
            };
            members.into_iter().map(row).collect()
        }
        (other, false) => {
            let kind = if matches!(other, Value::Array(_)) { "an array" } else { "a scalar" };
            Err(cannot(&format!("cannot call {name} on {kind}")))
        }
    };
    rows.map(Some)
}

fn object_of_texts(arguments: &[Datum], context: &EvalContext<'_>, binary: bool) -> Computed {
    let array = array_of(&arguments[0])?;
    let text = Type::new(T);
    let types = vec![text; array.elements.len()];
    let even = array.elements.len() % 2 == 0;
    if !even {
        return Err(SqlError::new(
            sqlstate::ARRAY_SUBSCRIPT_ERROR,
            "array must have even number of elements",
        ));
    }
    build_object(&array.elements, &types, context, binary)
}

fn json_object(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    object_of_texts(arguments, context, false)
}

fn jsonb_object(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    object_of_texts(arguments, context, true)
}

pub(super) static FUNCTIONS: &[Function] = &[
    typed(3201, "json_build_object", &[], Json, json_build_object).called_on_null().stable(),
    typed(3200, "json_build_object", &[Any], Json, json_build_object).variadic().called_on_null().stable(),
    typed(3274, "jsonb_build_object", &[], Jsonb, jsonb_build_object).called_on_null().stable(),
    typed(3273, "jsonb_build_object", &[Any], Jsonb, jsonb_build_object).variadic().called_on_null().stable(),
    typed(3199, "json_build_array", &[], Json, json_build_array).called_on_null().stable(),
    typed(3198, "json_build_array", &[Any], Json, json_build_array).variadic().called_on_null().stable(),
    typed(3272, "jsonb_build_array", &[], Jsonb, jsonb_build_array).called_on_null().stable(),
    typed(3271, "jsonb_build_array", &[Any], Jsonb, jsonb_build_array).variadic().called_on_null().stable(),
    typed(3176, "to_json", &[AnyElement], Json, to_json).stable(),
    typed(3787, "to_jsonb", &[AnyElement], Jsonb, to_jsonb).stable(),
    typed(3153, "array_to_json", &[AnyArray], Json, to_json).stable(),
    plain(3202, "json_object", &[TextArray], Json, json_object),
    plain(3263, "jsonb_object", &[TextArray], Jsonb, jsonb_object),
    plain(3956, "json_array_length", &[Json], Int4, array_length),
    plain(3207, "jsonb_array_length", &[Jsonb], Int4, array_length),
    plain(3968, "json_typeof", &[Json], T, type_of),
    plain(3210, "jsonb_typeof", &[Jsonb], T, type_of),
    plain(3951, "json_extract_path", &[Json, T], Json, extract_path).variadic(),
    plain(3953, "json_extract_path_text", &[Json, T], T, extract_path_text).variadic(),
    plain(3217, "jsonb_extract_path", &[Jsonb, T], Jsonb, extract_path).variadic(),
    plain(3940, "jsonb_extract_path_text", &[Jsonb, T], T, extract_path_text).variadic(),
    plain(3305, "jsonb_set", &[Jsonb, TextArray, Jsonb, Bool], Jsonb, jsonb_set).with_optional(1),
    plain(3261, "json_strip_nulls", &[Json], Json, strip_nulls),
    plain(3262, "jsonb_strip_nulls", &[Jsonb], Jsonb, strip_nulls),
    plain(3306, "jsonb_pretty", &[Jsonb], T, pretty),
    set(3955, "json_array_elements", &[Json], Json),
    set(3969, "json_array_elements_text", &[Json], T),
    set(3219, "jsonb_array_elements", &[Jsonb], Jsonb),
    set(3465, "jsonb_array_elements_text", &[Jsonb], T),
    set(3957, "json_object_keys", &[Json], T),
    set(3931, "jsonb_object_keys", &[Jsonb], T),
    set(3958, "json_each", &[Json], TypeId::Record),
    set(3959, "json_each_text", &[Json], TypeId::Record),
    set(3208, "jsonb_each", &[Jsonb], TypeId::Record),
    set(3932, "jsonb_each_text", &[Jsonb], TypeId::Record),
];

pub(super) fn operators() -> Vec<Operator> {
    let mut all = vec![
        infix("@>", Jsonb, Jsonb, Bool, contains),
        infix("<@", Jsonb, Jsonb, Bool, contained),
        infix("?", Jsonb, T, Bool, exists),
        infix("?|", Jsonb, TextArray, Bool, exists_any),
        infix("?&", Jsonb, TextArray, Bool, exists_all),
        infix("||", Jsonb, Jsonb, Jsonb, concatenate),
        infix("-", Jsonb, T, Jsonb, delete_key),
        infix("-", Jsonb, Int4, Jsonb, delete_index),
        infix("-", Jsonb, TextArray, Jsonb, delete_key_list),
        infix("#-", Jsonb, TextArray, Jsonb, delete_path),
    ];
    for ty in [Json, Jsonb] {
        all.push(infix("->", ty, T, ty, get));
        all.push(infix("->", ty, Int4, ty, get));
        all.push(infix("->>", ty, T, T, get_text));
        all.push(infix("->>", ty, Int4, T, get_text));
        all.push(infix("#>", ty, TextArray, ty, get_path));
        all.push(infix("#>>", ty, TextArray, T, get_path_text));
    }
    all
}
