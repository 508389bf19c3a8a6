//! Requests that are executed exactly once: the load of `cognate-bench mip`.
//!
//! A request has an identifier, `bench<run>.<client>/<n>`, used once, and is one transaction on one
//! site, executed through the wire. Three ways end it:
//!
//! | way | begin | end |
//! |---|---|---|
//! | MIP | `cognate_mip_begin(id, n)` | `cognate_mip_prepare(id, n, request, result)`, `cognate_mip_commit(id, n)` |
//! | two-phase | `BEGIN` | `PREPARE TRANSACTION 'id,n'`, `COMMIT PREPARED 'id,n'` |
//! | plain | `BEGIN` | `COMMIT` |
//!
//! Both ways with a PREPARE send as many statements and wait for them one by one; what PREPARE MIP
//! answers, the family's table, is read as an application server would. MIP's are sent as in
//! `cognate-client`, which are prepared functions; an identifier of PREPARE TRANSACTION is a
//! literal in the statement, for that takes no parameters on any system.
//!
//! - `site`: a connection and the three ways;
//! - `profile`: what a request does between begin and end;
//! - `requests`: closed-loop clients, with and without first siblings;
//! - `crowd`: many buyers of few items, one of whose servers dies.

pub mod crowd;
pub mod profile;
pub mod requests;
pub mod site;
