//! Begin, read, write, scan, commit: one transaction at a time, and what others see of it.

use std::ops::Bound::{Excluded, Included, Unbounded};

use cognate_engine::{Access, Database, Error, Isolation, LockMode, LockOutcome, Options, Value, WaitPolicy};
use cognate_env::sim::SimDisk;

use super::support::{all, begin, fresh, rows, value, write};

#[test]
fn a_snapshot_stays_and_read_committed_moves() {
    let (database, _folder) = fresh();
    write(&database, 1, &[("a", Some("1")), ("b", Some("1"))]);
    let old = begin(&database);
    let mut moving = database.begin(Isolation::ReadCommitted, Access::ReadWrite);
    write(&database, 1, &[("a", None), ("b", Some("2")), ("c", Some("2"))]);
    assert_eq!(all(&old, 1), "a=1 b=1");
    assert_eq!(all(&moving, 1), "a=1 b=1");
    let mut open = moving.scan(1, Unbounded, Unbounded, false).unwrap();
    moving.refresh_snapshot();
    assert_eq!(all(&moving, 1), "b=2 c=2");
    assert_eq!(open.next().unwrap(), Some(("a".into(), value("1"))), "a cursor keeps its snapshot");
    assert_eq!(old.get(1, b"c").unwrap(), None);
    assert_eq!(old.get_latest(1, b"b").unwrap().value, Some(value("2")));
    assert!(matches!(old.check_unchanged(1, b"b"), Err(Error::SerializationFailure { .. })));
    assert!(moving.check_unchanged(1, b"b").is_ok());
}

#[test]
fn own_writes_are_merged_into_reads_and_hidden_from_open_cursors() {
    let (database, _folder) = fresh();
    write(&database, 1, &[("a", Some("1")), ("b", Some("1")), ("c", Some("1"))]);
    let mut t = begin(&database);
    t.put(1, b"b", value("own")).unwrap();
    t.delete(1, b"c").unwrap();
    let mut before = t.scan(1, Unbounded, Unbounded, false).unwrap();
    t.put(1, b"d", value("late")).unwrap();
    t.put(1, b"b", value("later")).unwrap();
    assert_eq!(all(&t, 1), "a=1 b=later d=late");
    let seen: Vec<_> = std::iter::from_fn(|| before.next().unwrap()).collect();
    assert_eq!(seen, [("a".into(), value("1")), ("b".into(), value("own"))]);
    assert_eq!(all(&begin(&database), 1), "a=1 b=1 c=1");
    t.commit().unwrap();
    assert_eq!(all(&begin(&database), 1), "a=1 b=later d=late");
}

#[test]
fn ranges_in_both_directions() {
    let (database, _folder) = fresh();
    let mut t = begin(&database);
    for n in 0..1000u32 {
        t.put(1, &n.to_be_bytes(), value(&n.to_string())).unwrap();
    }
    t.commit().unwrap();
    let mut t = begin(&database);
    for n in (0..1000u32).step_by(3) {
        t.delete(1, &n.to_be_bytes()).unwrap();
    }
    let (low, high) = (10u32.to_be_bytes(), 900u32.to_be_bytes());
    for (range, from, to) in [
        ((Included(&low[..]), Excluded(&high[..])), 10, 900),
        ((Excluded(&low[..]), Included(&high[..])), 11, 901),
        ((Unbounded, Included(&low[..])), 0, 11),
        ((Included(&high[..]), Unbounded), 900, 1000),
        ((Included(&high[..]), Included(&low[..])), 0, 0),
        ((Excluded(&low[..]), Excluded(&low[..])), 0, 0),
    ] {
        let mut want: Vec<_> = (from..to).filter(|n| n % 3 != 0).map(|n: u32| n.to_string()).collect();
        let texts = |rows: Vec<(_, cognate_engine::Value)>| -> Vec<String> {
            rows.into_iter().map(|(_, v)| String::from_utf8(v.to_vec()).unwrap()).collect()
        };
        assert_eq!(texts(rows(&t, 1, range, false)), want);
        want.reverse();
        assert_eq!(texts(rows(&t, 1, range, true)), want);
    }
}

#[test]
fn rolling_back_and_savepoints() {
    let (database, _folder) = fresh();
    let mut t = begin(&database);
    t.put(1, b"a", value("1")).unwrap();
    let s = t.savepoint();
    t.put(1, b"a", value("2")).unwrap();
    t.put(1, b"b", value("2")).unwrap();
    t.rollback_to(s);
    assert_eq!(all(&t, 1), "a=1");
    t.rollback();
    assert_eq!(all(&begin(&database), 1), "");
    assert_eq!(database.statistics().rollbacks, 2);
}

#[tokio::test]
async fn what_is_abandoned_is_rolled_back_before_its_remains_go() {
    let (database, _folder) = fresh();
    let mut a = begin(&database);
    let granted = LockOutcome::Granted { waited: false };
    assert_eq!(a.lock(1, b"k", LockMode::Exclusive, WaitPolicy::Block).await.unwrap(), granted);
    for n in 0..200u32 {
        a.put(1, &n.to_be_bytes(), value(&"x".repeat(1 << 10))).unwrap();
    }
    assert!(database.statistics().write_set_bytes > 0);
    let remains = a.abandon();
    let statistics = database.statistics();
    assert_eq!((statistics.rollbacks, statistics.write_set_bytes), (1, 0));
    let mut b = begin(&database);
    assert_eq!(b.lock(1, b"k", LockMode::Exclusive, WaitPolicy::NoWait).await.unwrap(), granted);
    assert_eq!(all(&b, 1), "");
    drop(remains);
}

#[tokio::test]
async fn locks_conflict_and_end_with_the_transaction() {
    let (database, _folder) = fresh();
    let (mut a, mut b) = (begin(&database), begin(&database));
    let granted = LockOutcome::Granted { waited: false };
    assert_eq!(a.lock(1, b"k", LockMode::Exclusive, WaitPolicy::Block).await.unwrap(), granted);
    assert_eq!(
        b.lock(1, b"k", LockMode::Shared, WaitPolicy::SkipLocked).await.unwrap(),
        LockOutcome::Skipped
    );
    let refused = b.lock(1, b"k", LockMode::Shared, WaitPolicy::NoWait).await;
    assert!(matches!(refused, Err(Error::LockNotAvailable)));
    assert_eq!(database.locks().len(), 1);
    a.commit().unwrap();
    assert_eq!(b.lock(1, b"k", LockMode::Shared, WaitPolicy::Block).await.unwrap(), granted);
    drop(b);
    assert!(database.locks().is_empty() && database.transactions().is_empty());
}

/// Who begins anew counts its savepoints anew: the first one of then must not end what was locked
/// before the first one of now.
#[tokio::test]
async fn savepoints_of_before_a_restart_are_none() {
    let (database, _folder) = fresh();
    let (mut a, mut b) = (begin(&database), begin(&database));
    let granted = LockOutcome::Granted { waited: false };
    a.savepoint();
    a.restart();
    assert_eq!(a.lock(1, b"k", LockMode::Exclusive, WaitPolicy::NoWait).await.unwrap(), granted);
    a.put(1, b"k", value("a")).unwrap();
    let savepoint = a.savepoint();
    assert_eq!(a.lock(1, b"l", LockMode::Exclusive, WaitPolicy::NoWait).await.unwrap(), granted);
    a.rollback_to(savepoint);
    let refused = b.lock(1, b"k", LockMode::Exclusive, WaitPolicy::NoWait).await;
    assert!(matches!(refused, Err(Error::LockNotAvailable)), "{refused:?}");
    assert_eq!(b.lock(1, b"l", LockMode::Exclusive, WaitPolicy::NoWait).await.unwrap(), granted);
}

/// A lock for which there is no room is not held, and a savepoint gives nothing back for it: or
/// else the transaction could grow beyond its limit without end.
#[tokio::test]
async fn a_lock_beyond_the_limit_is_none() {
    let mut options = Options::new("data");
    (options.disk, options.transaction_bytes) = (SimDisk::new(1).handle(), 100_000);
    let database = Database::open(options).unwrap();
    let mut t = begin(&database);
    t.lock(1, b"first", LockMode::Exclusive, WaitPolicy::NoWait).await.unwrap();
    t.put(1, b"k", Value::from(vec![7; 99_500])).unwrap();
    let bytes = t.bytes();
    for _ in 0..3 {
        let savepoint = t.savepoint();
        let refused = t.lock(1, b"beyond", LockMode::Exclusive, WaitPolicy::NoWait).await;
        assert!(matches!(refused, Err(Error::TransactionTooLarge { .. })), "{refused:?}");
        assert_eq!(database.locks().len(), 1);
        t.rollback_to(savepoint);
        t.release(savepoint);
        assert_eq!(t.bytes(), bytes);
    }
    drop(t);
    assert!(database.locks().is_empty());
}

/// A run's index has keys in it, and must fit into memory and into a frame.
#[test]
fn a_key_beyond_the_limit_is_refused() {
    const LIMIT: usize = 1 << 20;
    let (database, _folder) = fresh();
    let mut t = begin(&database);
    let (longest, beyond) = (vec![7_u8; LIMIT], vec![7_u8; LIMIT + 1]);
    t.put(1, &longest, value("1")).unwrap();
    let refused = t.put(1, &beyond, value("2"));
    assert!(matches!(refused, Err(Error::KeyTooLong { bytes, limit: LIMIT }) if bytes == LIMIT + 1));
    t.delete(1, &beyond).unwrap();
    t.commit().unwrap().durable.wait().unwrap();
    database.checkpoint().unwrap();
    assert_eq!(begin(&database).get(1, &longest).unwrap(), Some(value("1")));
}

/// Who begins anew keeps its locks, and what these take still counts towards its limit.
#[tokio::test]
async fn locks_that_outlive_a_restart_count() {
    let (database, _folder) = fresh();
    let mut t = begin(&database);
    t.lock(1, b"k", LockMode::Exclusive, WaitPolicy::NoWait).await.unwrap();
    let of_lock = t.bytes();
    assert!(of_lock > 0);
    t.put(1, b"k", Value::from(vec![7; 200_000])).unwrap();
    assert!(database.statistics().write_set_bytes > 0);
    t.restart();
    assert!(!t.has_writes());
    assert_eq!((t.bytes(), database.locks().len()), (of_lock, 1));
    assert_eq!(database.statistics().write_set_bytes, 0, "what the row took is given back");
    t.put(1, b"k", value("1")).unwrap();
    t.commit().unwrap();
    assert!(database.locks().is_empty());
}

#[test]
fn a_read_only_transaction_does_not_write() {
    let (database, _folder) = fresh();
    let mut t = database.begin(Isolation::Serializable, Access::ReadOnly);
    assert!(matches!(t.put(1, b"a", value("1")), Err(Error::ReadOnly)));
}

#[test]
fn a_view_sees_the_moment_it_was_taken() {
    let (database, _folder) = fresh();
    write(&database, 1, &[("a", Some("1")), ("b", Some("1"))]);
    let mut transaction = database.begin(Isolation::ReadCommitted, Access::ReadWrite);
    transaction.put(1, b"b", value("own")).unwrap();
    let view = transaction.view();
    transaction.put(1, b"a", value("later")).unwrap();
    transaction.put(1, b"b", value("later")).unwrap();
    transaction.put(2, b"x", value("later")).unwrap();
    write(&database, 1, &[("c", Some("2"))]);
    transaction.refresh_snapshot();
    assert_eq!(all(&transaction, 1), "a=later b=later c=2");
    assert_eq!(view.get(1, b"a").unwrap(), Some(value("1")));
    assert_eq!(view.get(1, b"b").unwrap(), Some(value("own")));
    assert_eq!(view.get(1, b"c").unwrap(), None);
    assert_eq!(view.get(2, b"x").unwrap(), None);
    let mut scan = view.scan(1, Unbounded, Unbounded, false).unwrap();
    assert_eq!(scan.next().unwrap(), Some(("a".into(), value("1"))));
    assert_eq!(scan.next().unwrap(), Some(("b".into(), value("own"))));
    assert_eq!(scan.next().unwrap(), None);
}
