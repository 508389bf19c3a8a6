//! VACUUM, ANALYZE, CLUSTER, REINDEX: nothing needs them here, but that ANALYZE gathers statistics
//! (`gathering`). They are accepted where PostgreSQL accepts them, and refused where it refuses
//! them: what they name must exist and be of the right kind, and some of them must not be part of a
//! larger transaction.

use std::sync::Arc;

use sqlparser::ast;

use super::{Block, Session};
use crate::catalog::{Catalog, Relation, Table};
use crate::ddl::names::Qualified;
use crate::ddl::resolve::{undefined_column, undefined_table};
use crate::error::{Result, SqlError, sqlstate};
use crate::parse::Command;

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

fn is_system(name: &Qualified) -> bool {
    // The catalogs' indexes are not among the tables that are computed.
    let reserved = name.schema.as_deref().unwrap_or(&name.name).starts_with("pg_");
    reserved
        || match name.schema.as_deref() {
            Some(schema) => crate::pg_catalog::table(schema, &name.name).is_some(),
            None => crate::pg_catalog::table("pg_catalog", &name.name).is_some(),
        }
}

impl Session {
    /// One of these commands. `alone`: it is a transaction of its own.
    pub(super) fn maintain(&mut self, command: &Command, alone: bool) -> Result<()> {
        let Command::Maintenance { command, relations, kind, concurrently, analyze } = command else {
            return Err(SqlError::internal("no maintenance command"));
        };
        let alone = alone && self.block != Block::Explicit;
        let (catalog, _) = self.catalog_with_state();
        if *command == "VACUUM" {
            require_alone(alone, command)?;
        }
        let mut tables = match relations.is_empty() && *analyze {
            true => self.own_tables(&catalog),
            false => vec![],
        };
        for (name, columns) in relations {
            let name = Qualified::from_object_name(name)?;
            match (*command, kind) {
                ("REINDEX", Some(kind)) => self.reindex(&catalog, kind, &name, *concurrently, alone)?,
                _ => {
                    let found = self.named(&catalog, &name)?;
                    let may = self.check_maintainer(&catalog, command, found.as_ref())?;
                    for column in columns {
                        let column = crate::identifier::fold(column);
                        if let Some(Relation::Table(table)) = &found
                            && table.column_place(&column).is_none()
                        {
                            return Err(undefined_column(&column, &table.name));
                        }
                    }
                    if let (Some(Relation::Table(table)), true) = (found, may && *analyze) {
                        tables.push(table);
                    }
                }
            }
        }
        tables.iter().try_for_each(|table| self.gather(table.oid))
    }

    /// The tables that the user may maintain, without those of other sessions.
    fn own_tables(&self, catalog: &Catalog) -> Vec<Arc<Table>> {
        let is_own = |table: &&Arc<Table>| match table.temporary {
            true => table.schema == self.facts.temporary.namespace(),
            false => self.may_maintain(catalog, table),
        };
        catalog.tables().filter(is_own).cloned().collect()
    }

    fn may_maintain(&self, catalog: &Catalog, table: &Table) -> bool {
        let rights = self.facts.rights(catalog).filter(|_| !table.temporary);
        let owners = [catalog.owner(table.oid), catalog.owner(catalog.database_oid())];
        rights.is_none_or(|rights| owners.iter().any(|owner| rights.has(*owner)))
    }

    /// Whether the user may do it: a WARNING for a table of somebody else, which is left alone;
    /// 42501 for what would fail on it.
    fn check_maintainer(
        &mut self,
        catalog: &Catalog,
        command: &str,
        relation: Option<&Relation>,
    ) -> Result<bool> {
        let Some(Relation::Table(table)) = relation else { return Ok(true) };
        if self.may_maintain(catalog, table) {
            return Ok(true);
        }
        let verb = match command {
            "VACUUM" => "vacuum",
            "ANALYZE" => "analyze",
            _ => {
                let message = format!("must be owner of table {}", table.name);
                return Err(SqlError::new(sqlstate::INSUFFICIENT_PRIVILEGE, message));
            }
        };
        let message = format!("skipping \"{}\" --- only table or database owner can {verb} it", table.name);
        self.notices.push(SqlError::warning(sqlstate::WARNING, message));
        Ok(false)
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

    fn reindex(
        &self,
        catalog: &Catalog,
        kind: &str,
        name: &Qualified,
        concurrently: bool,
        alone: bool,
    ) -> Result<()> {
        let wrong = |what: &str| {
            Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, format!("\"{}\" is not {what}", name.name)))
        };
        if concurrently {
            require_alone(alone, "REINDEX CONCURRENTLY")?;
        }
        match kind {
            "SCHEMA" | "DATABASE" | "SYSTEM" => {
                require_alone(alone, &format!("REINDEX {kind}"))?;
                if kind == "SCHEMA" && catalog.schema(&name.name).is_none() && name.name != "pg_catalog" {
                    return Err(SqlError::new(
                        sqlstate::INVALID_SCHEMA_NAME,
                        format!("schema \"{}\" does not exist", name.name),
                    ));
                }
                if concurrently && (kind == "SYSTEM" || name.name == "pg_catalog") {
                    return Err(system_concurrently());
                }
                Ok(())
            }
            _ => match (kind, self.named(catalog, name)?) {
                (_, None) if concurrently => Err(system_concurrently()),
                (_, None) | ("INDEX", Some(Relation::Index(..))) | ("TABLE", Some(Relation::Table(_))) => {
                    Ok(())
                }
                ("INDEX", Some(_)) => wrong("an index"),
                _ => wrong("a table or materialized view"),
            },
        }
    }
}

fn system_concurrently() -> SqlError {
    SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, "cannot reindex system catalogs concurrently")
}
