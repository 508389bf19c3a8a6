//! `/live`: one reading of the server as a JSON object; the live page draws it and computes rates
//! from two of them.
//!
//! ```text
//! { "version": "0.1.0", "uptime_ms": 71000,
//!   "node": { "number": 2, "role": "follower", "state": "serving", "accepts_writes": true, … },
//!   "nodes": [ … rows of cognate_nodes … ],
//!   "transactions": { "commits": 812, … }, "aborts": [ { "cause": "cycle", "count": 3 }, … ],
//!   "failures": [ … the last ones … ], "in_doubt": { … }, "governor": { … }, … }
//! ```
//!
//! Counters only grow while the server runs; `uptime_ms` tells how much time is between two
//! readings, and that the server was started anew in between if it is less than before. In a
//! database of its own `node.number` and `replication` are null and `nodes` is empty. Ids of
//! transactions are strings: they are larger than the numbers that JavaScript has.
//!
//! Nobody is waited for: what is said of other nodes is what they said last, and what is not
//! durable yet is told like everything else, for who watches a server whose disk hangs must see it.
//!
//! Figures are anybody's who may have metrics. Texts that say what data there are (keys in cycles,
//! requests, names of transactions) are left out, and `texts` is false, where the port is open to
//! other machines and asks for no token.

use std::time::Duration;

use cognate_engine::{Owner, Statistics};
use cognate_sql::session::{Failure, NodeRow, ProtocolRow, SqlDatabase};
use serde_json::{Value, json};

use crate::server::Server;

/// So many failures are told.
const FAILURES: usize = 20;
/// So many transactions, and families, that are in doubt: those that have been so for longest.
const IN_DOUBT: usize = 50;
/// So much of a request.
const REQUEST_CHARS: usize = 200;

/// A reading. Without `texts`, figures only.
pub(super) fn reading(server: &Server, texts: bool) -> Value {
    let database = &server.database;
    let statistics = database.engine().statistics();
    let failures = if texts { database.last_failures(FAILURES) } else { Vec::new() };
    let aborts = database.failure_counts().map(|(cause, count)| json!({ "cause": cause, "count": count }));
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_ms": ms(server.started.elapsed()),
        "texts": texts,
        "node": node(server, &statistics),
        "nodes": database.nodes().rows().iter().map(row).collect::<Vec<_>>(),
        "marks": {
            "certified": statistics.certified,
            "visible": statistics.visible,
            "durable": statistics.durable,
            "applied": database.engine().is_node().then(|| database.engine().applied()),
        },
        "transactions": transactions(server, &statistics),
        "aborts": aborts,
        "failures": failures.iter().map(failure).collect::<Vec<_>>(),
        "in_doubt": in_doubt(database, texts),
        "governor": governor(&statistics),
        "memory": memory(server, &statistics),
        "log": {
            "bytes": statistics.log.bytes,
            "flushes": statistics.log.batches,
            "flush_us": statistics.log.flush_us,
            "flush_us_max": statistics.log.flush_us_max,
            "waiting": statistics.log.waiting,
            "replay_bytes": statistics.replay_bytes,
        },
        "checkpoints": {
            "count": statistics.checkpoints,
            "throttled_commits": statistics.throttled_commits,
            "base_bytes": statistics.base.bytes,
            "base_runs": statistics.base.runs,
        },
        "replication": replication(database),
    })
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Who answers, and whether it takes writes.
fn node(server: &Server, statistics: &Statistics) -> Value {
    let poisoned = statistics.log_poisoned.as_ref().map(ToString::to_string);
    let closed = server.database.nodes().closed();
    let accepts_writes = poisoned.is_none() && closed.is_none();
    match &server.order {
        Some(order) => {
            let (state, reason) = order.state();
            let reason = Some(reason).filter(|reason| !reason.is_empty());
            json!({
                "number": order.node(),
                "role": order.role().name(),
                "state": state.name(),
                "accepts_writes": accepts_writes,
                "why": poisoned.or(closed).or(reason),
            })
        }
        None => json!({
            "number": null,
            "role": null,
            "state": if accepts_writes { "serving" } else { "read_only" },
            "accepts_writes": accepts_writes,
            "why": poisoned.or(closed),
        }),
    }
}

/// A row of `cognate_nodes`.
fn row(row: &NodeRow) -> Value {
    json!({
        "node": row.node,
        "address": row.address,
        "role": row.role,
        "state": row.state,
        "applied": row.applied,
        "committed": row.committed,
        "lag_bytes": row.lag_bytes,
        "lag_ms": row.lag_ms,
        "digest_position": row.digest_position,
        "digest": row.digest,
        "reason": row.reason,
    })
}

fn transactions(server: &Server, statistics: &Statistics) -> Value {
    let statements = server.metrics.statements();
    json!({
        "commits": statistics.commits,
        "empty_commits": statistics.empty_commits,
        "rollbacks": statistics.rollbacks,
        "retries": server.database.retries(),
        "refreshes": server.database.refreshes(),
        "lock_waits": statistics.lock_waits,
        "statements": statements.0,
        "statement_us": u64::try_from(statements.1.as_micros()).unwrap_or(u64::MAX),
        "errors": server.metrics.errors(),
        "active": statistics.active_transactions,
        "waiting": statistics.waiting_transactions,
        "oldest_ms": ms(statistics.oldest_transaction_age),
        "sessions": server.registry.sessions(),
        "sessions_max": server.registry.sessions_max(),
    })
}

fn failure(failure: &Failure) -> Value {
    json!({
        "at_ms": failure.unix_ms(),
        "pid": failure.process_id,
        "transaction": failure.transaction.to_string(),
        "cause": failure.kind,
        "relation": failure.relation,
        "message": failure.message,
        "detail": failure.detail,
    })
}

/// What is prepared and undecided: families of siblings, and transactions that are of none.
fn in_doubt(database: &SqlDatabase, texts: bool) -> Value {
    let mut families = database.engine().in_doubt();
    families.sort_by_key(|family| std::cmp::Reverse(family.age_us));
    let prepared = database.engine().prepared();
    let mut alone: Vec<_> = prepared
        .iter()
        .filter_map(|info| match &info.owner {
            Owner::Global(name) => Some((info, name)),
            Owner::Instance(..) => None,
        })
        .collect();
    alone.sort_by_key(|(info, _)| std::cmp::Reverse(info.age));
    let most = if texts { IN_DOUBT } else { 0 };
    let shown_families = families.iter().take(most).map(|family| {
        json!({
            "family": family.xid.as_str(),
            "instances": family.instances.iter().map(|instance| instance.get()).collect::<Vec<_>>(),
            "age_ms": family.age_us / 1000,
            "locks": family.locks,
            "request": family.request.to_string().chars().take(REQUEST_CHARS).collect::<String>(),
        })
    });
    let shown_alone = alone.iter().take(most).map(|(info, name)| {
        json!({
            "transaction": info.transaction.to_string(),
            "name": name,
            "age_ms": ms(info.age),
            "locks": info.locks,
        })
    });
    json!({
        "families_count": families.len(),
        "families": shown_families.collect::<Vec<_>>(),
        "prepared_count": alone.len(),
        "prepared": shown_alone.collect::<Vec<_>>(),
        "locks": prepared.iter().map(|info| info.locks).sum::<usize>(),
    })
}

fn governor(statistics: &Statistics) -> Value {
    let governor = &statistics.governor;
    json!({
        "mode": governor.mode.to_string(),
        "limit": governor.limit,
        "active": governor.active,
        "waiting": governor.waiting,
        "admitted": governor.admitted,
        "queued": governor.queued,
        "given_back": governor.given_back,
        "conflicts": governor.conflicts,
        "steps": governor.steps,
        "cuts": governor.cuts,
    })
}

fn memory(server: &Server, statistics: &Statistics) -> Value {
    json!({
        "budget_bytes": server.database.engine().memory_bytes(),
        "version_bytes": statistics.version_bytes,
        "version_keys": statistics.version_keys,
        "write_set_bytes": statistics.write_set_bytes,
        "read_set_bytes": statistics.read_set_bytes,
        "certifier_bytes": statistics.certifier.bytes,
        "certifier_limit": statistics.certifier.limit,
        "certifier_nodes": statistics.certifier.nodes,
        "certifier_summaries": statistics.certifier.summaries,
        "cache_bytes": statistics.base.cache_bytes,
        "index_bytes": statistics.base.index_bytes,
        "message_bytes": server.budget.used(),
    })
}

/// The lists that the protocols share, and the protocols; null in a database of its own.
fn replication(database: &SqlDatabase) -> Value {
    let Some(row) = database.replication() else { return Value::Null };
    let protocols = database.protocols();
    let protocol =
        |row: &ProtocolRow| json!({ "name": row.name, "commits": row.commits, "aborts": row.aborts });
    json!({
        "log": row.log,
        "tocommit": row.tocommit,
        "c_pending": row.c_pending,
        "w_pending": row.w_pending,
        "paused_by": row.paused_by,
        "paused_ms": row.paused_ms,
        "protocols": protocols.iter().map(protocol).collect::<Vec<_>>(),
    })
}
