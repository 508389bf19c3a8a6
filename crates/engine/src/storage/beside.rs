//! Whether there must be a log beside the base store.
//!
//! The first manifest is written before the first segment of the log, so a crash between them
//! leaves a base store alone, and nothing is lost. Once the log is there, a second manifest says
//! so: it has a greater generation, and nothing else in it changes. Later ones have greater
//! generations still. So a log that is missing then, with a volume that is not mounted for example,
//! is known to be missing, although no checkpoint has been written yet whose watermark would tell.

use super::base::Base;
use crate::Error;

impl Base {
    /// Whether a log was there before, durably.
    pub(crate) fn has_log(&self) -> bool {
        self.state.lock().manifest.generation > 0
    }

    /// Notes that there is a log, durably.
    ///
    /// # Errors
    /// As those of a checkpoint.
    pub(crate) fn note_log(&self) -> Result<(), Error> {
        if self.has_log() { Ok(()) } else { self.change(None, |_, _| {}) }
    }
}
