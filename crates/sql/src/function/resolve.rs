//! From a name and argument types to a function.

use smallvec::SmallVec;

use super::registry::{self, Body, Function, Volatility};
use super::select::{self, Choice, Parameters};
use super::{EvalContext, absent, aggregate::Accumulator, array, convert, extension};
use crate::error::{SqlError, sqlstate};
use crate::types::cast::{self, CastContext};
use crate::types::{Datum, DomainUse, Type, TypeId};

/// A function found for a call.
#[derive(Clone, Debug)]
pub struct ResolvedFunction {
    /// The function.
    pub function: &'static Function,
    /// Types to convert the arguments to, one for each argument of the call.
    pub arguments: SmallVec<[Type; 4]>,
    /// Type of the result.
    pub result: Type,
    /// The last argument is an array of those that the function takes in its place (VARIADIC).
    pub is_spread: bool,
}

impl ResolvedFunction {
    /// Calls a scalar function with arguments of the types in `arguments`.
    pub fn call(&self, arguments: &[Datum], context: &EvalContext<'_>) -> Result<Datum, SqlError> {
        if self.function.strict && arguments.iter().any(Datum::is_null) {
            return Ok(Datum::Null);
        }
        if self.is_spread {
            return self.call_spread(arguments, context);
        }
        match self.function.body {
            Body::Plain(body) => body(arguments, context),
            Body::Typed(body) => body(arguments, &self.arguments, context),
            _ => Err(SqlError::unsupported(format!("function {} in this place", self.function.name))),
        }
    }

    /// Calls it with the elements of the array that is the last argument.
    fn call_spread(&self, arguments: &[Datum], context: &EvalContext<'_>) -> Result<Datum, SqlError> {
        let (Some((last, fixed)), Some((array, fixed_types))) =
            (arguments.split_last(), self.arguments.split_last())
        else {
            return Err(SqlError::internal("VARIADIC without an argument"));
        };
        let mut values = fixed.to_vec();
        match last {
            Datum::Array(array) => {
                let count = values.len() + array.elements.len();
                context.check_size(count.saturating_mul(size_of::<Datum>() + size_of::<Type>()))?;
                values.append(&mut array::copied(array.elements.iter())?);
            }
            // The template needs no values; whatever else there is has none then.
            _ if self.function.name == "format" => {}
            _ => return Ok(Datum::Null),
        }
        let mut types = fixed_types.to_vec();
        types.resize(values.len(), array.element().unwrap_or(*array));
        match self.function.body {
            Body::Plain(body) => body(&values, context),
            Body::Typed(body) => body(&values, &types, context),
            _ => Err(SqlError::unsupported(format!("function {} with VARIADIC", self.function.name))),
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

/// What a call may be of.
pub(crate) enum Found {
    /// A built-in function.
    BuiltIn(ResolvedFunction),
    /// Another candidate, by its place.
    Other(usize),
    /// Nothing fits.
    Nothing,
    /// Several do equally.
    Several,
    /// Only untyped literals are given for what says the types of a polymorphic function.
    Untyped,
}

/// Finds the function of a call. `schema` is `pg_catalog` or none; arguments that are untyped
/// literals or parameters have type `Unknown`. A type's name with one argument is a cast. 42883 if
/// there is none that fits, 42725 if several do equally, 42804 if nothing says what a polymorphic
/// one is called with, 0A000 if only PostgreSQL has it.
pub fn resolve(schema: Option<&str>, name: &str, arguments: &[Type]) -> Result<ResolvedFunction, SqlError> {
    match find(schema, name, arguments, &[], &[]) {
        Found::BuiltIn(resolved) => Ok(resolved),
        Found::Nothing | Found::Other(_) => Err(absent::function(schema, name)
            .or_else(|| absent::for_type(schema, name, arguments))
            .unwrap_or_else(|| undefined("function", &signature(schema, name, arguments)))),
        Found::Several => Err(ambiguous("function", &signature(schema, name, arguments))),
        Found::Untyped => Err(untyped()),
    }
}

/// The same for a call with VARIADIC: its last argument is an array of what the function takes
/// there. 42804 if it is none.
pub(crate) fn resolve_spread(
    schema: Option<&str>,
    name: &str,
    arguments: &[Type],
) -> Result<ResolvedFunction, SqlError> {
    let built_in = if matches!(schema, None | Some("pg_catalog")) { registry::named(name) } else { &[] };
    let types: SmallVec<[TypeId; 4]> = arguments.iter().map(|ty| ty.id).collect();
    let is_fit = |function: &&Function| function.variadic && function.arguments.len() == types.len();
    let spread = |function: &'static Function| {
        let mut parameters: Parameters = function.arguments.iter().copied().collect();
        if let Some(last) = parameters.last_mut() {
            // "any" has no array type.
            *last = last.array().unwrap_or(*last);
        }
        (function, parameters)
    };
    let (functions, candidates): (Vec<&'static Function>, Vec<Parameters>) =
        built_in.iter().copied().filter(is_fit).map(spread).unzip();
    let index = match select::choose(&candidates, &|_, _| false, &types) {
        Choice::One(index) => index,
        Choice::None => return Err(undefined("function", &signature(schema, name, arguments))),
        Choice::Ambiguous => return Err(ambiguous("function", &signature(schema, name, arguments))),
    };
    let takes_any = candidates[index].last() == Some(&TypeId::Any);
    if takes_any && arguments.last().is_none_or(|ty| ty.element().is_none()) {
        return Err(SqlError::new(sqlstate::DATATYPE_MISMATCH, "VARIADIC argument must be an array"));
    }
    let found = resolved(functions[index], &candidates[index], arguments, &types);
    Ok(ResolvedFunction { is_spread: true, ..found })
}

/// The same among the built-in functions of a name and `others`, each with the types of its
/// parameters, as many as the call has arguments, and `of_domains` saying which of those are
/// domains.
pub(crate) fn find(
    schema: Option<&str>,
    name: &str,
    arguments: &[Type],
    others: &[SmallVec<[TypeId; 4]>],
    of_domains: &[SmallVec<[bool; 4]>],
) -> Found {
    let is_of_extension = extension::has(name);
    let known = match schema {
        None => true,
        Some("information_schema") => name.starts_with("_pg_"),
        // The empty name is no schema's: who says it wants none of the built-in ones.
        Some(schema) => schema == "pg_catalog" || (is_of_extension && !schema.is_empty()),
    };
    let types: SmallVec<[TypeId; 4]> = arguments.iter().map(|ty| ty.id).collect();
    let built_in = if known { registry::named(name) } else { &[] };
    let count = types.len();
    let fitting = built_in.iter().filter_map(|function| Some((*function, parameters(function, count)?)));
    // Built-in functions hide others with the same parameters, but those of extensions are hidden.
    let fitting = fitting.filter(|(_, parameters)| !(is_of_extension && others.contains(parameters)));
    let (functions, mut candidates): (Vec<&'static Function>, Vec<Parameters>) = fitting.unzip();
    let is_shown = |at: &usize| of_domains[*at].contains(&true) || !candidates.contains(&others[*at]);
    let shown: Vec<usize> = (0..others.len()).filter(is_shown).collect();
    candidates.extend(shown.iter().map(|&at| others[at].clone()));
    let of_domain = |candidate: usize, place: usize| {
        candidate.checked_sub(functions.len()).is_some_and(|at| of_domains[shown[at]][place])
    };
    let exact = select::exact(&candidates, &of_domain, &types).is_some();
    if !exact
        && known
        && let Some(cast) = as_cast(name, arguments)
    {
        return Found::BuiltIn(cast);
    }
    match select::choose(&candidates, &of_domain, &types) {
        Choice::One(index) => match functions.get(index) {
            Some(_) if are_mixed(&candidates[index], arguments) => Found::Nothing,
            Some(_) if select::is_untyped(&candidates[index], &types) => match name {
                // PostgreSQL has others of this name, of types that are not here.
                "unnest" => Found::Several,
                _ => Found::Untyped,
            },
            Some(function) => Found::BuiltIn(resolved(function, &candidates[index], arguments, &types)),
            None => Found::Other(shown[index - functions.len()]),
        },
        Choice::None => Found::Nothing,
        Choice::Ambiguous => Found::Several,
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
            if actual == argument.id { *argument } else { with_enum(actual, arguments) }
        }
    });
    let targets: SmallVec<[Type; 4]> = targets.collect();
    let result = with_enum(generic.actual(function.result), arguments);
    let result = with_domain(result, function.result, parameters, arguments);
    ResolvedFunction { function, result, arguments: targets, is_spread: false }
}

/// The result of a polymorphic function whose arguments are all of one domain, or arrays of it.
fn with_domain(result: Type, declared: TypeId, parameters: &[TypeId], arguments: &[Type]) -> Type {
    let mut elements = parameters.iter().zip(arguments).filter_map(|(parameter, argument)| match parameter {
        TypeId::AnyElement | TypeId::AnyNonArray => Some(*argument),
        TypeId::AnyArray => argument.element(),
        _ => None,
    });
    let Some(first) = elements.next().filter(|first| elements.all(|other| other.domain == first.domain))
    else {
        return result;
    };
    let domain = match (declared, first.domain) {
        (TypeId::AnyElement, domain @ DomainUse::Value(_)) => domain,
        (TypeId::AnyArray, DomainUse::Value(oid)) => DomainUse::Elements(oid),
        _ => return result,
    };
    Type { id: result.id, modifier: first.modifier, domain }
}

/// Values of two enum types where one type is asked for.
fn are_mixed(parameters: &[TypeId], arguments: &[Type]) -> bool {
    let typed = parameters.iter().zip(arguments).filter(|(parameter, _)| **parameter != TypeId::Any);
    let mut enums = typed.filter_map(|(_, argument)| argument.enum_named());
    enums.next().is_some_and(|first| enums.any(|other| other != first))
}

/// The type with this id. If it is an enum type or an array of one, which one that is is said by
/// one of these types: the overloads are chosen by [`TypeId`], which does not say it.
pub(super) fn with_enum<'a>(id: TypeId, types: impl IntoIterator<Item = &'a Type>) -> Type {
    let ty = Type::new(id);
    let said = types.into_iter().find(|known| ty.is_of_enum() && known.is_of_enum());
    said.map_or(ty, |said| Type::modified(id, said.modifier))
}

/// `float8('1')`, `text(x)`: a call of a type's name is a cast, where the conversion changes
/// nothing or is by way of text.
fn as_cast(name: &str, arguments: &[Type]) -> Option<ResolvedFunction> {
    let [from] = arguments else { return None };
    let function = convert::cast_function(name)?;
    let to = function.result;
    cast::find(*from, Type::new(to), CastContext::Explicit)?;
    let from = if from.id == TypeId::Unknown { Type::new(to) } else { *from };
    let (arguments, result) = (SmallVec::from_slice(&[from]), Type::new(to));
    Some(ResolvedFunction { function, arguments, result, is_spread: false })
}

fn signature(schema: Option<&str>, name: &str, arguments: &[Type]) -> String {
    let types: Vec<&str> = arguments.iter().map(|ty| ty.id.sql_name()).collect();
    let qualifier = schema.map(|s| format!("{s}.")).unwrap_or_default();
    format!("{qualifier}{name}({})", types.join(", "))
}

/// 42883; `noun` is function or procedure.
pub(crate) fn undefined(noun: &str, signature: &str) -> SqlError {
    let message = format!("{noun} {signature} does not exist");
    SqlError::new(sqlstate::UNDEFINED_FUNCTION, message).with_hint(format!(
        "No {noun} matches the given name and argument types. You might need to add explicit type casts."
    ))
}

/// 42804.
pub(crate) fn untyped() -> SqlError {
    let message = "could not determine polymorphic type because input has type unknown";
    SqlError::new(sqlstate::DATATYPE_MISMATCH, message)
}

/// 42725.
pub(crate) fn ambiguous(noun: &str, signature: &str) -> SqlError {
    let message = format!("{noun} {signature} is not unique");
    SqlError::new(sqlstate::AMBIGUOUS_FUNCTION, message).with_hint(format!(
        "Could not choose a best candidate {noun}. You might need to add explicit type casts."
    ))
}
