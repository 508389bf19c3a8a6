//! Boxes that a thread uses again.
//!
//! One thread makes a read set or a node of the graph, and another one, who prunes the graph, drops
//! it. The allocator would take each box back to the thread that it came from; instead, whoever
//! drops one keeps it, emptied, for one of their own. Each kind has its spares in a thread-local;
//! where a thread ends, they are gone, and its boxes are made and dropped as usual.

use std::cell::RefCell;

/// So many of a kind are kept by each thread.
const SPARES_MAX: usize = 128;

/// The boxes of one kind.
#[derive(Debug)]
#[allow(clippy::vec_box, reason = "the boxes are what is kept")]
pub(crate) struct Spares<T>(RefCell<Vec<Box<T>>>);

impl<T> Spares<T> {
    /// None yet.
    pub(crate) const fn new() -> Spares<T> {
        Spares(RefCell::new(Vec::new()))
    }

    /// One of them.
    pub(crate) fn take(&self) -> Option<Box<T>> {
        self.0.borrow_mut().pop()
    }

    /// Keeps a box, or drops it if there are enough.
    pub(crate) fn keep(&self, spare: Box<T>) {
        let mut spares = self.0.borrow_mut();
        if spares.len() < SPARES_MAX {
            spares.push(spare);
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }
}
