//! What travels between components: names of headers, and bodies of the control messages.
//! `docs/composite-wire.md` has the whole contract.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use serde::{Deserialize, Serialize};

use crate::name::{Name, RootId};
use crate::participant::{Nonce, Origin, Outcome, Settled, Vote};

/// The root that a call is part of.
pub const ROOT: &str = "cognate-root";
/// The component that calls, by name.
pub const PARENT: &str = "cognate-parent";
/// The call.
pub const CALL: &str = "cognate-call";
/// The calls that it is part of, the root's first, with commas.
pub const ANCESTORS: &str = "cognate-ancestors";
/// Milliseconds that are left.
pub const DEADLINE: &str = "cognate-deadline-ms";
/// The longest time that a request may have, whatever it says.
pub const DEADLINE_MAX: Duration = Duration::from_secs(60);
/// In answers: the generation of the component.
pub const GENERATION: &str = "cognate-generation";
/// The client's name for its request.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// What tells a call's place in a trace (W3C Trace Context). It is passed on as it came: the
/// components in between make no spans of their own.
pub(crate) const TRACE: [&str; 2] = ["traceparent", "tracestate"];

/// The headers of a request's trace that are passed on, if it has one.
pub(crate) type Trace = Arc<[(&'static str, HeaderValue)]>;

/// A message about many roots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch<T> {
    /// One entry a root.
    pub roots: Vec<T>,
}

/// A question for a vote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrepareEntry {
    /// The root.
    pub root: RootId,
    /// Who asks.
    pub parent: Name,
    /// Distinct calls that were answered 2xx.
    pub calls: u32,
    /// The oldest generation in these answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Where the parent decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// A vote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoteEntry {
    /// The root.
    pub root: RootId,
    /// `yes` or `no`.
    pub vote: String,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What a yes is known by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<Nonce>,
}

impl VoteEntry {
    pub(crate) fn new(root: RootId, vote: Vote) -> VoteEntry {
        match vote {
            Vote::Yes(nonce) => VoteEntry { root, vote: "yes".to_owned(), reason: None, nonce: Some(nonce) },
            Vote::No(no) => {
                VoteEntry { root, vote: "no".to_owned(), reason: Some(no.as_str().to_owned()), nonce: None }
            }
        }
    }
}

/// An outcome that is told, or a question for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeEntry {
    /// The root.
    pub root: RootId,
    /// Who tells, or asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Name>,
    /// Who asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<Name>,
    /// The vote that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<Nonce>,
}

/// The answer to an outcome that was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateEntry {
    /// The root.
    pub root: RootId,
    /// `done`, `pending`, `refused`; or `committed`, `aborted`, `pending`.
    pub state: String,
    /// Of the answer to a question for an outcome: where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

pub(crate) fn settled(settled: Settled) -> &'static str {
    match settled {
        Settled::Done => "done",
        Settled::Pending => "pending",
        Settled::Refused => "refused",
    }
}

pub(crate) fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Committed => "committed",
        Outcome::Aborted => "aborted",
        Outcome::Pending => "pending",
    }
}
