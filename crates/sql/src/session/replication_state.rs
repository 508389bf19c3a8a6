//! What can be seen of how a node's transactions are replicated: the two lists that the protocols
//! share, and what each protocol has done.
//!
//! The *log* has the transactions that later ones are judged by; *tocommit* those that have their
//! place in the order and are not shown yet. In the log a transaction is *c-pending* as long as its
//! outcome is not known, and *w-pending* as long as its writes are not known; both hold up verdicts
//! about later ones.
//!
//! ```text
//! SELECT * FROM cognate_replication            at a node: one row; in a single database: none
//!  log | tocommit | c_pending | w_pending | paused_by | paused_ms
//!   12 |        3 |         1 |         0 |           |         0
//! ```

use cognate_engine::node_of;

use super::SqlDatabase;
use crate::blocking::aside;

/// The row of `cognate_replication`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicationRow {
    /// Transactions that later ones are judged by.
    pub log: u64,
    /// Transactions that are ordered and not shown yet.
    pub tocommit: u64,
    /// Those in the log whose outcome is not known.
    pub c_pending: u64,
    /// Those in the log whose writes are not known.
    pub w_pending: u64,
    /// What holds up the order's application here, if something does.
    pub paused_by: Option<String>,
    /// For how long it has, in milliseconds.
    pub paused_ms: u64,
}

/// What one protocol has done at this node since it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtocolRow {
    /// Its name.
    pub name: String,
    /// Transactions of this node that it has committed.
    pub commits: u64,
    /// Transactions of this node that it has refused.
    pub aborts: u64,
}

impl SqlDatabase {
    /// The lists at a node; `None` in a database of its own, which replicates nothing.
    pub fn replication(&self) -> Option<ReplicationRow> {
        let lists = self.engine().is_node().then(|| aside(|| self.engine().lists()))?;
        let number = |count: usize| count as u64;
        let pause = lists.pause.or(lists.executing);
        let paused_by = pause.as_ref().map(|pause| {
            let node = node_of(pause.transaction);
            format!("{} transaction {} of node {node}", pause.protocol, pause.transaction)
        });
        Some(ReplicationRow {
            log: number(lists.log),
            tocommit: number(lists.to_commit),
            c_pending: number(lists.c_pending),
            w_pending: number(lists.w_pending),
            paused_by,
            paused_ms: pause.map_or(0, |pause| pause.since.as_millis() as u64),
        })
    }

    /// What each protocol has done; nothing in a database of its own.
    pub fn protocols(&self) -> Vec<ProtocolRow> {
        if !self.engine().is_node() {
            return Vec::new();
        }
        let row = |(name, commits, aborts): (&str, u64, u64)| ProtocolRow {
            name: name.to_owned(),
            commits,
            aborts,
        };
        self.ended().counts().map(row).into()
    }
}
