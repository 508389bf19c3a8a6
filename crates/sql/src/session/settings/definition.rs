//! The settings there are. Names, defaults and ranges are PostgreSQL 15's where PostgreSQL has the setting; those that
//! steer its planner or its storage are accepted and have nothing to steer here.

use std::collections::HashMap;
use std::sync::LazyLock;

/// What values a setting takes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Kind {
    /// `on` or `off`.
    Bool,
    /// A whole number, in `unit`.
    Integer { minimum: i64, maximum: i64, unit: Unit },
    /// A number.
    Real { minimum: f64, maximum: f64 },
    /// One of these words.
    Enum(&'static [&'static str]),
    /// Any text.
    Text,
    /// PostgreSQL has more values, but only this one is supported: another answers 0A000.
    Only(&'static str),
    /// A list of identifiers.
    Names,
    /// A time zone.
    TimeZone,
    /// An order of year, month and day (the style is always ISO).
    DateStyle,
    /// A client encoding: UTF8.
    Encoding,
}

/// Unit of an integer setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A plain number.
    None,
    /// ms.
    Milliseconds,
    /// s.
    Seconds,
    /// B.
    Bytes,
    /// kB.
    Kilobytes,
    /// 8 kB.
    Blocks,
    /// MB.
    Megabytes,
}

impl Unit {
    /// The unit in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Milliseconds => "ms",
            Unit::Seconds => "s",
            Unit::Bytes => "B",
            Unit::Kilobytes => "kB",
            Unit::Blocks => "8kB",
            Unit::Megabytes => "MB",
        }
    }

    /// Units it may be given in and printed in, largest first, with their size in microseconds or bytes.
    pub(super) fn suffixes(self) -> &'static [(&'static str, f64)] {
        match self {
            Unit::None => &[],
            Unit::Milliseconds | Unit::Seconds => {
                &[("d", 86_400e6), ("h", 3_600e6), ("min", 60e6), ("s", 1e6), ("ms", 1e3), ("us", 1.0)]
            }
            Unit::Bytes | Unit::Kilobytes | Unit::Blocks | Unit::Megabytes => &[
                ("TB", 1_099_511_627_776.0),
                ("GB", 1_073_741_824.0),
                ("MB", 1_048_576.0),
                ("kB", 1024.0),
                ("B", 1.0),
            ],
        }
    }

    fn base(self) -> f64 {
        match self {
            Unit::None | Unit::Bytes => 1.0,
            Unit::Milliseconds => 1e3,
            Unit::Seconds => 1e6,
            Unit::Kilobytes => 1024.0,
            Unit::Blocks => 8192.0,
            Unit::Megabytes => 1_048_576.0,
        }
    }

    /// How many of this unit one of `suffix` is.
    pub(crate) fn factor(self, suffix: &str) -> Option<f64> {
        self.suffixes().iter().find(|(name, _)| *name == suffix).map(|(_, size)| size / self.base())
    }

    /// The HINT that lists the suffixes.
    pub(super) fn hint(self) -> &'static str {
        match self {
            Unit::Milliseconds | Unit::Seconds => {
                "Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\"."
            }
            _ => "Valid units for this parameter are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\".",
        }
    }

    /// A number of this unit in the largest unit that divides it.
    pub(super) fn display(self, number: i64) -> String {
        let size = number as f64 * self.base();
        match self.suffixes().iter().find(|(_, unit)| size % unit == 0.0) {
            Some((name, unit)) if number > 0 => format!("{}{name}", (size / unit) as i64),
            _ => number.to_string(),
        }
    }
}

/// Who may change a setting, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Any session, for itself.
    User,
    /// Nobody.
    Internal,
    /// Only the server's start.
    Start,
    /// Any session, for the whole server: not a connection when it begins.
    Server,
    /// Any session, and SHOW ALL leaves it out.
    Hidden,
}

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Definition {
    /// Canonical name.
    pub name: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// The built-in default, in normal form.
    pub default: &'static str,
    /// Who may change it.
    pub access: Access,
    /// Told to the client when it changes.
    pub report: bool,
}

impl Definition {
    /// RESET ALL leaves it alone.
    pub(super) fn keep_on_reset(&self) -> bool {
        matches!(
            self.name,
            "role" | "seed" | "transaction_isolation" | "transaction_read_only" | "transaction_deferrable"
        )
    }
}

const ISOLATIONS: &[&str] = &["serializable", "repeatable read", "read committed", "read uncommitted"];

type Row = (&'static str, Kind, &'static str, Access, bool);

const TABLE: &[Row] = {
    use Access::*;
    use Kind::*;
    &[
        ("application_name", Text, "", User, true),
        ("array_nulls", Only("on"), "on", User, false),
        ("autovacuum", Bool, "on", Start, false),
        ("backend_flush_after", Integer { minimum: 0, maximum: 256, unit: Unit::Blocks }, "0", User, false),
        ("backslash_quote", Enum(&["safe_encoding", "on", "off"]), "safe_encoding", User, false),
        ("block_size", Integer { minimum: 8192, maximum: 8192, unit: Unit::None }, "8192", Internal, false),
        ("bytea_output", Enum(&["escape", "hex"]), "hex", User, false),
        ("check_function_bodies", Bool, "on", User, false),
        (
            "client_connection_check_interval",
            Integer { minimum: 0, maximum: 2147483647, unit: Unit::Milliseconds },
            "0",
            User,
            false,
        ),
        ("client_encoding", Encoding, "UTF8", User, true),
        (
            "client_min_messages",
            Enum(&["debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error"]),
            "notice",
            User,
            false,
        ),
        // The governor's: its value is the server's, see `governed`.
        ("cognate.active_limit", Text, "auto", Server, false),
        // Which executor runs SELECT: see `Executor`.
        (
            "cognate.certifier_memory",
            Integer { minimum: 1024, maximum: 67108864, unit: Unit::Kilobytes },
            "32MB",
            Server,
            false,
        ),
        ("cognate.retry_of", Text, "", User, false),
        ("cognate.serializable", Enum(&["pssi", "ssi", "2pl", "si"]), "pssi", Internal, false),
        (
            "cognate.statement_retries",
            Integer { minimum: 0, maximum: 1000, unit: Unit::None },
            "10",
            User,
            false,
        ),
        ("cognate.executor", Enum(&["auto", "row", "analytic"]), "auto", User, false),
        ("commit_siblings", Integer { minimum: 0, maximum: 1000, unit: Unit::None }, "5", User, false),
        ("compute_query_id", Enum(&["auto", "regress", "on", "off"]), "auto", User, false),
        ("constraint_exclusion", Enum(&["partition", "on", "off"]), "partition", User, false),
        ("cpu_index_tuple_cost", Real { minimum: 0.0, maximum: f64::MAX }, "0.005", User, false),
        ("cpu_operator_cost", Real { minimum: 0.0, maximum: f64::MAX }, "0.0025", User, false),
        ("cpu_tuple_cost", Real { minimum: 0.0, maximum: f64::MAX }, "0.01", User, false),
        ("cursor_tuple_fraction", Real { minimum: 0.0, maximum: 1.0 }, "0.1", User, false),
        ("data_checksums", Bool, "on", Internal, false),
        ("DateStyle", DateStyle, "ISO, MDY", User, true),
        (
            "deadlock_timeout",
            Integer { minimum: 1, maximum: 2147483647, unit: Unit::Milliseconds },
            "1000",
            User,
            false,
        ),
        (
            "default_statistics_target",
            Integer { minimum: 1, maximum: 10000, unit: Unit::None },
            "100",
            User,
            false,
        ),
        ("default_table_access_method", Only("heap"), "heap", User, false),
        ("default_tablespace", Only(""), "", User, false),
        ("default_text_search_config", Text, "pg_catalog.english", User, false),
        ("default_toast_compression", Enum(&["pglz", "lz4"]), "pglz", User, false),
        ("default_transaction_deferrable", Bool, "off", User, false),
        ("default_transaction_isolation", Enum(ISOLATIONS), "serializable", User, false),
        ("default_transaction_read_only", Bool, "off", User, true),
        (
            "effective_cache_size",
            Integer { minimum: 1, maximum: 2147483647, unit: Unit::Blocks },
            "524288",
            User,
            false,
        ),
        (
            "effective_io_concurrency",
            Integer { minimum: 0, maximum: 1000, unit: Unit::None },
            "1",
            User,
            false,
        ),
        ("enable_async_append", Bool, "on", User, false),
        ("enable_bitmapscan", Bool, "on", User, false),
        ("enable_gathermerge", Bool, "on", User, false),
        ("enable_hashagg", Bool, "on", User, false),
        ("enable_hashjoin", Bool, "on", User, false),
        ("enable_incremental_sort", Bool, "on", User, false),
        ("enable_indexonlyscan", Bool, "on", User, false),
        ("enable_indexscan", Bool, "on", User, false),
        ("enable_material", Bool, "on", User, false),
        ("enable_memoize", Bool, "on", User, false),
        ("enable_mergejoin", Bool, "on", User, false),
        ("enable_nestloop", Bool, "on", User, false),
        ("enable_parallel_append", Bool, "on", User, false),
        ("enable_parallel_hash", Bool, "on", User, false),
        ("enable_partition_pruning", Bool, "on", User, false),
        ("enable_partitionwise_aggregate", Bool, "off", User, false),
        ("enable_partitionwise_join", Bool, "off", User, false),
        ("enable_seqscan", Bool, "on", User, false),
        ("enable_sort", Bool, "on", User, false),
        ("enable_tidscan", Bool, "on", User, false),
        ("escape_string_warning", Bool, "on", User, false),
        ("extra_float_digits", Integer { minimum: -15, maximum: 3, unit: Unit::None }, "1", User, false),
        ("force_parallel_mode", Enum(&["off", "on", "regress"]), "off", User, false),
        (
            "from_collapse_limit",
            Integer { minimum: 1, maximum: 2147483647, unit: Unit::None },
            "8",
            User,
            false,
        ),
        ("fsync", Bool, "on", Start, false),
        ("full_page_writes", Bool, "on", Start, false),
        ("geqo", Bool, "on", User, false),
        ("geqo_effort", Integer { minimum: 1, maximum: 10, unit: Unit::None }, "5", User, false),
        ("geqo_generations", Integer { minimum: 0, maximum: 2147483647, unit: Unit::None }, "0", User, false),
        ("geqo_pool_size", Integer { minimum: 0, maximum: 2147483647, unit: Unit::None }, "0", User, false),
        ("geqo_seed", Real { minimum: 0.0, maximum: 1.0 }, "0", User, false),
        ("geqo_selection_bias", Real { minimum: 1.5, maximum: 2.0 }, "2", User, false),
        ("geqo_threshold", Integer { minimum: 2, maximum: 2147483647, unit: Unit::None }, "12", User, false),
        (
            "gin_fuzzy_search_limit",
            Integer { minimum: 0, maximum: 2147483647, unit: Unit::None },
            "0",
            User,
            false,
        ),
        (
            "gin_pending_list_limit",
            Integer { minimum: 64, maximum: 2147483647, unit: Unit::Kilobytes },
            "4096",
            User,
            false,
        ),
        ("hash_mem_multiplier", Real { minimum: 1.0, maximum: 1000.0 }, "2", User, false),
        (
            "idle_in_transaction_session_timeout",
            Integer { minimum: 0, maximum: 2147483647, unit: Unit::Milliseconds },
            "0",
            User,
            false,
        ),
        (
            "idle_session_timeout",
            Integer { minimum: 0, maximum: 2147483647, unit: Unit::Milliseconds },
            "0",
            User,
            false,
        ),
        ("in_hot_standby", Bool, "off", Internal, true),
        ("integer_datetimes", Bool, "on", Internal, true),
        ("IntervalStyle", Only("postgres"), "postgres", User, true),
        ("jit", Bool, "off", User, false),
        ("jit_above_cost", Real { minimum: -1.0, maximum: f64::MAX }, "100000", User, false),
        ("jit_expressions", Bool, "on", User, false),
        ("jit_inline_above_cost", Real { minimum: -1.0, maximum: f64::MAX }, "500000", User, false),
        ("jit_optimize_above_cost", Real { minimum: -1.0, maximum: f64::MAX }, "500000", User, false),
        ("jit_tuple_deforming", Bool, "on", User, false),
        (
            "join_collapse_limit",
            Integer { minimum: 1, maximum: 2147483647, unit: Unit::None },
            "8",
            User,
            false,
        ),
        ("lc_collate", Text, "C", Internal, false),
        ("lc_ctype", Text, "C", Internal, false),
        ("lc_messages", Text, "C", User, false),
        ("lc_monetary", Text, "C", User, false),
        ("lc_numeric", Text, "C", User, false),
        ("lc_time", Text, "C", User, false),
        (
            "lock_timeout",
            Integer { minimum: 0, maximum: 2147483647, unit: Unit::Milliseconds },
            "0",
            User,
            false,
        ),
        ("log_duration", Bool, "off", User, false),
        ("log_error_verbosity", Enum(&["terse", "default", "verbose"]), "default", User, false),
        ("log_lock_waits", Bool, "off", User, false),
        (
            "log_min_duration_sample",
            Integer { minimum: -1, maximum: 2147483647, unit: Unit::Milliseconds },
            "-1",
            User,
            false,
        ),
        (
            "log_min_duration_statement",
            Integer { minimum: -1, maximum: 2147483647, unit: Unit::Milliseconds },
            "-1",
            User,
            false,
        ),
        (
            "log_min_error_statement",
            Enum(&[
                "debug5", "debug4", "debug3", "debug2", "debug1", "info", "notice", "warning", "error",
                "log", "fatal", "panic",
            ]),
            "error",
            User,
            false,
        ),
        (
            "log_min_messages",
            Enum(&[
                "debug5", "debug4", "debug3", "debug2", "debug1", "info", "notice", "warning", "error",
                "log", "fatal", "panic",
            ]),
            "warning",
            User,
            false,
        ),
        (
            "log_parameter_max_length",
            Integer { minimum: -1, maximum: 1073741823, unit: Unit::Bytes },
            "-1",
            User,
            false,
        ),
        (
            "log_parameter_max_length_on_error",
            Integer { minimum: -1, maximum: 1073741823, unit: Unit::Bytes },
            "0",
            User,
            false,
        ),
        ("log_statement", Enum(&["none", "ddl", "mod", "all"]), "none", User, false),
        ("log_statement_sample_rate", Real { minimum: 0.0, maximum: 1.0 }, "1", User, false),
        (
            "log_temp_files",
            Integer { minimum: -1, maximum: 2147483647, unit: Unit::Kilobytes },
            "-1",
            User,
            false,
        ),
        ("log_transaction_sample_rate", Real { minimum: 0.0, maximum: 1.0 }, "0", User, false),
        (
            "maintenance_io_concurrency",
            Integer { minimum: 0, maximum: 1000, unit: Unit::None },
            "10",
            User,
            false,
        ),
        (
            "maintenance_work_mem",
            Integer { minimum: 1024, maximum: 2147483647, unit: Unit::Kilobytes },
            "65536",
            User,
            false,
        ),
        ("max_connections", Integer { minimum: 1, maximum: 262143, unit: Unit::None }, "100", Start, false),
        (
            "max_function_args",
            Integer { minimum: 100, maximum: 100, unit: Unit::None },
            "100",
            Internal,
            false,
        ),
        (
            "max_identifier_length",
            Integer { minimum: 63, maximum: 63, unit: Unit::None },
            "63",
            Internal,
            false,
        ),
        ("max_index_keys", Integer { minimum: 32, maximum: 32, unit: Unit::None }, "32", Internal, false),
        (
            "max_locks_per_transaction",
            Integer { minimum: 10, maximum: 2147483647, unit: Unit::None },
            "64",
            Start,
            false,
        ),
        (
            "max_parallel_maintenance_workers",
            Integer { minimum: 0, maximum: 1024, unit: Unit::None },
            "2",
            User,
            false,
        ),
        ("max_parallel_workers", Integer { minimum: 0, maximum: 1024, unit: Unit::None }, "8", User, false),
        (
            "max_parallel_workers_per_gather",
            Integer { minimum: 0, maximum: 1024, unit: Unit::None },
            "2",
            User,
            false,
        ),
        (
            "max_prepared_transactions",
            Integer { minimum: 0, maximum: 262143, unit: Unit::None },
            "0",
            Start,
            false,
        ),
        (
            "max_stack_depth",
            Integer { minimum: 100, maximum: 2147483647, unit: Unit::Kilobytes },
            "2048",
            User,
            false,
        ),
        (
            "min_parallel_index_scan_size",
            Integer { minimum: 0, maximum: 715827882, unit: Unit::Blocks },
            "64",
            User,
            false,
        ),
        (
            "min_parallel_table_scan_size",
            Integer { minimum: 0, maximum: 715827882, unit: Unit::Blocks },
            "1024",
            User,
            false,
        ),
        ("parallel_leader_participation", Bool, "on", User, false),
        ("parallel_setup_cost", Real { minimum: 0.0, maximum: f64::MAX }, "1000", User, false),
        ("parallel_tuple_cost", Real { minimum: 0.0, maximum: f64::MAX }, "0.1", User, false),
        ("password_encryption", Enum(&["md5", "scram-sha-256"]), "scram-sha-256", User, false),
        ("plan_cache_mode", Enum(&["auto", "force_generic_plan", "force_custom_plan"]), "auto", User, false),
        ("port", Integer { minimum: 1, maximum: 65535, unit: Unit::None }, "21400", Start, false),
        ("quote_all_identifiers", Only("off"), "off", User, false),
        ("random_page_cost", Real { minimum: 0.0, maximum: f64::MAX }, "4", User, false),
        ("recursive_worktable_factor", Real { minimum: 0.001, maximum: 1000000.0 }, "10", User, false),
        ("row_security", Bool, "on", User, false),
        ("search_path", Names, "\"$user\", public", User, false),
        ("seq_page_cost", Real { minimum: 0.0, maximum: f64::MAX }, "1", User, false),
        ("server_encoding", Text, "UTF8", Internal, true),
        ("server_version", Text, "15.0 (Cognate 0.1.0)", Internal, true),
        (
            "server_version_num",
            Integer { minimum: 150018, maximum: 150018, unit: Unit::None },
            "150000",
            Internal,
            false,
        ),
        ("session_replication_role", Only("origin"), "origin", User, false),
        (
            "shared_buffers",
            Integer { minimum: 16, maximum: 1073741823, unit: Unit::Blocks },
            "16384",
            Start,
            false,
        ),
        ("ssl", Bool, "off", Start, false),
        ("standard_conforming_strings", Only("on"), "on", User, true),
        (
            "statement_timeout",
            Integer { minimum: 0, maximum: 2147483647, unit: Unit::Milliseconds },
            "0",
            User,
            false,
        ),
        ("synchronize_seqscans", Bool, "on", User, false),
        (
            "synchronous_commit",
            Enum(&["local", "remote_write", "remote_apply", "on", "off"]),
            "on",
            User,
            false,
        ),
        (
            "tcp_keepalives_count",
            Integer { minimum: 0, maximum: 2147483647, unit: Unit::None },
            "9",
            User,
            false,
        ),
        (
            "tcp_keepalives_idle",
            Integer { minimum: 0, maximum: 2147483647, unit: Unit::Seconds },
            "7200",
            User,
            false,
        ),
        (
            "tcp_keepalives_interval",
            Integer { minimum: 0, maximum: 2147483647, unit: Unit::Seconds },
            "75",
            User,
            false,
        ),
        (
            "tcp_user_timeout",
            Integer { minimum: 0, maximum: 2147483647, unit: Unit::Milliseconds },
            "0",
            User,
            false,
        ),
        (
            "temp_buffers",
            Integer { minimum: 100, maximum: 1073741823, unit: Unit::Blocks },
            "1024",
            User,
            false,
        ),
        (
            "temp_file_limit",
            Integer { minimum: -1, maximum: 2147483647, unit: Unit::Kilobytes },
            "-1",
            User,
            false,
        ),
        ("temp_tablespaces", Only(""), "", User, false),
        ("TimeZone", TimeZone, "UTC", User, true),
        ("timezone_abbreviations", Only("Default"), "Default", User, false),
        ("track_activities", Bool, "on", User, false),
        ("track_counts", Bool, "on", User, false),
        ("track_functions", Enum(&["none", "pl", "all"]), "none", User, false),
        ("track_io_timing", Bool, "off", User, false),
        ("track_wal_io_timing", Bool, "off", User, false),
        ("transaction_deferrable", Bool, "off", User, false),
        ("transaction_isolation", Enum(ISOLATIONS), "serializable", User, false),
        ("transaction_read_only", Bool, "off", User, false),
        ("update_process_title", Bool, "on", User, false),
        ("vacuum_cost_delay", Real { minimum: 0.0, maximum: 100.0 }, "0", User, false),
        ("vacuum_cost_limit", Integer { minimum: 1, maximum: 10000, unit: Unit::None }, "200", User, false),
        (
            "vacuum_cost_page_dirty",
            Integer { minimum: 0, maximum: 10000, unit: Unit::None },
            "20",
            User,
            false,
        ),
        ("vacuum_cost_page_hit", Integer { minimum: 0, maximum: 10000, unit: Unit::None }, "1", User, false),
        ("vacuum_cost_page_miss", Integer { minimum: 0, maximum: 10000, unit: Unit::None }, "2", User, false),
        (
            "vacuum_failsafe_age",
            Integer { minimum: 0, maximum: 2100000000, unit: Unit::None },
            "1600000000",
            User,
            false,
        ),
        (
            "vacuum_freeze_min_age",
            Integer { minimum: 0, maximum: 1000000000, unit: Unit::None },
            "50000000",
            User,
            false,
        ),
        (
            "vacuum_freeze_table_age",
            Integer { minimum: 0, maximum: 2000000000, unit: Unit::None },
            "150000000",
            User,
            false,
        ),
        (
            "vacuum_multixact_failsafe_age",
            Integer { minimum: 0, maximum: 2100000000, unit: Unit::None },
            "1600000000",
            User,
            false,
        ),
        (
            "vacuum_multixact_freeze_min_age",
            Integer { minimum: 0, maximum: 1000000000, unit: Unit::None },
            "5000000",
            User,
            false,
        ),
        (
            "vacuum_multixact_freeze_table_age",
            Integer { minimum: 0, maximum: 2000000000, unit: Unit::None },
            "150000000",
            User,
            false,
        ),
        ("wal_level", Enum(&["minimal", "replica", "logical"]), "replica", Start, false),
        (
            "work_mem",
            Integer { minimum: 64, maximum: 2147483647, unit: Unit::Kilobytes },
            "4096",
            User,
            false,
        ),
        ("is_superuser", Bool, "on", Internal, true),
        ("session_authorization", Text, "", Internal, true),
        ("role", Only("none"), "none", User, false),
        ("seed", Text, "unavailable", Hidden, false),
    ]
};

static DEFINITIONS: LazyLock<Vec<Definition>> = LazyLock::new(|| {
    let definition =
        |&(name, kind, default, access, report): &Row| Definition { name, kind, default, access, report };
    TABLE.iter().map(definition).collect()
});

static BY_NAME: LazyLock<HashMap<String, usize>> = LazyLock::new(|| {
    DEFINITIONS
        .iter()
        .enumerate()
        .map(|(index, definition)| (definition.name.to_ascii_lowercase(), index))
        .collect()
});

/// All settings.
pub fn all() -> &'static [Definition] {
    &DEFINITIONS
}

/// The place of a setting in [`all`], by its name in any case.
pub(super) fn find(name: &str) -> Option<usize> {
    let name = name.to_ascii_lowercase();
    let name = if name == "time zone" { "timezone" } else { &name };
    BY_NAME.get(name).copied()
}
