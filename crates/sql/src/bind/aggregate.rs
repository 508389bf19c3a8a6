//! Aggregate calls.

use sqlparser::ast::{
    DuplicateTreatment, Expr as Syntax, Function as FunctionSyntax, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArgumentList,
};

use super::call::plain_arguments;
use super::order::sort_direction;
use super::{AggregateCall, Binder, Clause};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, Typed};
use crate::function::{self, Kind};
use crate::types::Type;

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
        self.check_aggregate_allowed()?;
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
        let filter = match syntax.filter.as_deref() {
            Some(filter) => Some(self.in_clause(Clause::Filter, |binder| {
                let typed = binder.expression(filter)?;
                binder.condition(typed, "FILTER")
            })?),
            None => None,
        };
        let call = AggregateCall { filter, ..call };
        self.check_own_level(&call)?;
        let ty = call.function.result;
        let level = self.level()?;
        let place = match level.aggregates.iter().position(|known| *known == call) {
            Some(place) => place,
            None => {
                level.aggregates.push(call);
                level.aggregates.len() - 1
            }
        };
        Ok(Typed::new(Expr::Aggregate(place), ty))
    }

    fn check_aggregate_allowed(&self) -> Result<()> {
        let clause = self.clause();
        let message = match clause {
            Clause::Targets | Clause::Having | Clause::OrderBy if !self.levels.is_empty() => return Ok(()),
            Clause::Aggregate => "aggregate function calls cannot be nested".to_owned(),
            clause => format!("aggregate functions are not allowed in {}", clause.name()),
        };
        Err(SqlError::new(sqlstate::GROUPING_ERROR, message))
    }

    /// An aggregate over nothing but an enclosing query's columns belongs to that query, by the standard.
    fn check_own_level(&mut self, call: &AggregateCall) -> Result<()> {
        let (mut own, mut outer) = (false, false);
        for expr in &call.arguments {
            expr.for_each_reference(0, &mut |depth, _| {
                own |= depth == 0;
                outer |= depth > 0;
            });
        }
        if outer && !own { Err(self.lacks("an aggregate of an enclosing query's columns")) } else { Ok(()) }
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
        let function = function::resolve(schema, name, &types)?;
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
        Ok(AggregateCall { function, arguments, distinct, order, filter: None })
    }
}
