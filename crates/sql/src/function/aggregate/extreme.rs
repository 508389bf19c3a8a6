//! Smallest and largest values, and the folds of bools and bits.

use super::Accumulator;
use crate::error::SqlError;
use crate::function::EvalContext;
use crate::types::{Datum, Type};

/// Keeps one value and replaces it by what `choose` makes of it and each further one.
struct Fold {
    value: Datum,
    choose: fn(&Datum, &Datum) -> Option<Datum>,
}

impl Accumulator for Fold {
    fn add(&mut self, arguments: &[Datum], _: &EvalContext<'_>) -> Result<(), SqlError> {
        let next = &arguments[0];
        if next.is_null() {
            return Ok(());
        }
        if self.value.is_null() {
            self.value = next.clone();
        } else if let Some(better) = (self.choose)(&self.value, next) {
            self.value = better;
        }
        Ok(())
    }
    fn finish(&mut self, _: &EvalContext<'_>) -> Result<Datum, SqlError> {
        Ok(std::mem::take(&mut self.value))
    }
}

fn fold(choose: fn(&Datum, &Datum) -> Option<Datum>) -> Box<dyn Accumulator> {
    Box::new(Fold { value: Datum::Null, choose })
}

pub(super) fn minimum(_: &[Type]) -> Box<dyn Accumulator> {
    fold(|kept, next| next.compare(kept).is_lt().then(|| next.clone()))
}

pub(super) fn maximum(_: &[Type]) -> Box<dyn Accumulator> {
    fold(|kept, next| next.compare(kept).is_gt().then(|| next.clone()))
}

pub(super) fn all_true(_: &[Type]) -> Box<dyn Accumulator> {
    fold(|_, next| (next.as_bool() == Some(false)).then(|| next.clone()))
}

pub(super) fn any_true(_: &[Type]) -> Box<dyn Accumulator> {
    fold(|_, next| (next.as_bool() == Some(true)).then(|| next.clone()))
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
