//! Durable storage: the log of commits and the base store.
//!
//! ```text
//! log/   record ─ segment ─ log_writer ─ group_commit ─ log      every commit, in order, flushed in groups
//! ```
//!
//! Byte maps and assumptions about the disk are in `docs/log-format.md`.

pub mod group_commit;
pub mod log;
pub mod log_writer;
pub mod record;
pub mod segment;

pub use group_commit::{DurableWait, LogStatistics};
pub use log::{Log, LogOptions, Replay};
