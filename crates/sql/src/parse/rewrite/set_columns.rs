//! The columns of `ON DELETE SET NULL (a)` and `SET DEFAULT (a)`, which the parser does not know:
//! they go into the list of the referenced columns, behind a marked name.
//!
//! ```text
//! REFERENCES t ON DELETE SET NULL (a)            REFERENCES t (x, y) ON DELETE SET NULL (a)
//! REFERENCES t ("\u{1}set", a) ON DELETE ...     REFERENCES t (x, y, "\u{1}set", a) ON DELETE ...
//! ```

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Word};

use super::{Pass, dotted, is, word};
use crate::error::{Result, SqlError};

/// Stands before the columns that are set.
const SET: &str = "\u{1}set";

/// The referenced columns, and those that are set, of the list that stands for both.
pub(crate) fn split_referenced(mut columns: Vec<String>) -> (Vec<String>, Vec<String>) {
    match columns.iter().position(|name| name == SET) {
        Some(place) => {
            let set = columns.split_off(place + 1);
            columns.truncate(place);
            (columns, set)
        }
        None => (columns, Vec::new()),
    }
}

/// The names that tokens behind a parenthesis list, with their commas.
fn listed(tokens: &[TokenWithSpan]) -> Option<&[TokenWithSpan]> {
    let close = tokens.iter().position(|token| token.token == Token::RParen)?;
    let is_in_place = |(at, token): (usize, &TokenWithSpan)| match token.token {
        Token::Word(_) => at % 2 == 0,
        Token::Comma => at % 2 == 1,
        _ => false,
    };
    let names = &tokens[..close];
    (close % 2 == 1 && names.iter().enumerate().all(is_in_place)).then_some(names)
}

impl Pass<'_> {
    /// The list behind SET NULL or SET DEFAULT of a foreign key. False if it is something else.
    ///
    /// # Errors
    /// 0A000 for one of ON UPDATE.
    pub(super) fn set_columns(&mut self, span: Span) -> Result<bool> {
        let opens = matches!(self.peek(1).map(|token| &token.token), Some(Token::LParen));
        let defines = self.first == "CREATE" || self.first == "ALTER";
        let [.., on, event, set] = self.out.as_slice() else { return Ok(false) };
        if !opens || !defines || !is(Some(on), "ON") || !is(Some(set), "SET") {
            return Ok(false);
        }
        let is_delete = is(Some(event), "DELETE");
        if !is_delete && !is(Some(event), "UPDATE") {
            return Ok(false);
        }
        let Some(names) = listed(&self.tokens[self.at + 2..]) else { return Ok(false) };
        if !is_delete {
            let action = word(self.peek(0)).to_ascii_uppercase();
            return Err(SqlError::new(
                crate::error::sqlstate::FEATURE_NOT_SUPPORTED,
                format!("a column list with SET {action} is only supported for ON DELETE actions"),
            ));
        }
        let Some(references) = self.out.iter().rposition(|token| is(Some(token), "REFERENCES")) else {
            return Ok(false);
        };
        let behind = references + 1 + dotted(&self.out[references + 1..]).1;
        let has_list = matches!(self.out.get(behind).map(|token| &token.token), Some(Token::LParen));
        let close = self.out[behind..].iter().position(|token| token.token == Token::RParen);
        let mark = Word { value: SET.to_owned(), quote_style: Some('"'), keyword: Keyword::NoKeyword };
        let made = |token: Token| TokenWithSpan { token, span };
        let mut list = vec![made(Token::Word(mark)), made(Token::Comma)];
        list.extend_from_slice(names);
        let at = match close {
            Some(close) if has_list => {
                list.insert(0, made(Token::Comma));
                behind + close
            }
            _ => {
                list.insert(0, made(Token::LParen));
                list.push(made(Token::RParen));
                behind
            }
        };
        self.out.splice(at..at, list);
        let length = names.len() + 2;
        self.copy();
        self.at += length;
        Ok(true)
    }
}
