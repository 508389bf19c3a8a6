//! A message of several statements that is one transaction: what stands around its statements, and what it
//! says first of how they come to the other nodes.
//!
//! ```text
//! BEGIN;   SET LOCAL cognate.replication = active;   UPDATE …; INSERT …;   COMMIT
//! begin    said                                      statements            commit
//! ```
//!
//! None of what stands around needs to be executed by others: it says what is so anyway, and by which
//! protocol the statements go is known before they do.

use sqlparser::ast;

use super::super::replication::Choice;
use super::super::variable::{list_text, object_name};
use super::{Statement, fitness};
use crate::parse::Command;

/// See the module's prose.
pub(super) struct Message<'a> {
    /// BEGIN, if it and a COMMIT are around all.
    pub(super) begin: Option<&'a Statement>,
    /// What is said first.
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
        let (begin, inner, commit) = match all {
            [begin, inner @ .., commit] if fitness::is_plain_block(begin, commit) => {
                (Some(begin), inner, Some(commit))
            }
            all => (None, all, None),
        };
        let said = inner.first().and_then(Said::of);
        let statements = if said.is_some() { &inner[1..] } else { inner };
        Message { begin, said, statements, commit }
    }
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
