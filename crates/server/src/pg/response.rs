//! What the server says: backend messages, encoded straight into a connection's output buffer.
//!
//! Every function appends one whole message, so the buffer always ends between messages. Nothing is
//! flushed here.

use std::io::Write as _;

use cognate_sql::SqlError;

/// Bytes that may be refused by a reader that stops a string at a zero: such bytes are dropped from
/// strings.
fn put_string(out: &mut Vec<u8>, text: &str) {
    if text.as_bytes().contains(&0) {
        out.extend(text.bytes().filter(|&b| b != 0));
    } else {
        out.extend_from_slice(text.as_bytes());
    }
    out.push(0);
}

/// Appends a message with this tag whose body is written by `body`, then sets its length.
pub fn message(out: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// The same where the body may turn out to be too much: then nothing of the message is left.
pub fn try_message(
    out: &mut Vec<u8>,
    tag: u8,
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    let before = out.len();
    let mut written = Ok(());
    message(out, tag, |out| written = body(out));
    if written.is_err() {
        out.truncate(before);
    }
    written
}

/// A message without a body.
fn bare(out: &mut Vec<u8>, tag: u8) {
    out.extend_from_slice(&[tag, 0, 0, 0, 4]);
}

/// ParseComplete.
pub fn parse_complete(out: &mut Vec<u8>) {
    bare(out, b'1');
}

/// BindComplete.
pub fn bind_complete(out: &mut Vec<u8>) {
    bare(out, b'2');
}

/// CloseComplete.
pub fn close_complete(out: &mut Vec<u8>) {
    bare(out, b'3');
}

/// NoData: the statement returns no rows.
pub fn no_data(out: &mut Vec<u8>) {
    bare(out, b'n');
}

/// PortalSuspended: the row limit was reached.
pub fn portal_suspended(out: &mut Vec<u8>) {
    bare(out, b's');
}

/// EmptyQueryResponse.
pub fn empty_query(out: &mut Vec<u8>) {
    bare(out, b'I');
}

/// CopyDone.
pub fn copy_done(out: &mut Vec<u8>) {
    bare(out, b'c');
}

/// CommandComplete, e.g. `INSERT 0 1`.
pub fn command_complete(out: &mut Vec<u8>, command_tag: impl std::fmt::Display) {
    message(out, b'C', |out| {
        // Writing to a vector does not fail.
        let _ = write!(out, "{command_tag}\0");
    });
}

/// ReadyForQuery; `status` is `I`, `T` or `E`.
pub fn ready_for_query(out: &mut Vec<u8>, status: u8) {
    out.extend_from_slice(&[b'Z', 0, 0, 0, 5, status]);
}

/// ParameterStatus.
pub fn parameter_status(out: &mut Vec<u8>, name: &str, value: &str) {
    message(out, b'S', |out| {
        put_string(out, name);
        put_string(out, value);
    });
}

/// NotificationResponse.
pub fn notification(out: &mut Vec<u8>, process_id: i32, channel: &str, payload: &str) {
    message(out, b'A', |out| {
        out.extend_from_slice(&process_id.to_be_bytes());
        put_string(out, channel);
        put_string(out, payload);
    });
}

/// BackendKeyData: what a cancel request must quote.
pub fn backend_key_data(out: &mut Vec<u8>, process_id: i32, secret: &[u8]) {
    message(out, b'K', |out| {
        out.extend_from_slice(&process_id.to_be_bytes());
        out.extend_from_slice(secret);
    });
}

/// ParameterDescription: type numbers of a statement's parameters.
pub fn parameter_description(out: &mut Vec<u8>, oids: impl ExactSizeIterator<Item = u32>) {
    message(out, b't', |out| {
        out.extend_from_slice(&(oids.len() as u16).to_be_bytes());
        for oid in oids {
            out.extend_from_slice(&oid.to_be_bytes());
        }
    });
}

/// One column in a RowDescription.
#[derive(Debug, Clone, Copy)]
pub struct Field<'a> {
    /// Its name.
    pub name: &'a str,
    /// Number of the table it is read from, 0 for an expression.
    pub table_oid: u32,
    /// Number of that table's column, from 1; 0 for an expression.
    pub attribute_number: i16,
    /// Number of its type.
    pub type_oid: u32,
    /// Bytes of a value; negative for a varying length.
    pub type_size: i16,
    /// The type's modifier, -1 for none.
    pub type_modifier: i32,
    /// Whether its values come in binary.
    pub binary: bool,
}

/// RowDescription.
pub fn row_description<'a>(out: &mut Vec<u8>, fields: impl ExactSizeIterator<Item = Field<'a>>) {
    message(out, b'T', |out| {
        out.extend_from_slice(&(fields.len() as u16).to_be_bytes());
        for field in fields {
            put_string(out, field.name);
            let mut fixed = [0; 18];
            fixed[..4].copy_from_slice(&field.table_oid.to_be_bytes());
            fixed[4..6].copy_from_slice(&field.attribute_number.to_be_bytes());
            fixed[6..10].copy_from_slice(&field.type_oid.to_be_bytes());
            fixed[10..12].copy_from_slice(&field.type_size.to_be_bytes());
            fixed[12..16].copy_from_slice(&field.type_modifier.to_be_bytes());
            fixed[17] = u8::from(field.binary);
            out.extend_from_slice(&fixed);
        }
    });
}

/// CopyInResponse (`tag` = `G`) or CopyOutResponse (`tag` = `H`), all columns in the same format.
pub fn copy_response(out: &mut Vec<u8>, tag: u8, binary: bool, columns: usize) {
    message(out, tag, |out| {
        out.push(u8::from(binary));
        out.extend_from_slice(&(columns as u16).to_be_bytes());
        for _ in 0..columns {
            out.extend_from_slice(&i16::from(binary).to_be_bytes());
        }
    });
}

/// CopyData.
pub fn copy_data(out: &mut Vec<u8>, data: &[u8]) {
    message(out, b'd', |out| out.extend_from_slice(data));
}

/// AuthenticationOk.
pub fn authentication_ok(out: &mut Vec<u8>) {
    message(out, b'R', |out| out.extend_from_slice(&0_u32.to_be_bytes()));
}

/// AuthenticationSASL: the mechanisms offered.
pub fn authentication_sasl(out: &mut Vec<u8>, mechanisms: &[&str]) {
    message(out, b'R', |out| {
        out.extend_from_slice(&10_u32.to_be_bytes());
        for mechanism in mechanisms {
            put_string(out, mechanism);
        }
        out.push(0);
    });
}

/// AuthenticationSASLContinue.
pub fn authentication_sasl_continue(out: &mut Vec<u8>, data: &[u8]) {
    message(out, b'R', |out| {
        out.extend_from_slice(&11_u32.to_be_bytes());
        out.extend_from_slice(data);
    });
}

/// AuthenticationSASLFinal.
pub fn authentication_sasl_final(out: &mut Vec<u8>, data: &[u8]) {
    message(out, b'R', |out| {
        out.extend_from_slice(&12_u32.to_be_bytes());
        out.extend_from_slice(data);
    });
}

/// NegotiateProtocolVersion: the version that will be spoken, and the options that are not known.
pub fn negotiate_protocol_version<'a>(
    out: &mut Vec<u8>,
    minor: u16,
    unknown: impl ExactSizeIterator<Item = &'a str>,
) {
    message(out, b'v', |out| {
        out.extend_from_slice(&((3_u32 << 16) | u32::from(minor)).to_be_bytes());
        out.extend_from_slice(&(unknown.len() as u32).to_be_bytes());
        for option in unknown {
            put_string(out, option);
        }
    });
}

/// An error or notice as its fields: field code and value.
#[derive(Debug, Clone, Copy, Default)]
pub struct Report<'a> {
    /// `ERROR`, `FATAL`, `NOTICE`, `WARNING`, …
    pub severity: &'a str,
    /// Five characters.
    pub sqlstate: &'a str,
    /// What happened.
    pub message: &'a str,
    /// More about it.
    pub detail: Option<&'a str>,
    /// What to do.
    pub hint: Option<&'a str>,
    /// Character of the statement, from 1.
    pub position: Option<u32>,
    /// Schema concerned.
    pub schema: Option<&'a str>,
    /// Table concerned.
    pub table: Option<&'a str>,
    /// Column concerned.
    pub column: Option<&'a str>,
    /// Type concerned.
    pub data_type: Option<&'a str>,
    /// Constraint concerned.
    pub constraint: Option<&'a str>,
    /// Where in a COPY or the like.
    pub context: Option<&'a str>,
    /// The function of PostgreSQL that drivers tell it by.
    pub routine: Option<&'a str>,
}

impl<'a> Report<'a> {
    /// A report that ends the connection.
    pub fn fatal(sqlstate: &'a str, message: &'a str) -> Report<'a> {
        Report { severity: "FATAL", sqlstate, message, ..Report::default() }
    }

    /// A report that ends the statement.
    pub fn error(sqlstate: &'a str, message: &'a str) -> Report<'a> {
        Report { severity: "ERROR", sqlstate, message, ..Report::default() }
    }
}

impl<'a> From<&'a SqlError> for Report<'a> {
    fn from(error: &'a SqlError) -> Report<'a> {
        Report {
            severity: error.severity.as_str(),
            sqlstate: error.sqlstate,
            message: &error.message,
            detail: error.detail.as_deref(),
            hint: error.hint.as_deref(),
            position: error.position,
            schema: error.schema.as_deref(),
            table: error.table.as_deref(),
            column: error.column.as_deref(),
            data_type: error.data_type.as_deref(),
            constraint: error.constraint.as_deref(),
            context: error.context.as_deref(),
            routine: error.routine,
        }
    }
}

/// ErrorResponse.
pub fn error(out: &mut Vec<u8>, report: &Report<'_>) {
    report_fields(out, b'E', report);
}

/// NoticeResponse.
pub fn notice(out: &mut Vec<u8>, report: &Report<'_>) {
    report_fields(out, b'N', report);
}

fn report_fields(out: &mut Vec<u8>, tag: u8, report: &Report<'_>) {
    let position = report.position.map(|p| p.to_string());
    message(out, tag, |out| {
        let fields = [
            (b'S', Some(report.severity)),
            (b'V', Some(report.severity)),
            (b'C', Some(report.sqlstate)),
            (b'M', Some(report.message)),
            (b'D', report.detail),
            (b'H', report.hint),
            (b'P', position.as_deref()),
            (b's', report.schema),
            (b't', report.table),
            (b'c', report.column),
            (b'd', report.data_type),
            (b'n', report.constraint),
            (b'W', report.context),
            (b'R', report.routine),
        ];
        for (code, value) in fields {
            if let Some(value) = value {
                out.push(code);
                put_string(out, value);
            }
        }
        out.push(0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_count_themselves_and_the_body() {
        let mut out = Vec::new();
        command_complete(&mut out, "SELECT 1");
        assert_eq!(out, b"C\0\0\0\x0dSELECT 1\0");
        out.clear();
        ready_for_query(&mut out, b'I');
        assert_eq!(out, b"Z\0\0\0\x05I");
    }

    #[test]
    fn nothing_is_left_of_a_message_that_is_refused() {
        let mut out = Vec::new();
        ready_for_query(&mut out, b'I');
        let before = out.clone();
        let refused = try_message(&mut out, b'D', |out| {
            out.extend_from_slice(b"a part");
            Err(SqlError::internal("too much"))
        });
        assert!(refused.is_err() && out == before);
        try_message(&mut out, b'D', |out| {
            out.push(7);
            Ok(())
        })
        .expect("it fits");
        assert_eq!(out[before.len()..], *b"D\0\0\0\x05\x07");
    }

    #[test]
    fn a_zero_inside_a_string_cannot_forge_a_field() {
        let mut out = Vec::new();
        error(
            &mut out,
            &Report { severity: "ERROR", sqlstate: "42601", message: "a\0C00000", ..Report::default() },
        );
        assert_eq!(&out[5..], b"SERROR\0VERROR\0C42601\0MaC00000\0\0");
    }
}
