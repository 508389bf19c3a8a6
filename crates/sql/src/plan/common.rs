//! What several aggregates have in common, found so that it is computed once: a sum that is an
//! average's too, and parts of their arguments.
//!
//! Of arguments only operators count whose operands are computed whenever the aggregate takes a
//! row: nothing within CASE or behind a FILTER, where it might fail for rows it was kept from.
//!
//! ```text
//! sum(a * (1 - b)), sum(a * (1 - b) * (1 + c))     frame of a, b, c; behind it [3] = a * (1 - b)
//! sum([3]), sum([3] * (1 + c))
//! ```

use super::AggregateNode;
use crate::expr::{Expr, same};
use crate::types::TypeId;

/// Has averages use the states of sums over the same rows. Those of floats differ: a sum of float4
/// rounds at each step.
pub(super) fn share_sums(aggregates: &mut [AggregateNode]) {
    let name = |node: &AggregateNode| node.function.function.name;
    let exact = |node: &AggregateNode| {
        use TypeId::{Int2, Int4, Int8, Numeric};
        matches!(node.function.function.arguments, [Int2 | Int4 | Int8 | Numeric])
    };
    let sums: Vec<Option<usize>> = (aggregates.iter())
        .map(|average| {
            let volatile = average.arguments.iter().chain(&average.filter).any(Expr::is_volatile);
            let is_average =
                average.grouping.is_none() && name(average) == "avg" && exact(average) && !volatile;
            let is_its_sum = |sum: &AggregateNode| {
                sum.grouping.is_none()
                    && name(sum) == "sum"
                    && sum.distinct == average.distinct
                    && sum.order.is_empty()
                    && average.order.is_empty()
                    && same(&sum.arguments, &average.arguments)
                    && same(&sum.filter, &average.filter)
            };
            if is_average { aggregates.iter().position(is_its_sum) } else { None }
        })
        .collect();
    let has_state = |(node, sum): (&AggregateNode, &Option<usize>)| node.grouping.is_none() && sum.is_none();
    let states: Vec<usize> = (0..aggregates.len())
        .map(|place| aggregates.iter().zip(&sums).take(place).filter(|pair| has_state(*pair)).count())
        .collect();
    for (node, sum) in aggregates.iter_mut().zip(sums) {
        node.average_of = sum.map(|sum| states[sum]);
    }
}

/// Takes common parts out of the aggregates' arguments: what they are replaced by are the places
/// from `frame` on. A part refers to places before its own only.
pub(super) fn take_common(aggregates: &mut [AggregateNode], frame: usize) -> Vec<Expr> {
    let mut parts: Vec<(Expr, usize)> = vec![];
    for aggregate in aggregates.iter().filter(|aggregate| aggregate.filter.is_none()) {
        aggregate.arguments.iter().for_each(|argument| count(argument, &mut parts));
    }
    let mut common: Vec<Expr> =
        parts.into_iter().filter(|(_, times)| *times > 1).map(|(part, _)| part).collect();
    // What is part of another one is smaller.
    common.sort_by_key(size);
    let mut computed = common.clone();
    for part in &mut computed {
        part.for_each_child_mut(&mut |child| replace(child, &common, frame));
    }
    for aggregate in aggregates.iter_mut().filter(|aggregate| aggregate.filter.is_none()) {
        aggregate.arguments.iter_mut().for_each(|argument| replace(argument, &common, frame));
    }
    computed
}

/// Counts the operators that are computed with an expression. What is in a part that is known is
/// counted with that part.
fn count(expr: &Expr, parts: &mut Vec<(Expr, usize)>) {
    let Expr::Operator(call) = expr else { return };
    if expr.is_volatile() || expr.has_subquery() {
        return;
    }
    match parts.iter_mut().find(|(part, _)| same(part, expr)) {
        Some((_, times)) => *times += 1,
        None => {
            parts.push((expr.clone(), 1));
            count(&call.left, parts);
            count(&call.right, parts);
        }
    }
}

fn size(expr: &Expr) -> usize {
    let mut size = 0;
    expr.visit(&mut |_| size += 1);
    size
}

fn replace(expr: &mut Expr, common: &[Expr], frame: usize) {
    match common.iter().position(|part| same(part, &*expr)) {
        Some(place) => *expr = Expr::Slot(frame + place),
        None => expr.for_each_child_mut(&mut |child| replace(child, common, frame)),
    }
}
