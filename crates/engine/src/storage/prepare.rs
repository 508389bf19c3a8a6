//! Prepares the next log segment beside the log: a file of zeros, flushed, so that no flush of a
//! commit has to write a file's metadata.
//!
//! States, one mutex: `Idle → Wanted → Ready → Idle`, with the writer asking and taking, the thread
//! here filling. It writes in portions with pauses, so that a log flush beside it waits for one
//! portion at most. If it fails (`Wanted → GivenUp`), the writer does without: the segment then
//! grows as it is written, and only the next one is prepared for again. Otherwise zeros would fill
//! an almost full device with each commit, and what little is left is the log's and the
//! checkpoints'.
//!
//! How large a segment is to be, the writer says each time: what is written here is written twice
//! to the medium, and with many logs beside each other all of it competes with their flushes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cognate_env::{Disk, File, OpenMode};

use crate::sync::thread::JoinHandle;
use crate::sync::{Condvar, Mutex, lower_thread_priority, thread};

/// Name of the prepared file. Its contents are never trusted after a restart.
pub const PREPARED: &str = "prepared";

const PORTION_BYTES: u64 = 1 << 20;
const PAUSE: Duration = Duration::from_millis(2);

#[derive(Debug)]
enum State {
    Idle,
    /// So many bytes.
    Wanted(u64),
    /// The file, and its length.
    Ready(Arc<dyn File>, u64),
    /// It could not be filled.
    GivenUp,
    Closing,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The thread and what it has ready.
#[derive(Debug)]
pub struct Preparer {
    shared: Arc<Shared>,
    disk: Arc<dyn Disk>,
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Preparer {
    /// Starts the thread.
    pub fn start(disk: &Arc<dyn Disk>, folder: &Path) -> io::Result<Preparer> {
        let shared = Arc::new(Shared { state: Mutex::new(State::Idle), changed: Condvar::new() });
        let path = folder.join(PREPARED);
        let thread = {
            let (shared, disk, path) = (Arc::clone(&shared), Arc::clone(disk), path.clone());
            let body = move || {
                lower_thread_priority();
                shared.run(disk.as_ref(), &path);
            };
            thread::Builder::new().name("log-prepare".into()).spawn(body)?
        };
        Ok(Preparer { shared, disk: Arc::clone(disk), path, thread: Some(thread) })
    }

    /// Asks for a file of so many bytes, unless one is ready or asked for, or was given up since
    /// the last [`Preparer::take`].
    pub fn want(&self, bytes: u64) {
        let mut state = self.shared.state.lock();
        if matches!(*state, State::Idle) {
            *state = State::Wanted(bytes);
            self.shared.changed.notify_one();
        }
    }

    /// Whether a file is ready.
    pub fn is_ready(&self) -> bool {
        matches!(*self.shared.state.lock(), State::Ready(..))
    }

    /// The file and its length, if it is ready: all zeros and durable, under the name [`PREPARED`],
    /// from which the caller moves it.
    pub fn take(&self) -> Option<(Arc<dyn File>, u64)> {
        let mut state = self.shared.state.lock();
        match &*state {
            State::Ready(file, bytes) => {
                let taken = (Arc::clone(file), *bytes);
                *state = State::Idle;
                Some(taken)
            }
            State::GivenUp => {
                *state = State::Idle;
                None
            }
            _ => None,
        }
    }
}

impl Drop for Preparer {
    fn drop(&mut self) {
        let ready =
            matches!(std::mem::replace(&mut *self.shared.state.lock(), State::Closing), State::Ready(..));
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported and concerns no commit.
            let _ = thread.join();
        }
        if ready && let Err(error) = self.disk.remove(&self.path) {
            tracing::debug!(%error, "could not remove the prepared log segment");
        }
    }
}

impl Shared {
    fn run(&self, disk: &dyn Disk, path: &Path) {
        while let Some(bytes) = self.wanted() {
            let filled = self.fill(disk, path, bytes);
            let mut state = self.state.lock();
            match (filled, &*state) {
                (Ok(Some(file)), State::Wanted(_)) => *state = State::Ready(file, bytes),
                (result, current) => {
                    if let Err(error) = result {
                        tracing::debug!(%error, "could not prepare a log segment");
                    }
                    // It may be there in part. Not worth another error.
                    let _ = disk.remove(path);
                    if matches!(current, State::Closing) {
                        return;
                    }
                    *state = State::GivenUp;
                }
            }
        }
    }

    /// Waits until a file is asked for; `None` if the log closes.
    fn wanted(&self) -> Option<u64> {
        let mut state = self.state.lock();
        loop {
            if let State::Wanted(bytes) = *state {
                return Some(bytes);
            }
            if matches!(*state, State::Closing) {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// `None` if the log closes meanwhile.
    fn fill(&self, disk: &dyn Disk, path: &Path, bytes: u64) -> io::Result<Option<Arc<dyn File>>> {
        let file = disk.open(path, OpenMode::Truncate)?;
        let zeros = vec![0; PORTION_BYTES.min(bytes) as usize];
        let mut position = 0;
        while position < bytes {
            let portion = PORTION_BYTES.min(bytes - position);
            file.write_all_at(&zeros[..portion as usize], position)?;
            file.sync_data()?;
            position += portion;
            let mut state = self.state.lock();
            if matches!(*state, State::Wanted(_)) {
                self.changed.wait_for(&mut state, PAUSE);
            }
            if matches!(*state, State::Closing) {
                return Ok(None);
            }
        }
        Ok(Some(file))
    }
}

#[cfg(test)]
mod tests {
    use cognate_env::sim::SimDisk;

    use super::*;

    #[test]
    fn what_was_given_up_is_tried_again_for_the_next_segment_only() {
        const BYTES: u64 = 64 << 10;
        let sim = SimDisk::new(1);
        let (disk, folder) = (sim.handle(), Path::new("log"));
        disk.create_dir_all(folder).unwrap();
        sim.set_quota(Some(BYTES / 2));
        let preparer = Preparer::start(&disk, folder).unwrap();
        preparer.want(BYTES);
        while matches!(*preparer.shared.state.lock(), State::Wanted(_)) {
            thread::yield_now();
        }
        assert_eq!(sim.used_bytes(), 0, "it leaves nothing");
        // There would be room by now; but the device was full, and this is each commit's question.
        sim.set_quota(None);
        preparer.want(BYTES);
        assert!(matches!(*preparer.shared.state.lock(), State::GivenUp));
        assert!(preparer.take().is_none());
        preparer.want(BYTES);
        while !preparer.is_ready() {
            thread::yield_now();
        }
        assert_eq!(preparer.take().map(|(_, bytes)| bytes), Some(BYTES));
    }
}
