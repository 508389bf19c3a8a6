//! The analyzed form of an expression, as far as printing needs it.

use crate::types::Type;

/// An expression and its type. `Unknown` only while analyzing: an untyped literal.
#[derive(Clone, Debug)]
pub(super) struct Term {
    pub(super) node: Node,
    pub(super) ty: Type,
}

/// AND, OR, NOT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logic {
    And,
    Or,
    Not,
}

/// What an expression is.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// A column, or something written as one word.
    Atom(String),
    /// A value in its type's text form; none is NULL.
    Constant(Option<String>),
    /// An operator; no left operand for a prefix operator.
    Operator { name: String, left: Option<Box<Term>>, right: Box<Term> },
    /// A conversion to the term's type.
    Cast { operand: Box<Term>, implicit: bool },
    /// AND, OR, NOT.
    Logic(Logic, Vec<Term>),
    /// `operand IS NULL` and its like.
    Test(Box<Term>, &'static str),
    /// IS DISTINCT FROM.
    Distinct(Box<[Term; 2]>),
    /// `operand operator ANY (array)` or ALL.
    Quantified { operand: Box<Term>, operator: String, array: Box<Term>, all: bool },
    /// A function call.
    Function { name: String, arguments: Vec<Term> },
    /// A call with a syntax of its own: texts with the arguments between them.
    Special { parts: Vec<&'static str>, arguments: Vec<Term> },
    /// ARRAY[...].
    Array(Vec<Term>),
    /// CASE.
    Case { operand: Option<Box<Term>>, branches: Vec<(Term, Term)>, otherwise: Box<Term> },
}

impl Term {
    pub(super) fn new(node: Node, ty: impl Into<Type>) -> Term {
        Term { node, ty: ty.into() }
    }
}
