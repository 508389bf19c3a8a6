//! The classes that are kept: a bounded number, of bounded size.
//!
//! Where there is no room for a new one the least used goes, by its attempts of late; so a client
//! that makes up statements displaces its own. What a class is displaced with is forgotten; its
//! transactions that still run count towards "all others", which is never displaced.

use std::collections::HashMap;

use super::choice::Choice;
use super::measures::Measures;
use super::model;
use super::report::{Finished, Protocol};
use super::traffic::Sight;
use super::{ChoiceRow, Key};

/// Estimates are made anew after so many transactions of a class,
const CONSIDERED_AFTER: u32 = 8;
/// or after so long.
const CONSIDERED_AFTER_US: i64 = 100_000;

/// A class and what is known of it.
#[derive(Debug)]
struct Record {
    text: String,
    measures: Measures,
    choice: Choice,
    /// Attempts since estimates were made.
    finished: u32,
    considered_us: i64,
}

/// Classes by their keys.
#[derive(Debug)]
pub(super) struct Classes {
    records: HashMap<Key, Record>,
    room: usize,
}

impl Classes {
    pub(super) fn new(room: usize) -> Classes {
        Classes { records: HashMap::new(), room }
    }

    /// What is chosen for a class, which is made if it is new; and the key of the class that it has
    /// displaced, if it has.
    pub(super) fn choose(
        &mut self,
        key: Key,
        text: impl FnOnce() -> String,
        now_us: i64,
    ) -> (Protocol, Option<Key>) {
        if let Some(record) = self.records.get(&key) {
            return (record.choice.chosen(), None);
        }
        let displaced = self.make_room(now_us);
        let record = Record {
            text: text(),
            measures: Measures::new(now_us),
            choice: if key.is_told() { Choice::told(now_us) } else { Choice::new(now_us) },
            finished: 0,
            considered_us: now_us,
        };
        (self.records.entry(key).or_insert(record).choice.chosen(), displaced)
    }

    fn make_room(&mut self, now_us: i64) -> Option<Key> {
        if self.records.len() < self.room {
            return None;
        }
        let displaceable = self.records.iter().filter(|(key, _)| !key.is_others());
        let used = displaceable.map(|(key, record)| (*key, record.measures.use_at(now_us)));
        let (least, _) = used.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        self.records.remove(&least);
        Some(least)
    }

    /// Adds an attempt of a class. The protocol that the class has from now on, if that is another
    /// one.
    pub(super) fn finished(
        &mut self,
        key: Key,
        finished: &Finished,
        sight: &Sight,
        now_us: i64,
    ) -> Result<Option<Protocol>, Unknown> {
        let record = self.records.get_mut(&key).ok_or(Unknown)?;
        record.measures.note(finished, now_us);
        record.finished += 1;
        let waited = now_us.saturating_sub(record.considered_us);
        if record.finished < CONSIDERED_AFTER && (0..CONSIDERED_AFTER_US).contains(&waited) {
            return Ok(None);
        }
        let chosen = record.choice.chosen();
        let estimates = model::estimate(&record.measures, sight, chosen, key.is_fit());
        let count = std::mem::take(&mut record.finished);
        record.considered_us = now_us;
        let has_changed = record.choice.consider(estimates, count, now_us);
        Ok(has_changed.then(|| record.choice.chosen()))
    }

    pub(super) fn rows(&self, rows: &mut Vec<ChoiceRow>) {
        rows.extend(self.records.iter().map(|(key, record)| ChoiceRow {
            class: record.text.clone(),
            chosen: record.choice.chosen().name(),
            estimates: record.choice.explanation(),
            since_us: record.choice.since_us(),
            form: key.form(),
        }));
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        let bytes = |record: &Record| record.text.capacity() + size_of::<(Key, Record)>();
        (self.records.len(), self.records.values().map(bytes).sum())
    }
}

/// The class is not among those that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unknown;
