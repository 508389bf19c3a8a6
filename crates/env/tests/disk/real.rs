//! The real disk keeps the promises of the trait as far as one process can see.

use std::io;

use cognate_env::{Disk, OpenMode, RealDisk};

#[test]
fn files_are_written_read_renamed_listed_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let disk = RealDisk;
    let deep = folder.path().join("a/b/c");
    disk.create_dir_all(&deep).unwrap();
    disk.create_dir_all(&deep).unwrap();
    let path = deep.join("one");
    let file = disk.open(&path, OpenMode::CreateNew).unwrap();
    assert_eq!(disk.open(&path, OpenMode::CreateNew).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    file.write_all_at(b"hello", 3).unwrap();
    assert_eq!(file.append(b"!").unwrap(), 8);
    file.sync_data().unwrap();
    let mut buffer = [9; 12];
    assert_eq!(file.read_up_to(&mut buffer, 0).unwrap(), 9);
    assert_eq!(&buffer[..9], b"\0\0\0hello!");
    assert_eq!(file.read_exact_at(&mut buffer, 0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    file.set_len(4).unwrap();
    assert_eq!(file.len().unwrap(), 4);
    disk.rename(&path, &deep.join("two")).unwrap();
    disk.sync_dir(&deep).unwrap();
    assert_eq!(disk.list(&deep).unwrap(), ["two"]);
    assert!(disk.list(&folder.path().join("a")).unwrap().is_empty());
    disk.remove(&deep.join("two")).unwrap();
    assert!(!disk.exists(&deep.join("two")).unwrap());
    let room = disk.room(&deep);
    assert!(room.is_some_and(|room| room.total > 0 && room.free <= room.total), "{room:?}");
    assert_eq!(disk.room(&deep.join("two")), None);
}

/// The opening of a pipe would wait for ever.
#[test]
fn what_is_no_plain_file_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, inner) = (folder.path().join("pipe"), folder.path().join("inner"));
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    RealDisk.create_dir_all(&inner).unwrap();
    drop(RealDisk.open(&folder.path().join("plain"), OpenMode::CreateNew).unwrap());
    for path in [&pipe, &inner] {
        for mode in [OpenMode::Read, OpenMode::ReadWrite, OpenMode::Truncate] {
            assert!(RealDisk.open(path, mode).is_err(), "{mode:?} of {}", path.display());
        }
    }
    assert_eq!(RealDisk.list_others(folder.path()).unwrap(), ["inner", "pipe"]);
}

#[test]
fn the_lock_is_exclusive_and_ends_with_its_holder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    let held = RealDisk.lock(&path).unwrap();
    assert_eq!(RealDisk.lock(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(held);
    RealDisk.lock(&path).unwrap();
}
