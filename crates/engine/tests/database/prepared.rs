//! Prepared transactions: nothing of them is seen, nothing of them is lost, and whoever decides is
//! never refused.

use cognate_engine::{
    Access, Change, Columns, Database, Error, Isolation, Known, LockMode, LockOutcome, Method, Options,
    Owner, WaitPolicy,
};
use cognate_env::SplitMix;
use cognate_env::sim::{Loss, SimDisk};

use super::support::{Seed, all, begin, block_on, fresh, in_simulation, seeds, value, write};

const ROW: LockMode = LockMode::Exclusive;

/// Prepares a transaction that writes `rows`, each under its lock.
async fn prepare(database: &Database, identifier: &str, tree: u32, rows: &[(&str, &str)]) {
    let mut t = begin(database);
    for (key, content) in rows {
        t.lock(tree, key.as_bytes(), ROW, WaitPolicy::Block).await.unwrap();
        t.put(tree, key.as_bytes(), value(content)).unwrap();
    }
    t.prepare(identifier, value("note")).unwrap().durable.await.unwrap();
}

async fn is_locked(database: &Database, tree: u32, key: &str) -> bool {
    let mut t = begin(database);
    t.lock(tree, key.as_bytes(), ROW, WaitPolicy::SkipLocked).await.unwrap() == LockOutcome::Skipped
}

fn identifiers(database: &Database) -> Vec<String> {
    let name = |owner: Owner| match owner {
        Owner::Global(identifier) => identifier.into_string(),
        Owner::Instance(xid, instance) => format!("{xid} {instance}"),
    };
    database.prepared().into_iter().map(|info| name(info.owner)).collect()
}

#[tokio::test]
async fn a_prepared_transaction_is_unseen_until_it_is_committed() {
    let (database, _folder) = fresh();
    write(&database, 7, &[("a", Some("1"))]);
    prepare(&database, "x", 7, &[("a", "2"), ("b", "2")]).await;
    assert_eq!(all(&begin(&database), 7), "a=1");
    assert!(is_locked(&database, 7, "a").await && is_locked(&database, 7, "b").await);
    let info = database.prepared();
    assert_eq!((info.len(), info[0].locks, info[0].note.clone()), (1, 2, value("note")));
    database.commit_prepared("x").unwrap().durable.await.unwrap();
    assert_eq!(all(&begin(&database), 7), "a=2 b=2");
    assert!(!is_locked(&database, 7, "a").await);
    assert!(matches!(database.commit_prepared("x"), Err(Error::NotPrepared)));
    assert_eq!(database.prepared(), []);
}

#[tokio::test]
async fn a_rolled_back_one_was_never_there() {
    let (database, folder) = fresh();
    write(&database, 7, &[("a", Some("1"))]);
    prepare(&database, "x", 7, &[("a", "2")]).await;
    database.rollback_prepared("x").unwrap().durable.await.unwrap();
    assert_eq!(all(&begin(&database), 7), "a=1");
    assert!(!is_locked(&database, 7, "a").await);
    database.close().unwrap();
    drop(database);
    let database = Database::open(Options::new(folder.path())).unwrap();
    assert_eq!(all(&begin(&database), 7), "a=1");
    assert_eq!(database.prepared(), []);
}

#[tokio::test]
async fn an_identifier_is_used_once() {
    let (database, _folder) = fresh();
    prepare(&database, "x", 7, &[("a", "1")]).await;
    let mut second = begin(&database);
    second.lock(7, b"b", ROW, WaitPolicy::Block).await.unwrap();
    second.put(7, b"b", value("1")).unwrap();
    assert!(matches!(second.prepare("x", value("")), Err(Error::AlreadyPrepared)));
    assert!(!is_locked(&database, 7, "b").await, "it was rolled back");
    database.commit_prepared("x").unwrap();
    prepare(&database, "x", 7, &[("b", "2")]).await;
    database.commit_prepared("x").unwrap();
    assert_eq!(all(&begin(&database), 7), "a=1 b=2");
}

#[tokio::test]
async fn it_survives_restarts_with_its_locks_and_through_checkpoints() {
    let (mut database, folder) = fresh();
    write(&database, 7, &[("a", Some("1"))]);
    let mut t = begin(&database);
    t.lock(7, b"a", ROW, WaitPolicy::Block).await.unwrap();
    t.lock(7, b"shared", LockMode::Shared, WaitPolicy::Block).await.unwrap();
    t.lock_tree(9, cognate_engine::TreeMode::Exclusive, WaitPolicy::Block).await.unwrap();
    t.lock_tree(7, cognate_engine::TreeMode::Write, WaitPolicy::Block).await.unwrap();
    t.put(7, b"a", value("2")).unwrap();
    t.prepare("x", value("")).unwrap();
    for round in 0..3 {
        if round == 1 {
            database.close().unwrap();
        }
        drop(database);
        database = Database::open(Options::new(folder.path())).unwrap();
        assert_eq!(identifiers(&database), ["x"], "round {round}");
        assert_eq!(all(&begin(&database), 7), "a=1");
        assert!(is_locked(&database, 7, "a").await && is_locked(&database, 7, "shared").await);
        let mut other = begin(&database);
        let policy = WaitPolicy::SkipLocked;
        assert!(matches!(
            other.lock(7, b"shared", LockMode::Shared, policy).await,
            Ok(LockOutcome::Granted { .. })
        ));
        let read = cognate_engine::TreeMode::Read;
        assert_eq!(other.lock_tree(9, read, policy).await.unwrap(), LockOutcome::Skipped);
        assert!(matches!(other.lock_tree(7, read, policy).await, Ok(LockOutcome::Granted { .. })));
        let share = cognate_engine::TreeMode::Share;
        assert_eq!(begin(&database).lock_tree(7, share, policy).await.unwrap(), LockOutcome::Skipped);
    }
    database.commit_prepared("x").unwrap();
    assert!(!is_locked(&database, 7, "a").await);
    let mut other = begin(&database);
    let free = other.lock_tree(9, cognate_engine::TreeMode::Exclusive, WaitPolicy::NoWait).await;
    assert!(free.is_ok());
    drop(database);
    drop(other);
    let database = Database::open(Options::new(folder.path())).unwrap();
    assert_eq!(all(&begin(&database), 7), "a=2");
    assert_eq!(database.prepared(), []);
}

#[tokio::test]
async fn loads_and_dropped_trees_wait_for_the_decision() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options::new(folder.path());
    options.spill_bytes = 64 << 10;
    let database = Database::open(options.clone()).unwrap();
    write(&database, 7, &[("old", Some("1"))]);
    let mut t = begin(&database);
    let tree = t.create_tree();
    for number in 0..20_000_u32 {
        t.put(tree, format!("{number:05}").as_bytes(), value("loaded")).unwrap();
    }
    t.drop_tree(7);
    t.prepare("load", value("")).unwrap().durable.await.unwrap();
    drop(database);
    let database = Database::open(options.clone()).unwrap();
    assert_eq!(all(&begin(&database), 7), "old=1");
    assert_eq!(all(&begin(&database), tree), "");
    database.commit_prepared("load").unwrap().durable.await.unwrap();
    assert_eq!(all(&begin(&database), tree).split(' ').count(), 20_000);
    database.checkpoint().unwrap();
    assert_eq!(all(&begin(&database), 7), "");
    assert_eq!(all(&begin(&database), tree).split(' ').count(), 20_000);
    drop(database);
    let database = Database::open(options).unwrap();
    assert_eq!(all(&begin(&database), tree).split(' ').count(), 20_000);
}

fn serializable(database: &Database) -> cognate_engine::Transaction {
    database.begin(Isolation::Serializable, Access::ReadWrite)
}

/// Write skew whose first half is prepared: the second half is refused, before and after a restart,
/// until the first is rolled back.
#[tokio::test]
async fn others_are_certified_against_it_also_after_a_restart() {
    let (mut database, folder) = fresh();
    write(&database, 7, &[("x", Some("50")), ("y", Some("50"))]);
    let mut first = serializable(&database);
    first.get(7, b"x").unwrap();
    first.get(7, b"y").unwrap();
    first.lock(7, b"x", ROW, WaitPolicy::Block).await.unwrap();
    first.put(7, b"x", value("-10")).unwrap();
    first.prepare("half", value("")).unwrap().durable.await.unwrap();
    let skew = |database: &Database| {
        let mut second = serializable(database);
        second.get(7, b"x").unwrap();
        second.get(7, b"y").unwrap();
        second.put(7, b"y", value("-10")).unwrap();
        second.commit()
    };
    assert!(matches!(skew(&database), Err(Error::DependencyCycle { .. })));
    drop(database);
    database = Database::open(Options::new(folder.path())).unwrap();
    assert!(matches!(skew(&database), Err(Error::DependencyCycle { .. })));
    database.rollback_prepared("half").unwrap();
    skew(&database).unwrap();
}

/// P: reads x, writes y and is prepared.
async fn prepare_between_x_and_y(database: &Database) {
    write(database, 7, &[("x", Some("0")), ("y", Some("0"))]);
    let mut p = serializable(database);
    p.get(7, b"x").unwrap();
    p.lock(7, b"y", ROW, WaitPolicy::Block).await.unwrap();
    p.put(7, b"y", value("1")).unwrap();
    p.prepare("p", value("")).unwrap().durable.await.unwrap();
}

/// P reads x and writes y; T replaces x and commits; the server crashes. Who reads the new x and
/// the old y would be after T and before P, which is before T.
#[tokio::test]
async fn who_came_after_it_before_a_crash_is_not_forgotten() {
    for overtaken in [true, false] {
        let (database, folder) = fresh();
        prepare_between_x_and_y(&database).await;
        let mut t = serializable(&database);
        t.put(7, if overtaken { b"x" } else { b"z" }, value("1")).unwrap();
        t.commit().unwrap().durable.await.unwrap();
        let reader = |database: &Database| {
            let reader = serializable(database);
            reader.get(7, b"x").unwrap();
            reader.get(7, b"y").unwrap();
            reader.commit()
        };
        assert_eq!(reader(&database).is_err(), overtaken);
        drop(database);
        let database = Database::open(Options::new(folder.path())).unwrap();
        assert_eq!(reader(&database).is_err(), overtaken);
        database.commit_prepared("p").unwrap();
        reader(&database).unwrap();
    }
}

/// P reads x; T replaces x and commits; P writes y and is prepared. That T comes after P is in no
/// record of T's, and not in a later one either: who reads the new x and the old y is refused after
/// a crash, too, and another one, and after a checkpoint; but not if T has replaced something else,
/// nor if P has written nothing.
#[tokio::test]
async fn who_came_after_it_before_it_was_prepared_is_not_forgotten() {
    for (replaced, writes) in [(true, true), (false, true), (true, false)] {
        let (mut database, folder) = fresh();
        write(&database, 7, &[("x", Some("0")), ("y", Some("0"))]);
        let mut p = serializable(&database);
        p.get(7, b"x").unwrap();
        let mut t = serializable(&database);
        t.put(7, if replaced { b"x" } else { b"z" }, value("1")).unwrap();
        t.commit().unwrap().durable.await.unwrap();
        if writes {
            p.lock(7, b"y", ROW, WaitPolicy::Block).await.unwrap();
            p.put(7, b"y", value("1")).unwrap();
        }
        p.prepare("p", value("")).unwrap().durable.await.unwrap();
        let reader = |database: &Database| {
            let reader = serializable(database);
            reader.get(7, b"x").unwrap();
            reader.get(7, b"y").unwrap();
            reader.commit()
        };
        let refuses = replaced && writes;
        assert_eq!(reader(&database).is_err(), refuses, "{replaced} {writes}");
        for round in 0..3 {
            if round == 1 {
                database.checkpoint().unwrap();
            }
            drop(database);
            database = Database::open(Options::new(folder.path())).unwrap();
            assert_eq!(reader(&database).is_err(), refuses, "{replaced} {writes}, restart {round}");
        }
        database.commit_prepared("p").unwrap().durable.await.unwrap();
        reader(&database).unwrap();
        assert_eq!(all(&begin(&database), 7).contains("y=1"), writes);
    }
}

/// As above; but T commits while the database is open without a certifier, which notices nothing.
#[tokio::test]
async fn who_came_after_it_without_a_certifier_is_not_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let open = |serializable: Method| {
        let mut options = Options::new(folder.path());
        options.serializable = serializable;
        Database::open(options).unwrap()
    };
    let mut database = open(Method::Pssi);
    prepare_between_x_and_y(&database).await;
    drop(database);
    database = open(Method::TwoPhaseLocking);
    let mut t = serializable(&database);
    t.put(7, b"x", value("1")).unwrap();
    t.commit().unwrap().durable.await.unwrap();
    drop(database);
    database = open(Method::Pssi);
    let reader = serializable(&database);
    reader.get(7, b"x").unwrap();
    reader.get(7, b"y").unwrap();
    assert!(matches!(reader.commit(), Err(Error::DependencyCycle { .. })));
    database.commit_prepared("p").unwrap().durable.await.unwrap();
    assert_eq!(all(&begin(&database), 7), "x=1 y=1");
}

/// P reads x and loads a new tree; T replaces x and commits. Who reads the new x and finds nothing
/// in the tree would be after T and before P, which is before T: a restart knows which trees were
/// loaded, whose rows are in no record.
#[tokio::test]
async fn who_finds_nothing_where_it_has_loaded_comes_before_it_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options::new(folder.path());
    options.spill_bytes = 4 << 10;
    let mut database = Database::open(options.clone()).unwrap();
    write(&database, 7, &[("x", Some("0"))]);
    let mut p = serializable(&database);
    p.get(7, b"x").unwrap();
    let tree = p.create_tree();
    for number in 0..100 {
        p.put(tree, format!("{number:03}").as_bytes(), value(&"loaded".repeat(100))).unwrap();
    }
    p.prepare("p", value("")).unwrap().durable.await.unwrap();
    drop(database);
    database = Database::open(options).unwrap();
    let mut t = serializable(&database);
    t.put(7, b"x", value("1")).unwrap();
    t.commit().unwrap().durable.await.unwrap();
    let reader = |key: &[u8]| {
        let reader = serializable(&database);
        reader.get(7, key).unwrap();
        assert_eq!(all(&reader, tree), "");
        reader.commit()
    };
    assert!(matches!(reader(b"x"), Err(Error::DependencyCycle { .. })));
    reader(b"z").unwrap();
    database.commit_prepared("p").unwrap().durable.await.unwrap();
    assert_eq!(all(&begin(&database), tree).split(' ').count(), 100);
}

/// Also after a restart, which has forgotten who came after what is prepared.
#[tokio::test]
async fn a_deferrable_reader_waits_for_the_decision_it_depends_on() {
    for restarted in [false, true] {
        let (mut database, folder) = fresh();
        prepare_between_x_and_y(&database).await;
        let mut t = serializable(&database);
        t.put(7, b"x", value("1")).unwrap();
        t.commit().unwrap().durable.await.unwrap();
        if restarted {
            drop(database);
            database = Database::open(Options::new(folder.path())).unwrap();
        }
        let waiting = polled(database.begin_deferrable());
        assert!(!waiting.is_ready(), "restarted: {restarted}");
        database.commit_prepared("p").unwrap().durable.await.unwrap();
        assert_eq!(all(&waiting.finish().unwrap(), 7), "x=1 y=1");
    }
}

/// Prepares a transaction that reads one column of a row, and changes the second one of another
/// row.
fn prepare_columns(database: &Database, identifier: &str, read: (&[u8], usize), changed: &[u8]) {
    let mut t = serializable(database);
    t.view().lend_columns(7, read.0, Columns::PRESENCE.with(read.1), &mut |_| {}).unwrap();
    block_on(t.lock(7, changed, ROW, WaitPolicy::Block)).unwrap();
    let change = Change::update(2, |column| column == 1, |_| Known::Code(1), |_| Known::Code(2));
    t.put_change(7, changed, value("2"), &change).unwrap();
    block_on(t.prepare(identifier, value("")).unwrap().durable).unwrap();
}

/// Two that have changed nothing that the other one has read, but a restart does not know that any
/// more: each might have to come before the other. Once they are decided they leave the graph as
/// others do, and so does who comes after them.
#[test]
fn who_might_come_before_each_other_after_a_restart_leave_the_graph() {
    let disk = SimDisk::new(1);
    let database = in_simulation(&disk);
    write(&database, 7, &[("a", Some("1")), ("b", Some("1"))]);
    prepare_columns(&database, "p", (b"a", 0), b"b");
    prepare_columns(&database, "q", (b"b", 0), b"a");
    drop(database);
    disk.restart(Loss::Process);
    let database = in_simulation(&disk);
    for identifier in ["p", "q"] {
        block_on(database.commit_prepared(identifier).unwrap().durable).unwrap();
    }
    for _ in 0..200 {
        let mut t = begin(&database);
        t.put(7, b"a", value("3")).unwrap();
        block_on(t.commit().unwrap().durable).unwrap();
    }
    let graph = database.statistics().certifier;
    assert!(graph.nodes < 100, "{graph:?}");
    assert_eq!(all(&begin(&database), 7), "a=3 b=2");
}

/// Q has read what P changes, and so comes before it. After a restart P might have to come before
/// Q, too, so Q forgets its successors. When P commits, that is for good: who reads P's row and the
/// one that Q changes is refused after another restart as well.
#[test]
fn who_has_forgotten_who_comes_after_it_is_marked_when_that_commits() {
    let disk = SimDisk::new(1);
    let mut database = in_simulation(&disk);
    write(&database, 7, &[("a", Some("1")), ("b", Some("1"))]);
    prepare_columns(&database, "p", (b"a", 0), b"b");
    prepare_columns(&database, "q", (b"b", 1), b"a");
    let reader = |database: &Database| {
        let reader = serializable(database);
        reader.get(7, b"a").unwrap();
        reader.get(7, b"b").unwrap();
        reader.commit()
    };
    for restart in 0..3 {
        drop(database);
        disk.restart(Loss::Process);
        database = in_simulation(&disk);
        if restart == 0 {
            block_on(database.commit_prepared("p").unwrap().durable).unwrap();
        }
        let read = reader(&database);
        assert!(matches!(read, Err(Error::DependencyCycle { .. })), "restart {restart}: {read:?}");
    }
    block_on(database.commit_prepared("q").unwrap().durable).unwrap();
    reader(&database).unwrap();
}

/// A future that was polled once.
struct Polled<F: Future>(std::pin::Pin<Box<F>>, Option<F::Output>);

fn polled<F: Future>(future: F) -> Polled<F> {
    let mut polled = Polled(Box::pin(future), None);
    for _ in 0..20 {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        if let std::task::Poll::Ready(output) = polled.0.as_mut().poll(&mut context) {
            polled.1 = Some(output);
            break;
        }
        std::thread::yield_now();
    }
    polled
}

impl<F: Future> Polled<F> {
    fn is_ready(&self) -> bool {
        self.1.is_some()
    }

    fn finish(self) -> F::Output {
        match self.1 {
            Some(output) => output,
            None => block_on(self.0),
        }
    }
}

/// Random transactions, some of them prepared, on a disk that crashes: what was answered holds,
/// nothing is half there.
#[test]
fn crashes_lose_nothing_that_was_answered() {
    for seed in seeds(60) {
        let _named = Seed(seed);
        let (mut random, disk) = (SplitMix::new(seed), SimDisk::new(seed));
        // What is known: prepared with its value, committed values.
        let mut in_doubt: Vec<(String, String)> = Vec::new();
        let mut expected: std::collections::BTreeMap<String, String> = Default::default();
        let mut number = 0;
        for _crash in 0..4 {
            let database = in_simulation(&disk);
            let mut found = identifiers(&database);
            found.sort();
            let mut known: Vec<String> = in_doubt.iter().map(|(name, _)| name.clone()).collect();
            known.sort();
            assert_eq!(found, known, "seed {seed}");
            for (key, content) in &expected {
                let got = begin(&database).get(7, key.as_bytes()).unwrap();
                assert_eq!(got, Some(value(content)), "seed {seed} {key}");
            }
            for _ in 0..random.below(12) {
                match random.below(4) {
                    0 | 1 => {
                        number += 1;
                        let (name, key) = (format!("p{number}"), format!("k{number}"));
                        block_on(prepare(&database, &name, 7, &[(&key, &name)]));
                        in_doubt.push((name, key));
                    }
                    2 if !in_doubt.is_empty() => {
                        let (name, key) = in_doubt.swap_remove(random.below(in_doubt.len() as u64) as usize);
                        block_on(database.commit_prepared(&name).unwrap().durable).unwrap();
                        expected.insert(key, name);
                    }
                    3 if !in_doubt.is_empty() => {
                        let (name, _) = in_doubt.swap_remove(random.below(in_doubt.len() as u64) as usize);
                        block_on(database.rollback_prepared(&name).unwrap().durable).unwrap();
                    }
                    _ => database.checkpoint().unwrap(),
                }
            }
            for (name, key) in &in_doubt {
                assert!(block_on(is_locked(&database, 7, key)), "seed {seed} {name}");
            }
            drop(database);
            disk.restart(if random.one_in(3) { Loss::Process } else { Loss::Power });
        }
    }
}
