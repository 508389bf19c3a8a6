//! What the rows are made from.

use std::sync::Arc;

use cognate_engine::{GovernorInfo, Statistics};

use super::names::AnyRelation;
use crate::catalog::{Catalog, Database, Oid, Rights, Schema, Sequence, TEMPORARY_ALIAS, resolve_schema};
use crate::expr::Counts;
use crate::function::EvalContext;
use crate::session::failures::Failure;
use crate::statistics::TableStatistics;

/// The catalog, the session and the server, as one statement sees them.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The catalog the statement was bound with.
    pub catalog: &'a Arc<Catalog>,
    /// The session and its settings.
    pub eval: EvalContext<'a>,
    /// What is known beyond the session.
    pub server: &'a dyn ServerView,
}

/// What is known beyond the session. Every method is cheap and does not block; each has a default
/// for where nothing is known.
pub trait ServerView: Send + Sync {
    /// The connected sessions.
    fn sessions(&self) -> Vec<SessionRow> {
        Vec::new()
    }
    /// The session's prepared statements, by name.
    fn statements(&self) -> Vec<StatementRow> {
        Vec::new()
    }
    /// The session's cursors, by name.
    fn cursors(&self) -> Vec<CursorRow> {
        Vec::new()
    }
    /// The channels that the session listens on.
    fn listening(&self) -> Vec<String> {
        Vec::new()
    }
    /// The share of its room that the listener with the most unread notifications has used up.
    fn notification_usage(&self) -> f64 {
        0.0
    }
    /// Locks held and waited for.
    fn locks(&self) -> Vec<LockRow> {
        Vec::new()
    }
    /// The running transactions.
    fn transactions(&self) -> Vec<TransactionRow> {
        Vec::new()
    }
    /// The prepared transactions, instances of families among them.
    fn prepared(&self) -> Vec<PreparedRow> {
        Vec::new()
    }
    /// The families that wait for their decision.
    fn in_doubt(&self) -> Vec<FamilyRow> {
        Vec::new()
    }
    /// The nodes of the cluster.
    fn nodes(&self) -> Vec<crate::session::NodeRow> {
        Vec::new()
    }
    /// How a node's transactions are replicated; `None` in a database of its own.
    fn replication(&self) -> Option<crate::session::ReplicationRow> {
        None
    }
    /// The protocols that classes of transactions go through.
    fn protocol_choices(&self) -> Vec<crate::monitor::ChoiceRow> {
        Vec::new()
    }
    /// The last serialization failures, latest first.
    fn failures(&self) -> Vec<Failure> {
        Vec::new()
    }
    /// Whether a session waits for one of the others.
    fn is_blocked_by(&self, process_id: i32, others: &[i32]) -> bool {
        let _ = (process_id, others);
        false
    }
    /// What the governor does.
    fn governor(&self) -> Option<GovernorInfo> {
        None
    }
    /// What the engine has counted.
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
    /// Whether the session may look at what concerns the whole server, as `pg_monitor` may.
    fn may_monitor(&self) -> bool {
        true
    }
    /// Rows of a tree, approximately.
    fn approximate_rows(&self, tree: u32) -> u64 {
        let _ = tree;
        0
    }
    /// What was read and written of a table, or by an index, since it is counted.
    fn usage_of(&self, relation: Oid) -> Counts {
        let _ = relation;
        Counts::default()
    }
    /// The same of all tables and indexes that a database has or had.
    fn usage_in(&self, database: Oid) -> DatabaseCounts {
        let _ = database;
        DatabaseCounts::default()
    }
    /// Begins to count anew: a table or an index, or all that is counted of the session's database.
    fn reset_usage(&self, relation: Option<Oid>) {
        let _ = relation;
    }
    /// Whether the session may do what is left to superusers.
    fn may_administer(&self) -> bool {
        true
    }
    /// What was gathered of the table whose rows are in this tree.
    fn table_statistics(&self, tree: u32) -> Option<Arc<TableStatistics>> {
        let _ = tree;
        None
    }
    /// What the session's role may do in the database; none is everything.
    fn rights_of_asker(&self, catalog: &Catalog) -> Option<Arc<Rights>> {
        let _ = catalog;
        None
    }
    /// Whether the session may read a column of a table.
    fn may_read(&self, table: Oid, column: usize) -> bool {
        let _ = (table, column);
        true
    }
    /// Bytes that a tree takes, approximately.
    fn tree_bytes(&self, tree: u32) -> i64 {
        let _ = tree;
        0
    }
    /// Bytes that the database takes, approximately.
    fn database_bytes(&self, _database: Oid) -> i64 {
        0
    }
    /// The last commit that new transactions see, and the last one that a crash cannot take back.
    fn commits(&self) -> (u64, u64) {
        (0, 0)
    }
    /// When the server started, microseconds since 2000-01-01 UTC.
    fn started(&self) -> i64 {
        0
    }
    /// A sequence's value, and whether it was given out.
    fn sequence_state(&self, sequence: &Sequence) -> Option<(i64, bool)> {
        let _ = sequence;
        None
    }
    /// The value a sequence gave last; `None` if it gave none yet.
    fn last_value(&self, sequence: &Sequence) -> Option<i64> {
        self.sequence_state(sequence).and_then(|(value, is_called)| is_called.then_some(value))
    }
}

/// Nothing is known beyond the session.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoServer;

impl ServerView for NoServer {}

/// What was read and written in a database.
#[derive(Clone, Copy, Debug, Default)]
pub struct DatabaseCounts {
    /// Of all tables and indexes that it has or had.
    pub counts: Counts,
    /// When that was begun anew.
    pub reset: CountsReset,
}

/// When it was begun to count anew, and what the engine had counted by then, which goes on.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountsReset {
    /// Microseconds since 2000-01-01 UTC; never, if there is none.
    pub at: Option<i64>,
    /// Transactions that had committed.
    pub commits: u64,
    /// Those that were rolled back.
    pub rollbacks: u64,
    /// Deadlocks.
    pub deadlocks: u64,
}

/// A connected session. Times are microseconds since 2000-01-01 UTC.
#[derive(Clone, Debug, Default)]
pub struct SessionRow {
    /// `pg_backend_pid()` of it.
    pub process_id: i32,
    /// The database that it is connected to.
    pub database: Oid,
    /// What the session calls it.
    pub database_name: String,
    /// Its user.
    pub user: String,
    /// `application_name`.
    pub application_name: String,
    /// The client's address and port.
    pub client: Option<(String, i32)>,
    /// By which version of TLS its connection is encrypted, if it is.
    pub tls: Option<&'static str>,
    /// When it connected.
    pub started: i64,
    /// When its transaction began.
    pub transaction_started: Option<i64>,
    /// When its statement began.
    pub statement_started: Option<i64>,
    /// When `state` changed.
    pub state_changed: Option<i64>,
    /// `active`, `idle`, `idle in transaction` or `idle in transaction (aborted)`; nothing where it
    /// is not the asker's to see.
    pub state: &'static str,
    /// What it waits for while it executes, in the words of `pg_stat_activity`: kind and event.
    pub waits_for: Option<(&'static str, &'static str)>,
    /// The running or last statement's text.
    pub query: String,
    /// Id of its transaction.
    pub transaction: Option<u64>,
}

/// A prepared statement of the session.
#[derive(Clone, Debug, Default)]
pub struct StatementRow {
    /// Its name.
    pub name: String,
    /// The text that it came in.
    pub statement: Arc<str>,
    /// When it was prepared, microseconds since 2000-01-01 UTC.
    pub prepared: i64,
    /// Oids of its parameters' types.
    pub parameter_types: Vec<Oid>,
    /// By PREPARE, and not by the protocol.
    pub from_sql: bool,
}

/// A cursor of the session.
#[derive(Clone, Debug, Default)]
pub struct CursorRow {
    /// Its name.
    pub name: String,
    /// The text that its declaration came in.
    pub statement: Arc<str>,
    /// It outlives its transaction.
    pub holdable: bool,
    /// It can move backwards.
    pub scrollable: bool,
    /// When it was declared, microseconds since 2000-01-01 UTC.
    pub declared: i64,
}

/// A lock held or waited for.
#[derive(Clone, Debug, Default)]
pub struct LockRow {
    /// Process id of the session.
    pub process_id: i32,
    /// The transaction.
    pub transaction: u64,
    /// The database it is in.
    pub database: Oid,
    /// The relation it is in, if known.
    pub relation: Option<Oid>,
    /// Name of the relation, or of the index that the key is in.
    pub relation_name: Option<String>,
    /// The row's key in words.
    pub key: Option<String>,
    /// It is a row's lock, not the whole relation's.
    pub row: bool,
    /// It is an advisory lock: `classid`, `objid`, `objsubid`.
    pub advisory: Option<(Oid, Oid, u16)>,
    /// PostgreSQL's name of the mode.
    pub mode: &'static str,
    /// Held, not waited for.
    pub granted: bool,
}

/// A prepared transaction.
#[derive(Clone, Debug, Default)]
pub struct PreparedRow {
    /// Its id.
    pub transaction: u64,
    /// What it is decided by.
    pub identifier: String,
    /// When, microseconds since 2000-01-01 UTC.
    pub prepared: i64,
    /// Who prepared it.
    pub owner: String,
    /// In which database.
    pub database: String,
}

/// A family that waits for its decision.
#[derive(Clone, Debug, Default)]
pub struct FamilyRow {
    /// Its XID.
    pub xid: String,
    /// Its prepared instances.
    pub instances: Vec<i64>,
    /// Since when, microseconds since 2000-01-01 UTC.
    pub prepared: i64,
    /// For how many microseconds.
    pub age_us: i64,
    /// Locks that they hold.
    pub locks: u64,
    /// The request, if the session may see it.
    pub request: Option<String>,
}

/// A running transaction.
#[derive(Clone, Debug, Default)]
pub struct TransactionRow {
    /// Process id of the session.
    pub process_id: i32,
    /// Its id.
    pub transaction: u64,
    /// `executing`, `waiting for a lock` or `waiting for the client`.
    pub state: &'static str,
    /// Microseconds since it began.
    pub age_us: i64,
    /// The last commit that it sees.
    pub snapshot: u64,
    /// Isolation level.
    pub isolation: &'static str,
    /// It may not write, or has not begun to.
    pub read_only: bool,
    /// Relation and key of the lock that it waits for.
    pub waits_for: Option<String>,
}

/// Bytes of a block, as `block_size` tells it.
const BLOCK: i64 = 8192;

impl Source<'_> {
    /// So many blocks would hold what is in a tree: files of PostgreSQL's are whole blocks, and
    /// programs divide their sizes by that.
    pub(super) fn tree_blocks(&self, tree: u32) -> i64 {
        let bytes = self.server.tree_bytes(tree);
        bytes / BLOCK + i64::from(bytes % BLOCK != 0)
    }

    /// The bytes of these blocks.
    pub(super) fn tree_bytes(&self, tree: u32) -> i64 {
        self.tree_blocks(tree).saturating_mul(BLOCK)
    }

    /// The name of the session's role.
    pub(super) fn user(&self) -> String {
        self.eval.session.user()
    }

    /// The schema of the session's temporary objects, if there is one.
    pub(super) fn temporary_schema(&self) -> Option<&Arc<Schema>> {
        let path = self.search_path();
        self.catalog.schema(resolve_schema(&path, TEMPORARY_ALIAS))
    }

    /// The schemas searched, `pg_catalog` included.
    pub(super) fn search_path(&self) -> Vec<String> {
        self.eval.session.search_path(true)
    }

    /// A relation as `regclass` prints it.
    pub(super) fn display(&self, relation: Oid) -> Option<String> {
        Some(AnyRelation::by_oid(self.catalog, relation)?.display(self.catalog, &self.search_path()))
    }

    /// All databases, each with the name by which the session knows it.
    pub(super) fn databases(&self) -> Vec<Database> {
        let (own, name) = (self.catalog.database_oid(), self.database());
        let named = |known: &Database| match known.oid == own {
            true => Database { name: name.clone(), ..known.clone() },
            false => known.clone(),
        };
        self.catalog.databases().map(named).collect()
    }

    /// The database of a name.
    pub(super) fn database_named(&self, name: &str) -> Option<Oid> {
        self.catalog.database_called(name, &self.database()).map(|known| known.oid)
    }

    /// The name of the database.
    pub(super) fn database(&self) -> String {
        self.eval.session.database()
    }
}
