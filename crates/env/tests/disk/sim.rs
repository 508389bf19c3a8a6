//! The simulated disk loses exactly what the trait's promises allow it to lose.

use std::path::Path;

use cognate_env::sim::{Loss, SimDisk};
use cognate_env::{Disk, OpenMode, Room};

const FOLDER: &str = "data";

fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_dir_all(Path::new(FOLDER)).unwrap();
    disk
}

fn path(name: &str) -> std::path::PathBuf {
    Path::new(FOLDER).join(name)
}

#[test]
fn flushed_bytes_and_names_survive_power_loss_and_others_vary() {
    let mut outcomes = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let disk = disk(seed);
        let file = disk.open(&path("a"), OpenMode::CreateNew).unwrap();
        file.write_all_at(&[1; 2000], 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(Path::new(FOLDER)).unwrap();
        file.write_all_at(&[2; 1000], 1024).unwrap();
        disk.rename(&path("a"), &path("b")).unwrap();
        disk.restart(Loss::Power);
        assert!(file.read_at(&mut [0], 0).is_err(), "handles die with the process");
        let names = disk.list(Path::new(FOLDER)).unwrap();
        assert_eq!(names.len(), 1, "a rename is atomic");
        let bytes = disk.files().remove(0).1;
        assert!(bytes.len() >= 2000 && bytes[..1024].iter().all(|&byte| byte == 1), "seed {seed}");
        for sector in bytes.chunks(512) {
            assert!(
                sector.iter().all(|byte| *byte == sector[0]) || sector.contains(&2) || sector.contains(&0)
            );
        }
        outcomes.insert((names, bytes));
    }
    assert!(outcomes.len() > 8, "{}", outcomes.len());
}

#[test]
fn the_end_of_the_process_loses_nothing_written() {
    let disk = disk(1);
    let file = disk.open(&path("a"), OpenMode::CreateNew).unwrap();
    file.write_all_at(b"hello", 0).unwrap();
    let lock = disk.lock(&path("lock")).unwrap();
    assert!(disk.lock(&path("lock")).is_err());
    disk.restart(Loss::Process);
    assert_eq!(disk.files(), [(path("a"), b"hello".to_vec())]);
    let again = disk.lock(&path("lock")).unwrap();
    drop(lock);
    assert!(disk.lock(&path("lock")).is_err(), "a dead holder does not free a new one's lock");
    drop(again);
    disk.lock(&path("lock")).unwrap();
}

#[test]
fn a_failed_flush_leaves_bytes_that_no_later_flush_writes() {
    let mut lost = 0;
    for seed in 0..50 {
        let disk = disk(seed);
        let file = disk.open(&path("a"), OpenMode::CreateNew).unwrap();
        disk.sync_dir(Path::new(FOLDER)).unwrap();
        file.write_all_at(&[7; 600], 0).unwrap();
        disk.fail_sync_after(0);
        assert!(file.sync_data().is_err());
        file.sync_data().unwrap();
        disk.restart(Loss::Power);
        lost += usize::from(disk.files()[0].1 != [7; 600]);
    }
    assert!(lost > 10, "{lost}");
}

#[test]
fn a_full_disk_and_unreadable_files_answer_so() {
    let disk = disk(3);
    disk.set_quota(Some(1000));
    let file = disk.open(&path("a"), OpenMode::CreateNew).unwrap();
    file.write_all_at(&[1; 900], 0).unwrap();
    assert_eq!(file.write_all_at(&[1; 200], 900).unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    file.write_all_at(&[2; 1000], 0).unwrap();
    assert_eq!(disk.used_bytes(), 1000);
    assert_eq!(disk.room(&path("")), Some(Room { free: 0, total: 1000 }));
    disk.set_quota(None);
    assert_eq!(disk.room(&path("")), None);
    file.write_all_at(&[1; 200], 1000).unwrap();
    disk.fail_reads(&path("a"));
    assert!(file.read_at(&mut [0], 0).is_err());
    disk.restart(Loss::Process);
    disk.flip(&path("a"), 5, 0x80);
    assert_eq!(disk.files()[0].1[5], 0x82);
}

#[test]
fn the_same_seed_gives_the_same_remains() {
    let remains = |seed| {
        let disk = disk(seed);
        for name in ["a", "b", "c"] {
            let file = disk.open(&path(name), OpenMode::CreateNew).unwrap();
            file.write_all_at(&[9; 5000], 0).unwrap();
        }
        disk.sync_dir(Path::new(FOLDER)).unwrap();
        disk.power_off_after(0);
        disk.remove(&path("a")).unwrap_err();
        assert!(disk.is_off() && disk.open(&path("b"), OpenMode::Read).is_err());
        disk.restart(Loss::Power);
        disk.files()
    };
    assert_eq!(remains(11), remains(11));
    assert_ne!(remains(11), remains(12));
}

/// A thread of a process that has ended may still run in a test. What it does with names must not
/// touch the files of the process that came after it.
#[test]
fn who_has_ended_changes_nothing() {
    let disk = disk(1);
    let (before, folder) = (disk.handle(), Path::new(FOLDER));
    disk.restart(Loss::Process);
    let now = disk.handle();
    now.open(&path("run"), OpenMode::CreateNew).unwrap().write_all_at(&[1; 100], 0).unwrap();
    assert!(before.open(&path("run"), OpenMode::Truncate).is_err());
    assert!(before.open(&path("other"), OpenMode::CreateNew).is_err());
    assert!(before.rename(&path("run"), &path("other")).is_err());
    assert!(before.remove(&path("run")).is_err());
    assert!(before.sync_dir(folder).is_err() && before.list(folder).is_err());
    assert!(before.lock(&path("lock")).is_err());
    assert_eq!(disk.files(), [(path("run"), vec![1; 100])]);
}
