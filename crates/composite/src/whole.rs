//! Work that is done to its end, also if whoever waits for it goes away.
//!
//! As long as somebody waits, it is part of his task: nobody else has to be woken for it. If he
//! goes away halfway, the rest becomes a task of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// The work has panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Panicked;

/// Work that is under way.
pub(crate) struct Whole<T: Send + 'static>(Option<Pin<Box<dyn Future<Output = T> + Send>>>);

impl<T: Send + 'static> Whole<T> {
    pub(crate) fn new(work: impl Future<Output = T> + Send + 'static) -> Whole<T> {
        Whole(Some(Box::pin(work)))
    }
}

impl<T: Send + 'static> Future for Whole<T> {
    type Output = Result<T, Panicked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(mut work) = self.0.take() else { return Poll::Ready(Err(Panicked)) };
        // What panics is dropped, and never looked at again.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(Poll::Pending) => {
                self.0 = Some(work);
                Poll::Pending
            }
            Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
            Err(_) => Poll::Ready(Err(Panicked)),
        }
    }
}

impl<T: Send + 'static> Drop for Whole<T> {
    fn drop(&mut self) {
        if let (Some(rest), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn work_goes_on_when_nobody_waits_for_it_any_more() {
        let (go, gone) = oneshot::channel::<()>();
        let (end, ended) = oneshot::channel();
        let mut work = Whole::new(async move {
            let _ = gone.await;
            let _ = end.send(7);
        });
        let first = std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut work).poll(context))).await;
        assert!(first.is_pending());
        drop(work);
        go.send(()).unwrap();
        assert_eq!(ended.await, Ok(7));
    }

    #[tokio::test]
    async fn work_that_panics_says_so() {
        assert_eq!(Whole::new(async { 7 }).await, Ok(7));
        assert_eq!(Whole::<()>::new(async { unreachable!("as it should") }).await, Err(Panicked));
    }
}
