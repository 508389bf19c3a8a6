//! Row locks: `FOR NO KEY UPDATE`, `FOR KEY SHARE`, and clauses before LIMIT.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use super::{KEY_MARK, Pass, is, make};

impl Pass<'_> {
    /// `FOR [NO KEY] UPDATE ...`, several times, with a LIMIT behind that belongs before.
    pub(super) fn lock_clause(&mut self) {
        let mut clauses = vec![];
        while let Some(mut length) = self.lock_strength(&mut clauses) {
            // OF names, NOWAIT, SKIP LOCKED.
            while let Some(token) = self.peek(length) {
                let goes_on = match &token.token {
                    Token::Comma | Token::Period => true,
                    Token::Word(_) => {
                        !["LIMIT", "OFFSET", "FETCH", "FOR", "UNION", "EXCEPT", "INTERSECT", "ON", "ORDER"]
                            .iter()
                            .any(|stop| is(Some(token), stop))
                    }
                    _ => false,
                };
                if !goes_on {
                    break;
                }
                clauses.push(token.clone());
                length += 1;
            }
            self.at += length;
        }
        if clauses.is_empty() {
            self.copy();
            return;
        }
        if ["LIMIT", "OFFSET", "FETCH"].iter().any(|word| self.is(0, word)) {
            let mut depth = 0;
            while let Some(token) = self.peek(0) {
                match token.token {
                    Token::LParen => depth += 1,
                    Token::RParen if depth == 0 => break,
                    Token::RParen => depth -= 1,
                    _ => {}
                }
                self.copy();
            }
        }
        self.out.extend(clauses);
    }

    /// Puts the lock's keywords into `clauses`; the number of tokens they took, or none if this is
    /// no lock clause.
    fn lock_strength(&self, clauses: &mut Vec<TokenWithSpan>) -> Option<usize> {
        if !self.is(0, "FOR") {
            return None;
        }
        let (strength, of_keys, length) = if self.is(1, "UPDATE") {
            ("UPDATE", false, 2)
        } else if self.is(1, "SHARE") {
            ("SHARE", false, 2)
        } else if self.is(1, "NO") && self.is(2, "KEY") && self.is(3, "UPDATE") {
            ("UPDATE", true, 4)
        } else if self.is(1, "KEY") && self.is(2, "SHARE") {
            ("SHARE", true, 3)
        } else {
            return None;
        };
        let span = self.tokens[self.at].span;
        clauses.extend([make("FOR", span), make(strength, span)]);
        if !of_keys {
            return Some(length);
        }
        let mark =
            Token::Word(Word { value: KEY_MARK.into(), quote_style: Some('"'), keyword: Keyword::NoKeyword });
        clauses.extend([make("OF", span), TokenWithSpan { token: mark, span }]);
        if is(self.peek(length), "OF") {
            clauses.push(TokenWithSpan { token: Token::Period, span });
            return Some(length + 1);
        }
        Some(length)
    }
}
