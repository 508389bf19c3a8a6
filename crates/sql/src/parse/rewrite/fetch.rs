//! `FETCH FIRST (n) ROWS ...`: the parser takes a literal without parentheses only, and PostgreSQL
//! tells its views with them.

use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use super::{Pass, make};

/// A longer number of rows is not looked at.
const COUNT_TOKENS: usize = 64;

impl Pass<'_> {
    pub(super) fn fetch_first(&mut self, span: Span) {
        let is_clause = self.is(1, "FIRST") || self.is(1, "NEXT");
        let Some(length) = self.parentheses(2).filter(|_| is_clause) else { return self.copy() };
        let behind = 2 + length;
        let tokens = self.tokens;
        let count = &tokens[self.at + 2..self.at + behind];
        if let [_, TokenWithSpan { token: Token::Number(..) | Token::SingleQuotedString(_), .. }, _] = count {
            self.out.extend([make("FETCH", span), make("FIRST", span), count[1].clone()]);
            self.at += behind;
            return;
        }
        let are_rows = self.is(behind, "ROW") || self.is(behind, "ROWS");
        if !are_rows || !self.is(behind + 1, "ONLY") {
            return self.copy();
        }
        self.out.push(make("LIMIT", span));
        self.out.extend_from_slice(count);
        self.at += behind + 2;
    }

    /// How many tokens the parentheses have that open so far ahead.
    fn parentheses(&self, ahead: usize) -> Option<usize> {
        let rest = self.tokens.get(self.at + ahead..)?;
        let mut depth = 0_usize;
        for (at, token) in rest.iter().take(COUNT_TOKENS).enumerate() {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                return (at > 0).then_some(at + 1);
            }
        }
        None
    }
}
