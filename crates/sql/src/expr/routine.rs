//! Calls of functions that users have defined by a single SELECT.
//!
//! The SELECT is a plan of its own, made once for a statement however often it is called there; the
//! arguments are its parameters. A function may call itself, so calls do not own what they call:
//! the statement does ([`Plan::routines`](crate::plan::Plan::routines)), and calls refer to it.
//!
//! What a call gives is declared, so a statement is bound also if the SELECT cannot be: it names a
//! table that is in no schema of `search_path`, as in dumps, or one that is not there any more.
//! That is an error of the call then, if it comes to one.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use super::Expr;
use crate::catalog::{Oid, Routine};
use crate::error::{Result, SqlError};
use crate::function::Volatility;
use crate::plan::Plan;
use crate::routine::Checks;
use crate::types::cast::Cast;
use crate::types::{Shape, Type};

/// The SELECT of a function, planned.
#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) plan: Arc<Plan>,
    /// Conversions of its columns to the result's.
    pub(crate) conversions: Vec<Option<Cast>>,
    /// What they must meet then, where the result's are of domains.
    pub(crate) checks: Checks,
    /// A bound on the depth of its tree.
    pub(crate) depth: usize,
}

/// What a call of a function does.
#[derive(Debug)]
pub struct RoutineBody {
    /// The function.
    pub routine: Arc<Routine>,
    /// Names and types of its columns, if it gives rows; none for a value or nothing.
    pub shape: Option<Shape>,
    /// It gives nothing at all.
    pub is_void: bool,
    /// Oid of the role with whose rights it is run, if that is not who runs the statement. A
    /// function that is called in several names has a body in each, so that the rights of all are
    /// asked.
    pub(crate) caller: Option<Oid>,
    /// Set once it is planned, which may be after calls to it were bound: those in itself. Or why
    /// it could not be bound.
    select: OnceLock<Result<Select>>,
}

impl RoutineBody {
    /// That of a function whose SELECT is not planned yet.
    pub(crate) fn new(
        routine: Arc<Routine>,
        shape: Option<Shape>,
        is_void: bool,
        caller: Option<Oid>,
    ) -> RoutineBody {
        RoutineBody { routine, shape, is_void, caller, select: OnceLock::new() }
    }

    /// The SELECT was planned, or cannot be.
    pub(crate) fn set(&self, select: Result<Select>) {
        // It is planned once, by whoever made this.
        let _ = self.select.set(select);
    }

    /// Its SELECT, or what binding it failed by.
    pub(crate) fn select(&self) -> Result<&Select> {
        let unplanned = || SqlError::internal(format!("function {} is not planned", self.routine.name));
        self.select.get().ok_or_else(unplanned)?.as_ref().map_err(SqlError::clone)
    }

    /// Whether binding the SELECT has failed.
    pub(crate) fn is_unbound(&self) -> bool {
        matches!(self.select.get(), Some(Err(_)))
    }
}

/// A call of such a function.
#[derive(Clone)]
pub struct RoutineCall {
    /// What it does.
    body: Weak<RoutineBody>,
    /// Type of its value, or of each of its rows.
    pub ty: Type,
    /// What it promises.
    pub volatility: Volatility,
    /// It gives any number of rows.
    pub is_set: bool,
    /// Number of columns of its rows.
    pub width: usize,
    /// Values of its inputs, converted to their types.
    pub arguments: Vec<Expr>,
}

impl RoutineCall {
    /// A call with these arguments, which gives values of this type.
    pub(crate) fn new(body: &Arc<RoutineBody>, ty: Type, arguments: Vec<Expr>) -> RoutineCall {
        RoutineCall {
            ty,
            volatility: body.routine.behavior.into(),
            is_set: body.routine.returns_set,
            width: body.shape.as_ref().map_or(1, |shape| shape.len()),
            arguments,
            body: Arc::downgrade(body),
        }
    }

    /// What it does.
    pub(crate) fn body(&self) -> Result<Arc<RoutineBody>> {
        self.body.upgrade().ok_or_else(|| SqlError::internal("a function outlived its statement"))
    }
}

impl fmt::Debug for RoutineCall {
    /// With the place of what it does: calls that are compared as they are written out are of the
    /// same function then.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoutineCall")
            .field("body", &self.body.as_ptr())
            .field("ty", &self.ty)
            .field("arguments", &self.arguments)
            .finish_non_exhaustive()
    }
}

impl PartialEq for RoutineCall {
    fn eq(&self, other: &RoutineCall) -> bool {
        self.body.ptr_eq(&other.body) && self.ty == other.ty && self.arguments == other.arguments
    }
}
