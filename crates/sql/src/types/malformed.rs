//! What is wrong with a value in binary format, in PostgreSQL's words.

use crate::error::{SqlError, sqlstate};

/// What is said of a value with bytes behind its end.
pub(super) const TOO_LONG: &str = "incorrect binary data format";

/// 08P01 for a value that ends too early.
pub(super) fn insufficient() -> SqlError {
    SqlError::new(sqlstate::PROTOCOL_VIOLATION, "insufficient data left in message")
}

/// 08P01 for a value of one byte that has none.
pub(super) fn nothing() -> SqlError {
    SqlError::new(sqlstate::PROTOCOL_VIOLATION, "no data left in message")
}

/// 22P03.
pub(super) fn invalid(what: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate::INVALID_BINARY_REPRESENTATION, what)
}
