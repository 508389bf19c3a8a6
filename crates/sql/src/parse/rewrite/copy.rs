//! Options of COPY in the words that the parser knows, and other spellings that it does not know.
//!
//! ```text
//! FORCE_QUOTE *      FORCE_QUOTE ("\u{1}*")
//! FORCE QUOTE *      FORCE QUOTE "\u{1}*"
//! HEADER 'on'        HEADER TRUE
//! HEADER MATCH       HEADER TRUE, FORCE_NULL ("\u{1}match")
//! STDIN CSV FREEZE   STDIN (FREEZE TRUE) CSV
//! DELIMITER 'ab'     DELIMITER '\0'
//! COPY BINARY t      COPY t ... BINARY
//! SET SCHEMA 'x'     SET search_path = 'x'
//! WITHOUT OIDS       (nothing: no table has them)
//! ```

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Word};

use super::{Pass, innermost_open, is, make};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold_word;
use crate::parse::ALL_FIELDS;

/// A column of FORCE_NULL that nobody can have: HEADER MATCH was said.
pub(crate) const HEADER_MATCH: &str = "\u{1}match";

/// Stands for what is given as a delimiter, quote or escape and is no single byte: no text has it.
pub(crate) const NO_CHARACTER: char = '\0';

/// Options behind more tokens are not looked for.
const OPTION_TOKENS: usize = 64;

/// Options that are lists of columns.
const OF_COLUMNS: [&str; 3] = ["FORCE_QUOTE", "FORCE_NOT_NULL", "FORCE_NULL"];
/// Options that are one character.
const CHARACTERS: [&str; 3] = ["DELIMITER", "QUOTE", "ESCAPE"];

/// Whether a word, in upper case, may be an option whose value is to be looked at.
pub(super) fn is_option(word: &str) -> bool {
    matches!(word, "FREEZE" | "HEADER") || OF_COLUMNS.contains(&word) || CHARACTERS.contains(&word)
}

/// Where an option of COPY stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In the list of options.
    List,
    /// Outside, as in old statements.
    Behind,
}

impl Pass<'_> {
    /// A word of COPY, with what it is given if that is to be said otherwise. 22023 for what is no
    /// list of columns where one is wanted.
    pub(super) fn copy_option(&mut self) -> Result<()> {
        let is_switch = self.is(0, "FREEZE") || self.is(0, "HEADER");
        let in_list = self.is(0, "FORCE_QUOTE");
        let forces_quotes = in_list || (self.is(0, "QUOTE") && self.after(&["FORCE"]));
        let place = self.option_place();
        if !forces_quotes && place.is_some() && CHARACTERS.iter().any(|option| self.is(0, option)) {
            self.copy();
            self.character(place == Some(Place::List));
            return Ok(());
        }
        if let (Some(Place::List), Some(option)) = (place, OF_COLUMNS.iter().find(|known| self.is(0, known)))
        {
            let given = self.peek(1).map(|token| &token.token);
            let is_list = matches!(given, Some(Token::LParen)) || (in_list && given == Some(&Token::Mul));
            if !is_list {
                let option = option.to_ascii_lowercase();
                let message = format!("argument to option \"{option}\" must be a list of column names");
                return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
            }
        }
        self.copy();
        self.option_value(is_switch, forces_quotes, in_list);
        Ok(())
    }

    /// What a switch, or FORCE QUOTE, is given.
    fn option_value(&mut self, is_switch: bool, forces_quotes: bool, in_list: bool) {
        let Some(TokenWithSpan { token, span }) = self.peek(0) else { return };
        let span = *span;
        if forces_quotes && *token == Token::Mul {
            self.marked_list(ALL_FIELDS, in_list, span);
            self.at += 1;
            return;
        }
        if is_switch && self.is(0, "MATCH") && self.after(&["HEADER"]) {
            self.out.extend([make("TRUE", span), TokenWithSpan { token: Token::Comma, span }]);
            self.out.push(make("FORCE_NULL", span));
            self.marked_list(HEADER_MATCH, true, span);
            self.at += 1;
            return;
        }
        let given = match token {
            Token::Word(word) if word.quote_style.is_none() => word.value.as_str(),
            Token::Number(text, _) | Token::SingleQuotedString(text) => text.as_str(),
            _ => return,
        };
        let value = match given.to_ascii_lowercase().as_str() {
            "on" | "true" | "1" if is_switch => "TRUE",
            "off" | "false" | "0" if is_switch => "FALSE",
            _ => return,
        };
        self.out.push(make(value, span));
        self.at += 1;
    }

    /// What an option is given that is one character. Of what is none the parser would only say
    /// that; so something stands for it, of which COPY says it among its other checks.
    pub(super) fn character(&mut self, in_list: bool) {
        if !in_list && self.is(0, "AS") {
            self.copy();
        }
        let Some(TokenWithSpan { token, span }) = self.peek(0) else { return };
        let given = match token {
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => text.clone(),
            Token::Number(text, _) if in_list => text.clone(),
            Token::Word(word) if in_list && word.keyword == Keyword::NoKeyword => fold_word(word),
            _ => return,
        };
        let value = if given.len() == 1 { given } else { NO_CHARACTER.to_string() };
        self.out.push(TokenWithSpan { token: Token::SingleQuotedString(value), span: *span });
        self.at += 1;
    }

    /// Where an option stands that comes next: not within the query that is copied.
    fn option_place(&self) -> Option<Place> {
        let target = self.behind_target()?;
        match innermost_open(&self.out) {
            None => Some(Place::Behind),
            Some(open) => (open == target).then_some(Place::List),
        }
    }

    /// `COPY BINARY t ...`, the oldest spelling: the word comes last, where it is an option, too.
    pub(super) fn copy_binary(&mut self, span: Span) {
        let is_name = matches!(self.peek(1).map(|token| &token.token), Some(Token::Word(_)));
        if !is_name || self.is(1, "FROM") || self.is(1, "TO") {
            return self.copy();
        }
        self.tail.push(make("BINARY", span));
        self.at += 1;
    }

    /// What stands for something else in a list of columns: a column that nobody can have.
    fn marked_list(&mut self, name: &str, in_list: bool, span: Span) {
        let all = Word { value: name.to_owned(), quote_style: Some('"'), keyword: Keyword::NoKeyword };
        let parenthesis = |token: Token| in_list.then_some(TokenWithSpan { token, span });
        self.out.extend(parenthesis(Token::LParen));
        self.out.push(TokenWithSpan { token: Token::Word(all), span });
        self.out.extend(parenthesis(Token::RParen));
    }

    /// Whether FREEZE or ENCODING stands outside of a list of options, as in old statements.
    pub(super) fn begins_old_option(&self) -> bool {
        let last = self.out.last().map(|token| &token.token);
        let in_list = matches!(last, Some(Token::LParen | Token::Comma));
        self.first == "COPY" && !in_list && self.behind_target().is_some()
    }

    /// The place behind what COPY reads or writes, if it is not far back.
    fn behind_target(&self) -> Option<usize> {
        let is_target = |token: &TokenWithSpan| is(Some(token), "STDIN") || is(Some(token), "STDOUT");
        let from = self.out.len().saturating_sub(OPTION_TOKENS);
        let at = from + self.out[from..].iter().rposition(is_target)? + 1;
        Some(at + usize::from(is(self.out.get(at), "WITH")))
    }

    /// Such an option, put into a list of options.
    pub(super) fn old_option(&mut self, span: Span) {
        let sign = |token| TokenWithSpan { token, span };
        let mut option = match (self.is(0, "FREEZE"), self.peek(1).map(|token| &token.token)) {
            (true, _) => vec![make("FREEZE", span), make("TRUE", span)],
            (false, Some(Token::SingleQuotedString(name))) => {
                vec![make("ENCODING", span), sign(Token::SingleQuotedString(name.clone()))]
            }
            _ => return self.copy(),
        };
        let Some(at) = self.behind_target() else { return self.copy() };
        self.at += if self.is(0, "FREEZE") { 1 } else { 2 };
        match self.out.get(at).map(|token| &token.token) {
            Some(Token::LParen) => {
                option.push(sign(Token::Comma));
                self.out.splice(at + 1..at + 1, option);
            }
            _ => {
                option.insert(0, sign(Token::LParen));
                option.push(sign(Token::RParen));
                self.out.splice(at..at, option);
            }
        }
    }

    /// RESET TIME ZONE.
    pub(super) fn reset_zone(&mut self, span: Span) {
        self.copy();
        self.out.push(make("TimeZone", span));
        self.at += 2;
    }

    /// SET SCHEMA, WITHOUT OIDS of a table, and INCLUDE of a constraint. False if it is something
    /// else.
    pub(super) fn respells(&mut self, span: Span) -> bool {
        let has_text = matches!(self.peek(1).map(|token| &token.token), Some(Token::SingleQuotedString(_)));
        if has_text && self.first == "SET" && self.is(0, "SCHEMA") && self.after(&["SET", "SESSION", "LOCAL"])
        {
            self.out.push(make("search_path", span));
            self.out.push(TokenWithSpan { token: Token::Eq, span });
            self.at += 1;
            return true;
        }
        let is_without = self.first == "CREATE" && self.is(0, "WITHOUT") && self.is(1, "OIDS");
        if is_without {
            self.at += 2;
        }
        is_without
    }
}
