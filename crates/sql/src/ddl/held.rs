//! What a definition names is held until the definition is there.
//!
//! Whoever drops something looks in the catalog for what depends on it, and finds there what has
//! been committed. So who stores a query, an expression or a function holds first what it names, in
//! the way in which a column holds its type: a DROP waits, and looks again. If the DROP was first,
//! the definition waits, and what it names has gone.

use std::collections::BTreeSet;

use cognate_engine::{LockMode, TreeMode};
use cognate_syntax::change_types;
use sqlparser::ast;

use super::routine::lock_name;
use super::sequence::sequences_in;
use crate::bind::resolve_type;
use crate::catalog::{Oid, Relation};
use crate::error::{Result, SqlError, sqlstate};
use crate::session::work::Work;
use crate::types::Type;

/// 42704 for what went while it was waited for.
fn gone(what: &str) -> SqlError {
    SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("referenced {what} was concurrently dropped"))
}

impl Work<'_> {
    /// Keeps the types and sequences that an expression names as they are, before it is bound to be
    /// stored. What the names meant before a wait is asked again.
    pub(super) async fn hold_named(&mut self, syntax: &ast::Expr) -> Result<()> {
        let mut held = BTreeSet::new();
        loop {
            let new: Vec<Oid> = self.named_in(syntax).difference(&held).copied().collect();
            if new.is_empty() {
                return Ok(());
            }
            for oid in new {
                let is_type = self.catalog.user_type_by_oid(oid).is_some();
                self.hold_from_going(oid).await?;
                if is_type && self.catalog.user_type_by_oid(oid).is_none() {
                    return Err(gone("type"));
                }
                if !is_type && self.catalog.relation_by_oid(oid).is_none() {
                    return Err(gone("relation"));
                }
                held.insert(oid);
            }
        }
    }

    /// The types and sequences of users that an expression names, of those that there are. What is
    /// wrong with its other names is said where it is bound.
    fn named_in(&self, syntax: &ast::Expr) -> BTreeSet<Oid> {
        let mut named = BTreeSet::new();
        change_types(&mut syntax.clone(), |data_type| {
            let ty = resolve_type(data_type, self.format).ok();
            named.extend(ty.and_then(Type::user_type));
        });
        if let Ok(text) = self.fix_sequences(&syntax.to_string()) {
            named.extend(sequences_in(&text));
        }
        let is_there = |oid: &Oid| {
            self.catalog.user_type_by_oid(*oid).is_some() || self.catalog.relation_by_oid(*oid).is_some()
        };
        named.retain(is_there);
        named
    }

    /// Keeps a table or view as it is whose rows a new function gives.
    pub(super) async fn hold_row_type(&mut self, relation: Oid) -> Result<()> {
        self.hold_from_going(relation).await?;
        match self.catalog.relation_by_oid(relation) {
            Some(_) => Ok(()),
            None => Err(gone("type")),
        }
    }

    /// Keeps a relation, routine or type of users as it is.
    pub(super) async fn hold_from_going(&mut self, oid: Oid) -> Result<()> {
        match self.catalog.relation_by_oid(oid).cloned() {
            Some(Relation::Table(_) | Relation::Sequence(_)) => {
                return self.lock_table(oid, TreeMode::Read).await;
            }
            Some(Relation::View(view)) => {
                self.lock_table(oid, TreeMode::Read).await?;
                return self.lock_name_as(view.schema, &view.name, LockMode::Shared).await;
            }
            Some(Relation::Index(..)) | None => {}
        }
        if let Some(routine) = self.catalog.routine_by_oid(oid).cloned() {
            return self.lock_name_as(routine.schema, &lock_name(&routine.name), LockMode::Shared).await;
        }
        match self.catalog.user_type_by_oid(oid) {
            Some(ty) => self.lock_name_as(ty.schema(), ty.name(), LockMode::Shared).await,
            None => Ok(()),
        }
    }
}
