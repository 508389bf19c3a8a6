//! A process whose data are not the others': the nodes notice it by their digests, and it serves
//! nobody from then on, until it is rebuilt.
//!
//! What differs is a row. In the log of a node that is down one request is changed, together with
//! its check sum, as no damage would be: the node starts, delivers what nobody else was given, and
//! has no way to know.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cluster::{Cluster, SIZE, retried, rows, sqlstate};
use crate::wire::Wire;

const WRITTEN: &str = "the words that were written";
/// Of the same length.
const CHANGED: &str = "the words that were changed";

/// Bytes before a record's payload: its check sum, its length and its number (docs/log-format.md).
const HEADER: usize = 16;

/// Batches of records are written in whole pages.
const PAGE: usize = 4096;

/// The files of a node's log.
fn logs(cluster: &Cluster, node: usize) -> Vec<PathBuf> {
    let folder = fs::read_dir(cluster.data(node).join("order")).expect("a folder");
    let paths = folder.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "log")).collect()
}

/// What of a log was written; behind it is space that was prepared, much more than that.
fn written(log: &[u8]) -> &[u8] {
    let pages = log.chunks(PAGE).take_while(|page| page.iter().any(|byte| *byte != 0)).count();
    &log[..log.len().min(pages * PAGE)]
}

/// Where the words are in a log.
fn place_of(log: &[u8]) -> Option<usize> {
    written(log).windows(WRITTEN.len()).position(|found| found == WRITTEN.as_bytes())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0x82F6_3B78 } else { crc >> 1 };
    let add = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(u32::MAX, add)
}

/// Begin and end of the record around a place: the one whose check sum says so.
fn record_around(log: &[u8], place: usize) -> (usize, usize) {
    // What is no length may look like one, and be that of all the space that was prepared.
    let limit = written(log).len();
    let ends = |begin: usize| begin + HEADER + u32_at(log, begin + 4) as usize;
    let is_record = |&begin: &usize| {
        let end = ends(begin);
        end >= place + WRITTEN.len() && end <= limit && crc32c(&log[begin + 4..end]) == u32_at(log, begin)
    };
    let begin = (0..=place - HEADER).rev().find(is_record).expect("a record");
    (begin, ends(begin))
}

/// Changes the words in a log, if it has them, so that nothing is wrong with it.
fn change(path: &Path) -> bool {
    let mut log = fs::read(path).expect("read");
    let Some(place) = place_of(&log) else { return false };
    let (begin, end) = record_around(&log, place);
    log[place..place + CHANGED.len()].copy_from_slice(CHANGED.as_bytes());
    let sum = crc32c(&log[begin + 4..end]).to_le_bytes();
    log[begin..begin + 4].copy_from_slice(&sum);
    fs::write(path, log).expect("written");
    true
}

/// Waits until a session's node says of a node that it is in a state, and tells its reason.
fn until(wire: &mut Wire, node: usize, state: &str) -> String {
    let text = format!("SELECT state, reason FROM cognate_nodes WHERE node = {node}");
    loop {
        if let [row] = &rows(wire, &text)[..]
            && row[0] == state
        {
            return row[1].clone();
        }
    }
}

/// A node notices that it differs, and shows nobody its rows.
fn assert_leaves(cluster: &Cluster, node: usize) {
    let mut there = cluster.connect(node);
    let reason = until(&mut there, node, "diverged");
    assert!(reason.contains("digest") && reason.contains("differs from the others'"), "{reason}");
    for text in ["SELECT name FROM item", "COPY item TO STDOUT", "INSERT INTO item VALUES (0, '')"] {
        assert_eq!(sqlstate(there.query(text)), "25006", "{text}");
    }
}

#[test]
fn a_node_whose_data_differ_is_noticed_serves_nobody_and_is_rebuilt() {
    assert_eq!(WRITTEN.len(), CHANGED.len());
    let mut cluster = Cluster::start();
    let mut one = cluster.connect(1);
    retried(&mut one, "CREATE TABLE item (id int PRIMARY KEY, name text)");
    one.query("SET cognate.replication = certification").expect("set");
    retried(&mut one, &format!("INSERT INTO item VALUES (1, '{WRITTEN}')"));
    let token = rows(&mut one, "SHOW cognate.commit_token")[0][0].clone();
    let position = token.split_once('/').expect("a token").1.to_owned();
    let digest = format!("SELECT cognate_digest({position})");
    let node = 1 + cluster.leader(1) % SIZE;
    let others: Vec<usize> = (1..=SIZE).filter(|other| *other != node).collect();
    drop(one);
    // Killed, it makes no checkpoint, and has to deliver again what is in its log.
    while !logs(&cluster, node).iter().any(|path| place_of(&fs::read(path).expect("read")).is_some()) {}
    cluster.kill(node);
    let changed = logs(&cluster, node).iter().filter(|path| change(path)).count();
    assert_eq!(changed, 1, "it has one request of these words");
    cluster.restart(&[node]);
    assert_leaves(&cluster, node);
    let mut wire = cluster.connect(others[0]);
    wire.query(&format!("SET cognate.read_after = '{token}'")).expect("set");
    let theirs = rows(&mut wire, &digest);
    assert_ne!(rows(&mut cluster.connect(node), &digest), theirs);
    // The others know it, do without it, and have what was written.
    for other in &others {
        let mut wire = cluster.connect(*other);
        until(&mut wire, node, "diverged");
        retried(&mut wire, &format!("INSERT INTO item VALUES ({}, 'meanwhile')", 10 + other));
        assert_eq!(rows(&mut wire, "SELECT name FROM item WHERE id = 1"), [[WRITTEN]]);
        assert_eq!(rows(&mut wire, &digest), theirs);
    }
    assert!(others.contains(&cluster.leader(others[0])), "who differs does not lead");
    // Another start does not mend it: now the base store has what differs.
    cluster.stop(node);
    cluster.restart(&[node]);
    assert_leaves(&cluster, node);
    cluster.stop(node);
    fs::remove_dir_all(cluster.data(node)).expect("removed");
    let said = cluster.restart_and_manage(node, others[0], &["rebuild", &node.to_string()]);
    assert!(said.ends_with(&format!("node {node} takes part\n")), "{said}");
    let mut there = cluster.connect(node);
    until(&mut there, node, "serving");
    retried(&mut there, "INSERT INTO item VALUES (2, 'after')");
    let all = cluster.assert_equal("SELECT name FROM item ORDER BY id");
    assert_eq!(all, [[WRITTEN], ["after"], ["meanwhile"], ["meanwhile"]]);
}

/// The file of a node's base store that is the longest.
fn longest_run(cluster: &Cluster, node: usize) -> PathBuf {
    let folder = fs::read_dir(cluster.data(node).join("base")).expect("a folder");
    let paths = folder.map(|entry| entry.expect("an entry").path());
    let runs = paths.filter(|path| path.extension().is_some_and(|extension| extension == "run"));
    runs.max_by_key(|path| fs::metadata(path).expect("its length").len()).expect("a checkpoint was made")
}

/// Damage is met by whoever reads what is there: by a statement, long after the start.
#[test]
fn a_node_whose_file_is_damaged_leaves_and_is_rebuilt() {
    let mut cluster = Cluster::start();
    let mut one = cluster.connect(1);
    retried(&mut one, "CREATE TABLE item (id int PRIMARY KEY, name text)");
    retried(&mut one, "INSERT INTO item SELECT n, md5(n::text) FROM generate_series(1, 5000) AS s (n)");
    let node = 1 + cluster.leader(1) % SIZE;
    drop(one);
    cluster.assert_equal("SELECT count(*) FROM item");
    // It makes a checkpoint, and begins with nothing in memory.
    cluster.stop(node);
    cluster.restart(&[node]);
    let run = longest_run(&cluster, node);
    let mut bytes = fs::read(&run).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&run, bytes).expect("written");
    let mut there = cluster.connect(node);
    assert_eq!(sqlstate(there.query("SELECT sum(length(name)) FROM item")), "XX001");
    let reason = until(&mut there, node, "diverged");
    assert!(reason.contains("corrupt file") && reason.contains("rebuild"), "{reason}");
    let other = 1 + node % SIZE;
    let mut wire = cluster.connect(other);
    until(&mut wire, node, "diverged");
    retried(&mut wire, "INSERT INTO item VALUES (5001, 'meanwhile')");
    cluster.kill(node);
    fs::remove_dir_all(cluster.data(node)).expect("removed");
    let said = cluster.restart_and_manage(node, other, &["rebuild", &node.to_string()]);
    assert!(said.ends_with(&format!("node {node} takes part\n")), "{said}");
    until(&mut cluster.connect(node), node, "serving");
    assert_eq!(cluster.assert_equal("SELECT count(*), sum(length(name)) FROM item"), [["5001", "160009"]]);
}
