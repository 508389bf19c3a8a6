//! CREATE EXTENSION. There is one extension, as in every database of PostgreSQL from its beginning:
//! `plpgsql`, which is the language of DO here. Programs and dumps make sure that it is there.
//!
//! ```text
//! CREATE EXTENSION IF NOT EXISTS plpgsql    NOTICE: extension "plpgsql" already exists, skipping
//! CREATE EXTENSION hstore                   0A000: extension "hstore" is not available
//! ```

use sqlparser::ast;

use super::names::fold;
use crate::error::{Result, Severity, SqlError, sqlstate};
use crate::session::work::Work;

/// The name of the extension.
pub(crate) const EXTENSION: &str = "plpgsql";

impl Work<'_> {
    /// CREATE EXTENSION. 0A000 for one that there is not.
    pub(crate) fn create_extension(&mut self, create: &ast::CreateExtension) -> Result<()> {
        let name = fold(&create.name);
        if name != EXTENSION {
            let message = format!("extension \"{name}\" is not available");
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
        }
        let message = format!("extension \"{name}\" already exists");
        if !create.if_not_exists {
            return Err(SqlError::new(sqlstate::DUPLICATE_OBJECT, message));
        }
        let notice = SqlError::new(sqlstate::DUPLICATE_OBJECT, format!("{message}, skipping"));
        self.notice(notice.with_severity(Severity::Notice));
        Ok(())
    }
}
