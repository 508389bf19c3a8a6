//! Aggregate calls.

use smallvec::SmallVec;
use sqlparser::ast::{
    DuplicateTreatment, Expr as Syntax, Function as FunctionSyntax, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArgumentList,
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
        if !syntax.within_group.is_empty() {
            return Err(self.lacks("an ordered-set aggregate"));
        }
        let wildcard = matches!(list.args.as_slice(), [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)]);
        let arguments = if wildcard { vec![] } else { plain_arguments(&list.args)? };
        if arguments.is_empty() && !wildcard && name == "count" {
            return Err(SqlError::new(
                sqlstate::WRONG_OBJECT_TYPE,
                "count(*) must be used to call a parameterless aggregate function",
            ));
        }
        let distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
        let call = self.in_clause(Clause::Aggregate, |binder| {
            binder.aggregate_call(schema, name, &arguments, distinct, list)
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
        if call.exprs().any(|expr| expr.any(&mut |inner| is_aggregate_of(inner, depth))) {
            return Err(SqlError::new(sqlstate::GROUPING_ERROR, "aggregate function calls cannot be nested"));
        }
        if depth > 0 {
            lower(&mut call, depth);
        }
        let ty = call.function.result;
        let index = self.levels.len() - 1 - depth;
        let aggregates = &mut self.levels[index].aggregates;
        let place = match aggregates.iter().position(|known| same(known, &call)) {
            Some(place) => place,
            None => {
                aggregates.push(call);
                aggregates.len() - 1
            }
        };
        Ok(Typed::new(Expr::Aggregate { depth, place }, ty))
    }

    /// How many levels out the query is that an aggregate belongs to: the innermost one whose
    /// columns it is over.
    fn owner(&self, call: &AggregateCall) -> usize {
        let mut nearest = None;
        let mut note = |depth: usize| nearest = Some(nearest.map_or(depth, |known: usize| known.min(depth)));
        for expr in call.exprs() {
            expr.for_each_reference(0, &mut |depth, _| note(depth));
            expr.visit(&mut |inner| {
                if let Expr::Aggregate { depth, .. } = inner {
                    note(*depth);
                }
            });
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
        let arguments = self.convert_arguments(arguments, &function)?;
        if distinct {
            if arguments.is_empty() {
                return Err(SqlError::syntax("DISTINCT specified for an aggregate without arguments"));
            }
            for ty in &function.arguments {
                self.check_sortable(*ty, "equality")?;
            }
        }
        let mut order = vec![];
        for clause in &list.clauses {
            match clause {
                FunctionArgumentClause::OrderBy(keys) => {
                    for key in keys {
                        let typed = self.settled_expression(&key.expr)?;
                        self.check_sortable(typed.ty, "ordering")?;
                        let (descending, nulls_first) = sort_direction(&key.options);
                        order.push((typed.expr, descending, nulls_first));
                    }
                }
                other => return Err(SqlError::syntax(format!("syntax error at or near \"{other}\""))),
            }
        }
        if distinct && order.iter().any(|(key, ..)| !arguments.contains(key)) {
            return Err(SqlError::new(
                sqlstate::INVALID_COLUMN_REFERENCE,
                "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list",
            ));
        }
        Ok(AggregateCall { function, arguments, distinct, order, filter: None, grouping: None })
    }
}

/// Whether it is an aggregate of the query so many levels out.
fn is_aggregate_of(expr: &Expr, level: usize) -> bool {
    matches!(expr, Expr::Aggregate { depth, .. } if *depth == level)
}

/// Makes the expressions of a call, bound `depth` levels further in, those of the query it belongs
/// to.
fn lower(call: &mut AggregateCall, depth: usize) {
    let order = call.order.iter_mut().map(|(key, ..)| key);
    for expr in call.arguments.iter_mut().chain(order).chain(&mut call.filter) {
        expr.lower(0, depth);
    }
}
