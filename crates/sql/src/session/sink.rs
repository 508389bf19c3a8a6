//! Where rows go.

use super::OutputColumn;
use crate::error::Result;
use crate::types::{Datum, FormatContext};

/// Format of a value on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Format {
    /// Text.
    #[default]
    Text,
    /// Binary.
    Binary,
}

/// Whether a sink takes more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkState {
    /// It does.
    Ready,
    /// It took what it was given, but is to be emptied before the next.
    Full,
}

/// Takes a portal's rows, one by one, as they are made.
pub trait RowSink {
    /// One row. `formats` has one entry for each column. Fails if the row is more than the sink can
    /// take; then it took nothing of it.
    fn row(
        &mut self,
        columns: &[OutputColumn],
        formats: &[Format],
        row: &[Datum],
        context: &FormatContext,
    ) -> Result<SinkState>;

    /// One line of COPY TO STDOUT, with its line end; or the next bytes of BACKUP.
    fn copy_out(&mut self, data: &[u8]) -> SinkState;
}
