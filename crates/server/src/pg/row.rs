//! Rows on their way to the client: each is encoded as a DataRow as soon as the executor has it.
//! The head of a table comes before them.

use std::sync::Arc;

use cognate_sql::SqlError;
use cognate_sql::session::{Format, OutputColumn, RowSink, SinkState};
use cognate_sql::types::{Datum, FormatContext};

use super::response::{self, Field};
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
    ) -> Result<SinkState, SqlError> {
        debug_assert!(columns.len() == row.len() && formats.len() == row.len());
        response::try_message(&mut self.bytes, b'D', |out| {
            out.extend_from_slice(&(row.len() as u16).to_be_bytes());
            for ((datum, column), format) in row.iter().zip(columns).zip(formats) {
                let start = out.len();
                if datum.is_null() {
                    out.extend_from_slice(&(-1_i32).to_be_bytes());
                    continue;
                }
                out.extend_from_slice(&[0; 4]);
                match format {
                    Format::Text => datum.write_text(column.ty, context, out)?,
                    Format::Binary => datum.send(column.ty, context, out)?,
                }
                let length = (out.len() - start - 4) as u32;
                out[start..start + 4].copy_from_slice(&length.to_be_bytes());
            }
            Ok(())
        })?;
        self.rows += 1;
        Ok(self.state())
    }

    fn copy_out(&mut self, data: &[u8]) -> SinkState {
        response::copy_data(&mut self.bytes, data);
        self.state()
    }
}

/// Writes RowDescription or NoData. `formats` has one entry for each column, or none where all are
/// text.
pub(crate) fn describe_columns(output: &mut Vec<u8>, columns: Option<&[OutputColumn]>, formats: &[Format]) {
    let Some(columns) = columns else { return response::no_data(output) };
    let fields = columns.iter().enumerate().map(|(i, column)| Field {
        name: &column.name,
        table_oid: column.table_oid,
        attribute_number: column.attribute_number,
        // Clients see the type under a domain.
        type_oid: column.ty.base().oid(),
        type_size: column.ty.shown_length(),
        type_modifier: column.ty.base().shown_modifier(),
        binary: formats.get(i) == Some(&Format::Binary),
    });
    response::row_description(output, fields);
}

/// The last RowDescription of the simple protocol: who sends the same statement again gets the same
/// bytes.
#[derive(Debug, Default)]
pub(crate) struct Head {
    columns: Option<Arc<[OutputColumn]>>,
    bytes: Vec<u8>,
}

impl Head {
    /// Writes the RowDescription of these columns, all as text.
    pub(crate) fn write(&mut self, output: &mut Vec<u8>, columns: &Arc<[OutputColumn]>) {
        if !self.columns.as_ref().is_some_and(|known| Arc::ptr_eq(known, columns)) {
            self.bytes.clear();
            describe_columns(&mut self.bytes, Some(columns), &[]);
            self.columns = Some(Arc::clone(columns));
        }
        output.extend_from_slice(&self.bytes);
    }

    /// Gives memory back before the connection goes idle.
    pub(crate) fn shrink(&mut self) {
        if self.bytes.capacity() > IDLE_BYTES {
            *self = Head::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use cognate_sql::types::{Type, TypeId};

    use super::*;

    #[test]
    fn a_head_is_that_of_the_columns_it_is_asked_for() {
        let columns = |name: &str| -> Arc<[OutputColumn]> {
            let (name, ty) = (name.to_owned(), Type::new(TypeId::Text));
            Arc::from([OutputColumn { name, ty, table_oid: 0, attribute_number: 0 }])
        };
        let (a, b) = (columns("a"), columns("b"));
        let mut head = Head::default();
        for asked in [&a, &a, &b, &a, &columns("a")] {
            let (mut written, mut expected) = (vec![1], vec![1]);
            head.write(&mut written, asked);
            describe_columns(&mut expected, Some(asked), &[]);
            assert_eq!(written, expected);
        }
        let wide = columns(&"w".repeat(2 * IDLE_BYTES));
        head.write(&mut Vec::new(), &wide);
        head.shrink();
        assert!(head.bytes.capacity() == 0 && head.columns.is_none());
    }
}
