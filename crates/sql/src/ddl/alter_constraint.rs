//! Dropping, renaming and changing constraints.

use std::sync::Arc;

use cognate_engine::TreeMode;
use sqlparser::ast;

use super::alter_table::undefined_constraint;
use super::constraint::duplicate_constraint;
use super::request::deferrable;
use super::resolve::wrong_type;
use crate::catalog::{Deferrable, ForeignKey, Index, Object, Oid, Relation, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::session::work::Work;

impl Work<'_> {
    /// DROP CONSTRAINT.
    pub(crate) async fn drop_constraint(
        &mut self,
        oid: Oid,
        name: &str,
        if_exists: bool,
        cascade: bool,
    ) -> Result<()> {
        let mut table = self.table_copy(oid)?;
        if let Some(at) = table.checks.iter().position(|check| check.name == name) {
            table.checks.remove(at);
            return self.change(Object::Table(table.into()));
        }
        if let Some(at) = table.foreign_keys.iter().position(|key| key.name == name) {
            let key = table.foreign_keys.remove(at);
            self.change(Object::Table(table.into()))?;
            return self.forget_reference(&key).await;
        }
        let index =
            table.indexes.iter().find(|index| index.constraint.is_some() && index.name == name).cloned();
        let Some(index) = index else {
            let error = undefined_constraint(name, &table.name);
            if !if_exists {
                return Err(error);
            }
            self.notice(SqlError::notice(format!("{}, skipping", error.message)));
            return Ok(());
        };
        let what = format!("constraint {name} on table {}", table.name);
        self.drop_references(&table, &index, &what, cascade).await?;
        self.drop_key(oid, &index)?;
        // A view that groups by the key may select columns which depend on it.
        self.drop_broken_views(oid, &what, cascade).await
    }

    /// VALIDATE CONSTRAINT.
    pub(crate) async fn validate_constraint(&mut self, oid: Oid, name: &str) -> Result<()> {
        let mut table = self.table_copy(oid)?;
        if let Some(at) = table.checks.iter().position(|check| check.name == name) {
            let check = table.checks[at].clone();
            if !check.not_valid {
                return Ok(());
            }
            self.validate_check(&table, &check)?;
            table.checks[at].not_valid = false;
        } else if let Some(at) = table.foreign_keys.iter().position(|key| key.name == name) {
            let key = table.foreign_keys[at].clone();
            if !key.not_valid {
                return Ok(());
            }
            self.lock_table(key.referenced_table, TreeMode::Share).await?;
            let parent = self.table_copy(key.referenced_table)?;
            self.validate_foreign_key(&table, &parent, &key)?;
            table.foreign_keys[at].not_valid = false;
        } else if table.has_constraint(name) {
            return Err(SqlError::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!(
                    "constraint \"{name}\" of relation \"{}\" is not a foreign key or check constraint",
                    table.name
                ),
            ));
        } else {
            return Err(undefined_constraint(name, &table.name));
        }
        self.change(Object::Table(table.into()))
    }

    /// Removes a key's index. Without its primary key the table is ordered by row ids.
    pub(crate) fn drop_key(&mut self, oid: Oid, index: &Index) -> Result<()> {
        let before = self.table_copy(oid)?;
        let mut table = before.clone();
        table.indexes.retain(|other| other.oid != index.oid);
        if index.is_clustered() {
            self.replace_trees_of(&before, &mut table);
            let after = table.clone();
            self.rekey_table(&before, &after, |_| Ok(()))?;
        } else {
            // It has another tree by now if the primary key has gone before it.
            let tree = before.index(index.oid).map_or(index.tree, |now| now.tree);
            self.engine.drop_tree(tree);
        }
        self.change(Object::Table(table.into()))
    }

    fn replace_trees_of(&mut self, before: &Table, table: &mut Table) {
        self.drop_trees(before);
        table.tree = self.allocate_tree();
        for index in &mut table.indexes {
            index.tree = self.allocate_tree();
        }
    }

    /// Drops the foreign keys that use an index, with CASCADE; 2BP01 without.
    pub(crate) async fn drop_references(
        &mut self,
        table: &Table,
        index: &Index,
        what: &str,
        cascade: bool,
    ) -> Result<()> {
        let mut dropped = Vec::new();
        while let Some((key, child)) = self.reference_to(&self.table_copy(table.oid)?, index.oid) {
            if !cascade {
                return Err(SqlError::new(
                    sqlstate::DEPENDENT_OBJECTS_STILL_EXIST,
                    format!("cannot drop {what} because other objects depend on it"),
                )
                .with_detail(format!(
                    "constraint {key} on table {} depends on index {}",
                    child.name, index.name
                ))
                .with_hint("Use DROP ... CASCADE to drop the dependent objects too."));
            }
            self.drop_foreign_key(&child, &key).await?;
            dropped.push(format!("constraint {key} on table {}", child.name));
        }
        self.notices.extend(super::drop::cascade_notice(&dropped));
        Ok(())
    }

    async fn drop_foreign_key(&mut self, child: &Arc<Table>, name: &str) -> Result<()> {
        self.lock_table(child.oid, TreeMode::Exclusive).await?;
        // Checks of its rows would look for what goes.
        self.require_settled(child.oid, "DROP TRIGGER")?;
        let mut child = self.table_copy(child.oid)?;
        let Some(at) = child.foreign_keys.iter().position(|key| key.name == name) else { return Ok(()) };
        let key = child.foreign_keys.remove(at);
        self.change(Object::Table(child.into()))?;
        self.forget_reference(&key).await
    }

    /// Takes a dropped foreign key off the table it referred to.
    pub(crate) async fn forget_reference(&mut self, key: &ForeignKey) -> Result<()> {
        self.lock_table(key.referenced_table, TreeMode::Exclusive).await?;
        let Ok(mut parent) = self.table_copy(key.referenced_table) else { return Ok(()) };
        parent.referenced_by.retain(|reference| reference.constraint != key.oid);
        self.change(Object::Table(parent.into()))
    }

    /// ALTER CONSTRAINT: whether a foreign key is deferrable, and deferred.
    pub(crate) async fn alter_constraint(
        &mut self,
        relation: &Relation,
        name: &str,
        characteristics: Option<&ast::ConstraintCharacteristics>,
    ) -> Result<()> {
        let Relation::Table(table) = relation else { return Err(wrong_type(relation.name(), "table")) };
        let deferrable = deferrable(characteristics)?;
        self.require_settled(table.oid, "ALTER TABLE")?;
        let Some(key) = table.foreign_keys.iter().find(|key| key.name == name) else {
            if !table.has_constraint(name) {
                return Err(undefined_constraint(name, &table.name));
            }
            let what = format!("constraint \"{name}\" of relation \"{}\"", table.name);
            let message = format!("{what} is not a foreign key constraint");
            return Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message));
        };
        // Whoever deletes what is referred to looks at it, too.
        self.lock_table(key.referenced_table, TreeMode::Exclusive).await?;
        let mut table = self.table_copy(table.oid)?;
        for key in table.foreign_keys.iter_mut().filter(|key| key.name == name) {
            key.deferrable = deferrable.is_some();
            key.initially_deferred = matches!(deferrable, Some(Deferrable::Deferred));
        }
        self.change(Object::Table(table.into()))
    }

    /// RENAME CONSTRAINT.
    pub(crate) async fn rename_constraint(&mut self, oid: Oid, old: &str, new: &str) -> Result<()> {
        let mut table = self.table_copy(oid)?;
        if !table.has_constraint(old) {
            return Err(SqlError::new(
                sqlstate::UNDEFINED_OBJECT,
                format!("constraint \"{old}\" for table \"{}\" does not exist", table.name),
            ));
        }
        if table.has_constraint(new) {
            return Err(duplicate_constraint(new, &table.name));
        }
        if table.indexes.iter().any(|index| index.constraint.is_some() && index.name == old) {
            let schema = self.schema_of(table.schema)?;
            self.claim_name(&schema, new).await?;
            table = self.table_copy(oid)?;
        }
        for index in table.indexes.iter_mut().filter(|index| index.constraint.is_some() && index.name == old)
        {
            index.name = new.to_owned();
        }
        for check in table.checks.iter_mut().filter(|check| check.name == old) {
            check.name = new.to_owned();
        }
        for key in table.foreign_keys.iter_mut().filter(|key| key.name == old) {
            key.name = new.to_owned();
        }
        self.change(Object::Table(table.into()))
    }
}
