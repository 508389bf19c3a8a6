//! Recovery: the log's commits after the base store's watermark, installed in memory.
//!
//! No snapshot exists yet, so each key keeps its last version only. If the log holds more than
//! memory may, what was replayed so far moves into the base before the replay goes on, up to a
//! record that is certainly on the medium.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::damage::Places;
use crate::hash::Seed;
use crate::key::SmallKey;
use crate::memory::Memory;
use crate::options::Options;
use crate::own::{ENGINE_TREE, NUMBERS_KEY, PREPARED_TREE, SavedNumbers, prepared_key};
use crate::payload::{self, Piece};
use crate::prepared::record::Record;
use crate::rows::{Entry, Rows};
use crate::storage::images::FOLDER as IMAGES;
use crate::storage::record::RECORD_HEADER;
use crate::storage::{Base, Log, LogOptions};
use crate::{Csn, Error, Key, TransactionId, TreeId, Value};

/// The first tree id that is handed out.
const FIRST_USER_TREE: u64 = 1000;
/// Progress is reported after this many bytes of log.
const REPORT_BYTES: u64 = 64 << 20;
/// Keys copied at once.
const SLICE: usize = 256;

/// What an opening has read again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Commits replayed.
    pub commits: u64,
    /// Bytes of their records in the log.
    pub bytes: u64,
}

/// Opens the log and brings `memory` and `base` up to its end. The answer has the marks from which
/// numbers go on, and what was replayed. `seed`: of the database.
///
/// # Errors
/// `Corrupt` naming file and offset, `Io`.
pub(crate) fn recover(
    options: &Options,
    seed: &Seed,
    memory: &Memory,
    base: &Base,
    memory_limit: u64,
) -> Result<(Log, SavedNumbers, Recovered), Error> {
    check_kind(options)?;
    let saved = saved_numbers(base)?;
    if let Some(node) = &options.node {
        // What came after the watermark is delivered again by the order.
        let (folder, first) = (options.path.join("log"), node.first_id());
        let log = Log::following(Arc::clone(&options.disk), &folder, base.watermark());
        discard_unattached(base, &[])?;
        let numbers = SavedNumbers { transaction: first, next_tree: saved.next_tree };
        return Ok((log, numbers, Recovered::default()));
    }
    let mut replay = Replay::new(memory, base, seed, saved);
    let clock = Arc::clone(&options.clock);
    let log_options = LogOptions { clock, begun: base.has_log(), ..LogOptions::default() };
    let (folder, began) = (options.path.join("log"), options.clock.monotonic());
    let (mut reported, mut limit) = (0, memory_limit);
    let log = Log::recover(
        Arc::clone(&options.disk),
        &folder,
        base.watermark(),
        log_options,
        &mut |csn, settled, payload| {
            if memory.bytes() > limit && settled + 1 == csn && settled > base.watermark() {
                limit = make_room(memory, base, settled, replay.numbers(), memory_limit)?;
            }
            replay.record(csn, payload)?;
            if !replay.loads.is_empty() {
                base.attach(&replay.loads, csn)?;
            }
            if replay.bytes >= reported + REPORT_BYTES {
                reported = replay.bytes;
                tracing::info!(commits = replay.records, megabytes = reported >> 20, "recovery goes on");
            }
            Ok(())
        },
    )?;
    // What no commit in the log attached never will be, unless it is a prepared transaction's.
    let places = Places { memory, log: &log, base: &base.view(), folder: &options.path };
    let loads = prepared_loads(memory, base, seed).map_err(|error| places.name(error))?;
    discard_unattached(base, &loads)?;
    unless_full(base, base.note_log(), "the manifest does not say yet that there is a log")?;
    let seconds = options.clock.monotonic().saturating_sub(began).as_secs_f64();
    if replay.records > 0 {
        tracing::info!(commits = replay.records, bytes = replay.bytes, seconds, "recovery is complete");
    }
    let recovered = Recovered { commits: replay.records, bytes: replay.bytes };
    Ok((log, replay.numbers(), recovered))
}

/// A node's data and a single database's are not opened as each other: what the one has in its log,
/// the other would not know.
fn check_kind(options: &Options) -> Result<(), Error> {
    let (disk, folder) = (&options.disk, &options.path);
    let fail = |cause| Error::io("listing", folder, cause);
    let refused = |what: &str| Error::InvalidArgument(format!("{}: {what}", folder.display()));
    let log = folder.join("log");
    let has_log = disk.exists(&log).map_err(fail)? && !disk.list(&log).map_err(fail)?.is_empty();
    if options.node.is_none() {
        // One that was to become a node's and has its log yet is still a database of its own.
        return match !has_log && disk.exists(&folder.join(IMAGES)).map_err(fail)? {
            true => Err(refused("the folder of a node of a cluster, which opens as such only")),
            false => Ok(()),
        };
    }
    match has_log {
        true => Err(refused("the folder of a single database; `cognate node init` makes a node of it")),
        false => Ok(()),
    }
}

/// The allocators' marks as the last checkpoint left them.
fn saved_numbers(base: &Base) -> Result<SavedNumbers, Error> {
    let Some(stored) = base.get(ENGINE_TREE, NUMBERS_KEY)? else {
        return Ok(SavedNumbers { transaction: 1, next_tree: FIRST_USER_TREE });
    };
    SavedNumbers::decode(&stored).ok_or_else(|| {
        let place = base.view().place_of(ENGINE_TREE, NUMBERS_KEY, Csn::MAX).ok().flatten();
        let (file, offset) = place.unwrap_or_default();
        Error::corrupt(&file, offset, format!("the allocators' marks have {} bytes", stored.len()))
    })
}

/// Numbers of the staged runs that prepared transactions would attach.
fn prepared_loads(memory: &Memory, base: &Base, seed: &Seed) -> Result<Vec<u64>, Error> {
    let mut loads = Vec::new();
    each_prepared(memory, base, seed, &mut |record| {
        loads.extend(record.loads);
        Ok(())
    })?;
    Ok(loads)
}

/// Hands over what the rows of prepared transactions say, as they are at the end of the log, by
/// transaction id. `seed`: of the database.
///
/// # Errors
/// From the base store, `Undecodable` if a row is not of this version, and those of `take`.
pub(crate) fn each_prepared(
    memory: &Memory,
    base: &Base,
    seed: &Seed,
    take: &mut dyn FnMut(Record) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut rows: BTreeMap<SmallKey, Option<Value>> = BTreeMap::new();
    let mut stored = base.scan(PREPARED_TREE, Bound::Unbounded, Bound::Unbounded, false)?;
    while let Some((key, value)) = stored.next()? {
        rows.insert(SmallKey::new(&key), Some(value));
    }
    rows.extend(
        Slices { memory, tree: PREPARED_TREE, after: None, done: false }
            .flatten()
            .map(|(key, value)| (SmallKey::new(&key), value)),
    );
    for (key, value) in rows {
        // The longer keys are marks.
        if let Some(value) = value.filter(|_| key.len() == size_of::<TransactionId>()) {
            take(decode(&key, &value, seed)?)?;
        }
    }
    Ok(())
}

fn decode(key: &[u8], row: &[u8], seed: &Seed) -> Result<Record, Error> {
    Record::decode(row, seed).map_err(|what| {
        Error::undecodable_row(PREPARED_TREE, key, format!("the row of a prepared transaction: {what}"))
    })
}

/// Removes the staged runs that nobody will attach: all but those of these numbers. A disk that has
/// no room for the manifest that leaves them out keeps nobody from reading. It is written later.
fn discard_unattached(base: &Base, kept: &[u64]) -> Result<(), Error> {
    let still = "what nobody has committed is still named by the manifest";
    unless_full(base, base.discard_unattached(kept), still)
}

/// The result of writing a manifest that nothing depends on yet: a full disk is only warned of.
fn unless_full(base: &Base, changed: Result<(), Error>, what: &str) -> Result<(), Error> {
    match changed {
        Err(error @ Error::DiskFull { .. }) if base.doubt().is_none() => {
            tracing::warn!(%error, "{what}");
            Ok(())
        }
        changed => changed,
    }
}

/// Moves what was replayed into the base, for memory is full. The answer is how much it may hold
/// before it is full again: more than `limit` on a full disk. The process before had as much in
/// memory when it could not move it either, and what is acknowledged is to be read all the same.
fn make_room(
    memory: &Memory,
    base: &Base,
    settled: Csn,
    numbers: SavedNumbers,
    limit: u64,
) -> Result<u64, Error> {
    tracing::info!(commit = settled, "recovery: memory is full, moving what was replayed to the base");
    match drain(memory, base, settled, numbers) {
        Ok(()) => Ok(limit),
        Err(error @ Error::DiskFull { .. }) if memory.bytes() < 2 * limit && base.doubt().is_none() => {
            tracing::warn!(%error, "recovery goes on in memory");
            Ok(memory.bytes() + limit / 8)
        }
        Err(error) => Err(error),
    }
}

/// Moves everything from memory into the base.
fn drain(memory: &Memory, base: &Base, watermark: Csn, numbers: SavedNumbers) -> Result<(), Error> {
    let dropped: Vec<TreeId> = memory.dropped(watermark).into_iter().map(|(tree, _)| tree).collect();
    let trees = memory.ids().into_iter().filter(|tree| dropped.binary_search(tree).is_err());
    let rows = trees.flat_map(|tree| {
        Slices { memory, tree, after: None, done: false }
            .flatten()
            .map(move |(key, value)| (tree, key, value))
    });
    let numbers = (ENGINE_TREE, Key::from_static(NUMBERS_KEY), Some(numbers.encode()));
    base.apply(watermark, &mut rows.chain([numbers]), &dropped)?;
    memory.forget(&memory.ids());
    Ok(())
}

/// The rows of one tree in slices.
struct Slices<'a> {
    memory: &'a Memory,
    tree: TreeId,
    after: Option<SmallKey>,
    done: bool,
}

impl Iterator for Slices<'_> {
    type Item = Vec<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let mut slice = Rows::default();
        let tree = self.memory.tree(self.tree)?;
        self.after = tree.changes(self.after.as_ref(), Csn::MAX, 0, SLICE, &mut slice);
        self.done = self.after.is_none();
        Some(slice.into_entries().collect())
    }
}

fn prepared_row(memory: &Memory, base: &Base, seed: &Seed, id: TransactionId) -> Result<Record, Error> {
    let key = prepared_key(id);
    let row = match memory.with_tree(PREPARED_TREE, |tree| tree.newest(&key)) {
        Some(version) => version.value,
        None => base.get(PREPARED_TREE, &key)?,
    };
    let missing = || Error::undecodable(format!("transaction {id} commits, and was not prepared"));
    decode(&key, &row.ok_or_else(missing)?, seed)
}

/// Receives the records of the log in order.
struct Replay<'a> {
    memory: &'a Memory,
    base: &'a Base,
    seed: &'a Seed,
    /// Changes of one tree, collected to be installed under one lock.
    changes: Vec<(SmallKey, Option<Value>)>,
    /// Loads that the last record attaches.
    loads: Vec<u64>,
    /// Greatest transaction id seen.
    transaction: u64,
    /// All tree ids below may be in use.
    next_tree: u64,
    records: u64,
    bytes: u64,
}

impl<'a> Replay<'a> {
    fn new(memory: &'a Memory, base: &'a Base, seed: &'a Seed, saved: SavedNumbers) -> Replay<'a> {
        let (changes, loads) = Default::default();
        let SavedNumbers { transaction, next_tree } = saved;
        let transaction = transaction - 1;
        Replay { memory, base, seed, changes, loads, transaction, next_tree, records: 0, bytes: 0 }
    }

    fn numbers(&self) -> SavedNumbers {
        SavedNumbers { transaction: self.transaction + 1, next_tree: self.next_tree }
    }

    /// Installs one commit.
    ///
    /// # Errors
    /// `Undecodable` if the payload is not a commit of this version.
    fn record(&mut self, csn: Csn, payload: &[u8]) -> Result<(), Error> {
        let mut tree: Option<TreeId> = None;
        let (memory, base, seed) = (self.memory, self.base, self.seed);
        let (changes, loads) = (&mut self.changes, &mut self.loads);
        loads.clear();
        let mut prepared = Ok(None);
        let (mut transaction, mut next_tree) = (self.transaction, self.next_tree);
        payload::decode(payload, |piece| match piece {
            Piece::Commit { id, next_tree: next } => {
                transaction = transaction.max(id);
                next_tree = next_tree.max(next);
            }
            // Now, before the record deletes the row.
            Piece::Prepared(id) => prepared = prepared_row(memory, base, seed, id).map(Some),
            Piece::Load(number) => loads.push(number),
            Piece::Dropped(tree) => memory.drop_tree(tree, csn),
            Piece::Tree(next) => {
                if let Some(tree) = tree.replace(next) {
                    memory.replay(tree, csn, changes.drain(..));
                }
            }
            Piece::Entry(key, value) => changes.push(payload::owned(key, value)),
        })
        .map_err(|what| Error::undecodable(format!("the record of commit {csn}: {what}")))?;
        if let Some(tree) = tree {
            memory.replay(tree, csn, changes.drain(..));
        }
        if let Some(record) = prepared? {
            loads.extend(record.loads);
            for (tree, changes) in record.changes {
                memory.replay(tree, csn, changes.into_iter());
            }
            record.dropped.into_iter().for_each(|tree| memory.drop_tree(tree, csn));
        }
        (self.transaction, self.next_tree) = (transaction, next_tree);
        self.records += 1;
        self.bytes += (RECORD_HEADER + payload.len()) as u64;
        Ok(())
    }
}
