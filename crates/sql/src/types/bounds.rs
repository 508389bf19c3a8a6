//! What reading a large value may take: memory, and time until somebody wants it to stop.
//!
//! Values are read from text in many places that know nothing of the statement they are read for. So the statement says once, for the
//! thread it computes on, what holds while it computes ([`enter`]), and whoever reads item after item keeps a [`Meter`]. Where nobody has said
//! anything, there are no bounds.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::error::{Result, SqlError, sqlstate};

/// The bounds of a statement.
pub(crate) trait Bounds: Send + Sync {
    /// Fails once the statement should stop; lets others go before now and then.
    fn go_on(&self) -> Result<()>;

    /// Bytes that a value may take while it is read.
    fn memory(&self) -> usize;
}

thread_local! {
    static HERE: RefCell<Option<Arc<dyn Bounds>>> = const { RefCell::new(None) };
}

/// While it lives, its bounds hold on this thread, which it does not leave: a task that waits may go on with another one.
pub(crate) struct Within {
    before: Option<Arc<dyn Bounds>>,
    stays: PhantomData<*const ()>,
}

/// From now on these bounds hold on this thread.
pub(crate) fn enter(bounds: Arc<dyn Bounds>) -> Within {
    Within { before: HERE.replace(Some(bounds)), stays: PhantomData }
}

impl Drop for Within {
    fn drop(&mut self) {
        HERE.set(self.before.take());
    }
}

/// Items read between two questions.
const ITEMS_UNASKED: usize = 1024;

/// Counts what has been read of one value.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    items: usize,
    bytes: usize,
}

impl Meter {
    /// One more item was read, which takes so many bytes. 53200 beyond the bounds, 57014 if it is to stop.
    #[inline]
    pub(crate) fn add(&mut self, bytes: usize) -> Result<()> {
        self.items += 1;
        self.bytes += bytes;
        if self.items.is_multiple_of(ITEMS_UNASKED) { self.ask() } else { Ok(()) }
    }

    #[cold]
    fn ask(&self) -> Result<()> {
        let Some(bounds) = HERE.with_borrow(Clone::clone) else { return Ok(()) };
        bounds.go_on()?;
        let limit = bounds.memory();
        if self.bytes <= limit {
            return Ok(());
        }
        let detail =
            format!("Reading a value takes more than the {} kB that a statement may use.", limit / 1024);
        Err(SqlError::new(sqlstate::OUT_OF_MEMORY, "out of memory").with_detail(detail))
    }
}
