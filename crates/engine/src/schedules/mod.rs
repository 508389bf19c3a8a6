//! Schedules of the real engine, explored: the commit path with its certifier, the marks, snapshots
//! and pruning; the lock table; and the governor's gate.
//!
//! The feature `shuttle` puts a scheduler under everything that the engine synchronizes with
//! (`sync`). So these tests run the code of the engine itself, not a model of it: `Database::open`
//! on a disk in memory, the ordinary transactions, the log thread that makes commits durable, the
//! threads behind the database. At each lock, atomic operation and wake-up the scheduler decides
//! who goes on. Half of the schedules are random walks, half are chosen by *probabilistic
//! concurrency testing* (PCT: priorities with few changes, which finds bugs that need few switches,
//! wherever they are).
//!
//! ```text
//! cargo test -p cognate-engine --features shuttle --lib schedules
//! COGNATE_SEED=7           another first seed; the one in use is printed, and with a failure the number of the schedule
//! COGNATE_TEST_ROUNDS=50   so many times more schedules
//! ```
//!
//! Rooms: `history` records what transactions saw and judges it; `programs` runs transactions
//! written as data; `transactions` has the anomalies and random mixes, `pins` long readers beside
//! pruning and checkpoints, `locks` the lock table, `gate` the governor, `order` two nodes that
//! follow one order, `log` the log with several who write it.
//!
//! *Teeth.* `what_the_certifier_prevents` looks for the anomalies without the certifier, and must
//! find them. Beyond that each of these was tried by hand, and each made tests here fail: certifier
//! and number in two steps of the commit mutex; the visible mark before the versions, or after the
//! mutex; the locks released before; a pin's mark read outside its shard's lock; the collector's
//! floor read after the pins; pins not looked at; readers that are not admitted to the graph; the
//! base read before memory; a wait that does not look again under the mutex; readers and writers
//! answered a commit too early; late release that does not wait; and in the gate: no second look
//! after queueing, leaving in two steps, a slot taken away, resumed or entered without compare and
//! exchange, a grant after the wake-up, a raised limit that lets nobody in; and at two nodes: a
//! transaction that is taken from those who can be struck before it is sealed, the mixing rule left
//! out, and votes for what was replaced. Not seen here: the
//! certifier's floor read after its pins, which only a reader at the durable mark could notice
//! between two of its steps.
//!
//! A schedule in which everybody waits fails by itself. Not explored: weak memory (the scheduler is
//! sequentially consistent), what only time brings about (limits of waits never run out), and
//! crashes (`tests/database/crash.rs`).

mod gate;
mod history;
mod locks;
mod log;
mod order;
mod pins;
mod programs;
mod transactions;

use std::sync::atomic::{AtomicU64, Ordering};

use cognate_env::SplitMix;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, Runner};

/// Priority changes of a PCT schedule.
const CHANGES: usize = 4;

/// Runs `test` under so many schedules, each with random numbers of its own.
fn explore(name: &'static str, schedules: u64, test: impl Fn(&mut SplitMix) + Send + Sync + Copy + 'static) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("COGNATE_SEED").unwrap_or(20_260);
    let each = (schedules * number("COGNATE_TEST_ROUNDS").unwrap_or(1)).div_ceil(2);
    println!("{name}: COGNATE_SEED={seed}, {each} random schedules and {each} by PCT");
    let mut config = Config::new();
    // Frames of a build without optimization are large.
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    // Seed and number say it shorter.
    config.failure_persistence = FailurePersistence::None;
    for pct in [false, true] {
        let count = AtomicU64::new(0);
        let body = move || {
            let nth = count.fetch_add(1, Ordering::Relaxed);
            let _told = Told { name, seed, pct, nth };
            test(&mut SplitMix::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(nth)));
        };
        let each = each as usize;
        match pct {
            false => Runner::new(RandomScheduler::new_from_seed(seed, each), config.clone()).run(body),
            true => Runner::new(PctScheduler::new_from_seed(seed, CHANGES, each), config.clone()).run(body),
        };
    }
}

/// Names the schedule of a failure.
struct Told {
    name: &'static str,
    seed: u64,
    pct: bool,
    nth: u64,
}

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let kind = if self.pct { "PCT" } else { "random" };
            eprintln!("{}: failed in {kind} schedule {} of COGNATE_SEED={}", self.name, self.nth, self.seed);
        }
    }
}
