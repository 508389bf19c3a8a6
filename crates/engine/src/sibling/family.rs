//! One family of siblings: the state of each instance, and which of them is the winner. Paper: §2
//! (MIP-Table), §3.3 (precommit and commit).
//!
//! # States
//!
//! The paper knows null, prepared and abort. Null is told apart here into *unknown* and *active*
//! (begun, and nothing durable of it), and a family that is decided has one *committed* instance,
//! while all others are aborted.
//!
//! ```text
//! unknown ──BEGIN──▶ active ──PREPARE──▶ prepared ──COMMIT──▶ committed
//!    ▲  │             │ │ │                 │
//!    │  └─tombstone,┐ │ │ └─rollback,     ROLLBACK, COMMIT of a sibling
//!    │    REFUSE    │ │ │   tombstone,      │
//!    └─────crash────┼─┘ │   REFUSE          │
//!                   ▼   ▼                   ▼
//!                 aborted ◀─────────────────┘      for ever, once that is durable
//! ```
//!
//! # The tombstone rule
//!
//! When y is prepared, every z < y that is unknown or active is aborted for ever, in the same log
//! unit. Application servers commit the smallest instance that is prepared at every site; without
//! the rule, one could choose y because z is not prepared yet, and another z because it is prepared
//! by now. With it, once y is prepared everywhere nothing below y can become prepared anywhere.
//!
//! The tombstones are one number, the *floor*: what is below it and not prepared is aborted. So a
//! PREPARE costs as much as the active siblings that it ends, however high the numbers are. A
//! PREPARE that fails sets no tombstones: an instance that is not prepared here will not be chosen,
//! and its slower predecessor may still get through.
//!
//! # Refusals
//!
//! An instance that is prepared at another site and never will be here keeps its locks there for
//! nothing. Two families can block each other so for ever: each has an instance prepared at the
//! site where the other one's retries wait, or are refused. The way out is that such an instance
//! is *withdrawn* where it is prepared (ROLLBACK). That is safe if and only if it cannot have been
//! chosen: some site has aborted it for ever, and had never prepared it. So
//!
//! - an abort that is told is durable first ([`Family::settle`]): a PREPARE that failed, a lost
//!   connection, a rollback, whatever ended the instance;
//! - REFUSE aborts, for ever, what is not prepared up to a number, in one atomic step: so also what
//!   a crash has made unknown, and what is still active.
//!
//! # What is durable
//!
//! The request, prepared instances with their results, the floor, aborts that were told, the
//! winner. That an active instance has ended is only in memory until somebody is told of it: after
//! a crash it may begin again, as any other whose first try was lost. A transaction prepares an
//! instance only if it began it at this site itself; that it is the same execution at all sites,
//! the application servers see by the results.
//!
//! # A worked history
//!
//! ```text
//! BEGIN <x,1> by T7                    1 active
//! BEGIN <x,2> by T8                    1 active    2 active       they do not wait for each other
//! PREPARE <x,2> 'buy' 'order 51'       1 aborted   2 prepared     effects: abort T7; log; answer: the table
//! PREPARE <x,1> 'buy' 'order 50'       1 aborted   2 prepared     no effect; answer: the table
//! BEGIN <x,1>                          refused: aborted
//! BEGIN <x,3> by T9                    3 active
//! COMMIT <x,2>                         2 committed, 3 aborted     effects: abort T9, commit 2; log
//! BEGIN <x,4>                          no effect; answer: 2 is committed, 'order 51'
//! REFUSE <x,4>                         no effect; answer as before
//! COMMIT <x,2>                         no effect; answer as before
//! FORGET x                             effects: log; from now on `Collected` knows x
//! ```

use std::collections::BTreeSet;

use super::lines::Lines;
use super::{Change, Instance, Refusal, Text};
use crate::TransactionId;

/// State of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing is known of it: the paper's null.
    Unknown,
    /// Begun, not prepared: null in the paper, too.
    Active,
    /// Its writes, locks and result are durable; it waits for the decision.
    Prepared,
    /// It will never commit.
    Aborted,
    /// The winner.
    Committed,
}

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The committed instance.
    pub winner: Instance,
    /// Its result.
    pub result: Text,
    /// The request that the family was prepared with.
    pub request: Text,
}

/// Bounds of the strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a request string.
    pub request_bytes: usize,
    /// Most bytes of a result string.
    pub result_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { request_bytes: 1 << 20, result_bytes: 1 << 20 }
    }
}

impl Limits {
    /// Whether the strings keep to them.
    ///
    /// # Errors
    /// `RequestTooLarge`, `ResultTooLarge`.
    pub(super) fn check(self, request: &str, result: &str) -> Result<(), Refusal> {
        if request.len() > self.request_bytes {
            return Err(Refusal::RequestTooLarge { bytes: request.len(), limit: self.request_bytes });
        }
        if result.len() > self.result_bytes {
            return Err(Refusal::ResultTooLarge { bytes: result.len(), limit: self.result_bytes });
        }
        Ok(())
    }
}

/// What came of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// BEGIN: the instance is active.
    Begun,
    /// PREPARE: the instance is prepared; the answer is the table.
    Prepared,
    /// PREPARE of an instance that was aborted meanwhile: the answer is the table. The transaction
    /// ends without effect.
    Aborted,
    /// COMMIT, for the first time or again; or BEGIN or PREPARE of a decided family: nothing was
    /// begun or prepared.
    Decided(Outcome),
    /// ROLLBACK.
    RolledBack,
    /// REFUSE: the answer is the table.
    Refused,
    /// FORGET: the family may be dropped, and its XID be entered in `Collected`.
    Forgotten,
}

/// What the caller must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effects {
    /// Active siblings to abort, with their transactions. Ascending.
    pub abort_active: Vec<(Instance, TransactionId)>,
    /// Prepared siblings whose writes and locks go. Ascending.
    pub abort_prepared: Vec<Instance>,
    /// The prepared instance whose writes become visible.
    pub commit: Option<Instance>,
    /// What the log must say of the family, in one unit with the prepared writes or the commit.
    pub log: Option<Change>,
    /// What to answer once that is durable.
    pub answer: Answer,
}

impl Effects {
    pub(super) fn none(answer: Answer) -> Effects {
        let (abort_active, abort_prepared) = (Vec::new(), Vec::new());
        Effects { abort_active, abort_prepared, commit: None, log: None, answer }
    }

    fn logged(answer: Answer, change: Change) -> Effects {
        Effects { log: Some(change), ..Effects::none(answer) }
    }
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The instance.
    pub instance: Instance,
    /// Its state, never `Unknown`.
    pub state: State,
    /// The result, if it is prepared or committed.
    pub result: Option<Text>,
}

/// The MIP-Table as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mipt {
    /// The request, if an instance was ever prepared.
    pub request: Option<Text>,
    /// What is below and has no line is aborted; 0 if there is no tombstone. A decided family has
    /// no such bound: only its winner is not aborted.
    pub floor: i64,
    /// Ascending by instance.
    pub entries: Vec<Entry>,
}

/// The state machine of one family. Starts empty; a family that is [`Family::is_blank`] need not be
/// kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Family {
    pub(super) request: Option<Text>,
    /// With the transactions that began them.
    pub(super) active: Lines<TransactionId>,
    pub(super) prepared: Lines<Text>,
    /// At or above the floor: durable.
    pub(super) aborted: BTreeSet<Instance>,
    /// At or above the floor, were active: in memory only, until somebody is told.
    pub(super) ended: BTreeSet<Instance>,
    /// What is below and not prepared is aborted for ever.
    pub(super) floor: i64,
    /// The winner with its result.
    pub(super) decided: Option<(Instance, Text)>,
    /// Set by tests that show what the tombstone rule is for.
    omits_tombstones: bool,
}

impl Family {
    /// A family that breaks the tombstone rule: for tests which show that it is needed.
    #[doc(hidden)]
    pub fn without_tombstones() -> Family {
        Family { omits_tombstones: true, ..Family::default() }
    }

    /// Whether nothing would be lost by dropping it: there is no instance that it knows more of
    /// than any new family would.
    pub fn is_blank(&self) -> bool {
        self.active.is_empty()
            && self.request.is_none()
            && self.floor == 0
            && self.aborted.is_empty()
            && self.decided.is_none()
    }

    /// The decision, if there is one.
    pub fn outcome(&self) -> Option<Outcome> {
        let (winner, result) = self.decided.as_ref()?;
        Some(Outcome { winner: *winner, result: result.clone(), request: self.request.clone()? })
    }

    /// The request, if an instance was ever prepared.
    pub fn request(&self) -> Option<&Text> {
        self.request.as_ref()
    }

    /// Prepared instances that wait for a decision, ascending, with their results.
    pub fn prepared(&self) -> impl Iterator<Item = (Instance, &Text)> {
        self.prepared.iter()
    }

    /// The highest number heard of; 0 if there is none.
    pub fn highest(&self) -> i64 {
        let last = |set: &BTreeSet<Instance>| set.last().map_or(0, |i| i.get());
        let active = self.active.last().map_or(0, Instance::get);
        let decided = self.decided.as_ref().map_or(0, |(i, _)| i.get());
        let prepared = self.prepared.last().map_or(0, Instance::get);
        [active, prepared, decided, last(&self.aborted), last(&self.ended), self.floor]
            .into_iter()
            .max()
            .unwrap_or(0)
    }

    /// The state of an instance.
    pub fn state(&self, instance: Instance) -> State {
        if let Some((winner, _)) = self.decided {
            return if winner == instance { State::Committed } else { State::Aborted };
        }
        if self.prepared.contains(instance) {
            State::Prepared
        } else if self.active.contains(instance) {
            State::Active
        } else if instance.get() < self.floor
            || self.aborted.contains(&instance)
            || self.ended.contains(&instance)
        {
            State::Aborted
        } else {
            State::Unknown
        }
    }

    /// The table. Costs as much as it has lines; nothing else here does.
    pub fn mipt(&self) -> Mipt {
        let entry = |instance: Instance, state, result| Entry { instance, state, result };
        let winner = self.decided.iter().map(|(i, r)| entry(*i, State::Committed, Some(r.clone())));
        let mut entries: Vec<Entry> = winner.collect();
        entries.extend(self.active.iter().map(|(i, _)| entry(i, State::Active, None)));
        entries.extend(self.prepared.iter().map(|(i, r)| entry(i, State::Prepared, Some(r.clone()))));
        entries.extend(self.aborted.iter().chain(&self.ended).map(|i| entry(*i, State::Aborted, None)));
        entries.sort_unstable_by_key(|entry| entry.instance);
        Mipt { request: self.request.clone(), floor: self.floor, entries }
    }

    fn refusal_of_aborted(&self, instance: Instance) -> Refusal {
        Refusal::InstanceAborted { instance, highest: Instance::new(self.highest()).unwrap_or(instance) }
    }

    fn in_use(&self, instance: Instance) -> Refusal {
        Refusal::InstanceInUse { instance, highest: Instance::new(self.highest()).unwrap_or(instance) }
    }

    /// Whether nothing is known of any instance, on disk or in memory.
    pub(super) fn knows_nothing(&self) -> bool {
        self.is_blank() && self.ended.is_empty()
    }

    /// BEGIN: `owner` begins an instance, or learns the decision.
    ///
    /// # Errors
    /// `InstanceInUse`, `InstanceAborted`.
    pub fn begin(&mut self, instance: Instance, owner: TransactionId) -> Result<Effects, Refusal> {
        if let Some(outcome) = self.outcome() {
            return Ok(Effects::none(Answer::Decided(outcome)));
        }
        match self.state(instance) {
            State::Unknown => {
                self.active.insert(instance, owner);
                Ok(Effects::none(Answer::Begun))
            }
            State::Aborted => Err(self.refusal_of_aborted(instance)),
            _ => Err(self.in_use(instance)),
        }
    }

    /// PREPARE: `owner`, which began the instance, has validated and wants it prepared. If the
    /// instance was aborted meanwhile, or the family decided, it is told so instead, and ends.
    ///
    /// # Errors
    /// `RequestDiffers`, `RequestTooLarge`, `ResultTooLarge`, `InstanceInUse`, `InstanceUnknown`.
    pub fn prepare(
        &mut self,
        instance: Instance,
        owner: TransactionId,
        request: &Text,
        result: &Text,
        limits: Limits,
    ) -> Result<Effects, Refusal> {
        limits.check(request, result)?;
        if self.request.as_ref().is_some_and(|known| known != request) {
            return Err(Refusal::RequestDiffers);
        }
        if let Some(outcome) = self.outcome() {
            return Ok(Effects::none(Answer::Decided(outcome)));
        }
        match self.state(instance) {
            State::Active if self.active.get(instance) == Some(&owner) => {}
            State::Aborted => return Ok(Effects::none(Answer::Aborted)),
            State::Unknown => return Err(Refusal::InstanceUnknown { instance }),
            _ => return Err(self.in_use(instance)),
        }
        self.active.remove(instance);
        let ended = self.enter_prepared(instance, request.clone(), result.clone());
        let change = Change::Prepare { instance, request: request.clone(), result: result.clone() };
        Ok(Effects { abort_active: ended, ..Effects::logged(Answer::Prepared, change) })
    }

    /// Enters an instance that a crash left prepared; in whichever order they are found.
    pub(super) fn restore(&mut self, instance: Instance, request: &Text, result: &Text) {
        self.enter_prepared(instance, request.clone(), result.clone());
    }

    /// The prepared instance and its tombstones. Answers the active siblings that they end.
    fn enter_prepared(
        &mut self,
        instance: Instance,
        request: Text,
        result: Text,
    ) -> Vec<(Instance, TransactionId)> {
        self.request = Some(request);
        self.prepared.insert(instance, result);
        if self.omits_tombstones { Vec::new() } else { self.raise(instance) }
    }

    /// Raises the floor. Answers the active siblings that are below it now.
    fn raise(&mut self, floor: Instance) -> Vec<(Instance, TransactionId)> {
        if floor.get() <= self.floor {
            return Vec::new();
        }
        self.floor = floor.get();
        // Nothing of these is below the old floor, so each goes once.
        for set in [&mut self.aborted, &mut self.ended] {
            while set.first().is_some_and(|first| *first < floor) {
                set.pop_first();
            }
        }
        self.active.take_below(floor)
    }

    /// COMMIT: decides for a prepared instance and against all others. The same COMMIT may come any
    /// number of times.
    ///
    /// # Errors
    /// `DecidedOtherwise`, `InstanceNotPrepared`, `InstanceAborted`, `InstanceUnknown`.
    pub fn commit(&mut self, instance: Instance) -> Result<Effects, Refusal> {
        match self.outcome() {
            Some(outcome) if outcome.winner == instance => {
                return Ok(Effects::none(Answer::Decided(outcome)));
            }
            Some(Outcome { winner, .. }) => return Err(Refusal::DecidedOtherwise { winner }),
            None => {}
        }
        match (self.state(instance), self.prepared.remove(instance)) {
            (_, Some(result)) => {
                let (abort_active, abort_prepared) = self.enter_decided(instance, result.clone());
                let request = self.request.clone().unwrap_or_default();
                let answer = Answer::Decided(Outcome { winner: instance, result, request });
                let commit = Some(instance);
                let log = Some(Change::Commit { winner: instance });
                Ok(Effects { abort_active, abort_prepared, commit, log, answer })
            }
            (State::Active, _) => Err(Refusal::InstanceNotPrepared { instance }),
            (State::Unknown, _) => Err(Refusal::InstanceUnknown { instance }),
            _ => Err(self.refusal_of_aborted(instance)),
        }
    }

    /// The winner; nothing needs to be known of the others any more. Answers those that it ends.
    fn enter_decided(
        &mut self,
        winner: Instance,
        result: Text,
    ) -> (Vec<(Instance, TransactionId)>, Vec<Instance>) {
        self.decided = Some((winner, result));
        self.aborted.clear();
        self.ended.clear();
        let active = self.active.take().collect();
        let prepared = self.prepared.take().map(|(i, _)| i).filter(|i| *i != winner).collect();
        (active, prepared)
    }

    /// The transaction `owner` of an active instance has ended without preparing it: ROLLBACK, a
    /// failed validation, a lost connection. Nothing to log. False if there is no such instance any
    /// more.
    pub fn abandon(&mut self, instance: Instance, owner: TransactionId) -> bool {
        let is_owner = self.active.get(instance) == Some(&owner);
        if is_owner {
            self.active.remove(instance);
            self.ended.insert(instance);
        }
        is_owner
    }

    /// REFUSE MIP: aborts, for ever, every instance up to this one that is not prepared here. What
    /// is prepared stays, and so does a decision.
    ///
    /// Whoever reads the answer knows of each of them whether it is prepared here or never will be.
    pub fn refuse(&mut self, upto: Instance) -> Effects {
        if let Some(outcome) = self.outcome() {
            return Effects::none(Answer::Decided(outcome));
        }
        // The floor itself is prepared or aborted already.
        if upto.get() <= self.floor {
            return Effects::none(Answer::Refused);
        }
        let abort_active = self.enter_refused(upto);
        Effects { abort_active, ..Effects::logged(Answer::Refused, Change::Refuse { upto }) }
    }

    /// Nothing above the floor is prepared. Answers the active siblings that end.
    fn enter_refused(&mut self, upto: Instance) -> Vec<(Instance, TransactionId)> {
        let mut ended = self.raise(upto);
        ended.extend(self.active.remove(upto).map(|owner| (upto, owner)));
        self.ended.remove(&upto);
        self.aborted.insert(upto);
        ended
    }

    /// Whether all that the table tells is durable, or is going to be with what was logged.
    pub fn is_settled(&self) -> bool {
        self.ended.is_empty()
    }

    /// Makes durable what the table is about to tell: instances that were active and have ended are
    /// aborted for ever from now on. Nothing, if there is none.
    pub fn settle(&mut self) -> Option<Change> {
        if self.ended.is_empty() {
            return None;
        }
        let instances: Vec<Instance> = std::mem::take(&mut self.ended).into_iter().collect();
        self.aborted.extend(&instances);
        Some(Change::Abort { instances })
    }

    /// ROLLBACK MIP: ends an active or a prepared instance from outside, for ever.
    ///
    /// To roll back a *prepared* one takes the knowledge that it is aborted at another site, where
    /// it has never been prepared; or it is an operator's decision: an application server may have
    /// seen it prepared everywhere and be about to commit it.
    ///
    /// # Errors
    /// `DecidedOtherwise`, `InstanceAborted`, `InstanceUnknown`.
    pub fn rollback(&mut self, instance: Instance) -> Result<Effects, Refusal> {
        if let Some((winner, _)) = self.decided {
            return Err(Refusal::DecidedOtherwise { winner });
        }
        match self.state(instance) {
            State::Unknown => Err(Refusal::InstanceUnknown { instance }),
            State::Active => {
                let owner = self.active.remove(instance);
                self.aborted.insert(instance);
                let abort_active = owner.map(|owner| (instance, owner)).into_iter().collect();
                let change = Change::Abort { instances: vec![instance] };
                Ok(Effects { abort_active, ..Effects::logged(Answer::RolledBack, change) })
            }
            State::Prepared => {
                self.enter_aborted(instance);
                let change = Change::Abort { instances: vec![instance] };
                let effects = Effects::logged(Answer::RolledBack, change);
                Ok(Effects { abort_prepared: vec![instance], ..effects })
            }
            _ => Err(self.refusal_of_aborted(instance)),
        }
    }

    fn enter_aborted(&mut self, instance: Instance) {
        self.prepared.remove(instance);
        if instance.get() >= self.floor {
            self.aborted.insert(instance);
        }
    }

    /// FORGET: the client has its answer. The caller drops the family and enters the XID in
    /// `Collected` under the same log record.
    ///
    /// # Errors
    /// `NotDecided`, `FamilyUnknown`.
    pub fn forget(&self) -> Result<Effects, Refusal> {
        match self.decided {
            Some(_) => Ok(Effects::logged(Answer::Forgotten, Change::Forget)),
            None if self.is_blank() => Err(Refusal::FamilyUnknown),
            None => Err(Refusal::NotDecided),
        }
    }

    /// Enters a change that the log had, in the order of the log. A `Forget` empties the family.
    pub fn replay(&mut self, change: &Change) {
        match change {
            Change::Prepare { instance, request, result } => {
                self.enter_prepared(*instance, request.clone(), result.clone());
            }
            Change::Abort { instances } => instances.iter().for_each(|i| self.enter_aborted(*i)),
            Change::Refuse { upto } => drop(self.enter_refused(*upto)),
            Change::Commit { winner } => {
                let result = self.prepared.remove(*winner).unwrap_or_default();
                self.enter_decided(*winner, result);
            }
            Change::Forget => *self = Family { omits_tombstones: self.omits_tombstones, ..Family::default() },
        }
    }

    /// What a crash leaves of it: the same as replaying its changes.
    pub fn crash(&mut self) {
        self.active.clear();
        self.ended.clear();
    }
}
