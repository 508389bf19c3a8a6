//! A node without anything joins while definitions change and sequences give their numbers, as
//! processes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::cluster::Cluster;
use crate::cluster_operation::Over;
use crate::wire::{Rows, Wire};

/// Changes of definitions before the node goes, and after it has come.
const ROUNDS: usize = 3;

/// A statement until it is acknowledged. It may happen twice, where an answer was lost.
fn again(wire: &mut Wire, text: &str) -> Rows {
    loop {
        match wire.query(text) {
            Ok(rows) => return rows,
            Err(failure) => {
                let state = failure.sqlstate();
                assert!(matches!(state, "25006" | "40001" | "40P01" | "08007"), "{text}: {failure:?}");
            }
        }
    }
}

/// Makes tables, changes them, and drops every second one, until it is told to end. Says how many
/// there were.
fn define(address: SocketAddr, is_over: &AtomicBool, done: &Sender<()>) -> usize {
    let mut wire = Wire::connect(address).expect("connected");
    let mut made = 0;
    while !is_over.load(Ordering::Relaxed) {
        made += 1;
        again(&mut wire, &format!("CREATE TABLE IF NOT EXISTS t{made} (id serial PRIMARY KEY, a int)"));
        again(&mut wire, &format!("INSERT INTO t{made} (a) VALUES ({made})"));
        again(&mut wire, &format!("CREATE INDEX IF NOT EXISTS t{made}_a ON t{made} (a)"));
        again(&mut wire, &format!("ALTER TABLE t{made} ADD COLUMN IF NOT EXISTS b text DEFAULT 'b'"));
        if made % 2 == 0 {
            again(&mut wire, &format!("DROP TABLE IF EXISTS t{}", made - 1));
        }
        let _ = done.send(());
    }
    made
}

/// Numbers of a sequence that were acknowledged at a node.
fn numbers(address: SocketAddr, is_over: &AtomicBool) -> Vec<String> {
    let mut wire = Wire::connect(address).expect("connected");
    let mut given = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        given.extend(number(&mut wire));
    }
    given
}

fn number(wire: &mut Wire) -> Option<String> {
    again(wire, "INSERT INTO item (n) VALUES (1) RETURNING id").into_iter().flatten().next().flatten()
}

fn wait(done: &Receiver<()>) {
    (0..ROUNDS).for_each(|_| done.recv().expect("definitions go on"));
}

#[test]
fn a_node_without_anything_joins_while_definitions_change() {
    let mut cluster = Cluster::start();
    again(&mut cluster.connect(1), "CREATE TABLE item (id serial PRIMARY KEY, n int NOT NULL)");
    // Every node has it, also one that was not needed for the majority.
    cluster.assert_equal("SELECT id FROM item");
    let addresses = [cluster.address(1), cluster.address(2)];
    let is_over = AtomicBool::new(false);
    let (tables, mut given) = thread::scope(|scope| {
        let (done, dones) = channel();
        let is_over = &is_over;
        let defining = scope.spawn(move || define(addresses[0], is_over, &done));
        let giving = addresses.map(|address| scope.spawn(move || numbers(address, is_over)));
        let over = Over(is_over);
        wait(&dones);
        cluster.kill(3);
        std::fs::remove_dir_all(cluster.data(3)).expect("lost");
        let said = cluster.restart_and_manage(3, 2, &["rebuild", "3"]);
        assert!(said.ends_with("node 3 takes part\n"), "{said}");
        // What was changed meanwhile does not count.
        while dones.try_recv().is_ok() {}
        wait(&dones);
        drop(over);
        let given: Vec<String> =
            giving.into_iter().flat_map(|thread| thread.join().expect("numbers")).collect();
        (defining.join().expect("defined"), given)
    });
    given.extend(number(&mut cluster.connect(3)));
    let distinct: BTreeSet<&String> = given.iter().collect();
    assert_eq!(distinct.len(), given.len(), "a number was given twice");
    let ids = cluster.assert_equal("SELECT id FROM item ORDER BY id");
    let ids: BTreeSet<&String> = ids.iter().flatten().collect();
    assert!(distinct.is_subset(&ids), "{distinct:?} {ids:?}");

    let columns = cluster.assert_equal(
        "SELECT table_name, column_name, data_type FROM information_schema.columns \
         WHERE table_schema = 'public' ORDER BY table_name, column_name",
    );
    let has = |name: String| columns.iter().filter(|row| row[0] == name).count();
    assert_eq!((has(format!("t{tables}")), has("t1".to_owned())), (3, 0), "{columns:?}");
    let indexes =
        cluster.assert_equal("SELECT indexname FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1");
    assert!(indexes.contains(&vec![format!("t{tables}_a")]), "{indexes:?}");
    // What the indexes have is what the tables have, at the new node as well.
    let one = format!("SELECT count(*) > 0 FROM t{tables} WHERE a = {tables} AND b = 'b'");
    assert_eq!(cluster.assert_equal(&one), [["t"]]);
}
