//! Subscripts of jsonb: `document['a'][1]`, and assigning to one (`SET document['a'][1] = x`).
//!
//! No call can name these functions; the binder makes them of subscripts, each of which is an
//! integer or a text. A part that is assigned to comes into being with whatever has to be around
//! it: an array for an integer, with nulls before the place, and an object for anything else.

use smallvec::SmallVec;

use super::access::{part, read};
use super::change::{cannot, normal};
use crate::error::{SqlError, sqlstate};
use crate::function::registry::{Function, plain};
use crate::function::{EvalContext, ResolvedFunction};
use crate::types::TypeId::{Any, Jsonb};
use crate::types::json::{Node, Value};
use crate::types::{Datum, Type};

/// The nulls that an assignment may put before its place in an array.
const MAX_GAP: usize = 1_000_000;

static GET: Function = plain(0, "jsonb_subscript", &[Jsonb, Any], Jsonb, get).variadic();

static PUT: Function = plain(0, "jsonb_put", &[Jsonb, Jsonb, Any], Jsonb, put).variadic().called_on_null();

/// The function of a document and subscripts of these types.
pub(crate) fn jsonb_subscript(subscripts: &[Type]) -> ResolvedFunction {
    let arguments = [Type::new(Jsonb)].into_iter().chain(subscripts.iter().copied()).collect();
    ResolvedFunction { function: &GET, arguments, result: Type::new(Jsonb), is_spread: false }
}

/// The function of a document, a value and subscripts of these types.
pub(crate) fn jsonb_put(subscripts: &[Type]) -> ResolvedFunction {
    let arguments = [Type::new(Jsonb); 2].into_iter().chain(subscripts.iter().copied()).collect();
    ResolvedFunction { function: &PUT, arguments, result: Type::new(Jsonb), is_spread: false }
}

/// Whether a function assigns to a part of a document.
pub(crate) fn puts_part(function: &Function) -> bool {
    std::ptr::eq(function, &PUT)
}

/// A subscript as a step of a path. None for NULL.
fn step(subscript: &Datum) -> Option<String> {
    match subscript {
        Datum::Int4(place) => Some(place.to_string()),
        other => other.as_str().map(str::to_owned),
    }
}

fn get(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum, SqlError> {
    let [document, subscripts @ ..] = arguments else {
        return Err(SqlError::internal("a subscript without a document"));
    };
    let steps: Option<SmallVec<[String; 4]>> = subscripts.iter().map(step).collect();
    let Some(steps) = steps else { return Ok(Datum::Null) };
    let (node, _) = read(document)?;
    match node.path(steps.iter().map(String::as_str)) {
        None => Ok(Datum::Null),
        Some(found) => part(found, document),
    }
}

fn put(arguments: &[Datum], context: &EvalContext<'_>) -> Result<Datum, SqlError> {
    let [document, value, subscripts @ ..] = arguments else {
        return Err(SqlError::internal("an assignment without a part"));
    };
    let steps: Option<SmallVec<[String; 4]>> = subscripts.iter().map(step).collect();
    let steps = steps.ok_or_else(|| {
        let message = "jsonb subscript in assignment must not be null";
        SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, message)
    })?;
    let value = match value {
        Datum::Null => Node::new(Value::Null),
        value => read(value)?.0,
    };
    let mut node = match (document, subscripts.first()) {
        (Datum::Null, Some(Datum::Int4(_))) => Node::new(Value::Array(vec![])),
        (Datum::Null, _) => Node::new(Value::Object(vec![])),
        (document, _) => read(document)?.0,
    };
    place(&mut node, &steps, 1, value, context)?;
    normal(&node)
}

/// Puts a value where the steps lead to. `position` is that of the first of them in the whole path.
fn place(
    node: &mut Node,
    steps: &[String],
    position: usize,
    value: Node,
    context: &EvalContext<'_>,
) -> Result<(), SqlError> {
    let [step, rest @ ..] = steps else {
        *node = value;
        return Ok(());
    };
    match &mut node.value {
        Value::Object(members) => match members.iter_mut().rfind(|(key, _)| key == step) {
            Some((_, member)) => place(member, rest, position + 1, value, context),
            None => {
                members.push((step.clone(), around(rest, value, context)?));
                Ok(())
            }
        },
        Value::Array(elements) => {
            let index: i32 = step.trim_start().parse().map_err(|_| {
                SqlError::new(
                    sqlstate::INVALID_TEXT_REPRESENTATION,
                    format!("path element at position {position} is not an integer: \"{step}\""),
                )
            })?;
            // Places are counted from the end, too; there is none before the first.
            let at = match usize::try_from(index) {
                Ok(at) => at,
                Err(_) => elements.len().checked_sub(index.unsigned_abs() as usize).ok_or_else(|| {
                    cannot(&format!("path element at position {position} is out of range: {index}"))
                })?,
            };
            match elements.get_mut(at) {
                Some(element) => place(element, rest, position + 1, value, context),
                None => {
                    nulls(elements, at - elements.len(), context)?;
                    elements.push(around(rest, value, context)?);
                    Ok(())
                }
            }
        }
        _ => Err(cannot("cannot replace existing key")
            .with_detail("The path assumes key is a composite object, but it is a scalar value.")),
    }
}

/// A value within the objects and arrays that the steps ask for.
fn around(steps: &[String], value: Node, context: &EvalContext<'_>) -> Result<Node, SqlError> {
    let mut node = value;
    for step in steps.iter().rev() {
        node = Node::new(match step.parse::<i32>() {
            Ok(index) => {
                let mut elements = vec![];
                nulls(&mut elements, usize::try_from(index).unwrap_or(0), context)?;
                elements.push(node);
                Value::Array(elements)
            }
            Err(_) => Value::Object(vec![(step.clone(), node)]),
        });
    }
    Ok(node)
}

/// Appends nulls.
fn nulls(elements: &mut Vec<Node>, count: usize, context: &EvalContext<'_>) -> Result<(), SqlError> {
    if count > MAX_GAP {
        let message = format!("a jsonb array cannot be extended by more than {MAX_GAP} nulls at once");
        return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message));
    }
    context.check_size(count * size_of::<Node>())?;
    elements.extend(std::iter::repeat_with(|| Node::new(Value::Null)).take(count));
    Ok(())
}
