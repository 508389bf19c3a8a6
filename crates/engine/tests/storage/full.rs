//! The base store on a disk that is full, or almost: who gives back what, and who may take the last
//! of it.

use std::path::PathBuf;

use cognate_engine::storage::Base;
use cognate_engine::{Error, Key, TreeId, Value};
use cognate_env::sim::{Loss, SimDisk};
use cognate_env::{Disk, OpenMode};

use super::crash::{open_base, read_all};

/// A full disk has no room for the manifest that would make room.
#[test]
fn a_load_that_could_not_be_discarded_goes_with_a_later_manifest() {
    for tried_again in [true, false] {
        let disk = SimDisk::new(1);
        let base = open_base(&disk).unwrap();
        let rows = [(1, Key::from_static(b"key"), Some(Value::from_static(b"value")))];
        let load = base.stage(&mut rows.into_iter()).unwrap().unwrap();
        disk.set_quota(Some(disk.used_bytes()));
        let refused = base.discard(std::slice::from_ref(&load));
        assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
        assert!(base.discard_unwanted().is_err(), "the disk is still full");
        drop(load);
        disk.set_quota(None);
        match tried_again {
            true => base.discard_unwanted().unwrap(),
            false => base.apply(1, &mut std::iter::empty(), &[]).unwrap(),
        }
        let runs = disk.files().into_iter().filter(|(path, _)| !path.ends_with("MANIFEST"));
        assert_eq!(runs.map(|(path, _)| path).collect::<Vec<_>>(), Vec::<PathBuf>::new());
        drop(base);
        assert!(read_all(&open_base(&disk).unwrap()).is_empty());
    }
}

/// The load itself may be what fills the disk.
#[test]
fn a_load_that_fills_the_disk_is_given_up_without_a_manifest() {
    let stage = |base: &Base| {
        let rows = [(1, Key::from_static(b"key"), Some(Value::from_static(b"value")))];
        base.stage(&mut rows.into_iter()).unwrap().unwrap().number()
    };
    let runs = |disk: &SimDisk| {
        let files = disk.files().into_iter();
        files.filter(|(path, _)| path.extension().is_some_and(|extension| extension == "run")).count()
    };
    let disk = SimDisk::new(1);
    let base = open_base(&disk).unwrap();
    stage(&base);
    disk.set_quota(Some(disk.used_bytes()));
    base.discard_unattached(&[]).unwrap();
    assert_eq!(disk.files().len(), 1, "the manifest alone");

    for (seed, loss) in [(1, Loss::Process), (2, Loss::Power), (3, Loss::Power), (4, Loss::Power)] {
        let disk = SimDisk::new(seed);
        let base = open_base(&disk).unwrap();
        let number = stage(&base);
        disk.set_quota(Some(0));
        let refused = base.discard_unattached(&[]);
        assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
        assert_eq!(runs(&disk), 0, "it makes room all the same");
        drop(base);
        disk.restart(loss);
        let base = open_base(&disk).unwrap();
        if runs(&disk) == 0 {
            let missed = base.attach(&[number], 1);
            assert!(matches!(missed, Err(Error::Corrupt { .. })), "{missed:?}");
        }
        base.discard_unattached(&[]).unwrap();
        base.discard_unwanted().unwrap();
        assert!(read_all(&base).is_empty());
        drop(base);
        disk.restart(Loss::Power);
        assert!(read_all(&open_base(&disk).unwrap()).is_empty());
        assert_eq!(runs(&disk), 0);
    }
}

/// Until recovery has found that nobody attaches it, no manifest leaves it out: the next start
/// would remove what it does not name.
#[test]
fn a_load_whose_file_was_mislaid_is_there_once_it_is_put_back() {
    let disk = SimDisk::new(1);
    let base = open_base(&disk).unwrap();
    let load = base.stage(&mut thousands(0..3)).unwrap().unwrap();
    let number = load.number();
    drop((load, base));
    let is_run = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "run");
    let (path, bytes) = disk.files().into_iter().find(|(path, _)| is_run(path)).unwrap();
    disk.remove(&path).unwrap();
    let base = open_base(&disk).unwrap();
    base.apply(1, &mut std::iter::empty(), &[]).unwrap();
    let missed = base.attach(&[number], 2);
    assert!(matches!(missed, Err(Error::Corrupt { .. })), "{missed:?}");
    // A prepared transaction has it.
    base.discard_unattached(&[number]).unwrap();
    base.apply(1, &mut std::iter::empty(), &[]).unwrap();
    drop(base);
    disk.open(&path, OpenMode::CreateNew).unwrap().write_all_at(&bytes, 0).unwrap();
    let base = open_base(&disk).unwrap();
    base.attach(&[number], 2).unwrap();
    assert_eq!(read_all(&base).len(), 3);
}

/// Rows of a thousand bytes, the keys of which are those of `numbers`.
fn thousands(numbers: std::ops::Range<u64>) -> impl Iterator<Item = (TreeId, Key, Option<Value>)> {
    let content = Value::from(vec![7; 1000]);
    numbers.map(move |number| (1, Key::copy_from_slice(&number.to_be_bytes()), Some(content.clone())))
}

/// A merge needs as much room as all that it merges, and would find out at the end of it.
#[test]
fn a_merge_for_which_there_is_no_room_is_not_begun() {
    let disk = SimDisk::new(1);
    let base = open_base(&disk).unwrap();
    for watermark in 1..=4 {
        base.apply(watermark, &mut thousands(watermark * 100..watermark * 100 + 100), &[]).unwrap();
    }
    disk.set_quota(Some(disk.used_bytes() + 150_000));
    let operations = disk.operations();
    let refused = base.compact_step();
    assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
    assert_eq!(disk.operations(), operations, "nothing was written");
    disk.set_quota(None);
    assert!(base.compact_step().unwrap());
    assert!(base.statistics().runs < 4);
    assert_eq!(read_all(&base).len(), 400);
}

/// The log has to grow, and it is checkpoints that cut it.
#[test]
fn a_load_leaves_the_last_of_a_disk_to_checkpoints() {
    let disk = SimDisk::new(1);
    let base = open_base(&disk).unwrap();
    let used = disk.used_bytes();
    disk.set_quota(Some(used + 1_000_000));
    let refused = base.stage(&mut thousands(0..950));
    assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
    assert_eq!(disk.used_bytes(), used, "it has given back what it wrote");
    base.apply(1, &mut thousands(0..950), &[]).unwrap();
    assert_eq!(read_all(&base).len(), 950);
}
