//! A sequence read as a table, as dumps do: one row with its state.

use std::sync::Arc;

use super::VirtualTable;
use crate::catalog::Sequence;
use crate::error::Result;
use crate::expr::ReadContext;
use crate::types::{Datum, Type, TypeId};

pub(super) struct SequenceTable(pub(super) Arc<Sequence>);

const COLUMNS: &[(&str, Type)] = &[
    ("last_value", Type::new(TypeId::Int8)),
    ("log_cnt", Type::new(TypeId::Int8)),
    ("is_called", Type::new(TypeId::Bool)),
];

impl VirtualTable for SequenceTable {
    fn oid(&self) -> u32 {
        self.0.oid
    }

    fn schema(&self) -> &str {
        &self.0.schema_name
    }

    fn name(&self) -> &str {
        &self.0.name
    }

    fn columns(&self) -> &[(&'static str, Type)] {
        COLUMNS
    }

    /// The log has no values in advance that a crash would lose, so it counts none.
    fn rows(&self, context: &ReadContext<'_>) -> Result<Vec<Vec<Datum>>> {
        let state = context.eval.session.server().sequence_state(&self.0);
        let (value, is_called) = state.unwrap_or((self.0.counter_start, self.0.counter_called));
        Ok(vec![vec![Datum::Int8(value), Datum::Int8(0), Datum::Bool(is_called)]])
    }
}
