//! Aggregates.

use super::EvalContext;
use crate::error::SqlError;
use crate::types::{Datum, Type};

/// The state of one aggregate over one group. DISTINCT, FILTER and ORDER BY within the call are the executor's.
pub trait Accumulator: Send {
    /// Takes one row's arguments (converted to the resolved types), NULLs included.
    fn add(&mut self, arguments: &[Datum], context: &EvalContext<'_>) -> Result<(), SqlError>;
    /// The result over what was added.
    fn finish(&mut self, context: &EvalContext<'_>) -> Result<Datum, SqlError>;
    /// Approximate memory held, in bytes.
    fn memory(&self) -> usize {
        0
    }
}

/// Makes a fresh accumulator for arguments of these types.
pub type AccumulatorMaker = fn(&[Type]) -> Box<dyn Accumulator>;
