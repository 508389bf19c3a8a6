//! Late lock release: with `early_lock_release` off, a commit's versions become visible and its
//! locks are released only when it is durable.
//!
//! Commits queue here in the order of their numbers. A thread waits for the log and settles them in
//! that order: the visible mark moves, then the locks go, then whoever waits for the commit is
//! woken. If the log fails, what is queued never becomes visible; its locks are released all the
//! same, for every later commit fails anyway. So it is if the thread ends with a defect. Who gets a
//! number and comes here after that keeps its locks, and releases them itself.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::lock::table::{Held, LockTable};
use crate::storage::waking::Waking;
use crate::store::Store;
use crate::sync::{Condvar, Mutex, thread};
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

    /// Queues a commit, and takes its locks. Called in the order of the numbers. After a failure
    /// there may be nobody any more who would release them: then they stay with who commits.
    pub(crate) fn queue(&self, csn: Csn, id: TransactionId, held: &mut Option<Held>) {
        let mut state = self.state.lock();
        if state.failure.is_some() {
            return;
        }
        state.queue.push_back((csn, id, held.take().unwrap_or_default()));
        drop(state);
        self.work.notify_one();
    }

    pub(crate) fn wait(self: &Arc<Self>, csn: Csn) -> LateWait {
        LateWait { late: Arc::clone(self), csn }
    }

    /// The thread: settles commits until `stop`.
    pub(crate) fn run(&self, store: &Store, locks: &LockTable) {
        let _guard = EndGuard { late: self, store, locks };
        while self.step(store, locks) {}
    }

    /// Waits until there are commits and they are durable, and settles them. False if there are
    /// none and will be none.
    pub(crate) fn step(&self, store: &Store, locks: &LockTable) -> bool {
        let last = {
            let mut state = self.state.lock();
            loop {
                match state.queue.back() {
                    Some((csn, ..)) => break *csn,
                    None if state.stop => return false,
                    None => self.work.wait(&mut state),
                }
            }
        };
        let result = store.log.wait_durable(last).wait();
        if result.is_ok() {
            store.show(last);
        }
        self.settle(last, result, locks);
        true
    }

    /// Releases the locks of the commits up to `last`, and says what has become of them.
    fn settle(&self, last: Csn, result: Result<(), Error>, locks: &LockTable) {
        let is_durable = result.is_ok();
        let commits = {
            let mut state = self.state.lock();
            // In one step with what is taken out: nobody is queued behind the last look.
            if let Err(error) = result {
                state.failure = Some(error);
            }
            let count = state.queue.partition_point(|(csn, ..)| *csn <= last);
            state.queue.drain(..count).collect()
        };
        Leaving { commits, locks }.release();
        let waiters = {
            let mut state = self.state.lock();
            if is_durable {
                state.settled = last;
            }
            std::mem::take(&mut state.waiters)
        };
        Waking(waiters.into_iter()).wake();
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.work.notify_all();
    }
}

/// Commits whose locks go. If a defect ends the release of one, the others' go all the same.
struct Leaving<'a> {
    commits: VecDeque<(Csn, TransactionId, Held)>,
    locks: &'a LockTable,
}

impl Leaving<'_> {
    fn release(&mut self) {
        while let Some((_, id, held)) = self.commits.pop_front() {
            self.locks.release_all(id, held);
        }
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

/// A defect that ends the thread must not leave anybody waiting for ever, for a commit or for a
/// row.
struct EndGuard<'a> {
    late: &'a Late,
    store: &'a Store,
    locks: &'a LockTable,
}

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let failure = self.store.log.fail(Error::Defect("the release thread panicked"));
            self.late.settle(Csn::MAX, Err(failure), self.locks);
        }
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

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::task::Wake;

    use cognate_env::sim::SimDisk;

    use super::*;
    use crate::lock::mode::{LockMode, Mode};
    use crate::lock::queue::Answer;
    use crate::{Access, Database, Isolation, Options, Value};

    /// Whoever wakes it panics.
    struct Bomb;

    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            panic!("the planted defect");
        }
    }

    /// Neither those of who was queued stay, nor those of who has his number and comes too late.
    #[test]
    fn a_release_thread_that_panics_keeps_nobodys_locks() {
        let options = Options { disk: SimDisk::new(1).handle(), ..Options::new("data") };
        let database = Database::open(options).expect("opened");
        let mut t = database.begin(Isolation::Snapshot, Access::ReadWrite);
        t.put(7, b"a", Value::new()).expect("written");
        t.commit().expect("numbered").durable.wait().expect("durable");
        let (store, locks): (&Store, &LockTable) = (&database.manager().store, &database.manager().locks);
        let durable = store.durable();
        let late = Arc::new(Late::new(durable - 1));
        let lock = |id: TransactionId, key: &[u8]| {
            let mut held = Held::default();
            (locks.try_row(id, &mut held, 7, key, Mode::Row(LockMode::Exclusive)), Some(held))
        };

        let (answer, mut held) = lock(1001, b"x");
        assert_eq!(answer, Answer::Granted);
        late.queue(durable, 1001, &mut held);
        assert!(held.is_none(), "they are released when it is durable");
        let mut wait = late.wait(durable);
        let bomb = Waker::from(Arc::new(Bomb));
        assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(&bomb)).is_pending());
        catch_unwind(AssertUnwindSafe(|| late.run(store, locks))).expect_err("the planted defect");
        assert!(database.is_poisoned());
        assert_eq!(lock(1002, b"x").0, Answer::Granted, "they are released");

        let (_, mut held) = lock(1003, b"y");
        late.queue(durable + 1, 1003, &mut held);
        assert!(held.is_some(), "nobody else would release them");
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(Pin::new(&mut wait).poll(&mut context), Poll::Ready(Ok(()))));
        assert!(matches!(Pin::new(&mut late.wait(durable + 1)).poll(&mut context), Poll::Ready(Err(_))));
    }

    /// Those that were taken out of the queue, and not released yet.
    #[test]
    fn locks_that_are_on_their_way_go_with_a_panic() {
        let options = Options { disk: SimDisk::new(1).handle(), ..Options::new("data") };
        let database = Database::open(options).expect("opened");
        let locks: &LockTable = &database.manager().locks;
        let mode = Mode::Row(LockMode::Exclusive);
        let mut held = Held::default();
        let answer = locks.try_row(1001, &mut held, 7, b"x", mode);
        assert_eq!(answer, Answer::Granted);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _leaving = Leaving { commits: VecDeque::from([(1, 1001, held)]), locks };
            assert_eq!(answer, Answer::Busy, "the planted defect");
        }));
        assert!(panicked.is_err());
        assert_eq!(locks.try_row(1002, &mut Held::default(), 7, b"x", mode), Answer::Granted);
    }
}
