//! Locks on rows and on whole trees, with first-come queues and deadlock detection.
//!
//! `mode` says which locks go together, `queue` is one resource's holders and waiters (pure), `deadlock` finds a cycle
//! of waiters (pure), `table` keeps all queues, and `wait` is the future that a waiter sleeps in.

pub(crate) mod deadlock;
pub(crate) mod mode;
pub(crate) mod queue;
pub(crate) mod table;
pub(crate) mod wait;

#[cfg(test)]
mod tests;
