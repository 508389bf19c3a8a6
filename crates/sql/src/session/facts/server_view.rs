//! The server as the views of the catalog see it from a session: everybody's sessions, locks and
//! transactions, and what the engine and the cluster count.

use std::sync::Arc;

use cognate_engine::{GovernorInfo, Statistics};

use super::Facts;
use crate::catalog::{Catalog, DATABASE_OID, MONITOR_OID, Oid, Rights, Sequence};
use crate::expr::Counts;
use crate::pg_catalog::{
    CountsReset, CursorRow, DatabaseCounts, FamilyRow, LockRow, PreparedRow, ServerView, SessionRow,
    StatementRow, TransactionRow,
};
use crate::session::failures::Failure;
use crate::session::{SqlDatabase, insight, presence};
use crate::statistics::TableStatistics;

impl ServerView for Facts {
    fn sessions(&self) -> Vec<SessionRow> {
        presence::sessions(&self.database, self)
    }

    fn locks(&self) -> Vec<LockRow> {
        let rows = presence::locks(self);
        self.rest_on_everything();
        rows
    }

    fn transactions(&self) -> Vec<TransactionRow> {
        let rows = presence::transactions(self);
        self.rest_on_everything();
        rows
    }

    fn prepared(&self) -> Vec<PreparedRow> {
        let rows = presence::prepared(&self.database);
        self.rest_on_everything();
        rows
    }

    fn in_doubt(&self) -> Vec<FamilyRow> {
        presence::in_doubt(self)
    }

    fn nodes(&self) -> Vec<crate::session::NodeRow> {
        self.database.nodes().rows()
    }

    fn replication(&self) -> Option<crate::session::ReplicationRow> {
        self.database.replication()
    }

    fn protocol_choices(&self) -> Vec<crate::monitor::ChoiceRow> {
        self.database.monitor().rows()
    }

    fn failures(&self) -> Vec<Failure> {
        presence::failures(self)
    }

    fn commits(&self) -> (u64, u64) {
        self.rest_on_everything();
        let engine = self.database.engine();
        (engine.visible(), engine.durable())
    }

    fn statements(&self) -> Vec<StatementRow> {
        self.listing.statements()
    }

    fn cursors(&self) -> Vec<CursorRow> {
        self.listing.cursors(&self.activity)
    }

    fn listening(&self) -> Vec<String> {
        self.news.listening()
    }

    fn notification_usage(&self) -> f64 {
        self.database.channels().usage()
    }

    fn is_blocked_by(&self, process_id: i32, others: &[i32]) -> bool {
        presence::is_blocked_by(&self.database, process_id, others)
    }

    fn governor(&self) -> Option<GovernorInfo> {
        Some(self.database.engine().governor().info())
    }

    fn statistics(&self) -> Statistics {
        self.database.engine().statistics()
    }

    fn may_monitor(&self) -> bool {
        self.rights(&self.catalog()).is_none_or(|rights| rights.has(MONITOR_OID))
    }

    fn approximate_rows(&self, tree: u32) -> u64 {
        self.database.engine().approximate_rows(tree)
    }

    fn usage_of(&self, relation: Oid) -> Counts {
        self.database.usage().of(relation)
    }

    fn usage_in(&self, database: Oid) -> DatabaseCounts {
        self.database.of(database).map(|known| known.usage().sum()).unwrap_or_default()
    }

    fn reset_usage(&self, relation: Option<Oid>) {
        let (usage, now) = (self.database.usage(), self.now());
        if let Some(relation) = relation {
            return usage.reset_relation(relation, now);
        }
        let Statistics { commits, empty_commits, rollbacks, deadlocks, .. } = self.statistics();
        usage.reset(CountsReset { at: Some(now), commits: commits + empty_commits, rollbacks, deadlocks });
    }

    fn may_administer(&self) -> bool {
        self.is_superuser(&self.catalog())
    }

    fn tree_bytes(&self, tree: u32) -> i64 {
        i64::try_from(self.database.engine().approximate_bytes(tree)).unwrap_or(i64::MAX)
    }

    fn table_statistics(&self, tree: u32) -> Option<Arc<TableStatistics>> {
        self.database.gathered().of(tree)
    }

    fn rights_of_asker(&self, catalog: &Catalog) -> Option<Arc<Rights>> {
        self.rights(catalog)
    }

    fn may_read(&self, table: Oid, column: usize) -> bool {
        insight::may_read(self, table, column)
    }

    /// The engine knows how much all of them take; each database has its part by its rows.
    fn database_bytes(&self, database: Oid) -> i64 {
        let known = self.database.engine().statistics();
        let all = known.base.bytes + known.replay_bytes;
        let share = |others: &[SqlDatabase]| {
            let rows: u64 = others.iter().map(SqlDatabase::approximate_rows).sum();
            let of_all: u64 = self.database.all().iter().map(SqlDatabase::approximate_rows).sum();
            (u128::from(all) * u128::from(rows) / u128::from(of_all.max(1))) as u64
        };
        let (own, others): (Vec<_>, Vec<_>) =
            self.database.all().into_iter().partition(|known| known.oid() == database);
        let bytes = if database == DATABASE_OID { all - share(&others).min(all) } else { share(&own) };
        i64::try_from(bytes).unwrap_or(i64::MAX)
    }

    fn started(&self) -> i64 {
        self.database.started()
    }

    fn sequence_state(&self, sequence: &Sequence) -> Option<(i64, bool)> {
        if sequence.is_temporary() {
            return self.temporary.is_own(sequence.schema).then(|| self.temporary.counter(sequence));
        }
        let (state, is_called) = self.database.counters().state(sequence).ok()?;
        self.rest_on(state.stored_at);
        Some((state.value, is_called))
    }
}
