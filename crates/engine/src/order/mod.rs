//! What nodes of a cluster have in common: requests in one total order, and by what is decided, at
//! every node alike, which of them commit.
//!
//! A transaction runs at one node, its *origin*, as it does in a database of its own. To commit it
//! is *sealed* and becomes a [`Request`], which says all that its verdict depends on. A total order
//! (`total_order`) gives every request a *position*, and each node delivers them one by one, in
//! that order, to code that is pure: [`Standing`] and the certifier. So all nodes come to the same
//! verdicts, and nobody votes.
//!
//! # The verdict
//!
//! 1. *Locks.* A request conflicts with what was delivered after its origin last looked (`bot`), if
//!    the two have locks that do not go together. Its writes count as locks. At `REPEATABLE READ`
//!    and above a write conflicts with every change after the snapshot: first updater wins.
//! 2. *Reads*, at `SERIALIZABLE`: the certifier, with the same graph everywhere.
//!
//! `bot` is right for locks, since whatever was delivered at the origin before has struck those who
//! held locks against it (`fate`): whoever is sealed later was not in its way.
//!
//! ```text
//! node 1: T1 locks and writes x            node 2: T2 locks and writes x
//! node 1: sealed, bot 4, proposed          node 2: sealed, bot 4, proposed
//! order:  5 = T1, 6 = T2
//! all:    5 commits: nothing after 4 has a lock on x
//! all:    6 is refused: 5 has one, and 5 > 4
//! ```
//!
//! # What is replicated
//!
//! Everything that a verdict depends on is a function of the order: the window of locks, the graph,
//! who is prepared and under which name, families of siblings, the horizon, the outcomes by
//! request, and a digest of them all. Clocks, sizes of memory and the transactions that happen to
//! run at a node are not.
//!
//! # The horizon
//!
//! Who is sealed must not have a snapshot below the *horizon*, or is refused: nobody would know any
//! more what it conflicts with. Each request announces the oldest snapshot of its origin, so that
//! the horizon stays below what runs anywhere, as long as that is not older than [`AGE_MAX`]
//! positions, and nodes that have not announced anything for [`SILENCE_MAX`] positions are not
//! waited for.

mod prepared;
mod purpose;
mod request;
mod standing;
mod window;

pub(crate) use prepared::Undecided;
pub(crate) use purpose::{OnFamily, Operation, Preparing, Purpose};
pub(crate) use request::{Level, Request};
pub(crate) use standing::{Refusal, Standing};

use crate::Csn;

/// A transaction whose snapshot is so many positions old is refused.
pub(crate) const AGE_MAX: Csn = 1 << 17;
/// A node that has announced nothing for so many positions is not waited for.
pub(crate) const SILENCE_MAX: Csn = 1 << 16;
