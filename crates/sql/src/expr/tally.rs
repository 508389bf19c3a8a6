//! What each node of a plan gives and how long it takes, for EXPLAIN ANALYZE.
//!
//! Nodes are known by where they are in memory: a plan does not move, and whoever asks for the
//! counts of one holds it. No other execution pays for this: a step leads here where it would have
//! been counted down to the next question (see [`Execution::step`](super::Execution)).
//!
//! As in PostgreSQL a loop is one run of a node from its first row to the last that is asked for,
//! its time includes that of the nodes below, and rows and times are told per loop.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::Result;

/// The counts of one execution of a statement.
#[derive(Debug, Default)]
pub struct Tally {
    /// Times are taken, too.
    timed: bool,
    counts: Mutex<HashMap<usize, Count>>,
}

/// What is known of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Count {
    pub(crate) rows: u64,
    /// Rows that did not pass its conditions.
    pub(crate) removed: u64,
    pub(crate) loops: u64,
    /// Until the first row, of all loops.
    startup: Duration,
    total: Duration,
    /// A loop has begun and not ended.
    is_running: bool,
}

/// Where a node is.
pub(crate) fn place_of<T>(node: &T) -> usize {
    std::ptr::from_ref(node).addr()
}

/// The time since then, if it is known.
pub(crate) fn since(began: Option<Instant>) -> Duration {
    began.map_or(Duration::ZERO, |began| began.elapsed())
}

impl Tally {
    /// Nothing counted yet. `timed`: with times.
    pub(crate) fn new(timed: bool) -> Tally {
        Tally { timed, counts: Mutex::default() }
    }

    /// Whether nothing was counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.lock().is_empty()
    }

    /// Now, if times are taken.
    pub(crate) fn now(&self) -> Option<Instant> {
        self.timed.then(Instant::now)
    }

    /// Forgets all, because the statement begins again.
    pub(crate) fn clear(&self) {
        self.counts.lock().clear();
    }

    /// What is known of the node there.
    pub(crate) fn count(&self, place: usize) -> Count {
        self.counts.lock().get(&place).copied().unwrap_or_default()
    }

    /// Counts what `next` says of the next row of a node.
    pub(crate) fn row(&self, place: usize, next: impl FnOnce() -> Result<bool>) -> Result<bool> {
        let began = self.now();
        let found = next();
        let took = since(began);
        let is_row = matches!(found, Ok(true));
        self.note(place, u64::from(is_row), (took, took), !is_row);
        found
    }

    /// Notes rows of a node, with the time until the first of them and that of all. `ends`: no more
    /// rows come.
    pub(crate) fn note(&self, place: usize, rows: u64, took: (Duration, Duration), ends: bool) {
        let mut counts = self.counts.lock();
        let count = counts.entry(place).or_default();
        if !count.is_running {
            count.loops += 1;
            count.startup += took.0;
        }
        count.is_running = !ends;
        count.rows += rows;
        count.total += took.1;
    }

    /// Notes a row that did not pass the conditions of a node.
    #[cold]
    pub(crate) fn note_removed(&self, place: usize) {
        self.counts.lock().entry(place).or_default().removed += 1;
    }

    /// The node starts again.
    pub(crate) fn end_loop(&self, place: usize) {
        if let Some(count) = self.counts.lock().get_mut(&place) {
            count.is_running = false;
        }
    }
}

impl Count {
    /// That of a statement, which runs once.
    pub(crate) fn of_statement(rows: u64, took: Duration) -> Count {
        Count { rows, loops: 1, startup: took, total: took, ..Count::default() }
    }

    /// A share of a number that each loop has, as it is printed.
    fn each(&self, number: u64) -> String {
        format!("{:.0}", number as f64 / self.loops.max(1) as f64)
    }

    /// Milliseconds of each loop, as they are printed.
    fn milliseconds(&self, time: Duration) -> String {
        format!("{:.3}", time.as_secs_f64() * 1e3 / self.loops.max(1) as f64)
    }

    /// What stands behind the node's line.
    pub(crate) fn words(&self, timed: bool) -> String {
        if self.loops == 0 {
            return " (never executed)".to_owned();
        }
        let (rows, loops) = (self.each(self.rows), self.loops);
        let (startup, total) = (self.milliseconds(self.startup), self.milliseconds(self.total));
        match timed {
            true => format!(" (actual time={startup}..{total} rows={rows} loops={loops})"),
            false => format!(" (actual rows={rows} loops={loops})"),
        }
    }

    /// The same by names: each with its number.
    pub(crate) fn figures(&self, timed: bool) -> Vec<(&'static str, String)> {
        let times = [("Actual Startup Time", self.startup), ("Actual Total Time", self.total)];
        let times = times.into_iter().filter(|_| timed);
        let mut figures: Vec<_> = times.map(|(name, time)| (name, self.milliseconds(time))).collect();
        figures.push(("Actual Rows", self.each(self.rows)));
        figures.push(("Actual Loops", self.loops.to_string()));
        figures
    }

    /// How many rows of each loop so many of all loops are, as it is printed.
    pub(crate) fn removed_words(&self, removed: u64) -> String {
        self.each(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::SqlError;

    #[test]
    fn rows_are_told_for_each_loop() {
        let tally = Tally::new(false);
        let node = 7;
        let place = place_of(&node);
        for loops in 0..3 {
            for row in 0..4 {
                let found = tally.row(place, || Ok(row < 3)).expect("no error");
                assert_eq!(found, row < 3, "loop {loops}");
            }
        }
        let count = tally.count(place);
        assert_eq!((count.rows, count.loops), (9, 3));
        assert_eq!(count.words(false), " (actual rows=3 loops=3)");
        assert_eq!(count.words(true), " (actual time=0.000..0.000 rows=3 loops=3)");
        let figures = [("Actual Rows", "3".to_owned()), ("Actual Loops", "3".to_owned())];
        assert_eq!(count.figures(false), figures);
        assert_eq!(count.figures(true).len(), 4);
        tally.clear();
        assert_eq!(tally.count(place), Count::default());
    }

    #[test]
    fn what_starts_again_before_its_end_begins_a_loop() {
        let tally = Tally::new(true);
        let place = place_of(&tally);
        tally.row(place, || Ok(true)).expect("a row");
        tally.row(place, || Ok(true)).expect("a row");
        tally.end_loop(place);
        tally.row(place, || Err(SqlError::internal("it ends"))).expect_err("its end");
        tally.note_removed(place);
        let count = tally.count(place);
        assert_eq!((count.rows, count.removed, count.loops), (2, 1, 2));
        assert!(count.startup <= count.total);
        assert_eq!(tally.count(place + 1).words(true), " (never executed)");
    }
}
