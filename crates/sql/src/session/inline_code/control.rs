//! The statements of a block, one after the other: blocks, branches, loops.

use std::future::Future;
use std::pin::Pin;

use super::variables::convert;
use super::{NAME, Running, Text, Wanted, add_context};
use crate::bind::resolve_type;
use crate::catalog::Relation;
use crate::error::{Result, SqlError, sqlstate};
use crate::function::Interrupt as _;
use crate::plpgsql::{self, Block, Declaration, Declared, Over, Step, What};
use crate::session::Session;
use crate::session::routine::on_enough_stack;
use crate::types::{Datum, Type, TypeId};

/// The name of a block's savepoint. No client can write it.
const SAVEPOINT: &str = "\u{1}block";

/// How it goes on behind a statement.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flow {
    On,
    /// Behind the loop or block of this label, or the innermost loop.
    Exit(Option<String>),
    /// With the next turn of it.
    Continue(Option<String>),
    Return,
}

/// What a loop does after a turn.
enum Turn {
    Next,
    Leave,
    /// What is around it does something else.
    Out(Flow),
}

/// What becomes of a loop of this label.
fn turn(flow: Flow, label: Option<&String>) -> Turn {
    let is_mine = |meant: &Option<String>| meant.is_none() || meant.as_ref() == label;
    match flow {
        Flow::On => Turn::Next,
        Flow::Exit(meant) if is_mine(&meant) => Turn::Leave,
        Flow::Continue(meant) if is_mine(&meant) => Turn::Next,
        flow => Turn::Out(flow),
    }
}

type Going<'a> = Pin<Box<dyn Future<Output = Result<Flow>> + Send + 'a>>;

impl Session {
    /// Runs a block.
    pub(super) fn run_block<'a>(&'a mut self, block: &'a Block, running: &'a mut Running) -> Going<'a> {
        Box::pin(async move {
            let outer = running.variables.count();
            let ran = self.run_declared(block, running).await;
            running.variables.truncate(outer);
            match ran? {
                Flow::Exit(Some(label)) if block.label.as_ref() == Some(&label) => Ok(Flow::On),
                flow => Ok(flow),
            }
        })
    }

    async fn run_declared(&mut self, block: &Block, running: &mut Running) -> Result<Flow> {
        for declaration in &block.variables {
            let declared = self.declare_variable(block, declaration, running).await;
            let what = "during statement block local variable initialization";
            declared.map_err(|error| at_line(error, running, declaration.line, what))?;
        }
        if block.handlers.is_empty() {
            return self.run_steps(&block.body, running).await;
        }
        let declared = running.variables.count();
        let savepoint = self.set_savepoint(SAVEPOINT.to_owned())?;
        let error = match self.run_steps(&block.body, running).await {
            Ok(flow) => {
                self.release_savepoint(savepoint);
                return Ok(flow);
            }
            Err(error) => error,
        };
        let mut handlers = block.handlers.iter();
        let handler = handlers.find(|handler| plpgsql::matches(&handler.conditions, error.sqlstate));
        let handler = handler.filter(|_| super::raising::is_of_the_block(&error));
        let has_savepoint = self.can_undo_to(savepoint);
        let Some(handler) = handler.filter(|_| has_savepoint) else {
            self.leave_savepoint(savepoint);
            return Err(error);
        };
        running.placed = false;
        self.undo_to_savepoint(savepoint);
        self.release_savepoint(savepoint);
        running.variables.truncate(declared);
        let text = |text: &str| Datum::Text(text.into());
        let plain = (false, false);
        let (message, state) = (text(&error.message), text(error.sqlstate));
        let label = block.label.as_deref();
        running.variables.declare(label, "sqlerrm", TypeId::Text.into(), plain, message)?;
        running.variables.declare(label, "sqlstate", TypeId::Text.into(), plain, state)?;
        running.handled.push(error);
        let ran = self.run_steps(&handler.body, running).await;
        running.handled.pop();
        ran
    }

    /// Whether the transaction is still there, with its savepoint, and nobody has overtaken it.
    fn can_undo_to(&self, savepoint: usize) -> bool {
        self.open
            .as_ref()
            .is_some_and(|open| open.state.savepoints.len() > savepoint && open.engine.check_member().is_ok())
    }

    /// Nothing of the block goes back to its savepoint any more: what fails with it is all that is
    /// around. Were it left, a failed transaction would keep what it holds for who could go back.
    fn leave_savepoint(&mut self, savepoint: usize) {
        if self.open.as_ref().is_some_and(|open| open.state.savepoints.len() > savepoint) {
            self.release_savepoint(savepoint);
        }
    }

    async fn declare_variable(
        &mut self,
        block: &Block,
        declaration: &Declaration,
        running: &mut Running,
    ) -> Result<()> {
        let (label, name) = (block.label.as_deref(), declaration.name.as_str());
        let ty = match &declaration.ty {
            Declared::Type(data_type) => refuse_domain(resolve_type(data_type, &self.format)?)?,
            Declared::Like(names) => refuse_domain(self.type_like(names, running)?)?,
            Declared::Record(of) => {
                if declaration.default.is_some() {
                    return Err(SqlError::unsupported("a record with a default"));
                }
                let fields = of.as_ref().map(|names| self.fields_of(names)).transpose()?;
                running.variables.declare_record(label, name, fields);
                return Ok(());
            }
        };
        if ty.id.is_pseudo() || ty.id == TypeId::Unknown {
            let message = format!("variable \"{name}\" has pseudo-type {}", ty.id.sql_name());
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
        }
        let value = match &declaration.default {
            Some(expression) => self.value_as(expression, ty, running).await?,
            None => Datum::Null,
        };
        let kept = (declaration.constant, declaration.not_null);
        running.variables.declare(label, name, ty, kept, value)
    }

    fn type_like(&mut self, names: &[String], running: &Running) -> Result<Type> {
        let (table, column) = match names {
            [variable] => return running.variables.type_of(variable),
            [table @ .., column] => (table, column),
            [] => return Err(SqlError::internal("a type like nothing")),
        };
        let fields = self.fields_of(table)?;
        let field = fields.into_iter().find(|(name, _)| name == column);
        field.map(|(_, ty)| ty).ok_or_else(|| {
            SqlError::new(
                sqlstate::UNDEFINED_COLUMN,
                format!("column \"{column}\" of relation \"{}\" does not exist", table.join(".")),
            )
        })
    }

    /// The columns of a table or view.
    fn fields_of(&mut self, names: &[String]) -> Result<Vec<(String, Type)>> {
        let catalog = self.catalog_with_state().0;
        let path = self.facts.lookup_path(&catalog);
        let found = match names {
            [name] => catalog.find(&path, None, name),
            [schema, name] => catalog.find(&path, Some(schema), name),
            _ => None,
        };
        columns(found).ok_or_else(|| {
            let message = format!("relation \"{}\" does not exist", names.join("."));
            SqlError::new(sqlstate::UNDEFINED_TABLE, message)
        })
    }

    /// Runs statements until one leads elsewhere.
    fn run_steps<'a>(&'a mut self, steps: &'a [Step], running: &'a mut Running) -> Going<'a> {
        Box::pin(on_enough_stack(Box::pin(async move {
            if steps.is_empty() {
                // Each step asks by itself. A loop without any has no end, or one that is far away.
                self.interrupts().check()?;
            }
            for step in steps {
                let noticed = self.notices.len();
                let flow = self.run_step(step, running).await;
                if !step.has_steps() {
                    for notice in self.notices.iter_mut().skip(noticed) {
                        add_context(notice, place(step.line, &format!("at {}", step.name())));
                    }
                }
                let at = || format!("at {}", step.name());
                match flow.map_err(|error| at_line(error, running, step.line, &at()))? {
                    Flow::On => {}
                    flow => return Ok(flow),
                }
            }
            Ok(Flow::On)
        })))
    }

    async fn run_step(&mut self, step: &Step, running: &mut Running) -> Result<Flow> {
        self.interrupts().check()?;
        match &step.what {
            What::Null => {}
            What::Block(block) => return self.run_block(block, running).await,
            What::Sql { text, into } => self.run_sql(text, into.as_ref(), running).await?,
            What::Perform(query) => {
                let answer =
                    self.query(&format!("SELECT {query}"), running, (Text::Statement, Wanted::None)).await?;
                running.variables.set_found(answer.count > 0);
                self.take_answer(answer, None, running)?;
            }
            What::Assign { target, expression } => {
                let (value, from) = self.value_of(expression, running).await?;
                running.variables.assign(target, value, from, &self.format)?;
            }
            What::Execute { command, into, using } => {
                let (text, values) = self.dynamic_text(command, using, running).await?;
                self.run_dynamic(&text, into.as_ref(), &values, running).await?;
            }
            What::If { branches, otherwise, is_case } => {
                for (condition, steps) in branches {
                    if self.is_true(condition, running).await? {
                        return self.run_steps(steps, running).await;
                    }
                }
                return match otherwise {
                    Some(steps) => self.run_steps(steps, running).await,
                    None if *is_case => {
                        Err(SqlError::new(plpgsql::named("case_not_found")?, "case not found")
                            .with_hint("CASE statement is missing ELSE part."))
                    }
                    None => Ok(Flow::On),
                };
            }
            What::Loop { label, over, body } => {
                return self.run_loop(label.as_ref(), over, body, running).await;
            }
            What::Exit { label, when } => {
                if self.is_time(when.as_deref(), running).await? {
                    return Ok(Flow::Exit(label.clone()));
                }
            }
            What::Continue { label, when } => {
                if self.is_time(when.as_deref(), running).await? {
                    return Ok(Flow::Continue(label.clone()));
                }
            }
            What::Return => return Ok(Flow::Return),
            What::Raise(raise) => self.raise(raise, running).await?,
            What::Diagnostics(items) => self.diagnose(items, running)?,
        }
        Ok(Flow::On)
    }

    async fn is_time(&mut self, when: Option<&str>, running: &Running) -> Result<bool> {
        match when {
            Some(condition) => self.is_true(condition, running).await,
            None => Ok(true),
        }
    }

    /// The text that EXECUTE is to run, and the values of USING.
    async fn dynamic_text(
        &mut self,
        command: &str,
        using: &[String],
        running: &Running,
    ) -> Result<(String, Vec<(Datum, Type)>)> {
        let text = self.text_of(command, running).await?.ok_or_else(|| {
            let message = "query string argument of EXECUTE is null";
            SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, message)
        })?;
        let mut values = Vec::new();
        for expression in using {
            values.push(self.value_of(expression, running).await?);
        }
        Ok((text, values))
    }

    async fn run_loop(
        &mut self,
        label: Option<&String>,
        over: &Over,
        body: &[Step],
        running: &mut Running,
    ) -> Result<Flow> {
        match over {
            Over::Nothing | Over::While(_) => loop {
                if let Over::While(condition) = over
                    && !self.is_true(condition, running).await?
                {
                    return Ok(Flow::On);
                }
                match turn(self.run_steps(body, running).await?, label) {
                    Turn::Next => {}
                    Turn::Leave => return Ok(Flow::On),
                    Turn::Out(flow) => return Ok(flow),
                }
            },
            Over::Integers { variable, reverse, from, to, by } => {
                let bounds = (from.as_str(), to.as_str(), by.as_deref());
                self.run_integers(label, (variable, *reverse, bounds), body, running).await
            }
            Over::Query { targets, query } => {
                let answer = self.query(query, running, (Text::Statement, Wanted::All)).await?;
                self.run_rows(label, targets, answer, body, running).await
            }
            Over::Execute { targets, command, using } => {
                let (text, values) = self.dynamic_text(command, using, running).await?;
                let statement = self.read_text(&text).and_then(super::single)?;
                let answer =
                    self.run_with(statement, (Text::Statement, Wanted::All), &values, running.depth).await?;
                self.run_rows(label, targets, answer, body, running).await
            }
        }
    }

    async fn run_integers(
        &mut self,
        label: Option<&String>,
        (variable, reverse, (from, to, by)): (&str, bool, (&str, &str, Option<&str>)),
        body: &[Step],
        running: &mut Running,
    ) -> Result<Flow> {
        let mut at = self.bound("lower", from, running).await?;
        let end = self.bound("upper", to, running).await?;
        let by = match by {
            Some(by) => self.bound("BY", by, running).await?,
            None => 1,
        };
        if by <= 0 {
            let message = "BY value of FOR loop must be greater than zero";
            return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
        }
        let outer = running.variables.count();
        let mut ran = Ok(Flow::On);
        let mut was_run = false;
        while if reverse { at >= end } else { at <= end } {
            was_run = true;
            let value = Datum::Int4(at);
            running.variables.declare(
                label.map(String::as_str),
                variable,
                TypeId::Int4.into(),
                (false, false),
                value,
            )?;
            let flow = self.run_steps(body, running).await;
            running.variables.truncate(outer);
            match flow.map(|flow| turn(flow, label)) {
                Ok(Turn::Next) => {}
                Ok(Turn::Leave) => break,
                Ok(Turn::Out(flow)) => {
                    ran = Ok(flow);
                    break;
                }
                Err(error) => return Err(error),
            }
            // The last turn may be that of the largest number there is.
            match if reverse { at.checked_sub(by) } else { at.checked_add(by) } {
                Some(next) => at = next,
                None => break,
            }
        }
        running.variables.set_found(was_run);
        ran
    }

    async fn bound(&mut self, which: &str, expression: &str, running: &Running) -> Result<i32> {
        let (value, ty) = self.value_of(expression, running).await?;
        match convert(value, ty, TypeId::Int4.into(), &self.format)? {
            Datum::Int4(bound) => Ok(bound),
            _ => {
                let what = if which == "BY" { "BY value".to_owned() } else { format!("{which} bound") };
                let message = format!("{what} of FOR loop cannot be null");
                Err(SqlError::new(sqlstate::NULL_VALUE_NOT_ALLOWED, message))
            }
        }
    }

    async fn run_rows(
        &mut self,
        label: Option<&String>,
        targets: &[String],
        answer: super::Answer,
        body: &[Step],
        running: &mut Running,
    ) -> Result<Flow> {
        if !answer.is_query {
            return Err(SqlError::syntax("cannot open a query that returns no rows as a cursor"));
        }
        let (was_run, mut ran) = (!answer.rows.is_empty(), Flow::On);
        if !was_run {
            // As INTO does with no row.
            running.variables.assign_row(targets, &answer.columns, None, &self.format)?;
        }
        for row in answer.rows {
            running.variables.assign_row(targets, &answer.columns, Some(row), &self.format)?;
            match turn(self.run_steps(body, running).await?, label) {
                Turn::Next => {}
                Turn::Leave => break,
                Turn::Out(flow) => {
                    ran = flow;
                    break;
                }
            }
        }
        running.variables.set_found(was_run);
        Ok(ran)
    }
}

fn columns(relation: Option<&Relation>) -> Option<Vec<(String, Type)>> {
    match relation? {
        Relation::Table(table) => {
            Some(table.visible_columns().map(|(_, column)| (column.name.clone(), column.ty)).collect())
        }
        Relation::View(view) => {
            Some(view.columns.iter().map(|column| (column.name.clone(), column.ty)).collect())
        }
        _ => None,
    }
}

/// 0A000 for a domain: nothing would see to its constraints.
fn refuse_domain(ty: Type) -> Result<Type> {
    match ty.domain_named() {
        Some(_) => Err(SqlError::unsupported("a variable of a domain")),
        None => Ok(ty),
    }
}

fn place(line: usize, what: &str) -> String {
    format!("PL/pgSQL function {NAME} line {line} {what}")
}

/// Says in which line of the block an error arose. The statements around that one say no more.
fn at_line(mut error: SqlError, running: &mut Running, line: usize, what: &str) -> SqlError {
    if !std::mem::replace(&mut running.placed, true) {
        add_context(&mut error, place(line, what));
    }
    error
}
