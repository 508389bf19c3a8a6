//! Where new relations go, and what becomes of temporary ones: when a transaction commits (ON
//! COMMIT), and when their session ends or discards them.
//!
//! A session's schema of temporary objects is made with the first of them, in the same transaction,
//! under the oid that the session keeps for it from then on. Rolled back, it is made again when it
//! is needed.

use std::sync::Arc;

use super::names::Qualified;
use super::resolve::undefined_schema;
use crate::catalog::{
    Object, Oid, OnCommit, PG_CATALOG_OID, Privileges, Schema, TEMPORARY_ALIAS, Table, temporary_schema_name,
};
use crate::error::{Result, SqlError, sqlstate};
use crate::oltp::index_maintenance::secondary;
use crate::session::work::Work;

fn misplaced(message: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_TABLE_DEFINITION, message)
}

/// 0A000 for what belongs to another session.
pub(crate) fn of_another_session() -> SqlError {
    SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, "cannot access temporary tables of other sessions")
}

impl Work<'_> {
    /// The schema that a new object of this name goes to, a temporary one if it is said so. 3F000,
    /// 42P16, 42501.
    pub(crate) fn creation_schema(&mut self, name: &Qualified, temporary: bool) -> Result<Arc<Schema>> {
        name.check_database(&self.catalog)?;
        let schema = match &name.schema {
            Some(schema) if schema == TEMPORARY_ALIAS => return self.own_temporary_schema(),
            Some(schema) => self.catalog.schema(schema).ok_or_else(|| undefined_schema(schema))?,
            None if temporary => return self.own_temporary_schema(),
            None => {
                let effective = self.facts.effective();
                let path = self.facts.named_path(&self.catalog);
                let is_here = |schema: &&String| {
                    schema.as_str() == TEMPORARY_ALIAS || self.catalog.schema(schema).is_some()
                };
                if effective.search_path.iter().find(is_here).is_some_and(|first| first == TEMPORARY_ALIAS) {
                    return self.own_temporary_schema();
                }
                let first = path.first().and_then(|schema| self.catalog.schema(schema));
                first.ok_or_else(|| {
                    SqlError::new(sqlstate::INVALID_SCHEMA_NAME, "no schema has been selected to create in")
                })?
            }
        };
        if schema.home.is_some() {
            return match self.facts.temporary.is_own(schema.oid) {
                true => self.own_temporary_schema(),
                false => Err(misplaced("cannot create relations in temporary schemas of other sessions")),
            };
        }
        if temporary {
            return Err(misplaced("cannot create temporary relation in non-temporary schema"));
        }
        if schema.oid == PG_CATALOG_OID || schema.name == "information_schema" {
            return Err(SqlError::new(
                sqlstate::INSUFFICIENT_PRIVILEGE,
                format!("permission denied to create \"{}.{}\"", schema.name, name.name),
            )
            .with_detail("System catalog modifications are currently disallowed."));
        }
        self.require_create(schema)?;
        Ok(schema.clone())
    }

    /// The schema of the session's temporary objects, which is made if it is not there.
    fn own_temporary_schema(&mut self) -> Result<Arc<Schema>> {
        self.require_on_database(Privileges::TEMPORARY, Some("create temporary tables"))?;
        self.state.is_temporary = true;
        if let Some(schema) = self.facts.temporary.schema(&self.catalog) {
            return Ok(schema.clone());
        }
        let oid = match self.facts.temporary.namespace() {
            0 => self.facts.temporary.begin(self.allocate_oid()?),
            oid => oid,
        };
        let home = Some(self.database.home());
        let schema = Arc::new(Schema { home, ..Schema::new(oid, temporary_schema_name(oid)) });
        self.change(Object::Schema(schema.clone()))?;
        Ok(schema)
    }

    /// What the tables of the session say for the end of a transaction that commits.
    ///
    /// # Errors
    /// 0A000 if a table that is emptied is referred to by one that is not.
    pub(crate) async fn run_on_commit(&mut self) -> Result<()> {
        self.refresh_catalog();
        let Some(schema) = self.facts.temporary.schema(&self.catalog) else { return Ok(()) };
        let tables = self.catalog.relations_in(schema.oid).filter_map(|relation| relation.as_table());
        let mut tables: Vec<Arc<Table>> = tables.filter(|table| table.on_commit.is_some()).cloned().collect();
        tables.sort_by_key(|table| table.oid);
        let dropped: Vec<Oid> = tables
            .iter()
            .filter(|table| table.on_commit == Some(OnCommit::Drop))
            .map(|table| table.oid)
            .collect();
        tables.retain(|table| table.on_commit == Some(OnCommit::DeleteRows));
        for table in &tables {
            self.check_emptied_alike(table)?;
        }
        for table in &tables {
            self.empty_at_commit(table)?;
        }
        if dropped.is_empty() {
            return Ok(());
        }
        self.drop_silently(|_| dropped.clone(), None).await
    }

    fn check_emptied_alike(&self, table: &Table) -> Result<()> {
        let children =
            table.referenced_by.iter().filter_map(|reference| self.catalog.table_by_oid(reference.table));
        let mut others = children.filter(|child| child.on_commit != Some(OnCommit::DeleteRows));
        others.next().map_or(Ok(()), |child| {
            let detail = format!(
                "Table \"{}\" references \"{}\", but they do not have the same ON COMMIT setting.",
                child.name, table.name
            );
            let message = "unsupported ON COMMIT and foreign key combination";
            Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message).with_detail(detail))
        })
    }

    /// Empties a table of ON COMMIT DELETE ROWS. Whoever committed before has left it empty, so it
    /// is enough to take back what this transaction has written.
    fn empty_at_commit(&mut self, table: &Arc<Table>) -> Result<()> {
        let trees: Vec<u32> =
            std::iter::once(table.tree).chain(secondary(table).map(|index| index.tree)).collect();
        if !trees.iter().any(|tree| self.engine.has_written(*tree)) {
            return Ok(());
        }
        if !trees.iter().any(|tree| self.engine.has_created(*tree)) {
            trees.into_iter().for_each(|tree| self.engine.forget_writes(tree));
            return Ok(());
        }
        let mut table = Table::clone(table);
        self.replace_trees(&mut table);
        self.change(Object::Table(table.into()))
    }
}
