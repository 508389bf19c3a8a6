//! Options of COPY in the words that the parser knows, and other spellings that it does not know.
//!
//! ```text
//! FORCE_QUOTE *      FORCE_QUOTE ("\u{1}*")
//! FORCE QUOTE *      FORCE QUOTE "\u{1}*"
//! HEADER 'on'        HEADER TRUE
//! SET SCHEMA 'x'     SET search_path = 'x'
//! WITHOUT OIDS       (nothing: no table has them)
//! ```
//!
//! INCLUDE of a constraint is in `include`.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Word};

use super::{Pass, make};
use crate::parse::ALL_FIELDS;

impl Pass<'_> {
    /// A word of COPY, with what it is given if that is to be said otherwise.
    pub(super) fn copy_option(&mut self) {
        let is_switch = self.is(0, "FREEZE") || self.is(0, "HEADER");
        let in_list = self.is(0, "FORCE_QUOTE");
        let forces_quotes = in_list || (self.is(0, "QUOTE") && self.after(&["FORCE"]));
        self.copy();
        let Some(TokenWithSpan { token, span }) = self.peek(0) else { return };
        let span = *span;
        if forces_quotes && *token == Token::Mul {
            self.all_columns(in_list, span);
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

    /// The star of FORCE QUOTE, as a column that nobody can have.
    fn all_columns(&mut self, in_list: bool, span: Span) {
        let all = Word { value: ALL_FIELDS.to_owned(), quote_style: Some('"'), keyword: Keyword::NoKeyword };
        let parenthesis = |token: Token| in_list.then_some(TokenWithSpan { token, span });
        self.out.extend(parenthesis(Token::LParen));
        self.out.push(TokenWithSpan { token: Token::Word(all), span });
        self.out.extend(parenthesis(Token::RParen));
    }

    /// SET SCHEMA, WITHOUT OIDS of a table, and INCLUDE of a constraint. False if it is something
    /// else.
    pub(super) fn respells(&mut self, span: Span) -> bool {
        if self.is(0, "INCLUDE") {
            return self.include(span);
        }
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
