//! Bound expressions: typed, resolved, ready to be evaluated over a row.
//!
//! The binder makes them from syntax trees; names have become *slots*. All relations of one SELECT
//! (one query level) share one row of slots, its *frame*: each relation's columns that the query
//! reads have their places in it, wherever the planner puts the relation in the join order. An
//! aggregating SELECT has a second frame, of group keys and aggregates, over which its targets are
//! evaluated. A subquery reads the frames of the queries around it through [`Expr::Outer`]: depth 1
//! is the query directly around it.
//!
//! ```text
//! SELECT a.x, (SELECT max(c.z) FROM c WHERE c.y = b.y) FROM a, b WHERE a.x = b.x
//!   frame of the query:     [0] a.x  [1] b.x  [2] b.y        WHERE: Slot(0) = Slot(1)
//!   frame of the subquery:  [0] c.y  [1] c.z                 WHERE: Slot(0) = Outer { depth: 1, slot: 2 }
//! ```
//!
//! Invariant: an expression is bound for exactly one frame; what is evaluated with it must be that
//! frame.

mod domain;
mod env;
mod eval;
mod fold;
mod routine;
mod tally;
mod usage;
mod walk;

pub(crate) use domain::DomainCheck;
pub use domain::DomainValue;
pub(crate) use env::check_held;
pub use env::{
    Env, Execution, ExternalFunctions, NoExternalFunctions, NoReader, ReadContext, Reader, RowScan, Runtime,
    ScanParts,
};
pub(crate) use eval::quantify;
pub use fold::{fold, is_constant};
pub(crate) use routine::Select as RoutineSelect;
pub use routine::{RoutineBody, RoutineCall};
pub use tally::Tally;
pub(crate) use tally::{Count, place_of, since};
pub use usage::{Counts, Usage};

use std::fmt;
use std::sync::Arc;

use crate::bind::{self, Query};
use crate::function::operator::{Comparison, ResolvedOperator};
use crate::function::{Body, ResolvedFunction, Volatility};
use crate::plan::{Node, is_volatile_query};
use crate::types::cast::Cast;
use crate::types::{Datum, Shape, Type, TypeId};

/// An expression with the type of its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Typed {
    /// What computes it.
    pub expr: Expr,
    /// The type of its values. `Unknown` only while binding: an untyped literal or parameter.
    pub ty: Type,
}

impl Typed {
    /// An expression of this type.
    pub fn new(expr: Expr, ty: impl Into<Type>) -> Typed {
        Typed { expr, ty: ty.into() }
    }
}

/// Whether two things that hold expressions are the same one written twice. Being equal is not
/// enough: constants are equal that look different, as 1.5 and 1.50.
pub(crate) fn same<T: PartialEq + fmt::Debug>(left: &T, right: &T) -> bool {
    left == right && format!("{left:?}") == format!("{right:?}")
}

/// A bound expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A value.
    Constant(Datum),
    /// A place in the current frame.
    Slot(usize),
    /// A place in the frame of an enclosing query; depth 1 is the nearest.
    Outer {
        /// How many levels out, from 1.
        depth: usize,
        /// Place in that level's frame.
        slot: usize,
    },
    /// A parameter, from 0.
    Parameter(usize),
    /// In the tests of a CASE or NULLIF whose operand is evaluated once: the value that it had.
    Held,
    /// A comparison of two values of one type (or of two integer types); NULL if one is NULL.
    Compare(Comparison, Box<[Expr; 2]>),
    /// Any other operator.
    Operator(Box<OperatorCall>),
    /// A scalar function.
    Function(Box<FunctionCall>),
    /// A function that a user has defined.
    Routine(Box<RoutineCall>),
    /// A conversion.
    Cast(Box<(Expr, Cast)>),
    /// A value that must meet the constraints of a domain.
    Domain(Box<DomainValue>),
    /// TRUE if all are, FALSE if one is, else NULL.
    And(Vec<Expr>),
    /// TRUE if one is, FALSE if all are, else NULL.
    Or(Vec<Expr>),
    /// The other truth value.
    Not(Box<Expr>),
    /// `IS [NOT]` NULL.
    IsNull {
        /// Operand.
        operand: Box<Expr>,
        /// IS NOT NULL.
        negated: bool,
    },
    /// `IS [NOT]` TRUE, FALSE, UNKNOWN.
    IsTruth {
        /// Operand.
        operand: Box<Expr>,
        /// The truth value asked for; none is UNKNOWN.
        value: Option<bool>,
        /// IS NOT.
        negated: bool,
    },
    /// `IS [NOT]` DISTINCT FROM, of two values of one type.
    IsDistinct {
        /// The two values.
        operands: Box<[Expr; 2]>,
        /// IS NOT DISTINCT FROM.
        negated: bool,
    },
    /// The result of the first condition that is TRUE.
    Case(Box<Case>),
    /// The first that is not NULL.
    Coalesce(Vec<Expr>),
    /// NULL if the operator says TRUE, else the first operand.
    NullIf(Box<NullIf>),
    /// The largest (or smallest) of those that are not NULL.
    Extreme {
        /// GREATEST rather than LEAST.
        greatest: bool,
        /// Values of one type.
        operands: Vec<Expr>,
    },
    /// IN over a list, or `= ANY` over an array of constants.
    InList(Box<InList>),
    /// `operator ANY (array)` or ALL.
    Quantified(Box<Quantified>),
    /// Comparison of rows: `<`, `<=`, `>`, `>=` (equality becomes AND).
    RowCompare(Box<RowCompare>),
    /// ARRAY[...].
    Array(Box<ArrayConstructor>),
    /// `array[i]`, `array[i][j]`.
    Subscript(Box<(Expr, Vec<Expr>)>),
    /// `array[i:j]`.
    Slice(Box<(Expr, Vec<[Option<Expr>; 2]>)>),
    /// A subquery's result.
    Subquery(Box<Subquery>),
    /// While binding an aggregating query: one of its aggregates.
    Aggregate {
        /// How many levels out the query is to which it belongs; 0 is the one around the
        /// expression.
        depth: usize,
        /// Place among that query's aggregates.
        place: usize,
    },
    /// While binding: the value of the n-th set-returning call of the select list.
    SetResult(usize),
    /// While binding: the result of the n-th call with OVER of the level.
    WindowResult(usize),
    /// ROW(...) or a whole row: a composite value.
    Row(Vec<Expr>, Shape),
}

impl PartialEq for Cast {
    fn eq(&self, other: &Cast) -> bool {
        self.from == other.from && self.to == other.to && self.context == other.context
    }
}

/// A call of an operator that is no comparison.
#[derive(Clone, Debug)]
pub struct OperatorCall {
    /// The operator.
    pub operator: ResolvedOperator,
    /// Left operand; `Constant(Null)`, unused, for a prefix operator.
    pub left: Expr,
    /// Right operand.
    pub right: Expr,
}

impl PartialEq for OperatorCall {
    fn eq(&self, other: &OperatorCall) -> bool {
        same_operator(&self.operator, &other.operator) && self.left == other.left && self.right == other.right
    }
}

/// Whether two resolutions are of one operator.
fn same_operator(a: &ResolvedOperator, b: &ResolvedOperator) -> bool {
    a.name == b.name && a.left == b.left && a.right == b.right
}

/// A call of a scalar function.
#[derive(Clone, Debug)]
pub struct FunctionCall {
    /// The function.
    pub function: ResolvedFunction,
    /// Arguments, converted to the resolved types.
    pub arguments: Vec<Expr>,
}

impl PartialEq for FunctionCall {
    fn eq(&self, other: &FunctionCall) -> bool {
        std::ptr::eq(self.function.function, other.function.function)
            && self.function.result == other.function.result
            && self.function.is_spread == other.function.is_spread
            && self.function.arguments == other.function.arguments
            && self.arguments == other.arguments
    }
}

/// CASE, with its operand, if it had one, made part of the conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// An operand that is to be evaluated once, since it is volatile or a query: the conditions
    /// look at [`Expr::Held`].
    pub operand: Option<Expr>,
    /// Conditions and results.
    pub branches: Vec<(Expr, Expr)>,
    /// ELSE.
    pub otherwise: Expr,
}

/// NULLIF: the operator may need converted operands, the result is the unconverted first.
#[derive(Clone, Debug, PartialEq)]
pub struct NullIf {
    /// The value.
    pub value: Expr,
    /// The test of equality.
    pub equal: Expr,
    /// The value is to be evaluated once: the test looks at [`Expr::Held`].
    pub is_held: bool,
}

/// IN over a list of values of the operand's type.
#[derive(Clone)]
pub struct InList {
    /// What is looked for.
    pub operand: Expr,
    /// Where.
    pub items: Vec<Expr>,
    /// NOT IN.
    pub negated: bool,
    /// The items that are constants, for long lists; then `items` are the rest.
    pub constants: Option<Arc<std::collections::HashSet<Datum>>>,
}

impl fmt::Debug for InList {
    /// With the constants in their order: the hash tables of two lists that are the same have them
    /// in different ones, and `same` compares what is written here.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut constants: Vec<&Datum> = self.constants.iter().flat_map(|set| set.iter()).collect();
        constants.sort_by_cached_key(|constant| crate::keys::encode(std::slice::from_ref(*constant)));
        f.debug_struct("InList")
            .field("operand", &self.operand)
            .field("items", &self.items)
            .field("negated", &self.negated)
            .field("constants", &constants)
            .finish()
    }
}

impl PartialEq for InList {
    fn eq(&self, other: &InList) -> bool {
        self.operand == other.operand
            && self.items == other.items
            && self.negated == other.negated
            && self.constants == other.constants
    }
}

/// ANY and ALL over an array.
#[derive(Clone, Debug)]
pub struct Quantified {
    /// Left operand.
    pub operand: Expr,
    /// The array.
    pub array: Expr,
    /// Applied to the operand and each element.
    pub operator: ResolvedOperator,
    /// ALL rather than ANY.
    pub all: bool,
}

impl PartialEq for Quantified {
    fn eq(&self, other: &Quantified) -> bool {
        self.operand == other.operand
            && self.array == other.array
            && same_operator(&self.operator, &other.operator)
            && self.all == other.all
    }
}

/// A comparison of rows: the first pair that differs decides. The pairs are looked at in order,
/// each of them wholly.
#[derive(Clone, Debug, PartialEq)]
pub struct RowCompare {
    /// Any. For `=` and `<>` a pair with a NULL leaves the result open only if no later pair
    /// differs.
    pub comparison: Comparison,
    /// Pairs of values of one type each.
    pub pairs: Vec<(Expr, Expr)>,
}

/// ARRAY[...].
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayConstructor {
    /// Type of the elements.
    pub element: TypeId,
    /// Elements, or arrays of one dimension less.
    pub items: Vec<Expr>,
    /// The items are arrays.
    pub nested: bool,
}

/// What a subquery gives to the expression around it.
#[derive(Clone, Debug)]
pub enum SubqueryKind {
    /// The value of its only row's only column; NULL without a row; 21000 with more than one.
    Scalar,
    /// Of several columns of its only row (`(a, b) = (SELECT ...)`) the column asked for.
    Column(usize),
    /// The same, of a row that one run gives to all columns that were written together.
    Shared {
        /// The column asked for.
        column: usize,
        /// The same number for all columns of the row, and for no other.
        row: u64,
        /// The columns are evaluated one after the other, the first one first: SET. Else only a
        /// query that is run once can be shared.
        in_order: bool,
        /// Once planned: the query is run once for an execution, and not once for each first
        /// column.
        once: bool,
    },
    /// Whether there is a row.
    Exists,
    /// `Exists` or `Scalar`, once planned, of a query that is tied to the ones around it by
    /// equalities alone.
    Sought(Box<Sought>),
    /// `operand operator ANY (subquery)`, also of rows; IN is `= ANY`.
    Any {
        /// Left operands, one for each column.
        operands: Vec<Expr>,
        /// Compares each operand with its column.
        operators: Vec<ResolvedOperator>,
        /// All operators are the equality of hashable values: an uncorrelated subquery is hashed
        /// once.
        hashable: bool,
        /// ALL rather than ANY; then not hashed.
        all: bool,
    },
    /// ARRAY(SELECT ...): its only column as an array of these elements.
    Array(TypeId),
}

/// The other way to answer EXISTS, or to find a value: to look values of the query around up among
/// the rows of a query that is run once. It is taken once the runs of the first one have taken many
/// steps.
#[derive(Clone, Debug)]
pub struct Sought {
    /// Looked up; NULL equals nothing.
    pub operands: Vec<Expr>,
    /// Gives a column for each operand, and behind them the value, if there is to be one.
    pub set: Arc<Node>,
    /// A value is asked for, and not whether there is a row.
    pub gives_value: bool,
    /// The place of its rows among the kept results.
    pub place: usize,
    /// So many steps the runs may take together.
    pub patience: u64,
}

/// A subquery within an expression.
#[derive(Clone, Debug)]
pub struct Subquery {
    /// What is made of its rows.
    pub kind: SubqueryKind,
    /// The query.
    pub body: SubqueryBody,
}

impl PartialEq for Subquery {
    /// Whether it is the same query written twice, as `GROUP BY (SELECT ...)` repeats one of the
    /// select list. Both are written out for that, since few that differ resemble each other. One
    /// that may give another value each time is equal to none, nor is one that is planned.
    fn eq(&self, other: &Subquery) -> bool {
        match (&self.body, &other.body) {
            (SubqueryBody::Bound(query), SubqueryBody::Bound(given)) => {
                resemble(query, given)
                    && !is_volatile_query(query)
                    && format!("{self:?}") == format!("{other:?}")
            }
            _ => false,
        }
    }
}

/// Whether two queries may be the same one: most that are not are told apart here, at little cost.
fn resemble(left: &Query, right: &Query) -> bool {
    match (&left.body, &right.body) {
        (bind::Body::Select(left), bind::Body::Select(right)) => {
            left.relations.len() == right.relations.len()
                && left.targets == right.targets
                && left.filter == right.filter
        }
        (bind::Body::Values(left), bind::Body::Values(right)) => left == right,
        (bind::Body::SetOperation(_), bind::Body::SetOperation(_)) => true,
        _ => false,
    }
}

/// A subquery before and after planning.
#[derive(Clone, Debug)]
pub enum SubqueryBody {
    /// As the binder leaves it.
    Bound(Box<Query>),
    /// As it is executed.
    Planned {
        /// Its plan.
        node: Arc<Node>,
        /// Place of its cached result among the execution's, if it does not depend on the queries
        /// around it.
        cache: Option<usize>,
    },
}

/// A literal that is the same point in time everywhere: beyond all others.
fn is_endless(literal: &Expr) -> bool {
    let Expr::Constant(Datum::Text(text)) = literal else { return false };
    matches!(text.as_str().trim_start_matches(['-', '+']), "infinity")
}

/// Whether the value may be another one in another session, or later, by this part of it.
fn varies(expr: &Expr) -> bool {
    match expr {
        Expr::Function(call) => {
            let function = call.function.function;
            function.volatility != Volatility::Immutable || matches!(function.body, Body::External)
        }
        Expr::Routine(call) => call.volatility != Volatility::Immutable,
        Expr::Operator(call) => call.operator.volatility() != Volatility::Immutable,
        Expr::Quantified(any) => any.operator.volatility() != Volatility::Immutable,
        Expr::Cast(cast) => !cast.1.is_immutable() && !is_endless(&cast.0),
        Expr::Subquery(_) => true,
        _ => false,
    }
}

/// The time at which the transaction began.
fn is_transaction_time(expr: &Expr) -> bool {
    let Expr::Function(call) = expr else { return false };
    matches!(call.function.function.name, "now" | "transaction_timestamp")
}

/// A literal of a date, or of a time in no zone, that is read alike in every `datestyle`: the year
/// first, and numbers only.
fn is_numeric_date(expr: &Expr) -> bool {
    let Expr::Cast(cast) = expr else { return false };
    let (Expr::Constant(Datum::Text(text)), TypeId::Date | TypeId::Timestamp) = (&cast.0, cast.1.to.id)
    else {
        return false;
    };
    let bytes = text.as_bytes();
    bytes.len() >= 10
        && bytes[..4].iter().all(u8::is_ascii_digit)
        && bytes[4] == b'-'
        && bytes.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b':' | b'.' | b' '))
}

impl Expr {
    /// TRUE.
    pub const TRUE: Expr = Expr::Constant(Datum::Bool(true));
    /// FALSE.
    pub const FALSE: Expr = Expr::Constant(Datum::Bool(false));
    /// NULL.
    pub const NULL: Expr = Expr::Constant(Datum::Null);

    /// The conjunction of these; TRUE of none.
    pub fn all(mut conjuncts: Vec<Expr>) -> Expr {
        match conjuncts.len() {
            0 => Expr::TRUE,
            1 => conjuncts.remove(0),
            _ => Expr::And(conjuncts),
        }
    }

    /// Splits a condition into the parts that must all be TRUE.
    pub fn into_conjuncts(self, out: &mut Vec<Expr>) {
        match self {
            Expr::And(parts) => parts.into_iter().for_each(|part| part.into_conjuncts(out)),
            Expr::Constant(Datum::Bool(true)) => {}
            other => out.push(other),
        }
    }

    /// `left comparison right`.
    pub fn compare(comparison: Comparison, left: Expr, right: Expr) -> Expr {
        Expr::Compare(comparison, Box::new([left, right]))
    }

    /// How far the value may differ from one evaluation to the next with the same frame.
    pub fn volatility(&self) -> Volatility {
        let mut worst = Volatility::Immutable;
        self.visit(&mut |expr| {
            let own = match expr {
                Expr::Function(call) => call.function.function.volatility,
                Expr::Routine(call) => call.volatility,
                // Conversions may read settings (time zone).
                Expr::Cast(_) | Expr::Domain(_) | Expr::Subquery(_) => Volatility::Stable,
                _ => Volatility::Immutable,
            };
            worst = worst.max(own);
        });
        worst
    }

    /// Whether the value is the same for the same frame in all sessions and for all time. Unlike
    /// [`volatility`](Expr::volatility) it looks into conversions and operators.
    pub(crate) fn is_immutable(&self) -> bool {
        !self.any(&mut varies)
    }

    /// The same but for texts of floats and bytes, which PostgreSQL takes for immutable although
    /// settings change them.
    pub(crate) fn is_immutable_but_for_texts(&self) -> bool {
        let is_text = |expr: &Expr| match expr {
            Expr::Cast(cast) => cast.1.is_written_by_settings(),
            Expr::Operator(call) => call.operator.is_written_by_settings(),
            _ => false,
        };
        !self.any(&mut |expr| varies(expr) && !is_text(expr))
    }

    /// Whether the value is the same for the same frame as long as the transaction lasts, whatever
    /// is set meanwhile: in the time zone that a cursor was opened in and in another one.
    pub(crate) fn is_fixed(&self) -> bool {
        !self.any(&mut |expr| varies(expr) && !is_transaction_time(expr) && !is_numeric_date(expr))
    }

    /// Whether an evaluation may do something beside giving a value (nextval) or give another value
    /// each time (random).
    pub fn is_volatile(&self) -> bool {
        self.volatility() == Volatility::Volatile
    }
}
