//! The order's log as openraft sees it.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use cognate_engine::storage::DurableWait;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::machine::Shared;
use super::{LogId, RaftEntry, RaftVote, Types, ballot_of, entry_of, id_of, log_id, raft_entry, vote_of};
use crate::log::OrderLog;
use crate::mark::Mark;
use crate::planted::{self, Planted};
use crate::settings::FlushTime;

/// See the module's description.
#[derive(Debug, Clone)]
pub(super) struct Storage {
    pub(super) log: Arc<OrderLog>,
    pub(super) flushes_inline: Option<FlushTime>,
    pub(super) append_bytes: usize,
    pub(super) unconfirmed: Arc<Unconfirmed>,
    pub(super) shared: Arc<Shared>,
    /// The mark of what is settled. It ends with the machine, whose it is.
    pub(super) settled: Weak<Mark>,
}

/// Appends that wait for their flush, in the order of the log. Who has the news of a flush wakes a
/// task of the runtime, which confirms them.
///
/// The log's thread must not do that itself. openraft forwards what is confirmed by a task that,
/// where one confirmation comes right behind another, sleeps for a microsecond, which the runtime
/// rounds up to a millisecond or two; what is durable meanwhile is not known until then. Those of
/// another thread come at any time, so also between two steps of that task; those of its own thread
/// come before it begins, or when it waits again.
///
/// Whenever the mutex is free, the first of them is in the log's list of waiters, or its news has
/// come and the task is about to look. Under the mutex the log's list is locked; the log has
/// nothing locked when it wakes.
pub(super) struct Unconfirmed {
    waiting: Mutex<VecDeque<(DurableWait, IOFlushed<Types>)>>,
    news: Arc<Notify>,
}

impl Debug for Unconfirmed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Unconfirmed")
    }
}

impl Unconfirmed {
    /// Starts the task, in the runtime of the caller. It ends when nobody has the others any more.
    pub(super) fn start() -> Arc<Unconfirmed> {
        let news = Arc::new(Notify::new());
        let unconfirmed = Arc::new(Unconfirmed { waiting: Mutex::default(), news: Arc::clone(&news) });
        let known = Arc::downgrade(&unconfirmed);
        tokio::spawn(async move {
            loop {
                news.notified().await;
                let Some(unconfirmed) = known.upgrade() else { return };
                unconfirmed.confirm();
            }
        });
        unconfirmed
    }

    /// Confirms an append once it is durable, or says why it never will be. To be called in the
    /// runtime.
    fn confirm_after(self: &Arc<Self>, wait: DurableWait, callback: IOFlushed<Types>) {
        self.waiting.lock().push_back((wait, callback));
        self.confirm();
    }

    /// Confirms what is durable, and has itself woken for the rest.
    fn confirm(self: &Arc<Self>) {
        let waker = Waker::from(Arc::clone(self));
        let mut context = Context::from_waker(&waker);
        let mut known = Vec::new();
        {
            let mut waiting = self.waiting.lock();
            while let Some((wait, _)) = waiting.front_mut() {
                let Poll::Ready(outcome) = Pin::new(wait).poll(&mut context) else { break };
                known.extend(waiting.pop_front().map(|(_, callback)| (outcome, callback)));
            }
        }
        // The last one first: it says the same of those before it, so openraft is woken once.
        for (outcome, callback) in known.into_iter().rev() {
            callback.io_completed(outcome.map_err(io::Error::other));
        }
    }
}

impl Wake for Unconfirmed {
    fn wake(self: Arc<Self>) {
        self.news.notify_one();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.news.notify_one();
    }
}

impl Drop for Unconfirmed {
    fn drop(&mut self) {
        // Ends the task.
        self.news.notify_one();
    }
}

/// Waits until a record is durable, on this thread if need be.
pub(super) async fn durable(wait: DurableWait, inline: Option<&FlushTime>) -> io::Result<()> {
    let outcome = match inline {
        Some(time) => {
            time.pass().await;
            wait.wait()
        }
        None => wait.await,
    };
    outcome.map_err(io::Error::other)
}

/// Lets the tasks of the runtime have their turn that were woken before.
async fn after_the_woken() {
    let mut is_behind = false;
    std::future::poll_fn(|context| {
        if is_behind {
            return Poll::Ready(());
        }
        is_behind = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Wakes the log's thread behind the tasks that send the entry to the other nodes: those wake when
/// openraft knows that the entry can be read, so they have their turn before this has its second.
async fn wake_after_others(log: Arc<OrderLog>) {
    after_the_woken().await;
    log.wake();
}

impl Storage {
    async fn entries(&self, range: Range<u64>, bytes_max: usize) -> io::Result<Vec<RaftEntry>> {
        let placed = self.log.read(range, bytes_max).await.map_err(io::Error::other)?;
        Ok(placed.into_iter().map(|placed| raft_entry(placed.entry)).collect())
    }

    /// Moves the mark of what is settled as soon as openraft knows it. The machine hears of it by
    /// way of a task whose turn comes behind those that tell the other nodes. Once a snapshot may
    /// be on its way to the machine, only the machine knows which of both comes first.
    fn settle(&self, index: u64) {
        if !self.shared.takes_snapshots.load(Ordering::Acquire)
            && let Some(settled) = self.settled.upgrade()
        {
            settled.settle(Some(index));
        }
    }
}

impl RaftLogReader<Types> for Storage {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<RaftEntry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => u64::MAX,
        };
        self.entries(start..end, usize::MAX).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<RaftEntry>> {
        self.entries(start..end, self.append_bytes).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<RaftVote>> {
        Ok(self.log.ballot().map(vote_of))
    }
}

impl RaftLogStorage<Types> for Storage {
    type LogReader = Storage;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let (purged, last) = (self.log.base().id, self.log.last());
        Ok(LogState { last_purged_log_id: purged.map(log_id), last_log_id: last.map(log_id) })
    }

    async fn get_log_reader(&mut self) -> Storage {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &RaftVote) -> io::Result<()> {
        let wait = self.log.save_ballot(ballot_of(*vote)).map_err(io::Error::other)?;
        if planted::is(Planted::VotesUnflushed) {
            return Ok(());
        }
        durable(wait, self.flushes_inline.as_ref()).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        let Some(id) = committed.map(id_of) else { return Ok(()) };
        self.log.note_committed(id).map_err(io::Error::other)?;
        let awaited = self.shared.awaited.load(Ordering::Relaxed);
        let is_for_others = awaited == 0 && self.log.is_own(id);
        if is_for_others {
            // Whoever waits is at another node. The tasks that tell those are woken, and what is
            // applied here on this thread would come before them.
            after_the_woken().await;
        }
        self.settle(id.index);
        if !is_for_others && awaited <= 1 {
            // The session that waits for a lone commit may be served by this thread. What openraft
            // does next is for nobody who waits.
            after_the_woken().await;
        }
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.log.committed().map(log_id))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries = entries.into_iter().map(entry_of);
        let (wait, is_unwoken) = if self.flushes_inline.is_some() {
            (self.log.append(entries).map_err(io::Error::other)?, false)
        } else {
            self.log.append_unwoken(entries).map_err(io::Error::other)?
        };
        if is_unwoken {
            tokio::spawn(wake_after_others(Arc::clone(&self.log)));
        }
        if planted::is(Planted::ConfirmsUnflushed) {
            callback.io_completed(Ok(()));
        } else if let Some(time) = &self.flushes_inline {
            callback.io_completed(durable(wait, Some(time)).await);
        } else {
            self.unconfirmed.confirm_after(wait, callback);
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        self.log.cut_after(last.map(id_of)).map_err(io::Error::other)
    }

    async fn purge(&mut self, id: LogId) -> io::Result<()> {
        let Some((wait, bound)) = self.log.purge(id_of(id)).map_err(io::Error::other)? else { return Ok(()) };
        let (log, inline) = (Arc::clone(&self.log), self.flushes_inline.clone());
        let remove = async move {
            durable(wait, inline.as_ref()).await?;
            log.remove_before(bound).map_err(io::Error::other)
        };
        if self.flushes_inline.is_some() {
            return remove.await;
        }
        tokio::spawn(async move {
            if let Err(error) = remove.await {
                tracing::warn!(%error, "old parts of the log stay");
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use openraft::type_config::TypeConfigExt;

    use super::*;

    /// Who flushes is another thread, at any time. This runtime has one thread, so nothing of it
    /// happens before the test waits.
    #[tokio::test]
    async fn who_has_the_news_of_a_flush_leaves_it_to_the_runtime_to_confirm() {
        let unconfirmed = Unconfirmed::start();
        let mut answers = Vec::new();
        for _ in 0..3 {
            let (tell, answer) = Types::oneshot::<io::Result<()>>();
            let durable = (DurableWait::ready(), IOFlushed::<Types>::signal(tell));
            unconfirmed.waiting.lock().push_back(durable);
            answers.push(answer);
        }
        let waker = Waker::from(Arc::clone(&unconfirmed));
        std::thread::spawn(move || waker.wake()).join().expect("it wakes");
        for answer in &mut answers {
            assert!(answer.try_recv().is_err(), "the runtime has had no turn");
        }
        for answer in answers {
            answer.await.expect("it is told").expect("it is durable");
        }
        assert!(unconfirmed.waiting.lock().is_empty());
    }
}
