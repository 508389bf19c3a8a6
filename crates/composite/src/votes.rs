//! How a yes becomes durable.
//!
//! It is so already, most of the time: the calls' local transactions have committed their slots
//! before the calls were answered, and a start takes every slot whose root has no end for a yes.
//! What a yes says besides is in the slots, too: the nonce that it is known by, which the answers
//! to calls announce (`Cognate-Nonce`), the announced nonces of those whom the calls have called,
//! and where the caller decides (`Cognate-Origin`). So there is nothing to write, and nobody waits,
//! unless votes have paused (see below).
//!
//! ```text
//! call      slot 17 {…,"nonce":7,"nonces":[["payment",3]]} committed ─▶ 2xx, Cognate-Nonce: 7
//! prepare   yes, 7                                                      at once
//! started   slot 17 is in use ─▶ in doubt, 7 ─▶ asks its parent
//! ```
//!
//! A start that knows that no yes was given to a root has no doubt of it: it is undone at its
//! deadline, as if nothing had happened. So the journal says who was promised at each start, and
//! when no yes was given for a while ([`QUIET`]). The next one waits for a flush, since what that
//! record says is over then; those that follow wait for nothing.
//!
//! ```text
//! started            {"quiet":[2,[]]}
//! first yes          "voting", flushed            ended here: each root that has slots is in doubt
//! a moment later     {"quiet":[2,["r"]]}          ended here: r is, if it has not ended
//! ```
//!
//! There is a record in the journal, flushed before the yes, where the slots do not say all that:
//!
//! - a child's vote has another nonce than its answers have announced, or these announced none (it
//!   refused each call, or is written in another language);
//! - the parent that asks decides elsewhere than the call has said, or has not said it;
//! - a slot was written by an earlier build, which announced nothing.
//!
//! Calls without slots (they only read) have nothing that a start would have to end. Their locks
//! are in this process only; so before its yes it looks whether it still has the component.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use tokio::time::Instant;

use crate::fault;
use crate::name::{Name, RootId};
use crate::node::{Core, Node};
use crate::participant::{Event, Nonce, Origin, VoteFacts};
use crate::slots::Facts;
use crate::wire;

/// When no yes was given for so long, the journal says who has one.
const QUIET: Duration = Duration::from_millis(100);

/// A number for a yes that no earlier one had. JSON's numbers are exact up to here everywhere.
pub(crate) fn new_nonce() -> Nonce {
    (rand::random::<u64>() >> 11).max(1)
}

/// The yes can be given, or not.
fn ready(root: RootId, is_ready: bool) -> Event {
    fault::point("vote-write-after");
    if is_ready { Event::VoteWritten(root) } else { Event::VoteFailed(root) }
}

impl Node {
    /// Makes a yes durable.
    pub(crate) fn write_vote(self: &Arc<Self>, core: &mut Core, root: RootId, nonce: Option<Nonce>) {
        fault::point("vote-write-before");
        let record = match core.is_in_slots(&root) {
            // A start finds nothing of what has only read.
            true if !core.participant.has_slots(&root) => None,
            true => {
                core.voted = Some(Instant::now());
                self.journal.voting()
            }
            false => Some(self.journal.vote(core.vote_facts(&root, nonce))),
        };
        // What has slots is fenced by them. Locks that are in this process only, of calls that only
        // read, may have been given to others by a later process since.
        let needs_fence = core.participant.has_slotless(&root);
        if record.is_none() && !needs_fence {
            let effects = core.participant.handle(ready(root, true));
            return self.perform(core, &effects);
        }
        let node = Arc::clone(self);
        tokio::spawn(async move {
            let is_written = match record {
                None => true,
                Some(Ok(wait)) => wait.await.is_ok(),
                Some(Err(_)) => false,
            };
            let is_ready = is_written && (!needs_fence || node.is_current().await);
            node.tell(ready(root, is_ready));
        });
    }

    /// Writes who was promised, if no yes was given for a while.
    pub(crate) fn note_quiet(&self, now: Instant) {
        let mut core = self.core();
        if core.voted.is_none_or(|voted| now < voted + QUIET) {
            return;
        }
        core.voted = None;
        fault::point("quiet-write-before");
        match self.journal.quiet(self.generation(), core.participant.promised()) {
            Ok(written) => drop(tokio::spawn(async move {
                if written.await.is_ok() {
                    fault::point("quiet-write-after");
                }
            })),
            Err(error) => tracing::error!("the journal cannot be written: {error}"),
        }
    }

    /// What a yes to the root of an answered call will be known by.
    pub(crate) fn announced(&self, headers: &HeaderMap) -> Option<Nonce> {
        let root = headers.get(wire::ROOT)?.to_str().ok()?;
        let root = RootId::new(root.trim()).ok()?;
        self.core().participant.nonce(&root, new_nonce())
    }
}

impl Core {
    /// Whether a start would find in the slots all that a yes says.
    fn is_in_slots(&self, root: &RootId) -> bool {
        let is_told = |(parent, origin): &(Name, Origin)| {
            let calls = self.facts.get(root).into_iter().flat_map(|calls| calls.values());
            let mut of_parent = calls.filter(|(_, facts)| facts.parent.as_ref() == Some(parent));
            of_parent.all(|(_, facts)| facts.origin.as_ref() == Some(origin))
        };
        let mut origins = self.origins.get(root).into_iter().flatten();
        self.participant.is_in_slots(root) && origins.all(is_told)
    }

    /// A call was here before a start. What the journal says of its parent was said later.
    pub(crate) fn called_from(&mut self, root: &RootId, facts: &Facts) {
        let (Some(parent), Some(origin)) = (&facts.parent, &facts.origin) else { return };
        let known = self.origins.entry(root.clone()).or_default();
        if !known.iter().any(|(its, _)| its == parent) {
            known.push((parent.clone(), origin.clone()));
        }
    }

    fn vote_facts(&self, root: &RootId, nonce: Option<Nonce>) -> VoteFacts {
        let children = self.participant.children(root).into_iter();
        let children = children.filter_map(|(name, _, nonce)| Some((name, nonce?))).collect();
        let parents = self.participant.parents(root);
        let origins = self.origins.get(root).cloned().unwrap_or_default();
        VoteFacts { root: root.clone(), nonce, parents, children, origins }
    }

    /// Whether a parent that knows nothing of a root has never decided about it. One that was
    /// replaced, or restored from an earlier copy, may have: the root stays in doubt, and a person
    /// settles it.
    pub(crate) fn may_believe(&mut self, root: &RootId, parent: &Name, origin: Option<&Origin>) -> bool {
        let is_it = origin.is_none_or(|origin| self.may_say(root, parent, origin));
        if !is_it && self.forsaken.insert(root.clone(), parent.clone()).is_none() {
            tracing::error!(%root, %parent, "in doubt, and the parent has another database, or an earlier copy of it: settle it by hand");
        }
        is_it
    }

    /// Whether who says something of a root there, under the name of a parent, is whoever has asked
    /// for a vote under it, or came later. A process that was taken over may not know so yet: what
    /// it gives up at its deadline, a later one may have promised, and have had others promise.
    pub(crate) fn may_say(&self, root: &RootId, parent: &Name, origin: &Origin) -> bool {
        let mut known = self.origins.get(root).into_iter().flatten();
        let asked = known.find(|(name, _)| name == parent);
        asked.is_none_or(|(_, asked)| origin.speaks_for(asked))
    }
}
