//! `ALTER TABLE ... ADD { UNIQUE | PRIMARY KEY } USING INDEX`: a unique index that is there becomes
//! a constraint, as migrations have it that build the index CONCURRENTLY first.
//!
//! A UNIQUE constraint keeps the index with all its entries. A primary key orders the table, and a
//! constraint that is DEFERRABLE has other entries: for these the index is made anew.

use sqlparser::ast;

use super::constraint::{Rows, duplicate_constraint};
use super::request::{ConstraintRequest, deferrable};
use crate::catalog::{Index, IndexColumn, Object, Oid, Relation, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold;
use crate::session::work::Work;

impl Work<'_> {
    /// ADD CONSTRAINT ... USING INDEX, of a table that is locked. 42704, 42809, 55000.
    pub(super) async fn add_key_by_index(
        &mut self,
        oid: Oid,
        given: &ast::ConstraintUsingIndex,
        primary: bool,
    ) -> Result<()> {
        let mut table = self.table_copy(oid)?;
        let index = self.index_for_key(&table, &fold(&given.index_name))?;
        let deferrable = deferrable(given.characteristics.as_ref())?;
        let name = given.name.as_ref().map_or_else(|| index.name.clone(), fold);
        if table.has_constraint(&name) {
            return Err(duplicate_constraint(&name, &table.name));
        }
        if name != index.name {
            let old = &index.name;
            self.notice(SqlError::notice(format!(
                "ALTER TABLE / ADD CONSTRAINT USING INDEX will rename index \"{old}\" to \"{name}\""
            )));
        }
        if primary || deferrable.is_some() {
            let column = |place: usize| table.columns[place].name.clone();
            let columns = index.key_columns().map(column).collect();
            let included = index.included.iter().copied().map(column).collect();
            let nulls_not_distinct = index.nulls_not_distinct;
            let request = ConstraintRequest::Key {
                name: Some(name),
                columns,
                included,
                options: index.options.clone(),
                primary,
                nulls_not_distinct,
                deferrable,
            };
            return self.replace_by_key(table, &index, request).await;
        }
        if name != index.name {
            let schema = self.schema_of(table.schema)?;
            self.claim_name(&schema, &name).await?;
        }
        let constraint = self.allocate_oid()?;
        for known in table.indexes.iter_mut().filter(|known| known.oid == index.oid) {
            known.name.clone_from(&name);
            known.constraint = Some(constraint);
        }
        self.change(Object::Table(table.into()))
    }

    /// Drops an index, and makes a key over its columns.
    async fn replace_by_key(
        &mut self,
        mut table: Table,
        index: &Index,
        request: ConstraintRequest,
    ) -> Result<()> {
        if self.reference_to(&table, index.oid).is_some() {
            let what = "PRIMARY KEY or DEFERRABLE USING INDEX of an index under a foreign key";
            return Err(SqlError::unsupported(what));
        }
        self.engine.drop_tree(index.tree);
        table.indexes.retain(|known| known.oid != index.oid);
        self.change(Object::Table(table.clone().into()))?;
        self.add_constraint(&mut table, request, Rows::MustMeetIt).await?;
        self.change(Object::Table(table.into()))
    }

    /// The index of this name beside the table, if a key can be made of it.
    fn index_for_key(&self, table: &Table, name: &str) -> Result<Index> {
        let found = match self.catalog.relation(&table.schema_name, name) {
            Some(Relation::Index(of, oid)) => of.index(*oid).map(|index| (of.oid, index)),
            _ => None,
        };
        let Some((of, index)) = found else {
            let message = format!("index \"{name}\" does not exist");
            return Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, message));
        };
        let misplaced = match () {
            () if index.constraint.is_some() => {
                Some(format!("index \"{name}\" is already associated with a constraint"))
            }
            () if of != table.oid => {
                Some(format!("index \"{name}\" does not belong to table \"{}\"", table.name))
            }
            () => None,
        };
        if let Some(message) = misplaced {
            return Err(SqlError::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        let is_plain =
            |column: &IndexColumn| !column.descending && !column.nulls_first && column.class.is_none();
        let odd = index.columns.iter().position(|column| !is_plain(column));
        let unfit = match odd {
            _ if !index.unique => format!("\"{name}\" is not a unique index"),
            _ if !index.expressions.is_empty() => format!("index \"{name}\" contains expressions"),
            _ if index.predicate.is_some() => format!("\"{name}\" is a partial index"),
            Some(at) => {
                let number = at + 1;
                format!("index \"{name}\" column number {number} does not have default sorting behavior")
            }
            None => return Ok(index.clone()),
        };
        Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, unfit)
            .with_detail("Cannot create a primary key or unique constraint using such an index."))
    }
}
