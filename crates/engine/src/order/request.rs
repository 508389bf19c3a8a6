//! A request: what a transaction's verdict depends on, and what it changes.
//!
//! Integers are varints (seven bits a byte, lowest first; the top bit says that more follow).
//!
//! ```text
//! version: 1 byte          1 = the commit of a transaction, 2 = with another purpose;
//!                          3, 4 = the same where the snapshot has moved
//! level: 1 byte            0 = read committed, 1 = snapshot, 2 = serializable
//! transaction id           its node in the highest bits
//! name                     length + 1 and bytes, or 0: what its client calls the request
//! snapshot                 position
//! began                    versions 3 and 4 only: position, the first snapshot
//! bot                      position: what its origin had delivered when it was sealed
//! oldest                   position: the oldest snapshot at its origin
//! next tree id             all ids below may be in use
//! dropped trees            count, ids
//! locks, notes, reads, trees    as in the row of a prepared transaction
//! effects                  count, words: what the writes changed of their rows (`txn::change`); if there are any,
//!                          the place of each write in them, in the order of trees and keys
//! purpose                  versions 2 and 4 only: see there
//! ```
//!
//! A request without changes asks whether its reads fit into the order (a transaction that wrote
//! nothing), or only announces its origin's oldest snapshot (without reads, too).
//!
//! One that comes in parts (`arriving`) is encoded like any other, with 0 as its `bot`, and cut;
//! the request that stands for it has no locks, notes, reads and trees of its own.

use super::purpose::{Purpose, Whole};
use crate::certifier::Candidate;
use crate::hash::Seed;
use crate::key::SmallKey;
use crate::level::Isolation;
use crate::lock::table::HeldLock;
use crate::payload::{Encoder, Input};
use crate::planted::{self, Planted};
use crate::prepared::record::{Parts, VERSION as PARTS, decode_parts, encode_parts};
use crate::txn::change::Effects;
use crate::txn::codec::{decode_effects, encode_effects};
use crate::txn::writeset::{Changes, key_writes_beside};
use crate::{Csn, TransactionId, TreeId};

const COMMIT: u8 = 1;
const WITH_PURPOSE: u8 = 2;
/// Comes to the version of one whose snapshot has moved.
const MOVED: u8 = 2;
const MOVED_COMMIT: u8 = COMMIT + MOVED;
const MOVED_WITH_PURPOSE: u8 = WITH_PURPOSE + MOVED;

/// By which rules a request is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    ReadCommitted,
    Snapshot,
    Serializable,
}

impl Level {
    pub(crate) fn of(isolation: Isolation) -> Level {
        match isolation {
            Isolation::ReadCommitted => Level::ReadCommitted,
            Isolation::Snapshot => Level::Snapshot,
            Isolation::Serializable => Level::Serializable,
        }
    }
}

/// See the module's prose.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: TransactionId,
    /// What its client calls it, to ask for its outcome.
    pub(crate) name: Option<Box<str>>,
    pub(crate) level: Level,
    pub(crate) snapshot: Csn,
    /// Its first snapshot; not above the one that it has.
    pub(crate) began: Csn,
    pub(crate) bot: Csn,
    pub(crate) oldest: Csn,
    pub(crate) next_tree: u64,
    pub(crate) dropped: Vec<TreeId>,
    /// What stands for it, if it has come in parts and was put together. Nobody else knows of the
    /// trees that its transaction has made, so nobody has locks or has read anything there.
    pub(crate) whole: Option<Box<Whole>>,
    pub(crate) parts: Parts,
    /// What the writes changed of their rows, where that is known.
    pub(crate) effects: Effects,
    pub(crate) purpose: Purpose,
}

impl Request {
    /// Whether it says nothing but which snapshot is the oldest at its origin.
    pub(crate) fn only_announces(&self) -> bool {
        let Parts { locks, notes, reads, changes } = &self.parts;
        matches!(self.purpose, Purpose::Commit)
            && (locks.is_empty() && notes.is_empty() && reads.is_none() && changes.is_empty())
            && self.dropped.is_empty()
            && self.whole.is_none()
    }

    /// About `size` bytes are changes.
    pub(crate) fn encode(&self, size: u64) -> Vec<u8> {
        let mut out = Encoder::with_capacity(256 + size);
        let is_plain = matches!(self.purpose, Purpose::Commit);
        let is_moved = self.began < self.snapshot;
        let version = if is_plain { COMMIT } else { WITH_PURPOSE };
        out.byte(version + if is_moved { MOVED } else { 0 });
        out.byte(self.level as u8);
        out.varint(self.id);
        out.optional(self.name.as_deref().map(str::as_bytes));
        out.varint(self.snapshot);
        if is_moved {
            out.varint(self.began);
        }
        for number in [self.bot, self.oldest, self.next_tree] {
            out.varint(number);
        }
        out.list(&self.dropped, |out, tree| out.varint(u64::from(*tree)));
        let Parts { locks, notes, reads, changes } = &self.parts;
        encode_parts(&mut out, locks, notes, reads.as_ref(), changes);
        let places = changes.iter().flat_map(|(_, changes)| changes.places());
        encode_effects(&mut out, &self.effects, places);
        if !is_plain {
            self.purpose.encode(&mut out, self.id);
        }
        out.finish()
    }

    /// Reads a request, for a database that has this seed.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn decode(bytes: &[u8], seed: &Seed) -> Result<Request, String> {
        let mut input = Input::of(bytes);
        let version = input.byte()?;
        if !matches!(version, COMMIT | WITH_PURPOSE | MOVED_COMMIT | MOVED_WITH_PURPOSE) {
            return Err(format!("a request in the unknown version {version}"));
        }
        let level = match input.byte()? {
            0 => Level::ReadCommitted,
            1 => Level::Snapshot,
            2 => Level::Serializable,
            other => return Err(format!("the unknown level {other}")),
        };
        let id = input.varint()?;
        let name = input.optional()?.map(|name| std::str::from_utf8(name).map(Box::from));
        let name = name.transpose().map_err(|_| "a name that is not UTF-8")?;
        let snapshot = input.varint()?;
        let is_moved = matches!(version, MOVED_COMMIT | MOVED_WITH_PURPOSE);
        let began = if is_moved { input.varint()? } else { snapshot };
        if is_moved && began >= snapshot {
            return Err("a beginning that is not before the snapshot".to_owned());
        }
        let (bot, oldest, next_tree) = (input.varint()?, input.varint()?, input.varint()?);
        let dropped = input.list(|input| input.tree())?;
        let mut parts = decode_parts(&mut input, seed, PARTS)?;
        let effects = decode_effects(&mut input, |next| {
            parts.changes.iter_mut().try_for_each(|(_, changes)| changes.set_places(&mut *next))
        })?;
        let purpose = match version {
            COMMIT | MOVED_COMMIT => Purpose::Commit,
            _ => Purpose::decode(&mut input)?,
        };
        input.end()?;
        let whole = None;
        Ok(Request {
            id,
            name,
            level,
            snapshot,
            began,
            bot,
            oldest,
            next_tree,
            dropped,
            whole,
            parts,
            effects,
            purpose,
        })
    }

    /// What its transaction did, for the certifier of the database that it was decoded for. Its
    /// reads leave it.
    pub(crate) fn take_candidate(&mut self, seed: &Seed) -> Candidate {
        let made = made_by(self.whole.as_deref());
        let Parts { notes, reads, changes, .. } = &mut self.parts;
        let writes = key_writes_beside(seed, changes, notes.clone(), made);
        let whole = self.dropped.iter().chain(made).copied().collect();
        let seen = match planted::is(Planted::CertifiesAgainstBot) {
            true => self.bot,
            false => self.snapshot,
        };
        let candidate = Candidate::new(self.id, seen, reads.take(), writes, whole);
        candidate.with_effects(std::mem::take(&mut self.effects)).begun_at(self.began)
    }

    /// Its changes, which leave it. The trees stay.
    pub(crate) fn take_changes(&mut self) -> Vec<(TreeId, Changes)> {
        self.parts.changes.iter_mut().map(|(tree, changes)| (*tree, std::mem::take(changes))).collect()
    }

    /// Whether it changes anything.
    pub(crate) fn writes(&self) -> bool {
        !(self.parts.changes.is_empty() && self.dropped.is_empty() && self.parts.notes.is_empty())
    }

    /// All its locks: those that were held, and on what it changes without having locked it the
    /// strongest, but for what it has made. With each, whether it changes the key. In the order of
    /// trees and keys.
    pub(crate) fn all_locks(&self) -> Vec<(HeldLock, bool)> {
        /// Deleting a row, or changing all of it.
        const EXCLUSIVE: u8 = 1 << 3;
        let mut locks: Vec<(HeldLock, bool)> =
            self.parts.locks.iter().map(|lock| (lock.clone(), false)).collect();
        locks.sort_by(|(a, _), (b, _)| (a.tree, &a.key).cmp(&(b.tree, &b.key)));
        let held = locks.len();
        let made = made_by(self.whole.as_deref());
        for (tree, changes) in self.parts.changes.iter().filter(|(tree, _)| !made.contains(tree)) {
            for (key, _) in changes.iter() {
                let wanted = (*tree, Some(key));
                let found =
                    locks[..held].binary_search_by(|(lock, _)| (lock.tree, lock.key.as_ref()).cmp(&wanted));
                match found {
                    Ok(at) => locks[at].1 = true,
                    Err(_) => {
                        locks.push((HeldLock { tree: *tree, key: Some(key.clone()), modes: EXCLUSIVE }, true))
                    }
                }
            }
        }
        locks
    }
}

/// The trees that a transaction has made, as far as its request says so.
fn made_by(whole: Option<&Whole>) -> &[TreeId] {
    match whole {
        Some(whole) => &whole.made,
        None => &[],
    }
}

/// Which key of a tree, or `None` for the tree as a whole.
pub(super) type Place = (TreeId, Option<SmallKey>);

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use super::super::purpose::{OnFamily, Operation, Part, Preparing};
    use super::*;
    use crate::Value;
    use crate::hash::FIXED;
    use crate::prepared::record::Owner;
    use crate::sibling::{Instance, Xid};
    use crate::txn::columns::Columns;
    use crate::txn::readset::{Moment, ReadSet};
    use crate::txn::writeset::Changes;

    fn sample() -> Request {
        let mut reads = ReadSet::default();
        reads.add_point(&FIXED, 7, b"k", Moment::Snapshot, Columns::ALL);
        reads.add_range(8, Bound::Excluded(b"a"), Bound::Unbounded, Moment::Latest, None);
        let key = |text: &str| SmallKey::new(text.as_bytes());
        let changes = vec![(key("k"), Some(Value::from_static(b"1"))), (key("m"), None)];
        Request {
            id: 2 << 52 | 1,
            name: Some("order 7".into()),
            level: Level::Serializable,
            snapshot: 12,
            began: 12,
            bot: 14,
            oldest: 11,
            next_tree: 1003,
            dropped: vec![1001],
            whole: None,
            effects: Effects::default(),
            parts: Parts {
                locks: vec![
                    HeldLock { tree: 7, key: None, modes: 4 },
                    HeldLock { tree: 7, key: Some(key("k")), modes: 4 },
                ],
                notes: vec![(99, key("n"))],
                reads: Some(reads),
                changes: vec![(7, Changes::of(changes))],
            },
            purpose: Purpose::Commit,
        }
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        let bytes = sample().encode(0);
        let again = Request::decode(&bytes, &FIXED).expect("it was encoded");
        assert_eq!((again.id, again.snapshot, again.bot, again.oldest), (sample().id, 12, 14, 11));
        assert_eq!(again.encode(0), bytes);
        for end in 0..bytes.len() {
            assert!(Request::decode(&bytes[..end], &FIXED).is_err(), "cut at {end}");
        }
        assert!(Request::decode(&[&bytes[..], &[0]].concat(), &FIXED).is_err());
    }

    #[test]
    fn a_snapshot_that_has_moved_is_told_from_where_it_began() {
        for purpose in [Purpose::Commit, Purpose::Voting] {
            let moved = Request { began: 9, purpose, ..sample() };
            let bytes = moved.encode(0);
            let again = Request::decode(&bytes, &FIXED).expect("it was encoded");
            assert_eq!((again.snapshot, again.began, again.bot), (12, 9, 14));
            assert_eq!(again.encode(0), bytes);
            for end in 0..bytes.len() {
                assert!(Request::decode(&bytes[..end], &FIXED).is_err(), "cut at {end}");
            }
        }
        // Such a one is never written, so that what was read is written again as it was.
        let mut bytes = Request { began: 9, ..sample() }.encode(0);
        let at = bytes.windows(3).position(|window| window == [12, 9, 14]).expect("it is there") + 1;
        bytes[at] = 12;
        assert!(Request::decode(&bytes, &FIXED).is_err(), "it has not moved");
        let [plain, moved] = [12, 9].map(|began| Request { began, ..sample() }.encode(0));
        assert_eq!((plain[0], moved[0]), (COMMIT, MOVED_COMMIT), "others have none to tell");
    }

    #[test]
    fn every_purpose_is_decoded() {
        let (xid, instance) = (Xid::new("c/1").unwrap(), Instance::new(3).unwrap());
        let preparing = |owner: Owner, texts| Preparing {
            prepared_us: 1_700_000_000_000_000,
            owner,
            texts,
            note: Value::from_static(b"note"),
        };
        let on = |operation| OnFamily { xid: xid.clone(), operation, ended: vec![instance] };
        let mut all = vec![
            Purpose::Prepare(Box::new(preparing(Owner::Global("order 5".into()), Default::default()))),
            Purpose::Prepare(Box::new(preparing(
                Owner::Instance(xid.clone(), instance),
                ("request".into(), "result".into()),
            ))),
        ];
        all.extend([false, true].map(|commits| Purpose::Decide { identifier: "order 5".into(), commits }));
        all.extend(
            [
                Operation::Commit(instance),
                Operation::Rollback(instance),
                Operation::Refuse(instance),
                Operation::Show,
                Operation::Forget,
            ]
            .map(|operation| Purpose::OnFamily(Box::new(on(operation)))),
        );
        all.extend([false, true].map(|commits| Purpose::Vote { of: 3 << 52 | 9, commits }));
        all.extend([Purpose::Voting, Purpose::Execute(Box::from(*b"UPDATE"))]);
        all.push(Purpose::Void { name: "order 7".into() });
        let bytes = Value::from_static(b"part");
        let part = Part { of: 3 << 52 | 9, number: 300, all: 70_000, bytes };
        let whole = Whole { parts: 301, bytes: 70_000, made: vec![1003, 1019] };
        all.extend([Purpose::Part(Box::new(part)), Purpose::Whole(Box::new(whole))]);
        let names = [None, Some(Box::from("order 7"))];
        all.extend(names.map(|name| Purpose::GiveUp { of: 3 << 52 | 9, name }));
        for purpose in all {
            let request = Request { purpose, ..sample() };
            let bytes = request.encode(0);
            let again = Request::decode(&bytes, &FIXED).expect("it was encoded");
            assert_eq!(format!("{:?}", again.purpose), format!("{:?}", request.purpose));
            assert_eq!(again.encode(0), bytes);
            for end in 0..bytes.len() {
                assert!(Request::decode(&bytes[..end], &FIXED).is_err(), "cut at {end}");
            }
        }
    }

    #[test]
    fn writes_count_as_locks() {
        let locks = sample().all_locks();
        let of = |text: &str| {
            let key = SmallKey::new(text.as_bytes());
            locks
                .iter()
                .find(|(lock, _)| lock.key.as_ref() == Some(&key))
                .map(|(lock, writes)| (lock.modes, *writes))
        };
        assert_eq!(of("k"), Some((4, true)), "locked, and changed under that lock");
        assert_eq!(of("m"), Some((8, true)), "changed without a lock");
        assert_eq!(locks.len(), 3);
    }

    #[test]
    fn what_it_has_made_has_no_locks_and_is_written_all_the_same() {
        let whole = Whole { parts: 2, bytes: 70_000, made: vec![7] };
        let mut request = Request { whole: Some(Box::new(whole)), ..sample() };
        request.parts.locks.clear();
        assert!(request.all_locks().is_empty());
        assert!(request.writes());
    }
}
