//! What looks after an open database, and what no transaction needs: checkpoints, backups, the
//! governor, and what is told of the database as a whole.
//!
//! It holds the transaction manager (`manager`), which does not know of it: a transaction cannot
//! come here. Who does are the threads behind the database (`background`), and who asks of the
//! database as a whole. Checkpoints are in `checkpoint`, a node's among them; a backup, and the
//! state that a node sends to another one, in `backup`; the notes of ids in `snapshot_ids`.
//!
//! Mutex order: `checkpointing`, then whatever a checkpoint takes (at a node `standing`, then the
//! commit mutex, as `delivery` says). Whoever locks it has nothing locked before.

use std::sync::Arc;

use crate::governor::Governor;
use crate::manager::{Manager, cores};
use crate::recovery::Recovered;
use crate::snapshot_ids::NotedIds;
use crate::sync::Mutex;
use crate::sync::atomic::AtomicU64;

/// What one open database has besides its transactions.
pub(crate) struct Upkeep {
    pub(crate) manager: Arc<Manager>,
    pub(crate) governor: Arc<Governor>,
    /// Held by the checkpoint that runs.
    pub(crate) checkpointing: Mutex<()>,
    /// Checkpoints since the database was opened.
    pub(crate) checkpoints: AtomicU64,
    /// Which transactions had ended, as of some commits.
    pub(crate) noted_ids: NotedIds,
    pub(crate) recovered: Recovered,
}

impl Upkeep {
    /// Of a database that was opened just now.
    pub(crate) fn new(manager: Arc<Manager>, recovered: Recovered) -> Upkeep {
        let governor = Arc::new(Governor::new(manager.options.active_limit, cores()));
        Upkeep {
            manager,
            governor,
            checkpointing: Mutex::new(()),
            checkpoints: AtomicU64::new(0),
            noted_ids: NotedIds::default(),
            recovered,
        }
    }
}
