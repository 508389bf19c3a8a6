//! The real machine: the operating system's files, clocks and randomness.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::OFlags;

use crate::clock::Clock;
use crate::disk::{DIRECT, Disk, File, Lock, OpenMode, Room};
use crate::rng::Rng;

/// The operating system's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

#[derive(Debug)]
struct RealFile {
    file: fs::File,
    /// The same file, opened anew for durable writes past the cache when the first of them comes;
    /// `None` where the file system has no such.
    direct: OnceLock<Option<fs::File>>,
}

impl RealFile {
    fn new(file: fs::File) -> RealFile {
        RealFile { file, direct: OnceLock::new() }
    }

    #[cfg(target_os = "linux")]
    fn open_direct(&self) -> Option<fs::File> {
        use std::os::fd::AsRawFd;
        let flags = OFlags::DIRECT | OFlags::DSYNC;
        // By descriptor: the file may have another name by now.
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        fs::OpenOptions::new().write(true).custom_flags(flags.bits() as i32).open(path).ok()
    }

    #[cfg(not(target_os = "linux"))]
    fn open_direct(&self) -> Option<fs::File> {
        None
    }
}

/// The lock goes with the open file, so the operating system frees it even after `kill -9`.
#[derive(Debug)]
struct RealLock(#[allow(dead_code, reason = "held for its drop")] fs::File);

impl Lock for RealLock {}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        // The opening of a pipe would wait for somebody at its other end.
        options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
        match mode {
            OpenMode::Read => {}
            OpenMode::ReadWrite => {
                options.write(true);
            }
            OpenMode::CreateNew => {
                options.write(true).create_new(true);
            }
            OpenMode::Truncate => {
                options.write(true).create(true).truncate(true);
            }
        }
        let file = options.open(path)?;
        match file.metadata()?.is_file() {
            true => Ok(Arc::new(RealFile::new(file))),
            false => Err(io::Error::other("it is no plain file")),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn list_others(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            // Of a link, what it leads to; one that leads nowhere is an error where it is opened.
            let is_other = fs::metadata(entry.path()).is_ok_and(|found| !found.is_file());
            if is_other {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn create_dir_all(&self, folder: &Path) -> io::Result<()> {
        let mut missing: Vec<&Path> = Vec::new();
        let mut next = Some(folder);
        while let Some(path) = next.filter(|path| !path.as_os_str().is_empty()) {
            if path.try_exists()? {
                break;
            }
            missing.push(path);
            next = path.parent();
        }
        fs::create_dir_all(folder)?;
        for path in missing.into_iter().rev() {
            match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => self.sync_dir(parent)?,
                _ => self.sync_dir(Path::new("."))?,
            }
        }
        Ok(())
    }

    fn sync_dir(&self, folder: &Path) -> io::Result<()> {
        fs::File::open(folder)?.sync_all()
    }

    fn room(&self, folder: &Path) -> Option<Room> {
        let found = rustix::fs::statvfs(folder).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        // Some file systems say that they have nothing, since they have no bound or do not know.
        // Where it is true, a write finds out at once.
        let knows = bytes(found.f_blocks) > 0 && bytes(found.f_bfree) > 0;
        knows.then(|| Room { free: bytes(found.f_bavail), total: bytes(found.f_blocks) })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(RealLock(file))),
            Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

impl File for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write_durable(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let aligned = [data.as_ptr().addr(), data.len(), offset as usize].iter().all(|at| at % DIRECT == 0);
        if aligned && let Some(direct) = self.direct.get_or_init(|| self.open_direct()) {
            match direct.write_all_at(data, offset) {
                // The device wants another alignment. Nothing was promised yet, so the ordinary way
                // may begin anew.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                result => return result,
            }
        }
        self.file.write_all_at(data, offset)?;
        self.file.sync_data()
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

/// The operating system's clocks.
#[derive(Debug, Clone, Copy)]
pub struct RealClock {
    start: Instant,
}

impl Default for RealClock {
    fn default() -> RealClock {
        RealClock { start: Instant::now() }
    }
}

impl Clock for RealClock {
    fn wall_us(&self) -> i64 {
        match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |us| -us),
        }
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Unpredictable numbers, from the keys the standard library seeds its hash tables with. Not for
/// secrets.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealRng;

impl Rng for RealRng {
    fn next_u64(&self) -> u64 {
        RandomState::new().build_hasher().finish()
    }
}
