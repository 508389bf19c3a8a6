//! Requests that are executed exactly once: the load of `cognate-bench mip`.
//!
//! A request has an identifier, `bench<run>.<client>/<n>`, used once, and is one transaction on one site, executed through the wire by prepared statements. Three ways end it:
//!
//! | way | begin | end |
//! |---|---|---|
//! | MIP | `cognate_mip_begin($1, $2)` | `cognate_mip_prepare($1, $2, $3, $4)`, `cognate_mip_commit($1, $2)` |
//! | two-phase | `BEGIN` | `PREPARE TRANSACTION 'id'`, `COMMIT PREPARED 'id'` |
//! | plain | `BEGIN` | `COMMIT` |
//!
//! Both ways with a PREPARE send the same number of messages and wait for them one by one. PREPARE TRANSACTION takes its identifier as a literal only, so
//! it and COMMIT PREPARED cannot be prepared statements, on no system; all the rest is.
//!
//! - `site`: a connection and the three ways;
//! - `profile`: what a request does between begin and end;
//! - `requests`: closed-loop clients, with and without first siblings;
//! - `turns`: the same clients with one way after the other;
//! - `crowd`: many buyers of few items, one of whose servers dies.

pub mod crowd;
pub mod profile;
pub mod requests;
pub mod site;
pub mod turns;
