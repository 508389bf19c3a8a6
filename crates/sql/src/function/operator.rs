//! Operators: from a symbol and operand types to what computes it.

use super::EvalContext;
use crate::error::{SqlError, sqlstate};
use crate::types::{Datum, Type};

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
    /// Compares two values of one type (or of integer types).
    Compare(Comparison),
    /// Of two values, neither NULL unless the operator is not strict.
    Binary(fn(&Datum, &Datum, &EvalContext<'_>) -> Result<Datum, SqlError>),
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
}

impl ResolvedOperator {
    /// The comparison it is, if it is one.
    pub fn comparison(&self) -> Option<Comparison> {
        if let OperatorBody::Compare(comparison) = self.body { Some(comparison) } else { None }
    }

    /// Applies it. A prefix operator ignores `left`.
    #[inline]
    pub fn call(&self, left: &Datum, right: &Datum, context: &EvalContext<'_>) -> Result<Datum, SqlError> {
        if self.strict && (right.is_null() || (self.left.is_some() && left.is_null())) {
            return Ok(Datum::Null);
        }
        match self.body {
            OperatorBody::Compare(comparison) => Ok(Datum::Bool(comparison.test(left, right))),
            OperatorBody::Binary(body) => body(left, right, context),
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
        let ordering = left.compare(right);
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

/// Finds the operator for its operands; `left` is none for a prefix operator. Untyped literals have type `Unknown`. 42883 if there is none
/// that fits, 42725 if several do equally.
pub fn resolve(name: &str, left: Option<Type>, right: Type) -> Result<ResolvedOperator, SqlError> {
    Err(undefined(name, left, right))
}

fn undefined(name: &str, left: Option<Type>, right: Type) -> SqlError {
    let left = left.map(|ty| format!("{} ", ty.id.sql_name())).unwrap_or_default();
    SqlError::new(
        sqlstate::UNDEFINED_FUNCTION,
        format!("operator does not exist: {left}{name} {}", right.id.sql_name()),
    )
    .with_hint(
        "No operator matches the given name and argument types. You might need to add explicit type casts.",
    )
}
