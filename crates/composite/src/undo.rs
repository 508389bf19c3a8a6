//! The end of calls: an undo, or the end of a branch. Each is tried again until it is done.
//!
//! An attempt to undo has a bound, since nothing else ends it: a root that is being undone has no
//! time that could be over. What is not done then has its statement cancelled and its connection
//! closed. Its COMMIT may be carried out all the same, then or later; it frees the slot, and frees
//! it only if it is this root's. So of all attempts one is committed, and the next one finds that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::call::Undo;
use crate::database::Parameters;
use crate::fault;
use crate::name::{CallId, RootId};
use crate::node::{AGAIN, Node, Parked, RETRY, pause};
use crate::participant::{Event, Outcome, Slot};
use crate::problem::{Error, Problem};
use crate::service::caught;
use crate::slots::Facts;
use crate::sql::{Begin, NotCommitted, Sql};
use crate::statements::{RELEASE, UNDONE};

/// An undo that has failed so often is parked.
const UNDO_ATTEMPTS: u32 = 8;

impl Node {
    /// Commits a branch, until it is done.
    pub(crate) async fn commit_held(self: Arc<Self>, root: RootId, call: CallId) {
        let known = self.core().facts.get(&root).and_then(|calls| calls.get(&call)).cloned();
        let (slot, facts) = known.expect("what is committed has a slot");
        let name = facts.branch.as_deref().expect("what is kept prepared has a name");
        for attempt in 1.. {
            pause(AGAIN, attempt).await;
            match self.end_branch(&root, slot, name, Outcome::Committed).await {
                Ok(()) => return drop(self.tell(Event::HeldCommitted(root, call))),
                Err(why) => tracing::warn!(%root, %call, attempt, "cannot be committed yet: {why}"),
            }
        }
    }

    async fn end_branch(
        &self,
        root: &RootId,
        slot: Slot,
        name: &str,
        outcome: Outcome,
    ) -> Result<(), Problem> {
        let own = (self.slots.component(), self.slots.generation());
        crate::branch::end(&self.pool, own, (name, slot, root), outcome).await
    }

    /// Undoes a call until it is done; too many failures park it until a person says more.
    pub(crate) async fn undo(self: Arc<Self>, root: RootId, call: CallId) {
        let known = self.core().facts.get(&root).and_then(|calls| calls.get(&call)).cloned();
        let (slot, mut facts) = known.expect("what is undone has a slot");
        let (mut attempt, mut met) = (0u32, 0u32);
        loop {
            let why = match self.undo_once(&root, slot, &facts).await {
                Ok(()) => break,
                // It met another local transaction, which is nobody's fault.
                Err(why) if why.is_transient() => {
                    met += 1;
                    sleep(RETRY.pause(met + 1, rand::random::<u64>())).await;
                    continue;
                }
                // Its database is away: that passes, and a person could do nothing else.
                Err(why) if why.reason == "database" => {
                    met += 1;
                    sleep(AGAIN.pause(met + 1, rand::random::<u64>())).await;
                    continue;
                }
                Err(why) => why,
            };
            attempt += 1;
            sleep(AGAIN.pause(attempt + 1, rand::random::<u64>())).await;
            tracing::warn!(%root, %call, attempt, "cannot be undone yet: {why}");
            if attempt % UNDO_ATTEMPTS == 0 {
                let (resume, is_by_hand) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
                let (root, call) = (root.clone(), call.clone());
                tracing::error!(%root, %call, slot, "parked: resume it by POST /composite/resume {{\"slot\":{slot}}}");
                let why = why.to_string();
                let (resumed, by_hand) = (Arc::clone(&resume), Arc::clone(&is_by_hand));
                let parked = Parked { root, call, slot, why, resume: resumed, is_by_hand: by_hand };
                self.core().parked.push(parked);
                resume.notified().await;
                if is_by_hand.load(Ordering::SeqCst) {
                    facts.undo.clear();
                }
            }
        }
        fault::point("undo-after");
        self.slots.released(slot);
        if let Some(calls) = self.core().facts.get_mut(&root) {
            calls.remove(&call);
        }
        self.tell(Event::Undone(root, call));
    }

    /// Waits until the root's mark is durable. Once a call is undone, that is all that keeps the
    /// same one away when it comes late, also after a crash.
    async fn marked(&self, root: &RootId) {
        if self.journal.written().await.is_err() {
            tracing::error!(%root, "is undone, and the journal cannot say so");
        }
    }

    async fn undo_once(&self, root: &RootId, slot: Slot, facts: &Facts) -> Result<(), Problem> {
        if let Some(name) = &facts.branch {
            self.marked(root).await;
            return self.end_branch(root, slot, name, Outcome::Aborted).await;
        }
        let missing =
            |what: &str| Problem::new(400, "failed", format!("{what} of service {}", facts.service));
        fault::point("undo-before");
        let service = self.services.iter().find(|service| service.declared.name == facts.service);
        let service = service.ok_or_else(|| missing("the component has no"))?;
        // A call that only read has a slot if it has called others, and that is to be written.
        let begin = match service.begin {
            Begin::ReadOnly => Begin::ReadCommitted,
            begin => begin,
        };
        let sql = Arc::new(Sql::new(&self.pool, begin, false));
        let work = async {
            for pushed in facts.undo.iter().rev() {
                let undo = service.undo.as_ref().ok_or_else(|| missing("there is no undo"))?;
                let undoing = undo(Undo::new(Arc::clone(&sql)), pushed);
                undoing
                    .map_err(|error| missing(&format!("what was stored does not fit the undo ({error})")))?
                    .await?;
            }
            Ok::<(), Error>(())
        };
        let within = self.options.undo_within;
        let undone = timeout(within, caught(work)).await.unwrap_or_else(|_| {
            // Connections as old as one that does not answer would be tried one after the other.
            self.pool.close_idle();
            Err(Problem::new(504, "deadline", "the undo did not end in its time").into())
        });
        if let Err(error) = undone {
            sql.roll_back().await;
            return Err(error.into_problem());
        }
        self.marked(root).await;
        let (component, generation) = (self.slots.component(), self.slots.generation());
        let (slot, root) = (slot as i32, root.as_str());
        fault::point("undo-between");
        let freed: Parameters<'_> = &[component, &slot, generation, &root];
        let released = timeout(within, sql.commit(&[(RELEASE, freed)])).await;
        match released.unwrap_or(Err(NotCommitted::Unknown)) {
            Ok(()) => Ok(()),
            // An earlier attempt was given up, and has come through after all.
            Err(NotCommitted::RolledBack(error)) if error.is_of_cast(UNDONE) => Ok(()),
            Err(NotCommitted::RolledBack(error)) => Err(self.after_slot(error).await),
            // The slot says whether it is done.
            Err(NotCommitted::Unknown) => match self.is_released(slot as Slot).await? {
                true => Ok(()),
                false => Err(Problem::new(503, "database", "the answer of COMMIT was lost")),
            },
        }
    }
}
