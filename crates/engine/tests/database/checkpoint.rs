//! Versions move to the base store while everything else goes on.

use std::ops::Bound::Unbounded;

use cognate_engine::{Access, Database, Error, Isolation, Options};
use cognate_env::sim::SimDisk;

use super::support::{all, begin, fresh, in_simulation, rows, value, write};

const ANY: (std::ops::Bound<&[u8]>, std::ops::Bound<&[u8]>) = (Unbounded, Unbounded);

fn settle(database: &Database) {
    database.wait_durable(database.visible()).wait().unwrap();
}

fn fill(database: &Database, tree: u32, rows: u32, content: &str) {
    let mut t = begin(database);
    for n in 0..rows {
        t.put(tree, &n.to_be_bytes(), value(content)).unwrap();
    }
    t.commit().unwrap();
}

/// The cursor has read one batch from memory when the rest of its rows moves to the base.
#[test]
fn a_cursor_in_the_middle_of_its_range_misses_nothing() {
    for reverse in [false, true] {
        let (database, _folder) = fresh();
        fill(&database, 1, 2000, "old");
        let t = begin(&database);
        let mut scan = t.scan(1, Unbounded, Unbounded, reverse).unwrap();
        let mut seen = vec![scan.next().unwrap().unwrap()];
        for round in 0..3 {
            fill(&database, 1, 1000 + round, "new");
            let mut deleting = begin(&database);
            for n in 1500..1600u32 {
                deleting.delete(1, &n.to_be_bytes()).unwrap();
            }
            deleting.commit().unwrap();
            settle(&database);
            database.checkpoint().unwrap();
            seen.extend((0..150).map(|_| scan.next().unwrap().unwrap()));
        }
        seen.extend(std::iter::from_fn(|| scan.next().unwrap()));
        if reverse {
            seen.reverse();
        }
        assert_eq!(seen.len(), 2000);
        for (n, (key, content)) in (0u32..).zip(seen) {
            assert_eq!((&key[..], &content[..]), (&n.to_be_bytes()[..], &b"old"[..]));
        }
        assert_eq!(rows(&begin(&database), 1, ANY, false).len(), 1900);
    }
}

/// The parts have the rows behind the one that the cursor was at, each of them once, whether memory
/// has them or the base or both, and whatever happens while they are read.
#[test]
fn the_parts_of_a_cursor_have_all_rows_that_were_left() {
    let (database, _folder) = fresh();
    fill(&database, 1, 2000, "old");
    settle(&database);
    database.checkpoint().unwrap();
    fill(&database, 1, 1200, "new");
    let mut t = begin(&database);
    let mut scan = t.scan(1, Unbounded, Unbounded, false).unwrap();
    let rows = std::iter::from_fn(|| scan.next().unwrap());
    let mut seen: Vec<_> = rows.take(300).collect();
    let parts = scan.divide(8).unwrap().expect("there is something to divide");
    drop(scan);
    assert_eq!(parts.parts(), 8);
    for part in 0..parts.parts() {
        let before = seen.len();
        let mut rows = parts.open(part).unwrap();
        seen.extend(std::iter::from_fn(|| rows.next().unwrap()));
        assert!((150..300).contains(&(seen.len() - before)), "part {part} has {}", seen.len() - before);
        fill(&database, 1, 2500, "later");
        settle(&database);
        database.checkpoint().unwrap();
    }
    assert_eq!(seen.len(), 2000);
    for (n, (key, content)) in (0u32..).zip(seen) {
        let wanted: &[u8] = if n < 1200 { b"new" } else { b"old" };
        assert_eq!((&key[..], &content[..]), (&n.to_be_bytes()[..], wanted));
    }
    // Neither the last row, nor a cursor that goes down, nor one over own writes is divided.
    let mut last = t.scan(1, Unbounded, Unbounded, false).unwrap();
    while last.key() != Some(&1999u32.to_be_bytes()[..]) {
        assert!(last.advance().unwrap());
    }
    assert!(last.divide(8).unwrap().is_none());
    let mut down = t.scan(1, Unbounded, Unbounded, true).unwrap();
    assert!(down.advance().unwrap() && down.divide(8).unwrap().is_none());
    t.put(1, b"own", value("own")).unwrap();
    let mut own = t.scan(1, Unbounded, Unbounded, false).unwrap();
    assert!(own.advance().unwrap() && own.divide(8).unwrap().is_none());
}

/// Whoever goes on behind the failure, at a savepoint, still has the rows from before it.
#[test]
fn a_cursor_that_fails_on_its_way_has_read_what_it_gave() {
    let disk = SimDisk::new(1);
    let database = in_simulation(&disk);
    fill(&database, 1, 100, &"x".repeat(1000));
    settle(&database);
    database.checkpoint().unwrap();
    // Not in the base, so that it can be read nevertheless.
    write(&database, 2, &[("y", Some("1"))]);
    let mut t = database.begin(Isolation::Serializable, Access::ReadWrite);
    let mut scan = t.scan(1, Unbounded, Unbounded, false).unwrap();
    let (first, _) = scan.next().unwrap().unwrap();
    for (path, _) in disk.files() {
        if path.extension().is_some_and(|extension| extension == "run") {
            disk.fail_reads(&path);
        }
    }
    let failure = std::iter::from_fn(|| scan.next().transpose()).find_map(Result::err);
    assert!(matches!(failure, Some(Error::Io { .. })), "{failure:?}");
    drop(scan);
    let mut other = database.begin(Isolation::Serializable, Access::ReadWrite);
    other.get(2, b"y").unwrap();
    other.put(1, &first, value("changed")).unwrap();
    other.commit().unwrap();
    t.put(2, b"y", value("2")).unwrap();
    let skew = t.commit().map(drop);
    assert!(matches!(skew, Err(Error::DependencyCycle { .. })), "{skew:?}");
}

#[test]
fn a_long_reader_keeps_its_world_and_not_the_memory() {
    let (database, _folder) = fresh();
    fill(&database, 1, 5000, "first");
    settle(&database);
    database.checkpoint().unwrap();
    assert_eq!(database.statistics().version_keys, 0, "nobody needs anything in memory");
    let reader = begin(&database);
    for round in 0..5 {
        fill(&database, 1, 5000, &format!("round {round}"));
        settle(&database);
        database.checkpoint().unwrap();
        assert_eq!(database.statistics().version_keys, 0, "the reader has a view of the base");
    }
    let old = rows(&reader, 1, ANY, false);
    assert_eq!(old.len(), 5000);
    assert!(old.iter().all(|(_, v)| v == "first"));
    assert!(rows(&begin(&database), 1, ANY, true).iter().all(|(_, v)| v == "round 4"));
    assert!(reader.check_unchanged(1, &7u32.to_be_bytes()).is_err());
    assert!(reader.check_unchanged(1, b"never there").is_ok());
}

#[test]
fn a_dropped_tree_is_there_for_old_snapshots_only() {
    let (database, folder) = fresh();
    write(&database, 5, &[("a", Some("1"))]);
    settle(&database);
    database.checkpoint().unwrap();
    write(&database, 5, &[("b", Some("2"))]);
    let old = begin(&database);
    let mut dropping = begin(&database);
    dropping.put(5, b"c", value("forgotten")).unwrap();
    dropping.drop_tree(5);
    dropping.put(6, b"k", value("kept")).unwrap();
    dropping.commit().unwrap();
    settle(&database);
    database.checkpoint().unwrap();
    assert_eq!(all(&old, 5), "a=1 b=2");
    drop(old);
    database.checkpoint().unwrap();
    assert_eq!(database.statistics().version_keys, 0);
    database.close().unwrap();
    drop(database);
    let database = Database::open(Options::new(folder.path())).unwrap();
    assert_eq!(all(&begin(&database), 5), "");
    assert_eq!(all(&begin(&database), 6), "k=kept");
}

#[test]
fn a_drop_that_is_only_in_the_log_holds_after_a_restart() {
    let (database, folder) = fresh();
    write(&database, 5, &[("a", Some("1"))]);
    settle(&database);
    database.checkpoint().unwrap();
    let mut dropping = begin(&database);
    dropping.drop_tree(5);
    dropping.commit().unwrap();
    settle(&database);
    drop(database);
    let database = Database::open(Options::new(folder.path())).unwrap();
    database.checkpoint().unwrap();
    assert_eq!(all(&begin(&database), 5), "");
}

#[test]
fn numbers_go_on_after_a_checkpoint_has_cut_the_log() {
    let (database, folder) = fresh();
    let tree = database.allocate_tree();
    write(&database, tree, &[("a", Some("1"))]);
    let id = begin(&database).id();
    database.close().unwrap();
    drop(database);
    let database = Database::open(Options::new(folder.path())).unwrap();
    assert!(database.allocate_tree() > tree);
    assert!(begin(&database).id() > id);
}

/// Writers, short readers and one long reader over several times the memory budget.
#[test]
fn data_larger_than_memory() {
    const BUDGET: u64 = 4 << 20;
    const KEYS: u32 = 40_000;
    let folder = tempfile::tempdir().unwrap();
    let options = || Options::new(folder.path()).memory(BUDGET);
    let database = Database::open(options()).unwrap();
    let content = |n: u32, round: u32| format!("{n:0200}-{round}");
    let reader = std::sync::OnceLock::new();
    let mut most = 0;
    for round in 0..3 {
        for start in (0..KEYS).step_by(200) {
            let mut t = begin(&database);
            for n in start..start + 200 {
                let key = n * 7919 % KEYS;
                t.put(1, &key.to_be_bytes(), value(&content(key, round))).unwrap();
            }
            t.commit().unwrap().durable.wait().unwrap();
            most = most.max(database.statistics().version_bytes);
        }
        // The hard limit is one half; what was written while a checkpoint was late moves it up by
        // no more than a quarter. A reader that began during a checkpoint keeps what was written
        // between its two watermarks, twice if that is written again.
        let bound = if reader.get().is_none() { BUDGET / 8 * 7 } else { BUDGET * 2 };
        assert!(most < bound, "{most} bytes of versions in round {round}");
        reader.get_or_init(|| database.begin(Isolation::Snapshot, Access::ReadOnly));
    }
    let (long, short) = (reader.get().unwrap(), begin(&database));
    for n in (0..KEYS).step_by(97) {
        let expect = |round| Some(value(&content(n, round)));
        assert_eq!(long.get(1, &n.to_be_bytes()).unwrap(), expect(0));
        assert_eq!(short.get(1, &n.to_be_bytes()).unwrap(), expect(2));
    }
    assert_eq!(rows(long, 1, ANY, false).len(), KEYS as usize);
    drop((reader, short));
    drop(database);
    let database = Database::open(options()).unwrap();
    let t = begin(&database);
    let all = rows(&t, 1, ANY, true);
    assert_eq!(all.len(), KEYS as usize);
    assert!(all.iter().all(|(_, v)| v.ends_with(b"-2")));
}
