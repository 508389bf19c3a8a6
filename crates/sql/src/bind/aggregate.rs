//! Aggregate calls.

use smallvec::SmallVec;
use sqlparser::ast::{
    DuplicateTreatment, Expr as Syntax, Function as FunctionSyntax, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArgumentList, OrderByExpr,
};

use super::call::plain_arguments;
use super::order::sort_direction;
use super::{AggregateCall, Binder, Clause};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, Typed, same};
use crate::function::{self, Kind, ResolvedFunction};
use crate::types::{Type, TypeId};

impl Binder<'_> {
    /// A call of an aggregate. It becomes a reference to the level's list of aggregates.
    pub(super) fn aggregate(
        &mut self,
        schema: Option<&str>,
        name: &str,
        syntax: &FunctionSyntax,
        list: &FunctionArgumentList,
    ) -> Result<Typed> {
        check_within_group(name, syntax, list)?;
        let wildcard = matches!(list.args.as_slice(), [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)]);
        let arguments = if wildcard { vec![] } else { plain_arguments(&list.args)? };
        if arguments.is_empty() && !wildcard && name == "count" {
            return Err(SqlError::new(
                sqlstate::WRONG_OBJECT_TYPE,
                "count(*) must be used to call a parameterless aggregate function",
            ));
        }
        let distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
        let call = self.in_clause(Clause::Aggregate, |binder| match function::is_ordered_set(name) {
            true => binder.ordered_set(schema, name, &arguments, &syntax.within_group),
            false => binder.aggregate_call(schema, name, &arguments, distinct, list),
        })?;
        let filter = self.filter(syntax)?;
        let call = AggregateCall { filter, ..call };
        self.own_aggregate(call)
    }

    /// FILTER of a call, if it has one.
    pub(super) fn filter(&mut self, syntax: &FunctionSyntax) -> Result<Option<Expr>> {
        let Some(filter) = syntax.filter.as_deref() else { return Ok(None) };
        let filter = self.in_clause(Clause::Filter, |binder| {
            let typed = binder.expression(filter)?;
            binder.condition(typed, "FILTER")
        })?;
        Ok(Some(filter))
    }

    /// GROUPING: which of the arguments are not grouped by. It belongs to a level as an aggregate
    /// does.
    pub(super) fn grouping(&mut self, arguments: Vec<&Syntax>) -> Result<Typed> {
        if arguments.len() > 31 {
            return Err(SqlError::new(
                sqlstate::TOO_MANY_ARGUMENTS,
                "GROUPING must have fewer than 32 arguments",
            ));
        }
        let arguments = (arguments.into_iter())
            .map(|argument| Ok(self.settled_expression(argument)?.expr))
            .collect::<Result<Vec<_>>>()?;
        let function = ResolvedFunction {
            function: &function::GROUPING,
            arguments: SmallVec::new(),
            result: TypeId::Int4.into(),
            is_spread: false,
        };
        let grouping = Some(vec![]);
        self.own_aggregate(AggregateCall {
            function,
            arguments,
            distinct: false,
            order: vec![],
            filter: None,
            grouping,
        })
    }

    /// Gives a call to the level it belongs to.
    fn own_aggregate(&mut self, mut call: AggregateCall) -> Result<Typed> {
        let depth = self.owner(&call);
        self.check_aggregate_allowed(depth, call.grouping.is_some())?;
        let mut is_nested = false;
        for expr in call.exprs() {
            expr.for_each_aggregate(0, &mut |inner| is_nested |= inner <= depth);
        }
        if is_nested {
            return Err(SqlError::new(sqlstate::GROUPING_ERROR, "aggregate function calls cannot be nested"));
        }
        if depth > 0 {
            lower(&mut call, depth);
        }
        let ty = call.function.result;
        let index = self.levels.len() - 1 - depth;
        let level = &mut self.levels[index];
        // Of a volatile argument each one written is computed for itself, but for those of ORDER BY
        // and windows, which PostgreSQL looks for among the outputs.
        let is_own =
            matches!(level.clause, Clause::Targets | Clause::Having) && call.exprs().any(Expr::is_volatile);
        let aggregates = &mut level.aggregates;
        let known = aggregates.iter().position(|known| !is_own && same(known, &call));
        let place = match known {
            Some(place) => place,
            None => {
                aggregates.push(call);
                aggregates.len() - 1
            }
        };
        Ok(Typed::new(Expr::Aggregate { depth, place }, ty))
    }

    /// How many levels out the query is that an aggregate belongs to: the innermost one whose
    /// columns, or aggregates, it is over. A subquery's among its arguments count too.
    fn owner(&self, call: &AggregateCall) -> usize {
        let mut nearest = None;
        let mut note = |depth: usize| nearest = Some(nearest.map_or(depth, |known: usize| known.min(depth)));
        for expr in call.exprs().skip(direct_arguments(call).len()) {
            expr.for_each_reference(0, &mut |depth, _| note(depth));
            expr.for_each_aggregate(0, &mut note);
        }
        nearest.unwrap_or(0)
    }

    /// Whether the clause that the owning query is at allows aggregates.
    fn check_aggregate_allowed(&self, depth: usize, grouping: bool) -> Result<()> {
        let what = if grouping { "grouping operations" } else { "aggregate functions" };
        let Some(level) = self.levels.len().checked_sub(1 + depth).and_then(|index| self.levels.get(index))
        else {
            return Err(SqlError::new(sqlstate::GROUPING_ERROR, format!("{what} are not allowed here")));
        };
        let message = match level.clause {
            Clause::Targets | Clause::Having | Clause::OrderBy | Clause::WindowDefinition => return Ok(()),
            Clause::Aggregate => "aggregate function calls cannot be nested".to_owned(),
            clause => format!("{what} are not allowed in {}", clause.name()),
        };
        Err(SqlError::new(sqlstate::GROUPING_ERROR, message))
    }

    fn aggregate_call(
        &mut self,
        schema: Option<&str>,
        name: &str,
        arguments: &[&Syntax],
        distinct: bool,
        list: &FunctionArgumentList,
    ) -> Result<AggregateCall> {
        let arguments =
            arguments.iter().map(|argument| self.expression(argument)).collect::<Result<Vec<_>>>()?;
        let types: Vec<Type> = arguments.iter().map(|argument| argument.ty).collect();
        let function = function::resolve(schema, name, &types);
        let function = function.map_err(|error| self.name_types(error, &types))?;
        if function.function.kind() != Kind::Aggregate {
            return Err(SqlError::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!("{name} is not an aggregate function"),
            ));
        }
        let given = if distinct { arguments.clone() } else { vec![] };
        let arguments = self.convert_arguments(arguments, &function)?;
        if distinct {
            if arguments.is_empty() {
                return Err(SqlError::syntax("DISTINCT specified for an aggregate without arguments"));
            }
            for ty in &function.arguments {
                self.check_sortable(*ty, "equality")?;
            }
            for argument in &given {
                self.check_sortable_value(argument, "equality")?;
            }
        }
        let (mut order, mut is_given) = (vec![], true);
        for clause in &list.clauses {
            match clause {
                FunctionArgumentClause::OrderBy(keys) => {
                    for key in keys {
                        let typed = self.settled_expression(&key.expr)?;
                        self.check_sortable_value(&typed, "ordering")?;
                        let (descending, nulls_first) = sort_direction(&key.options);
                        is_given &=
                            !distinct || (arguments.contains(&typed.expr) && is_among(&typed, &given));
                        order.push((typed.expr, descending, nulls_first));
                    }
                }
                other => return Err(SqlError::syntax(format!("syntax error at or near \"{other}\""))),
            }
        }
        if !is_given {
            return Err(SqlError::new(
                sqlstate::INVALID_COLUMN_REFERENCE,
                "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list",
            ));
        }
        Ok(AggregateCall { function, arguments, distinct, order, filter: None, grouping: None })
    }

    /// The call of an aggregate with WITHIN GROUP: what that orders by is its last argument.
    fn ordered_set(
        &mut self,
        schema: Option<&str>,
        name: &str,
        direct: &[&Syntax],
        keys: &[OrderByExpr],
    ) -> Result<AggregateCall> {
        let all = direct.iter().copied().chain(keys.iter().map(|key| &key.expr));
        let arguments = all.map(|argument| self.expression(argument)).collect::<Result<Vec<_>>>()?;
        let types: Vec<Type> = arguments.iter().map(|argument| argument.ty).collect();
        let function = function::resolve(schema, name, &types);
        let function = function.map_err(|error| self.name_types(error, &types))?;
        let arguments = self.convert_arguments(arguments, &function)?;
        let mut is_constant = true;
        for argument in &arguments[..direct.len()] {
            argument.for_each_reference(0, &mut |_, _| is_constant = false);
        }
        if !is_constant {
            return Err(self.lacks("a direct argument of an ordered-set aggregate that refers to columns"));
        }
        let ([key], Some(ordered), Some(ty)) = (keys, arguments.last(), function.arguments.last()) else {
            return Err(self.lacks("an ordered-set aggregate of several columns"));
        };
        self.check_sortable(*ty, "ordering")?;
        let (descending, nulls_first) = sort_direction(&key.options);
        let order = vec![(ordered.clone(), descending, nulls_first)];
        Ok(AggregateCall { function, arguments, distinct: false, order, filter: None, grouping: None })
    }
}

/// 42809 for WITHIN GROUP where it has no place, or where it is missing; 42601.
fn check_within_group(name: &str, syntax: &FunctionSyntax, list: &FunctionArgumentList) -> Result<()> {
    let wrong = |message: String| Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message));
    match (function::is_ordered_set(name), syntax.within_group.is_empty()) {
        (false, true) => Ok(()),
        (false, false) => {
            wrong(format!("{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP"))
        }
        (true, true) => wrong(format!("WITHIN GROUP is required for ordered-set aggregate {name}")),
        (true, false) if list.duplicate_treatment.is_some() => {
            Err(SqlError::syntax("cannot use DISTINCT with WITHIN GROUP"))
        }
        (true, false) if !list.clauses.is_empty() => {
            Err(SqlError::syntax("cannot use multiple ORDER BY clauses with WITHIN GROUP"))
        }
        (true, false) => Ok(()),
    }
}

/// The direct arguments of an ordered-set aggregate, which come first: they have no part in which
/// query it belongs to.
fn direct_arguments(call: &AggregateCall) -> &[Expr] {
    match call.arguments.split_last() {
        Some((_, direct)) if function::is_ordered_set(call.function.function.name) => direct,
        _ => &[],
    }
}

/// Whether a key that an aggregate orders by is one of its arguments as they are written: a value
/// of another type is another one, though both may be represented alike.
fn is_among(key: &Typed, arguments: &[Typed]) -> bool {
    arguments
        .iter()
        .any(|given| given.expr == key.expr && (given.ty.id == key.ty.id || given.ty.id == TypeId::Unknown))
}

/// Makes the expressions of a call, bound `depth` levels further in, those of the query it belongs
/// to.
fn lower(call: &mut AggregateCall, depth: usize) {
    let order = call.order.iter_mut().map(|(key, ..)| key);
    for expr in call.arguments.iter_mut().chain(order).chain(&mut call.filter) {
        expr.lower(0, depth);
    }
}
