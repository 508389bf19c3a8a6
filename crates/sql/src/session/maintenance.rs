//! VACUUM, ANALYZE, CLUSTER, REINDEX: nothing needs them here. They are accepted where PostgreSQL
//! accepts them, and refused where it refuses them: what they name must exist and be of the right
//! kind, and some of them must not be part of a larger transaction.

use super::{Block, Session};
use crate::catalog::{Catalog, Relation};
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
        let Command::Maintenance { command, relations, kind, concurrently } = command else {
            return Err(SqlError::internal("no maintenance command"));
        };
        let alone = alone && self.block != Block::Explicit;
        let (catalog, _) = self.catalog_with_state();
        if *command == "VACUUM" {
            require_alone(alone, command)?;
        }
        for (name, columns) in relations {
            let name = Qualified::from_object_name(name)?;
            match (*command, kind) {
                ("REINDEX", Some(kind)) => self.reindex(&catalog, kind, &name, *concurrently, alone)?,
                _ => {
                    let found = self.named(&catalog, &name)?;
                    for column in columns {
                        let column = crate::ddl::names::fold(column);
                        if let Some(Relation::Table(table)) = &found
                            && table.column_place(&column).is_none()
                        {
                            return Err(undefined_column(&column, &table.name));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// A relation by its name; none for a computed table. 42P01.
    fn named(&self, catalog: &Catalog, name: &Qualified) -> Result<Option<Relation>> {
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
