//! `ONLY t`, `ONLY (t)` and `t*`: there is no inheritance, so all of them are `t`.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{Pass, dotted, innermost_open, is};

/// Whether a star behind these tokens is that of a table with all that inherits from it, and no
/// sign of multiplication.
pub(super) fn ends_table(before: &[TokenWithSpan]) -> bool {
    let mut from = before.len();
    loop {
        match before[..from].last().map(|token| &token.token) {
            Some(Token::Word(_)) => from -= 1,
            _ => return false,
        }
        match before[..from].last().map(|token| &token.token) {
            Some(Token::Period) => from -= 1,
            _ => break,
        }
    }
    let Some((word, before)) = before[..from].split_last() else { return false };
    let is_word = |expected: &str| is(Some(word), expected);
    let behind = |words: &[&str]| words.iter().any(|expected| is(before.last(), expected));
    let begins = |words: &[&str]| words.iter().any(|expected| is(before.first(), expected));
    match () {
        () if is_word("FROM") => !behind(&["DISTINCT"]) && in_query(before),
        () if is_word("JOIN") || is_word("UPDATE") => true,
        () if is_word("TABLE") => !behind(&["CREATE", "TEMP", "TEMPORARY", "UNLOGGED"]),
        () if is_word("TRUNCATE") => before.is_empty(),
        () if is_word("INTO") => behind(&["MERGE"]),
        () if is_word("USING") => begins(&["MERGE", "DELETE", "WITH", "EXPLAIN"]),
        () if is_word("EXISTS") => begins(&["ALTER"]),
        () => false,
    }
}

/// Whether FROM behind these tokens is of a query or DELETE, and no word of a call: `extract(day
/// FROM a * b)`.
fn in_query(before: &[TokenWithSpan]) -> bool {
    let open = innermost_open(before).map_or(0, |open| open + 1);
    let mut depth = 0;
    before[open..].iter().any(|token| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth == 0 && (is(Some(token), "SELECT") || is(Some(token), "DELETE"))
    })
}

impl Pass<'_> {
    /// Whether the word ONLY stands before a table.
    pub(super) fn names_table(&self) -> bool {
        let words = ["FROM", "UPDATE", "JOIN", "INTO", "USING", "TABLE", "EXISTS", "TRUNCATE"];
        let opens = matches!(self.peek(1).map(|token| &token.token), Some(Token::LParen));
        let is_name = matches!(self.peek(1).map(|token| &token.token), Some(Token::Word(_)));
        let behind_comma = matches!(self.out.last().map(|token| &token.token), Some(Token::Comma));
        self.after(&words) || (behind_comma && (opens || (is_name && !self.is(1, "FROM"))))
    }

    /// ONLY and the parentheses around the table's name. Some statements tell the word apart.
    pub(super) fn only_table(&mut self) {
        match self.after(&["TABLE", "EXISTS", "TRUNCATE"]) {
            true => self.copy(),
            false => self.at += 1,
        }
        if !matches!(self.peek(0).map(|token| &token.token), Some(Token::LParen)) {
            return;
        }
        let (_, length) = dotted(self.tokens.get(self.at + 1..).unwrap_or_default());
        let closes = matches!(self.peek(length + 1).map(|token| &token.token), Some(Token::RParen));
        if length > 0 && closes {
            self.at += 1;
            (0..length).for_each(|_| self.copy());
            self.at += 1;
        }
    }
}
