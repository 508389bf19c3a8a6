//! Control messages as they are written and read: entries about roots, and what is answered about
//! them. `courier` carries them.

use serde::{Deserialize, Serialize};

use crate::name::RootId;
use crate::participant::{Nonce, Origin};
use crate::wire::{OutcomeEntry, PrepareEntry};

/// A kind of control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Prepare,
    Commit,
    Abort,
    Outcome,
}

impl Kind {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Kind::Prepare => "/composite/prepare",
            Kind::Commit => "/composite/commit",
            Kind::Abort => "/composite/abort",
            Kind::Outcome => "/composite/outcome",
        }
    }
}

/// An entry of a control message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Entry {
    Prepare(PrepareEntry),
    Outcome(OutcomeEntry),
}

impl Entry {
    pub(crate) fn root(&self) -> &RootId {
        match self {
            Entry::Prepare(entry) => &entry.root,
            Entry::Outcome(entry) => &entry.root,
        }
    }
}

/// What was answered about a root. What it does not say it says nothing about.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Answer {
    pub(crate) root: String,
    pub(crate) vote: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) nonce: Option<Nonce>,
    pub(crate) state: Option<String>,
    #[serde(default)]
    pub(crate) origin: Option<Origin>,
}

/// A control message.
#[derive(Debug, Serialize)]
pub(crate) struct Message {
    pub(crate) roots: Vec<Entry>,
    /// What goes along with questions for votes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) commits: Vec<Entry>,
    /// Some of the votes will do.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) partly: bool,
}

/// The answers to a control message.
#[derive(Debug, Deserialize)]
pub(crate) struct Answers {
    pub(crate) roots: Vec<Answer>,
    /// None from who has not looked at them.
    #[serde(default)]
    pub(crate) commits: Option<Vec<Answer>>,
}
