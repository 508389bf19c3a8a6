//! From a name and argument types to a function.

use smallvec::SmallVec;

use super::registry::{self, Body, Function, Volatility};
use super::select::{self, Choice, Parameters};
use super::{EvalContext, aggregate::Accumulator, convert};
use crate::error::{SqlError, sqlstate};
use crate::types::cast::{self, CastContext};
use crate::types::{Datum, Type, TypeId};

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

    /// How far the result depends on more than the arguments.
    pub fn volatility(&self) -> Volatility {
        self.function.volatility
    }
}

/// The parameter types of a function for a call with this many arguments; `None` if it cannot take
/// so many.
fn parameters(function: &Function, count: usize) -> Option<Parameters> {
    let declared = function.arguments;
    if function.variadic {
        let last = *declared.last()?;
        if count < declared.len() {
            return None;
        }
        let repeated = std::iter::repeat_n(last, count - declared.len());
        return Some(declared.iter().copied().chain(repeated).collect());
    }
    let least = declared.len() - function.optional;
    (least..=declared.len()).contains(&count).then(|| declared[..count].iter().copied().collect())
}

/// Finds the function of a call. `schema` is `pg_catalog` or none; arguments that are untyped
/// literals or parameters have type `Unknown`. A type's name with one argument is a cast. 42883 if
/// there is none that fits, 42725 if several do equally.
pub fn resolve(schema: Option<&str>, name: &str, arguments: &[Type]) -> Result<ResolvedFunction, SqlError> {
    let known = match schema {
        None => true,
        Some("information_schema") => name.starts_with("_pg_"),
        Some(schema) => schema == "pg_catalog",
    };
    if !known {
        return Err(undefined(schema, name, arguments));
    }
    let types: SmallVec<[TypeId; 4]> = arguments.iter().map(|ty| ty.id).collect();
    let (functions, candidates): (Vec<&'static Function>, Vec<Parameters>) = registry::named(name)
        .iter()
        .filter_map(|function| Some((*function, parameters(function, types.len())?)))
        .unzip();
    let exact = candidates.contains(&types);
    if !exact && let Some(cast) = as_cast(name, arguments) {
        return Ok(cast);
    }
    match select::choose(&candidates, &types) {
        Choice::One(index) => Ok(resolved(functions[index], &candidates[index], arguments, &types)),
        Choice::None => Err(undefined(schema, name, arguments)),
        Choice::Ambiguous => Err(SqlError::new(
            sqlstate::AMBIGUOUS_FUNCTION,
            format!("function {} is not unique", signature(schema, name, arguments)),
        )
        .with_hint("Could not choose a best candidate function. You might need to add explicit type casts.")),
    }
}

fn resolved(
    function: &'static Function,
    parameters: &[TypeId],
    arguments: &[Type],
    types: &[TypeId],
) -> ResolvedFunction {
    let generic = select::generic_types(parameters, types).unwrap_or_default();
    let targets = parameters.iter().zip(arguments).map(|(parameter, argument)| match parameter {
        // Untyped literals are text where anything will do.
        TypeId::Any if argument.id == TypeId::Unknown && function.name != "pg_typeof" => {
            Type::new(TypeId::Text)
        }
        TypeId::Any => *argument,
        declared => {
            let actual = generic.actual(*declared);
            if actual == argument.id { *argument } else { Type::new(actual) }
        }
    });
    let arguments: SmallVec<[Type; 4]> = targets.collect();
    ResolvedFunction { function, result: Type::new(generic.actual(function.result)), arguments }
}

/// `float8('1')`, `text(x)`: a call of a type's name is a cast, where the conversion changes
/// nothing or is by way of text.
fn as_cast(name: &str, arguments: &[Type]) -> Option<ResolvedFunction> {
    let [from] = arguments else { return None };
    let function = convert::cast_function(name)?;
    let to = function.result;
    cast::find(*from, Type::new(to), CastContext::Explicit)?;
    let from = if from.id == TypeId::Unknown { Type::new(to) } else { *from };
    Some(ResolvedFunction { function, arguments: SmallVec::from_slice(&[from]), result: Type::new(to) })
}

fn signature(schema: Option<&str>, name: &str, arguments: &[Type]) -> String {
    let types: Vec<&str> = arguments.iter().map(|ty| ty.id.sql_name()).collect();
    let qualifier = schema.map(|s| format!("{s}.")).unwrap_or_default();
    format!("{qualifier}{name}({})", types.join(", "))
}

fn undefined(schema: Option<&str>, name: &str, arguments: &[Type]) -> SqlError {
    SqlError::new(
        sqlstate::UNDEFINED_FUNCTION,
        format!("function {} does not exist", signature(schema, name, arguments)),
    )
    .with_hint(
        "No function matches the given name and argument types. You might need to add explicit type casts.",
    )
}
