//! Advisory locks of a session: `pg_advisory_lock` and its kin.
//!
//! The engine's lock table knows who holds what (`cognate_engine::AdvisoryLocks`); how often, and
//! until when, is counted here: locks of the *session* until they are let go of as often as they
//! were taken, those of the *transaction* until its end, or the savepoint's. Both are the session's
//! own towards others, so one never waits for the other.
//!
//! # Waiting in the middle of a statement
//!
//! Expressions are computed without a pause, and a function among them may have to wait. As long as
//! a SELECT has given no row, it is given up where it stands, its session waits as it does for any
//! other lock, and the statement is computed from its beginning. What it had locked until then
//! stays *reserved*, so that nobody gets in between, and counts when it is asked for again.
//!
//! ```text
//! SELECT pg_advisory_lock(1), pg_advisory_lock(2)
//!     1 is free: counted          2 is somebody's: given up, 1 is reserved
//!     ... waits for 2             2 is reserved
//!     1 and 2 are reserved: counted; the row is given
//! ```
//!
//! Everywhere else (after the first row, where rows are written, after a lock was let go of, which
//! cannot be taken back) the thread itself waits, while another one serves what it served besides.
//! Threads are fewer than sessions may be: [`THREADS_MAX`] wait so at a time.
//!
//! A statement that is run again, because it failed for others, begins by reserving what the failed
//! run had taken.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;

use cognate_engine::{AdvisoryKey, AdvisoryLocks, AdvisoryMode, Transaction};
use parking_lot::Mutex;

use super::SqlDatabase;
use super::facts::Facts;
use super::interrupt::Interrupts;
use crate::budget::{Budget, Charge};
use crate::error::{Result, SqlError, sqlstate};
use crate::types::Datum;

/// So many statements of a database wait in threads at a time.
const THREADS_MAX: usize = 256;

/// Bytes that a lock takes here and in the lock table, about.
const LOCK_BYTES: u64 = 512;

/// Fewer locks than this all sessions together may always have.
const LOCKS_MIN: u64 = 1 << 15;

/// So often a session may take locks, again or for the first time, before that is charged.
const FREE_COUNTS: usize = 1024;

/// A lock that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    key: AdvisoryKey,
    mode: AdvisoryMode,
}

/// How long a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Session,
    Transaction,
}

/// How often a lock was taken.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    session: u64,
    transaction: u64,
}

/// What all sessions of a database have together.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Locks that are held.
    locks: AtomicU64,
    /// Statements that wait in threads.
    threads: AtomicUsize,
}

/// A session's locks.
#[derive(Default)]
pub(crate) struct Advisory {
    /// The number that the session has in the lock table; zero before its first lock.
    owner: AtomicU64,
    /// The statement may be given up where it stands.
    may_unwind: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    locks: Option<AdvisoryLocks>,
    held: HashMap<Lock, Count>,
    /// Those of the transaction, in the order in which they were taken.
    taken: Vec<Lock>,
    /// What was taken since the message or the block began, so that it can be run again.
    journal: Vec<(Lock, Scope)>,
    /// How often something was let go of, which cannot be taken back; the same when the journal
    /// began, and when the statement did.
    releases: u64,
    releases_before: u64,
    releases_before_statement: u64,
    /// Held and not counted: for a statement that is computed once more.
    reserved: HashSet<Lock>,
    /// What a statement was given up for.
    wanted: Option<Lock>,
    /// For what was taken more often than is free, and for how often.
    charge: Option<Charge>,
    paid: usize,
}

impl State {
    /// Takes memory for one more count, and for those that come next: one lock may be taken without
    /// end. 53200 if there is none.
    fn pay(&mut self, budget: &Arc<Budget>) -> Result<()> {
        let counts = self.journal.len() + self.taken.len() + 2;
        if counts <= self.paid.max(FREE_COUNTS) {
            return Ok(());
        }
        let wanted = counts + counts / 2;
        // What grows has room for twice as much.
        let bytes = wanted * 2 * size_of::<(Lock, Scope)>();
        match &mut self.charge {
            Some(charge) => charge.resize(bytes, "Advisory locks")?,
            None => self.charge = Some(budget.charge(bytes, "Advisory locks")?),
        }
        self.paid = wanted;
        Ok(())
    }

    /// Gives back what was paid for counts that are gone.
    fn repay(&mut self) {
        if self.charge.is_some() && self.journal.len() + self.taken.len() <= FREE_COUNTS {
            self.journal.shrink_to_fit();
            self.taken.shrink_to_fit();
            (self.charge, self.paid) = (None, 0);
        }
    }

    fn count(&mut self, lock: Lock, scope: Scope) {
        let count = self.held.entry(lock).or_default();
        match scope {
            Scope::Session => count.session += 1,
            Scope::Transaction => {
                count.transaction += 1;
                self.taken.push(lock);
            }
        }
        self.journal.push((lock, scope));
    }

    /// Takes back one count. True if none is left.
    fn discount(&mut self, lock: Lock, scope: Scope) -> bool {
        let Some(count) = self.held.get_mut(&lock) else { return false };
        let counted = match scope {
            Scope::Session => &mut count.session,
            Scope::Transaction => &mut count.transaction,
        };
        *counted = counted.saturating_sub(1);
        let is_gone = count.session == 0 && count.transaction == 0;
        if is_gone {
            self.held.remove(&lock);
        }
        is_gone
    }

    fn unlock(&self, lock: Lock, shared: &Shared) {
        if let Some(locks) = &self.locks {
            locks.unlock(lock.key, lock.mode);
            shared.locks.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Lets go of the transaction's locks but the first so many.
    fn end_transaction(&mut self, left: usize, shared: &Shared) {
        let gone = self.taken.len().saturating_sub(left);
        // The transaction's in the journal are the last that it has taken, in the same order. What
        // is run again from before a savepoint goes by the places of the others.
        let noted = self.journal.iter().filter(|(_, scope)| *scope == Scope::Transaction).count();
        let mut stay = noted.saturating_sub(gone);
        self.journal.retain(|(_, scope)| {
            let stays = *scope == Scope::Session || stay > 0;
            stay -= usize::from(stays && *scope == Scope::Transaction);
            stays
        });
        for lock in self.taken.split_off(left.min(self.taken.len())).into_iter().rev() {
            if self.discount(lock, Scope::Transaction) {
                self.unlock(lock, shared);
            }
        }
    }
}

impl Advisory {
    /// The number by which the session holds locks, if it has asked for any.
    pub(crate) fn owner(&self) -> Option<u64> {
        Some(self.owner.load(Ordering::Relaxed)).filter(|owner| *owner != 0)
    }

    fn is_used(&self) -> bool {
        self.owner.load(Ordering::Relaxed) != 0
    }

    /// Counts a lock, and takes it if it is not held and free. False if it is somebody else's.
    fn take(&self, database: &SqlDatabase, lock: Lock, scope: Scope) -> Result<bool> {
        let mut state = self.state.lock();
        state.pay(database.statement_budget())?;
        if !state.reserved.remove(&lock) && !state.held.contains_key(&lock) {
            let locks = state.locks.get_or_insert_with(|| database.engine().advisory_locks(database.oid()));
            self.owner.store(locks.owner(), Ordering::Relaxed);
            let shared = database.advisory();
            let most = (database.engine().memory_bytes() / 4 / LOCK_BYTES).max(LOCKS_MIN);
            if shared.locks.fetch_add(1, Ordering::Relaxed) >= most {
                shared.locks.fetch_sub(1, Ordering::Relaxed);
                return Err(SqlError::new(sqlstate::OUT_OF_MEMORY, "out of shared memory")
                    .with_detail(format!("All sessions together may hold {most} advisory locks."))
                    .with_hint("Give the server more memory (--memory)."));
            }
            if !locks.try_lock(lock.key, lock.mode) {
                shared.locks.fetch_sub(1, Ordering::Relaxed);
                return Ok(false);
            }
        }
        state.count(lock, scope);
        Ok(true)
    }

    /// Waits for a lock, and reserves it. `doomed` resolves when the transaction has no future; who
    /// asks looks into that afterwards.
    async fn obtain(
        &self,
        shared: &Shared,
        lock: Lock,
        transaction: u64,
        doomed: Option<impl Future<Output = ()>>,
    ) -> Result<()> {
        // Dropped after the wait: what was granted while it was given up is let go of.
        let mut obtained = Obtained { advisory: self, lock, is_there: false };
        let waiting = {
            let state = self.state.lock();
            let Some(locks) = &state.locks else { return Ok(()) };
            locks.wait(lock.key, lock.mode, (transaction != 0).then_some(transaction))?
        };
        if let Some(waiting) = waiting {
            let (mut waiting, mut doomed) = (pin!(waiting), pin!(doomed));
            let is_granted = std::future::poll_fn(|context| {
                if waiting.as_mut().poll(context).is_ready() {
                    return Poll::Ready(true);
                }
                match doomed.as_mut().as_pin_mut() {
                    Some(doomed) => doomed.poll(context).map(|()| false),
                    None => Poll::Pending,
                }
            });
            if !is_granted.await {
                return Ok(());
            }
        }
        obtained.is_there = true;
        shared.locks.fetch_add(1, Ordering::Relaxed);
        self.state.lock().reserved.insert(lock);
        Ok(())
    }

    /// From here on the statement may, or may not, be given up where it stands.
    pub(super) fn allow_unwinding(&self, may_unwind: bool) {
        self.may_unwind.store(may_unwind, Ordering::Relaxed);
    }

    /// A statement begins: the place in what was taken, for `undo_to`.
    pub(super) fn begin_statement(&self) -> usize {
        if !self.is_used() {
            return 0;
        }
        let mut state = self.state.lock();
        state.releases_before_statement = state.releases;
        state.journal.len()
    }

    /// The statement is computed once more: what it has taken is only reserved.
    pub(super) fn undo_to(&self, mark: usize) {
        if !self.is_used() {
            return;
        }
        let mut state = self.state.lock();
        while state.journal.len() > mark {
            let Some((lock, scope)) = state.journal.pop() else { break };
            if scope == Scope::Transaction {
                state.taken.pop();
            }
            if state.discount(lock, scope) {
                state.reserved.insert(lock);
            }
        }
    }

    /// A message or a block begins that may have to be run again.
    pub(super) fn begin_journal(&self) {
        if self.is_used() {
            let mut state = self.state.lock();
            state.journal.clear();
            state.repay();
            state.releases_before = state.releases;
        }
    }

    /// Whether something was taken or let go of since the journal began that no rollback brings
    /// back.
    pub(super) fn has_lasting(&self) -> bool {
        let is_of_session = |(_, scope): &(Lock, Scope)| *scope == Scope::Session;
        self.has_released() || (self.is_used() && self.state.lock().journal.iter().any(is_of_session))
    }

    /// Whether what was done since the journal began cannot be done a second time.
    fn has_released(&self) -> bool {
        let is_new = |state: &State| state.releases > state.releases_before;
        self.is_used() && is_new(&self.state.lock())
    }

    /// The same of the statement.
    pub(crate) fn statement_has_released(&self) -> bool {
        let is_new = |state: &State| state.releases > state.releases_before_statement;
        self.is_used() && is_new(&self.state.lock())
    }

    /// How often something was let go of: a call, whose statements begin one after the other, asks
    /// whether it still is as often as before it.
    pub(super) fn releases(&self) -> u64 {
        if self.is_used() { self.state.lock().releases } else { 0 }
    }

    /// What a statement was given up for.
    pub(super) fn take_wanted(&self) -> Option<Lock> {
        if self.is_used() { self.state.lock().wanted.take() } else { None }
    }

    /// A statement has ended: what is reserved and was not asked for again is let go of.
    pub(super) fn settle(&self, shared: &Shared) {
        if self.is_used() {
            let mut state = self.state.lock();
            state.wanted = None;
            let reserved = std::mem::take(&mut state.reserved);
            reserved.into_iter().for_each(|lock| state.unlock(lock, shared));
        }
    }

    /// How many locks the transaction has taken, for a savepoint.
    pub(super) fn taken(&self) -> usize {
        if self.is_used() { self.state.lock().taken.len() } else { 0 }
    }

    /// Lets go of what the transaction has taken but the first so many: at its end, or that of a
    /// savepoint.
    pub(super) fn end_transaction(&self, left: usize, shared: &Shared) {
        if self.is_used() {
            let mut state = self.state.lock();
            state.end_transaction(left, shared);
            state.repay();
        }
    }

    /// Lets go of one count of a session's lock. False if there is none.
    fn release(&self, lock: Lock, shared: &Shared) -> bool {
        let mut state = self.state.lock();
        if state.held.get(&lock).is_none_or(|count| count.session == 0) {
            return false;
        }
        state.releases += 1;
        if state.discount(lock, Scope::Session) {
            state.unlock(lock, shared);
        }
        true
    }

    /// Lets go of all that is the session's.
    pub(super) fn release_session(&self, shared: &Shared) {
        if self.is_used() {
            let mut state = self.state.lock();
            state.releases += 1;
            let all: Vec<Lock> = state.held.keys().copied().collect();
            for lock in all {
                if let Some(count) = state.held.get_mut(&lock) {
                    count.session = u64::from(count.session > 0);
                    if count.session > 0 && state.discount(lock, Scope::Session) {
                        state.unlock(lock, shared);
                    }
                }
            }
        }
    }

    /// The session ends.
    pub(super) fn release_all(&self, shared: &Shared) {
        self.end_transaction(0, shared);
        self.release_session(shared);
        self.settle(shared);
    }
}

/// A wait for a lock.
struct Obtained<'a> {
    advisory: &'a Advisory,
    lock: Lock,
    is_there: bool,
}

impl Drop for Obtained<'_> {
    fn drop(&mut self) {
        let state = self.advisory.state.lock();
        let is_known = state.held.contains_key(&self.lock) || state.reserved.contains(&self.lock);
        if let (false, false, Some(locks)) = (self.is_there, is_known, &state.locks) {
            locks.unlock(self.lock.key, self.lock.mode);
        }
    }
}

/// The functions, for the session that calls them.
pub(super) struct Functions<'a> {
    pub(super) facts: &'a Arc<Facts>,
    pub(super) interrupts: &'a Arc<Interrupts>,
    pub(super) transaction: Option<&'a Transaction>,
}

impl Functions<'_> {
    /// Calls one of them. `None`: there is none of this name.
    pub(super) fn call(&self, name: &str, arguments: &[Datum]) -> Result<Option<Datum>> {
        let shared = self.facts.database.advisory();
        if name == "pg_advisory_unlock_all" {
            self.facts.advisory.release_session(shared);
            return Ok(Some(Datum::text("")));
        }
        let (name, mode) = match name.strip_suffix("_shared") {
            Some(name) => (name, AdvisoryMode::Share),
            None => (name, AdvisoryMode::Exclusive),
        };
        let key = match arguments {
            [Datum::Int8(key)] => AdvisoryKey::One(*key),
            [Datum::Int4(first), Datum::Int4(second)] => AdvisoryKey::Two(*first, *second),
            _ => return Ok(None),
        };
        let lock = Lock { key, mode };
        let take = |scope| self.facts.advisory.take(&self.facts.database, lock, scope).map(Datum::Bool);
        let answer = match name {
            "pg_advisory_lock" => self.take(lock, Scope::Session)?,
            "pg_advisory_xact_lock" => self.take(lock, Scope::Transaction)?,
            "pg_try_advisory_lock" => take(Scope::Session)?,
            "pg_try_advisory_xact_lock" => take(Scope::Transaction)?,
            "pg_advisory_unlock" => Datum::Bool(self.release(lock, shared)?),
            _ => return Ok(None),
        };
        Ok(Some(answer))
    }

    fn release(&self, lock: Lock, shared: &Shared) -> Result<bool> {
        let is_released = self.facts.advisory.release(lock, shared);
        if !is_released {
            let mode = match lock.mode {
                AdvisoryMode::Share => "ShareLock",
                AdvisoryMode::Exclusive => "ExclusiveLock",
            };
            let message = format!("you don't own a lock of type {mode}");
            self.facts.notify(SqlError::warning(sqlstate::WARNING, message))?;
        }
        Ok(is_released)
    }

    fn take(&self, lock: Lock, scope: Scope) -> Result<Datum> {
        let (advisory, database) = (&self.facts.advisory, &self.facts.database);
        while !advisory.take(database, lock, scope)? {
            if advisory.may_unwind.load(Ordering::Relaxed) && !advisory.statement_has_released() {
                advisory.state.lock().wanted = Some(lock);
                return Err(SqlError::internal("a statement that waits for an advisory lock has failed"));
            }
            self.wait_in_thread(lock)?;
        }
        Ok(Datum::text(""))
    }

    /// Waits while another thread serves the connections of this one.
    fn wait_in_thread(&self, lock: Lock) -> Result<()> {
        let shared = self.facts.database.advisory();
        let _counted = shared.thread().ok_or_else(|| {
            SqlError::unsupported(format_args!(
                "more than {THREADS_MAX} statements that wait for an advisory lock after their first row, \
                 or where they write,"
            ))
        })?;
        let (id, doomed) = match self.transaction {
            Some(transaction) => (transaction.id(), transaction.doomed()),
            None => (0, None),
        };
        self.interrupts.lock_in_thread(self.facts.advisory.obtain(shared, lock, id, doomed))?;
        self.transaction.map_or(Ok(()), |transaction| Ok(transaction.check_member()?))
    }
}

impl Shared {
    /// A statement is to wait in a thread, for a lock or for whatever else. Nothing if so many do
    /// already.
    pub(super) fn thread(&self) -> Option<Counted<'_>> {
        Counted::new(&self.threads)
    }
}

/// Counts a statement that waits in a thread.
pub(super) struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(threads: &'a AtomicUsize) -> Option<Counted<'a>> {
        let counted = Counted(threads);
        (threads.fetch_add(1, Ordering::Relaxed) < THREADS_MAX).then_some(counted)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a session holds goes with it, and it listens no longer.
pub(super) struct Guard(pub(super) Arc<Facts>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.advisory.release_all(self.0.database.advisory());
        self.0.news.end(self.0.database.channels());
    }
}

impl super::Session {
    /// Waits for what a statement was given up for; `taken` is where it began to take locks.
    pub(super) async fn await_advisory(&mut self, lock: Lock, taken: usize) -> Result<()> {
        let interrupts = self.interrupts();
        let facts = self.facts.clone();
        let shared = self.database.advisory();
        let (id, doomed) = match &self.open {
            Some(open) => (open.engine.id(), open.engine.doomed()),
            None => (0, None),
        };
        interrupts.lock(facts.advisory.obtain(shared, lock, id, doomed)).await?;
        if let Some(open) = &self.open {
            open.engine.check_member()?;
        }
        facts.advisory.undo_to(taken);
        Ok(())
    }

    /// 0A000 if the transaction has locks until its end: nobody would let go of them who is not
    /// there.
    pub(super) fn check_no_advisory(&self, what: &str) -> Result<()> {
        if self.facts.advisory.taken() == 0 {
            return Ok(());
        }
        Err(SqlError::unsupported(format_args!(
            "{what} of a transaction that has advisory locks until its end"
        )))
    }

    /// Whether what fails with this error may be run again as a whole: others were the reason, and
    /// nothing was done that counts twice.
    pub fn may_run_again(&self, error: &SqlError) -> bool {
        error.is_retryable() && !self.facts.advisory.has_released()
    }
}
