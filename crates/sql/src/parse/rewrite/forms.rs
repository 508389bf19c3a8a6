//! Forms of statements and types that mean the same as others, which the parser knows.
//!
//! ```text
//! SET role TO x, SET ROLE = x            SET ROLE x
//! SET LOCAL SESSION AUTHORIZATION x      SET LOCAL AUTHORIZATION x
//! SHOW SESSION AUTHORIZATION             SHOW session_authorization
//! RESET TRANSACTION ISOLATION LEVEL      RESET transaction_isolation
//! SET TIME ZONE INTERVAL(3) '1:00'       SET TIME ZONE INTERVAL '1:00'
//! SET XML OPTION DOCUMENT                SET xmloption TO DOCUMENT
//! EXPLAIN ANALYSE                        EXPLAIN ANALYZE
//! COPY t TO STDOUT USING DELIMITERS 'x'  COPY t TO STDOUT DELIMITER 'x'
//! SELECT a INTO LOCAL TEMP t             SELECT a INTO TEMP t
//! NATIONAL CHARACTER(5), NCHAR(5)        CHARACTER(5), CHAR(5)
//! CREATE TABLE ... WITH (toast.a = 1, b) CREATE TABLE ... WITH ("toast.a" = 1, b = true)
//! ```

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Word};

use super::{Pass, is, make};
use crate::error::Result;
use crate::identifier::fold_word;

/// Whether the statement is of a kind that is looked through whatever words it has.
pub(super) fn is_of_pass(tokens: &[TokenWithSpan]) -> bool {
    let Some(Token::Word(word)) = tokens.first().map(|token| &token.token) else { return false };
    matches!(
        word.keyword,
        Keyword::CREATE
            | Keyword::ALTER
            | Keyword::COPY
            | Keyword::EXPLAIN
            | Keyword::RESET
            | Keyword::SET
            | Keyword::SHOW
    )
}

impl Pass<'_> {
    /// One of these forms, and of those of `tablespace` and `text_calls`. False if it is none.
    pub(super) fn other_form(&mut self, upper: &str, span: Span) -> Result<bool> {
        match upper {
            "TABLESPACE" if self.places() => self.tablespace()?,
            "FOR" => return Ok(self.length_before_start()),
            "BOTH" | "LEADING" | "TRAILING" if self.is(1, "FROM") => {
                self.copy();
                self.trimmed(span);
            }
            "FROM" if self.begins_trim() => {
                self.out.push(make("BOTH", span));
                self.trimmed(span);
            }
            "NATIONAL" if self.is(1, "CHARACTER") || self.is(1, "CHAR") => self.at += 1,
            "NCHAR" if self.is_type() => self.put("CHAR", span),
            "ANALYSE" if self.first == "EXPLAIN" && self.in_options() => self.put("ANALYZE", span),
            "DELIMITERS" if self.first == "COPY" => {
                if self.after(&["USING"]) {
                    self.out.pop();
                }
                self.put("DELIMITER", span);
                self.character(false);
            }
            "LOCAL" if self.after(&["INTO"]) && (self.is(1, "TEMP") || self.is(1, "TEMPORARY")) => {
                self.at += 1;
            }
            "SET" if is(self.tokens.get(1), "TABLE") => return Ok(self.bare_options(span)),
            _ => return Ok(self.form_of_setting(upper, span)),
        }
        Ok(true)
    }

    /// SET, SHOW and RESET with words of their own. False if it is something else.
    fn form_of_setting(&mut self, upper: &str, span: Span) -> bool {
        let may_set = self.first == "SET" && (1..=2).contains(&self.at);
        let is_string = |ahead: usize| {
            matches!(self.peek(ahead).map(|token| &token.token), Some(Token::SingleQuotedString(_)))
        };
        match upper {
            "ROLE" if may_set && (self.is(1, "TO") || self.is_sign(1, &Token::Eq)) => {
                self.copy();
                self.at += 1;
                if self.is(0, "DEFAULT") {
                    self.put("NONE", span);
                }
            }
            "SESSION" if may_set && self.at == 2 && self.is(1, "AUTHORIZATION") => self.at += 1,
            "SESSION" if self.first == "SHOW" && self.at == 1 && self.is(1, "AUTHORIZATION") => {
                self.put("session_authorization", span);
                self.at += 1;
            }
            "TRANSACTION" if self.first == "RESET" && self.at == 1 && self.is(1, "ISOLATION") => {
                self.put("transaction_isolation", span);
                self.at = self.tokens.len().min(self.at + 2);
            }
            "INTERVAL"
                if self.first == "SET"
                    && self.after(&["ZONE"])
                    && self.is_sign(1, &Token::LParen)
                    && self.is_sign(3, &Token::RParen)
                    && is_string(4) =>
            {
                self.copy();
                self.at += 3;
            }
            "XML" if may_set && self.is(1, "OPTION") => {
                self.put("xmloption", span);
                self.put("TO", span);
            }
            _ => return false,
        }
        true
    }

    fn is_sign(&self, ahead: usize, sign: &Token) -> bool {
        self.peek(ahead).is_some_and(|token| token.token == *sign)
    }

    /// Whether NCHAR is a type, and no name of a column.
    fn is_type(&self) -> bool {
        let casts = matches!(self.out.last().map(|token| &token.token), Some(Token::DoubleColon));
        casts || self.is(1, "VARYING") || self.is_sign(1, &Token::LParen)
    }

    /// Whether an option of EXPLAIN may stand here.
    fn in_options(&self) -> bool {
        let ends = |token: &TokenWithSpan| token.token == Token::RParen;
        self.at == 1 || (is_open(self.out.get(1)) && !self.out.iter().any(ends))
    }

    /// The options of a table or a new view, if one of them has no value, or a name with a period.
    /// False if it is something else.
    pub(super) fn bare_options(&mut self, span: Span) -> bool {
        if !matches!(self.first.as_str(), "CREATE" | "ALTER") || !is_open(self.peek(1)) {
            return false;
        }
        let Some(options) = self.options(span) else { return false };
        self.copy();
        self.copy();
        self.at += options.1;
        self.out.extend(options.0);
        true
    }

    /// The options that come next but one, with a value each, and how many tokens they have; none
    /// if they have that already, or are no options.
    fn options(&self, span: Span) -> Option<(Vec<TokenWithSpan>, usize)> {
        let all = self.tokens.get(self.at + 2..)?;
        let list = &all[..all.iter().position(|token| token.token == Token::RParen)?];
        let sign = |token| TokenWithSpan { token, span };
        let (mut out, mut changed) = (Vec::with_capacity(list.len()), false);
        for option in list.split(|token| token.token == Token::Comma) {
            if !out.is_empty() {
                out.push(sign(Token::Comma));
            }
            let (name, mut rest) = option.split_first()?;
            let Token::Word(first) = &name.token else { return None };
            match rest {
                [period, of, behind @ ..] if period.token == Token::Period => {
                    let Token::Word(of) = &of.token else { return None };
                    let value = format!("{}.{}", fold_word(first), fold_word(of));
                    let name = Word { value, quote_style: Some('"'), keyword: Keyword::NoKeyword };
                    out.push(sign(Token::Word(name)));
                    (rest, changed) = (behind, true);
                }
                _ => out.push(name.clone()),
            }
            match rest.first().map(|token| &token.token) {
                Some(Token::Eq) => out.extend_from_slice(rest),
                Some(_) => return None,
                None => {
                    out.extend([sign(Token::Eq), make("TRUE", span)]);
                    changed = true;
                }
            }
        }
        changed.then_some((out, list.len()))
    }
}

fn is_open(token: Option<&TokenWithSpan>) -> bool {
    token.is_some_and(|token| token.token == Token::LParen)
}
