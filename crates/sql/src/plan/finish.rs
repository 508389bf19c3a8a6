//! What comes on top of a query's rows: DISTINCT, the sort, LIMIT, conversions.

use super::Node;
use super::estimate::{limit_rows, sort_cost};
use super::planner::Planned;
use crate::bind::SortKey;
use crate::expr::{Expr, SubqueryBody};
use crate::types::cast::Cast;

/// Without rows that equal another one in these columns.
pub(super) fn distinct(planned: Planned, columns: Vec<usize>) -> Planned {
    Planned {
        cost: planned.cost + planned.rows * 0.4,
        rows: (planned.rows * 0.5).max(1.0),
        node: Node::Distinct { input: Box::new(planned.node), columns },
    }
}

/// With a sort on top, if there is an order.
pub(super) fn sorted(
    planned: Planned,
    keys: Vec<SortKey>,
    limit: Option<&Expr>,
    offset: Option<&Expr>,
) -> Planned {
    if keys.is_empty() {
        return planned;
    }
    // Who applies them evaluates them, too: the sort may do so only where that changes nothing.
    let stays = |expr: &Expr| !expr.is_volatile() && !expr.any(&mut is_run_each_time);
    let is_known = limit.is_some_and(stays) && offset.is_none_or(stays);
    let limit = limit.filter(|_| is_known).map(|limit| (limit.clone(), offset.cloned()));
    Planned {
        cost: planned.cost + sort_cost(planned.rows),
        rows: planned.rows,
        node: Node::Sort { input: Box::new(planned.node), keys, limit },
    }
}

/// A subquery that is run whenever it is asked for, whatever it calls.
fn is_run_each_time(expr: &Expr) -> bool {
    match expr {
        Expr::Subquery(subquery) => !matches!(subquery.body, SubqueryBody::Planned { cache: Some(_), .. }),
        _ => false,
    }
}

/// With LIMIT and OFFSET on top, if there are any. Rows that equal the last one in `ties` come too.
pub(super) fn limited(
    planned: Planned,
    limit: Option<Expr>,
    offset: Option<Expr>,
    ties: Vec<usize>,
) -> Planned {
    if limit.is_none() && offset.is_none() {
        return planned;
    }
    let rows = limit_rows(limit.as_ref(), None).map_or(planned.rows, |limit| limit.min(planned.rows));
    let node = Node::Limit { input: Box::new(planned.node), limit, offset, ties };
    Planned { rows, cost: planned.cost, node }
}

/// With conversions on top, and without hidden columns.
pub(super) fn converted(
    planned: Planned,
    mut casts: Vec<Option<Cast>>,
    visible: usize,
    width: usize,
) -> Planned {
    if casts.iter().all(Option::is_none) && visible == width {
        return planned;
    }
    casts.resize(visible, None);
    Planned { node: Node::Convert { input: Box::new(planned.node), casts }, ..planned }
}
