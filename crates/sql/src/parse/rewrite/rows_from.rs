//! `FROM ROWS FROM (f(a), g(b))`, which the parser does not know: a call of a function with a name
//! that no user can write. And the columns of records without a name before them.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Word};

use super::from_item::begins_value;
use super::{Pass, ROWS_FROM, dotted, innermost_open, is, word};

/// A longer call of a function that gives records is not looked for behind its end.
const RECORD_TOKENS: usize = 2_048;

/// Whether the function of this name gives records, whose columns the statement says.
pub(super) fn gives_records(name: &str) -> bool {
    ["json_to_record", "json_to_recordset", "jsonb_to_record", "jsonb_to_recordset"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

impl Pass<'_> {
    /// Whether AS and a list of columns come behind a call that gives records, and not the query of
    /// a WITH.
    pub(super) fn begins_record_columns(&self) -> bool {
        let opens = matches!(self.peek(1).map(|token| &token.token), Some(Token::LParen));
        let is_query = ["SELECT", "VALUES", "WITH"].iter().any(|begin| self.is(2, begin));
        opens && !is_query && self.record_call().is_some()
    }

    /// The name of the function that gives records, if its call was copied last.
    fn record_call(&self) -> Option<TokenWithSpan> {
        let (last, before) = self.out.split_last()?;
        let near = &before[before.len().saturating_sub(RECORD_TOKENS)..];
        let open = (last.token == Token::RParen).then(|| innermost_open(near)).flatten()?;
        let name = near[..open].last()?;
        gives_records(word(Some(name))).then(|| name.clone())
    }

    pub(super) fn record_columns(&mut self) {
        let name = self.record_call();
        self.copy();
        self.out.extend(name);
    }

    /// Whether functions side by side begin here, as an item of FROM. Behind a comma it may be a
    /// column, too: in `SELECT a, rows FROM (SELECT ...)` no call begins the parentheses.
    pub(super) fn begins_functions(&self) -> bool {
        // A join in parentheses may begin with them.
        let before = self.out.iter().rev().find(|token| token.token != Token::LParen);
        let behind_comma = matches!(before.map(|token| &token.token), Some(Token::Comma));
        let opens = matches!(self.peek(2).map(|token| &token.token), Some(Token::LParen));
        let is_item =
            behind_comma || ["FROM", "JOIN", "LATERAL", "USING"].iter().any(|known| is(before, known));
        is_item && opens && self.is(1, "FROM") && self.begins_call(3)
    }

    /// Whether a call of a function comes so far ahead, and no query that begins like one.
    fn begins_call(&self, ahead: usize) -> bool {
        let rest = self.tokens.get(self.at + ahead..).unwrap_or_default();
        let is_query = ["SELECT", "VALUES"].iter().any(|begin| is(rest.first(), begin));
        let (name, length) = dotted(rest);
        let opens = matches!(rest.get(length).map(|token| &token.token), Some(Token::LParen));
        !is_query && ((!name.is_empty() && opens) || begins_value(rest))
    }

    pub(super) fn rows_from(&mut self, span: Span) {
        let name = Word { value: ROWS_FROM.to_owned(), quote_style: Some('"'), keyword: Keyword::NoKeyword };
        self.out.push(TokenWithSpan { token: Token::Word(name), span });
        self.at += 2;
    }
}
