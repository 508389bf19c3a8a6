//! Durable storage: the log of commits and the base store.
//!
//! ```text
//! log/   record ─ segment ─ staging ─ log_writer ─ prepare ─ batch_writer ─ group_commit ─ log   every commit, in order
//! base/  block ─ partition ─ filter ─ frame ─ run ─ run_writer   immutable sorted files
//!        cursor ─ scan ─ merge ─ cache ─ manifest ─ options ─ reserve ─ base ─ load ─ beside  which of them count, and reading them as one
//! images/  images   how things stood at positions of a cluster's order
//!        checking ─ transfer   base and image on their way to another node
//!        checking ─ backup   the same on their way to a backup
//! ```
//!
//! Byte maps and assumptions about the disk are in `docs/log-format.md`.

pub mod backup;
pub mod base;
mod batch_writer;
mod beside;
pub mod block;
pub mod cache;
mod checking;
pub mod cursor;
pub mod filter;
pub mod frame;
pub mod fuzz;
pub mod group_commit;
pub mod images;
pub mod load;
pub mod log;
pub mod log_writer;
pub mod manifest;
pub mod merge;
pub mod options;
pub mod partition;
pub mod prepare;
pub mod record;
pub(crate) mod reserve;
pub mod run;
pub mod run_writer;
pub mod scan;
pub mod segment;
pub mod staging;
pub mod transfer;
pub(crate) mod waking;

pub use backup::{Backup, Contents, FileSum, Intake};
pub use base::{Base, BaseView};
pub use group_commit::{DurableWait, LogStatistics};
pub use load::StagedRun;
pub use log::{Log, LogOptions, Replay};
pub use options::{BaseOptions, BaseStatistics};
pub use scan::BaseScan;
pub use transfer::{Incoming, Outgoing};
