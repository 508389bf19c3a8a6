//! The rules that counterexamples forced, by name.
//!
//! Each was added because a history without it goes wrong. The exploration leaves them out one by
//! one and has to find such a history (`tests/protocol/rules.rs`): a rule whose absence nobody
//! notices is either not needed or not explored. Only with the feature `omitted-rules`, which
//! nothing but these tests asks for; otherwise all of them are kept.

/// A rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A root is forgotten only when all children are done.
    ForgetsLast,
    /// To a start every slot counts as voted for.
    SlotsAreVotes,
    /// But for those that were not promised, where a start knows who was.
    PromisesAreListed,
    /// A slot says what the yes to its root is known by.
    SlotsNameVotes,
    /// A question for an outcome names the calls that have called, and a parent that has lost one
    /// of them says that the root is aborted.
    CallersAreNamed,
    /// Where a root began, the slot of its decision is freed last.
    DecisionsAreFreedLast,
    /// After a yes nobody undoes by himself.
    InDoubtIsInDoubt,
    /// A failed call dooms its root, and its component is asked although it has answered nothing.
    FailedCallsCount,
    /// The parent's count of calls is compared.
    CallsAreCounted,
    /// A call that only read and was answered by an earlier generation has lost its lock.
    GenerationsAreCompared,
    /// An outcome meets the vote that it was made for, and no other.
    NoncesAreCompared,
    /// A slot names the components that its call has called.
    SlotsNameChildren,
    /// A further parent is answered at once.
    FurtherParentsNeedNotWait,
    /// Calls of a root that has ended are refused.
    EndedRootsAreMarked,
    /// A question for a vote waits for the commits of calls that were answered ahead of them.
    VotesWaitForCommits,
    /// A call that was answered ahead of a commit which then failed ends its root here.
    FailedCommitsEndRoots,
}

#[cfg(feature = "omitted-rules")]
thread_local! {
    static OMITTED: std::cell::Cell<Option<Rule>> = const { std::cell::Cell::new(None) };
}

/// Leaves out a rule on this thread from now on, or none.
#[cfg(feature = "omitted-rules")]
pub fn omit(rule: Option<Rule>) {
    OMITTED.set(rule);
}

/// Whether a rule is to be kept.
#[cfg(feature = "omitted-rules")]
pub(super) fn holds(rule: Rule) -> bool {
    OMITTED.get() != Some(rule)
}

/// Whether a rule is to be kept: all are.
#[cfg(not(feature = "omitted-rules"))]
pub(super) const fn holds(_: Rule) -> bool {
    true
}
