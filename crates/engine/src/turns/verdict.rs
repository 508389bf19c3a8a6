//! What is said of a request that does not commit.

use super::Turns;
use crate::ahead::not_whole;
use crate::certifier::StaleRead;
use crate::delivery::{Cluster, overtaken};
use crate::fate::Stroke;
use crate::manager::Manager;
use crate::order::{Footprint, Refusal, Request};
use crate::{Csn, Error, TransactionId};

/// Whether a request that ends so was refused, as it is everywhere.
pub(super) fn is_verdict(error: &Error) -> bool {
    let refused = matches!(
        error,
        Error::RequestKnown { .. }
            | Error::RequestPrepared { .. }
            | Error::RequestVoid { .. }
            | Error::AlreadyPrepared
            | Error::NotPrepared
            | Error::Refused(_)
    );
    refused || error.is_retryable()
}

/// A refusal, as its client is told.
pub(super) fn refused(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Overtaken { by, position, tree, key } => overtaken(Stroke { by, position, tree, key }),
        Refusal::TooOld { horizon } => Error::unserializable(format!(
            "The snapshot is too old: nothing is known any more of what was before {horizon}."
        )),
        Refusal::Named { position, is_prepared: true } => Error::RequestPrepared { position },
        Refusal::Named { position, is_prepared: false } => Error::RequestKnown { position },
        Refusal::Void { position } => Error::RequestVoid { position },
        Refusal::NotAwaited => not_whole(),
        Refusal::NoRoom { limit } => {
            Error::unserializable(format!("With it, what comes in parts would have more than {limit} bytes."))
        }
        Refusal::Known { .. } => Error::Defect("a known request is not refused"),
    }
}

/// A transaction that waited for its vote does not commit, for this read if its node is this one.
#[cold]
pub(super) fn voted_against(read: Option<Box<StaleRead>>) -> Error {
    let detail = match &read {
        Some(_) => "Its node has voted against it.",
        None => {
            "What it had read was replaced by a transaction that comes before it in the order of all \
             nodes, or its node did not vote."
        }
    };
    Error::SerializationFailure { detail: detail.to_owned(), read }
}

/// This node votes against a transaction of its own. What that has read says why, at its turn.
pub(super) fn keep_reads(cluster: &Cluster, turns: &mut Turns, id: TransactionId) {
    let reads = turns.lists.footprint_mut(id).and_then(Footprint::take_reads);
    if let (Some(reads), Some(sealed)) = (reads, cluster.sealed.lock().get_mut(&id)) {
        sealed.reads = Some(reads);
    }
}

impl Manager {
    /// Why a transaction does not commit whose turn it is and that was voted against. Everything
    /// before it is decided by now, so its node finds who has replaced what it had read.
    ///
    /// # Errors
    /// `LogPoisoned`.
    #[cold]
    pub(super) fn explain_vote(&self, cluster: &Cluster, request: &Request) -> Result<Error, Error> {
        let reads = cluster.sealed.lock().get_mut(&request.id).and_then(|sealed| sealed.reads.take());
        let Some(reads) = reads else { return Ok(voted_against(None)) };
        let (_, read) = self.sequencer.stale_read(request.id, request.snapshot, Csn::MAX, reads)?;
        Ok(voted_against(read))
    }
}
