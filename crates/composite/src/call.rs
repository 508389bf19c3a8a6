//! What a service has while it runs: SQL in its local transaction, calls of other services, and its
//! undo stack.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::fault;
use crate::name::{CallId, Name, RootId};
use crate::node::Node;
use crate::participant::{Event, Sent};
use crate::problem::{Error, Problem, Result};
use crate::service::Service;
use crate::sql::Sql;
use crate::wire::Trace;

/// A call that runs. Clones are handles to the same one.
#[derive(Clone)]
pub struct Call {
    inner: Arc<Inner>,
}

struct Inner {
    /// The component; none in the test kit, where nobody else is called.
    node: Option<Arc<Node>>,
    root: RootId,
    call: CallId,
    /// The calls that a call made here is part of: the root's first, this one last.
    chain: Vec<CallId>,
    deadline: Instant,
    /// Passed on to whoever is called.
    trace: Trace,
    /// The same: he may answer ahead of his commit.
    is_ahead: bool,
    sql: Sql,
    stack: Mutex<Vec<String>>,
    calls: AtomicU32,
    has_called: AtomicBool,
}

impl Call {
    pub(crate) fn new(
        node: &Arc<Node>,
        root: &RootId,
        call: &CallId,
        ancestors: &[CallId],
        passed_on: (Instant, &Trace, bool),
        sql: Sql,
    ) -> Call {
        Call::of(Some(Arc::clone(node)), root, call, ancestors, passed_on, sql)
    }

    /// A call that is part of nothing, and calls nobody.
    pub(crate) fn alone(root: &RootId, call: &CallId, deadline: Instant, sql: Sql) -> Call {
        Call::of(None, root, call, &[], (deadline, &Trace::default(), false), sql)
    }

    fn of(
        node: Option<Arc<Node>>,
        root: &RootId,
        call: &CallId,
        ancestors: &[CallId],
        (deadline, trace, is_ahead): (Instant, &Trace, bool),
        sql: Sql,
    ) -> Call {
        let chain = ancestors.iter().chain([call]).cloned().collect();
        Call {
            inner: Arc::new(Inner {
                node,
                root: root.clone(),
                call: call.clone(),
                chain,
                deadline,
                trace: trace.clone(),
                is_ahead,
                sql,
                stack: Mutex::default(),
                calls: AtomicU32::new(0),
                has_called: AtomicBool::new(false),
            }),
        }
    }

    /// The local transaction: begun by the first statement, committed when the service has
    /// answered.
    pub fn sql(&self) -> &Sql {
        &self.inner.sql
    }

    /// The root that this call is part of.
    pub fn root(&self) -> &RootId {
        &self.inner.root
    }

    /// When the root's time is over.
    pub fn deadline(&self) -> Instant {
        self.inner.deadline
    }

    /// Pushes what the undo of this call will need; stored in the commit of the local transaction.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub fn undo<T: Serialize>(&self, value: &T) -> Result<()> {
        let pushed = serde_json::to_string(value)
            .map_err(|error| Error::refuse(format!("what the undo needs cannot be written: {error}")))?;
        self.inner.stack.lock().unwrap_or_else(PoisonError::into_inner).push(pushed);
        Ok(())
    }

    /// Calls a service of another component, as part of the same root. Several calls may be under
    /// way at once.
    ///
    /// # Errors
    /// The service refused, is away, or met a conflict. If anything of the call may be left, the
    /// root can only be aborted, also if this error is caught.
    pub async fn call<A: Serialize, R: DeserializeOwned>(
        &self,
        service: Service<A, R>,
        arguments: A,
    ) -> Result<R> {
        let Inner { node, root, call, chain, deadline, trace, is_ahead, .. } = &*self.inner;
        let unusable = |why: String| Error::from(Problem::new(503, "defect", why));
        let Some(node) = node else {
            return Err(unusable(format!("{service:?} is called, and the test kit makes no calls")));
        };
        let child = Name::new(service.component()).map_err(|error| unusable(error.to_string()))?;
        let body = serde_json::to_string(&arguments).map_err(|error| unusable(error.to_string()))?;
        let nth = self.inner.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let id = call.child(nth);
        if !node.may_call(root, call, &child) {
            return Err(node.why_lost(root, *deadline).into());
        }
        self.inner.has_called.store(true, Ordering::Relaxed);
        let unanswered = Unanswered { node, call: self, child: &child, is_answered: false };
        fault::point("call-send-before");
        let passed_on = (chain.as_slice(), trace, *is_ahead);
        let sent = node.peers().call(&child, service.name(), root, &id, passed_on, *deadline, body);
        let answer = sent.await;
        fault::point("call-send-after");
        match answer {
            Ok((text, generation, nonce)) => {
                unanswered.is(Sent::Answered { generation, nonce });
                serde_json::from_str(&text).map_err(|error| {
                    unusable(format!("the answer of {service:?} has another shape: {error}"))
                })
            }
            Err(problem) => {
                let sent = match (problem.is_unsent, problem.began) {
                    (true, _) => Sent::NotSent,
                    (false, true) => Sent::Failed,
                    (false, false) => Sent::LeftNothing,
                };
                // The service may do without this answer; its root cannot, and is told why.
                if sent == Sent::Failed {
                    node.core().note_no(root, Some(problem.clone()));
                }
                unanswered.is(sent);
                Err(problem.into())
            }
        }
    }

    /// Whether anybody was called.
    pub(crate) fn has_called(&self) -> bool {
        self.inner.has_called.load(Ordering::Relaxed)
    }

    /// What was pushed.
    pub(crate) fn stack(&self) -> Vec<String> {
        self.inner.stack.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Call({} of {})", self.inner.call, self.inner.root)
    }
}

/// A call that was sent. If its future is dropped before the answer, what became of it is unknown.
struct Unanswered<'a> {
    node: &'a Arc<Node>,
    call: &'a Call,
    child: &'a Name,
    is_answered: bool,
}

impl Unanswered<'_> {
    fn is(mut self, sent: Sent) {
        self.is_answered = true;
        self.tell(sent);
    }

    fn tell(&self, sent: Sent) {
        let Inner { root, call, .. } = &*self.call.inner;
        self.node.tell(Event::Called(root.clone(), call.clone(), self.child.clone(), sent));
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.tell(Sent::Failed);
        }
    }
}

/// What an undo has: SQL in a local transaction. It makes no calls: what its call did elsewhere is
/// undone there.
#[derive(Clone)]
pub struct Undo {
    sql: Arc<Sql>,
}

impl Undo {
    pub(crate) fn new(sql: Arc<Sql>) -> Undo {
        Undo { sql }
    }

    /// The local transaction, which commits together with the mark that this call is undone.
    pub fn sql(&self) -> &Sql {
        &self.sql
    }
}
