//! A few connections to one site, kept for the next request.
//!
//! # Rules
//!
//! 1. *Known to be idle, or thrown away.* Whoever takes a connection has a [`Lease`]. Only
//!    [`Lease::give_back`] returns it to the pool; a lease that is dropped, for whatever reason (an
//!    error, a time-out, a cancelled future, a panic), closes its connection. So nothing has to be
//!    remembered for a connection to be thrown away.
//! 2. *Bounded.* There are never more leases than `connections_max`; who wants another waits. The
//!    caller bounds the wait.
//! 3. *The last one back is the first one out*, so that few are used when few are needed; what is
//!    found closed is dropped on the way.
//!
//! ```text
//! take          nothing idle: connect                    1 leased
//! give back                                              1 idle
//! take          the idle one, "reused"                   1 leased
//! (the site restarts)   the first step fails: drop       closed
//! take_fresh    idle ones are as old: closed; connect    1 leased
//! ```

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::etransaction::Text;
use crate::site::{Connection, Site, Trouble};

/// The connections to one site.
pub struct Pool<S: Site> {
    site: S,
    idle: Mutex<Vec<S::Connection>>,
    permits: Arc<Semaphore>,
}

impl<S: Site> Pool<S> {
    /// An empty pool with room for `connections_max`, at least one.
    pub fn new(site: S, connections_max: usize) -> Arc<Pool<S>> {
        let permits = Arc::new(Semaphore::new(connections_max.clamp(1, Semaphore::MAX_PERMITS)));
        Arc::new(Pool { site, idle: Mutex::new(Vec::new()), permits })
    }

    /// The site.
    pub fn site(&self) -> &S {
        &self.site
    }

    /// Connections that nobody has at present.
    pub fn idle(&self) -> usize {
        self.with_idle(|idle| idle.len())
    }

    /// How many more can be taken at present.
    pub fn available(&self) -> usize {
        self.permits.available_permits()
    }

    fn with_idle<T>(&self, work: impl FnOnce(&mut Vec<S::Connection>) -> T) -> T {
        // Nothing in `work` leaves the list half changed.
        work(&mut self.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, Trouble> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        permit.map_err(|_| Trouble("the pool is closed".into()))
    }

    /// An idle connection or a new one. Waits for one of the `connections_max`.
    ///
    /// # Errors
    /// The site cannot be reached.
    pub async fn take(self: &Arc<Self>) -> Result<Lease<S>, Trouble> {
        let permit = self.permit().await?;
        let reused = self.with_idle(|idle| {
            while let Some(connection) = idle.pop() {
                if !connection.is_closed() {
                    return Some(connection);
                }
            }
            None
        });
        match reused {
            Some(connection) => Ok(self.lease(connection, permit, true)),
            None => Ok(self.lease(self.site.connect().await?, permit, false)),
        }
    }

    /// A new connection, after an idle one turned out to be lost: the others are as old, and are
    /// closed.
    ///
    /// # Errors
    /// The site cannot be reached.
    pub async fn take_fresh(self: &Arc<Self>) -> Result<Lease<S>, Trouble> {
        let stale = self.with_idle(std::mem::take);
        drop(stale);
        let permit = self.permit().await?;
        Ok(self.lease(self.site.connect().await?, permit, false))
    }

    fn lease(
        self: &Arc<Self>,
        connection: S::Connection,
        permit: OwnedSemaphorePermit,
        is_reused: bool,
    ) -> Lease<S> {
        Lease { connection: Arc::new(connection), pool: Arc::clone(self), is_reused, _permit: permit }
    }
}

/// A connection that somebody has. Dropped, it is closed.
pub struct Lease<S: Site> {
    connection: Arc<S::Connection>,
    pool: Arc<Pool<S>>,
    is_reused: bool,
    _permit: OwnedSemaphorePermit,
}

impl<S: Site> Lease<S> {
    /// The connection.
    pub fn connection(&self) -> &S::Connection {
        &self.connection
    }

    /// A handle for the request's logic.
    pub(crate) fn share(&self) -> Arc<S::Connection> {
        Arc::clone(&self.connection)
    }

    /// Whether a handle is still held by somebody else.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.connection) > 1
    }

    /// Whether it was idle before, and may have been lost meanwhile.
    pub fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Returns the connection, which is outside any transaction and has answered all it was asked.
    pub fn give_back(self) {
        let Lease { connection, pool, .. } = self;
        // The permit goes last, when the connection is there to be found.
        if let Ok(connection) = Arc::try_unwrap(connection)
            && !connection.is_closed()
        {
            pool.with_idle(|idle| idle.push(connection));
        }
    }
}

impl<S: Site> std::fmt::Debug for Lease<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("is_reused", &self.is_reused).finish_non_exhaustive()
    }
}

impl<S: Site> std::fmt::Debug for Pool<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("idle", &self.idle())
            .field("available", &self.available())
            .finish_non_exhaustive()
    }
}

/// In words, with the site's place in the list.
pub(crate) fn at_site(site: usize, trouble: &Trouble) -> Text {
    format!("site {site}: {trouble}").into()
}
