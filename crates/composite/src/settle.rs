//! What a person decides: how a root ends that no parent can end any more, and what becomes of an
//! undo that does not succeed.
//!
//! A parent that tells an outcome remembers it until all is done, and says it again. A person says
//! it once, and goes. So it is said to be done only when the next start of the component finds it:
//! in the journal (a root is aborted), in the slots (it is committed), or because nothing is left
//! (what was undone by hand has no slot any more, and is not undone once more).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::name::{CallId, RootId};
use crate::node::{Core, Node, Parked};
use crate::participant::{Effect, Event, Outcome, Settled, Slot};
use crate::problem::Problem;

/// How often it is looked at what a person waits for.
const LOOK: Duration = Duration::from_millis(10);

impl Node {
    /// A person has decided for a root that is in doubt, or has undone by hand what is parked of
    /// it. `Pending` says that the database has not taken it until then: it goes on, and the person
    /// may ask again.
    ///
    /// # Errors
    /// There is nothing of the root that a person decides; the journal cannot be written.
    pub(crate) async fn settle(
        self: &Arc<Self>,
        root: &RootId,
        outcome: Outcome,
        until: Instant,
    ) -> Result<Settled, Problem> {
        let by_hand = match outcome {
            Outcome::Aborted => self.settle_parked(root),
            Outcome::Committed | Outcome::Pending => Vec::new(),
        };
        if !by_hand.is_empty() {
            let is_left = |core: &Core, call: &CallId| core.participant.sequence(root, call).is_some();
            return Ok(self.lasting(until, |core| !by_hand.iter().any(|call| is_left(core, call))).await);
        }
        let effects = {
            let mut core = self.core();
            let is_committed = outcome == Outcome::Committed && core.participant.is_settled(root);
            if !is_committed && !core.participant.is_in_doubt(root) {
                let why = "this root is not in doubt here, nor is an undo of it parked that was made by hand";
                return Err(Problem::new(404, "root", why));
            }
            let effects = core.participant.handle(Event::Settle(root.clone(), outcome));
            self.perform(&mut core, &effects);
            effects
        };
        let is_marked = effects.iter().any(|effect| matches!(effect, Effect::Mark(..)));
        // Or the next start would be in doubt about what a person was told is settled.
        if is_marked && self.journal.written().await.is_err() {
            return Err(Problem::new(503, "journal", "the journal cannot be written"));
        }
        Ok(self.lasting(until, |core| !core.participant.is_settled(root)).await)
    }

    /// Waits until something is so, or until then.
    async fn lasting(&self, until: Instant, is_it: impl Fn(&Core) -> bool) -> Settled {
        loop {
            let is_so = is_it(&self.core());
            if is_so {
                return Settled::Done;
            }
            if Instant::now() >= until {
                return Settled::Pending;
            }
            sleep(LOOK).await;
        }
    }

    /// A person has undone by hand what is parked of a root: its slots are freed. Answers all calls
    /// of which a person has said so, also before.
    fn settle_parked(&self, root: &RootId) -> Vec<CallId> {
        let mut core = self.core();
        let all = std::mem::take(&mut core.parked);
        let (settled, others): (Vec<Parked>, Vec<Parked>) =
            all.into_iter().partition(|parked| parked.root == *root);
        core.parked = others;
        for parked in settled {
            parked.is_by_hand.store(true, Ordering::SeqCst);
            parked.resume.notify_one();
            core.by_hand.entry(parked.root).or_default().push(parked.call);
        }
        core.by_hand.get(root).cloned().unwrap_or_default()
    }

    /// Tries a parked undo again.
    pub(crate) fn resume(&self, slot: Slot) -> bool {
        let mut core = self.core();
        let Some(place) = core.parked.iter().position(|parked| parked.slot == slot) else { return false };
        core.parked.remove(place).resume.notify_one();
        true
    }
}
