//! Row locks: `FOR NO KEY UPDATE`, `FOR KEY SHARE`, several names, and clauses before LIMIT.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use super::{KEY_MARK, Pass, is, make};

impl Pass<'_> {
    /// `FOR [NO KEY] UPDATE ...`, several times, with a LIMIT behind that belongs before.
    pub(super) fn lock_clause(&mut self) {
        let (mut clauses, mut head) = (vec![], vec![]);
        while let Some(mut length) = self.lock_strength(&mut head) {
            let mut rest = vec![];
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
                rest.push(token.clone());
                length += 1;
            }
            each_name(&head, &rest, &mut clauses);
            head.clear();
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

    /// Puts the lock's keywords into `head`, up to OF; the number of tokens they took, or none if
    /// this is no lock clause.
    fn lock_strength(&self, head: &mut Vec<TokenWithSpan>) -> Option<usize> {
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
        head.extend([make("FOR", span), make(strength, span)]);
        let of = self.peek(length).filter(|token| is(Some(*token), "OF"));
        let taken = length + usize::from(of.is_some());
        if !of_keys {
            head.extend(of.cloned());
            return Some(taken);
        }
        let mark =
            Token::Word(Word { value: KEY_MARK.into(), quote_style: Some('"'), keyword: Keyword::NoKeyword });
        head.extend([make("OF", span), TokenWithSpan { token: mark, span }]);
        if of.is_some() {
            head.push(TokenWithSpan { token: Token::Period, span });
        }
        Some(taken)
    }
}

/// One clause for each name behind OF, as the parser knows one name only: `FOR UPDATE OF a, b
/// NOWAIT` is `FOR UPDATE OF a NOWAIT FOR UPDATE OF b NOWAIT`.
fn each_name(head: &[TokenWithSpan], rest: &[TokenWithSpan], clauses: &mut Vec<TokenWithSpan>) {
    let is_comma = |token: &TokenWithSpan| token.token == Token::Comma;
    let names_tables = head.last().is_some_and(|token| token.token == Token::Period || is(Some(token), "OF"));
    let last = rest.iter().rposition(is_comma).filter(|_| names_tables);
    let Some(last) = last else {
        clauses.extend_from_slice(head);
        clauses.extend_from_slice(rest);
        return;
    };
    let is_wait = |token: &TokenWithSpan| is(Some(token), "NOWAIT") || is(Some(token), "SKIP");
    // Behind the last name.
    let from = (last + 2).min(rest.len());
    let wait = rest[from..].iter().position(is_wait).map_or(rest.len(), |at| from + at);
    for name in rest[..wait].split(is_comma) {
        clauses.extend_from_slice(head);
        clauses.extend_from_slice(name);
        clauses.extend_from_slice(&rest[wait..]);
    }
}
