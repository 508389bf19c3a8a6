//! The functions there are, by name.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::aggregate::AccumulatorMaker;
use super::window::{self, WindowFunction};
use super::{
    EvalContext, aggregate, arguments, array, behind, convert, datetime, enumeration, extension, json, math,
    network, pattern, regexp, session, string, transaction,
};
use crate::error::SqlError;
use crate::types::{Datum, Type, TypeId};

/// How far a result depends on more than the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Volatility {
    /// Same arguments, same result, forever: may be computed at planning.
    Immutable,
    /// Same within a statement.
    Stable,
    /// Different at each call.
    Volatile,
}

/// A body that the values suffice for.
pub type PlainBody = fn(&[Datum], &EvalContext<'_>) -> Result<Datum, SqlError>;
/// A body that must know the arguments' types too.
pub type TypedBody = fn(&[Datum], &[Type], &EvalContext<'_>) -> Result<Datum, SqlError>;

/// What computes a function.
#[derive(Clone, Copy)]
pub enum Body {
    /// The values suffice.
    Plain(PlainBody),
    /// It must know the arguments' types too.
    Typed(TypedBody),
    /// An aggregate.
    Aggregate(AccumulatorMaker),
    /// A window function; the executor implements it.
    Window(WindowFunction),
    /// Gives rows; the executor implements it by name.
    SetReturning,
    /// The executor or the session implements it by name.
    External,
}

/// What calls a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// For each row a value.
    Scalar,
    /// For each group a value.
    Aggregate,
    /// For each row of a window a value.
    Window,
    /// For each row a set of rows.
    SetReturning,
}

/// A function of the catalog.
pub struct Function {
    /// `pg_proc.oid`.
    pub oid: u32,
    /// Its name, in schema `pg_catalog`.
    pub name: &'static str,
    /// Types of the arguments; `Any`, `AnyElement` and so on are polymorphic.
    pub arguments: &'static [TypeId],
    /// The last argument's type repeats, any number of times from 1.
    pub variadic: bool,
    /// Number of arguments at the end that may be left out.
    pub optional: usize,
    /// Names of the arguments, where a call may use them; those left out are 0.
    pub names: &'static [&'static str],
    /// Type of the result.
    pub result: TypeId,
    /// NULL if any argument is NULL, without a call.
    pub strict: bool,
    /// Its volatility.
    pub volatility: Volatility,
    /// What computes it.
    pub body: Body,
}

impl Function {
    /// What calls it.
    pub fn kind(&self) -> Kind {
        match self.body {
            Body::Aggregate(_) => Kind::Aggregate,
            Body::Window(_) => Kind::Window,
            Body::SetReturning => Kind::SetReturning,
            _ => Kind::Scalar,
        }
    }

    /// A strict immutable one.
    pub(crate) const fn new(
        oid: u32,
        name: &'static str,
        arguments: &'static [TypeId],
        result: TypeId,
        body: Body,
    ) -> Function {
        Function {
            oid,
            name,
            arguments,
            variadic: false,
            optional: 0,
            names: &[],
            result,
            strict: true,
            volatility: Volatility::Immutable,
            body,
        }
    }

    pub(super) const fn called_on_null(mut self) -> Function {
        self.strict = false;
        self
    }

    pub(crate) const fn stable(mut self) -> Function {
        self.volatility = Volatility::Stable;
        self
    }

    pub(super) const fn volatile(mut self) -> Function {
        self.volatility = Volatility::Volatile;
        self
    }

    /// So many arguments at the end may be left out.
    pub(super) const fn with_optional(mut self, count: usize) -> Function {
        self.optional = count;
        self
    }

    /// A call may name its arguments.
    pub(super) const fn with_names(mut self, names: &'static [&'static str]) -> Function {
        self.names = names;
        self
    }

    pub(super) const fn variadic(mut self) -> Function {
        self.variadic = true;
        self
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({:?}) -> {:?}", self.name, self.arguments, self.result)
    }
}

/// A strict immutable function of values.
pub(super) const fn plain(
    oid: u32,
    name: &'static str,
    arguments: &'static [TypeId],
    result: TypeId,
    body: PlainBody,
) -> Function {
    Function::new(oid, name, arguments, result, Body::Plain(body))
}

/// A strict immutable function of values and their types.
pub(super) const fn typed(
    oid: u32,
    name: &'static str,
    arguments: &'static [TypeId],
    result: TypeId,
    body: TypedBody,
) -> Function {
    Function::new(oid, name, arguments, result, Body::Typed(body))
}

/// An aggregate: never strict, its accumulator sees NULLs.
pub(super) const fn aggregate(
    oid: u32,
    name: &'static str,
    arguments: &'static [TypeId],
    result: TypeId,
    maker: AccumulatorMaker,
) -> Function {
    Function::new(oid, name, arguments, result, Body::Aggregate(maker)).called_on_null()
}

/// A window function. PostgreSQL calls those with arguments strict, which means nothing for them.
pub(super) const fn window(
    oid: u32,
    name: &'static str,
    arguments: &'static [TypeId],
    result: TypeId,
    function: WindowFunction,
) -> Function {
    let function = Function::new(oid, name, arguments, result, Body::Window(function));
    if arguments.is_empty() { function.called_on_null() } else { function }
}

/// A function that gives rows.
pub(super) const fn set(
    oid: u32,
    name: &'static str,
    arguments: &'static [TypeId],
    result: TypeId,
) -> Function {
    Function::new(oid, name, arguments, result, Body::SetReturning)
}

/// A function that the session implements.
pub(super) const fn external(
    oid: u32,
    name: &'static str,
    arguments: &'static [TypeId],
    result: TypeId,
) -> Function {
    Function::new(oid, name, arguments, result, Body::External)
}

fn tables() -> [&'static [Function]; 18] {
    [
        math::FUNCTIONS,
        string::FUNCTIONS,
        pattern::FUNCTIONS,
        regexp::FUNCTIONS,
        convert::FUNCTIONS,
        datetime::FUNCTIONS,
        json::FUNCTIONS,
        array::FUNCTIONS,
        enumeration::FUNCTIONS,
        network::FUNCTIONS,
        session::FUNCTIONS,
        arguments::FUNCTIONS,
        aggregate::FUNCTIONS,
        window::FUNCTIONS,
        session::EXTERNAL,
        transaction::FUNCTIONS,
        behind::FUNCTIONS,
        extension::FUNCTIONS,
    ]
}

/// Every function.
pub fn all() -> impl Iterator<Item = &'static Function> {
    tables().into_iter().flatten().chain(crate::pg_catalog::functions())
}

/// The functions of this name.
pub(super) fn named(name: &str) -> &'static [&'static Function] {
    static BY_NAME: OnceLock<HashMap<&'static str, Vec<&'static Function>>> = OnceLock::new();
    let by_name = BY_NAME.get_or_init(|| {
        let mut map: HashMap<&'static str, Vec<&'static Function>> = HashMap::new();
        for function in all() {
            map.entry(function.name).or_default().push(function);
        }
        map
    });
    by_name.get(name).map_or(&[], Vec::as_slice)
}
