//! Clusters of processes on machines that fail in part: a damaged log, a full disk, a clock that is
//! an hour off and jumps. The node says what is wrong, the others go on, and it takes part again.

use std::path::Path;
use std::process::Command;
use std::thread;

use cognate_env::{Rng as _, SplitMix};

use crate::cluster::{Cluster, SIZE, retried, rows, sqlstate};
use crate::cluster_histories::{Crew, PROTOCOLS};
use crate::damage::{names, written};
use crate::process::{fails, skipped};
use crate::wire::Wire;

/// Where Debian keeps the library that moves the clock of a process.
const CLOCK_LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

#[test]
fn a_node_with_a_damaged_log_names_it_and_is_rebuilt() {
    let seed = cognate_env::RealRng.next_u64();
    println!("seed {seed}");
    let mut random = SplitMix::new(seed);
    let mut cluster = Cluster::start();
    let mut one = cluster.connect(1);
    retried(&mut one, "CREATE TABLE item (id serial PRIMARY KEY, name text)");
    for _ in 0..40 {
        retried(&mut one, "INSERT INTO item (name) SELECT md5(n::text) FROM generate_series(1, 20) n");
    }
    let node = 1 + cluster.leader(1) % SIZE;
    // It has given numbers to transactions, which it will have forgotten.
    let token = rows(&mut one, "SHOW cognate.commit_token")[0][0].clone();
    let mut there = cluster.connect(node);
    retried(&mut there, &format!("SET cognate.read_after = '{token}'"));
    (0..20).for_each(|_| retried(&mut there, "INSERT INTO item (name) VALUES ('before')"));
    drop(there);
    cluster.stop(node);
    let mut files: Vec<_> = std::fs::read_dir(cluster.data(node).join("order"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    files.sort();
    let path = files.pop().expect("a log");
    let whole = std::fs::read(&path).expect("read");
    let end = written(&whole);
    let data = cluster.data(node).to_str().expect("UTF-8").to_owned();
    let words: Vec<String> = ["serve", "--data", &data, "--listen", "127.0.0.1:0", "--log", "error"]
        .into_iter()
        .map(str::to_owned)
        .chain(cluster.arguments(node))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for _ in 0..6 {
        let offset = end / 4 + random.below(end as u64 / 2) as usize;
        let mut damaged = whole.clone();
        damaged[offset] ^= 1 << random.below(8);
        std::fs::write(&path, &damaged).expect("written");
        let (code, said) = fails(&words);
        assert_eq!(code, Some(1), "{said}");
        names(&said, &path, offset);
        // The others do not miss it.
        let other = 1 + node % SIZE;
        retried(&mut cluster.connect(other), "INSERT INTO item (name) VALUES ('meanwhile')");
    }
    std::fs::remove_dir_all(cluster.data(node)).expect("removed");
    let said = cluster.restart_and_manage(node, 1 + node % SIZE, &["rebuild", &node.to_string()]);
    assert!(said.ends_with(&format!("node {node} takes part\n")), "{said}");
    let mut there = cluster.connect(node);
    (0..20).for_each(|_| retried(&mut there, "INSERT INTO item (name) VALUES ('after')"));
    let count = cluster.assert_equal("SELECT count(*), max(name) FROM item");
    assert_eq!(count[0][0], (40 * 20 + 20 + 6 + 20).to_string());
}

/// A file system of its own size, which goes with this.
struct Mount<'a>(&'a Path);

impl Mount<'_> {
    /// `None` for who may not mount anything.
    fn of_bytes(folder: &Path, megabytes: usize) -> Option<Mount<'_>> {
        std::fs::create_dir_all(folder).expect("made");
        mount(&["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"], folder).then_some(Mount(folder))
    }

    fn resize(&self, megabytes: usize) {
        assert!(mount(&["-o", &format!("remount,size={megabytes}m")], self.0), "resized");
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

fn mount(words: &[&str], folder: &Path) -> bool {
    let output = Command::new("mount").args(words).arg(folder).output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn a_node_with_a_full_disk_says_so_and_comes_back_once_there_is_room() {
    let mut cluster = Cluster::prepare();
    let node = 3;
    let data = cluster.data(node);
    let Some(disk) = Mount::of_bytes(&data, 160) else {
        return skipped("no node has a full disk: nothing may be mounted here (that needs root)");
    };
    cluster.restart(&[1, 2, 3]);
    let mut one = cluster.connect(1);
    retried(&mut one, "CREATE TABLE item (id int PRIMARY KEY, content text)");
    let mut three = cluster.connect(node);
    let text = format!("SELECT state, reason FROM cognate_nodes WHERE node = {node}");
    // Who leads may be the one whose disk is full: then what was under way may have happened.
    let insert = |id: usize, content: &str| {
        format!("INSERT INTO item VALUES ({id}, {content}) ON CONFLICT (id) DO NOTHING")
    };
    let mut filled = 0;
    let (state, reason) = loop {
        let row = rows(&mut three, &text).remove(0);
        if !matches!(&row[0][..], "serving" | "catching_up" | "minority") {
            break (row[0].clone(), row[1].clone());
        }
        // A segment of the log, and the one that was prepared, have 64 MB each.
        assert!(filled < 300, "{row:?}");
        retried(&mut one, &insert(filled, "repeat('x', 2000000)"));
        filled += 1;
    };
    println!("full after {filled} rows: {state}: {reason}");
    assert!(reason.contains("space") || reason.contains("full"), "{state}: {reason}");
    let refused = sqlstate(three.query("INSERT INTO item VALUES (-1, '')"));
    println!("refused with {refused}");
    assert!(matches!(&refused[..], "25006" | "53100" | "58030"), "{refused}");
    // The others do without it.
    let left = if cluster.leader(1) == 1 { 2 } else { 1 };
    for other in [1, left] {
        retried(&mut cluster.connect(other), &insert(1000 + other, "''"));
    }
    cluster.kill(node);
    disk.resize(1000);
    cluster.restart(&[node]);
    retried(&mut cluster.connect(node), &insert(2000, "''"));
    let found = cluster.assert_equal("SELECT count(*), sum(length(content)) FROM item WHERE id < 1000");
    assert_eq!(found, [[filled.to_string(), (filled * 2_000_000).to_string()]]);
    // Its folder is in use until its process has ended.
    cluster.kill(node);
}

/// How far a session's clock is ahead of another one's, in seconds.
fn ahead(wire: &mut Wire, other: &mut Wire) -> i64 {
    let now = |wire: &mut Wire| -> i64 {
        let row = rows(wire, "SELECT extract(epoch FROM now())::bigint");
        row[0][0].parse().expect("seconds")
    };
    now(wire) - now(other)
}

/// A clock that is an hour ahead, then an hour behind, and then right again, all within one
/// process: what depends on the time is fixed where a transaction begins, and is the same at all
/// nodes.
#[test]
fn a_clock_that_is_an_hour_off_and_jumps_changes_no_history() {
    if !Path::new(CLOCK_LIBRARY).exists() {
        let why = format!("no clock is off: {CLOCK_LIBRARY} is not there (Debian's libfaketime)");
        return skipped(&why);
    }
    let seed = cognate_env::RealRng.next_u64();
    println!("seed {seed}");
    let mut cluster = Cluster::start();
    let folder = tempfile::tempdir().expect("a folder");
    let offset = folder.path().join("offset");
    let set = |text: &str| {
        let other = folder.path().join("next");
        std::fs::write(&other, text).expect("written");
        std::fs::rename(&other, &offset).expect("renamed");
    };
    set("+3600");
    // Who leads counts most on its clock.
    let node = cluster.leader(1);
    let other = 1 + node % SIZE;
    cluster.kill(node);
    let environment = [
        ("LD_PRELOAD", CLOCK_LIBRARY),
        ("FAKETIME_TIMESTAMP_FILE", offset.to_str().expect("UTF-8")),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ("DONT_FAKE_MONOTONIC", "1"),
    ];
    cluster.restart_in(node, &environment);
    let mut wires = [cluster.connect(node), cluster.connect(other)];
    retried(&mut wires[0], "CREATE TABLE at (id serial PRIMARY KEY, at timestamptz DEFAULT now(), p text)");
    let crew = Crew::new(&cluster, "serializable");
    thread::scope(|scope| {
        (1..=SIZE).for_each(|node| crew.hire(scope, &cluster, node, &PROTOCOLS, seed));
        for (text, hours) in [("+3600", 1), ("-3600", -1), ("+0", 0)] {
            set(text);
            let [wire, well] = &mut wires;
            let seconds = ahead(wire, well);
            assert!((seconds - hours * 3600).abs() < 600, "{text}: {seconds}");
            crew.go_on(10, &[1, 2, 3]);
            for wire in &mut wires {
                for protocol in PROTOCOLS {
                    wire.query(&format!("SET cognate.replication = {protocol}")).expect("set");
                    retried(wire, &format!("INSERT INTO at (p) VALUES ('{protocol}')"));
                }
            }
        }
        crew.end();
    });
    crew.assert_well();
    let stamps = cluster.assert_equal("SELECT id, at, p FROM at ORDER BY id");
    assert_eq!(stamps.len(), 3 * 2 * PROTOCOLS.len());
    crew.judge(&cluster);
}
