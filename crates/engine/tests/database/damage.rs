//! Bytes that are whole and make no sense: their checksums are right, and still nothing that this
//! version would have written. They are reported as damage, with file and offset, wherever they are
//! met; never as a mistake of the caller's.

use std::path::Path;

use cognate_engine::sibling::Xid;
use cognate_engine::storage::{Log, LogOptions};
use cognate_engine::{Database, Error, Options, TreeId};
use cognate_env::sim::{Loss, SimDisk};
use cognate_env::{Disk, SplitMix};

use super::support::{Seed, all, begin, in_simulation, seeds, value, write};

/// The engine's own trees, whose rows are written here as nobody else may.
const PREPARED_TREE: TreeId = TreeId::MAX - 1;
const FAMILIES_TREE: TreeId = TreeId::MAX - 2;
const COLLECTED_TREE: TreeId = TreeId::MAX - 3;

fn log_options() -> LogOptions {
    LogOptions { prepare: false, idle_mark: None, ..LogOptions::default() }
}

/// The payloads of the log of a database that was not closed.
fn payloads(disk: &SimDisk) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let log = Log::open(disk.handle(), Path::new("data/log"), 0, log_options(), &mut |_, payload| {
        found.push(payload.to_vec());
        Ok(())
    });
    drop(log.unwrap());
    found
}

/// A database whose log consists of these payloads, and what comes of opening it.
fn opened(payloads: &[&[u8]]) -> Result<Database, Error> {
    let disk = SimDisk::new(1);
    let log = Log::open(disk.handle(), Path::new("data/log"), 0, log_options(), &mut |_, _| Ok(())).unwrap();
    // Each record is a batch of its own, so that its place does not depend on what a batch happened
    // to catch.
    for payload in payloads {
        let csn = log.append(&[payload]).unwrap();
        log.wait_durable(csn).wait().unwrap();
    }
    log.close().unwrap();
    drop(log);
    Database::open(Options { disk: disk.handle(), ..Options::new("data") })
}

/// File name and offset of the damage.
fn place<T: std::fmt::Debug>(result: Result<T, Error>) -> (String, u64) {
    match result {
        Err(Error::Corrupt { file, offset, .. }) => {
            (file.file_name().unwrap().to_string_lossy().into_owned(), offset)
        }
        other => panic!("{other:?} is not named as damage"),
    }
}

const FIRST_SEGMENT: &str = "00000000000000000001.log";

/// Commits of several kinds: rows, a deletion, a dropped tree, and a prepared transaction with its
/// decision.
fn sample() -> Vec<Vec<u8>> {
    let disk = SimDisk::new(1);
    let database = in_simulation(&disk);
    write(&database, 7, &[("a", Some("1")), ("b", Some("2"))]);
    write(&database, 7, &[("a", None)]);
    let mut t = begin(&database);
    t.put(7, b"c", value("3")).unwrap();
    t.prepare("one", value("note")).unwrap();
    database.commit_prepared("one").unwrap();
    let mut t = begin(&database);
    t.drop_tree(7);
    t.put(8, b"d", value("4")).unwrap();
    database.wait_durable(t.commit().unwrap().csn).wait().unwrap();
    disk.restart(Loss::Process);
    drop(database);
    payloads(&disk)
}

/// No checkpoint has been written yet, whose watermark would tell.
#[test]
fn a_database_without_its_log_is_damage() {
    let disk = SimDisk::new(1);
    let open = || Database::open(Options { disk: disk.handle(), ..Options::new("data") });
    let database = open().unwrap();
    write(&database, 7, &[("a", Some("1"))]);
    disk.restart(Loss::Process);
    drop(database);
    for (path, _) in disk.files() {
        if path.parent() == Some(Path::new("data/log")) {
            disk.remove(&path).unwrap();
        }
    }
    for _ in 0..2 {
        assert_eq!(place(open()), ("log".to_owned(), 0));
    }
}

/// The base store is there before the log is.
#[test]
fn a_first_opening_that_ends_anywhere_leaves_no_damage() {
    for at in 0.. {
        let disk = SimDisk::new(at);
        let open = || Database::open(Options { disk: disk.handle(), ..Options::new("data") });
        disk.power_off_after(at);
        let database = open();
        let is_whole = database.is_ok() && !disk.is_off();
        disk.restart(if at % 2 == 0 { Loss::Power } else { Loss::Process });
        drop(database);
        let database = open().unwrap_or_else(|error| panic!("power off at {at}: {error}"));
        write(&database, 7, &[("a", Some("1"))]);
        if is_whole {
            return;
        }
    }
}

#[test]
fn a_record_that_is_cut_off_is_damage_with_its_place() {
    let sample = sample();
    assert!(sample.len() >= 5, "{}", sample.len());
    for (number, whole) in sample.iter().enumerate() {
        let before: Vec<&[u8]> = sample[..number].iter().map(Vec::as_slice).collect();
        for end in 0..whole.len() {
            let (file, offset) = place(opened(&[&before[..], &[&whole[..end]]].concat()));
            assert_eq!(file, FIRST_SEGMENT);
            assert!(offset >= 64, "behind the header, not at {offset}");
        }
        let longer = [&whole[..], &[0]].concat();
        assert_eq!(place(opened(&[&before[..], &[&longer]].concat())).0, FIRST_SEGMENT);
    }
    let all: Vec<&[u8]> = sample.iter().map(Vec::as_slice).collect();
    assert!(opened(&all).is_ok());
}

/// The offset is the record's own.
#[test]
fn the_offset_of_a_record_is_told() {
    let (good, bad) = (sample()[0].clone(), b"\xffnonsense".to_vec());
    let (_, first) = place(opened(&[&bad]));
    let (_, second) = place(opened(&[&good, &bad]));
    let (_, third) = place(opened(&[&good, &good, &bad]));
    assert!(first < second && second < third, "{first} {second} {third}");
}

#[test]
fn a_flipped_bit_is_damage_or_harmless() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut random = SplitMix::new(seed);
        let mut sample = sample();
        let number = random.below(sample.len() as u64) as usize;
        let at = random.below(sample[number].len() as u64) as usize;
        sample[number][at] ^= 1 << random.below(8);
        let flipped: Vec<&[u8]> = sample.iter().map(Vec::as_slice).collect();
        match opened(&flipped) {
            Ok(_) | Err(Error::Corrupt { .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
}

fn with_row(tree: TreeId, key: &[u8], row: &str) -> (SimDisk, Database) {
    let disk = SimDisk::new(3);
    let database = in_simulation(&disk);
    write(&database, 7, &[("a", Some("1"))]);
    let mut t = begin(&database);
    t.put(tree, key, value(row)).unwrap();
    database.wait_durable(t.commit().unwrap().csn).wait().unwrap();
    (disk, database)
}

#[test]
fn a_prepared_transaction_that_cannot_be_read_is_damage_of_the_log_or_of_a_run() {
    for is_checkpointed in [false, true] {
        let (disk, database) = with_row(PREPARED_TREE, &77u64.to_be_bytes(), "nonsense");
        if is_checkpointed {
            database.checkpoint().unwrap();
        }
        drop(database);
        let (file, offset) = place(Database::open(Options { disk: disk.handle(), ..Options::new("data") }));
        assert_eq!(file.ends_with(".log"), !is_checkpointed, "{file}");
        assert!(offset > 0);
    }
}

#[test]
fn a_family_that_cannot_be_read_is_damage_and_the_rest_goes_on() {
    for (tree, key, name) in [
        (FAMILIES_TREE, &b"x\0"[..], "x"),
        (FAMILIES_TREE, b"me/1\0", "me/1"),
        (COLLECTED_TREE, b"cme", "me/1"),
    ] {
        for is_checkpointed in [false, true] {
            let (_disk, database) = with_row(tree, key, "\u{9}nonsense");
            if is_checkpointed {
                database.checkpoint().unwrap();
            }
            let (file, offset) = place(database.family(&Xid::new(name).unwrap()));
            assert_eq!(file.ends_with(".log"), !is_checkpointed, "{file}");
            assert!(offset > 0, "{file}");
            assert_eq!(all(&begin(&database), 7), "a=1");
        }
    }
}

#[test]
fn the_place_of_a_row_is_found_in_the_log_and_in_the_base() {
    let (_disk, database) = with_row(8, b"k", "v");
    let of = |database: &Database| database.place_of(8, b"k", database.visible()).expect("it is there");
    let (file, _) = of(&database);
    assert!(file.ends_with(FIRST_SEGMENT), "{}", file.display());
    assert_eq!(database.place_of(8, b"none", database.visible()), None);
    database.checkpoint().unwrap();
    let (file, offset) = of(&database);
    assert!(file.starts_with("data/base") && offset > 0, "{} {offset}", file.display());
}
