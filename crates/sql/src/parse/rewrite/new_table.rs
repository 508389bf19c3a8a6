//! `CREATE TABLE t (a, b) AS query`: the parser wants types of columns that the query gives them.
//!
//! ```text
//! CREATE TEMP TABLE t (a, b) ON COMMIT DROP AS TABLE u
//! CREATE TEMP TABLE t (a TEXT, b TEXT) ON COMMIT DROP AS SELECT * FROM u
//! ```

use sqlparser::tokenizer::Token;

use super::{Pass, dotted, is, make};

/// Words before TABLE: CREATE, LOCAL, TEMP.
const WORDS_MAX: usize = 3;

impl Pass<'_> {
    /// How far from here the parenthesis is that begins the columns of a new table.
    fn columns_ahead(&self) -> Option<usize> {
        let ahead = if self.is(1, "IF") { 4 } else { 1 };
        let (_, length) = dotted(self.tokens.get(self.at + ahead..)?);
        let opens = matches!(self.peek(ahead + length).map(|token| &token.token), Some(Token::LParen));
        opens.then_some(ahead + length)
    }

    /// Whether the columns of a new table are nothing but names, and a query gives their types.
    /// Looked for where the statement is one that makes a table, and so once only.
    pub(super) fn names_only(&self) -> bool {
        if self.first != "CREATE" || self.out.len() > WORDS_MAX {
            return false;
        }
        let Some(mut ahead) = self.columns_ahead() else { return false };
        loop {
            let is_name = matches!(self.peek(ahead + 1).map(|token| &token.token), Some(Token::Word(_)));
            match self.peek(ahead + 2).map(|token| &token.token) {
                Some(Token::Comma) if is_name => ahead += 2,
                Some(Token::RParen) => return is_name && self.has_query(ahead + 3),
                _ => return false,
            }
        }
    }

    /// Whether AS follows, behind what else there is to be said of a new table.
    fn has_query(&self, ahead: usize) -> bool {
        let rest = self.tokens.get(self.at + ahead..).unwrap_or_default().iter();
        let mut clauses = rest.take_while(|token| !matches!(token.token, Token::SemiColon));
        clauses.any(|token| is(Some(token), "AS"))
    }

    /// Gives the names of a new table's columns a type, so that they are definitions.
    pub(super) fn typed_names(&mut self) {
        let ahead = self.columns_ahead().unwrap_or(0);
        (0..=ahead).for_each(|_| self.copy());
        loop {
            self.copy();
            self.out.push(make("TEXT", self.tokens[self.at].span));
            let ends = matches!(self.tokens[self.at].token, Token::RParen);
            self.copy();
            if ends {
                return;
            }
        }
    }

    /// Whether what comes next is what a view or table is made of.
    pub(super) fn after_first_as(&self) -> bool {
        let mut all = self.out.iter().filter(|token| is(Some(token), "AS"));
        self.first == "CREATE" && self.after(&["AS"]) && all.nth(1).is_none()
    }
}
