//! `TABLE t`, a query of all columns, wherever a query may stand.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{Pass, is, make};

impl Pass<'_> {
    pub(super) fn table_query(&mut self) {
        let begins_query = match self.out.last().map(|token| &token.token) {
            None => true,
            Some(Token::LParen) => !self.after_function() || self.after_target(),
            Some(Token::Word(_)) => {
                self.after(&["UNION", "EXCEPT", "INTERSECT", "ALL", "DISTINCT"])
                    || self.after_first_as()
                    || self.after_target()
                    || self.after_explain()
                    || (self.first == "DECLARE" && self.after(&["FOR"]))
            }
            Some(Token::RParen) => {
                self.first == "WITH" || self.after_with() || self.after_target() || self.after_explain()
            }
            _ => false,
        };
        if !begins_query || !matches!(self.peek(1).map(|token| &token.token), Some(Token::Word(_))) {
            return self.copy();
        }
        let span = self.tokens[self.at].span;
        self.out.extend([
            make("SELECT", span),
            TokenWithSpan { token: Token::Mul, span },
            make("FROM", span),
        ]);
        self.at += 1;
    }

    /// Whether nothing but the names of its target and columns stands between INSERT INTO and this.
    fn after_target(&self) -> bool {
        let is_name = |token: &&TokenWithSpan| match &token.token {
            Token::Word(word) => !matches!(
                word.keyword,
                Keyword::INTO | Keyword::SELECT | Keyword::VALUES | Keyword::WITH | Keyword::FROM
            ),
            Token::Period | Token::Comma | Token::LParen | Token::RParen => true,
            _ => false,
        };
        let names = self.out.iter().rev().take_while(is_name).count();
        let before = &self.out[..self.out.len() - names];
        names > 0
            && matches!(before, [.., insert, into] if is(Some(insert), "INSERT") && is(Some(into), "INTO"))
    }

    /// Whether nothing but EXPLAIN and its options stands before this.
    fn after_explain(&self) -> bool {
        let is_paren = |token: &TokenWithSpan| matches!(token.token, Token::LParen | Token::RParen);
        let is_option = |token: &TokenWithSpan| ["ANALYZE", "VERBOSE"].iter().any(|w| is(Some(token), w));
        match self.out.as_slice() {
            [explain, options @ ..] if is(Some(explain), "EXPLAIN") => match options {
                [open, inner @ .., close] if is_paren(open) && is_paren(close) => !inner.iter().any(is_paren),
                words => words.iter().all(is_option),
            },
            _ => false,
        }
    }

    /// Whether the parenthesis that was closed before is that of a query of WITH.
    fn after_with(&self) -> bool {
        let mut depth = 0;
        for (at, token) in self.out.iter().enumerate().rev() {
            match token.token {
                Token::RParen => depth += 1,
                Token::LParen => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                let before = at.checked_sub(1).and_then(|before| self.out.get(before));
                return is(before, "AS") || is(before, "MATERIALIZED");
            }
        }
        false
    }
}
