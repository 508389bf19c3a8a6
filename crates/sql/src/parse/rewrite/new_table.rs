//! `CREATE TABLE t (a, b) AS query WITH NO DATA`: the parser wants types of columns that the query
//! gives them, and does not know the end. And CREATE RECURSIVE VIEW, as PostgreSQL reads it.
//!
//! ```text
//! CREATE TEMP TABLE t (a, b) ON COMMIT DROP AS TABLE u
//! CREATE TEMP TABLE t (a TEXT, b TEXT) ON COMMIT DROP AS SELECT * FROM u
//! ```

use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

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

    /// Whether the statement makes or changes a table, as its first words say.
    fn is_of_table(&self) -> bool {
        self.out.iter().take(WORDS_MAX + 1).any(|token| is(Some(token), "TABLE"))
    }

    /// Whether what comes next, WITH [NO] DATA, ends a statement that makes a table of a query.
    pub(super) fn says_data(&self) -> bool {
        let ahead = if self.is(1, "NO") { 2 } else { 1 };
        let ends = self.is(ahead, "DATA") && self.peek(ahead + 1).is_none();
        let has_query = || self.out.iter().any(|token| is(Some(token), "AS"));
        ends && self.first == "CREATE" && self.is_of_table() && has_query()
    }

    /// WITH [NO] DATA.
    pub(super) fn with_data(&mut self) {
        self.notes.without_rows = self.is(1, "NO");
        self.at = self.tokens.len();
    }

    /// Whether a word may stand between CREATE and VIEW here.
    pub(super) fn begins_view(&self) -> bool {
        // CREATE OR REPLACE LOCAL TEMP.
        self.first == "CREATE" && self.at <= 5
    }

    /// `RECURSIVE VIEW name (columns) AS`, with a WITH query of the view's own name around what
    /// follows. Left alone unless the columns are nothing but names.
    pub(super) fn recursive_view(&mut self, span: Span) {
        let (_, length) = dotted(self.tokens.get(self.at + 2..).unwrap_or_default());
        let open = self.at + 2 + length;
        let list = self.tokens.get(open..).unwrap_or_default();
        let close = list.iter().position(|token| token.token == Token::RParen);
        let columns = close.and_then(|close| list.get(1..close)).unwrap_or_default();
        let is_list = matches!(list.first().map(|token| &token.token), Some(Token::LParen))
            && columns.iter().all(|token| matches!(token.token, Token::Word(_) | Token::Comma));
        let behind = open + columns.len() + 2;
        if length == 0 || columns.is_empty() || !is_list || !is(self.tokens.get(behind), "AS") {
            return self.copy();
        }
        let sign = |token| TokenWithSpan { token, span };
        let name = self.tokens[open - 1].clone();
        self.out.extend_from_slice(&self.tokens[self.at + 1..=behind]);
        self.out.extend([make("WITH", span), make("RECURSIVE", span), name.clone(), sign(Token::LParen)]);
        self.out.extend_from_slice(columns);
        self.out.extend([sign(Token::RParen), make("AS", span), sign(Token::LParen)]);
        self.tail.extend([sign(Token::RParen), make("SELECT", span)]);
        self.tail.extend_from_slice(columns);
        self.tail.extend([make("FROM", span), name]);
        self.at = behind + 1;
    }

    /// Whether what was copied last is a CHECK constraint of a table.
    pub(super) fn after_check(&self) -> bool {
        if !self.is_of_table() || !matches!(self.first.as_str(), "CREATE" | "ALTER") {
            return false;
        }
        let mut depth = 0;
        let open = self.out.iter().rposition(|token| {
            match token.token {
                Token::RParen => depth += 1,
                Token::LParen => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        let before = open.and_then(|open| open.checked_sub(1)).and_then(|at| self.out.get(at));
        matches!(self.out.last().map(|token| &token.token), Some(Token::RParen)) && is(before, "CHECK")
    }

    /// Whether what comes next is what a view or table is made of, or what is prepared.
    pub(super) fn after_first_as(&self) -> bool {
        let mut all = self.out.iter().filter(|token| is(Some(token), "AS"));
        let makes = match self.first.as_str() {
            "CREATE" | "PREPARE" => true,
            // Behind AS in a query there may be a name, even `table`.
            "EXPLAIN" => self.out.iter().any(|token| is(Some(token), "CREATE")),
            _ => false,
        };
        makes && self.after(&["AS"]) && all.nth(1).is_none()
    }
}
