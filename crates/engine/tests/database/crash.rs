//! Crashes, full disks and failed flushes under a whole database. Every round prints its seed if it
//! fails.
//!
//! Writers commit pairs of rows, one in a "table" and one in its "index". What a commit wrote is
//! kept under its number, so after a restart the expected contents are known exactly: all commits
//! up to the recovered mark, which must include every acknowledged one.

use std::collections::BTreeMap;
use std::ops::Bound::Unbounded;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use cognate_engine::{
    Access, Csn, Database, Error, Isolation, LockMode, Options, Transaction, Value, WaitPolicy,
};
use cognate_env::SplitMix;
use cognate_env::sim::{Loss, SimDisk};
use parking_lot::Mutex;

use super::support::{Seed, block_on, seeds};

const TABLE: u32 = 1000;
const INDEX: u32 = 1001;

/// Key and value of a row of the table; `None` deletes it.
type Change = (u32, Option<u32>);

#[derive(Default)]
struct Ledger {
    commits: Mutex<BTreeMap<Csn, Vec<Change>>>,
    acknowledged: AtomicU64,
}

fn options(disk: &SimDisk) -> Options {
    let mut options = Options::new("data").memory(256 << 10);
    options.disk = disk.handle();
    options.checkpoint_log_bytes = 64 << 10;
    options
}

fn index_key(key: u32, content: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&content.to_be_bytes());
    bytes[4..].copy_from_slice(&key.to_be_bytes());
    bytes
}

fn content(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

/// Sets a row and its index entry, as an UPDATE would.
fn change(t: &mut Transaction, key: u32, new: Option<u32>) -> Result<(), Error> {
    block_on(t.lock(TABLE, &key.to_be_bytes(), LockMode::Exclusive, WaitPolicy::Block))?;
    t.check_unchanged(TABLE, &key.to_be_bytes())?;
    if let Some(old) = t.get(TABLE, &key.to_be_bytes())? {
        t.delete(INDEX, &index_key(key, content(&old)))?;
    }
    match new {
        Some(new) => {
            let mut row = new.to_be_bytes().to_vec();
            row.resize(4 + (new % 300) as usize, 7);
            t.put(TABLE, &key.to_be_bytes(), Value::from(row))?;
            t.put(INDEX, &index_key(key, new), Value::new())
        }
        None => t.delete(TABLE, &key.to_be_bytes()),
    }
}

/// Commits until something fails for good.
fn writer(database: &Database, ledger: &Ledger, mut random: SplitMix, commits: u64) -> Option<Error> {
    for _ in 0..commits {
        let changes: Vec<Change> = (0..=random.below(5))
            .map(|_| (random.below(300) as u32, (!random.one_in(5)).then(|| random.bits() as u32)))
            .collect();
        let level = if random.one_in(3) { Isolation::Snapshot } else { Isolation::Serializable };
        let mut t = database.begin(level, Access::ReadWrite);
        match changes.iter().try_for_each(|(key, new)| change(&mut t, *key, *new)) {
            Ok(()) => {}
            Err(error) if error.is_retryable() => continue,
            Err(error) => return Some(error),
        }
        let commit = match t.commit() {
            Ok(commit) => commit,
            Err(error) if error.is_retryable() => continue,
            Err(error) => return Some(error),
        };
        ledger.commits.lock().insert(commit.csn, changes);
        if let Err(error) = commit.durable.wait() {
            return Some(error);
        }
        ledger.acknowledged.fetch_max(commit.csn, Ordering::Relaxed);
    }
    None
}

/// Reads what is visible, durable or not, and is answered only when it is durable: what it saw
/// counts as acknowledged then.
fn reader(database: &Database, ledger: &Ledger, mut random: SplitMix, reads: u64) -> Option<Error> {
    for _ in 0..reads {
        let t = database.begin(Isolation::Serializable, Access::ReadWrite);
        let snapshot = t.snapshot();
        for _ in 0..3 {
            if let Err(error) = t.get(TABLE, &(random.below(300) as u32).to_be_bytes()) {
                return Some(error);
            }
        }
        match t.commit().and_then(|commit| commit.durable.wait()) {
            Ok(()) => {}
            Err(error) if error.is_retryable() => continue,
            Err(error) => return Some(error),
        }
        ledger.acknowledged.fetch_max(snapshot, Ordering::Relaxed);
    }
    None
}

/// The database must hold exactly the commits up to its mark, and every acknowledged one.
///
/// # Errors
/// If the disk does not let it read.
fn judge(database: &Database, ledger: &Ledger) -> Result<(), Error> {
    let last = database.visible();
    assert_eq!(last, database.durable());
    assert!(last >= ledger.acknowledged.load(Ordering::Relaxed), "an acknowledged commit is lost");
    let mut commits = ledger.commits.lock();
    commits.split_off(&(last + 1));
    let mut want = BTreeMap::new();
    for (key, new) in commits.values().flatten() {
        match new {
            Some(new) => want.insert(*key, *new),
            None => want.remove(key),
        };
    }
    let t = database.begin(Isolation::Snapshot, Access::ReadOnly);
    let mut scan = t.scan(TABLE, Unbounded, Unbounded, false)?;
    let mut got = BTreeMap::new();
    while let Some((key, row)) = scan.next()? {
        got.insert(content(&key), content(&row));
    }
    assert_eq!(got, want);
    let mut scan = t.scan(INDEX, Unbounded, Unbounded, true)?;
    let mut by_index = BTreeMap::new();
    while let Some((key, _)) = scan.next()? {
        by_index.insert(content(&key[4..]), content(&key));
    }
    assert_eq!(by_index, want, "the index disagrees with the table");
    // What was recovered may never vanish again.
    ledger.acknowledged.store(last, Ordering::Relaxed);
    Ok(())
}

fn work(database: &Database, ledger: &Ledger, random: &mut SplitMix, commits: u64) -> Vec<Error> {
    thread::scope(|scope| {
        let start = |_| {
            let own = SplitMix::new(random.bits());
            scope.spawn(move || writer(database, ledger, own, commits))
        };
        let writers: Vec<_> = (0..3).map(start).collect();
        let own = SplitMix::new(random.bits());
        let reader = scope.spawn(move || reader(database, ledger, own, commits));
        writers.into_iter().chain([reader]).filter_map(|w| w.join().unwrap()).collect()
    })
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_else_appears() {
    for seed in seeds(200) {
        let _seed = Seed(seed);
        let (disk, mut random, ledger) =
            (SimDisk::new(seed), SplitMix::new(seed ^ 0xC0FFEE), Ledger::default());
        for _ in 0..3 {
            // The power may already go during recovery.
            disk.power_off_after(random.below(400));
            if let Ok(database) = Database::open(options(&disk)) {
                // The power may go while it is judged.
                if !disk.is_off()
                    && let Err(error) = judge(&database, &ledger)
                {
                    assert!(disk.is_off(), "{error}");
                }
                work(&database, &ledger, &mut random, 200);
                if random.one_in(3) {
                    let _ = database.close();
                }
            }
            disk.restart(if random.one_in(3) { Loss::Process } else { Loss::Power });
        }
        judge(&Database::open(options(&disk)).unwrap(), &ledger).unwrap();
    }
}

/// Reads at every level still work, and see at least what was acknowledged.
fn readers_go_on(database: &Database, ledger: &Ledger) {
    for access in [Access::ReadWrite, Access::ReadOnly] {
        let t = database.begin(Isolation::Snapshot, access);
        assert!(t.snapshot() >= ledger.acknowledged.load(Ordering::Relaxed));
        let mut scan = t.scan(TABLE, Unbounded, Unbounded, false).unwrap();
        while scan.next().unwrap().is_some() {}
        t.commit().unwrap().durable.wait().unwrap();
    }
}

#[test]
fn a_failed_flush_stops_commits_and_not_readers() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let (disk, mut random, ledger) = (SimDisk::new(seed), SplitMix::new(seed), Ledger::default());
        let database = Database::open(options(&disk)).unwrap();
        work(&database, &ledger, &mut random, 20);
        disk.fail_sync_after(random.below(30));
        let errors = work(&database, &ledger, &mut random, 100);
        assert!(
            errors.iter().all(|e| matches!(e, Error::LogPoisoned { .. } | Error::Io { .. })),
            "{errors:?}"
        );
        readers_go_on(&database, &ledger);
        drop(database);
        disk.restart(Loss::Power);
        judge(&Database::open(options(&disk)).unwrap(), &ledger).unwrap();
    }
}

#[test]
fn a_full_disk_stops_commits_and_not_readers() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let (disk, mut random, ledger) = (SimDisk::new(seed), SplitMix::new(seed), Ledger::default());
        let database = Database::open(options(&disk)).unwrap();
        work(&database, &ledger, &mut random, 20);
        disk.set_quota(Some(disk.used_bytes() + random.below(1 << 20)));
        let full = AtomicBool::new(false);
        for _ in 0..200 {
            let errors = work(&database, &ledger, &mut random, 50);
            if !errors.is_empty() {
                let known = |e: &Error| matches!(e, Error::LogPoisoned { .. } | Error::DiskFull { .. });
                assert!(errors.iter().all(known), "{errors:?}");
                full.store(true, Ordering::Relaxed);
                break;
            }
        }
        assert!(full.load(Ordering::Relaxed), "the disk never became full");
        readers_go_on(&database, &ledger);
        drop(database);
        disk.restart(Loss::Process);
        let database = Database::open(options(&disk)).unwrap();
        judge(&database, &ledger).unwrap();
        assert!(work(&database, &ledger, &mut random, 20).is_empty(), "there is space again");
        readers_go_on(&database, &Arc::new(ledger));
    }
}
