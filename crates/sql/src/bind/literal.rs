//! Literals.

use std::borrow::Cow;

use sqlparser::ast::{DateTimeField, Expr as Syntax, Interval, TypedString, Value, ValueWithSpan};

use super::Binder;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, Typed};
use crate::parse::Literal;
use crate::types::cast::CastContext;
use crate::types::{Datum, Numeric, Type, TypeId};

/// An untyped literal.
fn untyped(text: &str) -> Typed {
    Typed::new(Expr::Constant(Datum::text(text)), TypeId::Unknown)
}

impl Binder<'_> {
    /// A literal or parameter.
    pub(crate) fn value(&mut self, value: &ValueWithSpan) -> Result<Typed> {
        let bound = match &value.value {
            Value::Number(digits, _) => typed_number(digits),
            Value::SingleQuotedString(text)
            | Value::EscapedStringLiteral(text)
            | Value::UnicodeStringLiteral(text) => Ok(untyped(text)),
            Value::DollarQuotedString(text) => Ok(untyped(&text.value)),
            Value::NationalStringLiteral(text) => self.cast(untyped(text), TypeId::Bpchar.into()),
            Value::Boolean(value) => Ok(Typed::new(Expr::Constant(Datum::Bool(*value)), TypeId::Bool)),
            Value::Null => Ok(Typed::new(Expr::NULL, TypeId::Unknown)),
            Value::Placeholder(name) => self.placeholder(name),
            Value::HexStringLiteral(_) | Value::SingleQuotedByteStringLiteral(_) => {
                Err(SqlError::unsupported("type \"bit\""))
            }
            other => Err(SqlError::syntax(format!("syntax error at or near \"{other}\""))),
        };
        bound.map_err(|error| self.at(error, value.span))
    }

    fn placeholder(&mut self, name: &str) -> Result<Typed> {
        let number = name.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok());
        match number {
            Some(number @ 1..=65535) if self.is_parameter(number) => {
                let ty = self.parameter(number - 1).unwrap_or(TypeId::Unknown.into());
                // Its value comes as one of the type under a domain.
                let value = Typed::new(Expr::Parameter(number - 1), ty.bare());
                let checked = self.coerce(value, ty, CastContext::Explicit)?;
                checked.ok_or_else(|| SqlError::internal("a parameter is not of its own type"))
            }
            _ => Err(SqlError::new(sqlstate::UNDEFINED_PARAMETER, format!("there is no parameter {name}"))),
        }
    }

    /// `- literal`: the sign belongs to the number, so that the smallest integers are integers.
    pub(crate) fn negative_number(&mut self, operand: &Syntax) -> Option<Result<Typed>> {
        match operand {
            Syntax::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => {
                Some(typed_number(&format!("-{digits}")))
            }
            _ => None,
        }
    }

    /// `type 'text'`.
    pub(crate) fn typed_string(&mut self, literal: &TypedString) -> Result<Typed> {
        let ty = self.named_type(&literal.data_type)?;
        let Typed { expr, .. } = self.value(&literal.value)?;
        self.cast(Typed::new(expr, TypeId::Unknown), ty).map_err(|error| self.at(error, literal.value.span))
    }

    /// `INTERVAL 'text' [fields]`.
    pub(crate) fn interval(&mut self, interval: &Interval) -> Result<Typed> {
        let Syntax::Value(value) = interval.value.as_ref() else {
            return Err(SqlError::syntax("syntax error: INTERVAL needs a string literal"));
        };
        let text = match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => text.clone(),
            Value::DollarQuotedString(text) => text.value.clone(),
            other => return Err(SqlError::syntax(format!("syntax error at or near \"{other}\""))),
        };
        let precision = interval.fractional_seconds_precision.or(interval.leading_precision);
        let range = interval_range(interval.leading_field.as_ref(), interval.last_field.as_ref());
        let modifier = match (range, precision) {
            (None, None) => -1,
            (range, precision) => {
                (range.unwrap_or(0x7fff) << 16) | precision.map_or(0xffff, |digits| digits.min(6) as i32)
            }
        };
        let ty = Type::modified(TypeId::Interval, modifier);
        self.cast(untyped(&text), ty).map_err(|error| self.at(error, value.span))
    }
}

/// The bits of an interval's fields, as a type modifier has them; none without fields.
fn interval_range(leading: Option<&DateTimeField>, last: Option<&DateTimeField>) -> Option<i32> {
    use DateTimeField as F;
    // In the order of size, each with its bit.
    let fields = [(F::Year, 2), (F::Month, 1), (F::Day, 3), (F::Hour, 10), (F::Minute, 11), (F::Second, 12)];
    let place = |field: &DateTimeField| fields.iter().position(|(known, _)| known == field);
    let first = place(leading?)?;
    let last = last.and_then(place).unwrap_or(first);
    Some(fields.get(first..=last)?.iter().map(|(_, bit)| 1 << bit).sum())
}

fn typed_number(digits: &str) -> Result<Typed> {
    let (value, ty) = number(digits)?;
    Ok(Typed::new(Expr::Constant(value), ty))
}

/// A number: int4, int8 or numeric, the first that holds it.
pub(crate) fn number(digits: &str) -> Result<(Datum, TypeId)> {
    let digits: Cow<'_, str> =
        if digits.contains('_') { digits.replace('_', "").into() } else { digits.into() };
    if let Ok(value) = digits.parse::<i32>() {
        return Ok((Datum::Int4(value), TypeId::Int4));
    }
    if let Ok(value) = digits.parse::<i64>() {
        return Ok((Datum::Int8(value), TypeId::Int8));
    }
    Ok((Datum::Numeric(Numeric::parse(&digits)?), TypeId::Numeric))
}

/// A literal of a run of rows that stayed text.
pub(super) fn plain(literal: &Literal<'_>) -> Result<Typed> {
    match literal {
        Literal::Null => Ok(Typed::new(Expr::NULL, TypeId::Unknown)),
        Literal::Bool(value) => Ok(Typed::new(Expr::Constant(Datum::Bool(*value)), TypeId::Bool)),
        Literal::Number(digits) => typed_number(digits),
        Literal::Text(text) => Ok(untyped(text)),
    }
}
