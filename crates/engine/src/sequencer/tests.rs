//! A defect under the commit mutex: planted in the graph, it is said by the certifier, and stops
//! the log as a failed flush does. Nobody commits over an edge that is lost.

use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;

use bytes::Bytes;
use cognate_env::sim::{Loss, SimDisk};

use super::{Delivery, PRUNE_EVERY};
use crate::certifier::{Candidate, Fault};
use crate::hash::FIXED;
use crate::key::SmallKey;
use crate::payload::Encoder;
use crate::txn::writeset::KeyWrites;
use crate::{
    Access, Csn, Database, Error, Isolation, Node, Options, TotalOrder, Transaction, TransactionId, TreeId,
    Value,
};

const TREE: TreeId = 1000;

fn open(disk: &SimDisk, early: bool) -> Database {
    let options = Options { disk: disk.handle(), early_lock_release: early, ..Options::new("data") };
    Database::open(options).expect("opened")
}

fn begin(database: &Database) -> Transaction {
    database.begin(Isolation::Serializable, Access::ReadWrite)
}

/// A transaction that reads one key, and a range if there is one, and writes another key.
fn worker(database: &Database, read: &str, range: Option<(&str, &str)>, written: &str) -> Transaction {
    let mut t = begin(database);
    t.get(TREE, read.as_bytes()).expect("read");
    if let Some((from, to)) = range {
        let range = (Included(from.as_bytes()), Excluded(to.as_bytes()));
        let mut scan = t.scan(TREE, range.0, range.1, false).expect("a cursor");
        while scan.next().expect("read").is_some() {}
    }
    t.put(TREE, written.as_bytes(), Value::copy_from_slice(written.as_bytes())).expect("written");
    t
}

fn commit(t: Transaction) -> Result<TransactionId, Error> {
    let id = t.id();
    t.commit()?.durable.wait().map(|()| id)
}

fn is_defect(error: &Error) -> bool {
    matches!(error, Error::LogPoisoned { cause } if matches!(**cause, Error::Defect(_)))
}

fn rows(database: &Database) -> Vec<Vec<u8>> {
    let t = database.begin(Isolation::Snapshot, Access::ReadOnly);
    let mut scan = t.scan(TREE, Included(&b""[..]), Excluded(&b"zz"[..]), false).expect("a cursor");
    std::iter::from_fn(|| scan.next().expect("read")).map(|(key, _)| key.to_vec()).collect()
}

/// Commits that have edges to each other and to nobody else, open as long as somebody older runs: 1
/// → 2, 1 → 3, 2 → 3.
fn history(database: &Database) -> (Transaction, [TransactionId; 3]) {
    let old = begin(database);
    old.get(TREE, b"z").expect("read");
    let first = commit(worker(database, "a", None, "b")).expect("committed");
    let second = commit(worker(database, "b", Some(("m", "p")), "c")).expect("committed");
    let third = commit(worker(database, "c", None, "a")).expect("committed");
    (old, [first, second, third])
}

fn plant(database: &Database, fault: Fault) {
    database.manager().sequencer.order.lock().certifier.plant(fault);
}

/// Every entry is refused now, whatever it is; readers go on; and what was acknowledged is there
/// after the next start.
fn has_stopped(disk: &SimDisk, database: Database, acknowledged: &[Vec<u8>]) {
    assert!(database.is_poisoned());
    let again = commit(worker(&database, "q", None, "r")).expect_err("nothing commits any more");
    assert!(is_defect(&again), "{again}");
    let weak = database.begin(Isolation::ReadCommitted, Access::ReadWrite);
    let refused = {
        let mut weak = weak;
        weak.put(TREE, b"weak", Value::new()).expect("written");
        commit(weak).expect_err("at no level")
    };
    assert!(is_defect(&refused), "{refused}");
    let prepared = worker(&database, "q", None, "r").prepare("late", Value::new()).expect_err("nor prepares");
    assert!(is_defect(&prepared), "{prepared}");
    assert_eq!(rows(&database), acknowledged, "readers go on");
    assert!(is_defect(&database.statistics().log_poisoned.expect("it says so")));
    assert!(is_defect(&database.close().expect_err("it does not end well")));
    drop(database);
    disk.restart(Loss::Power);
    let database = open(disk, true);
    let found = rows(&database);
    assert!(acknowledged.iter().all(|row| found.contains(row)), "{found:?}");
    assert!(!found.contains(&b"r".to_vec()) && !found.contains(&b"weak".to_vec()), "{found:?}");
    commit(worker(&database, "q", None, "r")).expect("all is well again");
}

/// The fault is said when those that it concerns are looked at, or leave, and nobody whose verdict
/// it could touch commits before.
#[test]
fn a_graph_that_is_not_whole_stops_the_server() {
    let faults: [fn([TransactionId; 3]) -> Fault; 6] = [
        |[_, second, _]| Fault::Node(second),
        |[_, second, _]| Fault::RangeOf(second),
        |[first, ..]| Fault::Edge(first),
        |[.., third]| Fault::Degree(third),
        |_| Fault::Queue,
        |_| Fault::Bytes,
    ];
    for early in [true, false] {
        for fault in faults {
            let disk = SimDisk::new(1);
            let database = open(&disk, early);
            let (old, ids) = history(&database);
            let fault = fault(ids);
            plant(&database, fault);
            drop(old);
            // The first one writes into the range that was read; the others come until the graph is
            // pruned.
            let mut refused = None;
            for _ in 0..2 * PRUNE_EVERY {
                if let Err(error) = commit(worker(&database, "n", None, "n")) {
                    refused = Some(error);
                    break;
                }
            }
            let error = refused.unwrap_or_else(|| panic!("{fault:?} was passed over"));
            assert!(is_defect(&error), "{fault:?}: {error}");
            let mut acknowledged = vec![b"a".to_vec(), b"b".to_vec(), b"c".to_vec()];
            acknowledged.extend(rows(&database).contains(&b"n".to_vec()).then(|| b"n".to_vec()));
            has_stopped(&disk, database, &acknowledged);
        }
    }
}

/// A way through the graph that ends nowhere is no way around: the candidate whose cycle may be
/// hidden is refused.
#[test]
fn a_search_that_meets_a_lost_edge_refuses_the_candidate() {
    let disk = SimDisk::new(1);
    let database = open(&disk, true);
    let (old, [first, ..]) = history(&database);
    // It has read what the first one wrote, as it was before, and writes what the third one read.
    let mut old = old;
    old.get(TREE, b"b").expect("read");
    old.put(TREE, b"c2", Value::new()).expect("written");
    plant(&database, Fault::Edge(first));
    let reader = commit(worker(&database, "c2", None, "d"));
    reader.expect("nothing leads it over the lost edge");
    let error = commit(old).expect_err("what comes after the first is not known");
    assert!(is_defect(&error), "{error}");
    has_stopped(&disk, database, &[b"a".to_vec(), b"b".to_vec(), b"c".to_vec(), b"d".to_vec()]);
}

/// A decision cannot be refused by the certifier. If its node is gone, or breaks while its record
/// is on the way, it stays undecided.
#[test]
fn a_promise_without_its_node_is_not_decided() {
    for is_late in [false, true] {
        let disk = SimDisk::new(1);
        let database = open(&disk, true);
        let (_old, _) = history(&database);
        let t = worker(&database, "x", None, "y");
        let id = t.id();
        t.prepare("p", Value::new()).expect("prepared").durable.wait().expect("durable");
        let error = match is_late {
            false => {
                plant(&database, Fault::Node(id));
                database.commit_prepared("p").expect_err("nobody knows who comes before it")
            }
            true => {
                plant(&database, Fault::Edge(id));
                database.rollback_prepared("p").expect_err("it breaks after the record has its number")
            }
        };
        assert!(is_defect(&error), "{error}");
        has_stopped(&disk, database, &[b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]);
        let database = open(&disk, true);
        assert!(!rows(&database).contains(&b"y".to_vec()), "it has not committed");
        if !is_late {
            assert_eq!(database.prepared().len(), 1, "it is in doubt as before");
            database.commit_prepared("p").expect("decided").durable.wait().expect("durable");
            assert!(rows(&database).contains(&b"y".to_vec()));
        }
    }
}

/// An order that takes nothing anywhere.
struct Nowhere;

impl TotalOrder for Nowhere {
    fn propose(&self, _request: Bytes) {}

    fn request_bytes_max(&self) -> u64 {
        1 << 20
    }

    fn wait_synced(&self, _position: u64) -> bool {
        true
    }
}

fn open_node() -> Database {
    let node = Node { number: 1, start: 1, order: Arc::new(Nowhere) };
    let options = Options { disk: SimDisk::new(1).handle(), node: Some(node), ..Options::new("data") };
    Database::open(options).expect("opened")
}

/// A request of transaction 7, which wrote one key.
fn request() -> Delivery<'static> {
    let key = SmallKey::new(b"k");
    let hash = FIXED.hash_of(TREE, &key);
    let writes = KeyWrites::from_vec(vec![(TREE, key, hash, 0)]);
    let candidate = Some(Candidate::new(7, 0, None, writes, Vec::new()));
    Delivery { candidate, mixing: None, changes: Vec::new(), dropped: &[], bytes: 1 }
}

/// Who reads what was delivered must not take the graph for empty, and end without being noted: so
/// it is known to have it before that is shown.
#[test]
fn what_is_delivered_is_known_to_be_in_the_graph_before_it_is_shown() {
    let database = open_node();
    let sequencer = &database.manager().sequencer;
    assert_eq!(sequencer.quiet_below(), Csn::MAX);
    let mut known = None;
    let grant = || known = Some((database.visible(), sequencer.quiet_below()));
    sequencer.deliver(1, request(), None, grant).expect("delivered");
    assert_eq!((known, database.visible()), (Some((0, 1)), 1));
}

/// A node that began with an image of it would commit what others refuse. And who finds that out is
/// the thread of the checkpoints, which must not be all that stops.
#[test]
fn a_graph_that_is_not_whole_gets_into_no_image() {
    let database = open_node();
    let sequencer = &database.manager().sequencer;
    sequencer.deliver(1, request(), None, || ()).expect("delivered");
    sequencer.encode_graph(&mut Encoder::with_capacity(64)).expect("it is whole");
    plant(&database, Fault::Edge(7));
    let error = sequencer.encode_graph(&mut Encoder::with_capacity(64)).expect_err("an edge is lost");
    assert!(is_defect(&error), "{error}");
    assert!(database.is_poisoned());
    let error = sequencer.pass(2, 1).expect_err("nothing is delivered any more");
    assert!(is_defect(&error), "{error}");
    assert_eq!(database.visible(), 1);
}
