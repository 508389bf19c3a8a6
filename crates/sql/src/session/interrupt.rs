//! What ends a statement early: a cancel request, `statement_timeout`, `lock_timeout`.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::error::{Result, SqlError, sqlstate};
use crate::expr::Interrupt;

/// Interrupts the statement that its session runs. Any thread may use it.
#[derive(Clone, Debug, Default)]
pub struct CancelHandle {
    state: Arc<CancelState>,
}

#[derive(Debug, Default)]
struct CancelState {
    requested: AtomicBool,
    wake: Notify,
}

impl CancelHandle {
    /// Ends the running statement with 57014. Without one, nothing happens.
    pub fn cancel(&self) {
        self.state.requested.store(true, Ordering::Release);
        self.state.wake.notify_waiters();
    }

    /// A statement begins: what was asked before does not count.
    pub(crate) fn reset(&self) {
        if self.state.requested.load(Ordering::Relaxed) {
            self.state.requested.store(false, Ordering::Relaxed);
        }
    }

    fn is_requested(&self) -> bool {
        self.state.requested.load(Ordering::Acquire)
    }

    async fn requested(&self) {
        let mut wake = pin!(self.state.wake.notified());
        wake.as_mut().enable();
        if !self.is_requested() {
            wake.await;
        }
    }
}

/// The limits of the running statement.
#[derive(Clone, Debug)]
pub(crate) struct Interrupts {
    pub(crate) cancel: CancelHandle,
    /// When `statement_timeout` ends the statement.
    pub(crate) deadline: Option<Instant>,
    /// `lock_timeout`, for each wait.
    pub(crate) lock_timeout: Option<Duration>,
}

impl Interrupts {
    /// Waits for a lock. One that is free costs neither a timer nor a waiter.
    pub(crate) async fn lock<T, E: Into<SqlError>>(
        &self,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T> {
        let mut request = pin!(request);
        if let Poll::Ready(answer) = poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await {
            return answer.map_err(Into::into);
        }
        let lock_deadline = self.lock_timeout.map(|timeout| Instant::now() + timeout);
        tokio::select! {
            biased;
            answer = &mut request => answer.map_err(Into::into),
            () = self.cancel.requested() => Err(canceled()),
            () = until(self.deadline) => Err(timed_out()),
            () = until(lock_deadline) => Err(SqlError::new(
                sqlstate::LOCK_NOT_AVAILABLE,
                "canceling statement due to lock timeout",
            )),
        }
    }
}

impl Interrupt for Interrupts {
    fn check(&self) -> Result<()> {
        if self.cancel.is_requested() {
            return Err(canceled());
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(timed_out());
        }
        Ok(())
    }
}

fn canceled() -> SqlError {
    SqlError::new(sqlstate::QUERY_CANCELED, "canceling statement due to user request")
}

fn timed_out() -> SqlError {
    SqlError::new(sqlstate::QUERY_CANCELED, "canceling statement due to statement timeout")
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
