//! `CREATE TABLE t (a, b) AS query WITH NO DATA`: the parser wants types of columns that the query
//! gives them, and does not know the end. And CREATE RECURSIVE VIEW, as PostgreSQL reads it.
//!
//! ```text
//! CREATE TEMP TABLE t (a, b) ON COMMIT DROP AS TABLE u
//! CREATE TEMP TABLE t (a TEXT, b TEXT) ON COMMIT DROP AS SELECT * FROM u
//!
//! CREATE TABLE t AS EXECUTE p (1)
//! CREATE TABLE t AS SELECT "\u{1}execute"("p", 1)
//! ```

use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Query, SelectItem, SetExpr, Statement,
};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Word};

use super::{Pass, dotted, innermost_open, is, make};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold_word;

/// The function that stands for EXECUTE: nothing can be called so.
const EXECUTE: &str = "\u{1}execute";

/// The EXECUTE that the query of a CREATE TABLE AS stands for, if it is one.
///
/// # Errors
/// 42601 if there is more of it.
pub(crate) fn executed_by(query: &Query) -> Result<Option<Statement>> {
    let SetExpr::Select(select) = query.body.as_ref() else { return Ok(None) };
    let [SelectItem::UnnamedExpr(Expr::Function(call))] = select.projection.as_slice() else {
        return Ok(None);
    };
    let name = call.name.0.first().and_then(|part| part.as_ident());
    if name.is_none_or(|name| name.value != EXECUTE) {
        return Ok(None);
    }
    let refused = || SqlError::syntax("syntax error in EXECUTE");
    let FunctionArguments::List(list) = &call.args else { return Err(refused()) };
    let mut arguments = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expression)) => Ok(expression.clone()),
        _ => Err(refused()),
    });
    let Some(Ok(Expr::Identifier(name))) = arguments.next() else { return Err(refused()) };
    let is_alone = select.from.is_empty()
        && select.selection.is_none()
        && call.over.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none();
    if !is_alone {
        return Err(refused());
    }
    Ok(Some(Statement::Execute {
        name: Some(ObjectName::from(vec![name])),
        parameters: arguments.collect::<Result<_>>()?,
        has_parentheses: true,
        immediate: false,
        into: Vec::new(),
        using: Vec::new(),
        output: false,
        default: false,
    }))
}

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
        if self.place_of_create().is_none_or(|place| self.out.len() > place + WORDS_MAX) {
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

    /// Where CREATE stands, if it begins the statement, or what EXPLAIN is about.
    fn place_of_create(&self) -> Option<usize> {
        match self.first.as_str() {
            "CREATE" => Some(0),
            "EXPLAIN" => self.out.iter().position(|token| is(Some(token), "CREATE")),
            _ => None,
        }
    }

    /// Whether the statement makes or changes a table, as its first words say.
    fn is_of_table(&self) -> bool {
        let first = self.place_of_create().unwrap_or(0);
        self.out.iter().skip(first).take(WORDS_MAX + 1).any(|token| is(Some(token), "TABLE"))
    }

    /// Whether what comes next, WITH [NO] DATA, ends a statement that makes a table of a query.
    pub(super) fn says_data(&self) -> bool {
        let ahead = if self.is(1, "NO") { 2 } else { 1 };
        let ends = self.is(ahead, "DATA") && self.peek(ahead + 1).is_none();
        let has_query = || self.out.iter().any(|token| is(Some(token), "AS"));
        ends && self.place_of_create().is_some() && self.is_of_table() && has_query()
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

    /// Where the word CHECK is, if what was copied last is a CHECK constraint of a table.
    fn check_before(&self) -> Option<usize> {
        if !self.is_of_table() || !matches!(self.first.as_str(), "CREATE" | "ALTER") {
            return None;
        }
        let out = match self.out.as_slice() {
            [out @ .., not, enforced] if is(Some(not), "NOT") && is(Some(enforced), "ENFORCED") => out,
            out => out,
        };
        let (TokenWithSpan { token: Token::RParen, .. }, before) = out.split_last()? else { return None };
        let check = innermost_open(before)?.checked_sub(1)?;
        is(self.out.get(check), "CHECK").then_some(check)
    }

    /// Whether the CHECK there is one of a table, and not of a column.
    fn is_check_of_table(&self, check: usize) -> bool {
        let begins = |at: usize| match at.checked_sub(1).and_then(|before| self.out.get(before)) {
            Some(before) => matches!(before.token, Token::LParen | Token::Comma) || is(Some(before), "ADD"),
            None => false,
        };
        let named = check.checked_sub(2).filter(|at| is(self.out.get(*at), "CONSTRAINT"));
        begins(check) || named.is_some_and(begins)
    }

    /// What stands behind a CHECK constraint: NO INHERIT becomes words of another system that the
    /// parser knows, and of a new table no rows are there that NOT VALID could leave as they are.
    /// False if it is something else.
    ///
    /// # Errors
    /// 42601, 0A000 for what may not stand there.
    pub(super) fn behind_check(&mut self, span: Span) -> Result<bool> {
        let Some(check) = self.check_before() else { return Ok(false) };
        if self.is(0, "NO") && self.is(1, "INHERIT") {
            self.out.extend([make("NOT", span), make("ENFORCED", span)]);
            self.at += 2;
            return Ok(true);
        }
        let is_not = self.is(0, "NOT");
        if self.is(usize::from(is_not), "ENFORCED") {
            return Err(SqlError::syntax("syntax error at or near \"ENFORCED\""));
        }
        let is_of_table = self.is_check_of_table(check);
        if is_not && self.is(1, "VALID") {
            if !is_of_table {
                return Err(SqlError::syntax("syntax error at or near \"VALID\""));
            }
            let is_new = self.first == "CREATE";
            self.at += if is_new { 2 } else { 0 };
            return Ok(is_new);
        }
        let clause = match () {
            () if self.is(0, "DEFERRABLE") => "DEFERRABLE",
            () if self.is(0, "INITIALLY") && self.is(1, "DEFERRED") => "INITIALLY DEFERRED",
            () => return Ok(false),
        };
        if !is_of_table {
            return Err(SqlError::syntax(format!("misplaced {clause} clause")));
        }
        let message = "CHECK constraints cannot be marked DEFERRABLE";
        Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message))
    }

    /// Whether EXECUTE gives the rows of a new table here, and a name follows.
    pub(super) fn makes_of_execute(&self) -> bool {
        let has_name = matches!(self.peek(1).map(|token| &token.token), Some(Token::Word(_)));
        let makes = self.first == "CREATE" || self.first == "EXPLAIN";
        has_name && makes && self.after_first_as() && self.out.iter().any(|token| is(Some(token), "TABLE"))
    }

    /// EXECUTE and its name, up to the arguments if there are any.
    pub(super) fn execute(&mut self, span: Span) {
        let quoted = |value| Word { value, quote_style: Some('"'), keyword: Keyword::NoKeyword };
        let name = match self.peek(1).map(|token| &token.token) {
            Some(Token::Word(name)) => fold_word(name),
            _ => String::new(),
        };
        let call = [Token::Word(quoted(EXECUTE.to_owned())), Token::LParen, Token::Word(quoted(name))];
        self.out.push(make("SELECT", span));
        self.out.extend(call.map(|token| TokenWithSpan { token, span }));
        let has_arguments = matches!(self.peek(2).map(|token| &token.token), Some(Token::LParen));
        let next = if has_arguments { Token::Comma } else { Token::RParen };
        self.out.push(TokenWithSpan { token: next, span });
        self.at += if has_arguments { 3 } else { 2 };
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
