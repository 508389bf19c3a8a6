//! Backups: of one moment, whole or refused, and databases of their own afterwards.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use cognate_engine::sibling::{Begun, Instance, Limits, Text, Xid};
use cognate_engine::{
    Access, Backup, Contents, Database, Error, Intake, Isolation, LockMode, LockOutcome, Options, Owner,
    Restoration, WaitPolicy, verify_backup,
};
use cognate_env::Disk;
use cognate_env::sim::{Loss, SimDisk};

use super::cluster::{Cluster, Commitment, TREE, put};
use super::cluster_large;
use super::cluster_prepared::prepare;
use super::support::{all, begin, block_on, rows, value, write};

/// Where a backup is restored, and where one lies.
const COPY: &str = "copy";
const FOLDER: &str = "backup";

fn options(disk: &SimDisk, path: &str) -> Options {
    let mut options = Options::new(path).memory(128 << 10);
    options.spill_bytes = 4 << 10;
    options.disk = disk.handle();
    options
}

/// Everything that a backup sends.
fn stream(backup: &mut Backup) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = backup.next(777).unwrap() {
        all.extend_from_slice(&bytes);
    }
    all
}

fn take_in(mut intake: Intake, bytes: &[u8]) -> Result<Contents, Error> {
    bytes.chunks(1000).try_for_each(|part| intake.put(Bytes::copy_from_slice(part)))?;
    intake.finish()
}

/// Restores a stream, without opening what comes of it.
fn restore(disk: &SimDisk, bytes: &[u8]) -> Result<Contents, Error> {
    let mut restoration = Restoration::begin(disk.handle(), Path::new(COPY))?;
    bytes.chunks(1000).try_for_each(|part| restoration.put(Bytes::copy_from_slice(part)))?;
    restoration.verify()?.finish()
}

fn restored(disk: &SimDisk, bytes: &[u8]) -> Database {
    restore(disk, bytes).unwrap();
    Database::open(options(disk, COPY)).unwrap()
}

fn run_files(disk: &SimDisk) -> Vec<PathBuf> {
    let files = disk.files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.extension().is_some_and(|extension| extension == "run")).collect()
}

fn is_locked(database: &Database, tree: u32, key: &str) -> bool {
    let mut t = begin(database);
    let locked = t.lock(tree, key.as_bytes(), LockMode::Exclusive, WaitPolicy::SkipLocked);
    block_on(locked).unwrap() == LockOutcome::Skipped
}

/// A small database with a prepared transaction.
fn small(disk: &SimDisk) -> Database {
    let database = Database::open(options(disk, "data")).unwrap();
    write(&database, 7, &[("a", Some("1")), ("b", Some("1"))]);
    database.checkpoint().unwrap();
    write(&database, 7, &[("b", None), ("c", Some("1"))]);
    let mut t = begin(&database);
    block_on(t.lock(7, b"a", LockMode::Exclusive, WaitPolicy::Block)).unwrap();
    t.put(7, b"a", value("2")).unwrap();
    t.prepare("p", value("note")).unwrap().durable.wait().unwrap();
    database
}

#[test]
fn a_backup_is_of_one_moment_whatever_comes_later() {
    let (disk, other) = (SimDisk::new(1), SimDisk::new(2));
    let database = small(&disk);
    let old = begin(&database);
    write(&database, 7, &[("d", Some("1"))]);
    block_on(database.wait_durable(database.visible())).unwrap();
    let moment = database.visible();
    let mut backup = database.backup().unwrap();
    assert_eq!(backup.commit(), moment);
    // Everything that a backup could lose its files by.
    database.commit_prepared("p").unwrap();
    for round in 0..12 {
        write(&database, 7, &[("c", Some("2")), ("e", Some(&round.to_string()))]);
        database.checkpoint().unwrap();
    }
    let second = stream(&mut database.backup().unwrap());
    let first = stream(&mut backup);
    drop((backup, old));
    let copy = restored(&other, &first);
    assert_eq!(all(&begin(&copy), 7), "a=1 c=1 d=1");
    assert!(copy.visible() >= moment && is_locked(&copy, 7, "a"));
    assert_eq!(copy.prepared()[0].note, value("note"));
    copy.commit_prepared("p").unwrap().durable.wait().unwrap();
    write(&copy, 7, &[("d", None)]);
    block_on(copy.wait_durable(copy.visible())).unwrap();
    drop(copy);
    // It is a database like any other: its log is replayed.
    other.restart(Loss::Power);
    let copy = Database::open(options(&other, COPY)).unwrap();
    assert_eq!((all(&begin(&copy), 7), copy.prepared()), ("a=2 c=1".to_owned(), vec![]));
    let third = SimDisk::new(3);
    assert_eq!(all(&begin(&restored(&third, &second)), 7), "a=2 c=2 d=1 e=11");
    // Nothing is kept for backups that are over.
    database.close().unwrap();
    let live = database.statistics().base.runs;
    drop(database);
    assert_eq!(run_files(&disk).len() as u64, live);
}

#[test]
fn an_empty_database_has_a_backup_too() {
    let (disk, other) = (SimDisk::new(1), SimDisk::new(2));
    let database = Database::open(options(&disk, "data")).unwrap();
    let bytes = stream(&mut database.backup().unwrap());
    let copy = restored(&other, &bytes);
    write(&copy, 7, &[("a", Some("1"))]);
    assert_eq!(all(&begin(&copy), 7), "a=1");
    let refused = Restoration::begin(other.handle(), Path::new(COPY));
    assert!(matches!(refused, Err(Error::InvalidArgument(_))), "there is a database already");
}

/// What prepared transactions have loaded goes along, whatever becomes of them after the moment.
#[test]
fn loads_of_prepared_transactions_and_of_commits_go_along() {
    for commits in [true, false] {
        let (disk, other) = (SimDisk::new(1), SimDisk::new(2));
        let database = Database::open(options(&disk, "data")).unwrap();
        let load = || {
            let mut t = begin(&database);
            let tree = t.create_tree();
            let content = value("a value of some length, so that it spills");
            for number in 0..500_u32 {
                t.put(tree, &number.to_be_bytes(), content.clone()).unwrap();
            }
            (t, tree)
        };
        let (t, committed) = load();
        t.commit().unwrap().durable.wait().unwrap();
        let (t, prepared) = load();
        t.prepare("load", value("")).unwrap().durable.wait().unwrap();
        // Staged, and nobody's: it does not go along.
        let (open, _) = load();
        let mut backup = database.backup().unwrap();
        match commits {
            true => drop(database.commit_prepared("load").unwrap()),
            false => drop(database.rollback_prepared("load").unwrap()),
        }
        database.checkpoint().unwrap();
        let bytes = stream(&mut backup);
        drop(open);
        let copy = restored(&other, &bytes);
        let count = |tree| {
            let everything = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
            rows(&begin(&copy), tree, everything, false).len()
        };
        assert_eq!((count(committed), count(prepared)), (500, 0));
        copy.commit_prepared("load").unwrap();
        assert_eq!((count(committed), count(prepared)), (500, 500));
        assert!(copy.allocate_tree() > prepared, "numbers go on");
    }
}

#[test]
fn families_are_decided_in_the_copy_as_in_the_original() {
    let (disk, other) = (SimDisk::new(1), SimDisk::new(2));
    let database = Database::open(options(&disk, "data")).unwrap();
    let (xid, at) = (Xid::new("client/1").unwrap(), |number| Instance::new(number).unwrap());
    let texts = (Text::from("request"), Text::from("result"));
    for number in [1, 2] {
        let begun = database.begin_instance(xid.clone(), at(number), Isolation::Snapshot).unwrap();
        let Begun::Active(mut t) = begun else { panic!("it is decided") };
        t.put(7, number.to_string().as_bytes(), value("won")).unwrap();
        let told = t.prepare_instance(&texts.0, &texts.1, value(""), Limits::default()).unwrap();
        told.durable.wait().unwrap();
    }
    let bytes = stream(&mut database.backup().unwrap());
    let copy = restored(&other, &bytes);
    assert_eq!(copy.in_doubt().len(), 1);
    copy.commit_instance(&xid, at(2)).unwrap();
    assert_eq!(all(&begin(&copy), 7), "2=won");
    assert!(copy.commit_instance(&xid, at(1)).is_err(), "it has lost");
    database.commit_instance(&xid, at(1)).unwrap();
    assert_eq!(all(&begin(&database), 7), "1=won");
}

#[test]
fn a_stream_is_refused_wherever_it_is_cut_or_damaged() {
    let disk = SimDisk::new(1);
    let bytes = stream(&mut small(&disk).backup().unwrap());
    assert!(take_in(Intake::looking(), &bytes).is_ok());
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(take_in(Intake::looking(), &damaged).is_err(), "byte {at}");
        assert!(take_in(Intake::looking(), &bytes[..at]).is_err(), "cut at {at}");
        if at % 97 == 0 {
            let other = SimDisk::new(2);
            assert!(restore(&other, if at % 2 == 0 { &damaged } else { &bytes[..at] }).is_err());
            let opened = Database::open(options(&other, COPY));
            assert!(matches!(opened, Err(Error::InvalidArgument(_))), "byte {at}: it opens");
            let again = Restoration::begin(other.handle(), Path::new(COPY));
            assert!(matches!(again, Err(Error::InvalidArgument(_))), "byte {at}: it is not empty");
        }
    }
}

/// Its list would be right, and nobody would know of it before he needs the backup.
#[test]
fn what_has_rotted_since_the_start_is_not_sent() {
    let disk = SimDisk::new(1);
    let database = small(&disk);
    drop(database.backup().unwrap());
    for (path, content) in disk.files().into_iter().filter(|(path, _)| run_files(&disk).contains(path)) {
        for at in 0..content.len() as u64 {
            let mut backup = database.backup().unwrap();
            disk.flip(&path, at, 1);
            // Cut anywhere, so that what is checked lies in several portions.
            let portion = 1 + at as usize % 300;
            let failed = loop {
                match backup.next(portion) {
                    Ok(Some(_)) => {}
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            let Some(Error::Corrupt { file, offset, .. }) = failed else { panic!("byte {at}: {failed:?}") };
            assert!(file == path && offset <= at, "byte {at}: {} at {offset}", file.display());
            disk.flip(&path, at, 1);
        }
    }
    stream(&mut database.backup().unwrap());
}

#[test]
fn a_folder_is_refused_wherever_it_is_damaged() {
    let (disk, other) = (SimDisk::new(1), SimDisk::new(2));
    let handle: Arc<dyn Disk> = other.handle();
    let bytes = stream(&mut small(&disk).backup().unwrap());
    let begin = || Intake::begin(Arc::clone(&handle), Path::new(FOLDER));
    let contents = take_in(begin().unwrap(), &bytes).unwrap();
    let check = || verify_backup(&handle, Path::new(FOLDER));
    assert_eq!(check().unwrap(), contents);
    assert!(matches!(begin(), Err(Error::InvalidArgument(_))), "there is one already");
    for (path, content) in other.files() {
        for at in 0..content.len() as u64 {
            other.flip(&path, at, 1);
            assert!(check().is_err(), "{} byte {at}", path.display());
            other.flip(&path, at, 1);
        }
        let aside = Path::new("aside");
        other.rename(&path, aside).unwrap();
        assert!(check().is_err(), "{} is missing", path.display());
        other.rename(aside, &path).unwrap();
    }
    // A folder's stream is that of the server, but for the time of its headers.
    let again = stream(&mut Backup::of_folder(&handle, Path::new(FOLDER)).unwrap());
    assert_eq!(again.len(), bytes.len());
    assert_eq!(take_in(Intake::looking(), &again).unwrap(), contents);
    assert_eq!(all(&super::support::begin(&restored(&SimDisk::new(3), &again)), 7), "a=1 c=1");
}

/// Whenever the power fails, a backup says that it is none, or is whole.
#[test]
fn an_interrupted_backup_says_so() {
    let bytes = stream(&mut small(&SimDisk::new(1)).backup().unwrap());
    let mut whole = 0;
    for operations in 0..100 {
        let disk = SimDisk::new(operations);
        disk.power_off_after(operations);
        let begun = Intake::begin(disk.handle(), Path::new(FOLDER));
        let taken = begun.and_then(|intake| take_in(intake, &bytes));
        disk.restart(Loss::Power);
        match (taken, verify_backup(&disk.handle(), Path::new(FOLDER))) {
            (_, Ok(_)) => whole += 1,
            (Err(_), Err(Error::InvalidArgument(_))) => {}
            other => panic!("after {operations}: {other:?}"),
        }
    }
    assert!((1..90).contains(&whole), "{whole} were whole");
}

/// Whenever the power fails, the folder does not open, or has everything; or nothing has begun.
#[test]
fn an_interrupted_restore_does_not_open() {
    let bytes = stream(&mut small(&SimDisk::new(1)).backup().unwrap());
    let (mut whole, mut refused) = (0, 0);
    for operations in 0..100 {
        let disk = SimDisk::new(operations);
        disk.power_off_after(operations);
        let done = restore(&disk, &bytes);
        disk.restart(Loss::Power);
        let is_empty = disk.files().is_empty();
        match Database::open(options(&disk, COPY)) {
            Ok(_) if is_empty => assert!(done.is_err()),
            Ok(copy) => {
                assert_eq!(all(&begin(&copy), 7), "a=1 c=1", "after {operations}");
                whole += 1;
            }
            Err(Error::InvalidArgument(_)) => {
                assert!(done.is_err(), "after {operations}");
                refused += 1;
            }
            Err(error) => panic!("after {operations}: {error}"),
        }
    }
    assert!(whole > 10 && refused > 10, "{whole} were whole, {refused} refused");
}

/// A server may have looked into the folder just before the restore began.
#[test]
fn a_folder_is_locked_while_it_is_being_restored() {
    let bytes = stream(&mut small(&SimDisk::new(1)).backup().unwrap());
    let (disk, lock) = (SimDisk::new(2), Path::new(COPY).join("lock"));
    let mut restoration = Restoration::begin(disk.handle(), Path::new(COPY)).unwrap();
    assert!(disk.lock(&lock).is_err(), "it has begun");
    restoration.put(Bytes::from(bytes)).unwrap();
    let restored = restoration.verify().unwrap();
    assert!(disk.lock(&lock).is_err(), "it is not yet where it belongs");
    restored.finish().unwrap();
    drop(Database::open(options(&disk, COPY)).unwrap());
    // The other way round.
    let other = SimDisk::new(3);
    let held = other.lock(&lock).unwrap();
    let refused = Restoration::begin(other.handle(), Path::new(COPY));
    assert!(matches!(refused, Err(Error::InUse { .. })), "{refused:?}");
    drop(held);
    assert!(other.files().is_empty());
}

#[test]
fn a_full_disk_leaves_an_incomplete_backup() {
    let bytes = stream(&mut small(&SimDisk::new(1)).backup().unwrap());
    let disk = SimDisk::new(2);
    disk.set_quota(Some(700));
    let taken = Intake::begin(disk.handle(), Path::new(FOLDER)).and_then(|intake| take_in(intake, &bytes));
    assert!(matches!(taken, Err(Error::DiskFull { .. })), "{taken:?}");
    let verified = verify_backup(&disk.handle(), Path::new(FOLDER));
    assert!(matches!(verified, Err(Error::InvalidArgument(_))), "{verified:?}");
}

#[test]
fn a_nodes_backup_is_a_database_of_its_own() {
    let cluster = Cluster::of(2);
    cluster.write(1, &[("a", "0"), ("b", "0")]);
    let mut t = cluster.begin(1, Isolation::Serializable);
    put(&mut t, "a", "1").unwrap();
    let mut asked = prepare(t, "p");
    assert!(asked.poll().is_none(), "nobody has ordered it");
    cluster.settle();
    asked.poll().unwrap().unwrap();
    let trees: Vec<u32> = [1, 2].map(|node| cluster.node(node).allocate_tree()).to_vec();
    let bytes = stream(&mut cluster.node(2).backup().unwrap());
    cluster.write(1, &[("b", "2")]);
    let disk = SimDisk::new(9);
    let copy = restored(&disk, &bytes);
    assert!(!copy.is_node());
    assert_eq!(all(&begin(&copy), TREE), "a=0 b=0");
    assert_eq!(copy.prepared()[0].owner, Owner::Global("p".into()));
    assert!(is_locked(&copy, TREE, "a") && !is_locked(&copy, TREE, "b"));
    assert!(copy.allocate_tree() > *trees.iter().max().unwrap());
    // Nobody has come after it: who reads what it writes comes before it.
    let reader = copy.begin(Isolation::Serializable, Access::ReadWrite);
    assert_eq!(all(&reader, TREE), "a=0 b=0");
    reader.commit().unwrap();
    copy.close().unwrap();
    drop(copy);
    let found = Database::found_cluster(options(&disk, COPY));
    assert!(matches!(found, Err(Error::InvalidArgument(_))), "something is prepared: {found:?}");
    let copy = Database::open(options(&disk, COPY)).unwrap();
    copy.commit_prepared("p").unwrap().durable.wait().unwrap();
    let mut t = copy.begin(Isolation::Serializable, Access::ReadWrite);
    put(&mut t, "c", "1").unwrap();
    t.commit().unwrap().durable.wait().unwrap();
    assert_eq!(all(&begin(&copy), TREE), "a=1 b=0 c=1");
    copy.close().unwrap();
    drop(copy);
    Database::found_cluster(options(&disk, COPY)).unwrap();
    // A node that nothing was delivered to yet has nothing.
    let bytes = stream(&mut Cluster::of(1).node(1).backup().unwrap());
    assert_eq!(all(&begin(&restored(&SimDisk::new(10), &bytes)), TREE), "");
}

/// What has come of a transaction in parts is of no use where nobody can complete it.
#[test]
fn a_nodes_backup_is_restored_without_what_was_coming_in_parts() {
    let cluster = Cluster::of(2);
    cluster.write(1, &[("a", "0")]);
    let mut commit = Commitment::of(cluster_large::large(&cluster, 1, 25));
    cluster_large::advance(&cluster, &mut commit, 3);
    let bytes = stream(&mut cluster.node(2).backup().unwrap());
    let copy = restored(&SimDisk::new(9), &bytes);
    assert_eq!(all(&begin(&copy), TREE), "a=0");
    assert_eq!(all(&begin(&copy), cluster_large::PARTS_TREE), "");
}

/// Somebody has replaced at a node what a prepared transaction has read: who would have to come
/// before that is refused in the copy as at the node.
#[test]
fn a_nodes_overtaken_transaction_stays_overtaken() {
    let cluster = Cluster::of(1);
    cluster.write(1, &[("a", "0"), ("b", "0")]);
    let mut t = cluster.begin(1, Isolation::Serializable);
    assert!(t.get(TREE, b"b").unwrap().is_some());
    put(&mut t, "a", "1").unwrap();
    let mut asked = prepare(t, "p");
    assert!(asked.poll().is_none(), "nobody has ordered it");
    cluster.settle();
    asked.poll().unwrap().unwrap();
    let mut later = cluster.begin(1, Isolation::Serializable);
    put(&mut later, "b", "2").unwrap();
    let mut later = Commitment::of(later);
    assert!(later.poll().is_none(), "nobody has ordered it");
    cluster.settle();
    later.poll().unwrap().unwrap();
    let bytes = stream(&mut cluster.node(1).backup().unwrap());
    let disk = SimDisk::new(3);
    let copy = restored(&disk, &bytes);
    let reader = copy.begin(Isolation::Serializable, Access::ReadWrite);
    assert_eq!(all(&reader, TREE), "a=0 b=2");
    assert!(matches!(reader.commit(), Err(error) if error.is_retryable()), "it comes before and after");
    copy.commit_prepared("p").unwrap();
    assert_eq!(all(&begin(&copy), TREE), "a=1 b=2");
}
