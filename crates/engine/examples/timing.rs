//! Times the engine's hot paths on one thread: `cargo run --release -p cognate-engine --example
//! timing`.
//!
//! Prints nanoseconds per operation, best of several rounds. Commits are not waited for, so the
//! disk is not measured.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::task::{Context, Waker};
use std::time::Instant;

use cognate_engine::{Access, Database, Isolation, LockMode, Options, TreeMode, Value, WaitPolicy};

const ROWS: u32 = 100_000;

fn time(what: &str, count: u32, mut f: impl FnMut(u32)) {
    let best = (0..5).map(|_| {
        let start = Instant::now();
        (0..count).for_each(&mut f);
        start.elapsed().as_nanos() as f64 / f64::from(count)
    });
    println!("{what:<44} {:>9.0} ns", best.fold(f64::MAX, f64::min));
}

/// Runs a future that does not wait.
fn now<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => unreachable!("nothing here waits"),
    }
}

fn key(n: u32) -> [u8; 8] {
    (u64::from(n.wrapping_mul(7919) % ROWS)).to_be_bytes()
}

fn reads(database: &Database, place: &str) {
    let begin = || database.begin(Isolation::Snapshot, Access::ReadWrite);
    let t = begin();
    time(&format!("get, {place}"), ROWS, |n| {
        assert!(t.get(1, &key(n)).is_ok_and(|v| v.is_some()));
    });
    time(&format!("begin, get, drop, {place}"), ROWS, |n| {
        assert!(begin().get(1, &key(n)).is_ok_and(|v| v.is_some()));
    });
    time(&format!("scan of one row, {place}"), ROWS, |n| {
        let (low, mut high) = (key(n), key(n));
        high[7] += 1;
        let range = (Included(&low[..]), Excluded(&high[..]));
        if high > low {
            let mut scan = t.scan(1, range.0, range.1, false).expect("opens");
            while scan.next().expect("reads").is_some() {}
        }
    });
    for reverse in [false, true] {
        time(&format!("scan a row of all, reverse {reverse}, {place}"), 1, |_| {
            let mut scan = t.scan(1, Unbounded, Unbounded, reverse).expect("opens");
            let start = Instant::now();
            let mut rows = 0;
            while scan.next().expect("reads").is_some() {
                rows += 1;
            }
            println!("{:>44} {:>9.0} ns", "", start.elapsed().as_nanos() as f64 / f64::from(rows));
        });
    }
}

/// Transactions that queue up for one row, each by its own wait: what one newcomer costs. Then all
/// of them go through.
fn waiters(database: &Database) {
    for count in [10, 100, 400, 2000] {
        let key = [7; 8];
        let begin = || database.begin(Isolation::ReadCommitted, Access::ReadWrite);
        let mut holder = begin();
        now(holder.lock(3, &key, LockMode::NoKeyExclusive, WaitPolicy::Block)).expect("free");
        let wait = async |mut t: cognate_engine::Transaction| {
            t.lock(3, &key, LockMode::NoKeyExclusive, WaitPolicy::Block).await.expect("no deadlock");
        };
        let mut waiting: Vec<_> = (0..count).map(|_| Box::pin(wait(begin()))).collect();
        let mut context = Context::from_waker(Waker::noop());
        let start = Instant::now();
        for one in &mut waiting {
            assert!(one.as_mut().poll(&mut context).is_pending());
        }
        println!("{:>44} {:>9.0} ns", format!("wait as one of {count}"), per(start, count));
        let start = Instant::now();
        drop(holder);
        // Each ends as soon as it has the row, and so lets the next one in.
        for one in &mut waiting {
            assert!(one.as_mut().poll(&mut context).is_ready());
        }
        println!(
            "{:>44} {:>9.0} ns",
            format!("have the row, one of {count} after the other"),
            per(start, count)
        );
    }
}

fn per(start: Instant, count: u32) -> f64 {
    start.elapsed().as_nanos() as f64 / f64::from(count)
}

fn main() {
    let folder = std::env::temp_dir().join(format!("cognate-timing-{}", std::process::id()));
    let database = Database::open(Options::new(&folder).memory(1 << 30)).expect("opens");
    let begin = || database.begin(Isolation::Snapshot, Access::ReadWrite);
    for n in 0..ROWS {
        let mut t = begin();
        t.put(1, &u64::from(n).to_be_bytes(), Value::from(vec![7; 100])).expect("fits");
        t.commit().expect("commits");
    }
    time("begin, drop", ROWS, |_| drop(begin()));
    reads(&database, "memory");
    time("begin, lock tree, drop", ROWS, |_| {
        let mut t = begin();
        now(t.lock_tree(1, TreeMode::Write, WaitPolicy::Block)).expect("free");
    });
    time("begin, lock row, drop", ROWS, |n| {
        let mut t = begin();
        now(t.lock(1, &key(n), LockMode::Exclusive, WaitPolicy::Block)).expect("free");
    });
    let mut t = begin();
    time("lock row", ROWS / 5, |n| {
        now(t.lock(2, &key(n), LockMode::Exclusive, WaitPolicy::Block)).expect("free");
    });
    drop(t);
    waiters(&database);
    time("begin, put, commit (new version)", ROWS / 5, |n| {
        let mut t = begin();
        t.put(1, &key(n), Value::from(vec![7; 100])).expect("fits");
        t.commit().expect("commits");
    });
    time("begin, lock, check, put, commit (one hot row)", ROWS / 5, |_| {
        let mut t = begin();
        now(t.lock_tree(1, TreeMode::Write, WaitPolicy::Block)).expect("free");
        now(t.lock(1, &key(5), LockMode::Exclusive, WaitPolicy::Block)).expect("free");
        t.check_unchanged(1, &key(5)).expect("unchanged");
        t.put(1, &key(5), Value::from(vec![7; 100])).expect("fits");
        t.commit().expect("commits");
    });
    let start = Instant::now();
    database.checkpoint().expect("checkpoints");
    println!("{:<44} {:>9.0} ms", "checkpoint", start.elapsed().as_secs_f64() * 1e3);
    reads(&database, "base");
    println!("{:#?}", database.statistics());
    database.close().expect("closes");
    std::fs::remove_dir_all(&folder).expect("removes");
}
