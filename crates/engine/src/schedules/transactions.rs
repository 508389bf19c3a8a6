//! The commit path: certifier, number, versions and visible mark under every schedule, with the
//! known anomalies and with random mixes.
//!
//! That these tests can fail: `what_the_certifier_prevents` runs the same programs without it, and
//! the judge has to find what it prevents.

use std::sync::atomic::{AtomicU64, Ordering};

use cognate_env::SplitMix;

use super::explore;
use super::programs::Begin::{Deferrable, Reader, Writer};
use super::programs::Step::{Delete, Read, Scan, Update, Write};
use super::programs::{KEYS, Program, Setting, Step};
use crate::{Isolation, Method};

/// Each takes from one account if both together allow it.
fn write_skew() -> Setting {
    let take = |key| vec![(Writer, vec![Read(0), Read(1), Write(key)])];
    Setting::new(2, vec![take(0), take(1), vec![(Writer, vec![Read(0), Write(2)])]])
}

/// A deposit and a withdrawal that no order contradicts, until somebody looks between them (Fekete,
/// O'Neil and O'Neil 2004).
fn read_only_anomaly() -> Setting {
    let withdrawal = vec![(Writer, vec![Read(0), Read(1), Write(0)])];
    let deposit = vec![(Writer, vec![Read(1), Write(1)]), (Writer, vec![Read(0), Read(1)])];
    let reports = vec![(Reader, vec![Read(0), Read(1)]), (Deferrable, vec![Read(0), Read(1)])];
    Setting::new(2, vec![withdrawal, deposit, reports])
}

#[test]
fn write_skew_commits_under_no_schedule() {
    explore("write skew", 200, |_| write_skew().check());
}

#[test]
fn no_reader_sees_what_no_order_explains() {
    explore("read-only anomaly", 200, |_| read_only_anomaly().check());
}

#[test]
fn no_update_is_lost() {
    let program = || vec![(Writer, vec![Read(0), Write(0)]), (Writer, vec![Read(0), Write(0)])];
    explore("lost update", 200, move |_| Setting::new(1, vec![program(), program(), program()]).check());
}

#[test]
fn no_row_appears_in_a_range_unseen() {
    explore("phantom", 200, |_| {
        let insert = |key| vec![(Writer, vec![Scan(1, 5), Write(key)])];
        let leave = vec![(Writer, vec![Scan(0, 3), Delete(0)]), (Reader, vec![Scan(0, KEYS)])];
        Setting::new(1, vec![insert(2), insert(3), leave]).check();
    });
}

/// Versions are visible before they are durable, and locks free: whoever read one is answered after
/// it.
#[test]
fn nobody_is_answered_before_what_he_read_is_durable() {
    explore("early release", 200, |_| {
        let write = vec![(Writer, vec![Write(0)]), (Writer, vec![Write(0), Write(1)])];
        let read = |begin| vec![(begin, vec![Read(0), Read(1)]), (begin, vec![Read(1), Read(0)])];
        Setting::new(0, vec![write, read(Writer), read(Reader)]).check();
    });
}

/// Snapshots move past what writers meet, while others commit, prune and replace what was read. The
/// judge takes all of a transaction's reads as of the last snapshot: that is what moving promises.
#[test]
fn what_was_read_before_a_snapshot_moved_is_there_afterwards() {
    static MOVES: AtomicU64 = AtomicU64::new(0);
    explore("moved snapshots", 300, |random| {
        // All want key 0, each after something of its own; some of that is replaced by others.
        let payment =
            |own: u8, seen: u8| vec![(Writer, vec![Read(seen), Update(own), Update(0), Write(own)])];
        let other = match random.below(3) {
            0 => vec![(Writer, vec![Update(0)]), (Writer, vec![Update(1), Update(0)])],
            1 => vec![(Writer, vec![Scan(2, 5), Update(0), Write(5)])],
            _ => vec![(Writer, vec![Update(0), Delete(4)]), (Reader, vec![Scan(0, KEYS)])],
        };
        let early = !random.one_in(3);
        let setting = Setting { early, ..Setting::new(5, vec![payment(1, 4), payment(2, 3), other]) };
        MOVES.fetch_add(setting.check_moves(), Ordering::Relaxed);
    });
    let moves = MOVES.load(Ordering::Relaxed);
    println!("moved snapshots: {moves} moves");
    assert!(moves > 0, "no schedule needed one");
}

/// Two that take from one sum, and both move their snapshots on the way.
#[test]
fn write_skew_commits_under_no_schedule_though_snapshots_move() {
    explore("write skew with moved snapshots", 200, |_| {
        let take = |key| vec![(Writer, vec![Read(1 - key), Update(2), Update(key)])];
        Setting::new(3, vec![take(0), take(1), vec![(Writer, vec![Update(2)])]]).check();
    });
}

/// The same with locks that are released late: nothing is seen before it is durable.
#[test]
fn late_release_shows_durable_commits_only() {
    explore("late release", 200, |_| Setting { early: false, ..write_skew() }.check());
}

#[test]
fn random_mixes_are_serializable() {
    explore("random mix", 500, |random| random_mix(random).check());
}

fn random_mix(random: &mut SplitMix) -> Setting {
    let threads = (0..3).map(|_| (0..2).map(|_| random_program(random)).collect()).collect();
    Setting {
        method: match random.below(5) {
            0 => Method::Ssi,
            1 | 2 => Method::Strict,
            _ => Method::Pssi,
        },
        early: !random.one_in(4),
        // Mostly room for all, sometimes a summary after nearly every commit.
        certifier_bytes: if random.one_in(4) { 2 << 10 } else { 32 << 20 },
        checkpoints: usize::from(random.one_in(3)),
        ..Setting::new(random.below(u64::from(KEYS)) as u8, threads)
    }
}

fn random_program(random: &mut SplitMix) -> Program {
    let begin = match random.below(8) {
        0 => Deferrable,
        1 => Reader,
        _ => Writer,
    };
    let steps = (0..2 + random.below(3)).map(|_| random_step(random, begin == Writer)).collect();
    (begin, steps)
}

fn random_step(random: &mut SplitMix, writes: bool) -> Step {
    let key = random.below(u64::from(KEYS) / 2) as u8;
    match random.below(if writes { 8 } else { 4 }) {
        0..=2 => Read(key),
        3 => Scan(key, key + 1 + random.below(3) as u8),
        4 => Delete(key),
        5 => Update(key),
        _ => Write(key),
    }
}

/// Who runs long reads what is replaced meanwhile; who begins after that was answered may not come
/// before it.
fn out_of_time(method: Method) -> Setting {
    let long = vec![(Writer, vec![Read(0), Write(1)])];
    let one_after_the_other = vec![(Writer, vec![Write(0)]), (Reader, vec![Read(1)])];
    Setting { method, ..Setting::new(2, vec![long, one_after_the_other]) }
}

#[test]
fn nobody_comes_before_what_was_acknowledged_before_it_began() {
    explore("strict", 200, |_| out_of_time(Method::Strict).check());
    static LATE: AtomicU64 = AtomicU64::new(0);
    explore("not strict", 100, |_| {
        let (history, last) = out_of_time(Method::Pssi).run();
        history.judge(last, false).unwrap_or_else(|wrong| panic!("{wrong}"));
        LATE.fetch_add(u64::from(history.judge(last, true).is_err()), Ordering::Relaxed);
    });
    let late = LATE.load(Ordering::Relaxed);
    println!("not strict: {late} schedules in which real time was not kept");
    assert!(late > 0);
}

/// Under snapshot isolation the schedules reach the anomalies, and the judge finds them.
#[test]
fn what_the_certifier_prevents() {
    static SKEWED: AtomicU64 = AtomicU64::new(0);
    static SEEN: AtomicU64 = AtomicU64::new(0);
    explore("without certifier", 100, |_| {
        for (setting, count) in [(write_skew(), &SKEWED), (read_only_anomaly(), &SEEN)] {
            let (history, last) = Setting { isolation: Isolation::Snapshot, ..setting }.run();
            count.fetch_add(u64::from(history.judge(last, false).is_err()), Ordering::Relaxed);
        }
    });
    let (skewed, seen) = (SKEWED.load(Ordering::Relaxed), SEEN.load(Ordering::Relaxed));
    println!("without certifier: {skewed} schedules with write skew, {seen} with the read-only anomaly");
    assert!(skewed > 0 && seen > 0, "{skewed} and {seen}");
}
