//! The disk as the storage engine sees it.
//!
//! Promises a backend makes, and nothing more:
//! - a write is readable at once, but survives a crash only after [`File::sync_data`] on that file
//!   returned `Ok`;
//! - a file's creation, renaming or removal survives a crash only after [`Disk::sync_dir`] on its
//!   folder returned `Ok`;
//! - a crash may keep any subset of the 512-byte sectors of unsynced writes, and any prefix of the
//!   unsynced changes of a folder;
//! - a write that the end of the process or a full disk interrupts ends with a whole sector;
//! - after a failed `sync_data` nothing is known about the unsynced bytes, and a second `sync_data`
//!   proves nothing.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Bytes that reach the medium together or not at all.
pub const SECTOR: u64 = 512;

/// Address, offset and length of what [`File::write_durable`] writes fastest are multiples of this.
pub const DIRECT: usize = 4096;

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Must exist; reading only.
    Read,
    /// Must exist; reading and writing.
    ReadWrite,
    /// Must not exist; reading and writing.
    CreateNew,
    /// Created if missing, emptied if present; reading and writing.
    Truncate,
}

/// An open file. All methods may be called from several threads at once.
pub trait File: Send + Sync + fmt::Debug {
    /// Reads up to `buffer.len()` bytes at `offset`; 0 at or past the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `data` at `offset`, extending the file if needed (a gap reads as zeros).
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()>;

    /// Makes the file's bytes and length durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Writes all of `data` at `offset` and makes it durable: [`File::write_all_at`] and
    /// [`File::sync_data`] in one.
    ///
    /// If address, offset and length are multiples of [`DIRECT`], a backend may go past the
    /// operating system's cache, in one call.
    fn write_durable(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(data, offset)?;
        self.sync_data()
    }

    /// Cuts or extends (with zeros) the file to `length` bytes.
    fn set_len(&self, length: u64) -> io::Result<()>;

    /// The file's length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buffer` from `offset`; `UnexpectedEof` if the file ends before.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let got = self.read_up_to(buffer, offset)?;
        if got == buffer.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Fills as much of `buffer` from `offset` as the file has; returns the count of bytes read.
    fn read_up_to(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes `data` at the current end and returns the offset where it begins. Not atomic between
    /// callers.
    fn append(&self, data: &[u8]) -> io::Result<u64> {
        let offset = self.len()?;
        self.write_all_at(data, offset)?;
        Ok(offset)
    }
}

/// How much a file system holds, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// What may still be written.
    pub free: u64,
    /// All of it, used or not.
    pub total: u64,
}

/// Held as long as it lives: no other process (or other holder in this one) gets the same lock.
pub trait Lock: Send + Sync + fmt::Debug {}

/// A file system, seen through the operations the engine needs.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens a file. What is there and no plain file (a folder, a pipe, a device) is an error, and
    /// nobody is waited for.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;

    /// Renames a file, replacing `to` if it exists. Durable after `sync_dir` of the folder.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Durable after `sync_dir` of the folder.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Names of the files in a folder, sorted; folders inside it are left out.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Names of what is in a folder and no plain file, sorted: folders, pipes, devices.
    fn list_others(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Whether a file or folder exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Creates a folder and those above it, durably.
    fn create_dir_all(&self, folder: &Path) -> io::Result<()>;

    /// Makes creations, renames and removals in a folder durable.
    fn sync_dir(&self, folder: &Path) -> io::Result<()>;

    /// The room in the file system of a folder; `None` if that is not known, or has no bound.
    fn room(&self, _folder: &Path) -> Option<Room> {
        None
    }

    /// Takes the exclusive lock named by a file, creating it if missing. `WouldBlock` if somebody
    /// else holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>>;
}
