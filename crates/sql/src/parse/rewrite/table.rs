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
                self.after(&["UNION", "EXCEPT", "INTERSECT", "ALL"])
                    || self.after_first_as()
                    || self.after_target()
            }
            Some(Token::RParen) => self.first == "WITH" || self.after_with() || self.after_target(),
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
