//! What ALTER TABLE says of a table that has no effect here, and that dumps say again: SET
//! STATISTICS (also by ALTER INDEX), SET STORAGE, SET of a column's options, CLUSTER ON, REPLICA
//! IDENTITY. It is checked as PostgreSQL does, and kept; but for SET TABLESPACE, of which there is
//! nothing to keep.
//!
//! The table is locked as for storage parameters (`storage`): readers and writers go on.

use cognate_engine::TreeMode;
use sqlparser::ast;

use super::alter_relation::action_not_for;
use super::create_table::{check_once, merged_options};
use super::names::Qualified;
use super::resolve::{undefined_column, undefined_table, wrong_type};
use super::storage::without_options;
use crate::catalog::{Catalog, Index, IndexKey, Object, Oid, Relation, ReplicaIdentity, Table, put_hint};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold;
use crate::parse::{AlterRelation, NewReplicaIdentity, RelationChange, known_tablespace};
use crate::pg_catalog::storage_of;
use crate::session::work::Work;

/// The highest statistics target.
const TARGET_MAX: i64 = 10_000;
/// The highest number that a column can be called by.
const NUMBER_MAX: u64 = 32_767;

impl Work<'_> {
    /// One of these. 42809 if it is not of a table.
    pub(super) async fn alter_hints(
        &mut self,
        name: &Qualified,
        found: &Relation,
        alter: &AlterRelation,
    ) -> Result<()> {
        if let RelationChange::SetIndexStatistics { number, target } = alter.change {
            return self.alter_index_statistics(name, found, alter.tag(), (number, target)).await;
        }
        if let RelationChange::SetTablespace(space) = &alter.change {
            let is_index = matches!(found, Relation::Index(..));
            return match found {
                _ if alter.is_index && !is_index => Err(wrong_type(found.name(), "index")),
                Relation::Index(..) | Relation::Table(_) => known_tablespace(&fold(space)),
                _ => Err(action_not_for(found, alter.change.action())),
            };
        }
        if !matches!(found, Relation::Table(_)) {
            return Err(action_not_for(found, alter.change.action()));
        }
        let oid = self.locked_table(name, TreeMode::ShareUpdateExclusive).await?.oid;
        if oid != found.oid() {
            return Err(undefined_table(name));
        }
        self.require_unused(oid, alter.tag())?;
        let mut table = self.table_copy(oid)?;
        match &alter.change {
            RelationChange::SetStatistics { column, target } => {
                let target = self.statistics_target(*target)?;
                let place = place_of(&table, &fold(column))?;
                put_hint(&mut table.hints.statistics, place, target);
            }
            RelationChange::SetStorage { column, storage } => {
                let (place, storage) = self.new_storage(&table, column, storage)?;
                put_hint(&mut table.hints.storage, place, storage);
            }
            RelationChange::ColumnOptions { column, options, reset } => {
                let place = place_of(&table, &fold(column))?;
                let said = changed_options(table.hints.options_of(place), options, *reset)?;
                put_hint(&mut table.hints.options, place, (!said.is_empty()).then_some(said));
            }
            RelationChange::Cluster(None) => table.hints.clustered = None,
            RelationChange::Cluster(Some(index)) => {
                table.hints.clustered = Some(clusterable(&self.catalog, &table, &fold(index))?.oid);
            }
            RelationChange::ReplicaIdentity(identity) => {
                table.hints.replica_identity = match identity {
                    NewReplicaIdentity::Default => ReplicaIdentity::Default,
                    NewReplicaIdentity::Nothing => ReplicaIdentity::Nothing,
                    NewReplicaIdentity::Full => ReplicaIdentity::Full,
                    NewReplicaIdentity::UsingIndex(index) => {
                        let index = index_of(&self.catalog, &table, &fold(index))?;
                        ReplicaIdentity::Index(identifying(&table, index)?)
                    }
                };
            }
            _ => return Err(SqlError::internal("a change that is no hint")),
        }
        self.change(Object::Table(table.into()))
    }

    /// The place of a column, and how its values are to be stored if not as usual. 22023, 42703,
    /// 0A000.
    fn new_storage(
        &self,
        table: &Table,
        column: &ast::Ident,
        storage: &ast::Ident,
    ) -> Result<(usize, Option<char>)> {
        let storage = storage_letter(&fold(storage))?;
        let place = place_of(table, &fold(column))?;
        let ty = table.columns[place].ty;
        let own = storage_of(ty.id);
        if storage != 'p' && own == 'p' {
            let named = if ty.user_type().is_some() { ty } else { ty.plain() };
            let name = named.format_with(self.format);
            let message = format!("column data type {name} can only have storage PLAIN");
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
        }
        Ok((place, (storage != own).then_some(storage)))
    }

    /// SET STATISTICS of a column of an index. 42809 if it is none.
    async fn alter_index_statistics(
        &mut self,
        name: &Qualified,
        found: &Relation,
        tag: &'static str,
        (number, target): (u64, i64),
    ) -> Result<()> {
        let Relation::Index(table, oid) = found else { return Err(wrong_type(found.name(), "index")) };
        self.lock_table(table.oid, TreeMode::ShareUpdateExclusive).await?;
        self.require_settled(table.oid, tag)?;
        self.state.is_temporary |= table.temporary;
        let target = self.statistics_target(target)?;
        // Both may be gone by now.
        let mut table = self.table_copy(table.oid).map_err(|_| undefined_table(name))?;
        let index = table.index(*oid).ok_or_else(|| undefined_table(name))?;
        let place = computed_place(&table, index, number)?;
        // Those of indexes that were dropped go with the one that is said anew.
        let known: Vec<Oid> = table.indexes.iter().map(|index| index.oid).collect();
        let said = &mut table.hints.index_statistics;
        said.retain(|(index, at, _)| known.contains(index) && (*index, *at) != (*oid, place));
        said.extend(target.map(|target| (*oid, place, target)));
        self.change(Object::Table(table.into()))
    }

    /// How much is to be gathered; none is the default. 22023 if it is too low.
    fn statistics_target(&mut self, target: i64) -> Result<Option<i32>> {
        if target < -1 {
            let message = format!("statistics target {target} is too low");
            return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
        }
        if target > TARGET_MAX {
            let message = format!("lowering statistics target to {TARGET_MAX}");
            self.notice(SqlError::warning(sqlstate::INVALID_PARAMETER_VALUE, message));
        }
        Ok(i32::try_from(target.min(TARGET_MAX)).ok().filter(|target| *target >= 0))
    }
}

/// The index of a table that has this name. 42704, 42809.
fn index_of<'t>(catalog: &Catalog, table: &'t Table, name: &str) -> Result<&'t Index> {
    if let Some(index) = table.indexes.iter().find(|index| index.name == name) {
        return Ok(index);
    }
    match catalog.relation(&table.schema_name, name) {
        None => Err(SqlError::new(
            sqlstate::UNDEFINED_OBJECT,
            format!("index \"{name}\" for table \"{}\" does not exist", table.name),
        )),
        Some(Relation::Index(..)) => Err(SqlError::new(
            sqlstate::WRONG_OBJECT_TYPE,
            format!("\"{name}\" is not an index for table \"{}\"", table.name),
        )),
        Some(_) => Err(wrong_type(name, "index")),
    }
}

/// The same of one whose order a table's rows can have. 0A000.
pub(crate) fn clusterable<'t>(catalog: &Catalog, table: &'t Table, name: &str) -> Result<&'t Index> {
    let index = index_of(catalog, table, name)?;
    let message = match index {
        _ if index.hash => {
            format!("cannot cluster on index \"{name}\" because access method does not support clustering")
        }
        _ if index.predicate.is_some() => format!("cannot cluster on partial index \"{name}\""),
        _ => return Ok(index),
    };
    Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message))
}

/// The place of a column. 42703.
fn place_of(table: &Table, name: &str) -> Result<usize> {
    table.column_place(name).ok_or_else(|| undefined_column(name, &table.name))
}

/// The place of a column of an index whose values are computed: of others the table's columns have
/// statistics. 22023, 42703, 0A000.
fn computed_place(table: &Table, index: &Index, number: u64) -> Result<usize> {
    if !(1..=NUMBER_MAX).contains(&number) {
        let message = format!("column number must be in range from 1 to {NUMBER_MAX}");
        return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
    }
    let place = usize::try_from(number - 1).unwrap_or(usize::MAX);
    let column = match index.shown().nth(place) {
        Some(IndexKey::Expression(_)) => return Ok(place),
        Some(IndexKey::Column(column)) => table.columns.get(column).map_or("", |column| &column.name),
        None => {
            let message = format!("column number {number} of relation \"{}\" does not exist", index.name);
            return Err(SqlError::new(sqlstate::UNDEFINED_COLUMN, message));
        }
    };
    let refused = |what: &str| {
        let message = format!("cannot alter statistics on {what} column \"{column}\" of index");
        SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{message} \"{}\"", index.name))
    };
    if place >= index.columns.len() {
        return Err(refused("included"));
    }
    Err(refused("non-expression").with_hint("Alter statistics on table column instead."))
}

/// The options of a column behind a SET or RESET of some. Names that no option has do not matter to
/// RESET.
fn changed_options(known: &[String], given: &[ast::SqlOption], reset: bool) -> Result<Vec<String>> {
    if reset { without_options(known, given) } else { Ok(merged_options(known, column_options(given)?)) }
}

/// Options of a column as they are kept. 22023 for what PostgreSQL does not know, or cannot be.
fn column_options(given: &[ast::SqlOption]) -> Result<Vec<String>> {
    let wrong = |message: String| SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message);
    let mut options = Vec::with_capacity(given.len());
    for option in given {
        let (name, value) = match option {
            ast::SqlOption::KeyValue { key, value: ast::Expr::Identifier(word) } => (fold(key), fold(word)),
            ast::SqlOption::KeyValue { key, value } => (fold(key), value.to_string()),
            ast::SqlOption::Ident(key) => (fold(key), "true".to_owned()),
            _ => return Err(SqlError::unsupported(format_args!("column option {option}"))),
        };
        if !matches!(name.as_str(), "n_distinct" | "n_distinct_inherited") {
            return Err(wrong(format!("unrecognized parameter \"{name}\"")));
        }
        let value = value.trim_matches('\'');
        match value.parse::<f64>() {
            Ok(number) if number.is_finite() && number < -1.0 => {
                let detail = format!("Valid values are between \"-1.000000\" and \"{:.6}\".", f64::MAX);
                let message = format!("value {value} out of bounds for option \"{name}\"");
                return Err(wrong(message).with_detail(detail));
            }
            Ok(number) if number.is_finite() => options.push(format!("{name}={value}")),
            _ => {
                let message = format!("invalid value for floating point option \"{name}\": {value}");
                return Err(wrong(message));
            }
        }
    }
    check_once(&options)?;
    Ok(options)
}

/// The letter of a way to store values. 22023 if there is none of this name.
fn storage_letter(name: &str) -> Result<char> {
    match name.to_lowercase().as_str() {
        "plain" => Ok('p'),
        "external" => Ok('e'),
        "extended" => Ok('x'),
        "main" => Ok('m'),
        _ => {
            let message = format!("invalid storage type \"{name}\"");
            Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message))
        }
    }
}

/// The oid of an index by whose columns rows can be told. 0A000, 42809.
fn identifying(table: &Table, index: &Index) -> Result<Oid> {
    let name = &index.name;
    let lacks = |what: &str| {
        let message = format!("cannot use {what} index \"{name}\" as replica identity");
        Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message))
    };
    if !index.is_unique() {
        let message = format!("cannot use non-unique index \"{name}\" as replica identity");
        return Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message));
    }
    if index.deferrable.is_some() {
        return lacks("non-immediate");
    }
    if !index.expressions.is_empty() {
        return lacks("expression");
    }
    if index.predicate.is_some() {
        return lacks("partial");
    }
    let mut columns = index.columns.iter().filter_map(|part| match part.key {
        IndexKey::Column(place) => table.columns.get(place),
        IndexKey::Expression(_) => None,
    });
    let Some(nullable) = columns.find(|column| !column.not_null) else { return Ok(index.oid) };
    let why = format!("because column \"{}\" is nullable", nullable.name);
    let message = format!("index \"{name}\" cannot be used as replica identity {why}");
    Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message))
}
