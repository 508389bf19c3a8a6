//! By which protocol a session's transactions come to the other nodes of a cluster: what is asked
//! for, what the monitor thinks best (`crate::monitor`), and what it is told afterwards.
//!
//! ```text
//! a statement begins     its text becomes part of the transaction's class
//!   alone, and fit       the monitor is asked whether every node executes it (`active`)
//! COMMIT                 the monitor is asked: certification or weak voting
//! the verdict            the monitor is told what it took
//! ```

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};

use cognate_engine::{Replication, Transaction};

use super::{Block, Prepared, Session, Statement, active};
use crate::error::{Result, SqlError, sqlstate};
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
        Choice::named(name).unwrap_or_default()
    }

    /// The same; none if there is none of this name.
    pub(super) fn named(name: &str) -> Option<Choice> {
        match name {
            "auto" => Some(Choice::Auto),
            "active" => Some(Choice::Active),
            "certification" => Some(Choice::Certification),
            "weak_voting" => Some(Choice::WeakVoting),
            _ => None,
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
    statements: u32,
    /// Microseconds of executing statements, and of what they have waited for.
    executed_us: u64,
    waited_us: u64,
    /// It could be executed at every node.
    pub(super) is_fit: bool,
    /// A statement of it that was not undone has locked or changed rows here.
    pub(super) has_changed_here: bool,
    /// Under which the session knows that.
    fit_key: u64,
}

/// So many classes a session knows whether they are fit.
const FIT_CLASSES_MAX: usize = 64;

/// What has executed for longer than so many microseconds at its node and was refused is run again
/// there: while all nodes execute it nobody's commits are decided.
const EVERYWHERE_MAX_US: u64 = 1_000_000;

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
        self.attempt.statements += 1;
    }

    /// What has passed so far, to be given to [`Session::note_passed`] after a part of a statement.
    /// Nothing where there is nobody to be told.
    pub(super) fn passed(&self) -> Option<(i64, u64)> {
        self.database.engine().is_node().then(|| (self.database.now(), self.interrupts.waited_us()))
    }

    /// A part of a statement was executed.
    pub(super) fn note_passed(&mut self, before: Option<(i64, u64)>) {
        let (Some((before_us, waited_before)), Some((now_us, waited_us))) = (before, self.passed()) else {
            return;
        };
        let waited_us = waited_us.saturating_sub(waited_before);
        let passed_us = now_us.saturating_sub(before_us).max(0).unsigned_abs();
        self.attempt.waited_us += waited_us;
        self.attempt.executed_us += passed_us.saturating_sub(waited_us);
    }

    /// Whether the monitor has the statement that begins executed at every node.
    pub(super) fn monitor_wants_active(&mut self, prepared: &Prepared) -> bool {
        let was_refused = std::mem::take(&mut self.was_refused);
        let is_open = self.effective.replication == Choice::Auto
            && self.company == Company::None
            && self.may_begin_active();
        match prepared.statement() {
            Some(statement) if is_open && active::writes(prepared) => {
                self.wants_active_for(std::slice::from_ref(statement), was_refused)
            }
            _ => false,
        }
    }

    /// Whether a transaction that begins now may be one that every node executes. One that must not
    /// write is told so where it is.
    pub(super) fn may_begin_active(&self) -> bool {
        self.block == Block::None
            && !self.has_run_active
            && !self.effective.default_read_only
            && self.database.engine().is_node()
    }

    /// Whether the statements of a whole message are to be executed at every node, if that is
    /// possible: the message itself says so first, or the setting.
    pub fn asks_active(&self, statements: &[Statement]) -> bool {
        if active::is_read_only(statements) {
            return false;
        }
        match active::said_first(statements) {
            Some(said) => said == Choice::Active && self.company != Company::Some && self.may_begin_active(),
            None => self.wants_active(),
        }
    }

    /// The same, or the monitor says so and the message says nothing.
    pub fn wants_all_active(&mut self, statements: &[Statement]) -> bool {
        self.asks_active(statements)
            || (active::said_first(statements).is_none() && self.monitor_wants_all_active(statements))
    }

    /// What the monitor says of the statements of a whole message.
    fn monitor_wants_all_active(&mut self, statements: &[Statement]) -> bool {
        let was_refused = std::mem::take(&mut self.was_refused);
        let is_open = self.effective.replication == Choice::Auto && self.may_begin_active();
        if !is_open || !active::may_write(statements) {
            return false;
        }
        self.wants_active_for(active::within_block(statements), was_refused)
    }

    /// What was refused is to be run again.
    pub(super) fn note_refused(&mut self) {
        self.was_refused = self.took_us <= EVERYWHERE_MAX_US;
    }

    /// The transaction has come to its end, or there was none: nothing is known of the next one.
    pub(super) fn forget_attempt(&mut self) {
        let Attempt { statements, executed_us, .. } = std::mem::take(&mut self.attempt);
        if statements > 0 {
            self.took_us = executed_us;
        }
    }

    /// Whether what has come to nothing at every node is to be run here. So it is if nobody but the
    /// monitor has wanted it there, and it may succeed here: where what is prepared is waited for,
    /// nobody counts steps or holds all answers, and it goes to the others in parts if it is large.
    /// What has come to nothing for itself would do so again, while all wait for it: that is not
    /// tried a second time.
    pub(super) fn runs_here_instead(&mut self, error: &SqlError) -> bool {
        let states = [
            sqlstate::SERIALIZATION_FAILURE,
            sqlstate::PROGRAM_LIMIT_EXCEEDED,
            sqlstate::OUT_OF_MEMORY,
            sqlstate::FEATURE_NOT_SUPPORTED,
        ];
        let is_so = self.effective.replication == Choice::Auto && states.contains(&error.sqlstate);
        if is_so {
            let key = std::mem::take(&mut self.attempt).fit_key;
            let known = self.fit_classes.get_mut(&key);
            if let Some((_, fits)) = known.filter(|_| error.sqlstate != sqlstate::SERIALIZATION_FAILURE) {
                *fits = false;
            }
        }
        is_so
    }

    /// Who was refused and is run again goes to every node if that is possible and it did not take
    /// long, whatever its class does: there it cannot be refused a second time.
    fn wants_active_for(&mut self, statements: &[Statement], was_refused: bool) -> bool {
        let mut class = self.attempt.class.clone();
        for statement in statements {
            class.add(Fingerprint::of(&statement.text), &statement.text);
        }
        if !self.is_fit(&class, statements) {
            return false;
        }
        self.attempt.is_fit = true;
        let chosen = self.ask_monitor(&class, true);
        was_refused || chosen == Protocol::Active
    }

    fn ask_monitor(&self, class: &Class, is_fit: bool) -> Protocol {
        let (monitor, now) = (self.database.monitor(), self.database.now());
        match is_fit && self.retries() == 0 {
            true => monitor.choose_told(class, now),
            false => monitor.choose(class, is_fit, now),
        }
    }

    /// The protocol of a transaction that has run here and is to commit.
    pub(super) fn protocol(&self) -> (Protocol, Replication) {
        let by_choice = match self.effective.replication {
            Choice::WeakVoting => Protocol::WeakVoting,
            Choice::Certification | Choice::Active => Protocol::Certification,
            Choice::Auto => {
                let Attempt { class, is_fit, .. } = &self.attempt;
                self.ask_monitor(class, *is_fit)
            }
        };
        match by_choice {
            Protocol::WeakVoting => (Protocol::WeakVoting, Replication::WeakVoting),
            Protocol::Certification | Protocol::Active => {
                (Protocol::Certification, Replication::Certification)
            }
        }
    }

    /// What is known of a transaction before it is ordered.
    pub(super) fn finished(&self, engine: Option<&Transaction>, protocol: Protocol) -> Finished {
        let Attempt { class, statements, executed_us, waited_us, is_fit, .. } = &self.attempt;
        Finished {
            class: class.id(),
            protocol,
            fit_for_active: *is_fit,
            told_if_refused: self.retries() == 0,
            execution_us: *executed_us,
            lock_wait_us: *waited_us,
            write_bytes: engine.map_or(0, Transaction::bytes),
            read_bytes: engine.map_or(0, Transaction::read_bytes),
            round_trips: *statements,
            ..Finished::default()
        }
    }

    /// A transaction has come to its end by this protocol: tells the monitor, and shows it if that
    /// was a commit. Of one that was refused the settings go back to what they were before it.
    pub(super) fn note_protocol(&mut self, finished: &Finished) {
        let protocol = finished.protocol;
        self.database.ended().note(protocol, finished.committed);
        self.database.monitor().finished(finished, self.database.now());
        if !finished.committed || self.last_protocol == Some(protocol) {
            return;
        }
        self.last_protocol = Some(protocol);
        self.facts.with_settings(|settings| {
            if let Err(error) = settings.set_fact(LAST_PROTOCOL, protocol.name()) {
                tracing::warn!(%error, "the protocol of a transaction could not be kept");
            }
        });
    }

    /// 0A000 for the end of a block (COMMIT, or what prepares it) that has changed rows here, and
    /// of which it was said afterwards that every node is to execute it. What defines something
    /// may commit so.
    pub(super) fn check_is_here(&mut self, command: &str) -> Result<()> {
        match self.block == Block::Explicit && self.attempt.has_changed_here {
            true => self.check_replication(command),
            false => Ok(()),
        }
    }

    /// The same of what prepares the open block.
    pub(super) fn check_is_here_to_prepare(&mut self, command: &str) -> Result<()> {
        match self.open.as_ref().is_some_and(|open| open.engine.has_writes()) {
            true => self.check_is_here(command),
            false => Ok(()),
        }
    }

    /// A statement has failed: if that was because others were faster, the monitor is told.
    pub(super) fn note_lost(&mut self, error: &SqlError) {
        let is_lost = error.sqlstate == sqlstate::SERIALIZATION_FAILURE && !self.is_ordered();
        if !is_lost || !self.database.engine().is_node() || self.attempt.statements == 0 {
            return;
        }
        let (protocol, _) = self.protocol();
        let engine = self.open.as_ref().map(|open| &open.engine);
        let finished = Finished { conflict: Some(true), ..self.finished(engine, protocol) };
        self.database.monitor().finished(&finished, self.database.now());
    }

    /// Whether every node that executes the statements of a class comes to the same, whatever their
    /// values are.
    fn is_fit(&mut self, class: &Class, statements: &[Statement]) -> bool {
        let (catalog, state) = self.database.catalog_with_state();
        // The same words may name other tables and functions.
        let mut hasher = DefaultHasher::new();
        self.effective.search_path.hash(&mut hasher);
        let key = class.id() ^ hasher.finish();
        self.attempt.fit_key = key;
        if let Some((known, fits)) = self.fit_classes.get(&key)
            && *known == state
        {
            return *fits;
        }
        let fits = statements.iter().all(|statement| active::is_fit(&catalog, &self.facts, statement));
        if self.fit_classes.len() >= FIT_CLASSES_MAX {
            self.fit_classes.clear();
        }
        self.fit_classes.insert(key, (state, fits));
        fits
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
