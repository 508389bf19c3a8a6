//! VACUUM, ANALYZE, CLUSTER, REINDEX: nothing needs them here, but that ANALYZE gathers statistics
//! (`gathering`), and CLUSTER remembers its index. They are accepted where PostgreSQL accepts them,
//! and refused where it refuses them: what they name must exist and be of the right kind, the user
//! must own what CLUSTER and REINDEX name, and some of them must not be part of a larger
//! transaction.

mod options;

use std::sync::Arc;

use sqlparser::ast;

use self::options::MaintenanceOptions;
use super::role_setting::short;
use super::{Block, Session};
use crate::catalog::{Catalog, OWNER_OID, Oid, Relation, Table};
use crate::ddl::hints::clusterable;
use crate::ddl::names::Qualified;
use crate::ddl::permission::denied;
use crate::ddl::resolve::{undefined_column, undefined_schema, undefined_table, wrong_type};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold;
use crate::parse::{AlterRelation, Command, RelationChange};
use crate::pg_catalog::SystemTable;

/// 25001 unless a command is a transaction of its own.
pub(super) fn require_alone(alone: bool, command: &str) -> Result<()> {
    if alone {
        return Ok(());
    }
    Err(SqlError::new(
        sqlstate::ACTIVE_SQL_TRANSACTION,
        format!("{command} cannot run inside a transaction block"),
    ))
}

/// DROP INDEX CONCURRENTLY is a transaction of its own, and of one index that nothing depends on.
pub(super) fn check_concurrent_drop(sql: &ast::Statement, alone: bool) -> Result<()> {
    let ast::Statement::Drop { names, cascade, .. } = sql else { return Ok(()) };
    let command = "DROP INDEX CONCURRENTLY";
    require_alone(alone, command)?;
    if names.len() > 1 {
        return Err(SqlError::new(
            sqlstate::FEATURE_NOT_SUPPORTED,
            format!("{command} does not support dropping multiple objects"),
        ));
    }
    if *cascade {
        let message = format!("{command} does not support CASCADE");
        return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
    }
    Ok(())
}

/// What CLUSTER and REINDEX TABLE are of.
const TABLE: &str = "table or materialized view";

/// The computed table of this name.
fn computed_table(name: &Qualified) -> Option<&'static SystemTable> {
    crate::pg_catalog::table(name.schema.as_deref().unwrap_or("pg_catalog"), &name.name)
}

fn is_system(name: &Qualified) -> bool {
    // The catalogs' indexes are not among the tables that are computed.
    let reserved = name.schema.as_deref().unwrap_or(&name.name).starts_with("pg_");
    reserved || computed_table(name).is_some()
}

impl Session {
    /// One of these commands. `alone`: it is a transaction of its own.
    pub(super) fn maintain(&mut self, command: &Command, alone: bool) -> Result<()> {
        let Command::Maintenance { command, relations, index, kind, options } = command else {
            return Err(SqlError::internal("no maintenance command"));
        };
        let options = MaintenanceOptions::read(command, options)?;
        let alone = alone && self.block != Block::Explicit;
        if *command == "VACUUM" {
            options.check_request(relations.iter().any(|(_, columns)| !columns.is_empty()))?;
            require_alone(alone, command)?;
            options.check_full()?;
        }
        if *command == "CLUSTER" && relations.is_empty() {
            require_alone(alone, command)?;
        }
        let (catalog, _) = self.catalog_with_state();
        let mut tables = match relations.is_empty() && options.analyze {
            true => self.own_tables(&catalog),
            false => vec![],
        };
        for (name, columns) in relations {
            let name = Qualified::from_object_name(name)?;
            match (*command, kind) {
                ("REINDEX", Some(kind)) => {
                    self.check_reindex(&catalog, kind, &name, options.concurrently, alone)?;
                }
                ("CLUSTER", _) => self.check_cluster(&catalog, &name, index.as_ref())?,
                _ => {
                    let Some(table) = self.vacuumable(&catalog, command, &name)? else { continue };
                    for column in columns {
                        let column = fold(column);
                        if table.column_place(&column).is_none() {
                            return Err(undefined_column(&column, &table.name));
                        }
                    }
                    if options.analyze {
                        tables.push(table);
                    }
                }
            }
        }
        tables.iter().try_for_each(|table| self.gather(table.oid))
    }

    /// What CLUSTER with an index changes: a table's rows are in the order of its key here, but by
    /// which index it was clustered is remembered for the next CLUSTER. None where it is known.
    pub(super) fn clustering(&mut self, command: &Command) -> Result<Option<AlterRelation>> {
        let Command::Maintenance { command: "CLUSTER", relations, index: Some(index), .. } = command else {
            return Ok(None);
        };
        let [(name, _)] = relations.as_slice() else { return Ok(None) };
        let (catalog, _) = self.catalog_with_state();
        let Some(Relation::Table(table)) = self.named(&catalog, &Qualified::from_object_name(name)?)? else {
            return Ok(None);
        };
        if table.hints.clustered == Some(clusterable(&catalog, &table, &fold(index))?.oid) {
            return Ok(None);
        }
        Ok(Some(AlterRelation {
            is_view: false,
            is_index: false,
            name: name.clone(),
            if_exists: false,
            change: RelationChange::Cluster(Some(index.clone())),
        }))
    }

    /// The tables that the user may maintain, without those of other sessions.
    fn own_tables(&self, catalog: &Catalog) -> Vec<Arc<Table>> {
        let is_own = |table: &&Arc<Table>| match table.temporary {
            true => table.schema == self.facts.temporary.namespace(),
            false => self.may_maintain(catalog, table.oid),
        };
        catalog.tables().filter(is_own).cloned().collect()
    }

    /// Whether the user owns a relation that is not temporary, or the database.
    fn may_maintain(&self, catalog: &Catalog, relation: Oid) -> bool {
        [relation, catalog.database_oid()].iter().any(|owned| self.acts_as(catalog, catalog.owner(*owned)))
    }

    fn acts_as(&self, catalog: &Catalog, role: Oid) -> bool {
        self.facts.rights(catalog).is_none_or(|rights| rights.has(role))
    }

    /// 42501 unless the user acts as an object's owner. `what` is its kind and name.
    fn require_owner(&self, catalog: &Catalog, owner: Oid, what: impl FnOnce() -> String) -> Result<()> {
        match self.acts_as(catalog, owner) {
            true => Ok(()),
            false => Err(denied(format!("must be owner of {}", what()))),
        }
    }

    /// The same of a table or index, which is none if it is of the system.
    fn require_relation_owner(
        &self,
        catalog: &Catalog,
        relation: Option<&Relation>,
        what: impl FnOnce() -> String,
    ) -> Result<()> {
        match relation {
            Some(relation) if relation.is_temporary() => Ok(()),
            Some(relation) => self.require_owner(catalog, catalog.owner(owned_with(relation)), what),
            None => self.require_owner(catalog, OWNER_OID, what),
        }
    }

    /// The table that VACUUM or ANALYZE names, if that is one of a user's that the session may
    /// maintain. A WARNING for what is of somebody else, or no table: it is left alone. 42P01.
    fn vacuumable(
        &mut self,
        catalog: &Catalog,
        command: &str,
        name: &Qualified,
    ) -> Result<Option<Arc<Table>>> {
        let found = self.named(catalog, name)?;
        let verb = if command == "VACUUM" { "vacuum" } else { "analyze" };
        let is_own =
            |relation: &Relation| relation.is_temporary() || self.may_maintain(catalog, owned_with(relation));
        let why = match found {
            Some(relation) if !is_own(&relation) => format!("only table or database owner can {verb} it"),
            Some(Relation::Table(table)) => return Ok(Some(table)),
            None if computed_table(name).is_none_or(|table| !table.view) => return Ok(None),
            _ => format!("cannot {verb} non-tables or special system tables"),
        };
        let message = format!("skipping \"{}\" --- {why}", name.name);
        self.notices.push(SqlError::warning(sqlstate::WARNING, message));
        Ok(None)
    }

    /// A relation by its name; none for a computed table. 42P01.
    fn named(&self, catalog: &Catalog, name: &Qualified) -> Result<Option<Relation>> {
        name.check_database(catalog)?;
        let path = self.facts.lookup_path(catalog);
        match catalog.find(&path, name.schema.as_deref(), &name.name) {
            Some(found) => Ok(Some(found.clone())),
            None if is_system(name) => Ok(None),
            None => Err(undefined_table(name)),
        }
    }

    /// 42P01, 42809, 42501; 42704, 42809 or 0A000 if there is no index to cluster by.
    fn check_cluster(&self, catalog: &Catalog, name: &Qualified, index: Option<&ast::Ident>) -> Result<()> {
        let found = self.named(catalog, name)?;
        let is_table = match &found {
            Some(relation) => relation.as_table().is_some(),
            None => computed_table(name).is_none_or(|table| !table.view),
        };
        if !is_table {
            return Err(wrong_type(&name.name, TABLE));
        }
        self.require_relation_owner(catalog, found.as_ref(), || format!("table {}", name.name))?;
        let table = found.as_ref().and_then(Relation::as_table);
        let is_possible = match (index, table) {
            (Some(index), Some(table)) => return clusterable(catalog, table, &fold(index)).map(|_| ()),
            (None, Some(table)) => table.hints.clustered.is_some_and(|oid| table.index(oid).is_some()),
            // The system's tables keep no such mark.
            (index, None) => index.is_some(),
        };
        if is_possible {
            return Ok(());
        }
        let message = format!("there is no previously clustered index for table \"{}\"", name.name);
        Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, message))
    }

    fn check_reindex(
        &mut self,
        catalog: &Catalog,
        kind: &str,
        name: &Qualified,
        concurrently: bool,
        alone: bool,
    ) -> Result<()> {
        if concurrently {
            require_alone(alone, "REINDEX CONCURRENTLY")?;
        }
        if !["TABLE", "INDEX"].contains(&kind) {
            require_alone(alone, &format!("REINDEX {kind}"))?;
            return self.check_reindex_all(catalog, kind, &name.name, concurrently);
        }
        let found = self.named(catalog, name)?;
        let is_fit = match (kind, &found) {
            ("INDEX", Some(relation)) => matches!(relation, Relation::Index(..)),
            ("INDEX", None) => computed_table(name).is_none(),
            (_, Some(relation)) => relation.as_table().is_some(),
            (_, None) => computed_table(name).is_none_or(|table| !table.view),
        };
        if !is_fit {
            return Err(wrong_type(&name.name, if kind == "INDEX" { "index" } else { TABLE }));
        }
        let what = || format!("{} {}", kind.to_ascii_lowercase(), name.name);
        self.require_relation_owner(catalog, found.as_ref(), what)?;
        match found {
            None if concurrently => Err(system_concurrently()),
            _ => Ok(()),
        }
    }

    /// REINDEX of a schema or the database, or of what the system has in it.
    fn check_reindex_all(
        &mut self,
        catalog: &Catalog,
        kind: &str,
        name: &str,
        concurrently: bool,
    ) -> Result<()> {
        if kind == "SYSTEM" && concurrently {
            return Err(system_concurrently());
        }
        if kind == "SCHEMA" {
            let schema = catalog.schema(name).ok_or_else(|| undefined_schema(name))?;
            self.require_owner(catalog, catalog.owner(schema.oid), || format!("schema {name}"))?;
            if concurrently && name == "pg_catalog" {
                let message = "cannot reindex system catalogs concurrently, skipping all";
                self.notices.push(SqlError::warning(sqlstate::FEATURE_NOT_SUPPORTED, message));
            }
            return Ok(());
        }
        let database = catalog.database_oid();
        let named = catalog.database_called(name, &short(&self.facts.given_database));
        if named.is_none_or(|named| named.oid != database) {
            let message = "can only reindex the currently open database";
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
        }
        self.require_owner(catalog, catalog.owner(database), || format!("database {name}"))
    }
}

/// The object whose owner is a relation's: of an index, its table.
fn owned_with(relation: &Relation) -> Oid {
    match relation {
        Relation::Index(table, _) => table.oid,
        relation => relation.oid(),
    }
}

fn system_concurrently() -> SqlError {
    SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, "cannot reindex system catalogs concurrently")
}
