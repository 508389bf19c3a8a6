//! Waiting for a future on a thread that has no executor.
//!
//! The engine's futures wait for a lock or for the log and are woken from other threads, so parking
//! the caller is all that is needed. Only timeouts (`statement_timeout`, `lock_timeout`) need
//! somebody who watches the clock: one thread for the whole database, started when the first
//! statement has to wait.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::runtime::{Builder, Runtime};

use crate::{Error, Result};

/// The thread that watches the clock.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    runtime: OnceLock<Runtime>,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static WAKER: Waker = Waker::from(Arc::new(Unpark(thread::current())));
}

impl Timers {
    /// Runs a future to its end on this thread.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        let mut future = pin!(future);
        WAKER.with(|waker| {
            let mut context = Context::from_waker(waker);
            let _entered = self.runtime()?.enter();
            loop {
                if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                    return output;
                }
                // An unpark that came before makes this return at once; a stray one only polls once
                // more.
                thread::park();
            }
        })
    }

    fn runtime(&self) -> Result<&Runtime> {
        if let Some(runtime) = self.runtime.get() {
            return Ok(runtime);
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("cognate-timers")
            .enable_time()
            .build()
            .map_err(|e| Error::internal(format!("cannot start the timer thread: {e}")))?;
        Ok(self.runtime.get_or_init(|| runtime))
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Also works where blocking is not allowed, as inside another executor.
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_is_woken_from_another_thread_and_by_the_clock() {
        let timers = Timers::default();
        let (send, receive) = tokio::sync::oneshot::channel();
        let thread = thread::spawn(move || send.send(7));
        assert_eq!(timers.block_on(async { Ok(receive.await) }), Ok(Ok(7)));
        thread.join().expect("no panic").expect("received");
        let slept = timers.block_on(async {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            Ok(())
        });
        assert_eq!(slept, Ok(()));
    }
}
