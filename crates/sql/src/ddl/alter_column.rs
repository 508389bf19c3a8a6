//! ALTER COLUMN and DROP COLUMN.

use std::sync::Arc;

use cognate_engine::TreeMode;
use sqlparser::ast;

use super::alter_table::{bury, column_place};
use super::constraint::contains_nulls;
use super::drop::default_sequence;
use super::resolve::undefined_column;
use crate::bind::resolve_type;
use crate::catalog::{Identity, Object, Oid, Relation, Table, View};
use crate::error::{Result, SqlError, sqlstate};
use crate::parse::dropped_expression;
use crate::session::work::Work;
use crate::types::{Datum, Type};

impl Work<'_> {
    /// ALTER COLUMN.
    pub(crate) async fn alter_column(
        &mut self,
        oid: Oid,
        name: &str,
        operation: &ast::AlterColumnOperation,
    ) -> Result<()> {
        use ast::AlterColumnOperation as Operation;
        let mut table = self.table_copy(oid)?;
        let place = column_place(&table, name)?;
        match operation {
            Operation::SetNotNull => {
                self.check_no_nulls(&table, place)?;
                table.columns[place].not_null = true;
            }
            Operation::DropNotNull => {
                let in_key =
                    |index: &crate::catalog::Index| index.key_columns().any(|column| column == place);
                if table.declared_primary_key().is_some_and(in_key) {
                    return Err(SqlError::new(
                        sqlstate::INVALID_TABLE_DEFINITION,
                        format!("column \"{name}\" is in a primary key"),
                    ));
                }
                if table.columns[place].identity.is_some() {
                    return Err(identity_column(&table, name));
                }
                table.columns[place].not_null = false;
            }
            Operation::SetDefault { value } => {
                if let Some(if_there) = dropped_expression(value) {
                    return self.drop_expression(table, place, if_there);
                }
                if table.columns[place].identity.is_some() {
                    return Err(identity_column(&table, name));
                }
                if table.columns[place].generated.is_some() {
                    return Err(generated_column(&table, name));
                }
                table.columns[place].default = self.default_text(&table.columns[place], value)?;
            }
            Operation::DropDefault => {
                if table.columns[place].identity.is_some() {
                    return Err(identity_column(&table, name)
                        .with_hint("Use ALTER TABLE ... ALTER COLUMN ... DROP IDENTITY instead."));
                }
                if table.columns[place].generated.is_some() {
                    return Err(generated_column(&table, name)
                        .with_hint("Use ALTER TABLE ... ALTER COLUMN ... DROP EXPRESSION instead."));
                }
                table.columns[place].default = None;
            }
            Operation::SetDataType { data_type, using, .. } => {
                let ty = resolve_type(data_type, self.format)?;
                self.hold_types(&[ty]).await?;
                let column = &table.columns[place];
                let sequence = column.sequence.filter(|_| column.identity.is_some());
                self.alter_type(table, place, ty, using.as_ref())?;
                return match sequence {
                    Some(sequence) => self.retype_sequence(sequence, data_type).await,
                    None => Ok(()),
                };
            }
            Operation::AddGenerated { generated_as, sequence_options } => {
                let options = sequence_options.as_deref().unwrap_or_default();
                return self.add_identity(table, place, generated_as.as_ref(), options).await;
            }
        }
        self.change(Object::Table(table.into()))
    }

    /// A generated column becomes an ordinary one; its values stay.
    fn drop_expression(&mut self, mut table: Table, place: usize, if_there: bool) -> Result<()> {
        let column = &mut table.columns[place];
        if column.generated.take().is_some() {
            return self.change(Object::Table(table.into()));
        }
        let what = format!(
            "column \"{}\" of relation \"{}\" is not a stored generated column",
            column.name, table.name
        );
        if if_there {
            self.notice(SqlError::notice(what + ", skipping"));
            return Ok(());
        }
        Err(SqlError::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, what))
    }

    pub(super) fn check_no_nulls(&mut self, table: &Table, place: usize) -> Result<()> {
        self.for_each_row(table, |_, _, row| match row[place].is_null() {
            true => Err(contains_nulls(table, &table.columns[place].name)),
            false => Ok(()),
        })
    }

    async fn add_identity(
        &mut self,
        mut table: Table,
        place: usize,
        kind: Option<&ast::GeneratedAs>,
        options: &[ast::SequenceOptions],
    ) -> Result<()> {
        let name = table.columns[place].name.clone();
        if table.columns[place].identity.is_some() {
            return Err(SqlError::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("column \"{name}\" of relation \"{}\" is already an identity column", table.name),
            ));
        }
        if table.columns[place].default.is_some() || table.columns[place].generated.is_some() {
            return Err(SqlError::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("column \"{name}\" of relation \"{}\" already has a default value", table.name),
            ));
        }
        if !table.columns[place].not_null {
            return Err(SqlError::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!(
                    "column \"{name}\" of relation \"{}\" must be declared NOT NULL before identity can be added",
                    table.name
                ),
            ));
        }
        let schema = self.schema_of(table.schema)?;
        let options = super::sequence::identity_options(options)?;
        let sequence = self.column_sequence_name(&schema, &table.name, &name, &options)?;
        let (ty, owner) = (table.columns[place].ty, Some((table.oid, place)));
        let oid = self.make_sequence(&schema, &sequence, ty, &options, owner, true).await?;
        let column = &mut table.columns[place];
        column.sequence = Some(oid);
        column.default = Some(super::sequence::nextval(oid));
        column.identity = Some(match kind {
            Some(ast::GeneratedAs::ByDefault) => Identity::ByDefault,
            _ => Identity::Always,
        });
        self.change(Object::Table(table.into()))
    }

    /// ALTER COLUMN TYPE: rewrites the table, unless the stored values are the same in the new
    /// type.
    fn alter_type(&mut self, before: Table, place: usize, ty: Type, using: Option<&ast::Expr>) -> Result<()> {
        let mut table = before.clone();
        let name = before.columns[place].name.clone();
        if let Some(view) = self.view_using(&before, place)? {
            return Err(SqlError::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                "cannot alter type of a column used by a view or rule",
            )
            .with_detail(format!("rule _RETURN on view {view} depends on column \"{name}\"")));
        }
        if before.columns[place].identity.is_some() && !ty.id.is_integer() {
            return Err(SqlError::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                "identity column type must be smallint, integer, or bigint",
            ));
        }
        refuse_generated(&before, place, using)?;
        table.columns[place].ty = ty;
        let conversion = match self.bind_generated(&table, place)? {
            Some(generated) => generated,
            None => self.bind_conversion(&before, place, ty, using)?,
        };
        if let Some(computed) = &mut table.columns[place].generated {
            computed.ty = ty;
        }
        self.check_keys_of(&table, place)?;
        if let Some(default) = table.columns[place].default.take() {
            let column = &mut table.columns[place];
            column.default = Some(self.convert_default(column, &default, before.columns[place].ty)?);
        }
        for check in &table.checks {
            self.bind_check(&table, &check.expression)?;
        }
        self.recheck_computed(&mut table, place)?;
        table.columns[place].missing = Datum::Null;
        self.replace_trees_after(&before, &mut table);
        let after = table.clone();
        self.rewrite_table(&before, &after, |work, mut row| {
            row[place] = work.evaluate(&conversion, &row)?;
            crate::oltp::constraint::check_not_null(&after, &row, work.format)?;
            Ok(row)
        })?;
        self.change(Object::Table(table.clone().into()))?;
        let shared = Arc::new(table.clone());
        let deferrable = table.indexes.iter().filter(|index| index.deferrable.is_some());
        for index in deferrable.filter(|index| index.mentions(place)) {
            self.validate_unique(&shared, index)?;
        }
        for check in table.checks.iter().filter(|check| !check.not_valid) {
            self.validate_check(&table, check)?;
        }
        for key in table.foreign_keys.iter().filter(|key| !key.not_valid) {
            let parent = match key.referenced_table == table.oid {
                true => Some(Arc::new(table.clone())),
                false => self.catalog.table_by_oid(key.referenced_table).cloned(),
            };
            let is_of_own = key.referenced_table == table.oid && key.referenced_columns.contains(&place);
            if let Some(parent) = parent.filter(|_| is_of_own || key.columns.contains(&place)) {
                self.validate_foreign_key(&table, &parent, key)?;
            }
        }
        self.validate_references(&table, place)
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
        let broken = self.broken_view(table.oid)?;
        self.change(Object::Table(table.clone().into()))?;
        Ok(broken.map(|view| view.name.clone()))
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

    /// DROP COLUMN: with the indexes and constraints that name it.
    pub(crate) async fn alter_drop_column(
        &mut self,
        oid: Oid,
        name: &str,
        if_exists: bool,
        cascade: bool,
    ) -> Result<()> {
        let table = self.table_copy(oid)?;
        let Some(place) = table.column_place(name) else {
            let error = undefined_column(name, &table.name);
            if !if_exists {
                return Err(error);
            }
            self.notice(SqlError::notice(format!("{}, skipping", error.message)));
            return Ok(());
        };
        let what = format!("column {name} of table {}", table.name);
        let indexes: Vec<_> = table.indexes.iter().filter(|index| index.mentions(place)).cloned().collect();
        for index in &indexes {
            self.drop_references(&table, index, &what, cascade).await?;
            self.drop_key(oid, index)?;
        }
        self.drop_generated_from(oid, place, &what, cascade).await?;
        let mut table = self.table_copy(oid)?;
        let (gone, stay): (Vec<_>, Vec<_>) =
            std::mem::take(&mut table.foreign_keys).into_iter().partition(|key| key.columns.contains(&place));
        table.foreign_keys = stay;
        table.checks.retain(|check| !check.columns.contains(&place));
        let owned = self.catalog.sequences().filter(|sequence| sequence.owner == Some((oid, place)));
        let sequences: Vec<Oid> = owned.map(|sequence| sequence.oid).collect();
        bury(&mut table.columns[place], place);
        self.drop_defaults_of(&sequences, &mut table, &what, cascade).await?;
        let before = self.catalog.clone();
        self.change(Object::Table(table.clone().into()))?;
        self.forget_column(oid, place).await?;
        self.follow_in_views(&before, oid).await?;
        for key in &gone {
            self.forget_reference(key).await?;
        }
        for sequence in sequences {
            self.lock_table(sequence, TreeMode::Exclusive).await?;
            self.remove(sequence)?;
        }
        self.drop_broken_views(oid, &what, cascade).await
    }

    /// Takes away the defaults that are values of sequences which go, with CASCADE; 2BP01 without.
    /// Those of `table` itself are left to the caller to store.
    async fn drop_defaults_of(
        &mut self,
        sequences: &[Oid],
        table: &mut Table,
        what: &str,
        cascade: bool,
    ) -> Result<()> {
        let mut dependents = Vec::new();
        let oids: Vec<Oid> = self.catalog.tables().map(|other| other.oid).collect();
        for oid in oids {
            let is_own = oid == table.oid;
            let Some(known) = self.catalog.table_by_oid(oid) else { continue };
            let known = if is_own { &*table } else { known.as_ref() };
            if !uses_one_of(known, sequences) {
                continue;
            }
            if cascade {
                self.lock_table(oid, TreeMode::Exclusive).await?;
            }
            let Some(known) = self.catalog.table_by_oid(oid) else { continue };
            let mut other = if is_own { table.clone() } else { Table::clone(known) };
            self.take_defaults_of(sequences, &mut other, &mut dependents);
            if cascade && is_own {
                *table = other;
            } else if cascade {
                self.change(Object::Table(other.into()))?;
            }
        }
        if !cascade && !dependents.is_empty() {
            return Err(super::drop::depend(what, &dependents));
        }
        let dropped: Vec<String> = dependents.into_iter().map(|(who, _)| who).collect();
        self.notices.extend(super::drop::cascade_notice(&dropped));
        Ok(())
    }

    /// Takes the defaults away that are values of these sequences, and says which on what.
    fn take_defaults_of(&self, sequences: &[Oid], table: &mut Table, taken: &mut Vec<(String, String)>) {
        let described = super::drop::describe(self, &Relation::Table(Arc::new(table.clone())));
        for column in &mut table.columns {
            let used = column.default.as_deref().and_then(default_sequence);
            let Some(used) = used.filter(|used| sequences.contains(used)) else { continue };
            let on = self.catalog.relation_by_oid(used).map(|on| super::drop::describe(self, on));
            let who = format!("default value for column {} of {described}", column.name);
            taken.push((who, on.unwrap_or_default()));
            column.default = None;
        }
    }

    /// Drops the columns that are made from one that goes, with CASCADE; 2BP01 without.
    async fn drop_generated_from(&mut self, oid: Oid, base: usize, what: &str, cascade: bool) -> Result<()> {
        let table = self.table_copy(oid)?;
        let generated = table.visible_columns().filter(|(place, _)| table.is_generated_from(*place, base));
        let names: Vec<String> = generated.map(|(_, column)| column.name.clone()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let described = |name: &String| format!("column {name} of table {}", table.name);
        if !cascade {
            let dependents = names.iter().map(|name| (described(name), what.to_owned()));
            return Err(super::drop::depend(what, &dependents.collect::<Vec<_>>()));
        }
        let notice = super::drop::cascade_notice(&names.iter().map(described).collect::<Vec<_>>());
        self.notices.extend(notice);
        for name in &names {
            Box::pin(self.alter_drop_column(oid, name, false, true)).await?;
        }
        Ok(())
    }

    /// Drops the views over a table that its definition no longer fits, with CASCADE; 2BP01
    /// without.
    pub(crate) async fn drop_broken_views(&mut self, table: Oid, what: &str, cascade: bool) -> Result<()> {
        while let Some(view) = self.broken_view(table)? {
            let view_name = super::drop::describe(self, &Relation::View(view.clone()));
            if !cascade {
                return Err(SqlError::new(
                    sqlstate::DEPENDENT_OBJECTS_STILL_EXIST,
                    format!("cannot drop {what} because other objects depend on it"),
                )
                .with_detail(format!("{view_name} depends on {what}"))
                .with_hint("Use DROP ... CASCADE to drop the dependent objects too."));
            }
            self.notice(SqlError::notice(format!("drop cascades to {view_name}")));
            let name = ast::ObjectName::from(vec![
                ast::Ident::with_quote('"', &view.schema_name),
                ast::Ident::with_quote('"', &view.name),
            ]);
            self.drop_relations("view", &[name], false, true).await?;
        }
        Ok(())
    }
}

/// Whether a default of a table's columns is a value of one of these sequences.
fn uses_one_of(table: &Table, sequences: &[Oid]) -> bool {
    let mut used = table.columns.iter().filter_map(|column| default_sequence(column.default.as_deref()?));
    used.any(|sequence| sequences.contains(&sequence))
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

fn generated_column(table: &Table, column: &str) -> SqlError {
    SqlError::syntax(format!("column \"{column}\" of relation \"{}\" is a generated column", table.name))
}

fn identity_column(table: &Table, column: &str) -> SqlError {
    SqlError::new(
        sqlstate::SYNTAX_ERROR,
        format!("column \"{column}\" of relation \"{}\" is an identity column", table.name),
    )
}
