//! What statements have to tell their client besides their answers. It waits in the session until a
//! statement has ended, and may take so much: a block that tells something in a loop fails rather
//! than fill the memory.

use super::Session;
use super::facts::Facts;
use crate::error::{Result, SqlError, sqlstate};

/// So many bytes of notices wait.
const WAITING_BYTES: usize = 16 << 20;
/// What a notice takes besides its texts, about.
const NOTICE_BYTES: usize = 384;
/// So many notices of functions wait, which are short.
const NOTICES_MAX: usize = WAITING_BYTES / NOTICE_BYTES / 2;

/// Notices that have been counted, and the bytes that they take.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    number: usize,
    bytes: usize,
}

fn too_many() -> SqlError {
    SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "too many notices for one statement")
        .with_detail(format!("Those of a statement may take {} MB.", WAITING_BYTES >> 20))
}

fn bytes(notice: &SqlError) -> usize {
    let others = [&notice.detail, &notice.hint, &notice.context].into_iter().flatten();
    NOTICE_BYTES + notice.message.len() + others.map(String::len).sum::<usize>()
}

impl Facts {
    /// The client is told this after the statement. 54000 if as much waits as may.
    pub(crate) fn notify(&self, notice: SqlError) -> Result<()> {
        let mut waiting = self.notices.lock();
        if waiting.len() >= NOTICES_MAX {
            return Err(too_many());
        }
        waiting.push(notice);
        Ok(())
    }

    /// What was left by `notify`.
    pub(super) fn take_notices(&self) -> Vec<SqlError> {
        std::mem::take(&mut *self.notices.lock())
    }
}

impl Session {
    /// 54000 if more waits than may.
    pub(super) fn check_notices(&mut self) -> Result<()> {
        if self.counted_notices.number > self.notices.len() {
            self.counted_notices = Counted::default();
        }
        let fresh = &self.notices[self.counted_notices.number..];
        self.counted_notices.bytes += fresh.iter().map(bytes).sum::<usize>();
        self.counted_notices.number = self.notices.len();
        if self.counted_notices.bytes <= WAITING_BYTES { Ok(()) } else { Err(too_many()) }
    }
}
