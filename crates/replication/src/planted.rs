//! Faults that tests plant into the total order, one at a time, to see that the storms of the
//! simulated network notice them.
//!
//! They are planted for one thread, which runs all nodes. Without the feature `planted-faults`, and
//! outside this crate's own tests, nothing is ever planted, and nothing is left of the questions.

#![cfg_attr(
    not(feature = "planted-faults"),
    allow(unreachable_pub, dead_code, reason = "who plants something sees it only with the feature")
)]

/// A rule that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// A vote is told before it is durable.
    VotesUnflushed,
    /// An entry is confirmed before it is durable.
    ConfirmsUnflushed,
    /// A node that does not answer counts as one that has what it was sent, so that the leader
    /// acknowledges without a majority.
    CountsTheSilent,
    /// A start delivers all that the log has, also what no majority is known to have.
    DeliversTheTail,
    /// A leader's blank has a position, as if it were a request.
    BlanksTakePositions,
    /// What is settled may be cut, at a start, too.
    CutsTheSettled,
    /// Another one may come under a node's number, with other data.
    MeetsAnybody,
}

impl Planted {
    /// All but those of which the log's own tests are: who asks for a cut of what is settled has
    /// broken another rule before, and the simulated network asks nobody who he is.
    pub const ALL: [Planted; 5] = [
        Planted::VotesUnflushed,
        Planted::ConfirmsUnflushed,
        Planted::CountsTheSilent,
        Planted::DeliversTheTail,
        Planted::BlanksTakePositions,
    ];
}

#[cfg(any(test, feature = "planted-faults"))]
mod planting {
    use std::cell::Cell;

    use super::Planted;

    thread_local! {
        static NOW: Cell<Option<Planted>> = const { Cell::new(None) };
    }

    /// Plants a fault for this thread, or takes it out.
    pub fn plant(fault: Option<Planted>) {
        NOW.set(fault);
    }

    pub(crate) fn is(fault: Planted) -> bool {
        NOW.get() == Some(fault)
    }
}

#[cfg(any(test, feature = "planted-faults"))]
pub use planting::plant;

/// Whether this rule is left out now.
#[inline]
pub(crate) fn is(fault: Planted) -> bool {
    #[cfg(any(test, feature = "planted-faults"))]
    return planting::is(fault);
    #[cfg(not(any(test, feature = "planted-faults")))]
    {
        let _ = fault;
        false
    }
}
