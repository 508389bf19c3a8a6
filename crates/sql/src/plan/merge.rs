//! Merge joins: which hash joins need no table, since both sides come in the order of the keys.
//!
//! A table is read in the order of its primary key. If the join's keys are all of one side's
//! primary key, and on the other side the first columns of its own, both scans walk side by side:
//!
//! ```text
//! orders (id) JOIN lines (order, number) ON lines.order = orders.id      outer: lines, inner: orders
//! ```

use super::access::{AccessKind, Scan};
use super::{HashJoin, MergeJoin, SourceNode};
use crate::catalog::{Index, IndexColumn};
use crate::expr::Expr;
use crate::function::operator::Comparison;
use crate::types::TypeId;

/// A hash join as a merge join, if it can be one.
pub(super) fn merged(join: HashJoin) -> SourceNode {
    let (SourceNode::Scan(probe), SourceNode::Scan(build)) = (&join.probe, &join.build) else {
        return SourceNode::HashJoin(Box::new(join));
    };
    if join.full {
        return SourceNode::HashJoin(Box::new(join));
    }
    if let Some(order) = meeting(probe, &join.probe_keys, build, &join.build_keys) {
        return merge(join, &order);
    }
    // An outer row of a left join stays, so the sides cannot be exchanged.
    match meeting(build, &join.build_keys, probe, &join.probe_keys).filter(|_| !join.left) {
        Some(order) => {
            let HashJoin { probe, build, probe_keys, build_keys, build_slots, probe_slots, .. } = join;
            let exchanged = HashJoin {
                probe: build,
                build: probe,
                probe_keys: build_keys,
                build_keys: probe_keys,
                build_slots: probe_slots,
                probe_slots: build_slots,
                ..join
            };
            merge(exchanged, &order)
        }
        None => SourceNode::HashJoin(Box::new(join)),
    }
}

/// The join whose probe side is the outer one. `order` names those of its keys that the sides are
/// in the order of.
fn merge(join: HashJoin, order: &[usize]) -> SourceNode {
    let HashJoin { probe, build, probe_keys, build_keys, mut on, build_slots, left, .. } = join;
    let places = |place: &usize| match (&probe_keys[*place], &build_keys[*place]) {
        (Expr::Slot(outer), Expr::Slot(inner)) => Some((*outer, *inner)),
        _ => None,
    };
    let keys = order.iter().filter_map(places).collect();
    let rest = probe_keys.iter().zip(&build_keys).enumerate().filter(|(place, _)| !order.contains(place));
    let rest = rest.map(|(_, (outer, inner))| Expr::compare(Comparison::Equal, outer.clone(), inner.clone()));
    on.splice(0..0, rest.collect::<Vec<_>>());
    SourceNode::MergeJoin(Box::new(MergeJoin {
        outer: probe,
        inner: build,
        keys,
        on,
        inner_slots: build_slots,
        left,
    }))
}

/// For each column of the inner side's primary key the join's key that is it; none unless they are
/// the first columns of the outer side's primary key too, and both sides come in its order.
fn meeting(outer: &Scan, outer_keys: &[Expr], inner: &Scan, inner_keys: &[Expr]) -> Option<Vec<usize>> {
    let (outer_index, inner_index) = (key_order(outer)?, key_order(inner)?);
    let place = |(number, inner_column): (usize, &IndexColumn)| {
        let outer_column = outer_index.columns.get(number)?;
        let (outer_place, inner_place) = (outer_column.key.column()?, inner_column.key.column()?);
        let types = (type_of(outer, outer_place), type_of(inner, inner_place));
        let ascending = !outer_column.descending && !inner_column.descending;
        if !ascending || !have_one_order(types.0, types.1) {
            return None;
        }
        outer_keys.iter().zip(inner_keys).position(|(outer_key, inner_key)| {
            column_at(outer, outer_key) == Some(outer_place)
                && column_at(inner, inner_key) == Some(inner_place)
        })
    };
    inner_index.columns.iter().enumerate().map(place).collect()
}

/// The primary key in whose order a scan gives its rows.
fn key_order(scan: &Scan) -> Option<&Index> {
    let access = &scan.access;
    let by_table = matches!(access.kind, AccessKind::Table) && !access.reverse && !access.unique;
    let one_range = access.parts.iter().all(|part| part.is_single());
    scan.table.primary_key().filter(|index| by_table && one_range && index.is_clustered())
}

/// The column that a scan puts into the place an expression reads.
fn column_at(scan: &Scan, expr: &Expr) -> Option<usize> {
    let Expr::Slot(slot) = expr else { return None };
    scan.columns.iter().find(|column| column.slot == *slot).map(|column| column.column)
}

fn type_of(scan: &Scan, column: usize) -> TypeId {
    scan.table.columns[column].ty.id
}

/// Whether values of both types compare with each other as their keys order.
fn have_one_order(a: TypeId, b: TypeId) -> bool {
    use TypeId::{
        Bool, Bpchar, Bytea, Date, Int2, Int4, Int8, Name, Numeric, Oid, Text, Time, Timestamp, Timestamptz,
        Uuid, Varchar,
    };
    let is_integer = |ty: TypeId| matches!(ty, Int2 | Int4 | Int8);
    let is_text = |ty: TypeId| matches!(ty, Text | Varchar | Name);
    let others =
        matches!(a, Bool | Bpchar | Bytea | Date | Numeric | Oid | Time | Timestamp | Timestamptz | Uuid);
    is_integer(a) && is_integer(b) || is_text(a) && is_text(b) || others && a == b
}
