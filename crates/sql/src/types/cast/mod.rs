//! Casts: which there are, where they apply by themselves, and what they do.
//!
//! There is a cast if the table in `rules` has one, or from arrays to arrays if there is one for
//! the elements. Beyond those any type converts to a string type on assignment and from one on
//! request, by way of its text form. An untyped literal converts to anything.

mod convert;
mod rules;

use std::sync::Arc;

use super::bounds::Meter;
use super::text::trimmed_length;
use super::{Array, Category, Datum, FormatContext, Text, Type, TypeId, datetime, pad};
use crate::error::{SqlError, sqlstate};

/// Where a cast is asked for. Ordered: what is allowed in one context is allowed in those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CastContext {
    /// In any expression.
    Implicit,
    /// Into a column.
    Assignment,
    /// Asked for with CAST or `::`.
    Explicit,
}

/// Converts one value that is not NULL.
type Convert = fn(&Datum, &FormatContext) -> Result<Datum, SqlError>;

#[derive(Clone, Debug)]
enum Method {
    /// The value is the same.
    Same,
    /// The value is converted.
    Convert(Convert),
    /// By way of the text form, to a string type.
    ToText,
    /// From a string, which is read.
    FromText,
    /// Element by element.
    Elements(Arc<Cast>),
}

/// A cast from one type to another, ready to be applied.
#[derive(Clone, Debug)]
pub struct Cast {
    /// Type of the operand.
    pub from: Type,
    /// Type of the result; its modifier is applied too.
    pub to: Type,
    /// Explicit casts cut too long texts; others fail.
    pub context: CastContext,
    method: Method,
    fits: bool,
}

/// The cast from `from` to `to`, if there is one in this context.
pub fn find(from: Type, to: Type, context: CastContext) -> Option<Cast> {
    // Which of the enum types it is, is in the modifier.
    if from.id == to.id && from.is_of_enum() && from.modifier != to.modifier {
        return None;
    }
    let method = method(from, to, context)?;
    // A cast to a type without modifier, or from the very same type, needs no fitting.
    let fits = to.modifier < 0 || (from.id == to.id && from.modifier == to.modifier);
    Some(Cast { from, to, context, method, fits })
}

/// The casts between two types that have a rule of their own: where each applies by itself, and
/// whether values stay what they are.
pub(crate) fn listed() -> impl Iterator<Item = (TypeId, TypeId, CastContext, bool)> {
    let pairs = TypeId::all().flat_map(|from| TypeId::all().map(move |to| (from, to)));
    pairs.filter(|(from, to)| from != to).filter_map(|(from, to)| {
        let rule = rules::find(from, to)?;
        Some((from, to, rule.context, rule.convert.is_none()))
    })
}

fn method(from_type: Type, to_type: Type, context: CastContext) -> Option<Method> {
    let (from, to) = (from_type.id, to_type.id);
    if from == to {
        return Some(Method::Same);
    }
    if from == TypeId::Unknown {
        // Text is what it already is.
        return Some(if matches!(to, TypeId::Text | TypeId::Varchar) {
            Method::Same
        } else {
            Method::FromText
        });
    }
    if let Some(rule) = rules::find(from, to) {
        return (rule.context <= context).then_some(match rule.convert {
            Some(convert) => Method::Convert(convert),
            None => Method::Same,
        });
    }
    if let (Some(source), true, Some(target)) = (from_type.element(), to.is_array(), to_type.element()) {
        let element = find(source.plain(), target.plain(), context)?;
        return Some(Method::Elements(Arc::new(element)));
    }
    let has_text = !from.is_pseudo() || matches!(from, TypeId::Record | TypeId::RecordArray);
    if to.category() == Category::String && context >= CastContext::Assignment && has_text {
        return Some(Method::ToText);
    }
    if from.category() == Category::String && context == CastContext::Explicit && !to.is_pseudo() {
        return Some(Method::FromText);
    }
    if to == TypeId::Unknown && from.category() == Category::String {
        return Some(Method::Same);
    }
    None
}

impl Cast {
    /// Does the result depend on nothing but the value, neither on settings nor on the catalog?
    pub fn is_immutable(&self) -> bool {
        match &self.method {
            Method::Same => true,
            Method::Elements(element) => element.is_immutable(),
            _ => {
                let depends = |ty: TypeId| {
                    matches!(
                        ty,
                        TypeId::Date
                            | TypeId::Time
                            | TypeId::Timestamp
                            | TypeId::Timestamptz
                            | TypeId::Interval
                            | TypeId::Bytea
                    ) || matches!(ty, TypeId::Float4 | TypeId::Float8)
                        || (ty.is_oid() && ty != TypeId::Oid)
                        || ty == TypeId::Enum
                        || ty.element().is_some()
                };
                match self.method {
                    // No setting says how a time of day is written, but literals may say `now`.
                    Method::ToText if self.from.id == TypeId::Time => true,
                    // A row may have values of any of these types.
                    Method::ToText if self.from.id == TypeId::Record => false,
                    Method::ToText => !depends(self.from.id),
                    Method::FromText => {
                        !depends(self.to.id)
                            || matches!(self.to.id, TypeId::Float4 | TypeId::Float8 | TypeId::Bytea)
                    }
                    _ => {
                        self.from.id != TypeId::Timestamptz
                            && self.to.id != TypeId::Timestamptz
                            && !(self.to.id.is_oid() && self.from.id.category() == Category::String)
                    }
                }
            }
        }
    }

    /// Is it immutable to PostgreSQL, although a setting says how such a value is written: a float
    /// (`extra_float_digits`), or bytes (`bytea_output`)?
    pub fn is_written_by_settings(&self) -> bool {
        match &self.method {
            Method::Elements(element) => element.is_written_by_settings(),
            Method::ToText => matches!(self.from.id, TypeId::Float4 | TypeId::Float8 | TypeId::Bytea),
            _ => false,
        }
    }

    /// The cast of an operand of a comparison, which does not fail for dates and times that the
    /// other operand's type has not.
    pub(crate) fn of_compared(self) -> Cast {
        let convert: Convert = match (self.from.id, self.to.id) {
            (TypeId::Date, TypeId::Timestamp) => convert::date_among_timestamps,
            (TypeId::Date, TypeId::Timestamptz) => convert::date_among_moments,
            (TypeId::Timestamp, TypeId::Timestamptz) => convert::timestamp_among_moments,
            _ => return self,
        };
        Cast { method: Method::Convert(convert), ..self }
    }

    /// Does it change nothing, so that it can be left out?
    pub fn is_noop(&self) -> bool {
        self.fits && matches!(self.method, Method::Same)
    }

    /// The value converted; NULL stays NULL. 22P02, 22003, 22001 and so on if the value has no
    /// counterpart.
    pub fn apply(&self, datum: &Datum, context: &FormatContext) -> Result<Datum, SqlError> {
        if datum.is_null() {
            return Ok(Datum::Null);
        }
        let converted = match &self.method {
            Method::Same => datum.clone(),
            Method::Convert(convert) => convert(datum, context)?,
            Method::ToText => to_string_type(datum, self.from, self.to.id, context)?,
            Method::FromText => {
                // Only an interval's modifier changes how it is read, and an enum type's says which
                // one it is.
                let is_read_by = matches!(self.to.id, TypeId::Interval | TypeId::Enum | TypeId::EnumArray);
                let modifier = if is_read_by { self.to.modifier } else { -1 };
                let text = text_of(datum);
                Datum::from_text(Type::modified(self.to.id, modifier), text, context)?
            }
            Method::Elements(element) => elements(datum, element, context)?,
        };
        if self.fits {
            return Ok(converted);
        }
        apply_modifier(converted, self.to, self.context == CastContext::Explicit)
    }
}

/// The characters of a string value; char(n) without its padding.
fn text_of(datum: &Datum) -> &str {
    match datum {
        Datum::Bpchar(text) => {
            let length = trimmed_length(text.as_bytes());
            text.as_str().get(..length).unwrap_or_default()
        }
        other => other.as_str().unwrap_or_default(),
    }
}

fn to_string_type(datum: &Datum, from: Type, to: TypeId, context: &FormatContext) -> Result<Datum, SqlError> {
    let mut out = Vec::new();
    datum.write_text(from, context, &mut out)?;
    let text = Text::from_stored(out.into());
    Ok(match to {
        TypeId::Bpchar => Datum::Bpchar(text),
        TypeId::Name => Datum::text(super::input::truncate_name(text.as_str())),
        _ => Datum::Text(text),
    })
}

fn elements(datum: &Datum, cast: &Cast, context: &FormatContext) -> Result<Datum, SqlError> {
    let Datum::Array(array) = datum else {
        return Err(SqlError::internal("an array cast of something else"));
    };
    let mut meter = Meter::default();
    let elements = array.elements.iter().map(|element| {
        meter.add(size_of::<Datum>())?;
        cast.apply(element, context)
    });
    Ok(Datum::Array(Arc::new(Array {
        element: cast.to.id,
        dimensions: array.dimensions.clone(),
        elements: elements.collect::<Result<_, _>>()?,
    })))
}

/// Converts a value in one step. 42846 if there is no such cast.
pub fn cast(
    datum: &Datum,
    from: Type,
    to: Type,
    how: CastContext,
    context: &FormatContext,
) -> Result<Datum, SqlError> {
    find(from, to, how).ok_or_else(|| cannot_cast(from, to))?.apply(datum, context)
}

/// 42846.
pub fn cannot_cast(from: Type, to: Type) -> SqlError {
    SqlError::new(
        sqlstate::CANNOT_COERCE,
        format!("cannot cast type {} to {}", from.id.sql_name(), to.id.sql_name()),
    )
}

/// The value as a column of type `ty` holds it: numeric rounded, texts checked or cut, char padded,
/// times rounded. With `explicit`, too long texts are cut; else 22001, unless only blanks are too
/// many. 22003 for numerics with too many digits.
pub fn apply_modifier(datum: Datum, ty: Type, explicit: bool) -> Result<Datum, SqlError> {
    if ty.modifier < 0 {
        return Ok(datum);
    }
    Ok(match datum {
        Datum::Numeric(value) => match ty.precision_and_scale() {
            Some((precision, scale)) => Datum::Numeric(value.fit(precision, scale)?),
            None => Datum::Numeric(value),
        },
        Datum::Text(text) if ty.id == TypeId::Varchar => Datum::Text(fit_text(text, ty, explicit)?),
        Datum::Bpchar(text) => Datum::Bpchar(pad(fit_text(text, ty, explicit)?, ty)),
        Datum::Time(micros) => Datum::Time(datetime::round_micros(micros, digits(ty))),
        Datum::Timestamp(micros) => Datum::Timestamp(datetime::round_micros(micros, digits(ty))),
        Datum::Timestamptz(micros) => Datum::Timestamptz(datetime::round_micros(micros, digits(ty))),
        Datum::Interval(interval) => Datum::Interval(datetime::interval_text::fit(interval, ty.modifier)),
        Datum::Array(array) => match ty.element() {
            Some(element) => {
                let mut array = Arc::unwrap_or_clone(array);
                for item in &mut array.elements {
                    *item = apply_modifier(std::mem::take(item), element, explicit)?;
                }
                Datum::Array(Arc::new(array))
            }
            None => Datum::Array(array),
        },
        other => other,
    })
}

fn digits(ty: Type) -> u32 {
    ty.fractional_digits().unwrap_or(6)
}

fn fit_text(text: Text, ty: Type, explicit: bool) -> Result<Text, SqlError> {
    let Some(limit) = ty.character_limit() else { return Ok(text) };
    // No more bytes than characters allowed is short enough.
    if text.len() <= limit {
        return Ok(text);
    }
    let Some((end, _)) = text.as_str().char_indices().nth(limit) else { return Ok(text) };
    if !explicit && text.as_bytes()[end..].iter().any(|b| *b != b' ') {
        return Err(SqlError::new(
            sqlstate::STRING_DATA_RIGHT_TRUNCATION,
            format!("value too long for type {}", ty.format()),
        ));
    }
    Ok(text.slice(0, end))
}
