//! CREATE SCHEMA and ALTER SCHEMA.

use std::sync::Arc;

use cognate_engine::TreeMode;
use cognate_syntax::change_types;
use sqlparser::ast;

use super::names::single;
use super::resolve::undefined_schema;
use super::routine::lock_name;
use crate::bind::{custom_name, put_schema, renamed, schema_and_name};
use crate::catalog::{
    Catalog, Domain, Index, Object, Oid, Privileges, Relation, Routine, Schema, Sequence, Table, View,
};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold;
use crate::parse::parse_expression;
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
            Some(role) => Some(self.owner_named(role).await?),
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
        let schema = Schema::new(oid, name);
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
        self.hold_inside(schema.oid).await?;
        let before = self.catalog.clone();
        let routines = self.catalog.routines().filter(|routine| routine.schema == schema.oid);
        let routines: Vec<_> = routines.cloned().collect();
        let types: Vec<_> = self.catalog.user_types().filter(|ty| ty.schema() == schema.oid).collect();
        let inside: Vec<Relation> = self.catalog.relations_in(schema.oid).cloned().collect();
        self.change(Object::Schema(Schema { name: new.to_owned(), ..Schema::clone(&schema) }.into()))?;
        let schema_name = new.to_owned();
        let routines = routines.into_iter().map(|routine| {
            let schema_name = schema_name.clone();
            Object::Routine(Routine { schema_name, ..Routine::clone(&routine) }.into())
        });
        let types = types.into_iter().map(|ty| ty.in_schema(&schema_name));
        let relations = inside.into_iter().filter_map(|relation| {
            let schema_name = schema_name.clone();
            Some(match relation {
                Relation::Table(table) => Object::Table(Table { schema_name, ..Table::clone(&table) }.into()),
                Relation::Sequence(sequence) => {
                    Object::Sequence(Sequence { schema_name, ..Sequence::clone(&sequence) }.into())
                }
                Relation::View(view) => Object::View(View { schema_name, ..View::clone(&view) }.into()),
                Relation::Index(..) => return None,
            })
        });
        self.change_all(routines.chain(types).chain(relations))?;
        self.follow_schema(&before, name, new).await
    }

    /// Holds all that is in a schema, whose name is stored with each of it: who changes one of them
    /// stores it again. Whoever reads and writes rows goes on. Nothing new is made in the schema,
    /// whose name is held.
    async fn hold_inside(&mut self, schema: Oid) -> Result<()> {
        let routines = self.catalog.routines().filter(|routine| routine.schema == schema);
        let mut names: Vec<String> = routines.map(|routine| lock_name(&routine.name)).collect();
        let types = self.catalog.user_types().filter(|ty| ty.schema() == schema);
        names.extend(types.map(|ty| ty.name().to_owned()));
        let relations = self.catalog.relations_in(schema).cloned();
        let mut relations: Vec<Relation> = relations.collect();
        relations.sort_by_key(Relation::oid);
        for relation in relations {
            match &relation {
                Relation::View(view) => names.push(view.name.clone()),
                Relation::Table(_) | Relation::Sequence(_) => {}
                Relation::Index(..) => continue,
            }
            self.lock_table(relation.oid(), TreeMode::ShareUpdateExclusive).await?;
        }
        for name in names {
            self.lock_name(schema, &name).await?;
        }
        Ok(())
    }

    /// What is stored as text goes on meaning what it meant before a schema had another name: the
    /// queries of views, and types that expressions name.
    async fn follow_schema(&mut self, before: &Catalog, old: &str, new: &str) -> Result<()> {
        let after = self.catalog.clone();
        let views: Vec<Arc<View>> = after.views().cloned().collect();
        for view in &views {
            if view_in(view, before, &after, (old, new)).is_none() {
                continue;
            }
            let Some(view) = self.held_view(view).await? else { continue };
            if let Some(changed) = view_in(&view, before, &after, (old, new)) {
                self.change(Object::View(changed.into()))?;
            }
        }
        let tables: Vec<Arc<Table>> = after.tables().cloned().collect();
        for table in &tables {
            if table_in(table, old, new)?.is_none() {
                continue;
            }
            self.lock_table(table.oid, TreeMode::ShareUpdateExclusive).await?;
            let Some(table) = self.catalog.table_by_oid(table.oid).cloned() else { continue };
            if let Some(changed) = table_in(&table, old, new)? {
                self.change(Object::Table(changed.into()))?;
            }
        }
        for domain in after.domains() {
            if let Some(changed) = domain_in(domain, old, new)? {
                self.change(Object::Domain(changed.into()))?;
            }
        }
        Ok(())
    }
}

/// A search path after a schema was renamed.
fn path_in(path: &[String], old: &str, new: &str) -> Vec<String> {
    path.iter().map(|schema| if schema == old { new } else { schema }.to_owned()).collect()
}

/// A view after a schema was renamed between these two catalogs, if that changes it.
fn view_in(view: &View, before: &Catalog, after: &Catalog, (old, new): (&str, &str)) -> Option<View> {
    let search_path = path_in(&view.search_path, old, new);
    let query = renamed(view, before, after, &search_path);
    let has_changed = query != view.query || search_path != view.search_path;
    has_changed.then(|| View { query, search_path, ..View::clone(view) })
}

/// A table after a schema was renamed, if that changes what its expressions name.
fn table_in(table: &Table, old: &str, new: &str) -> Result<Option<Table>> {
    let mut changed = Table::clone(table);
    let mut texts: Vec<&mut String> = Vec::new();
    for column in &mut changed.columns {
        texts.extend(&mut column.default);
        texts.extend(column.generated.as_mut().map(|computed| &mut computed.text));
    }
    texts.extend(changed.checks.iter_mut().map(|check| &mut check.expression));
    let computed = changed.indexes.iter_mut().flat_map(Index::computed_mut);
    texts.extend(computed.map(|computed| &mut computed.text));
    Ok(rename_in(texts, old, new)?.then_some(changed))
}

/// The same of a domain.
fn domain_in(domain: &Domain, old: &str, new: &str) -> Result<Option<Domain>> {
    let mut changed = Domain::clone(domain);
    let mut has_changed = false;
    for check in &mut changed.checks {
        let search_path = path_in(&check.search_path, old, new);
        has_changed |= search_path != check.search_path;
        check.search_path = search_path;
    }
    let checks = changed.checks.iter_mut().map(|check| &mut check.expression);
    has_changed |= rename_in(checks.chain(&mut changed.default).collect(), old, new)?;
    Ok(has_changed.then_some(changed))
}

/// Gives types that expressions name with a schema its new name. Whether there were any.
fn rename_in(texts: Vec<&mut String>, old: &str, new: &str) -> Result<bool> {
    let mut has_changed = false;
    for text in texts {
        let mut syntax = parse_expression(text)?;
        let mut is_named = false;
        change_types(&mut syntax, |named| {
            let Some(name) = custom_name(named) else { return };
            if schema_and_name(name).is_ok_and(|(schema, _)| schema.as_deref() == Some(old)) {
                put_schema(name, new);
                is_named = true;
            }
        });
        if is_named {
            *text = syntax.to_string();
            has_changed = true;
        }
    }
    Ok(has_changed)
}
