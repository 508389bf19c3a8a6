//! How a component works, where its owner chooses.

use std::time::Duration;

/// How a component works.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// How long a call waits for its lock.
    pub(crate) lock_wait: Duration,
    /// How long answers are kept for their keys.
    pub(crate) answers_kept: Duration,
    /// How long one attempt to undo a call may take.
    pub(crate) undo_within: Duration,
    /// No call is answered ahead of its commit, whoever lets that be.
    pub(crate) answers_after_commits: bool,
}
