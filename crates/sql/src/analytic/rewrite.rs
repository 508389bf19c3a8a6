//! PostgreSQL's rules where Arrow's differ, put into the logical plan before anything else sees it.
//!
//! - An integer literal that fits is int4, as PostgreSQL types it; DataFusion makes all int8.
//! - `+`, `-` and `*` on integers fail on overflow; DataFusion's wrap around.
//! - `sum(int8)` is numeric; `avg` of integers is numeric. DataFusion wraps and makes floats.
//!
//! A division of numerics is refused: PostgreSQL chooses its scale by the values' digits.

use std::sync::Arc;

use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, WindowFunctionDefinition,
};
use datafusion::optimizer::analyzer::Analyzer;

use super::failure;
use super::planner::TEMPLATE;
use crate::error::{Result, SqlError};

/// The plan with PostgreSQL's rules, type-coerced.
pub(super) fn apply(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = each_node(plan, &|expr, schema| aggregate(literal(expr)?, schema))?;
    let plan =
        Analyzer::new().execute_and_check(plan, TEMPLATE.config_options(), |_, _| {}).map_err(failure)?;
    each_node(plan, &arithmetic)
}

type Rule<'a> = &'a dyn Fn(Expr, &DFSchema) -> DataFusionResult<Transformed<Expr>>;

fn each_node(plan: LogicalPlan, rule: Rule<'_>) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        if matches!(node, LogicalPlan::Limit(_) | LogicalPlan::TableScan(_) | LogicalPlan::Values(_)) {
            return Ok(Transformed::no(node));
        }
        let mut schema = DFSchema::empty();
        for input in node.inputs() {
            schema.merge(input.schema());
        }
        // Whoever refers to an expression from above does so by its name.
        let changed = node.map_expressions(|expr| {
            let name = expr.schema_name().to_string();
            let mut result = expr.transform_up(|inner| rule(inner, &schema))?;
            if result.transformed && result.data.schema_name().to_string() != name {
                result.data = result.data.alias(name);
            }
            Ok(result)
        })?;
        changed.map_data(LogicalPlan::recompute_schema)
    })
    .data()
    .map_err(failure)
}

/// Integer literals as PostgreSQL types them.
fn literal(expr: Expr) -> DataFusionResult<Expr> {
    Ok(match expr {
        Expr::Literal(ScalarValue::Int64(Some(value)), metadata) => match i32::try_from(value) {
            Ok(small) => Expr::Literal(ScalarValue::Int32(Some(small)), metadata),
            Err(_) => Expr::Literal(ScalarValue::Int64(Some(value)), metadata),
        },
        other => other,
    })
}

/// Result types of sum and avg.
fn aggregate(expr: Expr, schema: &DFSchema) -> DataFusionResult<Transformed<Expr>> {
    match expr {
        Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
            let changed = widen(func.name(), &mut params.args, schema)?;
            let expr = Expr::AggregateFunction(AggregateFunction { func, params });
            Ok(if changed { Transformed::yes(expr) } else { Transformed::no(expr) })
        }
        Expr::WindowFunction(window) => {
            let WindowFunction { fun, mut params } = *window;
            let changed = match &fun {
                WindowFunctionDefinition::AggregateUDF(func) => widen(func.name(), &mut params.args, schema)?,
                WindowFunctionDefinition::WindowUDF(_) => false,
            };
            let expr = Expr::WindowFunction(Box::new(WindowFunction { fun, params }));
            Ok(if changed { Transformed::yes(expr) } else { Transformed::no(expr) })
        }
        other => Ok(Transformed::yes(other)),
    }
}

/// Casts the argument of `sum` and `avg` so that the result has PostgreSQL's type.
fn widen(name: &str, arguments: &mut [Expr], schema: &DFSchema) -> DataFusionResult<bool> {
    let [argument] = arguments else { return Ok(false) };
    let target = match (name, argument.get_type(schema)?) {
        ("sum", DataType::Int64) => DataType::Decimal128(38, 0),
        ("avg", DataType::Int16 | DataType::Int32 | DataType::Int64) => DataType::Decimal128(34, 12),
        _ => return Ok(false),
    };
    let old = std::mem::replace(argument, Expr::Literal(ScalarValue::Null, None));
    *argument = Expr::Cast(datafusion::logical_expr::Cast::new(Box::new(old), target));
    Ok(true)
}

/// Checked arithmetic on integers; no division of numerics.
fn arithmetic(expr: Expr, schema: &DFSchema) -> DataFusionResult<Transformed<Expr>> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return Ok(Transformed::no(expr)) };
    let left_type = left.get_type(schema)?;
    if matches!(op, Operator::Divide | Operator::Modulo)
        && matches!(left_type, DataType::Decimal128(..) | DataType::Decimal256(..))
    {
        let refused = SqlError::unsupported("division of numerics in this kind of query");
        return Err(DataFusionError::External(Box::new(refused)));
    }
    if matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply) && left_type.is_integer() {
        let udf = ScalarUDF::new_from_impl(Checked::new(op));
        return Ok(Transformed::yes(Expr::ScalarFunction(
            datafusion::logical_expr::expr::ScalarFunction::new_udf(Arc::new(udf), vec![*left, *right]),
        )));
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
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        match self.operator {
            Operator::Plus => "checked_add",
            Operator::Minus => "checked_subtract",
            _ => "checked_multiply",
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
        let result = match self.operator {
            Operator::Plus => numeric::add(left, right)?,
            Operator::Minus => numeric::sub(left, right)?,
            _ => numeric::mul(left, right)?,
        };
        Ok(ColumnarValue::Array(result))
    }
}
