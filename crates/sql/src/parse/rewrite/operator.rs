//! `x OPERATOR(pg_catalog.=) ANY (...)`, as PostgreSQL's own programs write: the parser has a list
//! of what may stand before ANY, with bare operators in it.
//!
//! ```text
//! kind OPERATOR(pg_catalog.=) ANY (array['r', 'm'])   becomes   kind = ANY (array['r', 'm'])
//! ```

use sqlparser::tokenizer::{Span, Token};

use super::{Pass, make};

impl Pass<'_> {
    /// Puts a word in the place of one.
    pub(super) fn put(&mut self, word: &str, span: Span) {
        self.out.push(make(word, span));
        self.at += 1;
    }

    /// At the word OPERATOR. Only before ANY, ALL and SOME is anything changed.
    pub(super) fn quantified_operator(&mut self) {
        let token = |ahead| self.peek(ahead).map(|token| &token.token);
        let at = if matches!(token(3), Some(Token::Period)) { 4 } else { 2 };
        let is_call = matches!(token(1), Some(Token::LParen)) && matches!(token(at + 1), Some(Token::RParen));
        let is_quantified = ["ANY", "ALL", "SOME"].iter().any(|word| self.is(at + 2, word));
        let is_built_in = at == 2 || self.is(2, "pg_catalog");
        match self.peek(at) {
            Some(operator) if is_call && is_quantified && is_built_in => {
                self.out.push(operator.clone());
                self.at += at + 2;
            }
            _ => self.copy(),
        }
    }
}
