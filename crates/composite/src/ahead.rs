//! Calls that are answered ahead of their commits.
//!
//! A call of another root's has done all it will when its handler has answered: what is left is the
//! slot and COMMIT, which wait for the database's flush. If whoever calls lets that be
//! (`Cognate-Ahead`) he is answered first, so the commits of a root go on beside its next calls.
//! The vote waits for them, and whoever votes yes has committed, as ever.
//!
//! ```text
//! call ─▶ handler ─▶ slot and COMMIT ─▶ 2xx                       without
//! call ─▶ handler ─▶ 2xx ─▶ the next call, the question for the vote …
//!                     └─▶ slot and COMMIT ─▶ the question is answered
//! ```
//!
//! # Why that is right
//!
//! An answer ahead says nothing that the vote does not say again. What may come in between:
//!
//! - *The commit fails, or the process ends before it.* Then the slot is not there. This process
//!   has the root undone, marks it, and votes no; a later one does not know the call, so the count
//!   is another one. If the same call comes late and is executed again, the root is marked, or its
//!   yes is known by another nonce than the answer has announced, which the caller takes for a no.
//!   So no one is answered ahead without a nonce, and nobody who does not compare them may ask for
//!   it.
//! - *Others see too little.* Its lock is held as before, and siblings that conflict wait until the
//!   commit has ended. Who does not conflict does not care: a later call of the same root that is
//!   declared compatible may not see it yet. An ancestor at the same component goes on in the same
//!   database with no lock against it, so there nobody is answered ahead; where the root began that
//!   holds for all. Two components that use the same tables are not told apart from two that do
//!   not: the one that is called has to be told (`Component::answers_after_commits`).
//! - *The root ends meanwhile.* An undo waits for the commit, then takes it back.
//! - *The call comes again.* It is answered the same.
//! - *The local transaction met another one* (40001). It is run again if it has called nobody. If
//!   it answers the same it is as if it had been executed once: its lock was held all the time. If
//!   it does not, the commit has failed.
//! - *The service would have refused at COMMIT* (a deferred constraint), and its caller would have
//!   done something else. The root is begun again, and its second attempt lets nobody answer ahead.
//!
//! Calls without undo have to be prepared first, and those that only read have no flush to wait
//! for: neither is answered ahead. A root is, as before, answered when it is decided.
//!
//! What a service reads in a transaction that is rolled back afterwards need not have a place in
//! the order of all others, though it was there; that holds for its own refusals, too. So a client
//! may be refused for something that a commit which failed has read. Nobody commits because of it.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::node::Node;
use crate::participant::{Arrival, Event, Nonce};
use crate::problem::{Error, Problem};
use crate::run::Request;

/// An answer, and what a yes to its root will be known by.
pub(crate) type Said = (String, Nonce);

/// Whoever may be answered ahead of a commit, and what he was answered.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    caller: Option<oneshot::Sender<Said>>,
    said: Option<String>,
}

impl Ahead {
    /// This one lets it be.
    pub(crate) fn of(caller: oneshot::Sender<Said>) -> Ahead {
        Ahead { caller: Some(caller), said: None }
    }

    /// Whether this can be the call's answer: what was said before stays.
    pub(crate) fn allows(&self, answer: &str) -> Result<(), Error> {
        match &self.said {
            Some(said) if said != answer => {
                let why = "run again, the call has another answer than its caller was given";
                Err(Problem::new(409, "conflict", why).into())
            }
            _ => Ok(()),
        }
    }

    /// The call has failed. Who was answered ahead hears of it by the vote, which says less.
    pub(crate) fn has_failed(&self, request: &Request, problem: &Problem) {
        if self.said.is_none() {
            return;
        }
        let Arrival { root, call, .. } = &request.arrival;
        match problem.is_transient() {
            // Its root is begun again, as ever.
            true => tracing::debug!(%root, %call, "answered ahead of a commit that has failed: {problem}"),
            false => tracing::warn!(%root, %call, "answered ahead of a commit that has failed: {problem}"),
        }
    }
}

impl Node {
    /// Answers a call whose commit is about to be sent, if its caller lets that be and nothing is
    /// in the way. Answers whether it was done now.
    pub(crate) fn answer_ahead(
        self: &Arc<Self>,
        request: &Request,
        (answer, nonce): (&str, Option<Nonce>),
        ahead: &mut Ahead,
    ) -> bool {
        if self.options.answers_after_commits {
            return false;
        }
        let (Some(nonce), Some(caller)) = (nonce, ahead.caller.take()) else { return false };
        let Arrival { root, call, .. } = &request.arrival;
        let is_said = !self.tell(Event::Committing(root.clone(), call.clone(), answer.into())).is_empty();
        if is_said {
            ahead.said = Some(answer.to_owned());
            // Whoever has gone away has not taken anything with him.
            let _ = caller.send((answer.to_owned(), nonce));
        }
        is_said
    }
}
