//! Two hundred crashes of a database on a simulated disk, under load through SQL sessions.
//!
//! A crash is the end of the process or of the power at any changing operation of the disk, during
//! recovery as well. Each of 40 databases goes through five, so what an early crash damaged is seen
//! by the later ones.
//!
//! Sixty more, over twelve databases, at moments when the flushes were held back and others had
//! seen what was not durable yet: there the clients are observers, and what they were told is
//! judged.

use std::ops::Bound::Unbounded;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use cognate::{Database, Options, Session};
use cognate_engine::{Access, Isolation};
use cognate_env::SplitMix;
use cognate_env::sim::{Loss, SimDisk};

use super::judge::judge;
use super::load::{Ledger, Sql, create};
use super::observer::{self, Observer};
use crate::wire::{Failure, Rows};

const DATABASES: u64 = 40;
const CRASHES: u64 = 5;
const CLIENTS: i64 = 3;
const OBSERVERS: u64 = 6;

impl Sql for Session {
    fn run(&mut self, text: &str) -> Result<Rows, Failure> {
        let rows = self.query(text, &[]).map_err(failure)?;
        let texts = rows.iter().map(|row| (0..row.values().len()).map(|place| row.text(place)).collect());
        Ok(texts.collect::<Result<Rows, _>>().expect("columns that are there"))
    }
}

fn failure(error: cognate::Error) -> Failure {
    let (message, detail) = (error.message.clone(), error.detail.clone().unwrap_or_default());
    Failure::Error { sqlstate: error.sqlstate.to_owned(), message, detail }
}

/// Names the seed of a round that panics.
pub(super) struct Seed(pub(super) u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("failed with seed {}", self.0);
        }
    }
}

/// Opens the database on this disk.
pub(super) fn open(disk: &SimDisk) -> cognate::Result<Database> {
    let mut options = Options::new("data").memory(4 << 20);
    options.disk = disk.handle();
    options.checkpoint_log_bytes = 32 << 10;
    Database::open_with(options)
}

/// Every entry of every index leads to a row, and each row has one: in the trees themselves, past
/// all plans.
fn trees_agree(database: &Database) {
    let catalog = database.sql().catalog();
    let t = database.sql().engine().begin(Isolation::Snapshot, Access::ReadOnly);
    let all = |tree| {
        let mut scan = t.scan(tree, Unbounded, Unbounded, false).expect("a scan");
        std::iter::from_fn(move || scan.next().expect("an entry")).collect::<Vec<_>>()
    };
    for table in catalog.tables() {
        let keys: Vec<_> = all(table.tree).into_iter().map(|(key, _)| key).collect();
        for index in table.indexes.iter().filter(|index| !index.is_clustered()) {
            let entries = all(index.tree);
            let mut led: Vec<_> =
                entries.iter().map(|(key, value)| index.row_key(key, value).expect("a row key")).collect();
            led.sort_unstable();
            assert_eq!(led, keys, "index {} of table {}", index.name, table.name);
        }
    }
}

/// Each client runs up to `count` transactions, in a thread of its own, until it gets an error with
/// one of the SQLSTATEs `ends`. Returns those errors.
pub(super) fn work(
    database: &Database,
    ledgers: &mut [Ledger],
    random: &mut SplitMix,
    count: u64,
    ends: &[&str],
) -> Vec<Failure> {
    let checkpoint_after = random.below(3 * count);
    let client = |ledger: &mut Ledger| -> Result<(), Failure> {
        let mut session = database.session().map_err(failure)?;
        for done in 0..count {
            ledger.transact(&mut session)?;
            if done == checkpoint_after && ledger.client == 1 {
                session.run("CHECKPOINT")?;
            }
        }
        Ok(())
    };
    let failures: Vec<Failure> = thread::scope(|scope| {
        let clients: Vec<_> = ledgers.iter_mut().map(|ledger| scope.spawn(|| client(ledger))).collect();
        clients.into_iter().filter_map(|client| client.join().expect("no panic").err()).collect()
    });
    for failure in &failures {
        assert!(ends.contains(&failure.sqlstate()), "{failure:?}");
    }
    failures
}

#[test]
fn two_hundred_crashes_lose_nothing_acknowledged_and_leave_nothing_else() {
    let (mut acknowledged, mut in_doubt) = (0, 0);
    for seed in 0..DATABASES {
        let _seed = Seed(seed);
        let (disk, mut random) = (SimDisk::new(seed), SplitMix::new(seed ^ 0xFA11));
        let database = open(&disk).expect("opened");
        create(&mut database.session().expect("a session"));
        drop(database);
        let mut ledgers: Vec<Ledger> = (1..=CLIENTS).map(|client| Ledger::new(client, seed)).collect();
        for crash in 0..=CRASHES {
            let last = crash == CRASHES;
            disk.restart(if random.one_in(3) { Loss::Process } else { Loss::Power });
            if !last && random.one_in(4) {
                // The power may go again during recovery and what follows it.
                disk.power_off_after(random.below(40));
            }
            match open(&disk) {
                Ok(database) if !disk.is_off() => {
                    disk.power_off_after(u64::MAX);
                    trees_agree(&database);
                    judge(&mut database.session().expect("a session"), &mut ledgers);
                    disk.power_off_after(random.below(120));
                    if !last {
                        work(&database, &mut ledgers, &mut random, 25, &["58030"]);
                    }
                    // Nothing more is written, as after the end of a process.
                    disk.power_off_after(0);
                    drop(database);
                }
                Ok(database) => drop(database),
                Err(error) => assert!(disk.is_off(), "{error}"),
            }
        }
        acknowledged += ledgers.iter().map(|ledger| ledger.acknowledged).sum::<u64>();
        in_doubt += ledgers.iter().map(|ledger| ledger.doubts).sum::<u64>();
    }
    println!("{acknowledged} transactions acknowledged, {in_doubt} in doubt");
    assert!(acknowledged > 1000 && in_doubt > 50, "{acknowledged} acknowledged, {in_doubt} in doubt");
}

/// Observers act until the power is off. The flushes are held back at a drawn moment, so that many
/// commits are seen that are not durable, and the power goes when everybody waits or a while after.
fn observe(database: &Database, disk: &SimDisk, observers: &mut [Observer], random: &mut SplitMix) {
    let (hold_at, off_at) = (random.below(150), 50 + random.below(150));
    let acts = AtomicU64::new(0);
    let count = observers.len() as u64;
    let ended = AtomicU64::new(0);
    let act = |observer: &mut Observer| -> Result<(), Failure> {
        let mut session = database.session().map_err(failure)?;
        observer.connected(&mut session)?;
        loop {
            observer.act(&mut session)?;
            acts.fetch_add(1, Ordering::Relaxed);
        }
    };
    // For the log, or for the lock of somebody who waits for it.
    let waiting = || {
        let statistics = database.sql().engine().statistics();
        statistics.log.waiting + statistics.waiting_transactions
    };
    thread::scope(|scope| {
        let clients: Vec<_> = observers
            .iter_mut()
            .map(|observer| {
                scope.spawn(|| {
                    let result = act(observer);
                    ended.fetch_add(1, Ordering::Relaxed);
                    result
                })
            })
            .collect();
        let ended = || ended.load(Ordering::Relaxed);
        while acts.load(Ordering::Relaxed) < hold_at && ended() == 0 {
            thread::yield_now();
        }
        disk.hold_flushes();
        let held_at = acts.load(Ordering::Relaxed);
        while acts.load(Ordering::Relaxed) < held_at + off_at && waiting() + ended() < count {
            thread::yield_now();
        }
        disk.power_off_after(0);
        disk.let_flushes_go();
        for client in clients {
            let failure = client.join().expect("no panic").expect_err("the power is off");
            assert_eq!(failure.sqlstate(), "58030", "{failure:?}");
        }
    });
}

#[test]
fn whatever_anybody_was_told_stays_true() {
    let mut told = 0;
    for seed in 0..12 {
        let _seed = Seed(seed);
        let (disk, mut random) = (SimDisk::new(seed), SplitMix::new(seed ^ 0x0B5E));
        let database = open(&disk).expect("opened");
        observer::create(&mut database.session().expect("a session"));
        drop(database);
        let mut observers: Vec<Observer> = (0..OBSERVERS).map(|name| Observer::new(name, seed)).collect();
        for crash in 0..=CRASHES {
            disk.restart(if random.one_in(3) { Loss::Process } else { Loss::Power });
            let database = open(&disk).expect("opened");
            observer::judge(&mut database.session().expect("a session"), &observers);
            if crash < CRASHES {
                observe(&database, &disk, &mut observers, &mut random);
            }
        }
        told += observers.iter().map(|observer| observer.told).sum::<u64>();
    }
    println!("{told} answers without a write of their own");
    assert!(told > 1000, "{told} answers");
}
