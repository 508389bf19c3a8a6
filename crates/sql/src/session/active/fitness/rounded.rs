//! Functions whose last digit is up to the node: those of floating-point numbers for which no
//! standard says how they are rounded.
//!
//! They are those of the system's mathematical library, which differs with its version, and on one
//! and the same version with what the processor can do (fused multiplication and addition). The
//! logarithms and powers of type numeric estimate by them how many digits they have. Sums,
//! products, quotients and square roots are rounded alike by every processor.

use std::ops::ControlFlow;

use cognate_syntax::{Step, Walker, walk};
use sqlparser::ast;

use super::{split, unfit};
use crate::error::{Result, SqlError};
use crate::parse::parse_expression;

const FUNCTIONS: [&str; 29] = [
    "acos", "acosd", "acosh", "asin", "asind", "asinh", "atan", "atan2", "atan2d", "atand", "atanh", "cbrt",
    "cos", "cosd", "cosh", "cot", "cotd", "exp", "ln", "log", "log10", "pow", "power", "sin", "sind", "sinh",
    "tan", "tand", "tanh",
];

/// Whether it may be one of them that a call names.
pub(super) fn is_function(schema: Option<&str>, name: &str) -> bool {
    schema.is_none_or(|schema| schema == "pg_catalog") && FUNCTIONS.contains(&name)
}

/// The operator of an expression, if it is one of them.
pub(super) fn operator(expr: &ast::Expr) -> Option<&'static str> {
    match expr {
        ast::Expr::BinaryOp { op, .. } if is_power(op) => Some("^"),
        ast::Expr::UnaryOp { op: ast::UnaryOperator::PGCubeRoot, .. } => Some("||/"),
        _ => None,
    }
}

fn is_power(op: &ast::BinaryOperator) -> bool {
    use ast::BinaryOperator as B;
    match op {
        B::PGExp | B::BitwiseXor => true,
        B::PGCustomBinaryOperator(parts) => parts.last().is_some_and(|name| name == "^"),
        B::Custom(name) => name == "^",
        _ => false,
    }
}

/// 0A000 if an expression of the catalog, which calls no functions of users, has one of them.
pub(super) fn check(text: &str) -> Result<()> {
    let expression = parse_expression(text)?;
    let mut look = Look { refusal: None };
    let _ = walk(&expression, &mut look);
    look.refusal.map_or(Ok(()), Err)
}

struct Look {
    refusal: Option<SqlError>,
}

impl Walker for Look {
    fn expression(&mut self, expr: &ast::Expr) -> Step {
        self.refusal = match expr {
            ast::Expr::Function(call) => split(&call.name)
                .filter(|(schema, name)| is_function(schema.as_deref(), name))
                .map(|(_, name)| unfit(format_args!("function {name}()"))),
            _ => operator(expr).map(|operator| unfit(format_args!("operator {operator}"))),
        };
        match self.refusal {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    }
}
