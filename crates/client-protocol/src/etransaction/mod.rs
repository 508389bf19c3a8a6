//! The e-Transaction protocol over Multi-Instance-Precommit: `client` is the side that wants one
//! answer, `server` the application server's side, one [`Run`] for each instance it executes. Both
//! are pure state machines; whoever drives them does the I/O and owns clock and chance.
//!
//! # The protocol
//!
//! ```text
//! client            application server                    each site
//!   (x, n) ──────────▶  [a retry: SHOW MIPT x ─────────────▶  the table; what is prepared everywhere is committed at once, as W below]
//!                       BEGIN MIP <x,y> ───────────────────▶  y is active, or: x is decided
//!                       all have begun: the request's logic runs at the sites
//!                       PREPARE MIP <x,y> ─────────────────▶  y is prepared, smaller ones get tombstones
//!                       all tables are there: W := the smallest instance that all of them show as prepared
//!                       [none: what is aborted at one site is withdrawn at the others: ROLLBACK MIP; the client tries again]
//!                       COMMIT MIP <x,W> ──────────────────▶  W is committed, its siblings are aborted
//!   result of W ◀─────  all have committed
//!   acknowledge ─────▶  FORGET MIP x ──────────────────────▶  only the fact is kept
//! ```
//!
//! # Rules
//!
//! 1. *Sites are fixed for a request.* Each is begun and prepared, also where the logic did
//!    nothing: or else "prepared everywhere" means nothing.
//! 2. *One execution.* An instance is chosen only if one and the same execution prepared it at
//!    every site (see `server`): a message that arrives twice makes two executions under one
//!    number.
//! 3. *Nobody prepares before every site has answered BEGIN*, and the run that begins an instance
//!    at a site is the one that prepares it there: BEGIN and PREPARE go over one connection; after
//!    a loss the run stops. So two executions under one number seldom get in each other's way.
//! 4. *COMMIT is repeated until it is acknowledged*, over any connection.
//! 5. *No answer before every site has committed.*
//! 6. *Whoever finds the request decided finishes the decision*, and answers with the winner's
//!    stored result, not with its own.
//! 7. *A retry looks before it begins*: most often its forerunner's server stopped between PREPARE
//!    and COMMIT, and then nothing needs to be executed again.
//! 8. A run that stops tells the client to take a higher number. What is prepared it rolls back
//!    only on the proof that nobody can have chosen it (see `server`): for somebody may be
//!    committing it. What has no future is rolled back by whoever learns of it, so that requests do
//!    not block each other for ever.
//!
//! # Instance numbers
//!
//! The sites' rule (`cognate_engine::sibling`): the low [`LANE_BITS`] bits are the lane, 0 for the
//! client, 1 and up for the sites' stubs; the rest is the attempt. All lanes are disjoint, and
//! whoever retries goes above the highest number that it has heard of.
//!
//! # A worked history
//!
//! ```text
//! client: (x,1) to A                 A: prepared 1 at store; pauses
//! client: no answer; (x,2) to B      B: prepared 2 at store: table 1, 2     at payment: table 2, tombstone on 1
//!                                    B: prepared everywhere: 2; COMMIT <x,2>
//! A goes on: PREPARE <x,1>           payment: aborted, table 2              store's table was 1: nothing is everywhere
//! A: "take a higher number"          client: has B's answer already, does not listen
//! ```

mod client;
mod server;

pub use client::{Client, ClientEffect, ClientError, Finished};
pub use server::{
    Effect, Event, Instances, Outcome, Refused, Reply, Run, SiteReply, Table, plain_result, stored_result,
};

use std::sync::Arc;

/// So many low bits of an instance number say who numbered it. The sites count in the same way.
pub const LANE_BITS: u32 = 10;

/// A request or result string; cheap to clone.
pub type Text = Arc<str>;

/// The client's number above `highest`, the highest instance number heard of, or 0. `None` if the
/// numbers are used up.
pub fn instance_above(highest: i64) -> Option<i64> {
    let attempt = (highest.max(0) >> LANE_BITS) + 1;
    (attempt <= i64::MAX >> LANE_BITS).then_some(attempt << LANE_BITS)
}
