//! PREPARE TRANSACTION and the decision about it in their plain form, read without tokens and grammar.
//!
//! They come as text each time, for PostgreSQL has no parameters there; each time with another identifier, so no plan is kept; and twice for each transaction of who uses
//! them at all. What is not plain (comments, an identifier with a quote or backslash, more than one statement) goes the ordinary way, which comes to the same.

use std::sync::Arc;

use super::{Command, Statement};

const WHITE: [char; 4] = [' ', '\t', '\n', '\r'];

/// What follows a word and white space.
fn after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(word.len())?;
    let trimmed = rest.trim_start_matches(WHITE);
    (head.eq_ignore_ascii_case(word) && trimmed.len() < rest.len()).then_some(trimmed)
}

/// The statement, if it is one of these.
pub(super) fn parse(text: &str) -> Option<Statement> {
    let body = text.trim_matches(WHITE);
    let body = body.strip_suffix(';').map_or(body, |body| body.trim_end_matches(WHITE));
    let (make, rest): (fn(String) -> Command, &str) = match body.as_bytes().first()? {
        b'P' | b'p' => (Command::PrepareTransaction, after(after(body, "PREPARE")?, "TRANSACTION")?),
        b'C' | b'c' => (Command::CommitPrepared, after(after(body, "COMMIT")?, "PREPARED")?),
        b'R' | b'r' => (Command::RollbackPrepared, after(after(body, "ROLLBACK")?, "PREPARED")?),
        _ => return None,
    };
    let identifier = rest.strip_prefix('\'')?.strip_suffix('\'')?;
    if identifier.contains(['\'', '\\']) {
        return None;
    }
    let source: Arc<str> = text.into();
    let text = if body.len() == text.len() { Arc::clone(&source) } else { body.into() };
    let command = make(identifier.to_owned());
    Some(Statement { text, source, command, overriding: None, deferrable: None, complexity: 0 })
}
