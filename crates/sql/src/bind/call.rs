//! Function calls.

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    Expr as Syntax, Function as FunctionSyntax, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArgumentList, FunctionArguments, NormalizationForm, ObjectNamePart,
};

use super::hypothetical::is_hypothetical_set;
use super::need::has_star;
use super::scope::name_span;
use super::{Binder, Clause, RowsCall, SetReturning, json_record};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, FunctionCall, Typed, fold};
use crate::function::{self, Kind, ResolvedFunction};
use crate::parse::operator_of_call;
use crate::pg_catalog::{EXPANDED_ARRAY, EXPLODED_ROW};
use crate::types::{Datum, Shape, Type, TypeId};

/// The plain arguments of a call.
pub(super) fn plain_arguments(arguments: &[FunctionArg]) -> Result<Vec<&Syntax>> {
    arguments
        .iter()
        .map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Ok(expr),
            FunctionArg::Unnamed(_) => Err(SqlError::syntax("syntax error at or near \"*\"")),
            FunctionArg::Named { .. } | FunctionArg::ExprNamed { .. } => {
                Err(SqlError::unsupported("a call with named arguments"))
            }
        })
        .collect()
}

/// Whether the name of a call is in quotes.
fn is_quoted(syntax: &FunctionSyntax) -> bool {
    let name = syntax.name.0.last();
    matches!(name, Some(ObjectNamePart::Identifier(name)) if name.quote_style.is_some())
}

impl Binder<'_> {
    pub(crate) fn function(&mut self, syntax: &FunctionSyntax) -> Result<Typed> {
        let bound = match self.with_rows(syntax) {
            Ok(Some(call)) => self.bind_function(&call),
            Ok(None) => self.bind_function(syntax),
            Err(error) => Err(error),
        };
        bound.map_err(|error| self.at(error, name_span(&syntax.name)))
    }

    /// The call with one value, the whole row, for each argument `t.*`. None if it has no such
    /// argument, or is a ROW, whose fields the columns are.
    fn with_rows(&self, syntax: &FunctionSyntax) -> Result<Option<FunctionSyntax>> {
        let is_row = || {
            matches!(syntax.name.0.as_slice(), [ObjectNamePart::Identifier(name)]
                if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("row"))
        };
        if !has_star(&syntax.args) || is_row() {
            return Ok(None);
        }
        if self.is_of_table() {
            // A view goes on calling a renamed table by its name of before; these do not.
            return Err(self.lacks("a call with a star in a table's definition"));
        }
        let mut call = syntax.clone();
        if let FunctionArguments::List(list) = &mut call.args {
            for argument in &mut list.args {
                if let FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(table)) = argument {
                    let row = Syntax::QualifiedWildcard(table.clone(), AttachedToken::empty());
                    *argument = FunctionArg::Unnamed(FunctionArgExpr::Expr(row));
                }
            }
        }
        Ok(Some(call))
    }

    fn bind_function(&mut self, syntax: &FunctionSyntax) -> Result<Typed> {
        let (schema, name) = self.function_name(&syntax.name)?;
        let list = match &syntax.args {
            FunctionArguments::None => {
                let found = self.keyword_function(&name)?;
                return found.ok_or_else(|| undefined_column(&name));
            }
            FunctionArguments::Subquery(query) if name == "array" => return self.array_subquery(query),
            FunctionArguments::Subquery(query) => {
                let argument = self.scalar_subquery(query)?;
                return self.call(schema.as_deref(), &name, vec![argument]);
            }
            FunctionArguments::List(list) => list,
        };
        if syntax.over.is_some() {
            return self.window_function(schema.as_deref(), &name, syntax);
        }
        // In quotes the words of the grammar are names of functions like others.
        if schema.is_none() && !is_quoted(syntax) {
            if name == "row" {
                return self.row_call(syntax, list);
            }
            if name == "grouping" {
                return self.grouping(plain_arguments(&list.args)?);
            }
            if let Some(call) = self.normal_form(&name, list)? {
                return Ok(call);
            }
            if let Some(time) = self.precise_time(&name, list)? {
                return Ok(time);
            }
            if list.duplicate_treatment.is_none() {
                let arguments = plain_arguments(&list.args).unwrap_or_default();
                if let Some(form) = self.conditional(&name, &arguments)? {
                    return Ok(form);
                }
            }
        }
        let is_plain = list.duplicate_treatment.is_none()
            && list.clauses.is_empty()
            && syntax.filter.is_none()
            && syntax.within_group.is_empty()
            && !matches!(list.args.as_slice(), [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)]);
        if is_plain && (!function::is_aggregate(&name) || function::is_ordered_set(&name)) {
            if let Some(call) = self.spread_or_routine_call(schema.as_deref(), &name, &list.args)? {
                return Ok(call);
            }
            let arguments = match self.named_arguments(schema.as_deref(), &name, list)? {
                Some(arguments) => arguments,
                None => {
                    let arguments = plain_arguments(&list.args)?.into_iter();
                    arguments.map(|a| self.expression(a)).collect::<Result<_>>()?
                }
            };
            return self.call(schema.as_deref(), &name, arguments);
        }
        if !function::is_aggregate(&name) {
            if !syntax.within_group.is_empty() && is_hypothetical_set(&name) {
                return self.hypothetical_set(&name, syntax, list);
            }
            let wildcard = matches!(list.args.as_slice(), [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)]);
            let arguments = if wildcard { vec![] } else { plain_arguments(&list.args)? };
            let types: Vec<Type> =
                arguments.iter().map(|a| Ok(self.expression(a)?.ty)).collect::<Result<_>>()?;
            let found = function::resolve(schema.as_deref(), &name, &types);
            found.map_err(|error| self.name_types(error, &types))?;
            return Err(not_an_aggregate(&name, syntax, list));
        }
        self.aggregate(schema.as_deref(), &name, syntax, list)
    }

    /// `ROW(a, t.*)`.
    fn row_call(&mut self, syntax: &FunctionSyntax, list: &FunctionArgumentList) -> Result<Typed> {
        if !has_star(&syntax.args) {
            return self.row(plain_arguments(&list.args)?);
        }
        let fields = self.starred_values(&list.args)?;
        self.constructed_row(fields)
    }

    /// The fields of a row, in which a star stands for a table's columns.
    pub(crate) fn row_fields(&mut self, arguments: &[FunctionArg]) -> Result<Vec<Typed>> {
        self.starred_values(arguments)?.into_iter().map(|field| self.settle(field)).collect()
    }

    /// The arguments of a call that names some, in their places; those left out before the last
    /// are 0. None if it names none, or the function has no names.
    fn named_arguments(
        &mut self,
        schema: Option<&str>,
        name: &str,
        list: &FunctionArgumentList,
    ) -> Result<Option<Vec<Typed>>> {
        let function = function::named_parameters(name).filter(|_| schema.is_none_or(|s| s == "pg_catalog"));
        let Some(function) = function else { return Ok(None) };
        if list.args.iter().all(|argument| matches!(argument, FunctionArg::Unnamed(_))) {
            return Ok(None);
        }
        let mut places: Vec<Option<Typed>> = vec![None; function.names.len()];
        let mut named = false;
        let unnamed =
            list.args.iter().take_while(|argument| matches!(argument, FunctionArg::Unnamed(_))).count();
        for (position, argument) in list.args.iter().enumerate() {
            let (place, value) = match argument {
                FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
                    named = true;
                    let name = super::scope::object_name(name);
                    (function.names.iter().position(|known| **known == name), value)
                }
                FunctionArg::Unnamed(FunctionArgExpr::Expr(_)) if named => {
                    return Err(SqlError::syntax("positional argument cannot follow named argument"));
                }
                FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => (Some(position), value),
                _ => return Err(SqlError::syntax("syntax error at or near \"*\"")),
            };
            let value = self.expression(value)?;
            match place.and_then(|place| places.get_mut(place)) {
                Some(place @ None) => *place = Some(value),
                Some(Some(_)) if place >= Some(unnamed) => {
                    return Err(SqlError::syntax(format!("argument {argument} is given more than once")));
                }
                _ => {
                    let problem = format!("function {name}({argument}) does not exist");
                    return Err(SqlError::new(sqlstate::UNDEFINED_FUNCTION, problem));
                }
            }
        }
        while places.last().is_some_and(Option::is_none) {
            places.pop();
        }
        let zero = || Typed::new(Expr::Constant(Datum::Int4(0)), TypeId::Int4);
        Ok(Some(places.into_iter().map(|place| place.unwrap_or_else(zero)).collect()))
    }

    /// Functions written without parentheses.
    fn keyword_function(&mut self, name: &str) -> Result<Option<Typed>> {
        let now = |binder: &mut Self, ty: TypeId| {
            let now = binder.call(None, "now", vec![])?;
            binder.cast(now, ty.into())
        };
        Ok(Some(match name {
            "current_timestamp" => self.call(None, "now", vec![])?,
            "current_date" => now(self, TypeId::Date)?,
            "localtimestamp" => now(self, TypeId::Timestamp)?,
            "localtime" => {
                let local = now(self, TypeId::Timestamp)?;
                self.cast(local, TypeId::Time.into())?
            }
            "current_time" => return Err(SqlError::unsupported("type \"time with time zone\"")),
            "current_catalog" => self.call(None, "current_database", vec![])?,
            "current_role" | "user" | "current_user" => self.call(None, "current_user", vec![])?,
            "session_user" | "current_schema" => self.call(None, name, vec![])?,
            _ => return Ok(None),
        }))
    }

    /// `normalize(x, NFC)`: the form is a word.
    fn normal_form(&mut self, name: &str, list: &FunctionArgumentList) -> Result<Option<Typed>> {
        let [text, FunctionArg::Unnamed(FunctionArgExpr::Expr(Syntax::Identifier(form)))] =
            list.args.as_slice()
        else {
            return Ok(None);
        };
        let known = ["NFC", "NFD", "NFKC", "NFKD"].iter().any(|known| form.value.eq_ignore_ascii_case(known));
        if name != "normalize" || form.quote_style.is_some() || !known {
            return Ok(None);
        }
        let text = plain_arguments(std::slice::from_ref(text))?;
        let mut arguments = text.into_iter().map(|text| self.expression(text)).collect::<Result<Vec<_>>>()?;
        arguments.push(Typed::new(Expr::Constant(Datum::text(form.value.as_str())), TypeId::Text));
        self.call(None, name, arguments).map(Some)
    }

    /// `x IS [NOT] [form] NORMALIZED`.
    pub(super) fn is_normalized(
        &mut self,
        operand: &Syntax,
        form: Option<&NormalizationForm>,
        negated: bool,
    ) -> Result<Typed> {
        let mut arguments = vec![self.expression(operand)?];
        if let Some(form) = form {
            arguments.push(Typed::new(Expr::Constant(Datum::text(form.to_string())), TypeId::Text));
        }
        let test = self.call(None, "is_normalized", arguments)?;
        let expr = if negated { fold(Expr::Not(Box::new(test.expr)), self.context) } else { test.expr };
        Ok(Typed::new(expr, TypeId::Bool))
    }

    /// `current_timestamp(3)` and its like.
    fn precise_time(&mut self, name: &str, list: &FunctionArgumentList) -> Result<Option<Typed>> {
        let id = match name {
            "current_timestamp" => TypeId::Timestamptz,
            "localtimestamp" => TypeId::Timestamp,
            "localtime" => TypeId::Time,
            "current_time" => return self.keyword_function(name),
            _ => return Ok(None),
        };
        let digits = match list.args.as_slice() {
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(digits))] => digits.to_string().parse::<i32>().ok(),
            _ => None,
        };
        let digits = digits.ok_or_else(|| SqlError::syntax(format!("syntax error in {name}")))?;
        let Some(time) = self.keyword_function(name)? else { return Ok(None) };
        self.cast(time, Type::modified(id, digits.clamp(0, 6))).map(Some)
    }

    /// Calls a function by name: a scalar one, a set-returning one where that is allowed, or a
    /// type's name used as a conversion.
    pub(crate) fn call(&mut self, schema: Option<&str>, name: &str, arguments: Vec<Typed>) -> Result<Typed> {
        let types: Vec<Type> = arguments.iter().map(|argument| argument.ty).collect();
        let resolved = match function::resolve(schema, name, &types) {
            Ok(resolved) => resolved,
            Err(error) if operator_of_call(name).is_some() => {
                return match (operator_of_call(name), arguments.into_iter().next()) {
                    (Some(operator), Some(operand)) => self.prefix(operator, operand),
                    _ => Err(error),
                };
            }
            Err(error) => {
                let elsewhere = json_record::elsewhere(schema, name);
                let error = elsewhere.unwrap_or_else(|| {
                    let error = self.not_in_sight(error, schema, name, &types);
                    self.name_types(error, &types)
                });
                return self.conversion_call(schema, name, arguments, error);
            }
        };
        let arguments = self.convert_arguments(arguments, &resolved)?;
        match resolved.function.kind() {
            Kind::Scalar => {
                let result = resolved.result;
                self.tells_ids |=
                    matches!(resolved.function.name, "pg_current_snapshot" | "txid_current_snapshot");
                self.asks_outcome |= resolved.function.name == "cognate_outcome";
                let call = Expr::Function(Box::new(FunctionCall { function: resolved, arguments }));
                Ok(Typed::new(fold(call, self.context), result))
            }
            Kind::SetReturning => {
                let shape: Option<Shape> = super::table::set_columns(&resolved)
                    .filter(|columns| columns.len() > 1)
                    .map(|columns| columns.into_iter().map(|(name, ty)| (name.to_owned(), ty)).collect());
                let ty = match &shape {
                    Some(_) if resolved.function.name == "aclexplode" => EXPLODED_ROW,
                    Some(_) => TypeId::Record.into(),
                    None if resolved.function.name == "_pg_expandarray" => EXPANDED_ARRAY,
                    None => resolved.result,
                };
                let width = shape.as_ref().map_or(1, |shape| shape.len());
                let call = RowsCall::Set { function: resolved.function, arguments, width };
                self.set_returning(SetReturning { call, ty, shape })
            }
            Kind::Window => Err(SqlError::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!("window function {name} requires an OVER clause"),
            )),
            Kind::Aggregate => Err(SqlError::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!("WITHIN GROUP is required for ordered-set aggregate {name}"),
            )),
        }
    }

    /// The error of a call that is of no built-in function: where a schema that is not searched has
    /// a function of the name, the call is of nothing (42883), rather than of PostgreSQL's, which
    /// are refused.
    pub(super) fn not_in_sight(
        &self,
        error: SqlError,
        schema: Option<&str>,
        name: &str,
        types: &[Type],
    ) -> SqlError {
        let is_of_user = || self.context.catalog.routines().any(|routine| routine.name == name);
        if error.sqlstate != sqlstate::FEATURE_NOT_SUPPORTED || schema.is_some() || !is_of_user() {
            return error;
        }
        let types: Vec<&str> = types.iter().map(|ty| ty.id.sql_name()).collect();
        function::undefined("function", &format!("{name}({})", types.join(", ")))
    }

    pub(super) fn convert_arguments(
        &mut self,
        arguments: Vec<Typed>,
        resolved: &ResolvedFunction,
    ) -> Result<Vec<Expr>> {
        arguments
            .into_iter()
            .zip(&resolved.arguments)
            .map(|(argument, ty)| {
                let argument = self.convert(argument, *ty)?;
                // "any" takes what it gets, but something must give an open literal a type.
                Ok(self.settle(argument)?.expr)
            })
            .collect()
    }

    /// `int4(x)`: a type's name called with one argument converts.
    fn conversion_call(
        &mut self,
        schema: Option<&str>,
        name: &str,
        mut arguments: Vec<Typed>,
        error: SqlError,
    ) -> Result<Typed> {
        let ty = TypeId::from_name(name).filter(|_| matches!(schema, None | Some("pg_catalog")));
        if error.sqlstate == sqlstate::UNDEFINED_FUNCTION
            && let (Some(ty), 1) = (ty, arguments.len())
            && let Some(argument) = arguments.pop()
        {
            return self.cast(argument, ty.into()).map_err(|_| error);
        }
        Err(error)
    }

    /// A set-returning call in the select list: its results take a place behind the frame's.
    pub(super) fn set_returning(&mut self, set: SetReturning) -> Result<Typed> {
        let clause = self.clause();
        if clause == Clause::Aggregate {
            return Err(SqlError::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                "aggregate function calls cannot contain set-returning function calls",
            )
            .with_hint("You might be able to move the set-returning function into a LATERAL FROM item."));
        }
        if !matches!(clause, Clause::Targets | Clause::OrderBy | Clause::GroupBy) || self.levels.is_empty() {
            return Err(SqlError::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                format!("set-returning functions are not allowed in {}", clause.name()),
            ));
        }
        if set.call.exprs().iter().any(|expr| expr.any(&mut |inner| matches!(inner, Expr::SetResult(_)))) {
            return Err(self.lacks("a set-returning function within another"));
        }
        let level = self.level()?;
        let ty = set.ty;
        level.set_returning.push(set);
        Ok(Typed::new(Expr::SetResult(level.set_returning.len() - 1), ty))
    }
}

fn undefined_column(name: &str) -> SqlError {
    SqlError::new(sqlstate::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"))
}

fn not_an_aggregate(name: &str, syntax: &FunctionSyntax, list: &FunctionArgumentList) -> SqlError {
    let wrong = |message: String| SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message);
    if !syntax.within_group.is_empty() {
        wrong(format!("WITHIN GROUP specified, but {name} is not an aggregate function"))
    } else if list.duplicate_treatment.is_some() {
        wrong(format!("DISTINCT specified, but {name} is not an aggregate function"))
    } else if list.clauses.iter().any(|clause| matches!(clause, FunctionArgumentClause::OrderBy(_))) {
        wrong(format!("ORDER BY specified, but {name} is not an aggregate function"))
    } else if syntax.filter.is_some() {
        wrong(format!("FILTER specified, but {name} is not an aggregate function"))
    } else {
        wrong(format!("{name}(*) specified, but {name} is not an aggregate function"))
    }
}
