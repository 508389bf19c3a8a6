//! A disk that is full, or fails to flush: commits fail with a SQLSTATE that says so, readers go
//! on, and what was acknowledged is there after the next start.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cognate::{Database, Options};
use cognate_env::sim::{Loss, SimDisk};
use cognate_env::{Clock, RealClock, SplitMix};

use super::judge::judge;
use super::load::{Ledger, Sql, create};
use super::simulated::{Seed, open, work};
use crate::process::{Process, skipped};
use crate::wire::Wire;

const CLIENTS: i64 = 3;

fn start(seed: u64) -> (SimDisk, Database, Vec<Ledger>) {
    let disk = SimDisk::new(seed);
    let database = open(&disk).expect("opened");
    create(&mut database.session().expect("a session"));
    (disk, database, (1..=CLIENTS).map(|client| Ledger::new(client, seed)).collect())
}

/// New sessions and transactions of every kind read; those that write are told why they cannot.
fn reads_go_on(database: &Database, sqlstate: &str) {
    let mut session = database.session().expect("a session");
    for begin in ["BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN READ ONLY"] {
        session.run(begin).expect("begun");
        session.run("SELECT sum(amount) FROM item").expect("read");
        session.run("SELECT * FROM owner WHERE id = 1").expect("read");
        session.run("COMMIT").expect("a commit of nothing");
    }
    session.run("SELECT count(*) OVER () FROM item").expect("read");
    let refused = session.run("INSERT INTO owner VALUES (-1, 'late', 0)").expect_err("a failure");
    assert_eq!(refused.sqlstate(), sqlstate, "{refused:?}");
    session.run("SELECT count(*) FROM item").expect("the session goes on");
}

#[test]
fn a_failed_flush_fails_commits_and_not_readers() {
    for seed in 0..8 {
        let _seed = Seed(seed);
        let mut random = SplitMix::new(seed);
        let (disk, database, mut ledgers) = start(seed);
        disk.fail_sync_after(random.below(20));
        let failures = work(&database, &mut ledgers, &mut random, 40, &["58030"]);
        if failures.is_empty() || database.sql().engine().statistics().log_poisoned.is_none() {
            // It hit a checkpoint, which tries again.
            work(&database, &mut ledgers, &mut random, 5, &[]);
        } else {
            reads_go_on(&database, "58030");
        }
        disk.power_off_after(0);
        drop(database);
        disk.restart(if seed % 2 == 0 { Loss::Power } else { Loss::Process });
        let database = open(&disk).expect("opened again");
        judge(&mut database.session().expect("a session"), &mut ledgers);
        work(&database, &mut ledgers, &mut random, 5, &[]);
        judge(&mut database.session().expect("a session"), &mut ledgers);
    }
}

/// A clock that panics in the log thread, once it is armed: a defect there.
#[derive(Debug, Default)]
struct Trap {
    clock: RealClock,
    armed: AtomicBool,
}

impl Clock for Trap {
    fn wall_us(&self) -> i64 {
        self.clock.wall_us()
    }

    fn monotonic(&self) -> Duration {
        let here = std::thread::current().name() == Some("log");
        assert!(!here || !self.armed.load(Ordering::Acquire), "the planted defect");
        self.clock.monotonic()
    }
}

#[test]
fn a_panic_of_the_log_thread_fails_commits_as_a_failed_disk_does() {
    let (disk, trap) = (SimDisk::new(1), Arc::new(Trap::default()));
    let mut options = Options::new("data").memory(4 << 20);
    (options.disk, options.clock) = (disk.handle(), Arc::<Trap>::clone(&trap));
    let database = Database::open_with(options).expect("opened");
    let mut session = database.session().expect("a session");
    create(&mut session);
    session.run("INSERT INTO owner VALUES (-2, 'here', 0)").expect("a row");
    trap.armed.store(true, Ordering::Release);
    for attempt in 0..3 {
        let refused = session.run("INSERT INTO owner VALUES (-3, 'gone', 0)").expect_err("no commit");
        assert_eq!(refused.sqlstate(), "58030", "attempt {attempt}: {refused:?}");
        let refused = session.run("UPDATE owner SET name = 'gone' WHERE id = -2").expect_err("no commit");
        assert_eq!(refused.sqlstate(), "58030", "attempt {attempt}: {refused:?}");
    }
    reads_go_on(&database, "58030");
    drop((session, database));
    trap.armed.store(false, Ordering::Release);
    disk.restart(Loss::Power);
    let database = open(&disk).expect("opened again");
    let mut session = database.session().expect("a session");
    let names = session.run("SELECT name FROM owner WHERE id < 0").expect("read");
    assert_eq!(names, [[Some("here".to_owned())]]);
}

#[test]
fn a_full_disk_fails_commits_and_not_readers() {
    for seed in 0..8 {
        let _seed = Seed(seed);
        let mut random = SplitMix::new(seed);
        let (disk, database, mut ledgers) = start(seed);
        work(&database, &mut ledgers, &mut random, 5, &[]);
        let quota = disk.used_bytes() + random.below(40_000);
        disk.set_quota(Some(quota));
        let mut failures = Vec::new();
        while failures.is_empty() {
            failures = work(&database, &mut ledgers, &mut random, 40, &["53100"]);
        }
        if database.sql().engine().statistics().log_poisoned.is_some() {
            reads_go_on(&database, "53100");
        }
        disk.power_off_after(0);
        drop(database);
        disk.restart(Loss::Process);
        // What is acknowledged can be read while the disk is still full.
        disk.set_quota(Some(quota));
        let database = open(&disk).expect("opened on a full disk");
        judge(&mut database.session().expect("a session"), &mut ledgers);
        disk.set_quota(None);
        drop(database);
        let database = open(&disk).expect("opened again");
        work(&database, &mut ledgers, &mut random, 5, &[]);
        judge(&mut database.session().expect("a session"), &mut ledgers);
    }
}

/// A file system of its own, of a few megabytes. Unmounted when dropped.
struct Small<'a>(&'a Path);

impl Small<'_> {
    fn mount(path: &Path, options: &str) -> bool {
        let path = path.to_str().expect("UTF-8");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs", path]).output();
        mount.is_ok_and(|output| output.status.success())
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).output();
    }
}

#[test]
fn the_real_server_survives_a_full_file_system() {
    let folder = tempfile::tempdir().expect("a folder");
    if !Small::mount(folder.path(), "size=6m") {
        return skipped("no file system is full: nothing may be mounted here (that needs root)");
    }
    let _small = Small(folder.path());
    let process = Process::serve(&folder.path().join("data"), &[]);
    let mut wire = Wire::connect(process.address).expect("connected");
    wire.query("CREATE TABLE t (id int PRIMARY KEY, tag text UNIQUE, fill text)").expect("created");
    let mut acknowledged = 0;
    let refused = loop {
        let id = acknowledged + 1;
        match wire.query(&format!("INSERT INTO t VALUES ({id}, 'tag {id}', repeat('{id} ', 5000))")) {
            Ok(_) => acknowledged = id,
            Err(failure) => break failure,
        }
        assert!(acknowledged < 10_000, "the file system never became full");
    };
    assert_eq!(refused.sqlstate(), "53100", "{refused:?}");
    let count = |wire: &mut Wire| -> i32 {
        let rows = wire.query("SELECT count(*), count(tag) FROM t WHERE fill LIKE id || ' %'").expect("rows");
        assert_eq!(rows[0][0], rows[0][1]);
        rows[0][0].as_ref().and_then(|count| count.parse().ok()).expect("a number")
    };
    assert_eq!(count(&mut wire), acknowledged, "readers go on");
    let mut other = Wire::connect(process.address).expect("new sessions, too");
    assert_eq!(other.query("INSERT INTO t VALUES (0)").expect_err("full").sqlstate(), "53100");
    assert_eq!(count(&mut other), acknowledged);
    process.signal("KILL");
    process.wait();
    // Still full: it starts and can be read.
    let process = Process::serve(&folder.path().join("data"), &[]);
    let after = count(&mut Wire::connect(process.address).expect("connected"));
    assert!(after == acknowledged || after == acknowledged + 1, "{acknowledged} acknowledged, {after} there");
    process.signal("KILL");
    process.wait();
    assert!(Small::mount(folder.path(), "remount,size=64m"), "made larger");
    let process = Process::serve(&folder.path().join("data"), &[]);
    let mut wire = Wire::connect(process.address).expect("connected");
    assert_eq!(count(&mut wire), after);
    wire.query("INSERT INTO t SELECT -n, 'more ' || n, -n || ' ' FROM generate_series(1, 100) AS s (n)")
        .expect("there is space again");
    wire.query("CHECKPOINT").expect("a checkpoint");
    assert_eq!(count(&mut wire), after + 100);
}
