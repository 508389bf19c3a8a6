//! DO: runs a block of PL/pgSQL (`crate::plpgsql`), in the transaction that is open, or in that of
//! the statement.
//!
//! Each SQL statement of the block is planned and run like one of the client's, as those of a
//! routine are (`session::routine`); expressions are run as SELECTs. The variables are their
//! parameters. They are planned each time that they come: variables have types, but EXECUTE and DDL
//! between change what names mean.
//!
//! A block with handlers is a savepoint. What fails in it is undone, the variables keep their
//! values, and the first handler that is for the error goes on:
//!
//! ```text
//! BEGIN                                              savepoint
//!     INSERT INTO t VALUES (1);                      23505
//! EXCEPTION WHEN unique_violation THEN               rollback to it; SQLERRM and SQLSTATE say what it was
//!     UPDATE t SET n = n + 1 WHERE id = 1;
//! END;
//! ```
//!
//! No handler is for what says something of other transactions or of the server: 40001 and 40P01
//! (the statement, the block, or the client's transaction is run again as a whole, where in
//! PostgreSQL a handler could go on at a snapshot that cannot win any more), cancelling and time
//! limits, damage, a full disk. A block with such an error fails as a whole.

mod control;
mod raising;
mod variables;

use std::sync::Arc;

use sqlparser::ast::Ident;

use super::again::moves;
use super::interrupt;
use super::portal::PortalState;
use super::routine::{Rows, on_enough_stack};
use super::statement::{controls_transaction, tag};
use super::{Action, CommandTag, Fetch, Portal, Prepared, Session, Statement};
use crate::error::{Result, SqlError, sqlstate};
use crate::function::Interrupt as _;
use crate::identifier::fold;
use crate::parse::{self, Command};
use crate::plpgsql::{self, Into};
use crate::routine::{DEPTH_MAX, Scope, too_deep};
use crate::types::{Datum, Type};
use variables::Variables;

/// What PostgreSQL calls the function that a DO block is.
const NAME: &str = "inline_code_block";

/// Statements that say by FOUND whether they had rows. Others leave it as it is, and so does
/// EXECUTE.
const FINDING: &[&str] = &["SELECT", "INSERT", "UPDATE", "DELETE", "MERGE"];

/// A block that runs.
struct Running {
    variables: Variables,
    /// So many calls and blocks are around its statements.
    depth: usize,
    /// Of the last statement.
    row_count: i64,
    /// The errors that are handled, the innermost last.
    handled: Vec<SqlError>,
    /// The error that goes up says in which statement of the block it arose.
    placed: bool,
}

/// What a statement gave.
struct Answer {
    columns: Vec<(String, Type)>,
    rows: Vec<Vec<Datum>>,
    /// Rows that it gave or changed.
    count: u64,
    is_query: bool,
}

/// How many rows of a statement are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// All are dropped.
    None,
    /// All are computed and counted, and the first is kept.
    First,
    /// At most so many.
    Most(u64),
    All,
}

/// What a text is, for the errors that say where they arose.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Text {
    Statement,
    Expression,
}

impl Session {
    /// Runs the block of a DO; all of it again where a statement of it met what is newer and could
    /// not be run again by itself, for what the block has read before. Not if it has executed what
    /// has no plan: more may be left of that than writes.
    pub(super) async fn start_inline(
        &mut self,
        language: Option<&Ident>,
        code: Option<&str>,
        depth: usize,
    ) -> Result<()> {
        let again = self.again_inline();
        let mut left = moves(self.effective.statement_retries);
        let (taken, released) = (self.facts.advisory.begin_statement(), self.facts.advisory.releases());
        let (told, settings) = (self.facts.news.mark(), self.facts.mark());
        let (noticed, unplanned) = (self.notices.len(), self.unplanned);
        loop {
            match Box::pin(self.run_inline(language, code, depth)).await {
                Err(error)
                    if left > 0
                        && again.is_for(&error)
                        && self.unplanned == unplanned
                        && self.facts.advisory.releases() == released =>
                {
                    self.interrupts.check()?;
                    left = left.saturating_sub(again.costs(&error));
                    self.facts.advisory.undo_to(taken);
                    self.facts.news.undo(told);
                    self.undo_settings(Some(&settings));
                    self.notices.truncate(noticed);
                    Box::pin(self.begin_again(error, again)).await?;
                }
                ran => {
                    if ran.is_ok() {
                        self.keep(again);
                    }
                    return ran;
                }
            }
        }
    }

    /// Runs the block of a DO. `depth` is the number of calls and blocks around it.
    async fn run_inline(&mut self, language: Option<&Ident>, code: Option<&str>, depth: usize) -> Result<()> {
        if let Some(language) = language {
            check_language(&fold(language))?;
        }
        let code = code.ok_or_else(|| SqlError::syntax("no inline code specified"))?;
        if depth >= DEPTH_MAX {
            return Err(too_deep());
        }
        // Its pieces are far larger than its text, and read at once.
        let bytes = code.len() * plpgsql::PIECE_BYTES;
        let _charge = self.database.statement_budget().charge(bytes, "A DO block")?;
        let block = plpgsql::read(code).map_err(|mut error| {
            error.position = None;
            error
        })?;
        let mut running = Running {
            variables: Variables::new(),
            depth: depth + 1,
            row_count: 0,
            handled: Vec::new(),
            placed: false,
        };
        on_enough_stack(self.run_block(&block, &mut running)).await.map(drop)
    }

    /// Reads a text of the block, or one that was made while it runs, as a client's is read: its
    /// tree takes memory that statements share.
    pub(super) fn read_text(&self, text: &str) -> Result<Vec<Statement>> {
        interrupt::step_aside_for(text);
        without_position(parse::parse_within(text, || self.limits()))
    }

    /// Runs an SQL statement of the block.
    async fn run_sql(&mut self, text: &str, into: Option<&Into>, running: &mut Running) -> Result<()> {
        let statement = self.read_text(text).and_then(single)?;
        let noticed = self.notices.len();
        let word = tag(&statement.command);
        let most = into.map(|into| wanted(into, word));
        let answer = self.run_parsed(statement, most, running).await?;
        if FINDING.contains(&word) {
            running.variables.set_found(answer.count > 0);
        }
        for notice in self.notices.iter_mut().skip(noticed) {
            add_context(notice, format!("SQL statement \"{text}\""));
        }
        self.take_answer(answer, into, running)
    }

    /// Runs the statements of a text that was made while the block runs.
    async fn run_dynamic(
        &mut self,
        text: &str,
        into: Option<&Into>,
        using: &[(Datum, Type)],
        running: &mut Running,
    ) -> Result<()> {
        let statements = self.read_text(text)?;
        let (last, mut is_query) = (statements.len(), false);
        for (place, mut statement) in statements.into_iter().enumerate() {
            statement.has_company = false;
            let into = into.filter(|_| place + 1 == last);
            let most = into.map_or(Wanted::None, |into| match into.strict {
                true => Wanted::Most(2),
                false => Wanted::First,
            });
            let answer = self.run_with(statement, (Text::Statement, most), using, running.depth).await?;
            (running.row_count, is_query) = (answer.count as i64, answer.is_query);
            if let Some(into) = into.filter(|_| is_query) {
                if into.strict && answer.rows.len() > 1 {
                    return Err(too_many_rows()?);
                }
                let count = running.row_count;
                self.take_answer(answer, Some(into), running)?;
                running.row_count = count;
            }
        }
        if into.is_some() && !is_query { Err(no_rows_to_take()) } else { Ok(()) }
    }

    /// A query's rows.
    async fn query(&mut self, text: &str, running: &Running, wanted: (Text, Wanted)) -> Result<Answer> {
        let statement = self.read_text(text).and_then(single)?;
        let answer = self.run_in_scope(statement, wanted, running).await?;
        match answer.is_query {
            true => Ok(answer),
            false => Err(SqlError::syntax("query is not a SELECT")),
        }
    }

    async fn run_parsed(
        &mut self,
        statement: Statement,
        wanted: Option<Wanted>,
        running: &Running,
    ) -> Result<Answer> {
        let word = tag(&statement.command);
        let answer = self.run_in_scope(statement, (Text::Statement, wanted.unwrap_or(Wanted::None)), running);
        let answer = answer.await?;
        // PostgreSQL runs it first, too: what it did goes with the block.
        if wanted.is_none() && answer.is_query && word != "CALL" {
            let error = SqlError::syntax("query has no destination for result data");
            return Err(match word {
                "SELECT" => {
                    error.with_hint("If you want to discard the results of a SELECT, use PERFORM instead.")
                }
                _ => error,
            });
        }
        if wanted.is_some() && !answer.is_query {
            return Err(no_rows_to_take());
        }
        Ok(answer)
    }

    /// Runs a statement that sees the variables.
    async fn run_in_scope(
        &mut self,
        mut statement: Statement,
        wanted: (Text, Wanted),
        running: &Running,
    ) -> Result<Answer> {
        let (scope, parameters) = running.variables.scope();
        statement.scope = Some(Arc::new(scope));
        statement.has_company = false;
        self.run_with(statement, wanted, &parameters, running.depth).await
    }

    async fn run_with(
        &mut self,
        mut statement: Statement,
        (what, most): (Text, Wanted),
        parameters: &[(Datum, Type)],
        depth: usize,
    ) -> Result<Answer> {
        self.interrupts().check()?;
        self.check_notices()?;
        check_command(&statement)?;
        super::utility::check_stored_depth(&statement)?;
        if statement.scope.is_none() {
            // A text that EXECUTE runs has the parameters that USING gives, and no more.
            statement.scope = Some(Arc::new(Scope::of_numbers(parameters.iter().map(|(_, ty)| *ty))));
        }
        let declared = parameters.iter().map(|(_, ty)| Some(*ty)).collect();
        let prepared = without_position(self.plan_prepared(Some(statement), declared))?;
        let prepared: Arc<Prepared> = prepared.into();
        match prepared.planned().action {
            Action::Empty => return Err(SqlError::syntax("an empty query cannot be executed")),
            // A block within counts what it executes itself.
            Action::Utility if !is_block(&prepared) => self.unplanned += 1,
            _ => {}
        }
        let values: Arc<[Datum]> = parameters.iter().map(|(value, _)| value.clone()).collect();
        let columns = prepared.columns().unwrap_or_default();
        let columns = columns.iter().map(|column| (column.name.clone(), column.ty)).collect();
        let is_query = prepared.columns().is_some();
        let mut portal = Portal::new(prepared, values, Vec::new());
        portal.depth = depth;
        let mut sink = match most {
            Wanted::First => Rows::first(self.memory_limit, 1),
            most => Rows::new(self.memory_limit, most != Wanted::None),
        };
        let limit = if let Wanted::Most(rows) = most { rows } else { 0 };
        let ran = self.run_statement(&mut portal, &mut sink, limit).await;
        let fetch = ran.map_err(|error| within(error, &portal.prepared, what))?;
        let count = match fetch {
            Fetch::Complete(CommandTag::Rows(_, rows) | CommandTag::Insert(rows)) => rows,
            Fetch::CopyIn(_) | Fetch::CopyOut(_) => return Err(no_copy()),
            _ => sink.count,
        };
        debug_assert!(!matches!(portal.state, PortalState::Ready));
        Ok(Answer { columns, rows: std::mem::take(&mut sink.rows), count, is_query })
    }

    /// INTO, and what the block knows of its last statement.
    fn take_answer(&mut self, answer: Answer, into: Option<&Into>, running: &mut Running) -> Result<()> {
        running.row_count = answer.count as i64;
        let Some(into) = into else { return Ok(()) };
        if answer.rows.is_empty() && into.strict {
            return Err(SqlError::new(plpgsql::named("no_data_found")?, "query returned no rows"));
        }
        if answer.rows.len() > 1 {
            let hint = "Make sure the query returns a single row, or use LIMIT 1.";
            return Err(too_many_rows()?.with_hint(hint));
        }
        running.row_count = i64::from(!answer.rows.is_empty());
        let row = answer.rows.into_iter().next();
        running.variables.assign_row(&into.targets, &answer.columns, row, &self.format)
    }
}

/// Whether a statement is a DO.
fn is_block(prepared: &Prepared) -> bool {
    prepared.statement().is_some_and(|statement| matches!(statement.command, Command::Do { .. }))
}

/// A second row is asked for where it would be an error: with STRICT, and of what changes rows.
fn wanted(into: &Into, word: &str) -> Wanted {
    if into.strict || word != "SELECT" { Wanted::Most(2) } else { Wanted::Most(1) }
}

/// What is wrong with a text of the block's has no position in the client's.
fn without_position<T>(result: Result<T>) -> Result<T> {
    result.map_err(|mut error| {
        error.position = None;
        error
    })
}

/// Says which statement has failed while it ran; expressions are told by the statement of the
/// block.
fn within(mut error: SqlError, prepared: &Prepared, what: Text) -> SqlError {
    error.position = None;
    if let Some(statement) = prepared.statement().filter(|_| what == Text::Statement) {
        add_context(&mut error, format!("SQL statement \"{}\"", statement.text));
    }
    error
}

/// Adds what is around to what an error or notice says of where it arose.
fn add_context(error: &mut SqlError, around: String) {
    error.context = Some(match error.context.take() {
        Some(context) => format!("{context}\n{around}"),
        None => around,
    });
}

fn single(mut statements: Vec<Statement>) -> Result<Statement> {
    match (statements.pop(), statements.is_empty()) {
        (Some(statement), true) => Ok(statement),
        _ => Err(SqlError::syntax("a statement of a block is one statement")),
    }
}

/// P0003.
fn too_many_rows() -> Result<SqlError> {
    Ok(SqlError::new(plpgsql::named("too_many_rows")?, "query returned more than one row"))
}

fn no_rows_to_take() -> SqlError {
    SqlError::syntax("INTO used with a command that cannot return data")
}

fn no_copy() -> SqlError {
    SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, "cannot COPY to/from client in PL/pgSQL")
}

fn check_language(language: &str) -> Result<()> {
    match language {
        "plpgsql" => Ok(()),
        "sql" | "c" | "internal" => Err(SqlError::new(
            sqlstate::FEATURE_NOT_SUPPORTED,
            format!("language \"{language}\" does not support inline code execution"),
        )),
        _ => {
            Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("language \"{language}\" does not exist")))
        }
    }
}

/// 0A000 for what no block can do.
fn check_command(statement: &Statement) -> Result<()> {
    let words = tag(&statement.command);
    let is_prepared = matches!(statement.command, Command::CommitPrepared(_) | Command::RollbackPrepared(_));
    if controls_transaction(words) || is_prepared {
        let message = "unsupported transaction command in PL/pgSQL";
        return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
    }
    match &statement.command {
        Command::Mip(..) | Command::Fetch { .. } => {
            Err(SqlError::unsupported(format!("{words} in a DO block")))
        }
        _ => match words {
            "COPY" => Err(no_copy()),
            "DECLARE CURSOR" | "CLOSE CURSOR" | "EXECUTE" => {
                Err(SqlError::unsupported(format!("{words} in a DO block")))
            }
            _ => Ok(()),
        },
    }
}
