//! A store that a few lines can run: versions with commit numbers, snapshots, and whatever
//! isolation a test wants.
//!
//! It is written for the tests only, and knows exactly what the oracle has to find out.

use std::collections::{BTreeMap, HashMap};

use cognate_harness::checker::history::{
    Abort, Event, Exists, History, Object, Outcome, Predicate, Row, Scan, Stamp, Transaction, Write, stamp,
    standing,
};

/// What a transaction does next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Reads a range of keys.
    Keys(i64, i64),
    /// Reads a range of the second column.
    Groups(i64, i64),
    /// Learns whether a row is there; of one that is, not which version. Whether it is read as it
    /// is.
    There(i64, bool),
    /// Sets a savepoint.
    Save,
    /// Goes back to the savepoint, if there is one.
    TakeBack,
    /// Inserts a row or replaces it, with this second column.
    Put(i64, i64),
    /// Deletes a row.
    Delete(i64),
    /// Commits.
    Commit,
    /// Is aborted.
    Abort(Abort),
}

#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) stamp: Stamp,
    pub(crate) row: Option<Row>,
    pub(crate) commit: u64,
    pub(crate) writer: u64,
}

/// A transaction's own rows.
type Own = BTreeMap<i64, (Stamp, Option<Row>)>;

#[derive(Clone, Debug)]
struct Running {
    events: Vec<Event>,
    snapshot: u64,
    /// The snapshot at which it began; when it began, and when it took that.
    first: u64,
    began: u64,
    placed: u64,
    own: Own,
    count: u64,
    /// At the savepoint: how many events there were, and the own rows.
    saved: Option<(usize, Own)>,
}

/// Where a statement's snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Snapshots {
    /// At the transaction's first statement.
    First,
    /// At each statement.
    Each,
}

/// The store and what was recorded of it.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) versions: BTreeMap<i64, Vec<Version>>,
    running: HashMap<u64, Running>,
    pub(crate) history: History,
    commits: u64,
    tick: u64,
    snapshots: Snapshots,
}

pub(crate) fn object(key: i64) -> Object {
    Object { table: 0, key }
}

impl Model {
    /// A store with rows (key, second column).
    pub(crate) fn new(rows: &[(i64, i64)], snapshots: Snapshots) -> Model {
        let mut model = Model {
            versions: BTreeMap::new(),
            running: HashMap::new(),
            history: History::default(),
            commits: 0,
            tick: 0,
            snapshots,
        };
        for (count, &(key, group)) in rows.iter().enumerate() {
            let stamp = stamp(0, count as u64 + 1);
            let row = Some(vec![key, group]);
            model.history.loaded.push(Write { object: object(key), stamp, replaced: None, row: row.clone() });
            model.versions.entry(key).or_default().push(Version { stamp, row, commit: 0, writer: 0 });
        }
        model
    }

    /// Runs steps in order.
    pub(crate) fn run(rows: &[(i64, i64)], snapshots: Snapshots, steps: &[(u64, Step)]) -> Model {
        let mut model = Model::new(rows, snapshots);
        for (id, step) in steps {
            model.step(*id, *step);
        }
        model
    }

    /// The version of a key that a snapshot holds.
    pub(crate) fn at(&self, key: i64, snapshot: u64) -> Option<&Version> {
        self.versions.get(&key)?.iter().rev().find(|version| version.commit <= snapshot)
    }

    /// Whether a write of this key by this transaction would break "first updater wins".
    pub(crate) fn conflicts(&self, id: u64, key: i64) -> bool {
        let snapshot = self.running.get(&id).map_or(self.commits, |running| running.snapshot);
        let last = self.versions.get(&key).and_then(|all| all.last());
        last.is_some_and(|last| last.commit > snapshot) || self.is_locked(id, key)
    }

    /// Whether somebody else who runs has written this key.
    pub(crate) fn is_locked(&self, id: u64, key: i64) -> bool {
        self.running.iter().any(|(other, running)| *other != id && running.own.contains_key(&key))
    }

    /// Gives a transaction the newest snapshot, whatever it has read.
    pub(crate) fn refresh(&mut self, id: u64) {
        self.tick += 1;
        self.running.get_mut(&id).unwrap().snapshot = self.commits;
    }

    /// Whether all that a transaction has read is still so in the newest state.
    pub(crate) fn is_fresh(&self, id: u64) -> bool {
        let Some(running) = self.running.get(&id) else { return true };
        running.events.iter().enumerate().all(|(place, event)| {
            let (predicate, snapshot) = match event {
                Event::Scan(scan) => (scan.predicate, scan.snapshot),
                Event::Exists(exists) => (exists.predicate, exists.snapshot),
                Event::Met(_) | Event::Write(_) | Event::TakenBack(_) => return true,
            };
            let own: Vec<i64> =
                standing(&running.events[..place]).iter().map(|write| write.object.key).collect();
            let others = self.versions.iter().filter(|(key, _)| !own.contains(key));
            others.flat_map(|(key, versions)| versions.iter().map(move |version| (*key, version))).all(
                |(key, version)| {
                    let before = self.before(key, version.commit);
                    let concerns = predicate.holds(version.row.as_ref()) || predicate.holds(before);
                    version.commit <= snapshot || !concerns
                },
            )
        })
    }

    /// The row that the version with this number replaced.
    fn before(&self, key: i64, commit: u64) -> Option<&Row> {
        let older = self.versions.get(&key)?.iter().rev().find(|version| version.commit < commit)?;
        older.row.as_ref()
    }

    /// Gives a transaction another snapshot, as no sound store would.
    pub(crate) fn force_snapshot(&mut self, id: u64, snapshot: u64) {
        self.begin(id);
        let running = self.running.get_mut(&id).unwrap();
        (running.snapshot, running.first) = (snapshot, snapshot);
    }

    fn begin(&mut self, id: u64) {
        let (snapshot, now) = (self.commits, self.tick);
        let running = self.running.entry(id).or_insert_with(|| Running {
            events: Vec::new(),
            snapshot,
            first: snapshot,
            began: now,
            placed: now,
            own: BTreeMap::new(),
            count: 0,
            saved: None,
        });
        if self.snapshots == Snapshots::Each {
            (running.snapshot, running.first, running.placed) = (snapshot, snapshot, now);
        }
    }

    pub(crate) fn step(&mut self, id: u64, step: Step) {
        self.tick += 1;
        self.begin(id);
        match step {
            Step::Keys(low, high) => self.scan(id, Predicate { table: 0, column: 0, low, high }),
            Step::Groups(low, high) => self.scan(id, Predicate { table: 0, column: 1, low, high }),
            Step::There(key, as_it_is) => self.there(id, key, as_it_is),
            Step::Save => {
                let running = self.running.get_mut(&id).unwrap();
                running.saved = Some((running.events.len(), running.own.clone()));
            }
            Step::TakeBack => {
                let running = self.running.get_mut(&id).unwrap();
                if let Some((place, own)) = running.saved.clone() {
                    running.own = own;
                    running.events.push(Event::TakenBack(place));
                }
            }
            Step::Put(key, group) => self.write(id, key, Some(vec![key, group])),
            Step::Delete(key) => self.write(id, key, None),
            Step::Commit => self.end(id, Outcome::Committed),
            Step::Abort(reason) => self.end(id, Outcome::Aborted(reason)),
        }
    }

    fn there(&mut self, id: u64, key: i64, as_it_is: bool) {
        let running = &self.running[&id];
        let (predicate, snapshot) = (Predicate::key(object(key)), running.snapshot);
        let own = running.own.get(&key).map(|(_, row)| row.is_some());
        let there =
            own.unwrap_or_else(|| self.at(key, snapshot).is_some_and(|version| version.row.is_some()));
        let event = match there {
            true => Event::Exists(Exists { predicate, snapshot, as_it_is }),
            false => Event::Scan(Scan { predicate, seen: Vec::new(), snapshot }),
        };
        self.running.get_mut(&id).unwrap().events.push(event);
    }

    fn scan(&mut self, id: u64, predicate: Predicate) {
        let running = &self.running[&id];
        let mut seen = Vec::new();
        let keys: Vec<i64> = self.versions.keys().chain(running.own.keys()).copied().collect();
        for key in keys {
            let (stamp, row) = match running.own.get(&key) {
                Some((stamp, row)) => (*stamp, row.as_ref()),
                None => match self.at(key, running.snapshot) {
                    Some(version) => (version.stamp, version.row.as_ref()),
                    None => continue,
                },
            };
            if predicate.holds(row) && !seen.contains(&(key, stamp)) {
                seen.push((key, stamp));
            }
        }
        let scan = Scan { predicate, seen, snapshot: running.snapshot };
        self.running.get_mut(&id).unwrap().events.push(Event::Scan(scan));
    }

    fn write(&mut self, id: u64, key: i64, row: Option<Row>) {
        let last = self.versions.get(&key).and_then(|all| all.last());
        let newest = last.filter(|version| version.row.is_some()).map(|version| version.stamp);
        let running = self.running.get_mut(&id).unwrap();
        running.count += 1;
        let stamp = stamp(id, running.count);
        let own = running.own.get(&key).map(|(stamp, row)| row.is_some().then_some(*stamp));
        let replaced = own.unwrap_or(newest);
        running.own.insert(key, (stamp, row.clone()));
        running.events.push(Event::Write(Write { object: object(key), stamp, replaced, row }));
    }

    fn end(&mut self, id: u64, outcome: Outcome) {
        let running = self.running.remove(&id).unwrap();
        let mut commit = None;
        if outcome == Outcome::Committed && !running.own.is_empty() {
            self.commits += 1;
            commit = Some(self.commits);
            for (key, (stamp, row)) in running.own {
                let version = Version { stamp, row, commit: self.commits, writer: id };
                self.versions.entry(key).or_default().push(version);
            }
        }
        let asked = self.tick;
        self.tick += 1;
        self.history.transactions.push(Transaction {
            id,
            events: running.events,
            outcome,
            snapshot: running.snapshot,
            first: running.first,
            commit,
            began: running.began,
            placed: running.placed,
            asked,
            answered: self.tick,
        });
    }
}
