//! e-Transactions: a request is executed exactly once, although clients time out and application servers stall, die or are wrongly suspected.
//!
//! `etransaction` is the protocol, pure: events in, effects out. `backoff` says how long to wait, as data. Nothing here does I/O.

pub mod backoff;
pub mod etransaction;
