//! ALTER COLUMN and DROP COLUMN. Of new types see `alter_type`.

use std::sync::Arc;

use cognate_engine::TreeMode;
use sqlparser::ast;

use super::alter_table::{bury, column_place};
use super::constraint::contains_nulls;
use super::resolve::undefined_column;
use super::sequence::sequences_in;
use crate::catalog::{Identity, Object, Oid, Relation, ReplicaIdentity, Table, View};
use crate::error::{Result, SqlError, sqlstate};
use crate::parse::dropped_expression;
use crate::session::work::Work;

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
                tells_no_row(&table, place, name)?;
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
                table.columns[place].default = self.default_text(&table.columns[place], value).await?;
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
            // Types change together.
            Operation::SetDataType { .. } => return Err(SqlError::internal("a type is changed alone")),
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
        super::sequence::check_identity_type(table.columns[place].ty)?;
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
        for &sequence in &sequences {
            // Who is about to take values of one is waited for, and looked at.
            self.lock_table(sequence, TreeMode::Exclusive).await?;
        }
        bury(&mut table.columns[place], place);
        self.drop_defaults_of(&sequences, &mut table, &what, cascade).await?;
        let natural = self.natural_over(oid)?;
        let before = self.catalog.clone();
        self.change(Object::Table(table.clone().into()))?;
        self.forget_column(oid, place).await?;
        self.follow_in_views(&before, oid).await?;
        self.drop_unlike_views(natural, &what, cascade).await?;
        for key in &gone {
            self.forget_reference(key).await?;
        }
        for &sequence in &sequences {
            self.remove(sequence)?;
        }
        self.drop_broken_views(oid, &what, cascade).await?;
        for sequence in sequences {
            self.drop_broken_views(sequence, &what, cascade).await?;
        }
        Ok(())
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
            let is_gone = |oid: &Oid| sequences.contains(oid);
            let used = column.default.as_deref().and_then(|text| sequences_in(text).find(is_gone));
            let Some(used) = used else { continue };
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
            self.drop_view_over(view, what, cascade).await?;
        }
        Ok(())
    }

    /// The same of views that still bind, but whose NATURAL JOINs compare other columns than these.
    async fn drop_unlike_views(
        &mut self,
        natural: Vec<(Oid, Vec<String>)>,
        what: &str,
        cascade: bool,
    ) -> Result<()> {
        for (oid, columns) in natural {
            let Some(Relation::View(view)) = self.catalog.relation_by_oid(oid).cloned() else { continue };
            if self.view_fits(&view)? && self.bind_view(&view)? != columns {
                self.drop_view_over(view, what, cascade).await?;
            }
        }
        Ok(())
    }

    /// Drops a view with CASCADE; 2BP01 without.
    async fn drop_view_over(&mut self, view: Arc<View>, what: &str, cascade: bool) -> Result<()> {
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
        self.drop_relations("view", &[name], false, true).await
    }
}

/// 42P16 for a column that rows are told by, which must have no NULLs.
fn tells_no_row(table: &Table, place: usize, name: &str) -> Result<()> {
    for index in table.indexes.iter().filter(|index| index.key_columns().any(|column| column == place)) {
        let what = match table.hints.replica_identity {
            _ if index.primary => "a primary key",
            ReplicaIdentity::Index(oid) if oid == index.oid => "index used as replica identity",
            _ => continue,
        };
        let message = format!("column \"{name}\" is in {what}");
        return Err(SqlError::new(sqlstate::INVALID_TABLE_DEFINITION, message));
    }
    Ok(())
}

/// Whether a default of a table's columns is a value of one of these sequences.
fn uses_one_of(table: &Table, sequences: &[Oid]) -> bool {
    let defaults = table.columns.iter().filter_map(|column| column.default.as_deref());
    defaults.flat_map(sequences_in).any(|sequence| sequences.contains(&sequence))
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
