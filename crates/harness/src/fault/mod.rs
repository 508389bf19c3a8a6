//! Faults put upon a real server, and the judgement of what is left after them.
//!
//! - `ledger`: what clients know to have happened, and its comparison with what a server holds
//!   (pure);
//! - `crash`: rounds of load, `kill -9` at a random moment, restart and judgement.

pub mod crash;
pub mod ledger;
