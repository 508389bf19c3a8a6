//! Defects of the engine's own: a thread of the log, or of the checkpoints, that panics leaves a
//! database that says so to every commit, and goes on with readers, as after a failed flush.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cognate_engine::{Database, Error, Options, Value};
use cognate_env::sim::{Loss, SimDisk};
use cognate_env::{Clock, Disk, File, Lock, OpenMode, RealClock};

use super::support::{all, begin, value, write};

/// A clock that panics in the log thread, once it is armed.
#[derive(Debug, Default)]
struct Trap {
    clock: RealClock,
    armed: AtomicBool,
}

impl Clock for Trap {
    fn wall_us(&self) -> i64 {
        self.clock.wall_us()
    }

    fn monotonic(&self) -> Duration {
        let here = std::thread::current().name() == Some("log");
        assert!(!here || !self.armed.load(Ordering::Acquire), "the planted defect");
        self.clock.monotonic()
    }
}

fn is_poisoned_by_a_defect(error: &Error) -> bool {
    matches!(error, Error::LogPoisoned { cause } if matches!(**cause, Error::Defect(_)))
}

#[test]
fn a_log_thread_that_panics_answers_every_commit_with_a_poisoned_log() {
    for early in [true, false] {
        let (disk, trap) = (SimDisk::new(1), Arc::new(Trap::default()));
        let options = || Options {
            disk: disk.handle(),
            clock: Arc::<Trap>::clone(&trap),
            early_lock_release: early,
            ..Options::new("data")
        };
        let database = Database::open(options()).unwrap();
        write(&database, 7, &[("a", Some("1"))]);
        database.wait_durable(database.certified()).wait().unwrap();
        trap.armed.store(true, Ordering::Release);

        // The one that the thread falls over: it has its number, and is never durable.
        let mut t = begin(&database);
        t.put(7, b"b", value("2")).unwrap();
        let commit = t.commit().unwrap();
        let error = commit.durable.wait().unwrap_err();
        assert!(is_poisoned_by_a_defect(&error), "{error}");

        // All later ones, whatever they are.
        for _ in 0..3 {
            let mut t = begin(&database);
            t.put(7, b"c", value("3")).unwrap();
            let error = t.commit().expect_err("the log is closed");
            assert!(is_poisoned_by_a_defect(&error), "{error}");
            let mut t = begin(&database);
            t.put(7, b"c", value("3")).unwrap();
            let error = t.prepare("later", value("")).expect_err("the log is closed");
            assert!(is_poisoned_by_a_defect(&error), "{error}");
        }
        assert!(database.is_poisoned());
        assert!(is_poisoned_by_a_defect(&database.statistics().log_poisoned.expect("it says so")));
        assert_eq!(all(&begin(&database), 7), "a=1", "readers go on below what is lost");
        assert!(is_poisoned_by_a_defect(&database.close().unwrap_err()));

        drop(database);
        trap.armed.store(false, Ordering::Release);
        disk.restart(Loss::Power);
        let database = Database::open(options()).unwrap();
        assert_eq!(all(&begin(&database), 7), "a=1");
        write(&database, 7, &[("b", Some("2"))]);
        database.wait_durable(database.certified()).wait().unwrap();
        assert_eq!(all(&begin(&database), 7), "a=1 b=2");
    }
}

/// A disk that panics in the thread of the checkpoints, once it is armed.
#[derive(Debug)]
struct TrapDisk {
    below: Arc<dyn Disk>,
    armed: AtomicBool,
}

impl Disk for TrapDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let here = std::thread::current().name() == Some("checkpoint");
        assert!(!here || !self.armed.load(Ordering::Acquire), "the planted defect");
        self.below.open(path, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below.rename(from, to)
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

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.below.lock(path)
    }
}

/// Who writes while memory is full waits for the next checkpoint, which will not come.
#[test]
fn a_checkpoint_that_panics_keeps_nobody_waiting() {
    for early in [true, false] {
        let disk = SimDisk::new(1);
        let trap = Arc::new(TrapDisk { below: disk.handle(), armed: AtomicBool::new(false) });
        let database = Database::open(Options {
            disk: Arc::<TrapDisk>::clone(&trap),
            early_lock_release: early,
            ..Options::new("data").memory(1 << 20)
        })
        .unwrap();
        write(&database, 7, &[("a", Some("1"))]);
        database.wait_durable(database.certified()).wait().unwrap();
        trap.armed.store(true, Ordering::Release);

        let content = Value::from(vec![7; 10_000]);
        let commit = |number: u32| {
            let mut t = begin(&database);
            t.put(8, &number.to_be_bytes(), content.clone())?;
            t.commit()?.durable.wait()
        };
        let error = (0..).find_map(|number| commit(number).err()).unwrap();
        assert!(is_poisoned_by_a_defect(&error), "{error}");
        assert!(database.is_poisoned());
        assert_eq!(all(&begin(&database), 7), "a=1", "readers go on");
        assert!(is_poisoned_by_a_defect(&database.close().unwrap_err()));

        drop(database);
        trap.armed.store(false, Ordering::Release);
        disk.restart(Loss::Power);
        let database = Database::open(Options { disk: disk.handle(), ..Options::new("data") }).unwrap();
        assert_eq!(all(&begin(&database), 7), "a=1");
        write(&database, 7, &[("b", Some("2"))]);
        database.wait_durable(database.certified()).wait().unwrap();
    }
}
