//! Window functions: those that only a window can compute. The executor does so by
//! [`WindowFunction`].

use super::registry::{Body, Function, external, window};
use crate::types::TypeId;

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowFunction {
    /// 1, 2, 3 ...
    RowNumber,
    /// Rows that sort alike share the number of the first of them.
    Rank,
    /// The same without gaps.
    DenseRank,
    /// The rank from 0 to 1.
    PercentRank,
    /// Part of the rows that come before or sort alike.
    CumeDist,
    /// Buckets of equal size, as far as that goes.
    Ntile,
    /// A value some rows before.
    Lag,
    /// A value some rows after.
    Lead,
    /// A value of the frame's first row.
    FirstValue,
    /// A value of the frame's last row.
    LastValue,
    /// A value of the frame's n-th row.
    NthValue,
}

pub(super) static FUNCTIONS: &[Function] = {
    use TypeId::*;
    use WindowFunction::*;
    &[
        window(3100, "row_number", &[], Int8, RowNumber),
        window(3101, "rank", &[], Int8, Rank),
        window(3102, "dense_rank", &[], Int8, DenseRank),
        window(3103, "percent_rank", &[], Float8, PercentRank),
        window(3104, "cume_dist", &[], Float8, CumeDist),
        window(3105, "ntile", &[Int4], Int4, Ntile),
        window(3106, "lag", &[AnyElement], AnyElement, Lag),
        window(3107, "lag", &[AnyElement, Int4], AnyElement, Lag),
        window(3108, "lag", &[AnyCompatible, Int4, AnyCompatible], AnyCompatible, Lag),
        window(3109, "lead", &[AnyElement], AnyElement, Lead),
        window(3110, "lead", &[AnyElement, Int4], AnyElement, Lead),
        window(3111, "lead", &[AnyCompatible, Int4, AnyCompatible], AnyCompatible, Lead),
        window(3112, "first_value", &[AnyElement], AnyElement, FirstValue),
        window(3113, "last_value", &[AnyElement], AnyElement, LastValue),
        window(3114, "nth_value", &[AnyElement, Int4], AnyElement, NthValue),
    ]
};

/// GROUPING, which no call finds by its name: the binder knows it.
pub static GROUPING: Function = external(0, "grouping", &[], TypeId::Int4);

impl Function {
    /// Which window function it is, if it is one.
    pub fn window_function(&self) -> Option<WindowFunction> {
        match self.body {
            Body::Window(function) => Some(function),
            _ => None,
        }
    }
}
