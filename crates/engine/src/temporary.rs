//! Temporary files: what a statement cannot hold in memory.
//!
//! They lie in a folder of their own within the database's, are never synced, and go when their
//! holder drops them. What a crash leaves of them is removed when the database is opened again: no
//! one could read it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cognate_env::{Disk, File, OpenMode};

use crate::Error;
use crate::storage::reserve;
use crate::sync::atomic::{AtomicU64, Ordering};

/// After so many bytes a file asks anew whether the disk has room for it.
const ASK_BYTES: u64 = 256 << 10;

/// The folder of temporary files.
pub(crate) struct Temporary {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    next: AtomicU64,
}

impl Temporary {
    /// Removes what an earlier process has left. The folder is made with the first file.
    pub(crate) fn open(disk: Arc<dyn Disk>, path: &Path) -> Result<Temporary, Error> {
        let folder = path.join("temporary");
        let failed = |cause| Error::io("clearing", &folder, cause);
        if disk.exists(&folder).map_err(failed)? {
            for name in disk.list(&folder).map_err(failed)? {
                match disk.remove(&folder.join(name)) {
                    // Its holder has dropped it meanwhile: one from before, in this process.
                    Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
                    removed => removed.map_err(failed)?,
                }
            }
        }
        Ok(Temporary { disk, folder, next: AtomicU64::new(1) })
    }

    /// A new, empty file.
    pub(crate) fn create(&self) -> Result<TemporaryFile, Error> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(number.to_string());
        let open = || self.disk.open(&path, OpenMode::CreateNew);
        let file = match open() {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                let made = self.disk.create_dir_all(&self.folder);
                made.map_err(|cause| Error::io("creating", &self.folder, cause))?;
                open()
            }
            opened => opened,
        };
        let file = file.map_err(|cause| Error::io("creating", &path, cause))?;
        Ok(TemporaryFile { disk: Arc::clone(&self.disk), path, file, length: 0 })
    }
}

/// A file that is gone when this is dropped.
#[derive(Debug)]
pub struct TemporaryFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Arc<dyn File>,
    length: u64,
}

impl TemporaryFile {
    /// Writes bytes at the end; where they begin. What of the disk is left to commits is not for
    /// them.
    ///
    /// # Errors
    /// `DiskFull`, `Io`. The bytes are not there then.
    pub fn append(&mut self, bytes: &[u8]) -> Result<u64, Error> {
        let (at, end) = (self.length, self.length + bytes.len() as u64);
        if at.div_ceil(ASK_BYTES) < end.div_ceil(ASK_BYTES) {
            reserve::check(self.disk.as_ref(), &self.path, ASK_BYTES.max(end - at), "writing")?;
        }
        let written = self.file.write_all_at(bytes, at);
        written.map_err(|cause| Error::io("writing", &self.path, cause))?;
        self.length = end;
        Ok(at)
    }

    /// Fills `bytes` from a place.
    ///
    /// # Errors
    /// `Io`, also if the file ends before.
    pub fn read(&self, bytes: &mut [u8], at: u64) -> Result<(), Error> {
        let read = self.file.read_exact_at(bytes, at);
        read.map_err(|cause| Error::io("reading", &self.path, cause))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // If that fails it goes when the database is opened the next time.
        let _ = self.disk.remove(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use cognate_env::sim::SimDisk;

    use super::*;

    #[test]
    fn a_file_leaves_a_part_of_the_disk_to_commits() {
        let disk = SimDisk::new(1);
        let temporary = Temporary::open(disk.handle(), Path::new("data")).unwrap();
        disk.set_quota(Some(1_000_000));
        let mut file = temporary.create().unwrap();
        let refused = loop {
            if let Err(error) = file.append(&[1; 16 << 10]) {
                break error;
            }
        };
        assert!(matches!(refused, Error::DiskFull { .. }), "{refused}");
        let used = disk.used_bytes();
        assert!((500_000..=950_000).contains(&used), "{used}");
        drop(file);
        assert_eq!(disk.used_bytes(), 0);
    }
}
