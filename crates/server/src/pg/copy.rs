//! COPY: data from the client while a COPY FROM STDIN waits for it, and the responses that open a
//! COPY.
//!
//! After CopyInResponse the client sends CopyData, cut anywhere, then CopyDone or CopyFail. Flush
//! and Sync are ignored meanwhile, as drivers send them before they know that the statement was a
//! COPY. Anything else ends the COPY with an error. Data that arrives after the COPY has failed is
//! read and dropped by the connection's loop.

use std::pin::pin;

use cognate_sql::session::{CommandTag, CopyFormat, CopyInFormat};
use cognate_sql::{SqlError, sqlstate};

use super::connection::{Connection, Failure};
use super::conversation::{End, attend};
use super::message::{self, Frontend, tag};
use super::response;
use super::simple::Rest;

/// A COPY FROM STDIN that waits for data, by how it was started.
pub(crate) enum CopyIn {
    /// By Execute.
    Extended,
    /// By a statement of a Query; these are still to run after it.
    Simple(Rest),
}

/// Writes CopyInResponse (`G`) or CopyOutResponse (`H`).
pub(crate) fn write_response(output: &mut Vec<u8>, first: u8, format: CopyInFormat) {
    response::copy_response(output, first, format.format == CopyFormat::Binary, format.columns);
}

impl Connection {
    /// Handles a message while a COPY FROM STDIN waits for data.
    pub(crate) async fn copy_message(&mut self, first: u8, body: &[u8]) -> Result<(), End> {
        if first == tag::FLUSH || first == tag::SYNC {
            return Ok(());
        }
        let result = match message::decode(first, body) {
            Ok(Frontend::CopyData(data)) => {
                let copied = pin!(self.session.copy_data(data));
                match attend(&mut self.transport, &self.open, copied).await {
                    Ok(()) => return Ok(()),
                    Err(error) => Err(error),
                }
            }
            Ok(Frontend::CopyDone) => {
                let done = pin!(self.session.copy_done());
                attend(&mut self.transport, &self.open, done).await
            }
            Ok(Frontend::CopyFail(reason)) => Err(self.session.copy_fail(reason).await),
            Ok(Frontend::Terminate) => return Err(End::Terminated),
            Ok(_) => {
                self.session.copy_fail("unexpected message").await;
                let message = format!("unexpected message type 0x{first:02X} during COPY from stdin");
                Err(SqlError::new(sqlstate::PROTOCOL_VIOLATION, message))
            }
            Err(error) => {
                self.session.copy_fail("malformed message").await;
                Err(SqlError::new(error.sqlstate(), error.to_string()))
            }
        };
        self.end_copy(result).await
    }

    async fn end_copy(&mut self, result: Result<CommandTag, SqlError>) -> Result<(), End> {
        let Some(copy) = self.copy.take() else { return Ok(()) };
        match (copy, result) {
            (CopyIn::Extended, Ok(command_tag)) => {
                self.write_notices();
                self.held = Some(command_tag);
                Ok(())
            }
            (CopyIn::Extended, Err(error)) => self.settle(Err(Failure::Sql(error))).await,
            (CopyIn::Simple(rest), Ok(command_tag)) => {
                self.write_notices();
                self.held = Some(command_tag);
                self.run_statements(rest).await
            }
            (CopyIn::Simple(_), Err(error)) => {
                self.report(error).await;
                self.end_simple().await
            }
        }
    }
}
