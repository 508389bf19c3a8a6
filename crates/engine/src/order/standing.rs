//! How things stand at a position of the order, besides the certifier's graph: all that the verdict
//! about the next request depends on. Pure: a request in, a verdict out, and the same at every
//! node.

use std::collections::{BTreeMap, HashMap, VecDeque};

use foldhash::fast::RandomState;
use sha2::{Digest, Sha256};

use super::prepared::{Decided, Undecided};
use super::window::{Conflict, Window};
use super::{AGE_MAX, Level, Request, SILENCE_MAX};
use crate::key::SmallKey;
use crate::lock::table::HeldLock;
use crate::payload::{Encoder, Input};
use crate::planted::{self, Planted};
use crate::total_order::node_of;
use crate::{Csn, TransactionId, TreeId};

/// So many positions have their digests in memory.
const DIGESTS: usize = 1 << 15;
/// Verdicts are known of so many positions.
const OUTCOMES_MAX: Csn = 2 * AGE_MAX;

/// Why a request does not commit, before its reads are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Its snapshot is below the horizon.
    TooOld { horizon: Csn },
    /// Somebody delivered since has a lock against one of its own.
    Overtaken { by: TransactionId, position: Csn, tree: TreeId, key: Option<SmallKey> },
    /// It was delivered before; then its verdict stands.
    Known { position: Csn, committed: bool },
    /// Its client has given its name to another one, which has committed.
    Named { position: Csn },
}

/// See the module's prose.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// The last position that was delivered.
    applied: Csn,
    window: Window,
    /// Who is prepared.
    undecided: Undecided,
    /// Nobody with a snapshot below is judged.
    horizon: Csn,
    /// The oldest snapshot of each node, and the position at which it said so.
    announced: BTreeMap<u16, (Csn, Csn)>,
    /// Verdicts by transaction, and who they were, oldest first: as many as a request can be late.
    outcomes: HashMap<TransactionId, (Csn, bool), RandomState>,
    decided: VecDeque<(Csn, TransactionId, Option<Box<str>>)>,
    /// The last verdicts about requests that their clients have named.
    names: HashMap<Box<str>, (Csn, bool), RandomState>,
    /// The last transaction at SERIALIZABLE whose reads are not in the order (`order`: the mixing
    /// rule).
    unshared: Csn,
    /// Who was prepared before such a one and committed after it: by position, who, and the
    /// PREPARE's position.
    crossed: BTreeMap<Csn, (TransactionId, Csn)>,
    /// Over all requests and verdicts up to `applied`.
    digest: [u8; 32],
    /// Those of the last positions.
    digests: VecDeque<[u8; 32]>,
}

impl Standing {
    /// Of a cluster that begins behind a position, with what a single database has up to there.
    pub(crate) fn at(position: Csn) -> Standing {
        let window = Window::at(position);
        Standing { applied: position, horizon: position, window, ..Standing::default() }
    }

    /// The last position that was delivered.
    pub(crate) fn applied(&self) -> Csn {
        self.applied
    }

    /// Nobody with a snapshot below is judged.
    pub(crate) fn horizon(&self) -> Csn {
        self.horizon
    }

    /// Equal digests at one position mean equal requests and verdicts up to there.
    pub(crate) fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// The digest up to one of the last positions.
    pub(crate) fn digest_at(&self, position: Csn) -> Option<[u8; 32]> {
        let back = usize::try_from(self.applied.checked_sub(position)?).ok()?;
        self.digests.get(self.digests.len().checked_sub(back + 1)?).copied()
    }

    /// What became of a transaction, as long as it is remembered; nothing yet of one that is
    /// prepared.
    pub(crate) fn outcome(&self, id: TransactionId) -> Option<(Csn, bool)> {
        self.outcomes.get(&id).copied().filter(|(position, _)| !self.undecided.is_at(*position))
    }

    /// What became of the last request of this name, as long as it is remembered.
    pub(crate) fn outcome_of(&self, name: &str) -> Option<(Csn, bool)> {
        self.names.get(name).copied().filter(|(position, _)| !self.undecided.is_at(*position))
    }

    /// Up to which position a transaction's reads must hold, if that is to be asked: they may have
    /// been replaced up to there after its snapshot, or by somebody who is prepared and not to be
    /// seen at it.
    pub(crate) fn mixed_upto(&self, request: &Request) -> Option<Csn> {
        let asks = request.level == Level::Serializable;
        let is_crossed = || {
            let later = self.crossed.range(request.snapshot + 1..).next();
            later.is_some() || self.undecided.is_before(self.unshared)
        };
        let asks = asks && (request.snapshot < self.unshared || is_crossed());
        (asks && !planted::is(Planted::MixesFreely)).then_some(self.unshared)
    }

    /// The position of the PREPARE of a transaction, if it was not decided before somebody whose
    /// reads are not in the order.
    pub(crate) fn prepared_at(&self, id: TransactionId) -> Option<Csn> {
        let crossed = || self.crossed.values().find(|(crossed, _)| *crossed == id).map(|(_, at)| *at);
        self.undecided.position_of(id).or_else(crossed)
    }

    /// An undecided prepared transaction that has changed something in tables which a transaction
    /// at SERIALIZABLE looks at whose reads nobody notes (`order`: the mixing rule).
    pub(crate) fn in_doubt_over(&self, request: &Request, trees: &[TreeId]) -> Option<Refusal> {
        let asks = request.level == Level::Serializable;
        let (position, by, tree) = self.undecided.writes_into(trees).filter(|_| asks)?;
        Some(Refusal::Overtaken { by, position, tree, key: None })
    }

    /// Whether a request was delivered before.
    pub(crate) fn knows(&self, id: TransactionId) -> bool {
        self.outcomes.contains_key(&id) && !planted::is(Planted::KnowsNoRequest)
    }

    /// Who is prepared.
    pub(crate) fn undecided(&self) -> &Undecided {
        &self.undecided
    }

    /// When a node last announced its oldest snapshot.
    pub(crate) fn announced_at(&self, node: u16) -> Csn {
        self.announced.get(&node).map_or(0, |(_, at)| *at)
    }

    /// The first part of the verdict about the next request, whose locks these are.
    ///
    /// # Errors
    /// Why it does not commit.
    pub(crate) fn judge(&self, request: &Request, locks: &[(HeldLock, bool)]) -> Result<(), Refusal> {
        if let Some(&(position, committed)) = self.outcomes.get(&request.id)
            && !planted::is(Planted::KnowsNoRequest)
        {
            return Err(Refusal::Known { position, committed });
        }
        if let Some(&(position, true)) = request.name.as_ref().and_then(|name| self.names.get(name))
            && !planted::is(Planted::KnowsNoName)
        {
            return Err(Refusal::Named { position });
        }
        if !request.purpose.is_of_transaction() {
            return self.judge_late(request);
        }
        if request.snapshot.min(request.bot) < self.horizon && !planted::is(Planted::JudgesTheOld) {
            return Err(Refusal::TooOld { horizon: self.horizon });
        }
        for (lock, writes) in locks {
            let conflict = self.window.conflict(lock, request.bot).or_else(|| {
                let is_of_snapshot = *writes && request.level != Level::ReadCommitted;
                is_of_snapshot.then(|| self.window.changed(lock, request.snapshot)).flatten()
            });
            let conflict = conflict.filter(|_| !planted::is(Planted::LooksAtDelivery));
            let conflict = conflict.map(|Conflict { position, by }| (position, by));
            let undecided = || self.undecided.conflict(lock, request.purpose.family());
            let undecided = || undecided().filter(|_| !planted::is(Planted::PreparedKeepsNobodyOut));
            let conflict = conflict.or_else(undecided);
            if let Some((position, by)) = conflict {
                return Err(Refusal::Overtaken { by, position, tree: lock.tree, key: lock.key.clone() });
            }
        }
        Ok(())
    }

    /// A request that is about others than a transaction of its own has no snapshot to be too old.
    /// But if it was made so long ago that a verdict about it would be forgotten, it may have been
    /// delivered before; and what it names may be another's by now, such as the identifier of a
    /// prepared transaction.
    fn judge_late(&self, request: &Request) -> Result<(), Refusal> {
        let known_from = self.applied.saturating_sub(OUTCOMES_MAX);
        match request.bot < known_from {
            true => Err(Refusal::TooOld { horizon: known_from }),
            false => Ok(()),
        }
    }

    /// Whether a request's locks do not go together with those of what is prepared.
    pub(crate) fn meets_prepared(&self, request: &Request, locks: &[(HeldLock, bool)]) -> bool {
        let (purpose, undecided) = (&request.purpose, &self.undecided);
        let meets = |lock: &HeldLock| undecided.conflict(lock, purpose.family()).is_some();
        purpose.is_of_transaction() && locks.iter().any(|(lock, _)| meets(lock))
    }

    /// Whether what these locks change was changed after a position by a transaction of another
    /// node than this one. No verdict depends on it.
    pub(crate) fn was_met(&self, locks: &[(HeldLock, bool)], since: Csn, node: u16) -> bool {
        let changed = |lock: &HeldLock| self.window.changed(lock, since);
        let mut changes = locks.iter().filter(|(_, changes)| *changes);
        changes.any(|(lock, _)| changed(lock).is_some_and(|Conflict { by, .. }| node_of(by) != node))
    }

    /// The next request was delivered, and committed or not. `bytes` are the request's.
    pub(crate) fn enter(
        &mut self,
        position: Csn,
        request: &Request,
        locks: &[(HeldLock, bool)],
        committed: bool,
        bytes: &[u8],
    ) {
        assert_eq!(position, self.applied + 1, "requests are delivered one by one");
        if committed && request.purpose.is_commit() && request.writes() {
            let locks = locks.iter().filter(|(_, writes)| *writes || !planted::is(Planted::WindowOfWrites));
            self.window.enter(position, request.id, locks);
        } else if committed {
            self.undecided.enter(position, request, locks, bytes);
            self.decide(position, request);
        }
        // Also if it has written nothing: what it has seen must not be replaced by who comes later.
        if committed && request.purpose.is_unshared() && request.level == Level::Serializable {
            self.unshared = position;
        }
        if self.outcomes.insert(request.id, (position, committed)).is_none() {
            self.decided.push_back((position, request.id, request.name.clone()));
        }
        if let Some(name) = &request.name {
            let known = self.names.entry(name.clone()).or_insert((position, committed));
            // Once it has committed it stays so, whoever uses the name again.
            if !known.1 {
                *known = (position, committed);
            }
        }
        self.announced.insert(node_of(request.id), (request.oldest, position));
        self.finish(position, committed, bytes);
    }

    /// What a request decides of those that are prepared.
    fn decide(&mut self, position: Csn, request: &Request) {
        for decided in self.undecided.decide(&request.purpose) {
            let Decided { position: prepared, id, name, locks, commits } = decided;
            if commits {
                self.window.enter(position, id, locks.iter());
                if prepared < self.unshared {
                    self.crossed.insert(position, (id, prepared));
                }
            }
            // What the PREPARE was told stands for what became of its transaction.
            if let Some(known) = self.outcomes.get_mut(&id) {
                *known = (prepared, commits);
            }
            let named = name.as_ref().and_then(|name| self.names.get_mut(name));
            if let Some(known) = named.filter(|known| known.0 == prepared) {
                known.1 = commits;
            }
        }
    }

    /// The next request was delivered, and is one that was delivered before.
    pub(crate) fn pass(&mut self, position: Csn, bytes: &[u8]) {
        assert_eq!(position, self.applied + 1, "requests are delivered one by one");
        self.finish(position, false, bytes);
    }

    fn finish(&mut self, position: Csn, committed: bool, bytes: &[u8]) {
        self.applied = position;
        let mut digest = Sha256::new();
        digest.update(self.digest);
        digest.update(position.to_be_bytes());
        digest.update([u8::from(committed)]);
        digest.update(bytes);
        self.digest = digest.finalize().into();
        self.digests.push_back(self.digest);
        if self.digests.len() > DIGESTS {
            self.digests.pop_front();
        }
        self.raise_horizon();
    }

    /// Writes it: the last position, the horizon, the last one whose reads are not in the order,
    /// and the digest; count, and for each who crossed one: position, transaction, PREPARE's
    /// position; the window; count, and for each node: number, oldest snapshot, and when it said
    /// so; count, and for each outcome, oldest first: position, transaction, committed: 1 byte,
    /// name length + 1 (0 = none), name; count, and for each name: name, position, committed;
    /// count, and for each undecided PREPARE: position, and the request.
    pub(crate) fn encode(&self, out: &mut Encoder) {
        out.varint(self.applied);
        out.varint(self.horizon);
        out.varint(self.unshared);
        out.string(&self.digest);
        out.varint(self.crossed.len() as u64);
        for (position, (id, prepared)) in &self.crossed {
            [*position, *id, *prepared].into_iter().for_each(|number| out.varint(number));
        }
        match planted::is(Planted::WindowNotInImage) {
            true => Window::at(self.horizon).encode(out),
            false => self.window.encode(out),
        }
        out.varint(self.announced.len() as u64);
        for (node, (oldest, at)) in &self.announced {
            [u64::from(*node), *oldest, *at].into_iter().for_each(|number| out.varint(number));
        }
        let nobody = VecDeque::new();
        let decided = if planted::is(Planted::OutcomesNotInImage) { &nobody } else { &self.decided };
        out.varint(decided.len() as u64);
        for (position, id, name) in decided {
            let known = self.outcomes.get(id).expect("who was decided has an outcome");
            out.varint(*position);
            out.varint(*id);
            out.byte(u8::from(known.1));
            out.optional(name.as_deref().map(str::as_bytes));
        }
        out.varint(self.names.len() as u64);
        for (name, (position, committed)) in &self.names {
            out.string(name.as_bytes());
            out.varint(*position);
            out.byte(u8::from(*committed));
        }
        let mut undecided = self.undecided.requests();
        undecided.retain(|_| !planted::is(Planted::UndecidedNotInImage));
        out.list(&undecided, |out, (position, bytes)| {
            out.varint(*position);
            out.string(bytes);
        });
    }

    /// Reads what [`Standing::encode`] wrote. Digests of earlier positions are not known to it.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn decode(input: &mut Input<'_>) -> Result<Standing, String> {
        let text =
            |bytes| std::str::from_utf8(bytes).map(Box::<str>::from).map_err(|_| "a name that is not UTF-8");
        let (applied, horizon, unshared) = (input.varint()?, input.varint()?, input.varint()?);
        let digest: [u8; 32] = input.string()?.try_into().map_err(|_| "a digest of another size")?;
        let crossed = input.list(|input| Ok((input.varint()?, (input.varint()?, input.varint()?))))?;
        let window = Window::decode(input)?;
        let announced = input.list(|input| {
            let node = u16::try_from(input.varint()?).map_err(|_| "a node out of range")?;
            Ok((node, (input.varint()?, input.varint()?)))
        })?;
        let mut outcomes = HashMap::default();
        let decided = input.list(|input| {
            let (position, id, committed) = (input.varint()?, input.varint()?, input.byte()? != 0);
            outcomes.insert(id, (position, committed));
            Ok((position, id, input.optional()?.map(text).transpose()?))
        })?;
        let names = input.list(|input| {
            let name = text(input.string()?)?;
            Ok((name, (input.varint()?, input.byte()? != 0)))
        })?;
        let mut undecided = Undecided::default();
        input.list(|input| {
            let (position, bytes) = (input.varint()?, input.string()?);
            let request = Request::decode(bytes)?;
            undecided.enter(position, &request, &request.all_locks(), bytes);
            Ok(())
        })?;
        Ok(Standing {
            undecided,
            applied,
            window,
            horizon,
            announced: announced.into_iter().collect(),
            outcomes,
            decided: decided.into(),
            names: names.into_iter().collect(),
            unshared,
            crossed: crossed.into_iter().collect(),
            digest,
            digests: VecDeque::from([digest]),
        })
    }

    fn raise_horizon(&mut self) {
        let (position, oldest_allowed) = (self.applied, self.applied.saturating_sub(AGE_MAX));
        let silent = position.saturating_sub(SILENCE_MAX);
        // Who was removed, or is lost for good, would have everybody remember so many positions.
        let heard = self.announced.values().filter(|(_, at)| *at > silent);
        let oldest = heard.map(|(oldest, _)| *oldest).min().unwrap_or(0);
        let horizon = oldest.max(oldest_allowed);
        if horizon > self.horizon {
            self.horizon = horizon;
            self.window.forget(horizon);
            // Nobody is judged any more who could have read what these replaced.
            self.crossed = self.crossed.split_off(&(horizon + 1));
        }
        // Later than that nobody comes who was proposed before.
        while self.decided.front().is_some_and(|(at, ..)| *at <= position.saturating_sub(OUTCOMES_MAX)) {
            let Some((at, id, name)) = self.decided.pop_front() else { return };
            self.outcomes.remove(&id);
            // A later one may have the name by now.
            if let Some(name) = name.filter(|name| self.names.get(name).is_some_and(|known| known.0 == at)) {
                self.names.remove(&name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Purpose;
    use super::*;
    use crate::prepared::record::Parts;
    use crate::txn::change::Effects;

    /// COMMIT PREPARED, asked for when so much was applied.
    fn decision(id: TransactionId, bot: Csn) -> Request {
        Request {
            id,
            name: None,
            level: Level::ReadCommitted,
            snapshot: bot,
            bot,
            oldest: bot,
            next_tree: 0,
            dropped: Vec::new(),
            parts: Parts { locks: Vec::new(), notes: Vec::new(), reads: None, changes: Vec::new() },
            effects: Effects::default(),
            purpose: Purpose::Decide { identifier: "p".into(), commits: true },
        }
    }

    /// Of a node, whose oldest snapshot is this.
    fn heard(node: u64, number: u64, oldest: Csn) -> Request {
        decision(node << 52 | number, oldest)
    }

    #[test]
    fn a_node_that_was_silent_for_long_is_not_waited_for_until_it_is_heard() {
        let mut standing = Standing::at(0);
        standing.enter(1, &heard(1, 1, 0), &[], false, b"");
        standing.applied = SILENCE_MAX - 1;
        standing.enter(SILENCE_MAX, &heard(2, 1, SILENCE_MAX - 2), &[], false, b"");
        assert_eq!(standing.horizon(), 0, "something may run there");
        standing.enter(SILENCE_MAX + 1, &heard(2, 2, SILENCE_MAX - 1), &[], false, b"");
        assert_eq!(standing.horizon(), SILENCE_MAX - 1);
        standing.enter(SILENCE_MAX + 2, &heard(1, 2, SILENCE_MAX), &[], false, b"");
        standing.enter(SILENCE_MAX + 3, &heard(2, 3, SILENCE_MAX + 2), &[], false, b"");
        assert_eq!(standing.horizon(), SILENCE_MAX, "it is waited for again");
    }

    /// The answer to a decision is lost, and its node is cut off: it asks again when it is back. By
    /// then somebody else may be prepared under the identifier.
    #[test]
    fn a_decision_does_not_outlive_what_is_known_of_its_verdict() {
        let mut standing = Standing::at(3);
        let first = decision(7, 3);
        assert_eq!(standing.judge(&first, &[]), Ok(()));
        standing.enter(4, &first, &[], true, b"");
        standing.applied = 2 + OUTCOMES_MAX;
        standing.pass(3 + OUTCOMES_MAX, b"");
        let known = Refusal::Known { position: 4, committed: true };
        assert_eq!(standing.judge(&first, &[]), Err(known), "it is known still");
        assert_eq!(standing.judge(&decision(8, 3), &[]), Ok(()), "it cannot have been delivered before");
        standing.pass(4 + OUTCOMES_MAX, b"");
        assert!(!standing.knows(first.id));
        assert_eq!(standing.judge(&first, &[]), Err(Refusal::TooOld { horizon: 4 }));
        assert_eq!(standing.judge(&decision(9, 4), &[]), Ok(()));
    }
}
