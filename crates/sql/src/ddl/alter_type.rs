//! ALTER COLUMN TYPE.
//!
//! All columns of a statement that get another type get it at once: what USING computes, it
//! computes from the row as it was. So two columns can change places:
//!
//! ```text
//! ALTER TABLE t ALTER a TYPE int USING b, ALTER b TYPE int USING a
//! ```

use std::sync::Arc;

use sqlparser::ast;

use super::alter_table::{bury, column_place};
use super::request::require_collatable;
use crate::bind::{renamed, resolve_type};
use crate::catalog::{Collation, Object, Oid, Table, View, put_hint};
use crate::error::{Result, SqlError, sqlstate};
use crate::parse::split_collated;
use crate::session::work::Work;
use crate::types::{Datum, Type};

/// A new type of a column, as a statement says it.
pub(super) struct TypeChange<'a> {
    pub(super) column: String,
    data_type: &'a ast::DataType,
    collation: Option<Collation>,
    using: Option<&'a ast::Expr>,
}

impl<'a> TypeChange<'a> {
    /// What an operation says, if it is about a type.
    pub(super) fn of(operation: &'a ast::AlterTableOperation) -> Option<TypeChange<'a>> {
        use ast::{AlterColumnOperation as Column, AlterTableOperation as Operation};
        let Operation::AlterColumn { column_name, op } = operation else { return None };
        let Column::SetDataType { data_type, using, .. } = op else { return None };
        let (column, collation) = split_collated(column_name);
        Some(TypeChange { column, data_type, collation, using: using.as_ref() })
    }
}

/// The same with what it names.
struct Retyped<'a> {
    place: usize,
    ty: Type,
    collation: Option<Collation>,
    using: Option<&'a ast::Expr>,
}

impl Work<'_> {
    /// Gives columns new types.
    pub(super) async fn alter_types(&mut self, oid: Oid, changes: &[TypeChange<'_>]) -> Result<()> {
        let before = self.table_copy(oid)?;
        let mut retyped: Vec<Retyped<'_>> = Vec::with_capacity(changes.len());
        for change in changes {
            let place = column_place(&before, &change.column)?;
            self.require_usage_for_type(change.data_type)?;
            let ty = resolve_type(change.data_type, self.format)?;
            if retyped.iter().any(|other| other.place == place) {
                let message = format!("cannot alter type of column \"{}\" twice", change.column);
                return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
            }
            self.hold_types(&[ty]).await?;
            if change.collation.is_some() {
                require_collatable(ty, self.format)?;
            }
            retyped.push(Retyped { place, ty, collation: change.collation, using: change.using });
        }
        self.retype(&before, &retyped)?;
        for (change, retyped) in changes.iter().zip(&retyped) {
            let column = &before.columns[retyped.place];
            if let Some(sequence) = column.sequence.filter(|_| column.identity.is_some()) {
                self.retype_sequence(sequence, change.data_type).await?;
            }
        }
        Ok(())
    }

    /// Rewrites the table with the columns' new types.
    fn retype(&mut self, before: &Table, changes: &[Retyped<'_>]) -> Result<()> {
        let mut table = before.clone();
        for change in changes {
            self.refuse_to_retype(before, change)?;
            table.columns[change.place].ty = change.ty;
            table.columns[change.place].collation = change.collation;
            // Values of another type are stored as it has them stored.
            put_hint(&mut table.hints.storage, change.place, None);
        }
        let mut conversions = Vec::with_capacity(changes.len());
        for change in changes {
            let conversion = match self.bind_generated(&table, change.place)? {
                Some(generated) => generated,
                None => self.bind_conversion(before, change.place, change.ty, change.using)?,
            };
            conversions.push((change.place, conversion));
        }
        self.fit_types(before, &mut table, changes)?;
        self.replace_trees_after(before, &mut table);
        let after = table.clone();
        self.rewrite_table(before, &after, |work, mut row| {
            let mut values = Vec::with_capacity(conversions.len());
            for (_, conversion) in &conversions {
                values.push(work.evaluate(conversion, &row)?);
            }
            for ((place, _), value) in conversions.iter().zip(values) {
                row[*place] = value;
            }
            super::constraint::check_rewritten(&after, &row)?;
            Ok(row)
        })?;
        self.change(Object::Table(table.clone().into()))?;
        let places: Vec<usize> = changes.iter().map(|change| change.place).collect();
        self.validate_retyped(&table, &places)
    }

    /// 0A000 for a column that something else is made from; 22023, 42611.
    fn refuse_to_retype(&mut self, before: &Table, change: &Retyped<'_>) -> Result<()> {
        let name = &before.columns[change.place].name;
        if let Some(view) = self.view_using(before, change.place)? {
            return Err(SqlError::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                "cannot alter type of a column used by a view or rule",
            )
            .with_detail(format!("rule _RETURN on view {view} depends on column \"{name}\"")));
        }
        if before.columns[change.place].identity.is_some() {
            super::sequence::check_identity_type(change.ty)?;
        }
        refuse_generated(before, change.place, change.using)
    }

    /// Lets what a table says of its columns follow their new types, which it has already.
    fn fit_types(&self, before: &Table, table: &mut Table, changes: &[Retyped<'_>]) -> Result<()> {
        for &Retyped { place, ty, .. } in changes {
            if let Some(computed) = &mut table.columns[place].generated {
                computed.ty = ty;
            }
            self.check_keys_of(table, place)?;
            if let Some(default) = table.columns[place].default.take() {
                let column = &mut table.columns[place];
                column.default = Some(self.convert_default(column, &default, before.columns[place].ty)?);
            }
        }
        for check in &table.checks {
            self.bind_check(table, &check.expression)?;
        }
        for change in changes {
            self.recheck_computed(table, change.place)?;
            table.columns[change.place].missing = Datum::Null;
        }
        self.check_classes(table, changes)
    }

    /// 42704 or 42804 if an index cannot have the values of a new type.
    fn check_classes(&self, table: &Table, changes: &[Retyped<'_>]) -> Result<()> {
        let is_new = |place: usize| changes.iter().any(|change| change.place == place);
        for index in table.indexes.iter().filter(|index| index.made_from().any(is_new)) {
            for part in &index.columns {
                self.require_class(part.class, table.key_type(index, part.key))?;
            }
        }
        Ok(())
    }

    /// Whether the rewritten rows meet the constraints.
    fn validate_retyped(&mut self, table: &Table, places: &[usize]) -> Result<()> {
        let shared = Arc::new(table.clone());
        let deferrable = table.indexes.iter().filter(|index| index.deferrable.is_some());
        for index in deferrable.filter(|index| places.iter().any(|place| index.mentions(*place))) {
            self.validate_unique(&shared, index)?;
        }
        for check in table.checks.iter().filter(|check| !check.not_valid) {
            self.validate_check(table, check)?;
        }
        for key in table.foreign_keys.iter().filter(|key| !key.not_valid) {
            let parent = match key.referenced_table == table.oid {
                true => Some(shared.clone()),
                false => self.catalog.table_by_oid(key.referenced_table).cloned(),
            };
            let is_in = |columns: &[usize]| columns.iter().any(|column| places.contains(column));
            let is_of_own = key.referenced_table == table.oid && is_in(&key.referenced_columns);
            if let Some(parent) = parent.filter(|_| is_of_own || is_in(&key.columns)) {
                self.validate_foreign_key(table, &parent, key)?;
            }
        }
        places.iter().try_for_each(|place| self.validate_references(table, *place))
    }

    /// The name of a view that uses a column: it would not fit the table without. A NATURAL JOIN
    /// may use it without naming it.
    fn view_using(&mut self, table: &Table, place: usize) -> Result<Option<String>> {
        let over = |view: &&Arc<View>| view.depends_on.contains(&table.oid);
        let catalog = self.catalog.clone();
        let is_natural = |view: &&Arc<View>| view.query.contains("NATURAL");
        if catalog.views().all(|view| !over(&view)) {
            return Ok(None);
        }
        if let Some(view) = catalog.views().filter(over).find(is_natural) {
            return Ok(Some(view.name.clone()));
        }
        let mut without = table.clone();
        bury(&mut without.columns[place], place);
        self.change(Object::Table(without.into()))?;
        let after = self.catalog.clone();
        let mut using = None;
        for view in catalog.views().filter(over) {
            // It may name columns by their places, and is to follow as if this one were dropped.
            let query = renamed(view, &catalog, &after, &view.search_path);
            if !self.view_fits(&View { query, ..View::clone(view) })? {
                using = Some(view.name.clone());
                break;
            }
        }
        self.change(Object::Table(table.clone().into()))?;
        Ok(using)
    }

    /// 23503 if rows of other tables do not find the new values of a column that they refer to.
    fn validate_references(&mut self, table: &Table, place: usize) -> Result<()> {
        let catalog = self.catalog.clone();
        let parent = Arc::new(table.clone());
        for child in catalog.tables().filter(|child| child.oid != table.oid) {
            for key in child.foreign_keys.iter().filter(|key| !key.not_valid) {
                if key.referenced_table == table.oid && key.referenced_columns.contains(&place) {
                    self.validate_foreign_key(child, &parent, key)?;
                }
            }
        }
        Ok(())
    }

    /// 42804 if a foreign key over or to a column has no operator for its new type.
    fn check_keys_of(&self, table: &Table, place: usize) -> Result<()> {
        for key in &table.foreign_keys {
            let parent = match key.referenced_table == table.oid {
                true => Some(table),
                false => self.catalog.table_by_oid(key.referenced_table).map(AsRef::as_ref),
            };
            for (own, other) in key.columns.iter().zip(&key.referenced_columns) {
                if let Some(parent) = parent.filter(|_| *own == place) {
                    super::constraint::check_types(table, *own, parent, *other, &key.name, self.format)?;
                }
            }
        }
        for child in self.catalog.tables().filter(|child| child.oid != table.oid) {
            for key in child.foreign_keys.iter().filter(|key| key.referenced_table == table.oid) {
                for (own, other) in key.columns.iter().zip(&key.referenced_columns) {
                    if *other == place {
                        super::constraint::check_types(child, *own, table, *other, &key.name, self.format)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn replace_trees_after(&mut self, before: &Table, table: &mut Table) {
        self.drop_trees(before);
        table.tree = self.allocate_tree();
        for index in &mut table.indexes {
            index.tree = if index.is_clustered() { table.tree } else { self.allocate_tree() };
        }
    }
}

/// 0A000 if another column is made from this one; 42611 for USING where it is itself a generated
/// one.
fn refuse_generated(table: &Table, place: usize, using: Option<&ast::Expr>) -> Result<()> {
    let name = &table.columns[place].name;
    let mut columns = table.visible_columns();
    if let Some((_, generated)) = columns.find(|(other, _)| table.is_generated_from(*other, place)) {
        let generated = &generated.name;
        return Err(SqlError::new(
            sqlstate::FEATURE_NOT_SUPPORTED,
            "cannot alter type of a column used by a generated column",
        )
        .with_detail(format!("Column \"{name}\" is used by generated column \"{generated}\".")));
    }
    if table.columns[place].generated.is_some() && using.is_some() {
        return Err(SqlError::new(
            sqlstate::INVALID_COLUMN_DEFINITION,
            "cannot specify USING when altering type of generated column",
        )
        .with_detail(format!("Column \"{name}\" is a generated column.")));
    }
    Ok(())
}
