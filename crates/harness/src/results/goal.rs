//! The goals: what is to hold, how much is wanted, and which figure tells.
//!
//! A row keeps its meaning. Where another form of a measurement is fairer to somebody, it is a row
//! of its own beside the first, and both are shown with what they measured.

use super::figures::{Figures, Measured};

/// What a figure must do.
#[derive(Clone, Copy, Debug)]
pub enum Must {
    /// It is at least so large.
    AtLeast(f64),
    /// It is at most so large.
    AtMost(f64),
    /// It is only shown.
    Nothing,
}

/// Whether it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes, by more than its standard error.
    Holds,
    /// No, by more than that.
    Fails,
    /// The limit lies within the standard error.
    Open,
    /// There is nothing to hold.
    Shown,
}

/// One row of the goals.
pub struct Goal {
    /// What is compared with what.
    pub what: &'static str,
    /// The same in few words, for a line that names its page; `what` itself if that is not given.
    pub short: &'static str,
    /// The limit.
    pub must: Must,
    /// What is really wanted.
    pub aim: &'static str,
    /// Behind the figure.
    pub unit: &'static str,
    /// Whether it stands on the first page.
    pub first_page: bool,
    /// Where the figure is found.
    pub find: fn(&Figures) -> Option<Measured>,
}

impl Must {
    /// As it stands in the table.
    pub fn text(self, unit: &str) -> String {
        match self {
            Must::AtLeast(limit) => format!("≥ {limit}{unit}"),
            Must::AtMost(limit) => format!("≤ {limit}{unit}"),
            Must::Nothing => String::new(),
        }
    }

    /// What a figure says of it.
    pub fn verdict(self, measured: &Measured) -> Verdict {
        let (above, limit) = match self {
            Must::AtLeast(limit) => (measured.value - limit, limit),
            Must::AtMost(limit) => (limit - measured.value, limit),
            Must::Nothing => return Verdict::Shown,
        };
        match measured.error {
            Some(error) if (measured.value - limit).abs() < error => Verdict::Open,
            _ if above >= 0.0 => Verdict::Holds,
            _ => Verdict::Fails,
        }
    }
}

/// Of these two either is measured: where the best protocol refuses nothing there is no ratio, and
/// points tell it.
pub const EITHER: [&str; 2] = ["`auto`, refused", "`auto`, refused above none"];

impl Goal {
    /// Whether nobody has measured it, and it must hold.
    pub fn is_missing(&self, figures: &Figures) -> bool {
        let is_found = |goal: &Goal| (goal.find)(figures).is_some();
        let mut both = GOALS.iter().filter(|goal| EITHER.contains(&goal.short));
        let is_told = EITHER.contains(&self.short) && both.any(is_found);
        !matches!(self.must, Must::Nothing) && !is_told && !is_found(self)
    }
}

/// `first | further`, then `"what" as "short", AtLeast(1.3), "×", "aim", |figures| ...;`.
macro_rules! goals {
    ($($place:ident $what:literal $(as $short:literal)?, $must:ident $(($limit:expr))?, $unit:literal,
        $aim:literal, $find:expr;)*) => {
        &[$(Goal {
            what: $what,
            short: goals!(@ short $what $($short)?),
            must: Must::$must $(($limit))?,
            unit: $unit,
            aim: $aim,
            first_page: goals!(@ $place),
            find: $find,
        }),*]
    };
    (@ first) => { true };
    (@ further) => { false };
    (@ short $what:literal) => { $what };
    (@ short $what:literal $short:literal) => { $short };
}

/// All goals, in the order in which they are shown.
pub const GOALS: &[Goal] = goals! {
    first "pgbench select-only, prepared, 16 clients: Cognate / PostgreSQL"
        as "select-only", AtLeast(1.3), "×", "2×",
        |f| f.of_postgres("pgbench", "select-only");
    further "pgbench select-only: 99th percentile, Cognate / PostgreSQL", Nothing, "×", "≤ 1×",
        |f| f.p99_of_postgres("pgbench", "select-only");
    first "pgbench tpcb-like, prepared, 16 clients: Cognate / PostgreSQL"
        as "tpcb-like", AtLeast(1.3), "×", "2.5×",
        |f| f.of_postgres("pgbench", "tpcb-like");
    further "pgbench simple-update, prepared, 16 clients: Cognate / PostgreSQL"
        as "simple-update", AtLeast(1.3), "×", "2.5×",
        |f| f.of_postgres("pgbench", "simple-update");
    further "pgbench tpcb-like, SET cognate.durable_reads = on / off", Nothing, "×", "",
        |f| f.param("pgbench", "durable_reads_of_plain");
    first "bookstore, ordering mix, 80 clients: Cognate / PostgreSQL"
        as "ordering mix", AtLeast(1.0), "×", "2×",
        |f| f.of_postgres("bookstore", crate::report::TOTAL);
    first "five long queries, time of Cognate / PostgreSQL, geometric mean"
        as "five long queries", AtMost(0.9), "×", "0.6×",
        |f| f.param("analytic", "time_of_postgres");
    first "the slowest of them against PostgreSQL"
        as "the slowest long query", AtMost(1.2), "×", "0.9×",
        |f| f.param("analytic", "worst_of_postgres");
    first "point reads by 4 clients, prepared: Cognate / PostgreSQL"
        as "point reads alone", AtLeast(1.2), "×", "1.5×",
        |f| f.of_postgres("mixed", "alone");
    further "a long statement of any kind, cancelled: the longest until its answer"
        as "a cancelled statement's answer", AtMost(100.0), " ms", "",
        |f| f.param("interrupt", "worst_cancel_ms");
    further "point reads beside two long statements of any kind: the longest"
        as "a point read beside long ones", AtMost(50.0), " ms", "",
        |f| f.param("interrupt", "worst_read_ms");
    further "the longest time in which the machine's host let one of its processors not run, beside them"
        as "the machine stood still", Nothing, " ms", "",
        |f| f.param("interrupt", "worst_stolen_ms");
    further "point read in the embedded library, one thread, from memory"
        as "embedded, from memory", AtMost(3.0), " µs", "1 µs",
        |f| f.mean_us("point-read", "in memory");
    further "log: durable commits, 64 in flight, of the raw device"
        as "of the raw device", AtLeast(80.0), " %", "95 %",
        |f| f.param("log", "of_device_pct");
    further "log: the same, of the raw device written past the page cache, which is like for like"
        as "of the device past the cache", AtLeast(80.0), " %", "95 %",
        |f| f.param("log", "of_direct_pct");
    further "data 4× the memory budget: resident size / budget"
        as "resident size / budget", AtMost(1.5), "×", "",
        |f| f.param("memory", "resident_to_budget");
    further "recovery, by bytes replayed"
        as "bytes replayed", AtLeast(100.0), " MB/s", "", |f| f.param("recovery", "mb_per_s");
    first "kill -9 rounds: transactions lost or too many"
        as "transactions lost or too many", AtMost(0.0), "", "0",
        |f| f.param("crash", "lost_or_extra");
    first "s3u1 uniform, 80 clients, wire: PSSI / own snapshot isolation"
        as "s3u1 uniform, wire", AtLeast(0.95), "×", "0.99×",
        |f| f.param("snum", "uniform_of_si");
    further "s3u1 uniform, 80 clients, embedded: PSSI / own snapshot isolation"
        as "s3u1 uniform, embedded", AtLeast(0.95), "×", "0.99×",
        |f| f.param("snum", "embedded_of_si");
    further "s3u1 uniform, 80 clients, wire, servers started for each round: PSSI / own snapshot isolation"
        as "s3u1 uniform, fresh servers", AtLeast(0.95), "×", "0.99×",
        |f| f.param("snum", "uniform_of_si_fresh");
    first "s3u1 hot, 80 clients, wire: Cognate / PostgreSQL"
        as "s3u1 hot / PostgreSQL", AtLeast(2.0), "×", "3×",
        |f| f.param("snum", "hot_of_postgres");
    further "s5u1 hot, 40 clients: aborts by the certifier, PSSI / own SSI"
        as "certifier's aborts / SSI's", AtMost(0.6), "×", "0.3×",
        |f| f.param("snum", "certifier_aborts_of_ssi");
    first "needless aborts by the oracle"
        as "needless aborts", AtMost(0.0), "", "0", |f| f.param("oracle", "needless");
    further "aborts by first updater wins that a later snapshot would have served, by the oracle"
        as "needless first updater's aborts", AtMost(0.0), "", "0",
        |f| f.param("oracle", "first_updater_needless");
    further "tpcb-like, scale 1, 16 clients: SERIALIZABLE / own READ COMMITTED"
        as "tpcb-like / READ COMMITTED", AtLeast(0.8), "×", "0.95×",
        |f| f.param("conflicts", "tpcb_of_read_committed");
    further "tpcb-like, scale 1, 16 clients, SERIALIZABLE: retried"
        as "tpcb-like, retried", AtMost(0.5), " %", "0 %",
        |f| f.param("conflicts", "tpcb_retried_pct");
    further "tpcb-like, scale 1, 16 clients: SERIALIZABLE / PostgreSQL at READ COMMITTED (both defaults)"
        as "tpcb-like / PostgreSQL's default", AtLeast(2.5), "×", "3.5×",
        |f| f.param("conflicts", "tpcb_of_postgres_default");
    further "bookstore, ordering mix, 80 clients: aborts of Buy Confirm at SERIALIZABLE"
        as "aborts of Buy Confirm", AtMost(1.5), " %", "0.5 %",
        |f| f.param("conflicts", "buy_confirm_aborted_pct");
    further "s3u1 hot, 80 clients, SERIALIZABLE: aborts; the update follows a read of the same row, so most are justified",
        Nothing, " %", "", |f| f.param("conflicts", "s3u1_hot_aborted_pct");
    further "s3u1 hot, 80 clients, SERIALIZABLE, recorded: aborts needless in every order of the commits in flight"
        as "s3u1 hot, needless aborts", AtMost(0.0), "", "0",
        |f| f.param("conflicts", "s3u1_hot_needless");
    further "strictly serializable / PSSI: s3u1 uniform, 80 clients"
        as "strict / PSSI, s3u1 uniform", AtLeast(0.99), "×", "1×",
        |f| f.param("conflicts", "s3u1_strict_of_pssi");
    further "strictly serializable above PSSI: s3u1 uniform, 80 clients, aborts"
        as "aborts, strict above PSSI, s3u1 uniform", AtMost(1.0), " points", "0",
        |f| f.param("conflicts", "s3u1_strict_points");
    further "strictly serializable / PSSI: s3u1 uniform, 80 clients, servers started for each round"
        as "strict / PSSI, s3u1 uniform, fresh", AtLeast(0.99), "×", "1×",
        |f| f.param("conflicts", "s3u1_strict_of_pssi_fresh");
    further "strictly serializable / PSSI: s3u1 hot, 80 clients, servers started for each round"
        as "strict / PSSI, s3u1 hot, fresh", AtLeast(0.99), "×", "1×",
        |f| f.param("conflicts", "s3u1_hot_strict_of_pssi_fresh");
    further "strictly serializable / PSSI: bookstore, ordering mix, 80 clients, servers started for each round"
        as "strict / PSSI, bookstore, fresh", AtLeast(0.99), "×", "1×",
        |f| f.param("conflicts", "bookstore_strict_of_pssi_fresh");
    further "strictly serializable / PSSI: s3u1 hot, 80 clients"
        as "strict / PSSI, s3u1 hot", AtLeast(0.99), "×", "1×",
        |f| f.param("conflicts", "s3u1_hot_strict_of_pssi");
    further "strictly serializable above PSSI: s3u1 hot, 80 clients, aborts"
        as "aborts, strict above PSSI, s3u1 hot", AtMost(1.0), " points", "0",
        |f| f.param("conflicts", "s3u1_hot_strict_points");
    further "strictly serializable / PSSI: bookstore, ordering mix, 80 clients"
        as "strict / PSSI, bookstore", AtLeast(0.99), "×", "1×",
        |f| f.param("conflicts", "bookstore_strict_of_pssi");
    further "strictly serializable above PSSI: bookstore, ordering mix, 80 clients, aborts"
        as "aborts, strict above PSSI, bookstore", AtMost(1.0), " points", "0",
        |f| f.param("conflicts", "bookstore_strict_points");
    further "read-mostly with 1,000-row ranges: PSSI / own snapshot isolation"
        as "read-mostly with ranges", AtLeast(0.9), "×", "0.97×",
        |f| f.param("snum", "scans_of_si");
    further "78 ms log device with governor: of the 2.5 ms device"
        as "governor, of the fast device", AtLeast(95.0), " %", "99 %",
        |f| f.param("device", "of_ssd_pct");
    further "78 ms log device with governor: over late release with clients = limit"
        as "governor / late release", AtLeast(5.6), "×", "10×",
        |f| f.param("device", "over_late");
    first "auto governor: of the best fixed limit, the worst load"
        as "auto, of the best fixed limit", AtLeast(95.0), " %", "98 %",
        |f| f.lowest("governor", "of_best_pct");
    first "Buy Confirm, MIP / two-phase: mean latency over the curve, MIP sent as functions"
        as "Buy Confirm, as functions", AtMost(1.02), "×", "1×",
        |f| f.param("mip", "bc_mip_of_two_phase");
    further "Buy Confirm, the same, MIP sent as text"
        as "Buy Confirm, as text", AtMost(1.02), "×", "1×",
        |f| f.param("mip", "bc_mip_text_of_two_phase");
    further "Admin Confirm, MIP / two-phase: mean latency over the curve, MIP sent as functions"
        as "Admin Confirm, as functions", AtMost(1.02), "×", "1×",
        |f| f.param("mip", "ac_mip_of_two_phase");
    further "Admin Confirm, the same, MIP sent as text"
        as "Admin Confirm, as text", AtMost(1.02), "×", "1×",
        |f| f.param("mip", "ac_mip_text_of_two_phase");
    further "Buy Confirm, a first sibling left prepared by every request, the retry finds it: throughput lost"
        as "Buy Confirm, found again", AtMost(20.0), " %", "10 %",
        |f| f.param("mip", "bc_failover_lost_pct");
    further "Buy Confirm, the same, the retry executes again, as in the paper: throughput lost"
        as "Buy Confirm, executed again", AtMost(20.0), " %", "10 %",
        |f| f.param("mip", "bc_failover_again_lost_pct");
    further "Buy Confirm, a bound and no fail-over: the retry has the messages of an execution, which touch no table: throughput lost",
        Nothing, " %", "", |f| f.param("mip", "bc_failover_messages_only_lost_pct");
    further "Admin Confirm, a first sibling left prepared by every request, the retry finds it: throughput lost"
        as "Admin Confirm, found again", AtMost(15.0), " %", "10 %",
        |f| f.param("mip", "ac_failover_lost_pct");
    further "Admin Confirm, the same, the retry executes again, as in the paper: throughput lost"
        as "Admin Confirm, executed again", AtMost(15.0), " %", "10 %",
        |f| f.param("mip", "ac_failover_again_lost_pct");
    further "Admin Confirm, a bound and no fail-over: the retry has the messages of an execution, which touch no table: throughput lost",
        Nothing, " %", "", |f| f.param("mip", "ac_failover_messages_only_lost_pct");
    further "storage a row of MIP transactions"
        as "storage a row", AtMost(0.0), " bytes", "0", |f| f.param("mip", "bytes_a_row");
    further "retry, the first instance prepared and its server dead / a request"
        as "a retry / a request", AtMost(2.0), "×", "1.2×",
        |f| f.param("mip", "retry_of_request");
    further "25 clients, ten hot items, one in doubt: third second / before"
        as "a crowd with one in doubt", AtLeast(0.9), "×", "1×",
        |f| f.param("mip", "crowd_of_before");
    further "PREPARE TRANSACTION and COMMIT PREPARED, 16 clients: Cognate / PostgreSQL"
        as "2PC pairs / PostgreSQL's", AtLeast(2.0), "×", "4×",
        |f| f.param("mip", "pairs_of_postgres");
    further "PREPARE MIP and COMMIT MIP on Cognate / PREPARE TRANSACTION and COMMIT PREPARED on PostgreSQL"
        as "MIP pairs / PostgreSQL's 2PC", AtLeast(2.0), "×", "4×",
        |f| f.param("mip", "mip_pairs_of_postgres");
    further "SHOW MIPT among a million forgotten and 100,000 live families / among few, through the wire"
        as "SHOW MIPT among many", AtMost(1.1), "×", "flat",
        |f| f.param("mip", "lookup_wire_show_of_few");
    further "BEGIN of a fresh family among as many / among few, through the wire"
        as "BEGIN among many", AtMost(1.1), "×", "flat",
        |f| f.param("mip", "lookup_wire_begin_of_few");
    further "the look-up of a family in the engine alone, which is logarithmic, among as many / among few",
        Nothing, "×", "", |f| f.param("mip", "lookup_family_of_few");
    further "composite, one service on PostgreSQL, 25 clients: the same handler with plain SQL"
        as "one service / plain SQL", AtLeast(0.8), "×", "0.95×",
        |f| f.param("composite", "of_plain");
    further "composite, the same: its statement committed by itself, which only one statement can be", Nothing, "×", "",
        |f| f.param("composite", "of_plain_autocommit");
    further "composite, undo entries on PostgreSQL, 25 clients: in slots that are updated in place / in rows that are inserted and deleted",
        Nothing, "×", "", |f| f.param("composite", "of_rows");
    further "composite, purchase over three PostgreSQL databases, 25 clients: 2PC of the same HTTP shape"
        as "purchase / 2PC over HTTP", AtLeast(1.3), "×", "2×",
        |f| f.param("composite", "of_http");
    further "composite, the same: 2PC over three connections of one process"
        as "purchase / 2PC in one process", AtLeast(1.0), "×", "1.5×",
        |f| f.param("composite", "of_direct");
    further "composite, the same: Atomikos, XA transactions of clients in its own process"
        as "purchase / Atomikos", AtLeast(1.5), "×", "",
        |f| f.param("composite", "of_atomikos");
    further "composite, the same: DBOS, workflows of clients in its own processes"
        as "purchase / DBOS", AtLeast(8.0), "×", "",
        |f| f.param("composite", "of_dbos");
    further "composite, the same: no atomicity, the same HTTP shape", Nothing, "×", "1×",
        |f| f.param("composite", "of_none");
    further "composite, the same: 2PC of the same HTTP shape, the shop's commit decides", Nothing, "×", "",
        |f| f.param("composite", "of_http_last");
    further "composite, the same: 2PC over three connections, the shop's commit decides", Nothing, "×", "",
        |f| f.param("composite", "of_direct_last");
    further "composite, PostgreSQL, 25 clients: response time over cardinality, slope / response time of 1x1"
        as "slope, PostgreSQL, 25 clients", AtMost(1.1), "×", "0.8×",
        |f| f.param("composite", "postgres_slope_many");
    further "composite, PostgreSQL, 1 client: response time over cardinality, slope / response time of 1x1"
        as "slope, PostgreSQL, 1 client", AtMost(1.1), "×", "0.8×",
        |f| f.param("composite", "postgres_slope_one");
    further "composite, PostgreSQL, 1 client, parallel calls: the longest response time / (1x1 × levels)", Nothing, "×", "≤ 1×",
        |f| f.param("composite", "postgres_parallel_of_depth");
    further "composite, PostgreSQL, local transactions a second from cardinality 3 on: lowest / highest"
        as "steadiness, PostgreSQL", AtLeast(0.8), "×", "0.95×",
        |f| f.param("composite", "postgres_steady");
    further "composite, PostgreSQL, 4x2, all conflict, without waiting: aborted roots"
        as "aborted without waiting, PostgreSQL", AtMost(25.0), " %", "15 %",
        |f| f.param("composite", "postgres_aborted_not_waiting");
    further "composite, PostgreSQL, 4x2, all conflict, with the default wait: aborted roots"
        as "aborted with the wait, PostgreSQL", AtMost(5.0), " %", "1 %",
        |f| f.param("composite", "postgres_aborted_waiting");
    further "composite, embedded, 25 clients: response time over cardinality, slope / response time of 1x1"
        as "slope, embedded, 25 clients", AtMost(1.1), "×", "0.8×",
        |f| f.param("composite", "embedded_slope_many");
    further "composite, embedded, 1 client: response time over cardinality, slope / response time of 1x1"
        as "slope, embedded, 1 client", AtMost(1.1), "×", "0.8×",
        |f| f.param("composite", "embedded_slope_one");
    further "composite, embedded, 1 client, parallel calls: the longest response time / (1x1 × levels)", Nothing, "×", "≤ 1×",
        |f| f.param("composite", "embedded_parallel_of_depth");
    further "composite, embedded, local transactions a second from cardinality 3 on: lowest / highest"
        as "steadiness, embedded", AtLeast(0.8), "×", "0.95×",
        |f| f.param("composite", "embedded_steady");
    further "composite, embedded, 4x2, all conflict, without waiting: aborted roots"
        as "aborted without waiting, embedded", AtMost(25.0), " %", "15 %",
        |f| f.param("composite", "embedded_aborted_not_waiting");
    further "composite, embedded, 4x2, all conflict, with the default wait: aborted roots"
        as "aborted with the wait, embedded", AtMost(5.0), " %", "1 %",
        |f| f.param("composite", "embedded_aborted_waiting");
    further "composite, purchase on PostgreSQL without failures: commits a subtransaction"
        as "commits a subtransaction", AtMost(1.1), "", "1.02",
        |f| f.param("composite", "commits_a_subtransaction");
    further "composite, the same: flushes of the journals a subtransaction", Nothing, "", "",
        |f| f.param("composite", "flushes_a_subtransaction");
    first "three nodes, clients on all: Cognate / Galera, both durable"
        as "clients on all / Galera", AtLeast(2.0), "×", "10×",
        |f| f.param("replication", "of_galera");
    further "three nodes, clients on all: Cognate at SERIALIZABLE / Galera at REPEATABLE READ", Nothing, "×", "",
        |f| f.param("replication", "serializable_of_galera");
    first "three nodes, clients on one: Cognate / PostgreSQL with two synchronous standbys, deadlock_timeout 20 ms"
        as "clients on one / PostgreSQL", AtLeast(1.0), "×", "3×",
        |f| f.param("replication", "of_postgres");
    further "three nodes, clients on one: Cognate at SERIALIZABLE / the same at REPEATABLE READ", Nothing, "×", "",
        |f| f.param("replication", "serializable_of_postgres");
    further "three nodes, clients on one: Cognate / the same with the default deadlock_timeout", Nothing, "×", "",
        |f| f.param("replication", "of_postgres_default");
    further "s3u1 uniform, 80 clients over all nodes: three nodes / one node, on one machine"
        as "s3u1, three nodes / one", AtLeast(0.33), "×", "0.5×",
        |f| f.param("replication", "s3u1_of_one_node");
    further "s3u1 uniform, the same at REPEATABLE READ", Nothing, "×", "",
        |f| f.param("replication", "s3u1_of_one_node_repeatable_read");
    further "one node, 20 updates: this build / before clusters"
        as "20 updates / before clusters", AtLeast(0.98), "×", "1×",
        |f| f.param("replication", "of_before");
    further "one node, one update: this build / before clusters"
        as "one update / before clusters", AtLeast(0.98), "×", "1×",
        |f| f.param("replication", "one_update_of_before");
    further "s3u1 uniform, 80 clients, wire, servers started for each round: this build / before, such as one without precise reads"
        as "s3u1 uniform / before", AtLeast(0.98), "×", "1×",
        |f| f.param("replication", "s3u1_of_before");
    further "read-mostly with 1,000-row ranges, the same", Nothing, "×", "",
        |f| f.param("replication", "scans_of_before");
    further "three nodes, one client at the leader: a commit / two flushes and one loopback round trip"
        as "a commit at the leader", AtMost(2.0), "×", "1.3×",
        |f| f.param("replication", "of_floor");
    further "three nodes, one client at a follower: the same"
        as "a commit at a follower", AtMost(2.0), "×", "1.3×",
        |f| f.param("replication", "follower_of_floor");
    first "three nodes, kill -9 of the leader under load: the longest time without commits"
        as "without commits after kill -9", AtMost(2.0), " s", "0.5 s",
        |f| f.param("replication", "without_commits_s");
    further "three nodes, certification of the metaprotocol / before there was one, throughput"
        as "certification / before a metaprotocol", AtLeast(0.95), "×", "0.99×",
        |f| f.param("replication", "certification_of_before");
    further "three nodes, active by the metaprotocol / active alone, throughput"
        as "throughput, metaprotocol / active alone", AtLeast(0.95), "×", "0.99×",
        |f| f.param("replication", "active_of_alone");
    further "three nodes, active alone / by the metaprotocol, mean latency"
        as "latency, active alone / metaprotocol", AtLeast(0.95), "×", "0.99×",
        |f| f.param("replication", "active_latency_of_alone");
    further "three nodes, certification by the metaprotocol / certification alone, throughput"
        as "throughput, metaprotocol / certification", AtLeast(0.95), "×", "0.99×",
        |f| f.param("replication", "certification_of_alone");
    further "three nodes, certification alone / by the metaprotocol, mean latency"
        as "latency, certification / metaprotocol", AtLeast(0.95), "×", "0.99×",
        |f| f.param("replication", "certification_latency_of_alone");
    further "three nodes, weak voting with votes by the metaprotocol / weak voting alone, throughput"
        as "throughput, metaprotocol / weak voting", AtLeast(0.95), "×", "0.99×",
        |f| f.param("replication", "weak_voting_of_alone");
    further "three nodes, weak voting with votes alone / by the metaprotocol, mean latency"
        as "latency, weak voting / metaprotocol", AtLeast(0.95), "×", "0.99×",
        |f| f.param("replication", "weak_voting_latency_of_alone");
    further "three nodes, active and weak voting mixed / the best single protocol"
        as "active and weak voting / the best", AtLeast(0.7), "×", "0.9×",
        |f| f.param("replication", "a_w_of_best");
    further "three nodes, all three mixed / the best single protocol"
        as "all three / the best", AtLeast(0.7), "×", "0.9×",
        |f| f.param("replication", "a_c_w_of_best");
    further "three nodes, `auto` / the best single protocol, the paper's load", Nothing, "×", "",
        |f| f.param("replication", "auto_of_best");
    further "`auto` on a load that shifts / the best fixed protocol"
        as "`auto` / the best fixed protocol", AtLeast(0.95), "×", "1.05×",
        |f| f.param("replication", "auto_of_best_shifting");
    further "the same: attempts that are refused"
        as "`auto`, refused", AtMost(1.1), "×", "1×",
        |f| f.param("replication", "auto_refused_of_best");
    further "`auto` on a load that shifts: above the best fixed protocol's share of refused attempts, where that refuses none"
        as "`auto`, refused above none", AtMost(0.0), " points", "0",
        |f| f.param("replication", "auto_refused_points");
    further "`auto` on a load that shifts, refused ones run again by the server (the default) / the best fixed protocol, whose are told"
        as "`auto`, run again / the best fixed", AtLeast(0.95), "×", "1.05×",
        |f| f.param("replication", "auto_again_of_best_shifting");
    further "the same: above the best fixed protocol's share of refused attempts", Nothing, " points", "",
        |f| f.param("replication", "auto_again_refused_points");
    further "one hot row updated at all nodes: active / Galera"
        as "a hot row, active / Galera", AtLeast(3.0), "×", "10×",
        |f| f.param("replication", "hot_of_galera");
    further "one hot row updated at all nodes: `auto` / Galera", Nothing, "×", "",
        |f| f.param("replication", "hot_auto_of_galera");
    further "one hot row updated at all nodes, active: aborts that clients see"
        as "a hot row, aborts seen", AtMost(0.0), "", "0",
        |f| f.param("replication", "hot_aborts_seen");
    further "an empty node joins 1 GB under half the load: throughput lost"
        as "a node joins, throughput lost", AtMost(40.0), " %", "10 %",
        |f| f.param("replication", "join_dip_pct");
    further "the same in its worst second", Nothing, " %", "", |f| f.param("replication", "join_worst_dip_pct");
    further "a node is away for ten minutes, the others loaded: the largest log of another one / what the settings allow"
        as "a node is away, log kept", AtMost(1.0), "×", "",
        |f| f.param("replication", "away_log_of_allowed");
    further "the same: the largest memory of another one / before", Nothing, "×", "",
        |f| f.param("replication", "away_memory_of_before");
    further "the same: until it serves again", Nothing, " s", "", |f| f.param("replication", "away_return_s");
};

#[cfg(test)]
mod tests {
    use super::super::figures::Page;
    use super::*;
    use crate::report::Record;

    #[test]
    fn a_limit_within_the_error_stays_open() {
        let measured =
            |value, error| Measured { value, error, isolation: String::new(), page: String::new() };
        let must = Must::AtLeast(0.95);
        assert_eq!(must.verdict(&measured(0.96, None)), Verdict::Holds);
        assert_eq!(must.verdict(&measured(0.96, Some(0.02))), Verdict::Open);
        assert_eq!(must.verdict(&measured(0.94, Some(0.02))), Verdict::Open);
        assert_eq!(must.verdict(&measured(0.90, Some(0.02))), Verdict::Fails);
        assert_eq!(Must::AtMost(0.0).verdict(&measured(0.0, Some(0.0))), Verdict::Holds);
        assert_eq!(Must::AtMost(1.02).verdict(&measured(1.03, None)), Verdict::Fails);
        assert_eq!(Must::Nothing.verdict(&measured(1.03, None)), Verdict::Shown);
    }

    #[test]
    fn ten_to_fifteen_goals_stand_on_the_first_page() {
        let first = GOALS.iter().filter(|goal| goal.first_page).count();
        assert!((10..=15).contains(&first), "{first} goals");
    }

    #[test]
    fn either_of_two_goals_stands_for_both() {
        let of = |short: &str| GOALS.iter().find(|goal| goal.short == short).unwrap();
        let [ratio, points] = EITHER.map(of);
        let nothing = Figures::default();
        assert!(ratio.is_missing(&nothing) && points.is_missing(&nothing));
        let record: Record = serde_json::from_value(serde_json::json!({
            "system": "cognate", "workload": "replication", "params": { "auto_refused_points": 4.6 },
            "committed_per_s": 1.0, "aborted_pct": 0.0,
            "latency_ms": { "mean": 1.0, "p50": 1.0, "p95": 1.0, "p99": 1.0 },
        }))
        .unwrap();
        let figures = Figures { pages: vec![Page { name: "protocols".to_owned(), records: vec![record] }] };
        assert!(!ratio.is_missing(&figures) && !points.is_missing(&figures));
        let shown = GOALS.iter().find(|goal| matches!(goal.must, Must::Nothing)).unwrap();
        assert!(!shown.is_missing(&nothing), "nothing has to hold of it");
    }

    #[test]
    fn what_can_be_lost_has_a_short_name_of_its_own() {
        let mut names = std::collections::BTreeSet::new();
        for goal in GOALS.iter().filter(|goal| !matches!(goal.must, Must::Nothing)) {
            assert!(goal.short.chars().count() <= 40, "{}", goal.short);
            assert!(names.insert(goal.short), "{} is said of two goals", goal.short);
        }
    }
}
