//! What travels between components: names of headers, and bodies of the control messages.
//! `docs/composite-wire.md` has the whole contract.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use serde::{Deserialize, Serialize};

use crate::name::{CallId, Name, RootId};
use crate::participant::{Nonce, Origin, Outcome, Settled, Vote};
use crate::problem::Problem;

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
/// In answers to calls: what a yes of the component to their root will be known by.
pub const NONCE: &str = "cognate-nonce";
/// Where the component that calls decides: its database's mark, a colon, its generation.
pub const ORIGIN: &str = "cognate-origin";
/// Whoever calls lets the call be answered ahead of its commit: `1`.
pub const AHEAD: &str = "cognate-ahead";
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
    /// Of a question: the calls of whom is asked that have called who asks, as far as known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<CallId>,
    /// Of an abort: where the parent decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// Questions for votes, and what may go along with them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Questions {
    /// One entry a root.
    pub roots: Vec<PrepareEntry>,
    /// Other roots, which are committed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commits: Vec<OutcomeEntry>,
    /// Whoever asks takes the votes that are there with the first one, and asks for the others once
    /// more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partly: bool,
}

/// Votes, and the answers to what went along with the questions, if anything did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Votes {
    /// One entry a root.
    pub roots: Vec<VoteEntry>,
    /// One entry a root that is committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commits: Option<Vec<StateEntry>>,
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

/// Where a component decides, as a header; none if no header can carry it.
pub(crate) fn origin_header(origin: &Origin) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("{}:{}", origin.database, origin.generation)).ok()
}

/// Where a component decides, from its header.
pub(crate) fn read_origin(text: &str) -> Result<Origin, Problem> {
    let parts = text.rsplit_once(':');
    let parts = parts.filter(|(_, generation)| generation.bytes().all(|byte| byte.is_ascii_digit()));
    let parts = parts.and_then(|(database, generation)| Some((database, generation.parse::<u64>().ok()?)));
    let (database, generation) =
        parts.ok_or_else(|| Problem::new(400, "arguments", format!("{ORIGIN}: not an origin: {text}")))?;
    Ok(Origin { database: database.to_owned(), generation })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What a later version says besides must not keep an outcome from its root.
    #[test]
    fn fields_that_are_not_known_are_passed_over() {
        let later = r#"{"roots":[{"root":"r","parent":"shop","nonce":7,"later":1}],"more":[]}"#;
        let read: Batch<OutcomeEntry> = serde_json::from_str(later).unwrap();
        assert_eq!((read.roots.len(), read.roots[0].nonce), (1, Some(7)));
    }

    #[test]
    fn an_origin_is_read_as_it_was_written() {
        let origin = Origin { database: "4f:0".to_owned(), generation: 7 };
        let header = origin_header(&origin).unwrap();
        assert_eq!(header, "4f:0:7");
        assert_eq!(read_origin(header.to_str().unwrap()).ok(), Some(origin));
        for bad in ["", "4f0", "4f0:", "4f0:x", "4f0:-1", "4f0:+1"] {
            assert_eq!(read_origin(bad).map_err(|problem| problem.status), Err(400), "{bad}");
        }
        // What no header can carry is not sent.
        assert_eq!(origin_header(&Origin { database: "4f\n".to_owned(), generation: 7 }), None);
    }
}
