//! Verdicts that get no record, and what is known of the certifier's graph: readers' commits,
//! checks before the end, what a crash or an image brings back, pruning.
//!
//! Whatever follows edges or promises, or changes the graph, does so within
//! [`Sequencer::in_order`], which stops the log if it panics. What takes the mutex alone counts, or
//! goes through the nodes that there are; and a graph is restored before there is anything that
//! could be stopped: a panic ends the start then.

use std::collections::HashMap;

use super::{PRUNE_EVERY, Sequencer};
use crate::certifier::{
    Candidate, Certifier, CertifierStatistics, Method, Promise, Removed, StaleRead, Watch,
};
use crate::hash::Seed;
use crate::level::Access;
use crate::lock::mode::FamilySlot;
use crate::payload::{Encoder, Input};
use crate::sync::atomic::Ordering;
use crate::sync::spin;
use crate::txn::readset::ReadSet;
use crate::txn::snapshot::Pin;
use crate::txn::writeset::KeyWrites;
use crate::{Csn, Error, TransactionId};

impl Sequencer {
    /// Whether there is a certifier.
    pub(crate) fn certifies(&self) -> bool {
        self.method.certifies()
    }

    /// By which rule it judges.
    pub(crate) fn method(&self) -> Method {
        self.method
    }

    /// Step 3 for a transaction that wrote nothing; `began`: its first snapshot, if that has moved.
    ///
    /// # Errors
    /// `DependencyCycle`.
    pub(crate) fn certify_reader(
        &self,
        id: TransactionId,
        snapshot: Csn,
        began: Csn,
        reads: ReadSet,
    ) -> Result<(), Error> {
        if self.is_free_to_read(snapshot, &reads) {
            return Ok(());
        }
        let candidate =
            Candidate::new(id, snapshot, Some(reads), KeyWrites::new(), Vec::new()).begun_at(began);
        let prune = self.prune_to();
        let removed = self.in_order(|order| {
            if let Some(certified) = self.certify(order, Some(candidate))? {
                certified.admit(self.store.log.last());
            }
            Ok(self.prune(order, prune))
        })?;
        drop(removed);
        Ok(())
    }

    /// Whether reads at a snapshot fit into the order whatever else there is: see the sequencer's
    /// prose.
    pub(crate) fn is_free_to_read(&self, snapshot: Csn, reads: &ReadSet) -> bool {
        // In this order: what has made it quiet may have been pruned for the others' sake.
        let quiet = !reads.has_latest() && snapshot < self.quiet_below() && snapshot >= self.pruned_upto();
        let spliced = reads.is_one_key() && self.method == Method::Pssi;
        reads.is_empty() || quiet || spliced
    }

    /// Whether any order explains what was read up to now.
    ///
    /// # Errors
    /// `DependencyCycle`.
    pub(crate) fn check_reads(
        &self,
        id: TransactionId,
        snapshot: Csn,
        began: Csn,
        reads: ReadSet,
    ) -> Result<(), Error> {
        let candidate =
            Candidate::new(id, snapshot, Some(reads), KeyWrites::new(), Vec::new()).begun_at(began);
        self.in_order(|order| self.certify(order, Some(candidate)).map(drop))
    }

    /// What of these reads at a snapshot was replaced by a commit up to `until`, which is visible:
    /// then all such commits are in the graph as long as the snapshot is pinned. Gives the reads
    /// back.
    ///
    /// # Errors
    /// `LogPoisoned`.
    pub(crate) fn stale_read(
        &self,
        id: TransactionId,
        snapshot: Csn,
        until: Csn,
        reads: ReadSet,
    ) -> Result<(ReadSet, Option<Box<StaleRead>>), Error> {
        if reads.is_empty() {
            return Ok((reads, None));
        }
        let mut reader = Candidate::new(id, snapshot, Some(reads), KeyWrites::new(), Vec::new());
        let stale = self.in_order(|order| Ok(order.stale_read(&mut reader, until)))?;
        Ok((reader.into_reads(), stale))
    }

    /// Enters what a crash left prepared. It was certified when it was prepared; this draws its
    /// edges to the others.
    pub(crate) fn restore(&self, candidate: Candidate, overtaken: bool) -> Result<Promise, Error> {
        self.in_order(|order| {
            let promise = order.connect(candidate).admit_prepared(overtaken);
            drop(self.prune(order, None));
            Ok(promise)
        })
    }

    /// Writes the graph, as part of a node's image. One that is not whole is not written, and stops
    /// the log as it would have at the next commit that meets the fault.
    ///
    /// # Errors
    /// `LogPoisoned`.
    pub(crate) fn encode_graph(&self, out: &mut Encoder) -> Result<(), Error> {
        self.in_order(|order| {
            order.encode(out);
            Ok(())
        })
    }

    /// Reads the graph of an image, before anything else is in this one, of a database with this
    /// seed. The answer has those who are prepared.
    ///
    /// # Errors
    /// What is wrong with the bytes, in words.
    pub(crate) fn restore_graph(
        &self,
        input: &mut Input<'_>,
        seed: &Seed,
    ) -> Result<HashMap<TransactionId, Promise>, String> {
        let mut order = spin::lock(&self.order);
        let promises = order.certifier.restore(input, seed)?;
        drop(self.prune(&mut order.certifier, None));
        Ok(promises)
    }

    /// Says of a restored prepared transaction that it is an instance of a family.
    ///
    /// # Errors
    /// `LogPoisoned`.
    pub(crate) fn name_family(&self, promise: &Promise, family: Option<FamilySlot>) -> Result<(), Error> {
        self.in_order(|order| {
            order.name_family(promise, family);
            Ok(())
        })
    }

    /// Pins the visible mark and watches whether anybody who commits later leads to before it.
    pub(crate) fn pin_watched(&self) -> (Pin, Watch) {
        let mut order = spin::lock(&self.order);
        let pin = self.store.pin(Access::ReadWrite, false);
        let watch = order.certifier.watch(pin.csn());
        (pin, watch)
    }

    /// Ends a watch.
    pub(crate) fn is_safe(&self, watch: Watch) -> bool {
        spin::lock(&self.order).certifier.end_watch(watch)
    }

    /// Whether only the decision about a prepared transaction can make a snapshot from here on
    /// safe.
    pub(crate) fn is_in_doubt(&self, snapshot: Csn) -> bool {
        spin::lock(&self.order).certifier.is_in_doubt(snapshot)
    }

    /// The graph has no transaction that a snapshot below this shows.
    #[inline]
    pub(crate) fn quiet_below(&self) -> Csn {
        self.graph.quiet_below.load(Ordering::Acquire)
    }

    /// The last commit that the graph has, among those that somebody may still get an edge to.
    pub(crate) fn newest_open(&self) -> Option<Csn> {
        spin::lock(&self.order).certifier.newest_open()
    }

    fn pruned_upto(&self) -> Csn {
        self.graph.pruned_upto.load(Ordering::Acquire)
    }

    pub(crate) fn statistics(&self) -> CertifierStatistics {
        spin::lock(&self.order).certifier.statistics()
    }

    /// How many were refused by the certifier.
    pub(crate) fn cycles(&self) -> u64 {
        self.cycles.load(Ordering::Relaxed)
    }

    /// Changes the memory that the graph may take.
    pub(crate) fn set_limit(&self, bytes: u64) {
        let removed = self.in_order(|order| {
            order.set_limit(bytes as usize);
            Ok(order.advance(self.store.snapshots.oldest_certified(|| self.store.floor())))
        });
        drop(removed);
    }

    /// Up to where the graph is to be pruned now, if it is due. Asked before the mutex is taken,
    /// since it takes locks of its own; what is true of the oldest snapshot stays true.
    pub(super) fn prune_to(&self) -> Option<Csn> {
        let due = self.graph.prune_due.load(Ordering::Relaxed);
        due.then(|| self.store.snapshots.oldest_certified(|| self.store.floor()))
    }

    /// Prunes the graph, if it is due, and tells others what they know of it without the mutex.
    pub(super) fn prune(&self, certifier: &mut Certifier, prune: Option<Csn>) -> Removed {
        let removed = prune.map(|oldest| certifier.advance(oldest)).unwrap_or_default();
        // Before it looks quiet.
        if let Some(oldest) = prune.filter(|oldest| *oldest > self.pruned_upto()) {
            self.graph.pruned_upto.store(oldest, Ordering::Release);
        }
        // Written only where they change: everybody looks at them.
        let patience = if certifier.is_full() { PRUNE_EVERY / 4 } else { PRUNE_EVERY };
        let (quiet, due) = (certifier.quiet_below(), certifier.unpruned() >= patience);
        if self.graph.quiet_below.load(Ordering::Relaxed) != quiet {
            self.graph.quiet_below.store(quiet, Ordering::Release);
        }
        if self.graph.prune_due.load(Ordering::Relaxed) != due {
            self.graph.prune_due.store(due, Ordering::Relaxed);
        }
        removed
    }
}
