//! The application server's side: runs the logic of requests over a fixed list of sites, each
//! exactly once.
//!
//! An [`ApplicationServer`] keeps connections and nothing else: no log, no state of requests, no
//! list of other servers. Any number of them work over the same sites at once; each may stop at any
//! moment. `driver` does what a [`Run`] wants done, `steps` is one step at one site, `look` is what
//! is done without a run: acknowledgement, and what a site without siblings needs.
//!
//! # Invariants
//!
//! - *Every wait is bounded* by [`Patience`]; what is not known to be over is never used again (see
//!   [`crate::pool`]).
//! - *One connection for each site and run*, from BEGIN to PREPARE. There are as many runs at a
//!   time as connections to each site, so that no two runs wait for each other's.
//! - *The logic cannot outlive its transactions*: a run whose logic has kept a branch somewhere
//!   fails, and its connections are closed.
//! - *The sites of all servers are the same, in the same order.* Changing the list while requests
//!   are under way breaks "prepared everywhere".
//!
//! # A worked history
//!
//! ```text
//! run(c/7, 1024, "buy 3")            BEGIN at store and payment, in parallel
//! both have begun                    the logic: takes stock at 0, money at 1; result "order 51"
//! PREPARE at both, in parallel       store shows 1024; payment does not reply within its patience
//!                                    answer: retry above 1024; payment's connection is closed, store's goes back to the pool
//! run(c/7, 2048, "buy 3")            another server: both tables show 1024 (its PREPARE had arrived) and 2048
//! COMMIT 1024 at both                answer: "order 51", and not what this run computed
//! run(c/8, 1024, "buy 3")            PREPARE: store shows 1024; payment refuses, 40001
//! REFUSE up to 1024 at payment       its table proves that 1024 will never be prepared there
//! ROLLBACK 1024 at store             answer: retry above 1024, and nobody waits for it
//! ```

mod driver;
mod look;
mod steps;

pub use look::Acknowledged;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::backoff::Backoff;
use crate::etransaction::{Reply, Run, Text, instance_above};
use crate::pool::Pool;
use crate::site::{Job, Site};
use crate::xid::{BadKey, check_xid};

/// How long each wait may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For room for one more run; and for a connection, from the pool or new.
    pub connect: Duration,
    /// BEGIN at a site.
    pub begin: Duration,
    /// The request's logic.
    pub logic: Duration,
    /// PREPARE at a site.
    pub prepare: Duration,
    /// One COMMIT at a site, and any other single step.
    pub commit: Duration,
    /// All COMMITs: then the run leaves the decision to others.
    pub commit_all: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            connect: Duration::from_secs(3),
            begin: Duration::from_secs(5),
            logic: Duration::from_secs(30),
            prepare: Duration::from_secs(10),
            commit: Duration::from_secs(5),
            commit_all: Duration::from_secs(20),
        }
    }
}

/// How an application server works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Most connections to each site, and most runs at a time; further ones wait.
    pub connections_max: usize,
    /// How long each wait may take.
    pub patience: Patience,
    /// Pauses between COMMITs to a site that does not acknowledge, and between attempts that the
    /// server numbers itself.
    pub backoff: Backoff,
    /// Most attempts at a request whose client does not number them
    /// ([`ApplicationServer::answer`]).
    pub attempts_max: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connections_max: 16,
            patience: Patience::default(),
            backoff: Backoff { pause_max: Duration::from_secs(1), ..Backoff::default() },
            attempts_max: 5,
        }
    }
}

/// Why the logic could not be run to its end: the instance is given up, and the client tries again.
/// What the logic *decides* against a request (sold out) is no failure but a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Failure {
        Failure(crate::postgres::in_words(&error))
    }
}

/// The instance's transactions, one at each site, for the request's logic.
#[derive(Debug)]
pub struct Branches<C> {
    connections: Vec<Arc<C>>,
    job: Arc<Job>,
}

impl<C> Branches<C> {
    /// The transaction at a site of the list, from 0.
    ///
    /// # Panics
    /// There is no such site.
    pub fn site(&self, site: usize) -> &C {
        &self.connections[site]
    }

    /// How many sites there are.
    pub fn sites(&self) -> usize {
        self.connections.len()
    }

    /// The request's identifier and the instance that is executed.
    pub fn job(&self) -> &Job {
        &self.job
    }
}

/// A request's logic: from the request string and the sites to the result string. It may be run
/// several times for a request, also at once; one of its executions counts. What it does elsewhere
/// than at the sites is not undone.
///
/// Any `async` closure of this form is one: `|request: Text, branches: Branches<C>| async move { …
/// }`.
pub trait Logic<C>: Send + Sync + 'static {
    /// Runs it.
    fn run(
        &self,
        request: Text,
        branches: Branches<C>,
    ) -> impl Future<Output = Result<String, Failure>> + Send;
}

impl<C, F, R> Logic<C> for F
where
    F: Fn(Text, Branches<C>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<String, Failure>> + Send,
{
    fn run(
        &self,
        request: Text,
        branches: Branches<C>,
    ) -> impl Future<Output = Result<String, Failure>> + Send {
        self(request, branches)
    }
}

/// An application server over a list of sites. Cheap to clone; clones share their connections.
pub struct ApplicationServer<S: Site> {
    pools: Arc<[Arc<Pool<S>>]>,
    /// One for each run, and for what it leaves to be rolled back.
    rooms: Arc<Semaphore>,
    options: Options,
}

impl<S: Site> Clone for ApplicationServer<S> {
    fn clone(&self) -> Self {
        let (pools, rooms) = (Arc::clone(&self.pools), Arc::clone(&self.rooms));
        ApplicationServer { pools, rooms, options: self.options }
    }
}

impl<S: Site> std::fmt::Debug for ApplicationServer<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApplicationServer").field("pools", &self.pools).finish_non_exhaustive()
    }
}

impl<S: Site> ApplicationServer<S> {
    /// Over these sites, at least one. Connects when it has to.
    ///
    /// # Panics
    /// Without any site.
    pub fn new(sites: impl IntoIterator<Item = S>, options: Options) -> ApplicationServer<S> {
        let pools: Arc<[_]> =
            sites.into_iter().map(|site| Pool::new(site, options.connections_max)).collect();
        assert!(!pools.is_empty(), "an application server needs a site");
        let rooms = Arc::new(Semaphore::new(options.connections_max.clamp(1, Semaphore::MAX_PERMITS)));
        ApplicationServer { pools, rooms, options }
    }

    /// The pools of the sites, in their order.
    pub fn pools(&self) -> &[Arc<Pool<S>>] {
        &self.pools
    }

    /// Executes one instance of a request, or finishes or finds the decision for another. May be
    /// dropped at any point: it is then as if the server had stopped.
    ///
    /// # Errors
    /// The XID or the number is none.
    pub async fn run<L: Logic<S::Connection>>(
        &self,
        xid: &str,
        instance: i64,
        request: &str,
        logic: &L,
    ) -> Result<Reply, BadKey> {
        check_xid(xid)?;
        if instance <= 0 {
            return Err(BadKey::NotPositive(instance));
        }
        let job = Arc::new(Job { xid: xid.into(), instance, request: request.into() });
        let reply = self.drive(&job, logic).await;
        match reply {
            // Somebody may have prepared it everywhere and stopped: that can be finished, and then
            // there is an answer.
            Reply::InDoubt { .. } if self.settle(xid).await => Ok(self.drive(&job, logic).await),
            reply => Ok(reply),
        }
    }

    /// As [`run`](Self::run), for a client that does not number its attempts: takes numbers above
    /// the highest that the sites have heard of, and tries a few times.
    ///
    /// # Errors
    /// The XID is none.
    pub async fn answer<L: Logic<S::Connection>>(
        &self,
        xid: &str,
        request: &str,
        logic: &L,
    ) -> Result<Reply, BadKey> {
        let mut above = 0;
        let mut attempt = 1;
        loop {
            let instance = instance_above(above).unwrap_or(i64::MAX);
            let reply = self.run(xid, instance, request, logic).await?;
            match &reply {
                Reply::Retry { highest, .. } | Reply::InDoubt { highest, .. }
                    if attempt < self.options.attempts_max =>
                {
                    above = *highest;
                }
                _ => return Ok(reply),
            }
            attempt += 1;
            tokio::time::sleep(self.options.backoff.pause(attempt, rand::random())).await;
        }
    }

    async fn drive<L: Logic<S::Connection>>(&self, job: &Arc<Job>, logic: &L) -> Reply {
        let entering = Arc::clone(&self.rooms).acquire_owned();
        let Ok(Ok(room)) = timeout(self.options.patience.connect, entering).await else {
            let reason = "the application server has too much to do".into();
            return Reply::Retry { highest: job.instance, reason };
        };
        let token = rand::random();
        let (run, effects) = Run::begin(job.instance, token, job.request.clone(), self.pools.len());
        driver::Driver::new(Arc::clone(&self.pools), self.options, Arc::clone(job), run, room)
            .drive(effects, logic)
            .await
    }
}
