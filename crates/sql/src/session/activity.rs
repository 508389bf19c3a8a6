//! What a session does, for others to look at: the text of the statement that runs or ran last, and
//! since when, and since when it is in a transaction (`pg_stat_activity`).
//!
//! A statement of any length may run: what is shown of it is a copy if it is long, so nothing that
//! others keep counts for memory that the statement has given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::Mutex;

use super::{Session, TransactionStatus};

/// So many bytes of a statement are shown, as PostgreSQL's `track_activity_query_size` has it.
const SHOWN: usize = 1023;

/// What a session does.
#[derive(Default)]
pub(crate) struct Activity {
    doing: Mutex<Doing>,
    /// When the transaction began, in the same unit; 0 outside of one.
    transaction_began: AtomicI64,
    /// A statement lets time pass: `pg_sleep`.
    pauses: AtomicBool,
}

/// What a session does, or did last. Moments are microseconds since 2000-01-01 UTC, 0 before the
/// first statement.
#[derive(Clone, Default)]
pub(crate) struct Doing {
    pub(crate) runs: bool,
    pub(crate) text: Option<Arc<str>>,
    /// When the statement began.
    pub(crate) began: i64,
    /// When it began or ended.
    pub(crate) changed: i64,
    /// What its client was told last of a block.
    pub(crate) told: TransactionStatus,
}

impl Activity {
    /// A statement of this text begins, or goes on.
    pub(super) fn begin(&self, text: Option<&Arc<str>>, now: i64) {
        let mut doing = self.doing.lock();
        // Who executes a statement again and again shows the same one.
        let is_shown = |known: &Arc<str>| text.is_some_and(|text| Arc::ptr_eq(known, text));
        if !doing.text.as_ref().is_some_and(is_shown) {
            doing.text = text.map(shown);
        }
        (doing.runs, doing.began, doing.changed) = (true, now, now);
    }

    /// The client is waited for.
    pub(super) fn end(&self, now: i64) {
        let mut doing = self.doing.lock();
        doing.runs = false;
        doing.changed = now;
    }

    fn tell(&self, status: TransactionStatus) {
        self.doing.lock().told = status;
    }

    /// A transaction begins.
    pub(super) fn begin_transaction(&self, now: i64) {
        self.transaction_began.store(now, Ordering::Relaxed);
    }

    /// It has ended.
    pub(super) fn end_transaction(&self) {
        self.transaction_began.store(0, Ordering::Relaxed);
    }

    /// When the open transaction began.
    pub(super) fn transaction_began(&self) -> Option<i64> {
        Some(self.transaction_began.load(Ordering::Relaxed)).filter(|began| *began != 0)
    }

    /// The statement begins, or ceases, to let time pass.
    pub(super) fn pause(&self, begins: bool) {
        self.pauses.store(begins, Ordering::Relaxed);
    }

    pub(super) fn pauses(&self) -> bool {
        self.pauses.load(Ordering::Relaxed)
    }

    pub(super) fn look(&self) -> Doing {
        self.doing.lock().clone()
    }
}

impl Session {
    /// Whether a block is open, as its client is told now, and others can see.
    pub fn tell_status(&self) -> TransactionStatus {
        let status = self.status();
        self.facts.activity.tell(status);
        status
    }
}

/// What others see of a text.
fn shown(text: &Arc<str>) -> Arc<str> {
    if text.len() <= SHOWN {
        return Arc::clone(text);
    }
    text[..text.floor_char_boundary(SHOWN)].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long: Arc<str> = "é".repeat(SHOWN).into();
        assert_eq!(shown(&long).len(), SHOWN - 1);
        let short: Arc<str> = "SELECT 1".into();
        assert!(Arc::ptr_eq(&shown(&short), &short));
    }

    #[test]
    fn the_text_is_that_of_the_last_statement() {
        let activity = Activity::default();
        let (one, other): (Arc<str>, Arc<str>) = ("SELECT 1".into(), "SELECT 2".into());
        let long: Arc<str> = "x".repeat(2 * SHOWN).into();
        let shown = |text: Option<&Arc<str>>, now: i64| {
            activity.begin(text, now);
            let doing = activity.look();
            activity.end(now);
            assert_eq!((doing.runs, doing.began, doing.changed), (true, now, now));
            doing.text.map(|text| text.len().to_string() + &text[..text.len().min(8)])
        };
        for (text, now, expected) in [
            (Some(&one), 1, Some("8SELECT 1")),
            (Some(&one), 2, Some("8SELECT 1")),
            (Some(&other), 3, Some("8SELECT 2")),
            (Some(&long), 4, Some("1023xxxxxxxx")),
            (Some(&long), 5, Some("1023xxxxxxxx")),
            (None, 6, None),
            (Some(&one), 7, Some("8SELECT 1")),
        ] {
            assert_eq!(shown(text, now).as_deref(), expected);
        }
    }

    #[test]
    fn the_last_text_stays() {
        let activity = Activity::default();
        activity.begin(Some(&"SELECT 1".into()), 7);
        activity.end(9);
        let doing = activity.look();
        assert_eq!(
            (doing.runs, doing.text.as_deref(), doing.began, doing.changed),
            (false, Some("SELECT 1"), 7, 9)
        );
    }
}
