//! Functions in FROM.
//!
//! `ROWS FROM (f(a), g(b))` has them side by side, those that give fewer rows filled up with NULLs.
//! The parser has it as a call of a marked name, with the functions as arguments.

use sqlparser::ast::{
    CastKind, Expr as Syntax, Function as FunctionSyntax, FunctionArg, FunctionArgExpr, FunctionArguments,
    ObjectName, ObjectNamePart, TableAlias,
};
use sqlparser::tokenizer::Span;

use super::call::plain_arguments;
use super::from::{Item, NewRelation};
use super::json_record::check_definitions;
use super::naming::figure_name;
use super::scope::{name_span, object_name};
use super::table::set_columns;
use super::{Binder, Clause, RowsCall, Source, TableFunction};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::Typed;
use crate::function::{self, Function, Kind};
use crate::parse::ROWS_FROM;
use crate::types::{Type, TypeId};

/// Values that look like calls, and those of the time with a precision.
const VALUES: [&str; 8] = [
    "coalesce",
    "greatest",
    "least",
    "nullif",
    "current_time",
    "current_timestamp",
    "localtime",
    "localtimestamp",
];

/// One of several calls side by side.
#[derive(Clone, Debug)]
pub struct RowsPart {
    /// Which.
    pub call: PartCall,
    /// How many of the arguments are its.
    pub arguments: usize,
    /// Number of columns of its rows.
    pub width: usize,
}

/// What one of several calls is.
#[derive(Clone, Copy, Debug)]
pub enum PartCall {
    /// A set-returning function.
    Set(&'static Function),
    /// Arrays side by side.
    Unnest,
    /// The value of its only argument: one row of one column.
    Scalar,
}

impl TableFunction {
    /// Whether it gives values, and no rows of several or of named columns.
    pub(super) fn gives_values(&self) -> bool {
        let is_value = match &self.call {
            RowsCall::Set { width, .. } => *width == 1,
            RowsCall::Unnest(arrays) => arrays.len() == 1,
            RowsCall::Scalar(_) => true,
            RowsCall::Together { .. } | RowsCall::Routine(_) | RowsCall::Records(_) => false,
        };
        is_value && !self.ordinality
    }
}

/// The call that an item of ROWS FROM is, with its arguments.
fn call_of(item: &FunctionArg) -> Result<(&FunctionSyntax, &[FunctionArg])> {
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(Syntax::Function(call))) = item else {
        return Err(SqlError::syntax(format!("syntax error at or near \"{item}\"")));
    };
    let is_plain = call.over.is_none() && call.filter.is_none() && call.within_group.is_empty();
    match &call.args {
        FunctionArguments::List(list)
            if is_plain && list.duplicate_treatment.is_none() && list.clauses.is_empty() =>
        {
            Ok((call, list.args.as_slice()))
        }
        _ => Err(SqlError::syntax(format!("syntax error at or near \"{}\"", call.name))),
    }
}

/// What an item of ROWS FROM gives, if it is a value that is written in a way of its own, or like a
/// call of no function.
fn value_of(item: &FunctionArg) -> Option<&Syntax> {
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) = item else { return None };
    let is_value = match value {
        Syntax::Cast { kind: CastKind::Cast, .. }
        | Syntax::Extract { .. }
        | Syntax::Overlay { .. }
        | Syntax::Position { .. }
        | Syntax::Substring { .. }
        | Syntax::Trim { .. } => true,
        Syntax::Function(call) => match (&call.args, call.name.0.as_slice()) {
            (FunctionArguments::None, _) => true,
            (_, [ObjectNamePart::Identifier(name)]) => {
                let is_it = |known: &&str| name.value.eq_ignore_ascii_case(known);
                name.quote_style.is_none() && VALUES.iter().any(is_it)
            }
            _ => false,
        },
        _ => false,
    };
    is_value.then_some(value)
}

impl Binder<'_> {
    /// A function in FROM, or several in ROWS FROM.
    pub(super) fn functions_in_from(
        &mut self,
        name: &ObjectName,
        arguments: &[FunctionArg],
        ordinality: bool,
        alias: Option<&TableAlias>,
        nullable: bool,
    ) -> Result<Item> {
        let is_mark = name.0.len() == 1 && self.function_name(name)?.1 == ROWS_FROM;
        match arguments {
            _ if !is_mark => self.function_in_from(name, arguments, ordinality, alias, nullable),
            [one] => match value_of(one) {
                Some(value) => {
                    let (typed, name) = self.value_in_from(value)?;
                    let column = vec![(self.single_column_name(&name, alias), typed.ty)];
                    let call = RowsCall::Scalar(typed.expr);
                    self.function_relation(call, column, ordinality, &name, alias, nullable)
                }
                None => {
                    let (call, arguments) = call_of(one)?;
                    self.function_in_from(&call.name, arguments, ordinality, alias, nullable)
                }
            },
            several => self.rows_from(several, ordinality, alias, nullable),
        }
    }

    /// A value as an item of FROM, and the name that it has there.
    fn value_in_from(&mut self, value: &Syntax) -> Result<(Typed, String)> {
        let typed = self.in_clause(Clause::FromFunction, |binder| binder.settled_expression(value))?;
        Ok((typed, figure_name(value)))
    }

    fn rows_from(
        &mut self,
        items: &[FunctionArg],
        ordinality: bool,
        alias: Option<&TableAlias>,
        nullable: bool,
    ) -> Result<Item> {
        let (mut parts, mut all, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        let mut first = None;
        for item in items {
            if let Some(value) = value_of(item) {
                let (typed, name) = self.value_in_from(value)?;
                parts.push(RowsPart { call: PartCall::Scalar, arguments: 1, width: 1 });
                all.push(typed.expr);
                columns.push((name.clone(), typed.ty));
                first = first.or(Some(name));
                continue;
            }
            let (call, given) = call_of(item)?;
            let (schema, function) = self.function_name(&call.name)?;
            let (schema, span) = (schema.as_deref(), name_span(&call.name));
            if self.json_records(schema, &function, given, false, None).is_some()
                || self.routine_in_from(schema, &function, given, None, span)?.is_some()
            {
                let what = format!("function {function} beside others in ROWS FROM");
                return Err(SqlError::unsupported(what));
            }
            let arguments = plain_arguments(given)?;
            let (called, named) = match function.as_str() {
                "unnest" if arguments.len() > 1 => self.unnested(&arguments, None)?,
                _ => self.call_in_from(schema, &function, &arguments, None, span)?,
            };
            let (call, mut arguments) = match called {
                RowsCall::Set { function, arguments, .. } => (PartCall::Set(function), arguments),
                RowsCall::Unnest(arrays) => (PartCall::Unnest, arrays),
                RowsCall::Scalar(expr) => (PartCall::Scalar, vec![expr]),
                _ => return Err(SqlError::internal("a call that cannot be beside others")),
            };
            parts.push(RowsPart { call, arguments: arguments.len(), width: named.len() });
            all.append(&mut arguments);
            columns.extend(named);
            first = first.or(Some(function));
        }
        let name = first.unwrap_or_default();
        let call = RowsCall::Together { parts, arguments: all };
        self.function_relation(call, columns, ordinality, &name, alias, nullable)
    }

    /// A function in FROM.
    fn function_in_from(
        &mut self,
        name: &ObjectName,
        arguments: &[FunctionArg],
        ordinality: bool,
        alias: Option<&TableAlias>,
        nullable: bool,
    ) -> Result<Item> {
        let (schema, function) = self.function_name(name)?;
        if arguments.is_empty()
            && !ordinality
            && let Some(found) = self.view_of_function(schema.as_deref(), &function)
        {
            return self.computed(found, &function, alias, nullable);
        }
        if let Some((call, columns)) =
            self.routine_in_from(schema.as_deref(), &function, arguments, alias, name_span(name))?
        {
            return self.function_relation(call, columns, ordinality, &function, alias, nullable);
        }
        if let Some(call) = self.json_records(schema.as_deref(), &function, arguments, ordinality, alias) {
            let (call, columns) = call.map_err(|error| self.at(error, name_span(name)))?;
            return self.function_relation(call, columns, ordinality, &function, alias, nullable);
        }
        let arguments = plain_arguments(arguments)?;
        if function == "unnest" && arguments.len() > 1 {
            return self.unnest_of(&arguments, ordinality, alias, nullable);
        }
        let (call, columns) =
            self.call_in_from(schema.as_deref(), &function, &arguments, alias, name_span(name))?;
        self.function_relation(call, columns, ordinality, &function, alias, nullable)
    }

    /// A call of a built-in function in FROM, and its columns.
    fn call_in_from(
        &mut self,
        schema: Option<&str>,
        function: &str,
        arguments: &[&Syntax],
        alias: Option<&TableAlias>,
        span: Span,
    ) -> Result<(RowsCall, Vec<(String, Type)>)> {
        let bound = self.in_clause(Clause::FromFunction, |binder| {
            arguments.iter().map(|argument| binder.expression(argument)).collect::<Result<Vec<_>>>()
        })?;
        let types: Vec<Type> = bound.iter().map(|argument| argument.ty).collect();
        let resolved = function::resolve(schema, function, &types)
            .map_err(|error| self.at(self.not_in_sight(error, schema, function, &types), span))?;
        Ok(match resolved.function.kind() {
            Kind::SetReturning => {
                let columns = match set_columns(&resolved) {
                    Some(columns) => {
                        columns.into_iter().map(|(column, ty)| (column.to_owned(), ty)).collect::<Vec<_>>()
                    }
                    None => vec![(self.single_column_name(function, alias), resolved.result)],
                };
                let arguments = self.convert_arguments(bound, &resolved)?;
                (RowsCall::Set { function: resolved.function, arguments, width: columns.len() }, columns)
            }
            Kind::Scalar => {
                let typed = self.call(schema, function, bound)?;
                let column = (self.single_column_name(function, alias), typed.ty);
                (RowsCall::Scalar(typed.expr), vec![column])
            }
            Kind::Window => {
                return Err(SqlError::new(
                    sqlstate::WRONG_OBJECT_TYPE,
                    format!("window function {function} requires an OVER clause"),
                ));
            }
            Kind::Aggregate => {
                return Err(SqlError::new(
                    sqlstate::GROUPING_ERROR,
                    "aggregate functions are not allowed in functions in FROM",
                ));
            }
        })
    }

    /// A function's only column is named after the alias, else after the function.
    fn single_column_name(&self, function: &str, alias: Option<&TableAlias>) -> String {
        alias.map_or_else(|| function.to_owned(), |alias| object_name(&alias.name))
    }

    pub(super) fn unnest(
        &mut self,
        arrays: &[Syntax],
        ordinality: bool,
        alias: Option<&TableAlias>,
        nullable: bool,
    ) -> Result<Item> {
        self.unnest_of(&arrays.iter().collect::<Vec<_>>(), ordinality, alias, nullable)
    }

    fn unnest_of(
        &mut self,
        arrays: &[&Syntax],
        ordinality: bool,
        alias: Option<&TableAlias>,
        nullable: bool,
    ) -> Result<Item> {
        let (call, columns) = self.unnested(arrays, alias)?;
        self.function_relation(call, columns, ordinality, "unnest", alias, nullable)
    }

    /// The call that takes arrays apart side by side, and its columns.
    fn unnested(
        &mut self,
        arrays: &[&Syntax],
        alias: Option<&TableAlias>,
    ) -> Result<(RowsCall, Vec<(String, Type)>)> {
        let bound = self.in_clause(Clause::FromFunction, |binder| {
            arrays.iter().map(|array| binder.expression(array)).collect::<Result<Vec<_>>>()
        })?;
        let mut columns = vec![];
        let mut exprs = vec![];
        let single = bound.len() == 1;
        for array in bound {
            let Some(element) = array.ty.element() else {
                // Lets function resolution word the error. Of several arrays PostgreSQL makes calls
                // that say the schema.
                function::resolve((!single).then_some("pg_catalog"), "unnest", &[array.ty])?;
                return Err(SqlError::internal("unnest of no array"));
            };
            let name = if single { self.single_column_name("unnest", alias) } else { "unnest".to_owned() };
            columns.push((name, element));
            exprs.push(array.expr);
        }
        Ok((RowsCall::Unnest(exprs), columns))
    }

    fn function_relation(
        &mut self,
        call: RowsCall,
        mut columns: Vec<(String, Type)>,
        ordinality: bool,
        name: &str,
        alias: Option<&TableAlias>,
        nullable: bool,
    ) -> Result<Item> {
        check_definitions(&call, &columns, alias)?;
        if ordinality {
            columns.push(("ordinality".to_owned(), TypeId::Int8.into()));
        }
        let types = columns.iter().map(|(_, ty)| *ty).collect();
        let columns = columns.into_iter().enumerate().map(|(i, (name, _))| (name, i)).collect();
        let source = Source::Function(TableFunction { call, ordinality });
        self.add_relation(NewRelation { source, schema: None, name, columns, types }, alias, nullable)
    }
}
