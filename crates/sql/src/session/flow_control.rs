//! Flow control: who is about to change something waits for a node that lacks too much of what was
//! changed before.
//!
//! Which node that is, if any, the server says (`cognate_replication` finds out). A transaction
//! waits once, before its first statement that changes or locks rows, when it holds nothing that
//! others could wait for; whoever has got so far may go on and commit. If the node is still slow
//! after a bounded time, the statement is refused with 53400 and the node's number. Statements that
//! only read, the ends of transactions and decisions about prepared ones wait for nobody, nor do
//! statements that were ordered already.
//!
//! ```text
//! nodes 1 and 2 write ─▶ node 3 lacks 65 MB ─▶ the next ones wait ─▶ node 3 lacks 63 MB ─▶ they go on
//!                                                    └─▶ 5 s later it still does ─▶ 53400
//! ```

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::Session;
use super::server_setting::{shown, shown_time};
use crate::error::{Result, SqlError, sqlstate};

/// When writers wait, and for how long; and what is kept for nodes that nobody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowBounds {
    /// Bytes that a node may lack before others wait for it; 0: whatever it lacks.
    pub lag_bytes: u64,
    /// How long they wait.
    pub wait: Duration,
    /// Bytes of the log of all nodes that stay for one that is away.
    pub log_kept: u64,
}

/// A node that writers wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowNode {
    /// Its number.
    pub node: u16,
    /// What it lacks, in bytes of requests.
    pub lag_bytes: u64,
}

/// How often there was something to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowCounts {
    /// Transactions that have waited.
    pub waits: u64,
    /// Those of them that were refused then.
    pub refusals: u64,
    /// How long all of them have waited, in microseconds.
    pub waited_us: u64,
}

/// What the server tells of slow nodes.
#[derive(Debug, Default)]
pub(super) struct FlowControl {
    bounds: OnceLock<FlowBounds>,
    slow: watch::Sender<Option<SlowNode>>,
    /// Whether there is one: each statement that changes something asks.
    is_any: AtomicBool,
    waits: AtomicU64,
    refusals: AtomicU64,
    waited_us: AtomicU64,
}

impl FlowControl {
    pub(super) fn configure(&self, bounds: FlowBounds) {
        // The first ones stay: they are those of the server's start.
        let _ = self.bounds.set(bounds);
    }

    pub(super) fn bounds(&self) -> FlowBounds {
        let usual = FlowBounds { lag_bytes: 64 << 20, wait: Duration::from_secs(5), log_kept: 64 << 20 };
        self.bounds.get().copied().unwrap_or(usual)
    }

    pub(super) fn slow(&self) -> Option<SlowNode> {
        *self.slow.borrow()
    }

    pub(super) fn set_slow(&self, slow: Option<SlowNode>) {
        self.is_any.store(slow.is_some(), Ordering::Relaxed);
        self.slow.send_if_modified(|before| std::mem::replace(before, slow) != slow);
    }

    pub(super) fn counts(&self) -> FlowCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FlowCounts { waits: of(&self.waits), refusals: of(&self.refusals), waited_us: of(&self.waited_us) }
    }

    /// For who was let through before, and has so much more to send that a node may be slow by now:
    /// waits until there is none, for a bounded time. Then 53400.
    pub(super) async fn await_nobody_again(&self) -> Result<()> {
        match self.is_any.load(Ordering::Relaxed) {
            true => self.await_nobody().await,
            false => Ok(()),
        }
    }

    /// Waits until there is no slow node, for a bounded time. Then 53400.
    async fn await_nobody(&self) -> Result<()> {
        let mut slow = self.slow.subscribe();
        let bounds = self.bounds();
        self.waits.fetch_add(1, Ordering::Relaxed);
        let since = tokio::time::Instant::now();
        let gone = tokio::time::timeout(bounds.wait, slow.wait_for(Option::is_none)).await;
        self.waited_us.fetch_add(since.elapsed().as_micros() as u64, Ordering::Relaxed);
        // Without a sender the database is closing, and says so itself.
        let (Err(_), Some(slow)) = (gone.map(drop), self.slow()) else { return Ok(()) };
        self.refusals.fetch_add(1, Ordering::Relaxed);
        Err(refused(slow, bounds))
    }
}

fn refused(SlowNode { node, lag_bytes }: SlowNode, bounds: FlowBounds) -> SqlError {
    let (limit, wait) = (shown(bounds.lag_bytes), shown_time(bounds.wait.as_millis()));
    SqlError::new(
        sqlstate::CONFIGURATION_LIMIT_EXCEEDED,
        format!("node {node} is slower than those who write: nothing can be changed at present"),
    )
    .with_detail(format!(
        "Node {node} lacks {lag_bytes} bytes of what was changed before, more than cognate.cluster_lag_limit \
         ({limit}). The statement has waited for cognate.cluster_lag_wait ({wait})."
    ))
    .with_hint("Try it again later. Reads go on. See cognate_nodes.")
}

impl Session {
    /// The open transaction, if there is one, is about to change something for the first time:
    /// waits for a node that is slow.
    ///
    /// # Errors
    /// 25006 if nothing is changed at this node at present; 53400 if a node is slow for too long;
    /// what interrupts the wait.
    pub(super) async fn await_slow_node(&mut self) -> Result<()> {
        self.check_majority()?;
        let flow = &self.database.nodes().flow;
        if !flow.is_any.load(Ordering::Relaxed) || self.is_ordered() {
            return Ok(());
        }
        let is_admitted = |open: &super::Open| open.state.is_admitted || open.engine.has_writes();
        if self.open.as_ref().is_some_and(is_admitted) {
            return Ok(());
        }
        let database = self.database.clone();
        let interrupts = self.interrupts();
        interrupts.wait(database.nodes().flow.await_nobody()).await
    }

    /// Whether `await_slow_node` may have anything to do: a database of its own need not box it.
    #[inline]
    pub(super) fn may_await_nodes(&self) -> bool {
        self.database.engine().is_node() || self.database.nodes().flow.is_any.load(Ordering::Relaxed)
    }

    /// From now on the open transaction waits for no slow node.
    pub(super) fn admit(&mut self) {
        if let Some(open) = &mut self.open {
            open.state.is_admitted = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(flow: &FlowControl, lag_bytes: u64) {
        flow.set_slow(Some(SlowNode { node: 3, lag_bytes }));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_goes_on_as_soon_as_nobody_is_slow() {
        let flow = FlowControl::default();
        slow(&flow, 70 << 20);
        let waiting = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            slow(&flow, 69 << 20);
            tokio::time::sleep(Duration::from_secs(2)).await;
            flow.set_slow(None);
        };
        let (waited, ()) = tokio::join!(flow.await_nobody(), waiting);
        waited.unwrap();
        assert_eq!(flow.counts(), FlowCounts { waits: 1, refusals: 0, waited_us: 4_000_000 });
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_waited_for_long_is_told_for_whom() {
        let flow = FlowControl::default();
        let wait = Duration::from_millis(1500);
        flow.configure(FlowBounds { lag_bytes: 1 << 20, wait, log_kept: 0 });
        slow(&flow, 2_000_000);
        let refused = flow.await_nobody().await.unwrap_err();
        assert_eq!(refused.sqlstate, "53400");
        assert!(refused.message.starts_with("node 3 is slower"), "{refused:?}");
        let detail = refused.detail.clone().unwrap_or_default();
        for part in ["Node 3 lacks 2000000 bytes", "cluster_lag_limit (1MB)", "cluster_lag_wait (1500ms)"] {
            assert!(detail.contains(part), "{detail}");
        }
        assert_eq!(flow.counts(), FlowCounts { waits: 1, refusals: 1, waited_us: 1_500_000 });
    }
}
