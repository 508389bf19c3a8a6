//! SET CONSTRAINTS: when the checks of constraints that are DEFERRABLE are made.
//!
//! A name is looked for as PostgreSQL does: in the schema that it is given with, or in those of the
//! search path, the first of which that has such constraints is meant; they may be of several
//! tables. What is not deferrable is immediate already.

use sqlparser::ast;

use crate::catalog::{Oid, Table, resolve_schema};
use crate::ddl::names::Qualified;
use crate::ddl::resolve::undefined_schema;
use crate::error::{Result, SqlError, sqlstate};
use crate::session::work::Work;
use crate::session::{Block, Session};

impl Session {
    /// SET CONSTRAINTS. What does not wait any more is looked at.
    pub(super) async fn set_constraints(
        &mut self,
        names: Option<&[ast::ObjectName]>,
        deferred: bool,
    ) -> Result<()> {
        if self.block != Block::Explicit {
            self.notices.push(SqlError::warning(
                sqlstate::NO_ACTIVE_SQL_TRANSACTION,
                "SET CONSTRAINTS can only be used in transaction blocks",
            ));
        }
        self.await_safe_snapshot().await?;
        self.open_ahead();
        let interrupts = self.interrupts();
        let mut work = self.work(&interrupts)?;
        work.set_constraints(names, deferred)?;
        if deferred { Ok(()) } else { work.run_due_checks().await }
    }
}

impl Work<'_> {
    fn set_constraints(&mut self, names: Option<&[ast::ObjectName]>, deferred: bool) -> Result<()> {
        let Some(names) = names else {
            self.state.all_deferred = Some(deferred);
            self.state.constraints_deferred.clear();
            return Ok(());
        };
        for name in names {
            let meant = self.constraints_named(&Qualified::from_object_name(name)?, deferred)?;
            self.state.constraints_deferred.extend(meant.into_iter().map(|oid| (oid, deferred)));
        }
        Ok(())
    }

    /// The constraints of this name that are deferrable. 42704 if there is none of the name, 42809
    /// if one that is not deferrable is to be deferred.
    fn constraints_named(&self, name: &Qualified, deferred: bool) -> Result<Vec<Oid>> {
        self.require_usage(name)?;
        let path = self.facts.lookup_path(&self.catalog);
        let schemas = match name.schema.as_deref() {
            Some(schema) if !self.is_schema(schema) => return Err(undefined_schema(schema)),
            Some(schema) => vec![resolve_schema(&path, schema).to_owned()],
            None => path,
        };
        for schema in &schemas {
            let tables = self.catalog.tables().filter(|table| table.schema_name == *schema);
            let tables = tables.filter(|table| !table.temporary || self.facts.temporary.is_own(table.schema));
            let found: Vec<(Oid, bool)> =
                tables.flat_map(|table| constraints_of(table, &name.name)).collect();
            if found.is_empty() {
                continue;
            }
            if deferred && found.iter().any(|(_, deferrable)| !deferrable) {
                let message = format!("constraint \"{}\" is not deferrable", name.name);
                return Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message));
            }
            let deferrable = found.into_iter().filter(|(_, deferrable)| *deferrable);
            return Ok(deferrable.map(|(oid, _)| oid).collect());
        }
        let message = format!("constraint \"{}\" does not exist", name.name);
        Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, message))
    }
}

/// The constraints of a table that have this name, and whether they are deferrable.
fn constraints_of(table: &Table, name: &str) -> Vec<(Oid, bool)> {
    let keys = table.foreign_keys.iter().filter(|key| key.name == name);
    let unique = table.indexes.iter().filter(|index| index.name == name);
    let checks = table.checks.iter().filter(|check| check.name == name);
    let mut found: Vec<(Oid, bool)> = keys.map(|key| (key.oid, key.deferrable)).collect();
    found.extend(unique.filter_map(|index| Some((index.constraint?, index.deferrable.is_some()))));
    found.extend(checks.map(|check| (check.oid, false)));
    found
}
