//! What the order of all nodes says of prepared transactions and of the engine's own rows: the same
//! steps as in a database of its own, with numbers that are given.
//!
//! A node marks nobody as overtaken: its graph is in its image, and the order goes on behind that,
//! so nothing is lost that a mark would have to stand for.

use super::{Decision, Removed, Sequencer};
use crate::certifier::{Candidate, Certified, Mixing, Promise, StaleRead};
use crate::own::OwnRow;
use crate::txn::readset::ReadSet;
use crate::{Csn, Error, TransactionId};

/// A place in the order of all nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) csn: Csn,
    /// Of the request.
    pub(crate) bytes: u64,
    /// Up to where the graph is pruned, if it is.
    pub(crate) horizon: Option<Csn>,
}

impl Sequencer {
    /// The next place is that of a PREPARE: judges its reads. `grant` takes its locks.
    ///
    /// # Errors
    /// `DependencyCycle`, `SerializationFailure`; `LogPoisoned`.
    pub(crate) fn deliver_prepare(
        &self,
        place: Place,
        candidate: Option<Candidate>,
        mixing: Option<&Mixing<'_>>,
        grant: impl FnOnce(),
    ) -> Result<Promise, Error> {
        let mut removed = Removed::default();
        self.in_order(|order| {
            let certified = self.certify(order, candidate)?;
            if let Some(certified) = &certified {
                check_mixing(certified, mixing)?;
            }
            let promise = certified.map(|certified| certified.admit_prepared(false)).unwrap_or_default();
            grant();
            self.follow(place)?;
            removed = self.prune(order, place.horizon);
            Ok(promise)
        })
    }

    /// The next place is that of a decision, of rows of the engine's own, or of both; nothing of it
    /// can be refused. `before` is called before anybody can see what it changes.
    ///
    /// # Errors
    /// `LogPoisoned`.
    pub(crate) fn deliver_decision(
        &self,
        place: Place,
        mut decision: Decision<'_>,
        before: impl FnOnce(),
    ) -> Result<(), Error> {
        let mut removed = Removed::default();
        let mut rows = std::mem::take(&mut decision.rows);
        rows.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        self.in_order(|order| {
            before();
            let commits = decision.commits;
            for (at, one) in decision.decided.iter_mut().enumerate() {
                let (promise, changes) = (std::mem::take(&mut one.promise), std::mem::take(&mut one.changes));
                if !(commits && at == 0) {
                    removed.append(order.withdraw(promise));
                    continue;
                }
                removed.append(order.fulfil(promise, place.csn));
                self.install(place.csn, &[], changes, &one.dropped);
            }
            self.install_own(place.csn, rows);
            // Before it is shown: who sees it must not take the graph for empty.
            removed.append(self.prune(order, place.horizon));
            self.follow(place)
        })
    }

    /// Whether nothing that was read was replaced, as far as the order's certifier and those who
    /// are prepared know: what the origin of a weak voting transaction votes by. Gives the reads
    /// back.
    ///
    /// # Errors
    /// `LogPoisoned`.
    pub(crate) fn holds(
        &self,
        id: TransactionId,
        snapshot: Csn,
        reads: ReadSet,
    ) -> Result<(ReadSet, bool), Error> {
        let (reads, stale) = self.stale_read(id, snapshot, Csn::MAX, reads)?;
        Ok((reads, stale.is_none()))
    }

    /// Rows of the engine's own that change with the next place, whatever that is about. Nobody can
    /// see it before that is delivered.
    ///
    /// # Errors
    /// `LogPoisoned`.
    pub(crate) fn install_with_next(&self, csn: Csn, mut rows: Vec<OwnRow>) -> Result<(), Error> {
        rows.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        self.in_order(|_| {
            self.install_own(csn, rows);
            Ok(())
        })
    }

    /// Whatever was installed for this place can be seen now.
    fn follow(&self, place: Place) -> Result<(), Error> {
        self.store.log.follow(place.csn, place.bytes)?;
        self.store.show(place.csn);
        Ok(())
    }
}

/// The mixing rule (`order`).
pub(super) fn check_mixing(certified: &Certified<'_>, mixing: Option<&Mixing<'_>>) -> Result<(), Error> {
    let Some(mixing) = mixing else { return Ok(()) };
    match certified.reaches_back(mixing) {
        None => Ok(()),
        Some(stale) => Err(reaches_back(stale, mixing.upto)),
    }
}

#[cold]
fn reaches_back(stale: Box<StaleRead>, upto: Csn) -> Error {
    let detail = format!(
        "What was read has to hold up to position {upto}, where a transaction committed whose reads \
         are not shared (cognate.replication = weak_voting or active)."
    );
    Error::SerializationFailure { detail, read: Some(stale) }
}
