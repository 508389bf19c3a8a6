//! Tokens of a text, made piece by piece around the long lists of rows that stay text.

use sqlparser::tokenizer::{Location, TokenWithSpan, TokenizerError};

use super::dialect::CognateDialect;
use super::operator;
use super::rows::{self, Run};

/// The tokens of a text, with a mark in the place of each run of rows.
pub(super) fn tokenize(text: &str, runs: &[Run]) -> Result<Vec<TokenWithSpan>, TokenizerError> {
    let dialect = CognateDialect::default();
    let piece = |range: std::ops::Range<usize>| {
        let piece = &text[range];
        operator::space(piece).tokenize(piece, &dialect)
    };
    if runs.is_empty() {
        return piece(0..text.len());
    }
    let (mut tokens, mut from) = (vec![], 0);
    let mut here = Location { line: 1, column: 1 };
    for run in runs {
        tokens.extend(moved(piece(from..run.start), here)?);
        let start = behind(here, &text[from..run.start]);
        here = behind(start, &text[run.start..run.end]);
        if run.rows > 0 {
            tokens.extend(rows::mark(run, start, here));
        }
        from = run.end;
    }
    tokens.extend(moved(piece(from..text.len()), here)?);
    Ok(tokens)
}

/// The location behind a text that begins at another.
fn behind(start: Location, text: &str) -> Location {
    let lines = text.bytes().filter(|&byte| byte == b'\n').count() as u64;
    let last = text.rfind('\n').map_or(0, |at| at + 1);
    let column = text[last..].chars().count() as u64;
    match lines {
        0 => Location { column: start.column + column, ..start },
        lines => Location { line: start.line + lines, column: column + 1 },
    }
}

/// Tokens of a piece of a text that begins at `start`, with their locations in the whole.
fn moved(
    tokens: Result<Vec<TokenWithSpan>, TokenizerError>,
    start: Location,
) -> Result<Vec<TokenWithSpan>, TokenizerError> {
    let moved = |at: Location| match at.line {
        0 => at,
        1 => Location { line: start.line, column: at.column + start.column - 1 },
        line => Location { line: line + start.line - 1, ..at },
    };
    let mut tokens = tokens.map_err(|error| TokenizerError { location: moved(error.location), ..error })?;
    for token in &mut tokens {
        token.span.start = moved(token.span.start);
        token.span.end = moved(token.span.end);
    }
    Ok(tokens)
}
