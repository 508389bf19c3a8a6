//! Tells a running transaction that it has no future: a sibling was prepared above it, or
//! committed.
//!
//! The one who decides does not wait for it, and cannot end it: the transaction belongs to its
//! session. So it is struck, and whoever works on it notices: at its next operation, while it waits
//! for a lock, and, if its client is idle, because the session waits for the stroke, too.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

use super::Instance;

/// Whether a transaction may go on.
#[derive(Debug, Default)]
pub(crate) struct Doom {
    /// The highest instance number that was heard of then; 0 as long as the transaction may go on.
    struck: AtomicU64,
    waiters: Mutex<Vec<Waker>>,
}

impl Doom {
    /// It may not. `highest` is the highest number that the family has heard of, at least this
    /// transaction's own.
    pub(super) fn strike(&self, highest: Instance) {
        self.struck.store(highest.get().unsigned_abs(), Ordering::Release);
        let waiters = std::mem::take(&mut *self.waiters.lock());
        waiters.into_iter().for_each(Waker::wake);
    }

    fn is_struck(&self) -> bool {
        self.struck.load(Ordering::Acquire) != 0
    }

    /// Nothing, as long as the transaction may go on; then the highest number.
    #[inline]
    pub(super) fn struck(&self) -> Option<Instance> {
        match self.struck.load(Ordering::Acquire) {
            0 => None,
            highest => i64::try_from(highest).ok().and_then(|highest| Instance::new(highest).ok()),
        }
    }
}

/// Resolves when a transaction must not go on.
#[derive(Debug)]
pub struct Doomed(pub(crate) Arc<Doom>);

impl Future for Doomed {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0.is_struck() {
            return Poll::Ready(());
        }
        let mut waiters = self.0.waiters.lock();
        if !waiters.iter().any(|waker| waker.will_wake(context.waker())) {
            waiters.push(context.waker().clone());
        }
        // Struck before the mutex was ours: nobody will wake us.
        if self.0.is_struck() { Poll::Ready(()) } else { Poll::Pending }
    }
}
