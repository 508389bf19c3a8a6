//! Smallest and largest values, and the folds of bools and bits.

use super::{Accumulator, Partial, Successor, not_divisible};
use crate::error::SqlError;
use crate::function::EvalContext;
use crate::oltp::memory::datum_bytes;
use crate::types::{Datum, Type, TypeId};

/// Keeps one value and replaces it by what `choose` makes of it and each further one.
struct Fold {
    value: Datum,
    choose: fn(&Datum, &Datum) -> Option<Datum>,
}

impl Fold {
    #[inline]
    fn take(&mut self, next: &Datum) {
        if next.is_null() {
            return;
        }
        if self.value.is_null() {
            self.value = next.clone();
        } else if let Some(better) = (self.choose)(&self.value, next) {
            self.value = better;
        }
    }
}

impl Accumulator for Fold {
    fn add(&mut self, arguments: &[Datum], _: &EvalContext<'_>) -> Result<(), SqlError> {
        self.take(&arguments[0]);
        Ok(())
    }
    fn result(&self, _: &EvalContext<'_>) -> Result<Datum, SqlError> {
        Ok(self.value.clone())
    }
    fn partial(&self) -> Option<Partial> {
        Some(Partial::Value(self.value.clone()))
    }
    fn absorb(&mut self, later: Partial) -> Result<(), SqlError> {
        let Partial::Value(value) = later else { return Err(not_divisible()) };
        self.take(&value);
        Ok(())
    }
}

fn fold(choose: fn(&Datum, &Datum) -> Option<Datum>) -> Box<dyn Accumulator> {
    Box::new(Fold { value: Datum::Null, choose })
}

/// Keeps the smallest or largest value.
struct Extreme {
    value: Datum,
    successor: Successor,
    /// Bytes outside of it that a value has taken which it kept, at most.
    bytes: usize,
}

impl Extreme {
    #[inline]
    fn take(&mut self, next: &Datum) {
        if !next.is_null() && (self.value.is_null() || (self.successor)(&self.value, next)) {
            self.value = next.clone();
            self.bytes = self.bytes.max(datum_bytes(next).saturating_sub(size_of::<Datum>()));
        }
    }
}

impl Accumulator for Extreme {
    fn add(&mut self, arguments: &[Datum], _: &EvalContext<'_>) -> Result<(), SqlError> {
        self.take(&arguments[0]);
        Ok(())
    }
    fn result(&self, _: &EvalContext<'_>) -> Result<Datum, SqlError> {
        Ok(self.value.clone())
    }
    fn partial(&self) -> Option<Partial> {
        Some(Partial::Value(self.value.clone()))
    }
    fn absorb(&mut self, later: Partial) -> Result<(), SqlError> {
        // Of equal values the same one stays as if each of them had come by itself.
        let Partial::Value(value) = later else { return Err(not_divisible()) };
        self.take(&value);
        Ok(())
    }
    fn successor(&self) -> Option<Successor> {
        Some(self.successor)
    }
    fn memory(&self) -> usize {
        self.bytes
    }
}

fn extreme(successor: Successor) -> Box<dyn Accumulator> {
    Box::new(Extreme { value: Datum::Null, successor, bytes: 0 })
}

/// Of equal values that look different (1.5 and 1.50) the last one stays, but the first of char(n).
fn keeps_first(types: &[Type]) -> bool {
    types.first().is_some_and(|ty| ty.id == TypeId::Bpchar)
}

pub(super) fn minimum(types: &[Type]) -> Box<dyn Accumulator> {
    match keeps_first(types) {
        true => extreme(|kept, next| next.compare(kept).is_lt()),
        false => extreme(|kept, next| next.compare(kept).is_le()),
    }
}

pub(super) fn maximum(types: &[Type]) -> Box<dyn Accumulator> {
    match keeps_first(types) {
        true => extreme(|kept, next| next.compare(kept).is_gt()),
        false => extreme(|kept, next| next.compare(kept).is_ge()),
    }
}

/// How many values were TRUE and FALSE.
struct Truth {
    counts: [i64; 2],
    /// The value that decides alone: FALSE for `bool_and`.
    decisive: bool,
}

impl Truth {
    fn count(&mut self, argument: &Datum, by: i64) {
        if let Some(value) = argument.as_bool() {
            self.counts[usize::from(value)] += by;
        }
    }
}

impl Accumulator for Truth {
    fn add(&mut self, arguments: &[Datum], _: &EvalContext<'_>) -> Result<(), SqlError> {
        self.count(&arguments[0], 1);
        Ok(())
    }
    fn result(&self, _: &EvalContext<'_>) -> Result<Datum, SqlError> {
        let decisive = self.counts[usize::from(self.decisive)] > 0;
        Ok(if self.counts == [0, 0] { Datum::Null } else { Datum::Bool(decisive == self.decisive) })
    }
    fn remove(&mut self, arguments: &[Datum]) -> Result<bool, SqlError> {
        self.count(&arguments[0], -1);
        Ok(true)
    }
    fn partial(&self) -> Option<Partial> {
        Some(Partial::Truth(self.counts))
    }
    fn absorb(&mut self, later: Partial) -> Result<(), SqlError> {
        let Partial::Truth(counts) = later else { return Err(not_divisible()) };
        for (count, more) in self.counts.iter_mut().zip(counts) {
            *count += more;
        }
        Ok(())
    }
}

pub(super) fn all_true(_: &[Type]) -> Box<dyn Accumulator> {
    Box::new(Truth { counts: [0, 0], decisive: false })
}

pub(super) fn any_true(_: &[Type]) -> Box<dyn Accumulator> {
    Box::new(Truth { counts: [0, 0], decisive: true })
}

pub(super) fn bits_of_all(_: &[Type]) -> Box<dyn Accumulator> {
    fold(|kept, next| match (kept, next) {
        (Datum::Int2(a), Datum::Int2(b)) => Some(Datum::Int2(a & b)),
        (Datum::Int4(a), Datum::Int4(b)) => Some(Datum::Int4(a & b)),
        (Datum::Int8(a), Datum::Int8(b)) => Some(Datum::Int8(a & b)),
        _ => None,
    })
}

pub(super) fn bits_of_any(_: &[Type]) -> Box<dyn Accumulator> {
    fold(|kept, next| match (kept, next) {
        (Datum::Int2(a), Datum::Int2(b)) => Some(Datum::Int2(a | b)),
        (Datum::Int4(a), Datum::Int4(b)) => Some(Datum::Int4(a | b)),
        (Datum::Int8(a), Datum::Int8(b)) => Some(Datum::Int8(a | b)),
        _ => None,
    })
}

pub(super) fn bits_of_odd(_: &[Type]) -> Box<dyn Accumulator> {
    fold(|kept, next| match (kept, next) {
        (Datum::Int2(a), Datum::Int2(b)) => Some(Datum::Int2(a ^ b)),
        (Datum::Int4(a), Datum::Int4(b)) => Some(Datum::Int4(a ^ b)),
        (Datum::Int8(a), Datum::Int8(b)) => Some(Datum::Int8(a ^ b)),
        _ => None,
    })
}
