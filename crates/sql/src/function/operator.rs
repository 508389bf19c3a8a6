//! Operators: from a symbol and operand types to what computes it.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::OnceLock;

use smallvec::smallvec;

use super::resolve::with_enum;
use super::select::{self, Choice, Parameters};
use super::{
    EvalContext, Volatility, absent, array, datetime, json, math, network, pattern, regexp, string,
    transaction,
};
use crate::error::{SqlError, sqlstate};
use crate::types::cast::{self, Cast, CastContext};
use crate::types::{Arithmetic, Datum, Record, Type, TypeId};

/// The comparisons, which indexes can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// What computes an operator.
#[derive(Clone, Copy)]
pub enum OperatorBody {
    /// Compares two values of one type, or of two integer types. Keys of different integer types
    /// differ: a key is made of a value of its column's type.
    Compare(Comparison),
    /// Of two values, neither NULL unless the operator is not strict.
    Binary(fn(&Datum, &Datum, &EvalContext<'_>) -> Result<Datum, SqlError>),
    /// The same of numerics, and what it is: numbers of few digits can be computed in registers.
    Exact(Arithmetic, fn(&Datum, &Datum, &EvalContext<'_>) -> Result<Datum, SqlError>),
    /// The same, needing the operands' types.
    TypedBinary(fn(&Datum, &Datum, [Type; 2], &EvalContext<'_>) -> Result<Datum, SqlError>),
    /// Of the right operand only.
    Unary(fn(&Datum, &EvalContext<'_>) -> Result<Datum, SqlError>),
}

impl std::fmt::Debug for OperatorBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OperatorBody::Compare(comparison) => write!(f, "Compare({comparison:?})"),
            OperatorBody::Binary(_) => write!(f, "Binary"),
            OperatorBody::Exact(arithmetic, _) => write!(f, "Exact({arithmetic:?})"),
            OperatorBody::TypedBinary(_) => write!(f, "TypedBinary"),
            OperatorBody::Unary(_) => write!(f, "Unary"),
        }
    }
}

/// An operator found for its operands.
#[derive(Clone, Debug)]
pub struct ResolvedOperator {
    /// `+`, `<=`, `~~` for LIKE, `!~~*` for NOT ILIKE ...
    pub name: &'static str,
    /// Type to convert the left operand to; none for a prefix operator.
    pub left: Option<Type>,
    /// Type to convert the right operand to.
    pub right: Type,
    /// Type of the result.
    pub result: Type,
    /// NULL if an operand is NULL, without a call.
    pub strict: bool,
    /// What computes it.
    pub body: OperatorBody,
    volatility: Volatility,
    /// It casts operands to text, and depends on what these casts do.
    writes_operands: bool,
}

impl ResolvedOperator {
    /// How far the result depends on more than the operands: on the time zone, for times.
    pub fn volatility(&self) -> Volatility {
        match self.writes_operands && self.casts_are(Cast::is_immutable) {
            true => Volatility::Immutable,
            false => self.volatility,
        }
    }

    /// Whether all that it depends on is how settings say that operands are written: see
    /// [`Cast::is_written_by_settings`].
    pub(crate) fn is_written_by_settings(&self) -> bool {
        self.writes_operands && self.casts_are(|cast| cast.is_immutable() || cast.is_written_by_settings())
    }

    /// Whether this is so of the casts of all operands to text.
    fn casts_are(&self, is_so: impl Fn(&Cast) -> bool) -> bool {
        let text = Type::new(TypeId::Text);
        let mut operands = self.left.iter().chain([&self.right]);
        operands
            .all(|ty| cast::find(ty.plain(), text, CastContext::Explicit).is_some_and(|cast| is_so(&cast)))
    }

    /// The comparison it is, if it is one.
    pub fn comparison(&self) -> Option<Comparison> {
        if let OperatorBody::Compare(comparison) = self.body { Some(comparison) } else { None }
    }

    /// The exact operation of numerics it is, if it is one.
    #[inline]
    pub(crate) fn exact(&self) -> Option<Arithmetic> {
        if let OperatorBody::Exact(arithmetic, _) = self.body { Some(arithmetic) } else { None }
    }

    /// Applies it. A prefix operator ignores `left`.
    #[inline]
    pub fn call(&self, left: &Datum, right: &Datum, context: &EvalContext<'_>) -> Result<Datum, SqlError> {
        if self.strict && (right.is_null() || (self.left.is_some() && left.is_null())) {
            return Ok(Datum::Null);
        }
        match self.body {
            OperatorBody::Compare(comparison) => Ok(Datum::Bool(comparison.test(left, right))),
            OperatorBody::Binary(body) | OperatorBody::Exact(_, body) => body(left, right, context),
            OperatorBody::TypedBinary(body) => {
                body(left, right, [self.left.unwrap_or(self.right), self.right], context)
            }
            OperatorBody::Unary(body) => body(right, context),
        }
    }
}

impl Comparison {
    /// The symbol.
    pub fn symbol(self) -> &'static str {
        match self {
            Comparison::Equal => "=",
            Comparison::NotEqual => "<>",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        }
    }

    /// The comparison with its operands exchanged.
    pub fn commuted(self) -> Comparison {
        match self {
            Comparison::Less => Comparison::Greater,
            Comparison::LessOrEqual => Comparison::GreaterOrEqual,
            Comparison::Greater => Comparison::Less,
            Comparison::GreaterOrEqual => Comparison::LessOrEqual,
            same => same,
        }
    }

    /// The comparison that is true where this one is false.
    pub fn negated(self) -> Comparison {
        match self {
            Comparison::Equal => Comparison::NotEqual,
            Comparison::NotEqual => Comparison::Equal,
            Comparison::Less => Comparison::GreaterOrEqual,
            Comparison::LessOrEqual => Comparison::Greater,
            Comparison::Greater => Comparison::LessOrEqual,
            Comparison::GreaterOrEqual => Comparison::Less,
        }
    }

    /// Does it hold between two values that are not NULL?
    #[inline]
    pub fn test(self, left: &Datum, right: &Datum) -> bool {
        self.holds(left.compare(right))
    }

    /// Does it hold between two values in this order?
    #[inline]
    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Comparison::Equal => ordering.is_eq(),
            Comparison::NotEqual => ordering.is_ne(),
            Comparison::Less => ordering.is_lt(),
            Comparison::LessOrEqual => ordering.is_le(),
            Comparison::Greater => ordering.is_gt(),
            Comparison::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

/// An operator of the catalog.
pub(super) struct Operator {
    name: &'static str,
    left: Option<TypeId>,
    right: TypeId,
    result: TypeId,
    strict: bool,
    volatility: Volatility,
    writes_operands: bool,
    body: OperatorBody,
}

impl Operator {
    pub(super) const fn called_on_null(mut self) -> Operator {
        self.strict = false;
        self
    }

    pub(super) const fn stable(mut self) -> Operator {
        self.volatility = Volatility::Stable;
        self
    }

    /// It casts its operands to text: stable, unless these casts are immutable. PostgreSQL sees
    /// that when it has put the operator's body, of SQL, in its place.
    pub(super) const fn writing_operands(mut self) -> Operator {
        self.writes_operands = true;
        self.stable()
    }
}

const fn operator(
    name: &'static str,
    left: Option<TypeId>,
    right: TypeId,
    result: TypeId,
    body: OperatorBody,
) -> Operator {
    let (volatility, writes_operands) = (Volatility::Immutable, false);
    Operator { name, left, right, result, strict: true, volatility, writes_operands, body }
}

/// A strict immutable infix operator of values.
pub(super) const fn infix(
    name: &'static str,
    left: TypeId,
    right: TypeId,
    result: TypeId,
    body: fn(&Datum, &Datum, &EvalContext<'_>) -> Result<Datum, SqlError>,
) -> Operator {
    operator(name, Some(left), right, result, OperatorBody::Binary(body))
}

/// A strict immutable infix operator of numerics with an exact result.
pub(super) const fn infix_exact(
    name: &'static str,
    arithmetic: Arithmetic,
    body: fn(&Datum, &Datum, &EvalContext<'_>) -> Result<Datum, SqlError>,
) -> Operator {
    let numeric = TypeId::Numeric;
    operator(name, Some(numeric), numeric, numeric, OperatorBody::Exact(arithmetic, body))
}

/// A strict immutable infix operator of values and their types.
pub(super) const fn infix_typed(
    name: &'static str,
    left: TypeId,
    right: TypeId,
    result: TypeId,
    body: fn(&Datum, &Datum, [Type; 2], &EvalContext<'_>) -> Result<Datum, SqlError>,
) -> Operator {
    operator(name, Some(left), right, result, OperatorBody::TypedBinary(body))
}

/// A strict immutable prefix operator.
pub(super) const fn prefix(
    name: &'static str,
    right: TypeId,
    result: TypeId,
    body: fn(&Datum, &EvalContext<'_>) -> Result<Datum, SqlError>,
) -> Operator {
    operator(name, None, right, result, OperatorBody::Unary(body))
}

const COMPARISONS: [Comparison; 6] = [
    Comparison::Equal,
    Comparison::NotEqual,
    Comparison::Less,
    Comparison::LessOrEqual,
    Comparison::Greater,
    Comparison::GreaterOrEqual,
];

/// Whether values of the type, or the elements of such arrays, have no order: json.
pub(crate) fn has_no_order(ty: Type) -> bool {
    let element = ty.id.element().unwrap_or(ty.id);
    element == TypeId::Json || element.is_snapshot()
}

/// 42883: values of the type cannot be compared.
fn no_comparison(comparison: Comparison, ty: Type) -> SqlError {
    let missing = match comparison {
        Comparison::Equal | Comparison::NotEqual => "an equality operator",
        _ => "a comparison function",
    };
    let problem = format!("could not identify {missing} for type {}", ty.id.sql_name());
    SqlError::new(sqlstate::UNDEFINED_FUNCTION, problem)
}

/// How two records compare, field by field up to the first in which they differ. 42804 if a field
/// is of another type in each, or one record has more; 42883 if the type has no order.
fn compare_fields(
    comparison: Comparison,
    left: &Record,
    right: &Record,
    context: &EvalContext<'_>,
) -> Result<Ordering, SqlError> {
    for (place, ((_, left_type, left), (_, right_type, right))) in
        left.fields().zip(right.fields()).enumerate()
    {
        let (left_type, right_type) = (left_type.plain(), right_type.plain());
        if left_type != right_type {
            let problem = format!(
                "cannot compare dissimilar column types {} and {} at record column {}",
                left_type.format_with(context.format),
                right_type.format_with(context.format),
                place + 1
            );
            return Err(SqlError::new(sqlstate::DATATYPE_MISMATCH, problem));
        }
        if has_no_order(left_type) {
            return Err(no_comparison(comparison, left_type));
        }
        let ordering = match (left, right) {
            (Datum::Record(left), Datum::Record(right)) => compare_fields(comparison, left, right, context)?,
            _ => left.compare(right),
        };
        if ordering.is_ne() {
            return Ok(ordering);
        }
    }
    if left.values.len() != right.values.len() {
        let message = "cannot compare record types with different numbers of columns";
        return Err(SqlError::new(sqlstate::DATATYPE_MISMATCH, message));
    }
    Ok(Ordering::Equal)
}

/// 42804 or 42883 if two records have no equality.
pub(crate) fn check_records(
    left: &Record,
    right: &Record,
    context: &EvalContext<'_>,
) -> Result<(), SqlError> {
    compare_fields(Comparison::Equal, left, right, context).map(drop)
}

fn compare_records<const PLACE: usize>(
    left: &Datum,
    right: &Datum,
    context: &EvalContext<'_>,
) -> Result<Datum, SqlError> {
    let comparison = COMPARISONS[PLACE];
    let ordering = match (left, right) {
        (Datum::Record(left), Datum::Record(right)) => compare_fields(comparison, left, right, context)?,
        _ => left.compare(right),
    };
    Ok(Datum::Bool(comparison.holds(ordering)))
}

/// Arrays whose elements have no order are equal only where nothing of these is asked.
fn refuse_arrays<const PLACE: usize>(
    left: &Datum,
    right: &Datum,
    types: [Type; 2],
    _: &EvalContext<'_>,
) -> Result<Datum, SqlError> {
    let comparison = COMPARISONS[PLACE];
    if let (Datum::Array(left), Datum::Array(right)) = (left, right)
        && left.dimensions != right.dimensions
        && matches!(comparison, Comparison::Equal | Comparison::NotEqual)
    {
        return Ok(Datum::Bool(comparison == Comparison::NotEqual));
    }
    let [ty, _] = types;
    Err(no_comparison(comparison, ty.element().unwrap_or(ty)))
}

/// What compares arrays whose elements have no order.
pub(crate) fn of_arrays_without_order(comparison: Comparison) -> OperatorBody {
    OperatorBody::TypedBinary(match comparison {
        Comparison::Equal => refuse_arrays::<0>,
        Comparison::NotEqual => refuse_arrays::<1>,
        Comparison::Less => refuse_arrays::<2>,
        Comparison::LessOrEqual => refuse_arrays::<3>,
        Comparison::Greater => refuse_arrays::<4>,
        Comparison::GreaterOrEqual => refuse_arrays::<5>,
    })
}

/// What compares records that may be of different types.
pub(crate) fn of_records(comparison: Comparison) -> OperatorBody {
    OperatorBody::Binary(match comparison {
        Comparison::Equal => compare_records::<0>,
        Comparison::NotEqual => compare_records::<1>,
        Comparison::Less => compare_records::<2>,
        Comparison::LessOrEqual => compare_records::<3>,
        Comparison::Greater => compare_records::<4>,
        Comparison::GreaterOrEqual => compare_records::<5>,
    })
}

/// Pairs of types that compare.
fn comparable() -> Vec<(TypeId, TypeId)> {
    use TypeId as T;
    let same = [
        T::Bool,
        T::Bytea,
        T::InternalChar,
        T::Name,
        T::Text,
        T::Bpchar,
        T::Oid,
        T::Float4,
        T::Float8,
        T::Numeric,
        T::Date,
        T::Time,
        T::Timestamp,
        T::Timestamptz,
        T::Interval,
        T::Uuid,
        T::Inet,
        T::Enum,
        T::PgLsn,
        T::Xid8,
        T::Jsonb,
        T::AnyArray,
        T::Record,
        T::Oidvector,
    ];
    let integers = [T::Int2, T::Int4, T::Int8];
    let mut pairs: Vec<(TypeId, TypeId)> = same.iter().map(|ty| (*ty, *ty)).collect();
    for left in integers {
        pairs.extend(integers.iter().map(|right| (left, *right)));
    }
    pairs.extend([(T::Float4, T::Float8), (T::Float8, T::Float4)]);
    pairs
}

/// All operators by name.
fn catalog() -> &'static HashMap<&'static str, Vec<Operator>> {
    static CATALOG: OnceLock<HashMap<&'static str, Vec<Operator>>> = OnceLock::new();
    CATALOG.get_or_init(|| {
        let mut map: HashMap<&'static str, Vec<Operator>> = HashMap::new();
        for comparison in COMPARISONS {
            let compared = comparable().into_iter().map(|(left, right)| {
                operator(
                    comparison.symbol(),
                    Some(left),
                    right,
                    TypeId::Bool,
                    OperatorBody::Compare(comparison),
                )
            });
            map.entry(comparison.symbol()).or_default().extend(compared);
        }
        // Ids that come again have no order.
        for comparison in [Comparison::Equal, Comparison::NotEqual] {
            let (name, body) = (comparison.symbol(), OperatorBody::Compare(comparison));
            let compared = operator(name, Some(TypeId::Xid), TypeId::Xid, TypeId::Bool, body);
            map.entry(name).or_default().push(compared);
        }
        let tables = [
            math::operators(),
            string::operators(),
            pattern::operators(),
            regexp::operators(),
            datetime::operators(),
            json::operators(),
            array::operators(),
            network::operators(),
            transaction::operators(),
        ];
        for operator in tables.into_iter().flatten() {
            map.entry(operator.name).or_default().push(operator);
        }
        map
    })
}

/// An operator as it is listed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signature {
    pub(crate) name: &'static str,
    /// None for a prefix operator.
    pub(crate) left: Option<TypeId>,
    pub(crate) right: TypeId,
    pub(crate) result: TypeId,
    /// The comparison that it is, if it is one.
    pub(crate) comparison: Option<Comparison>,
}

/// All operators, in the same order in every run of one version.
pub(crate) fn signatures() -> Vec<Signature> {
    let mut names: Vec<&'static str> = catalog().keys().copied().collect();
    names.sort_unstable();
    let operators = names.into_iter().filter_map(|name| catalog().get(name)).flatten();
    let listed = operators.map(|known| Signature {
        name: known.name,
        left: known.left,
        right: known.right,
        result: known.result,
        comparison: match known.body {
            OperatorBody::Compare(comparison) => Some(comparison),
            _ => None,
        },
    });
    listed.collect()
}

/// Finds the operator for its operands; `left` is none for a prefix operator. Untyped literals have
/// type `Unknown`. 42883 if there is none that fits, 42725 if several do equally, 0A000 if only
/// PostgreSQL has one of the name.
pub fn resolve(name: &str, left: Option<Type>, right: Type) -> Result<ResolvedOperator, SqlError> {
    let name = if name == "!=" { "<>" } else { name };
    let all = catalog().get(name).map_or(&[][..], Vec::as_slice);
    let mut operators = Vec::new();
    let mut candidates: Vec<Parameters> = Vec::new();
    for operator in all.iter().filter(|o| o.left.is_some() == left.is_some()) {
        operators.push(operator);
        candidates.push(operator.left.into_iter().chain([operator.right]).collect());
    }
    let types: Parameters = left.iter().map(|ty| ty.id).chain([right.id]).collect();
    // A literal is first supposed to have the other operand's type.
    let supposed: Parameters = match types.as_slice() {
        [TypeId::Unknown, right] => smallvec![*right, *right],
        [left, TypeId::Unknown] => smallvec![*left, *left],
        _ => types.clone(),
    };
    let exact = candidates.iter().position(|c| *c == supposed);
    // Values of two enum types do not compare.
    let is_other = |left: Type| left.is_of_enum() && right.is_of_enum() && left.modifier != right.modifier;
    let candidates = if left.is_some_and(is_other) { vec![] } else { candidates };
    let exact = exact.filter(|_| !candidates.is_empty());
    if all.is_empty()
        && let Some(error) = absent::operator(name)
    {
        return Err(error);
    }
    match exact.map_or_else(|| select::choose(&candidates, &|_, _| false, &types), Choice::One) {
        Choice::One(index) => Ok(resolved(operators[index], &candidates[index], left, right)),
        Choice::None => Err(failure("operator does not exist", sqlstate::UNDEFINED_FUNCTION, name, left, right).with_hint(
            if left.is_some() {
                "No operator matches the given name and argument types. You might need to add explicit type casts."
            } else {
                "No operator matches the given name and argument type. You might need to add an explicit type cast."
            },
        )),
        Choice::Ambiguous => {
            Err(failure("operator is not unique", sqlstate::AMBIGUOUS_FUNCTION, name, left, right)
                .with_hint("Could not choose a best candidate operator. You might need to add explicit type casts."))
        }
    }
}

fn resolved(operator: &Operator, parameters: &[TypeId], left: Option<Type>, right: Type) -> ResolvedOperator {
    let types: Parameters = left.iter().map(|ty| ty.id).chain([right.id]).collect();
    let generic = select::generic_types(parameters, &types).unwrap_or_default();
    // An operand that has the type already keeps its modifier.
    let target = |declared: TypeId, given: Type| {
        let actual = generic.actual(declared);
        if actual == given.id { given } else { with_enum(actual, left.iter().chain([&right])) }
    };
    ResolvedOperator {
        name: operator.name,
        left: operator.left.zip(left).map(|(declared, given)| target(declared, given)),
        right: target(operator.right, right),
        result: with_enum(generic.actual(operator.result), left.iter().chain([&right])),
        strict: operator.strict,
        body: operator.body,
        volatility: operator.volatility,
        writes_operands: operator.writes_operands,
    }
}

fn failure(what: &str, sqlstate: &'static str, name: &str, left: Option<Type>, right: Type) -> SqlError {
    let left = left.map(|ty| format!("{} ", ty.id.sql_name())).unwrap_or_default();
    SqlError::new(sqlstate, format!("{what}: {left}{name} {}", right.id.sql_name()))
}
