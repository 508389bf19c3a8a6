//! By which protocol a session's transactions come to the other nodes of a cluster: what is asked for, what the
//! monitor thinks best (`crate::monitor`), and what it is told afterwards.
//!
//! ```text
//! a statement begins     its text becomes part of the transaction's class
//!   alone, and fit       the monitor is asked whether every node executes it (`active`)
//! COMMIT                 the monitor is asked: certification or weak voting
//! the verdict            the monitor is told what it took
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

use cognate_engine::{Replication, Transaction};

use super::settings::Origin;
use super::{Block, Prepared, Session, Statement, active};
use crate::error::{SqlError, sqlstate};
use crate::monitor::{Class, Fingerprint, Finished, Protocol};

/// `cognate.replication`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// What the monitor thinks best.
    #[default]
    Auto,
    /// Every node executes the statements.
    Active,
    /// Every node judges what was read and written.
    Certification,
    /// The node where it ran judges what was read, and votes.
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

/// Whether a statement outside a block has others in its transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Company {
    /// It has none: it is the whole message, or Sync follows.
    None,
    /// Nobody can say yet.
    #[default]
    Unknown,
    /// Others follow.
    Some,
}

/// What the monitor is told of a transaction.
#[derive(Default)]
pub(super) struct Attempt {
    class: Class,
    /// When its first statement began, microseconds since 2000-01-01 UTC.
    began: Option<i64>,
    statements: u32,
    /// It could be executed at every node.
    pub(super) is_fit: bool,
}

const LAST_PROTOCOL: &str = "cognate.last_protocol";

impl Session {
    /// Says whether the next statement is alone in its transaction.
    pub fn set_company(&mut self, company: Company) {
        self.company = company;
    }

    /// A statement that reads or changes rows begins.
    pub(super) fn note_statement(&mut self, prepared: &Prepared) {
        if !self.database.engine().is_node() || self.is_ordered() {
            return;
        }
        let Some(statement) = prepared.statement() else { return };
        self.attempt.class.add(Fingerprint::of(&statement.text), &statement.text);
        self.attempt.began.get_or_insert_with(|| self.database.now());
        self.attempt.statements += 1;
    }

    /// Whether the monitor has the statement that begins executed at every node.
    pub(super) fn monitor_wants_active(&mut self, prepared: &Prepared) -> bool {
        let is_open = self.effective.replication == Choice::Auto
            && self.company == Company::None
            && self.block == Block::None
            && self.database.engine().is_node();
        if !is_open || !active::writes(prepared) || !self.is_fit(prepared) {
            return false;
        }
        self.attempt.is_fit = true;
        let mut class = self.attempt.class.clone();
        if let Some(statement) = prepared.statement() {
            class.add(Fingerprint::of(&statement.text), &statement.text);
        }
        self.database.monitor().choose(&class, true, self.database.now()) == Protocol::Active
    }

    /// The same of the statements of a whole message.
    pub fn monitor_wants_all_active(&mut self, statements: &[Statement]) -> bool {
        let is_open = self.effective.replication == Choice::Auto
            && self.block == Block::None
            && !self.has_run_active
            && self.database.engine().is_node();
        if !is_open || !active::may_write(statements) {
            return false;
        }
        let inner = active::within_block(statements);
        let catalog = self.database.catalog();
        if !inner.iter().all(|statement| active::is_fit(&catalog, &self.facts, statement)) {
            return false;
        }
        self.attempt.is_fit = true;
        let mut class = self.attempt.class.clone();
        for statement in inner {
            class.add(Fingerprint::of(&statement.text), &statement.text);
        }
        self.database.monitor().choose(&class, true, self.database.now()) == Protocol::Active
    }

    /// The protocol of a transaction that has run here and is to commit.
    pub(super) fn protocol(&self) -> (Protocol, Replication) {
        let by_choice = match self.effective.replication {
            Choice::WeakVoting => Protocol::WeakVoting,
            Choice::Certification | Choice::Active => Protocol::Certification,
            Choice::Auto => {
                let Attempt { class, is_fit, .. } = &self.attempt;
                self.database.monitor().choose(class, *is_fit, self.database.now())
            }
        };
        match by_choice {
            Protocol::WeakVoting => (Protocol::WeakVoting, Replication::WeakVoting),
            Protocol::Certification | Protocol::Active => {
                (Protocol::Certification, Replication::Certification)
            }
        }
    }

    /// What is known of a transaction before it is ordered; `began`: when that was.
    pub(super) fn finished(&self, engine: Option<&Transaction>, protocol: Protocol) -> Finished {
        let now = self.database.now();
        let Attempt { class, began, statements, is_fit } = &self.attempt;
        Finished {
            class: class.id(),
            protocol,
            fit_for_active: *is_fit,
            execution_us: began.map_or(0, |began| now.saturating_sub(began).max(0).unsigned_abs()),
            write_bytes: engine.map_or(0, Transaction::bytes),
            read_bytes: engine.map_or(0, Transaction::read_bytes),
            round_trips: *statements,
            ..Finished::default()
        }
    }

    /// A transaction has come to its end by this protocol: shows it, and tells the monitor.
    pub(super) fn note_protocol(&mut self, finished: &Finished) {
        let protocol = finished.protocol;
        self.database.ended().note(protocol, finished.committed);
        self.database.monitor().finished(finished, self.database.now());
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

    /// A statement has failed: if that was because others were faster, the monitor is told.
    pub(super) fn note_lost(&mut self, error: &SqlError) {
        let is_lost = error.sqlstate == sqlstate::SERIALIZATION_FAILURE && !self.is_ordered();
        if !is_lost || !self.database.engine().is_node() || self.attempt.began.is_none() {
            return;
        }
        let (protocol, _) = self.protocol();
        let engine = self.open.as_ref().map(|open| &open.engine);
        let finished = Finished { conflict: Some(true), ..self.finished(engine, protocol) };
        self.database.monitor().finished(&finished, self.database.now());
    }

    /// Whether every node that executes the statement comes to the same.
    fn is_fit(&self, prepared: &Prepared) -> bool {
        let catalog = self.database.catalog();
        let fits = |statement| active::is_fit(&catalog, &self.facts, statement);
        prepared.statement().is_some_and(fits)
    }
}

/// How many transactions of this node have come to their ends, by protocol.
#[derive(Debug, Default)]
pub(crate) struct Protocols([[AtomicU64; 2]; 3]);

impl Protocols {
    fn note(&self, protocol: Protocol, committed: bool) {
        self.0[protocol as usize][usize::from(committed)].fetch_add(1, Ordering::Relaxed);
    }

    /// Name, commits and aborts of each.
    pub(crate) fn counts(&self) -> [(&'static str, u64, u64); 3] {
        Protocol::ALL.map(|protocol| {
            let of = |committed: usize| self.0[protocol as usize][committed].load(Ordering::Relaxed);
            (protocol.name(), of(1), of(0))
        })
    }
}
