//! The row of a prepared transaction: all that a restart needs to have it as it was.
//!
//! Integers are varints (seven bits a byte, lowest first; the top bit says that more follow); a
//! string is its length and its bytes.
//!
//! ```text
//! version: 1 byte          4
//! transaction id, snapshot, wall clock of PREPARE in microseconds
//! owner                    1, identifier  |  2, XID, instance, the family's request, the instance's result
//! note                     string
//! loads                    count, numbers of staged runs, oldest first
//! dropped trees            count, ids
//! locks                    count, for each: tree id, key length + 1 (0 = the whole tree), key, modes: 1 byte
//!   modes of a row         1 = KS, 2 = S, 4 = NX, 8 = X, 16 to 128 = SKS, SS, SNX, SX; of a tree, from 1: the eight modes of LOCK TABLE, weakest first
//! other keys               count, for each: tree id, key: what it wrote for the certifier only
//! certified: 1 byte        0 = no reads follow, 1 = exact reads, 2 = joined reads
//!   keys                   count, for each: tree id, moment: 1 byte (0 = snapshot, 1 = latest), key, columns
//!   ranges                 count, for each: tree id, moment, two bounds: 1 byte (0 = none, 1 = included, 2 = excluded), key unless 0;
//!                          columns, count of conditions, for each: column, comparison: 1 byte, code
//! trees                    count, for each: tree id, count, and keys and values as in a commit record
//! ```
//!
//! *Columns* are a number whose bit 0 stands for the row as such, and bit n for its column n - 1
//! (bit 63 for all others); all ones are everything. Comparisons are 0 to 7: <, <=, =, <>, >=, >,
//! IS NULL, IS NOT NULL; a code is 64 bits (`txn::columns`). What the writes changed of their rows
//! is not kept: after a restart they have changed all of it.
//!
//! Version 3 had no columns and no conditions: everything was read. Version 2 had two modes of rows
//! and four of trees, and named the keys that foreign keys refer to instead of rows; it is not read
//! any more.

use crate::hash::Seed;
use crate::key::SmallKey;
use crate::lock::table::HeldLock;
use crate::payload::{Encoder, Input};
use crate::sibling::{Instance, Text, Xid};
use crate::txn::codec::{decode_reads, encode_reads};
use crate::txn::readset::ReadSet;
use crate::txn::writeset::Changes;
use crate::{Csn, TransactionId, TreeId, Value};

pub(crate) const VERSION: u8 = 4;
/// What was read has neither columns nor conditions.
const WHOLE_READS: u8 = 3;
const GLOBAL: u8 = 1;
const INSTANCE: u8 = 2;

/// By what a prepared transaction is found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// The identifier of PREPARE TRANSACTION.
    Global(Box<str>),
    /// The instance of PREPARE MIP.
    Instance(Xid, Instance),
}

/// A row's content.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) id: TransactionId,
    pub(crate) snapshot: Csn,
    pub(crate) prepared_us: i64,
    pub(crate) owner: Owner,
    /// The family's request and the result, of an instance; empty otherwise.
    pub(crate) texts: (Text, Text),
    pub(crate) note: Value,
    pub(crate) loads: Vec<u64>,
    pub(crate) dropped: Vec<TreeId>,
    pub(crate) locks: Vec<HeldLock>,
    pub(crate) notes: Vec<(TreeId, SmallKey)>,
    pub(crate) reads: Option<ReadSet>,
    pub(crate) changes: Vec<(TreeId, Changes)>,
}

impl Record {
    pub(crate) fn encode(&self, size: u64) -> Value {
        let mut out = Encoder::with_capacity(256 + size);
        out.byte(VERSION);
        out.varint(self.id);
        out.varint(self.snapshot);
        out.varint(self.prepared_us.max(0).unsigned_abs());
        encode_owner(&mut out, &self.owner, &self.texts);
        out.string(&self.note);
        out.list(&self.loads, |out, number| out.varint(*number));
        out.list(&self.dropped, |out, tree| out.varint(u64::from(*tree)));
        encode_parts(&mut out, &self.locks, &self.notes, self.reads.as_ref(), &self.changes);
        // Exactly as long as it is: the row stays in memory until a checkpoint, and `size` is a
        // bound.
        Value::copy_from_slice(&out.finish())
    }

    /// Reads a row, with reads for a database that has this seed.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn decode(bytes: &[u8], seed: &Seed) -> Result<Record, String> {
        let mut input = Input::of(bytes);
        let version = input.byte()?;
        if !matches!(version, WHOLE_READS | VERSION) {
            return Err(format!("a prepared transaction in the unknown version {version}"));
        }
        let (id, snapshot, prepared_us) = (input.varint()?, input.varint()?, input.varint()?);
        let (owner, texts) = decode_owner(&mut input)?;
        let note = Value::copy_from_slice(input.string()?);
        let loads = input.list(|input| input.varint())?;
        let dropped = input.list(|input| input.tree())?;
        let Parts { locks, notes, reads, changes } = decode_parts(&mut input, seed, version)?;
        input.end()?;
        let prepared_us = i64::try_from(prepared_us).map_err(|_| "a time out of range")?;
        Ok(Record {
            id,
            snapshot,
            prepared_us,
            owner,
            texts,
            note,
            loads,
            dropped,
            locks,
            notes,
            reads,
            changes,
        })
    }
}

/// What a transaction has locked, read and written, apart from memory.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) locks: Vec<HeldLock>,
    pub(crate) notes: Vec<(TreeId, SmallKey)>,
    pub(crate) reads: Option<ReadSet>,
    pub(crate) changes: Vec<(TreeId, Changes)>,
}

/// Writes them, from `locks` of the table above on.
pub(crate) fn encode_parts(
    out: &mut Encoder,
    locks: &[HeldLock],
    notes: &[(TreeId, SmallKey)],
    reads: Option<&ReadSet>,
    changes: &[(TreeId, Changes)],
) {
    out.list(locks, |out, lock| {
        out.varint(u64::from(lock.tree));
        out.optional(lock.key.as_deref());
        out.byte(lock.modes);
    });
    out.list(notes, |out, (tree, key)| {
        out.varint(u64::from(*tree));
        out.string(key);
    });
    match reads {
        None => out.byte(0),
        Some(reads) => encode_reads(out, reads),
    }
    out.varint(changes.len() as u64);
    for (tree, changes) in changes {
        out.tree(*tree, changes.len());
        for (key, value) in changes.iter() {
            out.entry(key, value);
        }
    }
}

/// Reads what [`encode_parts`] wrote in this version of the row. `seed`: of the database that looks
/// up what was read.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn decode_parts(input: &mut Input<'_>, seed: &Seed, version: u8) -> Result<Parts, String> {
    let locks = input.list(|input| {
        let (tree, key) = (input.tree()?, input.optional()?.map(SmallKey::new));
        Ok(HeldLock { tree, key, modes: input.byte()? })
    })?;
    let notes = input.list(|input| Ok((input.tree()?, SmallKey::new(input.string()?))))?;
    let reads = decode_reads(input, seed, version > WHOLE_READS)?;
    let changes = input.list(|input| {
        let tree = input.tree()?;
        let rows = input.list(|input| {
            let (key, value) = input.entry()?;
            Ok((SmallKey::new(key), value.map(Value::copy_from_slice)))
        })?;
        Ok((tree, Changes::of(rows)))
    })?;
    Ok(Parts { locks, notes, reads, changes })
}

/// Writes an owner, and the texts of one that is an instance.
pub(crate) fn encode_owner(out: &mut Encoder, owner: &Owner, texts: &(Text, Text)) {
    match owner {
        Owner::Global(identifier) => {
            out.byte(GLOBAL);
            out.string(identifier.as_bytes());
        }
        Owner::Instance(xid, instance) => {
            out.byte(INSTANCE);
            out.string(xid.as_str().as_bytes());
            out.varint(instance.get().unsigned_abs());
            out.string(texts.0.as_bytes());
            out.string(texts.1.as_bytes());
        }
    }
}

/// Reads what [`encode_owner`] wrote.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn decode_owner(input: &mut Input<'_>) -> Result<(Owner, (Text, Text)), String> {
    let kind = input.byte()?;
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| "an owner that is not UTF-8".to_owned());
    match kind {
        GLOBAL => Ok((Owner::Global(text(input.string()?)?.into()), Default::default())),
        INSTANCE => {
            let xid = Xid::new(text(input.string()?)?).map_err(|refusal| refusal.to_string())?;
            let number = i64::try_from(input.varint()?).map_err(|_| "an instance out of range")?;
            let instance = Instance::new(number).map_err(|refusal| refusal.to_string())?;
            let texts = (text(input.string()?)?.into(), text(input.string()?)?.into());
            Ok((Owner::Instance(xid, instance), texts))
        }
        _ => Err(format!("an owner of the unknown kind {kind}")),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::hash::FIXED;
    use crate::txn::columns::{Columns, Condition, Interest, Test};
    use crate::txn::readset::Moment;

    fn sample(owner: Owner) -> Record {
        let mut reads = ReadSet::default();
        reads.add_point(&FIXED, 7, b"k", Moment::Snapshot, Columns::PRESENCE.with(3));
        reads.add_point(&FIXED, 7, b"l", Moment::Latest, Columns::ALL);
        reads.add_range(8, Bound::Excluded(b"a"), Bound::Unbounded, Moment::Latest, None);
        let conditions = [
            Condition { column: 2, test: Test::AtMost, code: 1 << 63 },
            Condition { column: 70, test: Test::IsNull, code: 0 },
        ];
        let interest = Arc::new(Interest::new(Columns::NONE.with(9), conditions));
        reads.add_range(8, Bound::Unbounded, Bound::Included(b"b"), Moment::Snapshot, Some(interest));
        let key = |text: &str| SmallKey::new(text.as_bytes());
        let texts = match owner {
            Owner::Global(_) => Default::default(),
            Owner::Instance(..) => ("request".into(), "result".into()),
        };
        Record {
            id: 300,
            snapshot: 12,
            prepared_us: 1_700_000_000_000_000,
            owner,
            texts,
            note: Value::from_static(b"note"),
            loads: vec![4, 5],
            dropped: vec![1009],
            locks: vec![
                HeldLock { tree: 7, key: Some(key("k")), modes: 2 },
                HeldLock { tree: 7, key: None, modes: 3 },
            ],
            notes: vec![(99, key("n"))],
            reads: Some(reads),
            changes: vec![(
                7,
                Changes::of(vec![(key("k"), Some(Value::from_static(b"1"))), (key("m"), None)]),
            )],
        }
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        let instance = Owner::Instance(Xid::new("c/1").expect("an XID"), Instance::new(3).expect("a number"));
        for owner in [Owner::Global("order 5".into()), instance] {
            let record = sample(owner);
            let again = Record::decode(&record.encode(0), &FIXED).expect("it was encoded");
            assert_eq!(format!("{record:?}").replace("18446744073709551615", "1048576"), {
                format!("{again:?}").replace("18446744073709551615", "1048576")
            });
            assert_eq!(record.encode(0), again.encode(0));
        }
    }

    /// What an earlier build has written: its reads were of everything.
    #[test]
    fn the_version_before_is_read() {
        let mut reads = ReadSet::default();
        reads.add_point(&FIXED, 7, b"k", Moment::Snapshot, Columns::ALL);
        let record = Record { reads: Some(reads), ..sample(Owner::Global("x".into())) };
        let written = record.encode(0);
        // Tree, moment and key of the only point, and its columns, which were not there.
        let point = [7, 0, 1, b'k'];
        let columns = [[0xff; 9].as_slice(), &[1]].concat();
        let at =
            written.windows(14).position(|part| part == [&point[..], &columns].concat()).expect("the point");
        let mut before = [&written[..at + 4], &written[at + 14..]].concat();
        before[0] = WHOLE_READS;
        let read = |bytes: &[u8]| format!("{:?}", Record::decode(bytes, &FIXED));
        assert_eq!(read(&before), read(&written));
    }

    #[test]
    fn every_cut_and_every_addition_is_noticed() {
        let whole = sample(Owner::Global("x".into())).encode(0);
        for end in 0..whole.len() {
            assert!(Record::decode(&whole[..end], &FIXED).is_err(), "cut at {end}");
        }
        assert!(Record::decode(&[&whole[..], &[0]].concat(), &FIXED).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn random_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Record::decode(&bytes, &FIXED);
        }
    }
}
