//! What was committed is there after the database is opened again.

use cognate_engine::{Database, Error, Options};

use super::support::{all, begin, fresh, value, write};

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
