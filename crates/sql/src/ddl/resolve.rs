//! From names to objects, with PostgreSQL's errors.

use std::sync::Arc;

use cognate_engine::{LockMode, TreeMode};

use super::names::Qualified;
use super::temporary::of_another_session;
use crate::catalog::{Oid, Relation, Schema, Sequence, TEMPORARY_ALIAS, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::session::work::Work;

pub(crate) fn undefined_table(name: &Qualified) -> SqlError {
    SqlError::new(sqlstate::UNDEFINED_TABLE, format!("relation \"{}\" does not exist", name.display()))
}

pub(crate) fn undefined_schema(name: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"))
}

pub(crate) fn undefined_column(column: &str, table: &str) -> SqlError {
    SqlError::new(
        sqlstate::UNDEFINED_COLUMN,
        format!("column \"{column}\" of relation \"{table}\" does not exist"),
    )
}

pub(crate) fn duplicate_relation(name: &str) -> SqlError {
    SqlError::new(sqlstate::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"))
}

/// 42710 for a relation that would have the name of a type.
fn type_of_the_name(name: &str) -> SqlError {
    SqlError::new(sqlstate::DUPLICATE_OBJECT, format!("type \"{name}\" already exists")).with_hint(
        "A relation has an associated type of the same name, so you must use a name that doesn't conflict \
         with any existing type.",
    )
}

pub(crate) fn wrong_type(name: &str, expected: &str) -> SqlError {
    let article = if expected.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    SqlError::new(sqlstate::WRONG_OBJECT_TYPE, format!("\"{name}\" is not {article} {expected}"))
}

impl Work<'_> {
    /// Whether there is a schema of this name; `pg_temp` is that of the session's temporary
    /// objects.
    pub(crate) fn is_schema(&self, name: &str) -> bool {
        match name {
            TEMPORARY_ALIAS => self.facts.temporary.schema(&self.catalog).is_some(),
            name => self.catalog.schema(name).is_some(),
        }
    }

    /// The relation of this name, if there is one.
    pub(crate) fn find(&self, name: &Qualified) -> Option<Relation> {
        let path = self.facts.lookup_path(&self.catalog);
        self.catalog.find(&path, name.schema.as_deref(), &name.name).cloned()
    }

    /// The table of this name. 42P01, 42809, 0A000; 42501 in a schema that the session may not use.
    pub(crate) fn table(&self, name: &Qualified) -> Result<Arc<Table>> {
        self.require_usage(name)?;
        match self.find(name) {
            Some(Relation::Table(table)) if table.temporary && !self.facts.temporary.is_own(table.schema) => {
                Err(of_another_session())
            }
            Some(Relation::Table(table)) => Ok(table),
            Some(_) => Err(wrong_type(&name.name, "table")),
            None => Err(undefined_table(name)),
        }
    }

    /// The table of this name, locked in this mode. What the name means is asked again after a
    /// wait.
    pub(crate) async fn locked_table(&mut self, name: &Qualified, mode: TreeMode) -> Result<Arc<Table>> {
        loop {
            self.refresh_catalog();
            let table = self.table(name)?;
            self.lock_table(table.oid, mode).await?;
            let again = self.table(name)?;
            if again.oid == table.oid {
                self.state.is_temporary |= again.temporary;
                return Ok(again);
            }
        }
    }

    /// The sequence of this name. 42P01, 42809.
    pub(crate) fn sequence(&self, name: &Qualified) -> Result<Arc<Sequence>> {
        self.require_usage(name)?;
        match self.find(name) {
            Some(Relation::Sequence(sequence)) => Ok(sequence),
            Some(_) => Err(wrong_type(&name.name, "sequence")),
            None => Err(undefined_table(name)),
        }
    }

    /// Keeps a schema from going, and from getting another name, while something is made in it.
    /// 3F000 if that has happened. A schema of temporary objects is its session's alone.
    pub(crate) async fn hold_schema(&mut self, schema: &Schema) -> Result<()> {
        if schema.home.is_none() {
            self.lock_name_as(0, &schema.name, LockMode::Shared).await?;
        }
        match self.catalog.schema_by_oid(schema.oid) {
            Some(now) if now.name == schema.name => Ok(()),
            _ => Err(undefined_schema(&schema.name)),
        }
    }

    /// Takes a name in a schema for a new relation. 42P07 if it is in use.
    pub(crate) async fn claim_name(&mut self, schema: &Schema, name: &str) -> Result<()> {
        self.hold_schema(schema).await?;
        self.lock_name(schema.oid, name).await?;
        match self.catalog.relation(&schema.name, name) {
            Some(_) => Err(duplicate_relation(name)),
            None if self.catalog.user_type(&[], Some(&schema.name), name).is_some() => {
                Err(type_of_the_name(name))
            }
            None => Ok(()),
        }
    }

    /// 55006 for what makes a table another one while a cursor of the transaction reads it, which
    /// knows its rows by their keys, or while checks of its rows are still to come.
    pub(crate) fn require_unused(&self, oid: Oid, command: &str) -> Result<()> {
        if !self.facts.has_cursor_reading(oid) {
            return self.require_settled(oid, command);
        }
        let name = self.catalog.table_by_oid(oid).map(|table| table.name.clone()).unwrap_or_default();
        let message =
            format!("cannot {command} \"{name}\" because it is being used by active queries in this session");
        Err(SqlError::new(sqlstate::OBJECT_IN_USE, message))
    }

    /// Whether a relation of the schema has this name.
    pub(crate) fn is_taken(&self, schema: &str, name: &str) -> bool {
        self.catalog.relation(schema, name).is_some()
    }

    /// Whether a constraint of the schema has this name, but for those of `own`, a table or a
    /// domain that is being changed. Names that are made up are none of these, as in PostgreSQL;
    /// those that are given need to differ within their table or domain only.
    pub(crate) fn is_constraint_beside(&self, schema: Oid, own: Oid, name: &str) -> bool {
        let mut tables = self.catalog.relations_in(schema).filter_map(Relation::as_table);
        let mut domains = self.catalog.domains().filter(|domain| domain.schema == schema);
        tables.any(|table| table.oid != own && table.has_constraint(name))
            || domains.any(|domain| domain.oid != own && domain.check(name).is_some())
    }

    /// Whether a name cannot be made up for a constraint of a table that is being changed.
    pub(super) fn is_constraint_taken(&self, table: &Table, name: &str) -> bool {
        table.has_constraint(name) || self.is_constraint_beside(table.schema, table.oid, name)
    }
}
