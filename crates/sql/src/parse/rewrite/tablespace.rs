//! TABLESPACE of tables, indexes and keys: all is in one, so nothing is left of it.
//!
//! ```text
//! CREATE INDEX i ON t (a) TABLESPACE pg_default
//! CREATE TABLE t (a int UNIQUE USING INDEX TABLESPACE pg_default) TABLESPACE pg_default
//! ```

use sqlparser::tokenizer::Token;

use super::{Pass, innermost_open, is};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold_word;

/// What begins with CREATE and can be in a tablespace.
const KINDS: [&str; 8] = ["TABLE", "TEMP", "TEMPORARY", "LOCAL", "GLOBAL", "UNLOGGED", "INDEX", "UNIQUE"];

/// 42704 if there is no such tablespace, 22023 if relations cannot be in it.
pub(crate) fn known_tablespace(name: &str) -> Result<()> {
    match name {
        "pg_default" => Ok(()),
        "pg_global" => Err(SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            "only shared relations can be placed in pg_global tablespace",
        )),
        _ => {
            let message = format!("tablespace \"{name}\" does not exist");
            Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, message))
        }
    }
}

impl Pass<'_> {
    /// Whether the word TABLESPACE says where something is to be, and is no name.
    pub(super) fn places(&self) -> bool {
        if !matches!(self.peek(1).map(|token| &token.token), Some(Token::Word(_))) {
            return false;
        }
        if self.of_index() {
            return self.first == "CREATE" || self.first == "ALTER";
        }
        let makes = KINDS.iter().any(|kind| is(self.tokens.get(1), kind));
        let is_clause =
            matches!(self.out.last().map(|token| &token.token), Some(Token::Word(_) | Token::RParen));
        self.first == "CREATE"
            && makes
            && self.at > 2
            && is_clause
            && innermost_open(&self.out).is_none()
            && self.before_query()
    }

    /// Whether all AS before are in parentheses: behind another there are names of a query.
    fn before_query(&self) -> bool {
        let mut depth = 0;
        self.out.iter().all(|token| {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            depth > 0 || !is(Some(token), "AS")
        })
    }

    /// Whether it is that of the index of a key.
    fn of_index(&self) -> bool {
        let using = self.out.len().checked_sub(2).and_then(|at| self.out.get(at));
        self.after(&["INDEX"]) && is(using, "USING")
    }

    /// TABLESPACE and its name.
    pub(super) fn tablespace(&mut self) -> Result<()> {
        if let Some(Token::Word(name)) = self.peek(1).map(|token| &token.token) {
            known_tablespace(&fold_word(name))?;
        }
        if self.of_index() {
            self.out.truncate(self.out.len() - 2);
        }
        self.at += 2;
        Ok(())
    }
}
