//! What a session does, for others to look at: the text of the statement that runs or ran last, and
//! since when (`pg_stat_activity`).
//!
//! A statement of any length may run: what is shown of it is a copy if it is long, so nothing that
//! others keep counts for memory that the statement has given back.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Session, TransactionStatus};

/// So many bytes of a statement are shown, as PostgreSQL's `track_activity_query_size` has it.
const SHOWN: usize = 1023;

/// What a session does.
#[derive(Default)]
pub(crate) struct Activity(Mutex<Doing>);

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
        let text = text.map(shown);
        let mut doing = self.0.lock();
        *doing = Doing { runs: true, text, began: now, changed: now, told: doing.told };
    }

    /// The client is waited for.
    pub(super) fn end(&self, now: i64) {
        let mut doing = self.0.lock();
        doing.runs = false;
        doing.changed = now;
    }

    fn tell(&self, status: TransactionStatus) {
        self.0.lock().told = status;
    }

    pub(super) fn look(&self) -> Doing {
        self.0.lock().clone()
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
