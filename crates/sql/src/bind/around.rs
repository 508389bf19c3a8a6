//! Queries that are put around a bound query.

use super::group::place_results;
use super::select::output_column;
use super::{Body, Distinct, From, Query, Select, SlotPart, Source};
use crate::expr::{Expr, Typed};
use crate::session::OutputColumn;
use crate::types::{Datum, Type, TypeId};

/// A sorted SELECT with its volatile and set-returning outputs computed after the sort, and after
/// DISTINCT ON, as PostgreSQL does, for the rows that LIMIT asks for: `SELECT nextval('s') FROM t
/// ORDER BY a LIMIT 3` counts on by three, in the order of the rows, and `SELECT DISTINCT ON (a) a,
/// unnest(b) FROM t ORDER BY a, c` gives all elements of the first row of each `a`. What they need
/// of the row is handed up beside it.
pub(super) fn postpone_calls(mut query: Query) -> Query {
    let Body::Select(select) = &mut query.body else { return query };
    // Of what is tied with the last row nobody knows before how much there is.
    if query.order.is_empty() || query.ties {
        return query;
    }
    let is_plain = select.group.is_none()
        && select.windows.is_empty()
        && select.distinct != Distinct::All
        && select.locks.is_empty()
        && query.conversions.is_empty();
    let frame = select.slots.len();
    let is_sorted_by = |place: usize| match &select.distinct {
        Distinct::On(columns) if columns.contains(&place) => true,
        _ => query.order.iter().any(|key| key.column == place),
    };
    let has_set = |place: usize| {
        select.targets[place].expr.any(&mut |expr| matches!(expr, Expr::Slot(slot) if *slot >= frame))
    };
    // Sets are computed side by side: all of them after the sort, or none.
    let sets_first = (0..select.targets.len()).any(|place| is_sorted_by(place) && has_set(place));
    let late: Vec<usize> = (0..select.visible)
        .filter(|place| !is_sorted_by(*place))
        .filter(|place| select.targets[*place].expr.is_volatile() || has_set(*place))
        .collect();
    if !is_plain || sets_first || late.is_empty() {
        return query;
    }
    let mut sets = std::mem::take(&mut select.set_returning);
    let mut handed_up =
        HandedUp { frame, types: select.targets.iter().map(|target| target.ty).collect(), places: vec![] };
    for set in &mut sets {
        set.call.exprs_mut().iter_mut().for_each(|expr| handed_up.take(select, expr));
    }
    let mut targets = vec![];
    for place in 0..select.visible {
        let mut target = Typed::new(Expr::Slot(place), select.targets[place].ty);
        if late.contains(&place) {
            target.expr = std::mem::replace(&mut select.targets[place].expr, Expr::NULL);
            handed_up.take(select, &mut target.expr);
        }
        targets.push(target);
    }
    select.visible = select.targets.len();
    let types = handed_up.types;
    // The results of the sets come behind the new frame.
    for target in &mut targets {
        place_results(&mut target.expr, types.len(), 0);
    }
    // Rows that OFFSET skips are computed, too.
    let (limit, offset) = (query.limit.take(), query.offset.take());
    let columns = query.columns;
    query.columns = types.iter().map(|ty| output_column(String::new(), *ty)).collect();
    let mut query = wrap(query);
    if let Body::Select(select) = &mut query.body {
        select.visible = targets.len();
        select.targets = targets;
        select.set_returning = sets;
    }
    query.columns = columns;
    (query.limit, query.offset) = (limit, offset);
    query
}

/// What a query hands up to the one that is put around it: its columns are the places of the new
/// frame.
struct HandedUp {
    /// Number of places of the query's own frame; the results of its sets are behind it.
    frame: usize,
    /// Types of its columns.
    types: Vec<Type>,
    /// Which column a place of the old frame has become.
    places: Vec<(usize, usize)>,
}

impl HandedUp {
    /// Makes an expression over the query's frame one over the frame around it.
    fn take(&mut self, select: &mut Select, expr: &mut Expr) {
        expr.replace_references(0, &mut |depth, slot| {
            if let Some(set) = slot.checked_sub(self.frame) {
                return Some(Expr::SetResult(set));
            }
            let known = self.places.iter().find(|(from, _)| *from == slot).map(|(_, column)| *column);
            let column = known.unwrap_or_else(|| {
                let slot_type = select.slots[slot].ty;
                select.targets.push(Typed::new(Expr::Slot(slot), slot_type));
                self.types.push(slot_type);
                self.places.push((slot, self.types.len() - 1));
                self.types.len() - 1
            });
            Some(if depth == 0 { Expr::Slot(column) } else { Expr::Outer { depth, slot: column } })
        });
    }
}

/// `SELECT *, true FROM source`: the last column says that there is a row. Its name is the one that
/// messages have for a whole row. The source is a query, a WITH query or functions, and of these
/// types without that column.
pub(super) fn with_presence(source: Source, types: &[Type]) -> Query {
    let mut query = match source {
        Source::Query(query) => wrap(*query),
        mut source => {
            if let Source::Function(function) = &mut source {
                // Their arguments are one query further in now.
                function.call.exprs_mut().iter_mut().for_each(|expr| expr.raise(0, 1));
            }
            all_of(source, types.iter().map(|ty| output_column(String::new(), *ty)).collect())
        }
    };
    if let Body::Select(select) = &mut query.body {
        select.targets.push(Typed::new(Expr::Constant(Datum::Bool(true)), TypeId::Bool));
        select.visible += 1;
    }
    query.columns.push(output_column("*".to_owned(), TypeId::Bool.into()));
    query
}

/// `SELECT * FROM (query)`.
pub(super) fn wrap(mut query: Query) -> Query {
    // It is one query further in now.
    query.for_each_expr_mut(&mut |expr, nested| expr.raise(nested + 1, 1));
    let columns = query.columns.clone();
    all_of(Source::Query(Box::new(query)), columns)
}

/// `SELECT * FROM source`.
fn all_of(source: Source, columns: Vec<OutputColumn>) -> Query {
    let types: Vec<Type> = columns.iter().map(|column| column.ty).collect();
    let slots: Vec<super::Slot> = (types.iter().enumerate())
        .map(|(i, ty)| super::Slot { relation: 0, part: SlotPart::Column(i), ty: *ty })
        .collect();
    let select = Select {
        relations: vec![super::Relation {
            alias: String::new(),
            slots: (0..types.len()).map(Some).collect(),
            types: types.clone(),
            columns: Some(columns.iter().map(|column| column.name.clone()).collect()),
            source,
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
