//! Calls with VARIADIC: the last argument is an array of all that the function takes in its place.

use sqlparser::ast::{FunctionArg, FunctionArgExpr};

use super::call::plain_arguments;
use super::{Binder, Clause};
use crate::error::Result;
use crate::expr::{Expr, FunctionCall, Typed, fold};
use crate::function;
use crate::parse::VARIADIC;
use crate::types::Type;

impl Binder<'_> {
    /// A call with VARIADIC, or of a function that users have defined; none if it is neither.
    pub(super) fn spread_or_routine_call(
        &mut self,
        schema: Option<&str>,
        name: &str,
        arguments: &[FunctionArg],
    ) -> Result<Option<Typed>> {
        if let Some((FunctionArg::Named { name: mark, arg: FunctionArgExpr::Expr(array), .. }, fixed)) =
            arguments.split_last()
            && mark.value == VARIADIC
        {
            let mut all = plain_arguments(fixed)?;
            all.push(array);
            return self.spread_call(schema, name, &all).map(Some);
        }
        self.routine_call(schema, name, arguments)
    }

    /// Whether what is bound is stored and told again: a view's query, or a part of a table's
    /// definition.
    pub(super) fn is_stored(&self) -> bool {
        self.noting.is_some() || self.is_of_table()
    }

    /// Whether what is bound is a part of a table's definition.
    pub(super) fn is_of_table(&self) -> bool {
        let of_tables = [
            Clause::Check,
            Clause::Default,
            Clause::INDEX_EXPRESSION,
            Clause::INDEX_PREDICATE,
            Clause::GENERATED_COLUMN,
        ];
        of_tables.contains(&self.clause())
    }

    fn spread_call(
        &mut self,
        schema: Option<&str>,
        name: &str,
        arguments: &[&sqlparser::ast::Expr],
    ) -> Result<Typed> {
        // The word is not kept.
        if self.is_stored() {
            return Err(self.lacks("VARIADIC in a view or in a table's definition"));
        }
        let bound = arguments.iter().map(|argument| self.expression(argument)).collect::<Result<Vec<_>>>()?;
        let types: Vec<Type> = bound.iter().map(|argument| argument.ty).collect();
        let resolved = function::resolve_spread(schema, name, &types);
        let resolved = resolved.map_err(|error| self.name_types(error, &types))?;
        let arguments = self.convert_arguments(bound, &resolved)?;
        let result = resolved.result;
        let call = Expr::Function(Box::new(FunctionCall { function: resolved, arguments }));
        Ok(Typed::new(fold(call, self.context), result))
    }
}
