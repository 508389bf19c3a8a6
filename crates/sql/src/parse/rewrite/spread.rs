//! `f(a, VARIADIC b)`: the parser knows the word only where routines are declared, so the argument
//! is given a name that no user can write.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Word};

use super::{Pass, is};
use crate::parse::VARIADIC;

impl Pass<'_> {
    /// Whether the word VARIADIC stands before an argument of a call, and not in the list of a
    /// routine's parameters.
    pub(super) fn begins_spread(&self) -> bool {
        let is_argument =
            matches!(self.out.last().map(|token| &token.token), Some(Token::LParen | Token::Comma));
        let names_objects = ["CREATE", "ALTER", "DROP", "COMMENT", "GRANT", "REVOKE"];
        let kinds = ["FUNCTION", "PROCEDURE", "ROUTINE", "AGGREGATE"];
        let names_routine = || {
            names_objects.contains(&self.first.as_str())
                && self.tokens.iter().any(|token| kinds.iter().any(|kind| is(Some(token), kind)))
        };
        is_argument && !names_routine()
    }

    pub(super) fn spread(&mut self, span: Span) {
        let name = Word { value: VARIADIC.to_owned(), quote_style: Some('"'), keyword: Keyword::NoKeyword };
        self.out.extend([Token::Word(name), Token::RArrow].map(|token| TokenWithSpan { token, span }));
        self.at += 1;
    }
}
