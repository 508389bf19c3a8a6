//! Calls that give rows: generate_series, unnest and their like.

use std::sync::Arc;

use super::{Context, Row};
use crate::bind::RowsCall;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::Env;
use crate::function::operator;
use crate::types::{Datum, Type, TypeId};

/// An open call.
pub(crate) enum CallRows {
    /// All rows are there.
    Given(std::vec::IntoIter<Row>),
    /// Integers from a start, by a step, to an end.
    Integers { next: Option<i64>, end: i64, step: i64, wide: bool },
    /// Values that are added up with an operator.
    Sums { next: Option<Datum>, end: Datum, step: Datum, down: bool, plus: Arc<operator::ResolvedOperator> },
}

impl CallRows {
    /// Evaluates the arguments over the frame.
    pub(crate) fn open(call: &RowsCall, env: &Env<'_>) -> Result<CallRows> {
        match call {
            RowsCall::Scalar(expr) => Ok(CallRows::given(vec![vec![expr.eval(env)?]])),
            RowsCall::Unnest(arrays) => {
                let mut columns = vec![];
                for array in arrays {
                    columns.push(match &*array.value(env)? {
                        Datum::Array(array) => array.elements.clone(),
                        _ => vec![],
                    });
                }
                let length = columns.iter().map(Vec::len).max().unwrap_or(0);
                let row = |place| {
                    columns.iter().map(|c: &Row| c.get(place).cloned().unwrap_or(Datum::Null)).collect()
                };
                Ok(CallRows::given((0..length).map(row).collect()))
            }
            RowsCall::Set { function, arguments, .. } => {
                let values = arguments.iter().map(|expr| expr.eval(env)).collect::<Result<Row>>()?;
                if function.strict && values.iter().any(Datum::is_null) {
                    return Ok(CallRows::given(vec![]));
                }
                by_name(function.name, &values)
            }
        }
    }

    fn given(rows: Vec<Row>) -> CallRows {
        CallRows::Given(rows.into_iter())
    }

    /// The next row.
    pub(crate) fn next(&mut self, context: &Context<'_>) -> Result<Option<Row>> {
        match self {
            CallRows::Given(rows) => Ok(rows.next()),
            CallRows::Integers { next, end, step, wide } => {
                let Some(value) = *next else { return Ok(None) };
                if if *step > 0 { value > *end } else { value < *end } {
                    *next = None;
                    return Ok(None);
                }
                *next = value.checked_add(*step);
                let narrow = i32::try_from(value).ok().filter(|_| !*wide);
                Ok(Some(vec![narrow.map_or(Datum::Int8(value), Datum::Int4)]))
            }
            CallRows::Sums { next, end, step, down, plus } => {
                let Some(value) = next.take() else { return Ok(None) };
                let order = value.compare(end);
                if if *down { order.is_lt() } else { order.is_gt() } {
                    return Ok(None);
                }
                *next = Some(plus.call(&value, step, &context.execution.read.eval)?);
                Ok(Some(vec![value]))
            }
        }
    }
}

fn by_name(name: &str, values: &[Datum]) -> Result<CallRows> {
    match (name, values) {
        ("generate_series", [start, end]) => series(start, end, None),
        ("generate_series", [start, end, step]) => series(start, end, Some(step)),
        ("unnest", [Datum::Array(array)]) => {
            Ok(CallRows::given(array.elements.iter().map(|element| vec![element.clone()]).collect()))
        }
        ("generate_subscripts", [Datum::Array(array), dimension]) => {
            let place = dimension.as_i64().and_then(|d| usize::try_from(d - 1).ok());
            let rows = match place.and_then(|place| array.dimensions.get(place)) {
                Some(dimension) => (0..dimension.length)
                    .map(|offset| {
                        vec![Datum::Int4(dimension.lower + i32::try_from(offset).unwrap_or(i32::MAX))]
                    })
                    .collect(),
                None => vec![],
            };
            Ok(CallRows::given(rows))
        }
        ("regexp_split_to_table" | "string_to_table", [text, separator]) => {
            let (text, separator) = (text.as_str().unwrap_or(""), separator.as_str().unwrap_or(""));
            let parts: Vec<Row> = if name == "string_to_table" {
                text.split(separator).map(|part| vec![Datum::from(part)]).collect()
            } else {
                let regex = regex::Regex::new(separator).map_err(|error| {
                    SqlError::new(
                        sqlstate::INVALID_REGULAR_EXPRESSION,
                        format!("invalid regular expression: {error}"),
                    )
                })?;
                regex.split(text).map(|part| vec![Datum::from(part)]).collect()
            };
            Ok(CallRows::given(parts))
        }
        ("pg_partition_ancestors", _) => Ok(CallRows::given(vec![])),
        _ => json_rows(name, values),
    }
}

fn series(start: &Datum, end: &Datum, step: Option<&Datum>) -> Result<CallRows> {
    let zero = || SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, "step size cannot equal zero");
    if let (Some(start_value), Some(end_value)) = (start.as_i64(), end.as_i64()) {
        let step = step.map_or(Some(1), Datum::as_i64).unwrap_or(1);
        if step == 0 {
            return Err(zero());
        }
        let wide = matches!(start, Datum::Int8(_));
        return Ok(CallRows::Integers { next: Some(start_value), end: end_value, step, wide });
    }
    let (left, right) = match start {
        Datum::Numeric(_) => (TypeId::Numeric, TypeId::Numeric),
        Datum::Timestamp(_) => (TypeId::Timestamp, TypeId::Interval),
        Datum::Timestamptz(_) => (TypeId::Timestamptz, TypeId::Interval),
        _ => return Err(SqlError::unsupported("generate_series over this type")),
    };
    let step = match (step, start) {
        (Some(step), _) => step.clone(),
        (None, Datum::Numeric(_)) => Datum::Numeric(1i64.into()),
        (None, _) => return Err(SqlError::internal("a series of times has a step")),
    };
    let down = match &step {
        Datum::Numeric(number) => {
            let zero_value = crate::types::Numeric::from(0i64);
            if *number == zero_value {
                return Err(zero());
            }
            *number < zero_value
        }
        Datum::Interval(interval) => {
            if interval.ordering_value() == 0 {
                return Err(zero());
            }
            interval.ordering_value() < 0
        }
        _ => false,
    };
    let plus = Arc::new(operator::resolve("+", Some(Type::new(left)), Type::new(right))?);
    Ok(CallRows::Sums { next: Some(start.clone()), end: end.clone(), step, down, plus })
}

/// json_array_elements, json_each, json_object_keys and their jsonb and text forms.
fn json_rows(name: &str, values: &[Datum]) -> Result<CallRows> {
    let unsupported = || SqlError::unsupported(format!("function {name} in this place"));
    let [value] = values else { return Err(unsupported()) };
    let (plain, binary) = match name.strip_prefix("jsonb_") {
        Some(rest) => (rest, true),
        None => (name.strip_prefix("json_").ok_or_else(unsupported)?, false),
    };
    let parsed: serde_json::Value =
        serde_json::from_str(value.as_str().unwrap_or("null")).map_err(|error| {
            SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, format!("invalid json: {error}"))
        })?;
    let whole = |value: &serde_json::Value| {
        let text = crate::types::Text::from(value.to_string());
        if binary { Datum::Jsonb(text) } else { Datum::Text(text) }
    };
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::Null => Datum::Null,
        serde_json::Value::String(text) => Datum::from(text.as_str()),
        other => Datum::from(other.to_string()),
    };
    let wrong = |what: &str| {
        SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("cannot call {name} on {what}"))
    };
    let rows = match (plain, &parsed) {
        ("array_elements", serde_json::Value::Array(items)) => {
            items.iter().map(|item| vec![whole(item)]).collect()
        }
        ("array_elements_text", serde_json::Value::Array(items)) => {
            items.iter().map(|item| vec![text(item)]).collect()
        }
        ("object_keys", serde_json::Value::Object(map)) => {
            map.keys().map(|key| vec![Datum::from(key.as_str())]).collect()
        }
        ("each", serde_json::Value::Object(map)) => {
            map.iter().map(|(key, value)| vec![Datum::from(key.as_str()), whole(value)]).collect()
        }
        ("each_text", serde_json::Value::Object(map)) => {
            map.iter().map(|(key, value)| vec![Datum::from(key.as_str()), text(value)]).collect()
        }
        ("array_elements" | "array_elements_text", _) => return Err(wrong("a non-array")),
        ("object_keys" | "each" | "each_text", _) => return Err(wrong("a non-object")),
        _ => return Err(unsupported()),
    };
    Ok(CallRows::given(rows))
}
