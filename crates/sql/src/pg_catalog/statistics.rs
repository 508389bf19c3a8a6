//! What PostgreSQL's statistics views count: `pg_stat_user_tables`, `pg_stat_database`,
//! `pg_stat_bgwriter` and their kin, with the columns of version 15; and `pg_stats`, what ANALYZE
//! has gathered of columns.
//!
//! The engine counts commits, rollbacks, deadlocks, checkpoints and what it writes to its log,
//! since it was opened, and knows roughly how many rows a tree has. Sessions count scans, and rows
//! that they read and write (`session::usage`), each at its node. Nobody counts blocks, or versions
//! that are not needed any more: such a column is NULL. Of whole databases and the server
//! (`pg_stat_database`, `pg_stat_bgwriter`, `pg_stat_wal`) it is 0, because monitors pass over a
//! row of which one figure is missing that PostgreSQL always has. Of a column's values their number
//! is known and how many are NULL, not which are common: the rest of `pg_stats` is NULL.
//!
//! All tables are users' tables here, since the catalog's are not stored.

use std::sync::Arc;

use cognate_engine::Statistics;

use super::value::NULL;
use super::viewer::Viewer;
use super::{DatabaseCounts, ServerView, Source, SystemTable};
use crate::catalog::{DATABASE_OID, Database, Index, Oid, Table};
use crate::expr::Counts;
use crate::statistics::ColumnStatistics;
use crate::types::{Datum, Numeric as Number};

pub(super) const TABLES: &[&SystemTable] = &[
    &PG_STAT_ALL_TABLES,
    &PG_STAT_USER_TABLES,
    &PG_STAT_SYS_TABLES,
    &PG_STAT_ALL_INDEXES,
    &PG_STAT_USER_INDEXES,
    &PG_STAT_SYS_INDEXES,
    &PG_STATIO_ALL_TABLES,
    &PG_STATIO_USER_TABLES,
    &PG_STATIO_SYS_TABLES,
    &PG_STATIO_ALL_INDEXES,
    &PG_STATIO_USER_INDEXES,
    &PG_STATIO_SYS_INDEXES,
    &PG_STATIO_ALL_SEQUENCES,
    &PG_STATIO_USER_SEQUENCES,
    &PG_STAT_DATABASE,
    &PG_STAT_DATABASE_CONFLICTS,
    &PG_STAT_BGWRITER,
    &PG_STAT_WAL,
    &PG_STAT_ARCHIVER,
    &PG_STATS,
];

pub(super) fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn indexes<'a>(source: &Source<'a>) -> impl Iterator<Item = (&'a Arc<Table>, &'a Index)> {
    source.catalog.tables().flat_map(|table| table.indexes.iter().map(move |index| (table, index)))
}

/// The tables, each with what was counted of it, and by its indexes together; none if there are no
/// indexes.
fn tables<'a>(source: &Source<'a>) -> impl Iterator<Item = (&'a Arc<Table>, Counts, Option<Counts>)> {
    let server = source.server;
    source.catalog.tables().map(move |table| {
        let by_indexes = table.indexes.iter().map(|index| server.usage_of(index.oid));
        let by_indexes = by_indexes.reduce(|mut sum, counts| {
            sum.add(&counts);
            sum
        });
        (table, server.usage_of(table.oid), by_indexes)
    })
}

/// When the statistics of a table were gathered that there are, by ANALYZE or in the background.
pub(super) fn gathered_at(server: &dyn ServerView, table: &Table, automatic: bool) -> Datum {
    let known = server.table_statistics(table.tree).filter(|known| known.automatic == automatic);
    known.map_or(NULL, |known| Datum::Timestamptz(known.at))
}

/// The columns of which something was gathered that the user may read, with the table's rows.
fn columns(source: &Source<'_>) -> Vec<(Arc<Table>, String, ColumnStatistics, u64)> {
    let (viewer, mut columns) = (Viewer::new(source), Vec::new());
    for table in source.catalog.tables() {
        let Some(known) = source.server.table_statistics(table.tree) else { continue };
        let is_hidden = |place: usize| match table.temporary {
            true => viewer.is_of_another_session(table.schema),
            false => !source.server.may_read(table.oid, place),
        };
        for (place, column) in table.visible_columns() {
            if let Some(of_column) = known.columns.get(place).filter(|_| !is_hidden(place)) {
                columns.push((Arc::clone(table), column.name.clone(), *of_column, known.rows));
            }
        }
    }
    columns
}

/// What the engine has counted; zeros where there is none.
fn counted(source: &Source<'_>) -> [Statistics; 1] {
    [source.server.statistics()]
}

/// Since when it counts.
fn started(source: &Source<'_>) -> Datum {
    Datum::Timestamptz(source.server.started())
}

/// Since when it is counted in a database.
pub(super) fn since(source: &Source<'_>, counted: &DatabaseCounts) -> Datum {
    counted.reset.at.map_or_else(|| started(source), Datum::Timestamptz)
}

/// The view of the users' part of another one, which is all of it.
const fn of_users(oid: u32, name: &'static str, all: &SystemTable) -> SystemTable {
    SystemTable {
        oid,
        name,
        schema: all.schema,
        view: true,
        columns: all.columns,
        rows: all.rows,
        rows_by_oid: all.rows_by_oid,
    }
}

/// The view of the catalog's part of another one, which is empty.
const fn of_system(oid: u32, name: &'static str, all: &SystemTable) -> SystemTable {
    SystemTable {
        oid,
        name,
        schema: all.schema,
        view: true,
        columns: all.columns,
        rows: |_| Vec::new(),
        rows_by_oid: |_, _, _| Some(Vec::new()),
    }
}

system_table! {
    static PG_STAT_ALL_TABLES = 12142 view "pg_catalog"."pg_stat_all_tables",
    |source| tables(source) => |(table, counts, by_indexes)|,
    relid: Oid = table.oid,
    schemaname: Name = table.schema_name.clone(),
    relname: Name = table.name.clone(),
    seq_scan: Int8 = count(counts.scans),
    seq_tup_read: Int8 = count(counts.read),
    idx_scan: Int8 = by_indexes.map(|counts| count(counts.scans)),
    idx_tup_fetch: Int8 = by_indexes.map(|counts| count(counts.fetched)),
    n_tup_ins: Int8 = count(counts.inserted),
    n_tup_upd: Int8 = count(counts.updated),
    n_tup_del: Int8 = count(counts.deleted),
    n_tup_hot_upd: Int8 = NULL,
    n_live_tup: Int8 = count(source.server.approximate_rows(table.tree)),
    n_dead_tup: Int8 = NULL,
    n_mod_since_analyze: Int8 = NULL,
    n_ins_since_vacuum: Int8 = NULL,
    last_vacuum: Timestamptz = NULL,
    last_autovacuum: Timestamptz = NULL,
    last_analyze: Timestamptz = gathered_at(source.server, table, false),
    last_autoanalyze: Timestamptz = gathered_at(source.server, table, true),
    vacuum_count: Int8 = 0,
    autovacuum_count: Int8 = 0,
    analyze_count: Int8 = 0,
    autoanalyze_count: Int8 = 0,
}

static PG_STAT_USER_TABLES: SystemTable = of_users(12161, "pg_stat_user_tables", &PG_STAT_ALL_TABLES);
static PG_STAT_SYS_TABLES: SystemTable = of_system(12152, "pg_stat_sys_tables", &PG_STAT_ALL_TABLES);

system_table! {
    static PG_STATS = 12053 view "pg_catalog"."pg_stats",
    |source| columns(source) => |(table, name, known, rows)|,
    schemaname: Name = table.schema_name.clone(),
    tablename: Name = table.name.clone(),
    attname: Name = name,
    inherited: Bool = false,
    null_frac: Float4 = known.null_share as f32,
    avg_width: Int4 = known.width,
    n_distinct: Float4 = known.shown_distinct(rows),
    most_common_vals: TextArray = NULL,
    most_common_freqs: Float4Array = NULL,
    histogram_bounds: TextArray = NULL,
    correlation: Float4 = NULL,
    most_common_elems: TextArray = NULL,
    most_common_elem_freqs: Float4Array = NULL,
    elem_count_histogram: Float4Array = NULL,
}

system_table! {
    static PG_STAT_ALL_INDEXES = 12183 view "pg_catalog"."pg_stat_all_indexes",
    |source| indexes(source).map(|(table, index)| (table, index, source.server.usage_of(index.oid))) =>
        |(table, index, counts)|,
    relid: Oid = table.oid,
    indexrelid: Oid = index.oid,
    schemaname: Name = table.schema_name.clone(),
    relname: Name = table.name.clone(),
    indexrelname: Name = index.name.clone(),
    idx_scan: Int8 = count(counts.scans),
    idx_tup_read: Int8 = count(counts.read),
    idx_tup_fetch: Int8 = count(counts.fetched),
}

static PG_STAT_USER_INDEXES: SystemTable = of_users(12192, "pg_stat_user_indexes", &PG_STAT_ALL_INDEXES);
static PG_STAT_SYS_INDEXES: SystemTable = of_system(12188, "pg_stat_sys_indexes", &PG_STAT_ALL_INDEXES);

system_table! {
    static PG_STATIO_ALL_TABLES = 12170 view "pg_catalog"."pg_statio_all_tables",
    |source| source.catalog.tables() => |table|,
    relid: Oid = table.oid,
    schemaname: Name = table.schema_name.clone(),
    relname: Name = table.name.clone(),
    heap_blks_read: Int8 = NULL,
    heap_blks_hit: Int8 = NULL,
    idx_blks_read: Int8 = NULL,
    idx_blks_hit: Int8 = NULL,
    toast_blks_read: Int8 = NULL,
    toast_blks_hit: Int8 = NULL,
    tidx_blks_read: Int8 = NULL,
    tidx_blks_hit: Int8 = NULL,
}

static PG_STATIO_USER_TABLES: SystemTable = of_users(12179, "pg_statio_user_tables", &PG_STATIO_ALL_TABLES);
static PG_STATIO_SYS_TABLES: SystemTable = of_system(12175, "pg_statio_sys_tables", &PG_STATIO_ALL_TABLES);

system_table! {
    static PG_STATIO_ALL_INDEXES = 12196 view "pg_catalog"."pg_statio_all_indexes",
    |source| indexes(source) => |(table, index)|,
    relid: Oid = table.oid,
    indexrelid: Oid = index.oid,
    schemaname: Name = table.schema_name.clone(),
    relname: Name = table.name.clone(),
    indexrelname: Name = index.name.clone(),
    idx_blks_read: Int8 = NULL,
    idx_blks_hit: Int8 = NULL,
}

static PG_STATIO_USER_INDEXES: SystemTable =
    of_users(12205, "pg_statio_user_indexes", &PG_STATIO_ALL_INDEXES);
static PG_STATIO_SYS_INDEXES: SystemTable = of_system(12201, "pg_statio_sys_indexes", &PG_STATIO_ALL_INDEXES);

system_table! {
    static PG_STATIO_ALL_SEQUENCES = 12209 view "pg_catalog"."pg_statio_all_sequences",
    |source| source.catalog.sequences() => |sequence|,
    relid: Oid = sequence.oid,
    schemaname: Name = sequence.schema_name.clone(),
    relname: Name = sequence.name.clone(),
    blks_read: Int8 = NULL,
    blks_hit: Int8 = NULL,
}

static PG_STATIO_USER_SEQUENCES: SystemTable =
    of_users(12218, "pg_statio_user_sequences", &PG_STATIO_ALL_SEQUENCES);

/// The figures of a database.
struct OfDatabase {
    oid: Oid,
    name: Option<String>,
    sessions: i32,
    commits: u64,
    rollbacks: u64,
    deadlocks: u64,
    counts: Counts,
    since: Datum,
}

/// The databases with their figures. The engine counts for all of them together: that is shown as
/// the initial one's. Before them comes what belongs to none of them, as in PostgreSQL: of tables
/// that all share, of which none is stored.
fn databases(source: &Source<'_>) -> Vec<OfDatabase> {
    let sessions = source.server.sessions();
    let row = |known: Database| {
        let own = sessions.iter().filter(|session| session.database == known.oid).count();
        let of_engine = match known.oid {
            DATABASE_OID => source.server.statistics(),
            _ => Statistics::default(),
        };
        let counted = source.server.usage_in(known.oid);
        let commits = of_engine.commits + of_engine.empty_commits;
        OfDatabase {
            oid: known.oid,
            name: Some(known.name),
            sessions: i32::try_from(own).unwrap_or(i32::MAX),
            commits: commits.saturating_sub(counted.reset.commits),
            rollbacks: of_engine.rollbacks.saturating_sub(counted.reset.rollbacks),
            deadlocks: of_engine.deadlocks.saturating_sub(counted.reset.deadlocks),
            counts: counted.counts,
            since: since(source, &counted),
        }
    };
    let of_none = OfDatabase {
        oid: 0,
        name: None,
        sessions: 0,
        commits: 0,
        rollbacks: 0,
        deadlocks: 0,
        counts: Counts::default(),
        since: NULL,
    };
    std::iter::once(of_none).chain(source.databases().into_iter().map(row)).collect()
}

system_table! {
    static PG_STAT_DATABASE = 12266 view "pg_catalog"."pg_stat_database",
    |source| databases(source) => |known|,
    datid: Oid = known.oid,
    datname: Name = known.name,
    numbackends: Int4 = known.sessions,
    xact_commit: Int8 = count(known.commits),
    xact_rollback: Int8 = count(known.rollbacks),
    blks_read: Int8 = 0,
    blks_hit: Int8 = 0,
    tup_returned: Int8 = count(known.counts.read),
    tup_fetched: Int8 = count(known.counts.fetched),
    tup_inserted: Int8 = count(known.counts.inserted),
    tup_updated: Int8 = count(known.counts.updated),
    tup_deleted: Int8 = count(known.counts.deleted),
    conflicts: Int8 = 0,
    temp_files: Int8 = 0,
    temp_bytes: Int8 = 0,
    deadlocks: Int8 = count(known.deadlocks),
    checksum_failures: Int8 = NULL,
    checksum_last_failure: Timestamptz = NULL,
    blk_read_time: Float8 = 0.0,
    blk_write_time: Float8 = 0.0,
    session_time: Float8 = 0.0,
    active_time: Float8 = 0.0,
    idle_in_transaction_time: Float8 = 0.0,
    sessions: Int8 = 0,
    sessions_abandoned: Int8 = 0,
    sessions_fatal: Int8 = 0,
    sessions_killed: Int8 = 0,
    stats_reset: Timestamptz = known.since,
}

// No session is ever ended in favour of what a primary sends, for there is none.
system_table! {
    static PG_STAT_DATABASE_CONFLICTS = 12271 view "pg_catalog"."pg_stat_database_conflicts",
    |source| source.databases() => |known|,
    datid: Oid = known.oid,
    datname: Name = known.name.clone(),
    confl_tablespace: Int8 = 0,
    confl_lock: Int8 = 0,
    confl_snapshot: Int8 = 0,
    confl_bufferpin: Int8 = 0,
    confl_deadlock: Int8 = 0,
}

// Checkpoints follow what was written, not a clock; nobody but them writes blocks.
system_table! {
    static PG_STAT_BGWRITER = 12289 view "pg_catalog"."pg_stat_bgwriter",
    |source| counted(source).map(|counted| (counted, started(source))) => |(counted, since)|,
    checkpoints_timed: Int8 = 0,
    checkpoints_req: Int8 = count(counted.checkpoints),
    checkpoint_write_time: Float8 = 0.0,
    checkpoint_sync_time: Float8 = 0.0,
    buffers_checkpoint: Int8 = 0,
    buffers_clean: Int8 = 0,
    maxwritten_clean: Int8 = 0,
    buffers_backend: Int8 = 0,
    buffers_backend_fsync: Int8 = 0,
    buffers_alloc: Int8 = 0,
    stats_reset: Timestamptz = since,
}

// A record is a commit. Writing and flushing a batch is one step, whose time is in the second
// column.
system_table! {
    static PG_STAT_WAL = 12293 view "pg_catalog"."pg_stat_wal",
    |source| counted(source).map(|counted| (counted, started(source))) => |(counted, since)|,
    wal_records: Int8 = count(counted.commits),
    wal_fpi: Int8 = 0,
    wal_bytes: Numeric = Datum::from(Number::from(i128::from(counted.log.bytes))),
    wal_buffers_full: Int8 = 0,
    wal_write: Int8 = count(counted.log.batches),
    wal_sync: Int8 = count(counted.log.batches),
    wal_write_time: Float8 = 0.0,
    wal_sync_time: Float8 = counted.log.flush_us as f64 / 1000.0,
    stats_reset: Timestamptz = since,
}

// Nothing is archived.
system_table! {
    static PG_STAT_ARCHIVER = 12285 view "pg_catalog"."pg_stat_archiver",
    |source| [started(source)] => |since|,
    archived_count: Int8 = 0,
    last_archived_wal: Text = NULL,
    last_archived_time: Timestamptz = NULL,
    failed_count: Int8 = 0,
    last_failed_wal: Text = NULL,
    last_failed_time: Timestamptz = NULL,
    stats_reset: Timestamptz = since,
}
