//! The golden scripts at a cluster: three databases in one process that follow one order. A script
//! runs at one of them, or goes round, and must get the answers that a single database gives; the
//! others must have come to the same afterwards.

#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::thread::JoinHandle;

use bytes::Bytes;
use cognate_engine::{Database, Node, Options, Progress, TotalOrder};
use cognate_env::sim::SimDisk;
use cognate_sql::session::{Session, SessionParameters, SqlDatabase};

use crate::script::simple_query;

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
        cluster.open(None);
        cluster
    }

    fn open(&mut self, kilobytes: Option<u64>) {
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
                Database::open(match kilobytes {
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
        let (sender, thread) = self.thread.take().unwrap();
        sender.send(Bytes::new()).unwrap();
        thread.join().unwrap();
        for (engine, _) in std::mem::take(&mut self.nodes) {
            engine.close().unwrap();
        }
        self.open(kilobytes);
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
        notify,
        alter,
        anomaly_insert_after_delete,
        anomaly_lost_update,
        anomaly_phantom_aggregate,
        anomaly_phantom_index,
        anomaly_phantom_join,
        anomaly_phantom_range,
        anomaly_read_only,
        anomaly_write_skew,
        array_slices,
        array_types,
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
        updatable_views,
        generated_columns,
        deferrable_unique,
        with_changes,
        constraints,
        copy,
        cursors,
        databases,
        date_styles,
        ddl,
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
        numerics,
        prepared,
        prepared_transactions,
        owners,
        privileges,
        procedures,
        refusals,
        regular_expressions,
        role_locks,
        role_settings,
        rights,
        roles,
        routine_conflicts,
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
        anomaly_insert_after_delete,
        anomaly_phantom_aggregate,
        anomaly_phantom_index,
        anomaly_phantom_join,
        anomaly_phantom_range,
        anomaly_read_only,
        anomaly_write_skew,
        array_slices,
        array_types,
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
        with_changes,
        constraints,
        copy,
        cursors,
        databases,
        date_styles,
        deferred_references,
        domain_catalog,
        domain_changes,
        domains,
        enum_arrays,
        enum_refusals,
        enums,
        equal_keys,
        evaluation,
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
        numerics,
        prepared,
        prepared_transactions,
        owners,
        privileges,
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

/// Scripts that are not played at one node: what they do to the log is the order's to do.
const ALONE: &[&str] = &["durability", "temporary_crash"];

/// Scripts that do not go round, see there.
const STAYING: &[&str] = &[
    "advisory",
    "notify",
    "anomaly_lost_update",
    "anomaly_phantom_partial_index",
    "conflict",
    "ddl",
    "deadlock",
    "domain_locks",
    "duplicate_or_failure",
    "enum_locks",
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
    "siblings",
    "snapshot_refresh",
    "unvalidated_constraints",
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
    simple_query(&mut two, "BEGIN; SELECT * FROM later").await;
    let refusal = two.prepare("SELECT * FROM never", &[]).unwrap_err();
    assert!(two.look_again(refusal).await.is_err());
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
