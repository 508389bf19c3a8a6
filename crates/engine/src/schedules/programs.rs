//! Transactions as data, and the threads that run them on a database.
//!
//! Each thread runs its transactions one after the other; one that meets what is newer than its
//! snapshot moves that, if it can; one that fails for others is tried again, a few times. Beside
//! them a watcher looks at the marks: each only grows, and what is visible or durable was certified
//! before.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
// Not the scheduler's: what the tests note is no part of what is explored, and no step.
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use cognate_env::sim::SimDisk;
use shuttle::future::block_on;
use shuttle::thread;

use super::history::{Content, Done, History, K};
use crate::{
    Access, Csn, Database, Error, Isolation, LockMode, Method, Options, Refresh, Transaction, TreeId, Value,
    WaitPolicy,
};

const TREE: TreeId = 1000;
/// Keys are below this.
pub(super) const KEYS: K = 6;
/// How often a transaction is tried.
const TRIES: usize = 2;
/// How often a step's snapshot is moved.
const MOVES: usize = 3;
/// How often the watcher looks.
const LOOKS: usize = 6;

/// One step of a transaction.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Read(K),
    /// All keys from the first to before the second.
    Scan(K, K),
    Write(K),
    /// Reads what it writes, in one statement.
    Update(K),
    Delete(K),
}

/// How a transaction is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begin {
    Writer,
    Reader,
    Deferrable,
}

/// One transaction.
pub(super) type Program = (Begin, Vec<Step>);

/// What a test runs.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub(super) isolation: Isolation,
    pub(super) method: Method,
    pub(super) early: bool,
    pub(super) certifier_bytes: u64,
    /// Keys that are there at the beginning.
    pub(super) filled: K,
    pub(super) threads: Vec<Vec<Program>>,
    /// So many checkpoints run beside them.
    pub(super) checkpoints: usize,
}

impl Setting {
    pub(super) fn new(filled: K, threads: Vec<Vec<Program>>) -> Setting {
        Setting {
            isolation: Isolation::Serializable,
            method: Method::Pssi,
            early: true,
            certifier_bytes: 32 << 20,
            filled,
            threads,
            checkpoints: 0,
        }
    }

    fn open(&self) -> Database {
        let mut options = Options::new("data").memory(64 << 20);
        options.disk = SimDisk::new(1).handle();
        options.early_lock_release = self.early;
        options.serializable = self.method;
        options.certifier_bytes = self.certifier_bytes;
        Database::open(options).unwrap()
    }

    /// Runs it to the end: what was committed, and the last number given out.
    pub(super) fn run(self) -> (History, Csn) {
        let database = self.open();
        let stage = Arc::new(Stage {
            database: database.clone(),
            early: self.early,
            isolation: self.isolation,
            attempts: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            known: AtomicU64::new(0),
            history: Mutex::default(),
        });
        if self.filled > 0 {
            stage.run(&(Begin::Writer, (0..self.filled).map(Step::Write).collect()));
        }
        let watcher = {
            let stage = Arc::clone(&stage);
            thread::spawn(move || stage.watch())
        };
        let checkpoints = {
            let database = database.clone();
            thread::spawn(move || (0..self.checkpoints).for_each(|_| database.checkpoint().unwrap()))
        };
        let runners: Vec<_> = self
            .threads
            .into_iter()
            .map(|programs| {
                let stage = Arc::clone(&stage);
                thread::spawn(move || programs.iter().for_each(|program| stage.run(program)))
            })
            .collect();
        for runner in runners {
            runner.join().unwrap();
        }
        watcher.join().unwrap();
        checkpoints.join().unwrap();
        let last = stage.database.manager().store.log.last();
        let mut history = std::mem::take(&mut *stage.history.lock().unwrap());
        history.moves = stage.moves.load(Ordering::Relaxed);
        database.close().unwrap();
        (history, last)
    }

    /// Runs it and judges what was committed.
    pub(super) fn check(self) {
        self.check_moves();
    }

    /// The same; answers how often a snapshot was moved.
    pub(super) fn check_moves(self) -> u64 {
        let strict = self.method == Method::Strict;
        let (history, last) = self.run();
        history.judge(last, strict).unwrap_or_else(|wrong| panic!("{wrong}"));
        history.moves
    }
}

/// What the threads of one schedule share.
struct Stage {
    database: Database,
    early: bool,
    isolation: Isolation,
    attempts: AtomicU64,
    /// How often a snapshot was moved.
    moves: AtomicU64,
    /// The newest commit that must be visible by now.
    known: AtomicU64,
    history: Mutex<History>,
}

impl Stage {
    fn run(&self, program: &Program) {
        for _ in 0..TRIES {
            match block_on(self.attempt(program)) {
                Ok(()) => return,
                Err(
                    Error::SerializationFailure { .. }
                    | Error::DependencyCycle { .. }
                    | Error::Deadlock { .. },
                ) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn begin(&self, begin: Begin) -> Result<(Transaction, Csn), Error> {
        let known = self.known.load(Ordering::Relaxed);
        match begin {
            Begin::Writer => Ok((self.database.begin(self.isolation, Access::ReadWrite), known)),
            // They begin at the durable mark, which may be behind.
            Begin::Reader => {
                let durable = self.database.durable().min(self.database.visible());
                Ok((self.database.begin(self.isolation, Access::ReadOnly), durable))
            }
            Begin::Deferrable => {
                let transaction = self.database.begin_deferrable().await?;
                let snapshot = transaction.snapshot();
                assert!(self.database.durable() >= snapshot, "a deferrable snapshot is durable");
                Ok((transaction, known))
            }
        }
    }

    async fn attempt(&self, (begin, steps): &Program) -> Result<(), Error> {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        let (mut transaction, known) = self.begin(*begin).await?;
        let (mut reads, mut writes) = (Vec::new(), BTreeMap::new());
        for step in steps {
            match *step {
                Step::Read(key) => {
                    let found = content(transaction.get(TREE, &[key])?.as_ref());
                    see(&mut reads, &writes, key, found);
                }
                Step::Scan(from, to) => {
                    let (lower, upper) = ([from], [to]);
                    let (lower, upper) = (Bound::Included(&lower[..]), Bound::Excluded(&upper[..]));
                    let mut scan = transaction.scan(TREE, lower, upper, attempt.is_multiple_of(2))?;
                    let mut found = BTreeMap::new();
                    while let Some((key, value)) = scan.next()? {
                        found.insert(key[0], content(Some(&value)));
                    }
                    for key in from..to {
                        see(&mut reads, &writes, key, found.get(&key).copied().flatten());
                    }
                }
                Step::Write(key) | Step::Update(key) | Step::Delete(key) => {
                    let reads_it = matches!(step, Step::Update(_));
                    if let Some(found) = self.lock(&mut transaction, key, reads_it).await? {
                        see(&mut reads, &writes, key, found);
                    }
                    if !matches!(step, Step::Delete(_)) {
                        transaction.put(TREE, &[key], Value::copy_from_slice(&attempt.to_be_bytes()))?;
                        writes.insert(key, Some(attempt));
                    } else {
                        transaction.delete(TREE, &[key])?;
                        writes.insert(key, None);
                    }
                }
            }
        }
        // The last one: all that was read is judged as of this.
        let snapshot = transaction.snapshot();
        let commit = transaction.commit()?;
        // A deletion of what was never there is no commit.
        let number = (commit.csn > snapshot).then_some(commit.csn);
        let done = Done { attempt, snapshot, commit: number, known, reads, writes };
        self.history.lock().unwrap().done.push(done);
        if self.early {
            self.known.fetch_max(commit.csn, Ordering::Relaxed);
        }
        commit.durable.await?;
        let durable = self.database.durable();
        assert!(durable >= commit.csn, "{} was answered while {durable} was durable", commit.csn);
        self.known.fetch_max(commit.csn, Ordering::Relaxed);
        Ok(())
    }

    /// Locks a key that is to be written, and reads it before, if it is to be read. If it is newer
    /// than the snapshot, that is moved, unless something has changed that was read before.
    async fn lock(
        &self,
        transaction: &mut Transaction,
        key: K,
        reads_it: bool,
    ) -> Result<Option<Content>, Error> {
        let mut left = MOVES;
        loop {
            let mark = transaction.mark_statement();
            let found = match reads_it {
                true => Some(content(transaction.get(TREE, &[key])?.as_ref())),
                false => None,
            };
            transaction.lock(TREE, &[key], LockMode::Exclusive, WaitPolicy::Block).await?;
            match transaction.check_unchanged(TREE, &[key]) {
                Err(error @ Error::SerializationFailure { .. }) => match transaction.refresh(&mark)? {
                    Refresh::Moved if left > 0 => {
                        left -= 1;
                        self.moves.fetch_add(1, Ordering::Relaxed);
                        transaction.keep_statement(mark);
                    }
                    _ => return Err(error),
                },
                checked => {
                    transaction.keep_statement(mark);
                    return checked.map(|()| found);
                }
            }
        }
    }

    /// Looks at the marks.
    fn watch(&self) {
        let manager = self.database.manager();
        let mut before = [0; 3];
        for _ in 0..LOOKS {
            // The lower mark is read first, lest it overtakes the other between two looks.
            let (durable, visible) = (manager.store.durable(), manager.store.visible());
            let certified = manager.store.log.last();
            let marks = [durable, visible, certified];
            assert!(durable <= certified && visible <= certified, "marks {marks:?}");
            assert!(
                marks.iter().zip(before).all(|(now, before)| *now >= before),
                "{before:?}, then {marks:?}"
            );
            let pin = manager.store.pin(Access::ReadWrite, false);
            assert!(pin.csn() >= visible, "snapshot {} after {visible} was visible", pin.csn());
            before = marks;
            drop(pin);
        }
    }
}

fn content(value: Option<&Value>) -> Content {
    value.map(|bytes| u64::from_be_bytes(bytes[..].try_into().unwrap()))
}

/// Notes a read of others' versions; own writes have to be found as they are.
fn see(reads: &mut Vec<(K, Content)>, writes: &BTreeMap<K, Content>, key: K, found: Content) {
    match writes.get(&key) {
        Some(own) => assert_eq!(found, *own, "own write of key {key}"),
        None => reads.push((key, found)),
    }
}
