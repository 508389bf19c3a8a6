//! Threads against one another, with memory so small that checkpoints and merges never rest.

use std::ops::Bound::Unbounded;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cognate_engine::{
    Access, Database, Error, Isolation, LockMode, Options, Transaction, TreeMode, Value, WaitPolicy,
};
use cognate_env::SplitMix;
use cognate_env::sim::SimDisk;

use super::support::{Seed, all, begin, block_on, seeds, value, write};

const ACCOUNTS: u32 = 2000;
const TOTAL: i64 = ACCOUNTS as i64 * 100;

fn open(disk: &SimDisk, early_lock_release: bool) -> Database {
    let mut options = Options::new("data").memory(400 << 10);
    options.disk = disk.handle();
    options.early_lock_release = early_lock_release;
    options.checkpoint_log_bytes = 200 << 10;
    Database::open(options).unwrap()
}

fn balance(t: &Transaction, account: u32) -> i64 {
    let row = t.get(1, &account.to_be_bytes()).unwrap().unwrap();
    i64::from_be_bytes(row[..8].try_into().unwrap())
}

fn row(balance: i64) -> Value {
    let mut bytes = balance.to_be_bytes().to_vec();
    bytes.resize(60, 0);
    Value::from(bytes)
}

/// Moves money between two accounts, once; false if refused.
fn transfer(database: &Database, random: &mut SplitMix) -> bool {
    let mut t = begin(database);
    let (from, to) = (random.below(u64::from(ACCOUNTS)) as u32, random.below(u64::from(ACCOUNTS)) as u32);
    let mut go = || -> Result<(), Error> {
        block_on(t.lock_tree(1, TreeMode::Write, WaitPolicy::Block))?;
        for (account, sign) in [(from, -1), (to, 1)] {
            block_on(t.lock(1, &account.to_be_bytes(), LockMode::Exclusive, WaitPolicy::Block))?;
            t.check_unchanged(1, &account.to_be_bytes())?;
            let new = balance(&t, account) + sign * 7;
            t.put(1, &account.to_be_bytes(), row(new))?;
        }
        Ok(())
    };
    match go() {
        Ok(()) => {
            t.commit().unwrap().durable.wait().unwrap();
            true
        }
        Err(error) => {
            assert!(error.is_retryable(), "{error}");
            false
        }
    }
}

fn sum(t: &Transaction, reverse: bool) -> (i64, usize) {
    let mut scan = t.scan(1, Unbounded, Unbounded, reverse).unwrap();
    let mut sum = (0, 0);
    while let Some((_, row)) = scan.next().unwrap() {
        sum = (sum.0 + i64::from_be_bytes(row[..8].try_into().unwrap()), sum.1 + 1);
    }
    sum
}

#[test]
fn every_snapshot_adds_up_while_money_moves() {
    for seed in seeds(4) {
        let _seed = Seed(seed);
        let disk = SimDisk::new(seed);
        let database = open(&disk, seed % 2 == 0);
        for some in (0..ACCOUNTS).step_by(250) {
            let mut t = begin(&database);
            for account in some..some + 250 {
                t.put(1, &account.to_be_bytes(), row(100)).unwrap();
            }
            t.commit().unwrap().durable.wait().unwrap();
        }
        let (done, moved) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|n| {
                    let (database, moved) = (&database, &moved);
                    scope.spawn(move || {
                        let mut random = SplitMix::new(seed * 100 + n);
                        for _ in 0..1500 {
                            moved.fetch_add(u64::from(transfer(database, &mut random)), Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            for n in 0..2 {
                let (database, done) = (&database, &done);
                scope.spawn(move || {
                    let access = if n == 0 { Access::ReadWrite } else { Access::ReadOnly };
                    let long = database.begin(Isolation::Snapshot, access);
                    let first = balance(&long, 17);
                    while !done.load(Ordering::Relaxed) {
                        let t = database.begin(Isolation::Snapshot, access);
                        assert_eq!(sum(&t, n == 1), (TOTAL, ACCOUNTS as usize));
                        assert_eq!(sum(&t, n == 0), (TOTAL, ACCOUNTS as usize), "again in the same snapshot");
                    }
                    assert_eq!((sum(&long, false).0, balance(&long, 17)), (TOTAL, first));
                });
            }
            writers.into_iter().for_each(|w| w.join().unwrap());
            done.store(true, Ordering::Relaxed);
        });
        let s = database.statistics();
        assert!(s.checkpoints > 2 && moved.load(Ordering::Relaxed) > 1000, "{s:?}");
        assert_eq!(database.locks(), []);
        database.close().unwrap();
        drop(database);
        assert_eq!(sum(&begin(&open(&disk, true)), false).0, TOTAL);
    }
}

/// With late lock release, nobody sees a commit, or gets past its locks, before it is durable.
#[test]
fn late_lock_release_shows_nothing_early() {
    let disk = SimDisk::new(1);
    let database = open(&disk, false);
    write(&database, 1, &[("a", Some("1"))]);
    database.wait_durable(1).wait().unwrap();
    assert_eq!((database.visible(), database.durable()), (1, 1));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let mut t = database.begin(Isolation::ReadCommitted, Access::ReadWrite);
                    block_on(t.lock(1, b"a", LockMode::Exclusive, WaitPolicy::Block)).unwrap();
                    t.refresh_snapshot();
                    assert!(t.snapshot() <= database.durable());
                    let n: u64 = String::from_utf8_lossy(&t.get(1, b"a").unwrap().unwrap()).parse().unwrap();
                    assert_eq!(t.changed(1, b"a").unwrap(), None, "the lock came with the version");
                    t.put(1, b"a", value(&(n + 1).to_string())).unwrap();
                    let commit = t.commit().unwrap();
                    commit.durable.wait().unwrap();
                    assert!(database.visible() >= commit.csn);
                }
            });
        }
    });
    assert_eq!(all(&begin(&database), 1), "a=301");
}

/// Under early lock release a reader may see what is not durable yet; its own commit then waits.
#[test]
fn a_reader_of_undurable_data_waits_and_a_read_only_one_does_not_see_it() {
    let disk = SimDisk::new(1);
    let database = open(&disk, true);
    write(&database, 1, &[("a", Some("1"))]);
    database.wait_durable(1).wait().unwrap();
    disk.fail_sync_after(0);
    write(&database, 1, &[("a", Some("2"))]);
    let reader = begin(&database);
    let careful = database.begin(Isolation::Snapshot, Access::ReadOnly);
    assert_eq!(careful.get(1, b"a").unwrap(), Some(value("1")));
    let seen = reader.get(1, b"a").unwrap();
    let outcome = reader.commit().unwrap().durable.wait();
    // Whether the failure came before or after the begin decides what the reader saw.
    match outcome {
        Ok(()) => assert_eq!(seen, Some(value("1"))),
        Err(error) => {
            assert!(matches!(error, Error::LogPoisoned { .. }));
            assert_eq!(seen, Some(value("2")));
        }
    }
    careful.commit().unwrap().durable.wait().unwrap();
    let after = begin(&database);
    assert_eq!(after.get(1, b"a").unwrap(), Some(value("1")), "what is lost is not shown any more");
    after.commit().unwrap().durable.wait().unwrap();
}

/// The log holds more than memory may: recovery moves to the base what it has replayed so far.
#[test]
fn recovery_stays_within_its_memory() {
    let disk = SimDisk::new(3);
    let mut options = Options::new("data");
    options.disk = disk.handle();
    let database = Database::open(options).unwrap();
    for n in 0..400u32 {
        let mut t = begin(&database);
        for k in 0..20u32 {
            t.put(1, &((n * 20 + k) * 7919 % 8000).to_be_bytes(), row(i64::from(n * 20 + k))).unwrap();
        }
        t.put(2, b"last", value(&n.to_string())).unwrap();
        if n == 200 {
            t.drop_tree(3);
        } else if n < 200 {
            t.put(3, &n.to_be_bytes(), value("dropped later")).unwrap();
        }
        t.commit().unwrap().durable.wait().unwrap();
    }
    let tree = database.allocate_tree();
    drop(database);
    let database = open(&disk, true);
    assert!(database.statistics().version_bytes < 400 << 10);
    assert!(database.statistics().base.runs > 0, "it did not fit");
    let t = begin(&database);
    assert_eq!(sum(&t, true), ((0..8000).sum(), 8000));
    assert_eq!(t.get(2, b"last").unwrap(), Some(value("399")));
    assert_eq!(all(&t, 3), "");
    assert_eq!(database.visible(), 400);
    assert_eq!(database.allocate_tree(), tree, "never committed");
}
