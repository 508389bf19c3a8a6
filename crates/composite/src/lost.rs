//! What has become of a local transaction whose answer was lost or refused: looked up where nobody
//! can be writing any more.

use std::sync::Arc;

use crate::database::Parameters;
use crate::name::RootId;
use crate::node::{AGAIN, Node, pause};
use crate::participant::{Event, Slot};
use crate::problem::{Error, Problem};
use crate::slots::{Chosen, fenced};
use crate::statements::{FENCE, FENCED, RETIRE, TOUCH};

impl Node {
    /// What the failure of a statement about a slot means.
    pub(crate) async fn after_slot(&self, error: Error) -> Problem {
        if error.is_of_cast(FENCED) {
            self.fence();
            return fenced();
        }
        error.into_problem()
    }

    /// Another process has the component, or waits for it: this one takes no calls any more.
    pub(crate) fn fence(&self) {
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
        let (component, generation) = (self.slots.component(), self.slots.generation());
        match lease.in_time(lease.query(FENCE, &[component, generation])).await {
            Ok(_) => {
                lease.give_back();
                true
            }
            Err(error) => {
                self.after_slot(error).await;
                false
            }
        }
    }

    /// Whether a branch is prepared, once nobody can be preparing it any more. If it is not, its
    /// slot is retired.
    pub(crate) async fn is_prepared(&self, name: &str, slot: Slot) -> bool {
        self.pool.close_idle();
        for attempt in 1u32.. {
            pause(AGAIN, attempt).await;
            let own = (self.slots.component(), self.slots.generation());
            match crate::branch::is_prepared(&self.pool, own, name, slot).await {
                Ok(is_prepared) => return is_prepared,
                Err(why) => tracing::warn!(slot, "it is not known yet whether a branch is prepared: {why}"),
            }
            self.slots.spoil(slot);
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

    /// Whether a slot holds this root, once whoever still writes it has ended. If it does not, it
    /// never will: it is retired.
    pub(crate) async fn is_written(&self, slot: Slot, root: &RootId) -> Result<bool, Problem> {
        let (component, generation, name) = (self.slots.component(), self.slots.generation(), root.as_str());
        let retire: Parameters<'_> = &[component, &(slot as i32), generation, &name];
        let found = self.touch(RETIRE, retire, Some(slot)).await?;
        Ok(found.as_deref() == Some(name))
    }

    /// Whether a slot holds no root any more, once whoever still writes it has ended.
    pub(crate) async fn is_released(&self, slot: Slot) -> Result<bool, Problem> {
        let (component, generation) = (self.slots.component(), self.slots.generation());
        Ok(self.touch(TOUCH, &[component, &(slot as i32), generation], None).await?.is_none())
    }

    /// Updates a slot on a new connection until that is done: one that is not answered is given up,
    /// and said again. Answers whose the slot is afterwards. What is given up may come late, and
    /// `spoils` the slot if that would be a later root's.
    async fn touch(
        &self,
        update: &str,
        parameters: Parameters<'_>,
        spoils: Option<Slot>,
    ) -> Result<Option<String>, Problem> {
        self.pool.close_idle();
        for attempt in 1u32.. {
            pause(AGAIN, attempt).await;
            let Ok(lease) = self.pool.take().await else { continue };
            let Ok(rows) = lease.in_time(lease.query(update, parameters)).await else {
                if let Some(slot) = spoils {
                    self.slots.spoil(slot);
                }
                continue;
            };
            lease.give_back();
            let Some(row) = rows.first() else {
                self.fence();
                return Err(fenced());
            };
            return Ok(row.get(0));
        }
        unreachable!("an attempt returns")
    }

    /// The slot that a local transaction was to write is not used again; what it held before is
    /// freed. Answers what is said of that transaction.
    pub(crate) fn retired(self: &Arc<Self>, chosen: Chosen, end: &str) -> Error {
        if let Some(freed) = self.slots.written(chosen) {
            self.tell(Event::Freed(freed));
        }
        Problem::new(503, "database", format!("the connection was lost before {end}")).into()
    }
}
