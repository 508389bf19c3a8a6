//! The window functions.

use super::frame::{Partition, Place};
use super::running::Running;
use crate::bind::{Frame, WindowCall};
use crate::error::{Result, SqlError, sqlstate};
use crate::function::WindowFunction;
use crate::oltp::Context;
use crate::types::Datum;

/// State of a call.
pub(super) enum CallState {
    Aggregate(Running),
    Ntile(Option<Buckets>),
    /// Looks at its partition alone.
    Plain(WindowFunction),
}

/// Buckets of ntile: the number of the current one, its rows so far, its size, and how many of the
/// buckets have a row more than the others.
pub(super) struct Buckets {
    number: i32,
    rows: usize,
    size: usize,
    larger: usize,
}

impl CallState {
    pub(super) fn new(call: &WindowCall, frame: &Frame) -> CallState {
        match call.function.function.window_function() {
            None => CallState::Aggregate(Running::new(call, frame)),
            Some(WindowFunction::Ntile) => CallState::Ntile(None),
            Some(function) => CallState::Plain(function),
        }
    }

    /// Whether it looks at rows before the current one.
    pub(super) fn looks_back(&self, frame: &Frame) -> bool {
        use WindowFunction::{FirstValue, Lag, LastValue, Lead, NthValue};
        match self {
            CallState::Aggregate(_) => Running::looks_back(frame),
            CallState::Ntile(_) => false,
            CallState::Plain(function) => {
                matches!(function, FirstValue | LastValue | NthValue | Lag | Lead)
            }
        }
    }

    /// Whether it looks at its frame, or at rows that sort alike.
    pub(super) fn looks_around(&self) -> bool {
        use WindowFunction::{Lag, Lead, RowNumber};
        !matches!(self, CallState::Ntile(_) | CallState::Plain(RowNumber | Lag | Lead))
    }

    /// Bytes it holds.
    pub(super) fn held(&self) -> usize {
        if let CallState::Aggregate(running) = self { running.held() } else { 0 }
    }

    /// A partition begins.
    pub(super) fn begin(&mut self, call: &WindowCall) -> Result<()> {
        match self {
            CallState::Aggregate(running) => running.begin(call),
            CallState::Ntile(buckets) => {
                *buckets = None;
                Ok(())
            }
            CallState::Plain(_) => Ok(()),
        }
    }

    /// The result for a row. Rows are asked for one after the other.
    pub(super) fn result(
        &mut self,
        call: &WindowCall,
        partition: &Partition,
        place: &Place,
        context: Context<'_>,
    ) -> Result<Datum> {
        use WindowFunction::*;
        let rows = partition.rows.len();
        let function = match self {
            CallState::Aggregate(running) => return running.result(call, partition, place, context),
            CallState::Ntile(buckets) => return ntile(buckets, call, partition, place, context),
            CallState::Plain(function) => *function,
        };
        Ok(match function {
            RowNumber => Datum::Int8(place.at as i64 + 1),
            Rank => Datum::Int8(place.peers.0 as i64 + 1),
            DenseRank => Datum::Int8(place.group as i64 + 1),
            PercentRank if rows <= 1 => Datum::Float8(0.0),
            PercentRank => Datum::Float8(place.peers.0 as f64 / (rows - 1) as f64),
            CumeDist => Datum::Float8(place.peers.1 as f64 / rows as f64),
            Lag | Lead => return neighbour(call, function == Lead, partition, place, context),
            FirstValue => {
                let first = place.ranges().into_iter().find(|(from, to)| from < to);
                value(call, partition, first.map(|(from, _)| from), context)?
            }
            LastValue => {
                let last = place.ranges().into_iter().rfind(|(from, to)| from < to);
                value(call, partition, last.map(|(_, to)| to - 1), context)?
            }
            NthValue => return nth_value(call, partition, place, context),
            Ntile => return Err(SqlError::internal("ntile without buckets")),
        })
    }
}

/// The call's n-th argument for a row.
fn argument(
    call: &WindowCall,
    number: usize,
    partition: &Partition,
    row: usize,
    context: Context<'_>,
) -> Result<Datum> {
    match call.arguments.get(number) {
        Some(expr) => expr.eval(&context.env(&partition.rows.row(row)?)),
        None => Ok(Datum::Null),
    }
}

/// The first argument for a row that may not be there.
fn value(
    call: &WindowCall,
    partition: &Partition,
    row: Option<usize>,
    context: Context<'_>,
) -> Result<Datum> {
    row.map_or(Ok(Datum::Null), |row| argument(call, 0, partition, row, context))
}

/// lag and lead: the offset and what stands for a missing row are the current row's.
fn neighbour(
    call: &WindowCall,
    forward: bool,
    partition: &Partition,
    place: &Place,
    context: Context<'_>,
) -> Result<Datum> {
    let offset = match call.arguments.len() {
        1 => 1,
        _ => match argument(call, 1, partition, place.at, context)?.as_i64() {
            Some(offset) => offset,
            None => return Ok(Datum::Null),
        },
    };
    let row = place.at as i64 + if forward { offset } else { -offset };
    match usize::try_from(row).ok().filter(|row| *row < partition.rows.len()) {
        Some(row) => argument(call, 0, partition, row, context),
        None => argument(call, 2, partition, place.at, context),
    }
}

fn nth_value(call: &WindowCall, partition: &Partition, place: &Place, context: Context<'_>) -> Result<Datum> {
    let Some(n) = argument(call, 1, partition, place.at, context)?.as_i64() else { return Ok(Datum::Null) };
    let mut left = usize::try_from(n).ok().and_then(|n| n.checked_sub(1)).ok_or_else(|| {
        SqlError::new(
            sqlstate::INVALID_ARGUMENT_FOR_NTH_VALUE,
            "argument of nth_value must be greater than zero",
        )
    })?;
    for (from, to) in place.ranges() {
        if left < to - from {
            return argument(call, 0, partition, from + left, context);
        }
        left -= to - from;
    }
    Ok(Datum::Null)
}

/// The number of buckets is the first row's that has one.
fn ntile(
    state: &mut Option<Buckets>,
    call: &WindowCall,
    partition: &Partition,
    place: &Place,
    context: Context<'_>,
) -> Result<Datum> {
    let buckets = match state {
        Some(buckets) => buckets,
        None => {
            let Some(count) = argument(call, 0, partition, place.at, context)?.as_i64() else {
                return Ok(Datum::Null);
            };
            let count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or_else(|| {
                SqlError::new(
                    sqlstate::INVALID_ARGUMENT_FOR_NTILE,
                    "argument of ntile must be greater than zero",
                )
            })?;
            let (each, larger) = (partition.rows.len() / count, partition.rows.len() % count);
            let size = match each {
                0 => 1,
                each => each + usize::from(larger > 0),
            };
            state.insert(Buckets { number: 1, rows: 0, size, larger: if each == 0 { 0 } else { larger } })
        }
    };
    buckets.rows += 1;
    if buckets.rows > buckets.size {
        if buckets.larger > 0 && buckets.number as usize == buckets.larger {
            buckets.larger = 0;
            buckets.size -= 1;
        }
        buckets.number += 1;
        buckets.rows = 1;
    }
    Ok(Datum::Int4(buckets.number))
}
