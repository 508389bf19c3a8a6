//! Wakers that are in no list any more, and nobody else would wake.

use std::task::Waker;

/// If one of them panics, the others are woken all the same.
pub(crate) struct Waking<I: Iterator<Item = Waker>>(pub(crate) I);

impl<I: Iterator<Item = Waker>> Waking<I> {
    pub(crate) fn wake(&mut self) {
        self.0.by_ref().for_each(Waker::wake);
    }
}

impl<I: Iterator<Item = Waker>> Drop for Waking<I> {
    fn drop(&mut self) {
        self.wake();
    }
}
