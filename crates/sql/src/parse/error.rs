//! Syntax errors in PostgreSQL's words, with positions.

use std::cell::Cell;

use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, TokenizerError};

use crate::error::{SqlError, sqlstate};

/// The 1-based character position of a place in a text; none for a place that is in no text.
pub fn character_position(text: &str, location: Location) -> Option<u32> {
    if location.line == 0 {
        return None;
    }
    let places = Source::new(text);
    Some(places.position(places.byte(location)))
}

/// A text whose places are asked for by line and column.
pub(super) struct Source<'a> {
    text: &'a str,
    /// Byte offset of each line.
    lines: Vec<usize>,
    /// Every character is one byte.
    ascii: bool,
    /// Line, column and byte offset of the place asked for last: in long texts the next one is
    /// near.
    last: Cell<(usize, usize, usize)>,
}

impl<'a> Source<'a> {
    pub(super) fn new(text: &'a str) -> Source<'a> {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Source { text, lines, ascii: text.is_ascii(), last: Cell::default() }
    }

    /// Byte offset of a place (lines and columns count from 1, columns in characters).
    pub(super) fn byte(&self, location: Location) -> usize {
        let line = usize::try_from(location.line).unwrap_or(usize::MAX).saturating_sub(1);
        let Some(&start) = self.lines.get(line) else { return self.text.len() };
        let column = usize::try_from(location.column).unwrap_or(usize::MAX).saturating_sub(1);
        if self.ascii {
            return start.saturating_add(column).min(self.text.len());
        }
        let (from, skipped) = match self.last.get() {
            (last_line, last_column, byte) if last_line == line && last_column <= column => {
                (byte, last_column)
            }
            _ => (start, 0),
        };
        let mut rest = self.text[from..].char_indices();
        let found = rest.nth(column - skipped).map_or(self.text.len(), |(at, _)| from + at);
        self.last.set((line, column, found));
        found
    }

    /// 1-based character position of a byte offset.
    fn position(&self, byte: usize) -> u32 {
        let characters = self.text[..byte].chars().count() + 1;
        u32::try_from(characters).unwrap_or(u32::MAX)
    }

    /// `syntax error at or near`, at a token.
    pub(super) fn near(&self, location: Location) -> SqlError {
        self.near_byte(self.byte(location))
    }

    /// The same at a byte offset.
    pub(super) fn near_at(&self, byte: usize) -> SqlError {
        self.near_byte(byte)
    }

    /// A token that runs into another.
    pub(super) fn junk(&self, location: Location, what: &str, token: &str) -> SqlError {
        SqlError::syntax(format!("trailing junk after {what} at or near \"{token}\""))
            .at(self.position(self.byte(location)))
    }

    /// A name in quotes without a letter between them.
    pub(super) fn no_name(&self, location: Location) -> SqlError {
        SqlError::syntax("zero-length delimited identifier at or near \"\"\"\"")
            .at(self.position(self.byte(location)))
    }

    /// Another complaint about the token at a place.
    pub(super) fn complaint(&self, what: &str, location: Location) -> SqlError {
        let byte = self.byte(location);
        let message = match token_at(&self.text[byte..]) {
            "" => format!("{what} at end of input"),
            token => format!("{what} at or near \"{token}\""),
        };
        SqlError::syntax(message).at(self.position(byte))
    }

    /// A complaint about the character so far behind a place.
    pub(super) fn inside(&self, location: Location, behind: usize, message: &str) -> SqlError {
        let behind = u32::try_from(behind).unwrap_or(u32::MAX);
        SqlError::syntax(message).at(self.position(self.byte(location)).saturating_add(behind))
    }

    fn near_byte(&self, byte: usize) -> SqlError {
        let token = token_at(&self.text[byte..]);
        if token.is_empty() {
            return self.end(byte);
        }
        SqlError::syntax(format!("syntax error at or near \"{token}\"")).at(self.position(byte))
    }

    fn end(&self, byte: usize) -> SqlError {
        SqlError::syntax("syntax error at end of input").at(self.position(byte))
    }

    /// For the last statement of a text its end is the end of input; before that it is the
    /// semicolon.
    pub(super) fn at_end(&self, last: bool) -> bool {
        last
    }

    pub(super) fn parser_error(&self, error: &ParserError) -> SqlError {
        self.parser_error_at(error, true, self.text.len())
    }

    /// `end` is the byte offset of the statement's end, and `last` whether nothing follows.
    pub(super) fn parser_error_at(&self, error: &ParserError, last: bool, end: usize) -> SqlError {
        let message = match error {
            ParserError::RecursionLimitExceeded => {
                return SqlError::new(sqlstate::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded");
            }
            ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
        };
        match location(message) {
            Some(location) if !message.contains("found: EOF") => {
                let byte = self.byte(location);
                if byte >= end { self.at_statement_end(last, end) } else { self.near_byte(byte) }
            }
            _ if message.contains("EOF") || message.starts_with("Expected") => {
                self.at_statement_end(last, end)
            }
            _ => SqlError::syntax(format!("syntax error: {message}")),
        }
    }

    fn at_statement_end(&self, last: bool, end: usize) -> SqlError {
        if last {
            return self.end(self.text.len());
        }
        // The next token is the semicolon.
        let semicolon = self.text[end..].find(';').map_or(end, |at| end + at);
        self.near_byte(semicolon)
    }

    /// What PostgreSQL's scanner would say.
    pub(super) fn tokenizer_error(&self, error: &TokenizerError) -> SqlError {
        let byte = self.byte(error.location);
        let unterminated = |what: &str, mark: &str| {
            // The location may be behind the opening mark.
            let start = if self.text[byte..].starts_with(mark) {
                byte
            } else {
                self.text[..byte].rfind(mark).unwrap_or(byte)
            };
            SqlError::syntax(format!("unterminated {what} at or near \"{}\"", &self.text[start..]))
                .at(self.position(start))
        };
        let message = error.message.as_str();
        if message.contains("multi-line comment") {
            let start = self.text.find("/*").unwrap_or(byte);
            return SqlError::syntax(format!(
                "unterminated /* comment at or near \"{}\"",
                &self.text[start..]
            ))
            .at(self.position(start));
        }
        if message.contains("dollar-quoted") {
            return unterminated("dollar-quoted string", "$");
        }
        if message.contains("close delimiter") {
            return unterminated("quoted identifier", "\"");
        }
        if message.contains("string literal") {
            return unterminated("quoted string", "'");
        }
        self.near_byte(byte)
    }
}

/// The error with the place where the parser stopped, if it is the one that has none: about what
/// stands behind LEFT and RIGHT.
pub(super) fn located(error: ParserError, parser: &Parser<'_>) -> ParserError {
    match error {
        ParserError::ParserError(message) if message.starts_with("expected OUTER, SEMI, ANTI or JOIN") => {
            let found = parser.peek_token_ref();
            ParserError::ParserError(format!("Expected: JOIN, found: {found}{}", found.span.start))
        }
        error => error,
    }
}

/// The place a parser's message ends with: ` at Line: 1, Column: 8`.
fn location(message: &str) -> Option<Location> {
    let (_, place) = message.rsplit_once(" at Line: ")?;
    let (line, column) = place.split_once(", Column: ")?;
    Some(Location { line: line.parse().ok()?, column: column.parse().ok()? })
}

/// The source text of the token at the start of `text`.
fn token_at(text: &str) -> &str {
    let mut characters = text.char_indices().peekable();
    let Some((_, first)) = characters.next() else { return "" };
    let quoted = |quote: char| match text[1..].find(quote) {
        Some(end) => &text[..end + 2],
        None => text,
    };
    let length = |part: fn(char) -> bool| text.find(|c| !part(c)).unwrap_or(text.len());
    match first {
        '\'' | '"' => quoted(first),
        'a'..='z' | 'A'..='Z' | '_' | '$' | '\u{80}'.. => {
            &text[..length(|c| c.is_alphanumeric() || c == '_' || c == '$' || !c.is_ascii())]
        }
        '0'..='9' => &text[..length(|c| c.is_ascii_alphanumeric() || c == '.')],
        ':' if text.starts_with("::") => "::",
        '+' | '-' | '*' | '/' | '<' | '>' | '=' | '~' | '!' | '@' | '#' | '%' | '^' | '&' | '|' | '`'
        | '?' => &text[..length(|c| "+-*/<>=~!@#%^&|`?".contains(c))],
        _ => &text[..first.len_utf8()],
    }
}
