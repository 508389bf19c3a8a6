//! LISTEN, NOTIFY and UNLISTEN.
//!
//! What a transaction has to say, and which channels it begins or ceases to listen on, waits in its
//! session until it commits ([`News`]). A commit that has something of this takes its place in one
//! line for the whole database ([`Channels`]); when it is durable, and so are those ahead of it,
//! its notifications go to the mailboxes of those who listen. So everybody gets them in the order
//! of the commits, and nobody hears of what could still be lost.
//!
//! ```text
//! A: COMMIT 1st in line      ... durable last
//! B: COMMIT 2nd in line      ... durable: waits in the line
//!                            A is durable: A's notifications, then B's
//! ```
//!
//! A mailbox never holds up who notifies: one that is full ends its session, whose client is told
//! why, and so knows that it has missed something. Its owner waits for it with the task's waker
//! left under the mailbox's mutex, which is also where letters come in: so none comes unseen.
//!
//! What waits to be said is charged to the memory that statements share, as are the channels of a
//! session, and a mailbox beyond [`FREE_BYTES`].
//!
//! In a cluster channels are those of one node. A transaction whose client was told there that
//! nobody knows yet whether it commits ([`Said`]) takes its place in the line when that is known.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use cognate_engine::Commit;
use parking_lot::Mutex;

use super::facts::Facts;
use super::interrupt::Interrupts;
use super::{Orders, Session};
use crate::budget::{Budget, Charge};
use crate::error::{Result, SqlError, sqlstate};

/// A payload has less bytes than this, and so has the name of a channel.
const PAYLOAD_BYTES: usize = 8000;
const CHANNEL_BYTES: usize = 64;

/// So many bytes wait in a mailbox, or in a transaction.
const WAITING_BYTES: usize = 16 << 20;

/// What a notification takes besides its texts, about.
const NOTIFICATION_BYTES: usize = 128;

/// What a channel takes that a session listens on, or what begins or ends that, about.
const LISTENING_BYTES: usize = 256;

/// So many bytes wait in a mailbox without being charged: those who listen are not ended because
/// others have taken all memory.
const FREE_BYTES: usize = 64 << 10;

/// What the memory is called.
const MAIL: &str = "Notifications";
const LISTENING: &str = "The channels of a session";

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notification {
    /// The session that it comes from.
    pub process_id: i32,
    /// Its channel.
    pub channel: Arc<str>,
    /// What it says, possibly nothing.
    pub payload: Arc<str>,
}

impl Notification {
    fn bytes(&self) -> usize {
        NOTIFICATION_BYTES + self.channel.len() + self.payload.len()
    }
}

/// Where a session's notifications wait for its client.
#[derive(Default)]
pub(crate) struct Mailbox(Mutex<Letters>);

#[derive(Default)]
struct Letters {
    waiting: VecDeque<Notification>,
    bytes: usize,
    /// Where memory comes from, once the session listens.
    budget: Option<Arc<Budget>>,
    charge: Option<Charge>,
    /// So many bytes need no more memory.
    paid: usize,
    reader: Option<Waker>,
    /// Something was lost; nothing comes any more.
    is_full: bool,
}

impl Letters {
    /// Takes memory for what waits, for many letters at a time. False if there is none.
    fn has_room(&mut self) -> bool {
        if self.bytes <= self.paid.max(FREE_BYTES) {
            return true;
        }
        let Some(budget) = &self.budget else { return true };
        let wanted = self.bytes + FREE_BYTES;
        let has = resize(&mut self.charge, wanted, budget, MAIL).is_ok();
        if has {
            self.paid = wanted;
        }
        has
    }
}

/// So many bytes instead. 53200 if there are not so many more.
fn resize(charge: &mut Option<Charge>, bytes: usize, budget: &Arc<Budget>, what: &str) -> Result<()> {
    if let Some(known) = charge {
        return known.resize(bytes, what);
    }
    if bytes > 0 {
        *charge = Some(budget.charge(bytes, what)?);
    }
    Ok(())
}

impl Mailbox {
    /// Its session listens: what waits takes memory of this.
    fn open(&self, budget: &Arc<Budget>) {
        self.0.lock().budget.get_or_insert_with(|| Arc::clone(budget));
    }

    /// False if it is full, which it becomes once.
    fn put(&self, notification: &Notification) -> bool {
        let mut letters = self.0.lock();
        if letters.is_full {
            return true;
        }
        letters.bytes += notification.bytes();
        if letters.bytes > WAITING_BYTES || !letters.has_room() {
            letters.is_full = true;
            return false;
        }
        letters.waiting.push_back(notification.clone());
        let reader = letters.reader.take();
        drop(letters);
        if let Some(reader) = reader {
            reader.wake();
        }
        true
    }

    /// How much of the room is taken. One that is full has none left.
    fn usage(&self) -> f64 {
        self.0.lock().bytes.min(WAITING_BYTES) as f64 / WAITING_BYTES as f64
    }

    fn take(&self) -> VecDeque<Notification> {
        let mut letters = self.0.lock();
        (letters.bytes, letters.paid, letters.charge) = (0, 0, None);
        std::mem::take(&mut letters.waiting)
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut letters = self.0.lock();
        if !letters.waiting.is_empty() {
            return Poll::Ready(());
        }
        // Nobody writes to who has never listened, and who begins to does not wait meanwhile.
        if letters.budget.is_some() {
            letters.reader = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

/// Who listens, and what is on its way.
#[derive(Default)]
pub(crate) struct Channels {
    /// Held from before a commit until it is in the line.
    order: tokio::sync::Mutex<()>,
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    next: u64,
    /// In their order.
    commits: VecDeque<Saying>,
    listeners: HashMap<Arc<str>, Vec<Listener>>,
}

/// What a commit has to say.
struct Saying {
    number: u64,
    said: Said,
    /// It is durable, or was not to be.
    is_settled: bool,
}

/// What a transaction has to say.
pub(super) struct Said {
    notifications: Vec<Notification>,
    /// Given back with it.
    _charge: Option<Charge>,
}

impl Said {
    /// The transaction has committed, though its session did not wait for that: its place in the
    /// line, behind whoever has committed and said so meanwhile.
    fn enter(self, channels: &Channels) -> Place<'_> {
        let mut line = channels.line.lock();
        line.next += 1;
        let number = line.next;
        line.commits.push_back(Saying { number, said: self, is_settled: false });
        Place { channels, number, is_durable: false }
    }
}

struct Listener {
    mailbox: Arc<Mailbox>,
    orders: Option<Arc<dyn Orders>>,
    /// It hears of commits from this one on.
    since: u64,
}

impl Line {
    fn deliver(&mut self) {
        while self.commits.front().is_some_and(|saying| saying.is_settled) {
            let Some(saying) = self.commits.pop_front() else { return };
            for notification in saying.said.notifications {
                let listeners = self.listeners.get(&notification.channel).into_iter().flatten();
                for listener in listeners.filter(|listener| listener.since <= saying.number) {
                    if !listener.mailbox.put(&notification)
                        && let Some(orders) = &listener.orders
                    {
                        orders.terminate_for(unread());
                    }
                }
            }
        }
    }

    fn unlisten(&mut self, mailbox: &Arc<Mailbox>, channel: &str) {
        if let Some(listeners) = self.listeners.get_mut(channel) {
            listeners.retain(|listener| !Arc::ptr_eq(&listener.mailbox, mailbox));
            if listeners.is_empty() {
                self.listeners.remove(channel);
            }
        }
    }
}

/// Why a session ends that does not read its notifications. The state is that of other ends which
/// are no fault of a statement's: clients know from it that they have to connect anew.
fn unread() -> SqlError {
    let message = "terminating connection because it has too many notifications unread";
    let detail = format!(
        "Up to {} MB of notifications wait for a session, and less where memory is short.",
        WAITING_BYTES >> 20
    );
    SqlError::new(sqlstate::ADMIN_SHUTDOWN, message).with_detail(detail).with_hint(
        "A session that listens is told between its transactions only: end them soon, and read what comes. \
         What was notified meanwhile is lost; connect anew and LISTEN again.",
    )
}

/// A commit's place in the line. Without `settled`, nobody hears of it.
pub(super) struct Place<'a> {
    channels: &'a Channels,
    number: u64,
    is_durable: bool,
}

impl Place<'_> {
    /// It is durable.
    pub(super) fn settled(mut self) {
        self.is_durable = true;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut line = self.channels.line.lock();
        let own = line.commits.iter_mut().find(|saying| saying.number == self.number);
        if let Some(saying) = own {
            saying.is_settled = true;
            if !self.is_durable {
                saying.said.notifications.clear();
            }
        }
        line.deliver();
    }
}

impl Channels {
    /// How much of its room the fullest mailbox has taken, of 1.
    pub(super) fn usage(&self) -> f64 {
        let line = self.line.lock();
        let all = line.listeners.values().flatten();
        all.map(|listener| listener.mailbox.usage()).fold(0.0, f64::max)
    }

    /// A transaction with something to say commits: until this is dropped no other one does. At a
    /// node who is before it may wait for the order of all nodes, and for as long as it takes to
    /// send what is large ahead; nothing of this one has been ordered, so it may give up.
    ///
    /// # Errors
    /// What interrupts the wait.
    pub(super) async fn order(&self, interrupts: &Interrupts) -> Result<tokio::sync::MutexGuard<'_, ()>> {
        interrupts.wait(async { Ok::<_, SqlError>(self.order.lock().await) }).await
    }
}

/// What a session listens on, and what its transaction has to say.
#[derive(Default)]
pub(crate) struct News {
    mailbox: Arc<Mailbox>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    listening: BTreeSet<Arc<str>>,
    actions: Vec<Action>,
    notifications: Vec<Notification>,
    known: HashSet<Notification>,
    bytes: usize,
    /// For the notifications.
    charge: Option<Charge>,
    /// For channels, and what begins or ends listening on them.
    channels_charge: Option<Charge>,
}

impl State {
    fn take_said(&mut self) -> Said {
        let (notifications, charge) = (std::mem::take(&mut self.notifications), self.charge.take());
        self.known.clear();
        self.bytes = 0;
        self.give_back();
        Said { notifications, _charge: charge }
    }

    fn channels_bytes(&self) -> usize {
        (self.listening.len() + self.actions.len()) * LISTENING_BYTES
    }

    /// There is less than before: gives memory back.
    fn give_back(&mut self) {
        let channels = self.channels_bytes();
        let fewer = [(&mut self.charge, self.bytes), (&mut self.channels_charge, channels)];
        for (charge, bytes) in fewer {
            match bytes {
                0 => *charge = None,
                // Less is always to be had.
                _ => drop(charge.as_mut().map(|charge| charge.resize(bytes, MAIL))),
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Action {
    Listen(Arc<str>),
    Unlisten(Arc<str>),
    UnlistenAll,
}

impl News {
    fn act(&self, action: Action, budget: &Arc<Budget>) -> Result<()> {
        let state = &mut *self.state.lock();
        let bytes = state.channels_bytes() + LISTENING_BYTES;
        resize(&mut state.channels_charge, bytes, budget, LISTENING)?;
        state.actions.push(action);
        Ok(())
    }

    /// NOTIFY and pg_notify. 22023 for names and payloads that are too long; 53200, 54000.
    pub(super) fn notify(
        &self,
        process_id: i32,
        (channel, payload): (&str, &str),
        budget: &Arc<Budget>,
    ) -> Result<()> {
        let refuse = |what: &str| Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, what));
        match () {
            () if channel.is_empty() => return refuse("channel name cannot be empty"),
            () if channel.len() >= CHANNEL_BYTES => return refuse("channel name too long"),
            () if payload.len() >= PAYLOAD_BYTES => return refuse("payload string too long"),
            () => {}
        }
        let notification = Notification { process_id, channel: channel.into(), payload: payload.into() };
        let state = &mut *self.state.lock();
        if state.known.contains(&notification) {
            return Ok(());
        }
        let bytes = state.bytes + notification.bytes();
        if bytes > WAITING_BYTES {
            return Err(SqlError::new(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                "too many notifications in the NOTIFY queue",
            )
            .with_detail(format!("Those of a transaction may take {} MB.", WAITING_BYTES >> 20)));
        }
        resize(&mut state.charge, bytes, budget, MAIL)?;
        state.bytes = bytes;
        state.known.insert(notification.clone());
        state.notifications.push(notification);
        Ok(())
    }

    /// Whether the transaction has something to say, or listens from its end on.
    pub(super) fn is_pending(&self) -> bool {
        let state = self.state.lock();
        !state.actions.is_empty() || !state.notifications.is_empty()
    }

    /// How much there is, for a savepoint.
    pub(super) fn mark(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.actions.len(), state.notifications.len())
    }

    /// Forgets what came after a savepoint, or (with nothing before) all of it.
    pub(super) fn undo(&self, (actions, notifications): (usize, usize)) {
        let mut state = self.state.lock();
        state.actions.truncate(actions);
        while state.notifications.len() > notifications {
            let Some(notification) = state.notifications.pop() else { break };
            state.bytes -= notification.bytes();
            state.known.remove(&notification);
        }
        state.give_back();
    }

    /// The transaction has committed, in the order that `order` keeps: its place in the line.
    pub(super) fn enter<'a>(&self, facts: &Facts, channels: &'a Channels) -> Place<'a> {
        let mut state = self.state.lock();
        let mut line = channels.line.lock();
        line.next += 1;
        let number = line.next;
        let State { listening, actions, .. } = &mut *state;
        for action in actions.drain(..) {
            match action {
                Action::Listen(channel) => {
                    if listening.insert(channel.clone()) {
                        self.mailbox.open(facts.database.statement_budget());
                        let (mailbox, orders) = (self.mailbox.clone(), facts.orders.clone());
                        let listener = Listener { mailbox, orders, since: number };
                        line.listeners.entry(channel).or_default().push(listener);
                    }
                }
                Action::Unlisten(channel) => {
                    listening.remove(&channel);
                    line.unlisten(&self.mailbox, &channel);
                }
                Action::UnlistenAll => {
                    for channel in std::mem::take(listening) {
                        line.unlisten(&self.mailbox, &channel);
                    }
                }
            }
        }
        line.commits.push_back(Saying { number, said: state.take_said(), is_settled: false });
        Place { channels, number, is_durable: false }
    }

    /// Takes out what the transaction has to say, if it has.
    fn take_said(&self) -> Option<Said> {
        let mut state = self.state.lock();
        (!state.notifications.is_empty()).then(|| state.take_said())
    }

    /// The session listens no longer.
    pub(super) fn end(&self, channels: &Channels) {
        let mut state = self.state.lock();
        if !state.listening.is_empty() {
            let mut line = channels.line.lock();
            for channel in std::mem::take(&mut state.listening) {
                line.unlisten(&self.mailbox, &channel);
            }
        }
        state.give_back();
    }

    /// The channels that the session listens on.
    pub(crate) fn listening(&self) -> Vec<String> {
        self.state.lock().listening.iter().map(|channel| channel.to_string()).collect()
    }
}

impl Session {
    /// NOTIFY.
    pub(super) fn notify(&self, channel: &str, payload: &str) -> Result<()> {
        let budget = self.database.statement_budget();
        self.facts.news.notify(self.facts.process_id, (channel, payload), budget)
    }

    /// LISTEN. 53200 beyond what all sessions may take.
    pub(super) fn listen(&self, channel: &str) -> Result<()> {
        self.facts.news.act(Action::Listen(channel.into()), self.database.statement_budget())
    }

    /// UNLISTEN, of a channel or (`*`) of all.
    pub(super) fn unlisten(&self, channel: Option<&str>) -> Result<()> {
        let action = match channel {
            Some(channel) => Action::Unlisten(channel.into()),
            None => Action::UnlistenAll,
        };
        self.facts.news.act(action, self.database.statement_budget())
    }

    /// The client is told that nobody knows whether the transaction commits. What it has to say is
    /// said once it has; it listens on no more channels by it.
    pub(super) fn say_later(
        &self,
        committed: impl Future<Output = std::result::Result<Commit, cognate_engine::Error>> + Send + 'static,
    ) {
        let Some(said) = self.facts.news.take_said() else { return };
        let database = self.database.clone();
        tokio::spawn(async move {
            let Ok(commit) = committed.await else { return };
            let place = said.enter(database.channels());
            if commit.durable.await.is_ok() {
                place.settled();
            }
        });
    }

    /// 0A000 if the transaction cannot be prepared: its session would not be there any more.
    pub(super) fn check_no_news(&self) -> Result<()> {
        if !self.facts.news.is_pending() {
            return Ok(());
        }
        let message = "cannot PREPARE a transaction that has executed LISTEN, UNLISTEN, or NOTIFY";
        Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message))
    }

    /// Notifications for the client, oldest first. None while a transaction is open.
    pub fn take_notifications(&mut self) -> impl Iterator<Item = Notification> {
        let letters = if self.is_fresh() { self.facts.news.mailbox.take() } else { VecDeque::new() };
        letters.into_iter()
    }

    /// Ready once there are notifications that the client may be told.
    pub fn poll_notifications(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_fresh() { self.facts.news.mailbox.poll(context) } else { Poll::Pending }
    }
}
