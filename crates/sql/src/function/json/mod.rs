//! JSON: building, taking apart, changing.

mod access;
mod change;
mod record;
mod subscript;

pub(super) use self::access::rows;
use self::access::*;
use self::change::*;
pub(crate) use self::record::json_records;
pub(super) use self::subscript::puts_part;
pub(crate) use self::subscript::{jsonb_put, jsonb_subscript};
use super::EvalContext;
use super::array::array_of;
use super::operator::{Operator, infix};
use super::registry::{Function, plain, set, typed};
use crate::error::{SqlError, sqlstate};
use crate::types::TypeId::{Any, AnyArray, AnyElement, Bool, Int4, Json, Jsonb, Text as T, TextArray};
use crate::types::bounds::{Meter, append};
use crate::types::json;
use crate::types::{Category, Datum, Record, Text, Type, TypeId, datetime};

type Computed = Result<Datum, SqlError>;

/// JSON being written, and what it takes.
pub(super) struct Writer<'a> {
    context: &'a EvalContext<'a>,
    meter: Meter,
}

impl<'a> Writer<'a> {
    pub(super) fn new(context: &'a EvalContext<'a>) -> Writer<'a> {
        Writer { context, meter: Meter::default() }
    }

    /// Appends any value.
    pub(super) fn value(&mut self, datum: &Datum, ty: Type, out: &mut Vec<u8>) -> Result<(), SqlError> {
        let start = out.len();
        match datum {
            Datum::Null => out.extend_from_slice(b"null"),
            Datum::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
            Datum::Int2(_) | Datum::Int4(_) | Datum::Int8(_) => datum.to_text(ty, self.context, out),
            Datum::Float4(_) | Datum::Float8(_) | Datum::Numeric(_) => {
                let text = datum.to_text_string(ty, self.context);
                // NaN and the infinities are no JSON numbers.
                if text.ends_with(|c: char| c.is_ascii_digit()) {
                    out.extend_from_slice(text.as_bytes());
                } else {
                    return self.string(&text, out);
                }
            }
            Datum::Jsonb(text) => return self.json(text, out),
            Datum::Text(text) if ty.id == Json => return self.json(text, out),
            Datum::Text(text) | Datum::Bpchar(text) => return self.string(text.as_str(), out),
            Datum::Date(date) => {
                out.push(b'"');
                datetime::write_iso_date(*date, out);
                out.push(b'"');
            }
            Datum::Timestamp(timestamp) => {
                out.push(b'"');
                datetime::write_iso_timestamp(*timestamp, b'T', out);
                out.push(b'"');
            }
            Datum::Timestamptz(timestamp) => {
                out.push(b'"');
                datetime::write_iso_timestamptz(*timestamp, self.context.time_zone, b'T', out);
                out.push(b'"');
            }
            Datum::Array(array) if ty.id.category() == Category::Array => {
                let element = ty.element().unwrap_or(Type::new(array.element));
                let lengths: Vec<usize> = array.dimensions.iter().map(|d| d.length).collect();
                return self.elements(&array.elements, &lengths, element, b",", out);
            }
            Datum::Record(record) => return self.record(record, b",", out),
            other => {
                let mut text = Vec::new();
                other.write_text(ty, self.context, &mut text)?;
                return self.string(&String::from_utf8(text).unwrap_or_default(), out);
            }
        }
        self.meter.add(out.len() - start)
    }

    /// Appends a text in quotes.
    fn string(&mut self, text: &str, out: &mut Vec<u8>) -> Result<(), SqlError> {
        self.context.check_size(out.len() + text.len())?;
        json::write_string(text, out, &mut self.meter)
    }

    /// Appends what is JSON.
    fn json(&mut self, text: &Text, out: &mut Vec<u8>) -> Result<(), SqlError> {
        self.context.check_size(out.len() + text.len())?;
        self.meter.add(text.len())?;
        append(text.as_bytes(), out)
    }

    /// A record as an object, with this between its members.
    fn record(&mut self, record: &Record, separator: &[u8], out: &mut Vec<u8>) -> Result<(), SqlError> {
        out.push(b'{');
        for (i, (name, ty, value)) in record.fields().enumerate() {
            if i > 0 {
                out.extend_from_slice(separator);
            }
            self.string(name, out)?;
            out.push(b':');
            self.value(value, ty, out)?;
        }
        out.push(b'}');
        Ok(())
    }

    /// The elements of an array of these lengths, with this between the outermost.
    fn elements(
        &mut self,
        elements: &[Datum],
        lengths: &[usize],
        element: Type,
        separator: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), SqlError> {
        out.push(b'[');
        if let [outer, inner @ ..] = lengths {
            let size = elements.len() / (*outer).max(1);
            for (i, part) in elements.chunks(size.max(1)).enumerate() {
                if i > 0 {
                    out.extend_from_slice(separator);
                }
                match part {
                    [single] if inner.is_empty() => self.value(single, element, out)?,
                    several => self.elements(several, inner, element, b",", out)?,
                }
            }
        }
        out.push(b']');
        Ok(())
    }

    /// Appends an object's key. 22023 for NULL.
    pub(super) fn key(&mut self, datum: &Datum, ty: Type, out: &mut Vec<u8>) -> Result<(), SqlError> {
        if datum.is_null() {
            return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, "field name must not be null"));
        }
        if ty.id.category() == Category::Array || matches!(ty.id, Json | Jsonb | TypeId::Record) {
            return Err(SqlError::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                "key value must be scalar, not array, composite, or json",
            ));
        }
        match datum {
            // These are written as in values, whatever their text is elsewhere.
            Datum::Bool(value) => self.string(if *value { "true" } else { "false" }, out),
            Datum::Date(_) | Datum::Timestamp(_) | Datum::Timestamptz(_) => self.value(datum, ty, out),
            _ => self.string(&datum.to_text_string(ty, self.context), out),
        }
    }
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
    let (mut out, mut writer) = (vec![b'{'], Writer::new(context));
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
        writer.key(&pair[0], types[0], &mut out)?;
        out.extend_from_slice(b" : ");
        writer.value(&pair[1], types[1], &mut out)?;
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
    let (mut out, mut writer) = (vec![b'['], Writer::new(context));
    for (i, (argument, ty)) in arguments.iter().zip(types).enumerate() {
        if i > 0 {
            out.extend_from_slice(b", ");
        }
        writer.value(argument, *ty, &mut out)?;
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
    Writer::new(context).value(&arguments[0], types[0], &mut out)?;
    finish(out, false)
}

fn to_jsonb(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
    let mut out = Vec::new();
    Writer::new(context).value(&arguments[0], types[0], &mut out)?;
    finish(out, true)
}

/// `row_to_json`, and `array_to_json`: with line ends between the outermost members if that is
/// asked for.
fn to_pretty_json(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
    let pretty = arguments.get(1).and_then(Datum::as_bool) == Some(true);
    let (mut out, mut writer) = (Vec::new(), Writer::new(context));
    match &arguments[0] {
        Datum::Record(record) if pretty => writer.record(record, b",\n ", &mut out)?,
        Datum::Array(array) if pretty => {
            let element = types[0].element().unwrap_or(Type::new(array.element));
            let lengths: Vec<usize> = array.dimensions.iter().map(|d| d.length).collect();
            writer.elements(&array.elements, &lengths, element, b",\n ", &mut out)?;
        }
        other => writer.value(other, types[0], &mut out)?,
    }
    finish(out, false)
}

#[cold]
fn null_key() -> SqlError {
    SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, "null value not allowed for object key")
}

fn object_of_texts(arguments: &[Datum], context: &EvalContext<'_>, binary: bool) -> Computed {
    let array = array_of(&arguments[0])?;
    let wrong = match array.dimensions.as_slice() {
        [] | [_] => None,
        [_, pairs] if pairs.length == 2 => None,
        [_, _] => Some("array must have two columns"),
        _ => Some("wrong number of array subscripts"),
    };
    if let Some(problem) = wrong {
        return Err(SqlError::new(sqlstate::ARRAY_SUBSCRIPT_ERROR, problem));
    }
    let text = Type::new(T);
    let types = vec![text; array.elements.len()];
    let even = array.elements.len() % 2 == 0;
    if !even {
        return Err(SqlError::new(
            sqlstate::ARRAY_SUBSCRIPT_ERROR,
            "array must have even number of elements",
        ));
    }
    if array.elements.iter().step_by(2).any(Datum::is_null) {
        return Err(null_key());
    }
    build_object(&array.elements, &types, context, binary)
}

/// The same of keys and values in arrays of their own.
fn object_of_lists(arguments: &[Datum], context: &EvalContext<'_>, binary: bool) -> Computed {
    let (keys, values) = (array_of(&arguments[0])?, array_of(&arguments[1])?);
    let wrong = |problem: &str| Err(SqlError::new(sqlstate::ARRAY_SUBSCRIPT_ERROR, problem.to_owned()));
    if keys.dimensions.len() > 1 || keys.dimensions.len() != values.dimensions.len() {
        return wrong("wrong number of array subscripts");
    }
    if keys.elements.len() != values.elements.len() {
        return wrong("mismatched array dimensions");
    }
    if keys.elements.iter().any(Datum::is_null) {
        return Err(null_key());
    }
    let pairs = keys.elements.iter().zip(&values.elements);
    let members: Vec<Datum> = pairs.flat_map(|(key, value)| [key.clone(), value.clone()]).collect();
    build_object(&members, &vec![Type::new(T); members.len()], context, binary)
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
    typed(3153, "array_to_json", &[AnyArray], Json, to_pretty_json).stable(),
    typed(3154, "array_to_json", &[AnyArray, Bool], Json, to_pretty_json).stable(),
    typed(3155, "row_to_json", &[TypeId::Record], Json, to_pretty_json).stable(),
    typed(3156, "row_to_json", &[TypeId::Record, Bool], Json, to_pretty_json).stable(),
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
    plain(3579, "jsonb_insert", &[Jsonb, TextArray, Jsonb, Bool], Jsonb, jsonb_insert).with_optional(1),
    plain(5054, "jsonb_set_lax", &[Jsonb, TextArray, Jsonb, Bool, T], Jsonb, jsonb_set_lax)
        .with_optional(2)
        .called_on_null(),
    plain(4046, "jsonb_contains", &[Jsonb, Jsonb], Bool, |a, context| contains(&a[0], &a[1], context)),
    plain(4050, "jsonb_contained", &[Jsonb, Jsonb], Bool, |a, context| contained(&a[0], &a[1], context)),
    plain(4047, "jsonb_exists", &[Jsonb, T], Bool, |a, context| exists(&a[0], &a[1], context)),
    plain(4048, "jsonb_exists_any", &[Jsonb, TextArray], Bool, |a, context| {
        exists_any(&a[0], &a[1], context)
    }),
    plain(4049, "jsonb_exists_all", &[Jsonb, TextArray], Bool, |a, context| {
        exists_all(&a[0], &a[1], context)
    }),
    plain(3301, "jsonb_concat", &[Jsonb, Jsonb], Jsonb, |a, context| concatenate(&a[0], &a[1], context)),
    plain(3302, "jsonb_delete", &[Jsonb, T], Jsonb, |a, context| delete_key(&a[0], &a[1], context)),
    plain(3303, "jsonb_delete", &[Jsonb, Int4], Jsonb, |a, context| delete_index(&a[0], &a[1], context)),
    plain(3304, "jsonb_delete_path", &[Jsonb, TextArray], Jsonb, |a, context| {
        delete_path(&a[0], &a[1], context)
    }),
    plain(3203, "json_object", &[TextArray, TextArray], Json, |a, context| {
        object_of_lists(a, context, false)
    }),
    plain(3264, "jsonb_object", &[TextArray, TextArray], Jsonb, |a, context| {
        object_of_lists(a, context, true)
    }),
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
