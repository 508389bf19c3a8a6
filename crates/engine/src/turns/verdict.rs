//! What is said of a request that does not commit.

use crate::Error;
use crate::ahead::not_whole;
use crate::delivery::overtaken;
use crate::fate::Stroke;
use crate::order::Refusal;

/// Whether a request that ends so was refused, as it is everywhere.
pub(super) fn is_verdict(error: &Error) -> bool {
    let refused = matches!(
        error,
        Error::RequestKnown { .. }
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
        Refusal::TooOld { horizon } => Error::SerializationFailure {
            detail: format!(
                "The snapshot is too old: nothing is known any more of what was before {horizon}."
            ),
        },
        Refusal::Named { position } => Error::RequestKnown { position },
        Refusal::Void { position } => Error::RequestVoid { position },
        Refusal::NotAwaited => not_whole(),
        Refusal::NoRoom { limit } => Error::SerializationFailure {
            detail: format!("With it, what comes in parts would have more than {limit} bytes."),
        },
        Refusal::Known { .. } => Error::Defect("a known request is not refused"),
    }
}

/// A transaction that waited for its vote does not commit.
#[cold]
pub(super) fn voted_against() -> Error {
    Error::SerializationFailure {
        detail: "What it had read was replaced by a transaction that comes before it in the order of all \
                 nodes, or its node did not vote."
            .to_owned(),
    }
}
