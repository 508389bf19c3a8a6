//! What asks for a place in the order.
//!
//! An entry is lent to [`super::Sequencer::append`]: what the order takes of it (the candidate, the
//! changes, locks that are released late) is gone afterwards, and what it gives (a promise) is
//! there. The rest is its owner's again, whatever the verdict was.

use smallvec::SmallVec;

use crate::certifier::{Candidate, Mixing, Promise, Removed};
use crate::lock::table::Held;
use crate::own::OwnRow;
use crate::storage::{Log, StagedRun};
use crate::txn::writeset::Changes;
use crate::{TransactionId, TreeId};

/// Whatever gets a number.
pub(crate) enum Entry<'e, 'a> {
    /// A transaction commits.
    Commit(&'e mut Writing<'a>),
    /// A transaction is prepared.
    Prepare(&'e mut Preparation),
    /// Prepared transactions are decided.
    Decide(&'e mut Decision<'a>),
    /// Rows of the engine's own change, and nothing else.
    Own(Vec<OwnRow>),
}

/// What is left to be done about an entry once it has its verdict. Whoever drops this has done it,
/// also while he panics: no record stays in a batch that nobody writes.
#[must_use]
pub(crate) struct Rest<'a> {
    log: &'a Log,
    /// What was taken out of the graph, to be freed while the log is at work.
    _removed: Removed,
}

impl<'a> Rest<'a> {
    pub(super) fn new(log: &'a Log, removed: Removed) -> Rest<'a> {
        Rest { log, _removed: removed }
    }
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.log.nudge();
    }
}

/// A transaction that commits what it wrote.
pub(crate) struct Writing<'a> {
    pub(crate) id: TransactionId,
    /// Its part in the graph, if there is a certifier.
    pub(crate) candidate: Option<Candidate>,
    pub(crate) loads: &'a [StagedRun],
    pub(crate) dropped: &'a [TreeId],
    pub(crate) changes: Vec<(TreeId, Changes)>,
    /// About how many bytes these are.
    pub(crate) size: u64,
    /// Its locks; `None` afterwards, if they are released with the versions.
    pub(crate) held: Option<Held>,
}

/// A request that the order of all nodes has come to.
pub(crate) struct Delivery<'a> {
    pub(crate) candidate: Option<Candidate>,
    /// How far its reads must hold, whatever the graph says.
    pub(crate) mixing: Option<Mixing<'a>>,
    pub(crate) changes: Vec<(TreeId, Changes)>,
    pub(crate) dropped: &'a [TreeId],
    /// Of the request.
    pub(crate) bytes: u64,
}

/// A transaction that is prepared.
pub(crate) struct Preparation {
    pub(crate) id: TransactionId,
    pub(crate) candidate: Option<Candidate>,
    /// The row that keeps it.
    pub(crate) rows: Vec<OwnRow>,
    /// What came of the candidate.
    pub(crate) promise: Promise,
}

/// What a prepared transaction keeps for its decision.
pub(crate) struct Pending {
    pub(crate) id: TransactionId,
    pub(crate) held: Held,
    pub(crate) promise: Promise,
    pub(crate) loads: Vec<StagedRun>,
    pub(crate) dropped: Vec<TreeId>,
    pub(crate) changes: Vec<(TreeId, Changes)>,
}

/// The end of prepared transactions, in one record.
pub(crate) struct Decision<'a> {
    /// Whether the first of them commits; the others are rolled back.
    pub(crate) commits: bool,
    pub(crate) decided: SmallVec<[&'a mut Pending; 2]>,
    /// Rows that change with it.
    pub(crate) rows: Vec<OwnRow>,
}

impl Decision<'_> {
    /// The first one's.
    pub(super) fn id(&self) -> TransactionId {
        self.decided.first().map_or(0, |one| one.id)
    }

    /// The one that commits.
    pub(super) fn winner(&mut self) -> Option<&mut Pending> {
        self.decided.first_mut().filter(|_| self.commits).map(|one| &mut **one)
    }
}
