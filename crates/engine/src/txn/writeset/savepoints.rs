//! Points to which what was written is taken back, and the beginnings of statements that may be run
//! again.

use super::{Savepoint, WriteSet, write_bytes};
use crate::TreeId;

impl WriteSet {
    pub(crate) fn savepoint(&mut self) -> Savepoint {
        self.ordinal += 1;
        let savepoint = Savepoint {
            ordinal: self.ordinal,
            sequence: self.sequence,
            journal: self.journal.len(),
            dropped: self.dropped.len(),
        };
        self.savepoints.push(savepoint);
        savepoint
    }

    /// A statement begins that may be undone, up to the next such call or `end_statement`. Answers
    /// with the last write before it; `None` if there are trees of the transaction's own, of which
    /// parts may go to disk: only a savepoint remembers where it was then.
    pub(crate) fn begin_statement(&mut self) -> Option<u64> {
        self.statement = if self.private().is_none() { self.sequence } else { 0 };
        self.private().is_none().then_some(self.sequence)
    }

    /// The statement will not be undone by itself.
    pub(crate) fn end_statement(&mut self) {
        self.statement = 0;
    }

    /// Undoes every write after the beginning of the statement, which may be run again.
    pub(crate) fn undo_statement(&mut self, begin: u64) {
        assert_eq!(self.statement, begin, "what is undone is the statement that runs");
        if self.sequence == begin {
            // It has waited for a row, and written none: nearly always so.
            return;
        }
        let bytes = &mut self.bytes;
        for (_, writes) in &self.trees {
            writes.map.lock().retain(|key, list| {
                while let Some(last) = list.last().filter(|write| write.sequence > begin) {
                    *bytes -= write_bytes(key, &last.value).min(*bytes);
                    list.pop();
                }
                !list.is_empty()
            });
        }
    }

    /// The keys that were first written after `savepoint`, but for those in trees of the
    /// transaction's own; some of them perhaps more than once.
    pub(crate) fn for_each_first_since(&self, savepoint: Savepoint, mut each: impl FnMut(TreeId, &[u8])) {
        let known = self.savepoints.iter().find(|open| open.ordinal == savepoint.ordinal);
        let savepoint = known.copied().unwrap_or(savepoint);
        for (tree, key) in &self.journal[savepoint.journal.min(self.journal.len())..] {
            let Some((_, writes)) = self.trees.iter().find(|(t, _)| t == tree) else { continue };
            if writes.private {
                continue;
            }
            let is_first = (writes.map.lock().get(key))
                .and_then(|list| list.first())
                .is_some_and(|first| first.sequence > savepoint.sequence);
            if is_first {
                each(*tree, key);
            }
        }
    }

    /// Undoes every write after `savepoint`, which stays open; later savepoints are gone.
    pub(crate) fn rollback_to(&mut self, savepoint: Savepoint) {
        // A spill may have moved its place in the journal.
        let known = self.savepoints.iter().find(|open| open.ordinal == savepoint.ordinal);
        let savepoint = known.copied().unwrap_or(savepoint);
        for (tree, key) in self.journal.drain(savepoint.journal.min(self.journal.len())..) {
            let Some((_, writes)) = self.trees.iter().find(|(t, _)| *t == tree) else { continue };
            let mut map = writes.map.lock();
            let Some(list) = map.get_mut(&key) else { continue };
            while let Some(last) = list.last().filter(|w| w.sequence > savepoint.sequence) {
                let size = write_bytes(&key, &last.value);
                self.bytes -= size.min(self.bytes);
                if writes.private {
                    self.bulk.bytes -= size.min(self.bulk.bytes);
                }
                list.pop();
            }
            if list.is_empty() {
                map.remove(&key);
            }
        }
        self.dropped.truncate(savepoint.dropped);
        self.close_from(savepoint);
        self.savepoints.push(savepoint);
    }

    /// Forgets `savepoint` and later ones; their writes stay.
    pub(crate) fn release(&mut self, savepoint: Savepoint) {
        self.close_from(savepoint);
        if self.savepoints.is_empty() {
            self.journal = Vec::new();
        }
    }

    fn close_from(&mut self, savepoint: Savepoint) {
        while self.savepoints.last().is_some_and(|s| s.ordinal >= savepoint.ordinal) {
            self.savepoints.pop();
        }
    }
}
