//! A cycle of dependencies in words: what the victim of the certifier is told.
//!
//! ```text
//! DETAIL:  Cycle: 12 (this transaction) -rw-> 11: key (id)=(1) of table "account"; 11 -rw-> 12: range of index "account_owner".
//! HINT:  An immediate retry can succeed: the other transactions of the cycle have committed.
//! ```
//!
//! Where the serial order has to be one of real time, a step can say that alone:
//! `11 -real time-> 13: 11 had committed before 13 began`.
//!
//! Keys are parts of rows, also of rows that others have written: they are said to who may read the
//! columns, and others are told of the table alone.
//!
//! And what was read before, where the snapshot could not move past another's update for it.
//!
//! ```text
//! DETAIL:  What was read before has been replaced by transaction 11: key (id)=(1) of table "account".
//! ```
//!
//! A key that a statement meets in a table which it does not name is said, too.
//!
//! ```text
//! DETAIL:  Changed after the snapshot: key (id)=(2) of table "child".
//! ```
//!
//! At a node of a cluster all of them say of which node a transaction is, if it is another one:
//! `11 of node 2`. There, who meets such a transaction otherwise is told in one way.
//!
//! ```text
//! DETAIL:  Transaction 11 of node 2 was faster: key (id)=(1) of table "account".
//! ```
//!
//! Who is overtaken by one of its own node, such as one that all nodes execute, is told so.

use std::fmt::Write as _;
use std::ops::Bound;

use cognate_engine::{Cycle, Dependency, Edge, Object, StaleRead, TreeId, node_of};

use super::SqlDatabase;
use crate::catalog::{Catalog, Index, IndexKey, Oid, Privileges, Relation, Rights, Securable, Table};
use crate::error::{Met, SqlError, sqlstate};
use crate::keys;
use crate::oltp::index_maintenance::key_tree;
use crate::types::{Datum, FormatContext};

/// What can be done against first updater wins.
const RETRY: &str = "The transaction might succeed if retried.";
/// Transactions that are not known one by one.
const EARLIER: &str = "earlier transactions";
/// What a victim of the certifier is told.
const DEPENDENCIES: &str = "could not serialize access due to read/write dependencies among transactions";
/// What somebody is told whom a transaction of another node has overtaken, or one of this node.
const OVERTAKEN: &str = "could not serialize access due to a transaction of another node";
const OVERTAKEN_HERE: &str = "could not serialize access due to a transaction that was ordered before";

/// 40001 for a victim of the certifier.
#[cold]
pub(crate) fn dependency_failure(detail: String) -> SqlError {
    SqlError::new(sqlstate::SERIALIZATION_FAILURE, DEPENDENCIES)
        .with_detail(detail)
        .with_hint("An immediate retry can succeed: the other transactions of the cycle have committed.")
}

/// Whether a statement has failed for a row that is newer than its snapshot: not as a victim of the
/// certifier, for another node's transaction, or for a table that was changed.
pub(super) fn is_of_newer_row(error: &SqlError) -> bool {
    error.message.starts_with("could not serialize access due to concurrent ") && !error.is_of_gone_row
}

/// The number of the node that a database is; 0 if it is its own.
pub(super) fn own_node(database: &SqlDatabase) -> u16 {
    database.engine().node().map_or(0, |(number, _)| number)
}

/// Whether a transaction was another node's. In what was a database of its own once, none was.
pub(super) fn is_of_another(transaction: u64, own: u16) -> bool {
    own != 0 && ![0, own].contains(&node_of(transaction))
}

/// A transaction, with its node if that is another one.
fn told(transaction: u64, own: u16) -> String {
    match is_of_another(transaction, own) {
        true => format!("{transaction} of node {}", node_of(transaction)),
        false => transaction.to_string(),
    }
}

/// What who meets a faster transaction is told: which one, and where, if that is known.
fn faster(by: u64, own: Option<u16>, place: Option<&str>) -> String {
    let place = place.map_or_else(String::new, |place| format!(": {place}"));
    let by = own.map_or_else(|| format!("{by} of node {}", node_of(by)), |own| told(by, own));
    format!("Transaction {by} was faster{place}.")
}

/// 40001 for who was overtaken by a transaction that the order of all nodes has delivered, at this
/// place if it is known. `own` is the number of this node, if that is known.
#[cold]
pub(crate) fn overtaken(by: u64, own: Option<u16>, place: Option<&str>) -> SqlError {
    let is_own = own.is_some_and(|own| !is_of_another(by, own));
    let message = if is_own { OVERTAKEN_HERE } else { OVERTAKEN };
    SqlError::new(sqlstate::SERIALIZATION_FAILURE, message)
        .with_detail(faster(by, own, place))
        .with_hint(RETRY)
}

/// Whether somebody was overtaken, and the error may not say where.
pub(super) fn is_overtaken(error: &SqlError) -> bool {
    [OVERTAKEN, OVERTAKEN_HERE].contains(&error.message.as_str())
}

/// The same in terms of the catalog, for a reader of these rights; none may read everything.
#[cold]
pub(super) fn explain_overtaken(
    by: u64,
    own: u16,
    (tree, key): (TreeId, Option<&[u8]>),
    catalog: &Catalog,
    format: &FormatContext,
    reader: Option<&Rights>,
) -> SqlError {
    let (place, table) = place_of(tree, key, catalog, format, reader);
    let error = overtaken(by, Some(own), place.as_deref());
    match table {
        Some(table) => error.with_table(&table.schema_name, &table.name),
        None => error,
    }
}

/// 40001 for what is newer than the snapshot, which another node's transaction has changed.
#[cold]
pub(super) fn explain_newer(
    mut error: SqlError,
    by: u64,
    own: u16,
    met: &Met,
    catalog: &Catalog,
    format: &FormatContext,
    reader: Option<&Rights>,
) -> SqlError {
    let (place, _) = place_of(met.tree, met.key.as_deref(), catalog, format, reader);
    let faster = faster(by, Some(own), place.as_deref());
    match error.detail.take() {
        Some(before) => error.with_detail(format!("{before} {faster}")),
        None => error.with_detail(faster),
    }
}

/// 40001 for a key that is newer than the snapshot, in terms of the catalog.
#[cold]
pub(crate) fn explain_changed(
    error: SqlError,
    (tree, key): (TreeId, &[u8]),
    catalog: &Catalog,
    format: &FormatContext,
    reader: Option<&Rights>,
) -> SqlError {
    let (place, table) = place_of(tree, Some(key), catalog, format, reader);
    let error = match place {
        Some(place) => error.with_detail(format!("Changed after the snapshot: {place}.")),
        None => error,
    };
    let error = match table {
        Some(table) => error.with_table(&table.schema_name, &table.name),
        None => error,
    };
    error.with_hint(RETRY)
}

/// A relation as a whole.
fn named(relation: &Relation) -> String {
    format!("{} \"{}\"", relation.kind(), relation.name())
}

/// A key or a whole relation in terms of the catalog, and the table.
fn place_of<'c>(
    tree: TreeId,
    key: Option<&[u8]>,
    catalog: &'c Catalog,
    format: &FormatContext,
    reader: Option<&Rights>,
) -> (Option<String>, Option<&'c Table>) {
    match key {
        // Whole tables and views are locked by their oid.
        None => {
            let table = catalog.table_by_oid(tree).map(|table| &**table);
            (catalog.relation_by_oid(tree).map(named), table)
        }
        Some(key) => {
            let object = Object::Key(tree, cognate_engine::Key::copy_from_slice(key));
            (Some(describe(&object, catalog, format, reader)), find(catalog, tree).map(|(table, _)| table))
        }
    }
}

/// 40001 with a cycle in terms of the catalog, likewise.
#[cold]
pub(crate) fn explain(
    cycle: &Cycle,
    catalog: &Catalog,
    format: &FormatContext,
    reader: Option<&Rights>,
) -> SqlError {
    let mut detail = String::from("Cycle: ");
    for (at, edge) in cycle.edges.iter().enumerate() {
        if at > 0 {
            detail.push_str("; ");
        }
        let (from, to) = (name(cycle, edge.from), name(cycle, edge.to));
        // Writing to a string does not fail.
        let _ = write!(detail, "{from} -{}-> {to}", edge.dependency.short_name());
        if let Some(object) = &edge.object {
            let _ = write!(detail, ": {}", describe(object, catalog, format, reader));
        } else if edge.dependency == Dependency::RealTime {
            let _ = write!(detail, ": {from} had committed before {to} began");
        }
    }
    detail.push('.');
    if cycle.is_summarized {
        detail.push_str(
            " Old transactions were summarized to bound memory, so the cycle may not be a real one.",
        );
    }
    let mut error = dependency_failure(detail);
    if let Some(prepared) = cycle.in_doubt {
        error = error.with_hint(format!(
            "A retry can succeed once it is decided about the prepared transaction {prepared}: see pg_prepared_xacts and cognate_in_doubt."
        ));
    }
    let tree = cycle.edges.iter().find_map(|edge: &Edge| edge.object.as_ref()).map(Object::tree);
    if let Some((table, _)) = tree.and_then(|tree| find(catalog, tree)) {
        error = error.with_table(&table.schema_name, &table.name);
    }
    error
}

/// First updater wins where the snapshot could not move, because of something that was read. A
/// cycle says more.
#[cold]
pub(super) fn explain_stale(
    mut error: SqlError,
    read: &StaleRead,
    own: u16,
    catalog: &Catalog,
    format: &FormatContext,
    reader: Option<&Rights>,
) -> SqlError {
    if error.message == DEPENDENCIES {
        return error;
    }
    error.met = None;
    error.with_detail(replaced(read, own, catalog, format, reader)).with_hint(RETRY)
}

/// 40001 for a read that was replaced, by the rule that the error's detail has.
#[cold]
pub(super) fn explain_replaced(
    mut error: SqlError,
    read: &StaleRead,
    own: u16,
    catalog: &Catalog,
    format: &FormatContext,
    reader: Option<&Rights>,
) -> SqlError {
    let rule = error.detail.take().unwrap_or_default();
    error.with_detail(format!("{} {rule}", replaced(read, own, catalog, format, reader)))
}

/// What was read before, and who has replaced it.
fn replaced(
    read: &StaleRead,
    own: u16,
    catalog: &Catalog,
    format: &FormatContext,
    reader: Option<&Rights>,
) -> String {
    let writer = match read.writer {
        0 => EARLIER.to_owned(),
        writer => format!("transaction {}", told(writer, own)),
    };
    let object = read.object.as_ref().map(|object| describe(object, catalog, format, reader));
    let object = object.as_deref().unwrap_or("a row that is not known any more");
    let mut detail = format!("What was read before has been replaced by {writer}: {object}.");
    if read.is_summarized {
        detail.push_str(
            " Reads were joined, or old transactions summarized, to bound memory: it may not have been.",
        );
    }
    detail
}

/// First updater wins because something still reads at the snapshot.
#[cold]
pub(super) fn explain_held(error: SqlError) -> SqlError {
    if error.message == DEPENDENCIES {
        return error;
    }
    let detail =
        "The snapshot cannot move past the concurrent change: a cursor or a suspended portal is open.";
    error.with_detail(detail).with_hint(RETRY)
}

/// The same of one whose snapshot stays since definitions have changed.
pub(super) fn explain_definitions(error: SqlError) -> SqlError {
    let detail =
        "The snapshot cannot move past the concurrent change: definitions have changed since, and were read.";
    error.with_detail(detail).with_hint(RETRY)
}

/// 40P01 in terms of the catalog: the engine knows trees, and keys as bytes.
///
/// ```text
/// Transaction 7 waits for NoKeyExclusive lock on key \x0180000001 of tree 1000; blocked by ...
/// Transaction 7 waits for NoKeyExclusive lock on key (id)=(1) of table "account"; blocked by ...
/// ```
#[cold]
pub(super) fn explain_deadlock(
    error: SqlError,
    catalog: &Catalog,
    format: &FormatContext,
    reader: Option<&Rights>,
) -> SqlError {
    let told = |line: &str| {
        let (waiter, rest) = line.split_once(" lock on ")?;
        let (place, blocker) = rest.split_once("; ")?;
        let place = match place.strip_prefix("key \\x") {
            Some(key) => {
                let (digits, tree) = key.split_once(" of tree ")?;
                let key = cognate_engine::Key::copy_from_slice(&bytes(digits)?);
                describe(&Object::Key(tree.parse().ok()?, key), catalog, format, reader)
            }
            None => {
                let oid: Oid = place.strip_prefix("tree ")?.parse().ok()?;
                named(catalog.relation_by_oid(oid)?)
            }
        };
        Some(format!("{waiter} lock on {place}; {blocker}"))
    };
    let Some(detail) = error.detail.clone() else { return error };
    let lines = detail.lines().map(|line| told(line).unwrap_or_else(|| line.to_owned()));
    error.with_detail(lines.collect::<Vec<_>>().join("\n"))
}

/// The bytes that hexadecimal digits stand for.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let places = (0..digits.len()).step_by(2);
    places.map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect()
}

fn name(cycle: &Cycle, transaction: u64) -> String {
    match transaction {
        0 => EARLIER.to_owned(),
        own if own == cycle.victim => format!("{own} (this transaction)"),
        other => told(other, node_of(cycle.victim)),
    }
}

/// A tree, and perhaps a key in it, as users know them.
pub(super) struct Place {
    /// The table's oid.
    pub(super) relation: Option<Oid>,
    /// The table's name, or the index's.
    pub(super) name: Option<String>,
    /// The key's values.
    pub(super) key: Option<String>,
}

/// Finds what a lock is on. Whole tables, views and sequences are locked by their oid, rows by
/// their tree.
pub(super) fn locate(catalog: &Catalog, tree: TreeId, key: Option<&[u8]>) -> Place {
    let Some(key) = key else {
        let name = catalog.relation_by_oid(tree).map(|relation| relation.name().to_owned());
        return Place { relation: Some(tree), name, key: None };
    };
    let Some((table, index)) = find(catalog, tree) else {
        return Place { relation: None, name: None, key: None };
    };
    let name = index.map_or(&table.name, |index| &index.name).clone();
    let described = index.or_else(|| table.primary_key());
    let key = described.and_then(|index| values(catalog, table, index, key, &FormatContext::default()));
    Place { relation: Some(table.oid), name: Some(name), key }
}

/// The table that a tree belongs to, and the index if it is one's.
fn find(catalog: &Catalog, tree: TreeId) -> Option<(&Table, Option<&Index>)> {
    catalog.tables().find_map(|table| {
        let of_tree =
            |index: &&Index| (index.tree == tree && !index.is_clustered()) || key_tree(index.tree) == tree;
        let index = table.indexes.iter().find(of_tree);
        (table.tree == tree || index.is_some()).then_some((&**table, index))
    })
}

/// Whether somebody may read all that the keys of an index say. What an expression reads is not
/// looked for.
fn may_read(reader: Option<&Rights>, catalog: &Catalog, table: &Table, index: &Index) -> bool {
    let Some(rights) = reader.filter(|_| !table.temporary) else { return true };
    let on_table = catalog.privileges(rights, table.oid, Securable::Table, Privileges::SELECT);
    let may = |place: usize| catalog.has_on_column(rights, table.oid, place, Privileges::SELECT);
    !on_table.is_empty() || index.columns.iter().all(|part| part.key.column().is_some_and(may))
}

fn describe(object: &Object, catalog: &Catalog, format: &FormatContext, reader: Option<&Rights>) -> String {
    let Some((table, index)) = find(catalog, object.tree()) else {
        return "the catalog".to_owned();
    };
    let place = match index {
        Some(index) => format!("index \"{}\" of table \"{}\"", index.name, table.name),
        None => format!("table \"{}\"", table.name),
    };
    let index = index.or_else(|| table.primary_key());
    let index = index.filter(|index| may_read(reader, catalog, table, index));
    let values = |key: &[u8]| index.and_then(|index| values(catalog, table, index, key, format));
    match object {
        Object::Key(_, key) => match values(key) {
            Some(values) => format!("key {values} of {place}"),
            None => format!("a row of {place}"),
        },
        Object::Range(_, lower, upper) => {
            let bound = |bound: &Bound<cognate_engine::Key>| match bound {
                Bound::Included(key) | Bound::Excluded(key) => values(key),
                Bound::Unbounded => None,
            };
            match (bound(lower), bound(upper)) {
                (None, None) => format!("a range of {place}"),
                (from, to) => format!(
                    "range from {} to {} of {place}",
                    from.as_deref().unwrap_or("the beginning"),
                    to.as_deref().unwrap_or("the end")
                ),
            }
        }
    }
}

/// `(id)=(5)`, as far as the key says it.
fn values(
    catalog: &Catalog,
    table: &Table,
    index: &Index,
    mut key: &[u8],
    format: &FormatContext,
) -> Option<String> {
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for column in &index.columns {
        if key.is_empty() {
            break;
        }
        let ty = table.key_type(index, column.key);
        if !keys::is_exact(ty) {
            break;
        }
        let value = keys::decode(&mut key, ty, column.order()).ok()?;
        names.push(match column.key {
            IndexKey::Column(place) => table.columns[place].name.clone(),
            IndexKey::Expression(place) => index.expression(place)?.text.clone(),
        });
        values.push(match value {
            Datum::Enum(value) => catalog.enum_by_oid(value.ty)?.label_at(value.position)?.to_owned(),
            value => value.to_text_string(ty, format),
        });
    }
    (!names.is_empty()).then(|| format!("({})=({})", names.join(", "), values.join(", ")))
}
