//! How things stand at a position of the order, besides the certifier's graph: all that the verdict
//! about the next request depends on. Pure: a request in, a verdict out, and the same at every
//! node.

use std::collections::{BTreeMap, HashMap, VecDeque};

use foldhash::fast::RandomState;
use sha2::{Digest, Sha256};

use super::arriving::Arriving;
use super::prepared::{Decided, Undecided};
use super::purpose::{Purpose, Whole};
use super::window::{Conflict, Window};
use super::{AGE_MAX, Level, Request, horizon_at};
use crate::hash::Seed;
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
    /// Its client has given its name to another one, which has committed or is prepared.
    Named { position: Csn, is_prepared: bool },
    /// Its name was closed.
    Void { position: Csn },
    /// A part that nobody waits for, since its transaction has ended or one before it is missing;
    /// or a whole without its parts.
    NotAwaited,
    /// A part for which there is no room beside those of others.
    NoRoom { limit: u64 },
}

/// What is known of those who had a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// The last one did not commit; another one may.
    Aborted = 0,
    /// One has committed, and nobody does any more.
    Committed = 1,
    /// Nobody has committed, and nobody does any more (`void`).
    Void = 2,
}

impl Told {
    fn of(committed: bool) -> Told {
        if committed { Told::Committed } else { Told::Aborted }
    }

    fn decode(input: &mut Input<'_>) -> Result<Told, String> {
        match input.byte()? {
            0 => Ok(Told::Aborted),
            1 => Ok(Told::Committed),
            2 => Ok(Told::Void),
            other => Err(format!("the unknown outcome {other} of a name")),
        }
    }
}

/// The transaction whose id a name is, written as `txid_current` gives it: when a transaction
/// comes, no other spelling is looked for.
fn id_of(name: &str) -> Option<TransactionId> {
    name.parse::<TransactionId>().ok().filter(|id| id.to_string() == name)
}

fn is_closed_id(name: &str, told: Told) -> bool {
    told == Told::Void && id_of(name).is_some()
}

/// See the module's prose.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// The last position that was delivered.
    applied: Csn,
    window: Window,
    /// Who is prepared.
    undecided: Undecided,
    /// What comes in parts.
    arriving: Arriving,
    /// Nobody with a snapshot below is judged.
    horizon: Csn,
    /// The position at which much was forgotten last. No verdict depends on it.
    forgot_much: Csn,
    /// The oldest snapshot of each node, and the position at which it said so.
    announced: BTreeMap<u16, (Csn, Csn)>,
    /// Verdicts by transaction, and who they were, oldest first: as many as a request can be late.
    outcomes: HashMap<TransactionId, (Csn, bool), RandomState>,
    decided: VecDeque<(Csn, TransactionId, Option<Box<str>>)>,
    /// The last verdicts about requests that their clients have named, and names that were closed.
    names: HashMap<Box<str>, (Csn, Told), RandomState>,
    /// How many of those that were closed are ids of transactions.
    closed_ids: usize,
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
        let (position, told) = *self.names.get(name)?;
        (!self.undecided.is_at(position)).then_some((position, told == Told::Committed))
    }

    /// Why nobody commits under the name that a request has, or why the one that it names is not
    /// closed. A transaction's id is a name of it, too.
    fn judge_name(&self, request: &Request) -> Result<(), Refusal> {
        let named = |position| Refusal::Named { position, is_prepared: self.undecided.is_at(position) };
        if let Some(name) = request.purpose.closes() {
            // Whoever is told so anew is to rely on it for as long as the first one.
            return self.taken_at(name).map_or(Ok(()), |position| Err(named(position)));
        }
        match request.name.as_ref().and_then(|name| self.names.get(name)) {
            Some(&(position, Told::Committed)) if !planted::is(Planted::KnowsNoName) => {
                return Err(named(position));
            }
            Some(&(position, Told::Void)) if !planted::is(Planted::ForgetsVoids) => {
                return Err(Refusal::Void { position });
            }
            _ => {}
        }
        // Few ask for a transaction by its id, and all others need not write it down.
        let asks = self.closed_ids > 0 && request.purpose.is_of_transaction();
        let closed = asks.then(|| self.names.get(request.id.to_string().as_str())).flatten();
        match closed {
            Some(&(position, Told::Void)) if !planted::is(Planted::ForgetsVoids) => {
                Err(Refusal::Void { position })
            }
            _ => Ok(()),
        }
    }

    /// Where somebody has committed who has this name or this id, or is prepared: however long ago
    /// that was, it may commit yet.
    fn taken_at(&self, name: &str) -> Option<Csn> {
        let id = id_of(name);
        let by_name = self.names.get(name).filter(|(_, told)| *told == Told::Committed);
        let by_name = by_name.map(|(position, _)| *position);
        let by_id = || id.and_then(|id| self.outcomes.get(&id)).filter(|(_, committed)| *committed);
        let by_id = || by_id().map(|(position, _)| *position);
        by_name.or_else(by_id).or_else(|| self.undecided.position_under(name, id))
    }

    /// Whether what a request names may have been forgotten since it was made: its own verdict, or
    /// that its name was closed.
    pub(crate) fn may_have_forgotten(&self, request: &Request) -> bool {
        request.bot < self.known_from()
    }

    /// Verdicts behind this position are remembered.
    fn known_from(&self) -> Csn {
        self.applied.saturating_sub(OUTCOMES_MAX)
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

    /// Whether everything has come of a transaction that comes in parts.
    pub(crate) fn has_all_parts(&self, of: TransactionId, whole: &Whole) -> bool {
        self.arriving.has_all(of, whole)
    }

    /// Who has begun to come in parts, from such nodes.
    pub(crate) fn arriving_from(&self, counts: impl Fn(u16) -> bool) -> Vec<TransactionId> {
        self.arriving.of_nodes(counts)
    }

    /// Whose parts are to be removed at the next position, and how many they are.
    pub(crate) fn take_left_parts(&mut self) -> Vec<(TransactionId, u64)> {
        self.arriving.take_left()
    }

    /// What was locked and changed lately. No verdict is made of it elsewhere.
    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    /// Who is prepared.
    pub(crate) fn undecided(&self) -> &Undecided {
        &self.undecided
    }

    /// Whether with the next request, a commit, much is forgotten: since nobody needs it any more
    /// by what the request announces, or as the graph is pruned then, which may not have been done
    /// since that position. No verdict depends on it.
    pub(crate) fn forgets_much(&self, request: &Request, prunes_since: Option<Csn>) -> bool {
        self.window.is_much_upto(self.horizon_behind(request))
            || prunes_since.is_some_and(|since| self.forgot_much >= since.max(1))
    }

    /// What the horizon is once the next request has been entered.
    pub(crate) fn horizon_behind(&self, request: &Request) -> Csn {
        let (node, position) = (node_of(request.id), self.applied + 1);
        let others = self.announced.iter().filter(|(other, _)| **other != node).map(|(_, known)| *known);
        horizon_at(position, others.chain([(request.oldest, position)]))
    }

    /// The oldest snapshot that a node has announced last, and when.
    pub(crate) fn announced(&self, node: u16) -> (Csn, Csn) {
        self.announced.get(&node).copied().unwrap_or_default()
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
        self.judge_name(request)?;
        if !request.purpose.is_of_transaction() {
            return self.judge_late(request);
        }
        // It was put together when it was delivered; since then its parts may have come to nothing.
        if request.whole.as_ref().is_some_and(|whole| !self.arriving.has_all(request.id, whole)) {
            return Err(Refusal::NotAwaited);
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
        if self.may_have_forgotten(request) {
            return Err(Refusal::TooOld { horizon: self.known_from() });
        }
        match &request.purpose {
            Purpose::Part(part) if self.outcomes.contains_key(&part.of) => Err(Refusal::NotAwaited),
            Purpose::Part(part) => self.arriving.judge(part),
            _ => Ok(()),
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
        // A part goes with its own transaction's start. A node that has used up the numbers of its
        // start goes on with those of the next, which its request may have already.
        self.arriving.hear(match &request.purpose {
            Purpose::Part(part) => part.of,
            _ => request.id,
        });
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
        let own = request.name.as_deref().map(|name| (name, Told::of(committed)));
        let closed = request.purpose.closes().filter(|_| committed).map(|name| (name, Told::Void));
        self.note_outcome(position, request.id, committed, closed.or(own));
        match &request.purpose {
            Purpose::Part(part) if committed => self.arriving.take(position, part),
            Purpose::GiveUp { of, name } if committed => {
                self.arriving.end(*of);
                // It may have been decided before that was known at its node.
                if !self.outcomes.contains_key(of) {
                    let name = name.as_deref().map(|name| (name, Told::Aborted));
                    self.note_outcome(position, *of, false, name);
                }
            }
            _ => self.arriving.end(request.id),
        }
        self.announced.insert(node_of(request.id), (request.oldest, position));
        self.finish(position, committed, bytes);
    }

    /// Remembers a verdict, and what is known by it of a name.
    fn note_outcome(
        &mut self,
        position: Csn,
        id: TransactionId,
        committed: bool,
        name: Option<(&str, Told)>,
    ) {
        if self.outcomes.insert(id, (position, committed)).is_none() {
            self.decided.push_back((position, id, name.map(|(name, _)| Box::from(name))));
        }
        let Some((name, told)) = name else { return };
        let before = self.names.get(name).map(|(_, told)| *told);
        // Once it has committed, or was closed, it stays so, whoever uses the name again. Who
        // closes it once more is to rely on that for as long as the first one.
        if matches!(before, None | Some(Told::Aborted)) || told == Told::Void {
            self.names.insert(name.into(), (position, told));
        }
        if told == Told::Void && before != Some(Told::Void) {
            self.closed_ids += usize::from(id_of(name).is_some());
        }
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
                known.1 = Told::of(commits);
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
    /// name length + 1 (0 = none), name; count, and for each name: name, position, what is known of
    /// it; count, and for each undecided PREPARE: position, and the request; what comes in parts.
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
        for (name, (position, told)) in &self.names {
            out.string(name.as_bytes());
            out.varint(*position);
            out.byte(*told as u8);
        }
        let mut undecided = self.undecided.requests();
        undecided.retain(|_| !planted::is(Planted::UndecidedNotInImage));
        out.list(&undecided, |out, (position, bytes)| {
            out.varint(*position);
            out.string(bytes);
        });
        match planted::is(Planted::PartsNotInImage) {
            true => Arriving::default().encode(out),
            false => self.arriving.encode(out),
        }
    }

    /// Reads what [`Standing::encode`] wrote, for a database that has this seed. Digests of earlier
    /// positions are not known to it. Images of earlier builds have nothing that comes in parts.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn decode(input: &mut Input<'_>, seed: &Seed, has_parts: bool) -> Result<Standing, String> {
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
            Ok((name, (input.varint()?, Told::decode(input)?)))
        })?;
        let mut undecided = Undecided::default();
        input.list(|input| {
            let (position, bytes) = (input.varint()?, input.string()?);
            let request = Request::decode(bytes, seed)?;
            undecided.enter(position, &request, &request.all_locks(), bytes);
            Ok(())
        })?;
        let arriving = if has_parts { Arriving::decode(input)? } else { Arriving::default() };
        Ok(Standing {
            undecided,
            arriving,
            applied,
            window,
            horizon,
            forgot_much: 0,
            announced: announced.into_iter().collect(),
            outcomes,
            decided: decided.into(),
            closed_ids: names.iter().filter(|(name, (_, told))| is_closed_id(name, *told)).count(),
            names: names.into_iter().collect(),
            unshared,
            crossed: crossed.into_iter().collect(),
            digest,
            digests: VecDeque::from([digest]),
        })
    }

    fn raise_horizon(&mut self) {
        self.arriving.age(self.applied);
        let position = self.applied;
        let horizon = horizon_at(position, self.announced.values().copied());
        if horizon > self.horizon {
            if self.window.is_much_upto(horizon) {
                self.forgot_much = position;
            }
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
                let known = self.names.remove(&name);
                self.closed_ids -= usize::from(known.is_some_and(|(_, told)| is_closed_id(&name, told)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::purpose::Part;
    use super::super::window::MUCH;
    use super::super::{Preparing, Purpose, SILENCE_MAX};
    use super::*;
    use crate::Value;
    use crate::hash::FIXED;
    use crate::prepared::record::{Owner, Parts};
    use crate::txn::change::Effects;

    /// COMMIT PREPARED, asked for when so much was applied.
    fn decision(id: TransactionId, bot: Csn) -> Request {
        Request {
            id,
            name: None,
            level: Level::ReadCommitted,
            snapshot: bot,
            began: bot,
            bot,
            oldest: bot,
            next_tree: 0,
            dropped: Vec::new(),
            whole: None,
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

    /// Who has little time leaves it to somebody else.
    #[test]
    fn it_is_known_with_which_request_much_is_forgotten() {
        let mut standing = Standing::at(0);
        let key = |number: usize| SmallKey::new(&number.to_be_bytes());
        let lock = |number| (HeldLock { tree: 7, key: Some(key(number)), modes: 8 }, true);
        let locks: Vec<(HeldLock, bool)> = (0..=MUCH).map(lock).collect();
        let parts = Parts { locks: Vec::new(), notes: vec![(7, key(0))], reads: None, changes: Vec::new() };
        let large = Request { purpose: Purpose::Commit, parts, ..heard(1, 1, 0) };
        standing.enter(1, &large, &locks, true, b"");
        assert!(!standing.forgets_much(&heard(1, 2, 0), Some(0)), "somebody may need it");
        assert!(standing.forgets_much(&heard(1, 2, 1), None));
        standing.enter(2, &heard(2, 1, 0), &[], false, b"");
        assert!(!standing.forgets_much(&heard(1, 2, 2), None), "somebody at another node may");
        standing.enter(3, &heard(1, 2, 2), &[], false, b"");
        assert!(standing.forgets_much(&heard(2, 2, 2), None));
        standing.enter(4, &heard(2, 2, 2), &[], false, b"");
        assert!(!standing.forgets_much(&heard(2, 3, 4), None), "it is forgotten");
        assert!(standing.forgets_much(&heard(2, 3, 4), Some(0)), "but for the graph");
        assert!(!standing.forgets_much(&heard(2, 3, 4), Some(64)), "that was pruned before");
    }

    /// A transaction of node 1 has begun to come in parts, and ends at its node; one of its parts
    /// was on its way then.
    #[test]
    fn what_was_given_up_is_aborted_and_takes_no_part_any_more() {
        let (of, mut standing) = (1 << 52 | 1, Standing::at(0));
        let part = |number: u64| {
            let part = Part { of, number, all: 12, bytes: crate::Value::from_static(b"part") };
            Request { purpose: Purpose::Part(Box::new(part)), ..heard(1, 10 + number, 0) }
        };
        assert_eq!(standing.judge(&part(0), &[]), Ok(()));
        standing.enter(1, &part(0), &[], true, b"");
        assert_eq!(standing.judge(&part(2), &[]), Err(Refusal::NotAwaited));
        assert_eq!(standing.judge(&part(1), &[]), Ok(()));
        let purpose = Purpose::GiveUp { of, name: Some("order 7".into()) };
        standing.enter(2, &Request { purpose, ..heard(1, 20, 0) }, &[], true, b"");
        assert_eq!(standing.outcome(of), Some((2, false)));
        assert_eq!(standing.outcome_of("order 7"), Some((2, false)));
        assert_eq!(standing.take_left_parts(), [(of, 1)]);
        assert_eq!(standing.judge(&part(1), &[]), Err(Refusal::NotAwaited));
        let mut out = Encoder::with_capacity(1 << 10);
        standing.encode(&mut out);
        let bytes = out.finish();
        let again = Standing::decode(&mut Input::of(&bytes), &FIXED, true).expect("it was encoded");
        assert_eq!(again.judge(&part(1), &[]), Err(Refusal::NotAwaited), "the image knows it, too");
    }

    /// A node uses up the numbers of its start while one of its transactions comes in parts. That
    /// one is given up with the next that is heard of, and nothing of it stays.
    #[test]
    fn all_parts_go_also_if_one_of_them_is_proposed_under_a_later_number() {
        let (of, later) = (1 << 59 | 1 << 29 | 7, 1 << 59 | 2 << 29 | 1);
        let mut standing = Standing::at(0);
        let part = |number: u64, id: TransactionId| {
            let part = Part { of, number, all: 12, bytes: Value::from_static(b"part") };
            Request { purpose: Purpose::Part(Box::new(part)), ..decision(id, 0) }
        };
        standing.enter(1, &part(0, of + 1), &[], true, b"");
        assert_eq!(standing.judge(&part(1, later), &[]), Ok(()));
        standing.enter(2, &part(1, later), &[], true, b"");
        assert!(standing.take_left_parts().is_empty(), "it is running");
        assert_eq!(standing.judge(&part(2, later + 1), &[]), Ok(()));
        standing.enter(3, &decision(later + 2, 2), &[], true, b"");
        assert_eq!(standing.take_left_parts(), [(of, 2)]);
        assert_eq!(standing.judge(&part(2, later + 3), &[]), Err(Refusal::NotAwaited));
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

    /// A void of a name, of something that cannot have been ordered at or before `since`.
    fn void(id: TransactionId, name: &str, since: Csn) -> Request {
        Request { purpose: Purpose::Void { name: name.into() }, ..decision(id, since) }
    }

    /// A commit under a name.
    fn named(id: TransactionId, name: &str, bot: Csn) -> Request {
        Request { name: Some(name.into()), purpose: Purpose::Commit, ..decision(id, bot) }
    }

    /// PREPARE of what is decided by [`decision`], under a name.
    fn prepare(id: TransactionId, name: &str, bot: Csn) -> Request {
        let owner = Owner::Global("p".into());
        let preparing = Preparing { prepared_us: 0, owner, texts: Default::default(), note: Value::new() };
        Request { purpose: Purpose::Prepare(Box::new(preparing)), ..named(id, name, bot) }
    }

    #[test]
    fn under_a_name_that_was_closed_nobody_commits_as_long_as_that_is_remembered() {
        let mut standing = Standing::at(3);
        let closes = void(7, "n", 3);
        assert_eq!(standing.judge(&closes, &[]), Ok(()));
        standing.enter(4, &closes, &[], true, b"");
        assert_eq!(standing.outcome_of("n"), Some((4, false)));
        let refused = Err(Refusal::Void { position: 4 });
        assert_eq!(standing.judge(&named(8, "n", 3), &[]), refused);
        standing.enter(5, &named(8, "n", 3), &[], false, b"");
        assert_eq!(standing.judge(&named(9, "n", 5), &[]), refused, "it stays closed");
        assert_eq!(standing.judge(&named(10, "m", 3), &[]), Ok(()));
        // An image has it, too.
        let mut image = Encoder::with_capacity(0);
        standing.encode(&mut image);
        let image = image.finish();
        let again = Standing::decode(&mut Input::of(&image), &FIXED, true).expect("it was encoded");
        assert_eq!(again.judge(&named(9, "n", 5), &[]), refused);
        // Who closes it once more is to rely on it for as long.
        let closes = void(11, "n", 5);
        assert_eq!(standing.judge(&closes, &[]), Ok(()));
        standing.enter(6, &closes, &[], true, b"");
        standing.applied = OUTCOMES_MAX + 4;
        standing.pass(OUTCOMES_MAX + 5, b"");
        assert_eq!(standing.outcome_of("n"), Some((6, false)), "the first one is forgotten");
        standing.pass(OUTCOMES_MAX + 6, b"");
        assert_eq!(standing.outcome_of("n"), None);
        assert!(standing.names.is_empty() && standing.outcomes.is_empty(), "nothing is left of them");
    }

    /// What is forgotten may have been committed: nobody may be told then that it was not.
    #[test]
    fn a_name_is_not_closed_of_which_something_may_be_forgotten() {
        let mut standing = Standing::at(3);
        standing.enter(4, &named(7, "n", 3), &[], true, b"");
        let taken = Refusal::Named { position: 4, is_prepared: false };
        assert_eq!(standing.judge(&void(8, "n", 3), &[]), Err(taken));
        standing.applied = OUTCOMES_MAX + 3;
        standing.pass(OUTCOMES_MAX + 4, b"");
        assert_eq!(standing.outcome_of("n"), None);
        assert_eq!(standing.judge(&void(9, "n", 3), &[]), Err(Refusal::TooOld { horizon: 4 }));
        assert_eq!(standing.judge(&void(10, "m", 4), &[]), Ok(()), "everything behind 4 is known");
    }

    #[test]
    fn a_transaction_id_is_a_name() {
        let mut standing = Standing::at(3);
        let by_id = |id| Request { purpose: Purpose::Commit, ..decision(id, 3) };
        standing.enter(4, &void(7, "21", 3), &[], true, b"");
        assert_eq!(standing.judge(&by_id(21), &[]), Err(Refusal::Void { position: 4 }));
        let mut image = Encoder::with_capacity(0);
        standing.encode(&mut image);
        let image = image.finish();
        let again = Standing::decode(&mut Input::of(&image), &FIXED, true).expect("it was encoded");
        assert_eq!(again.judge(&by_id(21), &[]), Err(Refusal::Void { position: 4 }));
        assert_eq!(standing.judge(&by_id(22), &[]), Ok(()));
        standing.enter(5, &by_id(22), &[], true, b"");
        let taken = Err(Refusal::Named { position: 5, is_prepared: false });
        assert_eq!(standing.judge(&void(8, "22", 3), &[]), taken);
        // Whoever has the id for a name has not committed; the transaction has.
        standing.enter(6, &named(9, "22", 3), &[], false, b"");
        assert_eq!(standing.judge(&void(8, "22", 3), &[]), taken);
        assert_eq!((id_of("22"), id_of("022"), id_of("+22")), (Some(22), None, None));
        standing.applied = OUTCOMES_MAX + 5;
        standing.pass(OUTCOMES_MAX + 6, b"");
        assert_eq!((standing.names.len(), standing.closed_ids), (0, 0), "nothing is left of them");
    }

    /// What is prepared may commit however much later, and is remembered for less.
    #[test]
    fn a_name_is_not_closed_under_which_somebody_is_prepared() {
        let mut standing = Standing::at(3);
        standing.enter(4, &prepare(7, "n", 3), &[], true, b"");
        standing.applied = OUTCOMES_MAX + 4;
        standing.pass(OUTCOMES_MAX + 5, b"");
        assert!(standing.names.is_empty() && standing.outcomes.is_empty(), "it is forgotten");
        let since = OUTCOMES_MAX + 5;
        let taken = Err(Refusal::Named { position: 4, is_prepared: true });
        assert_eq!(standing.judge(&void(8, "n", since), &[]), taken);
        assert_eq!(standing.judge(&void(8, "7", since), &[]), taken);
        assert_eq!(standing.judge(&void(8, "m", since), &[]), Ok(()));
        let rolls_back = Purpose::Decide { identifier: "p".into(), commits: false };
        let decision = Request { purpose: rolls_back, ..decision(9, since) };
        standing.enter(OUTCOMES_MAX + 6, &decision, &[], true, b"");
        assert_eq!(standing.judge(&void(8, "n", since), &[]), Ok(()));
    }

    /// Who tries again is told what there is to be done about the first one.
    #[test]
    fn a_name_under_which_somebody_is_prepared_is_told_from_one_that_has_committed() {
        let mut standing = Standing::at(3);
        standing.enter(4, &prepare(7, "n", 3), &[], true, b"");
        let taken = |is_prepared| Err(Refusal::Named { position: 4, is_prepared });
        assert_eq!(standing.judge(&named(8, "n", 4), &[]), taken(true));
        standing.enter(5, &decision(9, 4), &[], true, b"");
        assert_eq!(standing.judge(&named(8, "n", 5), &[]), taken(false));
    }

    /// What is asked for by a name is asked for once, whatever it is; and a closed name stays so.
    #[test]
    fn a_decision_may_have_a_name() {
        let mut standing = Standing::at(3);
        standing.enter(4, &prepare(7, "n", 3), &[], true, b"");
        let decides = |id, name: &str| Request { name: Some(name.into()), ..decision(id, 4) };
        standing.enter(5, &void(8, "closed", 4), &[], true, b"");
        assert_eq!(standing.judge(&decides(9, "closed"), &[]), Err(Refusal::Void { position: 5 }));
        assert_eq!(standing.judge(&decides(10, "d"), &[]), Ok(()));
        standing.enter(6, &decides(10, "d"), &[], true, b"");
        assert_eq!((standing.outcome_of("d"), standing.outcome_of("n")), (Some((6, true)), Some((4, true))));
        let taken = Err(Refusal::Named { position: 6, is_prepared: false });
        assert_eq!(standing.judge(&decides(11, "d"), &[]), taken);
        assert_eq!(standing.judge(&void(12, "d", 4), &[]), taken);
    }

    /// A program sees what is there at its turn, so no snapshot of it is ever too old. But it is
    /// not to be executed once nobody knows any more whether its name was closed.
    #[test]
    fn a_program_is_forgotten_with_what_was_known_of_its_name() {
        let mut standing = Standing::at(3);
        let program = Request { purpose: Purpose::Execute(Box::from(*b"UPDATE")), ..named(8, "n", 3) };
        standing.enter(4, &void(7, "n", 3), &[], true, b"");
        standing.applied = OUTCOMES_MAX + 2;
        standing.pass(OUTCOMES_MAX + 3, b"");
        assert!(!standing.may_have_forgotten(&program));
        assert_eq!(standing.judge(&program, &[]), Err(Refusal::Void { position: 4 }));
        standing.pass(OUTCOMES_MAX + 4, b"");
        assert_eq!(standing.outcome_of("n"), None);
        assert!(standing.may_have_forgotten(&program));
        assert!(matches!(standing.judge(&program, &[]), Err(Refusal::TooOld { .. })));
    }
}
