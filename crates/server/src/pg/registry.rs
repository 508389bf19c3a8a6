//! All connections of the server: admission, cancel requests, and the order to stop.
//!
//! A connection is *open* from its accepted socket to its end, and a *session* from its
//! authentication to its end. Sessions are limited by `max_connections`. Who is open and not
//! authenticated is a *stranger*, and strangers have a small limit of their own. At that limit
//! nobody is accepted before one of them has got in or gone, or the one that has been a stranger
//! for longest has had time enough; then that one is ended. So strangers who never authenticate
//! neither keep users out for long nor use up file descriptors, and of a thousand users who come in
//! one moment each gets in.
//!
//! Mutex order: `Registry::connections`, then `Entry::wake`. Neither is held across a wait or a
//! call into a session other than `CancelHandle::cancel`, which only sets a flag and wakes.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use cognate_sql::SqlError;
use cognate_sql::session::{CancelHandle, Orders};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

/// Fewest and most strangers at a time.
const STRANGERS_MIN: usize = 32;
const STRANGERS_MAX: usize = 200;
/// A stranger has at least this long to authenticate, however many others come.
const STRANGER_TIME: Duration = Duration::from_millis(500);
/// Bytes of the secret in BackendKeyData for protocol 3.2; 3.0 has the first four of them.
const SECRET_BYTES: usize = 32;
const SHORT_SECRET_BYTES: usize = 4;

/// How much a connection still may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) enum Stop {
    /// Everything.
    No = 0,
    /// Finish what runs, then leave.
    WhenIdle = 1,
    /// Leave now; the running statement is cancelled.
    Now = 2,
}

/// All connections.
#[derive(Debug)]
pub(crate) struct Registry {
    sessions_max: usize,
    strangers_max: usize,
    open: AtomicUsize,
    sessions: AtomicUsize,
    refused: AtomicUsize,
    next_process_id: AtomicI32,
    stop: AtomicU8,
    connections: Mutex<Connections>,
    all_closed: Notify,
    /// Somebody is not a stranger any more.
    fewer_strangers: Notify,
}

#[derive(Debug, Default)]
struct Connections {
    all: HashMap<i32, Arc<Entry>>,
    /// Those not authenticated, and since when they are open, oldest first.
    strangers: VecDeque<(i32, Instant)>,
}

/// What others may know of and do to one connection.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) process_id: i32,
    secret: [u8; SECRET_BYTES],
    /// So many bytes of it the client was told, and whoever cancels has to say: zero before that.
    told: AtomicUsize,
    stop: AtomicU8,
    /// Why it is ended, if it is for a reason of its own.
    why: OnceLock<SqlError>,
    cancel: OnceLock<CancelHandle>,
    /// Wakes the connection's task.
    wake: Mutex<Option<Waker>>,
}

/// One open connection; counts as such until dropped.
#[derive(Debug)]
pub(crate) struct Open {
    registry: Arc<Registry>,
    entry: Arc<Entry>,
    session: bool,
}

impl Registry {
    pub(crate) fn new(sessions_max: usize) -> Arc<Registry> {
        Arc::new(Registry {
            sessions_max,
            strangers_max: (sessions_max / 10).clamp(STRANGERS_MIN, STRANGERS_MAX),
            open: AtomicUsize::new(0),
            sessions: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            next_process_id: AtomicI32::new(0),
            stop: AtomicU8::new(Stop::No as u8),
            connections: Mutex::default(),
            all_closed: Notify::new(),
            fewer_strangers: Notify::new(),
        })
    }

    /// Waits until another stranger may be let in: there are few, or the oldest has had its time.
    pub(crate) async fn room(&self) {
        loop {
            let fewer = self.fewer_strangers.notified();
            let oldest = {
                let connections = self.connections.lock();
                match connections.strangers.front() {
                    Some(&(_, since)) if connections.strangers.len() >= self.strangers_max => since,
                    _ => return,
                }
            };
            if tokio::time::timeout_at(oldest + STRANGER_TIME, fewer).await.is_err() {
                return;
            }
        }
    }

    /// Counts a new socket. If there are too many strangers, the oldest has to go.
    pub(crate) fn open(self: &Arc<Self>) -> Open {
        self.open.fetch_add(1, Ordering::SeqCst);
        let mut connections = self.connections.lock();
        while connections.strangers.len() >= self.strangers_max {
            let oldest = connections.strangers.pop_front();
            if let Some(entry) = oldest.and_then(|(oldest, _)| connections.all.get(&oldest)) {
                entry.order(Stop::Now);
                self.count_refused();
            }
        }
        let process_id = loop {
            let id = self.next_process_id.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & i32::MAX;
            if id != 0 && !connections.all.contains_key(&id) {
                break id;
            }
        };
        let entry = Arc::new(Entry {
            process_id,
            secret: rand::random(),
            told: AtomicUsize::new(0),
            stop: AtomicU8::new(self.stop.load(Ordering::SeqCst)),
            why: OnceLock::new(),
            cancel: OnceLock::new(),
            wake: Mutex::new(None),
        });
        connections.all.insert(process_id, entry.clone());
        connections.strangers.push_back((process_id, Instant::now()));
        Open { registry: self.clone(), entry, session: false }
    }

    /// Interrupts the statement of a connection, if the secret is right. Says nothing about whether
    /// it was.
    pub(crate) fn cancel(&self, process_id: i32, secret: &[u8]) {
        let Some(entry) = self.connections.lock().all.get(&process_id).cloned() else { return };
        if entry.knows(secret) {
            entry.cancel_statement();
        }
    }

    /// Orders all connections, and those still to come, to stop.
    pub(crate) fn stop(&self, how: Stop) {
        self.stop.store(how as u8, Ordering::SeqCst);
        let connections: Vec<_> = self.connections.lock().all.values().cloned().collect();
        for entry in connections {
            entry.order(how);
            if how == Stop::Now {
                entry.cancel_statement();
            }
        }
    }

    /// Waits until no connection is open.
    pub(crate) async fn closed(&self) {
        loop {
            let notified = self.all_closed.notified();
            if self.open.load(Ordering::SeqCst) == 0 {
                return;
            }
            notified.await;
        }
    }

    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Sessions at this moment.
    pub(crate) fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Sockets at this moment.
    pub(crate) fn open_count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Connections refused so far because there were too many.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// Most sessions at a time.
    pub(crate) fn sessions_max(&self) -> usize {
        self.sessions_max
    }
}

impl Entry {
    /// Gives the order and wakes the connection's task, which looks at it.
    fn order(&self, how: Stop) {
        self.stop.store(how as u8, Ordering::SeqCst);
        if let Some(waker) = self.wake.lock().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// The secret that the client is told: all of it, or as much as protocol 3.0 has room for.
    pub(crate) fn tell_secret(&self, is_long: bool) -> &[u8] {
        let told = if is_long { SECRET_BYTES } else { SHORT_SECRET_BYTES };
        self.told.store(told, Ordering::Relaxed);
        &self.secret[..told]
    }

    /// Whether this is what the client was told.
    fn knows(&self, secret: &[u8]) -> bool {
        let told = self.told.load(Ordering::Relaxed);
        told > 0 && same(&self.secret[..told], secret)
    }

    /// Interrupts the statement that runs, if one does.
    pub(crate) fn cancel_statement(&self) {
        if let Some(cancel) = self.cancel.get() {
            cancel.cancel();
        }
    }

    /// The order in force. Stays cheap: read before every wait.
    pub(crate) fn stop(&self) -> Stop {
        match self.stop.load(Ordering::SeqCst) {
            0 => Stop::No,
            1 => Stop::WhenIdle,
            _ => Stop::Now,
        }
    }

    /// Why the connection has to end, if not by an order of the operator's.
    pub(crate) fn why(&self) -> Option<&SqlError> {
        self.why.get()
    }

    /// Has this task woken when the order changes. The order is to be read after the call.
    pub(crate) fn wake_with(&self, waker: &Waker) {
        *self.wake.lock() = Some(waker.clone());
    }
}

impl Orders for Entry {
    fn cancel(&self) {
        self.cancel_statement();
    }

    fn terminate(&self) {
        self.order(Stop::Now);
        self.cancel_statement();
    }

    fn terminate_for(&self, why: SqlError) {
        // The first reason stays.
        let _ = self.why.set(why);
        self.terminate();
    }
}

impl Open {
    /// What others see of this connection.
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// Admits the session. False if there are too many.
    pub(crate) fn admit(&mut self) -> bool {
        if self.registry.sessions.fetch_add(1, Ordering::SeqCst) >= self.registry.sessions_max {
            self.registry.sessions.fetch_sub(1, Ordering::SeqCst);
            self.registry.count_refused();
            return false;
        }
        self.session = true;
        self.registry.connections.lock().strangers.retain(|&(id, _)| id != self.entry.process_id);
        self.registry.fewer_strangers.notify_one();
        true
    }

    /// Gives the session's place back, once it has ended: its client is only told why. The socket
    /// counts as open until then.
    pub(crate) fn leave(&mut self) {
        if std::mem::take(&mut self.session) {
            self.registry.sessions.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether all connections are to stop, and not only this one.
    pub(crate) fn is_server_stopping(&self) -> bool {
        self.registry.stop.load(Ordering::SeqCst) != Stop::No as u8
    }

    /// From now on cancel requests reach this session.
    pub(crate) fn set_cancel(&self, handle: CancelHandle) {
        // A connection has one session, so this is the first and only call.
        let _ = self.entry.cancel.set(handle);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut connections = self.registry.connections.lock();
        connections.all.remove(&self.entry.process_id);
        if !self.session {
            connections.strangers.retain(|&(id, _)| id != self.entry.process_id);
            self.registry.fewer_strangers.notify_one();
        }
        drop(connections);
        self.leave();
        if self.registry.open.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.registry.all_closed.notify_waiters();
        }
    }
}

/// Equality in a time that does not tell where a guess went wrong.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |d, (x, y)| std::hint::black_box(d | (x ^ y))) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_and_strangers_are_counted_and_limited() {
        let registry = Registry::new(1);
        let mut first = registry.open();
        let mut second = registry.open();
        assert!(first.admit());
        assert!(!second.admit());
        drop(first);
        assert!(second.admit());
        // Whoever is only told why it ends takes nobody's place, and is open all the same.
        second.leave();
        let mut third = registry.open();
        assert!(third.admit());
        assert_eq!((registry.sessions(), registry.open_count()), (1, 2));
        let more: Vec<_> = (0..STRANGERS_MIN + 3).map(|_| registry.open()).collect();
        // The oldest three have to go; who has a session is none of them.
        let ended = |open: &Open| open.entry.stop() == Stop::Now;
        assert!(!ended(&third) && more[..3].iter().all(ended) && !more[3..].iter().any(ended));
        assert_eq!(registry.refused(), 4);
        drop((second, third, more));
        assert_eq!((registry.sessions(), registry.open_count()), (0, 0));
        let connections = registry.connections.lock();
        assert!(connections.all.is_empty() && connections.strangers.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_in_a_crowd_waits_for_a_place_and_the_silent_lose_theirs() {
        let registry = Registry::new(1000);
        let begun = Instant::now();
        let mut crowd: Vec<_> = (0..registry.strangers_max).map(|_| registry.open()).collect();
        // One of them gets in, so the next one need not wait.
        let mut room = std::pin::pin!(registry.room());
        tokio::select! {
            biased;
            () = room.as_mut() => panic!("all places are taken"),
            () = std::future::ready(()) => {}
        }
        assert!(crowd[0].admit());
        room.await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let next = registry.open();
        // Nobody gets in any more: the next one comes when the oldest has had its time, and instead
        // of it.
        registry.room().await;
        assert_eq!(begun.elapsed(), STRANGER_TIME);
        let last = registry.open();
        let ended = |open: &Open| open.entry.stop() == Stop::Now;
        assert!(ended(&crowd[1]) && !ended(&crowd[2]) && !ended(&next) && !ended(&last));
    }

    #[test]
    fn numbers_are_positive_and_unique_also_after_a_wrap() {
        let registry = Registry::new(10);
        let first = registry.open();
        registry.next_process_id.store(i32::MAX - 1, Ordering::Relaxed);
        let ids: Vec<_> = (0..3).map(|_| registry.open()).collect();
        let ids: Vec<_> = ids.iter().map(|open| open.entry.process_id).collect();
        assert_eq!(first.entry.process_id, 1);
        assert_eq!(ids, [i32::MAX, 2, 3]);
    }

    #[test]
    fn a_long_secret_is_not_known_by_its_beginning() {
        let registry = Registry::new(1);
        let open = registry.open();
        let entry = open.entry();
        assert!(!entry.knows(b""), "nobody was told of it");
        let short = entry.tell_secret(false).to_vec();
        assert_eq!(short.len(), SHORT_SECRET_BYTES);
        assert!(entry.knows(&short) && !entry.knows(&entry.secret));
        let long = entry.tell_secret(true).to_vec();
        assert!(entry.knows(&long) && !entry.knows(&short));
    }

    #[test]
    fn a_cancel_needs_the_whole_secret() {
        assert!(same(b"abcd", b"abcd"));
        assert!(!same(b"abcd", b"abce"));
        assert!(!same(b"abcd", b"abc"));
    }
}
