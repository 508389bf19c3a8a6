//! Late lock release: with `early_lock_release` off, a commit's versions become visible and its
//! locks are released only when it is durable.
//!
//! Commits queue here in the order of their numbers. A thread waits for the log and settles them in
//! that order: the visible mark moves, then the locks go, then whoever waits for the commit is
//! woken. If the log fails, what is queued never becomes visible; its locks are released all the
//! same, for every later commit fails anyway.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::lock::table::{Held, LockTable};
use crate::store::Store;
use crate::sync::{Condvar, Mutex};
use crate::{Csn, Error, TransactionId};

/// Commits that are not durable yet, with their locks.
#[derive(Debug, Default)]
pub(crate) struct Late {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<(Csn, TransactionId, Held)>,
    settled: Csn,
    failure: Option<Error>,
    waiters: Vec<Waker>,
    stop: bool,
}

impl Late {
    pub(crate) fn new(settled: Csn) -> Late {
        Late { state: Mutex::new(State { settled, ..State::default() }), work: Condvar::new() }
    }

    /// Queues a commit. Called in the order of the numbers.
    pub(crate) fn queue(&self, csn: Csn, id: TransactionId, held: Held) {
        self.state.lock().queue.push_back((csn, id, held));
        self.work.notify_one();
    }

    pub(crate) fn wait(self: &Arc<Self>, csn: Csn) -> LateWait {
        LateWait { late: Arc::clone(self), csn }
    }

    /// The thread: settles commits until `stop`.
    pub(crate) fn run(&self, store: &Store, locks: &LockTable) {
        loop {
            let last = {
                let mut state = self.state.lock();
                loop {
                    match state.queue.back() {
                        Some((csn, ..)) => break *csn,
                        None if state.stop => return,
                        None => self.work.wait(&mut state),
                    }
                }
            };
            let result = store.log.wait_durable(last).wait();
            let settled: Vec<_> = {
                let mut state = self.state.lock();
                let count = state.queue.partition_point(|(csn, ..)| *csn <= last);
                state.queue.drain(..count).collect()
            };
            if result.is_ok() {
                store.show(last);
            }
            for (_, id, held) in settled {
                locks.release_all(id, held);
            }
            let waiters = {
                let mut state = self.state.lock();
                match result {
                    Ok(()) => state.settled = last,
                    Err(error) => state.failure = Some(error),
                }
                std::mem::take(&mut state.waiters)
            };
            waiters.into_iter().for_each(Waker::wake);
        }
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.work.notify_all();
    }
}

/// Resolves when a commit is durable and visible.
#[derive(Debug)]
pub(crate) struct LateWait {
    late: Arc<Late>,
    csn: Csn,
}

impl Future for LateWait {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.late.state.lock();
        if state.settled >= self.csn {
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = &state.failure {
            return Poll::Ready(Err(error.clone()));
        }
        state.waiters.push(context.waker().clone());
        Poll::Pending
    }
}
