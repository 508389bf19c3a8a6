//! Moving a serializable transaction's snapshot past what a statement has met.

use std::ops::Bound::{Excluded, Included};

use cognate_engine::{
    Access, Database, Error, Isolation, LockMode, LockOutcome, Method, Object, Options, Refresh, Transaction,
    WaitPolicy,
};
use cognate_env::sim::SimDisk;

use super::support::{all, block_on, in_simulation, value, write};

const TREE: u32 = 1000;

fn database() -> Database {
    let database = in_simulation(&SimDisk::new(1));
    write(&database, TREE, &[("a", Some("1")), ("b", Some("1")), ("c", Some("1"))]);
    database
}

fn strict() -> Database {
    let mut options = Options::new("data");
    (options.disk, options.serializable) = (SimDisk::new(1).handle(), Method::Strict);
    let database = Database::open(options).unwrap();
    write(&database, TREE, &[("a", Some("1")), ("b", Some("1")), ("c", Some("1")), ("d", Some("1"))]);
    database
}

fn begin(database: &Database) -> Transaction {
    database.begin(Isolation::Serializable, Access::ReadWrite)
}

fn get(t: &Transaction, key: &str) -> String {
    t.get(TREE, key.as_bytes()).unwrap().map_or("nothing".into(), |v| String::from_utf8(v.to_vec()).unwrap())
}

/// An UPDATE of a row by its key: reads it, locks it, and writes it unless it has changed.
fn update(t: &mut Transaction, key: &str, to: &str) -> Result<String, Error> {
    let before = get(t, key);
    let locked = block_on(t.lock(TREE, key.as_bytes(), LockMode::NoKeyExclusive, WaitPolicy::Block))?;
    assert!(matches!(locked, LockOutcome::Granted { .. }));
    t.check_unchanged(TREE, key.as_bytes())?;
    t.put(TREE, key.as_bytes(), value(to))?;
    Ok(before)
}

/// The same, moving the snapshot once if need be.
fn update_moving(t: &mut Transaction, key: &str, to: &str) -> Result<String, Refresh> {
    let mark = t.mark_statement();
    let before = match update(t, key, to) {
        Ok(before) => before,
        Err(Error::SerializationFailure { .. }) => match t.refresh(&mark).unwrap() {
            Refresh::Moved => update(t, key, to).unwrap(),
            other => return Err(other),
        },
        Err(error) => panic!("{error}"),
    };
    t.keep_statement(mark);
    Ok(before)
}

fn is_stale(refused: Result<String, Refresh>, key: &str, writer: u64) {
    let Err(Refresh::Stale(read)) = refused else { panic!("{refused:?}") };
    assert_eq!((read.writer, read.is_summarized), (writer, false));
    assert_eq!(read.object, Some(Object::Key(TREE, key.as_bytes().to_vec().into())));
}

/// Writes keys; its id.
fn commit(database: &Database, keys: &[&str], to: &str) -> u64 {
    let mut t = begin(database);
    keys.iter().for_each(|key| drop(update(&mut t, key, to).unwrap()));
    let id = t.id();
    t.commit().unwrap();
    id
}

#[test]
fn a_transaction_whose_reads_hold_goes_on_at_the_newest_snapshot() {
    let database = database();
    let mut t = begin(&database);
    assert_eq!((get(&t, "a"), get(&t, "x")), ("1".into(), "nothing".into()));
    commit(&database, &["b"], "2");
    let from = t.snapshot();
    assert_eq!(update_moving(&mut t, "b", "3").unwrap(), "2", "what the other left");
    assert!(t.snapshot() == database.visible() && t.snapshot() > from && t.rests_on() >= t.snapshot());
    let info = database.transactions().into_iter().find(|info| info.id == t.id()).unwrap();
    assert_eq!(info.snapshot, t.snapshot(), "others see where it reads");
    assert_eq!(get(&t, "a"), "1");
    t.commit().unwrap();
    assert_eq!(all(&begin(&database), TREE), "a=1 b=3 c=1");
}

#[test]
fn a_read_that_was_replaced_is_named() {
    let database = database();
    let mut t = begin(&database);
    get(&t, "a");
    let writer = commit(&database, &["b", "a"], "2");
    let (snapshot, refused) = (t.snapshot(), update_moving(&mut t, "b", "3"));
    is_stale(refused, "a", writer);
    assert!(t.snapshot() == snapshot && t.rests_on() >= database.visible(), "it rests on what it was told");
    assert_eq!(get(&t, "a"), "1", "it may go on where it was");
}

/// What was read by the statement itself is read again; read before, it is stale.
#[test]
fn it_is_the_reads_before_the_statement_that_count() {
    let database = database();
    let mut t = begin(&database);
    get(&t, "b");
    let writer = commit(&database, &["b"], "2");
    is_stale(update_moving(&mut t, "b", "3"), "b", writer);
}

#[test]
fn phantoms_make_a_range_stale_and_rows_beside_it_do_not() {
    for (key, stale) in [("k2", true), ("k9", false), ("j", false)] {
        let database = database();
        let mut t = begin(&database);
        let mut scan = t.scan(TREE, Included(b"k1"), Excluded(b"k9"), false).unwrap();
        while scan.next().unwrap().is_some() {}
        drop(scan);
        let writer = commit(&database, &[key, "b"], "2");
        let moved = update_moving(&mut t, "b", "3");
        match stale {
            true => is_stale(moved, key, writer),
            false => assert_eq!(moved.unwrap(), "2", "{key}"),
        }
    }
}

/// A cursor would read on at the old snapshot.
#[test]
fn who_else_reads_at_the_snapshot_keeps_it() {
    for stays_open in [true, false] {
        let database = database();
        let mut t = begin(&database);
        let mut scan = Some(t.scan(TREE, Included(b"a"), Included(b"c"), false).unwrap());
        assert_eq!(scan.as_mut().unwrap().next().unwrap().unwrap().0, "a");
        let view = t.view();
        assert_eq!(view.get(TREE, b"a").unwrap(), Some(value("1")));
        commit(&database, &["b"], "2");
        drop(view);
        scan.take_if(|_| !stays_open);
        let moved = update_moving(&mut t, "b", "3");
        // The cursor has only read a.
        assert_eq!(moved, if stays_open { Err(Refresh::Held) } else { Ok("2".to_owned()) });
        let mut another = begin(&database);
        let view = another.view();
        commit(&database, &["c"], "2");
        assert_eq!(update_moving(&mut another, "c", "3"), Err(Refresh::Held));
        drop(view);
    }
}

/// What a statement has read that was not undone, but failed, counts as read before.
#[test]
fn a_failed_statement_has_read() {
    let database = database();
    let mut t = begin(&database);
    let view = t.view();
    let writer = commit(&database, &["b"], "2");
    assert_eq!(update_moving(&mut t, "b", "3"), Err(Refresh::Held));
    drop(view);
    is_stale(update_moving(&mut t, "b", "3"), "b", writer);
}

#[test]
fn only_certified_transactions_move_and_only_forward() {
    let database = database();
    for isolation in [Isolation::Snapshot, Isolation::ReadCommitted] {
        let mut t = database.begin(isolation, Access::ReadWrite);
        let mark = t.mark_statement();
        commit(&database, &["b"], "2");
        assert_eq!(t.refresh(&mark).unwrap(), Refresh::Kept);
    }
    let mut t = begin(&database);
    let mark = t.mark_statement();
    assert_eq!(t.refresh(&mark).unwrap(), Refresh::Kept, "there is nothing newer");
    for method in [Method::Si, Method::TwoPhaseLocking] {
        let disk = SimDisk::new(2);
        let options = Options { disk: disk.handle(), serializable: method, ..Options::new("data") };
        let database = Database::open(options).unwrap();
        let mut t = begin(&database);
        let mark = t.mark_statement();
        write(&database, TREE, &[("b", Some("2"))]);
        assert_eq!(t.refresh(&mark).unwrap(), Refresh::Kept);
    }
}

/// The statement's writes are undone, and no others; savepoints from before lead back to where they
/// were, and locks stay whatever is rolled back to.
#[test]
fn the_statement_is_undone_and_nothing_else() {
    let database = database();
    let mut t = begin(&database);
    update(&mut t, "a", "9").unwrap();
    let savepoint = t.savepoint();
    update(&mut t, "c", "8").unwrap();
    let mark = t.mark_statement();
    t.put(TREE, b"a", value("7")).unwrap();
    t.put(TREE, b"d", value("7")).unwrap();
    commit(&database, &["b"], "2");
    update(&mut t, "b", "7").unwrap_err();
    assert_eq!(t.refresh(&mark).unwrap(), Refresh::Moved);
    assert_eq!(all(&t, TREE), "a=9 b=2 c=8");
    assert_eq!(update(&mut t, "b", "3").unwrap(), "2");
    t.keep_statement(mark);
    t.rollback_to(savepoint);
    assert_eq!(all(&t, TREE), "a=9 b=2 c=1");
    let mut other = begin(&database);
    let held = block_on(other.lock(TREE, b"b", LockMode::Exclusive, WaitPolicy::NoWait));
    assert!(matches!(held, Err(Error::LockNotAvailable)), "{held:?}");
    t.commit().unwrap();
    assert_eq!(all(&begin(&database), TREE), "a=9 b=2 c=1");
}

/// The same in a transaction that has made a tree.
#[test]
fn a_statement_beside_a_tree_of_its_own_is_undone() {
    let database = database();
    // The first number is taken already.
    assert_eq!(begin(&database).create_tree(), TREE);
    let mut t = begin(&database);
    let tree = t.create_tree();
    t.put(tree, b"x", value("1")).unwrap();
    let mark = t.mark_statement();
    t.put(tree, b"x", value("2")).unwrap();
    t.put(tree, b"y", value("2")).unwrap();
    t.put(TREE, b"d", value("2")).unwrap();
    commit(&database, &["b"], "2");
    assert_eq!(t.refresh(&mark).unwrap(), Refresh::Moved);
    assert_eq!((all(&t, tree), all(&t, TREE)), ("x=1".to_owned(), "a=1 b=2 c=1".to_owned()));
    t.keep_statement(mark);
}

/// Several statements, of which one has moved the snapshot and the next one cannot: what was read
/// before all of them still holds.
#[test]
fn statements_are_undone_together() {
    let database = database();
    let mut t = begin(&database);
    get(&t, "a");
    update(&mut t, "d", "9").unwrap();
    let both = t.mark_statements();
    commit(&database, &["b"], "2");
    assert_eq!(update_moving(&mut t, "b", "3").unwrap(), "2");
    get(&t, "c");
    let writer = commit(&database, &["c"], "2");
    is_stale(update_moving(&mut t, "c", "3"), "c", writer);
    assert_eq!(t.refresh(&both).unwrap(), Refresh::Moved);
    assert_eq!(update(&mut t, "b", "4").unwrap(), "2", "the first one was undone, too");
    assert_eq!(update(&mut t, "c", "4").unwrap(), "2");
    t.keep_statement(both);
    t.commit().unwrap();
    assert_eq!(all(&begin(&database), TREE), "a=1 b=4 c=4 d=9");
    // What was read before them has changed: they cannot help.
    let mut t = begin(&database);
    get(&t, "a");
    let both = t.mark_statements();
    let writer = commit(&database, &["a", "b"], "5");
    is_stale(update_moving(&mut t, "b", "6"), "a", writer);
    is_stale(Err(t.refresh(&both).unwrap()), "a", writer);
}

/// Whoever replaces what was read before the move comes after, as for any reader there.
#[test]
fn write_skew_through_a_moved_snapshot_is_refused() {
    let database = database();
    let mut t = begin(&database);
    get(&t, "a");
    commit(&database, &["b"], "2");
    let mut other = begin(&database);
    get(&other, "b");
    assert_eq!(update_moving(&mut t, "b", "3").unwrap(), "2");
    update(&mut other, "a", "4").unwrap();
    other.commit().unwrap();
    let refused = t.commit().map(drop).unwrap_err();
    assert!(matches!(refused, Error::DependencyCycle { .. }), "{refused}");
}

/// A cycle that goes through a commit from before the move is none any more: the transaction comes
/// after it.
#[test]
fn what_came_before_the_move_is_before_the_transaction() {
    let database = database();
    let mut t = begin(&database);
    get(&t, "c");
    // Reads what will be read again, and commits before.
    let mut other = begin(&database);
    get(&other, "b");
    update(&mut other, "a", "2").unwrap();
    other.commit().unwrap();
    commit(&database, &["b"], "2");
    assert_eq!(update_moving(&mut t, "b", "3").unwrap(), "2");
    assert_eq!(get(&t, "a"), "2", "as of the moved snapshot");
    t.commit().unwrap();
}

/// While one waits to move, others prune: what it must be told is still known.
#[test]
fn what_is_pruned_meanwhile_is_not_what_it_needs() {
    let database = database();
    let mut t = begin(&database);
    get(&t, "a");
    commit(&database, &["b"], "0");
    for round in 0..300 {
        commit(&database, &["c"], &round.to_string());
    }
    assert_eq!(update_moving(&mut t, "b", "1").unwrap(), "0");
    for round in 0..300 {
        commit(&database, &["c"], &round.to_string());
    }
    let writer = commit(&database, &["a"], "5");
    for round in 0..300 {
        commit(&database, &["c"], &round.to_string());
    }
    is_stale(update_moving(&mut t, "c", "1"), "a", writer);
    drop(t);
    // Nobody who is not durable can be seen yet, and so none of those is pruned.
    for round in 0..130 {
        let mut next = begin(&database);
        update(&mut next, "c", &round.to_string()).unwrap();
        next.commit().unwrap().durable.wait().unwrap();
    }
    assert!(database.statistics().certifier.nodes < 100, "{:?}", database.statistics().certifier);
}

/// At the bound of memory reads are joined: then the snapshot stays, or an abort may be needless,
/// and says so.
#[test]
fn joined_reads_are_told_as_such() {
    let disk = SimDisk::new(3);
    let options = Options { disk: disk.handle(), certifier_bytes: 16 << 10, ..Options::new("data") };
    let database = Database::open(options).unwrap();
    write(&database, TREE, &[("b", Some("1"))]);
    let mut t = begin(&database);
    let read = |t: &Transaction, from: u32| {
        (from..from + 2000).for_each(|n| drop(t.get(TREE, format!("r{n:05}").as_bytes()).unwrap()));
    };
    let mark = t.mark_statement();
    read(&t, 0);
    commit(&database, &["b"], "2");
    assert_eq!(t.refresh(&mark).unwrap(), Refresh::Kept, "they cannot be told apart");
    assert_eq!(update_moving(&mut t, "b", "3").unwrap(), "2", "nobody wrote among them");
    commit(&database, &["c"], "2");
    let writer = commit(&database, &["r00017x"], "2");
    let refused = update_moving(&mut t, "c", "3");
    let Err(Refresh::Stale(stale)) = refused else { panic!("{refused:?}") };
    assert!(stale.writer == writer && stale.is_summarized, "{stale:?}");
}

/// An instance of a family keeps its snapshot.
#[test]
fn siblings_keep_their_snapshots() {
    use cognate_engine::sibling::{Begun, Instance, Xid};
    let database = database();
    let (xid, first) = (Xid::new("order-1").unwrap(), Instance::new(1).unwrap());
    let begun = database.begin_instance(xid, first, Isolation::Serializable).unwrap();
    let Begun::Active(mut t) = begun else { panic!("it is the first") };
    let mark = t.mark_statement();
    commit(&database, &["b"], "2");
    assert_eq!(t.refresh(&mark).unwrap(), Refresh::Kept);
}

/// Real time counts from where a transaction began, not from where its snapshot has come to.
#[test]
fn a_moved_snapshot_is_no_later_beginning() {
    for begins_first in [true, false] {
        let database = strict();
        let mut long = begin(&database);
        assert_eq!(get(&long, "a"), "1");
        let early = begins_first.then(|| begin(&database));
        commit(&database, &["a", "b"], "2");
        let mut t = early.unwrap_or_else(|| begin(&database));
        assert_eq!(update_moving(&mut t, "b", "3").unwrap(), "2", "what the other left");
        assert_eq!(get(&t, "c"), "1");
        long.put(TREE, b"c", value("2")).unwrap();
        long.commit().unwrap();
        // It precedes `long` (c), which precedes (a) the one whose b it has seen.
        assert!(matches!(t.commit(), Err(Error::DependencyCycle { .. })));
        let mut long = begin(&database);
        assert_eq!(get(&long, "a"), "2");
        let early = begins_first.then(|| begin(&database));
        commit(&database, &["a"], "3");
        let mut t = early.unwrap_or_else(|| begin(&database));
        let mark = t.mark_statement();
        let moved = t.refresh(&mark).unwrap();
        assert_eq!(moved, if begins_first { Refresh::Moved } else { Refresh::Kept });
        t.keep_statement(mark);
        assert_eq!(get(&t, "c"), "2");
        long.put(TREE, b"c", value("4")).unwrap();
        long.commit().unwrap();
        t.put(TREE, b"d", value("5")).unwrap();
        // The same, without having seen anything of it.
        assert_eq!(t.commit().is_ok(), begins_first, "it had begun before the other ended: {begins_first}");
    }
}

/// The same where each statement reads what is newest, as that of a transaction with an age, and
/// where all is run anew.
#[test]
fn a_snapshot_that_is_taken_anew_is_no_later_beginning() {
    for anew in [Transaction::refresh_snapshot as fn(&mut Transaction), Transaction::restart] {
        for begins_first in [true, false] {
            let database = strict();
            let mut long = begin(&database);
            assert_eq!(get(&long, "a"), "1");
            let early = begins_first.then(|| begin(&database));
            commit(&database, &["a"], "2");
            let mut t = early.unwrap_or_else(|| begin(&database));
            anew(&mut t);
            assert_eq!(t.snapshot(), database.visible());
            assert_eq!(get(&t, "c"), "1");
            long.put(TREE, b"c", value("2")).unwrap();
            long.commit().unwrap();
            t.put(TREE, b"d", value("2")).unwrap();
            // It precedes `long` (c), which precedes (a) the one that ended.
            assert_eq!(t.commit().is_ok(), begins_first, "it began before that: {begins_first}");
        }
    }
}

/// Whoever ended since a transaction began stays in the graph, though its snapshot has moved past
/// them: real time leads from them to those who began after them, and from these to it.
#[test]
fn who_ended_since_the_beginning_stays_in_the_graph() {
    let database = strict();
    let mut t = begin(&database);
    let mut late = begin(&database);
    assert_eq!(get(&late, "d"), "1");
    commit(&database, &["d"], "2");
    let after = begin(&database);
    assert_eq!(get(&after, "c"), "1");
    assert_eq!(get(&after, "x"), "nothing");
    after.commit().unwrap();
    let mark = t.mark_statement();
    assert_eq!(t.refresh(&mark).unwrap(), Refresh::Moved);
    t.keep_statement(mark);
    late.put(TREE, b"a", value("2")).unwrap();
    late.commit().unwrap();
    // Prunes the graph.
    database.set_certifier_bytes(database.configured_certifier_bytes());
    // It precedes `late` (a), which precedes (d) another one; that had ended when `after` began,
    // which precedes it (c).
    assert_eq!(get(&t, "a"), "1");
    t.put(TREE, b"c", value("2")).unwrap();
    assert!(matches!(t.commit(), Err(Error::DependencyCycle { .. })));
}
