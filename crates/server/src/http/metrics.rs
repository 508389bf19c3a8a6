//! Counters of the wire side, and the text of `/metrics`.
//!
//! Connections add to one of a few shards, so that two cores do not fight for one cache line; a
//! scrape adds them up.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cognate_sql::session::{NodeRow, ProtocolRow};

use crate::server::Server;

/// Upper bounds of the latency histogram's buckets in microseconds; above the last there is one
/// more.
const BUCKETS_US: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000,
];
const SHARDS: usize = 8;

/// Counters of the wire side.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    shards: [Shard; SHARDS],
    /// Requests that the stub handed over.
    pushes: AtomicU64,
}

/// Two cache lines of its own and more.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    buckets: [AtomicU64; BUCKETS_US.len() + 1],
    sum_ns: AtomicU64,
    errors: AtomicU64,
}

impl Metrics {
    /// Counts a statement (an Execute, or a Query as a whole) and its duration on the server.
    pub(crate) fn statement(&self, process_id: i32, took: Duration) {
        let shard = self.shard(process_id);
        let took_us = took.as_micros() as u64;
        let bucket = BUCKETS_US.iter().position(|&bound| took_us <= bound).unwrap_or(BUCKETS_US.len());
        shard.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        shard.sum_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Counts an error sent to a client.
    pub(crate) fn error(&self, process_id: i32) {
        self.shard(process_id).errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that is handed to an application server.
    pub(crate) fn push(&self) {
        self.pushes.fetch_add(1, Ordering::Relaxed);
    }

    fn shard(&self, process_id: i32) -> &Shard {
        &self.shards[process_id as usize % SHARDS]
    }

    fn sum(&self, counter: impl Fn(&Shard) -> &AtomicU64) -> u64 {
        self.shards.iter().map(|shard| counter(shard).load(Ordering::Relaxed)).sum()
    }

    /// Statements so far, and the time that they took.
    pub(crate) fn statements(&self) -> (u64, Duration) {
        let count = (0..=BUCKETS_US.len()).map(|at| self.sum(|shard| &shard.buckets[at])).sum();
        (count, Duration::from_nanos(self.sum(|shard| &shard.sum_ns)))
    }

    /// Errors sent so far.
    pub(crate) fn errors(&self) -> u64 {
        self.sum(|shard| &shard.errors)
    }

    /// The histogram in Prometheus' text format: cumulative buckets with bounds in seconds.
    pub(crate) fn write_histogram(&self, name: &str, out: &mut String) {
        let mut below = 0;
        for (i, bound) in BUCKETS_US.iter().enumerate() {
            below += self.sum(|shard| &shard.buckets[i]);
            let _ = writeln!(out, "{name}_bucket{{le=\"{}\"}} {below}", *bound as f64 / 1e6);
        }
        below += self.sum(|shard| &shard.buckets[BUCKETS_US.len()]);
        let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {below}");
        let _ = writeln!(out, "{name}_sum {}", self.sum(|shard| &shard.sum_ns) as f64 / 1e9);
        let _ = writeln!(out, "{name}_count {below}");
    }
}

/// The text of `/metrics`.
pub(crate) fn text(server: &Server) -> String {
    let mut out = String::new();
    let registry = &server.registry;
    let metrics = &server.metrics;
    let mut put = |kind: &str, name: &str, help: &str, value: u64| {
        let _ = write!(
            out,
            "# HELP cognate_{name} {help}\n# TYPE cognate_{name} {kind}\ncognate_{name} {value}\n"
        );
    };
    put("gauge", "connections", "Sessions at this moment.", registry.sessions() as u64);
    put("gauge", "connections_max", "Most sessions at a time.", registry.sessions_max() as u64);
    put("gauge", "sockets", "Open client sockets, sessions or not.", registry.open_count() as u64);
    put("counter", "connections_refused_total", "Refused: too many.", registry.refused() as u64);
    put("counter", "errors_total", "Errors sent to clients.", metrics.errors());
    put("gauge", "message_bytes", "Memory held for large messages.", server.budget.used());
    engine(server, &mut put);
    in_doubt(server, &mut put);
    replication(server, &mut put);
    failures(server, &mut out);
    paused(server, &mut out);
    nodes(&server.database.nodes().rows(), &mut out);
    protocols(server, &mut out);
    let name = "cognate_statement_seconds";
    let _ = write!(out, "# HELP {name} Time of a statement on the server.\n# TYPE {name} histogram\n");
    metrics.write_histogram(name, &mut out);
    out
}

/// Begins a family of metrics that have a label.
fn labelled(out: &mut String, kind: &str, name: &str, help: &str) {
    let _ = write!(out, "# HELP cognate_{name} {help}\n# TYPE cognate_{name} {kind}\n");
}

/// Serialization failures and deadlocks by their cause, those included after which the server has
/// run a statement again.
fn failures(server: &Server, out: &mut String) {
    let name = "serialization_failures_total";
    labelled(out, "counter", name, "Serialization failures and deadlocks.");
    for (cause, count) in server.database.failure_counts() {
        let _ = writeln!(out, "cognate_{name}{{cause=\"{cause}\"}} {count}");
    }
}

/// The columns of `cognate_replication` that are numbers; nothing in a database of its own.
fn replication(server: &Server, put: &mut impl FnMut(&str, &str, &str, u64)) {
    let Some(row) = server.database.replication() else { return };
    put("gauge", "replication_log", "Transactions that later ones are judged by.", row.log);
    put("gauge", "replication_tocommit", "Transactions ordered and not shown yet.", row.tocommit);
    put("gauge", "replication_c_pending", "Those whose outcome is not known.", row.c_pending);
    put("gauge", "replication_w_pending", "Those whose writes are not known.", row.w_pending);
    let paused = u64::from(row.paused_by.is_some());
    put("gauge", "replication_paused", "1 if something holds up the order's application.", paused);
    put("gauge", "replication_paused_milliseconds", "For how long it has.", row.paused_ms);
    let (slow, flow) = server.database.nodes().flow();
    let slow = slow.map_or(0, |slow| u64::from(slow.node));
    put("gauge", "flow_slow_node", "The node that who writes waits for, 0 if there is none.", slow);
    put("counter", "flow_waits_total", "Transactions that have waited for a slow node.", flow.waits);
    put("counter", "flow_refusals_total", "Those of them that were refused then.", flow.refusals);
    put("counter", "flow_wait_microseconds_total", "How long all of them have waited.", flow.waited_us);
}

/// What holds up the order's application, if something does.
fn paused(server: &Server, out: &mut String) {
    let Some(by) = server.database.replication().and_then(|row| row.paused_by) else { return };
    labelled(out, "gauge", "replication_paused_info", "1, with what holds up the order's application.");
    let _ = writeln!(out, "cognate_replication_paused_info{{by=\"{}\"}} 1", escaped(&by));
}

/// A label's value as the format has it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// What each protocol has done, and for how many kinds of transactions the monitor has chosen it.
fn protocols(server: &Server, out: &mut String) {
    let rows = server.database.protocols();
    if rows.is_empty() {
        return;
    }
    type Value = fn(&ProtocolRow) -> u64;
    let counters: [(&str, &str, Value); 2] = [
        ("protocol_commits_total", "Transactions of this node that a protocol has committed.", |row| {
            row.commits
        }),
        ("protocol_aborts_total", "Transactions of this node that it has refused.", |row| row.aborts),
    ];
    for (name, help, value) in counters {
        labelled(out, "counter", name, help);
        for row in &rows {
            let _ = writeln!(out, "cognate_{name}{{protocol=\"{}\"}} {}", row.name, value(row));
        }
    }
    // Not one by one: there are thousands of them, each with its statements.
    let mut classes: BTreeMap<&str, u64> = rows.iter().map(|row| (row.name.as_str(), 0)).collect();
    let chosen = server.database.monitor().rows();
    for row in &chosen {
        *classes.entry(row.chosen).or_default() += 1;
    }
    labelled(out, "gauge", "protocol_classes", "Classes of transactions for which a protocol is chosen.");
    for (protocol, count) in classes {
        let _ = writeln!(out, "cognate_protocol_classes{{protocol=\"{protocol}\"}} {count}");
    }
}

/// The columns of `cognate_nodes` that are numbers, and how a node is.
fn nodes(rows: &[NodeRow], out: &mut String) {
    if rows.is_empty() {
        return;
    }
    type Value = fn(&NodeRow) -> Option<u64>;
    let gauges: [(&str, &str, Value); 8] = [
        ("serving", "Whether a node serves.", |row| Some(u64::from(row.state == Some("serving")))),
        ("leading", "Whether a node leads.", |row| Some(u64::from(row.role == Some("leader")))),
        ("applied", "The last position that a node has shown.", |row| row.applied),
        ("committed", "The last position that a node knows to be settled.", |row| row.committed),
        ("lag_bytes", "Bytes of settled requests that a node lacks.", |row| row.lag_bytes),
        ("lag_milliseconds", "For how long it has lacked them.", |row| row.lag_ms),
        ("digest_position", "The position whose digest it has shown last.", |row| row.digest_position),
        ("digest", "The last 48 bits of that digest.", |row| row.digest.as_deref().and_then(last_bits)),
    ];
    for (name, help, value) in gauges {
        labelled(out, "gauge", &format!("node_{name}"), help);
        for row in rows {
            if let Some(value) = value(row) {
                let _ = writeln!(out, "cognate_node_{name}{{node=\"{}\"}} {value}", row.node);
            }
        }
    }
    labelled(out, "gauge", "node_info", "1, with a node's role and state; empty if nobody knows.");
    for row in rows {
        let (node, role, state) = (row.node, row.role.unwrap_or_default(), row.state.unwrap_or_default());
        let _ = writeln!(out, "cognate_node_info{{node=\"{node}\",role=\"{role}\",state=\"{state}\"}} 1");
    }
    labelled(out, "gauge", "node_reason_info", "1, with why a node does not serve.");
    for (node, reason) in rows.iter().filter_map(|row| Some((row.node, row.reason.as_ref()?))) {
        let reason = escaped(reason);
        let _ = writeln!(out, "cognate_node_reason_info{{node=\"{node}\",reason=\"{reason}\"}} 1");
    }
}

/// As much of a digest as a number of the format holds whole: 48 bits.
fn last_bits(digest: &str) -> Option<u64> {
    u64::from_str_radix(digest.get(digest.len().checked_sub(12)?..)?, 16).ok()
}

fn engine(server: &Server, put: &mut impl FnMut(&str, &str, &str, u64)) {
    let s = server.database.engine().statistics();
    put("counter", "commits_total", "Transactions committed.", s.commits);
    put("counter", "empty_commits_total", "Transactions committed without writes.", s.empty_commits);
    put("counter", "rollbacks_total", "Transactions rolled back.", s.rollbacks);
    put("counter", "certifier_aborts_total", "Commits that would have closed a cycle.", s.cycles);
    put("gauge", "certifier_nodes", "Transactions in the dependency graph.", s.certifier.nodes);
    put("gauge", "certifier_bytes", "Memory of the dependency graph.", s.certifier.bytes);
    put("counter", "certifier_summaries_total", "Times it was summarized for memory.", s.certifier.summaries);
    put("counter", "retries_total", "Statements run again unseen.", server.database.retries());
    let refreshes = server.database.refreshes();
    put("counter", "snapshot_refreshes_total", "Those for which the snapshot was moved.", refreshes);
    put("counter", "lock_waits_total", "Lock requests that had to wait.", s.lock_waits);
    put("counter", "deadlocks_total", "Lock requests refused because of a deadlock.", s.deadlocks);
    put("gauge", "certified", "The last commit that has a number.", s.certified);
    put("gauge", "visible", "The last commit that new transactions see.", s.visible);
    put("gauge", "durable", "The last commit that a crash cannot take back.", s.durable);
    put("gauge", "durable_lag", "Commits visible and not yet durable.", s.visible.saturating_sub(s.durable));
    put("gauge", "version_bytes", "Memory of row versions.", s.version_bytes);
    put("gauge", "version_keys", "Keys with versions in memory.", s.version_keys);
    put("gauge", "active_transactions", "Running transactions.", s.active_transactions);
    let g = s.governor;
    put("gauge", "governor_limit", "Slots to execute; 0 if there is no limit.", g.limit.unwrap_or(0).into());
    put("gauge", "governor_active", "Slots taken.", g.active.into());
    put("gauge", "governor_waiting", "Transactions that wait for a slot.", g.waiting.into());
    put("counter", "governor_admitted_total", "Slots taken since the start.", g.admitted);
    put("counter", "governor_queued_total", "Those that had to wait for it.", g.queued);
    put(
        "counter",
        "governor_given_back_total",
        "Slots taken away from transactions that waited.",
        g.given_back,
    );
    put("counter", "governor_conflicts_total", "Serialization failures and deadlocks.", g.conflicts);
    put("counter", "governor_cuts_total", "Multiplicative cuts of the limit.", g.cuts);
    put("counter", "log_bytes_total", "Bytes written to the log.", s.log.bytes);
    put("counter", "log_flushes_total", "Batches written and flushed.", s.log.batches);
    put("counter", "log_flush_us_total", "Time of writing and flushing them.", s.log.flush_us);
    put("gauge", "log_flush_us_max", "The longest of these.", s.log.flush_us_max);
    let batch_bytes = s.log.bytes.checked_div(s.log.batches).unwrap_or_default();
    put("gauge", "log_batch_bytes", "Mean size of a batch.", batch_bytes);
    put("gauge", "log_replay_bytes", "Log that a recovery would replay.", s.replay_bytes);
    put(
        "gauge",
        "recovered_commits",
        "Commits that the start has read again from the log.",
        s.recovered.commits,
    );
    put("gauge", "recovered_bytes", "Bytes of their records.", s.recovered.bytes);
    put("gauge", "log_poisoned", "1 if the log refuses commits.", u64::from(s.log_poisoned.is_some()));
    put("counter", "checkpoints_total", "Checkpoints written.", s.checkpoints);
    put("gauge", "base_bytes", "Size of the base store.", s.base.bytes);
    put("gauge", "base_runs", "Files of the base store.", s.base.runs);
    put("gauge", "base_cache_bytes", "Memory of the block cache.", s.base.cache_bytes);
    put("gauge", "base_index_bytes", "Memory of the base store beside it.", s.base.index_bytes);
    let age_ms = s.oldest_transaction_age.as_millis() as u64;
    put("gauge", "oldest_transaction_age_ms", "Age of the oldest running transaction.", age_ms);
}

/// Prepared transactions, and how old the oldest is.
fn in_doubt(server: &Server, put: &mut impl FnMut(&str, &str, &str, u64)) {
    let prepared = server.database.engine().prepared();
    let families = server.database.engine().in_doubt();
    let oldest = prepared.iter().map(|info| info.age).max().unwrap_or_default().as_millis() as u64;
    let locks: usize = prepared.iter().map(|info| info.locks).sum();
    put(
        "gauge",
        "prepared_transactions",
        "Prepared and undecided, instances among them.",
        prepared.len() as u64,
    );
    put(
        "gauge",
        "in_doubt_families",
        "Families of siblings that wait for their decision.",
        families.len() as u64,
    );
    put("gauge", "in_doubt_age_ms_max", "Age of the oldest prepared transaction.", oldest);
    put("gauge", "in_doubt_locks", "Locks that they hold.", locks as u64);
    let pushes = server.metrics.pushes.load(Ordering::Relaxed);
    put("counter", "in_doubt_pushes_total", "Requests handed back to application servers.", pushes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_s_role_and_state_and_digest_are_told() {
        let serving = NodeRow {
            node: 1,
            role: Some("leader"),
            state: Some("serving"),
            digest_position: Some(7),
            digest: Some("fedcba9876543210".to_owned()),
            ..NodeRow::default()
        };
        let away = NodeRow {
            node: 2,
            role: Some("follower"),
            reason: Some("it said \"no\"\\".to_owned()),
            ..NodeRow::default()
        };
        let mut text = String::new();
        nodes(&[serving, away], &mut text);
        for line in [
            "cognate_node_serving{node=\"1\"} 1\n",
            "cognate_node_serving{node=\"2\"} 0\n",
            "cognate_node_digest_position{node=\"1\"} 7\n",
            "cognate_node_digest{node=\"1\"} 205163983024656\n",
            "cognate_node_info{node=\"1\",role=\"leader\",state=\"serving\"} 1\n",
            "cognate_node_info{node=\"2\",role=\"follower\",state=\"\"} 1\n",
            r#"cognate_node_reason_info{node="2",reason="it said \"no\"\\"} 1"#,
        ] {
            assert!(text.contains(line), "{line} {text}");
        }
        assert!(!text.contains("cognate_node_digest_position{node=\"2\"}"), "{text}");
    }

    #[test]
    fn the_histogram_is_cumulative() {
        let metrics = Metrics::default();
        metrics.statement(1, Duration::from_micros(40));
        metrics.statement(2, Duration::from_micros(60));
        metrics.statement(3, Duration::from_secs(60));
        let mut text = String::new();
        metrics.write_histogram("t", &mut text);
        assert!(text.contains("t_bucket{le=\"0.00005\"} 1\n"), "{text}");
        assert!(text.contains("t_bucket{le=\"0.0001\"} 2\n"), "{text}");
        assert!(text.contains("t_bucket{le=\"10\"} 2\nt_bucket{le=\"+Inf\"} 3\n"), "{text}");
        assert!(text.ends_with("t_sum 60.0001\nt_count 3\n"), "{text}");
    }
}
