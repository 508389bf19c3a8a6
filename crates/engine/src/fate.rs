//! What becomes of a transaction that runs at a node of a cluster: it runs until it is either
//! *sealed*, which is its own doing, or *struck*, which is somebody else's.
//!
//! Sealed: it has been proposed, and only its delivery decides. Struck: a request was delivered
//! that locks what it holds, so it can never be committed. The two exclude each other, and so
//! nobody is proposed who was overtaken already, and nobody is struck who may have committed.
//!
//! ```text
//!          seal()
//! running ────────▶ sealed          delivery decides
//!    │
//!    ├─strike()───▶ struck          40001 at its next step, which names who was faster
//!    ◀─────forget()────┘            it has let go of all locks, and begins anew
//! ```
//!
//! Who is struck may be computing, waiting for a lock, waiting for its client, or about to propose.
//! Each of these notices: computing and proposing ask between their steps, and waiting is waiting
//! for the stroke, too ([`Stricken`]).
//!
//! The mutex is a leaf, and held for no longer than a list is changed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::key::SmallKey;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::{Csn, TransactionId, TreeId};

const RUNNING: u8 = 0;
const STRUCK: u8 = 1;
const SEALED: u8 = 2;

/// Who was faster, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stroke {
    /// The transaction that was delivered.
    pub(crate) by: TransactionId,
    /// Its place in the order.
    pub(crate) position: Csn,
    /// What it locks.
    pub(crate) tree: TreeId,
    /// `None`: the tree as a whole.
    pub(crate) key: Option<SmallKey>,
}

/// See the module's prose.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    state: AtomicU8,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    stroke: Option<Stroke>,
    waiters: Vec<Waker>,
}

impl Fate {
    /// It must not go on, unless it is sealed already. True if it was running.
    pub(crate) fn strike(&self, stroke: Stroke) -> bool {
        let waiters = {
            let mut told = self.told.lock();
            let struck = self.state.compare_exchange(RUNNING, STRUCK, Ordering::AcqRel, Ordering::Acquire);
            if struck.is_err() {
                return false;
            }
            told.stroke = Some(stroke);
            std::mem::take(&mut told.waiters)
        };
        waiters.into_iter().for_each(Waker::wake);
        true
    }

    /// From here on only its delivery decides.
    ///
    /// # Errors
    /// Who was faster.
    pub(crate) fn seal(&self) -> Result<(), Stroke> {
        match self.state.compare_exchange(RUNNING, SEALED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(state) => {
                assert_eq!(state, STRUCK, "a transaction is sealed once");
                Err(self.stroke().unwrap_or_else(|| unreachable!("whoever strikes says so")))
            }
        }
    }

    /// It begins anew, and may be struck again. It must not hold a lock by now: there may be others
    /// who would have struck it, had it not been struck already, and they are not told of.
    pub(crate) fn forget(&self) {
        let mut told = self.told.lock();
        if told.stroke.take().is_some() {
            self.state.store(RUNNING, Ordering::Release);
        }
    }

    /// Who was faster, if somebody was.
    #[inline]
    pub(crate) fn struck(&self) -> Option<Stroke> {
        match self.state.load(Ordering::Acquire) {
            STRUCK => self.stroke(),
            _ => None,
        }
    }

    #[cold]
    fn stroke(&self) -> Option<Stroke> {
        self.told.lock().stroke.clone()
    }
}

/// Resolves when a transaction is struck.
#[derive(Debug)]
pub(crate) struct Stricken(pub(crate) Arc<Fate>);

impl Future for Stricken {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut told = self.0.told.lock();
        if told.stroke.is_some() {
            return Poll::Ready(());
        }
        if !told.waiters.iter().any(|waker| waker.will_wake(context.waker())) {
            told.waiters.push(context.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stroke() -> Stroke {
        Stroke { by: 7, position: 3, tree: 1000, key: None }
    }

    #[test]
    fn whoever_comes_first_decides() {
        let fate = Fate::default();
        assert_eq!(fate.struck(), None);
        assert!(fate.strike(stroke()));
        assert!(!fate.strike(stroke()), "once is enough");
        assert_eq!(fate.struck(), Some(stroke()));
        assert_eq!(fate.seal(), Err(stroke()));

        let fate = Fate::default();
        assert_eq!(fate.seal(), Ok(()));
        assert!(!fate.strike(stroke()));
        assert_eq!(fate.struck(), None);
    }

    #[test]
    fn who_begins_anew_may_be_struck_again() {
        let (fate, second) = (Fate::default(), Stroke { by: 8, position: 4, ..stroke() });
        fate.forget();
        assert!(fate.strike(stroke()));
        fate.forget();
        assert_eq!(fate.struck(), None);
        assert!(fate.strike(second.clone()));
        assert_eq!(fate.struck(), Some(second));
        fate.forget();
        assert_eq!(fate.seal(), Ok(()));
        fate.forget();
        assert!(!fate.strike(stroke()), "it stays sealed");
    }

    #[test]
    fn who_waits_is_woken() {
        let fate = Arc::new(Fate::default());
        let mut stricken = Stricken(Arc::clone(&fate));
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut stricken).poll(&mut context).is_pending());
        fate.strike(stroke());
        assert!(Pin::new(&mut stricken).poll(&mut context).is_ready());
    }
}
