//! What an expression of the parser is made of, one step down: expressions and queries.
//!
//! Every kind of expression that can be bound is here
//! ([`Binder::expression`](super::Binder::expression) has the same list); others have no parts.

use sqlparser::ast::{
    AccessExpr, Expr as Syntax, Function as FunctionSyntax, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArguments, Query as QuerySyntax, Subscript, WindowFrameBound, WindowSpec,
    WindowType,
};

/// A part of an expression.
pub(super) enum Operand<'a> {
    /// An expression.
    Expression(&'a mut Syntax),
    /// A subquery.
    Query(&'a mut QuerySyntax),
}

/// Calls `visit` with each part.
pub(super) fn for_each_operand(expr: &mut Syntax, visit: &mut dyn FnMut(Operand<'_>)) {
    let mut all = |parts: &mut [&mut Syntax]| {
        parts.iter_mut().for_each(|part| visit(Operand::Expression(part)));
    };
    match expr {
        Syntax::Nested(a)
        | Syntax::UnaryOp { expr: a, .. }
        | Syntax::Cast { expr: a, .. }
        | Syntax::IsNull(a)
        | Syntax::IsNotNull(a)
        | Syntax::IsTrue(a)
        | Syntax::IsNotTrue(a)
        | Syntax::IsFalse(a)
        | Syntax::IsNotFalse(a)
        | Syntax::IsUnknown(a)
        | Syntax::IsNotUnknown(a)
        | Syntax::IsNormalized { expr: a, .. }
        | Syntax::Collate { expr: a, .. }
        | Syntax::Extract { expr: a, .. }
        | Syntax::Ceil { expr: a, .. }
        | Syntax::Floor { expr: a, .. } => all(&mut [a]),
        Syntax::BinaryOp { left: a, right: b, .. }
        | Syntax::IsDistinctFrom(a, b)
        | Syntax::IsNotDistinctFrom(a, b)
        | Syntax::AnyOp { left: a, right: b, .. }
        | Syntax::AllOp { left: a, right: b, .. }
        | Syntax::Like { expr: a, pattern: b, .. }
        | Syntax::ILike { expr: a, pattern: b, .. }
        | Syntax::SimilarTo { expr: a, pattern: b, .. }
        | Syntax::AtTimeZone { timestamp: a, time_zone: b }
        | Syntax::Position { expr: a, r#in: b } => all(&mut [a, b]),
        Syntax::Between { expr, low, high, .. } => all(&mut [expr, low, high]),
        Syntax::Case { operand, conditions, else_result, .. } => {
            operand.iter_mut().for_each(|part| all(&mut [part]));
            conditions.iter_mut().for_each(|when| all(&mut [&mut when.condition, &mut when.result]));
            else_result.iter_mut().for_each(|part| all(&mut [part]));
        }
        Syntax::InList { expr, list, .. } => {
            all(&mut [expr]);
            list.iter_mut().for_each(|part| all(&mut [part]));
        }
        Syntax::Tuple(items) => items.iter_mut().for_each(|part| all(&mut [part])),
        Syntax::Array(array) => array.elem.iter_mut().for_each(|part| all(&mut [part])),
        Syntax::Rollup(sets) | Syntax::Cube(sets) | Syntax::GroupingSets(sets) => {
            sets.iter_mut().flatten().for_each(|part| all(&mut [part]));
        }
        Syntax::CompoundFieldAccess { root, access_chain } => {
            all(&mut [root]);
            access_chain.iter_mut().for_each(|access| for_each_subscript(access, visit));
        }
        Syntax::InSubquery { expr, subquery, .. } => {
            all(&mut [expr]);
            visit(Operand::Query(subquery));
        }
        Syntax::Exists { subquery: query, .. } | Syntax::Subquery(query) => visit(Operand::Query(query)),
        Syntax::Function(function) => for_each_of_call(function, visit),
        expr => for_each_of_form(expr, visit),
    }
}

/// The parts of a call that is written with words between them.
fn for_each_of_form(expr: &mut Syntax, visit: &mut dyn FnMut(Operand<'_>)) {
    let mut all = |parts: &mut [&mut Syntax]| {
        parts.iter_mut().for_each(|part| visit(Operand::Expression(part)));
    };
    match expr {
        Syntax::Substring { expr, substring_from, substring_for, .. } => {
            all(&mut [expr]);
            let rest = substring_from.iter_mut().chain(substring_for);
            rest.for_each(|part| all(&mut [part]));
        }
        Syntax::Trim { expr, trim_what, trim_characters, .. } => {
            all(&mut [expr]);
            trim_what.iter_mut().for_each(|part| all(&mut [part]));
            trim_characters.iter_mut().flatten().for_each(|part| all(&mut [part]));
        }
        Syntax::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
            all(&mut [expr, overlay_what, overlay_from]);
            overlay_for.iter_mut().for_each(|part| all(&mut [part]));
        }
        _ => {}
    }
}

fn for_each_of_call(function: &mut FunctionSyntax, visit: &mut dyn FnMut(Operand<'_>)) {
    match &mut function.args {
        FunctionArguments::None => {}
        FunctionArguments::Subquery(query) => visit(Operand::Query(query)),
        FunctionArguments::List(list) => {
            for_each_argument(&mut list.args, visit);
            for clause in &mut list.clauses {
                if let FunctionArgumentClause::OrderBy(keys) = clause {
                    keys.iter_mut().for_each(|key| visit(Operand::Expression(&mut key.expr)));
                }
            }
        }
    }
    function.filter.iter_mut().for_each(|part| visit(Operand::Expression(part)));
    if let Some(WindowType::WindowSpec(window)) = &mut function.over {
        for_each_of_window(window, visit);
    }
}

/// Calls `visit` with each argument of a call.
pub(super) fn for_each_argument(arguments: &mut [FunctionArg], visit: &mut dyn FnMut(Operand<'_>)) {
    for argument in arguments {
        if let FunctionArg::Unnamed(FunctionArgExpr::Expr(part)) = argument {
            visit(Operand::Expression(part));
        }
    }
}

/// Calls `visit` with each key and bound of a window.
pub(super) fn for_each_of_window(window: &mut WindowSpec, visit: &mut dyn FnMut(Operand<'_>)) {
    let order = window.order_by.iter_mut().map(|key| &mut key.expr);
    order.chain(&mut window.partition_by).for_each(|part| visit(Operand::Expression(part)));
    let Some(frame) = &mut window.window_frame else { return };
    for bound in std::iter::once(&mut frame.start_bound).chain(&mut frame.end_bound) {
        if let WindowFrameBound::Preceding(Some(part)) | WindowFrameBound::Following(Some(part)) = bound {
            visit(Operand::Expression(part));
        }
    }
}

fn for_each_subscript(access: &mut AccessExpr, visit: &mut dyn FnMut(Operand<'_>)) {
    match access {
        AccessExpr::Subscript(Subscript::Index { index }) => visit(Operand::Expression(index)),
        AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, .. }) => {
            lower_bound.iter_mut().chain(upper_bound).for_each(|part| visit(Operand::Expression(part)));
        }
        AccessExpr::Dot(_) => {}
    }
}
