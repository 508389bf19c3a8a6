//! ALTER VIEW, SET SCHEMA, and what ALTER TABLE does to relations that are no tables.
//!
//! Views are stored as texts. They go on reading what has another name, schema or other names of
//! columns: see `bind::view_names`.

use std::sync::Arc;

use cognate_engine::TreeMode;
use sqlparser::ast;

use super::alter_table::{duplicate_column, rename_target};
use super::names::Qualified;
use super::resolve::{undefined_schema, undefined_table, wrong_type};
use crate::bind::renamed;
use crate::catalog::{
    Catalog, INFORMATION_SCHEMA_OID, Object, Oid, PG_CATALOG_OID, Relation, Schema, Sequence,
    TEMPORARY_ALIAS, Table, View,
};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold;
use crate::parse::{AlterRelation, RelationChange, dropped_expression};
use crate::session::work::Work;

impl Work<'_> {
    /// ALTER VIEW, and SET SCHEMA and ALTER CONSTRAINT of a table.
    pub(crate) async fn alter_relation(&mut self, alter: &AlterRelation) -> Result<()> {
        let name = Qualified::from_object_name(&alter.name)?;
        self.refresh_catalog();
        self.require_usage(&name)?;
        let Some(found) = self.find(&name) else {
            if !alter.if_exists {
                return Err(undefined_table(&name));
            }
            self.notice(SqlError::notice(format!("relation \"{}\" does not exist, skipping", name.name)));
            return Ok(());
        };
        self.require_relation_owner(&found)?;
        let is_column = matches!(alter.change, RelationChange::RenameColumn { .. });
        // PostgreSQL renames columns of tables by ALTER VIEW, too.
        if alter.is_view && !is_column && !matches!(found, Relation::View(_)) {
            return Err(wrong_type(found.name(), "view"));
        }
        let sets_options =
            matches!(alter.change, RelationChange::SetOptions(_) | RelationChange::ResetOptions(_));
        if sets_options && !alter.is_view {
            return self.alter_storage(&name, &found, alter).await;
        }
        if alter.change.is_hint() {
            return self.alter_hints(&name, &found, alter).await;
        }
        let relation = self.held(&name, &found).await?;
        match &alter.change {
            RelationChange::Rename(new) => self.rename_relation(&relation, fold(new)).await,
            RelationChange::RenameColumn { from, to } => self.rename_any_column(&relation, from, to).await,
            RelationChange::SetSchema(schema) => self.set_schema(&relation, &fold(schema)).await,
            RelationChange::SetOptions(options) => self.set_view_options(&relation, options),
            RelationChange::ResetOptions(options) => self.reset_view_options(&relation, options),
            RelationChange::AlterConstraint { name, characteristics } => {
                self.alter_constraint(&relation, &fold(name), characteristics.as_ref()).await
            }
            other => Err(SqlError::internal(format!("a change that is none of a relation: {other:?}"))),
        }
    }

    /// The relation that was found by a name, as it is once nobody else can change it, and nobody
    /// who has read it goes on doing so. 42P01 if the name means another one by then.
    pub(crate) async fn held(&mut self, name: &Qualified, found: &Relation) -> Result<Relation> {
        self.held_as(name, found, TreeMode::Exclusive).await
    }

    /// The same with a lock on what is a view that others may share who do not change it.
    pub(super) async fn held_as(
        &mut self,
        name: &Qualified,
        found: &Relation,
        of_view: TreeMode,
    ) -> Result<Relation> {
        match found {
            Relation::Table(_) => drop(self.locked_table(name, TreeMode::Exclusive).await?),
            Relation::View(view) => {
                // Whoever waits for readers is not to have the name, which one of them may ask for.
                self.lock_table(view.oid, of_view).await?;
                self.lock_name(view.schema, &view.name).await?;
            }
            Relation::Sequence(sequence) => self.lock_table(sequence.oid, TreeMode::Exclusive).await?,
            Relation::Index(..) => {}
        }
        let again = self.find(name).filter(|again| again.oid() == found.oid());
        again.ok_or_else(|| undefined_table(name))
    }

    /// ALTER TABLE on an index, sequence or view: only what PostgreSQL lets it do for all
    /// relations.
    pub(super) async fn alter_other(
        &mut self,
        name: &Qualified,
        relation: &Relation,
        operations: &[ast::AlterTableOperation],
    ) -> Result<()> {
        use ast::AlterTableOperation as Operation;
        self.require_relation_owner(relation)?;
        let relation = &self.held(name, relation).await?;
        for operation in operations {
            match operation {
                Operation::RenameTable { table_name } => {
                    self.rename_relation(relation, rename_target(table_name)?).await?;
                }
                Operation::RenameColumn { old_column_name, new_column_name } => {
                    self.rename_any_column(relation, old_column_name, new_column_name).await?;
                }
                other => return Err(not_for(relation, other)),
            }
        }
        Ok(())
    }

    async fn rename_any_column(
        &mut self,
        relation: &Relation,
        from: &ast::Ident,
        to: &ast::Ident,
    ) -> Result<()> {
        let (from, to) = (fold(from), fold(to));
        match relation {
            Relation::Table(table) => self.rename_column(table.oid, &from, &to).await,
            Relation::View(view) => self.rename_view_column(view, &from, &to).await,
            Relation::Index(..) => Err(wrong_type(relation.name(), "table")),
            Relation::Sequence(_) => Err(SqlError::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!("cannot rename columns of relation \"{}\"", relation.name()),
            )
            .with_detail("This operation is not supported for sequences.")),
        }
    }

    /// RENAME COLUMN of a view: its query stays, whose outputs have the view's names where it is
    /// read.
    async fn rename_view_column(&mut self, view: &View, old: &str, new: &str) -> Result<()> {
        let missing =
            || SqlError::new(sqlstate::UNDEFINED_COLUMN, format!("column \"{old}\" does not exist"));
        let place = view.columns.iter().position(|column| column.name == old).ok_or_else(missing)?;
        super::create_table::check_column_name(new)?;
        if view.columns.iter().any(|column| column.name == new) {
            return Err(duplicate_column(new, &view.name));
        }
        let before = self.catalog.clone();
        let mut changed = view.clone();
        changed.columns[place].name = new.to_owned();
        self.change(Object::View(changed.into()))?;
        self.follow_column(&before, view.oid, old).await
    }

    /// Views go on reading a column that had this name in the catalog before.
    pub(super) async fn follow_column(&mut self, before: &Catalog, relation: Oid, old: &str) -> Result<()> {
        self.follow_in_views(before, relation).await?;
        match self.broken_view(relation)? {
            None => Ok(()),
            Some(view) => Err(SqlError::unsupported(format_args!(
                "renaming column \"{old}\", which view \"{}\" uses,",
                view.name
            ))),
        }
    }

    /// Views go on reading a relation that has another name, or other columns, than in the catalog
    /// before.
    pub(super) async fn follow_in_views(&mut self, before: &Catalog, relation: Oid) -> Result<()> {
        let after = self.catalog.clone();
        let over = after.views().filter(|view| view.depends_on.contains(&relation));
        let over: Vec<Arc<View>> = over.cloned().collect();
        for view in &over {
            if renamed(view, before, &after, &view.search_path) == view.query {
                continue;
            }
            let Some(view) = self.held_view(view).await? else { continue };
            let query = renamed(&view, before, &after, &view.search_path);
            self.change(Object::View(View { query, ..View::clone(&view) }.into()))?;
        }
        Ok(())
    }

    /// A view that changes with what is under it, as it is once nobody else can change it. It gives
    /// what it gave, and whoever reads it goes on. `None` if whoever was waited for has dropped it.
    pub(super) async fn held_view(&mut self, view: &View) -> Result<Option<Arc<View>>> {
        self.lock_table(view.oid, TreeMode::ShareUpdateExclusive).await?;
        self.lock_name(view.schema, &view.name).await?;
        Ok(match self.catalog.relation_by_oid(view.oid) {
            Some(Relation::View(now)) => Some(now.clone()),
            _ => None,
        })
    }

    /// SET SCHEMA: a table takes its indexes and the sequences of its columns with it.
    pub(super) async fn set_schema(&mut self, relation: &Relation, new: &str) -> Result<()> {
        let (name, old) = (relation.name().to_owned(), relation.schema());
        if matches!(relation, Relation::Index(..)) {
            let message = format!("cannot change schema of index \"{name}\"");
            let error = SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message);
            return Err(error.with_hint("Change the schema of the table instead."));
        }
        let schema = self.schema_to_move_to(relation, new)?;
        if let Relation::Sequence(sequence) = relation
            && let Some((table, _)) = sequence.owner
        {
            let table = self.catalog.table_by_oid(table).map_or("", |table| &table.name);
            let message = "cannot move an owned sequence into another schema";
            let detail = format!("Sequence \"{name}\" is linked to table \"{table}\".");
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message).with_detail(detail));
        }
        if schema.oid == old {
            return Ok(());
        }
        let before = self.catalog.clone();
        let mut sequences = Vec::new();
        self.claim_in(&schema, &name).await?;
        if let Relation::Table(table) = relation {
            for index in &table.indexes {
                self.claim_in(&schema, &index.name).await?;
            }
            for oid in self.catalog.sequences_of(table) {
                let Some(sequence) = self.catalog.sequence_by_oid(oid).cloned() else { continue };
                if sequence.schema == schema.oid {
                    continue;
                }
                self.lock_table(oid, TreeMode::Exclusive).await?;
                self.claim_in(&schema, &sequence.name).await?;
                sequences.push(sequence);
            }
        }
        let (schema, schema_name) = (schema.oid, schema.name.clone());
        match relation {
            Relation::Table(table) => {
                let table = Table { schema, schema_name: schema_name.clone(), ..Table::clone(table) };
                self.change(Object::Table(table.into()))?;
            }
            Relation::View(view) => {
                let view = View { schema, schema_name: schema_name.clone(), ..View::clone(view) };
                self.change(Object::View(view.into()))?;
            }
            Relation::Sequence(sequence) => sequences.push(sequence.clone()),
            Relation::Index(..) => {}
        }
        for sequence in &sequences {
            let sequence = Sequence { schema, schema_name: schema_name.clone(), ..Sequence::clone(sequence) };
            self.change(Object::Sequence(sequence.into()))?;
        }
        self.follow_in_views(&before, relation.oid()).await?;
        for sequence in sequences {
            self.follow_in_views(&before, sequence.oid).await?;
            self.refuse_told_in_literals(&Relation::Sequence(sequence))?;
        }
        Ok(())
    }

    /// The schema that a relation is to go to. 3F000, 42501, 0A000.
    fn schema_to_move_to(&self, relation: &Relation, new: &str) -> Result<Schema> {
        let temporary = || {
            let message = "cannot move objects into or out of temporary schemas";
            SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message)
        };
        if new == TEMPORARY_ALIAS {
            return Err(temporary());
        }
        let schema = self.catalog.schema(new).ok_or_else(|| undefined_schema(new))?;
        if schema.oid == PG_CATALOG_OID || schema.oid == INFORMATION_SCHEMA_OID {
            return Err(SqlError::unsupported("SET SCHEMA to a schema of the system"));
        }
        self.require_create(schema)?;
        match schema.home.is_some() || relation.is_temporary() {
            true => Err(temporary()),
            false => Ok(Schema::clone(schema)),
        }
    }

    /// Takes a name in another schema. 42P07 if a relation of it has the name, 42710 if a type has.
    async fn claim_in(&mut self, schema: &Schema, name: &str) -> Result<()> {
        self.claim_name(schema, name).await.map_err(|error| match error.sqlstate {
            sqlstate::DUPLICATE_TABLE | sqlstate::DUPLICATE_OBJECT => {
                let message = format!("{} in schema \"{}\"", error.message, schema.name);
                SqlError::new(error.sqlstate, message)
            }
            _ => error,
        })
    }
}

/// 42809 for what ALTER TABLE does to tables only.
fn not_for(relation: &Relation, operation: &ast::AlterTableOperation) -> SqlError {
    use ast::AlterColumnOperation as OfColumn;
    use ast::AlterTableOperation as Operation;
    let action = match operation {
        Operation::AddColumn { .. } => "ADD COLUMN",
        Operation::DropColumn { .. } => "DROP COLUMN",
        Operation::AddConstraint { .. } => "ADD CONSTRAINT",
        Operation::DropConstraint { .. } => "DROP CONSTRAINT",
        Operation::ValidateConstraint { .. } => "VALIDATE CONSTRAINT",
        Operation::AlterColumn { op, .. } => match op {
            OfColumn::SetNotNull => "ALTER COLUMN ... SET NOT NULL",
            OfColumn::DropNotNull => "ALTER COLUMN ... DROP NOT NULL",
            OfColumn::SetDataType { .. } => "ALTER COLUMN ... SET DATA TYPE",
            OfColumn::AddGenerated { .. } => "ALTER COLUMN ... ADD IDENTITY",
            OfColumn::SetDefault { value } if dropped_expression(value).is_some() => {
                "ALTER COLUMN ... DROP EXPRESSION"
            }
            OfColumn::SetDefault { .. } | OfColumn::DropDefault => match relation {
                Relation::View(_) => return SqlError::unsupported("a default of a view's column"),
                _ => "ALTER COLUMN ... SET DEFAULT",
            },
        },
        Operation::RenameConstraint { old_name, .. } => {
            let message =
                format!("constraint \"{}\" for table \"{}\" does not exist", fold(old_name), relation.name());
            return SqlError::new(sqlstate::UNDEFINED_OBJECT, message);
        }
        _ => return wrong_type(relation.name(), "table"),
    };
    action_not_for(relation, action)
}

/// 42809 for an action of ALTER TABLE that a relation of this kind has not.
pub(super) fn action_not_for(relation: &Relation, action: &str) -> SqlError {
    let kinds = match relation {
        Relation::Table(_) => "tables",
        Relation::Index(..) => "indexes",
        Relation::Sequence(_) => "sequences",
        Relation::View(_) => "views",
    };
    SqlError::new(
        sqlstate::WRONG_OBJECT_TYPE,
        format!("ALTER action {action} cannot be performed on relation \"{}\"", relation.name()),
    )
    .with_detail(format!("This operation is not supported for {kinds}."))
}
