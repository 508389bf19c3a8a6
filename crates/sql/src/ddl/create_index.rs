//! CREATE INDEX. What it computes of rows is made in `computed`.

use cognate_engine::TreeMode;
use sqlparser::ast;

use super::names::{Qualified, make_up, unique_name};
use super::request;
use crate::catalog::{Computed, Index, IndexColumn, IndexKey, Object, OperatorClass, Relation, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold;
use crate::pg_catalog::{class_accepts, has_operator_class, is_operator_class};
use crate::session::work::Work;
use crate::types::{Type, TypeId};

/// Most columns of an index.
pub(super) const MAX_INDEX_COLUMNS: usize = 32;

impl Work<'_> {
    /// CREATE INDEX. True unless it existed already and IF NOT EXISTS was said.
    pub(crate) async fn create_index(&mut self, statement: &ast::CreateIndex) -> Result<bool> {
        let hash = is_hash(statement)?;
        let name = Qualified::from_object_name(&statement.table_name)?;
        self.refresh_catalog();
        if let Some(relation @ Relation::Table(_)) = self.find(&name) {
            self.require_relation_owner(&relation)?;
        }
        let table = self.locked_table(&name, TreeMode::Exclusive).await?;
        self.require_unused(table.oid, "CREATE INDEX")?;
        let schema = self.schema_of(table.schema)?;
        self.require_create(&schema)?;
        let included = included(&table, &statement.include)?;
        if statement.columns.len() + included.len() > MAX_INDEX_COLUMNS {
            return Err(too_many_columns());
        }
        let mut made = self.index_parts(&table, statement).await?;
        let name = match &statement.name {
            Some(name) => Qualified::from_object_name(name)?.name,
            None => {
                for &place in &included {
                    made.names.push(unique_name(&made.names, &table.columns[place].name));
                }
                make_up(&table.name, &made.names.join("_"), "idx", |name| self.is_taken(&schema.name, name))
            }
        };
        if let Err(error) = self.claim_name(&schema, &name).await {
            if statement.if_not_exists && error.sqlstate == sqlstate::DUPLICATE_TABLE {
                let message = format!("relation \"{name}\" already exists, skipping");
                self.notice(SqlError::notice(message).with_sqlstate(sqlstate::DUPLICATE_TABLE));
                return Ok(false);
            }
            return Err(error);
        }
        let index = Index {
            oid: self.allocate_oid()?,
            name,
            tree: self.allocate_tree(),
            columns: made.columns,
            expressions: made.expressions,
            predicate: made.predicate,
            unique: statement.unique,
            deferrable: None,
            nulls_not_distinct: statement.nulls_distinct == Some(false),
            included,
            options: statement.with.iter().map(storage_option).collect::<Result<_>>()?,
            hash,
            primary: false,
            constraint: None,
            comment: None,
            constraint_comment: None,
        };
        let mut table = Table::clone(&table);
        table.indexes.push(index.clone());
        self.build_index(&table, &index)?;
        self.change(Object::Table(table.into()))?;
        Ok(true)
    }

    /// The parts of the key, with the names that they have as columns of the index, and the
    /// predicate.
    async fn index_parts(&mut self, table: &Table, statement: &ast::CreateIndex) -> Result<Parts> {
        let mut parts = Parts::default();
        let mut free = table.free_place();
        for column in &statement.columns {
            let (expression, collation) = collated(&column.column.expr);
            let key = self.index_key(table, expression, free).await?;
            let (key, ty) = match key {
                Key::Column(place) => {
                    parts.names.push(unique_name(&parts.names, &table.columns[place].name));
                    (IndexKey::Column(place), table.columns[place].ty)
                }
                Key::Expression(mut expression) => {
                    expression.name = unique_name(&parts.names, &expression.name);
                    parts.names.push(expression.name.clone());
                    free += 1;
                    let (key, ty) = (IndexKey::Expression(expression.place), expression.ty);
                    parts.expressions.push(expression);
                    (key, ty)
                }
            };
            let collation = collation.map(|name| request::collation(name, ty, self.format)).transpose()?;
            let class = self.operator_class(column.operator_class.as_ref(), ty)?;
            let descending = column.column.options.asc == Some(false);
            let nulls_first = column.column.options.nulls_first.unwrap_or(descending);
            parts.columns.push(IndexColumn { key, descending, nulls_first, class, collation });
        }
        if let Some(predicate) = &statement.predicate {
            let predicate = self.new_predicate(table, predicate, free).await?;
            parts.predicate = Some(predicate).filter(|predicate| predicate.text != "true");
        }
        Ok(parts)
    }

    async fn index_key(&mut self, table: &Table, syntax: &ast::Expr, free: usize) -> Result<Key> {
        let mut bare = syntax;
        while let ast::Expr::Nested(inner) = bare {
            bare = inner;
        }
        if let ast::Expr::Identifier(name) = bare {
            return place(table, name).map(Key::Column);
        }
        let expression = self.new_expression(table, bare, free).await?;
        if expression.ty.id.is_pseudo() || expression.ty.id == TypeId::Record {
            let (name, ty) = (&expression.name, expression.ty.id.sql_name());
            let message = format!("column \"{name}\" has pseudo-type {ty}");
            return Err(SqlError::new(sqlstate::INVALID_TABLE_DEFINITION, message));
        }
        Ok(Key::Expression(expression))
    }

    /// The operator class of a part of a key. 42704 if there is none of this name or for this type,
    /// 42804 if it is of other types.
    fn operator_class(&self, class: Option<&ast::ObjectName>, ty: Type) -> Result<Option<OperatorClass>> {
        let Some(class) = class else { return self.require_class(None, ty).map(|()| None) };
        let parts = super::names::parts(class)?;
        let given = parts.join(".");
        let Some((name, schemas)) = parts.split_last() else { return Err(SqlError::internal("no class")) };
        if schemas.iter().any(|schema| schema != "pg_catalog") || !is_operator_class(name) {
            let message = format!("operator class \"{given}\" does not exist for access method \"btree\"");
            return Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, message));
        }
        if !class_accepts(name, ty.id) {
            return Err(self.unfit_class(&given, ty));
        }
        Ok(OperatorClass::ALL.into_iter().find(|known| known.name() == name))
    }

    /// 42704 if keys cannot have values of a type, since these have no order; 42804 if an operator
    /// class is of other types.
    pub(super) fn require_class(&self, class: Option<OperatorClass>, ty: Type) -> Result<()> {
        match class {
            Some(class) if class_accepts(class.name(), ty.id) => Ok(()),
            Some(class) => Err(self.unfit_class(class.name(), ty)),
            None if has_operator_class(ty.id) => Ok(()),
            None => {
                let name = ty.plain().format_with(self.format);
                let message =
                    format!("data type {name} has no default operator class for access method \"btree\"");
                Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, message).with_hint(
                    "You must specify an operator class for the index or define a default operator class for the data type.",
                ))
            }
        }
    }

    fn unfit_class(&self, name: &str, ty: Type) -> SqlError {
        // A domain goes by its own name.
        let ty = match ty.user_type() {
            Some(_) => ty.format_with(self.format),
            None => ty.id.sql_name().to_owned(),
        };
        let message = format!("operator class \"{name}\" does not accept data type {ty}");
        SqlError::new(sqlstate::DATATYPE_MISMATCH, message)
    }
}

/// What a new index is made of.
#[derive(Default)]
struct Parts {
    columns: Vec<IndexColumn>,
    names: Vec<String>,
    expressions: Vec<Computed>,
    predicate: Option<Computed>,
}

/// A part of a new index's key without COLLATE, and what is behind that.
fn collated(syntax: &ast::Expr) -> (&ast::Expr, Option<&ast::ObjectName>) {
    match syntax {
        ast::Expr::Collate { expr, collation } => (expr.as_ref(), Some(collation)),
        _ => (syntax, None),
    }
}

/// A part of a new index's key.
enum Key {
    Column(usize),
    Expression(Computed),
}

/// Whether the index is to be told as one of hash, which an ordered index stands for: it answers
/// all that such a one does. 0A000 or 42704 for other methods than that and btree.
fn is_hash(statement: &ast::CreateIndex) -> Result<bool> {
    let Some(method) = &statement.using else { return Ok(false) };
    let method = method.to_string().to_lowercase();
    match method.as_str() {
        "btree" => Ok(false),
        "hash" => refuse_in_hash(statement).map(|()| true),
        "gin" | "gist" | "spgist" | "brin" => {
            Err(SqlError::unsupported(format_args!("access method \"{method}\"")))
        }
        _ => {
            let message = format!("access method \"{method}\" does not exist");
            Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, message))
        }
    }
}

/// 0A000 for what no hash index can be.
fn refuse_in_hash(statement: &ast::CreateIndex) -> Result<()> {
    let options = || statement.columns.iter().map(|column| &column.column.options);
    let refusals = [
        (statement.unique, "unique indexes"),
        (!statement.include.is_empty(), "included columns"),
        (statement.columns.len() > 1, "multicolumn indexes"),
        (options().any(|options| options.asc.is_some()), "ASC/DESC options"),
        (options().any(|options| options.nulls_first.is_some()), "NULLS FIRST/LAST options"),
    ];
    match refusals.iter().find(|(is_so, _)| *is_so) {
        None => Ok(()),
        Some((_, what)) => {
            let message = format!("access method \"hash\" does not support {what}");
            Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message))
        }
    }
}

pub(super) fn too_many_columns() -> SqlError {
    let message = format!("cannot use more than {MAX_INDEX_COLUMNS} columns in an index");
    SqlError::new(sqlstate::TOO_MANY_COLUMNS, message)
}

/// A storage parameter as it is kept. 22023 if there is none of this name, or it has no such value.
fn storage_option(option: &ast::Expr) -> Result<String> {
    let (name, value) = match option {
        ast::Expr::BinaryOp { left, op: ast::BinaryOperator::Eq, right } => (left, right.to_string()),
        other => return Err(SqlError::unsupported(format_args!("storage parameter {other}"))),
    };
    storage_parameter(&name.to_string().to_lowercase(), &value)
}

/// The same of several that are given by name: none of them twice.
pub(super) fn storage_options(options: &[ast::SqlOption]) -> Result<Vec<String>> {
    let stored = options.iter().map(|option| match option {
        ast::SqlOption::KeyValue { key, value } => storage_parameter(&fold(key), &value.to_string()),
        ast::SqlOption::Ident(name) => storage_parameter(&fold(name), "true"),
        other => Err(SqlError::unsupported(format_args!("storage parameter {other}"))),
    });
    let stored = stored.collect::<Result<Vec<String>>>()?;
    super::create_table::check_once(&stored)?;
    Ok(stored)
}

/// The same of a key's, as `name=value` or a name alone.
pub(super) fn key_options(options: &[String]) -> Result<Vec<String>> {
    let stored = options.iter().map(|option| {
        let (name, value) = option.split_once('=').unwrap_or((option, "true"));
        storage_parameter(name, value)
    });
    let stored = stored.collect::<Result<Vec<String>>>()?;
    super::create_table::check_once(&stored)?;
    Ok(stored)
}

fn storage_parameter(name: &str, value: &str) -> Result<String> {
    let value = value.trim_matches('\'').to_lowercase();
    let invalid = |message: String| SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message);
    match name {
        "fillfactor" if value.parse::<i64>().is_ok_and(|value| (10..=100).contains(&value)) => {}
        "fillfactor" => {
            return Err(invalid(format!("value {value} out of bounds for option \"fillfactor\""))
                .with_detail("Valid values are between \"10\" and \"100\"."));
        }
        "deduplicate_items" => {}
        _ => return Err(invalid(format!("unrecognized parameter \"{name}\""))),
    }
    Ok(format!("{name}={value}"))
}

/// Columns that are shown with the index and not in it: a row is read for them as for all others.
fn included(table: &Table, names: &[ast::Ident]) -> Result<Vec<usize>> {
    names.iter().map(|name| place(table, name)).collect()
}

fn place(table: &Table, name: &ast::Ident) -> Result<usize> {
    let name = fold(name);
    table
        .column_place(&name)
        .ok_or_else(|| SqlError::new(sqlstate::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist")))
}
