//! `json_to_record` and its like in FROM: a JSON value as rows of columns.
//!
//! ```text
//! SELECT * FROM jsonb_to_recordset($1) AS x (a int, b text)     the columns of the list
//! SELECT * FROM jsonb_populate_record(NULL::t, $1)              those of the table
//! ```

use sqlparser::ast::{DataType, Expr as Syntax, FunctionArg, ObjectName, TableAlias, Value};

use super::call::plain_arguments;
use super::scope::object_name;
use super::{Binder, Clause, JsonRecords, RowsCall};
use crate::catalog::Relation;
use crate::error::{Result, SqlError, sqlstate};
use crate::function;
use crate::types::cast::CastContext;
use crate::types::{Type, TypeId};

const FUNCTIONS: [&str; 8] = [
    "json_to_record",
    "json_to_recordset",
    "json_populate_record",
    "json_populate_recordset",
    "jsonb_to_record",
    "jsonb_to_recordset",
    "jsonb_populate_record",
    "jsonb_populate_recordset",
];

/// A call with names and types of the columns of its rows.
type Called = (RowsCall, Vec<(String, Type)>);

fn known(schema: Option<&str>, name: &str) -> Option<&'static str> {
    let known = FUNCTIONS.iter().find(|known| **known == name).copied();
    known.filter(|_| schema.is_none_or(|schema| schema == "pg_catalog"))
}

fn is_of_table(name: &str) -> bool {
    name.contains("_populate_")
}

/// Why such a function cannot be called anywhere but in FROM; none if it is another one.
pub(super) fn elsewhere(schema: Option<&str>, name: &str) -> Option<SqlError> {
    let name = known(schema, name)?;
    if is_of_table(name) {
        return Some(SqlError::unsupported(format!("function {name} anywhere but in FROM")));
    }
    let message = format!("could not determine row type for result of {name}");
    Some(SqlError::new(sqlstate::DATATYPE_MISMATCH, message).with_hint(
        "Provide a non-null record argument, or call the function in the FROM clause using a column \
         definition list.",
    ))
}

/// 42601 if an alias says the types of columns that have some.
pub(super) fn check_definitions(
    call: &RowsCall,
    columns: &[(String, Type)],
    alias: Option<&TableAlias>,
) -> Result<()> {
    let defines = alias.is_some_and(|alias| alias.columns.iter().any(|column| column.data_type.is_some()));
    let why = match call {
        _ if !defines => return Ok(()),
        RowsCall::Records(records) if records.defined => return Ok(()),
        RowsCall::Records(_) => "redundant for a function returning a named composite type",
        _ if columns.len() > 1 => "redundant for a function with OUT parameters",
        _ => "only allowed for functions returning \"record\"",
    };
    Err(SqlError::syntax(format!("a column definition list is {why}")))
}

impl Binder<'_> {
    /// The call of such a function in FROM; none if it is another one.
    pub(super) fn json_records(
        &mut self,
        schema: Option<&str>,
        name: &str,
        arguments: &[FunctionArg],
        ordinality: bool,
        alias: Option<&TableAlias>,
    ) -> Option<Result<Called>> {
        let name = known(schema, name)?;
        Some(self.bind_json_records(name, arguments, ordinality, alias))
    }

    fn bind_json_records(
        &mut self,
        name: &'static str,
        arguments: &[FunctionArg],
        ordinality: bool,
        alias: Option<&TableAlias>,
    ) -> Result<Called> {
        let arguments = plain_arguments(arguments)?;
        let (columns, value) = match (arguments.as_slice(), is_of_table(name)) {
            ([value], false) => (self.defined_columns(ordinality, alias)?, *value),
            ([base, value], true) => (self.columns_of_base(name, base)?, *value),
            _ => return Err(self.no_such_call(name, &arguments)),
        };
        let wanted = if name.starts_with("jsonb_") { TypeId::Jsonb } else { TypeId::Json };
        let typed = self.in_clause(Clause::FromFunction, |binder| binder.expression(value))?;
        let Some(typed) = self.coerce(typed, wanted.into(), CastContext::Implicit)? else {
            return Err(self.no_such_call(name, &arguments));
        };
        let mut checks = Vec::new();
        for (place, (_, ty)) in columns.iter().enumerate() {
            checks.extend(self.domain_check(*ty)?.map(|check| (place, check)));
        }
        let defined = !is_of_table(name);
        let records = JsonRecords { name, value: typed.expr, columns: columns.clone(), defined, checks };
        Ok((RowsCall::Records(Box::new(records)), columns))
    }

    /// 42883.
    fn no_such_call(&mut self, name: &str, arguments: &[&Syntax]) -> SqlError {
        let bind = |binder: &mut Self| -> Result<Vec<Type>> {
            arguments.iter().map(|argument| Ok(binder.expression(argument)?.ty)).collect()
        };
        match self.in_clause(Clause::FromFunction, bind) {
            Err(error) => error,
            Ok(types) => {
                let shown: Vec<&str> = types.iter().map(|ty| ty.id.sql_name()).collect();
                let error = function::undefined("function", &format!("{name}({})", shown.join(", ")));
                self.name_types(error, &types)
            }
        }
    }

    /// The columns that the alias lists. 42601 if it lists none, 42701, 42P16.
    fn defined_columns(
        &mut self,
        ordinality: bool,
        alias: Option<&TableAlias>,
    ) -> Result<Vec<(String, Type)>> {
        let listed = alias.map_or(&[][..], |alias| &alias.columns);
        let mut columns: Vec<(String, Type)> = Vec::with_capacity(listed.len());
        for column in listed {
            let Some(data_type) = &column.data_type else { break };
            let (name, ty) = (object_name(&column.name), self.named_type(data_type)?);
            if columns.iter().any(|(known, _)| *known == name) {
                let message = format!("column name \"{name}\" specified more than once");
                return Err(SqlError::new(sqlstate::DUPLICATE_COLUMN, message));
            }
            if ty.id == TypeId::Record || ty.id == TypeId::RecordArray {
                return Err(self.lacks(format!("a column of type {} in a list in FROM", ty.id.sql_name())));
            }
            if ty.id.is_pseudo() || ty.id == TypeId::Unknown {
                let message = format!("column \"{name}\" has pseudo-type {}", ty.id.sql_name());
                return Err(SqlError::new(sqlstate::INVALID_TABLE_DEFINITION, message));
            }
            if self.noting.is_some() && ty.user_type().is_some() {
                return Err(self.lacks("a view with a column definition list that names a type of users"));
            }
            columns.push((name, ty));
        }
        if columns.is_empty() || columns.len() < listed.len() {
            let message = "a column definition list is required for functions returning \"record\"";
            return Err(SqlError::syntax(message));
        }
        if ordinality {
            let message = "WITH ORDINALITY cannot be used with a column definition list";
            return Err(
                SqlError::syntax(message).with_hint("Put the column definition list inside ROWS FROM().")
            );
        }
        Ok(columns)
    }

    /// The columns of the table or view that `NULL::name` is a row of. 0A000 for any other value.
    fn columns_of_base(&mut self, name: &str, base: &Syntax) -> Result<Vec<(String, Type)>> {
        let Syntax::Cast { expr, data_type, .. } = base else {
            return Err(self.lacks(format!("{name} of anything but NULL::table")));
        };
        if !matches!(expr.as_ref(), Syntax::Value(value) if value.value == Value::Null) {
            return Err(self.lacks(format!("{name} of anything but NULL::table")));
        }
        if let DataType::Custom(table, modifiers) = data_type
            && modifiers.is_empty()
            && let Some(columns) = self.columns_of_row(name, table)?
        {
            return Ok(columns);
        }
        // Built-in types and users' are no rows.
        self.named_type(data_type)?;
        let message = format!("first argument of {name} must be a row type");
        Err(SqlError::new(sqlstate::DATATYPE_MISMATCH, message))
    }

    /// The columns of the table or view of this name; none if there is none.
    fn columns_of_row(&mut self, name: &str, table: &ObjectName) -> Result<Option<Vec<(String, Type)>>> {
        let (schema, relation) = self.relation_name(table)?;
        let catalog = self.context.catalog;
        let columns: Vec<(String, Type)> = match catalog.find(&self.search_path, schema.as_deref(), &relation)
        {
            Some(Relation::Table(table)) => {
                let columns = table.visible_columns();
                columns.map(|(_, column)| (column.name.clone(), column.ty)).collect()
            }
            Some(Relation::View(view)) => {
                view.columns.iter().map(|column| (column.name.clone(), column.ty)).collect()
            }
            _ => return Ok(None),
        };
        // A view would have to follow the table's names.
        if self.noting.is_some() {
            return Err(self.lacks(format!("{name} in a view")));
        }
        if let Some(schema) = &schema {
            self.need_schema(schema);
        }
        Ok(Some(columns))
    }
}
