//! The connections of a listener: how many there are, and which of them only wait.
//!
//! A connection *works* as long as a request of it is being answered, which has a time of its own,
//! body included. Otherwise it *waits*: for a request, for the rest of its head, or for a client to
//! read what it was answered. Whoever goes away without a word, or sends half a head, would have
//! its task and its memory for ever; so one that has waited for too long is closed.
//!
//! There are not more than so many at a time. One more is let in as soon as there is room: for that
//! one that waits is closed. First goes who has had time for a request and has sent none, then who
//! lies idle, and last who has just come: his first request is on its way, and would be lost with
//! his connection. Of each the one goes that has waited longest. So who only opens connections
//! keeps nobody out, and who has a connection for each request is not kept out by idle ones.
//!
//! A connection that has work is never closed here.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

/// What a listener lets connections do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// How long one may wait. Other components leave one idle for less than half of it (`link`), so
    /// that what they send does not meet its end.
    pub(crate) waiting: Duration,
    /// Most of them.
    pub(crate) most: usize,
    /// How long one has just come.
    pub(crate) fresh: Duration,
    /// How often they are looked at.
    pub(crate) look: Duration,
}

/// The limits of a component.
pub(crate) const LIMITS: Limits = Limits {
    waiting: Duration::from_secs(75),
    most: 1000,
    fresh: Duration::from_secs(5),
    look: Duration::from_secs(1),
};

/// Since when a connection waits that does not.
const WORKS: u64 = u64::MAX;

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// When its listener began.
    begun: Instant,
    /// Since when it waits, in milliseconds from then on.
    waits_since: AtomicU64,
    /// Whether it has ever had a request.
    has_asked: AtomicBool,
    to_close: Notify,
}

impl Connection {
    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    fn waits_since(&self) -> u64 {
        self.waits_since.load(Ordering::Relaxed)
    }

    fn waits(&self) -> bool {
        self.waits_since() != WORKS
    }

    /// How much it would be missed, the least first.
    fn rank(&self, now: u64, fresh: u64) -> (u8, u64) {
        let waits_since = self.waits_since();
        let class = match self.has_asked.load(Ordering::Relaxed) {
            true => 1,
            false if now.saturating_sub(waits_since) < fresh => 2,
            false => 0,
        };
        (class, waits_since)
    }

    /// It has a request, until this is dropped.
    pub(crate) fn work(self: &Arc<Self>) -> Work {
        self.waits_since.store(WORKS, Ordering::Relaxed);
        self.has_asked.store(true, Ordering::Relaxed);
        Work { connection: Arc::clone(self) }
    }
}

/// A request is being answered.
#[derive(Debug)]
pub(crate) struct Work {
    connection: Arc<Connection>,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.connection.waits_since.store(self.connection.now(), Ordering::Relaxed);
    }
}

/// The connections of a listener.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: Limits,
    begun: Instant,
    all: Mutex<Vec<Arc<Connection>>>,
    has_left: Notify,
}

impl Connections {
    /// None so far. They are looked at from now on.
    pub(crate) fn new(limits: Limits) -> Arc<Connections> {
        let (begun, all, has_left) = (Instant::now(), Mutex::default(), Notify::new());
        let connections = Arc::new(Connections { limits, begun, all, has_left });
        let looked_at = Arc::downgrade(&connections);
        tokio::spawn(async move {
            loop {
                sleep(limits.look).await;
                let Some(connections) = looked_at.upgrade() else { return };
                connections.close_old();
            }
        });
        connections
    }

    fn with<T>(&self, work: impl FnOnce(&mut Vec<Arc<Connection>>) -> T) -> T {
        work(&mut self.all.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Closes what has waited for too long.
    fn close_old(&self) {
        let now = self.begun.elapsed().as_millis() as u64;
        let most = self.limits.waiting.as_millis() as u64;
        self.with(|all| {
            // One that works has waited for no time at all.
            let old = all.iter().filter(|one| now.saturating_sub(one.waits_since()) > most);
            old.for_each(|one| one.to_close.notify_one());
        });
    }

    /// Closes the one that is missed least, if any waits.
    fn close_one(&self) {
        let now = self.begun.elapsed().as_millis() as u64;
        let fresh = self.limits.fresh.as_millis() as u64;
        self.with(|all| {
            let waiting = all.iter().filter(|one| one.waits());
            if let Some(one) = waiting.min_by_key(|one| one.rank(now, fresh)) {
                one.to_close.notify_one();
            }
        });
    }

    /// Lets one in as soon as there is room for it.
    pub(crate) async fn enter(self: &Arc<Self>) -> Entered {
        while self.with(|all| all.len()) >= self.limits.most {
            self.close_one();
            // All may work now, and one of them wait soon, which nobody says.
            let _ = timeout(self.limits.look, self.has_left.notified()).await;
        }
        let connection = Arc::new(Connection {
            begun: self.begun,
            waits_since: AtomicU64::new(self.begun.elapsed().as_millis() as u64),
            has_asked: AtomicBool::new(false),
            to_close: Notify::new(),
        });
        self.with(|all| all.push(Arc::clone(&connection)));
        Entered { connections: Arc::clone(self), connection }
    }
}

/// A connection that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    connections: Arc<Connections>,
    pub(crate) connection: Arc<Connection>,
}

impl Entered {
    /// Returns when it is to be closed.
    pub(crate) async fn is_to_close(&self) {
        loop {
            self.connection.to_close.notified().await;
            // A request may have come meanwhile.
            if self.connection.waits() {
                return;
            }
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.connections.with(|all| all.retain(|one| !Arc::ptr_eq(one, &self.connection)));
        self.connections.has_left.notify_one();
    }
}
