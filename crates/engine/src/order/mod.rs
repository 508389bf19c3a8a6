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
//! # Several protocols
//!
//! That is *certification*. In *weak voting* a request has no reads: its origin judges them at its
//! position, and says so in a second request, the vote. In *active* replication a request is
//! statements, which every node executes at its position. [`metaprotocol`] says in which order
//! whose turn it is; at a request's turn everything before it is decided and shown, so verdicts are
//! the same functions of the order as ever.
//!
//! # The mixing rule
//!
//! Nobody but its origin knows what a weak voting transaction has read, and nobody notes what an
//! active one reads. Such a transaction *U* at SERIALIZABLE counts as having read everything before
//! its position, as it was there. That is true of it as far as it goes: an active one runs there,
//! and a voter commits only if none of its reads was replaced up to there. So the edges out of U
//! lead to later positions only, to anybody there; and whoever comes later must not lead back to U
//! or before:
//!
//! > A later transaction that has read what was replaced at or before U's position does not commit,
//! > also if it writes nothing.
//!
//! Take any cycle through U. Every edge but *rw* leads to a later position, so some edge of the
//! cycle leads from behind U back to U or before it, and is an *rw* edge of one that was refused by
//! the rule. The position of a prepared transaction is that of its PREPARE for this, also once it
//! is decided: from there on it cannot be refused any more. So it is asked of those, too, who began
//! behind U and did not see one who was prepared before it. U itself does not commit beside an
//! undecided prepared transaction that may come after it and before it: a voter's reads do not meet
//! its writes, and tables that an active transaction looks at were not written by it.
//!
//! ```text
//! T: snapshot 4, reads x        5 writes x        6 = U, a voter        7 = T, writes y
//! T → 5 leads back over U, and U may have read y: refused, where certification alone asks for a path
//! ```
//!
//! At lower levels it has no say: there snapshots are what is promised, and first updater wins.
//!
//! # What is too large for one request
//!
//! It comes in parts, each a request of its own, and a last one that stands for the whole and is
//! judged at its own place like any other (`arriving`).
//!
//! # What is replicated
//!
//! Everything that a verdict depends on is a function of the order: the window of locks, the graph,
//! who is prepared and under which name, families of siblings, what has come in parts, the horizon,
//! the outcomes by request, and a digest of them all. Clocks, sizes of memory and the transactions
//! that happen to run at a node are not.
//!
//! # The horizon
//!
//! Who is sealed must not have a snapshot below the *horizon*, or is refused: nobody would know any
//! more what it conflicts with. Each request announces the oldest snapshot of its origin, so that
//! the horizon stays below what runs anywhere, as long as that is not older than [`AGE_MAX`]
//! positions, and nodes that have not announced anything for [`SILENCE_MAX`] positions are not
//! waited for. A node that starts announces itself before anybody begins anything there; one that
//! has nothing to say announces that it needs nothing any more, once a second at the most, and only
//! if the others' graphs keep something for it (`Manager::announce_late`). There they are pruned.

mod arriving;
mod footprint;
pub(crate) mod metaprotocol;
mod prepared;
mod purpose;
mod request;
mod standing;
mod window;

pub(crate) use footprint::Footprint;
pub(crate) use prepared::Undecided;
pub(crate) use purpose::{OnFamily, Operation, Part, Preparing, Purpose, Whole};
pub(crate) use request::{Level, Request};
pub(crate) use standing::{Refusal, Standing};

use crate::Csn;

/// A transaction whose snapshot is so many positions old is refused.
pub(crate) const AGE_MAX: Csn = 1 << 17;
/// A node that has announced nothing for so many positions is not waited for.
pub(crate) const SILENCE_MAX: Csn = 1 << 16;

/// The horizon at a position, by the oldest snapshots of nodes, and by when they said so.
fn horizon_at(position: Csn, announced: impl Iterator<Item = (Csn, Csn)>) -> Csn {
    let silent = position.saturating_sub(SILENCE_MAX);
    // Who was removed, or is lost for good, would have everybody remember so many positions.
    let heard = announced.filter(|(_, at)| *at > silent);
    let oldest = heard.map(|(oldest, _)| oldest).min().unwrap_or(0);
    oldest.max(position.saturating_sub(AGE_MAX))
}
