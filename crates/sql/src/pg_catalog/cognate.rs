//! Views of Cognate's own: `cognate_transactions`, `cognate_locks`,
//! `cognate_serialization_failures`, `cognate_in_doubt`, `cognate_nodes`, `cognate_replication`,
//! `cognate_protocol_choice`; and what is prepared as PostgreSQL shows it.
//!
//! PostgreSQL has nothing quite like them. They lie in `pg_catalog`, so that no search path hides
//! them.

use super::SystemTable;
use super::activity::kind;
use super::value::{NULL, array};
use crate::types::{Datum, Interval, TypeId};

pub(super) const TABLES: &[&SystemTable] = &[
    &COGNATE_TRANSACTIONS,
    &COGNATE_LOCKS,
    &COGNATE_SERIALIZATION_FAILURES,
    &PG_PREPARED_XACTS,
    &COGNATE_IN_DOUBT,
    &COGNATE_NODES,
    &COGNATE_REPLICATION,
    &COGNATE_PROTOCOL_CHOICE,
];

fn interval(microseconds: i64) -> Datum {
    Datum::Interval(Interval { months: 0, days: 0, micros: microseconds })
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

system_table! {
    static COGNATE_TRANSACTIONS = 15901 view "pg_catalog"."cognate_transactions",
    |source| source.server.transactions() => |transaction|,
    pid: Int4 = transaction.process_id,
    transaction_id: Int8 = number(transaction.transaction),
    state: Text = transaction.state,
    age: Interval = interval(transaction.age_us),
    snapshot: Int8 = number(transaction.snapshot),
    isolation: Text = transaction.isolation,
    access: Text = if transaction.read_only { "read only" } else { "read write" },
    waits_for: Text = transaction.waits_for,
}

system_table! {
    static COGNATE_LOCKS = 15902 view "pg_catalog"."cognate_locks",
    |source| source.server.locks() => |lock|,
    pid: Int4 = lock.process_id,
    transaction_id: Int8 = number(lock.transaction),
    kind: Text = kind(&lock, "row"),
    relation: Text = lock.relation_name,
    key: Text = lock.key,
    mode: Text = lock.mode,
    granted: Bool = lock.granted,
}

system_table! {
    static COGNATE_SERIALIZATION_FAILURES = 15903 view "pg_catalog"."cognate_serialization_failures",
    |source| source.server.failures() => |failure|,
    at: Timestamptz = if failure.at == 0 { NULL } else { Datum::Timestamptz(failure.at) },
    pid: Int4 = failure.process_id,
    transaction_id: Int8 = number(failure.transaction),
    kind: Text = failure.kind,
    relation: Text = failure.relation,
    relation_failures: Int8 = number(failure.relation_failures),
    message: Text = failure.message,
    cycle: Text = failure.detail,
}

system_table! {
    static PG_PREPARED_XACTS = 12090 view "pg_catalog"."pg_prepared_xacts",
    |source| source.server.prepared() => |prepared|,
    transaction: Xid = prepared.transaction as u32,
    gid: Text = prepared.identifier,
    prepared: Timestamptz = Datum::Timestamptz(prepared.prepared),
    owner: Name = prepared.owner,
    database: Name = prepared.database,
}

system_table! {
    static COGNATE_IN_DOUBT = 15904 view "pg_catalog"."cognate_in_doubt",
    |source| source.server.in_doubt() => |family|,
    family: Text = family.xid,
    instances: Int8Array = array(TypeId::Int8, family.instances),
    age: Interval = interval(family.age_us),
    prepared: Timestamptz = Datum::Timestamptz(family.prepared),
    locks: Int8 = number(family.locks),
    request: Text = family.request,
}

system_table! {
    static COGNATE_NODES = 15905 view "pg_catalog"."cognate_nodes",
    |source| source.server.nodes() => |node|,
    node: Int4 = i32::from(node.node),
    address: Text = node.address,
    role: Text = node.role,
    state: Text = node.state,
    applied: Int8 = node.applied.map(number),
    committed: Int8 = node.committed.map(number),
    lag_bytes: Int8 = node.lag_bytes.map(number),
    lag_ms: Int8 = node.lag_ms.map(number),
    digest_position: Int8 = node.digest_position.map(number),
    digest: Text = node.digest,
    reason: Text = node.reason,
}

system_table! {
    static COGNATE_REPLICATION = 15906 view "pg_catalog"."cognate_replication",
    |source| source.server.replication() => |row|,
    log: Int8 = number(row.log),
    tocommit: Int8 = number(row.tocommit),
    c_pending: Int8 = number(row.c_pending),
    w_pending: Int8 = number(row.w_pending),
    paused_by: Text = row.paused_by,
    paused_ms: Int8 = number(row.paused_ms),
}

system_table! {
    static COGNATE_PROTOCOL_CHOICE = 15907 view "pg_catalog"."cognate_protocol_choice",
    |source| source.server.protocol_choices() => |choice|,
    class: Text = choice.class,
    chosen: Text = choice.chosen,
    estimates: Text = choice.estimates,
    since: Timestamptz = Datum::Timestamptz(choice.since_us),
    form: Text = choice.form,
}
