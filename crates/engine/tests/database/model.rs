//! Random histories against a reference: every commit keeps a copy of the whole database.
//!
//! Several transactions of all levels are open at once and interleave with checkpoints, merges and
//! restarts. Reads, scans (also cursors that stay open while everything else goes on) and conflict
//! checks must answer as the reference does. Some transactions make trees of their own, and spill
//! what they write there.

use std::collections::BTreeMap;
use std::ops::Bound;

use cognate_engine::{
    Access, Database, Error, Isolation, Key, Options, Refresh, Savepoint, Scan, Transaction, Value,
};
use cognate_env::SplitMix;
use cognate_env::sim::SimDisk;

use super::support::{Seed, seeds};

type FullKey = (u32, Vec<u8>);
type State = BTreeMap<FullKey, Vec<u8>>;
type Own = BTreeMap<FullKey, Option<Vec<u8>>>;
type Rows = std::vec::IntoIter<(Vec<u8>, Vec<u8>)>;
type Range = (u32, Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The reference: `history[n]` is the database after commit `n`.
struct Reference {
    history: Vec<State>,
    /// Keys written by each commit.
    written: Vec<Vec<FullKey>>,
    /// Trees that everybody knows.
    trees: Vec<u32>,
}

struct Open {
    transaction: Transaction,
    snapshot: usize,
    own: Own,
    /// Trees that it made.
    created: Vec<u32>,
    savepoints: Vec<(Savepoint, Own)>,
    /// Open cursors with the rows that they still owe.
    cursors: Vec<(Scan, Rows)>,
    /// What it has read of others; of some cursors that is not known.
    reads: Vec<Range>,
    unsure: bool,
}

impl Open {
    /// Some tree, with a key in it.
    fn any(&self, random: &mut SplitMix, reference: &Reference) -> FullKey {
        let trees =
            if self.created.is_empty() || random.one_in(2) { &reference.trees } else { &self.created };
        (trees[random.below(trees.len() as u64) as usize], key(random))
    }

    /// Notes a key that was read, if it was not an own one.
    fn has_read(&mut self, tree: u32, key: &[u8]) {
        if !self.own.contains_key(&(tree, key.to_vec())) {
            let point = Bound::Included(key.to_vec());
            self.reads.push((tree, point.clone(), point));
        }
    }

    fn visible(&self, reference: &Reference) -> State {
        let mut state = reference.history[self.snapshot].clone();
        for (key, value) in &self.own {
            match value {
                Some(value) => state.insert(key.clone(), value.clone()),
                None => state.remove(key),
            };
        }
        state
    }
}

fn key(random: &mut SplitMix) -> Vec<u8> {
    // Few keys of different lengths, some a prefix of others.
    let mut key = vec![b'a' + random.below(6) as u8; 1 + random.below(3) as usize];
    if random.one_in(3) {
        key.push(random.below(3) as u8);
    }
    key
}

fn bound(random: &mut SplitMix) -> Bound<Vec<u8>> {
    match random.below(4) {
        0 => Bound::Included(key(random)),
        1 => Bound::Excluded(key(random)),
        _ => Bound::Unbounded,
    }
}

fn inside(key: &[u8], lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> bool {
    let above = match lower {
        Bound::Included(b) => key >= &b[..],
        Bound::Excluded(b) => key > &b[..],
        Bound::Unbounded => true,
    };
    above
        && match upper {
            Bound::Included(b) => key <= &b[..],
            Bound::Excluded(b) => key < &b[..],
            Bound::Unbounded => true,
        }
}

fn options(disk: &SimDisk) -> Options {
    let mut options = Options::new("data");
    options.disk = disk.handle();
    // A few writes.
    options.spill_bytes = 1000;
    options
}

struct Run {
    random: SplitMix,
    reference: Reference,
    open: Vec<Open>,
    database: Option<Database>,
    disk: SimDisk,
}

impl Run {
    fn new(seed: u64) -> Run {
        let disk = SimDisk::new(seed);
        let database = Some(Database::open(options(&disk)).unwrap());
        let reference =
            Reference { history: vec![State::new()], written: vec![Vec::new()], trees: vec![1, 2] };
        Run { random: SplitMix::new(seed), reference, open: Vec::new(), database, disk }
    }

    fn database(&self) -> &Database {
        self.database.as_ref().unwrap()
    }

    fn step(&mut self) {
        match self.random.below(42) {
            0..=3 => self.begin(),
            4..=14 => self.with(Self::write),
            15..=20 => self.with(Self::read),
            21..=24 => self.with(Self::scan),
            25..=28 => self.with(Self::advance_cursor),
            29..=31 => self.with(Self::savepoints),
            32..=35 => self.end(),
            36 | 37 => self.checkpoint(),
            38 => self.with(|_, _, open| {
                if open.transaction.isolation() == Isolation::ReadCommitted {
                    open.transaction.refresh_snapshot();
                    open.snapshot = open.transaction.snapshot() as usize;
                }
            }),
            39 | 40 => self.with(Self::refresh),
            _ => {
                if self.random.one_in(8) {
                    self.reopen();
                }
            }
        }
    }

    fn begin(&mut self) {
        if self.open.len() == 6 {
            return;
        }
        let level = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];
        let level = level[self.random.below(3) as usize];
        let access = if self.random.one_in(5) { Access::ReadOnly } else { Access::ReadWrite };
        let transaction = self.database().begin(level, access);
        let snapshot = transaction.snapshot() as usize;
        if access == Access::ReadWrite {
            assert_eq!(snapshot, self.reference.history.len() - 1);
        }
        let (own, created, savepoints, cursors, reads, unsure) = Default::default();
        self.open.push(Open { transaction, snapshot, own, created, savepoints, cursors, reads, unsure });
    }

    fn with(&mut self, f: impl FnOnce(&mut SplitMix, &Reference, &mut Open)) {
        if !self.open.is_empty() {
            let at = self.random.below(self.open.len() as u64) as usize;
            f(&mut self.random, &self.reference, &mut self.open[at]);
        }
    }

    fn write(random: &mut SplitMix, reference: &Reference, open: &mut Open) {
        if open.transaction.access() == Access::ReadWrite && random.one_in(6) {
            open.created.push(open.transaction.create_tree());
        }
        let most = if open.created.is_empty() { 4 } else { 30 };
        for _ in 0..=random.below(most) {
            let (tree, key) = open.any(random, reference);
            let value = (!random.one_in(3)).then(|| vec![random.below(256) as u8; random.below(20) as usize]);
            let result = match &value {
                Some(value) => open.transaction.put(tree, &key, Value::copy_from_slice(value)),
                None => open.transaction.delete(tree, &key),
            };
            match open.transaction.access() {
                Access::ReadWrite => {
                    result.unwrap();
                    open.own.insert((tree, key), value);
                }
                Access::ReadOnly => assert!(matches!(result, Err(Error::ReadOnly))),
            }
        }
    }

    fn read(random: &mut SplitMix, reference: &Reference, open: &mut Open) {
        let (tree, key) = open.any(random, reference);
        let full = (tree, key.clone());
        let got = open.transaction.get(tree, &key).unwrap();
        open.has_read(tree, &key);
        assert_eq!(got.as_deref(), open.visible(reference).get(&full).map(|v| &v[..]));
        let own = open.transaction.own(tree, &key).unwrap();
        let (own, want) = (own.map(|v| v.map(|v| v.to_vec())), open.own.get(&full).cloned());
        // In trees of its own, what was deleted may be as if it had never been.
        assert!(own == want || open.created.contains(&tree) && (own, want) == (None, Some(None)));
        let newest = reference.history.len() - 1;
        let latest = open.transaction.get_latest(tree, &key).unwrap();
        assert_eq!(latest.value.as_deref(), reference.history[newest].get(&full).map(|v| &v[..]));
        let changed = (open.snapshot + 1..=newest).any(|csn| reference.written[csn].contains(&full));
        let differs = reference.history[newest].get(&full) != reference.history[open.snapshot].get(&full);
        let found = open.transaction.changed(tree, &key).unwrap();
        if differs || !changed {
            assert_eq!(found.is_some(), differs);
        }
        if let Some(found) = found {
            assert_eq!(found.value, latest.value);
            assert!(changed && found.csn as usize > open.snapshot);
        }
        let verdict = open.transaction.check_unchanged(tree, &key);
        if open.transaction.isolation() == Isolation::ReadCommitted || !changed {
            verdict.unwrap();
        } else if differs {
            assert!(matches!(verdict, Err(Error::SerializationFailure { .. })));
        }
    }

    fn scan(random: &mut SplitMix, reference: &Reference, open: &mut Open) {
        let tree = open.any(random, reference).0;
        let (lower, upper, reverse) = (bound(random), bound(random), random.one_in(2));
        let slice = |b: &Bound<Vec<u8>>| b.clone();
        let (l, u) = (slice(&lower), slice(&upper));
        let refs = (l.as_ref().map(|b| &b[..]), u.as_ref().map(|b| &b[..]));
        let scan = open.transaction.scan(tree, refs.0, refs.1, reverse).unwrap();
        open.reads.push((tree, lower.clone(), upper.clone()));
        let state = open.visible(reference);
        let rows = state.into_iter().filter(|((t, k), _)| *t == tree && inside(k, &lower, &upper));
        let mut rows: Vec<_> = rows.map(|((_, k), v)| (k, v)).collect();
        if reverse {
            rows.reverse();
        }
        open.cursors.push((scan, rows.into_iter()));
        if random.one_in(2) {
            let at = open.cursors.len() - 1;
            Self::drain(open, at, usize::MAX);
        }
    }

    /// A statement writes and reads something, and then its snapshot is to move.
    fn refresh(random: &mut SplitMix, reference: &Reference, open: &mut Open) {
        if open.transaction.isolation() != Isolation::Serializable {
            return;
        }
        let mark = open.transaction.mark_statement();
        let (tree, key) = open.any(random, reference);
        drop(open.transaction.get(tree, &key).unwrap());
        let writes = open.transaction.access() == Access::ReadWrite;
        if writes {
            open.transaction.put(tree, &key, Value::from_static(b"perhaps")).unwrap();
        }
        let newest = reference.history.len() - 1;
        let written = |from: usize, (tree, lower, upper): &Range| {
            let written = (from + 1..=newest).flat_map(|csn| &reference.written[csn]);
            // Trees that somebody made may have been loaded as a whole.
            let is_loaded = *tree > 2;
            written.filter(|(t, key)| t == tree && (is_loaded || inside(key, lower, upper))).count() > 0
        };
        let refresh = open.transaction.refresh(&mark).unwrap();
        let to = open.transaction.snapshot() as usize;
        match refresh {
            Refresh::Moved => {
                assert!(open.cursors.is_empty() && to > open.snapshot && to <= newest);
                let state = |csn: usize, (tree, lower, upper): &Range| -> Vec<_> {
                    let rows = reference.history[csn].iter();
                    rows.filter(|((t, key), _)| t == tree && inside(key, lower, upper)).collect()
                };
                for range in open.reads.iter().filter(|_| !open.unsure) {
                    assert_eq!(state(open.snapshot, range), state(to, range), "{range:?}");
                }
                open.snapshot = to;
            }
            Refresh::Stale(ref stale) => {
                let some = open.reads.iter().any(|range| written(to, range));
                assert!(some || open.unsure || stale.is_summarized, "{stale:?}");
            }
            Refresh::Held => assert!(!open.cursors.is_empty()),
            Refresh::Refused => unreachable!("nobody disagrees"),
            Refresh::Kept => {
                assert!(to == newest || !writes, "{to} of {newest}");
            }
        }
        if !matches!(refresh, Refresh::Moved) {
            assert_eq!(to, open.snapshot);
            open.has_read(tree, &key);
            if writes {
                open.own.insert((tree, key), Some(b"perhaps".to_vec()));
            }
        }
        open.transaction.keep_statement(mark);
    }

    fn drain(open: &mut Open, at: usize, rows: usize) {
        let (scan, owed) = &mut open.cursors[at];
        for _ in 0..rows {
            let got = scan.next().unwrap();
            let want = owed.next().map(|(k, v)| (Key::from(k), Value::from(v)));
            assert_eq!(got, want);
            if want.is_none() {
                open.cursors.swap_remove(at);
                return;
            }
        }
    }

    fn advance_cursor(random: &mut SplitMix, _: &Reference, open: &mut Open) {
        if !open.cursors.is_empty() {
            let at = random.below(open.cursors.len() as u64) as usize;
            Self::drain(open, at, 1 + random.below(4) as usize);
        }
    }

    fn savepoints(random: &mut SplitMix, _: &Reference, open: &mut Open) {
        match random.below(3) {
            0 => open.savepoints.push((open.transaction.savepoint(), open.own.clone())),
            1 if !open.savepoints.is_empty() => {
                open.savepoints.truncate(1 + random.below(open.savepoints.len() as u64) as usize);
                let (point, own) = open.savepoints.last().unwrap();
                open.transaction.rollback_to(*point);
                open.own = own.clone();
                // Cursors may have been opened after the savepoint; such cursors end with it.
                open.unsure |= !open.cursors.is_empty();
                open.cursors.clear();
            }
            _ if !open.savepoints.is_empty() => {
                let at = random.below(open.savepoints.len() as u64) as usize;
                open.transaction.release(open.savepoints[at].0);
                open.savepoints.truncate(at);
            }
            _ => {}
        }
    }

    fn end(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.random.below(self.open.len() as u64) as usize;
        let open = self.open.swap_remove(at);
        if self.random.one_in(4) {
            open.transaction.rollback();
            return;
        }
        let (isolation, rests_on) = (open.transaction.isolation(), open.transaction.rests_on());
        let commit = match open.transaction.commit() {
            // Whether it had to is tested where the certifier is.
            Err(Error::DependencyCycle { .. }) if isolation == Isolation::Serializable => return,
            result => result.unwrap(),
        };
        let nothing =
            |((tree, _), value): (&FullKey, &Option<Vec<u8>>)| value.is_none() && open.created.contains(tree);
        let is_new = commit.csn as usize == self.reference.history.len();
        if open.own.is_empty() || !is_new && open.own.iter().all(nothing) {
            assert_eq!(commit.csn, rests_on, "the last commit that it looked at");
            return;
        }
        self.reference.trees.extend(open.created);
        assert_eq!(commit.csn as usize, self.reference.history.len());
        let mut state = self.reference.history.last().unwrap().clone();
        for (key, value) in &open.own {
            match value {
                Some(value) => state.insert(key.clone(), value.clone()),
                None => state.remove(key),
            };
        }
        self.reference.history.push(state);
        self.reference.written.push(open.own.into_keys().collect());
        if self.random.one_in(2) {
            commit.durable.wait().unwrap();
        }
        // A cursor may outlive its transaction.
        for (mut scan, owed) in open.cursors {
            let rest: Vec<_> = std::iter::from_fn(|| scan.next().unwrap()).collect();
            let owed: Vec<_> = owed.map(|(k, v)| (Key::from(k), Value::from(v))).collect();
            assert_eq!(rest, owed);
        }
    }

    fn checkpoint(&mut self) {
        let visible = self.database().visible();
        self.database().wait_durable(visible).wait().unwrap();
        self.database().checkpoint().unwrap();
    }

    fn reopen(&mut self) {
        self.open.clear();
        let visible = self.database().visible();
        let database = self.database.take().unwrap();
        match self.random.below(2) {
            0 => database.close().unwrap(),
            _ => database.wait_durable(visible).wait().unwrap(),
        }
        drop(database);
        let database = Database::open(options(&self.disk)).unwrap();
        assert_eq!((database.visible(), database.durable()), (visible, visible));
        self.database = Some(database);
    }
}

#[test]
fn random_histories_agree_with_the_reference() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut run = Run::new(seed);
        for _ in 0..600 {
            run.step();
        }
        // Nothing is left behind of what was spilled.
        run.open.clear();
        run.checkpoint();
        let runs = run.database().statistics().base;
        run.database = None;
        let is_run = |path: &std::path::Path| path.extension().is_some_and(|extension| extension == "run");
        let files = run.disk.files().into_iter().filter(|(path, _)| is_run(path)).count();
        assert!(files as u64 <= runs.runs && runs.attached == 0, "{files} files, {runs:?}");
    }
}
