//! PostgreSQL's rules where Arrow's differ, put into the logical plan before anything else sees it.
//!
//! - `+`, `-` and `*` on integers fail on overflow; DataFusion's wrap around.
//! - Functions, casts that were written down, and operators of all but integers and exact comparisons are [`Call`]s: the row
//!   executor's own.
//! - Untyped literals take their type from the other operand; the results of CASE and COALESCE have the type that PostgreSQL finds for
//!   all of them.
//! - Types that Arrow orders otherwise sort by their [`key`](Call::key).
//!
//! What is left over and cannot be right is refused by name ([`check`]): grouping, joining or comparing by such a type, and conversions that
//! DataFusion adds on its own but PostgreSQL would not.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::expr::{AggregateFunction, InList, Like, ScalarFunction, Sort, WindowFunction};
use datafusion::logical_expr::{
    Between, BinaryExpr, Case, Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder,
    Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::analyzer::Analyzer;

use super::call::{self, Call, Named, carried, settle};
use super::check::{self, refused};
use super::planner::TEMPLATE;
use super::{failure, functions, mapping};
use crate::error::{Result, SqlError};
use crate::types::cast::{self, CastContext};
use crate::types::{Datum, FormatContext, Type, TypeId};

/// The plan with PostgreSQL's rules, type-coerced.
pub(super) fn apply(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = each_node(plan, &own)?;
    check::size(&plan)?;
    let plan =
        Analyzer::new().execute_and_check(plan, TEMPLATE.config_options(), |_, _| {}).map_err(failure)?;
    check::meaning(&plan)?;
    each_node(plan, &arithmetic)
}

type Rule<'a> = &'a dyn Fn(Expr, &DFSchema) -> DataFusionResult<Transformed<Expr>>;

fn each_node(plan: LogicalPlan, rule: Rule<'_>) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        if matches!(node, LogicalPlan::Limit(_) | LogicalPlan::TableScan(_)) {
            return Ok(Transformed::no(node));
        }
        let schema = input_schema(&node);
        let sorts = matches!(node, LogicalPlan::Sort(_));
        // Whoever refers to an expression from above does so by its name.
        let changed = node.map_expressions(|expr| {
            let name = expr.schema_name().to_string();
            let mut result = expr.transform_up(|inner| rule(inner, &schema))?;
            if sorts {
                result.data = sortable(result.data, &schema)?;
            } else if result.transformed && result.data.schema_name().to_string() != name {
                result.data = result.data.alias(name);
            }
            Ok(result)
        })?;
        changed.map_data(|node| match node {
            // Which keeps the schema it had.
            LogicalPlan::Values(values) => LogicalPlanBuilder::values(values.values)?.build(),
            other => other.recompute_schema(),
        })
    })
    .data()
    .map_err(failure)
}

pub(super) fn input_schema(node: &LogicalPlan) -> DFSchema {
    let mut schema = DFSchema::empty();
    for input in node.inputs() {
        schema.merge(input.schema());
    }
    schema
}

/// A literal with its type as a plain value, if its value depends on nothing else.
fn settled(expr: Expr, schema: &DFSchema) -> DataFusionResult<Expr> {
    match expr {
        Expr::Cast(cast) if matches!(*cast.expr, Expr::Literal(..)) => {
            written_cast(*cast.expr, cast.field.data_type(), schema)
        }
        other => Ok(other),
    }
}

/// The type of an operand, `Unknown` for untyped literals and parameters.
fn operand_type(expr: &Expr, schema: &DFSchema) -> DataFusionResult<Type> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Null, _) => Ok(Type::new(TypeId::Unknown)),
        Expr::Placeholder(placeholder) if placeholder.field.is_none() => Ok(Type::new(TypeId::Unknown)),
        other => mapping::sql_type(&other.get_type(schema)?).map_err(carried),
    }
}

/// An untyped literal or parameter as a value of `ty`.
fn typed(expr: Expr, ty: Type) -> Result<Expr> {
    let value = match &expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => Datum::text(text.as_str()),
        Expr::Literal(ScalarValue::Utf8(None) | ScalarValue::Null, _) => Datum::Null,
        _ => return settle(expr, ty),
    };
    let value =
        cast::cast(&value, Type::new(TypeId::Unknown), ty, CastContext::Implicit, &FormatContext::default())?;
    Ok(Expr::Literal(mapping::scalar(&value, ty)?, None))
}

/// Whether the literal's value may be settled at planning: it does not depend on the session's settings.
fn settled_early(expr: &Expr, ty: Type) -> bool {
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(_)), _) => {
            cast::find(Type::new(TypeId::Unknown), ty, CastContext::Implicit)
                .is_some_and(|cast| cast.is_immutable())
        }
        _ => true,
    }
}

fn comparison(name: &str) -> Option<Operator> {
    Some(match name {
        "=" => Operator::Eq,
        "<>" => Operator::NotEq,
        "<" => Operator::Lt,
        "<=" => Operator::LtEq,
        ">" => Operator::Gt,
        ">=" => Operator::GtEq,
        _ => return None,
    })
}

fn integer_arithmetic(name: &str) -> Option<Operator> {
    Some(match name {
        "+" => Operator::Plus,
        "-" => Operator::Minus,
        "*" => Operator::Multiply,
        "/" => Operator::Divide,
        "%" => Operator::Modulo,
        _ => return None,
    })
}

/// `left name right`: Arrow's operator where it does the same, else the row executor's.
pub(super) fn operate(name: &str, left: Expr, right: Expr, schema: &DFSchema) -> DataFusionResult<Expr> {
    let (left, right) = (settled(left, schema)?, settled(right, schema)?);
    let types = [operand_type(&left, schema)?, operand_type(&right, schema)?];
    let call = Call::operator(name, Some(types[0]), types[1]).map_err(carried)?;
    let wanted = call.wanted();
    if let Some(operator) = comparison(name)
        && settled_early(&left, wanted[0])
        && settled_early(&right, wanted[1])
    {
        let left = typed(left.clone(), wanted[0]).map_err(carried)?;
        let right = typed(right.clone(), wanted[1]).map_err(carried)?;
        let arrow = [left.get_type(schema)?, right.get_type(schema)?];
        let alike = arrow[0] == arrow[1] && mapping::compares_alike(&arrow[0]);
        if alike || (arrow[0].is_integer() && arrow[1].is_integer()) {
            return Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right))));
        }
    }
    if let Some(operator) = integer_arithmetic(name)
        && wanted.iter().all(|ty| matches!(ty.id, TypeId::Int2 | TypeId::Int4 | TypeId::Int8))
    {
        let left = typed(left, wanted[0]).map_err(carried)?;
        let right = typed(right, wanted[1]).map_err(carried)?;
        return Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right))));
    }
    call.expr(vec![left, right]).map_err(carried)
}

/// The row executor's functions, casts and operators in place of DataFusion's.
fn own(expr: Expr, schema: &DFSchema) -> DataFusionResult<Transformed<Expr>> {
    Ok(Transformed::yes(match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) => {
            if !func.inner().is::<Named>() {
                return Ok(Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })));
            }
            if functions::is_expression(func.name()) {
                return expression(func.name(), args, schema).map(Transformed::yes);
            }
            let types = args
                .iter()
                .map(|argument| operand_type(argument, schema))
                .collect::<DataFusionResult<Vec<_>>>()?;
            Call::named(func.name(), &types).and_then(|call| call.expr(args)).map_err(carried)?
        }
        Expr::Cast(cast) => written_cast(*cast.expr, cast.field.data_type(), schema)?,
        Expr::Between(Between { expr, negated, low, high }) => {
            let (from, to) = if negated { ("<", ">") } else { (">=", "<=") };
            let low = operate(from, copied(&expr)?, *low, schema)?;
            let high = operate(to, *expr, *high, schema)?;
            if negated { low.or(high) } else { low.and(high) }
        }
        Expr::InList(InList { expr, list, negated }) => one_of(*expr, list, negated, schema)?,
        Expr::Like(Like { escape_char: Some(_), .. }) | Expr::SimilarTo(_) => {
            return Err(refused("LIKE with ESCAPE, and SIMILAR TO,"));
        }
        Expr::Like(Like { negated, expr, pattern, case_insensitive, .. }) => {
            let name = match (negated, case_insensitive) {
                (false, false) => "~~",
                (true, false) => "!~~",
                (false, true) => "~~*",
                (true, true) => "!~~*",
            };
            operate(name, *expr, *pattern, schema)?
        }
        Expr::Case(Case { expr: Some(operand), when_then_expr, else_expr }) => {
            let mut branches = Vec::with_capacity(when_then_expr.len());
            for (when, then) in when_then_expr {
                let test = operate("=", copied(&operand)?, *when, schema)?;
                branches.push((Box::new(test), then));
            }
            Expr::Case(one_type(Case { expr: None, when_then_expr: branches, else_expr }, schema)?)
        }
        Expr::Case(case) => Expr::Case(one_type(case, schema)?),
        Expr::WindowFunction(window) => {
            let mut window: WindowFunction = *window;
            check::frame(&window, schema)?;
            for key in &mut window.params.partition_by {
                *key = sortable(std::mem::take(key), schema)?;
            }
            sort_by_keys(&mut window.params.order_by, schema)?;
            Expr::WindowFunction(Box::new(window))
        }
        Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
            sort_by_keys(&mut params.order_by, schema)?;
            Expr::AggregateFunction(AggregateFunction { func, params })
        }
        other => return Ok(Transformed::no(other)),
    }))
}

/// An expression that is written like a function.
fn expression(name: &str, args: Vec<Expr>, schema: &DFSchema) -> DataFusionResult<Expr> {
    if let ("nullif", [value, other]) = (name, args.as_slice()) {
        let test = operate("=", copied(value)?, other.clone(), schema)?;
        let null = Expr::Literal(ScalarValue::Null, None);
        return Ok(Expr::Case(Case {
            expr: None,
            when_then_expr: vec![(Box::new(test), Box::new(null))],
            else_expr: Some(Box::new(value.clone())),
        }));
    }
    let theirs = TEMPLATE.scalar_functions().get(name).cloned();
    let func = theirs.ok_or_else(|| carried(SqlError::internal("DataFusion knows the expression")))?;
    Ok(Expr::ScalarFunction(ScalarFunction::new_udf(func, common(args, schema)?)))
}

/// The largest expression that is copied: expressions within each other that each copy their operand would grow without bound.
const MOST_COPIED: usize = 300;

/// The operand once more, for an expression that is written out with it twice.
fn copied(operand: &Expr) -> DataFusionResult<Expr> {
    let mut nodes = 0;
    operand.apply(|_| {
        nodes += 1;
        Ok(if nodes > MOST_COPIED { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if nodes > MOST_COPIED { Err(refused("so large an operand")) } else { Ok(operand.clone()) }
}

/// CASE with results of one type.
fn one_type(case: Case, schema: &DFSchema) -> DataFusionResult<Case> {
    let Case { expr, when_then_expr, else_expr } = case;
    let (tests, mut results): (Vec<_>, Vec<_>) =
        when_then_expr.into_iter().map(|(when, then)| (when, *then)).unzip();
    let has_else = else_expr.is_some();
    results.extend(else_expr.map(|result| *result));
    let mut results = common(results, schema)?;
    let else_expr = if has_else { results.pop().map(Box::new) } else { None };
    let when_then_expr = tests.into_iter().zip(results.into_iter().map(Box::new)).collect();
    Ok(Case { expr, when_then_expr, else_expr })
}

/// The values converted to the type that PostgreSQL finds for all of them.
fn common(values: Vec<Expr>, schema: &DFSchema) -> DataFusionResult<Vec<Expr>> {
    let mut types = Vec::with_capacity(values.len());
    let mut arrow = Vec::with_capacity(values.len());
    for value in &values {
        types.push(operand_type(value, schema)?);
        arrow.push(value.get_type(schema)?);
    }
    let untyped = |ty: &Type| ty.id == TypeId::Unknown;
    arrow.retain(|data_type| *data_type != DataType::Null);
    if !types.iter().any(untyped) && arrow.windows(2).all(|pair| pair[0] == pair[1]) {
        return Ok(values);
    }
    let ty = call::common(&types).map_err(carried)?;
    let wanted = mapping::arrow_type(ty).map_err(carried)?;
    values
        .into_iter()
        .zip(types)
        .map(|(value, from)| {
            if untyped(&from) && settled_early(&value, ty) {
                return typed(value, ty).map_err(carried);
            }
            let given = value.get_type(schema)?;
            if given == wanted {
                return Ok(value);
            }
            if from.id == ty.id {
                return Ok(Expr::Cast(Cast::new(Box::new(value), wanted.clone())));
            }
            Call::cast(from, ty).and_then(|call| call.expr(vec![value])).map_err(carried)
        })
        .collect()
}

fn written_cast(operand: Expr, to: &DataType, schema: &DFSchema) -> DataFusionResult<Expr> {
    // A numeric without precision comes as this one.
    let to = match to {
        DataType::Decimal128(38, 10) => Type::new(TypeId::Numeric),
        DataType::Decimal128(precision, scale) => Type::numeric(u16::from(*precision), i16::from(*scale)),
        other => mapping::sql_type(other).map_err(carried)?,
    };
    if matches!(&operand, Expr::Placeholder(placeholder) if placeholder.field.is_none()) {
        return settle(operand, to).map_err(carried);
    }
    let from = operand_type(&operand, schema)?;
    if from.id == to.id && matches!(to.id, TypeId::Int2 | TypeId::Int4 | TypeId::Int8) {
        // DataFusion's counts are integers without a sign.
        return Ok(Expr::Cast(Cast::new(Box::new(operand), mapping::arrow_type(to).map_err(carried)?)));
    }
    Call::cast(from, to).and_then(|call| call.expr(vec![operand])).map_err(carried)
}

/// `expr IN (list)`.
fn one_of(expr: Expr, list: Vec<Expr>, negated: bool, schema: &DFSchema) -> DataFusionResult<Expr> {
    if let Some(literals) = literals_like(&expr, &list, schema)? {
        return Ok(Expr::InList(InList { expr: Box::new(expr), list: literals, negated }));
    }
    let name = if negated { "<>" } else { "=" };
    let mut tests = list
        .into_iter()
        .map(|item| operate(name, copied(&expr)?, item, schema))
        .collect::<DataFusionResult<Vec<_>>>()?;
    // Joined by pairs: DataFusion walks expressions by recursion, and a list may be long.
    while tests.len() > 1 {
        let mut joined = Vec::with_capacity(tests.len().div_ceil(2));
        let mut rest = tests.into_iter();
        while let Some(left) = rest.next() {
            joined.push(match rest.next() {
                None => left,
                Some(right) if negated => left.and(right),
                Some(right) => left.or(right),
            });
        }
        tests = joined;
    }
    tests.pop().ok_or_else(|| carried(SqlError::syntax("syntax error: IN with an empty list")))
}

/// The list, if it is of literals that Arrow compares with the operand as PostgreSQL does.
fn literals_like(expr: &Expr, list: &[Expr], schema: &DFSchema) -> DataFusionResult<Option<Vec<Expr>>> {
    let given = expr.get_type(schema)?;
    if !mapping::compares_alike(&given) {
        return Ok(None);
    }
    let mut literals = Vec::with_capacity(list.len());
    for item in list {
        let test = operate("=", Expr::Literal(ScalarValue::try_from(&given)?, None), item.clone(), schema)?;
        match test {
            Expr::BinaryExpr(BinaryExpr { right, .. }) if matches!(*right, Expr::Literal(..)) => {
                literals.push(*right);
            }
            _ => return Ok(None),
        }
    }
    Ok(Some(literals))
}

fn sort_by_keys(order: &mut [Sort], schema: &DFSchema) -> DataFusionResult<()> {
    for sort in order {
        sort.expr = sortable(std::mem::take(&mut sort.expr), schema)?;
    }
    Ok(())
}

/// The expression, or its key if Arrow orders its type otherwise.
fn sortable(expr: Expr, schema: &DFSchema) -> DataFusionResult<Expr> {
    let data_type = expr.get_type(schema)?;
    if mapping::compares_alike(&data_type) {
        return Ok(expr);
    }
    let ty = mapping::sql_type(&data_type).map_err(carried)?;
    Call::key(ty).and_then(|call| call.expr(vec![expr])).map_err(carried)
}

/// Checked arithmetic on integers.
fn arithmetic(expr: Expr, schema: &DFSchema) -> DataFusionResult<Transformed<Expr>> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return Ok(Transformed::no(expr)) };
    let arithmetic =
        [Operator::Plus, Operator::Minus, Operator::Multiply, Operator::Divide, Operator::Modulo];
    if arithmetic.contains(&op) && left.get_type(schema)?.is_integer() {
        let udf = ScalarUDF::new_from_impl(Checked::new(op));
        let call = ScalarFunction::new_udf(Arc::new(udf), vec![*left, *right]);
        return Ok(Transformed::yes(Expr::ScalarFunction(call)));
    }
    Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })))
}

/// Integer arithmetic that fails on overflow.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    operator: Operator,
    signature: Signature,
}

impl Checked {
    fn new(operator: Operator) -> Checked {
        Checked { operator, signature: Signature::any(2, Volatility::Immutable) }
    }

    fn compute(&self, left: &ArrayRef, right: &ArrayRef) -> DataFusionResult<ArrayRef> {
        use datafusion::arrow::error::ArrowError;
        let result = match self.operator {
            Operator::Plus => numeric::add(left, right),
            Operator::Minus => numeric::sub(left, right),
            Operator::Multiply => numeric::mul(left, right),
            Operator::Divide => numeric::div(left, right),
            _ => numeric::rem(left, right),
        };
        result.map_err(|error| match error {
            ArrowError::ArithmeticOverflow(_) => {
                let name = mapping::sql_type(left.data_type()).map_or("integer", |ty| ty.id.sql_name());
                carried(SqlError::out_of_range(name))
            }
            ArrowError::DivideByZero => carried(SqlError::division_by_zero()),
            other => other.into(),
        })
    }
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        match self.operator {
            Operator::Plus => "checked_add",
            Operator::Minus => "checked_subtract",
            Operator::Multiply => "checked_multiply",
            Operator::Divide => "checked_divide",
            _ => "checked_remainder",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> DataFusionResult<DataType> {
        Ok(arguments.first().cloned().unwrap_or(DataType::Int64))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let columns = ColumnarValue::values_to_arrays(&arguments.args)?;
        let [left, right] = columns.as_slice() else {
            return Err(DataFusionError::Internal("an operator has two operands".to_owned()));
        };
        Ok(ColumnarValue::Array(self.compute(left, right)?))
    }
}
