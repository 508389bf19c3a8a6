//! By which protocol a session's transactions come to the other nodes: what is asked for, and what was taken
//! last.

use cognate_engine::Replication;

use super::Session;
use super::settings::Origin;

/// `cognate.replication`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// What the monitor thinks best.
    #[default]
    Auto,
    Active,
    Certification,
    WeakVoting,
}

impl Choice {
    /// By its name in settings.
    pub(crate) fn of(name: &str) -> Choice {
        match name {
            "active" => Choice::Active,
            "certification" => Choice::Certification,
            "weak_voting" => Choice::WeakVoting,
            _ => Choice::Auto,
        }
    }
}

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Active,
    Certification,
    WeakVoting,
}

impl Protocol {
    /// Its name in settings and views.
    pub(super) fn name(self) -> &'static str {
        match self {
            Protocol::Active => "active",
            Protocol::Certification => "certification",
            Protocol::WeakVoting => "weak_voting",
        }
    }
}

const LAST_PROTOCOL: &str = "cognate.last_protocol";

impl Session {
    /// The protocol of a transaction that has run here and is to commit.
    pub(super) fn protocol(&self) -> (Protocol, Replication) {
        match self.effective.replication {
            Choice::WeakVoting => (Protocol::WeakVoting, Replication::WeakVoting),
            Choice::Auto | Choice::Certification | Choice::Active => {
                (Protocol::Certification, Replication::Certification)
            }
        }
    }

    /// A transaction has come to its end by this protocol.
    pub(super) fn note_protocol(&mut self, protocol: Protocol, committed: bool) {
        self.database.ended().note(protocol, committed);
        if self.last_protocol == Some(protocol) {
            return;
        }
        self.last_protocol = Some(protocol);
        self.facts.with_settings(|settings| {
            if let Err(error) = settings.set_default(LAST_PROTOCOL, protocol.name(), Origin::Fact) {
                tracing::warn!(%error, "the protocol of a transaction could not be kept");
            }
        });
    }
}

/// How many transactions of this node have come to their ends, by protocol.
#[derive(Debug, Default)]
pub(crate) struct Protocols([[std::sync::atomic::AtomicU64; 2]; 3]);

impl Protocols {
    fn note(&self, protocol: Protocol, committed: bool) {
        let count = &self.0[protocol as usize][usize::from(committed)];
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    /// Name, commits and aborts of each.
    pub(crate) fn counts(&self) -> [(&'static str, u64, u64); 3] {
        [Protocol::Active, Protocol::Certification, Protocol::WeakVoting].map(|protocol| {
            let of = |committed: usize| {
                self.0[protocol as usize][committed].load(std::sync::atomic::Ordering::Relaxed)
            };
            (protocol.name(), of(1), of(0))
        })
    }
}
