//! Requests of this node that are on their way through the order, and the futures of those who wait
//! for their verdicts.
//!
//! What was proposed keeps its locks, and what its verdict may need, until it is delivered. Whether
//! anybody waits makes no difference to it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::lock::table::Held;
use crate::manager::Manager;
use crate::order::{Level, Purpose, Request};
use crate::prepared::record::Parts;
use crate::sibling::{Member, Mipt};
use crate::sight::Sight;
use crate::sync::Mutex;
use crate::txn::change::Effects;
use crate::txn::readset::ReadSet;
use crate::txn::writeset::WriteSet;
use crate::{Csn, Error};

/// A request of this node that was proposed.
#[derive(Default)]
pub(crate) struct Sealed {
    pub(crate) held: Held,
    /// Keeps what its verdict may need.
    pub(crate) _sight: Option<Arc<Sight>>,
    /// What its writes have of the budget.
    pub(crate) writes: Option<WriteSet>,
    /// What it read, if only this node judges that.
    pub(crate) reads: Option<ReadSet>,
    /// Its part in a family.
    pub(crate) member: Option<Box<Member>>,
    pub(crate) outcome: Arc<Outcome>,
}

/// The verdict, once there is one.
#[derive(Debug, Default)]
pub(crate) struct Outcome(Mutex<Verdict>);

#[derive(Debug, Default)]
struct Verdict {
    told: Option<Result<Csn, Error>>,
    /// The table of the family that the request was about.
    table: Option<Box<Mipt>>,
    /// How long it waited for its vote.
    vote_wait: Duration,
    /// Whether what it changes was changed by another node's while it was on its way.
    was_met: Option<bool>,
    waker: Option<Waker>,
}

impl Outcome {
    /// Keeps the table that goes with the verdict.
    pub(crate) fn show(&self, table: Mipt) {
        self.0.lock().table = Some(Box::new(table));
    }

    /// The table that came with the verdict.
    pub(crate) fn table(&self) -> Option<Mipt> {
        self.0.lock().table.take().map(|table| *table)
    }

    /// Keeps how long the request waited for its vote, before its verdict is told.
    pub(crate) fn note_vote_wait(&self, waited: Duration) {
        self.0.lock().vote_wait = waited;
    }

    /// How long the request waited for its vote.
    pub(crate) fn vote_wait(&self) -> Duration {
        self.0.lock().vote_wait
    }

    /// Keeps whether another node's transaction has changed what this one, an active one, changes,
    /// between its submission and its place.
    pub(crate) fn note_met(&self, was_met: bool) {
        self.0.lock().was_met = Some(was_met);
    }

    /// The same, if somebody has looked.
    pub(crate) fn was_met(&self) -> Option<bool> {
        self.0.lock().was_met
    }

    /// Tells it.
    pub(crate) fn tell(&self, verdict: Result<Csn, Error>) {
        let waker = {
            let mut state = self.0.lock();
            state.told = Some(verdict);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Resolves to the number of a proposed transaction, or to why it does not commit. Dropping it
/// changes nothing about that.
#[derive(Debug)]
pub(crate) struct Proposed(pub(crate) Arc<Outcome>);

impl Future for Proposed {
    type Output = Result<Csn, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.0.lock();
        match &state.told {
            Some(verdict) => Poll::Ready(verdict.clone()),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Manager {
    /// Says which snapshots there are here, and waits until all nodes know it: from then on the
    /// horizon waits for this node's transactions (`order`). Without effect in a database of its
    /// own.
    pub(crate) async fn introduce(&self) -> Result<(), Error> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        match self.propose_about(cluster, Purpose::Commit)?.await {
            // Who is refused for its age has been heard all the same.
            Err(error) if !error.is_retryable() => Err(error),
            _ => Ok(()),
        }
    }

    /// A request that does nothing itself, made when so much was applied.
    pub(crate) fn request_about(&self, applied: Csn, purpose: Purpose) -> Request {
        Request {
            id: self.transaction_id(),
            name: None,
            level: Level::ReadCommitted,
            snapshot: applied,
            began: applied,
            bot: applied,
            oldest: self.store.oldest_snapshot(),
            next_tree: self.store.trees.next(),
            dropped: Vec::new(),
            whole: None,
            parts: Parts { locks: Vec::new(), notes: Vec::new(), reads: None, changes: Vec::new() },
            effects: Effects::default(),
            purpose,
        }
    }
}
