//! Control messages to one component, of one kind: entries about many roots share a request.
//!
//! - What somebody waits for leaves at once if no request is under way. Otherwise it waits, and
//!   collects others, until that one is answered, or until it has been under way for a while: an
//!   answer may wait for others (a vote for the votes below it), and holds up nobody who has
//!   nothing to do with it.
//! - What only tidies up (asking whether a commit is done) goes along with the next request, and
//!   has one made for it only if none comes for a while.
//! - Nobody waits for the answer to a commit, whose root's client has been answered; but somebody
//!   may wait for its locks. It goes along with the next question for votes, if there was one soon
//!   enough for most of those before; else it leaves at once. Whether it would pay is tried now and
//!   then. Where calls about one item follow each other it never does: the next question comes
//!   after the locks. It does not either where a call has just met a lock.
//!
//! Time is looked at only once somebody waits: a timer of 2 ms is the first one to be due, more
//! often than not, and to set one wakes the thread that sleeps until then.
//!
//! A vote may wait: for a commit that its call was answered ahead of, or for the votes below it. A
//! request about several roots is answered as soon as one of them has its vote, with those that are
//! there; for the others it is asked once more, together with what has come meanwhile. So a vote
//! that is there waits for no other root's commit; a question may, for those 2 ms.
//!
//! Whoever finds that nobody sends does so himself, so that the answer to his entry wakes nobody
//! else on its way to him. What has come meanwhile is sent by a task.
//!
//! ```text
//! a ─▶ request [a]                                   none was under way
//! b, c wait   …   [a] is answered ─▶ request [b, c, and what could wait]
//! d waits     …   2 ms, [b, c] is not answered ─▶ request [d]
//!
//! a, b are committed   …   c is asked for ─▶ question [c] with commits [a, b]
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::messages::{Answer, Answers, Entry, Kind, Message};
use crate::name::{Name, RootId};
use crate::peers::Peers;

/// Most roots of a control message.
const BATCH_MAX: usize = 256;
/// Control messages of one kind that may be under way to one component.
const UNDER_WAY_MAX: usize = 32;
/// How long a request under way holds up the next one.
const PACE: Duration = Duration::from_millis(2);
/// How long a commit waits for a question that it can go along with.
const ALONG: Duration = Duration::from_millis(10);
/// What it is worth that commits went along, and what it costs that they have waited in vain: they
/// wait as long as more than three of five go along.
const LUCK: u8 = 2;
const BAD_LUCK: u8 = 3;
const LUCK_MAX: u8 = 8;
/// One commit of so many tries it although those before have waited in vain.
const TRIED: u8 = 64;

/// When an entry leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// As soon as it can.
    Now,
    /// Together with a question for votes, if one is to be expected.
    Along,
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
    /// What can wait, by the times from which on it may go along.
    later: BTreeMap<(Instant, u64), Waiting>,
    /// How much could wait so far: no two have the same time.
    put_off: u64,
    /// Commits that wait for a question, and since when; the oldest one first.
    along: Vec<(Instant, Waiting)>,
    /// How much speaks for it that they do; nothing does if it is 0.
    luck: u8,
    /// How many have left at once since one has tried.
    untried: u8,
    /// Somebody looks after those that wait for a question.
    is_watched: bool,
    /// Somebody sends what waits.
    is_sending: bool,
}

impl State {
    /// Has an entry wait until this time, at least.
    fn put_off(&mut self, from: Instant, waiting: Waiting) {
        self.put_off += 1;
        self.later.insert((from, self.put_off), waiting);
    }

    /// Takes what may go along now, so many at most.
    fn due(&mut self, now: Instant, most: usize, into: &mut Vec<Waiting>) {
        for _ in 0..most {
            match self.later.first_entry() {
                Some(first) if first.key().0 <= now => into.push(first.remove()),
                _ => return,
            }
        }
    }

    /// What leaves now; if there is nothing, nobody sends any more.
    fn take(&mut self, now: Instant) -> Option<Vec<Waiting>> {
        let count = self.waiting.len().min(BATCH_MAX);
        let mut batch: Vec<Waiting> = self.waiting.drain(..count).collect();
        if batch.is_empty() {
            self.is_sending = false;
            return None;
        }
        let count = self.along.len().min(BATCH_MAX - batch.len());
        batch.extend(self.along.drain(..count).map(|(_, waiting)| waiting));
        self.due(now, BATCH_MAX - batch.len(), &mut batch);
        Some(batch)
    }

    /// Whether a commit waits for a question.
    fn is_to_wait(&mut self) -> bool {
        self.untried = if self.luck > 0 { 0 } else { (self.untried + 1) % TRIED };
        self.luck > 0 || self.untried == 0
    }

    /// What goes along with a question for votes.
    fn riders(&mut self, now: Instant) -> Vec<Waiting> {
        if self.luck == 0 && self.along.is_empty() {
            return Vec::new();
        }
        let count = self.along.len().min(BATCH_MAX);
        let mut riders: Vec<Waiting> = self.along.drain(..count).map(|(_, waiting)| waiting).collect();
        self.due(now, BATCH_MAX - riders.len(), &mut riders);
        riders
    }

    /// Has those leave that have waited too long for a question, and all that wait with them.
    /// Answers until when the others may wait; nothing if there are none.
    fn give_up(&mut self, now: Instant) -> Option<Instant> {
        let until = self.along.first().map(|(since, _)| *since + ALONG);
        if until.is_some_and(|until| until <= now) {
            self.luck = self.luck.saturating_sub(BAD_LUCK);
            self.waiting.extend(self.along.drain(..).map(|(_, waiting)| waiting));
            return None;
        }
        until
    }

    /// Whether somebody has to go on sending.
    fn goes_on(&mut self) -> bool {
        self.is_sending = !self.waiting.is_empty();
        self.is_sending
    }

    /// Has what can wait no longer leave, together with all that may.
    fn hurry(&mut self, now: Instant) {
        let mut due = Vec::new();
        self.due(now, usize::MAX, &mut due);
        self.waiting.append(&mut due);
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
        match when {
            When::After(pause) => {
                self.with(|state| state.put_off(Instant::now() + pause, waiting));
                match timeout(2 * pause, &mut answer).await {
                    Ok(answer) => return answer.ok().flatten(),
                    Err(_) => self.with(|state| state.hurry(Instant::now())),
                }
            }
            When::Along if self.with(State::is_to_wait) => {
                self.wait_along(peers, waiting);
                return answer.await.ok().flatten();
            }
            When::Along | When::Now => self.with(|state| state.waiting.push(waiting)),
        }
        self.urge(peers).await;
        answer.await.ok().flatten()
    }

    /// Sees to it that what waits is sent.
    async fn urge(self: &Arc<Self>, peers: &Arc<Peers>) {
        let is_sending = self.with(|state| std::mem::replace(&mut state.is_sending, true));
        match is_sending {
            true => self.has_come.notify_one(),
            false => self.lead(peers).await,
        }
    }

    /// Has an entry wait for a question for votes. One task looks after all that do.
    fn wait_along(self: &Arc<Self>, peers: &Arc<Peers>, waiting: Waiting) {
        let is_watched = self.with(|state| {
            state.along.push((Instant::now(), waiting));
            std::mem::replace(&mut state.is_watched, true)
        });
        if !is_watched {
            tokio::spawn(Arc::clone(self).watch(Arc::clone(peers)));
        }
    }

    /// A call there has met a lock: until one is lucky again commits do not wait for questions.
    pub(crate) fn has_met_a_lock(&self) {
        self.with(|state| state.luck = 0);
    }

    /// Lets nobody wait too long for a question.
    async fn watch(self: Arc<Self>, peers: Arc<Peers>) {
        loop {
            let until = self.with(|state| {
                let until = state.give_up(Instant::now());
                state.is_watched = until.is_some();
                until
            });
            match until {
                Some(until) => sleep_until(until).await,
                // There may be some who were given up.
                None if self.with(|state| state.waiting.is_empty()) => return,
                None => return self.urge(&peers).await,
            }
        }
    }

    /// Takes what goes along with a question for votes.
    fn riders(&self) -> Vec<Waiting> {
        self.with(|state| state.riders(Instant::now()))
    }

    /// Whoever was asked has looked at what went along, or not: then it is said as always.
    fn has_ridden(self: &Arc<Self>, peers: &Arc<Peers>, unseen: Option<Vec<Waiting>>) {
        let is_left = self.with(|state| match unseen {
            None => {
                state.luck = (state.luck + LUCK).min(LUCK_MAX);
                false
            }
            Some(unseen) => {
                state.luck = 0;
                state.waiting.extend(unseen);
                true
            }
        });
        if is_left {
            let (courier, peers) = (Arc::clone(self), Arc::clone(peers));
            tokio::spawn(async move { courier.urge(&peers).await });
        }
    }

    /// Sends once more what was not spoken of yet.
    fn send_again(self: &Arc<Self>, peers: &Arc<Peers>, unsaid: Vec<Waiting>) {
        let is_sending = self.with(|state| {
            state.waiting.extend(unsaid);
            state.is_sending
        });
        if is_sending {
            return self.has_come.notify_one();
        }
        let (courier, peers) = (Arc::clone(self), Arc::clone(peers));
        tokio::spawn(async move { courier.urge(&peers).await });
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
    let commits = (courier.kind == Kind::Prepare).then(|| peers.courier(&courier.to, Kind::Commit));
    let riders = commits.as_ref().map(|commits| commits.riders()).unwrap_or_default();
    let (waiting, roots) = apart(batch);
    let (riding, carried) = apart(riders);
    let partly = courier.kind == Kind::Prepare && roots.len() > 1;
    let message = Message { roots, commits: carried, partly };
    let answers = peers.post(&courier.to, courier.kind, &message).await;
    let (roots, seen) = match answers {
        Some(Answers { roots, commits }) => (roots, commits),
        // It may have come through: whoever waits says it again.
        None => (Vec::new(), Some(Vec::new())),
    };
    let (waiting, unsaid) = match partly {
        true => unsaid(waiting, message.roots, &roots),
        false => (waiting, Vec::new()),
    };
    hand_out(waiting, roots);
    if !unsaid.is_empty() {
        courier.send_again(&peers, unsaid);
    }
    let Some(commits) = commits.filter(|_| !riding.is_empty()) else { return };
    match seen {
        Some(seen) => {
            if !seen.is_empty() {
                commits.has_ridden(&peers, None);
            }
            hand_out(riding, seen);
        }
        None => {
            let unseen = message.commits.into_iter().zip(riding);
            let unseen = unseen.map(|(entry, (_, answer))| Waiting { entry, answer }).collect();
            commits.has_ridden(&peers, Some(unseen));
        }
    }
}

/// Who waits for the answer about a root.
type Asking = (RootId, oneshot::Sender<Option<Answer>>);

/// Who waits, and for what.
fn apart(batch: Vec<Waiting>) -> (Vec<Asking>, Vec<Entry>) {
    batch.into_iter().map(|Waiting { entry, answer }| ((entry.root().clone(), answer), entry)).unzip()
}

/// Those of whose roots nothing was said although something was of others', apart from the rest.
fn unsaid(waiting: Vec<Asking>, roots: Vec<Entry>, answers: &[Answer]) -> (Vec<Asking>, Vec<Waiting>) {
    let said: HashSet<&str> = answers.iter().map(|answer| answer.root.as_str()).collect();
    // Who is answered of none of them has an answer that makes no sense.
    if !waiting.iter().any(|(root, _)| said.contains(root.as_str())) {
        return (waiting, Vec::new());
    }
    let (mut told, mut unsaid) = (Vec::with_capacity(waiting.len()), Vec::new());
    for ((root, answer), entry) in waiting.into_iter().zip(roots) {
        match said.contains(root.as_str()) {
            true => told.push((root, answer)),
            false => unsaid.push(Waiting { entry, answer }),
        }
    }
    (told, unsaid)
}

/// Tells each what was said about his root. Who says two things of one says nothing.
fn hand_out(waiting: Vec<Asking>, answers: Vec<Answer>) {
    let mut said: HashMap<String, Option<Answer>> = HashMap::with_capacity(answers.len());
    for mut answer in answers {
        let before = said.entry(std::mem::take(&mut answer.root)).and_modify(|before| {
            if before.as_ref() != Some(&answer) {
                *before = None;
            }
        });
        before.or_insert(Some(answer));
    }
    for (root, sender) in waiting {
        let _ = sender.send(said.remove(root.as_str()).flatten());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::OutcomeEntry;

    fn waiting(root: &str) -> Waiting {
        let root = RootId::new(root).unwrap();
        let (callers, origin) = (Vec::new(), None);
        let entry = OutcomeEntry { root, parent: None, child: None, nonce: None, callers, origin };
        Waiting { entry: Entry::Outcome(entry), answer: oneshot::channel().0 }
    }

    fn about(root: &str, vote: &str) -> Answer {
        let (root, vote) = (root.to_owned(), Some(vote.to_owned()));
        Answer { root, vote, reason: None, nonce: None, state: None, origin: None }
    }

    fn roots(batch: Option<Vec<Waiting>>) -> Option<Vec<String>> {
        batch.map(|batch| batch.iter().map(|waiting| waiting.entry.root().to_string()).collect())
    }

    #[test]
    fn what_can_wait_goes_along_with_what_cannot() {
        let now = Instant::now();
        let mut state = State { is_sending: true, ..State::default() };
        state.put_off(now + PACE, waiting("a"));
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
            state.put_off(from, waiting(root));
        }
        state.hurry(now);
        assert_eq!(roots(state.take(now)), Some(vec!["a".to_owned(), "c".to_owned()]));
        assert_eq!(state.later.len(), 1);
    }

    #[test]
    fn who_has_sent_his_own_leaves_the_rest_to_somebody_or_nobody() {
        let mut state = State { is_sending: true, ..State::default() };
        state.put_off(Instant::now(), waiting("a"));
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
        state.put_off(now, waiting("b"));
        assert_eq!(state.take(now).map(|batch| batch.len()), Some(BATCH_MAX));
        assert_eq!(roots(state.take(now)), Some(vec!["a".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn who_is_not_spoken_of_is_asked_for_again_if_others_are() {
        let about = |root: &str| about(root, "yes");
        let of = |answers: &[Answer]| {
            let (asking, entries) = apart(["a", "b", "c"].map(waiting).into());
            let (told, again) = unsaid(asking, entries, answers);
            let told: Vec<String> = told.iter().map(|(root, _)| root.to_string()).collect();
            (told, roots(Some(again)).unwrap())
        };
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(of(&[about("b")]), (names(&["b"]), names(&["a", "c"])));
        let all = [about("c"), about("b"), about("a")];
        assert_eq!(of(&all), (names(&["a", "b", "c"]), names(&[])));
        // Otherwise they would be asked for without end.
        for nothing in [&[][..], &[about("d")]] {
            assert_eq!(of(nothing), (names(&["a", "b", "c"]), names(&[])));
        }
    }

    #[test]
    fn who_says_two_things_of_a_root_says_nothing() {
        let heard = |votes: &[&str]| {
            let (sender, mut heard) = oneshot::channel();
            let answers = [about("b", "no")].into_iter().chain(votes.iter().map(|vote| about("a", vote)));
            hand_out(vec![(RootId::new("a").unwrap(), sender)], answers.collect());
            heard.try_recv().unwrap().and_then(|answer| answer.vote)
        };
        let cases: [(&[&str], Option<&str>); 6] = [
            (&["yes"], Some("yes")),
            (&["yes", "yes"], Some("yes")),
            (&["yes", "no"], None),
            (&["no", "yes"], None),
            (&["yes", "no", "yes"], None),
            (&[], None),
        ];
        for (votes, vote) in cases {
            assert_eq!(heard(votes).as_deref(), vote, "{votes:?}");
        }
    }

    #[test]
    fn commits_go_along_with_a_question_or_leave_together() {
        let now = Instant::now();
        let mut state = State::default();
        assert!(state.riders(now).is_empty() && state.give_up(now).is_none());
        for (root, since) in [("a", now), ("b", now + PACE)] {
            state.along.push((since, waiting(root)));
        }
        state.put_off(now, waiting("c"));
        assert_eq!(state.give_up(now + PACE), Some(now + ALONG), "the first one may wait");
        let riders = Some(state.riders(now));
        assert_eq!(roots(riders), Some(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]));
        for (root, since) in [("d", now), ("e", now + PACE)] {
            state.along.push((since, waiting(root)));
        }
        assert_eq!(state.give_up(now + ALONG), None);
        assert_eq!(roots(state.take(now + ALONG)), Some(vec!["d".to_owned(), "e".to_owned()]));
        // Or with one that leaves anyway.
        state.along.push((now, waiting("f")));
        state.waiting.push(waiting("g"));
        assert_eq!(roots(state.take(now)), Some(vec!["g".to_owned(), "f".to_owned()]));
    }

    #[test]
    fn commits_do_not_wait_where_a_call_has_met_a_lock() {
        let courier = Courier::new(Name::new("stock").unwrap(), Kind::Commit);
        courier.with(|state| state.luck = LUCK_MAX);
        assert!(courier.with(State::is_to_wait));
        courier.has_met_a_lock();
        assert!(!courier.with(State::is_to_wait));
    }

    #[test]
    fn commits_wait_as_long_as_most_of_them_go_along() {
        let now = Instant::now();
        let mut state = State::default();
        let tried: Vec<bool> = (0..2 * TRIED).map(|_| state.is_to_wait()).collect();
        assert_eq!(tried.iter().filter(|is_tried| **is_tried).count(), 2, "one of so many tries it");
        assert!(!tried[0], "the first ones do not wait");
        state.luck = LUCK;
        assert!(state.is_to_wait() && state.is_to_wait());
        state.along.push((now, waiting("a")));
        assert_eq!(state.give_up(now + ALONG), None);
        assert!(!state.is_to_wait(), "it has waited in vain");
        state.put_off(now, waiting("b"));
        assert!(state.riders(now).is_empty(), "whoever may not look at it is not asked");
    }
}
