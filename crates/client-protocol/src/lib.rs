//! The protocol of e-Transactions, pure: events in, effects out (`etransaction`), and how long to
//! wait, as data (`backoff`). A model of it is explored exhaustively (`tests/model`).
//!
//! It is a crate of its own because the model visits millions of states and is optimized for that,
//! also where the rest is built for tests and is not. `cognate-client` does the effects, and shows
//! these modules as its own.

pub mod backoff;
pub mod etransaction;
