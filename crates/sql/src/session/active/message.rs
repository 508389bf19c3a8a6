//! A message of several statements that is one transaction: what stands around its statements, and
//! what it says first of how they come to the other nodes.
//!
//! ```text
//! BEGIN;   SET LOCAL cognate.replication = active;   UPDATE …; INSERT …;   COMMIT
//! begin    said                                      statements            commit
//! ```
//!
//! None of what stands around needs to be executed by others: it says what is so anyway, or by
//! which protocol and at which isolation level the statements go, and that is known before they do.

use cognate_engine::Isolation;
use sqlparser::ast;

use super::super::modes::isolation;
use super::super::replication::Choice;
use super::super::variable::{list_text, object_name};
use super::{Statement, fitness};
use crate::parse::Command;

/// See the module's prose.
pub(super) struct Message<'a> {
    /// BEGIN, if it and a COMMIT are around all, and what is said first.
    pub(super) before: Vec<&'a Statement>,
    /// What is said of the isolation level.
    pub(super) isolation: Option<Isolation>,
    /// What is said of the protocol.
    pub(super) said: Option<Said<'a>>,
    /// All others.
    pub(super) statements: &'a [Statement],
    pub(super) commit: Option<&'a Statement>,
}

/// SET cognate.replication.
pub(super) struct Said<'a> {
    pub(super) choice: Choice,
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
        let mut said = None;
        while let [first, rest @ ..] = statements {
            if said.is_none()
                && let Some(one) = Said::of(first)
            {
                said = Some(one);
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
        Message { before, isolation, said, statements, commit }
    }
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

impl<'a> Said<'a> {
    fn of(statement: &'a Statement) -> Option<Said<'a>> {
        let Command::Sql(sql) = &statement.command else { return None };
        let ast::Statement::Set(set) = sql.as_ref() else { return None };
        let ast::Set::SingleAssignment { scope, variable, values, .. } = set else { return None };
        let name = object_name(variable).ok().filter(|name| name == "cognate.replication")?;
        let value = list_text(&name, values).ok().flatten()?;
        let choice = Choice::named(&value.to_ascii_lowercase())?;
        let is_local = matches!(scope, Some(ast::ContextModifier::Local));
        Some(Said { choice, is_local, set, statement })
    }
}
