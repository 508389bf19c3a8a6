//! What indexes and their parts can do: `pg_index_has_property` and its like.
//!
//! All indexes are stored in order and can do the same, also those that are told as hash. What is
//! not asked of the kind of thing that it is asked of is NULL, as in PostgreSQL's `amutils.c`.

use super::super::Source;
use super::super::relation::{BTREE, HASH};
use super::{integer, oid, over_catalog, plain, text};
use crate::catalog::{Index, Relation};
use crate::error::Result;
use crate::function::{EvalContext, Function};
use crate::types::Datum;
use crate::types::TypeId::{Bool, Int4, Oid, Regclass, Text};

pub(super) static FUNCTIONS: &[Function] = &[
    plain(636, "pg_indexam_has_property", &[Oid, Text], Bool, of_method),
    over_catalog!(637, "pg_index_has_property", &[Regclass, Text], Bool, of_index),
    over_catalog!(638, "pg_index_column_has_property", &[Regclass, Int4, Text], Bool, of_column),
];

fn truth(value: Option<bool>) -> Result<Datum> {
    Ok(value.map_or(Datum::Null, Datum::Bool))
}

/// The property that is asked for, which is the last argument.
fn property(arguments: &[Datum]) -> String {
    text(arguments, arguments.len() - 1).to_ascii_lowercase()
}

fn of_method(arguments: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    let can = ["can_order", "can_unique", "can_multi_col", "can_exclude", "can_include"];
    let property = property(arguments);
    let is_known = can.contains(&property.as_str());
    truth(match oid(arguments, 0) {
        BTREE => is_known.then_some(true),
        HASH => is_known.then_some(property == "can_exclude"),
        _ => None,
    })
}

fn index<'a>(source: &Source<'a>, oid: u32) -> Option<&'a Index> {
    match source.catalog.relation_by_oid(oid)? {
        Relation::Index(table, oid) => table.index(*oid),
        _ => None,
    }
}

fn of_index(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let can = ["clusterable", "index_scan", "bitmap_scan", "backward_scan"];
    let is_index = index(source, oid(arguments, 0)).is_some();
    truth((is_index && can.contains(&property(arguments).as_str())).then_some(true))
}

fn of_column(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let Some(index) = index(source, oid(arguments, 0)) else { return truth(None) };
    let place = usize::try_from(integer(arguments, 1) - 1).ok();
    let Some(place) = place.filter(|&place| place < index.shown().count()) else { return truth(None) };
    // A column of INCLUDE is no part of the key.
    let part = index.columns.get(place);
    truth(match (property(arguments).as_str(), part) {
        ("asc", Some(part)) => Some(!part.descending),
        ("desc", Some(part)) => Some(part.descending),
        ("nulls_first", Some(part)) => Some(part.nulls_first),
        ("nulls_last", Some(part)) => Some(!part.nulls_first),
        ("search_array" | "search_nulls", Some(_)) => Some(true),
        ("orderable", part) => Some(part.is_some()),
        ("distance_orderable", _) => Some(false),
        ("returnable", _) => Some(true),
        _ => None,
    })
}
