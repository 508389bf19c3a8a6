//! INCLUDE of a PRIMARY KEY or UNIQUE constraint: the parser knows it of CREATE INDEX only, so its
//! columns go into the list of the key, behind a marked name.
//!
//! ```text
//! UNIQUE (a, b) INCLUDE (c, d)
//! UNIQUE (a, b, "\u{1}include", c, d)
//! ```

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Word};

use super::{Pass, innermost_open, is};

/// Stands between the two lists.
const INCLUDE: &str = "\u{1}include";

/// What may come before the list of a key.
const KEYS: [&[&str]; 4] = [
    &["PRIMARY", "KEY"],
    &["UNIQUE"],
    &["UNIQUE", "NULLS", "DISTINCT"],
    &["UNIQUE", "NULLS", "NOT", "DISTINCT"],
];

/// The columns of a key, and those of its INCLUDE, of the list that stands for both.
pub(crate) fn split_included(mut columns: Vec<String>) -> (Vec<String>, Vec<String>) {
    // No key is without columns: first is one, whatever its name.
    match columns.iter().skip(1).position(|name| name == INCLUDE) {
        Some(place) => {
            let included = columns.split_off(place + 2);
            columns.truncate(place + 1);
            (columns, included)
        }
        None => (columns, Vec::new()),
    }
}

impl Pass<'_> {
    /// INCLUDE behind the columns of a key. False if it is something else.
    pub(super) fn include(&mut self, span: Span) -> bool {
        let opens = matches!(self.peek(1).map(|token| &token.token), Some(Token::LParen));
        let defines = self.first == "CREATE" || self.first == "ALTER";
        if !opens || !defines || !self.after_key() {
            return false;
        }
        // Both parentheses between the lists become a comma.
        self.out.pop();
        let mark = Word { value: INCLUDE.to_owned(), quote_style: Some('"'), keyword: Keyword::NoKeyword };
        let between = [Token::Comma, Token::Word(mark), Token::Comma];
        self.out.extend(between.map(|token| TokenWithSpan { token, span }));
        self.at += 2;
        true
    }

    /// Whether what was copied last is the list of a key.
    fn after_key(&self) -> bool {
        let Some((TokenWithSpan { token: Token::RParen, .. }, before)) = self.out.split_last() else {
            return false;
        };
        let Some(open) = innermost_open(before) else { return false };
        KEYS.iter().any(|words| {
            let first = open.checked_sub(words.len());
            first.is_some_and(|first| {
                before[first..open].iter().zip(*words).all(|(token, word)| is(Some(token), word))
            })
        })
    }
}
