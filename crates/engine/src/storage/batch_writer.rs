//! What writes a log's batches: the segments, and all that goes along with a batch. It has one
//! owner at a time ([`super::group_commit`]).

use std::fmt;
use std::sync::Arc;

use cognate_env::Clock;

use super::log_writer::LogWriter;
use super::record::{BATCH_HEADER, BatchKind};
use crate::{Csn, Error};

/// What is told to the owner of the segments.
pub(crate) trait BatchListener: Send {
    /// A batch up to `last` is durable; `bytes` is its size, `segment` the first csn of a segment
    /// that it began.
    fn written(&mut self, last: Csn, bytes: u64, segment: Option<Csn>);
}

/// What is to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Taken {
    /// The records of the batch.
    Records { first: Csn, count: u32 },
    /// A mark behind everything before `next`.
    Idle { next: Csn },
    /// The end of the log.
    Closing { next: Csn },
}

/// See the module's description.
pub(crate) struct BatchWriter {
    segments: LogWriter,
    listener: Box<dyn BatchListener>,
    /// Measures flushes.
    pub(crate) clock: Arc<dyn Clock>,
    /// Room for a batch header, then the records that were taken.
    pub(crate) batch: Vec<u8>,
}

impl fmt::Debug for BatchWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchWriter").field("segments", &self.segments).finish_non_exhaustive()
    }
}

impl BatchWriter {
    pub(crate) fn new(
        segments: LogWriter,
        listener: Box<dyn BatchListener>,
        clock: Arc<dyn Clock>,
    ) -> BatchWriter {
        BatchWriter { segments, listener, clock, batch: vec![0; BATCH_HEADER] }
    }

    /// Writes and flushes it. After an error the log must not be written any more.
    pub(crate) fn write(&mut self, taken: Taken) -> Result<(), Error> {
        match taken {
            Taken::Records { first, count } => {
                let segment = self.segments.write(&mut self.batch, first, count)?;
                let last = first + u64::from(count) - 1;
                self.listener.written(last, self.batch.len() as u64, segment);
                Ok(())
            }
            Taken::Idle { next } => self.segments.write_proof(BatchKind::Mark, next),
            Taken::Closing { next } => self.segments.write_proof(BatchKind::Close, next),
        }
    }
}
