//! INCLUDE and WITH of a PRIMARY KEY or UNIQUE constraint: the parser knows them of CREATE INDEX
//! only, so what they list goes into the list of the key, behind marked names.
//!
//! ```text
//! UNIQUE (a, b) INCLUDE (c, d) WITH (fillfactor = 70)
//! UNIQUE (a, b, "\u{1}include", c, d, "\u{1}with", "fillfactor=70")
//! ```

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Word};

use super::{Pass, innermost_open, is, word};
use crate::error::{Result, SqlError, sqlstate};

/// Stands between the two lists.
const INCLUDE: &str = "\u{1}include";

/// Stands before the storage parameters.
const WITH: &str = "\u{1}with";

/// What may come before the list of a key.
const KEYS: [&[&str]; 4] = [
    &["PRIMARY", "KEY"],
    &["UNIQUE"],
    &["UNIQUE", "NULLS", "DISTINCT"],
    &["UNIQUE", "NULLS", "NOT", "DISTINCT"],
];

/// What one list says of a key.
pub(crate) struct KeyLists {
    pub(crate) columns: Vec<String>,
    /// INCLUDE.
    pub(crate) included: Vec<String>,
    /// WITH: names with their values, `fillfactor=70`, or names alone.
    pub(crate) options: Vec<String>,
}

/// The columns of a key, those of its INCLUDE, and its storage parameters, of the list that stands
/// for all of them.
pub(crate) fn split_key(mut columns: Vec<String>) -> KeyLists {
    // No key is without columns: first is one, whatever its name.
    let mut behind = |mark: &str| match columns.iter().skip(1).position(|name| name == mark) {
        Some(place) => {
            let rest = columns.split_off(place + 2);
            columns.truncate(place + 1);
            rest
        }
        None => Vec::new(),
    };
    let options = behind(WITH);
    let included = behind(INCLUDE);
    KeyLists { columns, included, options }
}

/// The storage parameters that tokens behind a parenthesis list, and how many tokens that are with
/// the closing one.
fn listed(tokens: &[TokenWithSpan]) -> Option<(Vec<String>, usize)> {
    let close = tokens.iter().position(|token| token.token == Token::RParen)?;
    let options = tokens[..close].split(|token| token.token == Token::Comma).map(|option| {
        let (name, value) = option.split_first()?;
        let Token::Word(name) = &name.token else { return None };
        let name = match name.quote_style {
            Some(_) => name.value.clone(),
            None => name.value.to_lowercase(),
        };
        match value {
            [] => Some(name),
            [sign, value @ ..] if sign.token == Token::Eq && !value.is_empty() => {
                let value: String = value.iter().map(|token| token.token.to_string()).collect();
                Some(format!("{name}={value}"))
            }
            _ => None,
        }
    });
    Some((options.collect::<Option<Vec<String>>>()?, close + 1))
}

/// Refuses what a list that CREATE INDEX includes has but names of columns, as PostgreSQL does.
fn check_included(list: &[TokenWithSpan]) -> Result<()> {
    let token = |at: usize| list.get(at).map(|token| &token.token);
    let invalid = |what: &str| {
        let message = format!("including column does not support {what}");
        Err(SqlError::new(sqlstate::INVALID_OBJECT_DEFINITION, message))
    };
    // The first one begins behind the parenthesis, the others behind commas.
    let mut at = 1;
    while matches!(token(at - 1), Some(Token::LParen | Token::Comma)) {
        let first = token(at);
        if matches!(first, None | Some(Token::RParen)) {
            break;
        }
        if !matches!(first, Some(Token::Word(_))) || matches!(token(at + 1), Some(Token::LParen)) {
            let message = "expressions are not supported in included columns";
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
        }
        match word(list.get(at + 1)).to_ascii_uppercase().as_str() {
            "" => {}
            "ASC" | "DESC" => return invalid("ASC/DESC options"),
            "NULLS" => return invalid("NULLS FIRST/LAST options"),
            "COLLATE" => return invalid("a collation"),
            _ => return invalid("an operator class"),
        }
        at += 2;
    }
    Ok(())
}

impl Pass<'_> {
    /// INCLUDE behind the columns of a key. False if it is something else.
    ///
    /// # Errors
    /// 0A000, 42P17 for what CREATE INDEX cannot include.
    pub(super) fn include(&mut self, span: Span) -> Result<bool> {
        if !self.lists_more_of_key() {
            let is_behind = matches!(self.out.last().map(|token| &token.token), Some(Token::RParen));
            let makes_index = || self.out.iter().take(3).any(|token| is(Some(token), "INDEX"));
            if is_behind && self.first == "CREATE" && makes_index() {
                check_included(self.tokens.get(self.at + 1..).unwrap_or_default())?;
            }
            return Ok(false);
        }
        // Both parentheses between the lists become a comma.
        self.out.pop();
        let mark = Word { value: INCLUDE.to_owned(), quote_style: Some('"'), keyword: Keyword::NoKeyword };
        let between = [Token::Comma, Token::Word(mark), Token::Comma];
        self.out.extend(between.map(|token| TokenWithSpan { token, span }));
        self.at += 2;
        Ok(true)
    }

    /// WITH and storage parameters behind the columns of a key. False if it is something else.
    pub(super) fn key_options(&mut self, span: Span) -> bool {
        if !self.lists_more_of_key() {
            return false;
        }
        let Some((options, length)) = listed(&self.tokens[self.at + 2..]) else { return false };
        let close = self.out.pop();
        for value in std::iter::once(WITH.to_owned()).chain(options) {
            let name = Word { value, quote_style: Some('"'), keyword: Keyword::NoKeyword };
            self.out.extend([Token::Comma, Token::Word(name)].map(|token| TokenWithSpan { token, span }));
        }
        self.out.extend(close);
        self.at += 2 + length;
        true
    }

    /// Whether a parenthesis comes behind the next word, and the columns of a key came before it.
    fn lists_more_of_key(&self) -> bool {
        let opens = matches!(self.peek(1).map(|token| &token.token), Some(Token::LParen));
        let defines = self.first == "CREATE" || self.first == "ALTER";
        opens && defines && self.after_key()
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
