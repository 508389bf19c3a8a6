//! From text to syntax trees.
//!
//! The grammar is the `sqlparser` crate's, with PostgreSQL's precedences and the spellings it lacks put in at three places:
//!
//! 1. `rewrite` changes tokens before parsing (`FOR NO KEY UPDATE`, `ISNULL`, `COLLATE "C"`, `LIMIT` after `FOR UPDATE` ...);
//! 2. `dialect` hooks into expressions (unary minus, `IS DISTINCT FROM`, `BETWEEN SYMMETRIC`, `TRIM` ...);
//! 3. `command` parses whole statements that the crate does not know (`FETCH c`, `ALTER SEQUENCE`, `SET CONSTRAINTS` ...).
//!
//! Before all that, `operator` tells the tokenizer where PostgreSQL ends an operator (`x>-1`). `plain` reads the few statements that always come as text and are sent in masses, without any of this.
//!
//! A text may hold several statements; all are parsed before any is run, as in PostgreSQL, so a syntax error in the last
//! one keeps the first from running. Errors are 42601 with the 1-based character position in the whole text.
//!
//! Deep nesting: `complexity` bounds from the tokens how deep a tree can become; beyond the limit the answer is 54001. A complex
//! statement is parsed, planned, run and dropped on a stack that fits its depth, since copies, comparisons and drops of
//! trees recurse, too.

mod command;
mod complexity;
mod dialect;
mod error;
mod junk;
mod mip;
mod operator;
mod plain;
mod rewrite;

pub use command::{AlterSequence, Command, FetchCount, SequenceOptions};
pub(crate) use complexity::{SHALLOW, on_large_stack};
pub use error::character_position;
pub use mip::{MipArgument, MipOperation};
pub(crate) use rewrite::{DISTINCT_SETS, exclusion_of};

use std::sync::Arc;

use sqlparser::ast;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use crate::error::{Result, SqlError, sqlstate};
use dialect::CognateDialect;
use error::Source;

/// Longest statement text, in bytes.
pub const MAX_TEXT: usize = 64 * 1024 * 1024;

/// The first of the names behind `OF` in a lock clause whose strength the parser does not know: `FOR NO KEY UPDATE` comes as `FOR UPDATE`, `FOR KEY SHARE` as
/// `FOR SHARE`. Nothing can be called so.
pub(crate) const KEY_MARK: &str = "\u{1}key";

/// The field that stands for all fields of a record, as the parser has no star there.
pub(crate) const ALL_FIELDS: &str = "\u{1}*";

/// One statement of a text.
#[derive(Clone, Debug)]
pub struct Statement {
    /// Its own source text, without the semicolon.
    pub text: Arc<str>,
    /// The text it came in; positions refer to this.
    pub source: Arc<str>,
    /// What it says.
    pub command: Command,
    /// `OVERRIDING SYSTEM VALUE` or `OVERRIDING USER VALUE` of an INSERT.
    pub overriding: Option<Overriding>,
    /// `[NOT] DEFERRABLE` of BEGIN, START TRANSACTION or SET TRANSACTION.
    pub deferrable: Option<bool>,
    /// Its message has other statements, with which it shares a transaction unless they end it.
    pub has_company: bool,
    complexity: usize,
}

/// What an INSERT does about identity columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overriding {
    /// Given values win, even for GENERATED ALWAYS.
    SystemValue,
    /// Given values are ignored.
    UserValue,
}

/// What a statement says that its syntax tree has no place for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Notes {
    overriding: Option<Overriding>,
    deferrable: Option<bool>,
}

impl Statement {
    /// A part of this statement as one of its own, with the same source text.
    pub(crate) fn with_command(&self, command: Command) -> Statement {
        Statement {
            text: self.text.clone(),
            source: self.source.clone(),
            command,
            overriding: None,
            deferrable: None,
            has_company: self.has_company,
            complexity: self.complexity,
        }
    }
}

impl Statement {
    /// A bound on the depth of its tree, and of what is made from it.
    pub(crate) fn depth(&self) -> usize {
        self.complexity
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        if self.complexity > complexity::SHALLOW {
            let command = std::mem::replace(&mut self.command, Command::Empty);
            complexity::on_large_stack(self.complexity, || drop(command));
        }
    }
}

/// Parses a text of any number of statements.
pub fn parse(text: &str) -> Result<Vec<Statement>> {
    if text.len() > MAX_TEXT {
        return Err(SqlError::new(
            sqlstate::PROGRAM_LIMIT_EXCEEDED,
            format!("statement is longer than {} MB", MAX_TEXT >> 20),
        ));
    }
    if let Some(statement) = plain::parse(text) {
        return Ok(vec![statement]);
    }
    parse_tokens(text)
}

fn parse_tokens(text: &str) -> Result<Vec<Statement>> {
    complexity::guard_parser_stack();
    let source: Arc<str> = text.into();
    let places = Source::new(text);
    let dialect = CognateDialect::default();
    let tokens =
        operator::space(text).tokenize(text, &dialect).map_err(|error| places.tokenizer_error(&error))?;
    junk::refuse(&tokens, &places)?;
    let mut statements = vec![];
    for part in split(tokens) {
        if let Some(statement) = parse_one(part, &source, &places)? {
            statements.push(statement);
        }
    }
    if statements.len() > 1 {
        statements.iter_mut().for_each(|statement| statement.has_company = true);
    }
    Ok(statements)
}

/// Parses a text of at most one statement; none if it is empty. 42601 if there are more.
pub fn parse_single(text: &str) -> Result<Option<Statement>> {
    let mut statements = parse(text)?;
    if statements.len() > 1 {
        return Err(SqlError::syntax("cannot insert multiple commands into a prepared statement"));
    }
    Ok(statements.pop())
}

/// Parses a single expression, as stored for defaults and constraints.
pub fn parse_expression(text: &str) -> Result<ast::Expr> {
    complexity::guard_parser_stack();
    let places = Source::new(text);
    let dialect = CognateDialect::default();
    let tokens =
        operator::space(text).tokenize(text, &dialect).map_err(|error| places.tokenizer_error(&error))?;
    let mut notes = Notes::default();
    let tokens = rewrite::rewrite(tokens, &mut notes)?;
    complexity::check(&tokens)?;
    let dialect = CognateDialect::for_tokens(tokens.len());
    let mut parser =
        Parser::new(&dialect).with_recursion_limit(complexity::LIMIT).with_tokens_with_locations(tokens);
    let parsed = parser.parse_expr();
    let expr = dialect.verdict(parsed).map_err(|error| places.parser_error(&error))?;
    match parser.peek_token_ref() {
        token if token.token == Token::EOF => Ok(expr),
        token => Err(places.near(token.span.start)),
    }
}

/// Cuts the tokens at semicolons.
fn split(tokens: Vec<TokenWithSpan>) -> Vec<Vec<TokenWithSpan>> {
    let mut parts = vec![];
    let mut part = vec![];
    let mut depth = 0i32;
    for token in tokens {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        if token.token == Token::SemiColon && depth <= 0 {
            parts.push(std::mem::take(&mut part));
            depth = 0;
        } else {
            part.push(token);
        }
    }
    parts.push(part);
    parts
}

fn is_blank(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_) | Token::EOF)
}

fn parse_one(
    mut tokens: Vec<TokenWithSpan>,
    source: &Arc<str>,
    places: &Source<'_>,
) -> Result<Option<Statement>> {
    let Some(first) = tokens.iter().position(|token| !is_blank(token)) else { return Ok(None) };
    let last = tokens.iter().rposition(|token| !is_blank(token)).unwrap_or(first);
    let start = places.byte(tokens[first].span.start);
    let end = places.byte(tokens[last].span.end);
    let text: Arc<str> = source.get(start..end).unwrap_or(source).into();
    tokens.truncate(last + 1);
    tokens.drain(..first);
    if let Some((operation, arguments)) = mip::parse(&tokens, source, places)? {
        let (overriding, deferrable, complexity) = (None, None, 0);
        let command = Command::Mip(operation, arguments);
        return Ok(Some(Statement {
            text,
            source: source.clone(),
            command,
            overriding,
            deferrable,
            has_company: false,
            complexity,
        }));
    }
    let mut notes = Notes::default();
    let tokens = rewrite::rewrite(tokens, &mut notes)?;
    let complexity = complexity::check(&tokens)?;
    let dialect = CognateDialect::for_tokens(tokens.len());
    let end_of_text = places.at_end(source.len() == end || source[end..].trim().is_empty());
    // Also for the part of a tree that is dropped when the rest does not parse.
    let parsed = on_large_stack(complexity, || {
        let mut parser =
            Parser::new(&dialect).with_recursion_limit(complexity::LIMIT).with_tokens_with_locations(tokens);
        command::parse(&mut parser).and_then(|command| {
            if parser.peek_token_ref().token == Token::EOF {
                Ok(command)
            } else {
                parser.expected_ref("end of statement", parser.peek_token_ref())
            }
        })
    });
    let command =
        dialect.verdict(parsed).map_err(|error| places.parser_error_at(&error, end_of_text, end))?;
    let command = match command {
        Command::Sql(sql) => match mip::from_query(&sql)? {
            Some((operation, arguments)) => Command::Mip(operation, arguments),
            None => Command::Sql(sql),
        },
        command => command,
    };
    let Notes { overriding, deferrable } = notes;
    Ok(Some(Statement {
        text,
        source: source.clone(),
        command,
        overriding,
        deferrable,
        has_company: false,
        complexity,
    }))
}

/// Whether a whitespace token is a line break, which joins string literals.
fn is_line_break(token: &Token) -> bool {
    matches!(token, Token::Whitespace(Whitespace::Newline))
}

#[cfg(test)]
mod tests;
