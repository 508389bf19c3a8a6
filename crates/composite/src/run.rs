//! A call from its arrival to its answer, and a root from its beginning to its end.
//!
//! ```text
//! arrive ─▶ lock ─▶ handler ─▶ slot and COMMIT ─▶ answer                     part of another root
//! arrive ─▶ lock ─▶ handler ─▶ answer ─▶ slot and COMMIT                     the same ahead (`ahead`)
//! arrive ─▶ lock ─▶ handler ─▶ journal ─▶ slot and PREPARE ─▶ answer         the same without undo
//! arrive ─▶ lock ─▶ handler ─▶ votes ─▶ answer's row, slot and COMMIT ─▶ answer      begins one
//! ```
//!
//! A local transaction that met another one is run again here, if it has called nobody. A root that
//! met a conflict anywhere is aborted, and begun again under another name.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use serde_json::Value;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use crate::ahead::Ahead;
use crate::body::compared;
use crate::call::Call;
use crate::database::Parameters;
use crate::fault;
use crate::locks::Grant;
use crate::name::{CallId, RootId};
use crate::node::{Node, RETRY, UnderWay};
use crate::participant::{Arrival, Effect, Ended, Event, Origin, Refusal, Slot};
use crate::problem::{Error, Problem};
use crate::service::{Prepared, caught};
use crate::slots::{Facts, fenced};
use crate::sql::{Begin, NotCommitted, Sql};
use crate::statements::{KEEP, WRITE};
use crate::votes::new_nonce;
use crate::whole::Whole;
use crate::wire::Trace;

/// How often a local transaction is run again that met another one.
const LOCAL_ATTEMPTS: u32 = 5;
/// How often a root is begun.
const ROOT_ATTEMPTS: u32 = 20;

/// A call as it came.
pub(crate) struct Request {
    pub(crate) arrival: Arrival,
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) deadline: Instant,
    /// Where the caller decides, if it says so.
    pub(crate) origin: Option<Origin>,
    /// Passed on to whoever is called for it.
    pub(crate) trace: Trace,
    /// The client's name for the root that begins here, with what is compared.
    pub(crate) key: Option<Key>,
    /// Whoever is called for it may answer ahead of his commit.
    pub(crate) is_ahead: bool,
}

/// A client's request with a name.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) key: String,
    /// Service and arguments, as JSON that is compared.
    pub(crate) arguments: String,
}

impl Key {
    /// The same arguments for another service are another request.
    pub(crate) fn new(key: &str, service: &str, arguments: &Value) -> Key {
        let arguments = format!("[{},{}]", Value::from(service), compared(arguments));
        Key { key: key.to_owned(), arguments }
    }
}

/// The text of an answer, or why there is none.
pub(crate) type Reply = Result<String, Problem>;

impl Node {
    /// Begins a root, again if it meets conflicts, until it is committed, refused, or its time is
    /// over.
    pub(crate) async fn root(self: &Arc<Self>, request: Request) -> Reply {
        let (mut met, mut is_ahead): (Option<Problem>, bool) = (None, true);
        for attempt in 1u32.. {
            let mut arrival = request.arrival.clone();
            let root = format!("{}-{}-{:016x}", self.name, self.generation(), rand::random::<u64>());
            arrival.root =
                RootId::new(&root).map_err(|error| Problem::new(503, "name", error.to_string()))?;
            let root = arrival.root.clone();
            let (prepared, key) = (Arc::clone(&request.prepared), request.key.clone());
            let (deadline, trace) = (request.deadline, request.trace.clone());
            self.core().aborts.insert(root.clone(), Vec::new());
            self.begun.fetch_add(1, Ordering::Relaxed);
            let request = Request { arrival, prepared, deadline, origin: None, trace, key, is_ahead };
            let reply = self.execute(request, Ahead::default()).await;
            self.aborted(&root).await;
            let Err(problem) = reply else { return reply };
            let pause = RETRY.pause(attempt + 1, rand::random::<u64>());
            // A commit that fails behind its answer has the root end there before it has here.
            let is_transient = problem.is_transient() || is_ahead && problem.reason == "ended";
            let is_late = Instant::now() + pause >= deadline;
            if !is_transient || attempt == ROOT_ATTEMPTS || is_late {
                // Whoever was called may have been at his deadline before, since what is left of
                // the time is rounded off for him, and have ended the root.
                let problem = match is_late && is_transient && problem.reason == "ended" {
                    true => self::deadline().began(problem.began),
                    false => problem,
                };
                // If its time is over, what it has met before has taken it.
                return Err(met.filter(|_| problem.reason == "deadline").unwrap_or(problem));
            }
            // Unless it was a lock it may have been such a commit: its service is heard now.
            is_ahead &= problem.holder.is_some();
            met = Some(problem);
            sleep(pause).await;
        }
        unreachable!("the last attempt returns")
    }

    /// Executes a call.
    pub(crate) async fn execute(self: &Arc<Self>, request: Request, ahead: Ahead) -> Reply {
        let Arrival { root, call, .. } = request.arrival.clone();
        let (start, started) = oneshot::channel();
        let cancel = Arc::new(Notify::new());
        {
            let mut core = self.core();
            if self.is_fenced.load(Ordering::SeqCst) {
                return Err(fenced());
            }
            let effects = core.participant.handle(Event::Arrive(request.arrival.clone()));
            match effects.first() {
                Some(Effect::Repeat(_, _, answer)) => return Ok(answer.as_ref().to_owned()),
                Some(Effect::Refuse(_, _, why)) => return Err(self.refused(why)),
                _ => {}
            }
            core.time(&root, request.deadline);
            let under_way = UnderWay { start: Some(start), cancel: Arc::clone(&cancel), decide: None };
            core.under_way.insert((root.clone(), call.clone()), under_way);
            self.perform(&mut core, &effects);
        }
        let reply = match started.await {
            Ok(Ok(())) => self.run(&request, &cancel, ahead).await,
            Ok(Err(why)) => Err(self.refused(&why)),
            Err(_) => Err(Problem::new(409, "ended", "the root has ended")),
        };
        self.core().ended(&root, &call, &cancel);
        reply
    }

    fn refused(&self, why: &Refusal) -> Problem {
        match why {
            Refusal::Running => Problem::new(409, "running", "this call is under way"),
            Refusal::Ended => Problem::new(409, "ended", "the root has ended here, or can only be aborted"),
            Refusal::OtherArguments => {
                Problem::new(422, "arguments", "this call was another one: its service, or its arguments")
            }
            Refusal::Blocked(grant) => self.blocked(grant),
        }
    }

    fn blocked(&self, grant: &Grant) -> Problem {
        match grant {
            Grant::Conflict { holder, service, item } => {
                let service = &self.services[usize::from(*service)].declared.name;
                let detail = format!("a call of {service} about {item:?} holds a lock, of root {holder}");
                let mut problem = Problem::new(409, "conflict", detail);
                problem.holder = Some(holder.to_string());
                problem.item = Some(item.as_ref().to_owned());
                problem
            }
            Grant::Ancestor(call) => {
                Problem::new(409, "ancestor", format!("the call conflicts with {call}, which it is part of"))
            }
            Grant::ClosedSibling(call) => {
                let detail = format!("the call conflicts with {call} of the same root, which has no undo");
                Problem::new(409, "closed-sibling", detail)
            }
            Grant::Sibling(call) => {
                Problem::new(409, "conflict", format!("call {call} of the same root did not end in time"))
            }
            Grant::Granted => Problem::new(409, "conflict", "the lock became free too late"),
        }
    }

    /// Runs the handler of a call that has its lock, and ends its local transaction.
    async fn run(self: &Arc<Self>, request: &Request, cancel: &Arc<Notify>, mut ahead: Ahead) -> Reply {
        let Arrival { root, call, ancestors, service, parent, .. } = &request.arrival;
        let begin = self.services[usize::from(*service)].begin;
        let is_within = !ancestors.is_empty() && self.core().participant.is_within(root, ancestors);
        for attempt in 1.. {
            let sql = Sql::new(&self.pool, begin, is_within);
            let passed_on = (request.deadline, &request.trace, request.is_ahead);
            let running = Call::new(self, root, call, ancestors, passed_on, sql);
            let outcome = tokio::select! {
                outcome = caught(async { (request.prepared.run)(running.clone()).await }) => outcome,
                () = cancel.notified() => Err(stopped(request.deadline).into()),
                () = sleep_until(request.deadline) => Err(deadline().into()),
            };
            let ended = match outcome {
                Ok(answer) if parent.is_none() => self.decide(request, cancel, &running, answer).await,
                Ok(answer) => self.commit(request, &running, answer, &mut ahead).await,
                Err(error) => Err(error),
            };
            let error = match ended {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            running.sql().roll_back().await;
            // Whom no call could be sent to is none of these.
            let has_called = !self.core().participant.children_of(root, call).is_empty();
            if error.is_serialization() && !has_called && attempt < LOCAL_ATTEMPTS && self.is_wanted(root) {
                sleep(RETRY.pause(attempt + 1, rand::random::<u64>())).await;
                continue;
            }
            self.tell(Event::Ended(root.clone(), call.clone(), Ended::RolledBack));
            if self.services[usize::from(*service)].declared.is_closed() {
                self.forget_branch(root);
            }
            let problem = match begin == Begin::ReadOnly && error.is_of_reading() {
                // Its database would take it from any other service.
                true => Problem::new(503, "defect", format!("declared to read only, and writes: {error}")),
                false => error.into_problem(),
            };
            ahead.has_failed(request, &problem);
            return Err(problem.began(has_called));
        }
        unreachable!("the last attempt returns")
    }

    fn is_wanted(&self, root: &RootId) -> bool {
        !self.core().participant.is_lost(root)
    }

    /// What is said of a root that can only be aborted: why, if a call has failed whose failure the
    /// service has kept to itself. Otherwise its time may be over, which has ended it.
    pub(crate) fn why_lost(&self, root: &RootId, until: Instant) -> Problem {
        let why = self.core().noes.get(root).cloned();
        why.unwrap_or_else(|| match Instant::now() >= until {
            true => deadline(),
            false => Problem::new(409, "ended", "the root can only be aborted"),
        })
    }

    /// Commits the local transaction of a call that is part of another root.
    async fn commit(
        self: &Arc<Self>,
        request: &Request,
        running: &Call,
        answer: String,
        ahead: &mut Ahead,
    ) -> Result<String, Error> {
        let Arrival { root, call, service, .. } = &request.arrival;
        let declared = &self.services[usize::from(*service)].declared;
        if !self.is_wanted(root) {
            return Err(self.why_lost(root, request.deadline).into());
        }
        ahead.allows(&answer)?;
        if declared.is_closed() {
            let slot = self.prepare_branch(request, running, &answer).await?;
            let ended = Ended::Held { slot, answer: answer.as_str().into() };
            self.tell(Event::Ended(root.clone(), call.clone(), ended));
            return Ok(answer);
        }
        let slot = match declared.reads && !running.has_called() {
            true => match running.sql().commit_fenced(&[]).await {
                Ok(()) => None,
                Err(NotCommitted::RolledBack(error)) if error.is_serialization() => return Err(error),
                Err(NotCommitted::RolledBack(error)) => return Err(self.after_slot(error).await.into()),
                Err(NotCommitted::Unknown) => {
                    return Err(Problem::new(503, "database", "the connection was lost").into());
                }
            },
            false => Some(self.write_slot(request, running, &answer, None, ahead).await?),
        };
        let ended = Ended::Committed { slot, answer: answer.as_str().into() };
        // If the root was aborted meanwhile, this is undone now; whoever hears the answer votes in
        // vain.
        self.tell(Event::Ended(root.clone(), call.clone(), ended));
        Ok(answer)
    }

    /// The handler of the call that began the root has answered: has everybody vote, and commits.
    async fn decide(
        self: &Arc<Self>,
        request: &Request,
        cancel: &Arc<Notify>,
        running: &Call,
        answer: String,
    ) -> Result<String, Error> {
        let Arrival { root, call, .. } = &request.arrival;
        let (sender, decided) = oneshot::channel();
        let asked: Vec<Effect> = {
            let mut core = self.core();
            if let Some(under_way) = core.under_way.get_mut(&(root.clone(), call.clone())) {
                under_way.decide = Some(sender);
            }
            let effects = core.participant.handle(Event::Finish(root.clone()));
            // Votes are asked for in this task, which is the one that waits for them.
            let is_question = |effect: &Effect| matches!(effect, Effect::AskVote { .. });
            let (asked, others): (Vec<_>, Vec<_>) = effects.into_iter().partition(is_question);
            self.perform(&mut core, &others);
            asked
        };
        let waiting = async {
            tokio::select! {
                decided = decided => decided.is_ok(),
                () = cancel.notified() => false,
            }
        };
        let is_decided = self.asking(asked, waiting).await;
        if !is_decided {
            let why = self.core().noes.remove(root);
            let lost = || Problem::new(409, "conflict", "a call has failed after the service had ended");
            return Err(match Instant::now() >= request.deadline {
                true => deadline().into(),
                false => why.unwrap_or_else(lost).into(),
            });
        }
        fault::point("decision-before");
        let children = self.core().participant.children(root);
        // A child that has undone its part at its deadline, which is not before this one, executes
        // a late duplicate of it once more when its mark is over. What was voted until now is no
        // vote for that; what is voted later may be, also if this process has not run for long.
        if !children.is_empty() && Instant::now() >= request.deadline {
            return Err(deadline().into());
        }
        let slot = match children.is_empty() {
            true => {
                self.commit_alone(request, running, &answer).await?;
                None
            }
            false => {
                let decision =
                    children.into_iter().filter_map(|(name, _, nonce)| Some((name, nonce?))).collect();
                let mut nobody = Ahead::default();
                Some(self.write_slot(request, running, &answer, Some(decision), &mut nobody).await?)
            }
        };
        fault::point("decision-after");
        let ended = Ended::Committed { slot, answer: answer.as_str().into() };
        self.tell(Event::Ended(root.clone(), call.clone(), ended));
        Ok(answer)
    }

    /// Has children vote while somebody waits for what comes of it. What is still to be answered
    /// when that is known goes on by itself: others' questions may share its messages.
    async fn asking(self: &Arc<Self>, asked: Vec<Effect>, waiting: impl Future<Output = bool>) -> bool {
        let mut questions: Vec<Whole<()>> = Vec::with_capacity(asked.len());
        for effect in asked {
            if let Effect::AskVote { root, child, calls, generation } = effect {
                questions.push(Whole::new(Arc::clone(self).ask_vote(root, child, calls, generation)));
            }
        }
        let mut waiting = pin!(waiting);
        tokio::select! {
            is_decided = &mut waiting => is_decided,
            _ = join_all(questions) => waiting.await,
        }
    }

    /// A root that called nobody: its local transaction is all there is.
    async fn commit_alone(&self, request: &Request, running: &Call, answer: &str) -> Result<(), Error> {
        match self.commit_with(None, request, running, answer).await {
            Ok(()) => Ok(()),
            Err(NotCommitted::RolledBack(error)) => Err(self.after_slot(error).await.into()),
            Err(NotCommitted::Unknown) => {
                let is_kept = match &request.key {
                    Some(Key { key, .. }) => self.is_kept(key, request.arrival.root.as_str()).await,
                    None => false,
                };
                // There is no slot that could be retired: if the answer is not there, it may still
                // come. Who asks again with the key finds it, or has it fail by his own.
                if is_kept { Ok(()) } else { Err(unknown().into()) }
            }
        }
    }

    /// Writes the slot and commits, in one round trip, ahead of which the caller is answered if he
    /// lets that be. Answers the slot.
    async fn write_slot(
        self: &Arc<Self>,
        request: &Request,
        running: &Call,
        answer: &str,
        decision: Option<Vec<(crate::name::Name, u64)>>,
        ahead: &mut Ahead,
    ) -> Result<Slot, Error> {
        let Arrival { root, call, .. } = &request.arrival;
        let decides = decision.is_some();
        let facts = self.facts(request, running, answer, decision);
        let text = serde_json::to_string(&facts).map_err(|error| Error::refuse(error.to_string()))?;
        let chosen = self.slots.choose(&self.pool).await?;
        let (component, generation) = (self.slots.component(), self.slots.generation());
        let (slot, name) = (chosen.slot, root.as_str());
        let parameters: Parameters<'_> = &[component, &(slot as i32), generation, &name, &text];
        if self.answer_ahead(request, (answer, facts.nonce), ahead) {
            fault::others_first("ahead-after").await;
            fault::point("ahead-after");
        }
        fault::point("slot-write-before");
        let written = match self.commit_with(Some((WRITE, parameters)), request, running, answer).await {
            Err(NotCommitted::Unknown) => match self.is_written(slot, root).await {
                Ok(true) => Ok(()),
                Ok(false) => return Err(self.retired(chosen, "COMMIT")),
                // A later process has the component, and knows what has become of it.
                Err(_) if decides => return Err(unknown().into()),
                Err(problem) => return Err(problem.began(true).into()),
            },
            Err(NotCommitted::RolledBack(error)) => Err(error),
            Ok(()) => Ok(()),
        };
        if let Err(error) = written {
            self.slots.not_written(chosen);
            return Err(match error.is_serialization() {
                true => error,
                false => self.after_slot(error).await.into(),
            });
        }
        fault::point("slot-write-after");
        self.core().facts.entry(root.clone()).or_default().insert(call.clone(), (slot, facts));
        if let Some(freed) = self.slots.written(chosen) {
            self.tell(Event::Freed(freed));
        }
        Ok(slot)
    }

    /// Writes the slot and prepares the local transaction, which has no undo. Answers the slot.
    async fn prepare_branch(
        self: &Arc<Self>,
        request: &Request,
        running: &Call,
        answer: &str,
    ) -> Result<Slot, Error> {
        let Arrival { root, call, .. } = &request.arrival;
        let chosen = self.slots.choose_free(&self.pool).await?;
        let (component, generation) = (self.slots.component(), self.slots.generation());
        let slot = chosen.slot;
        let branch = crate::branch::name(component, *generation, slot);
        let facts = Facts { branch: Some(branch.clone()), ..self.facts(request, running, answer, None) };
        let text = serde_json::to_string(&facts).map_err(|error| Error::refuse(error.to_string()))?;
        let is_noted = match self.journal.held(root, &branch, &text) {
            Ok(written) => written.await.is_ok(),
            Err(_) => false,
        };
        if !is_noted {
            self.slots.not_written(chosen);
            return Err(Problem::new(503, "journal", "the journal cannot be written").into());
        }
        let name = root.as_str();
        let parameters: Parameters<'_> = &[component, &(slot as i32), generation, &name, &text];
        let prepare = crate::branch::prepare(&branch);
        let prepared = match running.sql().end_with(&[(WRITE, parameters)], &prepare).await {
            Ok(()) => Ok(()),
            Err(NotCommitted::RolledBack(error)) => Err(error),
            Err(NotCommitted::Unknown) => match self.is_prepared(&branch, slot).await {
                true => Ok(()),
                false => return Err(self.retired(chosen, "PREPARE")),
            },
        };
        if let Err(error) = prepared {
            self.slots.not_written(chosen);
            return Err(match error.is_serialization() {
                true => error,
                false => self.after_slot(error).await.into(),
            });
        }
        self.core().facts.entry(root.clone()).or_default().insert(call.clone(), (slot, facts));
        Ok(slot)
    }

    /// Commits with the statement that writes a slot, or with a look at the generation, and with
    /// the answer where it is to be kept.
    async fn commit_with(
        &self,
        slot: Option<(&str, Parameters<'_>)>,
        request: &Request,
        running: &Call,
        answer: &str,
    ) -> Result<(), NotCommitted> {
        let declared = &self.services[usize::from(request.arrival.service)].declared;
        let writes = slot.is_some() || request.key.is_some();
        // What only reads cannot write, and has nothing that would have to be committed with it.
        let own = Sql::new(&self.pool, Begin::ReadCommitted, true);
        let sql = match declared.reads && writes {
            true => {
                running.sql().commit(&[]).await?;
                &own
            }
            false => running.sql(),
        };
        let Some(Key { key, arguments }) = &request.key else {
            return match slot {
                Some(slot) => sql.commit(&[slot]).await,
                None => sql.commit_fenced(&[]).await,
            };
        };
        let (component, root) = (self.slots.component(), request.arrival.root.as_str());
        let kept = self.options.answers_kept.as_secs_f64();
        let keep: Parameters<'_> = &[component, key, &root, arguments, &answer, &kept];
        fault::point("answer-store-before");
        let stored = match slot {
            Some(slot) => sql.commit(&[slot, (KEEP, keep)]).await,
            None => sql.commit_fenced(&[(KEEP, keep)]).await,
        };
        fault::point("answer-store-after");
        stored
    }

    fn facts(
        &self,
        request: &Request,
        running: &Call,
        answer: &str,
        decision: Option<Vec<(crate::name::Name, u64)>>,
    ) -> Facts {
        let Arrival { root, call, parent, ancestors, service, item, arguments } = &request.arrival;
        let mut core = self.core();
        let began_here = core.participant.began_here(root);
        let children = core.participant.children_of(root, call);
        let nonce = core.participant.nonce(root, new_nonce());
        Facts {
            call: call.clone(),
            parent: parent.clone(),
            ancestors: ancestors.clone(),
            service: self.services[usize::from(*service)].declared.name.clone(),
            item: item.as_ref().to_owned(),
            sequence: core.participant.sequence(root, call).expect("a call that runs holds its lock"),
            arguments: *arguments,
            answer: answer.to_owned(),
            undo: running.stack(),
            children,
            began_here,
            decision,
            deadline_ms: request.deadline.saturating_duration_since(Instant::now()).as_millis() as u64,
            branch: None,
            nonce,
            nonces: core.participant.nonces_of(root, call),
            origin: request.origin.clone(),
        }
    }
}

/// The first call of a root.
pub(crate) fn first_call() -> CallId {
    CallId::new("1").expect("a call")
}

fn deadline() -> Problem {
    Problem::new(504, "deadline", "the time of the request is over")
}

/// Why a call was stopped whose root is aborted: its time is over, or somebody has said so.
fn stopped(until: Instant) -> Problem {
    match Instant::now() >= until {
        true => deadline(),
        false => Problem::new(409, "ended", "the root was aborted"),
    }
}

/// The database has not said whether a root is committed.
pub(crate) fn unknown() -> Problem {
    Problem::new(503, "unknown", "the answer of COMMIT was lost; it may have happened")
}
