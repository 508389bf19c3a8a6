//! How a thread waits for the order of all nodes where a statement cannot wait as others do: in the
//! middle of an expression, such as `nextval`.
//!
//! Mostly that takes a few milliseconds. Another thread does meanwhile what this one does besides:
//! it serves other sessions, and what is waited for may be on its way through this very thread. At
//! a node that accepts no writes nobody waits any more, since nothing may come of it before the
//! nodes hear each other again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};

use crate::error::Result;
use crate::session::Nodes;

/// So long nobody looks whether there is still something to wait for.
const SOON: Duration = Duration::from_millis(20);
/// How often it is looked then whether there is still something to wait for.
const LOOK: Duration = Duration::from_millis(50);
/// So long somebody waits at most.
const PATIENCE: Duration = Duration::from_secs(15);

/// Attempts something until it is done; each attempt is given a time.
///
/// # Errors
/// 25006 if it is not done for long, or while this node accepts no writes.
pub(crate) fn until_done<T>(nodes: &Nodes, mut attempt: impl FnMut(Duration) -> Option<T>) -> Result<T> {
    // What is there already needs no other thread.
    if let Some(done) = attempt(Duration::ZERO) {
        return Ok(done);
    }
    let wait = || -> Result<T> {
        if let Some(done) = attempt(SOON) {
            return Ok(done);
        }
        let began = Instant::now();
        loop {
            if let Some(done) = attempt(LOOK) {
                return Ok(done);
            }
            nodes.check_open()?;
            if began.elapsed() >= PATIENCE {
                return Err(Nodes::no_answer());
            }
        }
    };
    aside(wait)
}

/// Does what may block the thread, such as to look at what whoever delivers has locked: as long as
/// a large request is judged, or an image of the node is made. Another thread does meanwhile what
/// this one does besides, which may be the order of all nodes: a leader that is not heard of for a
/// moment is replaced.
pub(crate) fn aside<T>(work: impl FnOnce() -> T) -> T {
    let has_others = |handle: Handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread;
    match Handle::try_current().is_ok_and(has_others) {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}

/// Blocks the thread until a future is done, for so long at most.
pub(crate) fn poll_for<T>(mut future: Pin<&mut impl Future<Output = T>>, time: Duration) -> Option<T> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let began = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        let left = time.saturating_sub(began.elapsed());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// The only thread of a runtime waits for what another task of it does.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_go_on_while_a_thread_is_blocked() {
        let (tell, told) = mpsc::channel();
        let waiting = tokio::spawn(async move {
            tokio::spawn(async move { tell.send(7) });
            aside(|| told.recv_timeout(Duration::from_secs(60)))
        });
        assert_eq!(waiting.await.unwrap(), Ok(7));
    }
}
