//! Constant folding: what does not depend on row, parameter or session is computed once, at
//! binding.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{Env, Execution, Expr, NoExternalFunctions, NoReader, ReadContext, Runtime};
use crate::bind::BindContext;
use crate::error::{Result, SqlError};
use crate::function::{Body, EvalContext, Interrupt, Volatility};
use crate::types::{Category, Datum, TypeId, bounds};

/// Whether this node, given constant children, always gives the same value.
fn is_foldable(expr: &Expr) -> bool {
    match expr {
        Expr::Slot(_)
        | Expr::Outer { .. }
        | Expr::Parameter(_)
        | Expr::Held
        | Expr::Subquery(_)
        | Expr::Aggregate { .. }
        | Expr::SetResult(_)
        | Expr::WindowResult(_)
        | Expr::Routine(_)
        | Expr::Domain(_)
        | Expr::Row(..) => false,
        Expr::Function(call) => {
            // Plans are shared by sessions with other settings (`quote_all_identifiers`).
            call.function.function.volatility == Volatility::Immutable
                && call.function.function.name != "quote_ident"
                && !matches!(
                    call.function.function.body,
                    Body::External | Body::SetReturning | Body::Aggregate(_) | Body::Window(_)
                )
        }
        // Conversions between texts and times depend on the session's time zone and formats.
        Expr::Cast(cast) => {
            let (from, to) = (cast.1.from.id, cast.1.to.id);
            !depends_on_session(from, to)
                && !is_written_by_settings(from, to)
                && !is_read_by_settings(from, to)
        }
        Expr::Operator(call) => {
            let (right, result) = (call.operator.right.id, call.operator.result.id);
            let left = call.operator.left.map_or(right, |left| left.id);
            !depends_on_session(left, right)
                && !depends_on_session(left, result)
                && !is_written_by_settings(left, result)
                && !is_written_by_settings(right, result)
        }
        _ => true,
    }
}

/// Whether converting between two types, or computing with them, depends on the session's settings
/// or the catalog.
fn depends_on_session(from: TypeId, to: TypeId) -> bool {
    let base = |ty: TypeId| ty.element().unwrap_or(ty);
    let (from, to) = (base(from), base(to));
    let is_time = |ty: TypeId| ty.category() == Category::DateTime;
    let is_name = |ty: TypeId| ty.is_oid() && ty != TypeId::Oid;
    if from == to {
        // Arithmetic on timestamptz goes through local time.
        return from == TypeId::Timestamptz;
    }
    // What a label's position is, the catalog says; a plan is made anew when that changes.
    is_name(from) || is_name(to) || is_time(from) || is_time(to)
}

/// Whether the session's settings say how such a value becomes a text. Plans are shared by sessions
/// with other ones (`extra_float_digits`, `intervalstyle`, `bytea_output`).
fn is_written_by_settings(from: TypeId, to: TypeId) -> bool {
    let from = from.element().unwrap_or(from);
    to.element().unwrap_or(to).category() == Category::String
        && matches!(from, TypeId::Float4 | TypeId::Float8 | TypeId::Interval | TypeId::Bytea)
}

/// Whether they say what such a text means as a value: `-1 2:00:00` as an interval.
fn is_read_by_settings(from: TypeId, to: TypeId) -> bool {
    let base = |ty: TypeId| ty.element().unwrap_or(ty);
    base(to) == TypeId::Interval && base(from).category() == Category::String
}

/// Whether the expression is a constant already.
pub fn is_constant(expr: &Expr) -> bool {
    matches!(expr, Expr::Constant(_))
}

/// Longer values are made when they are needed: plans are kept for long, and a statement that keeps
/// many values of one constant would account for each of them.
const FOLDED_BYTES: usize = 1 << 20;

/// How often a constant's computation may ask whether to stop.
const FOLDED_CHECKS: u32 = 4;

/// What takes long is left to evaluation: there it can be cancelled, and it steps aside for others.
#[derive(Default)]
struct Patience(AtomicU32);

impl Interrupt for Patience {
    fn check(&self) -> Result<Duration> {
        if self.0.fetch_add(1, Ordering::Relaxed) < FOLDED_CHECKS {
            return Ok(Duration::ZERO);
        }
        Err(SqlError::internal("a constant takes long to compute"))
    }
}

/// Computes what can be computed now. Children are folded already. An error is left to evaluation,
/// which may never reach it (`CASE WHEN x <> 0 THEN 1/0 ...` must not fail at binding).
pub fn fold(expr: Expr, context: &BindContext<'_>) -> Expr {
    if is_constant(&expr) || !is_foldable(&expr) {
        return expr;
    }
    let mut all_constant = true;
    expr.for_each_child(&mut |child| all_constant &= is_constant(child));
    if !all_constant {
        return simplify(expr);
    }
    // Nothing is computed any more once a comparison was given up. One that is given up here fails
    // as the expression does, and nothing else.
    if bounds::check().is_err() {
        return expr;
    }
    let patience = Patience::default();
    let read = ReadContext {
        reader: &NoReader,
        eval: EvalContext { memory_limit: FOLDED_BYTES, interrupt: &patience, ..context.eval },
        catalog: context.catalog,
        external: &NoExternalFunctions,
        interrupt: &patience,
        memory_limit: FOLDED_BYTES,
        tally: None,
        usage: None,
    };
    let runtime = Runtime::default();
    let execution = Execution { read: &read, parameters: &[], runtime: &runtime };
    match bounds::settled(expr.eval(&Env::new(&[], execution))) {
        Ok(value) => Expr::Constant(value),
        Err(_) => expr,
    }
}

/// Drops the neutral and honours the decisive constants of AND and OR.
fn simplify(expr: Expr) -> Expr {
    let (parts, decisive) = match expr {
        Expr::And(parts) => (parts, false),
        Expr::Or(parts) => (parts, true),
        other => return other,
    };
    let mut kept = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            Expr::Constant(Datum::Bool(value)) if value == decisive => {
                return Expr::Constant(Datum::Bool(decisive));
            }
            Expr::Constant(Datum::Bool(_)) => {}
            Expr::And(inner) if !decisive => kept.extend(inner),
            Expr::Or(inner) if decisive => kept.extend(inner),
            other => kept.push(other),
        }
    }
    match kept.len() {
        0 => Expr::Constant(Datum::Bool(!decisive)),
        1 => kept.remove(0),
        _ if decisive => Expr::Or(kept),
        _ => Expr::And(kept),
    }
}
