//! What of a disk is left to commits.
//!
//! A log that cannot grow accepts no commit until the next start, and a checkpoint that finds no
//! room cannot cut it. So what may as well fail or wait (merges of runs, bulk loads, rows that a
//! statement does not hold in memory) leaves a part of the disk alone. Where the disk does not say
//! how much room it has, it goes on until a write fails.

use std::path::Path;

use cognate_env::{Disk, Room};

use crate::Error;

/// The part that is left, at most.
const RESERVE_BYTES: u64 = 256 << 20;
/// It is at most one of so many parts of the disk: small ones are to be used, too.
const PARTS: u64 = 20;

/// Bytes that may be written to the disk of `folder` without touching what is left to commits.
pub(crate) fn room(disk: &dyn Disk, folder: &Path) -> u64 {
    let beyond = |room: Room| room.free.saturating_sub(RESERVE_BYTES.min(room.total / PARTS));
    disk.room(folder).map_or(u64::MAX, beyond)
}

/// Fails if `bytes` more, in `file`, would touch it.
///
/// # Errors
/// `DiskFull`.
pub(crate) fn check(disk: &dyn Disk, file: &Path, bytes: u64, operation: &'static str) -> Result<(), Error> {
    match bytes <= room(disk, file.parent().unwrap_or(file)) {
        true => Ok(()),
        false => Err(Error::DiskFull { file: file.to_path_buf(), operation }),
    }
}

#[cfg(test)]
mod tests {
    use cognate_env::sim::SimDisk;

    use super::*;

    #[test]
    fn a_part_of_a_disk_with_a_bound_is_left() {
        let disk = SimDisk::new(1);
        let path = Path::new("base/file");
        assert_eq!(room(&disk, Path::new("base")), u64::MAX);
        disk.set_quota(Some(1000));
        assert_eq!(room(&disk, Path::new("base")), 950);
        assert!(check(&disk, path, 950, "writing").is_ok());
        let refused = check(&disk, path, 951, "writing");
        assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
        disk.set_quota(Some(1 << 40));
        assert_eq!(room(&disk, Path::new("base")), (1 << 40) - RESERVE_BYTES);
    }
}
