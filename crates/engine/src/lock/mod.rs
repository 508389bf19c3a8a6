//! Locks on rows and on whole trees, with first-come queues and deadlock detection.
//!
//! `mode` says which locks go together, `queue` is one resource's holders and waiters (pure),
//! `deadlock` finds a cycle of waiters and another order without it (pure), `leads` is what a queue
//! tells it of its waiters, `graph` knows who waits where, `held` what one transaction holds,
//! `force` takes locks whatever others hold, `leaving` knows which of them take rows away, `table`
//! keeps all queues, `advisory` is what sessions lock by numbers of their own, `view` shows all of
//! it, and `wait` is the future that a waiter sleeps in.

pub(crate) mod advisory;
pub(crate) mod deadlock;
mod force;
mod graph;
mod held;
mod leads;
mod leaving;
pub(crate) mod mode;
pub(crate) mod queue;
pub(crate) mod table;
pub(crate) mod view;
pub(crate) mod wait;

#[cfg(test)]
mod naive;
#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;
