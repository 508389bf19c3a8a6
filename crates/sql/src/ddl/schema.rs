//! CREATE SCHEMA and ALTER SCHEMA.

use sqlparser::ast;

use super::names::{fold, single};
use super::resolve::undefined_schema;
use crate::catalog::{Object, Privileges, Relation, Routine, Schema, Sequence, Table, View};
use crate::error::{Result, SqlError, sqlstate};
use crate::session::work::Work;

impl Work<'_> {
    /// CREATE SCHEMA.
    pub(crate) async fn create_schema(&mut self, name: &ast::SchemaName, if_not_exists: bool) -> Result<()> {
        let (name, role) = match name {
            ast::SchemaName::Simple(name) => (single(name)?, None),
            ast::SchemaName::NamedAuthorization(name, role) => (single(name)?, Some(role)),
            ast::SchemaName::UnnamedAuthorization(role) => {
                (self.role_word(role).unwrap_or_else(|| fold(role)), Some(role))
            }
        };
        if name.starts_with("pg_") {
            return Err(SqlError::new(
                sqlstate::RESERVED_NAME,
                format!("unacceptable schema name \"{name}\""),
            )
            .with_detail("The prefix \"pg_\" is reserved for system schemas."));
        }
        self.require_on_database(Privileges::CREATE, None)?;
        let owner = match role {
            Some(role) => Some(self.owner_named(role)?),
            None => None,
        };
        self.lock_schema_name(&name).await?;
        if self.catalog.schema(&name).is_some() {
            let error =
                SqlError::new(sqlstate::DUPLICATE_SCHEMA, format!("schema \"{name}\" already exists"));
            if !if_not_exists {
                return Err(error);
            }
            let message = format!("schema \"{name}\" already exists, skipping");
            self.notice(SqlError::notice(message).with_sqlstate(sqlstate::DUPLICATE_SCHEMA));
            return Ok(());
        }
        let oid = self.allocate_oid()?;
        let schema = Schema { oid, name, comment: None, home: None };
        self.change(Object::Schema(schema.into()))?;
        match owner.flatten() {
            Some(owner) => self.set_owner(oid, owner),
            None => Ok(()),
        }
    }

    async fn lock_schema_name(&mut self, name: &str) -> Result<()> {
        self.lock_name(0, name).await
    }

    /// ALTER SCHEMA.
    pub(crate) async fn alter_schema(&mut self, statement: &ast::AlterSchema) -> Result<()> {
        let name = single(&statement.name)?;
        for operation in &statement.operations {
            match operation {
                ast::AlterSchemaOperation::Rename { name: new } => {
                    self.rename_schema(&name, &single(new)?).await?
                }
                other => return Err(SqlError::unsupported(format_args!("ALTER SCHEMA ... {other}"))),
            }
        }
        Ok(())
    }

    async fn rename_schema(&mut self, name: &str, new: &str) -> Result<()> {
        self.lock_schema_name(name).await?;
        self.lock_schema_name(new).await?;
        let schema = self.catalog.schema(name).cloned().ok_or_else(|| undefined_schema(name))?;
        self.require_schema_owner(&schema)?;
        self.require_on_database(Privileges::CREATE, None)?;
        if schema.home.is_some() {
            return Err(SqlError::unsupported("ALTER SCHEMA of a schema of temporary objects"));
        }
        if self.catalog.schema(new).is_some() {
            return Err(SqlError::new(
                sqlstate::DUPLICATE_SCHEMA,
                format!("schema \"{new}\" already exists"),
            ));
        }
        let routines = self.catalog.routines().filter(|routine| routine.schema == schema.oid);
        let routines: Vec<_> = routines.cloned().collect();
        let types: Vec<_> = self.catalog.user_types().filter(|ty| ty.schema() == schema.oid).collect();
        let inside: Vec<Relation> = self.catalog.relations_in(schema.oid).cloned().collect();
        self.change(Object::Schema(Schema { name: new.to_owned(), ..Schema::clone(&schema) }.into()))?;
        let schema_name = new.to_owned();
        for routine in routines {
            let schema_name = schema_name.clone();
            self.change(Object::Routine(Routine { schema_name, ..Routine::clone(&routine) }.into()))?;
        }
        for ty in types {
            self.change(ty.in_schema(&schema_name))?;
        }
        for relation in inside {
            let schema_name = schema_name.clone();
            match relation {
                Relation::Table(table) => {
                    self.change(Object::Table(Table { schema_name, ..Table::clone(&table) }.into()))?;
                }
                Relation::Sequence(sequence) => {
                    self.change(Object::Sequence(
                        Sequence { schema_name, ..Sequence::clone(&sequence) }.into(),
                    ))?;
                }
                Relation::View(view) => {
                    self.change(Object::View(View { schema_name, ..View::clone(&view) }.into()))?;
                }
                Relation::Index(..) => {}
            }
        }
        Ok(())
    }
}
