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
//! A mailbox never holds up who notifies: one that is full ends its session, whose client sees from
//! that that it has missed something. Its owner waits for it with the task's waker left under the
//! mailbox's mutex, which is also where letters come in: so none comes unseen.
//!
//! In a cluster channels are those of one node.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::facts::Facts;
use super::{Orders, Session};
use crate::error::{Result, SqlError, sqlstate};

/// A payload has less bytes than this, and so has the name of a channel.
const PAYLOAD_BYTES: usize = 8000;
const CHANNEL_BYTES: usize = 64;

/// So many bytes wait in a mailbox, or in a transaction.
const WAITING_BYTES: usize = 16 << 20;

/// What a notification takes besides its texts, about.
const NOTIFICATION_BYTES: usize = 128;

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
    reader: Option<Waker>,
    /// Something was lost; nothing comes any more.
    is_full: bool,
}

impl Mailbox {
    /// False if it is full, which it becomes once.
    fn put(&self, notification: &Notification) -> bool {
        let mut letters = self.0.lock();
        if letters.is_full {
            return true;
        }
        letters.bytes += notification.bytes();
        if letters.bytes > WAITING_BYTES {
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

    fn take(&self) -> VecDeque<Notification> {
        let mut letters = self.0.lock();
        letters.bytes = 0;
        std::mem::take(&mut letters.waiting)
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut letters = self.0.lock();
        if !letters.waiting.is_empty() {
            return Poll::Ready(());
        }
        letters.reader = Some(context.waker().clone());
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
    /// In the order of commits; `None` is not durable yet.
    commits: VecDeque<(u64, Vec<Notification>, bool)>,
    listeners: HashMap<Arc<str>, Vec<Listener>>,
}

struct Listener {
    mailbox: Arc<Mailbox>,
    orders: Option<Arc<dyn Orders>>,
    /// It hears of commits from this one on.
    since: u64,
}

impl Line {
    fn deliver(&mut self) {
        while self.commits.front().is_some_and(|(_, _, is_settled)| *is_settled) {
            let Some((number, notifications, _)) = self.commits.pop_front() else { return };
            for notification in notifications {
                let listeners = self.listeners.get(&notification.channel).into_iter().flatten();
                for listener in listeners.filter(|listener| listener.since <= number) {
                    if !listener.mailbox.put(&notification)
                        && let Some(orders) = &listener.orders
                    {
                        orders.terminate();
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
        let own = line.commits.iter_mut().find(|(number, _, _)| *number == self.number);
        if let Some((_, notifications, is_settled)) = own {
            *is_settled = true;
            if !self.is_durable {
                notifications.clear();
            }
        }
        line.deliver();
    }
}

impl Channels {
    /// A transaction with something to say commits: until this is dropped no other one does.
    pub(super) async fn order(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.order.lock().await
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
}

#[derive(Clone, Debug)]
enum Action {
    Listen(Arc<str>),
    Unlisten(Arc<str>),
    UnlistenAll,
}

impl News {
    fn act(&self, action: Action) {
        self.state.lock().actions.push(action);
    }

    /// NOTIFY and pg_notify. 22023 for names and payloads that are too long.
    pub(super) fn notify(&self, process_id: i32, channel: &str, payload: &str) -> Result<()> {
        let refuse = |what: &str| Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, what));
        match () {
            () if channel.is_empty() => return refuse("channel name cannot be empty"),
            () if channel.len() >= CHANNEL_BYTES => return refuse("channel name too long"),
            () if payload.len() >= PAYLOAD_BYTES => return refuse("payload string too long"),
            () => {}
        }
        let notification = Notification { process_id, channel: channel.into(), payload: payload.into() };
        let mut state = self.state.lock();
        if state.known.contains(&notification) {
            return Ok(());
        }
        if state.bytes + notification.bytes() > WAITING_BYTES {
            return Err(SqlError::new(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                "too many notifications in the NOTIFY queue",
            )
            .with_detail(format!("Those of a transaction may take {} MB.", WAITING_BYTES >> 20)));
        }
        state.bytes += notification.bytes();
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
            let Some(notification) = state.notifications.pop() else { return };
            state.bytes -= notification.bytes();
            state.known.remove(&notification);
        }
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
        let notifications = std::mem::take(&mut state.notifications);
        state.known.clear();
        state.bytes = 0;
        line.commits.push_back((number, notifications, false));
        Place { channels, number, is_durable: false }
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
    }

    /// The channels that the session listens on.
    pub(crate) fn listening(&self) -> Vec<String> {
        self.state.lock().listening.iter().map(|channel| channel.to_string()).collect()
    }
}

impl Session {
    /// LISTEN.
    pub(super) fn listen(&self, channel: &str) {
        self.facts.news.act(Action::Listen(channel.into()));
    }

    /// UNLISTEN, of a channel or (`*`) of all.
    pub(super) fn unlisten(&self, channel: Option<&str>) {
        self.facts.news.act(match channel {
            Some(channel) => Action::Unlisten(channel.into()),
            None => Action::UnlistenAll,
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
