//! SUBSTRING and TRIM with what the parser expects in another order, or at all.
//!
//! ```text
//! substring(x FOR n FROM m)      becomes   substring(x FROM m FOR n)
//! trim(FROM x)                   becomes   trim(BOTH ' ' FROM x)
//! trim(LEADING FROM x, y)        becomes   trim(LEADING y FROM x)
//! ```

use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use super::{Pass, innermost_open, is, make};

/// Longer lists of arguments are not looked through.
const LIST_TOKENS: usize = 1024;

impl Pass<'_> {
    /// How far ahead the first such token stands in the same parentheses, from so far ahead on.
    fn ahead_in_list(&self, from: usize, is_wanted: impl Fn(&TokenWithSpan) -> bool) -> Option<usize> {
        let mut depth = 0_usize;
        for ahead in from..from + LIST_TOKENS {
            let token = self.peek(ahead)?;
            if depth == 0 && is_wanted(token) {
                return Some(ahead);
            }
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.checked_sub(1)?,
                _ => {}
            }
        }
        None
    }

    /// How far ahead the parentheses end.
    fn end_of_list(&self, from: usize) -> Option<usize> {
        self.ahead_in_list(from, |token| token.token == Token::RParen)
    }

    /// Puts FROM before FOR in SUBSTRING. False if it is something else.
    pub(super) fn length_before_start(&mut self) -> bool {
        let Some(open) = innermost_open(&self.out).filter(|open| *open > 0) else { return false };
        if !is(self.out.get(open - 1), "SUBSTRING") {
            return false;
        }
        let Some(from) = self.ahead_in_list(1, |token| is(Some(token), "FROM")) else { return false };
        let Some(end) = self.end_of_list(from) else { return false };
        let tokens = self.tokens;
        self.out.extend_from_slice(&tokens[self.at + from..self.at + end]);
        self.out.extend_from_slice(&tokens[self.at..self.at + from]);
        self.at += end;
        true
    }

    /// Whether FROM begins what is in the parentheses of TRIM.
    pub(super) fn begins_trim(&self) -> bool {
        matches!(self.out.as_slice(), [.., trim, open] if is(Some(trim), "TRIM") && open.token == Token::LParen)
    }

    /// FROM and what follows in TRIM, behind BOTH or one of its kind: says which characters go.
    pub(super) fn trimmed(&mut self, span: Span) {
        let comma = self.ahead_in_list(1, |token| token.token == Token::Comma);
        let Some((comma, end)) = comma.zip(self.end_of_list(1)) else {
            self.out.push(TokenWithSpan { token: Token::SingleQuotedString(" ".to_owned()), span });
            return self.copy();
        };
        let tokens = self.tokens;
        self.out.extend_from_slice(&tokens[self.at + comma + 1..self.at + end]);
        self.out.push(make("FROM", span));
        self.out.extend_from_slice(&tokens[self.at + 1..self.at + comma]);
        self.at += end;
    }
}
