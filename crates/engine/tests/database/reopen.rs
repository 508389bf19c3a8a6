//! What was committed is there after the database is opened again.

use std::ops::Bound::Unbounded;

use cognate_engine::{Database, Error, Options, Value};
use cognate_env::sim::{Loss, SimDisk};

use super::support::{all, begin, fresh, rows, value, write};

#[tokio::test]
async fn commits_survive_and_numbers_go_on() {
    let (database, folder) = fresh();
    let tree = database.allocate_tree();
    write(&database, tree, &[("a", Some("1")), ("b", Some("1"))]);
    write(&database, tree, &[("a", None), ("c", Some("2"))]);
    let mut t = begin(&database);
    t.put(tree, b"lost", value("never committed")).unwrap();
    let id = t.id();
    let mut kept = begin(&database);
    kept.put(7, b"k", value("v")).unwrap();
    let commit = kept.commit().unwrap();
    commit.durable.await.unwrap();
    drop(t);
    let (visible, next) = (database.visible(), database.allocate_tree());
    database.close().unwrap();
    drop(database);

    let database = Database::open(Options::new(folder.path())).unwrap();
    assert_eq!(database.visible(), visible);
    assert_eq!(database.durable(), visible);
    assert_eq!(all(&begin(&database), tree), "b=1 c=2");
    assert_eq!(all(&begin(&database), 7), "k=v");
    assert!(begin(&database).id() > id);
    assert!(database.allocate_tree() >= next);
    assert!(next > tree);
}

#[test]
fn one_folder_is_opened_once() {
    let (database, folder) = fresh();
    let again = Database::open(Options::new(folder.path()));
    assert!(matches!(again, Err(Error::InUse { .. })), "{again:?}");
    drop(database);
    Database::open(Options::new(folder.path())).unwrap();
}

/// More is in the log than memory holds before it asks for a checkpoint. The process before could
/// not make one either, and had all of it in memory.
#[test]
fn what_no_checkpoint_could_move_is_there_after_a_restart_on_the_full_disk() {
    const ROWS: u32 = 44;
    let disk = SimDisk::new(1);
    let open = || Database::open(Options { disk: disk.handle(), ..Options::new("data").memory(1 << 20) });
    let database = open().unwrap();
    let put = |number: u32| {
        let mut t = begin(&database);
        t.put(7, &number.to_be_bytes(), Value::from(vec![7; 10_000])).unwrap();
        t.commit().unwrap().durable.wait().unwrap();
    };
    put(0);
    disk.set_quota(Some(disk.used_bytes()));
    (1..ROWS).for_each(put);
    assert!(database.statistics().version_bytes > (1 << 20) / 8 * 3, "no checkpoint was asked for");
    disk.power_off_after(0);
    drop(database);
    disk.restart(Loss::Process);
    disk.set_quota(Some(disk.used_bytes()));
    let database = open().unwrap();
    let count = |database: &Database| rows(&begin(database), 7, (Unbounded, Unbounded), false).len();
    assert_eq!(count(&database), ROWS as usize);
    disk.set_quota(None);
    database.checkpoint().unwrap();
    assert_eq!(count(&database), ROWS as usize);
}
