//! `FROM ROWS FROM (f(a), g(b))`, which the parser does not know: a call of a function with a name
//! that no user can write.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Word};

use super::{Pass, ROWS_FROM, dotted, is};

impl Pass<'_> {
    /// Whether functions side by side begin here, as an item of FROM. Behind a comma it may be a
    /// column, too: in `SELECT a, rows FROM (SELECT ...)` no call begins the parentheses.
    pub(super) fn begins_functions(&self) -> bool {
        let behind_comma = matches!(self.out.last().map(|token| &token.token), Some(Token::Comma));
        let opens = matches!(self.peek(2).map(|token| &token.token), Some(Token::LParen));
        let is_item = behind_comma || self.after(&["FROM", "JOIN", "LATERAL", "USING"]);
        is_item && opens && self.is(1, "FROM") && self.begins_call(3)
    }

    /// Whether a call of a function comes so far ahead, and no query that begins like one.
    fn begins_call(&self, ahead: usize) -> bool {
        let rest = self.tokens.get(self.at + ahead..).unwrap_or_default();
        let is_query = ["SELECT", "VALUES"].iter().any(|begin| is(rest.first(), begin));
        let (name, length) = dotted(rest);
        let opens = matches!(rest.get(length).map(|token| &token.token), Some(Token::LParen));
        !is_query && !name.is_empty() && opens
    }

    pub(super) fn rows_from(&mut self, span: Span) {
        let name = Word { value: ROWS_FROM.to_owned(), quote_style: Some('"'), keyword: Keyword::NoKeyword };
        self.out.push(TokenWithSpan { token: Token::Word(name), span });
        self.at += 2;
    }
}
