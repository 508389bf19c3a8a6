//! Adding constraints to a table that is being made or altered.

use std::sync::Arc;

use cognate_engine::TreeMode;

use super::create_index::{MAX_INDEX_COLUMNS, too_many_columns};
use super::names::make_up;
use super::request::{ConstraintRequest, ForeignKeyRequest};
use crate::catalog::{
    ForeignKey, Index, IndexColumn, Object, Privileges, Reference, ReferentialAction, Table,
};
use crate::error::{Result, SqlError, sqlstate};
use crate::oltp::deferred_unique::not_at_once;
use crate::session::work::Work;
use crate::types::cast::{self, CastContext};
use crate::types::{Datum, FormatContext, Type};

/// What a new constraint's table has of rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    /// None: the table or the column is new.
    None,
    /// Rows, all of which must meet the constraint.
    MustMeetIt,
    /// Rows that are left as they are: NOT VALID.
    NotLookedAt,
}

impl Work<'_> {
    /// Adds a constraint to `table`, which the caller stores afterwards. `rows`: what the table has
    /// of them.
    pub(crate) async fn add_constraint(
        &mut self,
        table: &mut Table,
        request: ConstraintRequest,
        rows: Rows,
    ) -> Result<()> {
        if let Some(name) = request.name()
            && table.has_constraint(name)
        {
            return Err(duplicate_constraint(name, &table.name));
        }
        match request {
            ConstraintRequest::Key { primary, .. } if rows == Rows::NotLookedAt => {
                let kind = if primary { "PRIMARY KEY" } else { "UNIQUE" };
                Err(SqlError::new(
                    sqlstate::FEATURE_NOT_SUPPORTED,
                    format!("{kind} constraints cannot be marked NOT VALID"),
                ))
            }
            request @ ConstraintRequest::Key { .. } => {
                self.add_key(table, request, rows == Rows::MustMeetIt).await
            }
            ConstraintRequest::Check { name, expression, no_inherit } => {
                let mut check = self.bind_new_check(table, name, &expression).await?;
                check.no_inherit = no_inherit;
                check.not_valid = rows == Rows::NotLookedAt;
                if rows == Rows::MustMeetIt {
                    self.validate_check(table, &check)?;
                }
                table.checks.push(check);
                table.checks.sort_by(|a, b| a.name.cmp(&b.name));
                Ok(())
            }
            ConstraintRequest::ForeignKey(request) => self.add_foreign_key(table, request, rows).await,
        }
    }

    /// A name for a key that was given none.
    fn key_name(&self, schema: &str, table: &Table, columns: &[String], primary: bool) -> String {
        let middle = if primary { String::new() } else { columns.join("_") };
        let label = if primary { "pkey" } else { "key" };
        let taken = |name: &str| {
            self.is_taken(schema, name) || name == table.name || self.is_constraint_taken(table, name)
        };
        make_up(&table.name, &middle, label, taken)
    }

    async fn add_key(&mut self, table: &mut Table, request: ConstraintRequest, loaded: bool) -> Result<()> {
        let ConstraintRequest::Key {
            name,
            columns,
            included,
            options,
            primary,
            nulls_not_distinct,
            deferrable,
        } = request
        else {
            return Err(SqlError::internal("the constraint is no key"));
        };
        let (places, included_places) = key_places(table, &columns, &included, primary)?;
        places.iter().try_for_each(|&place| self.require_class(None, table.columns[place].ty))?;
        if primary && table.declared_primary_key().is_some() {
            return Err(SqlError::new(
                sqlstate::INVALID_TABLE_DEFINITION,
                format!("multiple primary keys for table \"{}\" are not allowed", table.name),
            ));
        }
        let schema = self
            .catalog
            .schema_by_oid(table.schema)
            .cloned()
            .ok_or_else(|| super::resolve::undefined_schema(&table.schema_name))?;
        let shown = [columns, included].concat();
        let name = name.unwrap_or_else(|| self.key_name(&schema.name, table, &shown, primary));
        if name == table.name {
            return Err(super::resolve::duplicate_relation(&name));
        }
        self.claim_name(&schema, &name).await?;
        let before = table.clone();
        let is_clustered = primary && deferrable.is_none();
        let index = Index {
            oid: self.allocate_oid()?,
            name,
            tree: if is_clustered { table.tree } else { self.allocate_tree() },
            columns: places.iter().map(|&column| IndexColumn::ascending(column)).collect(),
            expressions: Vec::new(),
            predicate: None,
            unique: deferrable.is_none(),
            deferrable,
            nulls_not_distinct,
            included: included_places,
            options,
            hash: false,
            primary,
            constraint: Some(self.allocate_oid()?),
            comment: None,
            constraint_comment: None,
        };
        if primary {
            for &place in &places {
                table.columns[place].not_null = true;
            }
        }
        table.indexes.push(index);
        if !loaded {
            return Ok(());
        }
        if !is_clustered {
            return self.fill_key(table);
        }
        self.order_by_key(&before, table, &places)
    }

    /// Moves the rows into a tree ordered by the new key, and has every index lead to the new keys.
    fn order_by_key(&mut self, before: &Table, table: &mut Table, places: &[usize]) -> Result<()> {
        self.replace_trees(table);
        let after = table.clone();
        self.rekey_table(before, &after, |row| {
            let null = places.iter().find(|&&place| row[place].is_null());
            match null {
                Some(&place) => Err(contains_nulls(&after, &after.columns[place].name)),
                None => Ok(()),
            }
        })
    }

    /// Fills the index of the newest key, which has a tree of its own, with the rows there are.
    fn fill_key(&mut self, table: &Table) -> Result<()> {
        let index = table.indexes.last().cloned().ok_or_else(|| SqlError::internal("the index is there"))?;
        self.build_index(table, &index)?;
        if index.deferrable.is_some() {
            self.validate_unique(&Arc::new(table.clone()), &index)?;
        }
        index.key_columns().filter(|_| index.primary).try_for_each(|place| self.check_no_nulls(table, place))
    }

    async fn add_foreign_key(
        &mut self,
        table: &mut Table,
        request: ForeignKeyRequest,
        rows: Rows,
    ) -> Result<()> {
        let own = table.oid;
        let mut parent = self.table(&request.table)?;
        self.require_on_columns(&parent, &[], Privileges::REFERENCES)?;
        parent = match parent.oid == own {
            true => Arc::new(table.clone()),
            false => self.locked_table(&request.table, TreeMode::ShareRowExclusive).await?,
        };
        if table.temporary != parent.temporary {
            let kind = if table.temporary { "temporary" } else { "permanent" };
            return Err(SqlError::new(
                sqlstate::INVALID_TABLE_DEFINITION,
                format!("constraints on {kind} tables may reference only {kind} tables"),
            ));
        }
        let places = places(table, &request.columns, missing_in_foreign_key)?;
        let on_delete_columns = set_columns(table, &places, &request.on_delete_columns)?;
        let (referenced_places, index) = referenced_key(&parent, &request.referenced)?;
        self.require_on_columns(&parent, &referenced_places, Privileges::REFERENCES)?;
        if places.len() != referenced_places.len() {
            return Err(SqlError::new(
                sqlstate::INVALID_FOREIGN_KEY,
                "number of referencing and referenced columns for foreign key disagree",
            ));
        }
        refuse_generated(table, &places, &request)?;
        let name = request.name.unwrap_or_else(|| {
            let taken = |name: &str| self.is_constraint_taken(table, name);
            make_up(&table.name, &request.columns.join("_"), "fkey", taken)
        });
        for (&place, &referenced) in places.iter().zip(&referenced_places) {
            check_types(table, place, &parent, referenced, &name, self.format)?;
        }
        let key = ForeignKey {
            oid: self.allocate_oid()?,
            name,
            columns: places,
            referenced_table: parent.oid,
            referenced_columns: referenced_places,
            referenced_index: index,
            on_delete: request.on_delete,
            on_update: request.on_update,
            deferrable: request.deferrable,
            initially_deferred: request.initially_deferred,
            match_full: request.match_full,
            not_valid: rows == Rows::NotLookedAt,
            unchecked: false,
            comment: None,
            on_delete_columns,
        };
        if rows == Rows::MustMeetIt {
            self.validate_foreign_key(table, &parent, &key)?;
        }
        let reference = Reference { table: own, constraint: key.oid, unheeded: false };
        table.foreign_keys.push(key);
        if parent.oid == own {
            table.referenced_by.push(reference);
            return Ok(());
        }
        let mut parent = Table::clone(&parent);
        parent.referenced_by.push(reference);
        self.change(Object::Table(parent.into()))
    }
}

pub(crate) fn duplicate_constraint(name: &str, table: &str) -> SqlError {
    SqlError::new(
        sqlstate::DUPLICATE_OBJECT,
        format!("constraint \"{name}\" for relation \"{table}\" already exists"),
    )
}

/// 23502 as ALTER TABLE reports it.
pub(crate) fn contains_nulls(table: &Table, column: &str) -> SqlError {
    SqlError::new(
        sqlstate::NOT_NULL_VIOLATION,
        format!("column \"{column}\" of relation \"{}\" contains null values", table.name),
    )
    .with_table(&table.schema_name, &table.name)
    .with_column(column)
}

/// The same for a row that is written anew.
pub(super) fn check_rewritten(table: &Table, row: &[Datum]) -> Result<()> {
    let mut columns = table.visible_columns();
    match columns.find(|(place, column)| column.not_null && row[*place].is_null()) {
        Some((_, column)) => Err(contains_nulls(table, &column.name)),
        None => Ok(()),
    }
}

fn places(table: &Table, columns: &[String], missing: impl Fn(&str) -> String) -> Result<Vec<usize>> {
    columns
        .iter()
        .map(|column| {
            let place = table.column_place(column);
            place.ok_or_else(|| SqlError::new(sqlstate::UNDEFINED_COLUMN, missing(column)))
        })
        .collect()
}

fn missing_in_foreign_key(column: &str) -> String {
    format!("column \"{column}\" referenced in foreign key constraint does not exist")
}

/// The places of the columns that ON DELETE sets, each once. 42P10 if one is not of the key.
fn set_columns(table: &Table, key: &[usize], listed: &[String]) -> Result<Vec<usize>> {
    let mut set = Vec::with_capacity(listed.len());
    for place in places(table, listed, missing_in_foreign_key)? {
        if !key.contains(&place) {
            let column = &table.columns[place].name;
            return Err(SqlError::new(
                sqlstate::INVALID_COLUMN_REFERENCE,
                format!("column \"{column}\" referenced in ON DELETE SET action must be part of foreign key"),
            ));
        }
        if !set.contains(&place) {
            set.push(place);
        }
    }
    Ok(set)
}

/// The places of a key's columns, and of those of its INCLUDE, among which one may be twice.
fn key_places(
    table: &Table,
    columns: &[String],
    included: &[String],
    primary: bool,
) -> Result<(Vec<usize>, Vec<usize>)> {
    for (at, column) in columns.iter().enumerate() {
        if columns[..at].contains(column) {
            let kind = if primary { "primary key" } else { "unique" };
            return Err(SqlError::new(
                sqlstate::DUPLICATE_COLUMN,
                format!("column \"{column}\" appears twice in {kind} constraint"),
            ));
        }
    }
    let missing = |column: &str| format!("column \"{column}\" named in key does not exist");
    let (columns, included) = (places(table, columns, missing)?, places(table, included, missing)?);
    match columns.len() + included.len() {
        ..=MAX_INDEX_COLUMNS => Ok((columns, included)),
        _ => Err(too_many_columns()),
    }
}

/// The places of a referenced key's columns, in the order asked for, and the oid of its unique
/// index. 55000 for one that is DEFERRABLE.
fn referenced_key(parent: &Table, columns: &[String]) -> Result<(Vec<usize>, u32)> {
    if columns.is_empty() {
        let key = parent.declared_primary_key().ok_or_else(|| {
            SqlError::new(
                sqlstate::UNDEFINED_OBJECT,
                format!("there is no primary key for referenced table \"{}\"", parent.name),
            )
        })?;
        if key.deferrable.is_some() {
            let table = &parent.name;
            return Err(not_at_once(&format!(
                "cannot use a deferrable primary key for referenced table \"{table}\""
            )));
        }
        return Ok((key.key_columns().collect(), key.oid));
    }
    let places = places(parent, columns, missing_in_foreign_key)?;
    let mut sorted = places.clone();
    sorted.sort_unstable();
    let matches = |index: &&Index| {
        let mut columns: Vec<usize> = index.key_columns().collect();
        columns.sort_unstable();
        index.is_plain() && columns == sorted
    };
    match parent.indexes.iter().filter(matches).find(|index| index.is_key()) {
        Some(index) => Ok((places, index.oid)),
        None if parent.indexes.iter().filter(matches).any(|index| index.deferrable.is_some()) => {
            let table = &parent.name;
            Err(not_at_once(&format!(
                "cannot use a deferrable unique constraint for referenced table \"{table}\""
            )))
        }
        None => Err(SqlError::new(
            sqlstate::INVALID_FOREIGN_KEY,
            format!(
                "there is no unique constraint matching given keys for referenced table \"{}\"",
                parent.name
            ),
        )),
    }
}

/// 42804 if the columns of a foreign key cannot be compared.
pub(super) fn check_types(
    table: &Table,
    place: usize,
    parent: &Table,
    referenced: usize,
    name: &str,
    format: &FormatContext,
) -> Result<()> {
    let (column, target) = (&table.columns[place], &parent.columns[referenced]);
    // The same kind of type is not enough: there are many enum types.
    let convertible = cast::find(column.ty, target.ty, CastContext::Implicit).is_some()
        || (column.ty.id.is_integer() && target.ty.id.is_integer());
    if convertible {
        return Ok(());
    }
    let named = |ty: Type| match ty.user_type() {
        Some(_) => ty.format_with(format),
        None => ty.id.sql_name().to_owned(),
    };
    Err(SqlError::new(
        sqlstate::DATATYPE_MISMATCH,
        format!("foreign key constraint \"{name}\" cannot be implemented"),
    )
    .with_detail(format!(
        "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
        column.name,
        target.name,
        named(column.ty),
        named(target.ty)
    )))
}

/// 42601 for what a foreign key would do to a generated column.
fn refuse_generated(table: &Table, places: &[usize], request: &ForeignKeyRequest) -> Result<()> {
    use ReferentialAction as Action;
    if !places.iter().any(|&place| table.columns[place].generated.is_some()) {
        return Ok(());
    }
    let sets = |action| matches!(action, Action::SetNull | Action::SetDefault);
    let clause = match () {
        () if sets(request.on_update) || request.on_update == Action::Cascade => "ON UPDATE",
        () if sets(request.on_delete) => "ON DELETE",
        () => return Ok(()),
    };
    let message = format!("invalid {clause} action for foreign key constraint containing generated column");
    Err(SqlError::syntax(message))
}
