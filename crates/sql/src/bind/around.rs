//! Queries that are put around a bound query.

use super::select::output_column;
use super::{Body, Distinct, From, Query, Select, SlotPart, Source};
use crate::expr::{Expr, Typed};
use crate::types::Type;

/// A sorted SELECT with its volatile outputs computed after the sort, for the rows that LIMIT asks for, as PostgreSQL does: `SELECT
/// nextval('s') FROM t ORDER BY a LIMIT 3` counts on by three, in the order of the rows. What they need of the row is handed up beside it.
pub(super) fn postpone_volatile(mut query: Query) -> Query {
    let Body::Select(select) = &mut query.body else { return query };
    let is_plain = select.group.is_none()
        && select.windows.is_empty()
        && select.set_returning.is_empty()
        && select.distinct == Distinct::No
        && select.locks.is_empty()
        && query.conversions.is_empty();
    let order = &query.order;
    let late: Vec<usize> = (0..select.visible)
        .filter(|place| select.targets[*place].expr.is_volatile())
        .filter(|place| order.iter().all(|key| key.column != *place))
        .collect();
    if !is_plain || order.is_empty() || late.is_empty() {
        return query;
    }
    // Places of the new frame: the columns below, in their order.
    let mut types: Vec<Type> = select.targets.iter().map(|target| target.ty).collect();
    let mut handed_up: Vec<(usize, usize)> = vec![];
    let mut targets = vec![];
    for place in 0..select.visible {
        let ty = types[place];
        if !late.contains(&place) {
            targets.push(Typed::new(Expr::Slot(place), ty));
            continue;
        }
        let mut expr = std::mem::replace(&mut select.targets[place].expr, Expr::NULL);
        expr.replace_references(0, &mut |depth, slot| {
            let known = handed_up.iter().find(|(from, _)| *from == slot).map(|(_, column)| *column);
            let column = known.unwrap_or_else(|| {
                let slot_type = select.slots[slot].ty;
                select.targets.push(Typed::new(Expr::Slot(slot), slot_type));
                types.push(slot_type);
                handed_up.push((slot, types.len() - 1));
                types.len() - 1
            });
            Some(if depth == 0 { Expr::Slot(column) } else { Expr::Outer { depth, slot: column } })
        });
        targets.push(Typed::new(expr, ty));
    }
    select.visible = select.targets.len();
    // Rows that OFFSET skips are computed, too.
    let (limit, offset) = (query.limit.take(), query.offset.take());
    let columns = query.columns;
    query.columns = types.iter().map(|ty| output_column(String::new(), *ty)).collect();
    let mut query = wrap(query);
    if let Body::Select(select) = &mut query.body {
        select.visible = targets.len();
        select.targets = targets;
    }
    query.columns = columns;
    (query.limit, query.offset) = (limit, offset);
    query
}

/// `SELECT * FROM (query)`.
pub(super) fn wrap(mut query: Query) -> Query {
    // It is one query further in now.
    query.for_each_expr_mut(&mut |expr, nested| expr.raise(nested + 1, 1));
    let columns = query.columns.clone();
    let types: Vec<Type> = columns.iter().map(|column| column.ty).collect();
    let slots: Vec<super::Slot> = (types.iter().enumerate())
        .map(|(i, ty)| super::Slot { relation: 0, part: SlotPart::Column(i), ty: *ty })
        .collect();
    let select = Select {
        relations: vec![super::Relation {
            alias: String::new(),
            slots: (0..types.len()).map(Some).collect(),
            types: types.clone(),
            source: Source::Query(Box::new(query)),
            key_slot: None,
            nullable: false,
        }],
        slots,
        from: vec![From::Relation(0)],
        visible: types.len(),
        targets: types.into_iter().enumerate().map(|(i, ty)| Typed::new(Expr::Slot(i), ty)).collect(),
        ..Select::default()
    };
    Query::of(Body::Select(Box::new(select)), columns)
}
