//! What is refused by name, because DataFusion would not do it as PostgreSQL does, or not with the stack there is.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    BinaryExpr, Distinct, Expr, ExprSchemable, LogicalPlan, Operator, WindowFrameBound, WindowFrameUnits,
};

use super::call::carried;
use super::rewrite::input_schema;
use super::{failure, mapping};
use crate::error::{Result, SqlError};

pub(super) fn refused(what: impl std::fmt::Display) -> DataFusionError {
    carried(SqlError::unsupported(format!("{what} in this kind of query")))
}

/// The most expressions in a plan. DataFusion chains conditions up and walks the chains by recursion, which
/// [`STACK_BYTES`](super::runtime::STACK_BYTES) of stack must suffice for.
const MOST_EXPRESSIONS: usize = 10_000;

/// 0A000 for plans of more expressions than [`MOST_EXPRESSIONS`].
pub(super) fn size(plan: &LogicalPlan) -> Result<()> {
    let mut count = 0;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|inner| {
                count += 1;
                // However long, a list is one set.
                let list = matches!(inner, Expr::InList(_));
                Ok(if list { TreeNodeRecursion::Jump } else { TreeNodeRecursion::Continue })
            })
        })
    })
    .map_err(failure)?;
    if count <= MOST_EXPRESSIONS {
        return Ok(());
    }
    Err(SqlError::unsupported(format!(
        "a query of {count} expressions on the analytic executor, where {MOST_EXPRESSIONS} are allowed,"
    )))
}

/// 0A000 for what DataFusion would not do as PostgreSQL does.
pub(super) fn meaning(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        let schema = input_schema(node);
        match node {
            LogicalPlan::Aggregate(aggregate) => {
                for expr in &aggregate.group_expr {
                    let inner = match expr {
                        Expr::GroupingSet(set) => set.distinct_expr().into_iter().cloned().collect(),
                        other => vec![other.clone()],
                    };
                    inner.iter().try_for_each(|key| distinguishable(&key.get_type(&schema)?))?;
                }
            }
            LogicalPlan::Distinct(Distinct::All(input)) => {
                input.schema().fields().iter().try_for_each(|field| distinguishable(field.data_type()))?;
            }
            LogicalPlan::Distinct(Distinct::On(on)) => {
                on.on_expr.iter().try_for_each(|key| distinguishable(&key.get_type(&schema)?))?;
            }
            LogicalPlan::Join(join) => {
                for (left, right) in &join.on {
                    distinguishable(&left.get_type(join.left.schema())?)?;
                    distinguishable(&right.get_type(join.right.schema())?)?;
                }
            }
            _ => {}
        }
        node.apply_expressions(|expr| {
            check_expr(expr, &schema, false)?;
            Ok(TreeNodeRecursion::Continue)
        })
    })
    .map_err(failure)?;
    Ok(())
}

fn distinguishable(data_type: &DataType) -> DataFusionResult<()> {
    if mapping::compares_alike(data_type) {
        return Ok(());
    }
    let name = mapping::sql_type(data_type).map_err(carried)?.id.sql_name();
    let name = if *data_type == DataType::LargeUtf8 { "numeric without a declared scale" } else { name };
    Err(refused(format!("grouping or comparing by type {name}")))
}

/// `compared`: the value is only compared, so a numeric's scale does not matter.
fn check_expr(expr: &Expr, schema: &DFSchema, compared: bool) -> DataFusionResult<()> {
    let mut within = false;
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(*op) => {
            within = true;
            distinguishable(&left.get_type(schema)?)?;
            distinguishable(&right.get_type(schema)?)?;
        }
        Expr::InSubquery(subquery) => distinguishable(&subquery.expr.get_type(schema)?)?,
        Expr::Cast(cast) if !compared => {
            added_cast(&cast.expr, &cast.expr.get_type(schema)?, cast.field.data_type())?;
        }
        Expr::ScalarFunction(function) if matches!(function.name(), "greatest" | "least") => {
            function.args.iter().try_for_each(|argument| distinguishable(&argument.get_type(schema)?))?;
        }
        Expr::AggregateFunction(aggregate) => {
            let name = aggregate.func.name();
            if matches!(name, "first_value" | "last_value" | "nth_value") {
                return Err(refused(format!("function {name} without OVER")));
            }
            if aggregate.params.distinct && name == "count" {
                let arguments = &aggregate.params.args;
                arguments.iter().try_for_each(|argument| distinguishable(&argument.get_type(schema)?))?;
            }
        }
        _ => {}
    }
    expr.apply_children(|child| {
        check_expr(child, schema, within)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn compares(operator: Operator) -> bool {
    use Operator as O;
    let is_distinct = matches!(operator, O::IsDistinctFrom | O::IsNotDistinctFrom);
    is_distinct || matches!(operator, O::Eq | O::NotEq | O::Lt | O::LtEq | O::Gt | O::GtEq)
}

/// A conversion that DataFusion added.
fn added_cast(operand: &Expr, from: &DataType, to: &DataType) -> DataFusionResult<()> {
    let constant = matches!(operand, Expr::Literal(..));
    let text = |ty: &DataType| matches!(ty, DataType::Utf8 | DataType::LargeUtf8);
    let allowed = from == to
        || *from == DataType::Null
        || match (from, to) {
            (DataType::Utf8, _) => constant,
            (DataType::LargeUtf8, _) => false,
            (DataType::Decimal128(..), DataType::LargeUtf8) => true,
            (_, DataType::LargeUtf8) => from.is_integer(),
            (_, to) if text(to) => false,
            (DataType::Decimal128(_, before), DataType::Decimal128(_, after)) => before == after,
            (from, DataType::Decimal128(_, scale)) => from.is_integer() && *scale == 0,
            _ => true,
        };
    if allowed { Ok(()) } else { Err(refused(format!("an implicit conversion from {from} to {to}"))) }
}

/// A distance between values means nothing on the keys that some types sort by.
pub(super) fn frame(window: &WindowFunction, schema: &DFSchema) -> DataFusionResult<()> {
    let frame = &window.params.window_frame;
    let by_distance = [&frame.start_bound, &frame.end_bound].into_iter().any(|bound| match bound {
        WindowFrameBound::CurrentRow => false,
        WindowFrameBound::Preceding(offset) | WindowFrameBound::Following(offset) => !offset.is_null(),
    });
    if frame.units != WindowFrameUnits::Range || !by_distance {
        return Ok(());
    }
    for key in &window.params.order_by {
        if !mapping::compares_alike(&key.expr.get_type(schema)?) {
            return Err(refused("RANGE with an offset over such a type"));
        }
    }
    Ok(())
}
