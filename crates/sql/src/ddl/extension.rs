//! Extensions. What they have is part of the server: `plpgsql`, the language of DO, which is in
//! every database from its beginning, as in PostgreSQL, and the functions of `uuid-ossp` and
//! `pgcrypto`. CREATE EXTENSION notes in which schema one was made, so that programs and dumps find
//! it there again; the functions are there before, too, in whatever schema a call says.
//!
//! ```text
//! CREATE EXTENSION IF NOT EXISTS plpgsql    NOTICE: extension "plpgsql" already exists, skipping
//! CREATE EXTENSION "uuid-ossp"              a row of pg_extension
//! CREATE EXTENSION hstore                   0A000: extension "hstore" is not available
//! ```

use std::sync::Arc;

use sqlparser::ast;

use super::resolve::undefined_schema;
use crate::catalog::store::EXTENSION_NAMES;
use crate::catalog::{Extension, Object, Privileges, Schema};
use crate::error::{Result, Severity, SqlError, sqlstate};
use crate::identifier::fold;
use crate::session::work::Work;

/// The name of the extension that is always there.
pub(crate) const EXTENSION: &str = "plpgsql";

/// An extension that can be made.
pub(crate) struct Available {
    /// Name.
    pub(crate) name: &'static str,
    /// PostgreSQL 15's version of it.
    pub(crate) version: &'static str,
    /// What it says of itself, which dumps give it again.
    pub(crate) comment: &'static str,
}

/// All.
pub(crate) const EXTENSIONS: &[Available] = &[
    Available { name: "pgcrypto", version: "1.3", comment: "cryptographic functions" },
    Available { name: EXTENSION, version: "1.0", comment: "PL/pgSQL procedural language" },
    Available {
        name: "uuid-ossp",
        version: "1.1",
        comment: "generate universally unique identifiers (UUIDs)",
    },
];

/// The one of this name.
pub(crate) fn available(name: &str) -> Option<&'static Available> {
    EXTENSIONS.iter().find(|known| known.name == name)
}

fn undefined(name: &str) -> SqlError {
    SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("extension \"{name}\" does not exist"))
}

impl Work<'_> {
    /// The schema in which an extension was made.
    fn schema_of_extension(&self, name: &str) -> Option<Arc<Schema>> {
        let has_it = |schema: &&Arc<Schema>| schema.extensions.iter().any(|one| one.name == name);
        self.catalog.schemas().find(has_it).cloned()
    }

    /// CREATE EXTENSION. 0A000 for one that there is not, 42710, 3F000, 42501.
    pub(crate) async fn create_extension(&mut self, create: &ast::CreateExtension) -> Result<()> {
        let name = fold(&create.name);
        if available(&name).is_none() {
            let message = format!("extension \"{name}\" is not available");
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
        }
        self.lock_name(EXTENSION_NAMES, &name).await?;
        if name == EXTENSION || self.schema_of_extension(&name).is_some() {
            let message = format!("extension \"{name}\" already exists");
            if !create.if_not_exists {
                return Err(SqlError::new(sqlstate::DUPLICATE_OBJECT, message));
            }
            let notice = SqlError::new(sqlstate::DUPLICATE_OBJECT, format!("{message}, skipping"));
            self.notice(notice.with_severity(Severity::Notice));
            return Ok(());
        }
        self.require_on_database(Privileges::CREATE, None)?;
        let schema = self.schema_for_extension(create.schema.as_ref())?;
        // Others make theirs in the same schema, which is one document.
        self.lock_name(0, &schema).await?;
        let schema = self.catalog.schema(&schema).ok_or_else(|| undefined_schema(&schema))?;
        if schema.home.is_some() {
            return Err(SqlError::unsupported("CREATE EXTENSION in a schema of temporary objects"));
        }
        let mut schema = Schema::clone(schema);
        schema.extensions.push(Extension { oid: self.allocate_oid()?, name });
        self.change(Object::Schema(schema.into()))
    }

    /// The name of the schema that is said, or else of the first one that is searched. 3F000.
    fn schema_for_extension(&self, given: Option<&ast::Ident>) -> Result<String> {
        if let Some(schema) = given {
            return Ok(fold(schema));
        }
        let path = self.facts.named_path(&self.catalog);
        let found = path.into_iter().find(|schema| self.catalog.schema(schema).is_some());
        found.ok_or_else(|| {
            SqlError::new(sqlstate::INVALID_SCHEMA_NAME, "no schema has been selected to create in")
        })
    }

    /// DROP EXTENSION. Whatever calls its functions goes on doing so. 42704, 42501, and 0A000 for
    /// the one that is always there.
    pub(crate) async fn drop_extensions(&mut self, drop: &ast::DropExtension) -> Result<()> {
        for name in drop.names.iter().map(fold) {
            if name == EXTENSION {
                return Err(SqlError::unsupported(format_args!("DROP EXTENSION {EXTENSION}")));
            }
            self.lock_name(EXTENSION_NAMES, &name).await?;
            let Some(schema) = self.schema_of_extension(&name) else {
                let missing = undefined(&name);
                if !drop.if_exists {
                    return Err(missing);
                }
                self.notice(SqlError::notice(format!("{}, skipping", missing.message)));
                continue;
            };
            self.lock_name(0, &schema.name).await?;
            let schema = self.catalog.schema(&schema.name).ok_or_else(|| undefined(&name))?;
            self.require_schema_owner(schema)?;
            let mut schema = Schema::clone(schema);
            schema.extensions.retain(|one| one.name != name);
            self.change(Object::Schema(schema.into()))?;
        }
        Ok(())
    }

    /// COMMENT ON EXTENSION. An extension keeps its comment. 42704, 0A000.
    pub(super) fn comment_on_extension(&self, name: &str, comment: Option<&str>) -> Result<()> {
        let known = available(name).filter(|_| name == EXTENSION || self.schema_of_extension(name).is_some());
        let known = known.ok_or_else(|| undefined(name))?;
        match comment == Some(known.comment) {
            true => Ok(()),
            false => Err(SqlError::unsupported(format_args!("another comment on the extension {name}"))),
        }
    }
}
