//! The golden scripts at a cluster: three databases in one process that follow one order. A script
//! runs at one of them, or goes round, and must get the answers that a single database gives; the
//! others must have come to the same afterwards.

#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use cognate_engine::{Database, Node, Options, Progress, TotalOrder};
use cognate_env::sim::SimDisk;
use cognate_sql::SqlError;
use cognate_sql::session::{
    Format, OutputColumn, Prepared, RowSink, Session, SessionParameters, SinkState, SqlDatabase,
    TransactionStatus,
};
use cognate_sql::types::{Datum, FormatContext};

use crate::script::simple_query;

/// Far more than anything takes: who waits for longer has found a defect.
const FOR_EVER: Duration = Duration::from_secs(60);
/// How many nodes.
pub(crate) const NODES: usize = 3;

/// Requests on their way into the order.
struct Proposals(Mutex<mpsc::Sender<Bytes>>);

impl TotalOrder for Proposals {
    fn propose(&self, request: Bytes) {
        // Without a receiver the cluster is ending.
        let _ = self.0.lock().unwrap().send(request);
    }

    fn request_bytes_max(&self) -> u64 {
        16 << 20
    }

    fn wait_synced(&self, _position: u64) -> bool {
        true
    }
}

/// Nodes, and the thread that orders what they propose and delivers it to each.
pub(crate) struct Cluster {
    disks: Vec<SimDisk>,
    pub(crate) nodes: Vec<(Database, SqlDatabase)>,
    starts: u32,
    ordered: Arc<Mutex<Vec<Bytes>>>,
    /// The thread, and what ends it: it holds the databases, and they hold its requests' senders.
    thread: Option<(mpsc::Sender<Bytes>, JoinHandle<()>)>,
}

impl Cluster {
    pub(crate) fn start() -> Cluster {
        let disks = (1..=NODES as u64).map(SimDisk::new).collect();
        let mut cluster =
            Cluster { disks, nodes: Vec::new(), starts: 0, ordered: Arc::default(), thread: None };
        cluster.open(|_| None);
        cluster
    }

    fn open(&mut self, kilobytes: impl Fn(usize) -> Option<u64>) {
        self.starts += 1;
        let (sender, requests) = mpsc::channel::<Bytes>();
        let engines: Vec<Database> = self
            .disks
            .iter()
            .enumerate()
            .map(|(at, disk)| {
                let order = Arc::new(Proposals(Mutex::new(sender.clone())));
                let node = Node { number: at as u16 + 1, start: self.starts, order };
                let mut options = Options::new("/node");
                (options.disk, options.node) = (disk.handle(), Some(node));
                Database::open(match kilobytes(at) {
                    Some(kilobytes) => options.memory(kilobytes << 10),
                    None => options,
                })
                .unwrap()
            })
            .collect();
        self.nodes = engines
            .into_iter()
            .map(|engine| {
                let sql = SqlDatabase::open(engine.clone()).unwrap();
                (engine, sql)
            })
            .collect();
        // What came after their images.
        for (engine, sql) in &self.nodes {
            let after = self.ordered.lock().unwrap()[engine.applied() as usize..].to_vec();
            after.iter().for_each(|request| follow(sql, engine.delivered() + 1, request));
        }
        let (ordered, delivered) = (Arc::clone(&self.ordered), self.nodes.clone());
        let thread = std::thread::spawn(move || {
            for request in requests.iter().take_while(|request| !request.is_empty()) {
                ordered.lock().unwrap().push(request.clone());
                let position = ordered.lock().unwrap().len() as u64;
                delivered.iter().for_each(|(_, sql)| follow(sql, position, &request));
            }
        });
        self.thread = Some((sender, thread));
    }

    /// Stops all nodes and starts them again.
    pub(crate) fn restart(&mut self, kilobytes: Option<u64>) {
        self.restart_each(|_| kilobytes);
    }

    /// The same, with as much memory for each as this says.
    pub(crate) fn restart_each(&mut self, kilobytes: impl Fn(usize) -> Option<u64>) {
        let (sender, thread) = self.thread.take().unwrap();
        sender.send(Bytes::new()).unwrap();
        thread.join().unwrap();
        for (engine, _) in std::mem::take(&mut self.nodes) {
            engine.close().unwrap();
        }
        self.open(kilobytes);
    }

    /// The disk of the node at a place.
    pub(crate) fn disk(&self, at: usize) -> &SimDisk {
        &self.disks[at]
    }

    /// Nothing more is ordered as long as this is held.
    pub(crate) fn hold(&self) -> MutexGuard<'_, Vec<Bytes>> {
        self.ordered.lock().unwrap()
    }

    /// Waits until every node has delivered what any of them has.
    pub(crate) async fn settle(&self) {
        let position = self.nodes.iter().map(|(engine, _)| engine.applied()).max().unwrap();
        for (engine, _) in &self.nodes {
            engine.wait_applied(position).await.unwrap();
        }
    }

    /// All nodes have come to the same.
    pub(crate) fn assert_equal(&self) {
        let digests: Vec<_> = self.nodes.iter().map(|(engine, _)| engine.digest().unwrap()).collect();
        assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "{digests:?}");
    }
}

/// Delivers a position to a node, and executes what it is the turn of.
fn follow(sql: &SqlDatabase, position: u64, request: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut progress = sql.engine().deliver(position, request).unwrap();
    while let Progress::Execute(execution) = progress {
        let executed = runtime.block_on(sql.execute_program(*execution)).unwrap();
        progress = sql.engine().finish(executed).unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            // One that has panicked has said why.
            let _ = sender.send(Bytes::new());
            let _ = thread.join();
        }
    }
}

fn script(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts").join(name)
}

macro_rules! scripts {
    ($goes_round:literal, $($name:ident),* $(,)?) => {
        pub(super) const NAMES: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            let file = super::script(concat!(stringify!($name), ".script"));
            crate::script::run_at_cluster(&file, $goes_round);
        })*
    };
}

/// All sessions at one of the nodes.
mod at_one {
    scripts!(
        false,
        serializable,
        advisory,
        column_statistics,
        counted_rows,
        explain_analyze,
        hints,
        refused_alike,
        notify,
        alter,
        alter_order,
        anomaly_insert_after_delete,
        anomaly_lost_update,
        anomaly_phantom_aggregate,
        anomaly_phantom_index,
        anomaly_phantom_join,
        anomaly_phantom_range,
        anomaly_read_only,
        anomaly_write_skew,
        array_parts,
        array_slices,
        array_types,
        array_edges,
        json_edges,
        time_edges,
        key_types,
        set_constraints,
        cursor_tables,
        argument_rights,
        stored_times,
        stored_uses,
        extensions,
        programs,
        basics,
        bulk,
        catalog,
        columns,
        composite_json,
        catalog_snapshot,
        conflict,
        job_queues,
        merge,
        inline_code,
        group_sets,
        view_words,
        view_changes,
        view_locks,
        updatable_views,
        generated_columns,
        deferrable_unique,
        deferrable_primary_key,
        network_addresses,
        domain_functions,
        percentiles,
        variadic_calls,
        json_records,
        enum_functions,
        with_changes,
        constraints,
        copy,
        copy_checks,
        cursors,
        databases,
        date_styles,
        ddl,
        ddl_texts,
        public_schema,
        deadlock,
        deferred_references,
        domain_catalog,
        domain_changes,
        domain_locks,
        domains,
        duplicate_or_failure,
        enum_arrays,
        enum_locks,
        enum_refusals,
        enums,
        equal_keys,
        evaluation,
        exists,
        first_query,
        foreignkeys,
        functions,
        governor,
        interval_styles,
        isolation,
        locks,
        names,
        monitoring,
        jsonb_subscripts,
        like,
        index_options,
        partial_indexes,
        expression_indexes,
        anomaly_phantom_partial_index,
        array_elements,
        explain_json,
        explain_keys,
        numerics,
        prepared,
        prepared_transactions,
        owners,
        privileges,
        column_rights,
        rights_together,
        shown_by_rights,
        procedures,
        refusals,
        regular_expressions,
        role_locks,
        role_settings,
        rights,
        roles,
        routine_conflicts,
        routine_parameters,
        comments,
        collations,
        identity_changes,
        pending_checks,
        long_loads,
        referenced_indexes,
        replication_role,
        spellings,
        using_index,
        included_columns,
        shared_snapshots,
        transaction_ids,
        triggers,
        row_strengths,
        savepoint_locks,
        sequences,
        settings,
        sibling_errors,
        sibling_locks,
        sibling_refusals,
        sibling_snapshot,
        siblings,
        snapshot_refresh,
        temporary_objects,
        temporary_on_commit,
        temporary_sessions,
        temporary_tables,
        time_templates,
        time_zones,
        transactions,
        unvalidated_constraints,
        views
    );
}

/// Each session at another node than the one before. Not here are scripts whose answers are other
/// ones then, as they should be: where sessions of different nodes would wait for each other's
/// locks (the second one is refused at its end), or look at what a node has for itself.
mod going_round {
    scripts!(
        true,
        alter,
        explain_analyze,
        hints,
        refused_alike,
        alter_order,
        anomaly_insert_after_delete,
        anomaly_phantom_aggregate,
        anomaly_phantom_index,
        anomaly_phantom_join,
        anomaly_phantom_range,
        anomaly_read_only,
        anomaly_write_skew,
        array_parts,
        array_slices,
        array_types,
        array_edges,
        json_edges,
        time_edges,
        key_types,
        set_constraints,
        counted_rows,
        cursor_tables,
        argument_rights,
        stored_times,
        stored_uses,
        programs,
        comments,
        collations,
        identity_changes,
        pending_checks,
        long_loads,
        referenced_indexes,
        replication_role,
        spellings,
        using_index,
        included_columns,
        routine_parameters,
        triggers,
        basics,
        bulk,
        catalog,
        columns,
        composite_json,
        catalog_snapshot,
        merge,
        inline_code,
        group_sets,
        view_words,
        view_changes,
        updatable_views,
        generated_columns,
        deferrable_unique,
        deferrable_primary_key,
        network_addresses,
        domain_functions,
        percentiles,
        variadic_calls,
        json_records,
        enum_functions,
        with_changes,
        constraints,
        copy,
        copy_checks,
        cursors,
        databases,
        date_styles,
        ddl_texts,
        public_schema,
        deferred_references,
        domain_catalog,
        domain_changes,
        domains,
        enum_arrays,
        enum_refusals,
        enums,
        equal_keys,
        evaluation,
        exists,
        functions,
        interval_styles,
        names,
        monitoring,
        jsonb_subscripts,
        like,
        partial_indexes,
        expression_indexes,
        array_elements,
        explain_json,
        explain_keys,
        numerics,
        prepared,
        prepared_transactions,
        owners,
        privileges,
        column_rights,
        rights_together,
        shown_by_rights,
        procedures,
        refusals,
        regular_expressions,
        role_settings,
        rights,
        roles,
        sequences,
        settings,
        sibling_refusals,
        sibling_snapshot,
        temporary_objects,
        temporary_on_commit,
        temporary_sessions,
        temporary_tables,
        time_templates,
        time_zones,
        transactions,
        views
    );
}

/// Scripts that are not played at one node: what they do to the log is the order's to do, who has
/// waited there for a definition that was changed meanwhile is told 40001, and snapshots are not
/// told by ids.
const ALONE: &[&str] = &["durability", "temporary_crash", "ddl_conflicts", "alter_locks", "snapshot_ids"];

/// Scripts that do not go round, see there.
const STAYING: &[&str] = &[
    "advisory",
    "notify",
    "anomaly_lost_update",
    "anomaly_phantom_partial_index",
    "column_statistics",
    "conflict",
    "ddl",
    "deadlock",
    "domain_locks",
    "duplicate_or_failure",
    "enum_locks",
    "extensions",
    "first_query",
    "foreignkeys",
    "governor",
    "index_options",
    "isolation",
    "job_queues",
    "locks",
    "role_locks",
    "routine_conflicts",
    "row_strengths",
    "savepoint_locks",
    "serializable",
    "sibling_errors",
    "sibling_locks",
    "shared_snapshots",
    "siblings",
    "snapshot_refresh",
    "transaction_ids",
    "unvalidated_constraints",
    "view_locks",
];

#[test]
fn every_script_is_accounted_for() {
    let folder = script("");
    let files =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    for name in files.filter_map(|name| name.strip_suffix(".script").map(str::to_owned)) {
        let count = |lists: [&[&str]; 3]| lists.concat().iter().filter(|listed| **listed == name).count();
        assert_eq!(count([at_one::NAMES, ALONE, &[]]), 1, "{name} at one node");
        assert_eq!(count([going_round::NAMES, STAYING, ALONE]), 1, "{name} going round");
    }
}

/// A statement is refused for what this node has not seen yet, and sees before it is asked whether
/// it lags: the refusal is that of an older node, and must not stand.
#[tokio::test]
async fn what_is_seen_between_a_refusal_and_the_look_at_it_is_looked_at_again() {
    let cluster = Cluster::start();
    let session = |node: usize| {
        let database = cluster.nodes[node].1.clone();
        database.nodes().identify("cafe".to_owned());
        Session::new(database, SessionParameters::default()).unwrap()
    };
    let (mut one, mut two) = (session(0), session(1));
    let next = cluster.nodes[0].0.applied() + 1;
    simple_query(&mut two, &format!("SET cognate.read_after = 'cafe/{next}'")).await;
    let refusal = two.prepare("SELECT * FROM later", &[]).unwrap_err();
    simple_query(&mut one, "CREATE TABLE later (a int)").await;
    cluster.settle().await;
    assert!(cluster.nodes[1].0.applied() >= next);
    two.look_again(refusal).await.unwrap();
    two.prepare("SELECT * FROM later", &[]).unwrap();
    // What nobody has made stays refused, and so does everything once a snapshot is taken.
    let refusal = two.prepare("SELECT * FROM never", &[]).unwrap_err();
    two.look_again(refusal).await.unwrap();
    assert!(two.prepare("SELECT * FROM never", &[]).is_err());
    for (isolation, has_its_own) in [("REPEATABLE READ", false), ("READ COMMITTED", true)] {
        let begin = format!("BEGIN ISOLATION LEVEL {isolation}; SELECT * FROM later");
        simple_query(&mut two, &begin).await;
        let refusal = two.prepare("SELECT * FROM never", &[]).unwrap_err();
        assert_eq!(two.look_again(refusal).await.is_ok(), has_its_own, "{isolation}");
        simple_query(&mut two, "ROLLBACK").await;
    }
}

/// Sessions at two nodes, of which the second one is to see the next position of the order.
async fn before_the_next(cluster: &Cluster) -> (Session, Session) {
    let session = |node: usize| {
        let database = cluster.nodes[node].1.clone();
        database.nodes().identify("cafe".to_owned());
        let (user, name) = ("test".to_owned(), "test".to_owned());
        let parameters = SessionParameters { user, database: name, ..SessionParameters::default() };
        Session::new(database, parameters).unwrap()
    };
    let (one, mut two) = (session(0), session(1));
    cluster.settle().await;
    let next = cluster.nodes[0].0.applied() + 1;
    simple_query(&mut two, &format!("SET cognate.read_after = 'cafe/{next}'")).await;
    (one, two)
}

/// A client is told of the columns of what it prepares, and would be refused when it runs that.
#[tokio::test]
async fn what_is_prepared_has_the_columns_that_it_is_to_see() {
    let cluster = Cluster::start();
    let (mut one, _) = before_the_next(&cluster).await;
    simple_query(&mut one, "CREATE TABLE grows (a int)").await;
    let (mut one, mut two) = before_the_next(&cluster).await;
    let text = "SELECT * FROM grows";
    let before = two.prepare(text, &[]).unwrap();
    assert_eq!(before.columns().unwrap().len(), 1);
    let mut prepared = Box::pin(two.prepare_as_seen(before, text, &[]));
    let waits = std::future::poll_fn(|context| Poll::Ready(prepared.as_mut().poll(context).is_pending()));
    assert!(waits.await, "what it is to see has not come");
    simple_query(&mut one, "ALTER TABLE grows ADD COLUMN b int").await;
    cluster.settle().await;
    assert_eq!(prepared.await.unwrap().columns().unwrap().len(), 2);
    // What has no columns to be told of is prepared at once: the token itself can be taken back.
    let (_, mut two) = before_the_next(&cluster).await;
    let text = "RESET cognate.read_after";
    let before = two.prepare(text, &[]).unwrap();
    two.prepare_as_seen(before, text, &[]).await.unwrap();
}

/// Statements without a plan look names up, too, where their client cannot ask once more.
#[tokio::test]
async fn names_are_looked_up_in_what_is_to_be_seen() {
    let cases = [
        ("CREATE TABLE later (a int)", "PREPARE p AS SELECT a FROM later", "PREPARE"),
        ("CREATE ROLE later", "SET ROLE later", "SET"),
        ("CREATE ROLE later", "SET SESSION AUTHORIZATION later", "SET"),
    ];
    for (made, used, tag) in cases {
        let cluster = Cluster::start();
        let (mut one, mut two) = before_the_next(&cluster).await;
        let mut answer = Box::pin(simple_query(&mut two, used));
        let waits = std::future::poll_fn(|context| Poll::Ready(answer.as_mut().poll(context).is_pending()));
        assert!(waits.await, "{used}: what it is to see has not come");
        simple_query(&mut one, made).await;
        cluster.settle().await;
        assert_eq!(answer.await, [tag], "{used}");
    }
}

/// What a program names may be what this node is to see; it goes to all nodes afterwards.
#[tokio::test]
async fn a_program_is_made_of_what_is_to_be_seen() {
    let cluster = Cluster::start();
    let (mut one, mut two) = before_the_next(&cluster).await;
    simple_query(&mut two, "SET cognate.replication = active").await;
    let both = "INSERT INTO later VALUES (1); INSERT INTO later VALUES (2)";
    let mut answer = Box::pin(simple_query(&mut two, both));
    let waits = std::future::poll_fn(|context| Poll::Ready(answer.as_mut().poll(context).is_pending()));
    assert!(waits.await, "what it is to see has not come");
    simple_query(&mut one, "CREATE TABLE later (a int PRIMARY KEY)").await;
    cluster.settle().await;
    assert_eq!(answer.await, ["INSERT 0 1", "INSERT 0 1"]);
}

/// Another node is asked to wait for what the session has done last, whatever that was.
#[tokio::test]
async fn who_prepares_and_decides_an_instance_has_the_token_of_that() {
    let cluster = Cluster::start();
    let (mut one, _) = before_the_next(&cluster).await;
    simple_query(&mut one, "CREATE TABLE t (a int PRIMARY KEY)").await;
    simple_query(&mut one, "BEGIN MIP <'family', 1>").await;
    simple_query(&mut one, "INSERT INTO t VALUES (1)").await;
    for step in ["PREPARE MIP <'family', 1> 'buy' 'done'", "COMMIT MIP <'family', 1>"] {
        let before = cluster.nodes[0].0.applied();
        simple_query(&mut one, step).await;
        let shown = simple_query(&mut one, "SHOW cognate.commit_token").await;
        let position = shown.iter().find_map(|line| line.trim().strip_prefix("cafe/")?.parse::<u64>().ok());
        assert!(position.is_some_and(|position| position > before), "{step}: {shown:?}");
    }
    assert!(simple_query(&mut one, "TABLE t").await.iter().any(|line| line.trim() == "1"));
}

/// Who waits for what never comes is told so, and a node that has left stays closed, whatever is
/// seen of the order, which goes on without it.
#[tokio::test]
async fn nobody_waits_for_ever_at_a_node_that_has_left() {
    let cluster = Cluster::start();
    let (mut one, _) = before_the_next(&cluster).await;
    simple_query(&mut one, "CREATE TABLE t (a int PRIMARY KEY)").await;
    let (_, mut two) = before_the_next(&cluster).await;
    let nodes = cluster.nodes[1].1.nodes();
    {
        let mut answer = Box::pin(simple_query(&mut two, "SELECT 1"));
        let waits = std::future::poll_fn(|context| Poll::Ready(answer.as_mut().poll(context).is_pending()));
        assert!(waits.await, "what it is to see has not come");
        nodes.leave("its disk is full".to_owned());
        let answer = answer.await;
        assert!(answer[0].starts_with("ERROR 25006") && answer[1].contains("its disk is full"), "{answer:?}");
    }
    simple_query(&mut two, "RESET cognate.read_after").await;
    nodes.close(None);
    let refused = simple_query(&mut two, "INSERT INTO t VALUES (1)").await;
    assert!(refused[0].starts_with("ERROR 25006"), "{refused:?}");
    let read = simple_query(&mut two, "SELECT count(*) FROM t").await;
    assert_eq!(read[..3], ["count", "0", "SELECT 1"]);
    assert!(read[3].starts_with("WARNING 01000: nothing comes to this node any more"), "{read:?}");
}

/// Nobody can say at a node without a majority whether what was read fits into the order. Who only
/// reads is answered of what the node has all the same, and told so; others are refused.
#[tokio::test]
async fn a_node_without_a_majority_goes_on_reading_at_serializable() {
    let cluster = Cluster::start();
    let session =
        |node: usize| Session::new(cluster.nodes[node].1.clone(), SessionParameters::default()).unwrap();
    let (mut one, mut old, mut two) = (session(0), session(0), session(1));
    simple_query(&mut one, "CREATE TABLE t (a int PRIMARY KEY)").await;
    simple_query(&mut old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t").await;
    simple_query(&mut one, "INSERT INTO t VALUES (1), (2)").await;
    cluster.settle().await;
    let nodes = cluster.nodes[1].1.nodes();
    nodes.close(Some("Node 2 is minority".to_owned()));
    nodes.cut_off(true);
    for text in ["SELECT count(*) FROM t", "BEGIN READ ONLY; SELECT count(*) FROM t; COMMIT"] {
        let answer = simple_query(&mut two, text).await;
        assert!(answer.iter().any(|line| line == "2"), "{answer:?}");
        let is_told = |line: &String| line.starts_with("WARNING 01000: this node has no way to a majority");
        assert!(answer.iter().any(is_told), "{answer:?}");
    }
    let refused = simple_query(&mut two, "INSERT INTO t VALUES (3)").await;
    assert!(refused[0].starts_with("ERROR 25006") && refused[1].contains("minority"), "{refused:?}");
    nodes.close(None);
    nodes.cut_off(false);
    simple_query(&mut old, "ROLLBACK").await;
    assert_eq!(simple_query(&mut two, "SELECT count(*) FROM t").await, ["count", "2", "SELECT 1"]);
}

/// A token that no commit has had is not waited for, once a majority has said how far the order is.
#[tokio::test(start_paused = true)]
async fn nobody_waits_for_what_was_never_ordered() {
    let cluster = Cluster::start();
    let (_, mut two) = before_the_next(&cluster).await;
    cluster.nodes[1].1.nodes().ask_by(Box::new(|| Box::pin(async { Ok(7) })));
    simple_query(&mut two, "SET cognate.read_after = 'cafe/1000000'").await;
    let refused = simple_query(&mut two, "SELECT 1").await;
    assert!(refused[0].starts_with("ERROR 22023") && refused[0].contains("position 1000000"), "{refused:?}");
    assert!(refused[1].contains("The last position is 7."), "{refused:?}");
    simple_query(&mut two, "RESET cognate.read_after").await;
    assert_eq!(simple_query(&mut two, "SELECT 1").await, ["?column?", "1", "SELECT 1"]);
}

/// What another node has committed may never come to one that hears no majority.
#[tokio::test]
async fn nobody_waits_for_what_a_node_without_a_majority_has_not() {
    let cluster = Cluster::start();
    let (_, mut two) = before_the_next(&cluster).await;
    let nodes = cluster.nodes[1].1.nodes();
    let mut answer = Box::pin(simple_query(&mut two, "SELECT 1"));
    let waits = std::future::poll_fn(|context| Poll::Ready(answer.as_mut().poll(context).is_pending()));
    assert!(waits.await, "what it is to see has not come");
    nodes.close(Some("Node 2 is minority".to_owned()));
    nodes.cut_off(true);
    let answer = answer.await;
    assert!(answer[0].starts_with("ERROR 25006") && answer[1].contains("minority"), "{answer:?}");
}

/// What a transaction has read may be wrong where a node differs from the others, and where it
/// hears no majority nothing comes of it: also if it began before.
#[tokio::test]
async fn what_has_begun_does_not_commit_at_a_node_that_accepts_no_writes() {
    let cluster = Cluster::start();
    let mut one = Session::new(cluster.nodes[0].1.clone(), SessionParameters::default()).unwrap();
    simple_query(&mut one, "CREATE TABLE t (a int PRIMARY KEY)").await;
    cluster.settle().await;
    let nodes = cluster.nodes[0].1.nodes();
    for end in ["COMMIT", "PREPARE TRANSACTION 'p'"] {
        simple_query(&mut one, "BEGIN; INSERT INTO t VALUES (1)").await;
        nodes.close(Some("Node 1 is diverged".to_owned()));
        let refused = simple_query(&mut one, end).await;
        assert!(refused[0].starts_with("ERROR 25006"), "{end}: {refused:?}");
        assert!(refused[1].contains("diverged"), "{end}: {refused:?}");
        nodes.close(None);
        assert_eq!(simple_query(&mut one, "SELECT count(*) FROM t").await, ["count", "0", "SELECT 1"]);
    }
    cluster.settle().await;
    cluster.assert_equal();
}

/// Whoever has something to say and is not answered in time says it once it has committed.
#[tokio::test]
#[expect(clippy::await_holding_lock, reason = "who waits for the order does so beside this thread")]
async fn what_commits_later_than_its_client_waits_for_is_said_then() {
    let cluster = Cluster::start();
    let session = || Session::new(cluster.nodes[0].1.clone(), SessionParameters::default()).unwrap();
    let (mut one, mut two) = (session(), session());
    simple_query(&mut one, "CREATE TABLE t (a int PRIMARY KEY)").await;
    simple_query(&mut two, "LISTEN c").await;
    let held = cluster.hold();
    // Nothing else is waited for, so the time that it may take passes at once.
    tokio::time::pause();
    let text = "BEGIN; INSERT INTO t VALUES (1); NOTIFY c, 'late'; COMMIT";
    let answer = simple_query(&mut one, text).await;
    tokio::time::resume();
    assert!(answer.iter().any(|line| line.starts_with("ERROR 08007")), "{answer:?}");
    assert_eq!(two.take_notifications().count(), 0);
    drop(held);
    let told = std::future::poll_fn(|context| two.poll_notifications(context));
    tokio::time::timeout(FOR_EVER, told).await.expect("a notification");
    let told: Vec<String> = two.take_notifications().map(|told| told.payload.to_string()).collect();
    assert_eq!(told, ["late"]);
    assert_eq!(simple_query(&mut one, "SELECT a FROM t").await, ["a", "1", "SELECT 1"]);
}

/// Numbers are given in blocks, and a block has its place in the order. Who needs one at a node
/// that loses its majority does not wait for that to come back, nor has others wait.
#[tokio::test]
#[expect(clippy::await_holding_lock, reason = "who waits for the order does so beside this thread")]
async fn nobody_waits_for_numbers_at_a_node_without_a_majority() {
    let cluster = Cluster::start();
    let mut one = Session::new(cluster.nodes[0].1.clone(), SessionParameters::default()).unwrap();
    simple_query(&mut one, "CREATE SEQUENCE s").await;
    cluster.settle().await;
    let held = cluster.hold();
    // Before the number is asked for, or while it is waited for.
    let database = cluster.nodes[0].1.clone();
    let closing = std::thread::spawn(move || database.nodes().close(Some("Node 1 is minority".to_owned())));
    let (nextval, setval) = ("SELECT nextval('s')", "SELECT setval('s', 100)");
    for text in [nextval, setval, "CREATE TABLE t (a int)", "DROP SEQUENCE s", "ALTER ROLE r SET jit = on"] {
        let refused = simple_query(&mut one, text).await;
        assert!(refused[0].starts_with("ERROR 25006"), "{text}: {refused:?}");
        assert!(refused[1].contains("minority"), "{text}: {refused:?}");
    }
    closing.join().unwrap();
    cluster.nodes[0].1.nodes().close(None);
    drop(held);
    let given = simple_query(&mut one, "SELECT nextval('s')").await;
    assert!(given[1].parse::<i64>().is_ok_and(|number| number > 0), "{given:?}");
    cluster.settle().await;
    cluster.assert_equal();
}

/// What does not fit into one request comes in parts; what is prepared does not, and is refused as
/// a whole, with the limit.
#[tokio::test]
async fn who_is_too_large_for_one_request_comes_in_parts_or_is_told_the_limit() {
    let cluster = Cluster::start();
    let mut one = Session::new(cluster.nodes[0].1.clone(), SessionParameters::default()).unwrap();
    simple_query(&mut one, "SET cognate.replication = certification").await;
    simple_query(&mut one, "CREATE TABLE t (a int PRIMARY KEY, b text)").await;
    let rows = "SELECT g, repeat('x', 100000) FROM generate_series(1, 180) g";
    let prepare = format!("BEGIN; INSERT INTO t {rows}; PREPARE TRANSACTION 'p'");
    let answer = simple_query(&mut one, &prepare).await;
    let at = answer.iter().position(|line| line.starts_with("ERROR 54000"));
    let detail = at.and_then(|at| answer.get(at + 1)).map_or("", String::as_str);
    assert!(detail.contains(" 16777216 bytes"), "{answer:?}");
    assert_eq!(simple_query(&mut one, "SELECT count(*) FROM t").await, ["count", "0", "SELECT 1"]);
    for text in [
        format!("INSERT INTO t {rows}"),
        format!("CREATE TABLE u AS {rows}"),
        "ALTER TABLE t ALTER a TYPE bigint".to_owned(),
    ] {
        let answer = simple_query(&mut one, &text).await;
        assert!(answer.iter().all(|line| !line.starts_with("ERROR")), "{text}: {answer:?}");
    }
    cluster.settle().await;
    let mut two = Session::new(cluster.nodes[1].1.clone(), SessionParameters::default()).unwrap();
    let both = "SELECT (SELECT count(*) FROM t) + (SELECT count(*) FROM u) AS count";
    assert_eq!(simple_query(&mut two, both).await, ["count", "360", "SELECT 1"]);
    cluster.settle().await;
    cluster.assert_equal();
}

/// A cursor has its rows from the moment of its declaration: nobody is asked about them again.
#[tokio::test]
async fn a_cursor_goes_on_without_what_comes_later() {
    let cluster = Cluster::start();
    let (_, mut two) = before_the_next(&cluster).await;
    simple_query(&mut two, "RESET cognate.read_after").await;
    simple_query(&mut two, "BEGIN ISOLATION LEVEL READ COMMITTED; DECLARE c CURSOR FOR SELECT 7 AS a").await;
    let next = cluster.nodes[0].0.applied() + 1;
    simple_query(&mut two, &format!("SET cognate.read_after = 'cafe/{next}'")).await;
    let fetched = tokio::time::timeout(FOR_EVER, simple_query(&mut two, "FETCH c")).await;
    let fetched = fetched.expect("it waits for nothing");
    assert!(fetched.iter().any(|line| line.trim() == "7"), "{fetched:?}");
}

/// Whatever a transaction begins with, its snapshot is to have what `cognate.read_after` names.
#[tokio::test]
async fn the_first_statement_of_a_transaction_waits_for_what_it_is_to_see() {
    let cluster = Cluster::start();
    let session = |node: usize| {
        let database = cluster.nodes[node].1.clone();
        database.nodes().identify("cafe".to_owned());
        Session::new(database, SessionParameters::default()).unwrap()
    };
    let (mut one, mut two) = (session(0), session(1));
    simple_query(&mut one, "CREATE TABLE seen (a int)").await;
    // Numbers of rows are taken from the order before the first one.
    simple_query(&mut one, "INSERT INTO seen VALUES (1000)").await;
    let begins = [
        "BEGIN; SELECT 1",
        "BEGIN; SAVEPOINT s",
        "BEGIN; LOCK TABLE seen IN ACCESS SHARE MODE",
        "BEGIN; DECLARE c CURSOR FOR SELECT a FROM seen",
        "BEGIN; SET CONSTRAINTS ALL IMMEDIATE",
        "BEGIN; DO $$ BEGIN PERFORM 1; EXCEPTION WHEN OTHERS THEN NULL; END $$",
        "BEGIN; COPY seen FROM STDIN\n  | 1000",
        "BEGIN; CREATE TEMPORARY TABLE own (a int)",
        "BEGIN; EXPLAIN ANALYZE SELECT a FROM seen",
        "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT 1",
        "BEGIN MIP <'family', 1>",
    ];
    for (count, begin) in (1..).zip(begins) {
        cluster.settle().await;
        let next = cluster.nodes[0].0.applied() + 1;
        simple_query(&mut two, &format!("SET cognate.read_after = 'cafe/{next}'")).await;
        let mut both = Box::pin(async {
            let begun = simple_query(&mut two, begin).await;
            (begun, simple_query(&mut two, "SELECT count(*) FROM seen WHERE a < 1000").await)
        });
        let waits = std::future::poll_fn(|context| Poll::Ready(both.as_mut().poll(context).is_pending()));
        assert!(waits.await, "{begin}: what it is to see has not come");
        simple_query(&mut one, &format!("INSERT INTO seen VALUES ({count})")).await;
        let (begun, seen) = both.await;
        assert!(!begun.iter().any(|line| line.starts_with("ERROR")), "{begin}: {begun:?}");
        assert!(seen.iter().any(|line| line.trim() == count.to_string()), "{begin}: {seen:?}");
        simple_query(&mut two, "ROLLBACK").await;
    }
}

/// Takes rows that are as wide as they are said to be, and drops them.
struct Nowhere;

impl RowSink for Nowhere {
    fn row(
        &mut self,
        columns: &[OutputColumn],
        formats: &[Format],
        row: &[Datum],
        _: &FormatContext,
    ) -> Result<SinkState, SqlError> {
        assert_eq!((columns.len(), formats.len()), (row.len(), row.len()));
        Ok(SinkState::Ready)
    }

    fn copy_out(&mut self, _: &[u8]) -> SinkState {
        SinkState::Ready
    }
}

/// What a message has done so far is given up when another node's transaction was faster. Its
/// client does not ask at that time, and is told when it does.
#[tokio::test]
async fn an_implicit_transaction_that_is_given_up_says_so() {
    let cluster = Cluster::start();
    let session =
        |node: usize| Session::new(cluster.nodes[node].1.clone(), SessionParameters::default()).unwrap();
    let (mut one, mut two) = (session(0), session(1));
    simple_query(&mut one, "CREATE TABLE t (id int PRIMARY KEY, v int)").await;
    simple_query(&mut one, "INSERT INTO t VALUES (1, 0)").await;
    cluster.settle().await;
    let prepared = one.prepare("UPDATE t SET v = 1", &[]).unwrap();
    let mut portal = one.bind(&prepared, &[], &[], &[]).unwrap();
    one.fetch(&mut portal, &mut Nowhere, 0).await.unwrap();
    simple_query(&mut two, "UPDATE t SET v = 2").await;
    cluster.settle().await;
    one.doomed().unwrap().await;
    one.give_up();
    assert_eq!(one.take_lost().map(|lost| lost.sqlstate), Some("40001"));
    one.sync().await.unwrap();
    assert!(one.take_lost().is_none());
    assert_eq!(simple_query(&mut one, "SELECT v FROM t").await, ["v", "2", "SELECT 1"]);
}

/// The block of whom another node's transaction was faster is told so once. From then on it is a
/// failed block like any other, but for its savepoints: what was before them is overtaken, too.
#[tokio::test]
async fn a_block_that_was_overtaken_is_told_so_once() {
    use TransactionStatus::{Failed, Idle, InBlock};
    let cluster = Cluster::start();
    let session =
        |node: usize| Session::new(cluster.nodes[node].1.clone(), SessionParameters::default()).unwrap();
    let (mut one, mut two) = (session(0), session(1));
    for session in [&mut one, &mut two] {
        simple_query(session, "SET cognate.replication = certification").await;
    }
    simple_query(&mut one, "CREATE TABLE z (id int PRIMARY KEY, v int)").await;
    simple_query(&mut one, "INSERT INTO z VALUES (1, 0)").await;
    // It is given up while its client is idle, or the next statement finds out.
    let blocks = [("", true), ("", false), ("; SAVEPOINT s", true), ("; SAVEPOINT s", false)];
    let ends = [
        (true, "COMMIT", "ROLLBACK", Idle),
        (true, "COMMIT AND CHAIN", "ROLLBACK", InBlock),
        (true, "ROLLBACK AND CHAIN", "ROLLBACK", InBlock),
        (false, "COMMIT", "ERROR 40001", Idle),
        (false, "COMMIT AND CHAIN", "ERROR 40001", Idle),
    ];
    for ((savepoint, is_given_up), (is_told, end, answer, status)) in
        blocks.iter().flat_map(|block| ends.iter().map(move |end| (*block, *end)))
    {
        if !is_told && !is_given_up {
            continue;
        }
        cluster.settle().await;
        let begin = format!("BEGIN; SELECT v FROM z WHERE id = 1 FOR UPDATE{savepoint}");
        simple_query(&mut one, &begin).await;
        simple_query(&mut two, "UPDATE z SET v = v + 1 WHERE id = 1").await;
        cluster.settle().await;
        one.doomed().unwrap().await;
        if is_given_up {
            one.give_up();
        }
        let mut expected = Vec::new();
        if is_told {
            expected.extend([("SELECT 1", "ERROR 40001"), ("SELECT 1", "ERROR 25P02")]);
            if !savepoint.is_empty() {
                expected.extend([("ROLLBACK TO s", "ERROR 40001"), ("SELECT 1", "ERROR 25P02")]);
            }
        }
        for (statement, failure) in expected {
            let told = simple_query(&mut one, statement).await;
            assert!(told[0].starts_with(failure), "{begin}; {statement}: {told:?}");
            assert_eq!(one.status(), Failed);
        }
        let told = simple_query(&mut one, end).await;
        assert!(told[0].starts_with(answer), "{begin}; {end}: {told:?}");
        assert_eq!(one.status(), status, "{begin}; {end}");
        assert_eq!(simple_query(&mut one, "SELECT 1").await.last().unwrap(), "SELECT 1");
        simple_query(&mut one, "ROLLBACK").await;
    }
    cluster.assert_equal();
}

/// Of a number that was begun at two nodes, the first PREPARE has it. Whoever comes later is told
/// so, and not what the other one has prepared: its own work is no part of that.
#[tokio::test]
async fn who_prepares_a_number_that_another_node_has_prepared_is_told_so() {
    let cluster = Cluster::start();
    let session =
        |node: usize| Session::new(cluster.nodes[node].1.clone(), SessionParameters::default()).unwrap();
    let (mut one, mut two) = (session(0), session(1));
    simple_query(&mut one, "CREATE TABLE t (a int PRIMARY KEY)").await;
    // It is given up while its client is idle, or PREPARE finds out.
    for (family, rows, is_given_up) in [("f", [1, 2], true), ("g", [11, 12], false)] {
        cluster.settle().await;
        for (session, row) in [&mut one, &mut two].into_iter().zip(rows) {
            simple_query(session, &format!("BEGIN MIP <'{family}', 1>")).await;
            let insert = format!("INSERT INTO t VALUES ({row})");
            assert_eq!(simple_query(session, &insert).await, ["INSERT 0 1"]);
        }
        let prepared = simple_query(&mut two, &format!("PREPARE MIP <'{family}', 1> 'asked' 'two'")).await;
        assert_eq!(prepared.last().unwrap(), "PREPARE MIP", "{prepared:?}");
        cluster.settle().await;
        one.doomed().unwrap().await;
        if is_given_up {
            one.give_up();
        }
        let late = simple_query(&mut one, &format!("PREPARE MIP <'{family}', 1> 'asked' 'one'")).await;
        assert!(late[0].starts_with("ERROR MI010"), "{late:?}");
        assert_eq!(one.status(), TransactionStatus::Idle);
        let committed = simple_query(&mut two, &format!("COMMIT MIP <'{family}', 1>")).await;
        assert_eq!(committed.last().unwrap(), "COMMIT MIP", "{committed:?}");
    }
    cluster.settle().await;
    assert_eq!(simple_query(&mut one, "SELECT a FROM t ORDER BY a").await, ["a", "2", "12", "SELECT 2"]);
    cluster.assert_equal();
}

/// Who defines something by itself is not told that another node was faster: it is done again.
#[tokio::test]
async fn a_definition_that_another_node_overtakes_is_made_again() {
    let cluster = Cluster::start();
    let session =
        |node: usize| Session::new(cluster.nodes[node].1.clone(), SessionParameters::default()).unwrap();
    let (mut one, mut holder, mut two) = (session(0), session(0), session(1));
    simple_query(&mut one, "CREATE TABLE t (a int PRIMARY KEY)").await;
    simple_query(&mut one, "CREATE TABLE u (a int PRIMARY KEY)").await;
    cluster.settle().await;
    simple_query(&mut holder, "BEGIN; INSERT INTO u VALUES (1)").await;
    let before = cluster.nodes[0].1.retries();
    let mut dropped = Box::pin(simple_query(&mut one, "DROP TABLE t, u"));
    let overtaken = async {
        for row in 1.. {
            let waits =
                std::future::poll_fn(|context| Poll::Ready(dropped.as_mut().poll(context).is_pending()));
            assert!(waits.await, "somebody holds one of the tables");
            if cluster.nodes[0].1.retries() > before {
                return;
            }
            simple_query(&mut two, &format!("INSERT INTO t VALUES ({row})")).await;
            cluster.settle().await;
        }
    };
    tokio::time::timeout(FOR_EVER, overtaken).await.expect("it is overtaken, and begins anew");
    simple_query(&mut holder, "ROLLBACK").await;
    assert_eq!(dropped.await, ["DROP TABLE"]);
    cluster.settle().await;
    let gone = simple_query(&mut two, "SELECT count(*) FROM pg_class WHERE relname IN ('t', 'u')").await;
    assert_eq!(gone, ["count", "0", "SELECT 1"]);
    cluster.assert_equal();
}

/// Goes on with something as far as it comes; whether it waits.
async fn is_waiting(work: &mut (impl Future + Unpin)) -> bool {
    std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *work).poll(context).is_pending())).await
}

/// The same until it waits for a lock, and nobody else does.
async fn until_locked_out(work: &mut (impl Future + Unpin), watcher: &mut Session) {
    let waiting = "SELECT count(*) FROM cognate_transactions WHERE waits_for IS NOT NULL";
    let waits = async {
        loop {
            assert!(is_waiting(work).await, "somebody holds a row");
            if simple_query(watcher, waiting).await[1] == "1" {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(FOR_EVER, waits).await.expect("it waits");
}

/// Who is overtaken while it waits for a row begins anew once, where the other one can be seen, and
/// behind it if that is prepared.
#[tokio::test]
async fn a_statement_that_another_node_overtakes_begins_anew_once() {
    let cluster = Cluster::start();
    let session =
        |node: usize| Session::new(cluster.nodes[node].1.clone(), SessionParameters::default()).unwrap();
    let (mut one, mut holder, mut two) = (session(0), session(0), session(1));
    let mut watcher = session(0);
    for session in [&mut one, &mut holder, &mut two] {
        simple_query(session, "SET cognate.replication = certification").await;
        simple_query(session, "SET default_transaction_isolation = 'serializable'").await;
    }
    simple_query(&mut one, "CREATE TABLE t (a int PRIMARY KEY, n int)").await;
    simple_query(&mut one, "INSERT INTO t VALUES (1, 0), (2, 0)").await;
    let faster = "UPDATE t SET n = n + 10 WHERE a = 1";
    let prepares = format!("BEGIN; {faster}; PREPARE TRANSACTION 'p'");
    for (count, (is_block, is_prepared)) in
        (1..).zip([(false, false), (true, false), (false, true), (true, true)])
    {
        cluster.settle().await;
        simple_query(&mut holder, "BEGIN; UPDATE t SET n = n WHERE a = 2").await;
        if is_block {
            simple_query(&mut one, "BEGIN").await;
        }
        let before = cluster.nodes[0].1.retries();
        let mut updated = Box::pin(simple_query(&mut one, "UPDATE t SET n = n + 1"));
        until_locked_out(&mut updated, &mut watcher).await;
        simple_query(&mut two, if is_prepared { prepares.as_str() } else { faster }).await;
        cluster.settle().await;
        until_locked_out(&mut updated, &mut watcher).await;
        assert_eq!(cluster.nodes[0].1.retries(), before + 1, "{count}");
        if is_prepared {
            simple_query(&mut two, "COMMIT PREPARED 'p'").await;
            cluster.settle().await;
        }
        simple_query(&mut holder, "ROLLBACK").await;
        assert_eq!(updated.await, ["UPDATE 2"], "{count}");
        if is_block {
            assert_eq!(simple_query(&mut one, "COMMIT").await, ["COMMIT"], "{count}");
        }
        cluster.settle().await;
        let sum = simple_query(&mut two, "SELECT sum(n) FROM t").await;
        assert_eq!(sum, ["sum".to_owned(), (12 * count).to_string(), "SELECT 1".to_owned()]);
    }
    cluster.assert_equal();
}

/// Inserts a row by a statement with one parameter; the number of columns that it gives.
async fn insert(
    session: &mut Session,
    prepared: &Arc<Prepared>,
    value: &str,
    is_open: bool,
) -> Result<usize, SqlError> {
    let mut portal = session.bind(prepared, &[Some(value.as_bytes())], &[], &[])?;
    if is_open {
        portal.leave_open();
    }
    let ran = session.fetch(&mut portal, &mut Nowhere, 0).await;
    session.sync().await.unwrap();
    ran.map(|_| portal.columns().map_or(0, <[OutputColumn]>::len))
}

/// What every node executes when it is its turn gives the columns that there are by then, unless
/// its client was told of others.
#[tokio::test]
async fn a_program_gives_the_columns_that_its_client_was_told_of() {
    let cluster = Cluster::start();
    let session =
        |node: usize| Session::new(cluster.nodes[node].1.clone(), SessionParameters::default()).unwrap();
    let (mut one, mut two) = (session(0), session(1));
    simple_query(&mut two, "CREATE TABLE r (a int PRIMARY KEY)").await;
    cluster.settle().await;
    simple_query(&mut one, "SET cognate.replication = active").await;
    let prepared = one.prepare("INSERT INTO r VALUES ($1) RETURNING *", &[]).unwrap();
    assert_eq!(insert(&mut one, &prepared, "1", false).await.unwrap(), 1);
    cluster.settle().await;
    simple_query(&mut two, "ALTER TABLE r ADD COLUMN b int").await;
    cluster.settle().await;
    let refused = insert(&mut one, &prepared, "2", false).await.unwrap_err();
    assert_eq!(refused.message, "cached plan must not change result type");
    assert_eq!(refused.routine, Some("RevalidateCachedQuery"));
    assert_eq!(insert(&mut one, &prepared, "3", true).await.unwrap(), 2);
    let protocol = simple_query(&mut one, "SHOW cognate.last_protocol").await;
    assert_eq!(protocol, ["cognate.last_protocol", "active", "SHOW"]);
    let all = simple_query(&mut one, "SELECT * FROM r ORDER BY a").await;
    assert_eq!(all, ["a|b", "1|NULL", "3|NULL", "SELECT 2"]);
    cluster.settle().await;
    cluster.assert_equal();
}
