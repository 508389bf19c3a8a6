//! Control messages to one component, of one kind: entries about many roots share a request.
//!
//! - What somebody waits for leaves at once if no request is under way. Otherwise it waits, and
//!   collects others, until that one is answered, or until it has been under way for a while: an
//!   answer may wait for others (a vote for the votes below it), and holds up nobody who has
//!   nothing to do with it.
//! - What only tidies up (asking whether a commit is done) goes along with the next request, and
//!   has one made for it only if none comes for a while.
//!
//! Time is looked at only once somebody waits: a timer of 2 ms is the first one to be due, more
//! often than not, and to set one wakes the thread that sleeps until then.
//!
//! Whoever finds that nobody sends does so himself, so that the answer to his entry wakes nobody
//! else on its way to him. What has come meanwhile is sent by a task.
//!
//! ```text
//! a ─▶ request [a]                                   none was under way
//! b, c wait   …   [a] is answered ─▶ request [b, c, and what could wait]
//! d waits     …   2 ms, [b, c] is not answered ─▶ request [d]
//! ```

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use crate::name::{Name, RootId};
use crate::participant::{Nonce, Origin};
use crate::peers::Peers;
use crate::wire::{Batch, OutcomeEntry, PrepareEntry};

/// Most roots of a control message.
const BATCH_MAX: usize = 256;
/// Control messages of one kind that may be under way to one component.
const UNDER_WAY_MAX: usize = 32;
/// How long a request under way holds up the next one.
const PACE: Duration = Duration::from_millis(2);

/// A kind of control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Prepare,
    Commit,
    Abort,
    Outcome,
}

impl Kind {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Kind::Prepare => "/composite/prepare",
            Kind::Commit => "/composite/commit",
            Kind::Abort => "/composite/abort",
            Kind::Outcome => "/composite/outcome",
        }
    }
}

/// An entry of a control message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Entry {
    Prepare(PrepareEntry),
    Outcome(OutcomeEntry),
}

impl Entry {
    fn root(&self) -> &RootId {
        match self {
            Entry::Prepare(entry) => &entry.root,
            Entry::Outcome(entry) => &entry.root,
        }
    }
}

/// What was answered about a root. What it does not say it says nothing about.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Answer {
    root: String,
    pub(crate) vote: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) nonce: Option<Nonce>,
    pub(crate) state: Option<String>,
    #[serde(default)]
    pub(crate) origin: Option<Origin>,
}

/// When an entry leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// As soon as it can.
    Now,
    /// With a request that leaves after this time; by itself if none does within as much time
    /// again.
    After(Duration),
}

/// An entry, and who waits for its answer.
#[derive(Debug)]
struct Waiting {
    entry: Entry,
    answer: oneshot::Sender<Option<Answer>>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Waiting>,
    /// What can wait, with the times from which on it may go along.
    later: Vec<(Instant, Waiting)>,
    /// Somebody sends what waits.
    is_sending: bool,
}

impl State {
    /// What leaves now; if there is nothing, nobody sends any more.
    fn take(&mut self, now: Instant) -> Option<Vec<Waiting>> {
        let count = self.waiting.len().min(BATCH_MAX);
        let mut batch: Vec<Waiting> = self.waiting.drain(..count).collect();
        if batch.is_empty() {
            self.is_sending = false;
            return None;
        }
        let is_due = |(from, _): &mut (Instant, Waiting)| *from <= now;
        let due = self.later.extract_if(.., is_due).take(BATCH_MAX - batch.len());
        batch.extend(due.map(|(_, waiting)| waiting));
        Some(batch)
    }

    /// Whether somebody has to go on sending.
    fn goes_on(&mut self) -> bool {
        self.is_sending = !self.waiting.is_empty();
        self.is_sending
    }

    /// Has what can wait no longer leave, together with all that may.
    fn hurry(&mut self, now: Instant) {
        let is_due = |(from, _): &mut (Instant, Waiting)| *from <= now;
        self.waiting.extend(self.later.extract_if(.., is_due).map(|(_, waiting)| waiting));
    }
}

/// What waits to be sent.
pub(crate) struct Courier {
    to: Name,
    kind: Kind,
    state: Mutex<State>,
    /// Somebody waits although a request is under way.
    has_come: Notify,
    under_way: Arc<Semaphore>,
}

impl Courier {
    pub(crate) fn new(to: Name, kind: Kind) -> Courier {
        let under_way = Arc::new(Semaphore::new(UNDER_WAY_MAX));
        Courier { to, kind, state: Mutex::default(), has_come: Notify::new(), under_way }
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends an entry together with others; answers what was said of its root.
    pub(crate) async fn send(
        self: &Arc<Self>,
        peers: &Arc<Peers>,
        entry: Entry,
        when: When,
    ) -> Option<Answer> {
        let (sender, mut answer) = oneshot::channel();
        let waiting = Waiting { entry, answer: sender };
        if let When::After(pause) = when {
            self.with(|state| state.later.push((Instant::now() + pause, waiting)));
            match timeout(2 * pause, &mut answer).await {
                Ok(answer) => return answer.ok().flatten(),
                Err(_) => self.with(|state| state.hurry(Instant::now())),
            }
        } else {
            self.with(|state| state.waiting.push(waiting));
        }
        let is_sending = self.with(|state| std::mem::replace(&mut state.is_sending, true));
        match is_sending {
            true => self.has_come.notify_one(),
            false => self.lead(peers).await,
        }
        answer.await.ok().flatten()
    }

    /// Sends what waits, for whoever has found that nobody sends, until it is answered. He goes on
    /// to the end: those who come meanwhile rely on it that somebody sends.
    async fn lead(self: &Arc<Self>, peers: &Arc<Peers>) {
        let Ok(permit) = Arc::clone(&self.under_way).try_acquire_owned() else {
            drop(tokio::spawn(Arc::clone(self).run(Arc::clone(peers))));
            return;
        };
        let Some(batch) = self.with(|state| state.take(Instant::now())) else { return };
        let mut delivering = pin!(deliver(Arc::clone(self), Arc::clone(peers), batch, permit));
        let is_answered = self.is_answered(delivering.as_mut()).await;
        if self.with(State::goes_on) {
            drop(tokio::spawn(Arc::clone(self).run(Arc::clone(peers))));
        }
        if !is_answered {
            delivering.await;
        }
    }

    /// Waits for the answer to a request that leaves now, and if somebody else comes meanwhile, not
    /// longer than that one has to wait for it. Answers whether it is there.
    async fn is_answered(&self, mut delivering: Pin<&mut impl Future<Output = ()>>) -> bool {
        let left = Instant::now();
        if self.with(|state| state.waiting.is_empty()) {
            tokio::select! {
                biased;
                () = delivering.as_mut() => return true,
                // Or somebody had come to an earlier request: then the timer is for nobody.
                () = self.has_come.notified() => {}
            }
        }
        timeout_at(left + PACE, delivering).await.is_ok()
    }

    /// Sends until nothing waits.
    async fn run(self: Arc<Self>, peers: Arc<Peers>) {
        while let Ok(permit) = Arc::clone(&self.under_way).acquire_owned().await {
            let Some(batch) = self.with(|state| state.take(Instant::now())) else { return };
            let mut delivering = Box::pin(deliver(Arc::clone(&self), Arc::clone(&peers), batch, permit));
            if !self.is_answered(delivering.as_mut()).await {
                tokio::spawn(delivering);
            }
        }
    }
}

async fn deliver(
    courier: Arc<Courier>,
    peers: Arc<Peers>,
    batch: Vec<Waiting>,
    _permit: OwnedSemaphorePermit,
) {
    let (waiting, roots): (Vec<_>, Vec<_>) =
        batch.into_iter().map(|Waiting { entry, answer }| ((entry.root().clone(), answer), entry)).unzip();
    let answers = peers.post(&courier.to, courier.kind, &Batch { roots }).await.unwrap_or_default();
    let mut answers: HashMap<String, Answer> =
        answers.into_iter().map(|mut answer| (std::mem::take(&mut answer.root), answer)).collect();
    for (root, sender) in waiting {
        let _ = sender.send(answers.remove(root.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(root: &str) -> Waiting {
        let root = RootId::new(root).unwrap();
        let entry = OutcomeEntry { root, parent: None, child: None, nonce: None, callers: Vec::new() };
        Waiting { entry: Entry::Outcome(entry), answer: oneshot::channel().0 }
    }

    fn roots(batch: Option<Vec<Waiting>>) -> Option<Vec<String>> {
        batch.map(|batch| batch.iter().map(|waiting| waiting.entry.root().to_string()).collect())
    }

    #[test]
    fn what_can_wait_goes_along_with_what_cannot() {
        let now = Instant::now();
        let mut state = State { is_sending: true, ..State::default() };
        state.later.push((now + PACE, waiting("a")));
        assert_eq!(roots(state.take(now)), None, "it has no request made for it");
        assert!(!state.is_sending);
        state.waiting.push(waiting("b"));
        assert_eq!(roots(state.take(now)), Some(vec!["b".to_owned()]), "its time has not come");
        state.waiting.push(waiting("c"));
        assert_eq!(roots(state.take(now + PACE)), Some(vec!["c".to_owned(), "a".to_owned()]));
    }

    #[test]
    fn what_has_waited_long_enough_takes_along_whatever_may_leave() {
        let now = Instant::now();
        let mut state = State::default();
        for (root, from) in [("a", now), ("b", now + PACE), ("c", now)] {
            state.later.push((from, waiting(root)));
        }
        state.hurry(now);
        assert_eq!(roots(state.take(now)), Some(vec!["a".to_owned(), "c".to_owned()]));
        assert_eq!(state.later.len(), 1);
    }

    #[test]
    fn who_has_sent_his_own_leaves_the_rest_to_somebody_or_nobody() {
        let mut state = State { is_sending: true, ..State::default() };
        state.later.push((Instant::now(), waiting("a")));
        assert!(!state.goes_on() && !state.is_sending, "what can wait needs nobody");
        state.is_sending = true;
        state.waiting.push(waiting("b"));
        assert!(state.goes_on() && state.is_sending);
    }

    #[test]
    fn a_message_has_a_bound() {
        let now = Instant::now();
        let mut state = State::default();
        state.waiting.extend((0..BATCH_MAX + 1).map(|_| waiting("a")));
        state.later.push((now, waiting("b")));
        assert_eq!(state.take(now).map(|batch| batch.len()), Some(BATCH_MAX));
        assert_eq!(roots(state.take(now)), Some(vec!["a".to_owned(), "b".to_owned()]));
    }
}
