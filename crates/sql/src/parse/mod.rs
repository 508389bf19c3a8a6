//! From text to syntax trees.
//!
//! The grammar is the `sqlparser` crate's, with PostgreSQL's precedences and the spellings it lacks
//! put in at three places:
//!
//! 1. `rewrite` changes tokens before parsing (`FOR NO KEY UPDATE`, `ISNULL`, `COLLATE "C"`,
//!    `LIMIT` after `FOR UPDATE` ...);
//! 2. `dialect` hooks into expressions (unary minus, `IS DISTINCT FROM`, `BETWEEN SYMMETRIC`,
//!    `TRIM` ...);
//!    `in_parentheses` finds queries, `interval` reads literals of intervals, `merge` parses MERGE,
//!    and what begins with WITH;
//! 3. `command` parses whole statements that the crate does not know (`FETCH c`, `ALTER SEQUENCE`,
//!    `SET CONSTRAINTS` ...), `alter_settings` those about settings that sessions begin with,
//!    `alter_relation` ALTER VIEW, `routine`
//!    those of functions and procedures, `database` those of databases, `inline_code` DO, `domain`
//!    those of domains, `role`, `grant` and `owner` those of roles and what they may do and own;
//!    `schema` cuts CREATE SCHEMA with elements into statements.
//!
//! What none of these knows `refused` may know by name; and `places` refuses words that the crate
//! would take where PostgreSQL's grammar has none of them.
//!
//! Before all that, `operator` tells the tokenizer where PostgreSQL ends an operator (`x>-1`), and
//! `unicode` reads strings and names with `U&` before them; `reserved` refuses names that only the
//! binder makes up.
//! `plain` reads the few statements that always come as text and are sent in masses, without any of
//! this.
//!
//! `tokens` makes the parser's tokens of a text; `lexeme` cuts texts into pieces without parsing
//! them, and `template` takes literals out.
//!
//! A text may hold several statements; all are parsed before any is run, as in PostgreSQL, so a
//! syntax error in the last one keeps the first from running. Errors are 42601 with the 1-based
//! character position in the whole text.
//!
//! Long texts: `rows` keeps long lists of literal rows as text. For all else a tree takes far more
//! memory than its text, so it is charged to the database's `Budget` before it is made; and the
//! parser asks now and then whether it is to stop.
//!
//! Deep nesting: `complexity` bounds from the tokens how deep a tree can become; beyond the limit
//! the answer is 54001. A complex statement is parsed, planned, run and dropped on a stack that
//! fits its depth, since copies, comparisons and drops of trees recurse, too.

mod alter_identity;
mod alter_relation;
mod alter_settings;
mod command;
mod comment;
mod complexity;
mod conflict_target;
mod current_of;
mod database;
mod dialect;
mod domain;
mod effects;
mod element;
mod error;
mod foreign;
mod grant;
mod grouping_sets;
mod in_parentheses;
mod inline_code;
mod interval;
mod junk;
pub(crate) mod lexeme;
mod like;
mod maintenance;
mod merge;
mod mip;
mod operator;
mod owner;
mod places;
mod plain;
mod prefix;
mod refused;
mod reserved;
mod rewrite;
mod role;
mod routine;
mod row_operand;
mod rows;
mod schema;
mod spelled;
pub(crate) mod template;
mod tokens;
mod unicode;

pub(crate) use alter_identity::{IdentityChange, identity_change};
pub use alter_relation::{AlterRelation, NewReplicaIdentity, RelationChange};
pub use alter_settings::{AlterSettings, RoleName, SettingChange, SettingScope};
pub(crate) use command::selects_into;
pub use command::{AlterSequence, Command, FetchCount, SequenceOptions};
pub use comment::{CommentStatement, Commented};
pub(crate) use complexity::{SHALLOW, on_large_stack};
pub(crate) use conflict_target::{ConflictTarget, conflict_target};
pub(crate) use current_of::{ROW_KEY, current_of, with_row_key};
pub use database::{DatabaseOption, DatabaseStatement};
pub use domain::{DomainChange, DomainClause, DomainStatement};
pub(crate) use effects::{changes_rows, locks_rows_within};
pub(crate) use element::{element, part_of_column};
pub use error::character_position;
pub use grant::{DefaultPrivileges, GrantStatement, NamedRoutine, Objects, OnColumns};
pub(crate) use like::Like;
pub(crate) use merge::does_nothing;
pub use mip::{MipArgument, MipOperation};
pub use owner::OwnerStatement;
pub(crate) use prefix::operator_of_call;
pub(crate) use reserved::hidden_column;
pub(crate) use rewrite::{
    DISTINCT_SETS, HEADER_MATCH, KeyLists, NO_CHARACTER, ROWS_FROM, dropped_expression, exclusion_of,
    executed_by, known_tablespace, sequence_name_of, split_collated, split_key, split_referenced,
};
pub use role::{RoleOption, RoleRef, RoleStatement};
pub use routine::{CreateRoutine, DropRoutine, RoutineArgument, RoutineBody, RoutineReturns};
pub(crate) use rows::{Literal, Reader, Run, marked};
pub use schema::CreateSchema;
pub(crate) use spelled::{spelled, with_signs_apart};

use std::sync::Arc;

use sqlparser::ast;
use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Whitespace};

use crate::budget::{Budget, Charge};
use crate::error::{Result, SqlError, sqlstate};
use crate::function::Interrupt;
use crate::reclaim;
use crate::routine::Scope;
use dialect::CognateDialect;
use error::Source;
use routine::Nesting;
use rows::Survey;
use tokens::tokenize;

/// Longest statement text, in bytes.
pub const MAX_TEXT: usize = 64 * 1024 * 1024;

/// The first of the names behind `OF` in a lock clause whose strength the parser does not know:
/// `FOR NO KEY UPDATE` comes as `FOR UPDATE`, `FOR KEY SHARE` as `FOR SHARE`. Nothing can be called
/// so.
pub(crate) const KEY_MARK: &str = "\u{1}key";

/// The field that stands for all fields of a record, as the parser has no star there.
pub(crate) const ALL_FIELDS: &str = "\u{1}*";

/// The name of an argument behind VARIADIC.
pub(crate) const VARIADIC: &str = "\u{1}variadic";

/// One statement of a text.
#[derive(Clone, Debug)]
pub struct Statement {
    /// Its own source text, without the semicolon.
    pub text: Arc<str>,
    /// The text it came in; positions refer to this.
    pub source: Arc<str>,
    /// What it says.
    pub command: Command,
    /// `OVERRIDING SYSTEM VALUE` or `OVERRIDING USER VALUE`, with where the word INSERT stands that
    /// it belongs to.
    overriding: Vec<(Location, Overriding)>,
    /// `[NOT] DEFERRABLE` of BEGIN, START TRANSACTION or SET TRANSACTION.
    pub deferrable: Option<bool>,
    /// `WITH NO DATA` of CREATE TABLE AS.
    pub(crate) without_rows: bool,
    /// `CONCURRENTLY` of DROP INDEX.
    pub(crate) concurrently: bool,
    /// Behind WHERE of COPY.
    pub(crate) condition: Option<Box<ast::Expr>>,
    /// Its message has other statements, with which it shares a transaction unless they end it.
    pub has_company: bool,
    /// It is a statement of a routine's body: what it sees of the routine.
    pub(crate) scope: Option<Arc<Scope>>,
    complexity: usize,
    /// What its tree may take, if that is much.
    charge: Option<Arc<Charge>>,
}

/// What reading a long text may take.
pub(crate) struct Limits {
    /// Where memory comes from.
    pub(crate) budget: Arc<Budget>,
    /// Asked whether to go on.
    pub(crate) interrupt: Arc<dyn Interrupt + Send + Sync>,
}

/// Texts shorter than this are read without a look at their size.
const LONG_TEXT_BYTES: usize = 2048;
/// What a token takes at most: itself twice, its part of the tree, and what is made of that.
const TOKEN_BYTES: usize = 480;

/// What an INSERT does about identity columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overriding {
    /// Given values win, even for GENERATED ALWAYS.
    SystemValue,
    /// Given values are ignored.
    UserValue,
}

/// What a statement says that its syntax tree has no place for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    overriding: Vec<(Location, Overriding)>,
    deferrable: Option<bool>,
    without_rows: bool,
    concurrently: bool,
}

impl Statement {
    /// A part of this statement as one of its own, with the same source text.
    pub(crate) fn with_command(&self, command: Command) -> Statement {
        Statement {
            text: self.text.clone(),
            source: self.source.clone(),
            command,
            overriding: self.overriding.clone(),
            deferrable: None,
            without_rows: false,
            concurrently: false,
            condition: None,
            has_company: self.has_company,
            scope: self.scope.clone(),
            complexity: self.complexity,
            charge: self.charge.clone(),
        }
    }
}

impl Statement {
    /// What a PREPARE prepares, in its own words: others may execute it, who have nothing prepared.
    /// It outlives the routine or block that it is in, and sees none of its names and parameters.
    pub(crate) fn prepares(&self, inner: &ast::Statement) -> Statement {
        let text = lexeme::prepared(&self.text).map_or_else(|| self.text.clone(), Arc::from);
        let mut prepared = self.with_command(Command::Sql(Box::new(inner.clone())));
        (prepared.text, prepared.scope) = (text, None);
        prepared
    }

    /// What the INSERT that begins with this word says about identity columns.
    pub(crate) fn overriding(&self, insert: &AttachedToken) -> Option<Overriding> {
        let at = insert.0.span.start;
        self.overriding.iter().find(|(insert, _)| *insert == at).map(|(_, overriding)| *overriding)
    }

    /// Bytes that its tree is charged for; 0 if that is not much.
    pub(crate) fn charged(&self) -> usize {
        self.charge.as_ref().map_or(0, |charge| charge.bytes())
    }

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
        } else if self.text.len() >= reclaim::LONG_TEXT_BYTES {
            reclaim::elsewhere(std::mem::replace(&mut self.command, Command::Empty));
        }
    }
}

/// Parses a text of any number of statements.
pub fn parse(text: &str) -> Result<Vec<Statement>> {
    check_length(text)?;
    match plain::parse(text) {
        Some(statement) => Ok(vec![statement]),
        None => parse_tokens(text, Survey::default(), None, None),
    }
}

/// The same within limits. Long lists of literal rows stay text: the statements are to be bound
/// with their source.
pub(crate) fn parse_within(text: &str, limits: impl FnOnce() -> Limits) -> Result<Vec<Statement>> {
    check_length(text)?;
    if let Some(statement) = plain::parse(text) {
        return Ok(vec![statement]);
    }
    if text.len() < LONG_TEXT_BYTES {
        return parse_tokens(text, Survey::default(), None, None);
    }
    let survey = rows::survey(text);
    let limits = limits();
    limits.interrupt.check()?;
    // The text comes again as the statements' source, and as what each of them says of itself.
    let bytes = survey.tokens * TOKEN_BYTES + text.len() * 2;
    let charge = limits.budget.charge(bytes, "The statement's tree")?;
    parse_tokens(text, survey, Some(limits.interrupt), Some(Arc::new(charge)))
}

fn check_length(text: &str) -> Result<()> {
    if text.len() <= MAX_TEXT {
        return Ok(());
    }
    let message = format!("statement is longer than {} MB", MAX_TEXT >> 20);
    Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message))
}

fn parse_tokens(
    text: &str,
    survey: Survey,
    interrupt: Option<Arc<dyn Interrupt + Send + Sync>>,
    charge: Option<Arc<Charge>>,
) -> Result<Vec<Statement>> {
    complexity::guard_parser_stack();
    let places = Source::new(text);
    let tokens = tokenize(text, &survey.runs).map_err(|error| places.tokenizer_error(&error))?;
    junk::refuse(&tokens, &places)?;
    let tokens = unicode::decode(tokens, &places)?;
    reserved::refuse(&tokens, &places)?;
    let parts = Parts { source: text.into(), places, interrupt, charge };
    let mut statements = vec![];
    for part in split(tokens) {
        if let Some(statement) = parts.parse_one(part)? {
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
    single(parse(text)?)
}

/// The same within limits, as [`parse_within`].
pub(crate) fn parse_single_within(text: &str, limits: impl FnOnce() -> Limits) -> Result<Option<Statement>> {
    single(parse_within(text, limits)?)
}

fn single(mut statements: Vec<Statement>) -> Result<Option<Statement>> {
    if statements.len() > 1 {
        return Err(SqlError::syntax("cannot insert multiple commands into a prepared statement"));
    }
    Ok(statements.pop())
}

/// Parses a single expression, as stored for defaults and constraints.
pub fn parse_expression(text: &str) -> Result<ast::Expr> {
    parse_part(text, complexity::LIMIT, |parser| parser.parse_expr())
}

/// The type that a text names. Whoever holds it need not look at the stack.
pub(crate) fn data_type(text: &str) -> Result<ast::DataType> {
    parse_part(text, SHALLOW, |parser| parser.parse_data_type())
}

/// Parses a text that is a part of a statement, up to so deep.
fn parse_part<T>(
    text: &str,
    depth: usize,
    parse: impl FnOnce(&mut Parser<'_>) -> std::result::Result<T, ParserError>,
) -> Result<T> {
    complexity::guard_parser_stack();
    let places = Source::new(text);
    let dialect = CognateDialect::default();
    let tokens =
        operator::space(text).tokenize(text, &dialect).map_err(|error| places.tokenizer_error(&error))?;
    let tokens = unicode::decode(tokens, &places)?;
    reserved::refuse(&tokens, &places)?;
    let mut notes = Notes::default();
    let tokens = rewrite::rewrite(tokens, &mut notes)?;
    complexity::check_up_to(&tokens, depth)?;
    let dialect = CognateDialect::for_tokens(&tokens);
    let mut parser =
        Parser::new(&dialect).with_recursion_limit(complexity::LIMIT).with_tokens_with_locations(tokens);
    let parsed = parse(&mut parser).map_err(|failure| error::located(failure, &parser));
    let part = dialect.verdict(parsed).map_err(|error| places.parser_error(&error))?;
    match parser.peek_token_ref() {
        token if token.token == Token::EOF => Ok(part),
        token => Err(places.near(token.span.start)),
    }
}

/// Cuts the tokens at semicolons.
fn split(tokens: Vec<TokenWithSpan>) -> Vec<Vec<TokenWithSpan>> {
    let mut parts = vec![];
    let mut part = vec![];
    let mut depth = 0i32;
    let mut nesting = Nesting::default();
    for token in tokens {
        nesting.note(&token);
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        if token.token == Token::SemiColon && depth <= 0 && !nesting.is_inside() {
            parts.push(std::mem::take(&mut part));
            (depth, nesting) = (0, Nesting::default());
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

/// What the statements of a text have in common.
struct Parts<'a> {
    source: Arc<str>,
    places: Source<'a>,
    interrupt: Option<Arc<dyn Interrupt + Send + Sync>>,
    charge: Option<Arc<Charge>>,
}

impl Parts<'_> {
    /// Its statement, if the part says anything.
    fn parse_one(&self, mut tokens: Vec<TokenWithSpan>) -> Result<Option<Statement>> {
        let Some(first) = tokens.iter().position(|token| !is_blank(token)) else { return Ok(None) };
        let last = tokens.iter().rposition(|token| !is_blank(token)).unwrap_or(first);
        let (source, places) = (&self.source, &self.places);
        let start = places.byte(tokens[first].span.start);
        let end = places.byte(tokens[last].span.end);
        let text: Arc<str> = match source.get(start..end) {
            Some(text) if text.len() < source.len() => text.into(),
            _ => source.clone(),
        };
        tokens.truncate(last + 1);
        tokens.drain(..first);
        routine::fold_body(&mut tokens, source, places);
        let condition = self.copy_condition(&mut tokens, end)?;
        let mut notes = Notes::default();
        let (command, complexity) = match mip::parse(&tokens, source, places)? {
            Some((operation, arguments)) => (Command::Mip(operation, arguments), 0),
            None => self.command(tokens, &mut notes, end)?,
        };
        let Notes { overriding, deferrable, without_rows, concurrently } = notes;
        let (source, charge) = (source.clone(), self.charge.clone());
        Ok(Some(Statement {
            text,
            source,
            command,
            overriding,
            deferrable,
            without_rows,
            concurrently,
            condition,
            has_company: false,
            scope: None,
            complexity,
            charge,
        }))
    }

    /// What COPY says behind WHERE, where the parser has no place for it: takes it off. 42601.
    fn copy_condition(&self, tokens: &mut Vec<TokenWithSpan>, end: usize) -> Result<Option<Box<ast::Expr>>> {
        if !rewrite::is(tokens.first(), "COPY") {
            return Ok(None);
        }
        let mut depth = 0_i32;
        let is_condition = |token: &TokenWithSpan| {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            depth == 0 && rewrite::is(Some(token), "WHERE")
        };
        let Some(at) = tokens.iter().position(is_condition) else { return Ok(None) };
        let from = self.places.byte(tokens[at].span.end);
        tokens.truncate(at);
        let text = self.source.get(from..end).unwrap_or_default();
        let condition = parse_part(text, SHALLOW, |parser| parser.parse_expr());
        condition.map(|condition| Some(condition.into())).map_err(|mut error| {
            // It is a place in the part.
            error.position = None;
            error
        })
    }

    /// What the tokens of one statement say, which ends at `end`, and a bound on the depth of that.
    fn command(&self, tokens: Vec<TokenWithSpan>, notes: &mut Notes, end: usize) -> Result<(Command, usize)> {
        let Some(parts) = schema::cut(&tokens) else { return self.one_command(tokens, notes, end) };
        let (mut commands, mut depth) = (Vec::with_capacity(parts.len()), 0);
        for part in parts {
            match self.one_command(part, notes, end) {
                Ok((command, complexity)) => {
                    depth = depth.max(complexity);
                    commands.push(command);
                }
                Err(error) => {
                    // Those before may be deep.
                    on_large_stack(depth, || drop(commands));
                    return Err(error);
                }
            }
        }
        let elements = commands.split_off(commands.len().min(1));
        let schema = commands.pop().unwrap_or(Command::Empty);
        Ok((Command::CreateSchema(Box::new(CreateSchema { schema, elements })), depth))
    }

    fn one_command(
        &self,
        tokens: Vec<TokenWithSpan>,
        notes: &mut Notes,
        end: usize,
    ) -> Result<(Command, usize)> {
        let (source, places) = (&self.source, &self.places);
        let tokens = rewrite::rewrite(tokens, notes)?;
        places::check(&tokens, places)?;
        let complexity = complexity::check(&tokens)?;
        let dialect = CognateDialect::for_tokens(&tokens).interrupted_by(self.interrupt.clone());
        let end_of_text = places.at_end(source.len() == end || source[end..].trim().is_empty());
        // Also for the part of a tree that is dropped when the rest does not parse.
        let parsed = on_large_stack(complexity, || {
            let mut parser = Parser::new(&dialect)
                .with_recursion_limit(complexity::LIMIT)
                .with_tokens_with_locations(tokens);
            let parsed = command::parse(&mut parser).and_then(|command| {
                if parser.peek_token_ref().token == Token::EOF {
                    Ok(command)
                } else {
                    parser.expected_ref("end of statement", parser.peek_token_ref())
                }
            });
            match parsed.map_err(|failure| error::located(failure, &parser)) {
                Err(ParserError::ParserError(error)) => match refused::name(&parser.into_tokens()) {
                    Some(name) => Ok(Command::Unsupported(name)),
                    None => Err(ParserError::ParserError(error)),
                },
                Ok(command) if foreign::is_foreign(&command) => foreign::read(&parser.into_tokens()),
                parsed => parsed,
            }
        });
        if let Some(error) = dialect.interrupted() {
            return Err(error);
        }
        let command =
            dialect.verdict(parsed).map_err(|error| places.parser_error_at(&error, end_of_text, end))?;
        let command = match command {
            Command::Sql(sql) => match mip::from_query(&sql)? {
                Some((operation, arguments)) => Command::Mip(operation, arguments),
                None => Command::Sql(sql),
            },
            command => command,
        };
        Ok((command, complexity))
    }
}

/// Whether a whitespace token is a line break, which joins string literals.
fn is_line_break(token: &Token) -> bool {
    matches!(token, Token::Whitespace(Whitespace::Newline))
}

#[cfg(test)]
mod tests;
