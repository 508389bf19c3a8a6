//! A message of several statements that is one transaction: what stands around its statements, and
//! what it says first of how they come to the other nodes.
//!
//! ```text
//! BEGIN;   SET LOCAL cognate.replication = active;   UPDATE …; INSERT …;   COMMIT
//! begin    said                                      statements            commit
//! ```
//!
//! None of what stands around needs to be executed by others: it says what is so anyway, or by
//! which protocol, at which isolation level and under which name the statements go, and that is
//! known before they do.

use cognate_engine::Isolation;
use sqlparser::ast;

use super::super::modes::isolation;
use super::super::replication::Choice;
use super::super::statement::tag;
use super::super::variable::{list_text, object_name};
use super::{Statement, fitness};
use crate::error::Result;
use crate::parse::Command;

/// See the module's prose.
pub(super) struct Message<'a> {
    /// BEGIN, if it and a COMMIT are around all, and what is said first.
    pub(super) before: Vec<&'a Statement>,
    /// What is said of the isolation level.
    pub(super) isolation: Option<Isolation>,
    /// What is said of the protocol.
    pub(super) said: Option<Said<'a, Choice>>,
    /// What is said of the request's name.
    pub(super) request: Option<Said<'a, String>>,
    /// All others.
    pub(super) statements: &'a [Statement],
    pub(super) commit: Option<&'a Statement>,
}

/// SET of what concerns the message as a whole.
pub(super) struct Said<'a, T> {
    pub(super) value: T,
    /// For this transaction only.
    pub(super) is_local: bool,
    pub(super) set: &'a ast::Set,
    pub(super) statement: &'a Statement,
}

impl<'a> Message<'a> {
    pub(super) fn of(all: &'a [Statement]) -> Message<'a> {
        let whole = match all {
            [begin, inner @ .., commit] if fitness::is_plain_commit(commit) => {
                level_of_begin(begin).map(|isolation| (vec![begin], isolation, inner, Some(commit)))
            }
            _ => None,
        };
        let (mut before, mut isolation, mut statements, commit) =
            whole.unwrap_or_else(|| (Vec::new(), None, all, None));
        let (mut said, mut request) = (None, None);
        let choice = |value: String| Choice::named(&value.to_ascii_lowercase());
        while let [first, rest @ ..] = statements {
            if said.is_none()
                && let Some(one) = Said::of(first, "cognate.replication", choice)
            {
                said = Some(one);
            } else if request.is_none()
                && let Some(one) = Said::of(first, "cognate.request_id", Some)
            {
                request = Some(one);
            } else if commit.is_some()
                && let Some(level) = level_of_set(first)
            {
                isolation = level.or(isolation);
            } else {
                break;
            }
            before.push(first);
            statements = rest;
        }
        Message { before, isolation, said, request, statements, commit }
    }
}

/// What a statement is called that ends a block otherwise than by a plain COMMIT; none if it is
/// another one.
fn other_end(statement: &Statement) -> Option<&'static str> {
    let sql = match &statement.command {
        Command::Sql(sql) => sql.as_ref(),
        Command::PrepareTransaction(_) => return Some(tag(&statement.command)),
        _ => return None,
    };
    match sql {
        ast::Statement::Commit { chain: true, .. } => Some("COMMIT AND CHAIN"),
        ast::Statement::Rollback { chain: true, savepoint: None } => Some("ROLLBACK AND CHAIN"),
        ast::Statement::Rollback { chain: false, savepoint: None } => Some("ROLLBACK"),
        _ => None,
    }
}

/// 0A000 for a block that ends otherwise than by COMMIT. It says so by what is in the way, and not
/// by the BEGIN before it.
pub(super) fn check_end(all: &[Statement]) -> Result<()> {
    let [begin, rest @ ..] = all else { return Ok(()) };
    let end = level_of_begin(begin).and_then(|_| rest.iter().find_map(other_end));
    end.map_or(Ok(()), |end| Err(fitness::unfit(end)))
}

/// The isolation level that BEGIN names, if it names one; nothing if the statement is another one,
/// or says more of its transaction.
fn level_of_begin(statement: &Statement) -> Option<Option<Isolation>> {
    let Command::Sql(sql) = &statement.command else { return None };
    match sql.as_ref() {
        ast::Statement::StartTransaction { modes, .. } => level_of(statement, modes),
        _ => None,
    }
}

/// The same of SET TRANSACTION.
fn level_of_set(statement: &Statement) -> Option<Option<Isolation>> {
    let Command::Sql(sql) = &statement.command else { return None };
    match sql.as_ref() {
        ast::Statement::Set(ast::Set::SetTransaction { modes, snapshot: None, session: false }) => {
            level_of(statement, modes)
        }
        _ => None,
    }
}

fn level_of(statement: &Statement, modes: &[ast::TransactionMode]) -> Option<Option<Isolation>> {
    if statement.deferrable.is_some() {
        return None;
    }
    let mut named = None;
    for mode in modes {
        match mode {
            ast::TransactionMode::IsolationLevel(level) => named = Some(isolation(level).ok()?),
            ast::TransactionMode::AccessMode(ast::TransactionAccessMode::ReadWrite) => {}
            ast::TransactionMode::AccessMode(ast::TransactionAccessMode::ReadOnly) => return None,
        }
    }
    Some(named)
}

/// Whether a message begins a transaction that must not write, by BEGIN or by SET TRANSACTION
/// behind it: it is told so where it is.
pub(in crate::session) fn is_read_only(all: &[Statement]) -> bool {
    let mut is_read_only = false;
    for (place, statement) in all.iter().enumerate() {
        let Command::Sql(sql) = &statement.command else { break };
        let modes = match sql.as_ref() {
            ast::Statement::StartTransaction { modes, .. } if place == 0 => modes,
            ast::Statement::Set(set) if place > 0 => match set {
                ast::Set::SetTransaction { modes, session: false, .. } => modes,
                _ => continue,
            },
            _ => break,
        };
        for mode in modes {
            if let ast::TransactionMode::AccessMode(access) = mode {
                is_read_only = matches!(access, ast::TransactionAccessMode::ReadOnly);
            }
        }
    }
    is_read_only
}

impl<'a, T> Said<'a, T> {
    /// What a statement says of a setting, if it does, and that is a value of it.
    fn of(
        statement: &'a Statement,
        setting: &str,
        value: impl FnOnce(String) -> Option<T>,
    ) -> Option<Said<'a, T>> {
        let Command::Sql(sql) = &statement.command else { return None };
        let ast::Statement::Set(set) = sql.as_ref() else { return None };
        let ast::Set::SingleAssignment { scope, variable, values, .. } = set else { return None };
        let name = object_name(variable).ok().filter(|name| name == setting)?;
        let value = value(list_text(&name, values).ok().flatten()?)?;
        let is_local = matches!(scope, Some(ast::ContextModifier::Local));
        Some(Said { value, is_local, set, statement })
    }
}
