//! A log device with a flush time of its own choice, in real time: for experiments with a running
//! system.
//!
//! It stands before another disk. A flush of a *log file* (its name ends in `.log`) takes exactly
//! the device's latency instead of whatever the disk below would take, and the disk below is not
//! asked to flush: what such a log promises does not survive a power failure. Everything else
//! passes through, the flushes of tables included, as in the experiments of the PSSI paper (HPTS
//! 2011): there, too, only the log moved from the hard disk (a flush of about 78 ms) to the SSD
//! (2–3 ms).
//!
//! - *One queue.* A device does one flush at a time; the next begins when the one before has ended.
//! - *Precise.* The wait sleeps for most of the latency and spins for the last 50 µs at most, so
//!   that 2.5 ms are not 2.6.
//! - *Zero* means no flush at all: neither a wait nor a call to the disk below.
//! - *Preparing a segment is free.* The next segment is filled with zeros under another name,
//!   beside the log, and passes through; it becomes a log file when it is renamed, and that costs
//!   one flush, just as the header of a segment that is created under its final name does.
//!
//! Mutexes: `names`, then nothing; `busy` alone, for the time of a flush.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::disk::{Disk, File, Lock, OpenMode, Room};

/// The last part of a wait, for which a sleep would be too coarse.
const SPIN: Duration = Duration::from_micros(50);

/// A disk whose log files are on a device of their own. See the module's prose.
#[derive(Debug)]
pub struct LogDevice {
    below: Arc<dyn Disk>,
    queue: Arc<Queue>,
    /// Files open for writing that are no log files yet.
    names: Mutex<HashMap<PathBuf, Weak<AtomicBool>>>,
}

/// The device itself.
#[derive(Debug)]
struct Queue {
    latency: Duration,
    busy: Mutex<()>,
}

impl Queue {
    fn flush(&self) {
        if self.latency.is_zero() {
            return;
        }
        let _turn = self.busy.lock();
        let end = Instant::now() + self.latency;
        if let Some(most) = self.latency.checked_sub(SPIN) {
            std::thread::sleep(most);
        }
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    }
}

/// An open file; on the device as soon as it is a log file.
#[derive(Debug)]
struct DeviceFile {
    below: Arc<dyn File>,
    queue: Arc<Queue>,
    is_log: Arc<AtomicBool>,
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "log")
}

impl LogDevice {
    /// Puts the log files of `below` on a device whose every flush takes `latency`.
    pub fn new(below: Arc<dyn Disk>, latency: Duration) -> LogDevice {
        let queue = Arc::new(Queue { latency, busy: Mutex::new(()) });
        LogDevice { below, queue, names: Mutex::default() }
    }
}

impl Disk for LogDevice {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let below = self.below.open(path, mode)?;
        if mode == OpenMode::Read {
            return Ok(below);
        }
        let flag = Arc::new(AtomicBool::new(is_log(path)));
        if !is_log(path) {
            let mut names = self.names.lock();
            names.retain(|_, flag| flag.strong_count() > 0);
            names.insert(path.to_path_buf(), Arc::downgrade(&flag));
        }
        Ok(Arc::new(DeviceFile { below, queue: Arc::clone(&self.queue), is_log: flag }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below.rename(from, to)?;
        let flag = self.names.lock().remove(from);
        if is_log(to) {
            if let Some(flag) = flag.and_then(|flag| flag.upgrade()) {
                flag.store(true, Ordering::Release);
            }
            self.queue.flush();
        } else if let Some(flag) = flag {
            self.names.lock().insert(to.to_path_buf(), flag);
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.below.remove(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.below.list(folder)
    }

    fn list_others(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.below.list_others(folder)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.below.exists(path)
    }

    fn create_dir_all(&self, folder: &Path) -> io::Result<()> {
        self.below.create_dir_all(folder)
    }

    fn sync_dir(&self, folder: &Path) -> io::Result<()> {
        self.below.sync_dir(folder)
    }

    fn room(&self, folder: &Path) -> Option<Room> {
        self.below.room(folder)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.below.lock(path)
    }
}

impl File for DeviceFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.below.read_at(buffer, offset)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.below.write_all_at(data, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        if !self.is_log.load(Ordering::Acquire) {
            return self.below.sync_data();
        }
        self.queue.flush();
        Ok(())
    }

    fn write_durable(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if !self.is_log.load(Ordering::Acquire) {
            return self.below.write_durable(data, offset);
        }
        self.below.write_all_at(data, offset)?;
        self.queue.flush();
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.below.set_len(length)
    }

    fn len(&self) -> io::Result<u64> {
        self.below.len()
    }
}
