//! CREATE INDEX.

use cognate_engine::TreeMode;
use sqlparser::ast;

use super::names::{Qualified, fold, make_up};
use crate::catalog::{Index, IndexColumn, Object, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::session::work::Work;

/// Most columns of an index.
const MAX_INDEX_COLUMNS: usize = 32;

impl Work<'_> {
    /// CREATE INDEX. True unless it existed already and IF NOT EXISTS was said.
    pub(crate) async fn create_index(&mut self, statement: &ast::CreateIndex) -> Result<bool> {
        refuse(statement)?;
        let name = Qualified::from_object_name(&statement.table_name)?;
        let table = self.locked_table(&name, TreeMode::Exclusive).await?;
        let schema = self.schema_of(table.schema)?;
        let columns = columns(&table, &statement.columns)?;
        let included = included(&table, &statement.include)?;
        if columns.len() + included.len() > MAX_INDEX_COLUMNS {
            return Err(too_many_columns());
        }
        let name = match &statement.name {
            Some(name) => Qualified::from_object_name(name)?.name,
            None => {
                let places = columns.iter().map(|column| column.column).chain(included.iter().copied());
                let names: Vec<&str> = places.map(|place| table.columns[place].name.as_str()).collect();
                make_up(&table.name, &names.join("_"), "idx", |name| self.is_taken(&schema.name, name))
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
            columns,
            unique: statement.unique,
            nulls_not_distinct: statement.nulls_distinct == Some(false),
            included,
            primary: false,
            constraint: None,
            comment: None,
        };
        self.build_index(&table, &index)?;
        let mut table = Table::clone(&table);
        table.indexes.push(index);
        self.change(Object::Table(table.into()))?;
        Ok(true)
    }
}

fn refuse(statement: &ast::CreateIndex) -> Result<()> {
    if let Some(method) = &statement.using {
        let method = method.to_string().to_lowercase();
        match method.as_str() {
            // An ordered index answers all that a hash index does.
            "btree" | "hash" => {}
            "gin" | "gist" | "spgist" | "brin" => {
                return Err(SqlError::unsupported(format_args!("access method \"{method}\"")));
            }
            _ => {
                return Err(SqlError::new(
                    sqlstate::UNDEFINED_OBJECT,
                    format!("access method \"{method}\" does not exist"),
                ));
            }
        }
    }
    if statement.predicate.is_some() {
        return Err(SqlError::unsupported("a partial index (CREATE INDEX ... WHERE)"));
    }
    Ok(())
}

fn columns(table: &Table, columns: &[ast::IndexColumn]) -> Result<Vec<IndexColumn>> {
    if columns.len() > MAX_INDEX_COLUMNS {
        return Err(too_many_columns());
    }
    columns.iter().map(|column| index_column(table, column)).collect()
}

fn too_many_columns() -> SqlError {
    let message = format!("cannot use more than {MAX_INDEX_COLUMNS} columns in an index");
    SqlError::new(sqlstate::TOO_MANY_COLUMNS, message)
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

fn index_column(table: &Table, column: &ast::IndexColumn) -> Result<IndexColumn> {
    if let Some(class) = &column.operator_class {
        // The classes that only say which prefix searches an index serves order as the default
        // class does here.
        let class = class.to_string().to_lowercase();
        if !class.ends_with("_pattern_ops") && !class.ends_with("_ops") {
            return Err(SqlError::unsupported(format_args!("operator class \"{class}\"")));
        }
    }
    let ast::Expr::Identifier(name) = &column.column.expr else {
        return Err(SqlError::unsupported("an index on an expression"));
    };
    let place = place(table, name)?;
    let descending = column.column.options.asc == Some(false);
    let nulls_first = column.column.options.nulls_first.unwrap_or(descending);
    Ok(IndexColumn { column: place, descending, nulls_first })
}
