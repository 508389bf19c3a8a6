//! What has become of a local transaction whose answer was lost or refused: looked up where nobody
//! can be writing any more.

use crate::name::RootId;
use crate::node::{AGAIN, Node, pause};
use crate::participant::Slot;
use crate::problem::{Error, Problem};
use crate::slots::{FENCE, fenced};

impl Node {
    /// What the failure of a statement about a slot means.
    pub(crate) async fn after_slot(&self, error: Error) -> Problem {
        let is_of_fence = match &error {
            Error::Database(error) => error.code().is_some_and(|code| code.code() == "22012"),
            _ => false,
        };
        if is_of_fence {
            self.fence();
            return fenced();
        }
        error.into_problem()
    }

    /// Another process has the component: this one takes no calls any more.
    fn fence(&self) {
        if !self.is_fenced.swap(true, std::sync::atomic::Ordering::SeqCst) {
            tracing::error!("another process has taken component {} over; this one ends", self.name);
        }
        self.fenced.notify_waiters();
    }

    /// Whether no later process has taken the component over. Without an answer of the database
    /// that is not known, and so it is not.
    pub(crate) async fn is_current(&self) -> bool {
        // Others wait for whoever asks.
        let Ok(lease) = self.pool.take_as(true).await else { return false };
        match lease.query(FENCE, &[self.slots.component(), self.slots.generation()]).await {
            Ok(_) => {
                lease.give_back();
                true
            }
            Err(error) => {
                self.after_slot(error.into()).await;
                false
            }
        }
    }

    /// Whether a branch is prepared, once nobody can be preparing it any more.
    pub(crate) async fn is_prepared(&self, name: &str, slot: Slot) -> bool {
        self.pool.close_idle();
        for attempt in 1u32.. {
            pause(AGAIN, attempt).await;
            match crate::branch::is_prepared(&self.pool, self.slots.component(), name, slot).await {
                Ok(is_prepared) => return is_prepared,
                Err(why) => tracing::warn!(slot, "it is not known yet whether a branch is prepared: {why}"),
            }
        }
        false
    }

    /// Nothing of a root is left that was not even begun.
    pub(crate) fn forget_branch(&self, root: &RootId) {
        let core = self.core();
        if !core.participant.knows(root) && !core.participant.is_marked(root) {
            self.journal.forget(root);
        }
    }

    /// Whether a slot holds this call's root (or none), once whoever still writes it has ended.
    pub(crate) async fn is_written(&self, slot: Slot, root: Option<&RootId>) -> Result<bool, Problem> {
        self.pool.close_idle();
        for attempt in 1u32.. {
            pause(AGAIN, attempt).await;
            let Ok(lease) = self.pool.take().await else { continue };
            // An update waits for the row; a read would not.
            let touch = "UPDATE cognate_composite.slot SET generation = generation
                WHERE component = $1 AND id = $2 AND generation = $3 RETURNING root";
            let row =
                lease.query(touch, &[self.slots.component(), &(slot as i32), self.slots.generation()]).await;
            let Ok(rows) = row else { continue };
            lease.give_back();
            let Some(row) = rows.first() else {
                self.fence();
                return Err(fenced());
            };
            return Ok(row.get::<_, Option<String>>(0).as_deref() == root.map(RootId::as_str));
        }
        Ok(false)
    }
}
