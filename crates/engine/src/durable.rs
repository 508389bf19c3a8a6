//! The wait between a commit and its answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::late::LateWait;
use crate::pressure::RoundWait;
use crate::storage;
use crate::sync::thread;
use crate::{Csn, Error};

/// Resolves when a commit is durable, or with `LogPoisoned` if it never will be. While memory is
/// full it also waits for the checkpoint, which slows writers down. Dropping it changes nothing
/// about the commit.
#[derive(Debug)]
pub struct DurableWait {
    step: Step,
    room: Option<RoundWait>,
}

#[derive(Debug)]
enum Step {
    Log(storage::DurableWait),
    /// Locks are released late: durable is not enough, the versions must be visible too.
    Late(LateWait),
    Done,
}

impl DurableWait {
    pub(crate) fn log(wait: storage::DurableWait, room: Option<RoundWait>) -> DurableWait {
        DurableWait { step: Step::Log(wait), room }
    }

    pub(crate) fn late(wait: LateWait, room: Option<RoundWait>) -> DurableWait {
        DurableWait { step: Step::Late(wait), room }
    }

    /// Blocks the calling thread until the answer is known. For synchronous callers; never inside
    /// an async task.
    ///
    /// # Errors
    /// `LogPoisoned`.
    pub fn wait(self) -> Result<(), Error> {
        block_on(self)
    }
}

impl Future for DurableWait {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match &mut self.step {
            Step::Log(wait) => Pin::new(wait).poll(context),
            Step::Late(wait) => Pin::new(wait).poll(context),
            Step::Done => Poll::Ready(Ok(())),
        };
        match outcome {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) => self.step = Step::Done,
        }
        match &mut self.room {
            None => Poll::Ready(Ok(())),
            Some(room) => Pin::new(room).poll(context).map(Ok),
        }
    }
}

/// A commit that has its place in the order.
#[derive(Debug)]
pub struct Commit {
    /// Its number; for a transaction without writes, the last commit that it may have read.
    pub csn: Csn,
    /// Resolves when the commit is durable. Nothing may be answered to anybody before that.
    pub durable: DurableWait,
    /// How long it has waited for its vote, at a node and under weak voting.
    pub vote_wait: Duration,
    /// Of an active transaction: whether another node's has changed what it changes between its
    /// submission and its place. Had it run at its own node, it might have been refused.
    pub was_met: Option<bool>,
}

impl Commit {
    pub(crate) fn new(csn: Csn, durable: DurableWait) -> Commit {
        Commit { csn, durable, vote_wait: Duration::ZERO, was_met: None }
    }
}

/// Blocks the calling thread until the future is done.
pub(crate) fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match Pin::new(&mut future).poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
