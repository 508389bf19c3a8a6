//! Rows on their way to the client: each is encoded as a DataRow as soon as the executor has it.

use cognate_sql::session::{Format, OutputColumn, RowSink, SinkState};
use cognate_sql::types::{Datum, FormatContext};

use super::response;
use super::transport::IDLE_BYTES;

/// Rows waiting beyond this many bytes are sent before more are made.
pub(crate) const FULL_BYTES: usize = 64 * 1024;

/// Encodes rows and COPY lines into a buffer.
#[derive(Debug, Default)]
pub(crate) struct RowBuffer {
    /// Whole messages.
    pub(crate) bytes: Vec<u8>,
    /// Rows since the count was last reset.
    pub(crate) rows: u64,
}

impl RowBuffer {
    /// Gives memory back before the connection goes idle.
    pub(crate) fn shrink(&mut self) {
        if self.bytes.capacity() > IDLE_BYTES {
            self.bytes = Vec::new();
        }
    }

    fn state(&self) -> SinkState {
        if self.bytes.len() < FULL_BYTES { SinkState::Ready } else { SinkState::Full }
    }
}

impl RowSink for RowBuffer {
    fn row(
        &mut self,
        columns: &[OutputColumn],
        formats: &[Format],
        row: &[Datum],
        context: &FormatContext,
    ) -> SinkState {
        debug_assert!(columns.len() == row.len() && formats.len() == row.len());
        self.rows += 1;
        response::message(&mut self.bytes, b'D', |out| {
            out.extend_from_slice(&(row.len() as u16).to_be_bytes());
            for ((datum, column), format) in row.iter().zip(columns).zip(formats) {
                let start = out.len();
                if datum.is_null() {
                    out.extend_from_slice(&(-1_i32).to_be_bytes());
                    continue;
                }
                out.extend_from_slice(&[0; 4]);
                match format {
                    Format::Text => datum.to_text(column.ty, context, out),
                    Format::Binary => datum.to_binary(column.ty, out),
                }
                let length = (out.len() - start - 4) as u32;
                out[start..start + 4].copy_from_slice(&length.to_be_bytes());
            }
        });
        self.state()
    }

    fn copy_out(&mut self, data: &[u8]) -> SinkState {
        response::copy_data(&mut self.bytes, data);
        self.state()
    }
}
