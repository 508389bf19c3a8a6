//! The future that waits for a lock, and the ticket that a grant travels on.
//!
//! The ticket is in the resource's queue; whoever releases the resource takes it out and punches
//! it. A future that is dropped before that takes the ticket out itself, so a waiter that gave up
//! (time limit, cancelled statement, lost connection) blocks nobody. If it was granted in the
//! meantime, the transaction simply holds the lock until it ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::table::LockTable;
use crate::TransactionId;
use crate::sync::Mutex;

#[derive(Debug, Default)]
pub(crate) struct Ticket {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    granted: bool,
    waker: Option<Waker>,
}

impl Ticket {
    /// The lock is granted: wakes the waiter. Called without any lock of the table held.
    pub(crate) fn punch(&self) {
        let waker = {
            let mut state = self.state.lock();
            state.granted = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Waits until the queued request is granted. Dropping it withdraws the request.
pub(crate) struct LockWait {
    table: Arc<LockTable>,
    owner: TransactionId,
    ticket: Arc<Ticket>,
    done: bool,
}

impl LockWait {
    pub(crate) fn new(table: Arc<LockTable>, owner: TransactionId, ticket: Arc<Ticket>) -> LockWait {
        LockWait { table, owner, ticket, done: false }
    }
}

impl Future for LockWait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        {
            let mut state = self.ticket.state.lock();
            if !state.granted {
                state.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
        }
        self.done = true;
        self.table.end_wait(self.owner);
        Poll::Ready(())
    }
}

impl Drop for LockWait {
    fn drop(&mut self) {
        if !self.done {
            self.table.give_up(self.owner);
        }
    }
}
