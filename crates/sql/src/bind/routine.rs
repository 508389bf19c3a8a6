//! Calls of functions and procedures that users have defined.
//!
//! `overload` says which one a call is of. A function whose body is one SELECT is bound with the
//! statement that calls it, once however often it is called; one that does more can only be called
//! alone, by a statement that is nothing else:
//!
//! ```text
//! SELECT x, area(x, 2) FROM t              area: SELECT $1 * $2           an expression
//! SELECT * FROM t, inhabitants(t.id)       inhabitants: SELECT ... FROM   rows, for each row of t
//! SELECT buy(1, 7); SELECT * FROM buy(1)   buy: UPDATE ...; INSERT ...    the whole statement
//! CALL move(1, 2)                          a procedure                    the whole statement
//! ```
//!
//! A body that cannot be bound is no error here, but one of the call when it runs: what the
//! function gives is declared, and its body is looked up by the `search_path` of who calls it.

use std::sync::Arc;

use sqlparser::ast::{
    self, Expr as Syntax, Function as FunctionSyntax, FunctionArg, FunctionArguments, ObjectName,
    Query as QuerySyntax, SelectItem, TableAlias, TableFactor,
};
use sqlparser::tokenizer::Span;

use super::naming::figure_name;
use super::overload::{Candidate, Given, signature};
use super::scope::{name_span, object_name};
use super::table::simple_select;
use super::{BindContext, Binder, Clause, RowsCall, SetReturning, refuse_subquery};
use crate::catalog::{Behavior, Relation, Routine, RoutineKind, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, RoutineBody, RoutineCall, RoutineSelect, Typed};
use crate::parse::{self, Command, Statement};
use crate::plan;
use crate::routine::{self, DEPTH_MAX, Meant, Outcome, Scope};
use crate::session::OutputColumn;
use crate::types::{FormatContext, Type, TypeId};

/// A call that is a whole statement.
pub(crate) struct Called {
    /// What is called.
    pub(crate) routine: Arc<Routine>,
    /// Values of its inputs. Subqueries are not planned yet.
    pub(crate) arguments: Vec<Expr>,
    /// What the statement makes of the result.
    pub(crate) form: Form,
    /// The columns of the statement's rows, if it gives any.
    pub(crate) columns: Option<Vec<OutputColumn>>,
}

/// What a statement that is a call makes of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// CALL: the row of what comes back, if anything does.
    Call,
    /// `SELECT f()`: values.
    Values,
    /// `SELECT * FROM f()`: rows.
    Rows,
}

/// A call in FROM, with names and types of the columns of its rows.
type CallInFrom = (RowsCall, Vec<(String, Type)>);

fn output(name: String, ty: Type) -> OutputColumn {
    OutputColumn { name, ty, table_oid: 0, attribute_number: 0 }
}

/// 42702 for a column whose name is a variable's as well.
fn ambiguous(name: &str) -> SqlError {
    SqlError::new(sqlstate::AMBIGUOUS_COLUMN, format!("column reference \"{name}\" is ambiguous"))
        .with_detail("It could refer to either a PL/pgSQL variable or a table column.")
}

impl Binder<'_> {
    /// The statement is one of a routine's body.
    pub(crate) fn enter_routine(&mut self, scope: &Arc<Scope>) {
        self.scope = Some(scope.clone());
        // Its text is not the client's.
        self.positions = false;
    }

    /// Binds what is stored with a table: whatever the statement is in, its names are columns.
    pub(crate) fn outside_routine<T>(&mut self, bind: impl FnOnce(&mut Self) -> T) -> T {
        let scope = self.scope.take();
        let bound = bind(self);
        self.scope = scope;
        bound
    }

    /// What a name stands for in a routine's body, where a column goes before an argument. In a DO
    /// block a name that may be either is an error. An argument is looked for where there is
    /// nothing of the name only: a name that means two columns is no argument's.
    pub(super) fn or_argument(&self, found: Result<Typed>, names: &[String]) -> Result<Typed> {
        let nothing = [sqlstate::UNDEFINED_COLUMN, sqlstate::UNDEFINED_TABLE];
        match found {
            Ok(column) => self.check_variable(names).map(|()| column),
            Err(error) if nothing.contains(&error.sqlstate) => self.argument(names).unwrap_or(Err(error)),
            other => other,
        }
    }

    /// 42702 if the name of a column is that of a variable, too.
    pub(crate) fn check_variable(&self, names: &[String]) -> Result<()> {
        if self.variables().is_none() {
            return Ok(());
        }
        match self.argument(names) {
            None => Ok(()),
            // A record is looked at before the column is, and has to have the field.
            Some(Err(error)) => Err(error),
            Some(Ok(_)) => Err(ambiguous(&names.join("."))),
        }
    }

    /// The same for all columns of a table.
    pub(super) fn check_record(&self, schema: Option<&str>, table: &str) -> Result<()> {
        let Some(variables) = self.variables() else { return Ok(()) };
        let names: Vec<String> = schema.into_iter().chain([table]).map(str::to_owned).collect();
        match variables.find(&names) {
            Some(Meant::Record(..) | Meant::NoRow) => Err(ambiguous(&format!("{}.*", names.join(".")))),
            _ => Ok(()),
        }
    }

    /// The variables that a DO block's statement sees.
    fn variables(&self) -> Option<&Scope> {
        self.names_in_sight().filter(|scope| !scope.has_numbers)
    }

    /// What names stand for that are no columns; nothing within a view.
    fn names_in_sight(&self) -> Option<&Scope> {
        self.scope.as_deref().filter(|_| self.view_depth == 0)
    }

    /// The argument or variable that a name stands for, in a routine's body or a DO block.
    fn argument(&self, names: &[String]) -> Option<Result<Typed>> {
        Some(match self.names_in_sight()?.find(names)? {
            Meant::Value(place, ty) => Ok(Typed::new(Expr::Parameter(place), ty)),
            Meant::Record(place, fields) => {
                let items = (place..place + fields.len()).map(Expr::Parameter).collect();
                Ok(Typed::new(Expr::Row(items, fields.to_vec().into()), TypeId::Record))
            }
            Meant::NoRow => Ok(Typed::new(Expr::NULL, TypeId::Record)),
            Meant::NoField(record) => Err(SqlError::new(
                sqlstate::UNDEFINED_COLUMN,
                format!("record \"{record}\" has no field \"{}\"", names[names.len() - 1]),
            )),
            Meant::NoFields(record) => Err(SqlError::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("record \"{record}\" is not assigned yet"),
            )
            .with_detail("The tuple structure of a not-yet-assigned record is indeterminate.")),
        })
    }

    /// Whether there is a parameter of this number, from 1: a routine has as many as inputs.
    pub(super) fn is_parameter(&self, number: usize) -> bool {
        match &self.scope {
            Some(scope) => scope.has_numbers && number <= scope.arguments.len(),
            None => self.takes_parameters,
        }
    }

    /// The functions of users that the statement calls, and those that they call.
    pub(crate) fn routines(&self) -> &[Arc<RoutineBody>] {
        &self.routines
    }

    /// Whether the statement asks by ids which transactions its snapshot shows.
    pub(crate) fn tells_ids(&self) -> bool {
        self.tells_ids
    }

    /// Whether the statement asks what became of a request of a cluster.
    pub(crate) fn asks_outcome(&self) -> bool {
        self.asks_outcome
    }

    /// Whether the statement reads tables of the catalog.
    pub(crate) fn reads_catalog(&self) -> bool {
        self.reads_catalog
    }

    /// 0A000 if a volatile function reads the table that the statement changes. In PostgreSQL it
    /// would see what the statement has changed so far.
    pub(crate) fn check_volatile_reads(&self, target: &Table) -> Result<()> {
        if !self.volatile_reads.contains(&target.oid) {
            return Ok(());
        }
        let what = format!(
            "a volatile function that reads the table that the statement changes, \"{}\",",
            target.name
        );
        Err(SqlError::unsupported(what)
            .with_hint("A function that is declared STABLE reads the table as it was before the statement."))
    }

    fn has_routine(&self, schema: Option<&str>, name: &str) -> bool {
        self.routines_named(schema, name).next().is_some()
    }

    /// The routines that a name may mean, each with the place of its schema in the path. A view
    /// goes on calling what it was made with, built-in or not, also once another one would fit
    /// better.
    pub(super) fn routines_named<'a>(
        &'a self,
        schema: Option<&'a str>,
        name: &'a str,
    ) -> impl Iterator<Item = (usize, &'a Arc<Routine>)> {
        let view = self.view_of_text();
        let named = self.context.catalog.routines_named(&self.search_path, schema, name);
        named.filter(move |(_, routine)| view.is_none_or(|view| view.calls(routine)))
    }

    /// The call of a function, unless all of its name are built in.
    pub(super) fn routine_call(
        &mut self,
        schema: Option<&str>,
        name: &str,
        arguments: &[FunctionArg],
    ) -> Result<Option<Typed>> {
        if !self.has_routine(schema, name) {
            return Ok(None);
        }
        self.need_schema_of_function(schema);
        let given = self.given(arguments)?;
        let Some(candidate) = self.choose("function", schema, name, &given)? else {
            let arguments = given.into_iter().map(|given| given.value).collect();
            return self.call(schema, name, arguments).map(Some);
        };
        let (call, outcome) = self.bound_call(&candidate, given)?;
        if !call.is_set {
            let ty = call.ty;
            return Ok(Some(Typed::new(Expr::Routine(Box::new(call)), ty)));
        }
        let shape = match outcome {
            Outcome::Row(columns) => Some(columns.into()),
            _ => None,
        };
        let ty = call.ty;
        self.set_returning(SetReturning { call: RowsCall::Routine(Box::new(call)), ty, shape }).map(Some)
    }

    /// The call of a function in FROM, with the columns of its rows, unless it is a built-in one's.
    pub(super) fn routine_in_from(
        &mut self,
        schema: Option<&str>,
        name: &str,
        arguments: &[FunctionArg],
        alias: Option<&TableAlias>,
        span: Span,
    ) -> Result<Option<CallInFrom>> {
        if !self.has_routine(schema, name) {
            return Ok(None);
        }
        self.need_schema_of_function(schema);
        let given = self.in_clause(Clause::FromFunction, |binder| binder.given(arguments))?;
        let chosen = self.choose("function", schema, name, &given);
        let Some(candidate) = chosen.map_err(|error| self.at(error, span))? else { return Ok(None) };
        let bound = self.bound_call(&candidate, given);
        let (call, outcome) = bound.map_err(|error| self.at(error, span))?;
        Ok(Some((RowsCall::Routine(Box::new(call)), columns(outcome, name, alias))))
    }

    /// A call of a function whose body is one SELECT. 0A000 for others, 42809 for a procedure.
    fn bound_call(&mut self, candidate: &Candidate, given: Vec<Given>) -> Result<(RoutineCall, Outcome)> {
        let routine = &candidate.routine;
        check_function(routine, self.context.eval.format)?;
        let clause = self.clause();
        let is_stored = [
            Clause::Check,
            Clause::Default,
            Clause::INDEX_EXPRESSION,
            Clause::INDEX_PREDICATE,
            Clause::GENERATED_COLUMN,
        ];
        let is_of_rows =
            matches!(clause, Clause::Other("transform expressions" | "COPY FROM WHERE conditions"));
        if is_of_rows || is_stored.contains(&clause) {
            let place = clause.name();
            let signature = routine.signature(self.context.eval.format);
            return Err(self.lacks(format!("function {signature} in {place}")));
        }
        let inputs = self.inputs(candidate, given)?;
        self.need_to_call(routine);
        let outcome = Outcome::of(routine, self.context.catalog)?;
        self.note_row_type(routine);
        let body = self.routine_body(routine, &outcome)?;
        let ty = match &outcome {
            Outcome::Nothing => TypeId::Void.into(),
            Outcome::Value(_, ty) => *ty,
            Outcome::Row(_) => TypeId::Record.into(),
        };
        Ok((RoutineCall::new(&body, ty, inputs), outcome))
    }

    /// The columns of a function that gives rows of a table or view are that one's: who reads them
    /// depends on it, whatever the body reads.
    fn note_row_type(&mut self, routine: &Routine) {
        let catalog = self.context.catalog;
        match routine.row_of.and_then(|oid| catalog.relation_by_oid(oid)) {
            Some(Relation::Table(table)) => self.note_table(table),
            Some(Relation::View(view)) if !self.views.contains(&view.oid) => self.views.push(view.oid),
            _ => {}
        }
    }

    /// What calls of a function in one name do, bound and planned at the first one, or why that
    /// cannot be. Only what says nothing of the body is an error at once.
    fn routine_body(&mut self, routine: &Arc<Routine>, outcome: &Outcome) -> Result<Arc<RoutineBody>> {
        let caller = self.acting_in(routine).caller();
        let is_it = |known: &&Arc<RoutineBody>| known.routine.oid == routine.oid && known.caller == caller;
        if let Some(known) = self.routines.iter().find(is_it) {
            return Ok(known.clone());
        }
        let statements = routine::statements(routine)?;
        let [Statement { command: Command::Sql(sql), .. }] = statements.as_slice() else {
            return Err(only_alone(routine, self.context.eval.format));
        };
        let (ast::Statement::Query(query), true) = (sql.as_ref(), routine::is_single_select(&statements))
        else {
            return Err(only_alone(routine, self.context.eval.format));
        };
        if self.routine_depth == DEPTH_MAX {
            return Err(routine::too_deep());
        }
        let shape = match outcome {
            Outcome::Row(columns) => Some(columns.clone().into()),
            _ => None,
        };
        let is_void = *outcome == Outcome::Nothing;
        let body = Arc::new(RoutineBody::new(routine.clone(), shape, is_void, caller));
        self.routines.push(body.clone());
        let known = self.routines.len();
        let depth = statements.iter().map(Statement::depth).max().unwrap_or(0);
        let select =
            parse::on_large_stack(depth, || self.plan_body(&body, outcome, query, &statements[0], depth))
                .map_err(|error| routine::within(error, &routine.name, None));
        if let Err(error) = &select {
            if error.is_of_circumstances() {
                return Err(error.clone());
            }
            self.forget_bodies(known);
        }
        body.set(select);
        Ok(body)
    }

    /// Forgets the bodies from a place on that were bound for one that could not be: what they read
    /// and need was not noted, so whoever else calls them binds them again. Those that could not be
    /// bound either need nothing, and are not tried again.
    fn forget_bodies(&mut self, from: usize) {
        let mut place = 0;
        self.routines.retain(|body| {
            place += 1;
            place <= from || body.is_unbound()
        });
    }

    /// The plan of a body. What it reads and needs is noted once nothing of it can fail any more.
    fn plan_body(
        &mut self,
        body: &RoutineBody,
        outcome: &Outcome,
        query: &QuerySyntax,
        statement: &Statement,
        depth: usize,
    ) -> Result<RoutineSelect> {
        let routine = &body.routine;
        let context = BindContext { source: &statement.source, ..*self.context };
        let declared: Vec<Option<Type>> = routine.inputs().map(|argument| Some(argument.ty)).collect();
        let mut inner = Binder::new(&context, &declared);
        if let Some(scope) = &statement.scope {
            inner.enter_routine(scope);
        }
        // What is known of other functions is shared, to and fro.
        inner.routines = std::mem::take(&mut self.routines);
        inner.routine_depth = self.routine_depth + 1;
        inner.acting = self.acting_in(routine);
        let bound = stacker::maybe_grow(192 * 1024, 4 * 1024 * 1024, || inner.query(query, false));
        self.routines = std::mem::take(&mut inner.routines);
        let bound = bound?;
        if inner.wants_parts() {
            return Err(only_alone(routine, self.context.eval.format));
        }
        let needs = std::mem::take(&mut inner.needs);
        let conversions = routine::conversions(routine, outcome, Some(&bound.columns), context.eval.format)?;
        let checks = routine::checks(&mut inner, outcome, Some(&bound.columns))?;
        let types = inner.parameter_types()?;
        let tables = inner.tables().to_vec();
        let plan = plan::plan(bound, inner.cte_count(), types, tables, context.row_counts)?;
        inner.tables().iter().for_each(|table| self.note_table(table));
        self.take_needs(needs);
        let views: Vec<u32> =
            inner.views().iter().filter(|view| !self.views.contains(view)).copied().collect();
        self.views.extend(views);
        self.volatile_reads.append(&mut inner.volatile_reads);
        self.tells_ids |= inner.tells_ids;
        self.asks_outcome |= inner.asks_outcome;
        self.reads_catalog |= inner.reads_catalog;
        if routine.behavior == Behavior::Volatile {
            self.volatile_reads.extend(inner.tables().iter().map(|table| table.oid));
        }
        Ok(RoutineSelect { plan: Arc::new(plan), conversions, checks, depth })
    }

    /// CALL. 42809 if it is of a function.
    pub(crate) fn procedure_call(&mut self, syntax: &FunctionSyntax) -> Result<Called> {
        self.bind_procedure_call(syntax).map_err(|error| self.at(error, name_span(&syntax.name)))
    }

    fn bind_procedure_call(&mut self, syntax: &FunctionSyntax) -> Result<Called> {
        let (schema, name) = self.function_name(&syntax.name)?;
        let Some(arguments) = plain_list(syntax) else {
            return Err(SqlError::syntax("syntax error in CALL"));
        };
        self.need_schema_of_function(schema.as_deref());
        self.push_level();
        let bound = self.in_clause(Clause::Other("CALL arguments"), |binder| {
            let given = binder.given(arguments)?;
            for given in &given {
                refuse_subquery(&given.value.expr, "CALL argument")?;
            }
            let shown = signature(schema.as_deref(), &name, &given);
            let not_a_procedure = |signature: String| {
                let message = format!("{signature} is not a procedure");
                SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message)
                    .with_hint("To call a function, use SELECT.")
            };
            match binder.choose("procedure", schema.as_deref(), &name, &given)? {
                Some(candidate) if candidate.routine.kind == RoutineKind::Procedure => {
                    let arguments = binder.inputs(&candidate, given)?;
                    Ok((candidate.routine, arguments))
                }
                Some(candidate) => {
                    Err(not_a_procedure(candidate.routine.signature(binder.context.eval.format)))
                }
                None => Err(not_a_procedure(shown)),
            }
        });
        self.pop_level()?;
        let (routine, arguments) = bound?;
        self.need_to_call(&routine);
        let columns = match Outcome::of(&routine, self.context.catalog)? {
            Outcome::Row(columns) => Some(columns.into_iter().map(|(name, ty)| output(name, ty)).collect()),
            _ => None,
        };
        Ok(Called { routine, arguments, form: Form::Call, columns })
    }

    /// The call that a query is, if it is nothing else and of a function that does more than one
    /// SELECT.
    pub(crate) fn function_alone(&mut self, query: &QuerySyntax) -> Result<Option<Called>> {
        let Some((name, arguments, item, alias)) = alone(query) else { return Ok(None) };
        let (schema, function) = self.function_name(name)?;
        let named = self.context.catalog.routines_named(&self.search_path, schema.as_deref(), &function);
        let mut does_more = false;
        for (_, routine) in named {
            does_more |= routine.kind == RoutineKind::Function
                && !routine::is_single_select(&routine::statements(routine)?);
        }
        if !does_more {
            return Ok(None);
        }
        self.push_level();
        let bound = self.in_clause(Clause::FromFunction, |binder| {
            let given = binder.given(arguments)?;
            let Some(candidate) = binder.choose("function", schema.as_deref(), &function, &given)? else {
                return Ok(None);
            };
            if routine::is_single_select(&routine::statements(&candidate.routine)?) {
                return Ok(None);
            }
            check_function(&candidate.routine, binder.context.eval.format)?;
            let arguments = binder.inputs(&candidate, given)?;
            Ok(Some((candidate.routine, arguments)))
        });
        self.pop_level()?;
        let Some((routine, arguments)) = bound.map_err(|error| self.at(error, name_span(name)))? else {
            return Ok(None);
        };
        self.need_schema_of_function(schema.as_deref());
        self.need_to_call(&routine);
        let outcome = Outcome::of(&routine, self.context.catalog)?;
        let (form, columns) = match item {
            None => {
                let columns = columns(outcome, &function, alias);
                (Form::Rows, columns.into_iter().map(|(name, ty)| output(name, ty)).collect())
            }
            Some(item) => {
                let ty = match outcome {
                    Outcome::Nothing => TypeId::Void.into(),
                    Outcome::Value(_, ty) => ty,
                    Outcome::Row(_) => TypeId::Record.into(),
                };
                let name = match item {
                    SelectItem::ExprWithAlias { alias, .. } => object_name(alias),
                    SelectItem::UnnamedExpr(expr) => figure_name(expr),
                    _ => function,
                };
                (Form::Values, vec![output(name, ty)])
            }
        };
        Ok(Some(Called { routine, arguments, form, columns: Some(columns) }))
    }
}

/// Names and types of the columns of a function in FROM: a single one is named after the argument
/// that it comes back by, else after the alias, else after the function.
fn columns(outcome: Outcome, name: &str, alias: Option<&TableAlias>) -> Vec<(String, Type)> {
    let shown = || alias.map_or_else(|| name.to_owned(), |alias| object_name(&alias.name));
    match outcome {
        Outcome::Nothing => vec![(shown(), TypeId::Void.into())],
        Outcome::Value(name, ty) => vec![(name.unwrap_or_else(shown), ty)],
        Outcome::Row(columns) => columns,
    }
}

/// 42809 if it is a procedure.
fn check_function(routine: &Routine, format: &FormatContext) -> Result<()> {
    match routine.kind {
        RoutineKind::Function => Ok(()),
        RoutineKind::Procedure => {
            let message = format!("{} is a procedure", routine.signature(format));
            Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message)
                .with_hint("To call a procedure, use CALL."))
        }
    }
}

fn only_alone(routine: &Routine, format: &FormatContext) -> SqlError {
    SqlError::unsupported(format!("function {} in this place", routine.signature(format)))
        .with_detail("Its body is more than one SELECT, or changes or locks rows.")
        .with_hint(
            "Such a function is called by a statement of its own: SELECT f(...) or SELECT * FROM f(...).",
        )
}

/// The arguments of a call without anything around them.
fn plain_list(syntax: &FunctionSyntax) -> Option<&[FunctionArg]> {
    let FunctionArguments::List(list) = &syntax.args else { return None };
    let plain = list.duplicate_treatment.is_none()
        && list.clauses.is_empty()
        && syntax.filter.is_none()
        && syntax.over.is_none()
        && syntax.within_group.is_empty();
    plain.then_some(list.args.as_slice())
}

/// The name and arguments of the call that a query is, if it is nothing else: with the item of the
/// select list, or with the alias in FROM.
pub(crate) type Alone<'a> =
    (&'a ObjectName, &'a [FunctionArg], Option<&'a SelectItem>, Option<&'a TableAlias>);

pub(crate) fn alone(query: &QuerySyntax) -> Option<Alone<'_>> {
    let select = simple_select(query).filter(|select| select.selection.is_none())?;
    match (select.projection.as_slice(), select.from.as_slice()) {
        (
            [
                item @ (SelectItem::UnnamedExpr(Syntax::Function(function))
                | SelectItem::ExprWithAlias { expr: Syntax::Function(function), .. }),
            ],
            [],
        ) => Some((&function.name, plain_list(function)?, Some(item), None)),
        ([SelectItem::Wildcard(_)], [from]) if from.joins.is_empty() => match &from.relation {
            TableFactor::Table {
                name,
                alias,
                args: Some(arguments),
                with_ordinality: false,
                sample: None,
                ..
            } if has_no_columns(alias.as_ref()) => {
                Some((name, arguments.args.as_slice(), None, alias.as_ref()))
            }
            TableFactor::Function { name, args, with_ordinality: false, alias, .. }
                if has_no_columns(alias.as_ref()) =>
            {
                Some((name, args.as_slice(), None, alias.as_ref()))
            }
            _ => None,
        },
        _ => None,
    }
}

fn has_no_columns(alias: Option<&TableAlias>) -> bool {
    alias.is_none_or(|alias| alias.columns.is_empty())
}
