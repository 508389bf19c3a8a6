//! What currval and lastval give: the values that the session was given by sequences.

use std::collections::HashMap;

use super::facts::Facts;
use crate::catalog::{Catalog, Oid};

/// See the module's description.
#[derive(Default)]
pub(super) struct SequenceValues {
    current: HashMap<Oid, i64>,
    last: Option<Oid>,
}

impl Facts {
    /// A sequence has given a value, or was set to it. `is_last`: lastval gives it, too.
    pub(crate) fn note_sequence(&self, sequence: Oid, value: i64, is_last: bool) {
        let mut sequences = self.sequences.lock();
        sequences.current.insert(sequence, value);
        if is_last {
            sequences.last = Some(sequence);
        }
    }

    pub(crate) fn current_value(&self, sequence: Oid) -> Option<i64> {
        self.sequences.lock().current.get(&sequence).copied()
    }

    /// The sequence nextval was last called for, with its value.
    pub(crate) fn last_value(&self) -> Option<(Oid, i64)> {
        let sequences = self.sequences.lock();
        let last = sequences.last?;
        sequences.current.get(&last).map(|value| (last, *value))
    }

    /// What each sequence gave last; that of lastval comes last.
    pub(super) fn given_values(&self) -> Vec<(Oid, i64)> {
        let sequences = self.sequences.lock();
        let mut given: Vec<(Oid, i64)> =
            sequences.current.iter().map(|(oid, value)| (*oid, *value)).collect();
        given.sort_unstable_by_key(|(oid, _)| (sequences.last == Some(*oid), *oid));
        given
    }

    /// Forgets what was given by sequences that are gone.
    pub(super) fn forget_sequences_without(&self, catalog: &Catalog) {
        self.sequences.lock().current.retain(|oid, _| catalog.sequence_by_oid(*oid).is_some());
    }

    /// DISCARD SEQUENCES.
    pub(crate) fn forget_sequences(&self) {
        *self.sequences.lock() = SequenceValues::default();
    }
}
