//! Bulk writes: trees that a transaction made itself, far larger than its memory.

use std::ops::Bound::Unbounded;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use cognate_engine::sibling::{Begun, Instance, Limits, Text, Xid};
use cognate_engine::{Access, Database, Error, Isolation, Options, Transaction, TreeId, Value};
use cognate_env::SplitMix;
use cognate_env::sim::{Loss, SimDisk};

use super::support::{Seed, all, begin, rows, seeds, value, write};

/// Rows of a load; about twenty portions.
const ROWS: u32 = 500;

fn open(disk: &SimDisk) -> Result<Database, Error> {
    let mut options = Options::new("data").memory(128 << 10);
    options.spill_bytes = 4 << 10;
    options.disk = disk.handle();
    Database::open(options)
}

/// Key of the nth row written: scattered, so that portions overlap.
fn key(n: u32) -> [u8; 4] {
    (n.wrapping_mul(7919) % 10_007).to_be_bytes()
}

fn content(n: u32) -> Value {
    Value::from(format!("{n:040}"))
}

/// Fills a new tree and notes it under "tree".
fn load(t: &mut Transaction) -> Result<TreeId, Error> {
    let tree = t.create_tree();
    for n in 0..ROWS {
        t.put(tree, &key(n), content(n))?;
    }
    t.put(1, b"tree", Value::copy_from_slice(&tree.to_be_bytes()))?;
    Ok(tree)
}

fn count(t: &Transaction, tree: TreeId) -> usize {
    rows(t, tree, (Unbounded, Unbounded), true).len()
}

fn run_files(disk: &SimDisk) -> Vec<PathBuf> {
    let files = disk.files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.extension().is_some_and(|extension| extension == "run")).collect()
}

#[test]
fn a_load_is_read_by_its_transaction_and_after_its_commit_by_everybody() {
    let disk = SimDisk::new(1);
    let database = open(&disk).unwrap();
    let old = begin(&database);
    let mut t = begin(&database);
    let tree = load(&mut t).unwrap();
    assert!(t.has_created(tree) && !begin(&database).has_created(tree));
    let early = t.view();
    t.delete(tree, &key(3)).unwrap();
    t.put(tree, &key(4), value("new")).unwrap();
    let check = |t: &Transaction| {
        assert_eq!(count(t, tree), ROWS as usize - 1);
        assert_eq!(t.get(tree, &key(3)).unwrap(), None);
        assert_eq!(t.get(tree, &key(4)).unwrap(), Some(value("new")));
        assert_eq!(t.get(tree, &key(5)).unwrap(), Some(content(5)));
    };
    check(&t);
    assert_eq!(t.own(tree, &key(3)).unwrap().flatten(), None);
    assert_eq!(t.own(tree, &key(0)).unwrap(), Some(Some(content(0))));
    assert_eq!(early.get(tree, &key(3)).unwrap(), Some(content(3)));
    assert_eq!(count(&begin(&database), tree), 0);
    let statistics = database.statistics();
    assert!(statistics.write_set_bytes < 64 << 10 && statistics.version_bytes < 1000);
    t.commit().unwrap().durable.wait().unwrap();
    check(&begin(&database));
    check(&database.begin(Isolation::ReadCommitted, Access::ReadOnly));
    // Not for a snapshot from before, however the base moves on.
    assert_eq!(count(&old, tree), 0);
    assert!(old.changed(tree, &key(5)).unwrap().is_some());
    let mut scan = early.scan(tree, Unbounded, Unbounded, false).unwrap();
    assert!(scan.next().unwrap().is_some());
    database.checkpoint().unwrap();
    assert_eq!((count(&old, tree), old.get(tree, &key(5)).unwrap()), (0, None));
    check(&begin(&database));
    drop((old, early, scan));
    database.close().unwrap();
    drop(database);
    check(&begin(&open(&disk).unwrap()));
}

#[test]
fn what_is_rolled_back_leaves_nothing() {
    let disk = SimDisk::new(2);
    let database = open(&disk).unwrap();
    let mut t = begin(&database);
    let tree = load(&mut t).unwrap();
    let first = t.savepoint();
    for n in 0..ROWS {
        t.put(tree, &key(n), value("changed")).unwrap();
        t.put(tree, &key(n + ROWS), content(n)).unwrap();
    }
    let second = t.savepoint();
    for n in 0..ROWS {
        t.delete(tree, &key(n)).unwrap();
    }
    assert_eq!(count(&t, tree), ROWS as usize);
    t.rollback_to(second);
    assert_eq!((count(&t, tree), t.get(tree, &key(9)).unwrap()), (2 * ROWS as usize, Some(value("changed"))));
    t.release(second);
    t.rollback_to(first);
    assert_eq!((count(&t, tree), t.get(tree, &key(9)).unwrap()), (ROWS as usize, Some(content(9))));
    drop(t);
    assert_eq!((run_files(&disk), count(&begin(&database), tree)), (vec![], 0));
    assert_eq!(database.statistics().write_set_bytes, 0);
}

#[test]
fn a_tree_of_everybody_stays_within_the_limit() {
    let disk = SimDisk::new(3);
    let database = open(&disk).unwrap();
    let mut t = begin(&database);
    let tree = load(&mut t).unwrap();
    let fill = |t: &mut Transaction| (0..ROWS).find_map(|n| t.put(2, &key(n), content(n)).err());
    assert!(matches!(fill(&mut t), Some(Error::TransactionTooLarge { limit: 0x1_0000 })));
    // It alone is refused, and it may go on.
    write(&database, 1, &[("a", Some("1"))]);
    assert_eq!(count(&t, tree), ROWS as usize);
    t.commit().unwrap();
    assert_eq!(count(&begin(&database), tree), ROWS as usize);
}

/// There is no room for the manifest that would make room.
#[test]
fn a_start_on_a_disk_that_is_full_of_what_nobody_committed_makes_room() {
    let disk = SimDisk::new(4);
    let database = open(&disk).unwrap();
    write(&database, 1, &[("a", Some("1"))]);
    database.wait_durable(database.certified()).wait().unwrap();
    let mut t = begin(&database);
    load(&mut t).unwrap();
    assert!(!run_files(&disk).is_empty(), "nothing was spilled");
    disk.power_off_after(0);
    drop((t, database));
    disk.restart(Loss::Process);
    disk.set_quota(Some(disk.used_bytes()));
    let database = open(&disk).unwrap();
    assert_eq!((run_files(&disk), all(&begin(&database), 1)), (vec![], "a=1".to_owned()));
}

/// Everything there, or nothing; and after an acknowledged commit everything. True if the load is
/// there.
fn judge(database: &Database, acknowledged: bool) -> bool {
    let t = begin(database);
    let Some(tree) = t.get(1, b"tree").unwrap() else {
        assert!(!acknowledged, "an acknowledged load is lost");
        assert!((1000..1003).all(|tree| count(&t, tree) == 0));
        return false;
    };
    let tree = TreeId::from_be_bytes(tree[..].try_into().unwrap());
    let later = t.get(1, b"later").unwrap().is_some();
    assert_eq!(count(&t, tree), if later { 250 } else { ROWS as usize });
    for n in 250..ROWS {
        assert_eq!(t.get(tree, &key(n)).unwrap(), Some(content(n)));
    }
    true
}

/// A load, a checkpoint, and deletions of loaded rows; goes on where an earlier attempt ended. The
/// flag tells of the acknowledged load.
fn history(database: &Database, acknowledged: &mut bool) -> Result<(), Error> {
    if !judge(database, *acknowledged) {
        let mut t = begin(database);
        load(&mut t)?;
        let point = t.savepoint();
        let gone = t.create_tree();
        (0..ROWS).try_for_each(|n| t.put(gone, &key(n), content(n)))?;
        t.rollback_to(point);
        t.commit()?.durable.wait()?;
        *acknowledged = true;
        judge(database, true);
    }
    let mut t = begin(database);
    if let (Some(tree), None) = (t.get(1, b"tree")?, t.get(1, b"later")?) {
        let tree = TreeId::from_be_bytes(tree[..].try_into().unwrap());
        (0..250).try_for_each(|n| t.delete(tree, &key(n)))?;
        t.put(1, b"later", value("yes"))?;
    }
    t.commit()?.durable.wait()?;
    database.checkpoint()
}

#[test]
fn a_load_is_whole_or_absent_when_the_power_goes_at_every_operation() {
    let mut at = 0;
    loop {
        let _round = Seed(at);
        let disk = SimDisk::new(at);
        disk.power_off_after(at);
        let mut acknowledged = false;
        let result = open(&disk).and_then(|database| history(&database, &mut acknowledged));
        disk.restart(if at % 3 == 0 { Loss::Process } else { Loss::Power });
        let database = open(&disk).unwrap_or_else(|error| panic!("power off at {at}: {error}"));
        let there = judge(&database, acknowledged);
        if at % 2 == 0 {
            // What was once read is never taken back.
            drop(database);
            disk.restart(Loss::Power);
            assert_eq!(judge(&open(&disk).unwrap(), acknowledged || there), there);
        } else {
            history(&database, &mut acknowledged).unwrap();
            database.close().unwrap();
            let runs = database.statistics().base.runs;
            drop(database);
            assert!(run_files(&disk).len() as u64 <= runs, "{:?} of {runs}", run_files(&disk));
        }
        if result.is_ok() {
            return;
        }
        // Not all, to save time: the portions are much alike.
        at += 1 + at / 60;
    }
}

#[test]
fn damage_in_a_load_that_only_the_log_knows_is_named() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let (disk, mut random) = (SimDisk::new(seed), SplitMix::new(seed));
        let database = open(&disk).unwrap();
        // Keeps the checkpoint from making it an ordinary run.
        let old = begin(&database);
        let mut t = begin(&database);
        load(&mut t).unwrap();
        t.commit().unwrap().durable.wait().unwrap();
        assert!(database.statistics().base.attached > 1);
        drop((old, database));
        disk.restart(Loss::Process);
        let runs = run_files(&disk);
        let path = &runs[random.below(runs.len() as u64) as usize];
        let length = disk.files().into_iter().find(|(other, _)| other == path).unwrap().1.len() as u64;
        disk.flip(path, random.below(length), 1 << random.below(8));
        match open(&disk).map(|_| ()) {
            Err(Error::Corrupt { file, .. }) => assert_eq!(&file, path),
            other => panic!("damage in {path:?}: {other:?}"),
        }
    }
}

#[test]
fn loads_side_by_side_with_small_transactions() {
    for seed in seeds(4) {
        let _seed = Seed(seed);
        let disk = SimDisk::new(seed);
        let database = open(&disk).unwrap();
        let trees = thread::scope(|scope| {
            let loaders: Vec<_> = (0..3)
                .map(|loader| {
                    let database = &database;
                    scope.spawn(move || {
                        let mut kept = Vec::new();
                        for round in 0..6 {
                            let mut t = begin(database);
                            let tree = load(&mut t).unwrap();
                            if (round + loader) % 3 == 0 {
                                t.rollback();
                            } else {
                                t.commit().unwrap().durable.wait().unwrap();
                                assert_eq!(count(&begin(database), tree), ROWS as usize);
                                kept.push(tree);
                            }
                        }
                        kept
                    })
                })
                .collect();
            for n in 0..300 {
                write(&database, 2, &[("n", Some(&n.to_string()))]);
                let t = begin(&database);
                assert_eq!(all(&t, 2), format!("n={n}"));
            }
            loaders.into_iter().flat_map(|loader| loader.join().unwrap()).collect::<Vec<_>>()
        });
        database.wait_durable(database.visible()).wait().unwrap();
        drop(database);
        let database = open(&disk).unwrap();
        for tree in trees {
            assert_eq!(count(&begin(&database), tree), ROWS as usize);
        }
    }
}

/// What is on disk goes to other nodes as well as what is in memory.
#[test]
fn a_request_has_all_that_was_loaded() {
    let disk = SimDisk::new(10);
    let database = open(&disk).unwrap();
    let mut t = begin(&database);
    t.put(1, b"small", value("1")).unwrap();
    assert_eq!(t.request_bytes(), t.bytes());
    load(&mut t).unwrap();
    let loaded = u64::from(ROWS) * 40;
    assert!(t.bytes() < loaded && t.request_bytes() >= loaded, "{} of {loaded}", t.request_bytes());
}

/// Whatever the reason: what a transaction has spilled goes with it, not with the next start.
#[test]
fn what_could_not_be_prepared_leaves_nothing() {
    let disk = SimDisk::new(9);
    let database = open(&disk).unwrap();
    begin(&database).prepare("one", value("")).unwrap();
    let files = run_files(&disk);
    let mut t = begin(&database);
    load(&mut t).unwrap();
    assert!(run_files(&disk).len() > files.len(), "it has spilled");
    assert!(matches!(t.prepare("one", value("")), Err(Error::AlreadyPrepared)));
    assert_eq!(run_files(&disk), files);
    // One that is rolled back, before its memory is given back.
    let mut t = begin(&database);
    load(&mut t).unwrap();
    let remains = t.abandon();
    assert_eq!(run_files(&disk), files);
    drop(remains);
    // An instance that is told, when it prepares, that it is aborted.
    let (xid, at) = (Xid::new("x").unwrap(), |n| Instance::new(n).unwrap());
    let started = |n| match database.begin_instance(xid.clone(), at(n), Isolation::Snapshot).unwrap() {
        Begun::Active(transaction) => *transaction,
        Begun::Decided(told) => panic!("{:?}", told.table),
    };
    let (mut first, second) = (started(1), started(2));
    load(&mut first).unwrap();
    let texts = (Text::from("request"), Text::from("result"));
    second.prepare_instance(&texts.0, &texts.1, value(""), Limits::default()).unwrap();
    let told = first.prepare_instance(&texts.0, &texts.1, value(""), Limits::default());
    assert!(told.is_ok(), "it is told of its end: {told:?}");
    assert_eq!(run_files(&disk), files);
}

/// A rollback that no sync has reached may be none after a crash: what was prepared is there again,
/// with all that it had loaded.
#[test]
fn a_rollback_that_was_lost_has_taken_nothing() {
    let mut lost = 0;
    // The power goes off at each of the rollback's operations, of which some take files away if a
    // rollback does so too early.
    for seed in 0..32 {
        let disk = SimDisk::new(seed);
        let database = open(&disk).unwrap();
        let mut t = begin(&database);
        let tree = load(&mut t).unwrap();
        t.prepare("one", value("")).unwrap().durable.wait().unwrap();
        disk.power_off_after(seed % 8);
        if let Ok(rolled_back) = database.rollback_prepared("one") {
            let _ = rolled_back.durable.wait();
        }
        drop(database);
        disk.restart(Loss::Power);
        let database = open(&disk).unwrap();
        match database.commit_prepared("one") {
            Ok(commit) => {
                commit.durable.wait().unwrap();
                assert_eq!(count(&begin(&database), tree), ROWS as usize, "seed {seed}");
                lost += 1;
            }
            Err(error) => assert!(matches!(error, Error::NotPrepared), "seed {seed}: {error}"),
        }
    }
    assert!(lost > 0, "a rollback was lost");
}

/// One that is durable takes what was loaded with it, at the next checkpoint at the latest.
#[test]
fn a_durable_rollback_takes_its_load() {
    let disk = SimDisk::new(12);
    let database = open(&disk).unwrap();
    let files = run_files(&disk);
    let mut t = begin(&database);
    load(&mut t).unwrap();
    t.prepare("two", value("")).unwrap().durable.wait().unwrap();
    assert!(run_files(&disk).len() > files.len() + 2, "it has spilled");
    database.rollback_prepared("two").unwrap().durable.wait().unwrap();
    database.checkpoint().unwrap();
    assert!(run_files(&disk).len() <= files.len() + 1, "what it had loaded is gone");
}

/// At each question once: while a portion is written, and while some are merged. What was written
/// before is there as if nothing had been tried, and goes on from there.
#[test]
fn a_load_can_be_left_at_every_question() {
    const MANY: u32 = 8000;
    let mut stop_at = 1;
    loop {
        let disk = SimDisk::new(14);
        let mut options = Options::new("data").memory(4 << 20);
        options.spill_bytes = 128 << 10;
        options.disk = disk.handle();
        let database = Database::open(options).unwrap();
        let mut t = begin(&database);
        let asked = AtomicU32::new(0);
        t.ask(Arc::new(move || match asked.fetch_add(1, Ordering::Relaxed) + 1 == stop_at {
            true => Err("enough".to_owned()),
            false => Ok(()),
        }));
        let tree = t.create_tree();
        let mut is_stopped = false;
        for n in 0..MANY {
            match t.put(tree, &key(n), content(n)) {
                Err(Error::Interrupted { reason }) => {
                    assert_eq!((reason.as_str(), count(&t, tree)), ("enough", n as usize));
                    is_stopped = true;
                    t.put(tree, &key(n), content(n)).unwrap();
                }
                put => put.unwrap(),
            }
        }
        t.commit().unwrap().durable.wait().unwrap();
        assert_eq!(count(&begin(&database), tree), MANY as usize, "stopped at question {stop_at}");
        if !is_stopped {
            break;
        }
        stop_at += 1;
    }
    assert!(stop_at > 20, "it was asked {stop_at} times only");
}

/// Portions are merged, and the flush fails that would make sure of the manifest which says so:
/// nobody knows whether the next start finds them. A commit that names them is refused; one that
/// was acknowledged is whole, and the database opens, whichever flush has failed.
#[test]
fn a_load_that_a_start_may_not_find_does_not_commit() {
    let (mut acknowledged, mut refused) = (0, 0);
    for flushes in 0..64 {
        let _round = Seed(flushes);
        let disk = SimDisk::new(flushes);
        let database = open(&disk).unwrap();
        let mut t = begin(&database);
        let tree = t.create_tree();
        disk.fail_sync_after(flushes);
        // As who rolls back to a savepoint, and commits what was written before it.
        let written = (0..ROWS).take_while(|n| t.put(tree, &key(*n), content(*n)).is_ok()).count();
        let commit = t.commit().and_then(|commit| commit.durable.wait());
        drop(database);
        disk.restart(Loss::Process);
        let database = open(&disk).unwrap_or_else(|error| panic!("flush {flushes}: {error}"));
        let found = count(&begin(&database), tree);
        match commit {
            Ok(()) => {
                assert_eq!(found, written, "flush {flushes}");
                acknowledged += 1;
            }
            Err(_) => {
                assert!(found == 0 || found == written, "flush {flushes}: {found} of {written}");
                refused += 1;
            }
        }
    }
    assert!(acknowledged > 0 && refused > 0, "{acknowledged} {refused}");
}

/// Whether the log has the record of a load that was refused, only the next start knows.
#[test]
fn a_load_that_a_failed_log_refuses_stays_until_the_next_start() {
    let disk = SimDisk::new(13);
    let database = open(&disk).unwrap();
    let mut t = begin(&database);
    let tree = load(&mut t).unwrap();
    disk.fail_sync_after(0);
    write(&database, 1, &[("other", Some("1"))]);
    assert!(database.wait_durable(database.certified()).wait().is_err());
    assert!(matches!(t.commit(), Err(Error::LogPoisoned { .. })));
    assert!(!run_files(&disk).is_empty());
    drop(database);
    disk.restart(Loss::Power);
    let database = open(&disk).unwrap();
    assert_eq!((run_files(&disk), count(&begin(&database), tree)), (vec![], 0));
}
