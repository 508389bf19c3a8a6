//! Operators.

use sqlparser::ast::{
    BinaryOperator, Expr as Syntax, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator,
};

use super::Binder;
use super::need::has_star;
use super::row_value::is_row_value;
use crate::error::{Result, SqlError};
use crate::expr::{Expr, OperatorCall, RowCompare, Typed, fold};
use crate::function::operator::{self, Comparison, OperatorBody, ResolvedOperator};
use crate::types::{Type, TypeId};

/// PostgreSQL's name of an infix operator that is no AND or OR.
pub(crate) fn operator_name(op: &BinaryOperator) -> Result<String> {
    use BinaryOperator as B;
    Ok(match op {
        B::PGLikeMatch => "~~".to_owned(),
        B::PGILikeMatch => "~~*".to_owned(),
        B::PGNotLikeMatch => "!~~".to_owned(),
        B::PGNotILikeMatch => "!~~*".to_owned(),
        B::NotEq => "<>".to_owned(),
        B::BitwiseXor | B::PGExp => "^".to_owned(),
        B::PGBitwiseXor => "#".to_owned(),
        B::PGCustomBinaryOperator(parts) => match parts.last() {
            Some(name) => name.clone(),
            None => return Err(SqlError::syntax("syntax error: OPERATOR() without an operator")),
        },
        B::Custom(name) => name.clone(),
        other => other.to_string(),
    })
}

impl Binder<'_> {
    /// Applies the operator of this name. 42883 if there is none for the operands' types.
    pub(crate) fn operate(&mut self, name: &str, left: Typed, right: Typed) -> Result<Typed> {
        let operator = self.operator(name, left.ty, right.ty)?;
        self.apply(operator, left, right)
    }

    /// The operator of this name for these operands.
    pub(crate) fn operator(&self, name: &str, left: Type, right: Type) -> Result<ResolvedOperator> {
        operator::resolve(name, Some(left), right).map_err(|error| self.name_types(error, &[left, right]))
    }

    /// Applies an operator found before.
    pub(crate) fn apply(
        &mut self,
        mut operator: ResolvedOperator,
        left: Typed,
        right: Typed,
    ) -> Result<Typed> {
        let result = operator.result;
        let left_type = operator.left.unwrap_or(left.ty);
        let (left, right) = match operator.body {
            OperatorBody::Compare(_) => {
                (self.compared(left, left_type)?, self.compared(right, operator.right)?)
            }
            _ => (self.convert(left, left_type)?, self.convert(right, operator.right)?),
        };
        if let OperatorBody::Compare(comparison) = operator.body {
            if operator.right.id == TypeId::Record
                && (operator.left != Some(operator.right) || operator.right.modifier < 0)
            {
                // What two records are made of is only known once they are there.
                operator.body = operator::of_records(comparison);
            } else if operator::has_no_order(operator.right) {
                operator.body = operator::of_arrays_without_order(comparison);
            }
        }
        let expr = match operator.body {
            OperatorBody::Compare(comparison) => Expr::compare(comparison, left.expr, right.expr),
            _ => Expr::Operator(Box::new(OperatorCall { operator, left: left.expr, right: right.expr })),
        };
        Ok(Typed::new(fold(expr, self.context), result))
    }

    /// A prefix operator.
    pub(crate) fn prefix(&mut self, name: &str, operand: Typed) -> Result<Typed> {
        let operator = operator::resolve(name, None, operand.ty)?;
        let result = operator.result;
        let right = self.convert(operand, operator.right)?;
        let call = OperatorCall { operator, left: Expr::NULL, right: right.expr };
        Ok(Typed::new(fold(Expr::Operator(Box::new(call)), self.context), result))
    }

    pub(crate) fn unary(&mut self, op: &UnaryOperator, operand: &Syntax) -> Result<Typed> {
        let name = match op {
            UnaryOperator::Not => {
                let typed = self.expression(operand)?;
                let operand = self.condition(typed, "NOT")?;
                return Ok(Typed::new(fold(Expr::Not(Box::new(operand)), self.context), TypeId::Bool));
            }
            UnaryOperator::Minus => {
                if let Some(number) = self.negative_number(operand) {
                    return number;
                }
                "-".to_owned()
            }
            other => other.to_string(),
        };
        let operand = self.expression(operand)?;
        self.prefix(&name, operand)
    }

    /// A chain of infix operators, which leans to the left and may be very long: walked without
    /// recursion.
    pub(crate) fn binary_chain(&mut self, syntax: &Syntax) -> Result<Typed> {
        let mut rest = vec![];
        let mut first = syntax;
        while let Syntax::BinaryOp { left, op, right } = first {
            rest.push((op, right.as_ref()));
            first = left;
        }
        // Where the chain begins the left operand is still syntax: row values are not expressions.
        let Some((op, right)) = rest.pop() else { return self.expression(first) };
        let mut left = match op {
            BinaryOperator::And | BinaryOperator::Or => {
                let first = self.expression(first)?;
                self.logical(first, op, right, &mut rest)?
            }
            _ => self.binary(first, op, right)?,
        };
        while let Some((op, right)) = rest.pop() {
            left = match op {
                BinaryOperator::And | BinaryOperator::Or => self.logical(left, op, right, &mut rest)?,
                _ => {
                    let right = self.expression(right)?;
                    self.operate(&operator_name(op)?, left, right)?
                }
            };
        }
        Ok(left)
    }

    /// `left AND right AND ...`: takes all that follows with the same operator, so that long chains
    /// stay flat.
    fn logical<'s>(
        &mut self,
        left: Typed,
        op: &BinaryOperator,
        right: &'s Syntax,
        rest: &mut Vec<(&'s BinaryOperator, &'s Syntax)>,
    ) -> Result<Typed> {
        let what = if *op == BinaryOperator::And { "AND" } else { "OR" };
        let mut parts = vec![self.condition(left, what)?];
        let mut next = Some(right);
        while let Some(syntax) = next {
            let typed = self.expression(syntax)?;
            parts.push(self.condition(typed, what)?);
            next = if rest.last().is_some_and(|(following, _)| *following == op) {
                rest.pop().map(|(_, syntax)| syntax)
            } else {
                None
            };
        }
        let expr = if what == "AND" { Expr::And(parts) } else { Expr::Or(parts) };
        Ok(Typed::new(fold(expr, self.context), TypeId::Bool))
    }

    fn binary(&mut self, left: &Syntax, op: &BinaryOperator, right: &Syntax) -> Result<Typed> {
        if let Some(result) = self.row_operation(left, op, right)? {
            return Ok(result);
        }
        let left = self.expression(left)?;
        let right = self.expression(right)?;
        self.operate(&operator_name(op)?, left, right)
    }

    /// Operations on row values; none if neither side is one.
    fn row_operation(&mut self, left: &Syntax, op: &BinaryOperator, right: &Syntax) -> Result<Option<Typed>> {
        let is_subquery = matches!(right, Syntax::Subquery(_));
        if !is_row_value(left) || !(is_subquery || is_row_value(right)) {
            return Ok(None);
        }
        let name = operator_name(op)?;
        let Some(lefts) = self.row_values(left)? else { return Ok(None) };
        if let Syntax::Subquery(query) = right {
            return self.row_against_subquery(lefts, &name, query).map(Some);
        }
        let Some(rights) = self.row_values(right)? else { return Ok(None) };
        if name == "OVERLAPS" {
            return self.overlaps(lefts, rights).map(Some);
        }
        if lefts.len() != rights.len() {
            return Err(SqlError::syntax("unequal number of entries in row expressions"));
        }
        self.compare_rows(&name, lefts.into_iter().zip(rights).collect()).map(Some)
    }

    /// `(begin, end or length) OVERLAPS (begin, end or length)`.
    fn overlaps(&mut self, lefts: Vec<Typed>, rights: Vec<Typed>) -> Result<Typed> {
        for (side, items) in [("left", &lefts), ("right", &rights)] {
            if items.len() != 2 {
                let problem = format!("wrong number of parameters on {side} side of OVERLAPS expression");
                return Err(SqlError::syntax(problem));
            }
        }
        self.call(None, "overlaps", lefts.into_iter().chain(rights).collect())
    }

    /// Compares rows of values.
    pub(crate) fn compare_rows(&mut self, name: &str, pairs: Vec<(Typed, Typed)>) -> Result<Typed> {
        if pairs.is_empty() {
            let message = "cannot compare rows of zero length";
            return Err(SqlError::new(crate::error::sqlstate::FEATURE_NOT_SUPPORTED, message));
        }
        let comparison = match name {
            "=" | "<>" => {
                let mut tests = vec![];
                for (left, right) in pairs {
                    tests.push(self.operate(name, left, right)?.expr);
                }
                let expr = if name == "=" { Expr::And(tests) } else { Expr::Or(tests) };
                return Ok(Typed::new(fold(expr, self.context), TypeId::Bool));
            }
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            _ => {
                return Err(SqlError::new(
                    crate::error::sqlstate::FEATURE_NOT_SUPPORTED,
                    format!("could not determine interpretation of row comparison operator {name}"),
                )
                .with_hint("Row comparison operators must be associated with btree operator families."));
            }
        };
        self.compare_in_order(comparison, pairs)
    }

    /// Compares rows pair by pair, in order, by an expression that stays whole.
    pub(super) fn compare_in_order(
        &mut self,
        comparison: Comparison,
        pairs: Vec<(Typed, Typed)>,
    ) -> Result<Typed> {
        let pairs = pairs
            .into_iter()
            .map(|(left, right)| self.comparable(left, right))
            .collect::<Result<Vec<_>>>()?;
        let expr = Expr::RowCompare(Box::new(RowCompare { comparison, pairs }));
        Ok(Typed::new(expr, TypeId::Bool))
    }

    /// IS [NOT] DISTINCT FROM.
    pub(crate) fn distinct_from(&mut self, left: Typed, right: Typed, negated: bool) -> Result<Typed> {
        let (left, right) = self.comparable(left, right)?;
        let expr = Expr::IsDistinct { operands: Box::new([left, right]), negated };
        Ok(Typed::new(fold(expr, self.context), TypeId::Bool))
    }

    /// Converts two operands so that `=` compares them. 42883 if it cannot.
    pub(crate) fn comparable(&mut self, left: Typed, right: Typed) -> Result<(Expr, Expr)> {
        let operator = self.operator("=", left.ty, right.ty)?;
        let left_type = operator.left.unwrap_or(left.ty);
        Ok((self.compared(left, left_type)?.expr, self.compared(right, operator.right)?.expr))
    }

    /// Converts an operand of a comparison.
    fn compared(&mut self, operand: Typed, ty: Type) -> Result<Typed> {
        let from = operand.ty.id;
        let mut converted = self.convert(operand, ty)?;
        // Where nothing is converted, a cast is one that the operand is written with.
        if from != ty.id
            && let Expr::Cast(cast) = &mut converted.expr
        {
            cast.1 = cast.1.clone().of_compared();
        }
        Ok(converted)
    }

    /// The equality of two values of one type, which grouping, DISTINCT and sorting need. 42883 if
    /// the type has none.
    pub(crate) fn equality(&self, ty: Type) -> Result<ResolvedOperator> {
        operator::resolve("=", Some(ty), ty)
    }
}

/// The fields of `ROW(a, t.*)`, if a star is among them.
pub(crate) fn starred_row(syntax: &Syntax) -> Option<&[FunctionArg]> {
    let Syntax::Function(call) = syntax else { return None };
    let FunctionArguments::List(list) = &call.args else { return None };
    let is_row = || call.name.to_string().eq_ignore_ascii_case("row");
    (has_star(&call.args) && is_row()).then_some(list.args.as_slice())
}

/// The items of a row value, if it is one: `(a, b)`, `ROW(a, b)`.
pub(crate) fn row_items(syntax: &Syntax) -> Option<Vec<&Syntax>> {
    match syntax {
        Syntax::Tuple(items) => Some(items.iter().collect()),
        Syntax::Nested(inner) => row_items(inner),
        Syntax::Function(function) if function.name.to_string().eq_ignore_ascii_case("row") => {
            let FunctionArguments::List(list) = &function.args else { return None };
            list.args
                .iter()
                .map(|argument| match argument {
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
                    _ => None,
                })
                .collect()
        }
        _ => None,
    }
}
