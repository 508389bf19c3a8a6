//! `x OPERATOR(pg_catalog.=) ANY (...)`, as PostgreSQL's own programs write: the parser has a list
//! of what may stand before ANY, with bare operators in it.
//!
//! ```text
//! kind OPERATOR(pg_catalog.=) ANY (array['r', 'm'])   becomes   kind = ANY (array['r', 'm'])
//! ```
//!
//! And LIKE before ALL, which the parser has before ANY only, and `pg_catalog.floor(x)` and its
//! kin, which it has without a schema only.

use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use super::{Pass, make};
use crate::error::{Result, SqlError, sqlstate};

/// Patterns of more tokens are not looked for.
const PATTERN_TOKENS: usize = 64;

impl Pass<'_> {
    /// USING and the operator of a direction in ORDER BY. 42809 for one that gives none.
    pub(super) fn using_operator(&mut self) -> Result<()> {
        let token = |ahead: usize| self.peek(ahead).map(|token| &token.token);
        let is_named = self.is(1, "OPERATOR") && matches!(token(2), Some(Token::LParen));
        let at = match is_named {
            true if self.is(3, "pg_catalog") && matches!(token(4), Some(Token::Period)) => 5,
            true => 3,
            false => 1,
        };
        let direction = match token(at) {
            Some(Token::Lt) => "ASC",
            Some(Token::Gt) => "DESC",
            // They compare bytes, as all that orders strings does here.
            Some(Token::CustomBinaryOperator(name)) if name == "~<~" => "ASC",
            Some(Token::CustomBinaryOperator(name)) if name == "~>~" => "DESC",
            Some(
                other @ (Token::LtEq | Token::GtEq | Token::Eq | Token::Neq | Token::Plus | Token::Minus),
            ) => {
                let message = format!("operator {other} is not a valid ordering operator");
                let hint = "Ordering operators must be \"<\" or \">\" members of btree operator families.";
                return Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message).with_hint(hint));
            }
            _ => {
                self.copy();
                return Ok(());
            }
        };
        self.out.push(make(direction, self.tokens[self.at].span));
        self.at += at + 1 + usize::from(is_named);
        Ok(())
    }

    /// Puts a word in the place of one.
    pub(super) fn put(&mut self, word: &str, span: Span) {
        self.out.push(make(word, span));
        self.at += 1;
    }

    /// Whether LIKE or ILIKE stands before what the parser does not expect there.
    pub(super) fn quantifies(&self) -> bool {
        let opens = matches!(self.peek(2).map(|token| &token.token), Some(Token::LParen));
        let is_any = self.is(1, "ANY") && self.after(&["NOT"]);
        opens && (is_any || self.is(1, "ALL") || self.is(1, "SOME"))
    }

    /// LIKE or ILIKE, and NOT before it, as an operator.
    pub(super) fn quantified_like(&mut self, span: Span) {
        let is_negated = self.after(&["NOT"]);
        if is_negated {
            self.out.pop();
        }
        let token = match (self.is(0, "ILIKE"), is_negated) {
            (false, false) => Token::DoubleTilde,
            (true, false) => Token::DoubleTildeAsterisk,
            (false, true) => Token::ExclamationMarkDoubleTilde,
            (true, true) => Token::ExclamationMarkDoubleTildeAsterisk,
        };
        self.out.push(TokenWithSpan { token, span });
        self.at += 1;
    }

    /// `SIMILAR pattern ESCAPE letter` of SUBSTRING. The word is left alone where it is a name.
    pub(super) fn similar_substring(&mut self, span: Span) {
        let Some(escape) = self.escape_ahead() else { return self.copy() };
        self.put("FROM", span);
        (1..escape).for_each(|_| self.copy());
        self.put("FOR", span);
    }

    /// The name of a function for which the parser has a syntax of its own, behind the name of its
    /// schema, where there is no such syntax: as a quoted name it is called as others are.
    pub(super) fn qualified_function(&mut self) {
        let here = &self.tokens[self.at];
        let calls = matches!(self.peek(1).map(|token| &token.token), Some(Token::LParen));
        match &here.token {
            Token::Word(word) if calls => {
                let token = Token::make_word(&word.value.to_ascii_lowercase(), Some('"'));
                self.out.push(TokenWithSpan { token, span: here.span });
                self.at += 1;
            }
            _ => self.copy(),
        }
    }

    /// How far from here ESCAPE is, behind a pattern.
    fn escape_ahead(&self) -> Option<usize> {
        let mut depth = 0;
        for ahead in 1..PATTERN_TOKENS {
            match self.peek(ahead)?.token {
                Token::LParen => depth += 1,
                Token::RParen if depth == 0 => return None,
                Token::RParen => depth -= 1,
                _ if depth == 0 && self.is(ahead, "ESCAPE") => return Some(ahead),
                _ => {}
            }
        }
        None
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
