//! Snapshots that stay, beside what prunes: the graph of the certifier, chains of versions, and
//! checkpoints that move versions to the base.
//!
//! A snapshot's pin must be seen by whoever prunes. If the mark were read outside the lock in which
//! the pin is entered, or the collector read its floor after the pins, then a node could go that
//! the pinned transaction still gets an edge to (a missed cycle), or a version that it still reads.

use super::explore;
use super::programs::Begin::{Deferrable, Reader, Writer};
use super::programs::Setting;
use super::programs::Step::{Read, Scan, Write};

/// Others commit one after the other, each pruning, while one begins, stays, and closes a cycle
/// with the first of them.
#[test]
fn no_cycle_is_missed_for_a_pruned_node() {
    explore("pins and pruning", 240, |_| {
        let long = vec![(Writer, vec![Read(0), Read(1), Read(3), Write(2)])];
        let first =
            vec![(Writer, vec![Read(2), Write(0)]), (Writer, vec![Write(4)]), (Writer, vec![Read(4)])];
        let second = vec![(Writer, vec![Read(2), Write(1)]), (Writer, vec![Read(0), Write(3)])];
        Setting::new(5, vec![long, first, second]).check();
    });
}

/// The same for readers that begin at the durable mark, behind the others: a withdrawal that missed
/// the deposit, and reports between them.
#[test]
fn no_cycle_is_missed_for_a_reader_behind_the_others() {
    explore("pins behind", 240, |random| {
        let withdrawal = vec![(Writer, vec![Read(0), Read(1), Write(0)]), (Writer, vec![Write(2)])];
        let mut deposit = vec![(Writer, vec![Read(1), Write(1)])];
        deposit.extend((0..3).map(|_| (Writer, vec![Write(4)])));
        let reports = || (0..3).map(|_| (Reader, vec![Read(0), Read(1)])).collect::<Vec<_>>();
        let early = !random.one_in(3);
        Setting { early, ..Setting::new(5, vec![withdrawal, deposit, reports(), reports()]) }.check();
    });
}

/// A bound that one transaction fills: summaries in place of nodes.
#[test]
fn no_cycle_is_missed_for_a_summary() {
    explore("pins and summaries", 200, |_| {
        let long = vec![(Writer, vec![Read(0), Scan(1, 3), Write(3)])];
        let short = |key| vec![(Writer, vec![Read(3), Write(key)]), (Writer, vec![Read(key), Write(4)])];
        Setting { certifier_bytes: 1, ..Setting::new(5, vec![long, short(0), short(1)]) }.check();
    });
}

/// Chains grow beyond the length at which a commit trims them, and checkpoints move versions away,
/// while snapshots read them.
#[test]
fn no_version_is_lost_to_a_reader() {
    explore("pins and checkpoints", 200, |_| {
        let writes = |key| (0..5).map(|_| (Writer, vec![Write(key), Write(0)])).collect::<Vec<_>>();
        let reads = |begin| (begin, vec![Read(0), Scan(0, 3), Read(1), Read(0)]);
        let readers = vec![reads(Reader), reads(Deferrable), reads(Writer)];
        Setting { checkpoints: 2, ..Setting::new(3, vec![writes(1), writes(2), readers]) }.check();
    });
}
